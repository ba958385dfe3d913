"""CUDA devices: number, probe, free memory, copies from the host, and the meaning of errors."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache, partial
from importlib.util import find_spec
from typing import Any, TypeVar

import numpy as np

from gpukpca._extras import packages_of, pip_install
from gpukpca._process import state, uses_timings

Found = TypeVar("Found")

# CuPy's wheels hold no CUDA libraries and no headers: the extras bring both.
CUDA_12 = pip_install("cuda12")
INSTALL = (
    f"{CUDA_12} (or {packages_of('cuda13')} for a card of compute capability 7.5 or newer) on a machine with an NVIDIA "
    "GPU and its driver"
)
# Two wheels of CuPy must not be installed beside each other.
CUDA_12_INSTEAD = f"pip uninstall cupy-cuda13x, then {CUDA_12}"
# Libraries and headers of CUDA as errors of the loader, of cuda-pathfinder, of CuPy and of its compiler name them.
MISSING = re.compile(
    r"\b(lib)?(cublas|cublasLt|cusolver|cusparse|curand|cudart|nvrtc|nvJitLink)[\w.-]*\.(so|dll)\b"
    r"|DLL load failed|CUDA headers|cannot open source file",
    re.IGNORECASE,
)
FORKED = "CUDA was used before this process was forked, and does not survive that; start processes with «spawn»"
# Versions as CUDA numbers them. CUDA 13 compiles for none of Maxwell, Pascal and Volta; the oldest card that it knows.
CUDA_12_0, CUDA_13 = 12_000, 13_000
# The largest n whose n² is below 2²⁹: cuSOLVER of CUDA 12 refuses larger eigenproblems. The release notes of CUDA 13.0
# say that the limit is gone.
LARGEST_OF_CUDA_12 = 23_170
OLDEST_OF_CUDA_13 = (7, 5)
# Edge of the products that are timed: 0.4 ms each in float32 at 48 TF/s.
PRODUCT_EDGE = 2048
# Most of the memory of a card that is used outside of CuPy's pool where no other program uses the card: CUDA, its
# libraries and kernels take about 0.5 GiB.
OTHER_SHARE = 1 / 16
KERNELS = {"gpukpca_probe": ({"x": "float32", "y": "float32"},)}
# cudaErrorInsufficientDriver: the driver is older than the CUDA runtime inside CuPy, or there is none.
DRIVER_TOO_OLD = 35
# cudaErrorInitializationError: what a forked child gets.
AFTER_FORK = 3
# Driver too old, after a fork, device busy, none there, no kernel for this card.
UNUSABLE = frozenset({DRIVER_TOO_OLD, AFTER_FORK, 46, 100, 209})
# cudaErrorMemoryAllocation
MEMORY_ALLOCATION = 2


def is_installed() -> bool:
    """Return whether a CuPy package is installed; import nothing."""
    found = find_spec("cupy")
    return found is not None and found.origin is not None  # a folder of that name has no origin


def probe(index: int | None = None) -> tuple[bool, str]:
    """Return whether a device (default: the current one) can compute, and its name or the reason.

    CuPy imports without a driver, `getDeviceCount` then raises, and no kernel may compile for a device that exists. So
    the device must run a compiled kernel, a product, and a small eigenproblem.
    """
    if not is_installed():
        return False, f"CuPy is not installed; {INSTALL}"
    if was_forked():
        return False, FORKED
    try:
        import cupy
    except Exception as error:  # a missing library, another NumPy: an import may fail in any way
        # CuPy wraps the error of the loader in a page of general advice.
        return False, f"CuPy is installed but cannot be imported: {explain(error.__cause__ or error)}"
    try:
        current = None if index is None and not state.working_devices else _index(cupy, index)
        if current in state.working_devices:
            return True, state.working_devices[current]
        present, reason = _counted(cupy)
        if not present:
            return False, f"CuPy is installed, but no CUDA device or driver was found ({reason})"
        index = _index(cupy, index)
        if index >= present:
            return False, f"there is no device cuda:{index}; {present} found"
        with cupy.cuda.Device(index):
            fault = _small_work(cupy)
            product_rates()
    except Exception as error:  # no kernel image, no cuSOLVER, a broken driver
        if is_out_of_memory(error):  # a full device works; the next allocation raises
            return True, describe(_index(cupy, index))
        return False, f"a CUDA device was found, but it cannot be used: {explain(error, index)}"
    if fault:
        return False, fault
    note_use()
    state.working_devices[index] = describe(index)
    return True, state.working_devices[index]


def _counted(cupy: Any) -> tuple[int, str]:
    """Return the number of devices, and CUDA's own reason where it is 0: `cupy.is_available` asks once in a process."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    setting = f"; CUDA_VISIBLE_DEVICES={hidden!r}" if hidden is not None else ""
    try:
        present = int(cupy.cuda.runtime.getDeviceCount())
    except Exception as error:  # the reason
        return 0, f"{explain(error)}{setting}; nvidia-smi lists the devices of the driver"
    return present, f"{present} counted{setting}"


