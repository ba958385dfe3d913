"""The functions of the `cupy` namespace, made of NumPy's: unwrap, compute without warnings, wrap.

A NumPy array is refused as an operand everywhere but in the functions that bring host data onto the device (CuPy lets
some through by calling their methods); keyword arguments that CuPy's functions lack are refused too.
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

UFUNCS = (
    "abs absolute acos acosh add arccos arccosh arcsin arcsinh arctan arctan2 arctanh asin asinh atan atan2 atanh "
    "bitwise_and bitwise_count bitwise_invert bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift "
    "bitwise_xor cbrt ceil conj conjugate copysign cos cosh deg2rad degrees divide divmod equal exp exp2 expm1 fabs "
    "float_power floor floor_divide fmax fmin fmod frexp gcd greater greater_equal heaviside hypot invert isfinite "
    "isinf isnan lcm ldexp left_shift less less_equal log log10 log1p log2 logaddexp logaddexp2 logical_and "
    "logical_not logical_or logical_xor maximum minimum mod modf multiply negative nextafter not_equal positive pow "
    "power rad2deg radians reciprocal remainder right_shift rint sign signbit sin sinh sqrt square subtract tan tanh "
    "true_divide trunc"
)
# Computed by kernels, with new memory for the answer.
COMPUTED = (
    "all allclose amax amin angle any append argmax argmin argpartition argsort argwhere around array_equal "
    "array_equiv average bincount choose clip column_stack compress convolve corrcoef correlate count_nonzero cov "
    "cross cumprod cumsum cumulative_prod cumulative_sum delete diag diagflat diff digitize dstack ediff1d einsum "
    "extract flatnonzero flip fliplr flipud gradient histogram hstack i0 imag inner interp intersect1d isclose "
    "iscomplex isin isneginf isposinf isreal kron lexsort max mean median meshgrid min nan_to_num nanargmax nanargmin "
    "nancumprod nancumsum nanmax nanmean nanmedian nanmin nanprod nanstd nansum nanvar nonzero outer packbits pad "
    "partition percentile prod ptp quantile ravel_multi_index repeat resize roll rot90 round searchsorted select "
    "setdiff1d setxor1d sinc sort stack std sum take take_along_axis tensordot tile trace trapezoid tri tril "
    "tril_indices triu triu_indices union1d unique unique_all unique_counts unique_inverse unique_values unpackbits "
    "unravel_index unwrap vander var vdot vstack where"
)
# Another look at the same memory: no kernel.
VIEWS = (
    "array_split atleast_1d atleast_2d atleast_3d broadcast_arrays broadcast_to diagonal dsplit expand_dims hsplit "
    "matrix_transpose moveaxis permute_dims ravel real rollaxis split squeeze swapaxes transpose vsplit"
)
# Write into their first argument.
WRITERS = "fill_diagonal place put put_along_axis putmask"
# Answer on the host.
HOST = (
    "can_cast iscomplexobj isfortran isrealobj isscalar may_share_memory min_scalar_type ndim result_type shape "
    "shares_memory size common_type"
)
# Keyword arguments that NumPy has and CuPy has not: of any function, and of some.
FOREIGN_KEYWORDS = frozenset(
    ("where", "initial", "subok", "like", "device", "correction", "stable", "descending", "weights", "order", "mean")
)
FOREIGN_TO = {
    "argpartition": {"kind"},
    "clip": {"min", "max"},
    "count_nonzero": {"keepdims"},
    "isin": {"kind"},
    "packbits": {"axis"},
    "partition": {"kind"},
    "take": {"mode"},
    "unique": {"sorted"},
    "unpackbits": {"axis", "count"},
}


class ufunc:
    """An elementwise function."""

    def __init__(self, name: str) -> None:
        self._numpy = getattr(np, name)
        self.name = f"cupy_{name}"
        self.__name__ = name
        self.nin, self.nout = self._numpy.nin, self._numpy.nout
        self.nargs = self.nin + self.nout

    def __repr__(self) -> str:
        return f"<ufunc '{self.name}'>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if unknown := set(kwargs) - {"out", "dtype", "casting"}:
            raise TypeError(f"Wrong arguments {unknown}")
        if not self.nin <= len(args) <= self.nargs:
            raise TypeError(f"Wrong number of arguments for {self.name!r}.")
        out = kwargs.pop("out", None)
        outs = args[self.nin :] if out is None else out if isinstance(out, tuple) else (out,)
        outs = [*outs, *[None] * (self.nout - len(outs))]
        if any(out is not None and not isinstance(out, ndarray) for out in outs):
            raise TypeError("Output arguments type must be cupy.ndarray")
        hosts = [operand(x) for x in args[: self.nin]]
        kwargs["out"] = tuple(None if out is None else operand(out) for out in outs)
        given = [out for out in outs if out is not None]
        apart = [created(x._host.copy()) for x in args[: self.nin] if _lies_under(x, given)]
        device.launch(self.__name__)
        with np.errstate(all="ignore"):
            result = self._numpy(*hosts, order="C", **kwargs)
        del apart  # until here the pool pays for them
        return wrapped(result, given)

    def __reduce__(self) -> str:
        return self.__name__


ufunc.__module__ = "cupy"


def _lies_under(x: Any, outs: list[ndarray]) -> bool:
    """Return True if CuPy copies an operand before it writes, since an output may overlap it."""
    return isinstance(x, ndarray) and any(x is not out and np.may_share_memory(x._host, out._host) for out in outs)


def wrapped(result: Any, sources: Any = ()) -> Any:
    """NumPy's answer as device arrays, in C order; what shares memory with a source is a view of it."""
    if isinstance(result, tuple):
        return tuple(wrapped(part, sources) for part in result)
    if isinstance(result, list):
        return [wrapped(part, sources) for part in result]
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


