"""Kernels that the user brings: a matrix, a function of two rows, a function of two blocks of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend.namespace import from_host, namespace_of, to_host
from gpukpca.backend.rows import place_of
from gpukpca.exceptions import DeviceMismatchError, InvalidParameterError
from gpukpca.kernels.base import DataRows, Kernel


class Precomputed(Kernel):
    """The kernel matrix itself is the data: X is K (n, n) in fit and K(X_new, X) (m, n) in transform."""

    positive_definite = None
    stored_only = True

    def __call__(self, X: Array, Y: Array | None = None) -> Array:
        """X, which already is the kernel matrix."""
        return X

    def diagonal(self, X: Array) -> Array:
        """The diagonal of the square matrix X."""
        return namespace_of(X).linalg.diagonal(X)

    def tile(self, a: DataRows, b: DataRows, out: Array | None = None) -> Array:
        raise InvalidParameterError("a precomputed kernel matrix has no rows of data to make a tile from")


class PairwiseCallable(Kernel):
    """A plain function of two rows, as in scikit-learn: called once for every pair, so K is stored.

    Parameters
    ----------
    function : callable
        ``function(x, y, **parameters)`` with two arrays of shape (d,) returns a number.
    parameters : dict, optional
    """

    stored_only = True

    def __init__(self, function: Callable[..., float], parameters: dict[str, Any] | None = None) -> None:
        self.function, self.parameters = function, parameters

    def tile(self, a: DataRows, b: DataRows, out: Array | None = None) -> Array:
        left, right = to_host(a.data), to_host(b.data)
        values = np.empty((a.n_rows, b.n_rows))
        # One data set against itself: the function is symmetric, so half of the calls are enough.
        symmetric = a.data is b.data
        for i in range(a.n_rows):
            for j in range(i if symmetric else 0, b.n_rows):
                values[i, j] = self._value(left[i], right[j], i, j)
                if symmetric:
                    values[j, i] = values[i, j]
        return from_host(values, place_of(b.data), b.data.dtype)

    def tile_diagonal(self, a: DataRows) -> Array:
        rows = to_host(a.data)
        values = [self._value(rows[i], rows[i], i, i) for i in range(a.n_rows)]
        return from_host(np.asarray(values, dtype=np.float64), place_of(a.data), a.data.dtype)

    def _value(self, x: Array, y: Array, i: int, j: int) -> float:
        name = getattr(self.function, "__name__", repr(self.function))
        try:
            value = self.function(x, y, **(self.parameters or {}))
        except Exception as error:
            error.add_note(f"raised by the kernel {name} for the pair of rows ({i}, {j})")
            raise
        if np.ndim(value) != 0 or not isinstance(value, (int, float, np.number, np.bool_, np.ndarray)):
            raise InvalidParameterError(
                f"the kernel {name} must return a number for a pair of rows; for rows ({i}, {j}) it returned "
                f"{type(value).__name__} of shape {np.shape(value)}. Kernels that return whole blocks are subclasses "
                "of gpukpca.kernels.Kernel."
            )
        if not np.isfinite(float(value)):
            raise InvalidParameterError(f"the kernel {name} returned {_spelled(float(value))} at ({i}, {j})")
        return float(value)


class BlockCallable(Kernel):
    """A function of two blocks of rows: ``function(A, B)`` of shape (a, b), such as scikit-learn's process kernels.

    Parameters
    ----------
    function : callable
        Takes two NumPy arrays of rows; must be symmetric and deterministic.
    """

    densifies = True
    scratch_tiles = 2
    exponentials = 5

    def __init__(self, function: Callable[[Array, Array], Array]) -> None:
        self.function = function

    def tile(self, a: DataRows, b: DataRows, out: Array | None = None) -> Array:
        block = self.function(to_host(a.data), to_host(b.data))
        check_block(self.function, block, (a.n_rows, b.n_rows))
        return from_host(block, place_of(b.data), b.data.dtype)

    def tile_diagonal(self, a: DataRows) -> Array:
        rows = to_host(a.data)
        values = np.concatenate(
            [np.diagonal(self.function(rows[i : i + 1], rows[i : i + 1])) for i in range(len(rows))]
        )
        return from_host(values, place_of(a.data), a.data.dtype)


def check_block(owner: Any, block: Any, shape: tuple[int, int]) -> None:
    """Raise where a block made by somebody else's code is not a finite array of `shape`."""
    name = getattr(owner, "__name__", None) or type(owner).__name__
    if getattr(block, "shape", None) != shape:
        raise InvalidParameterError(
            f"the kernel {name} must return a block of shape {shape}; it returned {type(block).__name__} of shape "
            f"{getattr(block, 'shape', None)}."
        )
    host = to_host(block)
    if not np.all(np.isfinite(host)):
        i, j = np.argwhere(~np.isfinite(host))[0]
        raise InvalidParameterError(
            f"the kernel {name} returned {_spelled(float(host[i, j]))} at ({i}, {j}) of a block of shape {shape}"
        )


def checked_tile(kernel: Kernel, tile: Any, a: Any, b: Any, like: Array) -> Array:
    """The tile of a user's own `Kernel` subclass, with shape, library and dtype verified."""
    name = type(kernel).__name__
    wanted = (a.n_rows, b.n_rows)
    if getattr(tile, "shape", None) != wanted:
        raise InvalidParameterError(
            f"the kernel {name} must return a block of shape {wanted}; it returned {type(tile).__name__} of shape "
            f"{getattr(tile, 'shape', None)}."
        )
    try:
        namespace_of(tile, like)
    except DeviceMismatchError as error:
        raise InvalidParameterError(
            f"the kernel {name} must return blocks of {type(like).__module__}.{type(like).__name__} on "
            f"{getattr(like, 'device', 'cpu')}; it returned {type(tile).__module__}.{type(tile).__name__}."
        ) from error
    if tile.dtype != like.dtype:
        raise InvalidParameterError(
            f"the kernel {name} must return blocks of dtype {like.dtype}; it returned {tile.dtype}."
        )
    return tile


def _spelled(value: float) -> str:
    return "NaN" if np.isnan(value) else str(value)
