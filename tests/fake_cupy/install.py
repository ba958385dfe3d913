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

from . import array, devices, functions, kernels, linalg, memory, raw
from . import state as state_module

OWN = ("cupy", "cupyx", "cupy_backends")
SAME_AS_NUMPY = (
    "bool bool_ broadcast_shapes byte cdouble complex128 complex64 complexfloating csingle double dtype e euler_gamma "
    "finfo float16 float32 float64 floating generic get_printoptions half iinfo index_exp inexact inf int16 int32 "
    "int64 int8 int_ intc integer intp isdtype issubdtype iterable long longlong mintypecode nan ndindex newaxis "
    "number pi printoptions promote_types s_ set_printoptions short signedinteger single typename ubyte uint uint16 "
    "uint32 uint64 uint8 uintc uintp ulong ulonglong unsignedinteger ushort"
)
VERSION = "14.2.0"
# Modules of array_api_compat that remember the fake, put back at the next installation instead of imported anew.
_kept: dict[str, ModuleType] = {}


def is_installed() -> bool:
    return getattr(sys.modules.get("cupy"), "is_fake", False)


def install() -> None:
    """Make `import cupy` find the fake, in a new state."""
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
    _link_compat()
    _forget()


def uninstall() -> None:
    """Take everything away, what others remember of it included."""
    for name in list(sys.modules):
        if name.partition(".")[0] in OWN:
            del sys.modules[name]
        elif name.startswith("array_api_compat.cupy"):
            _kept[name] = sys.modules.pop(name)
    compat = sys.modules.get("array_api_compat")
    if compat is not None and hasattr(compat, "cupy"):
        del compat.cupy
    state_module.reset()
    _forget()


@contextlib.contextmanager
def installed() -> Iterator[ModuleType]:
    """The fake for the time of the context; yields the module `cupy`."""
    install()
    try:
        yield sys.modules["cupy"]
    finally:
        uninstall()


def _link_compat() -> None:
    if "array_api_compat.cupy" in _kept and "array_api_compat" in sys.modules:
        sys.modules["array_api_compat"].cupy = _kept["array_api_compat.cupy"]


def _forget() -> None:
    """Clear what was remembered about classes (array_api_compat and its copies) and about devices (gpukpca.cuda)."""
    for name, module in list(sys.modules.items()):
        if name.endswith("array_api_compat.common._helpers") or name.startswith("gpukpca.cuda."):
            for value in vars(module).values():
                if hasattr(value, "cache_clear"):
                    value.cache_clear()


def _module(name: str, **contents: Any) -> ModuleType:
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, loader=None, is_package=True)
    module.__path__ = []
    module.__dict__.update(contents)
    return module


def _public(module: ModuleType, names: str) -> dict[str, Any]:
    return {name: getattr(module, name) for name in names.split()}


@cache
def _modules() -> dict[str, ModuleType]:
    """Every module of the fake by its name, made once: pickles and type checks need the same classes each time."""
    made = {module.__name__: module for module in (*_cupy(), *_cuda(), *_backends(), *_cupyx())}
    for name, module in made.items():
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(made[parent], last, module)
    return made


def _cupy() -> list[ModuleType]:
    names = " ".join((functions.UFUNCS, functions.COMPUTED, functions.VIEWS, functions.WRITERS, functions.HOST))
    plain = (
        "array_repr arange asanyarray asarray ascontiguousarray asfortranarray asnumpy astype concat concatenate copy "
        "copyto dot empty empty_like eye fix full full_like get_array_module identity indices linspace logspace matmul "
        "ones ones_like reshape ufunc zeros zeros_like"
    )
    cupy = _module(
        "cupy",
        __version__=VERSION,
        is_fake=True,
        ndarray=array.ndarray,
        array=array.array,
        ElementwiseKernel=kernels.ElementwiseKernel,
        RawKernel=raw.RawKernel,
        RawModule=raw.RawModule,
        ReductionKernel=kernels.ReductionKernel,
        get_default_memory_pool=lambda: memory.DEFAULT_POOL,
        get_default_pinned_memory_pool=lambda: memory.MemoryPool(),
        is_available=devices.is_available,
        AxisError=np.exceptions.AxisError,
        ComplexWarning=np.exceptions.ComplexWarning,
        **_public(functions, f"{names} {plain}"),
        **_public(np, SAME_AS_NUMPY),
    )
    types = {f"COMPUTE_TYPE_{name}": number for number, name in enumerate(functions.COMPUTE_TYPES)}
    setters = _public(functions, "set_compute_type get_compute_type compute_type_to_str to_compute_type_index")
    return [
        cupy,
        _module("cupy._core", ElementwiseKernel=kernels.ElementwiseKernel, ndarray=array.ndarray, **setters),
        _module("cupy._core.core", ndarray=array.ndarray),
        _module("cupy._core._dtype", to_cuda_dtype=linalg.to_cuda_dtype),
        _module("cupy._core._routines_linalg", **types, **setters),
        _module("cupy.linalg", **{name: getattr(linalg, name) for name in linalg.__all__}),
        _module("cupy.cublas", gemm=linalg.gemm, syrk=linalg.syrk),
        _module("cupy.fft"),
        _module("cupy.random"),
        _module("cupy.exceptions", AxisError=np.exceptions.AxisError),
    ]