def unwrapped(x: Any, sources: list[ndarray], anywhere: bool = False) -> Any:
    """An argument for NumPy; the device arrays in it are appended to `sources`."""
    if isinstance(x, ndarray):
        if not anywhere:
            check_place(x)
        sources.append(x)
        return x._host
    if isinstance(x, np.ndarray):
        raise TypeError(f"Unsupported type {type(x)}")
    if type(x) in (list, tuple):
        return type(x)(unwrapped(y, sources, anywhere) for y in x)
    return x


def _function(name: str, numpy_function: Callable, *, view: bool = False, writes: bool = False) -> Callable:
    def function(*args: Any, **kwargs: Any) -> Any:
        if foreign := (FOREIGN_KEYWORDS | FOREIGN_TO.get(name, set())) & set(kwargs):
            raise TypeError(f"{name}() got an unexpected keyword argument {min(foreign)!r}")
        sources: list[ndarray] = []
        args = tuple(unwrapped(x, sources, view) for x in args)
        kwargs = {key: unwrapped(x, sources, view) for key, x in kwargs.items()}
        if not view:
            device.launch(name)
        with np.errstate(all="ignore"):
            result = numpy_function(*args, **kwargs)
        return None if writes else wrapped(result, sources)

    return _named(function, name)


def _host_function(name: str) -> Callable:
    def function(*args: Any, **kwargs: Any) -> Any:
        sources: list[ndarray] = []
        return getattr(np, name)(*(unwrapped(x, sources, True) for x in args), **kwargs)

    return _named(function, name)


def _named(function: Callable, name: str, module: str = "cupy") -> Callable:
    function.__name__ = function.__qualname__ = name
    function.__module__ = module
    return function


# In a table and not among the globals, where `any`, `max` and others would hide Python's own.
_MADE: dict[str, Any] = {
    **{name: ufunc(name) for name in UFUNCS.split()},
    **{name: _function(name, getattr(np, name)) for name in COMPUTED.split()},
    **{name: _function(name, getattr(np, name), view=True) for name in VIEWS.split()},
    **{name: _function(name, getattr(np, name), writes=True) for name in WRITERS.split()},
    **{name: _host_function(name) for name in HOST.split()},
    "fix": _function("fix", np.trunc),
    # No kernel can raise: indices out of bounds wrap around.
    "take": _function("take", partial(np.take, mode="wrap")),
}


def __getattr__(name: str) -> Any:
    try:
        return _MADE[name]
    except KeyError:
        raise AttributeError(f"module 'cupy' has no attribute {name!r}") from None


# Creation


def asarray(
    a: Any, dtype: Any = None, order: str | None = None, *, copy: bool | None = None, blocking: bool = False
) -> ndarray:
    return array(a, dtype, bool(copy), order, blocking=blocking)


asanyarray = asarray


def ascontiguousarray(a: Any, dtype: Any = None) -> ndarray:
    made = array(a, dtype, False, "C")
    return made if made.ndim else made.reshape(1)


def asfortranarray(a: Any, dtype: Any = None) -> ndarray:
    return array(a, dtype, False, "F")


