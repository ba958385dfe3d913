"""The input of a command: a file or a bundled data set becomes a `Table`, or an error that says where it is wrong."""

from __future__ import annotations

import io
import math
import sys
import warnings
import zipfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import IO, Any

import numpy as np

from gpukpca._container import is_container
from gpukpca._formatting import format_bytes
from gpukpca._rules import closest
from gpukpca.cli.table import ROLES, SLICE_ROWS, InputOptions, Source, Table, abbreviated, check_memory
from gpukpca.cli.text import PACKINGS, TEXT_SUFFIXES, read_parquet, read_text
from gpukpca.data.reading import reading
from gpukpca.persistence.model_file import KIND

# Of scikit-learn, then simulated: the same numbers every time.
BUNDLED = ("digits", "iris", "wine", "breast_cancer", "foods")
# Where an archive holds several matrices.
USUAL_KEYS = ("X", "x_train", "data")
# Options that only some kinds of input read.
PER_ROW = tuple(f"{role}_column" for role in ROLES)
SPECIAL = ("key", *PER_ROW, "header", "delimiter", "decimal", "skip")
# The suffix of bundled sets, and of no file.
BUNDLE = "/"
STANDARD_INPUT = "standard input"
# Bytes that are read of it at once.
PART = 2**24
# The first bytes of the standard input, which has no suffix, -> that of its kind; else it is .csv.
MAGIC = {
    b"\x93NUMPY": ".npy",
    b"PK\x03\x04": ".npz",
    b"PAR1": ".parquet",
    b"\x89HDF": ".h5",
    b"\x1f\x8b": ".csv.gz",
    b"(\xb5/\xfd": ".csv.zst",
}
# The files by which a folder is known as one of zarr, in its formats 2 and 3.
ZARR_MARKS = ("zarr.json", ".zarray", ".zgroup")
# Suffix -> how to convert a file that is not read; of others an array X.
CONVERSIONS = {
    **dict.fromkeys((".xls", ".xlsx", ".ods", ".sav", ".dta", ".sas7bdat", ".rds", ".rda"), "Save the table as .csv"),
    **dict.fromkeys((".feather", ".arrow"), "polars.read_ipc('{0}').write_parquet('x.parquet') converts it"),
    **dict.fromkeys((".bz2", ".xz", ".zip", ".tar"), "Unpack it, or compress text by gzip or zstd"),
    ".mat": "numpy.save('x.npy', scipy.io.loadmat('{0}')['X']) converts its array X. A file of version 7.3 is HDF5: "
    "rename it to .h5, and give --transpose",
    ".mtx": "scipy.sparse.save_npz('x.npz', scipy.io.mmread('{0}')) converts it",
    ".h5ad": "scipy.sparse.save_npz('x.npz', X) or numpy.save('x.npy', X) converts X = anndata.read_h5ad('{0}').X",
}
OF_MISSING = "--rows complete leaves such rows out."
ARRAY = "In the Python that reads it, numpy.save('x.npy', X) converts an array X"


def read_input(source: str, **options: Any) -> Table:
    """Read a file, a folder of zarr, the standard input ("-") or a bundled set; `options` are those of `InputOptions`.

    A file is preferred to a bundled set of its name. Errors in text name line and column.
    """
    options["missing"] = options.get("missing", False) or options.get("rows") is not None
    how, path = InputOptions(**options), Path(source)
    bundled = not path.is_file() and source in BUNDLED
    file = Source(path, BUNDLE) if bundled else _standard_input() if source == "-" else _checked_file(path)
    read, kind, allowed = READERS[file.suffix]
    _check_absent(how, [name for name in SPECIAL if name not in allowed], f"{file}, which is {kind}")
    table = read(file, how)
    # A table has no more than the selected columns of numbers.
    table = table if read in (read_text, read_parquet) else table.with_features(how, str(file))
    table = (table.transposed() if how.transpose else table).with_rows(how)
    return _in_dtype(table, how.dtype)


def is_distances(X: Any) -> bool:
    """Return whether a square matrix holds distances: no entry is negative, and the diagonal is 0."""
    is_square = isinstance(X, np.ndarray) and X.shape[0] == X.shape[1]
    return is_square and not np.diagonal(X).any() and bool(np.min(X) >= 0) and bool(np.any(X))


