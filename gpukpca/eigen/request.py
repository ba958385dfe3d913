"""The number of eigenpairs that a solver computes, or the rule for it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from gpukpca._typing import SymmetricOperator
from gpukpca.eigen.residuals import total_of
from gpukpca.exceptions import ConvergenceError, InvalidParameterError

# Pairs that a computation begins with where a share of the trace decides.
FIRST_GUESS = 16
# Ritz values are too small, so that more of them hold a share than eigenvalues: by at most this times the part of the
# basis that they are, if that is no more than half (measured on 40 spectra and shares).
SURPLUS = 0.4


class NeedsDense(ConvergenceError):
    """Raised by an iteration that forecasts more work than a dense solution takes, with the reason."""


@dataclass(frozen=True)
class PairRequest:
    """The leading eigenpairs to compute: so many, or the fewest that hold more than a share of the trace.

    The trace is known without the spectrum. Of an indefinite operator, whose negative eigenvalues reduce it, a complete
    spectrum gives the share of the positive ones.

    Attributes
    ----------
    max_count : int
        The number of pairs, or its upper bound.
    first : int
        The number of pairs that an iteration begins with.
    share : float or None
        Of the trace; None where the number is fixed.

    See Also
    --------
    PairRequest.of_count : A number of pairs.
    PairRequest.of_share : The fewest that hold a share.
    top_eigh : Takes it as `p`.

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca.eigen import PairRequest, top_eigh
    >>> from gpukpca.gram import DenseGram
    >>> op = DenseGram(np.diag([6.0, 3.0, 1.0]))
    >>> top_eigh(op, PairRequest.of_share(0.8, max_count=3)).eigenvalues.round(6)
    array([6., 3.])
    """

    max_count: int
    first: int
    share: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.first <= self.max_count or (self.share is not None and math.isnan(self.share)):
            raise InvalidParameterError(
                f"PairRequest: first={self.first!r} and share={self.share!r} are not allowed; give a number of pairs "
                f"from 1 to max_count={self.max_count!r}, and a number."
            )

    @classmethod
    def of_count(cls, p: int) -> PairRequest:
        """Return the request for p pairs."""
        return cls(int(p), int(p))

    @classmethod
    def of_share(cls, share: float, max_count: int, first: int = FIRST_GUESS) -> PairRequest:
        """Return the request for the fewest pairs, `max_count` at most, that hold more than a share of the trace."""
        return cls(int(max_count), int(min(first, max_count)), share)

    @property
    def is_share(self) -> bool:
        """Return whether the eigenvalues decide the number."""
        return self.share is not None

    def up_to(self, max_count: int) -> PairRequest:
        """Return the request with a smaller upper bound."""
        return replace(self, max_count=min(self.max_count, max_count), first=min(self.first, max_count))

    def checked(self, p: int) -> int:
        """Return a number of pairs; raise `NeedsDense` where it is more than an iteration may compute."""
        if p > self.max_count:
            raise NeedsDense(f"more than {self.max_count} pairs are needed")
        return p

    def forecast(self, op: SymmetricOperator, values: np.ndarray, noise: float) -> int:
        """Return about how many pairs are needed at least, given too few of them; values up to `noise` are rounding."""
        amount = self._amount(total_of(op, values))
        values = values[values > noise]
        missing, last = amount - float(np.sum(values)), float(np.min(values, initial=math.inf))
        rest = missing / last if last < math.inf else math.inf
        return len(values) + math.ceil(min(rest, self.max_count + 1))

    def is_exceeded_by(self, op: SymmetricOperator, values: np.ndarray) -> bool:
        """Return whether Ritz values, all of a basis, show that more than `max_count` pairs are needed."""
        count = replace(self, max_count=len(values), first=0).count_of(op, values)
        part = 1.0 if count is None else count / len(values)
        return count is not None and part <= 0.5 and count > (1.0 + SURPLUS * part) * self.max_count

    def count_of(self, op: SymmetricOperator, values: np.ndarray) -> int | None:
        """Return the number of pairs, given leading eigenvalues of an operator, descending; None as in `count`."""
        return self.count(values, total_of(op, values) if self.is_share else math.nan)

    def count_at_most(self, op: SymmetricOperator, values: np.ndarray) -> int:
        """Return the number of pairs, given at least the `max_count` leading eigenvalues, or all."""
        return self.count_of(op, values) or self.max_count

    def count(self, values: np.ndarray, total: float) -> int | None:
        """Return the number of pairs, given leading eigenvalues and the sum of all; None where they are not enough."""
        if not self.is_share:
            return self.max_count if len(values) >= self.max_count else None
        amount = self._amount(total)  # without any variance one pair is enough
        reached = np.flatnonzero((np.cumsum(values[: self.max_count]) > amount) | (amount <= 0.0))
        return int(reached[0]) + 1 if reached.size else None

    def _amount(self, total: float) -> float:
        return math.inf if self.share is None else self.share * total
