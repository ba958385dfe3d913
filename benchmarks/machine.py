"""What the figures were measured on: ``python -m benchmarks.machine`` prints it as JSON."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import scipy.linalg  # noqa: F401  (its BLAS must be loaded before anybody looks for BLAS libraries)
from threadpoolctl import threadpool_info

from benchmarks.card import driver, text

PACKAGES = ("numpy", "scipy", "scikit-learn", "cupy", "cupy-cuda12x", "cupy-cuda13x", "torch", "torchdr")
ROOT = Path(__file__).resolve().parents[1]


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
        "gpukpca": own_version(),
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


def own_version() -> str:
    """Of the package as it is imported, which need not be installed, and the commit where there is one."""
    import gpukpca

    try:
        command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
        commit = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return gpukpca.__version__
    return f"{gpukpca.__version__} ({commit})" if commit else gpukpca.__version__


def device() -> dict[str, Any]:
    """Name and driver of the GPU, where CuPy sees one; makes no context on it."""
    try:
        import cupy

        runtime = cupy.cuda.runtime
        return {
            "gpu": text(runtime.getDeviceProperties(0)["name"]),
            "driver": driver(),
            "cuda_driver": runtime.driverGetVersion(),
            "cuda_runtime": runtime.runtimeGetVersion(),
        }
    except Exception:  # no CuPy, no driver, no device: CuPy has many ways of saying so
        return {}


if __name__ == "__main__":
    print(json.dumps(machine(), indent=1))
