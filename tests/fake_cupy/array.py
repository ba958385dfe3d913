"""The array: NumPy memory behind CuPy's face. It refuses what CuPy refuses, and a little more.

Stricter than CuPy: work on an array whose device is not the current one raises RuntimeError (CuPy goes on where the
devices can read each other), and new memory holds NaN or a large integer, so that nobody builds on zeros.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from . import state as device
from .devices import Device, _order_copies, get_current_stream, is_pinned
from .memory import Memory, MemoryPointer

DTYPES = frozenset("?bBhHiIlLqQefdFD")


class Flags:
    """`x.flags`."""

    def __init__(self, host: np.ndarray, own: bool) -> None:
        self.c_contiguous = bool(host.flags.c_contiguous)
        self.f_contiguous = bool(host.flags.f_contiguous)
        self.owndata = own

    @property
    def fnc(self) -> bool:
        return self.f_contiguous and not self.c_contiguous

    @property
    def forc(self) -> bool:
        return self.f_contiguous or self.c_contiguous

    def __getitem__(self, name: str) -> bool:
        return {"C_CONTIGUOUS": self.c_contiguous, "F_CONTIGUOUS": self.f_contiguous, "OWNDATA": self.owndata}[name]


class ndarray:
    """An array on a fake device."""

    __slots__ = ("__weakref__", "_base", "_host", "_memory")
    __hash__ = None
    __array_priority__ = 100

    def __new__(
        cls, shape: Any, dtype: Any = float, memptr: MemoryPointer | None = None, strides: Any = None, order: str = "C"
    ) -> ndarray:
        if memptr is None:
            return created(np.empty(shape, checked_dtype(dtype), order or "C"), poison=True)
        dtype = checked_dtype(dtype)
        offset = memptr.ptr - memptr.mem.ptr
        host = np.ndarray(shape, dtype, memptr.mem.buffer.reshape(-1, order="A").view(np.uint8), offset, strides, order)
        return _bare(host, memptr.mem, None)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    # What is known without the device

    shape = property(lambda self: self._host.shape)
    dtype = property(lambda self: self._host.dtype)
    ndim = property(lambda self: self._host.ndim)
    size = property(lambda self: self._host.size)
    nbytes = property(lambda self: self._host.nbytes)
    itemsize = property(lambda self: self._host.itemsize)
    strides = property(lambda self: self._host.strides)
    base = property(lambda self: self._base)
    flags = property(lambda self: Flags(self._host, self._base is None))
    device = property(lambda self: Device(self._memory.device_id))

    @property
    def data(self) -> MemoryPointer:
        pointer = self._host.__array_interface__["data"][0] if self.size else 0
        return MemoryPointer(self._memory, pointer - self._memory.ptr)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        interface = {"shape": self.shape, "typestr": self.dtype.str, "version": 3, "strides": self.strides}
        return interface | {"data": (self.data.ptr, False), "stream": 1}

    def __len__(self) -> int:
        return len(self._host)

    def __iter__(self) -> Any:
        if self.ndim == 0:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(len(self)))

    # To the host

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. "
            "Please use `.get()` to construct a NumPy array explicitly."
        )

    def get(self, stream: Any = None, order: str = "C", out: np.ndarray | None = None, blocking: bool = True) -> Any:
        if out is not None and (out.shape != self.shape or out.dtype != self.dtype):
            raise ValueError("out must have the shape and the dtype of the array")
        if not blocking and out is not None and is_pinned(out):
            device.operate()
            (stream or get_current_stream())._later(lambda: np.copyto(out, self._host))
            return out
        device.transfer()
        (stream or get_current_stream())._complete()
        _order_copies()
        if out is None:
            return np.array(self._host, order=order, copy=True)
        out[...] = self._host
        return out

    def set(self, arr: np.ndarray, stream: Any = None) -> None:
        if not isinstance(arr, np.ndarray):
            raise TypeError("Only numpy.ndarray can be set to cupy.ndarray")
        if arr.dtype != self.dtype:
            raise TypeError(f"{arr.dtype} array cannot be set to {self.dtype} array")
        if arr.shape != self.shape:
            raise ValueError(f"Shape mismatch. Old shape: {self.shape}, new shape: {arr.shape}")
        if not self.flags.forc:
            raise RuntimeError("Cannot set to non-contiguous array")
        if arr.flags.forc and is_pinned(arr):
            device.operate()
            (stream or get_current_stream())._later(lambda: np.copyto(self._host, arr))
            return
        device.transfer()
        (stream or get_current_stream())._complete()
        self._host[...] = arr

    def item(self, *args: int) -> Any:
        if self.size != 1 and not args:
            raise ValueError("can only convert an array of size 1 to a Python scalar")
        return self.get().item(*args)

    def tolist(self) -> Any:
        return self.get().tolist()

    def tobytes(self, order: str = "C") -> bytes:
        return self.get().tobytes(order)

    def __bool__(self) -> bool:
        return bool(self.get())

    def __int__(self) -> int:
        return int(self.get())

    def __float__(self) -> float:
        return float(self.get())

    def __complex__(self) -> complex:
        return complex(self.get())

    def __repr__(self) -> str:
        return repr(self.get())

    def __str__(self) -> str:
        return str(self.get())

    def __reduce__(self) -> tuple:
        return array, (self.get(order="A"),)

    def __copy__(self) -> ndarray:
        return self.copy()

    def __deepcopy__(self, memo: dict) -> ndarray:
        with self.device:
            return self.copy()

    # Views: no kernel, so any device may be current

    T = property(lambda self: self._view(self._host.T))
    mT = property(lambda self: self._view(self._host.mT))

    @property
    def real(self) -> ndarray:
        return self._view(self._host.real)

    @property
    def flat(self) -> Any:
        return iter(self.ravel())

    def view(self, dtype: Any = None) -> ndarray:
        return self._view(self._host.view() if dtype is None else self._host.view(dtype))

    def transpose(self, *axes: Any) -> ndarray:
        return self._view(self._host.transpose(*axes))

    def swapaxes(self, axis1: int, axis2: int) -> ndarray:
        return self._view(self._host.swapaxes(axis1, axis2))

    def squeeze(self, axis: Any = None) -> ndarray:
        return self._view(self._host.squeeze(axis))

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> ndarray:
        return self._view(self._host.diagonal(offset, axis1, axis2))

    def reshape(self, *shape: Any, order: str = "C") -> ndarray:
        return self._view_or_copy(self._host.reshape(*shape, order=order))

    def ravel(self, order: str = "C") -> ndarray:
        return self._view_or_copy(self._host.ravel(order))

    def _view(self, host: np.ndarray) -> ndarray:
        if not host.flags.writeable:  # NumPy's diagonals and broadcasts are read only, CuPy's are not
            host = np.asarray(_Writable(host))
        return _bare(host, self._memory, self if self._base is None else self._base)

    def _view_or_copy(self, host: np.ndarray) -> ndarray:
        if self.size == 0 or np.may_share_memory(host, self._host):
            return self._view(host)
        device.launch("copy")
        return created(host)

    # Copies

    def copy(self, order: str = "C") -> ndarray:
        """Onto the current device, from any."""
        device.launch("copy")
        return created(self._host.copy(order))

    def flatten(self, order: str = "C") -> ndarray:
        return self.copy(order).ravel(order) if self.ndim != 1 else self.copy()

    def astype(self, dtype: Any, order: str = "K", casting: Any = None, subok: Any = None, copy: bool = True) -> Any:
        if casting is not None or subok is not None:
            raise TypeError("casting and subok are not supported")
        dtype = checked_dtype(dtype)
        laid_out = {"C": self._host.flags.c_contiguous, "F": self._host.flags.f_contiguous}.get(order, True)
        if not copy and dtype == self.dtype and laid_out and self._memory.device_id == device.current_device():
            return self
        device.launch("astype")
        with np.errstate(all="ignore"):
            return created(self._host.astype(dtype, order=order))

    def fill(self, value: Any) -> None:
        if isinstance(value, np.ndarray):
            if value.shape != ():
                raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
            value = value.item()
        value = operand(value)
        check_place(self)
        device.launch("fill")
        self._host[...] = value

    def sort(self, axis: int = -1, kind: Any = None) -> None:
        check_place(self)
        device.launch("sort")
        self._host.sort(axis, kind="stable")

    # Indexing

    def __getitem__(self, index: Any) -> ndarray:
        host_index, advanced = _index(self, index)
        if not advanced:
            return self._view(np.asarray(self._host[_with_ellipsis(host_index)]))
        check_place(self)
        device.launch("take")
        return created(np.array(self._host[host_index], order="C"))

    def __setitem__(self, index: Any, value: Any) -> None:
        host_index, advanced = _index(self, index)
        check_place(self)
        if isinstance(value, ndarray):
            check_place(value)
            device.launch("copy")
            with np.errstate(all="ignore"):
                self._host[host_index] = value._host
        elif advanced and not np.isscalar(value):
            self._host[host_index] = array(value, dtype=self.dtype)._host
        else:
            self[index].fill(value) if not advanced else self._fill_at(host_index, value)

    def _fill_at(self, host_index: Any, value: Any) -> None:
        device.launch("scatter")
        self._host[host_index] = operand(value)

    # NumPy's doors

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        from . import functions

        if method != "__call__" or not hasattr(functions, ufunc.__name__):
            return NotImplemented
        if "out" in kwargs:
            (kwargs["out"],) = kwargs["out"]
        return getattr(functions, ufunc.__name__)(*inputs, **kwargs)

    def __array_function__(self, function: Callable, types: Any, args: Any, kwargs: Any) -> Any:
        from . import functions, linalg

        home = linalg if function.__module__ == "numpy.linalg" else functions
        if not hasattr(home, function.__name__):
            return NotImplemented
        return getattr(home, function.__name__)(*args, **kwargs)


ndarray.__module__ = "cupy"


class _Writable:
    """The memory of an array, offered again without its protection."""

    def __init__(self, host: np.ndarray) -> None:
        interface = dict(host.__array_interface__)
        self.__array_interface__ = interface | {"data": (interface["data"][0], False)}
        self._host = host


def _bare(host: np.ndarray, memory: Memory, base: ndarray | None) -> ndarray:
    made = object.__new__(ndarray)
    made._host, made._memory, made._base = host, memory, base
    return made


def created(host: np.ndarray, poison: bool = False) -> ndarray:
    """A new array on the current device that owns the memory of `host`."""
    memory = Memory(host)
    if poison:
        host.fill(np.nan if host.dtype.kind in "fc" else 1 if host.dtype.kind == "b" else np.iinfo(host.dtype).max)
    return _bare(host, memory, None)


def checked_dtype(dtype: Any) -> np.dtype:
    """NumPy's dtype, if CuPy has it."""
    dtype = np.dtype(dtype)
    if dtype.char not in DTYPES or not dtype.isnative:
        raise ValueError(f"Unsupported dtype {dtype}")
    return dtype


