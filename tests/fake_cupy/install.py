"""Putting the modules in place and taking them away again."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np

from . import array, devices, functions, kernels, linalg, memory
from . import state as state_module

OWN = ("cupy", "cupyx", "cupy_backends")
VERSION = "14.2.0"
# Modules of array_api_compat that remember the imitation, put back at the next installation in place of a new import.
_kept: dict[str, ModuleType] = {}


def is_installed() -> bool:
    return getattr(sys.modules.get("cupy"), "is_fake", False)


def install() -> None:
    """Make `import cupy` find the imitation, in a new state."""
    if is_installed():
        raise RuntimeError("the fake CuPy is installed already")
    if find_spec("cupy") is not None:
        raise RuntimeError("the real CuPy can be imported here; the fake must not hide it")
    state_module.reset()
    state_module.set_current_device(0)
    functions.forget_compute_types()
    memory.reset()
    devices.reset_streams()
    sys.modules.update(_modules())
    sys.modules.update(_kept)
    if "array_api_compat.cupy" in _kept and "array_api_compat" in sys.modules:
        sys.modules["array_api_compat"].cupy = _kept["array_api_compat.cupy"]
    _clear_caches()


def uninstall() -> None:
    """Take everything away, including what others remember of it."""
    for name in list(sys.modules):
        if name.partition(".")[0] in OWN:
            del sys.modules[name]
        elif name.startswith("array_api_compat.cupy"):
            _kept[name] = sys.modules.pop(name)
    compat = sys.modules.get("array_api_compat")
    if compat is not None and hasattr(compat, "cupy"):
        del compat.cupy
    state_module.reset()
    _clear_caches()


@contextlib.contextmanager
def installed() -> Iterator[ModuleType]:
    """Install the imitation for the time of the context; yields the module `cupy`."""
    install()
    try:
        yield sys.modules["cupy"]
    finally:
        uninstall()


def _clear_caches() -> None:
    """Clear what was remembered about classes (array_api_compat and its copies) and about devices (gpukpca.cuda)."""
    for name, module in list(sys.modules.items()):
        if name.endswith("array_api_compat.common._helpers") or name.startswith("gpukpca.cuda."):
            for value in vars(module).values():
                if hasattr(value, "cache_clear"):
                    value.cache_clear()


def _module(name: str, *sources: tuple[Any, str], **contents: Any) -> ModuleType:
    """Return a module with named contents, and with public names of other modules."""
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, loader=None, origin="fake_cupy", is_package=True)
    module.__path__ = []
    module.__dict__.update(contents)
    for source, names in sources:
        module.__dict__.update({one: getattr(source, one) for one in names.split()})
    return module


@cache
def _modules() -> dict[str, ModuleType]:
    """Return every module by its name, made once: type checks need the same classes each time."""
    types = {f"COMPUTE_TYPE_{name}": number for number, name in enumerate(functions.COMPUTE_TYPES)}
    pool = "MemoryAsyncPool MemoryPool Memory MemoryPointer get_allocator set_allocator"
    streams = "Stream Event get_current_stream"
    runtime = "driverGetVersion runtimeGetVersion getDevice setDevice getDeviceCount getDeviceProperties memGetInfo"
    runtimes = [
        _module(name, (devices, f"{runtime} deviceSynchronize"), CUDARuntimeError=state_module.CUDARuntimeError)
        for name in ("cupy.cuda.runtime", "cupy_backends.cuda.api.runtime")
    ]
    handles = {"get_cusolver_handle": devices.get_library_handle, "get_cublas_handle": devices.get_library_handle}
    solver = "CUSOLVERError CUSOLVER_EIG_MODE_VECTOR createParams destroyParams xsyevd xsyevd_bufferSize"
    blas = "CUBLASError CUBLAS_FILL_MODE_LOWER CUBLAS_OP_N CUBLAS_OP_T dgemmStridedBatched"
    modules = [
        _cupy(),
        _module("cupy._core"),
        _module("cupy._core._dtype", (linalg, "to_cuda_dtype")),
        _module("cupy._core._routines_linalg", (functions, "set_compute_type get_compute_type"), **types),
        _module("cupy.linalg", (linalg, "LinAlgError cholesky eigh inv lstsq norm qr solve svd")),
        _module("cupy.fft"),
        _module(
            "cupy.cuda",
            (memory, pool),
            (devices, streams),
            is_available=devices.is_available,
            Device=devices.Device,
            get_device_id=devices.getDevice,
        ),
        _module("cupy.cuda.device", Device=devices.Device, **handles),
        _module("cupy.cuda.memory", (memory, f"{pool} OutOfMemoryError")),
        _module("cupy.cuda.stream", (devices, streams)),
        _module("cupy.cuda.compiler", CompileException=state_module.CompileException),
        _module("cupy_backends"),
        _module("cupy_backends.cuda"),
        _module("cupy_backends.cuda.api"),
        _module("cupy_backends.cuda.libs"),
        *runtimes,
        _module("cupy_backends.cuda.libs.cusolver", (linalg, solver), _getVersion=devices.cusolver_version),
        _module("cupy_backends.cuda.libs.cublas", (linalg, blas)),
        _module("cupyx", (linalg, "errstate"), (devices, "empty_pinned")),
        _module("cupyx.lapack", (linalg, "posv")),
        _module("cupyx.scipy"),
        _module("cupyx.scipy.sparse", csr_matrix=csr_matrix),
    ]
    made = {module.__name__: module for module in modules}
    for name, module in made.items():
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(made[parent], last, module)
    return made


def _cupy() -> ModuleType:
    """Return `cupy` itself: NumPy's types and constants, and its functions for device arrays."""
    plain = {name: value for name, value in vars(np).items() if isinstance(value, (type, float, type(None)))}
    hosts = {name: getattr(np, name) for name in ("iinfo", "finfo", "issubdtype", "isdtype", "promote_types")}
    return _module(
        "cupy",
        (functions, functions.OWN),
        **{name: value for name, value in plain.items() if not name.startswith("_") and name != "ndarray"}
        | {name: value for name, value in functions.MADE.items() if name not in functions.OWN.split()}
        | hosts,
        __version__=VERSION,
        is_fake=True,
        ndarray=array.ndarray,
        ElementwiseKernel=kernels.ElementwiseKernel,
        RawKernel=kernels.RawKernel,
        get_default_memory_pool=lambda: memory.DEFAULT_POOL,
        is_available=devices.is_available,
    )


class csr_matrix:
    """Just enough to be refused."""

    def __init__(self, shape: tuple[int, int] = (2, 2)) -> None:
        self.shape, self.dtype, self.ndim = shape, np.dtype(np.float64), 2


csr_matrix.__module__ = "cupyx.scipy.sparse._csr"
