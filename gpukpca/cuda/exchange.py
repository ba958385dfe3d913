"""Arrays of other libraries on a CUDA device, as CuPy arrays that share their memory."""

from __future__ import annotations

from typing import Any

from gpukpca.cuda.device import probe
from gpukpca.exceptions import DeviceUnavailableError


def shared(x: Any) -> Any:
    """Return the CuPy array that shares the memory of an array with DLPack or ``__cuda_array_interface__``.

    Work of the current stream waits for that of the owner. Raise `DeviceUnavailableError` where CuPy does not work.
    """
    has_dlpack = hasattr(x, "__dlpack_device__")
    index = x.__dlpack_device__()[1] if has_dlpack else None
    works, why = probe(index)
    if not works:
        raise DeviceUnavailableError(
            f"an array of type {type(x).__name__} on a CUDA device is computed by CuPy: {why}. Or pass a copy on the "
            "host, such as x.cpu() of PyTorch."
        )
    import cupy

    if not has_dlpack and (pointer := x.__cuda_array_interface__["data"][0]):
        index = cupy.cuda.runtime.pointerGetAttributes(pointer).device
    with cupy.cuda.Device(index):  # else CuPy and PyTorch refuse, or copy to the current device
        return cupy.from_dlpack(x) if has_dlpack else cupy.asarray(x)
