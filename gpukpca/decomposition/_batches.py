"""The door of all estimators: checked rows of any container, and where a fit of them computes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
from sklearn.utils import _safe_indexing, gen_batches
from sklearn.utils.validation import _num_samples

from gpukpca._typing import Array
from gpukpca.algorithms.inputs import check_no_weights, check_place
from gpukpca.algorithms.resources import Resources, allowed_bytes
from gpukpca.backend.device import device_context, on_its_device
from gpukpca.backend.namespace import cast, concat, empty_like, from_host, is_foreign, is_memory_map, item_size
from gpukpca.data.batches import (
    BatchedRows,
    Batches,
    each_batch,
    each_slice,
    is_converted,
    is_set,
    is_sliced,
    is_stream,
    read_slice,
    read_stream,
    slice_of,
    spread_runs,
)
from gpukpca.data.frequencies import checked_frequencies, counted_rows, rows_that_count
from gpukpca.data.place import Placement, comes_in_batches, placement_for
from gpukpca.data.rows import Rows, itself
from gpukpca.data.slicing import dense_rows, gather_rows, place_of, take_rows
from gpukpca.decomposition._dask import cluster_of, cluster_rows, compute_dask
from gpukpca.decomposition._session import restore_on_error
from gpukpca.decomposition._validation import limit_of, new_data, rows_to_be_finite, training_data
from gpukpca.distributed.chunks import chunk_batches
from gpukpca.distributed.lazy import filled_rows
from gpukpca.distributed.rows import is_dask_array
from gpukpca.exceptions import InvalidParameterError, warned_once

# From n and d to the rows of a batch; from (start, stop) to rows.
Size = Callable[[int, int], int]
Read = Callable[..., Any]


class PlacedBatches(BatchedRows):
    """Checked, dense batches of a data set, each in the place of the computation.

    Attributes
    ----------
    place : Placement
        Where the data are, and where they are computed.
    """

    def __init__(
        self, estimator: Any, first: Array, pieces: Any, sizes: list[int] | None = None, read: Read | None = None
    ) -> None:
        self.place: Placement
        d = int(estimator.n_features_in_)
        self.place = place = placement_for(estimator.device, first, (sum(sizes), d) if sizes else None)
        like = from_host(np.empty((0, d)), place.work, place.work.dtype)
        # `place` changes with the type of the batches, not where they are.
        super().__init__(lambda: map(self._widened, place.batches_to_work(map(dense_rows, pieces()))), like, sizes)
        self._read_rows = read
        self._held: tuple[int, Array] = 0, self.like

    def some(self, count: int) -> tuple[Any, np.ndarray, BatchedRows]:
        """Return about `count` rows, their numbers, and the batches; those of a set that is read by slices are spread.

        See `BatchedRows.some`.
        """
        if self._read_rows is None:
            return super().some(count)
        runs = spread_runs(sum(self.sizes or []), count)
        rows = concat([self._placed(self._read_rows(*run)) for run in runs], axis=0)
        return rows, np.concatenate([np.arange(*run) for run in runs]), self

    def drawn(self, count: int, rng: np.random.Generator) -> tuple[Any, np.ndarray, BatchedRows]:
        return super().drawn(count, rng) if self._read_rows is None else self.some(count)

    def slice(self, start: int, stop: int) -> Array:
        """Return consecutive rows in memory; those of a set are read with the rows after them. See `BatchedRows`."""
        if self._read_rows is None:
            return super().slice(start, stop)
        first, held = self._held
        if start < first or first + held.shape[0] < stop:
            last = max(stop, min(start + self.largest, sum(self.sizes or [])))
            self._held = 0, self.like  # not in memory together with the next one
            self._held = first, held = start, self._placed(self._read_rows(start, last))
        return held[start - first : stop - first, :]

    def _placed(self, piece: Any) -> Array:
        """Return rows of a set where they are computed; see `_widened`."""
        return self._widened(self.place.to_work(dense_rows(piece)))

    def _widened(self, batch: Array) -> Array:
        """Return a batch in the widest dtype so far: that of all batches after a first pass."""
        if item_size(batch.dtype) > item_size(self.dtype):
            self.like = cast(self.like, batch.dtype)
            self.place = self.place.in_dtype(batch.dtype)
        return cast(batch, self.dtype)


def training_rows(
    estimator: Any, X: Any, reader: str = "", size: Size | None = None, in_batches: bool | None = None, **how: Any
) -> Any:
    """Return the checked rows of a fit: an array, a CSR matrix, batches, or rows on a cluster.

    Sets `n_features_in_` and the names of the features. Iterables come in batches, and what `is_converted` in slices of
    `size` rows, unless `in_batches` says which do. They are read again where there is a `reader`, which
    the refusal of an iterator names. `how` are arguments of `training_data`. Rows of another class stay in their
    panels, but where a `size` of slices is given.
    """
    if estimator._on_cluster and (rows := cluster_rows(estimator, X, how.get("sample_weight"))) is not None:
        return rows
    if (is_stream(X) or is_converted(X) or comes_in_batches(X)) if in_batches is None else in_batches:
        if isinstance(X, Rows) and size is None:
            return training_data(estimator, X, panels=True, **how)
        return batches_of(estimator, repeated(X, reader) if reader else X, size, **how)
    return training_data(estimator, compute_dask(estimator, X) if estimator._on_cluster else X, **how)


def rows_and_place(estimator: Any, X: Any, reader: str = "", *, counted: bool, **how: Any) -> tuple[Any, Placement]:
    """Return the checked rows of a fit, and where it computes; see `training_rows`.

    Where batches are to be `counted`, a first pass does it, and finds their type.
    """
    rows = training_rows(estimator, X, reader, **how)
    if counted and getattr(rows, "sizes", ()) is None:
        with device_context(rows.like):
            rows.counted()
    shape = None if isinstance(rows, Rows) else rows.shape
    return rows, placement_for(estimator.device, rows, shape, of_pairs=hasattr(estimator, "kernel"))


def batches_of(
    estimator: Any, X: Any, size: Size | None = None, *, least: int = 0, after: Any = None, **how: Any
) -> PlacedBatches:
    """Return batches: of rows X (n, d), an iterable, or the chunks of a Dask array.

    Rows are cut into batches of `size`, by default as large as the memory limit of the estimator allows, and a last one
    of fewer than `least` rows is joined to the one before. The batches of an iterable stay as they are. Each is checked
    when it comes, as `training_data` takes `how`: as the first one, or `after` the results of a fit.
    """
    first, given, missing = after, set[Any](), how.get("missing", False)
    counts = rows_to_be_finite(estimator, how.get("sample_weight"))

    def check(batch: Any, name: str, start: int) -> Any:
        """Check that a batch has the width, library and device of the first; warn once of all."""
        some = None if counts is None else counts[start:]
        with warned_once(given):
            return checked_batch(estimator, batch, first, name, missing=missing, counts=some)

    if is_dask_array(X):
        X = Batches(partial(chunk_batches, X, cluster_of(estimator)))
    if is_stream(X):
        head, pieces = read_stream(X, type(estimator).__name__, check)
        first = empty_like(head) if first is None else first
        return PlacedBatches(estimator, empty_like(head), pieces)
    if not is_sliced(X):
        return cut_rows(estimator, checked_batch(estimator, X, first, missing=missing, counts=counts), size, least)
    read = partial(read_slice, X, check=check)
    head = empty_like(read(0, 1, number=0))
    first = head if first is None else first
    return cut_rows(estimator, X, size, least, head, read)


def checked_batch(estimator: Any, X: Any, first: Any, name: str = "the batch", **how: Any) -> Any:
    """Return a batch, checked as by `training_data`: the first one, or one with the library and width of `first`."""
    if first is None:
        return training_data(estimator, X, **how)
    check_place(name, X if is_foreign(X) else np.empty(0), "the first one", place_of(first))
    return new_data(estimator, X, first, "partial_fit", **how)


def cut_rows(
    estimator: Any, X: Any, size: Size | None, least: int = 0, head: Any = None, read: Read | None = None
) -> PlacedBatches:
    """Return rows X (n, d) in batches; see `batches_of`. They are checked, or a function reads and checks slices."""
    (n, d), data = map(int, X.shape), np.asarray(X) if read is None and is_memory_map(X) else X
    get = read or (lambda start, stop, number=None: take_rows(data, start, stop))
    cuts = list(gen_batches(n, size(n, d) if size else slice_within(estimator, d), min_batch_size=least))
    first, sizes = empty_like(place_of(X)) if head is None else head, [cut.stop - cut.start for cut in cuts]
    pieces = partial(map, lambda k: get(cuts[k].start, cuts[k].stop, number=k), range(len(cuts)))
    return PlacedBatches(estimator, first, pieces, sizes, get)


@on_its_device
def rows_to_score(X: Any, sample_weight: Any) -> tuple[Any, Any]:
    """Return X without the rows of weight 0, and their weights; a Dask array has 0 in these rows.

    Weights that are not one for each row stay, for the check of what was computed for each.
    """
    if (counts := rows_that_count(sample_weight)) is None:
        return X, sample_weight
    weights: Any = checked_frequencies(sample_weight, len(counts), is_batch=True)
    if is_dask_array(X):
        return filled_rows(X, counts), weights
    if is_stream(X) or is_sliced(X):
        source = partial(_counted_parts, X, weights)
        return source() if isinstance(X, Iterator) else Batches(source), weights[counts]
    if _num_samples(X) != len(counts):
        return X, weights
    return _taken(X, np.flatnonzero(counts)), weights[counts]


def _counted_parts(X: Any, weights: np.ndarray) -> Iterator[Any]:
    """Yield the rows of weight > 0 of batches, or of slices of a set; raise where all are not as many as weights."""
    start = 0
    for rows in each_batch(X, "sample_weight", itself) if is_stream(X) else each_slice(X, lambda rows, *_: rows):
        count = _num_samples(rows)
        if len(kept := np.flatnonzero(weights[start : start + count])):
            yield _taken(rows, kept)
        start += count
    checked_frequencies(weights, start, is_batch=True)


def _taken(X: Any, kept: np.ndarray) -> Any:
    """Return some rows of a container in memory, which keeps its names of columns."""
    return gather_rows(X, kept) if is_foreign(X) or isinstance(X, np.ndarray) else _safe_indexing(X, kept)


def without_weight_0(estimator: Any, rows: Any, sample_weight: Any, size: Size | None) -> tuple[Any, Any]:
    """Return the rows of weight > 0, with their checked weights: others may hold anything, missing entries too."""
    if is_memory_map(rows) and rows_that_count(sample_weight) is not None:
        rows = cut_rows(estimator, rows, size)
    rows, weights, _ = counted_rows(rows, sample_weight)
    return rows, checked_frequencies(weights, int(rows.shape[0]))


def held_batches(batches: PlacedBatches, resources: Resources) -> Iterable[Array]:
    """Return the batches: on the device of the fit where passes would move them, and half of its memory holds them."""
    if not batches.place.moved or batches.n_rows is None:
        return batches
    first = next(iter(batches))
    needed = batches.n_rows * int(first.shape[1]) * item_size(first.dtype)
    return list(batches) if 2 * needed <= resources.allowed() else batches


def add_batches(estimator: Any, X: Any, sample_weight: Any, add: Callable[..., Any]) -> Any:
    """Return the estimator after ``add(batch, weights)`` of X: of all batches, all slices of a set, or all chunks.

    On an error the estimator is as before.
    """
    if is_dask_array(X):
        X = Batches(partial(chunk_batches, X, cluster_of(estimator)))
    if is_stream(X):
        check_no_weights(X, sample_weight)
        parts = each_batch(X, type(estimator).__name__, add)
    elif is_set(X):
        weights = checked_frequencies(sample_weight, int(X.shape[0]))

        def add_slice(part: Any, _: str, start: int) -> Any:
            return add(part, None if weights is None else weights[start : start + int(part.shape[0])])

        parts = each_slice(X, add_slice, slice_within(estimator, int(X.shape[1])))
    else:
        return add(X, sample_weight)
    with restore_on_error(estimator):
        for _ in parts:
            pass
    return estimator


def slice_within(estimator: Any, d: int) -> int:
    """Return how many rows of d features are read at once, within the limit of an estimator, or of its device."""
    limit = limit_of(estimator)
    if comes_in_batches(None):  # of which two more are on the device, copied ahead
        limit = allowed_bytes(limit, placement_for(estimator.device, np.empty(0)).work) // 2
    return slice_of(d, limit)


def repeated(X: Any, what: str) -> Any:
    """Return X; raise `InvalidParameterError` for an iterator, whose batches `what` reads again, and read none."""
    if isinstance(X, Iterator):
        raise InvalidParameterError(
            f"{what} reads the batches more than once, and an iterator or generator gives them only once. Pass an "
            "array, a memory map, gpukpca.Batches(function), whose function returns a new iterator, or an object whose "
            "__iter__ starts again."
        )
    return X
