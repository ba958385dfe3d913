"""The warning of estimators that is scikit-learn's as well."""

from __future__ import annotations

from sklearn.exceptions import ConvergenceWarning as SklearnConvergenceWarning

from gpukpca import exceptions


class ConvergenceWarning(exceptions.ConvergenceWarning, SklearnConvergenceWarning):
    """Some eigenpairs have residuals above the tolerance."""
