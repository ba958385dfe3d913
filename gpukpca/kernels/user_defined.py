"""Kernels of the user: a matrix, a function of two rows, a function of two blocks of rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gpukpca._typing import Array, SymmetricOperator
from gpukpca.backend.external import as_operator
from gpukpca.backend.linalg import largest_asymmetry, largest_modulus
from gpukpca.backend.namespace import epsilon, from_host, is_foreign, is_sparse, namespace_of, same_place, to_host
from gpukpca.data.gate import as_rows, has_entries, is_of_cupyx
from gpukpca.data.operator_rows import OperatorRows
from gpukpca.data.slicing import dense_rows, gather_rows, place_of
from gpukpca.exceptions import GpuKPCAWarning, IndefiniteKernelWarning, InvalidParameterError, warn_user
from gpukpca.kernels.base import Kernel
from gpukpca.kernels.prepared import DataRows

# Kinds of dtypes that are real numbers.
NUMBERS = "biuf"
# Rows whose pairs are evaluated in both orders.
COMPARED_ROWS = 6


class Precomputed(Kernel):
    """Precomputed kernel: the matrix itself is the data, X is K (n, n) in fit and K(X_new, X) (m, n) in transform.

    See Also
    --------
    gpukpca.gram.DenseGram : A stored symmetric matrix as an operator.

    Examples
    --------
    Minus half of squared distances is a kernel for kernel PCA: the scores are those of classical scaling.

    >>> import numpy as np
    >>> from gpukpca import KernelPCA
    >>> from gpukpca.kernels import Precomputed
    >>> D = np.array([[0.0, 3.0, 7.0], [3.0, 0.0, 4.0], [7.0, 4.0, 0.0]])
    >>> scores = KernelPCA(1, kernel=Precomputed()).fit_transform(-0.5 * D**2)
    >>> abs(scores - scores.T).round(6)
    array([[0., 3., 7.],
           [3., 0., 4.],
           [7., 4., 0.]])
    """

    stored_only = True

    def __call__(self, X: Array, Y: Array | None = None) -> Array:
        return dense_rows(as_rows(X))

    def diagonal(self, X: Array) -> Array:
        K = self(X)
        return namespace_of(K).linalg.diagonal(K)

    def tile(self, a: DataRows, b: DataRows, out: Array | None = None) -> Array:
        raise InvalidParameterError("a precomputed kernel matrix has no rows of data to compute a tile from.")


class PairwiseCallable(Kernel):
    """Kernel of a plain function of two rows, as in scikit-learn: called once for every pair, so K is stored.

    Parameters
    ----------
    function : callable
        ``function(x, y, **parameters)`` with two arrays of shape (d,) returns a number.
    parameters : dict, optional

    See Also
    --------
    BlockCallable : A function of two blocks of rows, with fewer calls.
    Kernel : The base class, for blocks on any array library.

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca.kernels import PairwiseCallable
    >>> def overlap(x, y, power=1):
    ...     return float(np.minimum(x, y).sum() ** power)
    >>> PairwiseCallable(overlap, {"power": 2})(np.array([[1.0, 2.0], [3.0, 0.0]]))
    array([[9., 1.],
           [1., 9.]])
    """

    stored_only = True
    scratch_tiles = 0

    def __init__(self, function: Callable[..., float], parameters: dict[str, Any] | None = None) -> None:
        self.function = function
        self.parameters = parameters

    def tile(self, a: DataRows, b: DataRows, out: Array | None = None) -> Array:
        left, right = _read_only(a.data), _read_only(b.data)
        values = np.empty((a.n_rows, b.n_rows))
        # A data set against itself: the function is symmetric, so half of the calls are enough.
        symmetric = a.data is b.data
        compared = set(_some_rows(a.n_rows)) if symmetric else set()
        for i in range(a.n_rows):
            for j in range(i if symmetric else 0, b.n_rows):
                values[i, j] = self._value(left[i], right[j], i, j)
                if symmetric:
                    values[j, i] = values[i, j]
                if i != j and i in compared and j in compared:
                    back = self._value(right[j], left[i], j, i)
                    _check_symmetric(self.function, (i, j), values[i, j], back, abs(values[i, i]), epsilon(a.data))
        return from_host(values, place_of(b.data), b.data.dtype)

    def tile_diagonal(self, a: DataRows) -> Array:
        rows = _read_only(a.data)
        values = [self._value(rows[i], rows[i], i, i) for i in range(a.n_rows)]
        return from_host(np.asarray(values, dtype=np.float64), place_of(a.data), a.data.dtype)

    def _value(self, x: Array, y: Array, i: int, j: int) -> float:
        try:
            value = self.function(x, y, **(self.parameters or {}))
        except Exception as error:
            what = f"raised by the kernel {_name(self.function)} for the pair of rows ({i}, {j})"
            error.add_note(f"{what}. {_of_blocks(self.function)}")
            raise
        if not math.isfinite(number := _real_number(value)):
            raise InvalidParameterError(
                f"the kernel {_name(self.function)} must return a finite number for each pair of rows; it returned "
                f"{_described(value)} at ({i}, {j}). {_of_blocks(self.function)}"
            )
        return number


def _of_blocks(function: Any) -> str:
    """Return the advice for a function that takes more than two rows."""
    how = f"gpukpca.kernels.BlockCallable({_name(function)})"
    return f"If it returns the block of all pairs of two sets of rows, pass {how}."


class BlockCallable(Kernel):
    """Kernel of a function of two blocks of rows: ``function(A, B)`` of shape (a, b).

    Parameters
    ----------
    function : callable
        Maps two NumPy arrays of rows to their block; must be symmetric and deterministic.

    See Also
    --------
    PairwiseCallable : A function of two rows.
    Kernel : The base class, for blocks on any array library.

    Examples
    --------
    Kernels of scikit-learn's Gaussian processes are such functions.

    >>> import numpy as np
    >>> from gpukpca.kernels import BlockCallable
    >>> from sklearn.gaussian_process.kernels import DotProduct
    >>> BlockCallable(DotProduct(sigma_0=1.0))(np.array([[1.0], [2.0]]))
    array([[2., 3.],
           [3., 5.]])
    """

    densifies = True
    exponentials = 5

    def __init__(self, function: Callable[[Array, Array], Array]) -> None:
        self.function = function

    def tile(self, a: DataRows, b: DataRows, out: Array | None = None) -> Array:
        return from_host(self._block(_read_only(a.data), _read_only(b.data)), place_of(b.data), b.data.dtype)

    def tile_diagonal(self, a: DataRows) -> Array:
        rows = _read_only(a.data)
        values = np.concatenate([self._block(rows[i : i + 1], rows[i : i + 1])[0] for i in range(len(rows))])
        return from_host(values, place_of(a.data), a.data.dtype)

    def _block(self, A: np.ndarray, B: np.ndarray) -> np.ndarray:
        block = self.function(A, B)
        check_computed_block(self.function, block, (len(A), len(B)))
        return np.array(to_host(block))  # a tile is written to, and the function may keep its block


def check_computed_block(owner: Any, block: Any, shape: tuple[int, int]) -> None:
    """Raise where a block that the user's code computed is not a finite array of `shape`."""
    name = _name(owner)
    _check_shape(name, block, shape)
    host = to_host(block)
    if host.dtype.kind not in NUMBERS:
        raise InvalidParameterError(
            f"the kernel {name} must return a block of real numbers; it returned an array of dtype {host.dtype}."
        )
    if not np.all(np.isfinite(host)):
        i, j = np.argwhere(~np.isfinite(host))[0]
        raise InvalidParameterError(
            f"the kernel {name} returned {_text_of(float(host[i, j]))} at ({i}, {j}) of a block of shape {shape}"
        )