def _index(cupy: Any, index: int | None) -> int:
    return int(cupy.cuda.runtime.getDevice()) if index is None else index


def _small_work(cupy: Any) -> str:
    """Return the fault in small problems on the current device; an empty string if they are solved."""
    block = _kernel("gpukpca_probe")(cupy.full((8, 8), 2.0, cupy.float32))
    if float((block @ block).sum()) != 8 * 8 * 8 * 16.0:
        return "a CUDA device was found, but a small matrix product on it is wrong"
    values = cupy.linalg.eigh(block)[0].get()
    if abs(float(values[-1]) - 32.0) > 1e-3 or abs(float(values[0])) > 1e-3:
        return "a CUDA device was found, but a small eigenproblem on it is wrong"
    return ""


def product_rates() -> tuple[float, float] | None:
    """Return the operations a second of float32 and float64 products on the current device.

    None where times may not decide, or no memory is left.
    """
    return measured_once(state.product_rates, _product_rates) if uses_timings() else None


def measured_once(known: dict[int, Found], measure: Callable[[], Found]) -> Found | None:
    """Return what is known of the current device, or is measured now; None where no memory is left for that."""
    import cupy

    index = int(cupy.cuda.runtime.getDevice())
    try:
        if index not in known:
            known[index] = measure()
        return known[index]
    except Exception as error:
        if is_out_of_memory(error):  # the next fit asks again
            return None
        raise


def _product_rates() -> tuple[float, float]:
    """Time products of a large matrix in both precisions: the faster of two, after one that loads cuBLAS."""
    import cupy

    n, seconds = PRODUCT_EDGE, []
    for dtype in (np.float32, np.float64):
        A = cupy.ones((n, n), dtype)
        product = partial(cupy.matmul, A, A, out=A @ A)
        seconds.append(max(1e-3 * min(milliseconds(product, 1) for _ in range(2)), 1e-6))
    return 2.0 * n**3 / seconds[0], 2.0 * n**3 / seconds[1]


def _kernel(name: str) -> Any:
    import cupy

    return cupy.ElementwiseKernel("T x", "T y", "y = x * x", name)


def explain(error: BaseException, index: int | None = None) -> str:
    """Return an error in one line without a full stop, with the installation that mends it where one does.

    `index` is the device on which it was raised (default: the current one).
    """
    text = f"{type(error).__name__}: {first_line(error)}"
    if is_missing_library(error):
        return f"{text}; {INSTALL}"
    status = getattr(error, "status", None)
    if status == AFTER_FORK:
        return f"{text}; {FORKED}"
    try:
        return text + _mismatch(status == DRIVER_TOO_OLD, index)
    except Exception:  # no card, or one that has failed
        return text


def _mismatch(is_old_driver: bool, index: int | None) -> str:
    """Return a clause about a driver or a card too old for the CUDA of CuPy's wheel, with the remedy; else none."""
    import cupy

    runtime = cupy.cuda.runtime
    built_for = runtime.runtimeGetVersion()  # the runtime linked into CuPy: the version for which the wheel was built
    if not is_old_driver:
        properties = runtime.getDeviceProperties(_index(cupy, index))
        card = properties["major"], properties["minor"]
        if card >= OLDEST_OF_CUDA_13 or built_for < CUDA_13:
            return ""
        return f"; CUDA 13 does not support cards of compute capability {card[0]}.{card[1]}: {CUDA_12_INSTEAD}"
    driver = runtime.driverGetVersion()  # the newest CUDA that it serves, 0 without a driver
    if driver == 0:
        return "; no NVIDIA driver is installed"
    remedy = f"install a driver for CUDA {built_for // 1000} or newer"
    if CUDA_12_0 <= driver < CUDA_13 <= built_for:
        remedy = f"{CUDA_12_INSTEAD}, or {remedy}"
    return f"; the driver serves CUDA {_version(driver)}, and CuPy is built for CUDA {_version(built_for)}: {remedy}"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, without what ends it: a message continues after it."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0].strip().rstrip(".;:, ") if lines else "no message"


