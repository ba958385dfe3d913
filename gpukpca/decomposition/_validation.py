"""Rows that users pass to estimators: the gate of `gpukpca.data`, and scikit-learn's widths and names of features."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from sklearn import get_config
from sklearn.utils.validation import validate_data

from gpukpca._typing import Array
from gpukpca.algorithms.kernel_pca.settings import rows_to_check
from gpukpca.algorithms.resources import parsed_bytes
from gpukpca.backend.device import describe_device, device_context
from gpukpca.backend.namespace import (
    concat,
    imported,
    is_cupy,
    is_foreign,
    is_memory_map,
    is_numpy,
    is_sparse,
    library_of,
    overflow_allowed,
    same_place,
    to_host,
)
from gpukpca.backend.random import seeded_subset
from gpukpca.data.batches import is_set, is_sliced, is_stream, spread_runs
from gpukpca.data.gate import as_rows, column_names, counting_column
from gpukpca.data.reading import rows_of_set
from gpukpca.data.rows import Rows
from gpukpca.data.shapes import DataShape, most_planned_rows
from gpukpca.data.slicing import dense_rows, gather_rows
from gpukpca.decomposition._kernels import is_precomputed
from gpukpca.exceptions import GpuKPCAWarning, InvalidParameterError, warn_user


def training_data(
    estimator: Any, X: Any, *, finite: bool = True, counts: Any = None, sample_weight: Any = None, **how: Any
) -> Array:
    """Return X of `fit` as an array (n, d) or CSR matrix; set `n_features_in_` and names.

    Raises ValueError or TypeError as scikit-learn does, NaN and infinity included, but in rows that do not count. These
    are known, or follow from weights. Without `finite` the fit finds NaN and infinity in its own first pass. Of a
    `DataShape` return rows that take no memory. `how` are further arguments of `as_rows`.
    """
    if isinstance(X, DataShape):
        estimator.n_features_in_ = X.shape[1]
        return X.rows()
    if counts is None:
        counts = rows_to_be_finite(estimator, sample_weight)
    if is_stream(X):
        raise InvalidParameterError(
            f"{type(estimator).__name__} takes one array here, and X is an iterable of batches; join them with "
            "numpy.concatenate(list(X)). PCA, IncrementalPCA, ProbabilisticPCA, BayesianPCA and KernelPCA with "
            "gpukpca.Nystrom(...) fit batches."
        )
    with device_context(X), overflow_allowed():
        return _checked(estimator, X, reset=True, finite=finite, counts=counts, **how)


def planned_data(estimator: Any, X: Any) -> tuple[Array, Array]:
    """Return X of `plan`, checked, and the rows from which the kernel learns: all of them.

    Of a memory map, and of a set that is read by slices, these are a sample, the same rows in every run, and no others
    are read or checked. Where its entries are converted, an array of the same shape that takes no memory stands for the
    rows. It stands for those of a `DataShape` too.
    """
    if isinstance(X, DataShape):
        return X.rows(), X.sample()
    limit = most_planned_rows(int(X.shape[1])) if is_sliced(X) and not isinstance(X, Rows) else None
    if limit is None or limit >= X.shape[0]:
        data = training_data(estimator, X)
        return data, data
    if is_set(X):
        runs = spread_runs(int(X.shape[0]), limit)
        sample = training_data(estimator, concat([dense_rows(as_rows(rows_of_set(X, *run))) for run in runs]))
    else:  # the rows from which rules of a fit learn
        sample = training_data(estimator, gather_rows(np.asarray(X), seeded_subset(len(X), limit)))
    stays = is_memory_map(X) and X.dtype == sample.dtype
    return np.asarray(X) if stays else DataShape(tuple(X.shape), sample.dtype).rows(), sample


def new_data(estimator: Any, X: Any, fitted: Array, method: str, **how: Any) -> Array:
    """Return X of `transform`, checked, where it came from. `how` are arguments of `as_rows`.

    Under scikit-learn's ``array_api_dispatch=True`` an input from another library or device than the data of fit is a
    ValueError.
    """
    with device_context(X), overflow_allowed():
        check_same_place(estimator, X, fitted, method)
        X = _checked(estimator, X, reset=False, finite=True, **how)
        if is_sparse(X) and is_foreign(fitted):
            raise TypeError(
                f"{type(estimator).__name__} was fitted on {library_of(fitted)} arrays and cannot take sparse input; "
                "pass X.toarray() or an array of that library."
            )
        return to_host(X) if is_sparse(fitted) and is_foreign(X) else X


def check_same_place(estimator: Any, X: Any, fitted: Array, method: str) -> None:
    """Raise where array_api_dispatch is on, and new rows are elsewhere than those of fit."""
    place, X = np.empty(0) if is_sparse(fitted) else fitted, imported(X) if is_foreign(X) else np.empty(0)
    # CSR rows are those of SciPy, on the host.
    if get_config()["array_api_dispatch"] and not same_place(X, place):
        raise ValueError(
            f"Inputs passed to {type(estimator).__name__}.{method}() must use the same namespace and the same device "
            f"as those passed to fit(). The model was fitted on {library_of(place)}, the input is from "
            f"{library_of(X)}. Move the input, or switch array_api_dispatch off to have it moved."
        )


def _checked(estimator: Any, container: Any, reset: bool, **how: Any) -> Array:
    is_matrix = is_precomputed(getattr(estimator, "kernel", None))
    if is_matrix:
        _check_not_condensed(container)
    X = as_rows(container, type(estimator).__name__, limit=limit_of(estimator), **how)
    X = dense_rows(X) if is_matrix else X
    if names := column_names(container):
        _check_unique_names(names)
        if reset and not is_matrix:
            _warn_of_row_numbers(names, X)
        elif reset and getattr(estimator, "center", False):
            _warn_of_variables(names, container, X)
    # Widths and feature names come after finiteness, as in scikit-learn.
    if is_matrix and not reset:
        _check_not_transposed(estimator, *X.shape)
    check_width(estimator, container, X, reset)
    return X


def limit_of(estimator: Any) -> int | None:
    """Return the bytes that the parameter `memory_limit` of an estimator allows; None without one."""
    limit = getattr(estimator, "memory_limit", None)
    return None if limit is None else parsed_bytes(limit)


def _warn_of_variables(names: list[Any], container: Any, X: Array) -> None:
    """Warn where a kernel matrix X looks like correlations; its numbers cannot tell."""
    if isinstance(names[0], str) and list(getattr(container, "index", ())) == names and np.any(X < 0.0):
        warn_user(
            "X has equal names on both sides and negative entries, as correlations have: set center=False for those.",
            GpuKPCAWarning,
        )


def _check_not_condensed(container: Any) -> None:
    """Raise where a kernel matrix is a vector of the distances between rows."""
    shape = getattr(container, "shape", None)
    if not isinstance(shape, tuple) or len(shape) != 1 or shape[0] < 3:
        return
    # n(n - 1)/2 entries for n rows; the root of 1 + 8 n(n - 1)/2 = (2n - 1)² gives n.
    if shape[0] == math.comb(side := (1 + math.isqrt(1 + 8 * shape[0])) // 2, 2):
        raise InvalidParameterError(
            f"the kernel matrix is a vector of {shape[0]} numbers, as scipy.spatial.distance.pdist returns the "
            f"distances of {side} rows. squareform(distances) is their matrix D; a kernel is a function of it, such as "
            "exp(-gamma * D**2)."
        )


def _check_not_transposed(estimator: Any, m: int, width: int) -> None:
    """Raise where a kernel matrix (m, width) of new rows has them as columns."""
    n = getattr(estimator, "n_features_in_", None)
    # K(X, X_new) has n rows; a square matrix could be either.
    if m == n != width:
        raise InvalidParameterError(
            f"X has {width} features, but {type(estimator).__name__} is expecting {n} features as input: a kernel "
            "matrix of new rows has a row for each of them, and a column for each row of the fit. Pass its transpose, "
            "K.T."
        )


def check_width(estimator: Any, container: Any, X: Array, reset: bool) -> None:
    """Check the width of rows X and the names of their `container` against fit; `reset` sets them."""
    is_array, width, fitted = is_foreign(container) or container is X, int(X.shape[1]), vars(estimator)
    if is_array and reset:  # whose columns have no names
        fitted.pop("feature_names_in_", None)
        fitted["n_features_in_"] = width
    if not is_array or "feature_names_in_" in fitted or fitted.get("n_features_in_") != width:
        # No row stands for an array of another library, so that scikit-learn has nothing to convert.
        shown = no_rows(X) if is_foreign(container) else container if hasattr(container, "shape") else X
        validate_data(estimator, shown, reset=reset, skip_check_array=True)
        if reset and "feature_names_in_" in fitted:
            _check_landmarks(estimator)
    if reset and (audited := fitted.get("_audited")) is not None:
        _check_names(audited, container)


def _check_names(model: Any, X: Any) -> None:
    """Raise where a data frame has other columns than the fit of `model`, as `transform` does."""
    has_names = column_names(X) is not None or hasattr(model, "feature_names_in_")
    if has_names and hasattr(model, "n_features_in_") and len(getattr(X, "shape", ())) == 2:
        check_width(model, X, no_rows(X), reset=False)


def _solver_of(estimator: Any) -> Any:
    """Return the solver that an estimator requests by either of its names; None where it has no such parameter."""
    return vars(estimator).get("eigen_solver", vars(estimator).get("solver"))


def rows_to_be_finite(estimator: Any, sample_weight: Any) -> np.ndarray | None:
    """Return which rows a fit checks for finiteness; see `rows_to_check`."""
    return rows_to_check(_solver_of(estimator), sample_weight)


def _check_landmarks(estimator: Any) -> None:
    """Raise where landmarks that are points have other names than X: their columns are taken in order."""
    names = column_names(getattr(_solver_of(estimator), "landmarks", None))
    if names and all(isinstance(one, str) for one in names) and names != list(estimator.feature_names_in_):
        raise InvalidParameterError("landmarks have other names of columns than X; pass landmarks[list(X.columns)].")


def no_rows(X: Any) -> np.ndarray:
    """Return an array as wide as X, for scikit-learn's feature count."""
    return np.empty((0, int(X.shape[1])))


