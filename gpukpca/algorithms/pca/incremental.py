"""PCA updated by one batch of rows after another: state, update, result and map of new points."""

from __future__ import annotations

import math
from functools import cached_property, partial
from typing import Any

import numpy as np

from gpukpca._rules import NONE, integer, one_of
from gpukpca._typing import Array
from gpukpca.algorithms.bill import SHORTER, fewer
from gpukpca.algorithms.fields import field_of, record
from gpukpca.algorithms.inputs import ComponentsResult
from gpukpca.algorithms.pca.model import LinearProjection, deviations_of
from gpukpca.algorithms.progress import Listener, Progress
from gpukpca.algorithms.resources import MemoryBudget, Resources, retry_on_oom
from gpukpca.backend.linalg import reciprocals
from gpukpca.backend.namespace import (
    accumulation_dtype,
    cast,
    epsilon,
    from_host,
    item_size,
    namespace_of,
    to_host,
)
from gpukpca.backend.orthogonalization import orthonormal_factors, triangular_factor
from gpukpca.covariance.moments import Moments, moments_and_rows
from gpukpca.data.batches import BatchedRows, filled, rows_of_weight
from gpukpca.data.frequencies import Frequencies, degrees_of_freedom, number_of
from gpukpca.data.place import Placement
from gpukpca.data.scale import (
    are_safe,
    check_variance,
    row_bounds,
    safe_scale,
    scaled_rows,
    variances_of_data,
)
from gpukpca.eigen.residuals import signs
from gpukpca.exceptions import InvalidParameterError, RankWarning, warn_user

COUNT = one_of(NONE, integer(at_least=1))
# Bytes of an item of the statistics, which are in float64.
WIDE = 8
# Measured: LAPACK's small factors in units of their size squared, and copies of the stack in QR, with the batch.
SMALL_SQUARES, STACKS = 9, 6


@record(eq=False)
class IncrementalState:
    """Moments, axes and singular values of the rows so far, in the widest type: the input of the next update."""

    moments: Moments = field_of("", "count, mean and sums of squares")
    axes: Array = field_of("p d", "unit rows, in descending order of singular value")
    singular_values: np.ndarray = field_of(
        "q", "of the last stack of rows on the host, q >= p: retained or left out", "nonnegative"
    )
    noise: float = field_of("", "the mean variance of those left out, over n - 1", "nonnegative")
    scale: float = field_of(
        "",
        "the power of two that the rows are multiplied by; all fields are in its units",
        "positive",
        default=1.0,
    )
    center: bool = field_of("", "whether the mean was subtracted; else the moments are about 0", default=True)

    @property
    def n_components(self) -> int:
        """Return the number p of retained components."""
        return int(self.axes.shape[0])

    @property
    def mean(self) -> Array:
        """Return the mean in the units of the data, shape (d,)."""
        return self.moments.mean / self.scale

    def rescaled(self, scale: float) -> IncrementalState:
        """Return the state for rows that are multiplied by another power of two."""
        factor, moments = scale / self.scale, self.moments
        moments = Moments(moments.count, moments.mean * factor, moments.squares * factor * factor)
        noise = self.noise * factor * factor
        return IncrementalState(moments, self.axes, self.singular_values * factor, noise, scale, self.center)


