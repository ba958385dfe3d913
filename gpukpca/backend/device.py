"""Memory and names of devices: the standard knows devices only as opaque objects."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import array_api_compat

from gpukpca.backend.namespace import device_of, is_numpy, is_sparse


def is_on_gpu(x: Any) -> bool:
    """Whether `x` lives on a CUDA device."""
    if array_api_compat.is_cupy_array(x):
        return True
    return array_api_compat.is_torch_array(x) and str(x.device).startswith("cuda")


def describe_device(x: Any) -> str:
    """«cpu», «cuda:0 NVIDIA H200» or the name that the library gives."""
    if is_numpy(x) or is_sparse(x):
        return "cpu"
    if array_api_compat.is_cupy_array(x):
        from gpukpca.cuda import device as cuda_device

        return cuda_device.describe(x.device.id)
    return str(device_of(x))


def free_bytes(x: Any) -> int:
    """Bytes that can be allocated where `x` lives, container limits honoured."""
    if array_api_compat.is_cupy_array(x):
        from gpukpca.cuda import device as cuda_device

        return cuda_device.free_bytes(x)
    if is_on_gpu(x):  # a PyTorch tensor; its library is loaded already
        return int(sys.modules["torch"].cuda.mem_get_info(x.device)[0])
    return host_free_bytes()


def synchronize(x: Any) -> None:
    """Wait for the device of `x`, so that a fault is raised in the call that caused it."""
    if array_api_compat.is_cupy_array(x):
        from gpukpca.cuda import device as cuda_device

        cuda_device.synchronize(x)


def host_free_bytes() -> int:
    """Free host memory: the smaller of what the system and the control group leave."""
    return max(0, min(_system_available(), *_control_group_available()))


def _system_available() -> int:
    """Bytes of memory that can be had without swapping."""
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    try:
        # macOS and others: no cheap figure for what is free, so half of what is there.
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (ValueError, OSError, AttributeError):
        return 4 * 2**30


def _control_group_available() -> list[int]:
    """What the memory limits of the process's control group leave, version 2 and 1."""
    pairs = [
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat"),
        (
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes",
            "/sys/fs/cgroup/memory/memory.stat",
        ),
    ]
    found = []
    for limit_file, usage_file, stat_file in pairs:
        try:
            limit = int(Path(limit_file).read_text())
            usage = int(Path(usage_file).read_text())
            found.append(limit - usage + _reclaimable(Path(stat_file)))
        except (OSError, ValueError):  # no such group, or «max»
            continue
    return found or [2**63]


def _reclaimable(stat_file: Path) -> int:
    """Page cache that counts as used but is given back on demand."""
    for line in stat_file.read_text().splitlines():
        if line.startswith(("inactive_file ", "total_inactive_file ")):
            return int(line.split()[1])
    return 0
