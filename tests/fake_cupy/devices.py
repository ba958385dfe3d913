"""Devices, streams, events and the functions of `cupy.cuda.runtime`."""

from __future__ import annotations

import threading
from typing import Any

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


def memGetInfo() -> tuple[int, int]:
    return memory.mem_get_info()


def deviceSynchronize() -> None:
    device.check_alive()


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
    """A stream whose work has always ended."""

    null: Stream
    ptr = 0
    done = True

    def __init__(
        self, null: bool = False, non_blocking: bool = False, ptds: bool = False, priority: Any = None
    ) -> None:
        self._before: list[Stream] = []

    def __enter__(self) -> Stream:
        self._before.append(get_current_stream())
        return self.use()

    def __exit__(self, *exception: object) -> None:
        _local.stream = self._before.pop()

    def use(self) -> Stream:
        _local.stream = self
        return self

    def synchronize(self) -> None:
        device.check_alive()

    def record(self, event: Event | None = None) -> Event:
        return event or Event()

    def wait_event(self, event: Event) -> None:
        device.check_alive()


Stream.null = Stream(null=True)
Stream.ptds = Stream(ptds=True)
Stream.__module__ = "cupy.cuda.stream"


def get_current_stream(device_id: int = -1) -> Stream:
    return getattr(_local, "stream", Stream.null)


class Event:
    """A point in a stream; the fake's clock stands still."""

    done = True

    def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False) -> None:
        pass

    def record(self, stream: Stream | None = None) -> None:
        device.check_alive()

    def synchronize(self) -> None:
        device.check_alive()


def get_elapsed_time(start_event: Event, end_event: Event) -> float:
    return 0.0