@record(eq=False)
class IncrementalFit(ComponentsResult):
    """Result of a PCA of batches, in the library of the data."""

    components: Array = field_of("p d", "orthonormal rows; the entry of largest modulus is positive")
    singular_values: Array = field_of("p", "norms of the columns of scores", "nonnegative")
    explained_variance: Array = field_of(
        "p", "variances of the scores, n - 1 degrees of freedom, descending", "nonnegative"
    )
    explained_variance_ratio: Array = field_of("p", "exact shares of the total variance", "nonnegative")
    mean: Array = field_of("d", "of the features, in the widest type; 0 without centering")
    var: Array = field_of("d", "variances of the features over n, in the widest type; else Σ x²/n", "nonnegative")
    noise_variance: float = field_of("", "the mean of the variances left out", "nonnegative")
    total_variance: float = field_of("", "the sum of the variances of the features", "nonnegative")
    n_samples_seen: float = field_of("", "rows so far, each as often as its weight says", "positive")
    state: IncrementalState = field_of("", "the input of the next update")
    scale = None  # as of `PCAFit`

    @property
    def n_samples(self) -> float:
        return self.n_samples_seen

    @cached_property
    def projection(self) -> LinearProjection:
        """The map of new points. Whitened, a score is 0 whose standard deviation is the rounding of the largest."""
        # By way of the host: products with columns that are stored by rows are faster.
        V = from_host(np.ascontiguousarray(to_host(self.components).T), self.components)
        deviations = deviations_of(self.singular_values, self.n_samples)
        rounding = int(V.shape[0]) * epsilon(V) * np.max(deviations, initial=0.0)
        shift = cast(self.mean, V.dtype)
        offset = to_host((self.mean - cast(shift, self.mean.dtype)) @ cast(V, self.mean.dtype))
        inverse_roots = reciprocals(np.where(deviations > rounding, deviations, 0.0))
        return LinearProjection(shift, V, offset, None, inverse_roots, self.state.center)

    @classmethod
    def of(cls, state: IncrementalState, dtype: Any) -> IncrementalFit:
        """Return the result of the batches so far.

        Parameters
        ----------
        state : IncrementalState
        dtype : dtype of any library
            For float32 the result is float32, else of the widest type.

        Raises
        ------
        InvalidParameterError
            A variance is larger than `dtype` holds.
        """
        dtype = namespace_of(state.axes).float32 if "float32" in str(dtype) else accumulation_dtype(state.axes)
        p, scale, total = state.n_components, state.scale, state.moments.total
        degrees = degrees_of_freedom(state.moments.count)
        values = state.singular_values[:p]
        variances = variances_of_data(values**2 / degrees, scale, dtype)
        check_variance(total / degrees, scale, np.float64)
        V = cast(state.axes, dtype)
        return cls(
            components=V,
            singular_values=from_host(values / scale, V),
            explained_variance=from_host(variances, V),
            explained_variance_ratio=from_host(values**2 / total if total > 0 else 0.0 * values, V),
            mean=state.mean,
            var=state.moments.squares / state.moments.count / scale / scale,
            noise_variance=state.noise / scale / scale,
            total_variance=total / degrees / scale / scale,
            n_samples_seen=number_of(state.moments.count),
            state=state,
        )


def checked_count(n_components: int | None, before: IncrementalState | None, rows: int, d: int, call: str) -> int:
    """Return the number of components after a batch of so many rows; raise `InvalidParameterError` for another one.

    The error ends its first sentence with the `call` that has too few rows.
    """
    most = min(rows, d) if before is None else before.n_components
    p = most if n_components is None else int(n_components)
    if before is None and p > most:
        # The words of scikit-learn up to the colon.
        wrong = (
            f"n_components={p} invalid for n_features={d}, need more rows than columns for IncrementalPCA processing"
            if p > d
            else f"n_components={p} must be less or equal to the batch number of samples {rows}{call}"
        )
        raise InvalidParameterError(
            f"{wrong}: the first batch of shape ({rows}, {d}) has at most {most} components.", argument="n_components"
        )
    if before is not None and p != most:
        raise InvalidParameterError(
            f"n_components has changed from {most} to {p}; all batches have the same number. Start again with the "
            "first batch to change it."
        )
    return p


def warn_of_equal_rows(state: IncrementalState) -> None:
    """Warn where no feature has a variance, or without centering no entry that is not 0."""
    if not state.moments.total > 0:
        rows = "equal" if state.center else "0"
        warn_user(f"all rows are {rows}: every variance is 0, and the components are arbitrary.", RankWarning)


def state_after(
    state: IncrementalState | None,
    batches: BatchedRows,
    n_components: int | None,
    center: bool,
    memory_limit: Any,
    weights: np.ndarray | None = None,
    progress: Listener | None = None,
    call: str = "",
) -> IncrementalState:
    """Return the state after batches, the first of a new one joined until they have a row for every component.

    Each update stays within the memory limit, and is repeated where a device runs out of memory. `weights` (n,) say how
    often the rows count. An error for too few rows names the `call`.
    """
    rows, counts = (batches, None) if weights is None else (rows_of_weight(batches, weights), weights[weights > 0])
    stop, fewest = 0, int(n_components or 1) if state is None else 1
    for number, batch in enumerate(filled(rows, fewest)):
        start, stop = stop, stop + int(batch.shape[0])
        p = checked_count(n_components, state, int(batch.shape[0]), int(batch.shape[1]), call)
        update = partial(add_batch, state, batch, p, center, None if counts is None else counts[start:stop])
        least = p if state is None and n_components is not None else 1
        state = retry_on_oom(partial(_within, budget := MemoryBudget(memory_limit, batch), least, update), budget)
        if progress is not None:
            progress(Progress("batch", f"batch {number}: {stop} rows", stop, rows.n_rows or 0))
    return state  # type: ignore[return-value]  # a pass without a batch raises


def _within(budget: MemoryBudget, least: int, update: partial[IncrementalState]) -> IncrementalState:
    """Return the result of `add_batch` where it fits into the memory; the batch keeps `least` rows."""
    _, batch, p, *_ = update.args
    rows, d = map(int, batch.shape)
    shorter = partial(update_bytes, d=d, p=p, item=item_size(batch.dtype))
    changes = [fewer(SHORTER, rows, shorter, least), fewer("n_components={}", p, lambda few: shorter(rows, p=few))]
    what = f"a batch of {rows} rows with {d} features and {p} components needs"
    Resources.within(budget, Placement(batch, batch), None).check(shorter(rows), what, changes)
    return update()


