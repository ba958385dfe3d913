"""The number of eigenpairs that a solver computes, or the rule for it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from gpukpca.exceptions import ConvergenceError, InvalidParameterError


class HandOver(ConvergenceError):
    """Raised by an iteration that forecasts more work than a dense solution takes, with the reason."""


@dataclass(frozen=True)
class PairRequest:
    """The leading eigenpairs to compute: so many, or the fewest whose eigenvalues sum to more than an amount.

    A share of the variance is an amount of the trace, which is known without the spectrum.

    Attributes
    ----------
    most : int
        The number of pairs, or its upper bound.
    amount : float
        In the units of the operator. Infinite where the number is fixed.
    first : int
        The number of pairs that an iteration begins with.
    """

    most: int
    amount: float = math.inf
    first: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.first <= self.most or math.isnan(self.amount):
            raise InvalidParameterError(
                f"PairRequest: first={self.first!r} and amount={self.amount!r} are not allowed; give a number of pairs "
                f"from 1 to most={self.most!r}, and a number."
            )
        object.__setattr__(self, "first", self.first if self.is_share else self.most)

    @property
    def is_share(self) -> bool:
        """Return whether the eigenvalues decide the number."""
        return self.amount < math.inf

    def up_to(self, most: int) -> PairRequest:
        """Return the request with a smaller upper bound."""
        return replace(self, most=min(self.most, most), first=min(self.first, most))

    def checked(self, p: int) -> int:
        """Return a number of pairs; raise `HandOver` where it is more than an iteration may compute."""
        if p > self.most:
            raise HandOver(f"more than {self.most} pairs are needed")
        return p

    def forecast(self, values: np.ndarray, noise: float) -> int:
        """Return about how many pairs are needed at least, given some leading eigenvalues that are not enough.

        Those up to `noise` are rounding.
        """
        values = values[values > noise]
        missing, last = self.amount - float(np.sum(values)), float(np.min(values, initial=math.inf))
        rest = missing / last if last < math.inf else math.inf
        return len(values) + math.ceil(min(rest, self.most + 1))

    def count(self, values: np.ndarray) -> int | None:
        """Return the number of pairs, given leading eigenvalues, descending; None where these are not enough.

        Without any variance it is 1.
        """
        if not self.is_share:
            return self.most if len(values) >= self.most else None
        reached = np.flatnonzero((np.cumsum(values[: self.most]) > self.amount) | (self.amount <= 0.0))
        return int(reached[0]) + 1 if reached.size else None
