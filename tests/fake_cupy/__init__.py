"""A small CuPy that computes with NumPy, so that the CuPy path can be tested on machines without a GPU.

``with fake_cupy.installed():`` puts `cupy`, `cupyx` and `cupy_backends` into `sys.modules`, with the behaviors of
CuPy 14 that decide whether code is right: arrays that refuse to become NumPy arrays, a memory pool with an account,
two devices, CUDA kernels whose text is compiled and run, a cuSOLVER with its faults. It has what the library uses, and
nothing else. A test breaks the device by the functions below; used as a context, each is undone at its end.
"""

from __future__ import annotations

from .functions import forget_compute_types
from .hooks import (
    break_device,
    compute_capability,
    count_allocations,
    cuda_version,
    cusolver_version,
    device_bytes,
    eigh_answers,
    eigh_refuses_above,
    eigh_reports,
    fail_allocation,
    foreign_bytes,
    kernels_cannot_run,
    launches,
    live_allocations,
    no_device,
    no_pinned_memory,
    operations,
    peak_bytes,
    rmm_allocator,
)
from .install import install, installed, is_installed
from .state import state

__all__ = [
    "break_device",
    "compute_capability",
    "count_allocations",
    "cuda_version",
    "cusolver_version",
    "device_bytes",
    "eigh_answers",
    "eigh_refuses_above",
    "eigh_reports",
    "fail_allocation",
    "foreign_bytes",
    "forget_compute_types",
    "install",
    "installed",
    "is_installed",
    "kernels_cannot_run",
    "launches",
    "live_allocations",
    "no_device",
    "no_pinned_memory",
    "operations",
    "peak_bytes",
    "rmm_allocator",
    "state",
]
