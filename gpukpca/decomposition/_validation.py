"""Checks of rows that users pass: container, shape, dtype, finiteness.

Host containers go through scikit-learn's own checks. Arrays of other libraries never do: without dispatch those
checks would turn them into float64 NumPy arrays silently.
"""

from __future__ import annotations

from typing import Any

import array_api_compat
import numpy as np
from sklearn import get_config
from sklearn.utils.validation import check_array, validate_data

from gpukpca._typing import Array
from gpukpca.backend import blocking
from gpukpca.backend.containers import check_container, check_numbers, column_names, entries_named, without_missing
from gpukpca.backend.csr import canonical, check_compressed
from gpukpca.backend.device import device_context
from gpukpca.backend.finite import FINITE, check_finite
from gpukpca.backend.namespace import (
    accumulation_dtype,
    cast,
    dtype_name,
    is_foreign,
    is_jax,
    is_memory_map,
    is_numpy,
    is_sparse,
    library_of,
    move,
    overflow_allowed,
    real_floating,
    same_place,
    to_host,
)
from gpukpca.backend.random import seeded_subset
from gpukpca.backend.rows import gather_rows
from gpukpca.distributed.rows import dask_kind
from gpukpca.exceptions import InvalidParameterError, PrecisionWarning, warn_user


def training_data(estimator: Any, X: Any, *, missing: bool = False) -> Array:
    """Return X of `fit` as a floating-point array (n, d) or CSR matrix; set `n_features_in_` and the feature names.

    With `missing`, NaN and masked entries are missing values, and come out as NaN. Raises ValueError or TypeError as
    scikit-learn does, infinity and else NaN included.
    """
    with device_context(X), overflow_allowed():
        return _checked(estimator, X, reset=True, missing=missing)


def unread_data(estimator: Any, X: Any) -> Array:
    """Return X of `fit` as `training_data` does, for a fit that finds NaN and infinity in its own first pass."""
    with device_context(X), overflow_allowed():
        given, X = X, _as_rows(estimator, X)
        _check_width(estimator, given, X, reset=True)
        return X


def planned_data(estimator: Any, X: Any) -> tuple[Array, Array]:
    """Return X of `plan` as `training_data` does, and the rows from which the kernel learns: all of them.

    Of a memory map these are a sample, the same rows in every run, and no others are read or checked. Where its entries
    are converted, an array of the same shape that takes no memory stands for the rows.
    """
    most = _sampled_rows(X)
    if most is None:
        data = training_data(estimator, X)
        return data, data
    sample = training_data(estimator, gather_rows(np.asarray(X), seeded_subset(len(X), most)))
    is_converted = X.dtype != sample.dtype
    return np.broadcast_to(np.zeros((), sample.dtype), X.shape) if is_converted else np.asarray(X), sample


