"""Devices, versions and BLAS libraries, on which numbers depend, and the memory of the process."""

from __future__ import annotations

import json
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from gpukpca import __version__
from gpukpca._formatting import format_bytes, pluralize
from gpukpca.backend.device import cuda_place, free_bytes, host_free_bytes
from gpukpca.backend.limits import process_memory
from gpukpca.backend.parallel import usable_cpus
from gpukpca.backend.work import rates_text
from gpukpca.cli.failures import say
from gpukpca.cli.report import show_pairs, taken
from gpukpca.cli.table import Table
from gpukpca.cuda.device import probe

PACKAGES = ("numpy", "scipy", "scikit-learn", "array-api-compat", "matplotlib")
CUPY_PACKAGES = ("cupy", "cupy-cuda12x", "cupy-cuda13x")


def show_machine(as_json: bool) -> None:
    """Print devices, versions and BLAS libraries."""
    from threadpoolctl import threadpool_info

    works, found = probe()
    like = cuda_place(None, "float32")[0] if works else None
    memory = "" if like is None else f", {format_bytes(free_bytes(like))} of memory free"
    lines = [
        ("cpu", f"{pluralize(usable_cpus(), 'usable core')}, {format_bytes(host_free_bytes())} of memory free"),
        ("cuda", f"{found}{memory}" if works else f"none: {found}"),
        *([("rates", rates_text(like))] if like is not None else []),
        *versions().items(),
    ]
    libraries = [
        f"{one['internal_api']} {one['version'] or ''}, {pluralize(one['num_threads'], 'thread')}"
        for one in threadpool_info()
        if one["user_api"] == "blas"
    ]
    if as_json:
        say(json.dumps(dict(lines) | {"blas": libraries}))
    else:
        show_pairs([*lines, *(("blas", library) for library in libraries)])


def facts_of_run(table: Table, seconds: float, targets: dict[str, Path]) -> dict[str, Any]:
    """Return the metadata of every run: what was read, versions, time, memory, and the files that are written."""
    facts = {"input": taken(table), "versions": versions(), "seconds": seconds, "peak_memory_mib": peak_memory_mib()}
    return facts | {"written": [str(path) for path in targets.values()]}


def versions() -> dict[str, str]:
    """Return the versions of what the numbers depend on."""
    found = {"gpukpca": __version__, "python": platform.python_version()}
    found |= {package: _version_of(package) for package in PACKAGES}
    return found | {"cupy": min(map(_version_of, CUPY_PACKAGES))}


def _version_of(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def peak_memory_mib() -> float | None:
    """Return the largest resident memory of the process so far, None where the system does not report it."""
    if peak := process_memory(Path("/"), "VmHWM"):  # getrusage would count what the parent process held before exec
        return peak / 2**20
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 1024
