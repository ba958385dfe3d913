"""The input of a command: a file or a bundled data set becomes a `Table`, or an error that says where it is wrong."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from gpukpca._container import is_container
from gpukpca._formatting import format_bytes
from gpukpca._rules import closest
from gpukpca.cli.table import InputOptions, Table, check_memory
from gpukpca.cli.text import DELIMITERS, read_text
from gpukpca.persistence.model_file import KIND

# Of scikit-learn, then simulated: the same numbers every time.
BUNDLED = ("digits", "iris", "wine", "breast_cancer", "foods")
TEXT_SUFFIXES = tuple(DELIMITERS)
# Where an archive holds several matrices.
USUAL_KEYS = ("X", "x_train", "data")
# Characters of a reason, which may quote the whole of a header.
MOST_QUOTED = 300
# Options that only some kinds of input read.
SPECIAL = ("key", "label_column", "index_column", "header", "delimiter", "decimal")


def read_input(source: str, **options: Any) -> Table:
    """Read a .npy, .npz or text file, or a bundled data set; `options` are fields of `InputOptions`.

    A file is preferred where both exist. Errors in text name line and column.
    """
    how, path = InputOptions(**options), Path(source)
    bundled = not path.is_file() and source in BUNDLED
    if not bundled:
        _check_file(path)
    suffix = path.suffix.lower()
    if not bundled and suffix not in READERS:
        raise ValueError(
            f"{path}: files ending in {suffix or 'nothing'} cannot be read; give {', '.join(READERS)}, "
            f"or one of {', '.join(BUNDLED)}."
        )
    read, kind, allowed = (_read_bundled, "a bundled data set", ()) if bundled else READERS[suffix]
    for name in SPECIAL:
        value = vars(how)[name]
        if value is not None and name not in allowed:
            option = "no-header" if value is False else name.replace("_", "-")
            raise ValueError(f"--{option} does not apply to {source}, which is {kind}.")
    table = read(path, how)
    # A text file has no more than the selected columns of numbers.
    table = table if read is read_text else table.with_features(how, source)
    table = table.transposed() if how.transpose else table
    return replace(table, X=_as_dtype(table.X, how.dtype))


def _check_file(path: Path) -> None:
    """Raise for a path that is no file with content."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory; give a file.")
    if not path.exists():
        raise FileNotFoundError(
            f"{path}: no such file, and no bundled set ({', '.join(BUNDLED)}).{closest(str(path), BUNDLED)}"
        )
    if not path.is_file():  # opening a pipe would wait for a writer, and a device has no end
        raise ValueError(f"{path} is a pipe or a device; write what it gives to a file first.")
    with path.open("rb") as file:
        if not file.read(1):
            raise ValueError(f"{path} is empty.")
    if is_container(path, KIND):
        raise ValueError(f"{path} is a saved model; give data instead.")


def _check_matrix(shape: tuple[int, ...], dtype: np.dtype, source: object) -> None:
    """Raise unless an array has two axes, entries, and real numbers."""
    if len(shape) != 2:
        raise ValueError(f"{source}: a matrix (samples x features) is needed, and the array has shape {shape}.")
    if 0 in shape:
        raise ValueError(f"{source}: the matrix is empty, its shape is {shape}.")
    if dtype.kind not in "fiub":
        raise ValueError(f"{source}: real numbers are needed, and the array holds {dtype}.")


def _as_dtype(X: np.ndarray, dtype: str | None) -> np.ndarray:
    """Return X in a dtype; None keeps it: estimators make float64 of what is neither float32 nor float64."""
    target = np.dtype(dtype or np.float64)
    if X.dtype == target or (dtype is None and X.dtype == np.float32):
        return X
    check_memory(X.size * target.itemsize, f"the matrix in {target}")
    # What overflows is reported by the estimator, with its row and column.
    with np.errstate(over="ignore"):
        return X if dtype is None else X.astype(target)


# -- NumPy files and bundled sets --------------------------------------------------------------------------------------