def of_distances(table: Table) -> Table:
    """Return the kernel matrix of classical scaling, -D²/2 of distances D, which kernel PCA centers."""
    check_memory(8 * table.X.size, "the kernel matrix of the distances")
    X = -0.5 * np.square(table.dense(), dtype=np.float64)
    return replace(table, X=X, source=f"{table.source}, distances D, of which -D²/2 is the kernel matrix")


def warn_of_empty_rows(table: Table, source: str) -> None:
    """Warn of rows without any value, as lines of the file where these are known; a sparse matrix has none."""
    rows: list[int] = []
    for start in range(0, table.X.shape[0], SLICE_ROWS):
        if isinstance(rows_read := table.read(start, start + SLICE_ROWS), np.ndarray):
            rows += (start + np.flatnonzero(np.isnan(rows_read).all(axis=1))).tolist()
    if rows:
        numbers = abbreviated([str(row + (table.first_line or 0)) for row in rows])
        what = f"{'lines' if table.first_line else 'rows'} {numbers} of {source} hold no value"
        warnings.warn(f"{what}: no fit counts them, and their scores are 0.", UserWarning, stacklevel=2)


def title_of(source: str) -> str:
    """Return the name of an input in a picture."""
    return STANDARD_INPUT if source == "-" else Path(source).stem


def _standard_input() -> Source:
    """Return what the standard input holds; its first bytes show its kind."""
    stream = sys.stdin.buffer
    if stream.isatty():
        raise ValueError("- is the standard input, which is a terminal here; send a file to it: gpukpca ... - < FILE.")
    held = io.BytesIO()
    while part := stream.read(PART):
        check_memory(len(part), f"{STANDARD_INPUT}, of which {format_bytes(held.tell())} are read,")
        held.write(part)
    content = held.getvalue()
    suffix = next((suffix for magic, suffix in MAGIC.items() if content.startswith(magic)), ".csv")
    return Source(Path(STANDARD_INPUT), suffix, content)


def _checked_file(path: Path) -> Source:
    """Return a file that has content and a reader, or a folder of zarr."""
    if path.is_dir() and any((path / mark).exists() for mark in ZARR_MARKS):
        return Source(path, ".zarr")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory, and none of zarr; give a file.")
    if not path.exists():
        raise FileNotFoundError(
            f"{path}: no such file, and no bundled set ({', '.join(BUNDLED)}).{closest(str(path), BUNDLED)}"
        )
    if not path.is_file():  # opening a pipe would wait for a writer, and a device has no end
        raise ValueError(f"{path} is a pipe or a device; give - and send it to the standard input: - < {path}.")
    if is_container(path, KIND):
        raise ValueError(f"{path} is a saved model; give data instead. Where MODEL is an argument, it comes first.")
    if suffix := next((suffix for suffix in READERS if path.name.lower().endswith(suffix)), ""):
        return Source(path, suffix)
    suffix, readable = path.suffix.lower(), ", ".join(one for one in READERS if one.count(".") == 1)
    advice = CONVERSIONS.get(suffix, ARRAY).format(path)
    kind = f"ending in {suffix}" if suffix else "without an ending"
    raise ValueError(
        f"{path}: files {kind} cannot be read. {advice}. Give {readable}, text with "
        f"{' or '.join(PACKINGS)} at its end, or one of {', '.join(BUNDLED)}."
    )


def _check_absent(how: InputOptions, names: Sequence[str], file: str) -> None:
    """Raise for options that do not apply to a file."""
    for name in names:
        if (value := vars(how)[name]) is not None:
            option = "no-header" if value is False else name.replace("_", "-")
            raise ValueError(f"--{option} does not apply to {file}.")


