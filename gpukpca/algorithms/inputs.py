"""Checks of the arguments of functions and fit results that users call without an estimator."""

from __future__ import annotations

from typing import Any

from gpukpca._typing import Array
from gpukpca.backend.finite import FINITE, check_finite
from gpukpca.backend.namespace import cast, is_sparse, move
from gpukpca.backend.rows import as_rows, check_not_empty
from gpukpca.exceptions import InvalidParameterError


def training_rows(X: Any, purpose: str, *, missing: bool = False, name: str = "X") -> Array:
    """Return the rows (n, d) of a fit, checked, where they are; errors call them `name` and the fit `purpose`.

    With `missing`, NaN, masked entries and missing values of pandas are NaN.

    Raises
    ------
    InvalidParameterError
        X is not two-dimensional, complex or masked, or has no rows or no columns.
    ValueError
        NaN or infinity in X.
    """
    rows = as_rows(X, missing=missing)
    check_not_empty(rows, purpose, name)
    check_finite(rows, FINITE, f"Input {name}", missing=missing)
    return rows


def new_rows(X_new: Any, d: int, *, missing: bool = False) -> Array:
    """Return new rows (m, d), checked, where they are; see `training_rows`."""
    rows = as_rows(X_new, missing=missing)
    if int(rows.shape[1]) != d:
        raise InvalidParameterError(f"X_new has {int(rows.shape[1])} feature(s), and the fit has {d}.")
    check_finite(rows, FINITE, "Input X_new", missing=missing)
    return rows


def new_scores(Z: Any, p: int, like: Array) -> Array:
    """Return scores (m, p), checked, in the library, dtype and device of `like`.

    Raises
    ------
    InvalidParameterError
        Z is sparse, not two-dimensional or complex, or has another number of columns.
    ValueError
        NaN or infinity in Z.
    """
    if is_sparse(Z):
        raise InvalidParameterError("sparse scores are not supported; pass Z.toarray().")
    scores = as_rows(Z)
    if int(scores.shape[1]) != p:
        raise InvalidParameterError(
            f"scores have {int(scores.shape[1])} column(s), and the fit has {p} components. Pass all columns, as "
            "transform returns them."
        )
    check_finite(scores, "Every score must be finite.", "The array of scores")
    return cast(move(scores, like), like.dtype)


def check_type(name: str, value: Any, cls: type) -> None:
    """Raise `InvalidParameterError` where an argument is no object of a class."""
    if not isinstance(value, cls):
        called = f"; {cls.__name__}() makes one" if value is cls else ""
        raise InvalidParameterError(f"{name}={value!r} is not allowed; give an object of {cls.__name__}{called}.")


def check_listener(progress: Any) -> None:
    """Raise `InvalidParameterError` where `progress` is neither None nor callable."""
    if progress is not None and not callable(progress):
        raise InvalidParameterError(f"progress={progress!r} is not allowed; give None or a callable.")