def check_place(x: ndarray) -> None:
    """Refuse to work on an array of another device."""
    if x._memory.device_id != device.current_device():
        raise RuntimeError(
            f"The device where the array resides ({x._memory.device_id}) is different from the current device "
            f"({device.current_device()})."
        )


def operand(x: Any) -> Any:
    """An operand of a kernel for NumPy: a fake array's memory or a number; anything else is refused."""
    if isinstance(x, ndarray):
        check_place(x)
        return x._host
    if isinstance(x, (bool, int, float, complex, np.number, np.bool_)):
        return x
    raise TypeError(f"Unsupported type {type(x)}")


def array(
    obj: Any,
    dtype: Any = None,
    copy: bool | None = True,
    order: str | None = "K",
    subok: bool = False,
    ndmin: int = 0,
    *,
    blocking: bool = False,
) -> ndarray:
    """Host data onto the current device, or a device array there."""
    order = order or "K"
    if isinstance(obj, ndarray):
        made = obj.astype(obj.dtype if dtype is None else dtype, order=order, copy=bool(copy))
    elif holds_device_arrays(obj):
        from . import functions

        made = functions.stack([array(x, dtype=dtype, copy=False) for x in obj])
    else:
        host = np.array(obj, dtype=dtype, order=order, copy=True)
        checked_dtype(host.dtype)
        device.transfer()
        made = created(np.array(host) if host.base is not None else host)
    while made.ndim < ndmin:
        made = made[None]
    return made


