"""Probabilistic and Bayesian PCA by EM, where entries are missing."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from gpukpca._typing import Array
from gpukpca.algorithms.latent.e_step import EStep, Parameters, accumulate
from gpukpca.algorithms.latent.em import EMProblem, EMResult, EMStep
from gpukpca.algorithms.latent.initialization import safe_observed_moments, start_of
from gpukpca.algorithms.latent.memory import bytes_of_em, plan_text
from gpukpca.algorithms.latent.model import LatentFit, LatentModel
from gpukpca.algorithms.latent.priors import AT_THE_FLOOR, FlatPrior, LatentPrior
from gpukpca.algorithms.progress import Listener, Progress, timed
from gpukpca.algorithms.resources import Resources
from gpukpca.backend.namespace import from_host, namespace_of
from gpukpca.data.frequencies import Frequencies, degrees_of_freedom, number_of
from gpukpca.exceptions import (
    ConvergenceWarning,
    GpuKPCAWarning,
    InvalidParameterError,
    PrecisionWarning,
    RankWarning,
    warn_user,
)

# Sums of weights that differ by less, relatively, are the same but for the order of the sum.
SAME = 1e-12
# Components of EM with n_components=None: the memory and time of a step grow with their square.
MOST_BY_DEFAULT = 20


@dataclass(frozen=True)
class LatentTask:
    """The inputs of a fit in addition to the rows."""

    n_components: int | None
    prior: LatentPrior
    ddof: int  # variances over n - ddof
    # EM stops when a step adds no more to the log-likelihood of an observed entry, and with a flat prior turns the
    # components by an angle whose sine is at most its square root. None: the tolerance of the prior.
    tol: float | None
    max_iter: int  # most steps of EM, extrapolations included
    resources: Resources
    rng: np.random.Generator
    progress: Listener | None = None
    weights: np.ndarray | None = None  # of the rows, (n,) above 0, on the host

    @property
    def max_count(self) -> int:
        """Return the most components that EM computes."""
        return MOST_BY_DEFAULT if self.n_components is None else int(self.n_components)

    def degrees(self, n: float) -> float:
        """Return the degrees of freedom of n rows."""
        return degrees_of_freedom(n) if self.ddof else n

    def count(self, n: int, d: int, below: int) -> int:
        """Return the number of components, less than `below`; raise `InvalidParameterError` for too many."""
        limit = min(n, d, below - 1)
        p = max(min(n, d) - 1, 1) if self.n_components is None else int(self.n_components)
        if p > limit:
            why = "" if limit == min(n, d) else ", and EM needs at least one direction of noise"
            raise InvalidParameterError(
                f"n_components={self.n_components!r} is too many for n_samples={n}, n_features={d}: at most "
                f"min(n_samples, n_features) = {min(n, d)} are possible{why}. Request at most {limit}."
                if limit > 0
                else f"EM needs at least 2 features, got n_features={d}: with one no direction is left for the noise.",
                argument="n_components",
            )
        return p

    def count_of_em(self, n: int, d: int) -> int:
        """Return the number of components of EM, by default few; warn where more are possible."""
        p = self.count(n, d, below=d)
        if self.n_components is not None or p <= MOST_BY_DEFAULT:
            return p
        warn_user(
            f"n_components=None: EM takes {MOST_BY_DEFAULT} components, as all that are possible need much memory and "
            "steps of O(n d p²). Set n_components.",
            GpuKPCAWarning,
            possible=p,
            bytes_of_all=bytes_of_em(self.resources.place.work, n, d, p, self.resources.n_jobs),
        )
        return MOST_BY_DEFAULT


def fit_em(batches: Iterable[Array], task: LatentTask) -> LatentFit:
    """Return the fit of checked, dense batches of rows (b, d) where it is computed; NaN is a missing entry.

    Every step reads the batches, which must stay the same. `EMMemory.check` comes first.
    """
    prior, resources = task.prior, task.resources
    like, tol = resources.place.work, prior.tol if task.tol is None else task.tol
    roots = None if task.weights is None else Frequencies.of(task.weights, like).roots
    moments, batches, roots, scale = safe_observed_moments(batches, roots)
    n, d = number_of(moments.rows), int(moments.means.shape[0])
    counted = int(n) if task.weights is None else len(task.weights)
    p = task.count_of_em(counted, d)
    needed = bytes_of_em(like, counted, d, p, resources.n_jobs)
    total = float(np.sum(moments.variances))
    observed = float(namespace_of(moments.counts).sum(moments.counts))
    is_complete = math.isclose(observed, n * d, rel_tol=SAME)
    # The change of units makes densities of the data larger by this.
    log_volume = math.log(scale) * observed
    factor = n / task.degrees(n)
    if not total > 0:
        warn_user("no feature varies: every variance is 0, and the components mean nothing.", RankWarning)
        axes = from_host(np.eye(d)[:, :p], moments.means)
        result = EMResult(Parameters(axes, moments.means, 0.0), np.zeros(2), EMStep(1, 0.0, 0.0), True)
        model = LatentModel(axes, np.zeros(p), 0.0, moments.means, scale)
    else:
        listener = timed(task.progress)
        if listener is not None:
            listener(Progress("plan", plan_text(resources, counted, d, p, needed, is_complete)))
        start, floor = start_of(batches, moments, p, task.rng, roots)

        def report(step: EMStep) -> None:
            value = step.value / observed + math.log(scale)
            if listener is not None:
                text = f"EM step {step.number}: {prior.value_name} {value:.9g} an entry{step.changes(tol)}"
                listener(Progress("step", text, step.number, task.max_iter, step.distance, tol, value))

        limits = floor, tol, task.max_iter
        em = EMProblem(lambda now: accumulate(batches, EStep(now), resources.n_jobs, roots), start, *limits, report)
        result = prior.iterate(em, moments)
        if isinstance(prior, FlatPrior) and result.parameters.noise <= AT_THE_FLOOR * floor:
            warn_user(
                "the noise variance fell to its floor, a share of the largest variance (1e-12 in float64), and may be "
                "far too large: features are combinations of others, or have very different units. Standardize the "
                "features, or request fewer components.",
                PrecisionWarning,
                noise=float(result.parameters.noise / scale / scale),
            )
        model = LatentModel.of(result.parameters, factor, scale)
    fit = LatentFit.of(
        model,
        n,
        like.dtype,
        total * factor if is_complete else None,
        result.trace + log_volume,
        n_iter=result.n_steps,
        converged=result.converged,
        solver="em",
        fallbacks=(),
        precisions=prior.precisions(model, p),
    )
    if not result.converged:
        warn_user(
            "EM stopped after max_iter steps, before tol. Use a larger max_iter or tol, or fewer components: those "
            "that are noise take the most steps.",
            ConvergenceWarning,
            max_iter=task.max_iter,
            tol=tol,
            gain=float(result.last.gain),
            turn=float(result.last.turn),
        )
    return fit
