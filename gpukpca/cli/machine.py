"""What the numbers depend on: devices, versions, BLAS libraries."""

from __future__ import annotations

import platform
from importlib import metadata

from rich.console import Console

from gpukpca import __version__
from gpukpca._formatting import format_bytes, pluralize
from gpukpca.backend.device import cuda_place, free_bytes, host_free_bytes
from gpukpca.backend.parallel import usable_cpus
from gpukpca.cli.report import show_pairs
from gpukpca.cuda.device import probe

PACKAGES = ("numpy", "scipy", "scikit-learn", "array-api-compat", "matplotlib")
CUPY_PACKAGES = ("cupy", "cupy-cuda12x", "cupy-cuda13x")


def show_machine() -> None:
    """Devices, versions and BLAS libraries."""
    from threadpoolctl import threadpool_info

    works, found = probe()
    console = Console()
    lines = [
        ("cpu", f"{pluralize(usable_cpus(), 'usable core')}, {format_bytes(host_free_bytes())} of memory free"),
        ("cuda", f"{found}{_device_memory()}" if works else f"none: {found}"),
        *versions().items(),
    ]
    for library in threadpool_info():
        if library["user_api"] == "blas":
            name, threads = library["internal_api"], library["num_threads"]
            lines.append(("blas", f"{name} {library['version'] or ''}, {pluralize(threads, 'thread')}"))
    show_pairs(console, lines)


def _device_memory() -> str:
    """What is free on the current CUDA device."""
    like, _ = cuda_place(None, "float32")
    return "" if like is None else f", {format_bytes(free_bytes(like))} of memory free"


def versions() -> dict[str, str]:
    """Versions of what the numbers depend on."""
    found = {"gpukpca": __version__, "python": platform.python_version()}
    found |= {package: version_of(package) for package in PACKAGES}
    cupy = [version for version in map(version_of, CUPY_PACKAGES) if version != "not installed"]
    return found | {"cupy": cupy[0] if cupy else "not installed"}


def version_of(package: str) -> str:
    """Version of an installed package, or «not installed»."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
