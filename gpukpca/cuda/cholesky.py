"""Systems of positive definite matrices by cuSOLVER, whose error report `cupy.linalg` ignores."""

from __future__ import annotations

from typing import Any


def solve_positive_definite(A: Any, B: Any) -> Any:
    """Return ``A⁻¹ B``; raise LinAlgError where A is not positive definite to working precision.

    Twin of `gpukpca.backend.linalg.solve_positive_definite`.
    """
    import cupyx
    import cupyx.lapack

    with cupyx.errstate(linalg="raise"):  # of this thread, and put back
        return cupyx.lapack.posv(A, B)
