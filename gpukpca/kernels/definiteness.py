"""Is a kernel positive semidefinite on these points?"""

from __future__ import annotations

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend import linalg
from gpukpca.backend.namespace import accumulation_dtype, cast, epsilon
from gpukpca.backend.rows import as_rows
from gpukpca.kernels.base import Kernel


def is_psd(kernel: Kernel, X: Array) -> bool:
    """Whether the Gram matrix of `kernel` on the rows of X has no eigenvalue below rounding.

    Parameters
    ----------
    kernel : Kernel
    X : array or CSR matrix, shape (n, d)

    Returns
    -------
    bool
        False proves that the kernel is not positive semidefinite. True is necessary, not sufficient: another set of
        points may show a negative eigenvalue.

    Notes
    -----
    Cost O(n³), memory O(n²): meant for a few hundred points. The bound on rounding is -10 n eps times the largest
    eigenvalue, eps that of the dtype of X.
    """
    rows = as_rows(X)
    K = kernel(rows)
    tolerance = 10.0 * K.shape[0] * epsilon(K)
    eigenvalues = linalg.all_eigenvalues(cast(K, accumulation_dtype(K)))
    return bool(eigenvalues[0] >= -tolerance * max(float(np.max(np.abs(eigenvalues))), 0.0))
