"""Expectation maximization for x | z ~ N(W z + μ, σ² I) with missing entries, panel by panel of rows.

With o the observed entries of a row and r = x_o - μ_o:

    E step    M = W_oᵀ W_o + σ² I,   ⟨z⟩ = M⁻¹ W_oᵀ r,   cov z = C = σ² M⁻¹
    M step    feature j: the regression of x_j on (z, 1) over the rows that observe j; σ² from the residuals
    expansion z ~ N(a, Φ) is estimated as well and absorbed: W ← W (Φ - a aᵀ)^½, μ ← μ + W a

Tipping & Bishop, J. R. Stat. Soc. B 61 (1999) 611, section 3.3 and appendix B; Ilin & Raiko, J. Mach. Learn. Res. 11
(2010) 1957 (missing values); Liu, Rubin & Wu, Biometrika 85 (1998) 755 (parameter expansion).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from gpukpca.algorithms.fields import documented, field_of
from gpukpca.algorithms.latent.e_step import Parameters, SufficientStatistics

# Parameters, and what a step changes in addition, such as the precisions of a prior.
State = TypeVar("State", bound=Parameters)


@documented
@dataclass(frozen=True)
class EMResult:
    """Parameters at the end of EM, and the likelihood at every step."""

    parameters: Parameters
    trace: np.ndarray = field_of("n_iter+1", "log-likelihoods, with a prior log-posteriors, on the host")
    gain: float = field_of("", "the last one, per observed entry")
    converged: bool = field_of("", "whether it is within the tolerance")

    @property
    def n_steps(self) -> int:
        return len(self.trace) - 1


# Called after an E step with its number, the value and the gain.
StepReport = Callable[[int, float, float], None]


@documented
@dataclass(frozen=True)
class EMProblem:
    """The rows, the start and the end of an iteration."""

    sums_at: Callable[[Parameters], SufficientStatistics] = field_of("", "the E step")
    start: Parameters = field_of("", "before the first step")
    floor: float = field_of("", "the noise variance stays at least this")
    tol: float = field_of("", "a step that gains no more than this per observed entry is the last")
    max_iter: int = field_of("", "most steps")
    report: StepReport = field_of("", "called after every E step")


def run_em(
    em: EMProblem,
    start: State,
    value_of: Callable[[State, SufficientStatistics], float],
    step: Callable[[State, SufficientStatistics], State],
) -> EMResult:
    """Iterate from `start`; the trace of the result holds the values on the way.

    A step without gain, which only rounding causes, is undone and ends the iteration.
    """
    trace: list[float] = []
    before = state = start
    while True:
        sums = em.sums_at(state)
        value = value_of(state, sums)
        gain = (value - trace[-1]) / sums.observed if trace else math.inf
        em.report(len(trace), value, gain)
        if not gain >= 0.0:
            return EMResult(before, np.array([*trace, trace[-1]]), gain, True)
        trace.append(value)
        if gain <= em.tol or len(trace) > em.max_iter:
            return EMResult(state, np.array(trace), gain, gain <= em.tol)
        before, state = state, step(state, sums)
