"""The machine of a record: ``python -m benchmarks.machine`` prints it as JSON.

With ``--card`` the card alone, or without one a sentence and exit status 1. That runs in a separate process: a
context on the device takes memory for as long as its process lives.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from contextlib import suppress
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.peers import PEERS

OF_PEERS = sorted(peer.package for peer in PEERS.values() if peer.package)
PACKAGES = dict.fromkeys(("numpy", "scipy", "scikit-learn", *OF_PEERS, "cupy", "cupy-cuda12x", "cupy-cuda13x"))
ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    if sys.argv[1:] != ["--card"]:
        found = machine()
        with suppress(Exception):  # CuPy reports a missing driver or device by many types of errors
            found |= device()
        print(json.dumps(found, indent=1))
        return
    try:
        from gpukpca.cuda.device import probe
    except ModuleNotFoundError as error:
        sys.exit(f"gpukpca cannot be imported with {sys.executable}: {error}.")
    works, reason = probe()
    if not works:
        sys.exit(f"No CUDA device that CuPy can use, so there is nothing to measure: {reason}.")
    print(json.dumps(card()))


def machine() -> dict[str, Any]:
    """Return processor, threads, versions and date."""
    import scipy.linalg  # noqa: F401  (threadpoolctl finds only those BLAS libraries that are loaded)
    from threadpoolctl import threadpool_info

    from gpukpca.backend.parallel import blas_threads, usable_cpus

    blas = [library for library in threadpool_info() if library["user_api"] == "blas"]
    found = {
        "date": date.today().isoformat(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": cpu_name(),
        "cpus": usable_cpus(),
        "blas": sorted({f"{library['internal_api']} {library['version']}" for library in blas}),
        "blas_threads": blas_threads(),
        "python": platform.python_version(),
        "gpukpca": own_version(),
    }
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def cpu_name() -> str:
    """Return the processor's name as the system reports it."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    found = names[0] if names else first_line("sysctl", "-n", "machdep.cpu.brand_string")  # of macOS
    return found or platform.processor() or platform.machine()


def own_version() -> str:
    """Return the version of the imported package, which need not be installed, and its commit."""
    import gpukpca

    commit = first_line("git", "-C", str(ROOT), "describe", "--always", "--dirty")
    return f"{gpukpca.__version__} ({commit})" if commit else gpukpca.__version__


def device() -> dict[str, Any]:
    """Return name and versions of the GPU; make no context on it."""
    import cupy

    runtime = cupy.cuda.runtime
    properties = runtime.getDeviceProperties(0)
    name = properties["name"]
    return {
        "gpu": name.decode() if isinstance(name, bytes) else str(name),
        "compute_capability": f"{properties.get('major', '?')}.{properties.get('minor', '?')}",
        "multiprocessors": int(properties.get("multiProcessorCount", 0)),
        "driver": first_line("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
        "cuda_driver": int(runtime.driverGetVersion()),
        "cuda_runtime": int(runtime.runtimeGetVersion()),
        "cupy": cupy.__version__,
    }


def card() -> dict[str, Any]:
    """Return the device with its memory in bytes."""
    import cupy

    free, total = cupy.cuda.runtime.memGetInfo()
    return device() | {"gpu_bytes": int(total), "gpu_free_bytes": int(free)}


def first_line(*command: str) -> str | None:
    """Return the first line that a program prints, or None where it does not run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return next((line.strip() for line in done.stdout.splitlines()), None)


if __name__ == "__main__":
    main()
