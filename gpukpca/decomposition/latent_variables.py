"""Methods of a fitted latent variable model: posterior of z, points, densities, samples."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from gpukpca._rules import is_integer
from gpukpca._typing import Array, ArrayLike
from gpukpca.algorithms.latent.model import LatentModel, filled
from gpukpca.algorithms.placement import to_caller
from gpukpca.backend.device import device_context
from gpukpca.backend.finite import check_finite
from gpukpca.backend.namespace import (
    accumulation_dtype,
    cast,
    from_host,
    move,
    overflow_allowed,
)
from gpukpca.backend.random import Seed, generator
from gpukpca.backend.rows import dense_rows
from gpukpca.decomposition._base import DevicePlacement
from gpukpca.decomposition._batches import is_stream
from gpukpca.decomposition._validation import checked_scores, new_data
from gpukpca.decomposition.gaussian import WithGaussianModel
from gpukpca.decomposition.lazy import mean_of, supports_dask
from gpukpca.exceptions import InvalidParameterError


class WithLatentVariables(
    DevicePlacement, WithGaussianModel, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator
):
    """The methods of an estimator with a fitted `LatentModel`."""

    loadings_: Array
    mean_: Array
    n_components_: int
    random_state: Any
    _latent: LatentModel

    # -- the latent variables --------------------------------------------------------------------------------------

    @supports_dask("scores")
    def transform(self, X: ArrayLike) -> Array:
        """Posterior means of z: ``M⁻¹ Wᵀ (x - μ)``, for rows with missing entries those of their observed part.

        Parameters
        ----------
        X : array, CSR matrix or data frame, shape (m, d)
            A memory map is read by panels of rows. A row without any observed entry gets the mean of z, 0.

        Returns
        -------
        array, shape (m, p), in the library of X and the dtype of fit

        Raises
        ------
        NotFittedError, ValueError

        Notes
        -----
        Cost O(m d p) for complete rows, O(m (d p² + p³)) for the others.
        """
        Y = self._new_rows(X, "transform")
        with device_context(self._latent.axes), overflow_allowed():
            return self._finite(self._latent.posterior_means(Y), X, "The array of posterior means")

    def posterior_covariance(self, X: Any = None) -> Array:
        """Covariance σ² M⁻¹ of z given x, the same for all complete rows.

        Parameters
        ----------
        X : array, CSR matrix or data frame, shape (m, d), optional
            Rows with missing entries are less certain, each in its own way.

        Returns
        -------
        array
            Shape (p, p) without X, (m, p, p) with it.

        Raises
        ------
        NotFittedError, ValueError
        """
        check_is_fitted(self)
        if X is None:
            return from_host(np.diag(self._latent.posterior_variances), self.components_)
        Y = self._new_rows(X, "posterior_covariance")
        with device_context(self._latent.axes), overflow_allowed():
            return self._returned(self._latent.posterior_covariances(Y), X)

    @supports_dask("points", of="scores")
    def inverse_transform(self, X: ArrayLike) -> Array:
        """The mean of x for given z: ``W z + μ``.

        Parameters
        ----------
        X : array, shape (m, p)
            Values of z, such as `transform` returns.

        Returns
        -------
        array, shape (m, d), in the library of X and the dtype of fit

        Raises
        ------
        NotFittedError, ValueError
        """
        check_is_fitted(self)
        with device_context(self._latent.axes), overflow_allowed():
            Z = checked_scores(X, self.components_, self.n_components_)
            Z = move(cast(Z, accumulation_dtype(Z)), self._latent.axes)
            return self._finite(self._latent.points(Z), X, "The array of points")

    @supports_dask("points")
    def denoise(self, X: ArrayLike) -> Array:
        """The mean of x without its noise, given what was observed: ``W ⟨z⟩ + μ``, missing entries included.

        Parameters
        ----------
        X : array, CSR matrix or data frame, shape (m, d)

        Returns
        -------
        array, shape (m, d), in the library of X and the dtype of fit

        Raises
        ------
        NotFittedError, ValueError
        """
        Y = self._new_rows(X, "denoise")
        with device_context(self._latent.axes), overflow_allowed():
            points = self._latent.points(self._latent.posterior_means(Y))
            return self._finite(points, X, "The array of points")

    def impute(self, X: ArrayLike) -> Array:
        """X with missing entries replaced by their means given the others; observed entries stay as they are.

        Parameters
        ----------
        X : array, CSR matrix or data frame, shape (m, d)

        Returns
        -------
        array, shape (m, d), in the library and dtype of X

        Raises
        ------
        NotFittedError, ValueError
        """
        Y = self._new_rows(X, "impute")
        with device_context(self._latent.axes), overflow_allowed():
            points = self._latent.points(self._latent.posterior_means(Y))
            rows = dense_rows(Y)
            whole = filled(rows, move(points, rows))
            check_finite(whole, "The model is too large for the data.", "The array of points")
            return self._delivered(whole, X)

    # -- the density -----------------------------------------------------------------------------------------------

    @supports_dask("numbers")
    def score_samples(self, X: ArrayLike) -> Array:
        """Log-likelihood of every row, of its observed part where entries are missing.

        Parameters
        ----------
        X : array, CSR matrix or data frame, shape (m, d)

        Returns
        -------
        array, shape (m,), in the library of X

        Raises
        ------
        NotFittedError, ValueError
        numpy.linalg.LinAlgError
            The model has no variance at all.

        Notes
        -----
        Where the covariance is singular, directions without variance are given eps times the largest one.
        """
        Y = self._new_rows(X, "score_samples")
        with device_context(self._latent.axes), overflow_allowed():
            found = self._latent.log_likelihood(Y)
            found = cast(found, self.components_.dtype)
            return to_caller(found, X)

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """The mean of `score_samples`.

        Parameters
        ----------
        X : array, CSR matrix or data frame, shape (m, d)
        y : ignored

        Returns
        -------
        float
        """
        return mean_of(self.score_samples(X))

    def sample(self, n_samples: int = 1, *, random_state: Seed = None) -> Array:
        """Rows drawn from the model; the numbers are drawn on the host.

        Parameters
        ----------
        n_samples : int >= 1
        random_state : None, int, RandomState or Generator
            None: that of the estimator.

        Returns
        -------
        array, shape (n_samples, d), in the library and dtype of fit

        Raises
        ------
        NotFittedError, InvalidParameterError
        """
        check_is_fitted(self)
        if not is_integer(n_samples) or n_samples < 1:
            raise InvalidParameterError(f"n_samples={n_samples!r} is not allowed; it must be an integer >= 1.")
        rng = generator(self.random_state if random_state is None else random_state)
        model, d = self._latent, int(self.mean_.shape[0])
        with device_context(model.axes), overflow_allowed():
            Z = from_host(rng.standard_normal((int(n_samples), model.n_components)), model.axes)
            noise = np.sqrt(model.noise) * rng.standard_normal((int(n_samples), d))
            points = model.points(Z) + from_host(noise, model.axes) / model.scale
            return move(cast(points, self.components_.dtype), self.components_)

    # -- results ---------------------------------------------------------------------------------------------------

    def _new_rows(self, X: Any, method: str) -> Array:
        check_is_fitted(self)
        if is_stream(X):
            raise InvalidParameterError(
                f"{method} takes rows, not an iterable of batches; call it for each: [model.{method}(b) for b in X]."
            )
        return new_data(self, X, self.components_, method, missing=True)

    def _finite(self, found: Array, X: Any, what: str) -> Array:
        found = cast(found, self.components_.dtype)
        check_finite(found, "The new rows are too large.", what)
        return self._delivered(found, X)

    def _returned(self, found: Array, X: Any) -> Array:
        found = cast(found, self.components_.dtype)
        return to_caller(found, X)

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.array_api_support = True
        return tags
