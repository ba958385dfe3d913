"""Reading the input of a fit: a file or a bundled set becomes a `Table`, or an error that says where."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from gpukpca._archive import HEADER
from gpukpca._rules import closest
from gpukpca.cli.table import Choice, Table, check_memory, with_columns
from gpukpca.cli.text import SPACED, read_text

# Of scikit-learn, then simulated: the same numbers every time.
BUNDLED = ("digits", "iris", "wine", "breast_cancer", "genotypes", "clusters")
TEXT_SUFFIXES = (".csv", ".tsv", *SPACED)
# Where an archive holds several matrices.
USUAL_KEYS = ("X", "x_train", "data")
# Characters of a reason, which may quote the whole of a header.
MOST_QUOTED = 300


def read_input(
    source: str,
    *,
    key: str | None = None,
    label_column: str | None = None,
    index_column: str | None = None,
    transpose: bool = False,
    dtype: str | None = None,
    missing: bool = False,
    header: bool | None = None,
    columns: str | None = None,
    drop: str | None = None,
    of_model: tuple[str, ...] = (),
) -> Table:
    """Read a .npy, .npz or text file, or a bundled set.

    Parameters
    ----------
    source : str
        A path, or a name of `BUNDLED`; a file wins where both exist.
    key : str, optional
        Array of a .npz file; by default its only matrix, or the one called as in `USUAL_KEYS`.
    label_column, index_column : str, optional
        Column of a text file by name or by number from 0; array of a .npz file by key.
    transpose : bool
        Swap rows and columns, and with them the names.
    dtype : "float32", "float64" or None
        None leaves the numbers as they are in the file.
    missing : bool
        Empty cells of a text file, and those that say NA, are NaN; without it they are errors.
    header : bool or None
        Whether the first line of a text file names the columns; None: it does where it has text and no number.
    columns, drop : str, optional
        Columns that are the only features, or none, before the table is transposed: names, or numbers from 0,
        separated by commas.
    of_model : tuple of str
        Names of the features of a saved model, which are chosen by name where the input has names.

    Raises
    ------
    ValueError, OSError, MemoryBudgetError
        With the line and the column, for text.
    """
    if transpose and label_column is not None:
        raise ValueError("--label-column cannot go with --transpose: labels belong to rows, which become columns.")
    choice = replace(Choice.of(columns, drop), of_model=() if transpose else of_model)
    table = _read(source, key, label_column, index_column, missing, header, choice)
    if transpose:
        table = _transposed(table)
    return replace(table, X=_as_dtype(table.X, dtype))


def how_to_read(wanted: SimpleNamespace) -> dict[str, Any]:
    """Of `read_input`, what the options of a command say."""
    names = ("key", "label_column", "index_column", "transpose", "dtype", "header", "columns", "drop")
    return {name: getattr(wanted, name) for name in names}


def _read(
    source: str,
    key: str | None,
    label_column: str | None,
    index_column: str | None,
    missing: bool,
    header: bool | None,
    choice: Choice,
) -> Table:
    """Return the table as it is in the file, with the chosen columns."""
    path = Path(source)
    bundled = not path.is_file() and source in BUNDLED
    if not bundled:
        _check_file(path)
    suffix = "" if bundled else path.suffix.lower()
    if header is not None and suffix not in TEXT_SUFFIXES:
        raise ValueError(f"--{'header' if header else 'no-header'} is for text files, and {source} is none.")
    if bundled:
        _refuse_options(f"the bundled set {source!r}", key=key, label_column=label_column, index_column=index_column)
        return with_columns(_read_bundled(source), choice, source)
    if suffix in TEXT_SUFFIXES:
        _refuse_options("a text file", key=key)
        return read_text(path, label_column, index_column, missing, header, choice)
    if suffix == ".npz":
        return _of_matrix(_read_npz(path, key, label_column, index_column), choice, source)
    if suffix == ".npy":
        _refuse_options("a .npy file", key=key, label_column=label_column, index_column=index_column)
        return _of_matrix(_read_npy(path), choice, source)
    raise ValueError(
        f"{path}: files ending in {suffix or 'nothing'} cannot be read; give .npy, .npz, "
        f"{', '.join(TEXT_SUFFIXES)}, or one of {', '.join(BUNDLED)}."
    )


def _of_matrix(table: Table, choice: Choice, source: str) -> Table:
    """Return the chosen columns of what is a matrix."""
    _check_matrix(table.X, source)
    return with_columns(table, choice, source)


def _check_file(path: Path) -> None:
    """Raise for what is no file that can be read."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory; give a file.")
    if not path.exists():
        raise FileNotFoundError(
            f"{path}: no such file, and no bundled set ({', '.join(BUNDLED)}).{closest(str(path), BUNDLED)}"
        )
    if not path.is_file():  # opening a pipe would wait for somebody to write to it, and a device has no end
        raise ValueError(f"{path} is a pipe or a device; write what it gives to a file first.")
    with path.open("rb") as file:
        if not file.read(1):
            raise ValueError(f"{path} is empty.")