def add_batch(
    before: IncrementalState | None, X: Array, p: int, center: bool = True, weights: np.ndarray | None = None
) -> IncrementalState:
    """Return the state after a batch X (m, d), with p axes, in other units where squares in the old ones are unsafe.

    The axes are the right singular vectors of the old axes times their singular values, the centered batch, and a row
    for the shift of the mean: Ross, Lim, Lin & Yang, Int. J. Computer Vision 77 (2008) 125, section 3.1. Without
    `center` the batch is as it is, and no mean shifts. `weights` (m,), above 0, say how often each row counts.
    """
    if before is not None and before.center != center:
        raise InvalidParameterError(
            f"center has changed from {before.center} to {center}; all batches are centered, or none. Start again with "
            "the first batch to change it."
        )
    scale = 1.0 if before is None else before.scale
    frequencies = None if weights is None else Frequencies.of(weights, X)
    fresh, rows = moments_and_rows(scaled_rows(X, scale), center, frequencies)
    moments = fresh if before is None else before.moments.merged(fresh)
    if not are_safe(moments.squares):
        low, high = _bounds(before, X, center)
        scale = safe_scale(low, high, moments.mean.dtype)
        before = None if before is None else before.rescaled(scale)
        fresh, rows = moments_and_rows(scaled_rows(X, scale), center, frequencies)
        moments = fresh if before is None else before.moments.merged(fresh)
    stack = rows
    if before is not None:
        known, count = before.moments, before.moments.count
        weight = math.sqrt(count / moments.count * fresh.count)
        kept = from_host(before.singular_values[: before.axes.shape[0]], rows)
        shift = weight * (known.mean - fresh.mean)
        parts = [kept[:, None] * before.axes, rows, shift[None, :]]
        stack = namespace_of(rows).concat(parts if center else parts[:2], axis=0)
    values, axes = right_singular_pairs(stack, p)
    repeated = int(stack.shape[0]) + fresh.count - int(X.shape[0])
    noise = _noise(values, p, fresh.count, int(X.shape[1]), moments.count, repeated)
    return IncrementalState(moments, axes, values, noise, scale, center)


def _bounds(before: IncrementalState | None, X: Array, center: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return bounds (d,) of the entries of a batch, and of the rows before as their deviations show.

    Without `center` they lie about 0.
    """
    low, high = row_bounds([X])
    if not center:
        low, high = np.minimum(low, -high), np.maximum(high, -low)
    if before is None:
        return low, high
    mean = to_host(before.mean).astype(np.float64)
    deviations = np.sqrt(to_host(before.moments.squares).astype(np.float64) / before.moments.count) / before.scale
    return np.minimum(low, mean - deviations), np.maximum(high, mean + deviations)


def _noise(values: np.ndarray, p: int, rows: float, d: int, count: float, stacked: float) -> float:
    """Return the mean of the variances left out, of min(`stacked`, d) - p; 0 where scikit-learn has 0."""
    left = values[p:]
    if p in (rows, d) or not len(left):
        return 0.0
    return float(np.sum(left**2) / max(min(stacked, d) - p, len(left)) / degrees_of_freedom(count))


def right_singular_pairs(A: Array, p: int) -> tuple[np.ndarray, Array]:
    """Return all min(m, d) singular values of A (m, d) on the host, and the p leading right singular vectors as rows.

    QR of the longer side leaves a small factor for the host; the standard's `svd` would compute the long vectors as
    well. In every row the entry of largest modulus is positive.
    """
    m, d = A.shape
    xp = namespace_of(A)
    if not bool(xp.all(xp.isfinite(A))):
        raise InvalidParameterError(
            "the data overflow: differences from the mean are beyond the floating-point range. Divide the data by a "
            "constant."
        )
    if m >= d:
        # All d right vectors of R, also where a device left out dependent rows.
        _, values, right = np.linalg.svd(triangular_factor(A), full_matrices=True)
        axes = from_host(right[:p], A)
    else:
        Q, R = orthonormal_factors(A.T, least=p)
        left, values, _ = np.linalg.svd(R, full_matrices=False)
        axes = (Q @ from_host(left[:, :p], A)).T
    return np.pad(values, (0, min(m, d) - len(values))), axes * signs(axes.T)[:, None]


def update_bytes(rows: int, d: int, p: int, item: int) -> int:
    """Return the peak of an update of p axes by a batch of so many rows, the batch included."""
    stack = rows + p + 1
    return rows * d * item + WIDE * (STACKS * stack * d + SMALL_SQUARES * min(stack, d) ** 2)


# The classes of updates that model files hold.
STORED = (IncrementalFit, IncrementalState, Moments)
