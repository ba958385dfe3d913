"""Warnings of the estimators: at the caller's line, and one that is scikit-learn's as well."""

from __future__ import annotations

import math
import sys
import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning as SklearnConvergenceWarning

from gpukpca import exceptions
from gpukpca.backend.namespace import dtype_name


class ConvergenceWarning(exceptions.ConvergenceWarning, SklearnConvergenceWarning):
    """Some eigenpairs have residuals above the tolerance."""


def warn_caller(message: str, category: type[Warning]) -> None:
    """Warn at the first line outside of this library and of scikit-learn's wrappers: the one that the user wrote."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("gpukpca", "sklearn"):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


# Told in this process already.
_told: set[str] = set()


def warn_once(message: str, category: type[Warning]) -> None:
    """`warn_caller`, once in a process for every message: what a machine lacks does not change from fit to fit."""
    if message not in _told:
        _told.add(message)
        warn_caller(message, category)


def check_variance_range(deviations: np.ndarray, dtype: Any) -> None:
    """Check that the squares of the standard deviations of the scores are ordinary numbers of a dtype.

    Raises
    ------
    InvalidParameterError
        The largest variance does not fit into the dtype.

    Warns
    -----
    PrecisionWarning
        The smallest variance other than 0 is so small that the dtype loses digits of it.
    """
    name = dtype_name(dtype)
    limits, nonzero = np.finfo(name), deviations[deviations > 0]
    if not nonzero.size:
        return
    largest, smallest = float(np.max(nonzero)), float(np.min(nonzero))
    remedy = f"Multiply the data by 2.0**{-math.frexp(largest)[1]}{', or pass float64' if name == 'float32' else ''}."
    if largest * largest > float(limits.max):
        raise exceptions.InvalidParameterError(
            f"overflow: the data deviate from their mean by about {largest:.1e}, and variances of that size do not "
            f"fit into {name}. {remedy}"
        )
    if smallest * smallest < float(limits.tiny):
        warn_caller(
            f"the scores deviate from 0 by {largest:.1e} to {smallest:.1e}, and {name} loses digits of variances of "
            f"that size or holds 0 for them. Components, ratios, scores and singular values keep their digits. "
            f"{remedy}",
            exceptions.PrecisionWarning,
        )
