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


def find_unlisted(launched: list[str]) -> list[str]:
    """Return the kernels of the package among what was launched that are not listed; types are not compared."""
    return sorted({name for name in launched if name.startswith(PREFIX)} - set(list_kernels()))
