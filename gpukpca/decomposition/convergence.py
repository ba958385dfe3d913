"""The warning that is both the library's and scikit-learn's; nothing below the estimators knows scikit-learn."""

from sklearn.exceptions import ConvergenceWarning as SklearnConvergenceWarning

from gpukpca import exceptions


class ConvergenceWarning(exceptions.ConvergenceWarning, SklearnConvergenceWarning):
    """Some eigenpairs have residuals above the tolerance."""