RUNTIME = (
    "driverGetVersion runtimeGetVersion getDevice setDevice getDeviceCount getDeviceProperties memGetInfo "
    "deviceSynchronize profilerStart profilerStop"
)


def _cuda() -> list[ModuleType]:
    pool = "MemoryAsyncPool MemoryPool Memory MemoryPointer UnownedMemory alloc get_allocator set_allocator"
    streams = "Stream Event get_current_stream get_elapsed_time"
    device = "Device get_device_id get_compute_capability get_cusolver_handle get_cublas_handle"
    return [
        _module(
            "cupy.cuda",
            is_available=devices.is_available,
            alloc_pinned_memory=devices.alloc_pinned_memory,
            get_local_runtime_version=devices.local_runtime_version,
            Device=devices.Device,
            get_device_id=devices.get_device_id,
            get_cublas_handle=devices.get_cublas_handle,
            cusolver=_libraries()[0],
            cublas=_libraries()[1],
            **_public(memory, pool),
            **_public(devices, streams),
        ),
        _runtime(),
        _module("cupy.cuda.device", **_public(devices, device)),
        _module("cupy.cuda.memory", **_public(memory, f"{pool} OutOfMemoryError")),
        _module("cupy.cuda.stream", **_public(devices, streams)),
        _module("cupy.cuda.compiler", CompileException=state_module.CompileException),
    ]


@cache
def _runtime(name: str = "cupy.cuda.runtime") -> ModuleType:
    types = {"CUDA_R_32F": 0, "CUDA_R_64F": 1, "CUDA_R_16F": 2, "CUDA_C_32F": 4, "CUDA_C_64F": 5}
    error = state_module.CUDARuntimeError
    return _module(name, CUDARuntimeError=error, is_hip=False, **types, **_public(devices, RUNTIME))


@cache
def _libraries() -> tuple[ModuleType, ModuleType]:
    solver = (
        "CUSOLVERError CUSOLVER_EIG_MODE_NOVECTOR CUSOLVER_EIG_MODE_VECTOR createParams destroyParams xsyevd "
        "xsyevd_bufferSize"
    )
    blas = ["gemmEx", "dgemmStridedBatched", *(name for name in vars(linalg) if name.startswith("CUBLAS_"))]
    error = state_module.CUBLASError
    return (
        _module("cupy_backends.cuda.libs.cusolver", _getVersion=devices.cusolver_version, **_public(linalg, solver)),
        _module("cupy_backends.cuda.libs.cublas", CUBLASError=error, **_public(linalg, " ".join(blas))),
    )


def _backends() -> list[ModuleType]:
    return [
        _module("cupy_backends"),
        _module("cupy_backends.cuda"),
        _module("cupy_backends.cuda.api"),
        _runtime("cupy_backends.cuda.api.runtime"),
        _module("cupy_backends.cuda.api.driver", CUDADriverError=state_module.CUDADriverError),
        _module("cupy_backends.cuda.libs"),
        *_libraries(),
    ]


class csr_matrix:
    """Just enough to be refused."""

    def __init__(self, shape: tuple[int, int] = (2, 2)) -> None:
        self.shape, self.dtype, self.ndim = shape, np.dtype(np.float64), 2


csr_matrix.__module__ = "cupyx.scipy.sparse._csr"


@contextlib.contextmanager
def errstate(*, linalg: str | None = None, **others: Any) -> Iterator[None]:
    """What becomes of cuSOLVER's reports inside."""
    settings = globals()["linalg"].settings
    before = dict(settings)
    settings["linalg"] = linalg or settings["linalg"]
    try:
        yield
    finally:
        settings.update(before)


@contextlib.contextmanager
def time_range(message: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    yield


def _cupyx() -> list[ModuleType]:
    return [
        _module("cupyx", errstate=errstate, empty_pinned=devices.empty_pinned, zeros_pinned=devices.zeros_pinned),
        _module("cupyx.profiler", time_range=time_range, profile=lambda: time_range("profile")),
        _module("cupyx.lapack", posv=linalg.posv),
        _module("cupyx.scipy"),
        _module("cupyx.scipy.sparse", csr_matrix=csr_matrix),
    ]
