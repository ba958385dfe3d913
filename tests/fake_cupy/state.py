"""What the fake device knows about itself: current devices, counters, faults that a test has asked for.

Nothing here touches arrays. Every launch, allocation and copy passes through `operate`, which is where faults strike;
they show where the host waits for the device next (`wait`), as CUDA's are asynchronous.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

DEVICES = 2
GIB = 2**30

# cudaError values (CUDA Runtime API reference), their names and texts.
STATUS = {
    1: ("cudaErrorInvalidValue", "invalid argument"),
    2: ("cudaErrorMemoryAllocation", "out of memory"),
    3: ("cudaErrorInitializationError", "initialization error"),
    35: ("cudaErrorInsufficientDriver", "CUDA driver version is insufficient for CUDA runtime version"),
    46: ("cudaErrorDevicesUnavailable", "CUDA-capable device(s) is/are busy or unavailable"),
    100: ("cudaErrorNoDevice", "no CUDA-capable device is detected"),
    101: ("cudaErrorInvalidDevice", "invalid device ordinal"),
    209: ("cudaErrorNoKernelImageForDevice", "no kernel image is available for execution on the device"),
    214: ("cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"),
    700: ("cudaErrorIllegalAddress", "an illegal memory access was encountered"),
    702: ("cudaErrorLaunchTimeout", "the launch timed out and was terminated"),
    710: ("cudaErrorAssert", "device-side assert triggered"),
    716: ("cudaErrorMisalignedAddress", "misaligned address"),
    719: ("cudaErrorLaunchFailure", "unspecified launch failure"),
    999: ("cudaErrorUnknown", "unknown error"),
}


CUBLAS_STATUS = {
    0: "SUCCESS", 1: "NOT_INITIALIZED", 3: "ALLOC_FAILED", 7: "INVALID_VALUE", 8: "ARCH_MISMATCH",
    11: "MAPPING_ERROR", 13: "EXECUTION_FAILED", 14: "INTERNAL_ERROR", 15: "NOT_SUPPORTED", 16: "LICENSE_ERROR",
}  # fmt: skip
CUSOLVER_STATUS = (
    "SUCCESS", "NOT_INITIALIZED", "ALLOC_FAILED", "INVALID_VALUE", "ARCH_MISMATCH", "MAPPING_ERROR",
    "EXECUTION_FAILED", "INTERNAL_ERROR", "MATRIX_TYPE_NOT_SUPPORTED", "NOT_SUPPORTED", "ZERO_PIVOT",
    "INVALID_LICENSE",
)  # fmt: skip


class _NumberedError(RuntimeError):
    """An error with the number of its library in `status`; pickles by it."""

    def __init__(self, status: int) -> None:
        self.status = int(status)
        super().__init__(self._told())

    def _told(self) -> str:
        raise NotImplementedError

    def __reduce__(self) -> tuple:
        return type(self), (self.status,)


class CUDARuntimeError(_NumberedError):
    """An error of the CUDA runtime."""

    def _told(self) -> str:
        return ": ".join(STATUS.get(self.status, (f"cudaError{self.status}", "an error")))


class CUDADriverError(_NumberedError):
    """An error of the driver, which shares the numbers that matter here."""

    def _told(self) -> str:
        return f"CUDA_ERROR_{self.status}: {STATUS.get(self.status, ('', 'an error'))[1]}"


class CUBLASError(_NumberedError):
    """An error of cuBLAS; its number says nothing about the device."""

    def _told(self) -> str:
        return f"CUBLAS_STATUS_{CUBLAS_STATUS[self.status]}"


class CUSOLVERError(_NumberedError):
    """An error of cuSOLVER; its number says nothing about the device."""

    def _told(self) -> str:
        return f"CUSOLVER_STATUS_{CUSOLVER_STATUS[self.status]}"


class CompileException(Exception):
    """What CuPy raises when NVRTC refuses a kernel."""

    def __init__(self, msg: str, source: str, name: str, options: Any, backend: str = "nvrtc") -> None:
        super().__init__(msg)
        self._msg, self.source, self.name, self.options, self.backend = msg, source, name, options, backend

    def __str__(self) -> str:
        return self._msg

    def __reduce__(self) -> tuple:
        return type(self), (self._msg, self.source, self.name, self.options, self.backend)


CUDARuntimeError.__module__ = "cupy_backends.cuda.api.runtime"
CUDADriverError.__module__ = "cupy_backends.cuda.api.driver"
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
    broken_libraries: bool = False  # cuBLAS and cuSOLVER tell of it by errors of their own
    fail_from: int | None = None  # the number of the first allocation that fails
    fail_forever: bool = False
    device_bytes: list[int] = field(default_factory=lambda: [16 * GIB] * DEVICES)
    foreign_bytes: list[int] = field(default_factory=lambda: [0] * DEVICES)
    runtime_version: int = 12090
    driver_version: int = 12090
    capability: tuple[int, int] = (9, 0)
    local_runtime_version: int = 0  # 0: the same as the one that CuPy is linked to
    cusolver_version: tuple[int, ...] = ()  # empty: what belongs to the local runtime
    pinned_fails: bool = False  # no host memory can be pinned
    # cuSOLVER
    eigh_info: int = 0
    eigh_answer: Callable | None = None  # (values, vectors) -> (values, vectors), what comes out instead
    eigh_largest: int | None = None  # above it bufferSize refuses
    eigh_zero_is_nan: bool = True
    eigh_largest_float32: float | None = 1e30  # above it the context is lost


state = State()
lock = threading.RLock()
_local = threading.local()


def reset() -> None:
    """Back to a working device, in place: other modules hold the object."""
    state.__dict__.update(State().__dict__)


def current_device() -> int:
    """The device of this thread."""
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
    """Return True if a fault has struck, seen by the host or not."""
    return state.broken_from is not None and state.operations >= state.broken_from


def wait() -> None:
    """Let the host wait for the device: a fault that has struck shows."""
    check_alive()
    if is_broken():
        state.shown = True
        check_alive()


def operate() -> None:
    """Count one operation of the device; a fault strikes here if a test wants it to, and shows at the next wait."""
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


def launch_in_library(name: str, refusal: _NumberedError) -> None:
    """`launch` by cuBLAS or cuSOLVER: where a test wants it, a lost context shows as an error of theirs."""
    try:
        launch(name)
    except CUDARuntimeError:
        if state.broken_libraries and not state.no_device:
            raise refusal from None
        raise
    if state.broken_libraries and is_broken():
        state.shown = True
        raise refusal


def lose_context(status: int = 700) -> None:
    """Lose the context by a fault of a kernel (700: illegal address), which shows at the next wait and from then on."""
    if not is_broken():
        state.broken_from, state.broken_status = state.operations, status
