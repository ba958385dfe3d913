"""Controls of the CPU stand-in: counters, names of what was launched, imitated faults, settings of the devices.

`counts` and `launched` read what happened. `change` sets what a device is and does until its context ends.
`lose_device` and `answer_eigenproblems` imitate faults. CuPy's error names a function of CUDA that is not written.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

_ERRORS = {
    "cublas": ("cupy_backends.cuda.libs.cublas", "CUBLASError"),
    "cusolver": ("cupy_backends.cuda.libs.cusolver", "CUSOLVERError"),
    "curand": ("cupy_backends.cuda.libs.curand", "CURANDError"),
    "cufft": ("cupy.cuda.cufft", "CuFFTError"),
}
_missing: dict[Any, str | None] = {}  # class of errors -> name of the function to put into its next instance

COUNTERS = (
    "operations",
    "launches",
    "products",
    "mallocs",
    "waits",
    "copies_to_device",
    "copies_to_host",
    "copies_on_device",
)
# Name of a setting -> (library, variable, type). What they mean is said in device.h and solver.c.
SETTINGS = {
    "devices": ("cupy_on_cpu", "device_count", ctypes.c_int),
    "count_status": ("cupy_on_cpu", "device_count_status", ctypes.c_int),
    "capability": ("cupy_on_cpu", "device_capability", ctypes.c_int),
    "driver_version": ("cupy_on_cpu", "device_driver_version", ctypes.c_int),
    "runtime_version": ("cupy_on_cpu", "device_runtime_version", ctypes.c_int),
    "mallocs_before_failure": ("cupy_on_cpu", "device_mallocs_before_failure", ctypes.c_long),
    "pins_memory": ("cupy_on_cpu", "device_pins_memory", ctypes.c_int),
    "kernels_have_image": ("cupy_on_cpu", "device_kernels_have_image", ctypes.c_int),
    "late_errors": ("cupy_on_cpu", "device_late_errors", ctypes.c_int),
    "late_copies": ("cupy_on_cpu", "device_late_copies", ctypes.c_int),
    "no_work": ("cupy_on_cpu", "device_no_work", ctypes.c_int),
    "eigh_info": ("cusolver", "solver_info", ctypes.c_int),
    "eigh_largest_n": ("cusolver", "solver_largest_n", ctypes.c_long),
}
MOST_DEVICES = 16
_ANSWER = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_long, ctypes.c_int)


@cache
def _library(name: str) -> ctypes.CDLL:
    """Return a stand-in, which the loader finds in a program that run.sh has started."""
    return ctypes.CDLL(f"lib{name}.so")


def _variable(name: str) -> Any:
    library, variable, kind = SETTINGS[name]
    return kind.in_dll(_library(library), variable)


# -- what happened -----------------------------------------------------------------------------------------------------


def counts() -> dict[str, int]:
    """Return how many operations, launches, products, mallocs, waits and copies there were in this process."""
    return {name: ctypes.c_long.in_dll(_library("cupy_on_cpu"), f"count_{name}").value for name in COUNTERS}


def launched() -> list[str]:
    """Return the names of the kernels and of the functions of CUDA's libraries that were launched, in order."""
    library = _library("cupy_on_cpu")
    library.device_launched.restype = ctypes.c_char_p
    return library.device_launched().decode().splitlines()


def forget_launched() -> None:
    """Empty the list of `launched`, which grows with every launch."""
    _library("cupy_on_cpu").device_forget_launched()


def copies_under_way() -> int:
    """Return the copies from pinned memory that are held back: see `late_copies`."""
    library = _library("cupy_on_cpu")
    library.device_copies_under_way.restype = ctypes.c_long
    return library.device_copies_under_way()


# -- settings ----------------------------------------------------------------------------------------------------------


