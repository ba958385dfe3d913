"""The functions of the `cupy` namespace, made of NumPy's: unwrap, compute without warnings, wrap.

A NumPy array is refused as an operand everywhere but in the functions that bring host data onto the device; keyword
arguments that CuPy's functions lack are refused too. Functions that the array API does not have are refused by
array-api-strict, on which the same tests run.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from . import state as device
from .array import array, check_place, checked_dtype, created, ndarray, operand
from .state import CUBLASError, launch_in_library

# Another look at the same memory: no kernel.
VIEWS = (
    "atleast_1d atleast_2d broadcast_arrays broadcast_to diagonal expand_dims matrix_transpose moveaxis permute_dims "
    "ravel real split squeeze swapaxes transpose unstack"
)
# Answer on the host.
HOST = "broadcast_shapes can_cast iscomplexobj isscalar may_share_memory ndim result_type shape size"
# Keyword arguments that NumPy has and CuPy has not: of any function, and of some.
FOREIGN = "where initial subok like device correction stable descending weights order mean"
FOREIGN_TO = {
    "argpartition": "kind",
    "clip": "min max",
    "count_nonzero": "keepdims",
    "packbits": "axis",
    "take": "mode",
}
FOREIGN_TO |= {"partition": "kind", "unpackbits": "axis count"}


class ufunc:
    """An elementwise function."""

    def __init__(self, name: str) -> None:
        self._numpy, self.__name__, self.nin = getattr(np, name), name, getattr(np, name).nin

    def __call__(self, *args: Any, out: Any = None, dtype: Any = None, casting: str = "same_kind") -> Any:
        out = args[self.nin] if len(args) > self.nin else out
        if out is not None and not isinstance(out, ndarray):
            raise TypeError("Output arguments type must be cupy.ndarray")
        hosts = [operand(x) for x in args[: self.nin]]
        given = [] if out is None else [out]
        into = {"out": operand(out)} if given else {}
        apart = [created(x._host.copy()) for x in args[: self.nin] if _lies_under(x, given)]
        device.launch(self.__name__)
        with np.errstate(all="ignore"):
            result = self._numpy(*hosts, order="C", dtype=dtype, casting=casting, **into)
        del apart  # until here the pool pays for them
        return wrapped(result, given)


ufunc.__module__ = "cupy"


def _lies_under(x: Any, outs: list[ndarray]) -> bool:
    """Return whether CuPy copies an operand before it writes, since an output may overlap it."""
    return isinstance(x, ndarray) and any(x is not out and np.may_share_memory(x._host, out._host) for out in outs)


def wrapped(result: Any, sources: Any = ()) -> Any:
    """Return NumPy's answer as device arrays, in C order; what shares memory with a source is a view of it."""
    if isinstance(result, (tuple, list)):
        parts = [wrapped(part, sources) for part in result]
        return parts if isinstance(result, list) else tuple(parts)
    if isinstance(result, (bool, int, float, complex, np.generic)):
        return created(np.asarray(result))
    if not isinstance(result, np.ndarray):
        return result
    for source in sources:
        if result is source._host:
            return source
        if result.size and np.may_share_memory(result, source._host):
            return source._view(result)
    return created(np.asarray(result, order="C"))


def _unwrapped(x: Any, sources: list[ndarray], anywhere: bool) -> Any:
    """Return an argument for NumPy. The device arrays in it are appended to `sources`."""
    if isinstance(x, ndarray):
        if not anywhere:
            check_place(x)
        sources.append(x)
        return x._host
    if isinstance(x, np.ndarray):
        raise TypeError(f"Unsupported type {type(x)}")
    if type(x) in (list, tuple):
        return type(x)(_unwrapped(y, sources, anywhere) for y in x)
    return x


def function(name: str, of_numpy: Callable) -> Callable:
    """Return a function of NumPy for device arrays."""
    is_on_host = name in HOST.split()
    anywhere = is_on_host or name in VIEWS.split()
    foreign = {*FOREIGN.split(), *FOREIGN_TO.get(name, "").split()}

    def call(*args: Any, **kwargs: Any) -> Any:
        if refused := foreign & kwargs.keys():
            raise TypeError(f"{name}() got an unexpected keyword argument {min(refused)!r}")
        sources: list[ndarray] = []
        args = tuple(_unwrapped(x, sources, anywhere) for x in args)
        kwargs = {key: _unwrapped(x, sources, anywhere) for key, x in kwargs.items()}
        if not anywhere:
            device.launch(name)
        with np.errstate(all="ignore"):
            result = of_numpy(*args, **kwargs)
        return result if is_on_host else wrapped(result, sources)

    return named(call, name)