def _refuse_options(what: str, **options: str | None) -> None:
    """Options that mean nothing for this kind of input."""
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"--{name.replace('_', '-')} {value} does not apply to {what}.")


def _check_matrix(X: np.ndarray, source: str) -> None:
    """Two axes, something in them, real numbers."""
    if X.ndim != 2:
        raise ValueError(f"{source}: a matrix (samples x features) is needed, and the array has shape {X.shape}.")
    if 0 in X.shape:
        raise ValueError(f"{source}: the matrix is empty, its shape is {X.shape}.")
    if X.dtype.kind not in "fiub":
        raise ValueError(f"{source}: real numbers are needed, and the array holds {X.dtype}.")


def _transposed(table: Table) -> Table:
    check_memory(table.X.nbytes, "the transposed matrix")
    return Table(
        X=np.ascontiguousarray(table.X.T),
        source=f"{table.source}, transposed",
        sample_names=table.feature_names,
        feature_names=table.sample_names,
    )


def _as_dtype(X: np.ndarray, dtype: str | None) -> np.ndarray:
    """X in the dtype asked for; without one the estimator keeps float32 and float64, and makes float64 of the rest."""
    kept = X.dtype in (np.float32, np.float64) if dtype is None else X.dtype == np.dtype(dtype)
    if kept:
        return X
    wanted = np.dtype(dtype or np.float64)
    check_memory(X.size * wanted.itemsize, f"the matrix in {wanted}")
    if dtype is None:
        return X
    # What overflows is reported by the estimator, with its row and column.
    with np.errstate(over="ignore"):
        return X.astype(wanted)


# -- NumPy files and bundled sets --------------------------------------------------------------------------------------


@contextmanager
def _reading(path: Path, kind: str) -> Iterator[None]:
    """Whatever a broken file makes NumPy say, as one ValueError that names the file."""
    try:
        yield
    except (OSError, MemoryError):
        raise
    except Exception as error:  # a header of NumPy is tokenized, parsed and evaluated as Python is
        raise ValueError(
            f"{path} cannot be read as {kind}: {str(error)[:MOST_QUOTED] or type(error).__name__}"
        ) from error


def _read_npy(path: Path) -> Table:
    with _reading(path, ".npy"):
        X = np.load(path, mmap_mode="r", allow_pickle=False) if _is_npy(path) else None
    if X is None:
        raise ValueError(f"{path} is not a .npy file: it does not start as one.")
    return Table(X, f"{path.name}, memory map")


def _is_npy(path: Path) -> bool:
    """Whether the magic is there: without it `numpy.load` speaks of pickles."""
    with path.open("rb") as file:
        return file.read(len(np.lib.format.MAGIC_PREFIX)) == np.lib.format.MAGIC_PREFIX


