"""Warnings of the estimators: at the caller's line, and one that is scikit-learn's as well."""

from __future__ import annotations

import sys
import warnings

from sklearn.exceptions import ConvergenceWarning as SklearnConvergenceWarning

from gpukpca import exceptions


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
