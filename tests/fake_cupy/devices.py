"""Devices, streams, events and the functions of `cupy.cuda.runtime`, under CuPy's names."""

from __future__ import annotations

import ctypes
import math
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from . import memory
from . import state as device
from .state import DEVICES, CUDARuntimeError, state

_local = threading.local()


class Device:
    """One device; as a context it becomes the current one of the thread. Not hashable, as in CuPy."""

    __slots__ = ("id",)
    __hash__ = None

    def __init__(self, device: Any = None) -> None:
        self.id = int(getDevice() if device is None else device)

    def __int__(self) -> int:
        return self.id

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Device) and other.id == self.id

    def __repr__(self) -> str:
        return f"<CUDA Device {self.id}>"

    def __enter__(self) -> Device:
        before = getDevice()
        device.set_current_device(self.id)
        _stack().append(before)
        return self

    def __exit__(self, *exception: object) -> None:
        setDevice(_stack().pop())

    def synchronize(self) -> None:
        deviceSynchronize()


Device.__module__ = "cupy.cuda.device"


def _stack() -> list[int]:
    if not hasattr(_local, "stack"):
        _local.stack = []
    return _local.stack


def get_library_handle() -> int:
    device.check_alive()
    return 1000 + device.current_device()


def getDevice() -> int:
    if state.no_device:
        raise CUDARuntimeError(100)
    return device.current_device()


def setDevice(index: int) -> None:
    device.set_current_device(int(index))


def getDeviceCount() -> int:
    if state.no_device:
        raise CUDARuntimeError(100)
    return DEVICES


def getDeviceProperties(index: int) -> dict[str, Any]:
    if state.no_device:
        raise CUDARuntimeError(100)
    if not 0 <= index < DEVICES:
        raise CUDARuntimeError(101)
    major, minor = state.capability
    return {"name": b"Imaginary GPU", "major": major, "minor": minor, "multiProcessorCount": 132}


def driverGetVersion() -> int:
    return 0 if state.no_device else state.driver_version


def runtimeGetVersion() -> int:
    return state.runtime_version


def memGetInfo() -> tuple[int, int]:
    return memory.mem_get_info()


def deviceSynchronize() -> None:
    device.wait()
    for stream in list(_STREAMS):
        stream._complete()


def cusolver_version() -> tuple[int, ...]:
    """Return major, minor and patch. cuSOLVER 12 came with CUDA 13."""
    return state.cusolver_version or ((12, 0, 4) if state.runtime_version >= 13000 else (11, 7, 5))


def is_available() -> bool:
    """Return whether there is a device. Unlike CuPy's, the answer is not remembered: a test changes it."""
    return not state.no_device


# -- pinned memory of the host -----------------------------------------------------------------------------------------

_PINNED: dict[int, weakref.ref] = {}


class PinnedMemory(bytearray):
    """A buffer that NumPy takes, and that copies read while the program continues."""


def empty_pinned(shape: Any, dtype: Any = float) -> np.ndarray:
    """`cupyx.empty_pinned`."""
    device.check_alive()
    if state.pinned_fails:
        raise CUDARuntimeError(2)
    made = PinnedMemory(b"\xff" * (math.prod(shape) * np.dtype(dtype).itemsize))
    start = ctypes.addressof(ctypes.c_char.from_buffer(made))
    _PINNED[start] = weakref.ref(made, lambda _: _PINNED.pop(start, None))
    return np.ndarray(shape, dtype, made)


def is_pinned(host: np.ndarray) -> bool:
    """Return whether all bytes of a host array are pinned."""
    if not host.size:
        return False
    low, high = np.lib.array_utils.byte_bounds(host)
    every = [(start, made()) for start, made in list(_PINNED.items())]
    return any(made is not None and start <= low and high <= start + len(made) for start, made in every)


# -- streams -----------------------------------------------------------------------------------------------------------


class Stream:
    """A stream. Kernels run at once; copies from pinned memory are made as late as the program allows.

    That is where the host waits for this stream, and where the stream begins its next work.
    """

    def __init__(self, null: bool = False, non_blocking: bool = False) -> None:
        self._before: list[Stream] = []
        self._copies: list[Callable[[], None]] = []
        self._made = 0  # copies so far, since an event remembers how many came before it
        self._non_blocking = non_blocking
        _STREAMS.add(self)

    def __enter__(self) -> Stream:
        self._before.append(get_current_stream())
        _local.stream = self
        return self

    def __exit__(self, *exception: object) -> None:
        _local.stream = self._before.pop()

    @property
    def done(self) -> bool:
        return not self._copies

    def synchronize(self) -> None:
        device.wait()
        self._complete()

    def _complete(self, until: int | None = None) -> None:
        while self._copies and (until is None or self._made < until):
            self._copies.pop(0)()
            self._made += 1


_STREAMS: weakref.WeakSet[Stream] = weakref.WeakSet()
Stream.__module__ = "cupy.cuda.stream"
_NULL = Stream.null = Stream.ptds = Stream(null=True)


def get_current_stream(device_id: int = -1) -> Stream:
    return getattr(_local, "stream", _NULL)


def reset_streams() -> None:
    """Drop the copies that nobody waited for."""
    for stream in list(_STREAMS):
        stream._copies.clear()
    _local.stream = _NULL


def _order_copies() -> None:
    """Complete the copies that precede the next work of the current stream: those of the same stream.

    The null stream and the other blocking streams also wait for each other.
    """
    now = get_current_stream()
    for stream in list(_STREAMS):
        if stream is now or (not stream._non_blocking and not now._non_blocking and _NULL in (now, stream)):
            stream._complete()


device.BEFORE_WORK.append(_order_copies)


class Event:
    """A point in a stream."""

    def __init__(self, block: bool = False, disable_timing: bool = False) -> None:
        self._stream, self._until = _NULL, 0

    def record(self, stream: Stream | None = None) -> None:
        device.check_alive()
        self._stream = stream or get_current_stream()
        self._until = self._stream._made + len(self._stream._copies)

    def synchronize(self) -> None:
        device.wait()
        self._stream._complete(self._until)
