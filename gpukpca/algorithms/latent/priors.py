"""Priors of the loadings W: flat, as in probabilistic PCA, or with a precision for every column, as in Bayesian PCA."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from gpukpca.algorithms.fields import documented, field_of
from gpukpca.algorithms.latent.ard import most_probable, relevance_in_span, span_rank
from gpukpca.algorithms.latent.e_step import Parameters, SufficientStatistics
from gpukpca.algorithms.latent.em import EMProblem, EMResult, most_likely
from gpukpca.algorithms.latent.initialization import ObservedMoments
from gpukpca.algorithms.latent.model import LatentModel
from gpukpca.backend.namespace import dtype_name, to_host
from gpukpca.backend.rows import take_columns
from gpukpca.exceptions import ConvergenceWarning, RankWarning, warn_user

# The noise of EM up to so many times its floor has been held up by it.
AT_THE_FLOOR = 2.0


@documented
@dataclass(frozen=True)
class KnownSpectrum:
    """Variances of complete data, over n."""

    axes: LatentModel = field_of("", "directions and mean; its variances (p,) descend, those that are rounding are 0")
    rest: float = field_of("", "the sum of the variances left out")
    rounding: float = field_of("", "variances up to this may be nothing but rounding")
    n: int = field_of("", "rows")


class LatentPrior(Protocol):
    """The members of a prior of the loadings that a fit uses."""

    name: str

    def of_spectrum(self, known: KnownSpectrum, factor: float) -> tuple[LatentModel, int, bool]:
        """Return the model of complete data, variances times `factor`; the steps, and whether they converged."""

    def iterate(self, em: EMProblem, moments: ObservedMoments) -> EMResult:
        """Return the result of EM."""

    def precisions(self, model: LatentModel, candidates: int) -> np.ndarray | None:
        """Return the precisions of all candidate columns on the host, infinite where pruned; None for a flat prior."""


@dataclass(frozen=True)
class FlatPrior:
    """Maximum likelihood."""

    name = "closed_form"

    def of_spectrum(self, known: KnownSpectrum, factor: float) -> tuple[LatentModel, int, bool]:
        """Return the model in closed form."""
        d, p = (int(size) for size in known.axes.axes.shape)
        noise = known.rest / (d - p) if p < d else 0.0
        variances = np.maximum(known.axes.variances, noise) * factor
        return replace(known.axes, variances=variances, noise=noise * factor), 1, True

    def iterate(self, em: EMProblem, moments: ObservedMoments) -> EMResult:
        """Return the maximum of the likelihood."""
        return most_likely(em)

    def precisions(self, model: LatentModel, candidates: int) -> None:
        """Return None."""
        return None


@dataclass(frozen=True)
class RelevancePrior:
    """A precision for every column of W, estimated with it; see `gpukpca.algorithms.latent.ard`.

    Attributes
    ----------
    by_count : bool
        Whether the caller chose the number of candidates; else a number that few samples leave unreliable is reported.
    """

    by_count: bool

    name = "spectrum"

    def of_spectrum(self, known: KnownSpectrum, factor: float) -> tuple[LatentModel, int, bool]:
        """Return the model of the columns that stay."""
        spectrum, n, d = known.axes.variances, known.n, int(known.axes.axes.shape[0])
        rank = span_rank(spectrum, known.rest, n, d, known.rounding)
        found = relevance_in_span(spectrum, known.rest, rank, n, d)
        self._warn_if_most_stay(int(np.sum(found.kept)), min(len(spectrum), rank - 1), n)
        axes = take_columns(known.axes.axes, np.flatnonzero(found.kept))
        variances = factor * (found.lengths[found.kept] + found.noise)
        if not found.converged:
            warn_user(f"the precisions still moved after {found.n_steps} steps.", ConvergenceWarning)
        model = LatentModel(axes, variances, factor * found.noise, known.axes.mean)
        return model, found.n_steps, found.converged

    def iterate(self, em: EMProblem, moments: ObservedMoments) -> EMResult:
        """Return the maximum of likelihood times prior; the columns that stay are chosen in the span of the data."""
        d, candidates = (int(size) for size in em.start.loadings.shape)
        rank = min(moments.rows - 1, int(np.sum(moments.varying)))
        if 1 < rank < d:
            em = replace(em, start=_chosen_in_span(em, moments, rank))
        outcome = most_probable(em, d)
        self._warn_if_most_stay(int(outcome.parameters.loadings.shape[1]), min(candidates, rank - 1), moments.rows)
        if outcome.parameters.noise <= AT_THE_FLOOR * em.floor:
            warn_user(
                "the noise variance fell to its floor: features are combinations of others, or there are too few rows "
                "for so many components, and how many are kept is no finding. Set n_components to less, or leave such "
                "features out.",
                RankWarning,
            )
        return outcome

    def precisions(self, model: LatentModel, candidates: int) -> np.ndarray:
        """Return the precisions in the units of the data; warn where no component is left."""
        lengths = model.roots**2
        largest = np.finfo(dtype_name(model.mean.dtype)).max  # infinite where pruned only
        precisions = np.minimum(model.mean.shape[0] / lengths * model.scale * model.scale, largest)
        if not model.n_components:
            warn_user("no component is left: the data look alike in all directions.", RankWarning)
        return np.append(precisions, np.full(candidates - len(lengths), np.inf))

    def _warn_if_most_stay(self, kept: int, candidates: int, n: int) -> None:
        if not self.by_count and 2 * kept >= candidates > 1 and n < 2 * candidates:
            warn_user(
                f"{kept} of {candidates} candidates stay, with {n} samples: too few to tell noise from the rest, and "
                "their number is no finding. Set n_components, or see gpukpca.model_selection.compare_rules.",
                RankWarning,
            )


def _chosen_in_span(em: EMProblem, moments: ObservedMoments, rank: int) -> Parameters:
    """Return a start with the columns that stay where observed entries count as those of `rank` features."""
    (d, candidates), varying = map(int, em.start.loadings.shape), moments.varying
    counted = float(np.sum(to_host(moments.counts)[varying])) * rank / int(np.sum(varying))

    def sums_in_span(parameters: Parameters) -> SufficientStatistics:
        return replace(em.sums_at(parameters), observed=round(counted))

    loadings = take_columns(em.start.loadings, np.arange(min(candidates, rank - 1)))
    start = replace(em.start, loadings=loadings, noise=em.start.noise * d / rank)
    found = most_probable(replace(em, sums_at=sums_in_span, start=start), rank).parameters
    kept = int(found.loadings.shape[1])
    return replace(found, noise=max(found.noise * (rank - kept) / (d - kept), em.floor))
