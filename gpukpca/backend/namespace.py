"""Namespaces, dtypes and devices of arrays, and copies between host and device."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import array_api_compat
import numpy as np
from scipy.sparse import issparse

from gpukpca._typing import Array
from gpukpca.cuda import device as cuda_device
from gpukpca.cuda import devices as cuda_devices
from gpukpca.cuda import exchange
from gpukpca.exceptions import DeviceMismatchError, InvalidParameterError

# Distances from 1 to the next number.
EPSILON = {name: float(np.finfo(name).eps) for name in ("float32", "float64")}
# Devices of CUDA in DLPack: its memory, and managed memory.
CUDA_OF_DLPACK = (2, 13)
# Between these, the squares of all entries that count are ordinary numbers of the type.
SAFE_NORMS = {"float32": (1e-9, 1e18), "float64": (1e-130, 1e150)}


def is_numpy(x: Any) -> bool:
    """Return whether `x` is a NumPy array, memory maps included."""
    return isinstance(x, np.ndarray)


def is_cupy(x: Any) -> bool:
    """Return whether `x` is a CuPy array."""
    return type(x) is not np.ndarray and array_api_compat.is_cupy_array(x)


def is_jax(x: Any) -> bool:
    """Return whether `x` is a JAX array."""
    return type(x) is not np.ndarray and array_api_compat.is_jax_array(x)


def is_memory_map(x: Any) -> bool:
    """Return whether `x` is a NumPy array whose memory is a file."""
    while isinstance(x, np.ndarray):
        if isinstance(x, np.memmap):
            return True
        x = x.base
    return False


def is_sparse(x: Any) -> bool:
    """Return whether `x` is a sparse container of SciPy, also of a subclass, which the standard does not know."""
    return type(x) is not np.ndarray and issparse(x)


def is_foreign(x: Any) -> bool:
    """Return whether `x` is an array of a library other than NumPy: of the standard, or an exporter."""
    if isinstance(x, (np.ndarray, np.generic)) or issparse(x):
        return False
    return array_api_compat.is_array_api_obj(x) or is_exporter(x)


def is_exporter(x: Any) -> bool:
    """Return whether CuPy takes the memory of `x`: on a CUDA device, of a library other than CuPy and JAX."""
    if isinstance(x, (np.ndarray, type)):
        return False
    has_dlpack = hasattr(x, "__dlpack_device__")
    if not (has_dlpack or hasattr(x, "__cuda_array_interface__")) or is_cupy(x) or is_jax(x):
        return False
    if array_api_compat.is_torch_array(x):
        return bool(x.device.type == "cuda")
    return not has_dlpack or x.__dlpack_device__()[0] in CUDA_OF_DLPACK


def imported(x: Any) -> Any:
    """Return the CuPy array that shares the memory of an exporter; anything else as it is."""
    if not is_exporter(x):
        return x
    return exchange.shared(x.detach() if array_api_compat.is_torch_array(x) else x)


def exported(x: Any, like: Any) -> Any:
    """Return a CuPy array in the library of an exporter, in the same memory; as it is where that takes no DLPack."""
    is_torch = array_api_compat.is_torch_array(like)
    library = sys.modules["torch"] if is_torch else getattr(like, "__array_namespace__", lambda: None)()
    take = getattr(library, "from_dlpack", None)
    return x if take is None else take(x)


def writes_in_place(x: Any) -> bool:
    """Return whether elementwise functions on `x` take ``out=``, which the standard lacks."""
    return isinstance(x, np.ndarray) or is_cupy(x)


def namespace_of(*arrays: Any) -> Any:
    """Return the Array API namespace that all arrays share; `DeviceMismatchError` where they share none.

    Sparse matrices count as NumPy. None is skipped.
    """
    for x in arrays:
        if type(x) is not np.ndarray:
            break
    else:  # by far the most frequent case
        return np  # which has the names of the standard, without the checks of array-api-compat
    if is_cupy(x) and all(type(y) is type(x) and y.device == x.device for y in arrays):  # each tile asks
        return sys.modules.get("array_api_compat.cupy") or array_api_compat.array_namespace(x)
    dense = [np.empty(0) if is_sparse(x) else x for x in arrays if x is not None]
    for x in dense or arrays[:1]:
        if not array_api_compat.is_array_api_obj(x):
            raise InvalidParameterError(
                f"expected an array, got {type(x).__name__}; convert it with numpy.asarray first."
            )
    devices = [array_api_compat.device(x) for x in dense]
    with suppress(TypeError):  # of arrays of several libraries
        xp = array_api_compat.array_namespace(*dense)
        if all(device == devices[0] for device in devices):
            return xp
    places = {f"{library_of(x)} on {device}" for x, device in zip(dense, devices, strict=True)}
    raise DeviceMismatchError(
        f"arrays live in different places: {', '.join(sorted(places))}. Move them to one library and device first."
    )


def library_of(x: Any) -> str:
    """Return the name of the package that defines the type of `x`."""
    return type(x).__module__.partition(".")[0]


def device_of(x: Any) -> Any:
    """Return the device of an array; None, which stands for the only one, for NumPy and sparse containers."""
    return None if isinstance(x, np.ndarray) or issparse(x) else array_api_compat.device(x)


def empty_like(x: Any, dtype: Any = None) -> Array:
    """Return an array of size 0 in the namespace, dtype and device of `x`."""
    if isinstance(x, np.ndarray) or issparse(x):
        return np.empty((0,), dtype=dtype or x.dtype)
    if is_cupy(x):  # array-api-compat makes new arrays on the current device, whichever is named
        return cuda_device.empty_on(x.device.id, dtype or x.dtype)
    return namespace_of(x).empty((0,), dtype=dtype or x.dtype, device=device_of(x))


def same_place(x: Any, y: Any) -> bool:
    """Return whether two arrays share library and device."""
    try:
        namespace_of(x, y)
    except DeviceMismatchError:
        return False
    return True


def accumulation_dtype(like: Any) -> Any:
    """Return the widest real floating type on the device of `like`."""
    if isinstance(like, np.ndarray) or issparse(like) or is_cupy(like):
        return np.float64
    return _widest(like, "real floating", "float64", "float32")


def index_dtype(like: Any) -> Any:
    """Return int64, or int32 where the device of `like` has no int64, as with JAX unless `jax_enable_x64` is set."""
    return _widest(like, "signed integer", "int64", "int32")


def _widest(like: Any, kind: str, wide: str, narrow: str) -> Any:
    """Return the wide dtype of a kind where the device of `like` has it, else the narrow one."""
    xp = namespace_of(like)
    known = xp.__array_namespace_info__().dtypes(device=device_of(like), kind=kind)
    return getattr(xp, wide if wide in known else narrow)


def real_floating(x: Any) -> bool:
    """Return whether `x` has a real floating dtype."""
    return is_sparse(x) or bool(namespace_of(x).isdtype(x.dtype, "real floating"))


def epsilon(like: Any) -> float:
    """Return the distance from 1 to the next number of the dtype of `like` (2.2e-16 or 1.2e-7)."""
    return EPSILON[dtype_name(like.dtype)]


def item_size(dtype: Any) -> int:
    """Return the bytes of an item of float32 or float64."""
    return 4 if dtype_name(dtype) == "float32" else 8


def dtype_name(dtype: Any) -> str:
    """Return "float32" or "float64" for a dtype of any library."""
    if isinstance(dtype, np.dtype):  # whose text takes 2 microseconds
        return "float32" if dtype.char == "f" else "float64"
    return "float32" if "float32" in str(dtype) else "float64"


def to_host(x: Any) -> np.ndarray:
    """Return an array as a NumPy array.

    Parameters
    ----------
    x : array of any library, or SciPy sparse matrix

    Returns
    -------
    numpy.ndarray
        The memory of `x` where it is on the host, else a copy. Sparse matrices become dense.

    See Also
    --------
    to_device : Copy an array to a device.

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca.backend import to_host
    >>> to_host(np.arange(3))
    array([0, 1, 2])
    """
    if isinstance(x, np.ndarray):
        return np.asarray(x)
    if issparse(x):
        return np.asarray(x.toarray())
    if is_cupy(x):
        with x.device:  # it need not be the current one
            return x.get()
    if array_api_compat.is_torch_array(x):
        return x.detach().cpu().numpy()
    if is_exporter(x):
        return to_host(imported(x))
    xp = namespace_of(x)
    if hasattr(xp, "Device"):  # array-api-strict: only its CPU device can be read by NumPy
        return np.asarray(array_api_compat.to_device(x, xp.Device("CPU_DEVICE")))
    return np.asarray(x)


def host_values(x: Any) -> np.ndarray:
    """Return numbers in any container, such as an array of any library or a list, as a NumPy array."""
    return to_host(x) if is_foreign(x) else np.asarray(x)


def from_host(a: Any, like: Any, dtype: Any = None) -> Array:
    """Return a host array in the namespace and on the device of another array, by default in its dtype."""
    if isinstance(like, np.ndarray) or issparse(like):
        return np.asarray(a, dtype=dtype or like.dtype)
    xp = namespace_of(like)
    dtype = dtype or like.dtype
    # Cast on the host: a device without float64 cannot take the array as it is.
    # A copy, not ascontiguousarray: that keeps the negative stride of a reversed array of length one.
    return xp.asarray(np.array(a, dtype=dtype_name(dtype), order="C"), dtype=dtype, device=device_of(like))


def move(x: Any, like: Any) -> Array:
    """Return `x` on the device and in the library of `like`, with its dtype where the device has it."""
    if is_exporter(like):
        return exported(move(x, imported(like)), like)
    x = imported(x)
    if same_place(x, like):
        return x
    if is_cupy(x) and is_cupy(like):
        return cuda_devices.copied_to(x, like.device.id)
    host = to_host(x)
    if host.dtype.kind in "iu":
        return namespace_of(like).asarray(host, dtype=index_dtype(like), device=device_of(like))
    return from_host(host, like, namespace_of(like).float32 if host.dtype == np.float32 else accumulation_dtype(like))


def cast(x: Any, dtype: Any) -> Any:
    """Return `x`, dense or sparse, as `dtype`; without a copy where it has that type."""
    if x.dtype == dtype:
        return x
    if isinstance(x, np.ndarray) or issparse(x):
        return x.astype(dtype)
    return namespace_of(x).astype(x, dtype, copy=False)


def overflow_allowed() -> Any:
    """Return a context without floating-point warnings, which only NumPy has: infinities are looked for afterwards."""
    return np.errstate(all="ignore")


def full(shape: tuple[int, ...], value: float, like: Any, dtype: Any = None) -> Array:
    """Return an array that holds `value` everywhere, in the dtype of `like` unless another is given."""
    return namespace_of(like).full(shape, value, dtype=dtype or like.dtype, device=device_of(like))


def concat(parts: Sequence[Array], axis: int = 0) -> Array:
    """Return arrays one after another along an axis; one of them as it is."""
    return parts[0] if len(parts) == 1 else namespace_of(*parts).concat(list(parts), axis=axis)


def arange(n: int, like: Any, dtype: Any = None) -> Array:
    """Return the integers 0 … n - 1."""
    return namespace_of(like).arange(n, dtype=dtype, device=device_of(like))


def indices(numbers: Any, like: Any) -> Array:
    """Return integers on the host as an index array; those of the library of `like` are one."""
    if is_foreign(numbers):
        return numbers
    return namespace_of(like).asarray(np.asarray(numbers, dtype=np.int64).reshape(-1), device=device_of(like))


def true_positions(mask: Array) -> Array:
    """Return the positions (k,) of true entries as an index array; on the host where k may not depend on the data."""
    if writes_in_place(mask):
        return namespace_of(mask).nonzero(mask)[0]
    return np.flatnonzero(to_host(mask))


def writable(shape: tuple[int, ...], like: Any, dtype: Any = None) -> Array | None:
    """Return uninitialized memory where the library can write into parts of an array, else None."""
    if isinstance(like, np.ndarray):
        return np.empty(shape, dtype or like.dtype)
    return namespace_of(like).empty(shape, dtype=dtype or like.dtype, device=like.device) if is_cupy(like) else None