def _check_shape(name: str, block: Any, shape: tuple[int, int]) -> None:
    if (actual := getattr(block, "shape", None)) != shape:
        raise InvalidParameterError(
            f"the kernel {name} must return a block of shape {shape}; it returned {type(block).__name__} of shape "
            f"{actual}."
        )


def check_symmetry(kernel: Kernel, X: Any) -> None:
    """Raise where a kernel of the user gives a few pairs of rows two values in the two orders.

    A function of two rows is checked when its matrix is computed.
    """
    n = int(X.shape[0])
    if n < 2 or not _is_of_user(kernel):
        return
    chosen = _some_rows(n)
    rows = kernel.prepare(gather_rows(X, chosen))
    half, like = len(chosen) // 2, place_of(X)
    a, b = rows.slice(0, half), rows.slice(half, len(chosen))
    there = to_host(checked_tile(kernel, kernel.tile(a, b), a, b, like))
    back = to_host(checked_tile(kernel, kernel.tile(b, a), b, a, like)).T
    size = max(float(np.max(np.abs(there))), float(np.max(np.abs(back))))
    i, j = np.unravel_index(np.argmax(np.abs(there - back)), there.shape)
    pair = (int(chosen[i]), int(chosen[half + j]))
    owner = kernel.function if isinstance(kernel, BlockCallable) else kernel
    _check_symmetric(owner, pair, float(there[i, j]), float(back[i, j]), size, epsilon(like))


def _is_of_user(kernel: Kernel) -> bool:
    """Return whether the user's code computes blocks of a kernel or of a part."""
    parts = [kernel, *[part for part in kernel.get_params().values() if isinstance(part, Kernel)]]
    return any(isinstance(part, BlockCallable) or not type(part).__module__.startswith("gpukpca.") for part in parts)


