"""New arrays where another one lives: the standard wants the device at every call."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend.namespace import device_of, namespace_of, writes_in_place


def full(shape: tuple[int, ...], value: float, like: Any, dtype: Any = None) -> Array:
    """`value` everywhere, with the dtype of `like` unless another is given."""
    return namespace_of(like).full(shape, value, dtype=dtype or like.dtype, device=device_of(like))


def arange(n: int, like: Any, dtype: Any = None) -> Array:
    """0 … n - 1."""
    return namespace_of(like).arange(n, dtype=dtype, device=device_of(like))


def indices(numbers: Any, like: Any) -> Array:
    """Host integers as an index array."""
    return namespace_of(like).asarray(np.asarray(numbers, dtype=np.int64).reshape(-1), device=device_of(like))


def writable(shape: tuple[int, int], like: Any) -> Array | None:
    """Uninitialized memory where the library can write into parts of an array, else None."""
    return namespace_of(like).empty(shape, dtype=like.dtype, device=device_of(like)) if writes_in_place(like) else None
