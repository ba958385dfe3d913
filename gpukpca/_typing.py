"""The types that all rooms share: arrays, symmetric operators and progress callbacks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Never, ParamSpec, Protocol, cast, overload

import numpy as np
from numpy.typing import NDArray

from gpukpca.exceptions import InvalidParameterError

# Any object of a library that follows the Array API standard (NumPy, CuPy, PyTorch, ...). The standard has no
# type that could be written here.
Array = Any
# Row or column numbers on the host.
Indices = Any
# Returns the rows from start to stop of some columns of an operator, which the caller must not change.
ColumnPanels = Callable[[int, int], Array]
# Called after every pass with (passes so far, most allowed, largest relative residual or None, tolerance).
PassReport = Callable[[int, int, float | None, float], None]
# Called after every block of landmarks with (columns of F so far, most columns, share of the trace that is left).
RankReport = Callable[[int, int, float], None]


class HasShape(Protocol):
    """An array of any library, a sparse matrix, or a data frame."""

    @property
    def shape(self) -> Any:
        """Return the number of rows and columns."""


class HasCSR(Protocol):
    """A sparse matrix. Without types of SciPy, pyright finds no `shape` in its older classes."""

    def tocsr(self) -> Any:
        """Return the matrix in the CSR format."""


class HasDevice(HasShape, Protocol):
    """An array of PyTorch, JAX or another library whose arrays have a device."""

    @property
    def device(self) -> Any:
        """Return the device."""


class HasProducts(Protocol):
    """A sparse matrix, a LinearOperator, or another matrix that is known by its products."""

    @property
    def shape(self) -> Any:
        """Return the number of rows and columns."""

    @property
    def dtype(self) -> Any:
        """Return the type of the entries."""

    def __matmul__(self, V: Any, /) -> Any:
        """Return the product with a block V, shape (n, b)."""


# One number, name or class for every row or component, as users pass them.
Vector = HasShape | Sequence[Any]
# Rows of numbers as users pass them; and an iterable of batches of rows.
ArrayLike = HasShape | HasCSR | Sequence[Sequence[float]]
Stream = Iterable[ArrayLike]
# Rows of a type that is not known, Any. Their overload comes first: pyright would else take them for NumPy's.
UnknownRows = Never

# The arrays of an estimator: those of `Real` where `fit` returned it for `NumpyRows`, else those of any library.
# `Real` is the type of the numbers in NumPy arrays; integers and lists leave it at its default.
if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Held = TypeVar("Held", bound=Any, default=Any)
    Real = TypeVar("Real", bound=np.float32 | np.float64, default=np.float64)
else:
    from typing import TypeVar

    Held = TypeVar("Held")
    Real = TypeVar("Real")
Own = TypeVar("Own", bound=HasDevice)
# Rows whose results are NumPy arrays, and these results.
NumpyArray = NDArray[Real]
NumpyRows = NDArray[Real] | NDArray[np.integer[Any] | np.bool] | Sequence[Sequence[float]]


# A method of rows with further parameters P.
P = ParamSpec("P")
MethodOfRows = Callable[Concatenate[Any, Any, P], Array]


class OfRows(Protocol[P]):
    """A method of rows, for type checkers: results have the type of the rows where these are arrays."""

    @overload
    def __call__(self, X: UnknownRows, *args: P.args, **kwargs: P.kwargs) -> Array: ...
    @overload
    def __call__(self, X: NumpyRows[Real], *args: P.args, **kwargs: P.kwargs) -> NumpyArray[Real]: ...
    @overload
    def __call__(self, X: Own, *args: P.args, **kwargs: P.kwargs) -> Own: ...
    @overload
    def __call__(self, X: ArrayLike | Stream, *args: P.args, **kwargs: P.kwargs) -> Array: ...


def of_rows(method: MethodOfRows[P]) -> OfRows[P]:
    """Return the method itself."""
    return cast(OfRows[P], method)


class SymmetricOperator:
    """A real symmetric matrix of shape (n, n), stored or not: the base class of all operators.

    A subclass sets `shape`, `dtype` and `like` and defines products and entries; the other members have defaults.
    `top_eigh` calls ``@``, `diagonal`, and for dense solvers `to_dense`; a Cholesky factorization calls `diagonal` and
    `columns`.

    Attributes
    ----------
    shape : (n, n)
    dtype : floating-point type of the products
    like : array of size 0 in the namespace, dtype and device of the products
    noise_scale : float
        Size of the numbers that cancel in a product, where that is larger than the largest eigenvalue. Rank decisions
        and attainable residuals depend on it.
    entry_noise : float
        Size of what remains of these numbers where they err entry by entry with random signs: by default a share of
        1/sqrt(n).
    rounding : float
        Error of an entry in units of eps times the size of the entries; 0 where the entries are the problem itself.
        Reported residuals include it.
    known_means : array, shape (n,), or None
        Column means that the first product computes and later ones use. A checkpoint stores and restores them.
    trace : float or None
        The sum of the eigenvalues, where the operator knows it better or sooner than its diagonal.
    workers : int
        Threads that work on a factor of the matrix; 0: as many as BLAS may use.
    twin : SymmetricOperator or None
        Nearly the same matrix in a narrower type, on which block Krylov iterates before the operator itself verifies
        its Ritz vectors and completes them. The iteration then sets it to None, which releases its memory.
    resolution : float
        The relative error of products with a twin, where that is larger than the rounding of its type.
    rows : PreparedRows or None
        The prepared rows of X that K is evaluated from, which the model then need not prepare again.
    has_diagonal : bool
        Whether the diagonal can be computed. Without it the sum of the eigenvalues is not known, and no share of it.
    positive_definite : bool or None
        Whether the matrix is known to be positive semidefinite but for rounding.
    name : str
        The subject of error messages.

    See Also
    --------
    gpukpca.gram.DenseGram, gpukpca.gram.TiledGram : The operators of the library.

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca.eigen import top_eigh
    >>> from gpukpca.gram import SymmetricOperator
    >>> class Diagonal(SymmetricOperator):
    ...     def __init__(self, entries):
    ...         self.entries, self.like, self.dtype = entries, entries[:0], entries.dtype
    ...         self.shape = (len(entries), len(entries))
    ...     def __matmul__(self, V):
    ...         return self.entries[:, None] * V
    ...     def diagonal(self):
    ...         return self.entries
    >>> top_eigh(Diagonal(np.arange(100.0)), 2, "randomized", rng=0).eigenvalues.round(6)
    array([99., 98.])
    """

    shape: tuple[int, int]
    dtype: Any
    like: Array
    noise_scale: float = 0.0
    rounding: float = 0.0
    known_means: Array | None = None
    trace: float | None = None
    workers: int = 0
    twin: SymmetricOperator | None = None
    resolution: float = 0.0
    rows: Any = None
    has_diagonal: bool = True
    positive_definite: bool | None = None
    name: str = "the kernel matrix"

    @property
    def entry_noise(self) -> float:
        """Return the noise scale over sqrt(n)."""
        return self.noise_scale / float(max(self.shape[0], 1) ** 0.5)

    def __matmul__(self, V: Array) -> Array:
        """Return the product with a block V, shape (n, b)."""
        raise _undefined(self, "__matmul__(V)")

    def diagonal(self) -> Array:
        """Return the diagonal, shape (n,)."""
        raise _undefined(self, "diagonal()")

    def columns(self, indices: Indices) -> Array:
        """Return the named columns, shape (n, len(indices))."""
        raise _undefined(self, "columns(indices)")

    def column_panels(self, indices: Indices) -> ColumnPanels:
        """Return the function that computes some rows of the named columns; the default stores all columns."""
        columns = self.columns(indices)
        return lambda start, stop: columns[start:stop, :]

    def to_dense(self) -> Array:
        """Return the matrix itself, shape (n, n), in memory of the caller."""
        raise _undefined(self, "to_dense()")

    def project(self, V: Array) -> Array:
        """Return the orthogonal projection of the columns of V onto a subspace that holds the range."""
        return V

    def factor(self) -> Array | None:
        """Return F with ``op = F @ F.T`` where the operator is known by a factor, else None."""
        return None

    def block(self, rows: Indices, columns: Indices) -> Array | None:
        """Return the entries in the named rows and columns; None where whole columns cost no more."""
        return None

    def sizes(self) -> Array | None:
        """Return the diagonal before anything was subtracted from it, shape (n,); None where nothing was."""
        return None


def check_operator(op: Any) -> None:
    """Raise `InvalidParameterError` unless `op` is based on `SymmetricOperator` and has its attributes."""
    if not isinstance(op, SymmetricOperator):
        name = op.__name__ if isinstance(op, type) else type(op).__name__
        raise InvalidParameterError(
            f"expected a symmetric operator, got {name}; wrap a matrix as gpukpca.gram.DenseGram(K), or for kernel PCA "
            "as CenteredGram(DenseGram(K)). A sparse matrix, a LinearOperator, and an object with shape, dtype and @ "
            "are taken too; a user-defined class is based on gpukpca.gram.SymmetricOperator."
        )
    if missing := [name for name in ("shape", "dtype", "like") if not hasattr(op, name)]:
        raise InvalidParameterError(f"{type(op).__name__} must set {', '.join(missing)}; see SymmetricOperator.")


def _undefined(instance: Any, method: str) -> NotImplementedError:
    return NotImplementedError(f"{type(instance).__name__} must define {method}, which this computation calls.")
