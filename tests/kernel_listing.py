"""The CUDA kernels that the package lists for `ci/compile_kernels.sh`, and what a test launched beyond them."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import Any

import gpukpca.cuda

PREFIX = "gpukpca_"


@cache
def listed() -> dict[str, tuple[dict[str, str], ...]]:
    """Return the types of every listed kernel, by its name in CuPy."""
    names = [module.name for module in pkgutil.iter_modules(gpukpca.cuda.__path__, "gpukpca.cuda.")]
    tables = [getattr(importlib.import_module(name), "KERNELS", {}) for name in names]
    return {PREFIX + name: types for table in tables for name, types in table.items()}


def unlisted(state: Any) -> list[str]:
    """Return what was launched of the package on the imitation without being listed, or in types that are not."""
    names = {name for name in state.launched if name.startswith(PREFIX)} - set(listed())
    types = [
        f"{name} {dict(types)}"
        for name, types in sorted(state.kernel_types)
        if name in listed() and dict(types) not in listed()[name]
    ]
    return [*sorted(names), *types]
