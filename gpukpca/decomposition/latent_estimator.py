"""Fits of latent variable models as scikit-learn's estimators over `gpukpca.algorithms.latent`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from gpukpca._typing import Array, ArrayLike
from gpukpca.algorithms.latent.fit import fit_em, fit_spectrum, is_direct
from gpukpca.algorithms.latent.model import LatentFit
from gpukpca.algorithms.latent.priors import LatentPrior
from gpukpca.algorithms.latent.settings import LatentSettings
from gpukpca.algorithms.placement import Placement
from gpukpca.algorithms.progress import listener_from
from gpukpca.algorithms.resources import Resources, retry_on_oom
from gpukpca.backend import blocking
from gpukpca.backend.device import device_context
from gpukpca.backend.namespace import is_memory_map, is_sparse, item_size
from gpukpca.backend.random import generator
from gpukpca.decomposition._base import publish
from gpukpca.decomposition._batches import Batches, batches_of, is_stream
from gpukpca.decomposition._session import FitSession, fit_session
from gpukpca.decomposition._validation import training_data
from gpukpca.decomposition.latent_variables import WithLatentVariables
from gpukpca.exceptions import InvalidParameterError
from gpukpca.persistence.save_load import Saved


class LatentVariableEstimator(Saved, WithLatentVariables):
    """x | z ~ N(W z + μ, σ² I); a subclass says what it makes of a spectrum and of EM, and names its `direct` way."""

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
            direct = is_direct(data, "direct" if self.solver == self.direct else self.solver, self._prior())
            attempt = partial(self._fit_direct, data) if direct else partial(self._fit_em, X)
            retry_on_oom(lambda budget: attempt(replace(session, budget=budget)), self.memory_limit, X)
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
        self._publish(fit, place, session)

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
        self._publish(fit, batches.place, session)

    def _arguments(self, place: Placement, limit: int) -> tuple[Any, ...]:
        """Return the arguments of a fit after the rows."""
        rng, listener = generator(self.random_state), listener_from(self.verbose)
        resources = Resources(place, limit, self.n_jobs)
        return self.n_components, self._prior(), self._settings(), resources, rng, listener

    def _publish(self, fit: LatentFit, place: Placement, session: FitSession) -> None:
        """Set the fitted attributes, where the data came from; the only place that does."""
        publish(self, fit, place.returned, without=("model",), optional=("log_likelihoods", "precisions"))
        self.n_components_, self.device_ = fit.n_components, fit.device
        self.fallbacks_ = (*place.notes, *session.budget.story, *fit.fallbacks)
        self._latent = fit.model

    def _rows_of_a_batch(self, X: Any, d: int) -> int:
        """All rows where they are in memory in the form that is computed with."""
        if self.batch_size is not None:
            return int(self.batch_size)
        in_place = self.device is None and not is_sparse(X) and not is_memory_map(X)
        return max(int(X.shape[0]), 1) if in_place and hasattr(X, "shape") else max(1, blocking.EM_BATCH_ENTRIES // d)


def _held(batches: Batches, limit: int) -> Iterable[Array]:
    """The batches, kept where it is computed if they were to be copied there in every step and fit into half of it."""
    if not batches.place.moved or batches.n_rows is None:
        return batches
    first = next(iter(batches))
    needed = batches.n_rows * int(first.shape[1]) * item_size(first.dtype)
    return list(batches) if 2 * needed <= limit else batches
