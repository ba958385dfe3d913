"""The CUDA kernels of the package, which `ci/compile_kernels.py` compiles, and what a test launched beyond them."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from types import ModuleType
from typing import Any

import gpukpca.cuda

PREFIX = "gpukpca_"


@cache
def list_kernels() -> dict[str, tuple[ModuleType, Any]]:
    """Return the module of every kernel and its listing there by name: source of a raw kernel, types of another."""
    names = [module.name for module in pkgutil.iter_modules(gpukpca.cuda.__path__, "gpukpca.cuda.")]
    modules = [importlib.import_module(name) for name in names]
    return {name: (module, entry) for module in modules for name, entry in getattr(module, "KERNELS", {}).items()}


def find_unlisted(state: Any) -> list[str]:
    """Return what was launched of the package on the imitation without being listed, or in types that are not."""
    kernels = list_kernels()
    names = {name for name in state.launched if name.startswith(PREFIX)} - set(kernels)
    types = [
        f"{name} {dict(types)}"
        for name, types in sorted(state.kernel_types)
        if name in kernels and dict(types) not in kernels[name][1]
    ]
    return [*sorted(names), *types]
