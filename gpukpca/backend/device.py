"""Devices: free memory, the device of a computation, and faults; to the standard they are opaque objects."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property, wraps
from inspect import isfunction
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from gpukpca._process import state
from gpukpca._rules import closest
from gpukpca._typing import Array
from gpukpca.backend import blocking
from gpukpca.backend.limits import free_memory
from gpukpca.backend.namespace import (
    device_of,
    dtype_name,
    imported,
    is_cupy,
    is_exporter,
    is_jax,
    is_memory_map,
    is_numpy,
    is_sparse,
    move,
    same_place,
    to_host,
)
from gpukpca.cuda import device as cuda_device
from gpukpca.cuda import precision
from gpukpca.exceptions import DeviceLostError, DeviceUnavailableError, InvalidParameterError

Function = TypeVar("Function", bound=Callable[..., Any])
Class = TypeVar("Class", bound=type)

# `index`: the number of the CUDA device that `device_context` made current in this thread, where it did.
_entered = threading.local()
# All CUDA devices, as the parameter `device`.
ALL_DEVICES = "cuda:all"
# The context of arrays that need none.
HOST = nullcontext()


# The gate takes tensors of PyTorch on a CUDA device, and other exporters, as CuPy arrays.
is_on_gpu = is_cupy
milliseconds: Callable[[Callable[[], Any], int], float] = cuda_device.milliseconds


def describe_device(x: Any) -> str:
    """Return "cpu", "cuda:0 NVIDIA H200" or the name that the library gives."""
    if is_numpy(x) or is_sparse(x):
        return "cpu"
    if is_cupy(x):
        return cuda_device.describe(x.device.id)
    return str(device_of(x))


def free_bytes(x: Any) -> int:
    """Return the bytes that can be allocated where `x` lives, within the limits of containers."""
    if is_cupy(x):
        return cuda_device.free_bytes(x)
    return host_free_bytes()


def takes_eigenproblem(like: Any, n: int) -> bool:
    """Return whether the library of an array takes an eigenproblem of n rows, unlike cuSOLVER of CUDA 12."""
    return not is_cupy(like) or cuda_device.cusolver_takes(n)


def is_unshared(x: Any) -> bool:
    """Return whether `x` is on a card that no other program uses."""
    return is_cupy(x) and cuda_device.is_used_alone(x)


def release_unused(x: Any) -> None:
    """Free the unused memory that the pool of the device of `x` holds."""
    if is_cupy(x):
        cuda_device.release_unused(x)


def missing_columns(x: Any, width: int) -> int:
    """Return the columns that make rows of `width` items end at 16 bytes, where cuBLAS is fast; 0 on a CPU."""
    return -width % (16 // int(x.dtype.itemsize)) if is_cupy(x) else 0


def is_out_of_device_memory(error: BaseException, like: Any) -> bool:
    """Return whether an error in work on the device of `like` reports that its memory is full."""
    return is_cupy(like) and (isinstance(error, MemoryError) or cuda_device.is_out_of_memory(error))


def synchronize(x: Array) -> None:
    """Wait until the device of an array has finished its work, as for a time or for the fault of an earlier call.

    CuPy waits for the current stream. PyTorch's tensors on a device are not waited for.
    """
    if is_cupy(x):
        cuda_device.synchronize(x)


# -- where to compute --------------------------------------------------------------------------------------------------


def devices() -> tuple[str, ...]:
    """Return the names that `device=` and `to_device` take on this machine: "cpu", then every CUDA device that works.

    Returns
    -------
    tuple of str
        For example ("cpu", "cuda:0"). `gpukpca info` gives the reason for a missing device.

    See Also
    --------
    to_device : Copy an array to one of them.

    Notes
    -----
    Cost: the first call runs a small product and a small eigenproblem on every device.

    Examples
    --------
    >>> from gpukpca.backend import devices
    >>> devices()[0]
    'cpu'
    """
    names = [f"cuda:{index}" for index in range(cuda_device.count()) if cuda_place(index, "float32")[0] is not None]
    return ("cpu", *names)


def to_device(X: Any, device: str) -> Array:
    """Return an array on a device: NumPy on the CPU, CuPy on a CUDA device.

    Parameters
    ----------
    X : array of any library, or memory map, at least one-dimensional
        Rows of a memory map are read while they are copied.
    device : "cpu", "cuda", "cuda:N" or "auto"
        "cuda" is the current device of CuPy. "auto" is "cuda" where a device works, else "cpu".

    Returns
    -------
    array
        X itself where it is a NumPy or CuPy array on that device already, else a copy with its dtype.

    Raises
    ------
    DeviceUnavailableError
        "cuda" or "cuda:N", and that device does not work. The message gives the reason.
    InvalidParameterError
        No such name, or X is no array.

    See Also
    --------
    to_host : Copy an array to the host.
    devices : The names that `device` takes here.

    Notes
    -----
    Cost: one copy, in pieces of 16 MiB through pinned memory.

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca.backend import to_device, to_host
    >>> X = to_device(np.eye(3), "auto")  # on a GPU where there is one
    >>> float(to_host(X).sum())
    3.0
    """
    (name, index), X = parsed_device(device), imported(X)
    if not name or is_sparse(X) or not hasattr(X, "shape") or not len(X.shape):
        what = "device=None" if not name else f"X of type {type(X).__name__}"
        raise InvalidParameterError(
            f'{what} is not allowed; give an array of at least one dimension and "cpu", "cuda", "cuda:N" or "auto".'
        )
    like, why = (None, "") if name == "cpu" else cuda_place(index, dtype_name(X.dtype))
    if like is None and name == "cuda":
        raise DeviceUnavailableError(f"device={device!r}: {why}.")
    if like is None:
        return to_host(X)
    if same_place(X, like):
        return X
    return placed_rows(X if is_memory_map(X) else to_host(X), like)


def parsed_device(device: Any) -> tuple[str, int | None]:
    """Return ("cuda", 1) for "cuda:1", ("cuda", None) for "cuda", ("", None) for None; raise for unknown names."""
    if device is None:
        return "", None
    match = re.fullmatch(r"(cpu|auto|cuda)(?::([0-9]+))?", device) if isinstance(device, str) else None
    if match is None or (match[2] and match[1] != "cuda"):
        several = " Several devices are for the fits of KernelPCA and PCA to rows in memory."
        raise InvalidParameterError(
            f'device={device!r} is not allowed; give None (where the data are), "auto", "cpu", "cuda", or "cuda:N" '
            f"with the number of a device.{closest(device, ('auto', 'cpu', 'cuda'))}"
            f"{several if device == ALL_DEVICES or isinstance(device, list | tuple) else ''}",
            argument="device",
        )
    return match[1], int(match[2]) if match[2] else None


def parsed_devices(device: Any) -> list[Any]:
    """Return the names of one device or of several: ["cuda:0", "cuda:1"] for "cuda:all" where there are two."""
    if device == ALL_DEVICES:
        return [f"cuda:{index}" for index in range(cuda_device.count())] or ["cuda"]  # which is refused with a reason
    if not isinstance(device, list | tuple):
        parsed_device(device)
        return [device]
    named = [re.fullmatch("cuda:([0-9]+)", name) if isinstance(name, str) else None for name in device]
    if not named or len({match and int(match[1]) for match in named} - {None}) < len(named):
        raise InvalidParameterError(
            f'device={device!r} is not allowed; a list names CUDA devices, each once, as ["cuda:0", "cuda:1"]; '
            f'"{ALL_DEVICES}" are all that there are.',
            argument="device",
        )
    return list(device)


def cuda_place(index: int | None, dtype: str) -> tuple[Array | None, str]:
    """Return an empty CuPy array on a device that works (default: the current one), or None and the reason."""
    if state.device_loss:
        return None, state.device_loss
    works, what = cuda_device.probe(index)
    return (cuda_device.empty_on(index, dtype), what) if works else (None, what)


def cuda_is_installed() -> bool:
    """Return whether a CuPy package is installed; import nothing."""
    return cuda_device.is_installed()


def placed_rows(X: np.ndarray, like: Array) -> Array:
    """Return host rows (n, d) on the CUDA device of `like`, copied in parts, so that the host holds no second copy."""
    return next(cuda_device.uploads([X], blocking.TRANSFER_BYTES, like.device.id))


def placed_batches(batches: Iterable[np.ndarray], like: Array) -> Iterator[Array]:
    """Yield host batches on the CUDA device of `like`; the next one is copied while the device works on one."""
    return cuda_device.uploads(batches, blocking.TRANSFER_BYTES, like.device.id)


# -- faults ------------------------------------------------------------------------------------------------------------


def device_context(like: Any) -> AbstractContextManager[None]:
    """Make the device of `like` current, and raise its faults as errors of the library.

    A device reports faults late. The wait at the end of the outermost context raises them in the call that caused them.
    Inside it nothing waits, so that the host may continue while the device works.

    Raise `DeviceLostError` where the device failed, now or before in this process, and `DeviceUnavailableError` where
    it cannot be used, or CUDA was used before this process was forked.
    """
    if type(like) is np.ndarray:  # by far the most frequent case
        return HOST
    if is_cupy(like) or is_exporter(like):
        return _cuda_context(imported(like))
    if is_jax(like):  # on an accelerator JAX rounds float32 products to TF32 or bfloat16 by default
        context: AbstractContextManager[None] = sys.modules["jax"].default_matmul_precision("highest")
        return context
    return HOST


@contextmanager
def _cuda_context(like: Any) -> Iterator[None]:
    if state.device_loss:
        raise DeviceLostError(f"{state.device_loss}.")
    outer, _entered.index = getattr(_entered, "index", None), like.device.id
    try:
        with like.device:
            yield
            if outer != like.device.id:
                cuda_device.synchronize(like)
        cuda_device.note_use()
    except Exception as error:
        kind = cuda_device.fault(error, like.device.id)
        if kind == "unusable":
            raise DeviceUnavailableError(
                f"the CUDA device cannot be used: {cuda_device.explain(error)}. `gpukpca info` lists what works."
            ) from error
        if kind == "lost":
            state.device_loss = (
                f"the CUDA device cuda:{like.device.id} failed ({cuda_device.first_line(error)}); nothing can be "
                "computed on it in this process any more. Restart the process; the CPU still works"
            )
            raise DeviceLostError(f"{state.device_loss}.") from error
        raise
    finally:
        _entered.index = outer


def on_its_device(function: Function) -> Function:
    """Return the function inside `device_context` of its first array: CuPy computes on one device only.

    Exporters are imported, and an array is returned in the library of the first one.
    """

    @wraps(function)
    def placed(*arguments: Any, **named: Any) -> Any:
        given = (*arguments, *named.values())
        if any(map(is_exporter, given)):
            found = placed(*map(imported, arguments), **{name: imported(value) for name, value in named.items()})
            first = next(a for a in given if is_cupy(a) or is_exporter(a))
            return move(found, first) if is_cupy(found) else found
        if "cupy" not in sys.modules and "jax" not in sys.modules:
            return function(*arguments, **named)
        every = (getattr(a, "like", a) for a in given)
        with device_context(next((x for x in every if is_cupy(x) or is_jax(x)), None)):
            return function(*arguments, **named)

    return cast(Function, placed)


def operator_on_its_device(cls: Class) -> Class:
    """Make the device of its arrays current in the public methods and properties of a class of operators."""
    for name, member in list(vars(cls).items()):
        if name.startswith("_") and name not in ("__init__", "__matmul__"):
            continue
        if isinstance(member, property) and member.fget is not None:
            setattr(cls, name, property(on_its_device(member.fget)))
        elif isinstance(member, cached_property):
            member.func = on_its_device(member.func)
        elif isfunction(member):
            setattr(cls, name, on_its_device(member))
    return cls


def precision_warning(like: Any) -> str:
    """Return a clause about settings that round float32 products on the device of `like`; empty where none does."""
    if not is_cupy(like):
        return ""
    with device_context(like):
        if not precision.rounds_products():
            return ""
    return (
        "float32 products round their operands to 10 bits (TF32), so that results and residuals err by about 1e-3; "
        "unset CUPY_TF32 and NVIDIA_TF32_OVERRIDE, or pass float64"
    )


# -- host memory -------------------------------------------------------------------------------------------------------


def host_free_bytes() -> int:
    """Return the free host memory: what the system, its control groups and the batch system leave."""
    return free_memory(Path("/"), os.environ)
