"""The gate: turn what users pass as rows into arrays of real numbers or CSR matrices, and refuse everything else.

Every estimator and function takes its data through `as_rows`, so that each refusal has one wording: scikit-learn's,
where it has one.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from itertools import islice
from numbers import Number
from typing import Any

import numpy as np
from array_api_compat import is_torch_array

from gpukpca._formatting import format_allowance, format_need
from gpukpca.backend import blocking
from gpukpca.backend.device import host_free_bytes
from gpukpca.backend.limits import SHARE_OF_FREE
from gpukpca.backend.namespace import (
    accumulation_dtype,
    cast,
    dtype_name,
    imported,
    is_cupy,
    is_foreign,
    is_jax,
    is_memory_map,
    is_sparse,
    item_size,
    library_of,
    real_floating,
)
from gpukpca.data.csr import canonical, check_compressed
from gpukpca.data.finite import FINITE, NotFiniteError, advice_for, blanked, check_finite, refuse_entries
from gpukpca.data.panels import CheckedRows, counted_and_checked
from gpukpca.data.reading import rows_of_set
from gpukpca.data.rows import Rows
from gpukpca.exceptions import InvalidParameterError, MemoryBudgetError, PrecisionWarning, warn_user

FLOATS = (np.float64, np.float32)
# Integers up to this one are float64 numbers.
LARGEST_EXACT = 2**53
# Rows of a column that counts them.
LEAST_COUNTED = 5
# Columns that an error names.
MOST_NAMED = 12
# Arrays of one kind that an error names.
MOST_HELD = 5
# Where AnnData, MuData and SpatialData hold matrices by name, and what follows the name.
HOLDERS = {"layers": "", "mod": ".X", "tables": ".X", "obsm": ""}
# When a list of tables can be given as batches; not all estimators read them.
OF_BATCHES = "where each holds rows and the estimator reads batches"
# What reads a set that does not fit into memory.
OF_SETS = (
    "PCA and KernelPCA with eigen_solver=gpukpca.Nystrom(rank=...) read it by slices; pass a part of its rows "
    "elsewhere, such as X[:1000]."
)
# What rows lose in float64, in the words of the warning.
OF_INTEGERS = "integers that exceed 2**53 lose digits in float64."
OF_EXTENDED = "extended precision is reduced to float64."


def as_rows(
    X: Any,
    purpose: str = "",
    *,
    name: str = "X",
    shape: str = "(n_samples, n_features)",
    missing: bool = False,
    finite: bool = False,
    counts: np.ndarray | None = None,
    panels: bool = False,
    limit: int | None = None,
) -> Any:
    """Return X as rows: an array (n, d) of float64 or float32, or a canonical CSR matrix, where it is.

    Parameters
    ----------
    X : array of a supported library, SciPy sparse matrix, data frame, list of rows, Rows
        Not copied where it is one of the results already.
    purpose : str
        What needs at least one row and one column, such as "PCA"; empty where none are needed.
    name, shape : str
        What errors call X, and the shape that it should have.
    missing : bool
        NaN, masked entries and missing values of pandas are missing values, and come out as NaN.
    finite : bool
        Look for NaN (without `missing`) and infinity: one pass over X.
    counts : host array of bool, shape (n,), optional
        Which rows count; the others may hold anything, and come out as zeros where that is not finite. Those of a
        memory map stay as they are.
    panels : bool
        `Rows` of a class outside of the library are taken: they are counted and checked in a pass.
    limit : int, optional
        Bytes that a set of zarr, HDF5 or the like may take, which is read whole here; see `check_held`.

    Raises
    ------
    MemoryBudgetError
        X is a set that does not fit into memory.
    InvalidParameterError
        X is no table of real numbers, is empty, or its entries are masked, NaN or infinite.
    TypeError
        X holds dates or other objects, is a collection of Dask, or of a library that is not supported.

    Warns
    -----
    PrecisionWarning
        The numbers lose digits in the floating-point type.
    """
    if isinstance(X, Rows):
        return X if X.is_checked else _checked_panels(X, purpose, name, missing, counts, panels)
    container = X
    if not (type(X) is np.ndarray and X.dtype in FLOATS):
        X = _converted(X, purpose, name, shape, missing, limit)
    if X.ndim != 2:
        raise _wrong_dimension(X.shape, purpose, name)
    if purpose:
        check_not_empty(X, purpose)
    if is_sparse(X):
        X = canonical(X)
    if counts is not None and not is_memory_map(X):
        X, counts = blanked(X, counts), None
    if finite:
        with columns_named(container):
            check_finite(X, FINITE, f"Input {name}", missing=missing, of_missing=advice_for(purpose), counts=counts)
    return X


def is_in_panels(X: Any) -> bool:
    """Return whether rows from `as_rows` are those of a class outside of the library."""
    return isinstance(X, CheckedRows)


def _checked_panels(
    X: Rows, purpose: str, name: str, missing: bool, counts: np.ndarray | None, is_taken: bool
) -> CheckedRows:
    """Return rows of a class outside of the library, counted and checked; raise with two ways out where not taken."""
    caller = purpose or "this call"
    if not is_taken:
        raise InvalidParameterError(
            f"{caller} takes one array here, and {name} is of class {type(X).__name__}, rows in panels; pass "
            f"{name}.take(numpy.arange({int(X.shape[0])})), or fit them panel by panel: PCA, IncrementalPCA, "
            "ProbabilisticPCA, BayesianPCA, and KernelPCA with eigen_solver=gpukpca.Nystrom(...) do."
        )
    check_not_empty(X, caller)
    rows, found = counted_and_checked(X, name, counts)
    refuse_entries(found, X.dtype, FINITE, f"Input {name}", missing=missing, of_missing=advice_for(purpose))
    return rows


def check_not_empty(X: Any, purpose: str) -> None:
    """Raise `InvalidParameterError` where X (n, d) has no rows or no columns, which `purpose` needs."""
    for size, what in zip(X.shape, ("sample(s)", "feature(s)"), strict=True):
        if not size:
            raise InvalidParameterError(
                f"Found array with 0 {what} (shape={tuple(X.shape)}) while a minimum of 1 is required by {purpose}."
            )


def _wrong_dimension(shape: Sequence[int], purpose: str, name: str) -> InvalidParameterError:
    """Return the error for an array or a set that has not two dimensions."""
    if len(shape) > 2:
        by = f" by {purpose}" if purpose else ""
        return InvalidParameterError(
            f"Found array with dim {len(shape)}, while dim <= 2 is required{by}. Reshape your data with "
            f"numpy.reshape({name}, (len({name}), -1)) if each {name}[i] is one sample."
        )
    return InvalidParameterError(
        f"Expected 2D array, got {'1D' if shape else 'scalar'} array instead: {name} has shape {tuple(shape)}. "
        f"Reshape your data with {name}.reshape(-1, 1) if it has one feature, or {name}.reshape(1, -1) if it is one "
        "sample."
    )


def _converted(X: Any, purpose: str, name: str, shape: str, missing: bool, limit: int | None) -> Any:
    """Return X as a floating-point array or CSR matrix; one without two dimensions as it is."""
    if kind := dask_kind(X):
        raise TypeError(
            f"{purpose or name} does not take a Dask {kind} here; "
            f"{name}.{'result' if kind == 'Future' else 'compute'}() brings it into memory. "
            f"KernelPCA, PCA and IncrementalPCA fit Dask arrays: {name}.data is that of a DataArray, "
            f"{name}.to_dask_array() makes one of a data frame, dask.array.from_delayed of delayed rows."
        )
    check_container(X, shape, name)
    X = imported(X)
    check_numbers(X, missing, name)
    if is_foreign(X):
        return _of_library(X)
    if len(getattr(X, "shape", (0, 0))) != 2:  # also of a set, which is not read
        raise _wrong_dimension(X.shape, purpose, name)
    if is_unread(X):
        check_held(X, name, limit, OF_SETS)
        X = rows_of_set(X, 0, int(X.shape[0]))
        check_numbers(X, missing, name)
    if is_sparse(X):
        check_compressed(X)
        return _floating(X.tocsr())
    with entries_named(X, name):
        X = np.asarray(_without_missing(X))
        check_numbers(X, missing, name)
        _warn_of_lost_digits(X)
        return _floating(X) if X.ndim == 2 else X


def is_unread(X: Any) -> bool:
    """Return whether X is a table that its library reads, such as a set of zarr or HDF5: no array, frame or matrix."""
    if isinstance(X, (np.ndarray, Rows)) or hasattr(X, "tocsr") or is_foreign(X) or dask_kind(X):
        return False
    is_table = len(getattr(X, "shape", ())) == 2 and hasattr(X, "dtype") and hasattr(X, "__getitem__")
    return is_table and column_names(X) is None  # a data frame has what is called like its columns


def check_held(X: Any, name: str, limit: int | None, advice: str) -> None:
    """Raise `MemoryBudgetError` where a set or a Dask array does not fit into memory as floating-point rows.

    `limit` are the bytes that it may take; None: most of what is free.
    """
    needed = math.prod(X.shape) * item_size(getattr(X, "dtype", None))
    if limit is None and needed > blocking.UNREAD_BYTES:
        limit = int(SHARE_OF_FREE * host_free_bytes())
    if limit is not None and needed > limit:  # never where chunks are of unknown length
        raise MemoryBudgetError(
            f"{name} takes {format_need(needed)} in memory, and {format_allowance(limit)} are allowed or free. {advice}"
        )


def _floating(X: Any) -> Any:
    """Return a host array or CSR matrix in float32 or float64, in the byte order of this machine."""
    if X.dtype in FLOATS:  # which a dtype of another byte order is not
        return X
    return X.astype(np.float32 if X.dtype.kind == "f" and X.dtype.itemsize == 4 else np.float64)


def _of_library(X: Any) -> Any:
    """Return an array of another library in a floating-point type of its device."""
    if not (is_torch_array(X) or is_cupy(X) or is_jax(X) or library_of(X) == "array_api_strict"):
        raise TypeError(
            f"arrays of {library_of(X)} are not supported. Supported: NumPy, CuPy, PyTorch, JAX, array-api-strict, "
            "SciPy CSR matrices, pandas data frames, and lists of numbers."
        )
    X = X.detach() if is_torch_array(X) else X  # a fit is no part of a graph of gradients
    if real_floating(X) and "float16" not in str(X.dtype):  # nor bfloat16
        return X
    wide = accumulation_dtype(X)
    if dtype_name(wide) == "float32":
        advice = " JAX has it where jax_enable_x64 is set." if is_jax(X) else ""
        warn_user(
            f"the device {getattr(X, 'device', '')} has no float64; computing in float32.{advice}", PrecisionWarning
        )
    return cast(X, wide)


def _warn_of_lost_digits(X: np.ndarray) -> None:
    """Warn of numbers that float64 cannot hold exactly."""
    if X.dtype == np.longdouble and X.dtype != np.float64:
        warn_user(OF_EXTENDED, PrecisionWarning)
    if X.dtype in (np.uint64, np.int64) and X.size:
        largest = max(abs(int(X.max())), abs(int(X.min())))
        if largest > LARGEST_EXACT:
            warn_user(OF_INTEGERS, PrecisionWarning, largest=largest)


def dask_kind(X: Any) -> str:
    """Return the kind of a Dask object, or of the first entry of a list: Array, Future ...; empty for others."""
    X = X[0] if isinstance(X, (list, tuple)) and X else X
    dask, distributed = sys.modules.get("dask"), sys.modules.get("distributed")
    is_future = distributed is not None and isinstance(X, distributed.Future)
    return type(X).__name__.removesuffix("Leaf") if is_future or (dask and dask.is_dask_collection(X)) else ""


def check_container(X: Any, shape: str = "(n_samples, n_features)", name: str = "X") -> None:
    """Raise `InvalidParameterError` where X, called `name`, is no array, list or table of numbers of a shape."""
    _check_one_table(X, name)
    what, way = f"of type {type(X).__name__}", ""
    is_array = hasattr(X, "shape") or hasattr(X, "__array__") or is_foreign(X)
    is_list = hasattr(X, "__len__") or isinstance(X, Number)
    if isinstance(X, (str, bytes, os.PathLike)):
        what = repr(X)[:200]
        way = (
            'Read a file first: numpy.load(path) reads .npy, numpy.loadtxt(path, delimiter=",") reads numbers in text, '
            "and pandas.read_csv(path) reads tables"
        )
    elif type(X).__name__ == "LazyFrame":
        way = f"it holds no numbers yet, pass {name}.collect()"
    elif names := _arrays_in(X, name):
        what += ", which holds arrays by name"
        way = f"pass {'one of them: ' if len(names) > 1 else ''}{', '.join(names)}"
    elif not is_array and hasattr(X, "__iter__") and not isinstance(X, (Sequence, Set, Mapping)):
        what += ", an iterable of batches"
        way = f"call it for each batch where it takes rows one by one, or pass numpy.concatenate(list({name}))"
    elif not is_array and (not is_list or isinstance(X, (Mapping, Set))):
        what, way = "None" if X is None else what, "pass an array or a list of rows"
    elif hasattr(X, "__matmul__") and not has_entries(X):
        what += ", which has products and no entries to read"
        way = (
            f'KernelPCA(kernel="precomputed").fit({name}) takes it as a kernel matrix; other methods take K(new, rows '
            "of the fit) as an array or a sparse matrix"
        )
    elif "sparse" in str(getattr(X, "layout", "")):  # a tensor of PyTorch
        what, way = "a sparse tensor", f"pass {name}.to_dense(), or a CSR matrix of SciPy"
    elif hasattr(X, "todense") and not is_sparse(X):
        what, way = f"a sparse {type(X).__name__} of {library_of(X)}", "pass a CSR matrix of SciPy, or a dense array"
    if way:
        mark = "." if way[0].isupper() else ";"
        raise InvalidParameterError(f"{name} is {what}, and not an array of shape {shape}{mark} {way}.")


def _check_one_table(X: Any, name: str) -> None:
    """Raise `InvalidParameterError` where X, called `name`, is a list or another sequence of tables, and not of rows.

    They can be samples or batches, and equal batches look like samples, so the error names both ways out.
    """
    first = X[0] if isinstance(X, Sequence) and len(X) else None
    inner: Any = first[0] if isinstance(first, (tuple, list)) and first else first  # of rows and labels
    if isinstance(first, Mapping):
        what, rows = "a dict", f"[batch[{next(iter(first), '')!r}] for batch in {name}]"
        ways = [f"pandas.DataFrame({name}) where each is a row", f"gpukpca.Batches({rows}) {OF_BATCHES}"]
    elif len(getattr(inner, "shape", ())) > 1:
        what, shapes = f"of shape {tuple(inner.shape)}", {tuple(getattr(one, "shape", ())) for one in X}
        first_table = f"{name}[0]" if inner is first else f"{name}[0][0]"
        are_alike = len(X) > 1 and len({(len(shape), *shape[1:]) for shape in shapes}) == 1
        are_equal = are_alike and inner is first and len(shapes) == 1 and not is_sparse(first)
        ways = [f"numpy.stack({name}).reshape({len(X)}, -1) where each is a sample"] if are_equal else [first_table]
        ways += [f"gpukpca.Batches({name}) {OF_BATCHES}"] * are_alike
    else:
        return
    what = f"{type(X).__name__} of {len(X)} item(s), the first {what}"
    raise InvalidParameterError(f"{name} is a {what}, and not one table of rows; pass {', or '.join(ways)}.")


def _arrays_in(X: Any, name: str) -> list[str]:
    """Return how to reach what a holder of arrays by name holds, none of which is read; empty for all else."""
    if hasattr(X, "keys") and not hasattr(X, "shape"):  # a dictionary, a group of HDF5 or zarr, a Dataset of xarray
        found = [f"{name}[{key!r}]" for key in sorted(X, key=str)[:MOST_HELD]]
        return [f"anndata.io.sparse_dataset({name})"] if found and "indptr" in X else found
    if hasattr(X, "with_format") and hasattr(X, "column_names"):  # of Hugging Face
        columns = [f"{name}.with_format('numpy')[:][{key!r}]" for key in X.column_names[:MOST_HELD]]
        return [f"{name}.to_pandas()", *columns]
    if hasattr(X, "__array__"):  # a data frame has its columns as attributes
        return []
    # AnnData, for which `shape` is that of X.X, and its raw counts. The X of a view is computed: ask the class.
    found = [f"{name}.X"] if hasattr(X, "varm") and hasattr(type(X), "X") else []
    for part, end in HOLDERS.items():
        if hasattr(held := getattr(X, part, ()), "keys"):
            found += [f"{name}.{part}[{key!r}]{end}" for key in islice(held, MOST_HELD)]
    return found


def has_entries(X: Any) -> bool:
    """Return whether entries of X can be read: not those of a matrix that is known by its products."""
    return is_sparse(X) or any(hasattr(X, one) for one in ("__array__", "__getitem__", "__len__", "__dlpack__"))


def is_of_cupyx(X: Any) -> bool:
    """Return whether X is a sparse matrix or an operator of CuPy."""
    return type(X).__module__.startswith("cupyx.")


def check_numbers(X: Any, missing: bool = False, name: str = "X") -> None:
    """Raise where entries of X, called `name`, are no real numbers: complex, dates, or masked and not `missing`."""
    if isinstance(X, np.ma.MaskedArray) and not missing and np.ma.is_masked(X):
        raise InvalidParameterError(f"{name} has masked entries, which are no numbers; fill or drop them first.")
    if fields := getattr(getattr(X, "dtype", None), "names", None):
        way = f"{name}[{fields[0]!r}]" if X.ndim > 1 else f"numpy.array(numpy.asarray({name}).tolist())"
        raise InvalidParameterError(f"{name} is a structured array with the fields {_listed(fields)}; pass {way}.")
    named = column_names(X) is not None and hasattr(X, "dtypes")  # pandas and polars; Arrow has none
    dtypes = dict(zip(column_names(X) or (), X.dtypes, strict=False)) if named else {None: getattr(X, "dtype", None)}
    for is_bad in (is_time, _is_complex):
        if not (bad := [column for column, dtype in dtypes.items() if is_bad(dtype)]):
            continue
        where = f" in column{'s' * (len(bad) > 1)} {_listed(bad)}" if named else ""
        if is_bad is is_time:
            raise TypeError(f"{name} holds dates or time differences{where}; turn them into numbers first.")
        raise InvalidParameterError(
            f"Complex data not supported: {name} holds {dtypes[bad[0]]}{where}; pass {name}.real, or real and "
            "imaginary parts as features."
        )


@contextmanager
def columns_named(X: Any) -> Iterator[None]:
    """Let an error about entries of X that are not finite name the column of a data frame in place of its number."""
    try:
        yield
    except NotFiniteError as error:
        names = column_names(X)
        if names is None or not str(error.args[0]).startswith("Input"):  # of another array
            raise
        raise error.named(names) from error


def is_time(dtype: Any) -> bool:
    """Return whether a dtype holds dates or time differences; those of polars have no `kind`."""
    return getattr(dtype, "kind", None) in ("m", "M") or getattr(dtype, "is_temporal", bool)()


def _is_complex(dtype: Any) -> bool:
    kind = getattr(dtype, "kind", "")
    return kind == "c" or (not kind and "complex" in str(dtype))


def _without_missing(X: Any) -> Any:
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
        if not (places := _without_numbers(X)):
            if type(error) is ValueError and isinstance(X, Sequence):
                sizes = [len(row) if hasattr(row, "__len__") else 1 for row in X]
                what = f"{type(X).__name__} of {len(X)} items with {min(sizes)} to {max(sizes)} entries"
                raise InvalidParameterError(f"{name} is a {what}; give numbers in rows of equal length.") from error
            raise
        kind, (first, row) = TypeError if isinstance(error, TypeError) else ValueError, next(iter(places.items()))
        text = "an entry is a sequence, and no number" if str(error).startswith("setting an array") else error
        raise kind(
            f"{text} (column {first!r}, row {row} of {name}). Leave out, or turn into numbers first, column(s) "
            f"{_listed([*places])}."
        ) from error


def _listed(names: Sequence[Any]) -> str:
    """Return names of columns for an error."""
    return ", ".join(map(repr, names[:MOST_NAMED])) + ", ..." * (len(names) > MOST_NAMED)


def _without_numbers(X: Any) -> dict[Any, int]:
    """Return the columns with entries that are no numbers, and the row of the first one."""
    try:
        entries = np.asarray(X, dtype=object)
    except ValueError:  # arrays of different shapes
        return {}
    names = column_names(X) or range(entries.shape[-1] if entries.ndim else 0)
    columns = zip(names, entries.T if entries.ndim == 2 else (), strict=False)
    texts = {name: column for name, column in columns if not _converts(column)}
    return {name: next(i for i in range(len(c)) if not _converts(c[i : i + 1])) for name, c in texts.items()}


def _converts(entries: np.ndarray) -> bool:
    """Return whether NumPy makes numbers of an array of objects."""
    try:
        entries.astype(np.complex128)
    except (TypeError, ValueError):
        return False
    return True


def counting_column(X: Any) -> int | None:
    """Return the first column of a host array (n, d) that counts the rows by ones, as an identifier does.

    None where there is none, in a single column, and of fewer than five rows, which count by chance.
    """
    n, d = X.shape
    if not isinstance(X, np.ndarray) or n < LEAST_COUNTED or d < 2:
        return None
    with np.errstate(all="ignore"):
        likely = np.flatnonzero((X[1] == X[0] + 1.0) & (X[-1] == X[0] + (n - 1.0)))
        return next((int(j) for j in likely if np.array_equal(X[:, j], X[0, j] + np.arange(float(n)))), None)


def column_names(X: Any) -> list[Any] | None:
    """Return the names of the columns of a data frame or an Arrow table, None for other containers."""
    if hasattr(X, "column_names"):  # of Arrow, where `columns` are the numbers
        return list(X.column_names)
    return list(X.columns) if hasattr(X, "columns") and hasattr(X, "dtypes") else None
