"""Every tolerance in one place: multiples of eps of the dtype, and of the conditioning where there is one.

The gates are those of LAPACK's own tests made tighter for n <= 1000: eigenvalues 20 eps, residuals 40 eps,
orthogonality 100 eps, all relative to the norm of the matrix.
"""

from __future__ import annotations

import numpy as np

ITERATIVE_TOL = 100.0  # what the iterative solver is asked for, in eps


def eps(dtype: str) -> float:
    """2.2e-16 or 1.2e-7."""
    return float(np.finfo(dtype).eps)


# -- kernels -----------------------------------------------------------------------------------------------------------


def kernel(dtype: str, size: float = 1.0) -> float:
    """An entry of a kernel matrix; `size` is the size of what is added up in it, times the derivative."""
    return 30.0 * eps(dtype) * size


def product(dtype: str, n: int, size: float = 1.0) -> float:
    """A sum of n terms of about `size`."""
    return 10.0 * eps(dtype) * max(1.0, np.sqrt(n)) * size


# -- eigenpairs --------------------------------------------------------------------------------------------------------


def eigenvalue(dtype: str, solver: str = "dense") -> float:
    """|lambda - lambda'| / ||A||: 4.4e-15 and 2.4e-6 dense; 1e-14 and 2e-6 iterative."""
    if solver == "dense":
        return 20.0 * eps(dtype)
    return {"float64": 1e-14, "float32": 2e-6}[dtype]


def residual(dtype: str, solver: str = "dense") -> float:
    """||A u - lambda u|| / ||A||; the iterative solver adds its own tolerance."""
    return (40.0 if solver == "dense" else 40.0 + ITERATIVE_TOL) * eps(dtype)


def orthogonality(dtype: str) -> float:
    """max |U'U - I|."""
    return 100.0 * eps(dtype)


def angle(dtype: str, solver: str, gap: float) -> float:
    """Sine of the angle of a vector whose eigenvalue has the relative gap `gap`."""
    return (residual(dtype, solver) + 20.0 * eps(dtype)) / gap


# -- golden problems: |lambda - lambda'| / lambda_1 --------------------------------------------------------------------

GOLDEN = {
    #             float64 dense, float32 dense, float64 iterative, float32 iterative
    "circle": (1.2e-15, 3e-7, 1e-14, 1e-6),
    "finite rank": (1.2e-15, 5e-7, 1e-14, 1e-6),
    "brownian": (2e-15, 1.2e-6, 1e-14, 2e-6),
    "hypercube": (2.5e-15, 4e-7, 1e-14, 2e-6),
    "duplicates": (1e-15, 5e-7, 1e-14, 1e-6),
    "orthonormal": (1e-15, 5e-7, 1e-14, 1e-6),
    "linear": (1e-14, 3e-7, 1e-14, 1e-6),
    "flat": (2e-7, 2e-7, 2e-7, 2e-7),
    "mercer": (1e-15, 3e-7, 1e-14, 1e-6),
}


def golden(problem: str, dtype: str, solver: str) -> float:
    """Relative to the largest eigenvalue."""
    return GOLDEN[problem][(dtype == "float32") + 2 * (solver != "dense")]


def scores(dtype: str, solver: str, values: np.ndarray) -> np.ndarray:
    """Scores by column, in units of sqrt(lambda_1): 100 eps sqrt(l1) l1 / l_i."""
    factor = 100.0 if solver == "dense" else 300.0
    return factor * eps(dtype) * np.sqrt(values[0]) * values[0] / values