def _read_npz(path: Path, key: str | None, label_key: str | None, name_key: str | None) -> Table:
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path} is not a .npz file: it is no zip archive, or it is cut off.")
    if key is None and is_model_file(path):
        raise ValueError(f"{path} is a saved model; give data instead, or name one of its arrays with --key.")
    with _reading(path, ".npz"):
        headers = _headers(path)
    chosen = _matrix_key(path, headers, key)
    wanted = {chosen} | {name for name in (label_key, name_key) if name is not None}
    for name in wanted - set(headers):
        raise ValueError(f"{path} has no array {name!r}; it has {_listed(headers)}.{closest(name, headers)}")
    check_memory(sum(math.prod(headers[name][0]) * headers[name][1].itemsize for name in wanted), str(path))
    with _reading(path, ".npz"), np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in wanted}
    n = headers[chosen][0][0]
    labels = None if label_key is None else _one_per_row(path, label_key, arrays[label_key], n)
    names = None if name_key is None else tuple(str(v) for v in _one_per_row(path, name_key, arrays[name_key], n))
    return Table(arrays[chosen], f"{path.name}, array {chosen!r}", labels, names)


def is_model_file(path: Path) -> bool:
    """Whether a file looks like one that ``gpukpca fit --save`` wrote."""
    if not path.is_file() or not zipfile.is_zipfile(path):
        return False
    with _reading(path, ".npz"), zipfile.ZipFile(path) as archive:
        return HEADER in archive.namelist()


def _headers(path: Path) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Shape and dtype of every array of an archive, without reading the arrays."""
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    headers = {}
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if not name.endswith(".npy"):
                continue
            with archive.open(name) as member:
                version = np.lib.format.read_magic(member)
                shape, _, dtype = readers.get(version, np.lib.format.read_array_header_2_0)(member)
            headers[name.removesuffix(".npy")] = (shape, dtype)
    return headers


def _matrix_key(path: Path, headers: dict[str, Any], key: str | None) -> str:
    """The array asked for, or the one that can only be meant."""
    if key is not None:
        return key
    matrices = [name for name, (shape, _) in headers.items() if len(shape) == 2]
    if len(matrices) == 1:
        return matrices[0]
    usual = [name for name in USUAL_KEYS if name in matrices]
    if usual:
        return usual[0]
    raise ValueError(f"{path}: say with --key which array to use; it has {_listed(headers)}.")


def _listed(headers: dict[str, Any]) -> str:
    return ", ".join(f"{name} {shape}" for name, (shape, _) in headers.items()) or "no arrays"


def _one_per_row(path: Path, key: str, values: np.ndarray, n: int) -> np.ndarray:
    """Labels or names: a vector of n numbers or strings."""
    if values.size != n or values.ndim not in (1, 2) or values.shape[0] != n:
        raise ValueError(f"{path}: {key!r} has shape {values.shape}, and the matrix has {n} rows.")
    if values.dtype.kind not in "iufbUS":
        raise ValueError(f"{path}: {key!r} holds {values.dtype}; numbers or strings are needed.")
    values = values.reshape(n)
    return np.char.decode(values, "utf-8") if values.dtype.kind == "S" else values


def _read_bundled(name: str) -> Table:
    from gpukpca.datasets import isolation_by_distance, misleading_clusters

    if name == "genotypes":
        made = isolation_by_distance()
        return Table(made.X, f"{name}, simulated individuals on a map", made.regions)
    if name == "clusters":
        X, labels = misleading_clusters()
        return Table(X, f"{name}, simulated", labels)
    from sklearn import datasets

    bunch = getattr(datasets, f"load_{name}")()
    labels = np.asarray(bunch.target_names)[bunch.target]
    return Table(bunch.data, f"{name}, bundled with scikit-learn", labels, None, tuple(map(str, bunch.feature_names)))
