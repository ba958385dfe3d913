"""Copies between CUDA devices, without access to each other's memory: many cards lack it."""

from __future__ import annotations

from typing import Any


def copied_to(A: Any, index: int) -> Any:
    """Return a copy of an array on another device, in C order.

    CuPy's own copy would enable peer access. The wait before it is for the stream that computes A, that after it for
    the memory of A, which may be freed then.
    """
    import cupy

    with A.device:
        A = cupy.ascontiguousarray(A)
        cupy.cuda.get_current_stream().synchronize()
    with cupy.cuda.Device(index):
        made, stream = cupy.empty(A.shape, A.dtype), cupy.cuda.get_current_stream()
        cupy.cuda.runtime.memcpyPeerAsync(made.data.ptr, index, A.data.ptr, A.device.id, A.nbytes, stream.ptr)
        stream.synchronize()
    return made
