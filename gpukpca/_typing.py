"""Names for the two things every room talks about: arrays and symmetric operators."""

from __future__ import annotations

from typing import Any, Protocol

# Any object of a library that follows the Array API standard (NumPy, CuPy, PyTorch, ...). The standard has no
# type that could be written here.
Array = Any


class SymmetricOperator(Protocol):
    """What a solver needs of a real symmetric matrix, stored or not.

    An operator may also have the optional attributes that `gpukpca.eigen` looks for:

    - ``noise_scale`` : float, the size of the numbers that were cancelled against each other in a product, when
      that is larger than the largest eigenvalue. Rank decisions and attainable residuals depend on it.
    - ``rounding`` : float, the error of an entry in units of eps times the size of the entries; 0 where the entries
      are the problem itself. Reported residuals include it.
    - ``sizes()`` : array (n,), the diagonal before anything was subtracted from it.
    - ``project(V)`` : orthogonal projection of the columns of V onto a subspace known to hold the range.
    - ``learned`` : array or None, what its first product found out and later ones rely on, and ``recall(learned)``,
      which spares another such operator that product.
    """

    @property
    def shape(self) -> tuple[int, int]:
        """(n, n)."""

    @property
    def dtype(self) -> Any:
        """Floating-point type of the products."""

    @property
    def like(self) -> Array:
        """A zero-size array that tells namespace, dtype and device."""

    def __matmul__(self, V: Array) -> Array:
        """The product with a block V, shape (n, b)."""

    def diagonal(self) -> Array:
        """The diagonal, shape (n,)."""

    def columns(self, indices: Any) -> Array:
        """The columns named by a host sequence of integers, shape (n, len(indices))."""

    def to_dense(self, overwrite: bool = False) -> Array:
        """The matrix itself, shape (n, n); with `overwrite` the operator may give away its own storage."""

    def factor(self) -> Array | None:
        """F with ``op = F @ F.T`` where the operator is known by a factor, else None."""