@contextmanager
def change(
    *, memory: dict[int, int] | None = None, foreign: dict[int, int] | None = None, **values: int
) -> Iterator[None]:
    """Change the devices until the context ends.

    Parameters
    ----------
    memory, foreign : dict of int
        Bytes of a device in all, and those of them that another program holds, by the number of the device.
    **values
        `devices`: their number; 0 is a machine without one. `count_status`: the status of cudaGetDeviceCount, as 35
        for a driver that is too old. `capability`: without the dot. `driver_version`, `runtime_version`: as CUDA
        numbers them; -1 is that of the build, a driver of 0 is none. `mallocs_before_failure`: so many calls of
        cudaMalloc succeed, then one fails; -1: none does. `pins_memory`, `kernels_have_image`: 0 where the machine
        refuses. `late_errors`, `late_copies`: 1 for a device that works while the host goes on. `no_work`: 1 where
        launches and products return at once, for the time of the host's code. `eigh_info`: what syevd reports.
        `eigh_largest_n`: the largest matrix that syevd takes; 0: any.
    """
    if not 0 <= values.get("devices", 0) <= MOST_DEVICES:
        raise ValueError(f"devices={values['devices']}: give a number up to {MOST_DEVICES}")
    arrays = [("device_bytes", memory or {}), ("device_foreign_bytes", foreign or {})]
    before = {name: _variable(name).value for name in values}
    tables = [(ctypes.c_size_t * MOST_DEVICES).in_dll(_library("cupy_on_cpu"), name) for name, _ in arrays]
    bytes_before = [list(table) for table in tables]
    try:
        for name, value in values.items():
            _variable(name).value = value
        for table, (_, sizes) in zip(tables, arrays, strict=True):
            for device, size in sizes.items():
                table[device] = size
        yield
    finally:
        for name, value in before.items():
            _variable(name).value = value
        for table, old in zip(tables, bytes_before, strict=True):
            table[:] = old


# -- faults ------------------------------------------------------------------------------------------------------------


def mend_device() -> None:
    """Make the device whole again, which a fault of a kernel or `lose_device` has ended."""
    _library("cupy_on_cpu").device_mend()


@contextmanager
def lose_device(status: int = 700, after: int = 1) -> Iterator[None]:
    """Lose the device at the `after`-th operation from now on (a launch, product, copy or allocation).

    With `late_errors` the loss shows where the host waits next; without, at that operation. From then on launches,
    copies, allocations and waits fail with `status`, cuBLAS and cuSOLVER with errors of their own. The end of the
    context mends the device.
    """
    library = _library("cupy_on_cpu")
    number = ctypes.c_long.in_dll(library, "fault_at_operation")
    ctypes.c_int.in_dll(library, "fault_status").value = status
    number.value = counts()["operations"] + after
    try:
        yield
    finally:
        mend_device()


@contextmanager
def answer_eigenproblems(function: Callable[[Any, Any], tuple[Any, Any]]) -> Iterator[None]:
    """Let syevd answer what `function` makes of (values, vectors), NumPy arrays, while it reports success."""
    import numpy as np

    def answer(values: int, vectors: int, n: int, lda: int, is_double: int) -> None:
        kind = ctypes.c_double if is_double else ctypes.c_float
        w = np.ctypeslib.as_array(ctypes.cast(values, ctypes.POINTER(kind)), (n,))
        v = np.ctypeslib.as_array(ctypes.cast(vectors, ctypes.POINTER(kind)), (n, lda))[:, :n].T
        w[...], v[...] = function(w.copy(), v.copy())

    pointer = ctypes.c_void_p.in_dll(_library("cusolver"), "solver_answer")
    before, callback = pointer.value, _ANSWER(answer)
    pointer.value = ctypes.cast(callback, ctypes.c_void_p).value
    try:
        yield
    finally:
        pointer.value = before


# -- functions that are not written ------------------------------------------------------------------------------------


def not_written(function: str) -> None:
    """Let the error that CuPy raises next for a library name the function. Stubs call this."""
    prefix = re.match("[a-z]+", function).group()
    module, name = _ERRORS.get(prefix, ("", ""))
    error = getattr(sys.modules.get(module), name, None)
    if error is None:
        return
    if error not in _missing:
        _name_missing_functions(error)
    _missing[error] = function


def _name_missing_functions(error: Any) -> None:
    """Let errors of a class begin with the function that was called and is not written."""
    original = error.__init__

    def init(self: Any, status: int) -> None:
        original(self, status)
        missing, _missing[error] = _missing[error], None
        if missing:
            self.args = (f"{missing} is not written in the CPU stand-in ({self.args[0]})",)

    error.__init__ = init
