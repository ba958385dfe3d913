"""The packages of the extras, which errors name where one is missing."""

# As in pyproject.toml. The name of an extra would make pip look for this library on a package index.
EXTRAS: dict[str, tuple[str, ...]] = {
    "cuda12": ("cupy-cuda12x[ctk]>=14",),
    "cuda13": ("cupy-cuda13x[ctk]>=14",),
    "dask": ("dask[array]>=2025.1", "distributed>=2025.1"),
    "cli": ("click>=8.2", "polars>=1.20", "rich>=13.9"),
    "plot": ("matplotlib>=3.9",),
}


def packages_of(extra: str) -> str:
    """Return the packages of an extra, quoted for a shell."""
    return " ".join(f'"{package}"' for package in EXTRAS[extra])


def pip_install(extra: str) -> str:
    """Return the command that installs the packages of an extra, wherever this library was installed from."""
    return f"pip install {packages_of(extra)}"
