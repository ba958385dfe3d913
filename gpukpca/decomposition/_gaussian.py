"""Methods of estimators with a Gaussian model: covariance, precision, likelihood."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from gpukpca._typing import Array, ArrayLike, Held, Stream, Vector
from gpukpca.algorithms.pca.gaussian import UNCENTERED, GaussianModel
from gpukpca.backend.device import device_context
from gpukpca.backend.namespace import epsilon, overflow_allowed, to_host
from gpukpca.data.place import to_caller
from gpukpca.decomposition._base import AxesAttributes, OnlyWhere
from gpukpca.decomposition._fitted import is_centered
from gpukpca.decomposition._model_files import Saved
from gpukpca.decomposition._row_wise import mean_score, row_wise
from gpukpca.exceptions import InvalidParameterError


def _without_covariance(estimator: Any) -> str:
    """Return why an estimator has no Gaussian model: the fit, or the one to come, does not subtract the mean."""
    is_fitted = getattr(estimator, "_result", None) is not None
    return "" if (is_centered(estimator) if is_fitted else getattr(estimator, "center", True)) else UNCENTERED


class GaussianEstimator(AxesAttributes[Held], Saved):
    """Base of the estimators with axes, whose variances make a Gaussian model."""

    @property
    def _model(self) -> GaussianModel:
        """Return the model of the fitted attributes, where these are."""
        deviations = np.sqrt(to_host(self.explained_variance_).astype(np.float64))
        return GaussianModel(self.components_, deviations**2, float(self.noise_variance_), None)

    @OnlyWhere(_without_covariance, AttributeError)
    def get_covariance(self) -> Held:
        """Return the covariance matrix of the Gaussian model, Vᵀ (Λ - σ²)₊ V + σ² I.

        Returns
        -------
        array, shape (d, d), in the dtype of fit and the units of the data

        Raises
        ------
        NotFittedError
        AttributeError
            A fit with ``center=False``.
        """
        check_is_fitted(self)
        with device_context(self.components_):
            return self._model.covariance()

    @OnlyWhere(_without_covariance, AttributeError)
    def get_precision(self) -> Held:
        """Return the inverse of `get_covariance`, without inverting a d x d matrix.

        Where the covariance is singular, directions without variance are given eps times the largest one.

        Returns
        -------
        array, shape (d, d), in the dtype of fit

        Raises
        ------
        InvalidParameterError
            The variances of the data are smaller than their dtype holds.
        AttributeError
            A fit with ``center=False``.
        numpy.linalg.LinAlgError
            The data have no variance at all.
        """
        check_is_fitted(self)
        with device_context(self.components_):
            model, shares = self._model, to_host(self.explained_variance_ratio_)
            # A variance below the smallest normal number has lost digits, and its inverse may be infinite.
            is_lost = np.any((shares > epsilon(shares)) & (model.variances < np.finfo(shares.dtype).tiny))
            with overflow_allowed():
                precision = None if is_lost else model.precision()
            if precision is None or not np.all(np.isfinite(to_host(precision))):
                raise InvalidParameterError(
                    f"the precision matrix overflows: {shares.dtype} does not hold variances of data as small as those "
                    "of the fit, or their inverses. Multiply the data by a constant."
                )
            return precision


class LikelihoodEstimator(GaussianEstimator[Held]):
    """Base of those that also give the likelihood of rows."""

    # From rows to `score_samples` where the fit computes.
    _log_densities: Callable[[Any], Array]

    @OnlyWhere(_without_covariance, AttributeError)
    @row_wise("numbers")
    def score_samples(self, X: ArrayLike) -> Array:
        """Return the log-likelihood of every row, of its observed part where entries are missing, under the model.

        Parameters
        ----------
        X : array, CSR matrix or data frame, shape (m, d)

        Returns
        -------
        array, shape (m,), in the library of X

        Raises
        ------
        NotFittedError, ValueError
        AttributeError
            A fit with ``center=False``.
        numpy.linalg.LinAlgError
            The model has no variance at all.

        Notes
        -----
        Where the covariance is singular, directions without variance are given eps times the largest one.
        """
        return to_caller(self._log_densities(X), X)

    @OnlyWhere(_without_covariance, AttributeError)
    def score(self, X: ArrayLike | Stream, y: Any = None, sample_weight: Vector | None = None) -> float:
        """Return the mean log-likelihood of a row, Σ w log p(x) / Σ w with weights (m,); see `score_samples`."""
        return mean_score(self.score_samples, X, sample_weight)