def _check_unique_names(names: list[Any]) -> None:
    """Raise where two columns of a data frame have one name."""
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"Input X has several columns named {twice!r}; feature names must be unique.")


def _warn_of_row_numbers(names: list[Any], X: Array) -> None:
    """Warn where a column of a data frame counts its rows: it is an identifier, and would be the first component."""
    if (j := counting_column(X)) is not None:
        warnings.warn(
            f"column {names[j]!r} of X counts the rows, as an identifier does, and is used as a feature; leave the "
            "column out unless it is one.",
            UserWarning,
            stacklevel=2,
        )


def check_dense(X: Any, text: str) -> None:
    """Raise TypeError with a text, in which {call} makes an array, for sparse rows. The first row of a set tells."""
    if is_sparse(X) or (is_set(X) and is_sparse(rows_of_set(X, 0, 1))):
        raise TypeError(text.format(call=f"X{'' if is_sparse(X) else '[:]'}.toarray()"))


def checked_out(out: Any, shape: tuple[int | str, int], like: Array) -> Array:
    """Return an array that scores can be written to, of NumPy or on the device of `like`; raise for anything else.

    A number of rows that is not known yet is a word for errors.
    """
    room = imported(out)
    is_writable = room.flags.writeable if is_numpy(room) else is_cupy(room) and same_place(room, like)
    sizes = getattr(room, "shape", ())
    expected = (*sizes[:1], shape[1]) if isinstance(shape[0], str) else shape
    if not is_writable or sizes != expected or room.dtype.kind != "f":
        is_array = is_numpy(room) or is_cupy(room)
        what = f"{room.dtype} of shape {sizes} on {describe_device(room)}" if is_array else type(out).__name__
        where = f", or an array on {describe_device(like)}," if is_cupy(like) else ""
        raise InvalidParameterError(
            f"out must be a writable NumPy array (a memory map, say){where} of floating-point numbers with shape "
            f"({shape[0]}, {shape[1]}); got {what}."
        )
    return room
