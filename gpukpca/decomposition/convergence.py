"""The warning of estimators that scikit-learn's filters apply to as well."""

from __future__ import annotations

from sklearn.exceptions import ConvergenceWarning as SklearnConvergenceWarning

from gpukpca import exceptions


class ConvergenceWarning(exceptions.ConvergenceWarning, SklearnConvergenceWarning):
    """Some eigenpairs have residuals above the tolerance."""


exceptions.raise_as(exceptions.ConvergenceWarning, ConvergenceWarning)
