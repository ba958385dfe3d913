"""The state of the imitated device: current devices, counters, and the faults that a test has set.

Every launch, allocation and copy passes through `operate`. A fault shows where the host waits for the device next
(`wait`), since CUDA is asynchronous.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

DEVICES = 2
GIB = 2**30
# cudaError values with names and texts of their own (CUDA Runtime API reference).
STATUS = {
    2: "cudaErrorMemoryAllocation: out of memory",
    100: "cudaErrorNoDevice: no CUDA-capable device is detected",
    101: "cudaErrorInvalidDevice: invalid device ordinal",
    209: "cudaErrorNoKernelImageForDevice: no kernel image is available for execution on the device",
    700: "cudaErrorIllegalAddress: an illegal memory access was encountered",
}
LIBRARY_STATUS = {3: "INVALID_VALUE", 7: "INTERNAL_ERROR", 13: "EXECUTION_FAILED"}


class _NumberedError(RuntimeError):
    """An error with the number of its library in `status`."""

    prefix = ""

    def __init__(self, status: int) -> None:
        self.status = int(status)
        super().__init__(STATUS.get(self.status, f"{self.prefix}{status}"))


class CUDARuntimeError(_NumberedError):
    """An error of the CUDA runtime."""

    prefix = "cudaError"


class _LibraryError(_NumberedError):
    """An error of cuBLAS or cuSOLVER. Its number says nothing about the device."""

    def __init__(self, status: int) -> None:
        RuntimeError.__init__(self, f"{self.prefix}_STATUS_{LIBRARY_STATUS[status]}")
        self.status = status


class CUBLASError(_LibraryError):
    prefix = "CUBLAS"


class CUSOLVERError(_LibraryError):
    prefix = "CUSOLVER"


class CompileException(Exception):
    """What CuPy raises when NVRTC refuses a kernel."""

    def __init__(self, msg: str, source: str, name: str, options: Any, backend: str = "nvrtc") -> None:
        super().__init__(msg)


CUDARuntimeError.__module__ = "cupy_backends.cuda.api.runtime"
CUBLASError.__module__ = "cupy_backends.cuda.libs.cublas"
CUSOLVERError.__module__ = "cupy_backends.cuda.libs.cusolver"
CompileException.__module__ = "cupy.cuda.compiler"


@dataclass
class State:
    """Everything that a test may change; `install` starts with a new one."""

    operations: int = 0  # launches, allocations and copies so far
    launches: int = 0
    launched: list[str] = field(default_factory=list)
    # (name, types of the array arguments by parameter) of the elementwise kernels
    kernel_types: set[tuple[str, tuple[tuple[str, str], ...]]] = field(default_factory=set)
    allocations: int = 0
    no_device: bool = False
    kernels: str | None = None  # None, "image" or "compile": why no kernel runs
    broken_from: int | None = None  # the number of the first operation that fails
    shown: bool = False  # whether the host has seen the fault, after which every call fails
    broken_status: int = 700
    broken_libraries: bool = False  # cuBLAS and cuSOLVER report it by errors of their own
    fail_from: int | None = None  # the number of the first allocation that fails
    fail_forever: bool = False
    device_bytes: list[int] = field(default_factory=lambda: [16 * GIB] * DEVICES)
    foreign_bytes: list[int] = field(default_factory=lambda: [0] * DEVICES)
    runtime_version: int = 12090
    driver_version: int = 12090
    capability: tuple[int, int] = (9, 0)
    cusolver_version: tuple[int, ...] = ()  # empty: what belongs to the runtime
    pinned_fails: bool = False  # no host memory can be pinned
    # cuSOLVER
    eigh_info: int = 0
    eigh_answer: Callable | None = None  # (values, vectors) -> (values, vectors), what comes out instead
    eigh_largest: int | None = None  # above it bufferSize refuses
    eigh_largest_float32: float = 1e30  # above it the context is lost


state = State()
lock = threading.RLock()
_local = threading.local()


def reset() -> None:
    """Return to a working device, in place: other modules hold the object."""
    state.__dict__.update(State().__dict__)


def current_device() -> int:
    """Return the device of this thread."""
    return getattr(_local, "device", 0)


def set_current_device(index: int) -> None:
    """Make a device current in this thread."""
    if state.no_device:
        raise CUDARuntimeError(100)
    if not 0 <= index < DEVICES:
        raise CUDARuntimeError(101)
    _local.device = index


def check_alive() -> None:
    """Raise if there is no device, or the host has seen that a fault ended its context."""
    if state.no_device:
        raise CUDARuntimeError(100)
    if state.shown:
        raise CUDARuntimeError(state.broken_status)


def is_broken() -> bool:
    """Return whether a fault has struck, seen by the host or not."""
    return state.broken_from is not None and state.operations >= state.broken_from


def wait() -> None:
    """Let the host wait for the device: a fault that has struck shows."""
    check_alive()
    if is_broken():
        state.shown = True
        check_alive()


def operate() -> None:
    """Count one operation of the device. A fault strikes here if a test has set one, and shows at the next wait."""
    with lock:
        state.operations += 1
    check_alive()


def transfer() -> None:
    """Count one copy between host and device, which waits."""
    operate()
    wait()


# What is called before work of the current stream begins: copies that other streams still have to make.
BEFORE_WORK: list[Callable[[], None]] = []


def launch(name: str) -> None:
    """Count one kernel."""
    operate()
    for order in BEFORE_WORK:
        order()
    with lock:
        state.launches += 1
        state.launched.append(name)
    if state.kernels == "compile":
        raise CompileException("nvrtc: error: invalid value for --gpu-architecture (-arch)", "", name, ())
    if state.kernels == "image":
        raise CUDARuntimeError(209)


def launch_in_library(name: str, refusal: _LibraryError) -> None:
    """`launch` by cuBLAS or cuSOLVER: where a test has set it, a lost context shows as an error of theirs."""
    try:
        launch(name)
    except CUDARuntimeError:
        if state.broken_libraries and not state.no_device:
            raise refusal from None
        raise
    if state.broken_libraries and is_broken():
        state.shown = True
        raise refusal


def lose_context() -> None:
    """Lose the context by an illegal address of a kernel, which shows at the next wait and from then on."""
    if not is_broken():
        state.broken_from, state.broken_status = state.operations, 700
