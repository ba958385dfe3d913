"""The number of eigenpairs that a solver computes, or the rule for it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from gpukpca._typing import SymmetricOperator
from gpukpca.backend.namespace import EPSILON
from gpukpca.eigen.residuals import total_of
from gpukpca.exceptions import ConvergenceError

# Pairs that a computation begins with where a share of the trace decides.
FIRST_GUESS = 16
# Ritz values are too small, so that more of them hold a share than eigenvalues: by at most this times the part of the
# basis that they are, if that is no more than half (measured on 40 spectra and shares).
SURPLUS = 0.4
# Cumulative ratios of k components that differ by up to so many √k eps are equal: their roundings add like random
# numbers, and those of equal ones, k eps / 4 at most, stay below it up to k = 1024.
TIE = 8.0
# A share this many eps below 1 is all of the variance to rounding.
ALL = 8.0


def count_of_share(values: np.ndarray, total: float, share: float, eps: float) -> int | None:
    """Return the first k whose cumulative ratio exceeds a share by more than rounding; None where none does.

    The one rule for a share, as scikit-learn's: more than it, so that a share that k components hold takes k + 1. The
    ratios are the leading `values`, descending, over the `total`; `eps` is that of the type in which they are
    published, since a share may be a sum of them. One is enough where there is no variance.
    """
    if total <= 0.0:
        return 1
    # Near 1 only half of what the share leaves counts as rounding, or no ratios would exceed it.
    most = max((1.0 - share) / 2.0, ALL * eps / 2.0)
    rounding = np.minimum(TIE * np.sqrt(np.arange(1.0, len(values) + 1.0)) * eps, most)
    exceeds = np.flatnonzero(np.cumsum(values / total) > share + rounding)
    return int(exceeds[0]) + 1 if exceeds.size else None


class NeedsDense(ConvergenceError):
    """Raised by an iteration that forecasts more work than a dense solution takes, with the reason."""


@dataclass(frozen=True)
class PairRequest:
    """The leading eigenpairs to compute: so many, or the fewest that hold more than a share of the trace.

    The trace is known without the spectrum. Of an indefinite operator, whose negative eigenvalues reduce it, a complete
    spectrum gives the share of the positive ones.

    `max_count` is the number of pairs, or its upper bound. An iteration begins with `first` pairs. `share` is None
    where the number is fixed. `eps` is that of the type of the ratios, which may miss a share by rounding.
    """

    max_count: int
    first: int
    share: float | None = None
    eps: float = EPSILON["float64"]

    @classmethod
    def of_count(cls, p: int) -> PairRequest:
        """Return the request for p pairs."""
        return cls(int(p), int(p))

    @classmethod
    def of_share(
        cls, share: float, max_count: int, first: int = FIRST_GUESS, eps: float = EPSILON["float64"]
    ) -> PairRequest:
        """Return the request for the fewest pairs, `max_count` at most, that hold more than a share of the trace."""
        return cls(int(max_count), int(min(first, max_count)), share, eps)

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
        amount = math.inf if self.share is None else self.share * total_of(op, values)
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
        if self.share is None:
            return self.max_count if len(values) >= self.max_count else None
        return count_of_share(values[: self.max_count], total, self.share, self.eps)