def is_missing_library(error: BaseException) -> bool:
    """Return whether an error names a CUDA library or header that is missing or does not fit."""
    return MISSING.search(str(error)) is not None


def _version(number: int) -> str:
    """Return "12.9" for 12090."""
    return f"{number // 1000}.{number % 1000 // 10}"


def count() -> int:
    """Return the number of CUDA devices that CuPy sees; 0 where it cannot be used."""
    if not is_installed() or was_forked():
        return 0
    try:
        import cupy

        return int(cupy.cuda.runtime.getDeviceCount())
    except Exception:  # no driver, a missing library, another NumPy: `probe` gives the reason
        return 0


def cusolver_takes(n: int) -> bool:
    """Return whether cuSOLVER takes an eigenproblem of n rows."""
    import cupy

    return n <= LARGEST_OF_CUDA_12 or bool(cupy.cuda.runtime.runtimeGetVersion() >= CUDA_13)


def note_use() -> None:
    """Store the process in which CUDA works."""
    state.cuda_process = os.getpid() if state.cuda_process is None else state.cuda_process


def was_forked() -> bool:
    """Return whether CUDA was used in a parent of this process."""
    return state.cuda_process is not None and state.cuda_process != os.getpid()


@cache
def describe(index: int) -> str:
    """Return the name of one CUDA device, e.g. ``cuda:0 NVIDIA H200``."""
    import cupy

    name = cupy.cuda.runtime.getDeviceProperties(index)["name"]
    return f"cuda:{index} {name.decode() if isinstance(name, bytes) else name}"


def empty_on(index: int | None, dtype: Any) -> Any:
    """Return an array of size 0 on a device (default: the current one)."""
    import cupy

    with cupy.cuda.Device(index):
        return cupy.empty((0,), dtype)


def current_pool() -> Any:
    """Return the memory pool of CuPy's current allocator; None where CuPy knows none."""
    import cupy

    owner = getattr(cupy.cuda.get_allocator(), "__self__", None)  # a function need not belong to anything
    return owner if isinstance(owner, (cupy.cuda.MemoryPool, cupy.cuda.MemoryAsyncPool)) else None


def free_bytes(array: Any) -> int:
    """Return the bytes that can be allocated on the device of `array`, within the limit of the current pool.

    Unused blocks of the pool count. The free memory of an unknown allocator does not: CuPy cannot see it.
    """
    import cupy

    with array.device:
        free, _ = cupy.cuda.runtime.memGetInfo()
        pool = current_pool()
        if pool is None:
            return int(free)
        available, limit = int(free) + int(pool.free_bytes()), int(pool.get_limit())
        return min(available, max(0, limit - int(pool.used_bytes()))) if limit else available


def is_used_alone(array: Any) -> bool:
    """Return whether hardly any memory on the device of `array` is used outside of the current pool."""
    import cupy

    with array.device:
        free, installed = cupy.cuda.runtime.memGetInfo()
        pool = current_pool()
        held = 0 if pool is None else pool.total_bytes()
        return bool(installed - free - held <= OTHER_SHARE * installed)


def release_unused(array: Any) -> None:
    """Return unused blocks of CuPy's pool to the device, for other programs."""
    import cupy

    with array.device:
        (current_pool() or cupy.get_default_memory_pool()).free_all_blocks()


def synchronize(array: Any) -> None:
    """Wait until the current stream of the array's device has ended its work."""
    import cupy

    with array.device:
        cupy.cuda.get_current_stream().synchronize()


def milliseconds(work: Callable[[], Any], count: int) -> float:
    """Return the time of so many calls of `work` on the current device, pauses between its launches included."""
    import cupy

    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    begin.record()
    for _ in range(count):
        work()
    end.record()
    end.synchronize()
    return float(cupy.cuda.get_elapsed_time(begin, end))


