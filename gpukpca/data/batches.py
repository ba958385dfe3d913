"""Rows that come in batches: each is read, checked and moved when a pass needs it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from itertools import chain, pairwise, repeat
from typing import Any

import numpy as np

from gpukpca._typing import Array, ArrayLike
from gpukpca.backend import blocking
from gpukpca.backend.elementwise import add
from gpukpca.backend.namespace import concat, from_host, is_foreign, is_memory_map
from gpukpca.backend.parallel import row_slices
from gpukpca.backend.random import uniform
from gpukpca.data.finite import NotFiniteError
from gpukpca.data.gate import FLOATS, as_rows, dask_kind, is_unread
from gpukpca.data.place import own_copy
from gpukpca.data.reading import UnreadableError, rows_of_set
from gpukpca.data.rows import Merge, Rows, sampling_step
from gpukpca.data.slicing import dense_rows, gather_rows, take_rows
from gpukpca.exceptions import DeviceMismatchError, InvalidParameterError, warned_once

# What says that a thing is one set of rows, or holds several arrays by name, whatever else it can do.
SET_MARKS = ("keys", "shape", "__array__", "__array_interface__", "__dataframe__")

# Bytes of the limit for each entry of a slice: it is read, converted and centered, and the products need the rest.
SLICE_BYTES = 64
# Runs of rows that show a set which is read by slices.
RUNS = 32
# From a batch as given, its name for errors and its first row, to checked rows.
Check = Callable[[Any, str, int], Any]


class Batches:
    """Say that arrays are batches of the rows of one data set, which a fit reads one after another.

    A list of arrays can be batches, or samples such as images, so fits refuse it. An iterator, a generator, a loader
    and any other iterable that is no sequence are batches without this class.

    Parameters
    ----------
    source : sequence of arrays, or callable
        Arrays, CSR matrices or data frames (b, d), which are not copied; or a function without arguments that returns
        an iterator over them, and the same ones at every call. A generator function makes an iterable that starts
        again; its batches are copied where they are kept, so they may share one buffer.

    Attributes
    ----------
    source : sequence or callable
        As given.

    Raises
    ------
    InvalidParameterError
        The source is something else, such as an iterator, which goes into `fit` as it is.

    See Also
    --------
    gpukpca.PCA : Reads batches more than once.
    gpukpca.IncrementalPCA : Reads each batch once.
    gpukpca.eigen.Nystrom : Kernel PCA that reads each batch once.

    Notes
    -----
    The first entry of a batch that is a tuple of rows and labels counts as the rows, and so does that of a list but for
    arrays of one shape, which can be samples. `partial_fit` adds the batches in turn. `transform` returns the scores of
    all rows in one array.

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca import PCA, Batches
    >>> X = np.random.default_rng(0).standard_normal((300, 4)) * [4.0, 3.0, 2.0, 1.0]
    >>> model = PCA(2).fit(Batches([X[:100], X[100:]]))
    >>> def batches():
    ...     for start in range(0, 300, 100):
    ...         yield X[start : start + 100]
    >>> again = PCA(2).fit(Batches(batches))
    >>> bool(np.allclose(again.explained_variance_, model.explained_variance_))
    True
    """

    def __init__(self, source: Sequence[ArrayLike] | Callable[[], Iterable[Any]]) -> None:
        if not callable(source) and not isinstance(source, Sequence):
            raise InvalidParameterError(
                f"source is of type {type(source).__name__}; give a list of arrays, or a function that returns an "
                "iterator over them. Other iterables, such as loaders, go into fit as they are."
            )
        self.source = source

    def __iter__(self) -> Iterator[Any]:
        """Return an iterator over all batches."""
        batches = self.source() if callable(self.source) else self.source
        if not isinstance(batches, Iterable):
            raise InvalidParameterError(f"the function of Batches returned {batches!r}, and not an iterator of arrays.")
        return iter(batches)


def is_stream(X: Any) -> bool:
    """Return whether X is an iterable of batches: one that is no sequence, and not one set of rows."""
    is_one = isinstance(X, (np.ndarray, Sequence, Rows)) or any(hasattr(X, mark) for mark in SET_MARKS)
    return hasattr(X, "__iter__") and not (is_one or is_foreign(X) or dask_kind(X))


def _rows_of(batch: Any) -> Any:
    """Return the rows of a batch: the first entry of a tuple, or of a list of different things, as loaders give them.

    Raise `InvalidParameterError`, which names the call that has the rows, for a batch that has them by name, and for a
    list of arrays of one shape, each of which may be a sample.
    """
    shapes = [tuple(getattr(one, "shape", ())) for one in batch] if isinstance(batch, (tuple, list)) else []
    dimensions = len(shapes[0]) if shapes else 0
    if isinstance(batch, Mapping):
        rows = f"batch[{next(iter(batch), '')!r}]"
    elif isinstance(batch, list) and dimensions > 1 and len(shapes) > 1 and len(set(shapes)) == 1:
        rows = "numpy.stack(batch).reshape(len(batch), -1)"
    elif dimensions > 2:
        rows = "batch[0].reshape(len(batch[0]), -1)"
    else:
        return batch[0] if dimensions == 2 else batch
    way = f"gpukpca.Batches(lambda: ({rows} for batch in loader))"
    raise InvalidParameterError(f"it is a {type(batch).__name__}; name its rows, such as {way}.")


def is_sliced(X: Any) -> bool:
    """Return whether X (n, d) is read by slices of rows: a memory map, a set of zarr, HDF5 or the like, or `Rows`."""
    if is_memory_map(X):
        return X.ndim == 2 and X.size > 0 and X.dtype.kind in "fiub"
    if isinstance(X, Rows):
        return not X.is_checked
    return is_unread(X) and all(X.shape)


def is_set(X: Any) -> bool:
    """Return whether X (n, d) is a set of zarr, HDF5 or the like, or `Rows`, and no memory map."""
    return is_sliced(X) and not is_memory_map(X)


def is_held(X: Any) -> bool:
    """Return whether rows are in memory: no batches, set or Dask array."""
    return not (is_stream(X) or is_set(X) or dask_kind(X))


def is_converted(X: Any) -> bool:
    """Return whether rows are read by slices and converted: a set, or a memory map of a type that fits convert."""
    return is_sliced(X) and not (is_memory_map(X) and X.dtype in FLOATS)


def slice_of(d: int, limit: int | None = None) -> int:
    """Return the rows of a slice of d features that a pass reads at once; `limit` are the bytes that a fit may take."""
    entries = blocking.READ_ENTRIES
    if limit is not None:
        entries = min(entries, limit // SLICE_BYTES)
    return max(1, entries // max(1, d))


class BatchedRows(Rows):
    """Dense rows (n, d) in batches that every pass reads again.

    Parameters
    ----------
    read : callable
        Returns an iterator over all batches, each an array (b, d) where it is computed; the same ones at every call.
    like : array, shape (0, d)
        With the library, dtype and device of the batches.
    sizes : sequence of int, optional
        The rows of every batch. None: the first pass counts them.

    Attributes
    ----------
    sizes : list of int, or None
        None before the first pass where they were not given.
    largest : int
        The rows of the largest batch so far.
    """

    is_checked = True

    def __init__(self, read: Callable[[], Iterator[Array]], like: Array, sizes: list[int] | None = None) -> None:
        self._read = read
        self.like: Array = like
        self.sizes = sizes
        self.largest: int = max(sizes or [0])
        # The pass that `slice` goes on with: its first row at hand, batches at hand, and those that follow.
        self._ahead: tuple[int, list[Array], Iterator[Array]] | None = None

    @classmethod
    def of_array(cls, X: Any) -> BatchedRows:
        """Return the rows of an array or a CSR matrix, in slices."""
        bounds = row_slices(int(X.shape[0]), slice_of(int(X.shape[1])))
        sizes = [stop - start for start, stop in bounds]
        return cls(lambda: (take_rows(X, *pair) for pair in bounds), X[:0, :], sizes)

    def moved(self, place: Any) -> BatchedRows:
        """Return the batches where a `Placement` says that a fit computes."""
        moved = BatchedRows(lambda: place.batches_to_work(self), place.to_work(self.like), self.sizes)
        moved.place = place
        return moved

    def some(self, count: int) -> tuple[Any, np.ndarray, BatchedRows]:
        """Return about `count` rows, or all there are, their numbers, and the same batches for one pass.

        They are the first rows, which the pass does not read again.
        """
        batches, read, total = iter(self), [], 0
        for batch in batches:
            read.append(batch)
            total += int(batch.shape[0])
            if total >= count:
                break
        rest = BatchedRows(lambda: chain(read, batches), self.like, self.sizes)
        return take_rows(concat(read, axis=0), 0, min(count, total)), np.arange(min(count, total)), rest

    def drawn(self, count: int, rng: np.random.Generator) -> tuple[Any, np.ndarray, BatchedRows]:
        """Return `count` rows drawn evenly from all, or all there are, their numbers, and the batches, after one pass.

        Every row gets a random key, and those with the least keys stay (Vitter, ACM Trans. Math. Softw. 11 (1985) 37,
        for reservoirs).
        """
        rows, keys, numbers, start = self.like, np.empty(0), np.empty(0, dtype=np.int64), 0
        for batch in self:
            some = uniform(rng, int(batch.shape[0]))
            near = np.flatnonzero(some < (keys.max() if len(keys) == count else np.inf))
            keys = np.concatenate([keys, some[near]])
            numbers = np.concatenate([numbers, start + near])
            least = np.sort(np.argsort(keys, kind="stable")[:count])
            rows = gather_rows(concat([rows, gather_rows(batch, near)], axis=0), least)
            keys, numbers = keys[least], numbers[least]
            start += int(batch.shape[0])
        return rows, numbers, self

    @staticmethod
    def plus(a: Any, b: Any) -> Any:
        return add(a, b)

    @property
    def n_rows(self) -> int | None:
        """Return the number of rows; None before a pass has counted them."""
        return None if self.sizes is None else sum(self.sizes)

    @property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        """Return (n, d), after a pass over batches of unknown sizes."""
        return sum(self.counted()), int(self.like.shape[1])

    def sample(self) -> Array:
        """Return rows of the first batch, at the distance that those of the largest one have."""
        return next(iter(self))[:: sampling_step(self.largest, int(self.like.shape[1])), :]

    def counted(self) -> list[int]:
        """Return the rows of every batch, after a pass where they are unknown."""
        if self.sizes is None:
            for _ in self:
                pass
        return self.sizes or []

    def __iter__(self) -> Iterator[Array]:
        """Yield the batches; raise `InvalidParameterError` where they differ in number or rows from an earlier pass."""
        sizes: list[int] = []
        for batch in self._read():
            sizes.append(int(batch.shape[0]))
            if self.sizes is not None and sizes != self.sizes[: len(sizes)]:
                raise _changed(f"batch {len(sizes) - 1} has {sizes[-1]} rows in a later one, and had not in the first.")
            self.largest = max(self.largest, sizes[-1])
            yield batch
        if self.sizes is not None and sizes != self.sizes:
            raise _changed(f"the first pass gave {sum(self.sizes)} rows, a later one {sum(sizes)}.")
        self.sizes = sizes

    def _results(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Iterator[Any]:
        others = [iter(one) if isinstance(one, BatchedRows) else repeat(one) for one in arguments]
        for batch in self:  # first, so that it finds its own end
            yield function(batch, *map(next, others))

    def fold(self, function: Callable[..., Any], *arguments: Any, merge: Merge = operator.add) -> Any:
        return reduce(merge, self._results(function, arguments))

    def each(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        return list(self._results(function, arguments))

    def map(self, function: Callable[..., Array], *arguments: Any, width: int) -> BatchedRows:
        """Return the rows ``function(batch, *arguments)``, computed in every pass."""
        like = from_host(np.empty((0, width)), self.like, self.dtype)
        return BatchedRows(lambda: self._results(function, arguments), like, self.sizes)

    def slice(self, start: int, stop: int) -> Array:
        """Return consecutive rows in memory; a pass goes on from the call before, or begins where that is behind.

        A batch before the slice stays at hand, for threads that follow each other.
        """
        if self._ahead is None or start < self._ahead[0]:
            self._ahead = 0, [], iter(self)
        first, held, batches = self._ahead
        while first + sum(batch.shape[0] for batch in held) < stop:
            if held and first + held[0].shape[0] <= start - self.largest:
                first += held.pop(0).shape[0]
            held.append(next(batches))
        self._ahead = first, held, batches
        parts = []
        for batch in held:
            last = first + batch.shape[0]
            if start < last and first < stop:
                parts.append(batch[max(start - first, 0) : min(stop, last) - first, :])
            first = last
        return concat(parts, axis=0)

    def split(self, A: Array) -> BatchedRows:
        sizes = self.counted()
        bounds = list(pairwise(np.cumsum([0, *sizes]).tolist()))
        return BatchedRows(lambda: (A[start:stop, ...] for start, stop in bounds), A[:0, ...], sizes)

    def take(self, chosen: Any, *others: Any) -> Array:
        chosen = np.asarray(chosen, dtype=np.int64).reshape(-1)
        parts, start, order = [], 0, np.argsort(chosen, kind="stable")
        ascending = chosen[order]
        for batch, *more in zip(self, *others, strict=True):
            stop = start + int(batch.shape[0])
            first, last = np.searchsorted(ascending, [start, stop])
            rows = ascending[first:last] - start
            parts.append(concat([gather_rows(one, rows) for one in (batch, *more)], axis=1))
            start = stop
        return gather_rows(concat(parts, axis=0), np.argsort(order, kind="stable"))


def filled(batches: Iterable[Array], least: int) -> Iterator[Array]:
    """Yield batches (b, d), the first of them joined until they have so many rows, and none without rows."""
    held: list[Array] = []
    for batch in batches:
        held.append(batch)
        if sum(int(one.shape[0]) for one in held) >= max(least, 1):
            yield held[0] if len(held) == 1 else concat(held, axis=0)
            held, least = [], 1
    if any(batch.shape[0] for batch in held):
        yield concat(held, axis=0)


def rows_of_weight(rows: Rows, weights: np.ndarray) -> Any:
    """Return rows without those of weight 0, where they are; `weights` (n,) are on the host."""
    if (own := rows.kept(np.flatnonzero(weights))) is not None:
        return own
    bounds = pairwise(np.cumsum([0, *rows.counted()]).tolist())
    kept = [np.flatnonzero(weights[start:stop]) for start, stop in bounds]
    pairs = partial(zip, kept, strict=True)
    rest = BatchedRows(lambda: (gather_rows(b, k) for k, b in pairs(rows)), rows.like, list(map(len, kept)))
    rest.place = rows.place
    return rest


def _changed(how: str) -> InvalidParameterError:
    """Return the error for batches that are not those of the first pass."""
    return InvalidParameterError(
        f"the batches changed between passes: {how} Give an iterable that gives the same batches in every iteration, "
        "such as gpukpca.Batches(list)."
    )


def read_stream(X: Any, owner: str, check: Check) -> tuple[Any, Callable[[], Iterator[Any]]]:
    """Return the first batch of an iterable, checked, and a function that reads all, an iterator only once.

    `check` takes a batch and its name, and every batch in every pass. Batches are copies, as an iterable may fill one
    buffer again for each; those of `Batches` of a sequence are not. Raise `InvalidParameterError`, which names the
    `owner`, for an empty iterable.
    """
    is_held = isinstance(X, Batches) and not callable(X.source)
    head, *begun = _begun(X, owner)  # for the first pass, also of an object that always gives one iterator
    with named("batch 0"):
        first = check(_rows_of(head), "batch 0", 0)

    def pieces() -> Iterator[Any]:
        start = 0
        for number, batch in enumerate(begun.pop() if begun else X):
            with named(name := f"batch {number}"):
                given = _rows_of(batch)
                rows = check(given, name, start)
            start += int(rows.shape[0])
            yield rows if is_held else own_copy(rows, given)

    return first, pieces


def each_batch(X: Any, owner: str, function: Callable[[Any], Any]) -> Iterator[Any]:
    """Yield ``function(rows)`` of all batches of an iterable in turn; errors name the batch, or the `owner`."""
    given: set[Any] = set()
    for number, batch in enumerate(_begun(X, owner)[1]):
        with named(f"batch {number}"), warned_once(given):
            found = function(_rows_of(batch))
        yield found


def _begun(X: Any, owner: str) -> tuple[Any, Iterator[Any]]:
    """Return the first batch of an iterable, and an iterator over all; raise `InvalidParameterError` for none."""
    iterator = iter(X)
    for head in iterator:
        return head, chain([head], iterator)
    raise InvalidParameterError(
        f"{owner}: the iterable of batches is empty, as an iterator is after one pass; give at least one array (b, d)."
    )


def read_slice(X: Any, start: int, stop: int, check: Check, number: int | None = None) -> Any:
    """Return some rows of a set that is read by slices, checked; `number` is that of the batch they are."""
    with named(name := f"rows {start} to {stop - 1}" + ("" if number is None else f" (batch {number})")):
        try:
            return check(rows_of_set(X, start, stop), name, start)
        except NotFiniteError as error:
            raise error.moved(start) from None


def each_slice(X: Any, function: Check, length: int | None = None) -> Iterator[Any]:
    """Yield ``function(rows, name, start)`` of slices of X (n, d), a set or an array; errors name the rows.

    They have `length` rows, or as many as a pass reads at once.
    """
    n, d = map(int, X.shape)
    return (read_slice(X, *bounds, function) for bounds in row_slices(n, length or slice_of(d)))


def by_slices(X: Any, function: Callable[[Any], Array]) -> Array:
    """Return ``function(rows)`` of all rows of X, one result a row; a set of zarr or HDF5 is read by slices."""
    if not is_set(X):
        return function(X)
    return concat(list(each_slice(X, lambda rows, *_: function(rows))), axis=0)


def rows_in_slices(X: Any, purpose: str = "", name: str = "X") -> Any:
    """Return X as `as_rows` does, not looking for NaN; rows that are converted come in slices, and `Rows` in panels."""
    if isinstance(X, Rows) or not is_converted(X):
        return as_rows(X, purpose, name=name, panels=True)

    def checked(rows: Any, *_: Any) -> Array:
        return dense_rows(as_rows(rows, purpose, name=name))

    sizes = [stop - start for start, stop in row_slices(int(X.shape[0]), slice_of(int(X.shape[1])))]
    return BatchedRows(partial(each_slice, X, checked), read_slice(X, 0, 1, checked)[:0, :], sizes)


def spread_runs(n: int, count: int) -> list[tuple[int, int]]:
    """Return (start, stop) of runs of consecutive rows, of n, that are spread evenly and hold about `count` rows."""
    if count >= n:
        return [(0, n)]
    length = -(-count // RUNS)
    starts = np.unique(np.linspace(0, n - length, RUNS).astype(np.int64)).tolist()
    return [(a, min(a + length, b)) for a, b in pairwise([*starts, n])]


@contextmanager
def named(name: str) -> Iterator[None]:
    """Let an error of the data name the batch."""
    try:
        yield
    except (DeviceMismatchError, UnreadableError):  # which name the batch, or its rows
        raise
    except (ValueError, TypeError) as error:
        kind = next(one for one in (InvalidParameterError, ValueError, TypeError) if isinstance(error, one))
        raise kind(f"{name}: {error}") from error
