"""The start of EM: moments of the observed entries, and the leading directions with means for missing entries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial, reduce

import numpy as np

from gpukpca._typing import Array
from gpukpca.algorithms.fields import field_of, record
from gpukpca.algorithms.latent.e_step import Parameters
from gpukpca.backend.linalg import column_sums
from gpukpca.backend.namespace import (
    accumulation_dtype,
    cast,
    epsilon,
    from_host,
    namespace_of,
    to_host,
    true_positions,
)
from gpukpca.covariance.panels import PanelCenteredMatrix
from gpukpca.covariance.scatter import ScatterOperator
from gpukpca.data.batches import BatchedRows
from gpukpca.data.frequencies import Frequencies
from gpukpca.data.scale import are_safe, row_bounds, safe_scale, scaled_rows
from gpukpca.data.slicing import gather_rows, row_panels
from gpukpca.eigen import BlockKrylov, top_eigh
from gpukpca.exceptions import GpuKPCAWarning, warn_user

# Residuals relative to the largest variance, and most passes over the data, for the start. With few missing entries it
# is near the end: where the variances are those of noise, a pass takes the place of several steps.
START = BlockKrylov(tol=1e-5, max_passes=8)
# σ² is never below this share of the largest variance: M = W_oᵀ W_o + σ² I can be inverted then with four digits.
NOISE_FLOOR = 1e-12
# The least variance of a start above the noise, in units of the noise: EM never leaves W = 0.
LEAST_ABOVE = 1e-3


@record()
class ObservedMoments:
    """Moments of the observed entries of every feature, in the widest floating type."""

    rows: float = field_of("", "rows, each as often as its weight says, as in all sums")
    counts: Array = field_of("d", "observed entries")
    means: Array = field_of("d", "of these")
    squares: Array = field_of("d", "Σ (x - mean)²")
    empty: tuple[int, ...] = field_of("", "rows without an observed entry, which do not count among `rows`", default=())

    def merged(self, other: ObservedMoments) -> ObservedMoments:
        """Return the moments of both sets (Chan, Golub & LeVeque, Am. Stat. 37 (1983) 242)."""
        counts = self.counts + other.counts
        share = other.counts / _at_least_one(counts)
        step = other.means - self.means
        squares = self.squares + other.squares + step * step * self.counts * share
        empty = self.empty + other.empty
        return ObservedMoments(self.rows + other.rows, counts, self.means + step * share, squares, empty)

    @property
    def variances(self) -> np.ndarray:
        """Return the variances of the features, over the number of their observed entries, on the host."""
        return to_host(self.squares / _at_least_one(self.counts)).astype(np.float64)

    @property
    def varying(self) -> np.ndarray:
        """Return which features have a variance beyond the rounding of their mean, on the host, shape (d,)."""
        rounding = epsilon(self.means) * np.abs(to_host(self.means).astype(np.float64))
        return self.variances > rounding**2


def observed_moments(batches: Iterable[Array], roots: Array | None = None) -> ObservedMoments:
    """Return the moments of all rows, in one pass; ValueError for a feature without an observed entry.

    `roots` (n, 1) are those of the weights of rows.
    """

    def parts() -> Iterator[ObservedMoments]:
        before = 0
        for batch in batches:
            for start, stop in row_panels(batch):
                own = None if roots is None else roots[before : before + stop - start, :]
                yield _of_panel(batch[start:stop, :], before, own)
                before += stop - start

    total = reduce(ObservedMoments.merged, parts())
    empty = np.flatnonzero(to_host(total.counts) == 0)
    if len(empty):
        raise ValueError(
            f"feature {int(empty[0])} of X has no observed entry, so that it has no mean and no variance"
            f"{f' ({len(empty) - 1} more like it)' if len(empty) > 1 else ''}. Drop such columns before the fit."
        )
    return total


def _of_panel(rows: Array, before: int, roots: Array | None) -> ObservedMoments:
    xp, wide = namespace_of(rows), accumulation_dtype(rows)

    def sums(A: Array) -> Array:
        return column_sums(A if roots is None else A * (roots * roots))

    seen = ~xp.isnan(rows)
    empty = to_host(true_positions(~xp.any(seen, axis=1)))
    counts = sums(cast(seen, wide))
    nothing = xp.zeros_like(rows)
    means = sums(xp.where(seen, rows, nothing)) / _at_least_one(counts)
    centered = cast(rows, wide) - means[None, :]
    centered = xp.where(seen, centered, xp.zeros_like(centered))
    # The mean was rounded, so the differences do not quite sum to zero.
    left = sums(centered)
    squares = sums(centered * centered) - left * left / _at_least_one(counts)
    squares = xp.where(squares < 0, xp.zeros_like(squares), squares)
    count: float = int(rows.shape[0]) - len(empty)
    if roots is not None:
        counted = gather_rows(roots, np.delete(np.arange(roots.shape[0]), empty)) if len(empty) else roots
        count = float(xp.sum(counted**2))
    return ObservedMoments(count, counts, means, squares, tuple((before + empty).tolist()))


def _at_least_one(counts: Array) -> Array:
    xp = namespace_of(counts)
    return xp.where(counts > 0, counts, xp.ones_like(counts))


def safe_observed_moments(
    batches: Iterable[Array], roots: Array | None = None
) -> tuple[ObservedMoments, Iterable[Array], Array | None, float]:
    """Return the moments of rows times a power of two, these rows, the roots of their weights, and that number.

    It is 1 at usual sizes. Rows without an observed entry say nothing of the model, and are left out.
    """
    moments = observed_moments(batches, roots)
    if moments.empty:
        warn_user(
            "rows without any observed entry are left out of the fit, and their scores are 0.",
            GpuKPCAWarning,
            rows=moments.empty,
        )
        batches = BatchedRows(partial(_observed_rows, batches), moments.means[None, :][:0, :])
        if roots is not None:
            roots = gather_rows(roots, np.delete(np.arange(roots.shape[0]), moments.empty))
    if are_safe(moments.squares):
        return moments, batches, roots, 1.0
    low, high = row_bounds(imputed(batches, moments.means))
    scale = safe_scale(low, high, moments.means.dtype)
    scaled = BatchedRows(lambda: (scaled_rows(batch, scale) for batch in batches), moments.means[None, :][:0, :])
    moments = observed_moments(scaled, roots)
    varying = from_host(low < high, moments.squares) > 0.5  # the rounding of a huge mean has squares too
    squares = namespace_of(varying).where(varying, moments.squares, namespace_of(varying).zeros_like(moments.squares))
    return replace(moments, squares=squares), scaled, roots, scale


def _observed_rows(batches: Iterable[Array]) -> Iterator[Array]:
    """Yield batches without the rows that have no observed entry."""
    for batch in batches:
        xp = namespace_of(batch)
        observed = true_positions(xp.any(~xp.isnan(batch), axis=1))
        if count := int(observed.shape[0]):
            yield batch if count == batch.shape[0] else gather_rows(batch, observed)


def imputed(batches: Iterable[Array], means: Array) -> BatchedRows:
    """Return batches as panels in the widest type, with the means in place of missing entries."""
    xp = namespace_of(means)

    def panels() -> Iterator[Array]:
        for batch in batches:
            for start, stop in row_panels(batch):
                rows = cast(batch[start:stop, :], means.dtype)
                yield xp.where(xp.isnan(rows), means[None, :] + xp.zeros_like(rows), rows)

    return BatchedRows(panels, means[None, :][:0, :])


def start_of(
    batches: Iterable[Array], moments: ObservedMoments, p: int, rng: np.random.Generator, roots: Array | None = None
) -> tuple[Parameters, float]:
    """Return the start with p < d loadings, and the least noise variance; the variances have a positive sum."""
    n, d = moments.rows, int(moments.means.shape[0])
    frequencies = None if roots is None else Frequencies(roots, n)
    Z = PanelCenteredMatrix(imputed(batches, moments.means), True, moments.means, frequencies=frequencies)
    Z.rest, Z.squares = moments.means - Z.shift, to_host(moments.squares).astype(np.float64)
    eigen = top_eigh(ScatterOperator(Z, of_samples=False), p, START, rng=rng)
    values = np.maximum(to_host(eigen.eigenvalues).astype(np.float64), 0.0) / n
    largest = max(float(values[0]), float(np.max(moments.variances)))
    floor = max(NOISE_FLOOR, 8.0 * epsilon(moments.means)) * largest
    left = float(namespace_of(moments.squares).sum(moments.squares)) / n - float(np.sum(values))
    noise = max(left / (d - p), floor)
    above = np.maximum(values - noise, LEAST_ABOVE * noise)
    loadings = eigen.eigenvectors * from_host(np.sqrt(above), moments.means)[None, :]
    return Parameters(loadings, moments.means, noise), floor