@contextmanager
def _reading(path: Path, kind: str) -> Iterator[None]:
    """Turn what NumPy raises for a broken file into one ValueError that names the file."""
    try:
        yield
    except (OSError, MemoryError):
        raise
    except Exception as error:  # a header of NumPy is tokenized, parsed and evaluated as Python is
        reason = str(error)[:MOST_QUOTED] or type(error).__name__
        raise ValueError(f"{path} cannot be read as {kind}, it is damaged: {reason}") from error


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype]:
    """Return the shape and the dtype of an array in NumPy's format, without reading its numbers."""
    is_first = np.lib.format.read_magic(file) == (1, 0)
    read = np.lib.format.read_array_header_1_0 if is_first else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    return shape, dtype


def _read_npy(path: Path, how: InputOptions) -> Table:
    """Map a .npy file into memory."""
    with path.open("rb") as file:
        if file.read(len(np.lib.format.MAGIC_PREFIX)) != np.lib.format.MAGIC_PREFIX:
            raise ValueError(f"{path} is not a .npy file: it does not start as one.")
        file.seek(0)
        with _reading(path, ".npy"):
            shape, dtype = _header(file)
        there = path.stat().st_size - file.tell()
    _check_matrix(shape, dtype, path)
    described = math.prod(shape) * dtype.itemsize
    if described > there:
        raise ValueError(
            f"{path} is damaged: its header describes {shape[0]} x {shape[1]} numbers of {dtype} "
            f"({format_bytes(described)}), and {format_bytes(there)} follow. Copy or write the file again."
        )
    with _reading(path, ".npy"):
        return Table(np.lib.format.open_memmap(path, mode="r"), f"{path.name}, memory map")


def _read_npz(path: Path, how: InputOptions) -> Table:
    """Read one matrix of a .npz file, with labels and names where the options name arrays."""
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path} is not a .npz file: it is no zip archive, or it is cut off.")
    with _reading(path, ".npz"), zipfile.ZipFile(path) as archive:
        headers = {}
        for name in archive.namelist():
            if name.endswith(".npy"):
                with archive.open(name) as member:
                    headers[name.removesuffix(".npy")] = _header(member)
    key = _matrix_key(path, headers) if how.key is None else how.key
    needed = {name for name in (key, how.label_column, how.index_column) if name is not None}
    for name in needed - set(headers):
        raise ValueError(f"{path} has no array {name!r}; it has {_listed(headers)}.{closest(name, headers)}")
    _check_matrix(*headers[key], path)
    check_memory(sum(math.prod(headers[name][0]) * headers[name][1].itemsize for name in needed), str(path))
    with _reading(path, ".npz"), np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in needed}
    labels, names = (
        None if name is None else _one_per_row(path, name, arrays[name], len(arrays[key]))
        for name in (how.label_column, how.index_column)
    )
    return Table(arrays[key], f"{path.name}, array {key!r}", labels, None if names is None else tuple(map(str, names)))


def _matrix_key(path: Path, headers: dict[str, Any]) -> str:
    """Return the name of the only matrix, or of the one with a usual name."""
    matrices = [name for name, (shape, _) in headers.items() if len(shape) == 2]
    usual = [name for name in USUAL_KEYS if name in matrices]
    if len(matrices) == 1 or usual:
        return [*usual, *matrices][0]
    raise ValueError(f"{path}: say with --key which array to use; it has {_listed(headers)}.")


def _listed(headers: dict[str, Any]) -> str:
    return ", ".join(f"{name} {shape}" for name, (shape, _) in headers.items()) or "no arrays"


def _one_per_row(path: Path, key: str, values: np.ndarray, n: int) -> np.ndarray:
    """Return labels or names: a vector of n numbers or strings."""
    if values.size != n or values.ndim not in (1, 2) or values.shape[0] != n:
        raise ValueError(f"{path}: {key!r} has shape {values.shape}, and the matrix has {n} rows.")
    if values.dtype.kind not in "iufbUS":
        raise ValueError(f"{path}: {key!r} holds {values.dtype}; numbers or strings are needed.")
    values = values.reshape(n)
    return np.char.decode(values, "utf-8") if values.dtype.kind == "S" else values


def _read_bundled(path: Path, how: InputOptions) -> Table:
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


# Suffix -> reader, kind, and the special options that it takes.
READERS: dict[str, tuple[Callable[[Path, InputOptions], Table], str, tuple[str, ...]]] = {
    ".npy": (_read_npy, "a .npy file", ()),
    ".npz": (_read_npz, "a .npz file", ("key", "label_column", "index_column")),
    **dict.fromkeys(TEXT_SUFFIXES, (read_text, "a text file", SPECIAL[1:])),
}
