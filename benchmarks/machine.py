"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import scipy.linalg  # noqa: F401  (its BLAS must be loaded before anybody looks for BLAS libraries)
from threadpoolctl import threadpool_info

PACKAGES = ("gpukpca", "numpy", "scipy", "scikit-learn", "cupy-cuda12x", "cupy-cuda13x", "torch", "torchdr")


def machine() -> dict[str, Any]:
    """Processor, threads, versions, device and date."""
    blas = [library for library in threadpool_info() if library["user_api"] == "blas"]
    return {
        "date": date.today().isoformat(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": cpu_name(),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "blas": sorted({f"{library['internal_api']} {library['version']}" for library in blas}),
        "blas_threads": max((library["num_threads"] for library in blas), default=None),
        "python": platform.python_version(),
        **{name: found for name in PACKAGES if (found := version_of(name))},
        **device(),
    }


def cpu_name() -> str:
    """As the system calls it."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def version_of(package: str) -> str | None:
    """None where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def device() -> dict[str, Any]:
    """Name and driver of the GPU, where CuPy sees one."""
    try:
        import cupy

        name = cupy.cuda.runtime.getDeviceProperties(0)["name"]
        return {
            "gpu": name.decode() if isinstance(name, bytes) else name,
            "cuda_driver": cupy.cuda.runtime.driverGetVersion(),
            "cuda_runtime": cupy.cuda.runtime.runtimeGetVersion(),
        }
    except Exception:  # no CuPy, no driver, no device: CuPy has many ways of saying so
        return {}
