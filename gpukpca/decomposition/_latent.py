"""Latent variable models as estimators: the methods of a fitted model, and the two ways of a fit."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from gpukpca._rules import COUNT
from gpukpca._typing import Array, ArrayLike
from gpukpca.algorithms.latent.fit import fit_em, fit_spectrum, is_direct
from gpukpca.algorithms.latent.model import LatentFit, filled
from gpukpca.algorithms.latent.priors import LatentPrior
from gpukpca.algorithms.latent.settings import LatentSettings
from gpukpca.algorithms.placement import Placement, to_caller
from gpukpca.algorithms.progress import listener_from
from gpukpca.algorithms.resources import Resources
from gpukpca.backend import blocking
from gpukpca.backend.device import device_context
from gpukpca.backend.finite import check_finite
from gpukpca.backend.namespace import (
    accumulation_dtype,
    cast,
    from_host,
    is_memory_map,
    is_sparse,
    item_size,
    move,
    overflow_allowed,
)
from gpukpca.backend.random import Seed, generator
from gpukpca.backend.rows import dense_rows
from gpukpca.decomposition._base import DevicePlacement, publish
from gpukpca.decomposition._batches import PlacedBatches, batches_of, is_stream, new_rows
from gpukpca.decomposition._dask import supports_dask
from gpukpca.decomposition._session import FitSession, fit_session
from gpukpca.decomposition._validation import checked_scores, training_data
from gpukpca.decomposition.gaussian import WithLikelihood
from gpukpca.exceptions import InvalidParameterError
from gpukpca.persistence.save_load import Saved


class LatentVariableEstimator(
    Saved, DevicePlacement, WithLikelihood, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator
):
    """x | z ~ N(W z + μ, σ² I); a subclass sets the prior of W and names its `direct` solver."""

    # The solver for complete data in one piece.
    direct = "closed_form"

    n_components: Any
    solver: Any
    ddof: Any
    tol: Any
    max_iter: Any
    batch_size: Any
    random_state: Any
    device: Any
    memory_limit: Any
    n_jobs: Any
    verbose: Any
    loadings_: Array
    mean_: Array
    n_components_: int
    _result: LatentFit

    # -- fitting ---------------------------------------------------------------------------------------------------

    def fit(self, X: ArrayLike | Iterable[ArrayLike], y: Any = None) -> Any:
        """Fit the model to X.

        Parameters
        ----------
        X : array, CSR matrix or data frame, shape (n, d); or an iterable of such batches
            NaN, masked entries and pandas' missing values are entries that were not observed. A memory map is read a
            batch at a time. An iterable must give the same batches every time it is gone through: a list, or an object
            with ``__iter__``, but not a generator.
        y : ignored

        Returns
        -------
        self
        """
        with fit_session(self, X) as session:
            data = None if is_stream(X) else training_data(self, X, missing=True)
            direct = is_direct(data, "direct" if self.solver == self.direct else self.solver, self.direct)
            attempt = partial(self._fit_direct, data) if direct else partial(self._fit_em, X)
            session.retry(attempt, X)
        return self

    def _prior(self) -> LatentPrior:
        """Return the prior of the loadings."""
        raise NotImplementedError

    def _settings(self) -> LatentSettings:
        return LatentSettings(ddof=int(self.ddof), tol=float(self.tol), max_iter=int(self.max_iter))

    def _fit_direct(self, data: Any, session: FitSession) -> None:
        place = session.place(data)
        with session.on(place, data) as limit:
            fit = fit_spectrum(data, *self._arguments(place, limit))
        self._publish(fit, place, session.budget.story)

    def _fit_em(self, X: Any, session: FitSession) -> None:
        batches = batches_of(self, X, lambda _, d: self._rows_of_a_batch(X, d), 1, missing=True)
        if batches.once:
            raise InvalidParameterError(
                "EM goes through the batches many times, and an iterator or generator gives them only once. Pass an "
                "array, a memory map, a list of arrays, or an object whose __iter__ starts again."
            )
        with device_context(batches.like):
            limit = session.budget.limit(batches.like)
            fit = fit_em(_held(batches, limit), *self._arguments(batches.place, limit))
        self._publish(fit, batches.place, session.budget.story)

    def _arguments(self, place: Placement, limit: int) -> tuple[Any, ...]:
        """Return the arguments of a fit after the rows."""
        rng, listener = generator(self.random_state), listener_from(self.verbose)
        resources = Resources(place, limit, self.n_jobs)
        return self.n_components, self._prior(), self._settings(), resources, rng, listener

    def _publish(self, fit: LatentFit, place: Placement, retries: tuple[str, ...] = ()) -> None:
        """Set the fitted attributes, where the data came from; the only place that does."""
        publish(self, fit, place.returned, without=("model",), optional=("log_likelihoods", "precisions"))
        self.n_components_, self.device_ = fit.n_components, fit.device
        self.fallbacks_ = (*place.notes, *retries, *fit.fallbacks)
        self._result = fit

    def _rows_of_a_batch(self, X: Any, d: int) -> int:
        """Return the rows of a batch: all of those in memory that need no conversion."""
        if self.batch_size is not None:
            return int(self.batch_size)
        in_place = self.device is None and not is_sparse(X) and not is_memory_map(X)
        return max(int(X.shape[0]), 1) if in_place and hasattr(X, "shape") else max(1, blocking.EM_BATCH_ENTRIES // d)

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
        Y = new_rows(self, X, "transform", missing=True)
        with device_context(self._result.model.axes), overflow_allowed():
            return self._finite(self._result.model.posterior_means(Y), X, "The array of posterior means")

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
            return from_host(np.diag(self._result.model.posterior_variances), self.components_)
        Y = new_rows(self, X, "posterior_covariance", missing=True)
        with device_context(self._result.model.axes), overflow_allowed():
            return self._returned(self._result.model.posterior_covariances(Y), X)

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
        with device_context(self._result.model.axes), overflow_allowed():
            Z = checked_scores(X, self.components_, self.n_components_)
            Z = move(cast(Z, accumulation_dtype(Z)), self._result.model.axes)
            return self._finite(self._result.model.points(Z), X, "The array of points")

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
        Y = new_rows(self, X, "denoise", missing=True)
        with device_context(self._result.model.axes), overflow_allowed():
            points = self._result.model.points(self._result.model.posterior_means(Y))
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
        Y = new_rows(self, X, "impute", missing=True)
        with device_context(self._result.model.axes), overflow_allowed():
            points = self._result.model.points(self._result.model.posterior_means(Y))
            rows = dense_rows(Y)
            whole = filled(rows, move(points, rows))
            check_finite(whole, "The model is too large for the data.", "The array of points")
            return self._delivered(whole, X)

    # -- the density -----------------------------------------------------------------------------------------------

    def _log_densities(self, X: Any) -> Array:
        Y = new_rows(self, X, "score_samples", missing=True)
        with device_context(self._result.model.axes), overflow_allowed():
            return self._returned(self._result.model.log_likelihood(Y), X)

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
        COUNT.check_argument("n_samples", n_samples)
        rng = generator(self.random_state if random_state is None else random_state)
        model, d = self._result.model, int(self.mean_.shape[0])
        with device_context(model.axes), overflow_allowed():
            Z = from_host(rng.standard_normal((int(n_samples), model.n_components)), model.axes)
            noise = np.sqrt(model.noise) * rng.standard_normal((int(n_samples), d))
            points = model.points(Z) + from_host(noise, model.axes) / model.scale
            return move(cast(points, self.components_.dtype), self.components_)

    # -- results ---------------------------------------------------------------------------------------------------

    def _finite(self, found: Array, X: Any, what: str) -> Array:
        found = cast(found, self.components_.dtype)
        check_finite(found, "The new rows are too large.", what)
        return self._delivered(found, X)

    def _returned(self, found: Array, X: Any) -> Array:
        found = cast(found, self.components_.dtype)
        return to_caller(found, X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        return tags


def _held(batches: PlacedBatches, limit: int) -> Iterable[Array]:
    """Return the batches, kept on the device of the fit if they are moved in every step and fill at most half of it."""
    if not batches.place.moved or batches.n_rows is None:
        return batches
    first = next(iter(batches))
    needed = batches.n_rows * int(first.shape[1]) * item_size(first.dtype)
    return list(batches) if 2 * needed <= limit else batches