def _some_rows(n: int) -> np.ndarray:
    """Return the numbers of a few of n rows, ascending and evenly spaced."""
    return np.unique(np.linspace(0, n - 1, COMPARED_ROWS).astype(np.int64))


def _check_symmetric(owner: Any, pair: tuple[int, int], there: float, back: float, size: float, eps: float) -> None:
    """Raise where |k(x, y) - k(y, x)| exceeds sqrt(eps) times the size of values."""
    if abs(there - back) > math.sqrt(eps) * max(abs(there), abs(back), size):
        i, j = pair
        raise InvalidParameterError(
            f"the kernel {_name(owner)} is not symmetric: k(x, y) is {there:.6g} for x = row {i} and y = row {j}, and "
            f"{back:.6g} for x = row {j} and y = row {i}. Kernel PCA needs k(x, y) = k(y, x); return the mean of both."
        )


def _read_only(X: Any) -> np.ndarray:
    """Return rows on the host that the user's code cannot write to."""
    rows = to_host(X).view()
    rows.flags.writeable = False
    return rows


def _real_number(value: Any) -> float:
    """Return a real number as a float; NaN for anything else, and for an integer beyond all floats."""
    try:
        number = np.asarray(float(value) if isinstance(value, int) else value)
    except (OverflowError, TypeError, ValueError):
        return math.nan
    return float(number) if number.ndim == 0 and number.dtype.kind in NUMBERS else math.nan


def _described(value: Any) -> str:
    """Return a float, or the type of a value and the shape of an array."""
    if isinstance(value, (float, np.floating)):
        return _text_of(float(value))
    return type(value).__name__ + (f" of shape {tuple(value.shape)}" if isinstance(value, np.ndarray) else "")


def _name(owner: Any) -> str:
    return getattr(owner, "__name__", None) or type(owner).__name__


def checked_tile(kernel: Kernel, tile: Any, a: Any, b: Any, like: Array) -> Array:
    """Return the tile of a `Kernel` subclass after checks of shape, library and dtype."""
    name = type(kernel).__name__
    _check_shape(name, tile, (a.n_rows, b.n_rows))
    if not same_place(tile, like):
        raise InvalidParameterError(
            f"the kernel {name} must return blocks of {type(like).__module__}.{type(like).__name__} on "
            f"{getattr(like, 'device', 'cpu')}; it returned {type(tile).__module__}.{type(tile).__name__}."
        )
    if tile.dtype != like.dtype:
        raise InvalidParameterError(
            f"the kernel {name} must return blocks of dtype {like.dtype}; it returned {tile.dtype}."
        )
    return tile


def _text_of(value: float) -> str:
    return "NaN" if np.isnan(value) else str(value)


def check_square(K: Array) -> None:
    """Raise `InvalidParameterError` where a precomputed training matrix is not square."""
    if K.shape[0] != K.shape[1]:
        raise InvalidParameterError(
            f"a precomputed kernel matrix must be square in fit; got shape {tuple(K.shape)}. Pass K(X, X) to fit and "
            "K(X_new, X) to transform."
        )


def kernel_matrix(K: Any) -> Any:
    """Return the rows of a kernel matrix that is known by its products: sparse, a LinearOperator or another operator.

    An array or a table is returned as it is. Raise `InvalidParameterError` for an operator that is not symmetric.
    """
    if isinstance(K, (type, OperatorRows)) or is_foreign(K):
        return K
    has_products = all(hasattr(K, name) for name in ("shape", "dtype", "__matmul__"))
    if is_sparse(K) or is_of_cupyx(K) or isinstance(K, SymmetricOperator) or (has_products and not has_entries(K)):
        return OperatorRows(as_operator(K))
    return K


def training_matrix(K: Array) -> Array:
    """Return a square precomputed training matrix, or its symmetric part where rounding made it asymmetric.

    Warn of asymmetry beyond 100 eps max|K|, and of a diagonal entry below rounding, which no semidefinite matrix has.
    """
    check_square(K)
    xp, eps = namespace_of(K), epsilon(K)
    largest, i, j = largest_asymmetry(K)
    if largest > 100.0 * eps * largest_modulus(K):
        warn_user(
            "the precomputed kernel matrix is not symmetric beyond rounding. Its symmetric part (K + Kᵀ)/2 is used.",
            GpuKPCAWarning,
            asymmetry=float(largest),
            entry=[int(i), int(j)],
        )
    if largest > 0.0:
        K = 0.5 * K + 0.5 * K.T
    if bool(xp.any(xp.linalg.diagonal(K) < -K.shape[0] * eps * largest_modulus(K))):
        warn_user(
            "the precomputed kernel matrix has a negative entry on its diagonal, so it is not positive semidefinite.",
            IndefiniteKernelWarning,
        )
    return K