array.__module__ = "cupy"


def holds_device_arrays(x: Any) -> bool:
    """Whether a list or tuple has device arrays somewhere inside."""
    return isinstance(x, (list, tuple)) and any(isinstance(y, ndarray) or holds_device_arrays(y) for y in x)


def _with_ellipsis(index: Any) -> Any:
    """With an ellipsis NumPy gives a view also where every axis has a number."""
    index = index if isinstance(index, tuple) else (index,)
    return index if any(i is Ellipsis for i in index) else (*index, Ellipsis)


def _index(x: ndarray, index: Any) -> tuple[Any, bool]:
    """The index for NumPy, and whether arrays are in it; integers out of bounds wrap around in arrays, as in CuPy."""
    parts = list(index) if isinstance(index, tuple) else [index]
    parts = [_as_device_index(part) for part in parts]
    taken = sum(part.ndim if _is_mask(part) else part is not None and part is not Ellipsis for part in parts)
    axis, advanced, found = 0, False, []
    for part in parts:
        if part is Ellipsis:
            axis += x.ndim - taken
        elif isinstance(part, ndarray):
            advanced = True
            check_place(part)
            found.append(part._host if _is_mask(part) else np.mod(part._host, max(1, x.shape[axis])))
            axis += part.ndim if _is_mask(part) else 1
            continue
        elif part is not None:
            axis += 1
        found.append(part)
    return (tuple(found) if isinstance(index, tuple) else found[0]), advanced


