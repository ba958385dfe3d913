"""The two ways of a fit that the estimators of a latent variable model share: a spectrum, and EM on the rows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from gpukpca._formatting import format_bytes
from gpukpca._typing import Array
from gpukpca.algorithms.latent.ard import rounding_of
from gpukpca.algorithms.latent.e_step import EStep, Parameters, SufficientStatistics, gathered, panel_rows
from gpukpca.algorithms.latent.em import EMResult, StepReport, StoppingRule
from gpukpca.algorithms.latent.initialization import ObservedMoments, safe_observed_moments, start_of
from gpukpca.algorithms.latent.model import LatentModel
from gpukpca.algorithms.magnitude import check_variance, row_bounds, safe_scale, variances_of_data
from gpukpca.algorithms.pca.fit import fit_rows
from gpukpca.algorithms.pca.model import PCAFit
from gpukpca.algorithms.pca.settings import PCASettings, RankRequest
from gpukpca.algorithms.progress import Progress, listener_from
from gpukpca.algorithms.resources import MemoryBudget, Resources, retry_on_oom
from gpukpca.backend import blocking
from gpukpca.backend.device import describe_device, device_context, parsed_device
from gpukpca.backend.finite import check_finite, has_missing
from gpukpca.backend.namespace import (
    accumulation_dtype,
    cast,
    empty_like,
    from_host,
    is_foreign,
    is_memory_map,
    is_sparse,
    item_size,
    move,
    namespace_of,
    to_host,
)
from gpukpca.backend.parallel import worker_count
from gpukpca.backend.random import generator
from gpukpca.backend.rows import feature_means
from gpukpca.decomposition._session import FitSession, fit_session
from gpukpca.decomposition.batches import Batches, batches_of, is_stream
from gpukpca.decomposition.choices import check_parameter, is_integer, is_real, is_switch, is_word
from gpukpca.decomposition.latent_variables import WithLatentVariables
from gpukpca.decomposition.saved import Saved
from gpukpca.decomposition.validation import training_data
from gpukpca.exceptions import ConvergenceWarning, InvalidParameterError, MemoryBudgetError, RankWarning, warn_user

# Components of EM where nobody says how many: the memory and time of a step grow with their square.
MOST_BY_DEFAULT = 20


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

    def fit(self, X: Any, y: Any = None) -> Any:
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
        with fit_session(self, X, LatentVariableEstimator._check_parameters) as session:
            data = None if is_stream(X) else training_data(self, X, missing=True)
            if self._goes_direct(data):
                self._fit_direct(data, session)
            else:
                retry_on_oom(lambda budget: self._fit_em(X, budget), self.memory_limit, X)
        return self

    def _goes_direct(self, data: Any) -> bool:
        """Whether the solver, or with "auto" the data, ask for no iteration over the rows; None for a stream."""
        if self.solver != self.direct:
            return self.solver == "auto" and data is not None and not has_missing(data)
        if data is None:
            raise InvalidParameterError(
                f'solver="{self.direct}" needs all rows in one array, and X is an iterable of batches; use solver="em" '
                'or "auto".'
            )
        check_finite(data, f'solver="{self.direct}" takes no missing values; use solver="em" or "auto".')
        return True

    def _fit_direct(self, data: Any, session: FitSession) -> None:
        n, d = (int(size) for size in data.shape)
        p = self._wanted(n, d, below=d + 1)
        scale = safe_scale(*row_bounds([data]), data.dtype)
        data = data if scale == 1.0 else data * scale
        pca = retry_on_oom(
            lambda budget: self._pca_of(data, p, replace(session, budget=budget)), self.memory_limit, data
        )
        degrees = max(n - 1, 1) / n
        values = (to_host(pca.singular_values).astype(np.float64) / np.sqrt(n)) ** 2
        spectrum, total = values[:p], max(pca.total_variance * degrees, float(np.sum(values)))
        # PCA has decided what of the rest is rounding; it is a mean over min(n, d) - len(values) variances there.
        left_out = pca.noise_variance * (min(n, d) - len(values)) * degrees
        rest = float(np.sum(values[p:])) + left_out
        axes = cast(pca.projection.axes, accumulation_dtype(pca.projection.axes))[:, :p]
        mean = np.asarray(data.mean(axis=0, dtype=np.float64)).reshape(-1) if is_sparse(data) else feature_means(data)
        mean = from_host(mean, axes) if is_sparse(data) else move(mean, axes)
        rounding, found = rounding_of(mean, pca.components), LatentModel(axes, spectrum, 0.0, mean)
        model, steps, converged = self._of_spectrum(spectrum, rest, rounding, n, found)
        model = replace(model, scale=scale)
        self._commit(model, n, empty_like(data), total * n / self._degrees(n))
        self._conclude(model, p)
        self.n_iter_, self.converged_ = steps, pca.converged and converged
        self.solver_, self.fallbacks_ = f"{self.direct}: {pca.solver}", pca.fallbacks

    def _pca_of(self, data: Any, p: int, session: FitSession) -> PCAFit:
        """Return the PCA of the rows; without a number of components their rank is worth no warning."""
        place = session.place(data)
        with session.on(place, data) as limit:
            rank = RankRequest.of(None if self.n_components is None else p, "auto", *map(int, data.shape))
            fit = fit_rows(
                data,
                rank,
                PCASettings(warns_of_rounding=False),
                Resources(place, limit, self.n_jobs),
                generator(self.random_state),
                progress=listener_from(self.verbose),
            )
        return replace(fit, fallbacks=(*place.notes, *session.budget.story, *fit.fallbacks))

    def _of_spectrum(
        self, spectrum: np.ndarray, rest: float, rounding: float, n: int, pca: LatentModel
    ) -> tuple[LatentModel, int, bool]:
        """The model, steps and convergence, from variances over n; `rest` is the sum of those left out.

        Variances up to `rounding` may be nothing but that.
        """
        raise NotImplementedError

    def _fit_em(self, X: Any, budget: MemoryBudget) -> None:
        batches = batches_of(self, X, lambda _, d: self._rows_of_a_batch(X, d), 1, missing=True)
        if batches.once:
            raise InvalidParameterError(
                "EM goes through the batches many times, and an iterator or generator gives them only once. Pass an "
                "array, a memory map, a list of arrays, or an object whose __iter__ starts again."
            )
        with device_context(batches.like):
            limit = budget.limit(batches.like)
            data = _held(batches, limit)
            moments, data, scale = safe_observed_moments(data)
            n, d = moments.rows, int(moments.means.shape[0])
            p = self._wanted(n, d, below=d)
            if self.n_components is None and p > MOST_BY_DEFAULT:
                warn_user(
                    f"n_components=None: EM takes {MOST_BY_DEFAULT} of the {p} components that there could be, as all "
                    f"would need {format_bytes(self._bytes_of_em(batches.like, d, p))} and a step O(n d p²). Set "
                    "n_components.",
                    UserWarning,
                )
                p = MOST_BY_DEFAULT
            self._check_memory(batches.like, d, p, limit)
            total = float(np.sum(moments.variances))
            # Of the change of units: densities of the data are this much larger than those of the scaled rows.
            log_volume = math.log(scale) * float(namespace_of(moments.counts).sum(moments.counts))
            factor = n / self._degrees(n)
            if not total > 0:
                warn_user("no feature varies: every variance is 0, and the components mean nothing.", RankWarning)
                axes = from_host(np.eye(d)[:, :p], moments.means)
                outcome = EMResult(Parameters(axes, moments.means, 0.0), np.zeros(2), 0.0, True)
                model = LatentModel(axes, np.zeros(p), 0.0, moments.means, scale)
            else:
                start, floor = start_of(data, moments, p, generator(self.random_state))
                outcome = self._iterated(
                    lambda parameters: self._sums(data, parameters, n), start, floor, self._teller(log_volume), moments
                )
                model = LatentModel.of(outcome.parameters, factor, scale)
            whole = bool(namespace_of(moments.counts).all(moments.counts == n))
            self._commit(model, n, batches.place.home, total * factor if whole else None)
            self._commit_outcome(outcome, log_volume)
            self._conclude(model, p)
            self.fallbacks_ = (*batches.place.notes, *budget.story)

    def _iterated(
        self, sums_at: Any, start: Parameters, floor: float, tell: StepReport, moments: ObservedMoments
    ) -> EMResult:
        """EM from a start."""
        raise NotImplementedError

    def _conclude(self, model: LatentModel, candidates: int) -> None:
        """What a subclass has to add to a model that was found among so many components."""

    @property
    def _stop(self) -> StoppingRule:
        return StoppingRule(float(self.tol), int(self.max_iter))

    def _sums(self, data: Iterable[Array], parameters: Parameters, n: int) -> SufficientStatistics:
        sums = gathered(data, EStep(parameters), self.n_jobs)
        if sums.rows != n:
            raise ValueError(
                f"the batches changed between passes: the first pass gave {n} rows, a later one {sums.rows}. EM needs "
                "an iterable that gives the same batches every time it is gone through."
            )
        return sums

    def _teller(self, log_volume: float) -> StepReport:
        listener, most = listener_from(self.verbose), int(self.max_iter)

        def tell(step: int, value: float, gain: float) -> None:
            if listener is not None:
                text = f"step {step}: log-likelihood {value + log_volume:.10g}"
                text += f", {gain:.1e} an entry more" if step else ""
                listener(Progress("pass", text, step, most, gain if step else None, float(self.tol)))

        return tell

    def _commit_outcome(self, outcome: EMResult, log_volume: float) -> None:
        self.log_likelihoods_ = self._in_full(outcome.trace + log_volume)
        self.n_iter_, self.converged_, self.solver_ = outcome.n_steps, outcome.converged, "em"
        if not outcome.converged:
            warn_user(
                f"EM stopped after max_iter = {self.max_iter} steps, the last of which made the log-likelihood of an "
                f"observed entry {outcome.gain:.1e} larger (tol = {self.tol:g}). Use a larger max_iter or tol, or "
                "fewer components.",
                ConvergenceWarning,
            )

    def _in_full(self, numbers: np.ndarray) -> Array:
        """Host numbers where the data came from, in the widest type there."""
        return from_host(numbers, self.components_, accumulation_dtype(self.components_))

    def _rows_of_a_batch(self, X: Any, d: int) -> int:
        """All rows where they are in memory in the form that is computed with."""
        if self.batch_size is not None:
            return int(self.batch_size)
        in_place = self.device is None and not is_sparse(X) and not is_memory_map(X)
        return max(int(X.shape[0]), 1) if in_place and hasattr(X, "shape") else max(1, blocking.EM_BATCH_ENTRIES // d)

    def _degrees(self, n: int) -> int:
        return max(n - int(self.ddof), 1)

    def _wanted(self, n: int, d: int, below: int) -> int:
        """How many components, fewer than `below`."""
        most = min(n, d, below - 1)
        p = max(min(n, d) - 1, 1) if self.n_components is None else int(self.n_components)
        if p > most:
            why = "" if most == min(n, d) else ", and EM needs at least one direction of noise"
            raise InvalidParameterError(
                f"n_components={self.n_components!r} is too many for n_samples={n}, n_features={d}: at most "
                f"min(n_samples, n_features) = {min(n, d)} can be told apart{why}. Ask for at most {most}."
                if most > 0
                else f"EM needs at least 2 features, got n_features={d}: with one no direction is left for the noise."
            )
        return p

    def _bytes_of_em(self, like: Array, d: int, p: int) -> int:
        """Of the moments of the features, their systems and the panels."""
        workers = worker_count(like, self.n_jobs)
        moments = d * (p + 1) * (p + 2) // 2
        panel = panel_rows(np.empty((0, d)) if not is_foreign(like) else like[:0, None], p) * (4 * d + 6 * p * p)
        return item_size(accumulation_dtype(like)) * (moments * (blocking.E_STEP_WAVE * workers + 6) + workers * panel)

    def _check_memory(self, like: Array, d: int, p: int, limit: int) -> None:
        needed = self._bytes_of_em(like, d, p)
        if needed > limit:
            raise MemoryBudgetError(
                f"EM with {p} components of {d} features takes {format_bytes(needed)}, and {format_bytes(limit)} are "
                "allowed or free. Ask for fewer components, or set a larger memory_limit."
            )

    def _check_parameters(self) -> None:
        value = self.n_components
        check_parameter(
            self, "n_components", value is None or (is_integer(value) and value >= 1), "None or an integer >= 1"
        )
        names = ("auto", self.direct, "em")
        check_parameter(self, "solver", is_word(self.solver, *names), f"one of {', '.join(map(repr, names))}")
        check_parameter(self, "ddof", is_integer(self.ddof) and self.ddof in (0, 1), "0 or 1")
        check_parameter(self, "tol", is_real(self.tol) and self.tol >= 0, "a number >= 0")
        check_parameter(self, "max_iter", is_integer(self.max_iter) and self.max_iter >= 1, "an integer >= 1")
        size = self.batch_size
        check_parameter(self, "batch_size", size is None or (is_integer(size) and size >= 1), "None or an integer >= 1")
        jobs = self.n_jobs is None or (is_integer(self.n_jobs) and self.n_jobs != 0)
        check_parameter(self, "n_jobs", jobs, "None or an integer other than 0")
        verbose = callable(self.verbose) or is_switch(self.verbose)
        check_parameter(self, "verbose", verbose, "an integer >= 0 or a callable")
        parsed_device(self.device)

    def _commit(self, model: LatentModel, n: int, home: Array, total: float | None) -> None:
        """Set what both ways know, in the library and dtype of `home`; without a `total` it is that of the model.

        The total is that of rows that were multiplied by the scale of the model.
        """
        xp, scale = namespace_of(model.axes), model.scale
        total = model.total if total is None else total
        variances = variances_of_data(model.variances, scale, home.dtype)
        check_variance(total, scale, np.float64)
        if not model.n_components:  # the noise is all there is
            variances_of_data([model.noise], scale, np.float64)
        for name in ("log_likelihoods_", "precisions_"):
            self.__dict__.pop(name, None)
        self.components_ = move(cast(xp.asarray(xp.matrix_transpose(model.axes), copy=True), home.dtype), home)
        self.loadings_ = move(cast(model.loadings / scale, home.dtype), home)
        self.mean_ = move(cast(model.mean / scale, home.dtype), home)
        self.total_variance_ = total / scale / scale
        shares = model.variances / total if total > 0 else np.zeros(model.n_components)
        self.explained_variance_ = from_host(variances, self.components_)
        self.explained_variance_ratio_ = from_host(shares, self.components_)
        self.noise_variance_ = model.noise / scale / scale
        self.n_components_, self.n_samples_ = model.n_components, n
        self.device_ = describe_device(model.axes)
        self._latent = model


def _held(batches: Batches, limit: int) -> Iterable[Array]:
    """The batches, kept where it is computed if they were to be copied there in every step and fit into half of it."""
    if not batches.place.moved or batches.n_rows is None:
        return batches
    first = next(iter(batches))
    needed = batches.n_rows * int(first.shape[1]) * item_size(first.dtype)
    return list(batches) if 2 * needed <= limit else batches
