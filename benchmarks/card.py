"""What the card is: ``python -m benchmarks.card`` prints it as JSON, or one sentence and exit status 1 without one.

In a process of its own: a context on the device takes memory for as long as its process lives.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import Any

NO_TF32 = {"CUPY_TF32": "0", "NVIDIA_TF32_OVERRIDE": "0"}
NVIDIA_SMI = ("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")


def main() -> None:
    try:
        from gpukpca.cuda.device import probe
    except ModuleNotFoundError as error:
        sys.exit(f"gpukpca cannot be imported with {sys.executable}: {error}.")
    works, found = probe()
    if not works:
        sys.exit(f"No CUDA device that CuPy can use, so there is nothing to measure: {found}.")
    print(json.dumps(described()))


def described() -> dict[str, Any]:
    """Return the card as CuPy sees it; sizes in bytes."""
    import cupy

    runtime = cupy.cuda.runtime
    properties = runtime.getDeviceProperties(0)
    free, total = runtime.memGetInfo()
    return {
        "gpu": text(properties["name"]),
        "gpu_bytes": int(total),
        "gpu_free_bytes": int(free),
        "compute_capability": f"{properties.get('major', '?')}.{properties.get('minor', '?')}",
        "multiprocessors": int(properties.get("multiProcessorCount", 0)),
        "driver": driver(),
        "cuda_driver": int(runtime.driverGetVersion()),
        "cuda_runtime": int(runtime.runtimeGetVersion()),
        "cupy": cupy.__version__,
    }


def text(name: Any) -> str:
    """CuPy gives bytes."""
    return name.decode() if isinstance(name, bytes) else str(name)


def driver() -> str | None:
    """Return the version of the NVIDIA driver, where its own tool is at hand."""
    if shutil.which(NVIDIA_SMI[0]) is None:
        return None
    try:
        done = subprocess.run(NVIDIA_SMI, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.splitlines()[0].rpartition(",")[2].strip() if done.stdout.strip() else None


if __name__ == "__main__":
    main()