def named(call: Callable, name: str, module: str = "cupy") -> Callable:
    call.__name__ = call.__qualname__ = name
    call.__module__ = module
    return call


def _made() -> dict[str, Any]:
    """Return all functions of NumPy for device arrays, by name."""
    every = {name: getattr(np, name) for name in dir(np) if not name.startswith("_")}
    made = {name: ufunc(f.__name__) for name, f in every.items() if isinstance(f, np.ufunc)}
    made |= {name: function(name, f) for name, f in every.items() if "Dispatcher" in type(f).__name__}
    made |= {name: function(name, f) for name, f in every.items() if type(f).__name__ == "function"}
    # No kernel can raise: indices out of bounds wrap around.
    return made | {"take": function("take", partial(np.take, mode="wrap"))}


# In a table and not among the globals, where `any`, `max` and others would hide Python's own.
MADE = _made()


def __getattr__(name: str) -> Any:
    try:
        return MADE[name]
    except KeyError:
        raise AttributeError(f"module 'cupy' has no attribute {name!r}") from None


# -- creation ----------------------------------------------------------------------------------------------------------


def asarray(a: Any, dtype: Any = None, order: str | None = None, *, copy: bool | None = None) -> ndarray:
    return array(a, dtype, bool(copy), order)


def ascontiguousarray(a: Any, dtype: Any = None) -> ndarray:
    return array(a, dtype, False, "C")


def asfortranarray(a: Any, dtype: Any = None) -> ndarray:
    return array(a, dtype, False, "F")


def asnumpy(a: Any) -> np.ndarray:
    return a.get() if isinstance(a, ndarray) else np.asarray(a)


