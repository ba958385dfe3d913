"""Controls of the CPU stand-in: counters, imitated faults, and the names of missing functions in CuPy's errors.

counts()            calls so far: cudaMalloc, copies, waits, launches, matrix products
fail(...)           imitated faults of the runtime; each argument left out keeps its value
no_work(True)       launches and matrix products return at once: what remains is the time of the host code
"""

import ctypes
import importlib.util
import os
import re
import sys

_ERRORS = {
    "cublas": ("cupy_backends.cuda.libs.cublas", "CUBLASError"),
    "cusolver": ("cupy_backends.cuda.libs.cusolver", "CUSOLVERError"),
    "curand": ("cupy_backends.cuda.libs.curand", "CURANDError"),
    "cufft": ("cupy.cuda.cufft", "CuFFTError"),
}
_missing = {}  # exception class -> name of the function to put into its next instance


def not_written(function):
    """Called by a stub: the exception that CuPy raises next for its library names the function."""
    prefix = re.match("[a-z]+", function).group()
    module, name = _ERRORS.get(prefix, (None, None))
    error = getattr(sys.modules.get(module), name, None) if module else None
    if error is None:
        return
    if error not in _missing:
        original = error.__init__

        def init(self, status):
            original(self, status)
            missing = _missing[error]
            _missing[error] = None
            if missing:
                self.args = (f"{missing} is not written in the CPU stand-in ({self.args[0]})",)

        error.__init__ = init
    _missing[error] = function


def _runtime():
    folder = os.path.dirname(importlib.util.find_spec("cupy_backends").origin)
    names = [
        n for n in os.listdir(os.path.join(folder, "cuda", "api")) if n.startswith("runtime.") and n.endswith(".so")
    ]
    return ctypes.CDLL(os.path.join(folder, "cuda", "api", names[0]))


def counts():
    runtime = _runtime()
    result = {}
    for name in ("mallocs", "copies_to_device", "copies_to_host", "copies_on_device", "waits"):
        result[name] = ctypes.c_long.in_dll(runtime, "count_" + name).value
    result["launches"] = ctypes.c_long.in_dll(ctypes.CDLL("libcuda.so.1"), "count_launches").value
    result["products"] = ctypes.c_long.in_dll(ctypes.CDLL("libcublas.so.13"), "count_products").value
    return result


def fail(*, devices=None, count_status=None, wait_status=None, mallocs_before_failure=None, memory=None):
    """Imitate faults.

    devices: their number; count_status: the status of cudaGetDeviceCount (35: the driver is too old, 100: no device);
    wait_status: the status of waits and allocations (700: the device is lost); mallocs_before_failure: that many calls of
    cudaMalloc succeed, then one fails (-1: none does); memory: bytes of a device.
    """
    runtime = _runtime()
    values = {
        "fault_devices": (ctypes.c_int, devices),
        "fault_count_status": (ctypes.c_int, count_status),
        "fault_wait_status": (ctypes.c_int, wait_status),
        "fault_mallocs_before_failure": (ctypes.c_long, mallocs_before_failure),
        "device_memory": (ctypes.c_size_t, memory),
    }
    for name, (kind, value) in values.items():
        if value is not None:
            kind.in_dll(runtime, name).value = value


def no_work(value):
    for library in ("libcuda.so.1", "libcublas.so.13"):
        ctypes.c_int.in_dll(ctypes.CDLL(library), "no_work").value = int(value)
