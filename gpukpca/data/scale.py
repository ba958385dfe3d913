"""The power of two that keeps squares of data in range, and variances in the units of the data.

Rows are multiplied by it where they are centered, before anything is squared. At ordinary sizes it is 1.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend.namespace import (
    EPSILON,
    accumulation_dtype,
    cast,
    dtype_name,
    namespace_of,
    overflow_allowed,
    to_host,
)
from gpukpca.data.rows import map_rows
from gpukpca.data.statistics import feature_bounds, half_range
from gpukpca.exceptions import InvalidParameterError, PrecisionWarning, warn_user

# Largest power of two that data are multiplied or divided by: it and its inverse are normal numbers.
LARGEST_EXPONENT = {"float64": 1020, "float32": 124}
# Deviations of 2**-e to 2**e have fourth powers, and long sums of them, well inside the range of the type.
SAFE_EXPONENT = {"float64": 200, "float32": 20}
# The smallest number with all digits, and the largest.
SMALLEST, LARGEST = ({name: float(getattr(np.finfo(name), end)) for name in SAFE_EXPONENT} for end in ("tiny", "max"))


def power_of_two_scale(largest: float, dtype: Any) -> float:
    """Return the power of two that brings `largest` into [1/2, 1), as far as `dtype` allows; 1 where it is 0."""
    limit = LARGEST_EXPONENT[dtype_name(dtype)]
    return 2.0 ** max(-limit, min(limit, -math.frexp(largest)[1]))


def scale_for_squares(largest: float, dtype: Any) -> float:
    """Return 1 where deviations up to `largest` can be squared safely in `dtype`, else `power_of_two_scale`."""
    safe = SAFE_EXPONENT[dtype_name(dtype)]
    return 1.0 if abs(math.frexp(largest)[1]) <= safe else power_of_two_scale(largest, dtype)


def needs_own_scale(sizes: np.ndarray, dtype: Any) -> np.ndarray:
    """Return which of the sizes (d,) of features on the host are not squared safely in `dtype`."""
    unsafe: np.ndarray = np.abs(np.frexp(sizes)[1]) > SAFE_EXPONENT[dtype_name(dtype)]
    return unsafe


def row_bounds(batches: Iterable[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return the smallest and largest entry of every column on the host in float64, shapes (d,)."""
    bounds = [tuple(to_host(bound).astype(np.float64) for bound in feature_bounds(rows)) for rows in batches]
    return np.min([low for low, _ in bounds], axis=0), np.max([high for _, high in bounds], axis=0)


def are_safe(squares: Array) -> bool:
    """Return True where sums of squares (d,) are far from underflow and overflow; False where all of them are 0."""
    largest = float(namespace_of(squares).max(squares))
    return 0.0 < largest < math.inf and scale_for_squares(math.sqrt(largest), squares.dtype) == 1.0


def check_entries(low: np.ndarray, high: np.ndarray, scale: float, dtype: Any) -> None:
    """Raise `InvalidParameterError` where entries between `low` and `high` (d,) times the scale overflow."""
    largest = float(np.max(np.maximum(np.abs(low), np.abs(high))))
    if not largest * scale <= LARGEST[dtype_name(dtype)]:
        raise InvalidParameterError(
            f"no feature deviates from its mean by more than {half_range(low, high):.0e}, and there are entries of "
            f"{largest:.0e}: {dtype_name(dtype)} does not hold both in common units. Subtract a constant from the "
            "features with large entries."
        )


def safe_scale(low: np.ndarray, high: np.ndarray, dtype: Any) -> float:
    """Return the power of two for rows between `low` and `high`, shapes (d,)."""
    scale = scale_for_squares(half_range(low, high), dtype)
    check_entries(low, high, scale, dtype)
    return scale


def scaled_rows(X: Any, scale: float) -> Any:
    """Return X times a power of two in the widest type; X itself where that is 1."""
    return X if scale == 1.0 else cast(X, accumulation_dtype(X)) * scale


def rescaled(X: Any, scale: float) -> Any:
    """Return rows of any container times a power of two, in their type; X itself where that is 1."""
    return X if scale == 1.0 else map_rows(X, operator.mul, scale, width=int(X.shape[1]))


def variances_of_data(values: Any, scale: float, dtype: Any) -> np.ndarray:
    """Return variances of data that were multiplied by `scale`, in the units of the data, on the host in float64.

    Raise `InvalidParameterError` where one overflows in the `dtype` of fitted attributes. Warn where one underflows
    that is no rounding of the largest one.
    """
    values = np.asarray(values, dtype=np.float64)
    largest = float(values.max(initial=0.0))
    with overflow_allowed():
        variances: np.ndarray = values / scale / scale
    check_variance(largest, scale, dtype)
    if ((variances < SMALLEST[dtype_name(dtype)]) & (values > EPSILON["float64"] * largest)).any():
        size = math.sqrt(largest) / scale
        warn_user(
            f"fitted variances are 0 or lost digits: {dtype_name(dtype)} has no variances so small. Multiply the data "
            "by a large constant. Components, scores and shares of the variance are right.",
            PrecisionWarning,
            deviation=size,
            factor=factor_near_one(size, dtype),
        )
    return variances


def check_variance(value: float, scale: float, dtype: Any) -> None:
    """Raise `InvalidParameterError` where a variance of data that were multiplied by `scale` overflows in `dtype`."""
    if not float(value) / scale / scale <= LARGEST[dtype_name(dtype)]:
        size = math.sqrt(value) / scale
        raise InvalidParameterError(
            f"overflow: the data deviate from their mean by about {size:.0e}, and {dtype_name(dtype)} has no variances "
            f"so large. Multiply the data by {factor_near_one(size, dtype)}."
        )


def factor_near_one(size: float, dtype: Any) -> str:
    """Return what brings numbers of a size near 1, for an error; where `dtype` has no such number, two factors."""
    if not math.isfinite(size):
        return "a number much smaller than 1"
    exponent, limit = -math.frexp(size)[1], LARGEST_EXPONENT[dtype_name(dtype)]
    return f"2**{exponent}" if exponent <= limit else f"2**{limit}, and then by 2**{exponent - limit}"
