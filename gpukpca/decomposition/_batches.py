"""Batches of rows: of an array, of a memory map that is read piece by piece, or of an iterable of arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
from sklearn.utils import gen_batches

from gpukpca._typing import Array
from gpukpca.algorithms.inputs import check_place, weights_of_batches
from gpukpca.algorithms.kernel_pca.settings import rows_to_check
from gpukpca.algorithms.resources import Resources, parsed_bytes
from gpukpca.backend.namespace import cast, concat, empty_like, from_host, is_foreign, item_size
from gpukpca.data.batches import (
    BatchedRows,
    Batches,
    each_batch,
    is_sliced,
    is_stream,
    read_slice,
    read_stream,
    slice_of,
    spread_runs,
)
from gpukpca.data.place import placement_for
from gpukpca.data.rows import Rows
from gpukpca.data.slicing import dense_rows, take_rows
from gpukpca.decomposition._session import restore_on_error
from gpukpca.decomposition._validation import new_data, training_data
from gpukpca.distributed.lazy import chunk_batches
from gpukpca.distributed.rows import is_dask_array
from gpukpca.exceptions import InvalidParameterError, held_warnings


class PlacedBatches(BatchedRows):
    """The rows of a data set as checked, dense arrays in the place of the computation, one batch at a time.

    Attributes
    ----------
    place : Placement
        Where the data are, and where they are computed.
    """

    def __init__(
        self,
        estimator: Any,
        first: Array,
        pieces: Callable[[], Iterator[Array]],
        cuts: list[slice],
        read: Callable[[int, int], Array] | None = None,
    ) -> None:
        self.place = place = placement_for(estimator.device, first)
        sizes = [cut.stop - cut.start for cut in cuts] or None
        like = from_host(np.empty((0, int(estimator.n_features_in_))), place.work, place.work.dtype)
        super().__init__(lambda: (self._placed(piece) for piece in pieces()), like, sizes)
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
        """Return a batch in the widest dtype so far: that of all batches after a first pass."""
        batch = self.place.to_work(dense_rows(piece))
        if item_size(batch.dtype) > item_size(self.dtype):
            self.like = cast(self.like, batch.dtype)
            self.place = self.place.in_dtype(batch.dtype)
        return cast(batch, self.dtype)


def batches_of(
    estimator: Any,
    X: Any,
    rows: Callable[[int, int], int],
    smallest: int,
    *,
    missing: bool = False,
    sample_weight: Any = None,
) -> PlacedBatches:
    """Return the batches of rows X (n, d), or of an iterable; set `n_features_in_` and the names of the features.

    `rows` gives the rows of a batch from n and d; a last batch of fewer than `smallest` is joined to the one before.
    The batches of an iterable stay as they are, and are checked when they come. With `missing` NaN is a missing entry.
    Rows of weight 0 are not checked.
    """
    first: Any = None
    counts = rows_to_check(getattr(estimator, "eigen_solver", None), sample_weight)
    seen: set[str] = set()

    def check(batch: Any, name: str, start: int) -> Any:
        """Check that a batch has the width, library and device of the first; warn of each batch once."""
        is_known = name in seen
        seen.add(name)
        how: dict[str, Any] = {"missing": missing, "counts": None if counts is None else counts[start:]}
        with held_warnings() if is_known else nullcontext():
            if first is None:
                return training_data(estimator, batch, **how)
            check_place(name, batch if is_foreign(batch) else np.empty(0), "the first one", first)
            return new_data(estimator, batch, first, "fit", **how)

    if is_stream(X):
        head, pieces = read_stream(X, type(estimator).__name__, check)
        first = empty_like(head)
        return PlacedBatches(estimator, first, pieces, [])
    if is_sliced(X):
        cuts = list(gen_batches(int(X.shape[0]), rows(*X.shape), min_batch_size=smallest))
        first = empty_like(read_slice(X, 0, 1, check, 0))

        def slices() -> Iterator[Array]:
            return (read_slice(X, cut.start, cut.stop, check, number) for number, cut in enumerate(cuts))

        return PlacedBatches(estimator, first, slices, cuts, lambda a, b: read_slice(X, a, b, check))
    data = training_data(estimator, X, missing=missing, counts=counts)
    n, d = map(int, data.shape)
    cuts = list(gen_batches(n, rows(n, d), min_batch_size=smallest))

    def parts() -> Iterator[Array]:
        return (take_rows(data, cut.start, cut.stop) for cut in cuts)

    return PlacedBatches(estimator, empty_like(data), parts, cuts)


def held_batches(batches: PlacedBatches, resources: Resources) -> Iterable[Array]:
    """Return the batches, kept on the device of the fit if they are moved in every pass and fill at most half of it."""
    if not batches.place.moved or batches.n_rows is None:
        return batches
    first = next(iter(batches))
    needed = batches.n_rows * int(first.shape[1]) * item_size(first.dtype)
    return list(batches) if 2 * needed <= resources.allowed() else batches


def in_batches(X: Any) -> Any:
    """Return the chunks of a Dask array as batches; anything else as it is."""
    return Batches(partial(chunk_batches, X)) if is_dask_array(X) else X


def add_batches(estimator: Any, X: Any, sample_weight: Any, add: Callable[..., Any]) -> Any:
    """Return the estimator after ``add(batch)`` of all batches of an iterable, or of X; as before on an error."""
    if not is_stream(X):
        return add(X, sample_weight)
    weights_of_batches(X, sample_weight, X)  # which refuses them
    with restore_on_error(estimator):
        list(each_batch(X, type(estimator).__name__, add))
    return estimator


def batches_in_slices(estimator: Any, X: Any, sample_weight: Any = None) -> Any:
    """Return the batches of an iterable, or of a set that is read by slices, as large as the limit allows; or `Rows`.

    These stay where they are, and are computed there.
    """
    if isinstance(X, Rows):
        rows: Any = training_data(estimator, X, sample_weight=sample_weight, panels=True)
        rows.place = placement_for(estimator.device, rows)
        return rows
    return batches_of(estimator, X, lambda _, d: slice_within(estimator, d), 0, sample_weight=sample_weight)


def slice_within(estimator: Any, d: int) -> int:
    """Return the rows of a slice of d features that are read at once, within the limit of an estimator, if any."""
    limit = getattr(estimator, "memory_limit", None)
    return slice_of(d, None if limit is None else parsed_bytes(limit))


def repeated(X: Any, what: str) -> Any:
    """Return X; raise `InvalidParameterError` for an iterator, whose batches `what` reads again, and read none."""
    if isinstance(X, Iterator):
        raise InvalidParameterError(
            f"{what} reads the batches more than once, and an iterator or generator gives them only once. Pass an "
            "array, a memory map, gpukpca.Batches(function), whose function returns a new iterator, or an object whose "
            "__iter__ starts again."
        )
    return X
