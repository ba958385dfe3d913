"""Batches of rows: of an array, of a memory map that is read piece by piece, or of an iterable of arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import numpy as np
from sklearn.utils import gen_batches
from sklearn.utils.validation import check_is_fitted

from gpukpca._typing import Array
from gpukpca.algorithms.batches import Batches
from gpukpca.algorithms.inputs import check_place
from gpukpca.algorithms.placement import placement_for
from gpukpca.backend.namespace import empty_like, is_foreign, is_memory_map
from gpukpca.backend.rows import dense_rows, take_rows
from gpukpca.data.gate import dask_kind
from gpukpca.decomposition._validation import new_data, training_data
from gpukpca.exceptions import InvalidParameterError

# What says that a thing is one set of rows, whatever else it can do.
ARRAY_MARKS = ("shape", "__array__", "__array_interface__", "__cuda_array_interface__", "__dataframe__")


class PlacedBatches(Batches):
    """The rows of a data set as checked, dense arrays in the place of the computation, one batch at a time.

    Attributes
    ----------
    place : Placement
        Where the data are, and where they are computed.
    once : bool
        The data cannot be read a second time.
    """

    def __init__(
        self, estimator: Any, first: Array, pieces: Callable[[], Iterator[Array]], cuts: list[slice], once: bool
    ) -> None:
        place = placement_for(estimator.device, first)
        n_rows, largest = cuts[-1].stop if cuts else None, max((cut.stop - cut.start for cut in cuts), default=0)
        super().__init__(lambda: (place.to_work(dense_rows(piece)) for piece in pieces()), place.work, n_rows, largest)
        self.place, self.once = place, once


def batches_of(
    estimator: Any, X: Any, rows: Callable[[int, int], int], smallest: int, *, missing: bool = False
) -> PlacedBatches:
    """Return the batches of rows X (n, d), or of an iterable; set `n_features_in_` and the names of the features.

    `rows` gives the rows of a batch from n and d; a last batch of fewer than `smallest` is joined to the one before.
    The batches of an iterable stay as they are, and are checked when they come. With `missing` NaN is a missing entry.
    """
    if is_stream(X):
        return _stream(estimator, X, missing)
    if is_memory_map(X) and X.ndim == 2 and X.size and X.dtype.kind in "fiub":
        return _mapped(estimator, X, rows(*X.shape), smallest, missing)
    data = training_data(estimator, X, missing=missing)
    n, d = map(int, data.shape)
    cuts = list(gen_batches(n, rows(n, d), min_batch_size=smallest))

    def pieces() -> Iterator[Array]:
        return (take_rows(data, cut.start, cut.stop) for cut in cuts)

    return PlacedBatches(estimator, empty_like(data), pieces, cuts, once=False)


def is_stream(X: Any) -> bool:
    """Return whether X is an iterable of batches rather than one set of rows."""
    if isinstance(X, (str, bytes, dict)) or any(hasattr(X, mark) for mark in ARRAY_MARKS) or dask_kind(X):
        return False
    if isinstance(X, (list, tuple)):
        return len(X) > 0 and len(getattr(X[0], "shape", ())) == 2
    return hasattr(X, "__iter__")


def new_rows(estimator: Any, X: Any, method: str, *, missing: bool = False) -> Array:
    """Return rows for a method of a fitted estimator, checked; raise where X is an iterable of batches."""
    check_is_fitted(estimator)
    if is_stream(X):
        raise InvalidParameterError(
            f"{method} takes rows, not an iterable of batches; call it for each: [model.{method}(b) for b in X]."
        )
    return new_data(estimator, X, estimator.components_, method, missing=missing)


def _mapped(estimator: Any, X: np.ndarray, size: int, smallest: int, missing: bool) -> PlacedBatches:
    """Return the batches of a memory map; each is read, and converted if necessary, when it is used."""
    cuts = list(gen_batches(len(X), size, min_batch_size=smallest))
    first = empty_like(training_data(estimator, X[cuts[0]], missing=missing))

    def pieces() -> Iterator[Array]:
        for number, cut in enumerate(cuts):
            name = f"rows {cut.start} to {cut.stop - 1} (batch {number})"
            yield _checked(estimator, X[cut], first, name, missing)

    return PlacedBatches(estimator, first, pieces, cuts, once=False)


def _stream(estimator: Any, X: Iterable[Any], missing: bool) -> PlacedBatches:
    """Return the batches of an iterable; each is checked when it arrives."""
    iterator = iter(X)
    once = iterator is X
    nothing = object()
    head = next(iterator, nothing)
    if head is nothing:
        raise InvalidParameterError(
            f"{type(estimator).__name__}: the iterable of batches is empty; it must give at least one array of shape "
            "(rows, features). An iterator that was used before gives nothing more."
        )
    with _named("batch 0"):
        first = empty_like(training_data(estimator, head, missing=missing))

    def pieces() -> Iterator[Array]:
        source = chain([head], iterator) if once else X
        return (_checked(estimator, batch, first, f"batch {number}", missing) for number, batch in enumerate(source))

    return PlacedBatches(estimator, first, pieces, [], once)


def _checked(estimator: Any, batch: Any, first: Array, name: str, missing: bool) -> Any:
    """Check that a batch has the width, library and device of the first."""
    check_place(name, batch if is_foreign(batch) else np.empty(0), "the first one", first)
    with _named(name):
        return new_data(estimator, batch, first, "fit", missing=missing)


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Let an error of the data name the batch."""
    try:
        yield
    except (ValueError, TypeError) as error:
        kind = ValueError if isinstance(error, ValueError) else TypeError
        raise kind(f"{name}: {error}") from error