def asnumpy(a: Any, stream: Any = None, order: str = "C", out: Any = None, *, blocking: bool = True) -> np.ndarray:
    if isinstance(a, ndarray):
        return a.get(stream, order, out, blocking)
    return np.asarray(a, order=order)


def empty(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    return ndarray(shape, dtype, order=order)


def zeros(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    return full(shape, 0, float if dtype is None else dtype, order)


def ones(shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
    return full(shape, 1, float if dtype is None else dtype, order)


def full(shape: Any, fill_value: Any, dtype: Any = None, order: str = "C") -> ndarray:
    if dtype is None:
        dtype = fill_value.dtype if isinstance(fill_value, ndarray) else np.array(fill_value).dtype
    made = created(np.empty(shape, checked_dtype(dtype), order))
    if isinstance(fill_value, ndarray):
        made[...] = fill_value
    else:
        made.fill(fill_value)
    return made


def empty_like(
    prototype: ndarray, dtype: Any = None, order: str = "K", subok: Any = None, shape: Any = None
) -> ndarray:
    host = np.empty_like(_device_array(prototype)._host, dtype, order, shape=shape)
    checked_dtype(host.dtype)
    return created(host, poison=True)


def full_like(
    a: ndarray, fill_value: Any, dtype: Any = None, order: str = "K", subok: Any = None, shape: Any = None
) -> ndarray:
    made = empty_like(a, dtype, order, subok, shape)
    made[...] = fill_value
    return made


def zeros_like(a: ndarray, dtype: Any = None, order: str = "K", subok: Any = None, shape: Any = None) -> ndarray:
    return full_like(a, 0, dtype, order, subok, shape)


def ones_like(a: ndarray, dtype: Any = None, order: str = "K", subok: Any = None, shape: Any = None) -> ndarray:
    return full_like(a, 1, dtype, order, subok, shape)


def _device_array(x: Any) -> ndarray:
    if not isinstance(x, ndarray):
        raise TypeError(f"Unsupported type {type(x)}")
    return x


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> ndarray:
    device.launch("arange")
    numbers = np.arange(start, dtype=dtype) if stop is None else np.arange(start, stop, step, dtype=dtype)
    if stop is None and step != 1:
        numbers = np.arange(0, start, step, dtype=dtype)
    return created(numbers)


def eye(N: int, M: int | None = None, k: int = 0, dtype: Any = float, order: str = "C") -> ndarray:
    device.launch("eye")
    return created(np.eye(N, M, k, float if dtype is None else checked_dtype(dtype), order))


def identity(n: int, dtype: Any = float) -> ndarray:
    return eye(n, dtype=dtype)


linspace = _function("linspace", np.linspace)
logspace = _function("logspace", np.logspace)
indices = _function("indices", np.indices)


def astype(x: ndarray, dtype: Any, /, *, copy: bool = True) -> ndarray:
    return _device_array(x).astype(dtype, copy=copy)


def copy(a: Any, order: str = "K") -> ndarray:
    if not isinstance(a, ndarray):
        return array(a, order=order)
    device.launch("copy")
    return created(a._host.copy(order))


def copyto(dst: ndarray, src: Any, casting: str = "same_kind", where: Any = None) -> None:
    device.launch("copyto")
    np.copyto(operand(dst), operand(src), casting, True if where is None else operand(where))


def reshape(a: ndarray, newshape: Any, order: str = "C", *, copy: bool | None = None) -> ndarray:
    return _device_array(a).copy().reshape(newshape, order=order) if copy else a.reshape(newshape, order=order)


def concatenate(
    tup: Any, axis: int | None = 0, out: Any = None, *, dtype: Any = None, casting: Any = "same_kind"
) -> Any:
    for x in tup:
        if not isinstance(x, ndarray):
            raise TypeError("Only cupy arrays can be concatenated")
    device.launch("concatenate")
    hosts = [operand(x) for x in tup]
    if out is None:
        return created(np.asarray(np.concatenate(hosts, axis, dtype=dtype, casting=casting), order="C"))
    np.concatenate(hosts, axis, operand(out), casting=casting)
    return out


concat = concatenate


# Products

COMPUTE_TYPES = ("TBD", "DEFAULT", "PEDANTIC", "FP16", "FP32", "FP64", "BF16", "TF32")
TBD, DEFAULT, PEDANTIC, TF32 = 0, 1, 2, 7
_compute_types = {"e": TBD, "f": TBD, "d": TBD}


def forget_compute_types() -> None:
    _compute_types.update(dict.fromkeys(_compute_types, TBD))


def to_compute_type_index(dtype: Any) -> str:
    char = np.dtype(dtype).char.lower()
    if char not in _compute_types:
        raise TypeError(f"dtype is not supported: {dtype}")
    return char


def set_compute_type(dtype: Any, compute_type: int) -> None:
    if compute_type not in range(len(COMPUTE_TYPES)):
        raise ValueError(f"Unknown compute type: {compute_type}")
    _compute_types[to_compute_type_index(dtype)] = compute_type


def get_compute_type(dtype: Any) -> int:
    """CuPy reads its environment variable at the first question and remembers the answer."""
    char = to_compute_type_index(dtype)
    if _compute_types[char] == TBD:
        wanted = char == "f" and int(os.environ.get("CUPY_TF32", "0")) > 0
        _compute_types[char] = TF32 if wanted else DEFAULT
    return _compute_types[char]


def compute_type_to_str(compute_type: int) -> str:
    return f"COMPUTE_TYPE_{COMPUTE_TYPES[compute_type]}"


def rounded_to_tf32(x: np.ndarray) -> np.ndarray:
    """Return float32 numbers with 10 bits of mantissa."""
    bits = np.ascontiguousarray(x).view(np.uint32)
    rounded = (bits + np.uint32(0x0FFF) + ((bits >> np.uint32(13)) & np.uint32(1))) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(x), rounded.view(np.float32), x)


def as_cublas_reads(x: np.ndarray) -> np.ndarray:
    """Return an operand as the tensor cores see it."""
    return rounded_to_tf32(x) if x.dtype == np.float32 and reads_tf32() else x


def reads_tf32() -> bool:
    """NVIDIA's override forbids TF32 with 0 and asks for it with anything else, except where CuPy says pedantic."""
    override = os.environ.get("NVIDIA_TF32_OVERRIDE")
    kind = get_compute_type(np.dtype(np.float32))
    if override is not None:
        return override != "0" and kind != PEDANTIC
    return kind == TF32


def _product(name: str, numpy_function: Callable) -> Callable:
    def function(a: Any, b: Any, out: Any = None) -> Any:
        hosts = [as_cublas_reads(operand(_device_array(x))) for x in (a, b)]
        if out is not None:
            operand(_device_array(out))
        copies = _operand_copies(a, b)
        launch_in_library(name, CUBLASError(13))
        with np.errstate(all="ignore"):
            result = numpy_function(*hosts)
        if out is None:
            answer = wrapped(result)
            del copies  # until here the pool pays for them
            return answer
        if result.shape != out.shape:
            raise ValueError(f"Output array has shape {out.shape}, expected {result.shape}")
        if not np.can_cast(result.dtype, out.dtype, "same_kind"):
            raise TypeError(f"Cannot cast output from {result.dtype} to {out.dtype}")
        # CuPy's answer is C order and of the type of the product; anything else takes a temporary first.
        direct = out.flags.c_contiguous and out.dtype == result.dtype and not _lies_under(out, [a, b])
        temporary = None if direct else created(np.asarray(result, order="C"))
        out._host[...] = result if temporary is None else temporary._host
        return out

    return _named(function, name)


def _operand_copies(a: ndarray, b: ndarray) -> list[ndarray]:
    """Allocate the copies of operands that CuPy makes for a product, in a type and an order that cuBLAS takes.

    A matrix is taken as it is where it is contiguous in one order, a stack of matrices in C order alone; a product with
    one entry is a sum of the products of entries.
    """
    dtype = np.promote_types(a.dtype, b.dtype)
    if a.size == 0 or b.size == 0:
        return []
    if max(a.ndim, b.ndim) <= 2 and a.size == b.size == max(a.shape[-1:], default=0):
        return [created(np.empty(a.size, dtype))]
    return [created(np.empty(x.shape, dtype)) for x in (a, b) if x.dtype != dtype or not _taken_as_it_is(x, a, b)]


def _taken_as_it_is(x: ndarray, a: ndarray, b: ndarray) -> bool:
    return x.flags.c_contiguous or (max(a.ndim, b.ndim) <= 2 and x.flags.f_contiguous)


matmul = _product("matmul", np.matmul)
dot = _product("dot", np.dot)


def get_array_module(*args: Any) -> Any:
    import sys

    return sys.modules["cupy"] if any(isinstance(x, ndarray) for x in args) else np


def array_repr(x: Any, *args: Any, **kwargs: Any) -> str:
    return np.array_repr(asnumpy(x), *args, **kwargs)
