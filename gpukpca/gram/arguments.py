"""Checks of the arguments of operators: rows, matrices, blocks and indices."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpukpca._typing import Array, SymmetricOperator
from gpukpca.backend.namespace import is_sparse, namespace_of
from gpukpca.data.finite import FINITE, check_finite
from gpukpca.data.gate import as_rows
from gpukpca.data.slicing import place_of
from gpukpca.exceptions import InvalidParameterError


def checked_rows(*others: Array, **named: Any) -> list[Array]:
    """Return rows in float32 or float64 without NaN and infinity, by the names that errors call them.

    They and the other arrays are in one place.
    """
    checked = [as_rows(X, name=name) for name, X in named.items()]
    namespace_of(*map(place_of, checked), *others)
    for rows, name in zip(checked, named, strict=True):
        check_finite(rows, FINITE, f"Input {name}")
    return checked


def checked_matrix(A: Any, name: str, shape: str) -> Array:
    """Return a dense real matrix of two dimensions in float32 or float64; errors call it `name`, of `shape`."""
    rows = as_rows(A, shape=shape, name=name)
    if is_sparse(rows):
        raise InvalidParameterError(
            f"{name} must be dense; pass {name}{'' if hasattr(A, 'toarray') else '[:]'}.toarray()."
        )
    return rows


def check_block(op: SymmetricOperator, V: Any) -> Any:
    """Return the namespace of a block V (n, b); raise where V is none, or not of the operator's library and device."""
    xp = namespace_of(op.like, V)
    if V is None or V.ndim != 2 or V.shape[0] != op.shape[0]:
        raise InvalidParameterError(
            f"expected a block of shape ({op.shape[0]}, b), got {V if V is None else tuple(V.shape)}."
        )
    return xp


def check_indices(op: SymmetricOperator, chosen: Any) -> None:
    """Raise `InvalidParameterError` where an entry is no row number of the operator."""
    numbers, n = np.asarray(chosen), op.shape[0]
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
        raise InvalidParameterError(f"indices={chosen!r} is not allowed; give a sequence of integers, such as [0, 3].")
    if numbers.size and not 0 <= np.min(numbers) <= np.max(numbers) < n:
        raise InvalidParameterError(f"indices={chosen!r} is not allowed; each must be an integer from 0 to {n - 1}.")
