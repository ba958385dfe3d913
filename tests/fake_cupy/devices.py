"""Devices, streams, events and the functions of `cupy.cuda.runtime`."""

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

    def __lt__(self, other: Any) -> bool:
        return self.id < other.id if isinstance(other, Device) else NotImplemented

    def __repr__(self) -> str:
        return f"<CUDA Device {self.id}>"

    def __enter__(self) -> Device:
        before = getDevice()
        device.set_current_device(self.id)
        _stack().append(before)
        return self

    def __exit__(self, *exception: object) -> None:
        setDevice(_stack().pop())

    def __reduce__(self) -> tuple:
        return Device, (self.id,)

    def use(self) -> None:
        device.set_current_device(self.id)

    def synchronize(self) -> None:
        deviceSynchronize()

    @property
    def mem_info(self) -> tuple[int, int]:
        with self:
            return memory.mem_get_info()

    @property
    def compute_capability(self) -> str:
        return "{}{}".format(*state.capability)

    @property
    def attributes(self) -> dict[str, int]:
        return {"MultiProcessorCount": 132, "WarpSize": 32}

    @property
    def pci_bus_id(self) -> str:
        return f"0000:0{self.id}:00.0"

    @property
    def cusolver_handle(self) -> int:
        return 1000 + self.id

    cublas_handle = cusolver_handle


Device.__module__ = "cupy.cuda.device"


def _stack() -> list[int]:
    if not hasattr(_local, "stack"):
        _local.stack = []
    return _local.stack


def get_device_id() -> int:
    return getDevice()


def get_compute_capability() -> str:
    return Device().compute_capability


def get_cusolver_handle() -> int:
    device.check_alive()
    return Device().cusolver_handle


get_cublas_handle = get_cusolver_handle


# Names of the runtime's functions are CuPy's.


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
    total = state.device_bytes[index]
    return {
        "name": b"Imaginary GPU",
        "totalGlobalMem": total,
        "major": state.capability[0],
        "minor": state.capability[1],
        "multiProcessorCount": 132,
        "warpSize": 32,
        "clockRate": 1_980_000,
        "memoryClockRate": 3_201_000,
        "memoryBusWidth": 6144,
        "l2CacheSize": 60 * 2**20,
    }


def driverGetVersion() -> int:
    return 0 if state.no_device else state.driver_version


def runtimeGetVersion() -> int:
    return state.runtime_version


class PinnedMemoryPointer(bytearray):
    """Pinned memory of the host: a buffer that NumPy takes, and that copies read while the program continues."""

    @property
    def ptr(self) -> int:
        return ctypes.addressof(ctypes.c_char.from_buffer(self))

    def size(self) -> int:
        return len(self)


_PINNED: dict[int, weakref.ref] = {}


def alloc_pinned_memory(size: int) -> PinnedMemoryPointer:
    """Allocate at least `size` pinned bytes of the host."""
    device.check_alive()
    if state.pinned_fails:
        raise CUDARuntimeError(2)
    made = PinnedMemoryPointer(b"\xff" * (-(-max(1, size) // memory.UNIT) * memory.UNIT))
    start = made.ptr
    _PINNED[start] = weakref.ref(made, lambda _: _PINNED.pop(start, None))
    return made


def is_pinned(host: np.ndarray) -> bool:
    """Return True if an array lies in pinned memory."""
    low, high = np.lib.array_utils.byte_bounds(host)
    every = [(start, made()) for start, made in list(_PINNED.items())]
    return any(made is not None and start <= low and high <= start + len(made) for start, made in every)


def empty_pinned(shape: Any, dtype: Any = float, order: str = "C") -> np.ndarray:
    """`cupyx.empty_pinned`."""
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    memory = alloc_pinned_memory(math.prod(shape) * np.dtype(dtype).itemsize)
    return np.ndarray(shape, dtype, memory, order=order)


def zeros_pinned(shape: Any, dtype: Any = float, order: str = "C") -> np.ndarray:
    """`cupyx.zeros_pinned`."""
    made = empty_pinned(shape, dtype, order)
    made[...] = 0
    return made


def memGetInfo() -> tuple[int, int]:
    return memory.mem_get_info()


def deviceSynchronize() -> None:
    device.wait()
    for stream in list(_STREAMS):
        stream._complete()


def local_runtime_version() -> int:
    """Return the version of the installed runtime library. CuPy itself is linked to another one."""
    return state.local_runtime_version or state.runtime_version


def cusolver_version() -> tuple[int, ...]:
    """Return major, minor and patch. cuSOLVER 12 came with CUDA 13."""
    return state.cusolver_version or ((12, 0, 4) if local_runtime_version() >= 13000 else (11, 7, 5))


def profilerStart() -> None:
    device.check_alive()


profilerStop = profilerStart


def is_available() -> bool:
    """Unlike CuPy's, the answer is not remembered: a test changes what is there."""
    try:
        return getDeviceCount() > 0
    except CUDARuntimeError:
        return False


class Stream:
    """A stream. Kernels run at once; copies from and to pinned memory are made as late as the program allows.

    That is where the host or another stream waits for this one, and where this one begins its next work.
    """

    def __init__(
        self, null: bool = False, non_blocking: bool = False, ptds: bool = False, priority: Any = None
    ) -> None:
        self._before: list[Stream] = []
        self._copies: list[Callable[[], None]] = []
        self._made = 0  # copies so far, since an event remembers how many came before it
        self._non_blocking = non_blocking
        self.device_id = -1 if null else device.current_device()
        self.ptr = 0 if null else id(self)
        _STREAMS.add(self)

    is_non_blocking = property(lambda self: self._non_blocking)

    def __enter__(self) -> Stream:
        self._before.append(get_current_stream())
        return self.use()

    def __exit__(self, *exception: object) -> None:
        _local.stream = self._before.pop()

    def use(self) -> Stream:
        _local.stream = self
        return self

    @property
    def done(self) -> bool:
        return not self._copies

    def synchronize(self) -> None:
        device.wait()
        self._complete()

    def record(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        device.check_alive()
        event._complete()

    def _later(self, copy: Callable[[], None]) -> None:
        self._copies.append(copy)

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
    """A point in a stream; the fake's clock stands still."""

    def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False) -> None:
        if interprocess and not disable_timing:
            raise ValueError("Timing must be disabled for interprocess events")
        self._stream, self._until = _NULL, 0

    @property
    def done(self) -> bool:
        return self._stream._made >= self._until

    def record(self, stream: Stream | None = None) -> None:
        device.check_alive()
        self._stream = stream or get_current_stream()
        self._until = self._stream._made + len(self._stream._copies)

    def synchronize(self) -> None:
        device.wait()
        self._complete()

    def _complete(self) -> None:
        self._stream._complete(self._until)


def get_elapsed_time(start_event: Event, end_event: Event) -> float:
    return 0.0
