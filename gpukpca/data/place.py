"""The place of a computation, chosen by the parameter `device`, and the place of its results.

With ``device=None`` data stay where they are. Otherwise they are copied once, and results return to their library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from gpukpca._process import uses_timings
from gpukpca._typing import Array
from gpukpca.backend.device import (
    cuda_is_installed,
    cuda_place,
    describe_device,
    device_context,
    is_on_gpu,
    parsed_device,
    parsed_devices,
    placed_batches,
    placed_rows,
    precision_warning,
)
from gpukpca.backend.namespace import (
    dtype_name,
    empty_like,
    is_cupy,
    is_exporter,
    is_foreign,
    is_memory_map,
    is_numpy,
    is_sparse,
    item_size,
    move,
    namespace_of,
    same_place,
    to_host,
)
from gpukpca.backend.parallel import row_slices, worker_count
from gpukpca.backend.work import COPIED, OF_ANY_SIZE, START_SECONDS, fit_work
from gpukpca.data.devices import DeviceRows
from gpukpca.data.rows import Rows
from gpukpca.data.slicing import place_of
from gpukpca.exceptions import (
    DeviceFallbackWarning,
    DeviceUnavailableError,
    InvalidParameterError,
    MemoryBudgetError,
    PrecisionWarning,
    warn_once,
    warn_user,
)

Result = TypeVar("Result")
# How a fit uses a device: with all rows on it, with host rows that come in batches, or, with "auto", not at all.
WHOLE, IN_BATCHES, ON_HOST = "whole", "in batches", "on the host"
# What fits where a device is too small for what needs all rows at once.
OTHER_PLACE = ' device="auto" computes on the CPU where a device is too small.'
# The route of the fit in this thread, and why the ones before were left.
_route: ContextVar[tuple[str, str]] = ContextVar("_route", default=(WHOLE, ""))


@dataclass(frozen=True)
class Placement:
    """The place of a fit, and the place of its results.

    Attributes
    ----------
    work, origin : array, shape (0,)
        With the library, dtype and device of the computation, and of the data.
    notes : tuple of str
        Why another device than the requested one computes, or with lower precision.
    reason : str
        Why "auto" chose the CPU although a card may work.
    others : tuple of array, shape (0,)
        On the devices that share the work with that of `work`, which holds the rows and the results.
    """

    work: Array
    origin: Array
    notes: tuple[str, ...] = ()
    reason: str = ""
    others: tuple[Array, ...] = ()

    @cached_property
    def moved(self) -> bool:
        """Return whether the computation is elsewhere than the data."""
        return self.work is not self.origin and not same_place(self.work, self.origin)

    def in_dtype(self, dtype: Any) -> Placement:
        """Return the same places in the dtype of checked rows, float32 or float64."""
        name = dtype_name(dtype)
        work, origin, *others = (
            empty_like(place, getattr(namespace_of(place), name)) for place in (self.work, self.origin, *self.others)
        )
        return replace(self, work=work, origin=origin, others=tuple(others))

    def device_rows(self, X: Any) -> Any:
        """Return an array in panels on the devices that share the work; all else, and with one device, as it is."""
        return DeviceRows(X, self) if self.others and not isinstance(X, Rows) else X

    @property
    def devices(self) -> str:
        """Return the names of the devices that compute."""
        return ", ".join(map(describe_device, (self.work, *self.others)))

    def to_work(self, X: Any) -> Any:
        """Return data where the fit computes, in new memory unless they are there; a memory map is read in batches."""
        if not self.moved or X is None or isinstance(X, Rows):  # which bring their panels themselves
            return X
        host = X if is_memory_map(X) else to_host(X)
        return placed_rows(host, self.work) if is_cupy(self.work) else move(host, self.work)

    def batches_to_work(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield batches where the fit computes; the next one is copied while a device works on one."""
        if not (self.moved and is_cupy(self.work)):
            return map(self.to_work, batches)
        return placed_batches((X if is_memory_map(X) else to_host(X) for X in batches), self.work)

    def to_origin(self, A: Any) -> Any:
        """Return a result where the data are."""
        return A if not self.moved or A is None else move(A, self.origin)


def placement_for(device: Any, X: Any, shape: tuple[int, ...] | None = None, of_pairs: bool = False) -> Placement:
    """Return where a fit of X computes with the parameter `device` of an estimator.

    "auto" leaves it on the CPU where a card would not save time, given the `shape` of all rows and whether the fit is
    `of_pairs` of them. Without a shape the rates alone decide.

    Raise `InvalidParameterError` for an unknown device, sparse rows on a GPU, or panels on several devices, and
    `DeviceUnavailableError` where "cuda" does not work. Warn once for every cause why "auto" cannot use CuPy, and where
    float32 products round their operands (TF32).
    """
    known: Placement | None = X.place if isinstance(X, Rows) else None
    device, *more = parsed_devices(device)
    if more and isinstance(X, Rows):
        raise InvalidParameterError(
            f"device={[device, *more]!r}: batches, and kernel matrices that are known by their products, are computed "
            "on one device. Name one, or pass an array."
        )
    if known is not None:
        return known
    place = _placement_for(device, X, shape, of_pairs)
    if more:
        place = replace(place, others=tuple(_placement_for(name, X, shape, of_pairs).work for name in more))
    if dtype_name(X.dtype) == "float64" or not (cause := precision_warning(place.work)):
        return place
    warn_once(f"{cause}.", PrecisionWarning)
    return replace(place, notes=(*place.notes, cause))


