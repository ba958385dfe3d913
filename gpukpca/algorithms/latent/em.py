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
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from gpukpca.algorithms.fields import field_of, record
from gpukpca.algorithms.latent.e_step import Parameters, SufficientStatistics

# Parameters, and what a step changes in addition, such as the precisions of a prior.
State = TypeVar("State", bound=Parameters)


@record()
class EMStep:
    """The change by one step."""

    number: int = field_of("", "E steps since the start; 0 for the start itself")
    value: float = field_of("", "log-likelihood or log-posterior after it")
    gain: float = field_of("", "of the value per observed entry; 0 for a move that was undone", default=math.inf)
    turn: float = field_of("", "change of the subspace; 0 where it does not count", default=0.0)
    is_move: bool = field_of("", "whether it is a move along steps of EM, which does not show the end", default=False)

    @property
    def distance(self) -> float | None:
        """Return what the tolerance limits; None where it is not known.

        A turn changes the log-likelihood in proportion to its square.
        """
        return max(self.gain, self.turn**2) if self.number and not self.is_move else None

    def changes(self, tol: float) -> str:
        """Return what the step changed as the end of a line, with the limits at which EM stops."""
        if self.is_move:
            return f", {self.gain:.1e} more by extrapolation" if self.gain else ", an extrapolation was undone"
        turned = f", components turned by {self.turn:.1e} (stops at {math.sqrt(tol):.0e})" if self.turn else ""
        return f", {self.gain:.1e} more (stops at {tol:.0e}){turned}" if self.number else ""


@record()
class EMResult:
    """Parameters at the end of EM, and the likelihood at every step."""

    parameters: Parameters
    trace: np.ndarray = field_of("n_iter+1", "log-likelihoods, with a prior log-posteriors, on the host")
    last: EMStep = field_of("", "the last step that was no move")
    converged: bool = field_of("", "whether its distance is within the tolerance")

    @property
    def n_steps(self) -> int:
        return len(self.trace) - 1


@record()
class EMProblem:
    """The rows, the start and the end of an iteration."""

    sums_at: Callable[[Parameters], SufficientStatistics] = field_of("", "the E step")
    start: Parameters = field_of("", "before the first step")
    floor: float = field_of("", "the noise variance stays at least this")
    tol: float = field_of("", "a step whose distance is no more than this is the last")
    max_iter: int = field_of("", "most steps and moves")
    report: Callable[[EMStep], None] = field_of("", "called after every E step")


class Move(NamedTuple):
    """Parameters to try in place of those after two steps of EM, and whether no longer move was allowed."""

    state: Any
    is_longest: bool


class _Point(NamedTuple, Generic[State]):
    """A state with its E step."""

    state: State
    sums: SufficientStatistics
    value: float


def run_em(
    em: EMProblem,
    start: State,
    value_of: Callable[[State, SufficientStatistics], float],
    step: Callable[[State, SufficientStatistics], State],
    turn: Callable[[State, State], float] = lambda before, after: 0.0,
    mover: Any = None,
) -> EMResult:
    """Iterate from `start`; the trace of the result holds the values on the way, which never fall.

    With `mover`, such as `Extrapolation`, steps and moves take turns. A move that would lower the value is undone, and
    the trace repeats the value. A step without gain, which only rounding causes, is undone and ends the iteration.
    """

    def point(state: State) -> _Point[State]:
        sums = em.sums_at(state)
        return _Point(state, sums, value_of(state, sums))

    now = point(start)
    trace, last = [now.value], EMStep(0, now.value)
    em.report(last)
    while len(trace) <= em.max_iter:
        new = point(step(now.state, now.sums))
        gain = (new.value - now.value) / new.sums.observed
        last = EMStep(len(trace), new.value, gain, turn(now.state, new.state))
        em.report(last)
        if not gain >= 0.0:
            return EMResult(now.state, np.array([*trace, now.value]), last, True)
        before, now = now.state, new
        trace.append(now.value)
        if gain == 0.0 or max(gain, last.turn**2) <= em.tol:
            return EMResult(now.state, np.array(trace), last, True)
        if mover is None or len(trace) > em.max_iter:
            continue
        move = mover.along((before, now.state, step(now.state, now.sums)), em.floor)
        new = point(move.state)
        is_accepted = new.value >= now.value
        gain = (new.value - now.value) / new.sums.observed if is_accepted else 0.0
        now = new if is_accepted else now
        em.report(EMStep(len(trace), now.value, gain, is_move=True))
        trace.append(now.value)
        mover = mover.after(move, is_accepted)
    return EMResult(now.state, np.array(trace), last, False)
