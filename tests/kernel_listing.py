"""The CUDA kernels that the package lists for `ci/compile_kernels.sh`, and what a test launched beyond them."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import Any

import gpukpca.cuda

PREFIX = "gpukpca_"


@cache
def listed() -> dict[str, Any]:
    """Return the listings of all modules: the source of a raw kernel, or types of an elementwise one, by name."""
    names = [module.name for module in pkgutil.iter_modules(gpukpca.cuda.__path__, "gpukpca.cuda.")]
    tables = [getattr(importlib.import_module(name), "KERNELS", {}) for name in names]
    return {name: entry for table in tables for name, entry in table.items()}


def unlisted(state: Any) -> list[str]:
    """Return what was launched of the package on the imitation without being listed, or in types that are not."""
    names = {name for name in state.launched if name.startswith(PREFIX)} - set(listed())
    types = [
        f"{name} {dict(types)}"
        for name, types in sorted(state.kernel_types)
        if name in listed() and dict(types) not in listed()[name]
    ]
    return [*sorted(names), *types]