def _placement_for(device: Any, X: Any, shape: tuple[int, ...] | None, of_pairs: bool) -> Placement:
    kind, index = parsed_device(device)
    origin = empty_like(place_of(X))
    if isinstance(X, Rows):
        if kind in ("cpu", "cuda") and (kind == "cuda") != is_on_gpu(origin):
            raise InvalidParameterError(
                f"device={device!r}: rows in panels, and a kernel matrix that is known by its products, are computed "
                f"where they are, on {describe_device(origin)}. Leave device=None, or pass an array."
            )
        return Placement(origin, origin)
    route, reason = _route.get()
    if kind == "cpu" or (kind == "auto" and route == ON_HOST):
        work = np.empty(0, dtype_name(X.dtype)) if is_on_gpu(X) else origin
        return Placement(work, origin, (f"on the CPU: {reason}",) if route == ON_HOST else ())
    stays = is_on_gpu(X) and index in (None, X.device.id)
    if not kind or stays:
        return Placement(origin, origin)
    if is_sparse(X):
        if kind == "cuda":
            raise InvalidParameterError(
                'sparse rows are computed on the CPU; pass X.toarray(), or device="auto" or "cpu".'
            )
        return Placement(origin, origin, ("sparse rows are computed on the CPU",))
    is_timed = kind == "auto" and cuda_is_installed() and uses_timings()
    if is_timed and (reason := _reason_for_host(X, shape, of_pairs)):
        return Placement(origin, origin, reason=reason)
    work, failure = cuda_place(index, dtype_name(X.dtype))
    if work is not None:
        return Placement(work, origin)
    if kind == "cuda":
        raise DeviceUnavailableError(f"device={device!r}: {failure}.")
    if not cuda_is_installed():  # an ordinary laptop
        return Placement(origin, origin)
    warn_once(f'device="auto": {failure}. Computing on the CPU.', DeviceFallbackWarning)
    return Placement(origin, origin, (f"on the CPU: {failure}",))


def _reason_for_host(X: Any, shape: tuple[int, ...] | None, of_pairs: bool) -> str:
    """Return why "auto" leaves a fit of rows like X on the CPU; empty where a card may save time, or none works."""
    like, item = place_of(X), 4 if dtype_name(X.dtype) == "float32" else 8
    work = fit_work(shape, of_pairs) if shape else OF_ANY_SIZE
    here = work.seconds(like, item, worker_count(like))
    if here <= START_SECONDS:  # without a look at the card
        return f"on the CPU: {here:.2f} s of work are less than the start of a card"
    card, _ = cuda_place(None, dtype_name(X.dtype))
    if card is None:
        return ""
    copy = math.prod(shape or ()) * item_size(X.dtype) / COPIED
    there = START_SECONDS + copy + work.seconds(card, item, 1)
    return "" if there < here else f"on the CPU: {here:.2f} s are less than {there:.2f} s on {describe_device(card)}"


def by_routes(run: Callable[[], Result], device: Any, X: Any) -> Result:
    """Return ``run()``; where X exceeds the memory of a device, with its rows in batches, and of "auto" on the CPU."""
    name, *more = parsed_devices(device)
    kind, routes = parsed_device(name)[0], [WHOLE]
    if kind in ("auto", "cuda") and not more and not isinstance(X, (Iterator, Rows)):
        routes += [IN_BATCHES] * (hasattr(X, "shape") and not is_on_gpu(X)) + [ON_HOST] * (kind == "auto")
    reason = ""
    while True:
        route = routes.pop(0)
        token = _route.set((route, reason))
        try:
            result = run()
        except MemoryBudgetError as error:
            like = X if is_foreign(X) or is_sparse(X) else np.empty(0)
            reason = str(error)
            if not is_on_gpu(placement_for(device, like).work):
                raise
            if not routes:
                error.args = (reason + OTHER_PLACE * (kind == "cuda"),)
                raise
        else:
            if route == ON_HOST:
                text = 'device="auto": the work does not fit into the memory of the device. Computing on the CPU.'
                warn_user(text, DeviceFallbackWarning, reason=reason)
            return result
        finally:
            _route.reset(token)


def comes_in_batches(X: Any) -> bool:
    """Return whether dense rows stay on the host and come in batches, as all of them do not fit on the device."""
    return _route.get()[0] == IN_BATCHES and not is_sparse(X)


def panels_of(X: Any, rows: int) -> list[tuple[int, int]]:
    """Return (start, stop) of panels of so many rows; at least one, which may be empty."""
    return row_slices(int(X.shape[0]), rows) or [(0, 0)]


def rows_at(X: Any, like: Array) -> Any:
    """Return rows where `like` is; those of a CSR matrix stay on the host, where they are multiplied."""
    return X if is_sparse(X) else move(X, like)


def rows_on_host(X: Any) -> Any:
    """Return rows as a NumPy array, or the CSR matrix that they are."""
    return X if is_sparse(X) else to_host(X)


def to_caller(result: Array, X: Any) -> Array:
    """Return a result in the library of an argument; on the host where that is a host container."""
    like = place_of(X)
    return move(result, like) if is_foreign(like) else to_host(result)


def own_copy(X: Array, container: Any) -> Array:
    """Return X, the checked rows of `container`, in memory without other references; a memory map as it is."""
    if is_memory_map(X):
        return X
    if is_numpy(X):
        return X.copy() if not isinstance(container, np.ndarray) or np.may_share_memory(X, container) else X
    if is_sparse(X):
        return X.copy()
    # A tensor that was detached from a graph shares its memory.
    is_shared = is_exporter(container) or X.dtype == getattr(container, "dtype", None)
    with device_context(X):  # where CuPy copies to, wherever X is
        return namespace_of(X).asarray(X, copy=True) if is_shared else X