def _is_mask(part: Any) -> bool:
    return isinstance(part, ndarray) and part.dtype.kind == "b"


def _as_device_index(part: Any) -> Any:
    if part is None or part is Ellipsis or isinstance(part, (slice, ndarray)):
        return part
    if np.isscalar(part) and not isinstance(part, (bool, np.bool_)):
        return operator.index(part)
    host = np.asarray(part)
    if isinstance(part, (list, tuple)) and host.size == 0:
        host = host.astype(np.int32)
    if host.dtype.kind not in "iub":
        raise IndexError(
            "only integers, slices (`:`), ellipsis (`...`),numpy.newaxis (`None`) and integer or boolean arrays are "
            "valid indices"
        )
    return array(host)


def _binary(name: str, swapped: bool = False, inplace: bool = False) -> Callable:
    def method(self: ndarray, other: Any) -> Any:
        from . import functions

        if getattr(other, "__array_priority__", 0) > self.__array_priority__ and not isinstance(other, ndarray):
            return NotImplemented
        function = getattr(functions, name)
        if inplace:
            return function(self, other, out=self)
        return function(other, self) if swapped else function(self, other)

    return method


def _unary(name: str) -> Callable:
    def method(self: ndarray) -> Any:
        from . import functions

        return getattr(functions, name)(self)

    return method


def _delegated(name: str) -> Callable:
    def method(self: ndarray, *args: Any, **kwargs: Any) -> Any:
        from . import functions

        return getattr(functions, name)(self, *args, **kwargs)

    return method


OPERATORS = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "true_divide",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "pow": "power",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "left_shift",
    "rshift": "right_shift",
}
COMPARISONS = {
    "lt": "less",
    "le": "less_equal",
    "eq": "equal",
    "ne": "not_equal",
    "gt": "greater",
    "ge": "greater_equal",
}
METHODS = (
    "all any argmax argmin argpartition argsort choose clip compress conj conjugate cumprod cumsum dot max mean min "
    "nonzero partition prod ptp put repeat round searchsorted std sum take trace var"
)

for _short, _long in OPERATORS.items():
    setattr(ndarray, f"__{_short}__", _binary(_long))
    setattr(ndarray, f"__r{_short}__", _binary(_long, swapped=True))
    setattr(ndarray, f"__i{_short}__", _binary(_long, inplace=True))
for _short, _long in COMPARISONS.items():
    setattr(ndarray, f"__{_short}__", _binary(_long))
ndarray.__matmul__, ndarray.__rmatmul__ = _binary("matmul"), _binary("matmul", swapped=True)
ndarray.__divmod__ = _binary("divmod")
ndarray.__neg__, ndarray.__pos__, ndarray.__invert__ = _unary("negative"), _unary("positive"), _unary("invert")
ndarray.__abs__ = _unary("absolute")
ndarray.imag = property(_unary("imag"))
for _name in METHODS.split():
    setattr(ndarray, _name, _delegated(_name))
