"""Systems of positive definite matrices: cuSOLVER's Cholesky, with its report looked at as `cupy.linalg` does not."""

from __future__ import annotations

from typing import Any


def solve_positive_definite(A: Any, B: Any) -> Any:
    """``A⁻¹ B``; twin of `gpukpca.backend.linalg.solve_positive_definite`.

    Raises
    ------
    numpy.linalg.LinAlgError
        A is not positive definite to working precision.
    """
    import cupyx
    import cupyx.lapack

    with cupyx.errstate(linalg="raise"):  # of this thread, and put back
        return cupyx.lapack.posv(A, B)
