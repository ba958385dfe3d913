"""Priors of the loadings W: flat, as in probabilistic PCA, or with a precision for every column, as in Bayesian PCA.

Each prior has its model of complete data from their spectrum, and its EM for the others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from gpukpca._typing import Array
from gpukpca.algorithms.fields import field_of, record
from gpukpca.algorithms.latent.acceleration import Extrapolation, subspace_change
from gpukpca.algorithms.latent.ard import PRUNED_BELOW, ard_in_span, varying_features
from gpukpca.algorithms.latent.e_step import Parameters, SufficientStatistics
from gpukpca.algorithms.latent.em import EMProblem, EMResult, run_em
from gpukpca.algorithms.latent.initialization import ObservedMoments
from gpukpca.algorithms.latent.m_step import expand_parameters, m_step, orthogonal_columns, stretch_columns
from gpukpca.algorithms.latent.model import LatentModel
from gpukpca.backend.linalg import column_sums
from gpukpca.backend.namespace import dtype_name, to_host
from gpukpca.data.slicing import take_columns
from gpukpca.exceptions import ConvergenceWarning, RankWarning, warn_user

# The noise of EM is at its floor up to so many times the floor.
AT_THE_FLOOR = 2.0


@dataclass(frozen=True)
class FlatPrior:
    """Maximum likelihood."""

    name = "closed_form"
    value_name = "log-likelihood"
    tol: ClassVar[float] = 1e-5

    def of_spectrum(
        self, known: LatentModel, rest: float, rounding: float, n: int, factor: float
    ) -> tuple[LatentModel, int, bool]:
        """Return the model in closed form, variances times `factor`; one step, and that it converged.

        `known` has the directions, the mean and the variances (p,) of n rows, descending, those that are rounding 0.
        `rest` is the sum of the variances left out; variances up to `rounding` may be rounding.
        """
        d, p = (int(size) for size in known.axes.shape)
        noise = rest / (d - p) if p < d else 0.0
        return replace(known, variances=np.maximum(known.variances, noise) * factor, noise=noise * factor), 1, True

    def iterate(self, em: EMProblem, moments: ObservedMoments) -> EMResult:
        """Return the maximum of the likelihood by EM with expansion."""

        def value_of(parameters: Parameters, sums: SufficientStatistics) -> float:
            return sums.log_likelihood(parameters.noise)

        def step(parameters: Parameters, sums: SufficientStatistics) -> Parameters:
            return orthogonal_columns(expand_parameters(sums, m_step(sums, parameters, None, em.floor)))

        return run_em(em, em.start, value_of, step, subspace_change, Extrapolation())

    def precisions(self, model: LatentModel, candidates: int) -> None:
        """Return None: the columns have no precisions."""


@dataclass(frozen=True)
class ARDPrior:
    """A precision for every column of W, estimated with it: automatic relevance determination.

    With `by_count` the caller chose the number of candidates; else a warning reports that few samples leave the number
    of components unreliable.
    """

    by_count: bool

    name = "spectrum"
    value_name = "log-posterior"
    # Columns that the data do not support shrink slowly at first, so that little is gained by a step.
    tol: ClassVar[float] = 1e-10

    def of_spectrum(
        self, known: LatentModel, rest: float, rounding: float, n: int, factor: float
    ) -> tuple[LatentModel, int, bool]:
        """Return the model of the columns that stay, variances times `factor`; the steps; whether they converged."""
        spectrum, d = known.variances, int(known.axes.shape[0])
        varying = varying_features(known.axes, spectrum, rest, rounding)
        solution = ard_in_span(spectrum, rest, rounding, n, varying, d)
        kept = int(np.sum(solution.kept))
        self._warn_if_most_stay(kept, min(len(spectrum), n - 2, varying - 1), n)
        if kept and not solution.noise:
            _warn_of_no_noise("is 0")
        axes = take_columns(known.axes, np.flatnonzero(solution.kept))
        variances = factor * (solution.lengths[solution.kept] + solution.noise)
        if not solution.converged:
            warn_user("the precisions did not converge.", ConvergenceWarning, n_steps=solution.n_steps)
        model = replace(known, axes=axes, variances=variances, noise=factor * solution.noise)
        return model, solution.n_steps, solution.converged

    def iterate(self, em: EMProblem, moments: ObservedMoments) -> EMResult:
        """Return the maximum of likelihood times prior by EM; the span of the data decides which columns stay."""
        d, candidates = (int(size) for size in em.start.loadings.shape)
        n = round(moments.rows)
        rank = min(n - 1, int(np.sum(moments.varying)))
        if 1 < rank < d:
            em = replace(em, start=_start_in_span(em, moments, rank))
        result = _maximize_posterior(em, d)
        self._warn_if_most_stay(int(result.parameters.loadings.shape[1]), min(candidates, rank - 1), n)
        if result.parameters.noise <= AT_THE_FLOOR * em.floor:
            _warn_of_no_noise("fell to its floor")
        return result

    def precisions(self, model: LatentModel, candidates: int) -> np.ndarray:
        """Return the precisions of all candidates in the units of the data on the host; infinite where pruned."""
        lengths = model.roots**2
        largest = np.finfo(dtype_name(model.mean.dtype)).max  # infinite where pruned only
        precisions = np.minimum(model.mean.shape[0] / lengths * model.scale * model.scale, largest)
        if not model.n_components:
            warn_user("no component is left: the data look alike in all directions.", RankWarning)
        return np.append(precisions, np.full(candidates - len(lengths), np.inf))

    def _warn_if_most_stay(self, kept: int, candidates: int, n: int) -> None:
        if not self.by_count and 2 * kept >= candidates > 1 and n < 2 * candidates:
            warn_user(
                "most candidates stay: the samples are too few to separate the noise, so the number of components is "
                "unreliable. Set n_components, or see gpukpca.model_selection.n_components_for.",
                RankWarning,
                kept=kept,
                candidates=candidates,
                n_samples=n,
            )


def _warn_of_no_noise(what: str) -> None:
    """Warn that all directions that vary are left, whatever their sizes."""
    warn_user(
        f"the noise variance {what}: features are combinations of others, or there are too few rows for so many "
        "components. The number of retained components is unreliable. Set n_components to less, or leave such features "
        "out.",
        RankWarning,
    )


LatentPrior = FlatPrior | ARDPrior


def _start_in_span(em: EMProblem, moments: ObservedMoments, rank: int) -> Parameters:
    """Return a start with the columns that stay if the data had `rank` features."""
    (d, candidates), varying = map(int, em.start.loadings.shape), moments.varying
    counted = float(np.sum(to_host(moments.counts)[varying])) * rank / int(np.sum(varying))

    def sums_in_span(parameters: Parameters) -> SufficientStatistics:
        return replace(em.sums_at(parameters), observed=round(counted))

    loadings = take_columns(em.start.loadings, np.arange(min(candidates, rank - 1)))
    start = replace(em.start, loadings=loadings, noise=em.start.noise * d / rank)
    solution = _maximize_posterior(replace(em, sums_at=sums_in_span, start=start), rank).parameters
    kept = int(solution.loadings.shape[1])
    return Parameters(solution.loadings, solution.mean, max(solution.noise * (rank - kept) / (d - kept), em.floor))


@record()
class ARDParameters(Parameters):
    """Parameters of the model and of the prior of its loadings, N(0, α⁻¹ I) in d dimensions."""

    lengths: np.ndarray = field_of("p", "d / α, on the host")
    pruned: float = field_of("", "log densities of pruned columns when they were pruned", default=0.0)


def _maximize_posterior(em: EMProblem, d: int) -> EMResult:
    """Return the maximum of likelihood times prior by EM; columns of W have d dimensions.

    The trace keeps the density of a pruned column, so that every step makes it larger.
    """

    def value_of(solution: ARDParameters, sums: SufficientStatistics) -> float:
        # Without the constant of normal densities.
        terms = math.log(d) - np.log(solution.lengths) - _lengths(solution.loadings) / solution.lengths
        return sums.log_likelihood(solution.noise) + (0.5 * d * float(np.sum(terms)) + solution.pruned)

    def step(before: ARDParameters, sums: SufficientStatistics) -> ARDParameters:
        # σ² α: α itself need not be a number where the data are tiny.
        pull = d * (before.noise / before.lengths)
        solution = orthogonal_columns(stretch_columns(sums, m_step(sums, before, pull, em.floor)))
        loadings, lengths = solution.loadings, _lengths(solution.loadings)
        stays = lengths > PRUNED_BELOW * solution.noise
        removed = np.maximum(lengths[~stays], math.ulp(0.0))
        pruned = before.pruned + 0.5 * d * float(np.sum(math.log(d) - np.log(removed) - 1.0))
        if not np.all(stays):
            loadings = take_columns(loadings, np.flatnonzero(stays))
        return ARDParameters(loadings, solution.mean, solution.noise, lengths[stays], pruned)

    W = em.start.loadings
    start = ARDParameters(W, em.start.mean, em.start.noise, _lengths(W))
    return run_em(em, start, value_of, step)


def _lengths(W: Array) -> np.ndarray:
    """Return ‖w_i‖² on the host, shape (q,)."""
    return to_host(column_sums(W**2)).astype(np.float64)
