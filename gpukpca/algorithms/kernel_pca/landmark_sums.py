"""The sums over the rows of a Nyström factor: the input of more rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gpukpca.algorithms.drift import Drift
from gpukpca.algorithms.fields import field_of, record
from gpukpca.algorithms.slots import Slots
from gpukpca.data.frequencies import number_of


@record(eq=False, kw_only=True)
class FactorSums:
    """Sums over the rows f(x) = L⁻¹ k(S, x) of a Nyström factor of landmarks S, on the host: the input of more rows."""

    pivot_factor: np.ndarray = field_of("l l", "L, lower triangular, K(S, S) = L Lᵀ")
    relative: bool = field_of("", "whether k is relative to a base point, the last row of the basis")
    shift: np.ndarray = field_of("l", "a row near the mean of f, which is subtracted before rows are multiplied")
    sums: np.ndarray = field_of("l", "Σ (f - shift)")
    squares: np.ndarray = field_of("l l", "Σ (f - shift)(f - shift)ᵀ")
    count: float = field_of("", "rows so far, each as often as its weight says", "nonnegative")
    trace: float = field_of("", "Σ k(x, x)", "nonnegative")
    sizes: float = field_of("", "Σ of the numbers that cancel in k(x, x)", "nonnegative")
    residual: float = field_of("", "Σ k(x, x) - ‖f(x)‖²")
    noise: float = field_of("", "by how much residuals that can only be rounding exceed its usual size", "nonnegative")
    stopped: str = field_of("", "why no more landmarks were chosen; see `PivotedCholesky`", default="rank")
    slots: Slots | None = field_of("", "rows that are drawn for a bound on the norm of K - F Fᵀ", default=None)
    drift: Drift | None = field_of("", "what is missed of the first and of the last rows", default=None)

    def about_mean(self, center: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean of f, shape (l,), or 0 without centering, and Σ (f - mean)(f - mean)ᵀ, shape (l, l)."""
        mean = self.shift + self.sums / self.count
        scatter = self.squares - np.outer(self.sums, self.sums) / self.count
        return (mean, scatter) if center else (np.zeros_like(mean), scatter + self.count * np.outer(mean, mean))

    @classmethod
    def empty(cls, pivot_factor: np.ndarray, shift: np.ndarray, **more: Any) -> FactorSums:
        """Return the sums over no rows; `more` are fields that the landmarks decide."""
        none: dict[str, Any] = dict.fromkeys(("count", "trace", "sizes", "residual", "noise"), 0.0)
        none |= {"relative": False, "sums": 0.0 * shift, "squares": 0.0 * pivot_factor}
        return cls(pivot_factor=pivot_factor, shift=shift, **none | more)

    def without_rows(self) -> FactorSums:
        """Return the sums over no rows for the same landmarks."""
        kept = {name: getattr(self, name) for name in ("relative", "noise", "stopped")}
        drift, slots = self.drift and self.drift.of_rows(*np.zeros((2, 0))), self.slots and self.slots.without_rows()
        return FactorSums.empty(self.pivot_factor, self.shift, drift=drift, slots=slots, **kept)

    def of_rows(self, moments: np.ndarray, n: int, weights: np.ndarray | None, **more: Any) -> FactorSums:
        """Return the sums over n rows with such `moments_about` and `more` sums, for the same landmarks."""
        count = n if weights is None else number_of(float(np.sum(weights)))
        return replace(self, squares=moments[:, :-1], sums=moments[:, -1], count=count, **more)

    def merged(self, other: FactorSums) -> FactorSums:
        """Return the sums over the rows of both, which have the landmarks and the shift in common."""
        added = ("sums", "squares", "count", "trace", "sizes", "residual")
        parts = {name: getattr(self, name) + getattr(other, name) for name in added}
        parts["count"] = number_of(parts["count"])
        drift = self.drift and other.drift and self.drift.merged(other.drift)
        slots = self.slots and other.slots and self.slots.merged(other.slots)
        return replace(self, noise=max(self.noise, other.noise), drift=drift, slots=slots, **parts)
