"""Symmetric operators of other libraries: objects with shape, dtype and products, as operators of this one."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from gpukpca._typing import Array, Indices, SymmetricOperator, check_operator
from gpukpca.backend.namespace import (
    cast,
    empty_like,
    epsilon,
    from_host,
    is_foreign,
    is_sparse,
    library_of,
    same_place,
    to_host,
)
from gpukpca.backend.parallel import row_slices
from gpukpca.backend.random import seeded_uniform
from gpukpca.cuda import device as cuda_device
from gpukpca.exceptions import InvalidParameterError

# Asymmetry that is no rounding: of entries in units of eps max|A|, and of products as a power of eps, because an object
# may compute its products by transforms or in part in a narrower type.
ENTRY_ROUNDING, PRODUCT_ROUNDING = 100.0, 0.5
REAL = "biuf"
# Entries of a sparse matrix that are compared at once with those of its transpose.
COMPARED_ENTRIES = 2**20


def as_operator(op: Any) -> SymmetricOperator:
    """Return an operator of this library as it is, and another object with shape, dtype and ``@`` as one.

    Raise `InvalidParameterError` for anything else, arrays included, and for an object that is not symmetric.
    """
    is_known = isinstance(op, (SymmetricOperator, np.ndarray, type)) or is_foreign(op)
    if is_known or not all(hasattr(op, name) for name in ("shape", "dtype", "__matmul__")):
        check_operator(op)
        return op
    return ExternalOperator(op)


class ExternalOperator(SymmetricOperator):
    """A sparse matrix, a LinearOperator, or another object with shape, dtype and products ``A @ V`` with blocks.

    Columns of an object without entries are products with unit vectors, and its diagonal is not known unless it has a
    method `diagonal`. An object of another library than NumPy and CuPy has an attribute `like`, an array of size 0.

    Parameters
    ----------
    A : object, shape (n, n)
        Real and symmetric. That is checked: by the entries of a sparse matrix, else by a product with two vectors.
    """

    def __init__(self, A: Any) -> None:
        self.A = A
        self.name: str = f"the {type(A).__name__}"
        self.shape: tuple[int, int] = _square_shape(A, self.name)
        self.like: Array = _place(A, self.name)
        self.dtype: Any = self.like.dtype
        self.has_diagonal: bool = callable(getattr(A, "diagonal", None))
        self._has_entries = hasattr(A, "tocsc") and hasattr(A, "toarray")
        self._check_symmetry()

    def __matmul__(self, V: Array) -> Array:
        W = self.A @ V
        shape = tuple(getattr(W, "shape", ()))
        if is_sparse(W) or shape != tuple(V.shape) or not same_place(self.like, W):
            raise InvalidParameterError(
                f"a product of {self.name} with a block of shape {tuple(V.shape)} must be a dense array of this shape "
                f"from {library_of(self.like)}; got {type(W).__name__} of shape {shape}."
            )
        return cast(W, self.dtype)

    def diagonal(self) -> Array:
        if not self.has_diagonal:
            raise InvalidParameterError(
                f"{self.name} has products and no diagonal, so the sum of its eigenvalues is not known: there are no "
                "shares of it, no ratios, and no landmarks by the diagonal. Request a number of pairs, or give the "
                "object a method diagonal()."
            )
        diagonal = self.A.diagonal()
        if tuple(getattr(diagonal, "shape", ())) != self.shape[:1]:
            raise InvalidParameterError(
                f"diagonal() of {self.name} must return an array of shape ({self.shape[0]},); got "
                f"{type(diagonal).__name__} of shape {tuple(getattr(diagonal, 'shape', ()))}."
            )
        return cast(diagonal, self.dtype)

    def columns(self, indices: Indices) -> Array:
        chosen = np.asarray(indices)
        if self._has_entries:
            return cast(self._by_rows[chosen].toarray().T, self.dtype)
        units = np.zeros((self.shape[0], len(chosen)))
        units[chosen, np.arange(len(chosen))] = 1.0
        return self @ from_host(units, self.like)

    @cached_property
    def _by_rows(self) -> Any:
        """Return the matrix by rows, which are its columns."""
        return self.A.tocsr()

    def to_dense(self) -> Array:
        if self._has_entries:
            return cast(self.A.toarray(), self.dtype)
        return self.columns(np.arange(self.shape[0]))

    def _check_symmetry(self) -> None:
        """Raise where the object is not symmetric beyond rounding."""
        eps = epsilon(self.like)
        if is_sparse(self.A):
            A = self._by_rows
            if not np.all(np.isfinite(A.data)):
                raise InvalidParameterError(f"{self.name} contains NaN or infinity.")
            size = float(np.max(np.abs(A.data), initial=0.0))
            columns = A.T.tocsr()
            for start, stop in row_slices(A.shape[0], max(1, A.shape[0] * COMPARED_ENTRIES // max(1, A.nnz))):
                difference = (A[start:stop].astype(self.dtype) - columns[start:stop].astype(self.dtype)).tocoo()
                moduli = np.abs(difference.data)
                largest = float(np.max(moduli, initial=0.0))
                if largest > ENTRY_ROUNDING * eps * size:
                    at = int(np.argmax(moduli))
                    i, j = sorted((start + int(difference.row[at]), int(difference.col[at])))
                    raise self._asymmetric(f"its entries ({i}, {j}) and ({j}, {i}) differ by {largest:.4g}")
            return
        n = self.shape[0]
        probes = seeded_uniform((n, 2)) - 0.5
        products = to_host(self @ from_host(probes, self.like)).astype(np.float64)
        x, y = probes.T
        Ax, Ay = products.T
        rounding = np.linalg.norm(x) * np.linalg.norm(Ay) + np.linalg.norm(y) * np.linalg.norm(Ax)
        if abs(x @ Ay - y @ Ax) > eps**PRODUCT_ROUNDING * rounding:
            raise self._asymmetric(f"for two random vectors xᵀAy is {x @ Ay:.6g} and yᵀAx is {y @ Ax:.6g}")

    def _asymmetric(self, how: str) -> InvalidParameterError:
        return InvalidParameterError(
            f"{self.name} is not symmetric: {how}. Eigenpairs are those of a symmetric operator; pass its symmetric "
            "part, (A + A.T) / 2."
        )


def _square_shape(A: Any, name: str) -> tuple[int, int]:
    """Return the shape (n, n) of an object; raise for another one, and for numbers that are not real."""
    shape = tuple(A.shape)
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] < 1:
        raise InvalidParameterError(f"{name} has shape {shape}; a symmetric operator has shape (n, n).")
    if _kind(A.dtype) not in REAL:
        raise InvalidParameterError(f"{name} has dtype {A.dtype}; a real symmetric operator is needed.")
    return int(shape[0]), int(shape[0])


def _kind(dtype: Any) -> str:
    """Return the kind of a dtype of any library; None is that of floating-point numbers."""
    try:
        return np.dtype(dtype).kind
    except TypeError:
        return np.dtype(str(dtype).rpartition(".")[2]).kind


def _place(A: Any, name: str) -> Array:
    """Return an array of size 0 where an object computes, in float32 or float64."""
    dtype = "float32" if "float32" in str(A.dtype) else "float64"
    like = getattr(A, "like", None)
    if like is not None:
        return empty_like(like)
    on_device = any(part.__module__.partition(".")[0] in ("cupy", "cupyx") for part in type(A).__mro__)
    return cuda_device.empty_on(None, dtype) if on_device else np.empty(0, dtype)
