"""Kernel values that underflow."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gpukpca.algorithms.magnitude import row_bounds, scaled_rows
from gpukpca.backend.namespace import dtype_name, overflow_allowed, to_host
from gpukpca.backend.rows import half_range, place_of, power_of_two_scale, take_rows
from gpukpca.exceptions import InvalidParameterError
from gpukpca.kernels import Kernel, Precomputed

# Rows that show whether a kernel that is 0 is so by underflow.
SEEN_ROWS = 16


def check_underflow(X: Any, kernel: Kernel, largest: float | None = None) -> None:
    """Raise where kernel values underflow that do not for the same rows times a constant.

    `largest` is an eigenvalue: nothing is evaluated where it is a normal number. None: the fit failed, and values
    without all of their digits are the cause.
    """
    n = int(X.shape[0])
    limits = np.finfo(dtype_name(place_of(X).dtype))
    least = float(limits.tiny) / (float(limits.eps) if largest is None else 1.0)
    if isinstance(kernel, Precomputed) or (largest is not None and largest >= n * least):
        return
    size = half_range(*row_bounds([X]))
    rows = take_rows(X, 0, min(n, SEEN_ROWS))
    with overflow_allowed():
        known, scaled = (
            float(np.max(np.abs(to_host(kernel.diagonal(Y)))))
            for Y in (rows, scaled_rows(rows, power_of_two_scale(size, np.float64)))
        )
    if size > 0.0 and known < least <= scaled:
        raise InvalidParameterError(
            f"the kernel matrix underflows: features range over at most {2.0 * size:.0e}, and {limits.dtype} does "
            f"not hold values of {kernel!r} so small. Multiply the data by 2**{-math.frexp(size)[1]}."
        )
