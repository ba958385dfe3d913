"""Methods with a result for every row, for all containers: arrays, sets, iterables of batches, Dask arrays."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, cast

import numpy as np
from sklearn.utils.validation import check_is_fitted

from gpukpca._typing import Array, MethodOfRows, OfRows, P
from gpukpca.algorithms.inputs import check_place
from gpukpca.algorithms.preimage.result import PreimageInfo
from gpukpca.backend import blocking
from gpukpca.backend.device import device_context, is_on_gpu
from gpukpca.backend.namespace import concat, host_values, move, to_host
from gpukpca.data.batches import each_batch, each_slice, is_converted, is_stream
from gpukpca.data.frequencies import checked_frequencies
from gpukpca.data.place import to_caller
from gpukpca.decomposition._batches import rows_to_score, slice_within
from gpukpca.decomposition._dask import OF_ALL_ROWS, lazy_answer
from gpukpca.decomposition._validation import checked_out
from gpukpca.distributed.rows import is_dask_array
from gpukpca.exceptions import InvalidParameterError

# Arguments with an entry for every row.
OF_EACH_ROW = ("labels", "diagonal")


def row_wise(answer: str = "", *, of: str = "points", writes: bool = False) -> Callable[[MethodOfRows[P]], OfRows[P]]:
    """Return a decorator of a method whose result for a row depends on that row alone.

    The rows are points or scores, as `of` says. `answer` is that result, a key of `WIDTHS`: a Dask array is answered by
    a lazy one, and without it refused. A set of zarr, HDF5 or the like is read by slices, an iterable batch by batch.
    Their results are written to `out`, where the method has that argument, but not for arrays where it `writes` itself.
    """

    def decorated(method: MethodOfRows[P]) -> OfRows[P]:
        signature = inspect.signature(method)

        @wraps(method)
        def wrapper(self: Any, X: Any, *arguments: Any, **settings: Any) -> Any:
            is_lazy, is_batched = bool(answer) and is_dask_array(X), is_stream(X)
            is_read = is_converted(X) or (not writes and _is_long_for_device(self, X))
            if not (is_lazy or is_read or is_batched) and (writes or (not arguments and settings.get("out") is None)):
                return method(self, X, *arguments, **settings)
            check_is_fitted(self)
            bound = signature.bind(self, X, *arguments, **settings).arguments
            given = {name: value for name, value in list(bound.items())[2:] if value is not None}
            if is_lazy:
                return lazy_answer(self, X, method.__name__, given, answer, of)
            out = given.pop("out", None)
            if is_batched and not any(given.get(name, False) is not False for name in OF_ALL_ROWS):
                return _by_batches(self, partial(method, self, **given), X, out)
            if is_read or (out is not None and isinstance(X, np.ndarray)):
                return _by_slices(self, method, X, given, out)
            result = cast(Any, method)(self, X, **given)
            if out is None:
                return result
            _write(result, checked_out(out, result.shape, self._like))
            return out

        return cast(OfRows[P], wrapper)

    return decorated


def mean_score(score_samples: Callable[[Any], Array], X: Any, sample_weight: Any) -> float:
    """Return the mean of one number a row, each as often as its weight says; those of a Dask array are computed now."""
    rows, sample_weight = rows_to_score(X, sample_weight)
    numbers = score_samples(rows)
    if is_dask_array(numbers):
        if sample_weight is None:
            return float(numbers.mean(dtype="float64").compute())
        numbers = numbers.compute()
    values = to_host(numbers).astype(np.float64)
    weights = checked_frequencies(sample_weight, len(values), is_batch=True)
    # Divided first: a sum of huge numbers would overflow.
    shares = values / len(values) if weights is None else values * (weights / np.sum(weights))
    return float(np.sum(shares))


def _write(part: Array, room: Array) -> None:
    """Write results into memory of the host, or of the device where they are computed."""
    with device_context(room):
        room[...] = move(part, room)


def _is_long_for_device(estimator: Any, X: Any) -> bool:
    """Return whether X are host rows of which the device of a fitted model takes some at a time."""
    if not (isinstance(X, np.ndarray) and X.ndim == 2 and "_result" in vars(estimator)):
        return False
    return len(X) * _widest(estimator, X) > blocking.READ_ENTRIES and is_on_gpu(estimator._like)


def _widest(estimator: Any, X: Any) -> int:
    """Return the columns of rows X, or of data where X are scores."""
    return max(int(X.shape[1]), int(estimator.n_features_in_))


def _by_batches(estimator: Any, method: Callable[[Any], Array], X: Any, out: Any) -> Any:
    """Return the results of all batches joined; with `out` they are written as they come."""
    parts = each_batch(X, type(estimator).__name__, method)
    if out is not None:
        stop, width = 0, int(estimator._n_features_out)
        room = checked_out(out, ("all rows", width), estimator._like)
        for part in parts:
            start, stop = stop, stop + int(part.shape[0])
            if stop > len(room):
                break
            _write(part, room[start:stop])
        checked_out(out, (stop, width), estimator._like)
        return out
    # No length is known before the last batch.
    results = list(parts)
    for number, part in enumerate(results):
        check_place(f"batch {number}", part, "the first one", results[0])
    with device_context(results[0]):
        return concat(results, axis=0)


def _by_slices(estimator: Any, method: Callable[..., Any], X: Any, given: dict[str, Any], out: Any) -> Any:
    """Return the results of all slices of X (n, d), in `out` or where the rows are; of pre-images their info too."""
    n = int(X.shape[0])
    room = None if out is None else checked_out(out, (n, int(estimator._n_features_out)), estimator._like)
    of_rows = {name: host_values(given.pop(name)) for name in OF_EACH_ROW if name in given}
    for name, values in of_rows.items():
        if values.shape != (n,):
            raise InvalidParameterError(f"{name} must have an entry for each of {n} rows; got shape {values.shape}.")
    infos: list[PreimageInfo] = []

    def write(rows: Any, _: str, start: int) -> None:
        nonlocal room
        stop = start + int(rows.shape[0])
        part = method(estimator, rows, **given, **{name: values[start:stop] for name, values in of_rows.items()})
        if isinstance(part, tuple):
            part, info = part
            infos.append(info)
        part = to_host(part)
        room = np.empty((n, *part.shape[1:]), part.dtype) if room is None else room
        _write(part, room[start:stop])

    for _ in each_slice(X, write, slice_within(estimator, _widest(estimator, X))):
        pass
    found = to_caller(room, X) if out is None else out
    return (found, PreimageInfo.concatenate(infos)) if infos else found
