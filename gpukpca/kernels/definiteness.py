"""Checks that a kernel is positive semidefinite."""

from __future__ import annotations

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend.namespace import epsilon, to_host
from gpukpca.data.finite import FINITE, check_finite
from gpukpca.data.gate import as_rows
from gpukpca.exceptions import IndefiniteKernelError
from gpukpca.kernels.base import Kernel, resolved_on
from gpukpca.kernels.user_defined import BlockCallable, PairwiseCallable, Precomputed


def is_psd(kernel: Kernel, X: Array) -> bool:
    """Return whether the Gram matrix of `kernel` on the rows of X has no eigenvalue below rounding.

    Parameters
    ----------
    kernel : Kernel
    X : array or CSR matrix, shape (n, d)

    Returns
    -------
    bool
        False proves that the kernel is not positive semidefinite. True is necessary, not sufficient: another set of
        points may show a negative eigenvalue.

    See Also
    --------
    Kernel : Its attribute `positive_definite` states what is known of every Gram matrix.

    Notes
    -----
    Cost O(n³), memory O(n²): meant for a few hundred points. The bound on rounding is -10 n eps times the largest
    eigenvalue, eps that of the dtype of X.

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca.kernels import RBF, Sigmoid, is_psd
    >>> X = np.array([[0.5], [1.0], [1.5]])
    >>> is_psd(RBF(gamma=1.0), X), is_psd(Sigmoid(gamma=1.0, coef0=-1.0), X)
    (True, False)
    """
    rows = as_rows(X)
    check_finite(rows, FINITE)
    K = resolved_on(kernel, rows)(rows)
    tolerance = 10.0 * K.shape[0] * epsilon(K)
    eigenvalues = np.linalg.eigvalsh(to_host(K).astype(np.float64))
    return bool(eigenvalues[0] >= -tolerance * max(float(np.max(np.abs(eigenvalues))), 0.0))


def may_be_semidefinite(kernel: Kernel) -> bool:
    """Return whether a kernel is known to be positive semidefinite, or is a matrix or a function of the user."""
    return kernel.positive_definite is True or isinstance(kernel, (Precomputed, PairwiseCallable, BlockCallable))


def check_not_indefinite(kernel: Kernel) -> None:
    """Raise `IndefiniteKernelError` unless a kernel is known to be semidefinite; try the user's matrix or function."""
    if not may_be_semidefinite(kernel):
        raise IndefiniteKernelError(
            f"Nyström needs a positive semidefinite kernel, and {kernel!r} is not known to be one. Use another kernel "
            '(rbf, laplacian, matern, poly with coef0 >= 0), or eigen_solver="randomized". If a kernel class that you '
            "wrote is positive semidefinite, set positive_definite = True in it."
        )