def _check_matrix(source: object, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Raise unless an array has two axes, entries, and real numbers."""
    if len(shape) != 2:
        raise ValueError(f"{source}: a matrix (samples x features) is needed, and the array has shape {shape}.")
    if 0 in shape:
        raise ValueError(f"{source}: the matrix is empty, its shape is {shape}.")
    if dtype.kind not in "fiub":
        raise ValueError(f"{source}: real numbers are needed, and the array holds {dtype}.")


def _in_dtype(table: Table, dtype: str | None) -> Table:
    """Return the table in a dtype; None keeps it: estimators make float64 of what is neither float32 nor float64."""
    X, target = table.X, np.dtype(dtype or np.float64)
    # A set that is read by slices is converted by slices.
    if X.dtype == target or (dtype is None and (X.dtype == np.float32 or not isinstance(X, np.ndarray))):
        return table
    check_memory(X.size * target.itemsize, f"the matrix in {target}")
    # What overflows is reported by the estimator, with its row and column.
    with np.errstate(over="ignore"):
        return table if dtype is None else replace(table, X=table.read().astype(target))


# -- arrays in files, and bundled sets ---------------------------------------------------------------------------------


def _reading(path: Source, kind: str) -> AbstractContextManager[None]:
    return reading(f"{path} cannot be read as {kind}, it is damaged", system=True)


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype]:
    """Return the shape and the dtype of an array in NumPy's format, without reading its numbers."""
    is_first = np.lib.format.read_magic(file) == (1, 0)
    read = np.lib.format.read_array_header_1_0 if is_first else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    return shape, dtype


def _read_npy(path: Source, how: InputOptions) -> Table:
    """Map a .npy file into memory."""
    with _reading(path, ".npy"), np.errstate(over="ignore"):  # of the size that a damaged header states
        if path.content is None:
            X, source = np.lib.format.open_memmap(path.path, mode="r"), f"{path.name}, memory map"
        else:
            X, source = np.load(path.readable, allow_pickle=False), path.name
    _check_matrix(path, X.shape, X.dtype)
    return Table(X, source)


def _read_npz(path: Source, how: InputOptions) -> Table:
    """Read one matrix of a .npz file, with labels and names where the options name arrays."""
    with _reading(path, ".npz"), zipfile.ZipFile(path.readable) as archive:
        headers = {}
        for name in archive.namelist():
            if name.endswith(".npy"):
                with archive.open(name) as member:
                    headers[name.removesuffix(".npy")] = _header(member)
    if {"format", "shape", "data"} <= set(headers) and how.key is None:
        return _read_sparse(path, how, headers)
    needed = _needed(path, headers, how)
    check_memory(sum(math.prod(headers[name][0]) * headers[name][1].itemsize for name in {*needed.values()}), str(path))
    with _reading(path, ".npz"), np.load(path.readable, allow_pickle=False) as archive:
        arrays = {role: archive[name] for role, name in needed.items()}
    return _table(path, arrays, needed)


def _read_sparse(path: Source, how: InputOptions, headers: dict[str, Any]) -> Table:
    """Read a matrix that `scipy.sparse.save_npz` wrote, as CSR."""
    from scipy.sparse import load_npz

    _check_absent(how, PER_ROW, f"{path}, which holds one sparse matrix")
    check_memory(2 * sum(math.prod(shape) * dtype.itemsize for shape, dtype in headers.values()), str(path))
    with _reading(path, "SciPy's sparse .npz"):
        X = load_npz(path.readable).tocsr()
    _check_matrix(path, X.shape, X.dtype)
    return Table(X, f"{path.name}, sparse with {X.nnz} stored entries")


def _read_set(path: Source, how: InputOptions) -> Table:
    """Open a set of zarr or HDF5; labels and names are read, rows later by slices."""
    name = "zarr" if path.suffix == ".zarr" else "h5py"
    try:
        package = import_module(name)
    except ImportError:
        raise ValueError(f"{path} is read by {name}, which is not installed: pip install {name}.") from None
    with _reading(path, name):
        root = package.open(path.path, mode="r") if name == "zarr" else package.File(path.readable, "r")
        sets = {"": root}
        if not hasattr(root, "shape"):
            # The key may be that of a set in a group.
            named = (*root, how.key) if how.key is not None and how.key in root else root
            sets = {one: root[one] for one in named if hasattr(root[one], "shape")}
    needed = _needed(path, {one: (part.shape, part.dtype) for one, part in sets.items()}, how)
    with _reading(path, name):
        arrays = {role: sets[one][:] for role, one in needed.items() if role != "key"}
    return _table(path, arrays | {"key": sets[needed["key"]]}, needed)


def _needed(path: Source, headers: dict[str, Any], how: InputOptions) -> dict[str, str]:
    """Return the names of the matrix ("key") and of labels, names and weights; `headers` hold shapes and dtypes."""
    needed = {f"{role}_column": name for role, name in how.columns_of_model.items() if name and name in headers}
    needed |= {role: vars(how)[role] for role in PER_ROW if vars(how)[role] is not None}
    needed["key"] = _matrix_key(path, headers) if how.key is None else how.key
    for name in needed.values():
        if name not in headers:
            raise ValueError(f"{path} has no array {name!r}; it has {_listed(headers)}.{closest(name, headers)}")
    _check_matrix(path, *headers[needed["key"]])
    return needed


def _table(path: Source, arrays: dict[str, Any], named: dict[str, str]) -> Table:
    """Return the matrix with its labels, names and weights, and the names of these arrays."""
    X = arrays["key"]
    labels, names, weights = (
        _one_per_row(path, named[role], arrays[role], X.shape[0]) if role in arrays else None for role in PER_ROW
    )
    columns = {role.removesuffix("_column"): named[role] for role in PER_ROW if role in named}
    source = f"{path.name}, array {named['key']!r}" if named["key"] else path.name
    samples = None if names is None else tuple(map(str, names))
    return Table(X, source, labels, samples, weights=weights, columns=columns)


def _matrix_key(path: Source, headers: dict[str, Any]) -> str:
    """Return the name of the only matrix, or of the one with a usual name."""
    matrices = [name for name, (shape, _) in headers.items() if len(shape) == 2]
    usual = [name for name in USUAL_KEYS if name in matrices]
    if len(matrices) == 1 or usual:
        return [*usual, *matrices][0]
    raise ValueError(f"{path}: say with --key which array to use; it has {_listed(headers)}.")


def _listed(headers: dict[str, Any]) -> str:
    return ", ".join(f"{name} {shape}" for name, (shape, _) in headers.items()) or "no arrays"


def _one_per_row(path: Source, key: str, values: np.ndarray, n: int) -> np.ndarray:
    """Return labels or names: a vector of n numbers or strings."""
    if values.size != n or values.ndim not in (1, 2) or values.shape[0] != n:
        raise ValueError(f"{path}: {key!r} has shape {values.shape}, and the matrix has {n} rows.")
    if values.dtype.kind in ("O", "T"):  # text of any length, as HDF5 and zarr store it
        values = np.array([one.decode() if isinstance(one, bytes) else str(one) for one in values.ravel()])
    if values.dtype.kind not in "iufbUS":
        raise ValueError(f"{path}: {key!r} holds {values.dtype}; numbers or strings are needed.")
    values = values.reshape(n)
    return np.char.decode(values, "utf-8") if values.dtype.kind == "S" else values


def _read_bundled(path: Source, how: InputOptions) -> Table:
    """Return a data set that comes with this library or with scikit-learn."""
    from gpukpca.datasets import uk_foods

    name = str(path)
    if name == "foods":
        table = uk_foods()
        source = f"{name}, published table of the United Kingdom in 1997"
        return Table(table.X, source, sample_names=table.countries, feature_names=table.foods)
    from sklearn import datasets

    bunch = getattr(datasets, f"load_{name}")()
    labels = np.asarray(bunch.target_names)[bunch.target]
    return Table(bunch.data, f"{name}, bundled with scikit-learn", labels, None, tuple(map(str, bunch.feature_names)))


# Suffix -> reader, kind, and the special options that it takes. Longer suffixes come first.
ARRAYS = ("key", *PER_ROW)
READERS: dict[str, tuple[Callable[[Source, InputOptions], Table], str, tuple[str, ...]]] = {
    **{
        text + packing: (read_text, "a text file", SPECIAL[1:]) for packing in (*PACKINGS, "") for text in TEXT_SUFFIXES
    },
    ".parquet": (read_parquet, "a parquet file", PER_ROW),
    ".npy": (_read_npy, "a .npy file", ()),
    ".npz": (_read_npz, "a .npz file", ARRAYS),
    ".zarr": (_read_set, "a folder of zarr", ARRAYS),
    **dict.fromkeys((".h5", ".hdf5"), (_read_set, "an HDF5 file", ARRAYS)),
    BUNDLE: (_read_bundled, "a bundled data set", ()),
}