def empty(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    return ndarray(shape, float if dtype is None else dtype, order)


def zeros(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    return full(shape, 0, float if dtype is None else dtype, order)


def ones(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    return full(shape, 1, float if dtype is None else dtype, order)


def full(shape: Any, fill_value: Any, dtype: Any = None, order: str = "C") -> ndarray:
    made = created(np.empty(shape, checked_dtype(np.array(fill_value).dtype if dtype is None else dtype), order))
    made.fill(fill_value)
    return made


def empty_like(prototype: ndarray, dtype: Any = None, order: str = "K") -> ndarray:
    host = np.empty_like(prototype._host, dtype, order)
    checked_dtype(host.dtype)
    return created(host, poison=True)


def full_like(a: ndarray, fill_value: Any, dtype: Any = None, order: str = "K") -> ndarray:
    made = empty_like(a, dtype, order)
    made[...] = fill_value
    return made


def zeros_like(a: ndarray, dtype: Any = None, order: str = "K") -> ndarray:
    return full_like(a, 0, dtype, order)


def ones_like(a: ndarray, dtype: Any = None, order: str = "K") -> ndarray:
    return full_like(a, 1, dtype, order)


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> ndarray:
    device.launch("arange")
    start, stop = (0, start) if stop is None else (start, stop)
    return created(np.arange(start, stop, step, dtype=dtype))


def eye(N: int, M: int | None = None, k: int = 0, dtype: Any = float, order: str = "C") -> ndarray:
    device.launch("eye")
    return created(np.eye(N, M, k, float if dtype is None else checked_dtype(dtype), order))


def astype(x: ndarray, dtype: Any, /, *, copy: bool = True) -> ndarray:
    return x.astype(dtype, copy=copy)


def copyto(dst: ndarray, src: Any) -> None:
    device.launch("copyto")
    np.copyto(operand(dst), operand(src))


def reshape(a: ndarray, newshape: Any, order: str = "C") -> ndarray:
    return a.reshape(newshape, order=order)


def concatenate(tup: Any, axis: int | None = 0, out: Any = None) -> Any:
    if not all(isinstance(x, ndarray) for x in tup):
        raise TypeError("Only cupy arrays can be concatenated")
    device.launch("concatenate")
    hosts = [operand(x) for x in tup]
    if out is None:
        return created(np.asarray(np.concatenate(hosts, axis), order="C"))
    np.concatenate(hosts, axis, operand(out))
    return out


concat = concatenate
OWN = (
    "arange array asarray ascontiguousarray asfortranarray asnumpy astype concat concatenate copyto empty empty_like "
    "eye full full_like matmul dot ones ones_like reshape ufunc zeros zeros_like"
)

# -- products ----------------------------------------------------------------------------------------------------------

COMPUTE_TYPES = ("TBD", "DEFAULT", "PEDANTIC", "FP16", "FP32", "FP64", "BF16", "TF32")
TBD, DEFAULT, PEDANTIC, TF32 = 0, 1, 2, 7
_compute_types = {"e": TBD, "f": TBD, "d": TBD}


def forget_compute_types() -> None:
    _compute_types.update(dict.fromkeys(_compute_types, TBD))


def set_compute_type(dtype: Any, compute_type: int) -> None:
    _compute_types[np.dtype(dtype).char] = compute_type


def get_compute_type(dtype: Any) -> int:
    """CuPy reads its environment variable at the first question and remembers the answer."""
    char = np.dtype(dtype).char
    if _compute_types[char] == TBD:
        is_set = char == "f" and int(os.environ.get("CUPY_TF32", "0")) > 0
        _compute_types[char] = TF32 if is_set else DEFAULT
    return _compute_types[char]


def rounded_to_tf32(x: np.ndarray) -> np.ndarray:
    """Return float32 numbers with 10 bits of mantissa."""
    bits = np.ascontiguousarray(x).view(np.uint32)
    rounded = (bits + np.uint32(0x0FFF) + ((bits >> np.uint32(13)) & np.uint32(1))) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(x), rounded.view(np.float32), x)


def as_cublas_reads(x: np.ndarray) -> np.ndarray:
    """Return an operand as the tensor cores see it.

    NVIDIA's override forbids TF32 with 0 and asks for it with anything else, except where CuPy says pedantic.
    """
    override, kind = os.environ.get("NVIDIA_TF32_OVERRIDE"), get_compute_type(np.float32)
    reads_tf32 = kind == TF32 if override is None else override != "0" and kind != PEDANTIC
    return rounded_to_tf32(x) if x.dtype == np.float32 and reads_tf32 else x


def _product(name: str, of_numpy: Callable) -> Callable:
    def call(a: Any, b: Any, out: Any = None) -> Any:
        if not isinstance(a, ndarray) or not isinstance(b, ndarray):
            raise TypeError(f"Unsupported type {type(b if isinstance(a, ndarray) else a)}")
        hosts = [as_cublas_reads(operand(x)) for x in (a, b)]
        copies = _operand_copies(a, b)
        launch_in_library(name, CUBLASError(13))
        with np.errstate(all="ignore"):
            result = of_numpy(*hosts)
        if out is None:
            answer = wrapped(result)
            del copies  # until here the pool pays for them
            return answer
        if result.shape != out.shape:
            raise ValueError(f"Output array has shape {out.shape}, expected {result.shape}")
        # CuPy's answer is C order and of the type of the product; anything else takes a temporary first.
        direct = out.flags.c_contiguous and out.dtype == result.dtype and not _lies_under(out, [a, b])
        temporary = None if direct else created(np.asarray(result, order="C"))
        operand(out)[...] = result if temporary is None else temporary._host
        return out

    return named(call, name)


def _operand_copies(a: ndarray, b: ndarray) -> list[ndarray]:
    """Allocate the copies of operands that CuPy makes for a product, in a type and an order that cuBLAS takes.

    A matrix is taken as it is where it is contiguous in one order, a stack of matrices in C order alone; a product with
    one entry is a sum of the products of entries.
    """
    dtype, flat = np.promote_types(a.dtype, b.dtype), max(a.ndim, b.ndim) <= 2
    if a.size == 0 or b.size == 0:
        return []
    if flat and a.size == b.size == max(a.shape[-1:], default=0):
        return [created(np.empty(a.size, dtype))]
    fits = [x.dtype == dtype and (x.flags.c_contiguous or (flat and x.flags.f_contiguous)) for x in (a, b)]
    return [created(np.empty(x.shape, dtype)) for x, fit in zip((a, b), fits, strict=True) if not fit]


matmul = _product("matmul", np.matmul)
dot = _product("dot", np.dot)
