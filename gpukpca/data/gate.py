"""Check what users pass as rows: containers, kinds of entries, missing values."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from numbers import Number
from typing import Any

import numpy as np
from array_api_compat import is_torch_array

from gpukpca.exceptions import InvalidParameterError


def check_container(X: Any, shape: str = "(n_samples, n_features)", name: str = "X") -> None:
    """Raise `InvalidParameterError` where X, called `name`, is no array, list or table of numbers of a shape."""
    if isinstance(X, (str, bytes, os.PathLike)):
        raise InvalidParameterError(
            f"{name} is {repr(X)[:200]}, and not an array of shape {shape}. Read a file first: numpy.load(path) reads "
            '.npy, numpy.loadtxt(path, delimiter=",") reads numbers in text, and pandas.read_csv(path) reads tables.'
        )
    if type(X).__name__ == "LazyFrame":
        raise InvalidParameterError(f"{name} is a LazyFrame, which holds no numbers yet; pass {name}.collect().")
    is_array, is_list = hasattr(X, "shape") or hasattr(X, "__array__"), hasattr(X, "__len__") or isinstance(X, Number)
    if not is_array and (not is_list or isinstance(X, (Mapping, Set))):
        what = "None" if X is None else f"of type {type(X).__name__}"
        raise InvalidParameterError(
            f"{name} is {what}, and not an array of shape {shape}; pass an array or a list of rows."
        )
    if "sparse" in str(getattr(X, "layout", "")):  # a tensor of PyTorch
        raise InvalidParameterError(f"{name} is a sparse tensor; pass {name}.to_dense(), or a CSR matrix of SciPy.")
    if is_torch_array(X) and X.device.type == "cuda":
        raise InvalidParameterError(
            f"{name} is a tensor of PyTorch on {X.device}, where gpukpca computes with CuPy alone; pass "
            f"cupy.from_dlpack({name}.detach()), which copies nothing, or {name}.cpu()."
        )
    if type(X).__module__.startswith("cupyx."):
        raise InvalidParameterError(
            f"{name} is a sparse CuPy matrix; pass {name}.toarray(), or {name}.get() for a CSR matrix of SciPy."
        )


def check_numbers(X: Any, missing: bool = False, name: str = "X") -> None:
    """Raise where entries of X, called `name`, are no real numbers: complex, dates, or masked and not `missing`."""
    if isinstance(X, np.ma.MaskedArray) and not missing and np.ma.is_masked(X):
        raise InvalidParameterError(f"{name} has masked entries, which are no numbers; fill or drop them first.")
    dtypes = getattr(X, "dtypes", None)
    for dtype in [getattr(X, "dtype", None), *(dtypes if dtypes is not None and hasattr(X, "columns") else [])]:
        if is_time(dtype):
            raise TypeError(f"{name} holds dates or time differences; turn them into numbers first.")
        kind = getattr(dtype, "kind", "")
        if kind == "c" or (not kind and "complex" in str(dtype)):
            raise InvalidParameterError(
                f"Complex data not supported: {name} holds {dtype}; pass {name}.real, or real and imaginary parts as "
                "features."
            )


def is_time(dtype: Any) -> bool:
    """Return whether a dtype holds dates or time differences; those of polars have no `kind`."""
    return getattr(dtype, "kind", None) in ("m", "M") or getattr(dtype, "is_temporal", bool)()


def without_missing(X: Any) -> Any:
    """Return a host container with NaN for masked entries and for missing values of pandas; X itself without those."""
    if np.ma.is_masked(X):
        return np.ma.filled(X.astype(X.dtype if X.dtype.kind == "f" else np.float64), np.nan)
    if hasattr(X, "columns") and hasattr(X, "isna"):
        other = any(not isinstance(dtype, np.dtype) or dtype.kind == "O" for dtype in X.dtypes)  # than numbers of NumPy
        return X.to_numpy(dtype=np.float64, na_value=np.nan) if other and bool(X.isna().any().any()) else X
    return X


@contextmanager
def entries_named(X: Any, name: str = "X") -> Iterator[None]:
    """Add the column and the row to an error about an entry of a host container, called `name`, that is no number."""
    try:
        yield
    except OverflowError as error:
        raise InvalidParameterError(f"Input {name} contains an integer beyond float64: {error}.") from error
    except (TypeError, ValueError) as error:
        if not (place := _first_without_number(X)):
            raise
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{error} ({place} of {name}). Leave the column out, or turn it into numbers first.") from error


def _first_without_number(X: Any) -> str:
    """Return the column and the row of the first entry that is no number; empty where there is none."""
    try:
        entries = np.asarray(X, dtype=object)
    except ValueError:  # arrays of different shapes
        return ""
    names = column_names(X) or range(entries.shape[-1] if entries.ndim else 0)
    for name, column in zip(names, entries.T if entries.ndim == 2 else (), strict=False):
        if not _converts(column):
            row = next(i for i in range(len(column)) if not _converts(column[i : i + 1]))
            return f"column {name!r}, row {row}"
    return ""


def _converts(entries: np.ndarray) -> bool:
    """Return whether NumPy makes numbers of an array of objects."""
    try:
        entries.astype(np.complex128)
    except (TypeError, ValueError):
        return False
    return True


def column_names(X: Any) -> list[Any] | None:
    """Return the names of the columns of a data frame, None for other containers."""
    return list(X.columns) if hasattr(X, "columns") and hasattr(X, "dtypes") else None
