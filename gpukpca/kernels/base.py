"""The base class of kernels: parameters, rows prepared once, and blocks of K from two slices of them."""

from __future__ import annotations

from typing import Any, overload

import numpy as np

from gpukpca._typing import Array, NumpyArray, NumpyRows, Real, UnknownRows
from gpukpca.backend import linalg
from gpukpca.backend.device import on_its_device
from gpukpca.backend.namespace import cast, overflow_allowed
from gpukpca.backend.parameters import ParameterObject, check_values
from gpukpca.data.frequencies import counted_rows
from gpukpca.data.gate import as_rows
from gpukpca.data.rows import Rows
from gpukpca.data.slicing import check_widths
from gpukpca.exceptions import InvalidParameterError
from gpukpca.kernels.bandwidth import resolved_gamma, rule_bytes
from gpukpca.kernels.prepared import DataRows, DensifiedRows, PreparedRows


class Kernel(ParameterObject):
    """A kernel function k(x, y) that can be evaluated block by block on any array library.

    `get_params` and `set_params` follow scikit-learn's rules (nested names such as ``k1__gamma`` included), so kernels
    can be cloned, pickled, printed and searched over. The library never changes a kernel of the user.

    Kernels combine: ``k1 + k2``, ``k1 * k2``, ``2.5 * k``, ``k ** 3``, `gpukpca.kernels.exp` and
    `gpukpca.kernels.modulate`. Sums and products have the parameters `k1` and `k2`, the others `k`, with `factor`,
    `exponent` or `g`. Sums and products of more than 25 kernels are balanced.

    Attributes
    ----------
    positive_definite : bool or None
        Whether every Gram matrix of the kernel is positive semidefinite; None where that is not known. Unless it is
        True, Nyström refuses the kernel, and spectra are searched for negative eigenvalues. It is False for a
        conditionally positive definite kernel, whose matrix centering makes definite.
    stored_only : bool
        Whether K must be stored because its blocks cannot be recomputed cheaply.
    scratch_tiles : int
        Temporary arrays of a tile's size that `tile` needs in addition to its result; 4 where a class does not say.
    densifies : bool
        Whether the `data` of a slice of rows is a dense array also where X is CSR.
    exponentials : int
        The cost of the elementwise pass, in exponentials an entry (for the plan's estimate).
    inverts_to : "distances", "products" or None
        What a value of k determines of two points: their distance (`square_distances`, where k(x, x) > 0 and k >= 0),
        their inner product (`inner_products`), or neither.
    depends_on_distance : bool
        Whether k(x, y) is a function of one distance alone that is positive at 0 and decreases to a bound >= 0. New
        rows without a value above rounding are then reported as far.
    gamma_of_length : bool
        Whether gamma is one over a length: distances are not squared. Else it is one over a square (for its rules).
    moves_rows : "always", "centered", "never" or None
        Whether a float32 twin of K subtracts the mean from the rows first, which keeps digits: always, since k depends
        on x - y alone; where K is centered; or never. None: no twin.

    See Also
    --------
    gpukpca.KernelPCA : Kernel PCA with a kernel object or the name of one.
    gpukpca.gram.gram_matrix : K of a kernel, by tiles and with threads.

    Notes
    -----
    A subclass defines `prepare_rows`, `tile` and `tile_diagonal`, and stores its constructor's arguments under their
    own names. When rows were prepared with ``centered=True``, blocks may omit terms that depend on one argument alone.
    Double centering removes them, and omitting them early keeps the digits that otherwise cancel (features are
    centered; a flat kernel becomes k - 1).

    Examples
    --------
    A kernel is a class with `tile` and `tile_diagonal`. Rows are prepared as they are unless `prepare_rows` is defined.

    >>> import numpy as np
    >>> from gpukpca.kernels import RBF, Kernel, Linear
    >>> class Affine(Kernel):
    ...     positive_definite = True
    ...     def tile(self, a, b, out=None):
    ...         return a.data @ b.data.T + 1.0
    ...     def tile_diagonal(self, a):
    ...         return (a.data**2).sum(axis=1) + 1.0
    >>> X = np.array([[0.0, 1.0], [2.0, 0.0]])
    >>> Affine()(X)
    array([[2., 1.],
           [1., 5.]])
    >>> k = 2.0 * RBF(gamma=0.5) + Linear()
    >>> k(X).round(3)
    array([[3.   , 0.164],
           [0.164, 6.   ]])
    >>> k.get_params()["k1__k__gamma"]
    0.5
    """

    positive_definite: bool | None = None
    stored_only = False
    densifies = False
    scratch_tiles = 4  # of a `tile` that writes its formula with arrays
    exponentials = 1
    inverts_to: str | None = None
    depends_on_distance = False
    gamma_of_length = False
    moves_rows: str | None = None
    # The levels of nested kernels.
    _levels = 1
    # Whether rows prepared with ``centered=True`` omit a constant at most (`offset`), which kernels that contain this
    # one can restore.
    leaves_out_constants = False

    @overload
    def __call__(self, X: UnknownRows, Y: Any = None) -> Array: ...
    @overload
    def __call__(self, X: NumpyRows[Real], Y: NumpyRows[Any] | None = None) -> NumpyArray[Real]: ...
    @overload
    def __call__(self, X: Array, Y: Array | None = None) -> Array: ...
    @on_its_device
    def __call__(self, X: Array, Y: Array | None = None) -> Array:
        """Return the kernel matrix between the rows of X and of Y.

        Parameters
        ----------
        X : array or CSR matrix, shape (n, d)
        Y : array or CSR matrix, shape (m, d), optional
            Default: X itself; then the result is exactly symmetric with the exact diagonal.

        Returns
        -------
        array, shape (n, m)
            In the library, dtype and device of X. Integers are computed in float64.

        Notes
        -----
        Cost O(n m d), in one block. `gpukpca.gram.gram_matrix` does the same tile by tile and with threads.
        """
        X = as_rows(X)
        if Y is not None:
            Y = as_rows(Y)
            check_widths(X, Y)
        with overflow_allowed():
            kernel = self.resolve(X)
            a = kernel.prepare(X)
            if Y is None:
                return linalg.symmetric_from_upper(kernel.tile(a, a), kernel.tile_diagonal(a))
            return kernel.tile(a, kernel.prepare(cast(Y, X.dtype), like=a))

    @on_its_device
    def diagonal(self, X: Array) -> Array:
        """Return k(x, x) of every row of X, shape (n,). Cost O(n d)."""
        X = as_rows(X)
        with overflow_allowed():
            kernel = self.resolve(X)
            return kernel.tile_diagonal(kernel.prepare(X))

    def resolve(self, X: Array, weights: np.ndarray | None = None) -> Kernel:
        """Return a checked copy in which parameters that depend on the data (``gamma="scale"``) are numbers.

        Parameters
        ----------
        X : array or CSR matrix, shape (n, d)
            The rows from which rules learn.
        weights : array, shape (n,), optional
            How often each row counts; rows of weight 0 may hold anything.

        Returns
        -------
        Kernel
        """
        if weights is not None:
            X, weights, _ = counted_rows(X, weights)
        parameters = {
            name: value.resolve(X, weights) if isinstance(value, Kernel) else value
            for name, value in self.get_params(deep=False).items()
        }
        if "gamma" in parameters:
            gamma = parameters["gamma"]
            parameters["gamma"] = resolved_gamma(type(self).__name__, gamma, X, self.gamma_of_length, weights)
        resolved = type(self)(**parameters)
        check_values(resolved)
        return resolved

    def rule_bytes(self, n: int, d: int) -> int:
        """Return the bytes that `resolve` holds for rows (n, d), in addition to them."""
        parameters = self.get_params(deep=False)
        parts = [value.rule_bytes(n, d) for value in parameters.values() if isinstance(value, Kernel)]
        return max(rule_bytes(parameters.get("gamma"), n, d), *parts, 0)

    def prepare(self, X: Array, like: PreparedRows | None = None, centered: bool = False) -> PreparedRows:
        """Return the rows of X prepared for tiles.

        Parameters
        ----------
        X : array or CSR matrix, shape (n, d)
        like : PreparedRows, optional
            The prepared training rows, whose mean, scale and precision new rows use.
        centered : bool
            The result is only used after double centering, so terms of one argument alone may be omitted. Ignored with
            `like`, which decides.

        Returns
        -------
        PreparedRows
        """
        if X.shape[1] == 0:
            raise InvalidParameterError(f"X has 0 features (shape={tuple(X.shape)}); a kernel needs at least one.")
        with overflow_allowed():
            return self.prepare_rows(X, like, centered)

    def prepare_rows(self, X: Array, like: Any, centered: bool) -> PreparedRows:
        """Return the prepared rows; `prepare` describes the arguments."""
        return DensifiedRows(X) if self.densifies else DataRows(X)

    def template(self, X: Array, centered: bool = False) -> PreparedRows:
        """Return what rows share with their training set (mean, precision, flatness), not its rows; see `prepare`.

        ``prepare(part, like=template(X, centered))`` prepares any part of X. A subclass whose rows depend on the whole
        of X should define it; this one prepares all of X.

        Raises
        ------
        InvalidParameterError
            X is in batches or on a cluster, and the kernel defines `prepare_rows` alone.
        """
        if isinstance(X, Rows):
            if type(self).prepare_rows is not Kernel.prepare_rows:
                raise InvalidParameterError(
                    f"{type(self).__name__} defines prepare_rows but no template(X, centered), so that rows in "
                    "batches, or on a cluster, cannot be prepared part by part."
                )
            X = X.like
        return self.prepare(X, centered=centered)

    def feature_count(self, d: int) -> int | None:
        """Return the dimension of the feature space for data of d features; None where features are not explicit."""
        return None

    def features(self, X: Array, template: PreparedRows) -> Array:
        """Return phi(x) of every row of a dense X, shape (n, feature_count(d)); their inner products are K."""
        raise NotImplementedError

    def slope(self, unit: float = 1.0) -> Kernel | None:
        """Return the kernel -unit f'(‖x - y‖²) for k(x, y) = f(‖x - y‖²), up to a factor where k is constant.

        Parameters
        ----------
        unit : float
            Of the size of the squared distances it keeps values near 1, within the range of float32.

        Returns
        -------
        Kernel or None
            None for other kernels, and where f has no derivative at 0.
        """
        return None

    def square_distances(self, drops: np.ndarray) -> np.ndarray:
        """Return the ‖x - y‖² at which k(x, y) = f(‖x - y‖²) is less than f(0) by `drops`, 0 <= drops < f(0)."""
        raise NotImplementedError

    def inner_products(self, values: np.ndarray) -> np.ndarray:
        """Return the x·y at which k(x, y) takes these values."""
        raise NotImplementedError

    def tile(self, a: Any, b: Any, out: Array | None = None) -> Array:
        """Return the block of K between two slices of prepared rows; `out` may be its memory."""
        raise AttributeError(f"{type(self).__name__} must define tile(a, b, out=None)")

    def tile_diagonal(self, a: Any) -> Array:
        """Return the diagonal of the tile between `a` and itself, shape (a.n_rows,)."""
        raise AttributeError(f"{type(self).__name__} must define tile_diagonal(a)")

    def offset(self, rows: Any) -> float:
        """Return the constant that tiles of these rows lack: c where they hold k - c; 1 for shifted rows by default."""
        return float(rows.shifted)

    def rounding(self, template: Any) -> float:
        """Return the error of an entry in units of eps times the size of entries, given the template of the data."""
        return 1.0  # one rounding or two

    def __add__(self, other: Kernel) -> Kernel:
        from gpukpca.kernels.algebra import Sum, chained

        return chained(Sum, self, other) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, other: Kernel | float | np.number[Any]) -> Kernel:
        from gpukpca.kernels.algebra import Product, Scale, chained

        if isinstance(other, Kernel):
            return chained(Product, self, other)
        return Scale(self, float(other)) if isinstance(other, (int, float, np.number)) else NotImplemented

    def __rmul__(self, other: float | np.number[Any]) -> Kernel:
        return self.__mul__(other)

    def __pow__(self, exponent: int) -> Kernel:
        from gpukpca.kernels.algebra import Power

        return Power(self, exponent)


def resolved_on(kernel: Any, X: Array, weights: np.ndarray | None = None) -> Kernel:
    """Return the kernel with numbers in place of rules; raise where it is no kernel."""
    if isinstance(kernel, Kernel):
        return kernel.resolve(X) if weights is None else kernel.resolve(X, weights)
    raise InvalidParameterError(
        f"expected a kernel object such as gpukpca.kernels.RBF(gamma=0.1), got {kernel!r}. Names and plain functions "
        "are for KernelPCA."
    )
