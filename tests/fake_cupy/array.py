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
        self.c_contiguous, self.f_contiguous = bool(host.flags.c_contiguous), bool(host.flags.f_contiguous)
        self.owndata = own
        self.fnc, self.forc = self.f_contiguous and not self.c_contiguous, self.f_contiguous or self.c_contiguous


class ndarray:
    """An array on an imitated device."""

    __slots__ = ("__weakref__", "_base", "_host", "_memory")
    __hash__ = None
    __array_ufunc__ = None  # NumPy leaves every operator to the array, which refuses host arrays

    def __new__(cls, shape: Any, dtype: Any = float, order: str = "C") -> ndarray:
        return created(np.empty(shape, checked_dtype(dtype), order), poison=True)

    # Known without the device

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

    def __len__(self) -> int:
        return len(self._host)

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    # To the host

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. "
            "Please use `.get()` to construct a NumPy array explicitly."
        )

    def get(self, stream: Any = None, order: str = "C", out: np.ndarray | None = None, blocking: bool = True) -> Any:
        device.transfer()
        (stream or get_current_stream())._complete()
        _order_copies()
        if out is None:
            return np.array(self._host, order=order, copy=True)
        if out.shape != self.shape or out.dtype != self.dtype:
            raise ValueError("out must have the shape and the dtype of the array")
        out[...] = self._host
        return out

    def set(self, arr: np.ndarray, stream: Any = None) -> None:
        if not isinstance(arr, np.ndarray) or arr.dtype != self.dtype or arr.shape != self.shape:
            raise TypeError(f"only a host array of dtype {self.dtype} and shape {self.shape} can be set")
        if not self.flags.forc:
            raise RuntimeError("Cannot set to non-contiguous array")
        if is_pinned(arr):
            device.operate()
            (stream or get_current_stream())._copies.append(lambda: np.copyto(self._host, arr))
            return
        device.transfer()
        (stream or get_current_stream())._complete()
        self._host[...] = arr

    def item(self) -> Any:
        return self.get().item()

    def tolist(self) -> Any:
        return self.get().tolist()

    def __bool__(self) -> bool:
        return bool(self.get())

    def __int__(self) -> int:
        return int(self.get())

    def __float__(self) -> float:
        return float(self.get())

    def __repr__(self) -> str:
        return repr(self.get())

    def __deepcopy__(self, memo: dict) -> ndarray:
        with self.device:
            return self.copy()

    # Views: no kernel, so any device may be current

    T = property(lambda self: self._view(self._host.T))
    mT = property(lambda self: self._view(self._host.mT))
    real = property(lambda self: self._view(self._host.real))

    def view(self, dtype: Any = None) -> ndarray:
        return self._view(self._host.view() if dtype is None else self._host.view(dtype))

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

    def astype(self, dtype: Any, order: str = "K", copy: bool = True) -> ndarray:
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

    # Indexing

    def __getitem__(self, index: Any) -> ndarray:
        host_index, advanced = _index(self, index)
        if not advanced:
            # With an ellipsis NumPy gives a view also where every axis has a number.
            parts = host_index if isinstance(host_index, tuple) else (host_index,)
            return self._view(np.asarray(self._host[parts if any(i is Ellipsis for i in parts) else (*parts, ...)]))
        check_place(self)
        device.launch("take")
        return created(np.array(self._host[host_index], order="C"))

    def __setitem__(self, index: Any, value: Any) -> None:
        host_index, advanced = _index(self, index)
        check_place(self)
        if not isinstance(value, ndarray) and not advanced:
            self[index].fill(value)
            return
        device.launch("copy")
        with np.errstate(all="ignore"):
            self._host[host_index] = operand(value)


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
    """Return a new array on the current device that owns the memory of `host`."""
    memory = Memory(host)
    if poison:
        host.fill(np.nan if host.dtype.kind in "fc" else 1 if host.dtype.kind == "b" else np.iinfo(host.dtype).max)
    return _bare(host, memory, None)


def checked_dtype(dtype: Any) -> np.dtype:
    """Return NumPy's dtype, if CuPy has it."""
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
    """Return an operand of a kernel for NumPy: the memory of an array or a number; anything else is refused."""
    if isinstance(x, ndarray):
        check_place(x)
        return x._host
    if isinstance(x, (bool, int, float, complex, np.number, np.bool_)):
        return x
    raise TypeError(f"Unsupported type {type(x)}")


def array(obj: Any, dtype: Any = None, copy: bool | None = True, order: str | None = "K") -> ndarray:
    """Return host data on the current device, or a device array there."""
    order = order or "K"
    if isinstance(obj, ndarray):
        return obj.astype(obj.dtype if dtype is None else dtype, order=order, copy=bool(copy))
    host = np.array(obj, dtype=dtype, order=order, copy=True)
    checked_dtype(host.dtype)
    device.transfer()
    return created(np.array(host) if host.base is not None else host)


array.__module__ = "cupy"


def _index(x: ndarray, index: Any) -> tuple[Any, bool]:
    """Return the index for NumPy, and whether arrays are in it. Integers out of bounds wrap around, as in CuPy."""
    parts = [_as_device_index(part) for part in (index if isinstance(index, tuple) else (index,))]
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
    host = host.astype(np.int32) if host.size == 0 else host
    if host.dtype.kind not in "iub":
        raise IndexError("only integers, slices, ellipsis, None and integer or boolean arrays are valid indices")
    return array(host)


def _method(name: str, swapped: bool = False, inplace: bool = False) -> Callable:
    """Return a method that calls the function of the namespace."""

    def method(self: ndarray, *args: Any, **kwargs: Any) -> Any:
        from . import functions

        function = getattr(functions, name)
        if inplace:
            return function(self, *args, out=self)
        return function(*args, self) if swapped else function(self, *args, **kwargs)

    return method


OPERATORS = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "true_divide", "floordiv": "floor_divide",
    "mod": "remainder", "pow": "power", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
    "matmul": "matmul",
}  # fmt: skip
SINGLE = {
    "lt": "less", "le": "less_equal", "eq": "equal", "ne": "not_equal", "gt": "greater", "ge": "greater_equal",
    "neg": "negative", "pos": "positive", "invert": "invert", "abs": "absolute",
}  # fmt: skip
METHODS = (
    "all any argmax argmin argsort clip conj cumsum diagonal dot max mean min nonzero prod repeat round squeeze std "
    "sum swapaxes take trace transpose var"
)

for _short, _long in OPERATORS.items():
    setattr(ndarray, f"__{_short}__", _method(_long))
    setattr(ndarray, f"__r{_short}__", _method(_long, swapped=True))
    setattr(ndarray, f"__i{_short}__", _method(_long, inplace=True))
for _short, _long in SINGLE.items():
    setattr(ndarray, f"__{_short}__", _method(_long))
for _name in METHODS.split():
    setattr(ndarray, _name, _method(_name))
