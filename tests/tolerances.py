"""Every tolerance in one place: multiples of eps of the dtype, and of the conditioning where there is one.

The order of additions, and so the last bits, differ between kernels of BLAS. A bound is at least `ROOM` times the
largest error seen with the kernels that `ci/test_blas.sh` runs, on every array library. Errors of 20 eps (eigenvalues
and residuals) and 15 eps (orthogonality), relative to the norm of the matrix, were seen. The bounds stay below
LAPACK's own 60 n eps from n = 3 on.
"""

from __future__ import annotations

import numpy as np

ROOM = 8.0  # for other kernels of BLAS, in the largest error seen
ITERATIVE_TOL = 100.0  # the tolerance of the iterative solver, in eps


def eps(dtype: str) -> float:
    """2.2e-16 or 1.2e-7."""
    return float(np.finfo(dtype).eps)


# -- kernels -----------------------------------------------------------------------------------------------------------


def kernel(dtype: str, size: float = 1.0) -> float:
    """An entry of a kernel matrix; `size` is the size of what is added up in it, times the derivative."""
    return 40.0 * eps(dtype) * size


def product(dtype: str, n: int, size: float = 1.0) -> float:
    """A sum of n terms of about `size`."""
    return 15.0 * eps(dtype) * max(1.0, np.sqrt(n)) * size


# -- eigenpairs --------------------------------------------------------------------------------------------------------


def eigenvalue(dtype: str) -> float:
    """|lambda - lambda'| / ||A||, of every solver: the residual of an iteration enters by its square."""
    return ROOM * 20.0 * eps(dtype)


def residual(dtype: str, solver: str = "dense") -> float:
    """||A u - lambda u|| / ||A||; the iterative solver adds its own tolerance."""
    return (ROOM * 20.0 + (0.0 if solver == "dense" else ITERATIVE_TOL)) * eps(dtype)


def orthogonality(dtype: str, library: str = "numpy") -> float:
    """max |U'U - I|; 200 eps on CuPy, where cuBLAS rounds the products of shifted Cholesky QR in another order."""
    return ROOM * (25.0 if library == "cupy" else 15.0) * eps(dtype)


def angle(dtype: str, solver: str, gap: float) -> float:
    """Sine of the angle of a vector whose eigenvalue has the relative gap `gap`."""
    return (residual(dtype, solver) + eigenvalue(dtype)) / gap


def golden(dtype: str) -> float:
    """|lambda - lambda'| / lambda_1 of the golden problems, whose matrices are formed to a few eps."""
    return ROOM * 10.0 * eps(dtype)


def scores(dtype: str, solver: str, values: np.ndarray) -> np.ndarray:
    """Scores by column, in units of sqrt(lambda_1): 100 eps sqrt(l1) l1 / l_i."""
    factor = 100.0 if solver == "dense" else 300.0
    return factor * eps(dtype) * np.sqrt(values[0]) * values[0] / values