def _sampled_rows(X: Any) -> int | None:
    """Return how many rows of a memory map a plan reads; None where it reads all, or X is something else."""
    if not is_memory_map(X) or X.ndim != 2 or not X.size:
        return None
    n, d = X.shape
    most = max(2, min(blocking.PLAN_ROWS, blocking.PLAN_ENTRIES // d))
    return most if most < n else None


def new_data(estimator: Any, X: Any, fitted: Array, method: str, *, missing: bool = False) -> Array:
    """Return X of `transform`, checked, with the width of fit, where it came from. `missing` as in fit.

    Under scikit-learn's ``array_api_dispatch=True`` an input from another library or device than the data of fit is a
    ValueError.
    """
    with device_context(X), overflow_allowed():
        _check_same_place(estimator, X if is_foreign(X) else np.empty(0), fitted, method)
        X = _checked(estimator, X, reset=False, missing=missing)
        if is_sparse(X) and is_foreign(fitted):
            raise TypeError(
                f"{_name(estimator)} was fitted on {library_of(fitted)} arrays and cannot take sparse input; pass "
                "X.toarray() or an array of that library."
            )
        return to_host(X) if is_sparse(fitted) and is_foreign(X) else X


def _check_same_place(estimator: Any, X: Array, fitted: Array, method: str) -> None:
    place = np.empty(0) if is_sparse(fitted) else fitted
    if get_config()["array_api_dispatch"] and not same_place(X, place):
        raise ValueError(
            f"Inputs passed to {type(estimator).__name__}.{method}() must use the same namespace and the same device "
            f"as those passed to fit(). The model was fitted on {library_of(place)}, the input is from "
            f"{library_of(X)}. Move the input, or switch array_api_dispatch off to have it moved."
        )


def _checked(estimator: Any, given: Any, reset: bool, missing: bool) -> Array:
    X = _as_rows(estimator, given, missing)
    of_missing = f"{_name(estimator)} does not accept missing values; impute or drop them first."
    check_finite(X, FINITE, missing=missing, of_missing=of_missing)
    # Widths and feature names come after finiteness, as in scikit-learn.
    _check_width(estimator, given, X, reset)
    return X


def _as_rows(estimator: Any, X: Any, missing: bool = False) -> Array:
    """Return X as a floating-point array (n, d) or CSR matrix; its entries are not looked at."""
    _refuse_dask(estimator, X)
    check_container(X)
    if _is_rows(X):
        return X
    check_numbers(X, missing)
    return _foreign(estimator, X) if is_foreign(X) else _host(X, missing, estimator=estimator)


def _check_width(estimator: Any, given: Any, X: Array, reset: bool) -> None:
    """Check width and feature names of data `given`, whose rows are X, against those of fit, which `reset` sets."""
    is_array, width = is_foreign(given) or given is X, int(X.shape[1])
    if is_array and reset:
        _set_width(estimator, width)
    if not (is_array and _has_width(estimator, width)):
        # A shape hides an array of another library, so that scikit-learn has nothing to convert.
        shown = Shape(X.shape) if is_foreign(given) else given if hasattr(given, "shape") else X
        validate_data(estimator, shown, reset=reset, skip_check_array=True)


def _set_width(estimator: Any, width: int) -> None:
    """Set the width of fit to that of rows without names; names of an earlier fit go."""
    vars(estimator).pop("feature_names_in_", None)
    vars(estimator)["n_features_in_"] = width


def _has_width(estimator: Any, width: int) -> bool:
    """Return whether rows without names have the width of fit."""
    fitted = vars(estimator)
    return "feature_names_in_" not in fitted and fitted.get("n_features_in_") == width


def _is_rows(X: Any) -> bool:
    """Return whether X is what the checks of scikit-learn would return: nothing is to be converted or rejected."""
    return type(X) is np.ndarray and X.dtype in (np.float64, np.float32) and X.ndim == 2 and X.size > 0


def _refuse_dask(estimator: Any, X: Any) -> None:
    """Reject Dask collections that no earlier step handled."""
    if kind := dask_kind(X):
        raise TypeError(
            f"{_name(estimator)} does not take a Dask {kind} here; "
            f"X.{'result' if kind == 'Future' else 'compute'}() brings it into memory. PCA and KernelPCA fit Dask "
            "arrays: X.to_dask_array() makes one of a data frame, dask.array.from_delayed of delayed rows."
        )


def _host(X: Any, missing: bool = False, **settings: Any) -> Array:
    """Return a host container as a floating-point array or CSR matrix; `settings` go to scikit-learn's check."""
    kinds = [np.float64, np.float32]
    _check_unique_names(X)
    with entries_named(X):
        X = without_missing(X) if missing else X
        if is_sparse(X):
            check_compressed(X)
        elif not hasattr(X, "dtype") and not hasattr(X, "isna"):  # neither an array nor of pandas: a list, say
            X = np.asarray(X)
        check_numbers(X, missing)
        _warn_of_lost_digits(X)
        if isinstance(X, np.ndarray) and X.dtype.kind == "f" and not X.dtype.isnative:
            X = X.astype(X.dtype.newbyteorder("="))
        X = check_array(X, accept_sparse="csr", dtype=kinds, ensure_all_finite=False, input_name="X", **settings)
    return canonical(X) if is_sparse(X) else X


def _foreign(estimator: Any, X: Array) -> Array:
    """Check an array of another library without moving it."""
    known = (
        array_api_compat.is_cupy_array,
        array_api_compat.is_torch_array,
        is_jax,
        lambda x: library_of(x) == "array_api_strict",
    )
    if not any(is_known(X) for is_known in known):
        raise TypeError(
            f"arrays of {library_of(X)} are not supported. Supported: NumPy, CuPy, PyTorch, JAX, array-api-strict, "
            "SciPy CSR matrices, pandas data frames, and lists of numbers."
        )
    if array_api_compat.is_torch_array(X):
        X = X.detach()  # a fit has no gradients
    if X.ndim != 2:
        what = {0: "scalar array", 1: "1D array"}.get(X.ndim)
        if what is None:
            raise ValueError(f"Found array with dim {X.ndim}, while dim <= 2 is required by {_name(estimator)}.")
        raise ValueError(
            f"Expected 2D array, got {what} instead. Reshape your data either using array.reshape(-1, 1) if your data "
            "has a single feature or array.reshape(1, -1) if it contains a single sample."
        )
    for axis, what in ((0, "sample(s)"), (1, "feature(s)")):
        if X.shape[axis] < 1:
            raise ValueError(
                f"Found array with 0 {what} (shape={tuple(X.shape)}) while a minimum of 1 is required by "
                f"{_name(estimator)}."
            )
    if not real_floating(X) or "float16" in str(X.dtype):  # bfloat16 too
        wide = accumulation_dtype(X)
        X = cast(X, wide)
        if dtype_name(wide) == "float32":
            _warn_of_single_precision(X)
    return X


def _name(estimator: Any) -> str:
    return type(estimator).__name__


class Shape:
    """Hold a shape, for scikit-learn's feature count."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = tuple(shape)


def _warn_of_single_precision(X: Array) -> None:
    advice = " JAX has it where jax_enable_x64 is set." if is_jax(X) else ""
    warn_user(f"the device {getattr(X, 'device', '')} has no float64; computing in float32.{advice}", PrecisionWarning)


def _check_unique_names(X: Any) -> None:
    """Raise where two columns of a data frame have one name."""
    names = column_names(X) or []
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"Input X has several columns named {twice!r}; feature names must be unique.")


def _warn_of_lost_digits(X: Any) -> None:
    """Warn of types that float64 cannot hold exactly."""
    dtype = getattr(X, "dtype", None)
    if not isinstance(dtype, np.dtype):
        return
    if dtype == np.longdouble and dtype != np.float64:
        warn_user("extended precision is reduced to float64.", PrecisionWarning)
    if dtype in (np.uint64, np.int64) and X.size and is_numpy(X):
        largest = max(abs(int(X.max())), abs(int(X.min())))
        if largest > 2**53:
            warn_user("integers that exceed 2**53 lose digits in float64.", PrecisionWarning, largest=largest)


def checked_out(out: Any, shape: tuple[int, int]) -> np.ndarray:
    """Return an array on the host that scores can be written to; raise for anything else."""
    if not isinstance(out, np.ndarray) or out.shape != shape or out.dtype.kind != "f" or not out.flags.writeable:
        what = f"{out.dtype} of shape {out.shape}" if isinstance(out, np.ndarray) else type(out).__name__
        raise InvalidParameterError(
            f"out must be a writable NumPy array (a memory map, say) of floating-point numbers with shape {shape}; got "
            f"{what}."
        )
    return out


def checked_scores(Z: Any, like: Array, p: int) -> Array:
    """Return scores (m, p) for `inverse_transform` in the library, dtype and device of `like`."""
    check_container(Z, f"(m, {p})")
    if is_sparse(Z):
        raise TypeError("sparse scores are not supported; pass Z.toarray().")
    check_numbers(Z)
    if not is_foreign(Z):
        Z = _host(Z, ensure_min_samples=0, ensure_min_features=0)
    if Z.ndim != 2 or Z.shape[1] != p or not Z.shape[0]:
        raise ValueError(
            f"inverse_transform expects scores of shape (m, n_components) with m >= 1 and n_components = {p}; got "
            f"shape {tuple(Z.shape)}. Pass all {p} columns, as transform returns them."
        )
    Z = cast(move(Z, like), like.dtype)
    check_finite(Z, "Every score must be finite.", "The array of scores")
    return Z