def uploads(batches: Iterable[np.ndarray], most_bytes: int, index: int) -> Iterator[Any]:
    """Yield copies on a device of host arrays, of memory maps too; the next one is read and copied ahead.

    Copies have a stream and pinned memory for two parts: one is filled while the other is copied, and while the device
    works on the array before.
    """
    import cupy

    with cupy.cuda.Device(index):
        stream = cupy.cuda.Stream(non_blocking=True)
    ahead, parts = None, deque[Any]()
    try:
        for batch in batches:
            with cupy.cuda.Device(index):
                begun = _begun_copy(batch, most_bytes, stream, parts)
            if ahead is not None:
                yield _at_hand(*ahead)
            ahead = begun
        if ahead is not None:
            yield _at_hand(*ahead)
    finally:  # copies read buffers, and write arrays, that may not live so long
        with suppress(cupy.cuda.runtime.CUDARuntimeError):  # of a lost device, which the next call reports
            stream.synchronize()


def _at_hand(made: Any, copied: Any) -> Any:
    """Return an array for which later work of the current stream waits; the host does not."""
    import cupy

    with made.device:
        cupy.cuda.get_current_stream().wait_event(copied)
    return made


def _begun_copy(X: np.ndarray, most_bytes: int, stream: Any, parts: deque[Any]) -> tuple[Any, Any]:
    """Return an array on the current device, to which the rows of X are on their way, and the event of the end.

    A part of at most so many bytes is filled once the last but one, the first of `parts` under way, has arrived.
    """
    import cupy

    made, rows = cupy.empty(X.shape, X.dtype), max(1, most_bytes * len(X) // max(1, X.nbytes))
    # Work under way may still read this memory as that of an array before.
    stream.wait_event(cupy.cuda.get_current_stream().record(_event()))
    for start in range(0, len(X), rows):
        if len(parts) == 2:
            parts.popleft()[1].synchronize()
        room = made[start : start + rows]
        part = _pinned(room)
        part[...] = X[start : start + rows]
        room.set(part, stream)
        parts.append((part, stream.record(_event())))
    return made, stream.record(_event())


def _pinned(like: Any) -> np.ndarray:
    """Return host memory for an array, pinned unless a limit of the system on locked memory refuses that.

    CuPy keeps every size of pinned memory that it ever gave, so sizes are powers of two.
    """
    import cupy
    import cupyx

    try:
        memory: np.ndarray = cupyx.empty_pinned((1 << max(0, like.nbytes - 1).bit_length(),), np.uint8)
    except cupy.cuda.runtime.CUDARuntimeError:
        return np.empty(like.shape, like.dtype)
    part: np.ndarray = memory[: like.nbytes].view(like.dtype).reshape(like.shape)
    return part


def _event() -> Any:
    import cupy

    return cupy.cuda.Event(disable_timing=True)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether a device had no memory: CuPy's pool, CUDA itself and CUDA's libraries report that differently."""
    import cupy

    if isinstance(error, cupy.cuda.memory.OutOfMemoryError):
        return True
    if isinstance(error, cupy.cuda.runtime.CUDARuntimeError):
        return getattr(error, "status", None) == MEMORY_ALLOCATION
    return type(error).__module__.startswith("cupy") and "ALLOC_FAILED" in str(error)


def answers(index: int | None = None) -> bool:
    """Return whether a device (default: the current one) still serves this process.

    After an illegal address, an ECC error or a launch failure every later call returns that error.
    """
    import cupy

    try:
        with cupy.cuda.Device(index):
            cupy.cuda.runtime.deviceSynchronize()
    except cupy.cuda.runtime.CUDARuntimeError:
        return False
    return True


def fault(error: BaseException, index: int | None = None) -> str:
    """Return the meaning of an error in work on a device (default: the current one).

    "lost": this process cannot use the device any more. "unusable": it never could. "": any other error.
    """
    import cupy

    if isinstance(error, cupy.cuda.compiler.CompileException):
        return "unusable"
    # CuPy loads CUDA's libraries at their first use.
    if isinstance(error, (ImportError, RuntimeError)) and is_missing_library(error):
        return "" if type(error).__module__.startswith("gpukpca") else "unusable"
    # A kernel is launched by the driver, which numbers these errors as the runtime does.
    of_cuda = (cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError)
    if isinstance(error, of_cuda) and getattr(error, "status", None) in UNUSABLE:
        return "unusable"
    # cuBLAS, cuSOLVER and the driver number their errors differently; the device itself knows whether it is lost.
    return "lost" if type(error).__module__.startswith("cupy") and not answers(index) else ""
