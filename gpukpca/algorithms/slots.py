"""Rows that are drawn while a fit reads them, of which the error of a Nyström approximation is bounded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.algorithms.fields import field_of, record
from gpukpca.backend.namespace import is_foreign, namespace_of, to_host
from gpukpca.backend.random import keyed_generator, uniform, weighted_indices
from gpukpca.data.distinct import stacked
from gpukpca.data.place import rows_at
from gpukpca.data.slicing import gather_rows, place_of
from gpukpca.eigen.elimination import growth_of
from gpukpca.eigen.norm_bound import FAILURE, bound_of_all, bound_of_draws, powers_of_draws, split_of
from gpukpca.eigen.pivoted_factor import PivotedCholesky

# What the numbers of a generator are used for: draws within a panel, and coins between two parts.
DRAWS, COINS = 0, 1


@record(kw_only=True)
class NormBound:
    """A bound b on ‖E‖₂ for E = K - F Fᵀ of a Nyström fit: λ_i - θ_i <= b for every i at once.

    See Also
    --------
    gpukpca.KernelPCA : Publishes the value as `norm_bound_`.
    """

    value: float | None = field_of("", "b, in the units of the eigenvalues; None: not known", "nonnegative")
    rows: int = field_of("", "rows between which entries of E were computed", "nonnegative", default=0)
    failure_probability: float = field_of(
        "", "that b is below ‖E‖₂, at most; 0: never, b holds for certain", "nonnegative", default=0.0
    )
    is_estimate: bool = field_of("", "whether the rounding of float32 may exceed what b allows for it", default=False)
    reason: str = field_of("", "why there is none", default="")

    def __str__(self) -> str:
        if self.value is None:
            return f"none: {self.reason}"
        sure = f"except with probability {self.failure_probability:.0e}" if self.failure_probability else "for certain"
        sure = f"an estimate in float32{f', {sure}' * (self.failure_probability > 0.0)}" if self.is_estimate else sure
        return f"{self.value:.3g}, {sure}, " + (f"from {self.rows} rows" if self.rows else "the certificate")


@record(eq=False, kw_only=True)
class Slots:
    """Slots for rows, each of which holds row i with probability w_i d_i / Σ w d, independently of the others.

    While there are no more rows than slots all rows are held instead. The slots of two parts merge into those of both:
    a slot is that of one part with the probability of its share in Σ w d. Draws within all parts use the same random
    numbers, which is allowed, as the coins of a merger depend on no other number of the tree below it: its key is the
    number of rows, which grows along every path.
    """

    size: int = field_of("", "slots", "positive")
    seed: int = field_of("", "of all draws, independent of the landmarks", "nonnegative")
    growth: float = field_of("", "`growth_of` the factor of the landmarks", "nonnegative", default=0.0)
    count: int = field_of("", "rows so far", "nonnegative", default=0)
    total: float = field_of("", "Σ w d of these rows", "nonnegative", default=0.0)
    rows: Any = field_of("s d", "the rows in the slots", "or sparse", "or None", default=None)
    limits: Array | None = field_of("s", "d: at least E_ii of the row", "nonnegative", "or None", default=None)
    weights: np.ndarray | None = field_of("s", "w: how often the row counts; None: once", "nonnegative", default=None)
    is_drawn: bool = field_of("", "whether rows were drawn; else all are held", default=False)

    @classmethod
    def empty(cls, size: int, rng: np.random.Generator, factor: PivotedCholesky) -> Slots:
        """Return so many empty slots for a factor, with a seed that is independent of all earlier numbers."""
        growth = growth_of(factor.pivot_factor, factor.inverse)
        return cls(size=size, seed=int(rng.integers(2**63)), growth=growth)

    def without_rows(self) -> Slots:
        """Return as many empty slots of the same stream."""
        return Slots(size=self.size, seed=self.seed, growth=self.growth)

    def of_panel(self, panel: Any, limits: Array, weights: np.ndarray | None) -> Slots:
        """Return slots of the rows of a panel (n, d), with numbers d (n,) and weights w (n,) on the host, by default 1.

        Without weights no numbers of all rows leave their device.
        """
        n, chances = int(panel.shape[0]), limits if weights is None else to_host(limits) * weights
        total = float(namespace_of(chances).sum(chances))
        part = replace(self, count=n, total=total, rows=panel, limits=limits, weights=weights)
        # A copy: the memory of a batch may be filled again.
        return part._at(np.arange(n)) if n <= self.size else replace(part._at(part._drawn(chances)), is_drawn=True)

    def _drawn(self, chances: Array) -> Array:
        """Return which of the rows is in each slot, by their chances w d; where the rows are."""
        if not self.total > 0.0:
            return np.zeros(self.size, dtype=np.int64)
        drawn = weighted_indices(keyed_generator(self.seed, DRAWS), chances, self.size)
        return drawn if is_foreign(self.rows) else to_host(drawn)

    def _at(self, chosen: Array) -> Slots:
        """Return these rows."""
        weights = None if self.weights is None else self.weights[chosen]
        return replace(
            self, rows=gather_rows(self.rows, chosen), limits=gather_rows(self.limits, chosen), weights=weights
        )

    def _on_host(self) -> Any:
        """Return the same slots with their numbers on the host, and a weight for each row."""
        limits = to_host(self.limits)
        return replace(self, limits=limits, weights=np.ones(len(limits)) if self.weights is None else self.weights)

    def merged(self, other: Slots) -> Slots:
        """Return the slots of the rows of both."""
        if not (self.count and other.count):
            return self if self.count else other
        count, total = self.count + other.count, self.total + other.total
        parts, chosen = [self._on_host(), other._on_host()], np.arange(count)
        if is_drawn := self.is_drawn or other.is_drawn or count > self.size:
            is_kept = uniform(keyed_generator(self.seed, COINS, count), self.size) * total < self.total
            if self.is_drawn and np.all(is_kept):  # as mostly in a long stream
                return replace(self, count=count, total=total)
            ours, theirs = (
                np.arange(self.size) if part.is_drawn else part._drawn(part.limits * part.weights) for part in parts
            )
            chosen = np.where(is_kept, ours, int(self.rows.shape[0]) + theirs)
        limits, weights = (np.concatenate([getattr(part, name) for part in parts]) for name in ("limits", "weights"))
        rows = stacked([self.rows, rows_at(other.rows, place_of(self.rows))])
        both = replace(self, count=count, total=total, rows=rows, limits=limits, weights=weights, is_drawn=is_drawn)
        return both._at(chosen) if is_drawn else both

    def bound(self, E: np.ndarray, allowances: np.ndarray, lacking: tuple[np.ndarray, float]) -> NormBound:
        """Return the bound from the entries of E between the rows (s, s), which err by √(a_i a_j) for allowances a.

        Without rows drawn it is certain. For `lacking` see `bound_of_draws`.
        """
        held = self._on_host()
        limits = held.limits
        if not self.is_drawn:
            return NormBound(value=bound_of_all(E, allowances, held.weights), rows=len(E))
        if not np.all(np.diagonal(E) <= limits):
            return NormBound(value=None, reason="rounding makes entries of E larger than was allowed for")
        e, sum_of_lacking = lacking
        split = split_of(self.total, len(E), sum_of_lacking)
        powers = powers_of_draws(E, allowances, limits, e, split)
        value = bound_of_draws(powers, len(E), self.total, sum_of_lacking, split)
        return NormBound(value=value, rows=len(E), failure_probability=FAILURE)
