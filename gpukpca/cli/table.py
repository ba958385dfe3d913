"""The table that an input becomes, the options that select its columns, and the check of free memory."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import compress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from gpukpca._formatting import format_allowance, format_need
from gpukpca.backend.device import host_free_bytes
from gpukpca.backend.namespace import is_sparse
from gpukpca.cli.header import BOOLEANS, cell_number
from gpukpca.data.reading import rows_of_set
from gpukpca.exceptions import MemoryBudgetError

# Of the columns that the report names.
MOST_NAMES = 12
# Rows that are read at once.
SLICE_ROWS = 4096
# What a column can be in place of a feature.
ROLES = ("label", "index", "weight")
# The column of a parquet file in which pandas writes an index without a name; in text its name is empty.
INDEX = "__index_level_0__"


@dataclass(frozen=True)
class Source:
    """Hold what is read: a file, a folder, or the content of the standard input, which has the name of `path`."""

    path: Path
    suffix: str  # of its kind, in lower case
    content: bytes | None = None

    def __str__(self) -> str:
        return str(self.path)

    @property
    def name(self) -> str:
        """Return the name without folders."""
        return self.path.name

    @property
    def size(self) -> int:
        """Return the number of bytes."""
        return self.path.stat().st_size if self.content is None else len(self.content)

    @property
    def readable(self) -> Path | io.BytesIO:
        """Return the path, or the content as a file: libraries read both."""
        return self.path if self.content is None else io.BytesIO(self.content)

    def read(self, count: int = -1) -> bytes:
        """Return the first bytes, or all."""
        with self.path.open("rb") if self.content is None else io.BytesIO(self.content) as file:
            return file.read(count)


@dataclass(frozen=True)
class Table:
    """Hold what was read, and how it was understood."""

    X: Any  # (n, d): an array, a memory map, a CSR matrix, or a set of zarr or HDF5
    source: str
    labels: np.ndarray | None = None  # (n,) integers, floats or strings
    sample_names: tuple[str, ...] | None = None
    feature_names: tuple[str, ...] | None = None
    weights: np.ndarray | None = None  # (n,)
    columns: dict[str, str] = field(default_factory=dict)  # role -> name of the column of labels, names or weights
    first_line: int | None = None  # of a text file whose rows are consecutive lines

    def transposed(self) -> Table:
        """Return the table with rows and columns swapped, and with them the names."""
        check_memory(self.X.size * self.X.dtype.itemsize, "the transposed matrix")
        X, source = self.read().T, f"{self.source}, transposed"
        X = np.ascontiguousarray(X) if isinstance(X, np.ndarray) else X.tocsr()
        return Table(X, source, sample_names=self.feature_names, feature_names=self.sample_names)

    def read(self, start: int = 0, stop: int | None = None) -> Any:
        """Return rows in memory, an array or a CSR matrix."""
        return rows_of_set(self.X, start, min(stop or self.X.shape[0], self.X.shape[0]))

    def dense(self) -> np.ndarray:
        """Return the matrix as an array, filled where it is sparse."""
        X = self.read()
        return X if isinstance(X, np.ndarray) else X.toarray()

    def count_missing(self) -> int:
        """Return the number of cells that are NaN, the only number that differs from itself."""
        slices = (self.read(start, start + SLICE_ROWS) for start in range(0, self.X.shape[0], SLICE_ROWS))
        return int(sum((rows != rows).sum() for rows in slices))

    def with_rows(self, how: InputOptions) -> Table:
        """Return the table with NaN for the codes of missing values, and without NaN where --rows says how."""
        if how.codes is None and how.rows is None:
            return self
        X = self.read()
        if not isinstance(X, np.ndarray):
            raise ValueError("--missing and --rows are for dense tables; give an array.")
        check_memory(3 * X.size * 8, "the matrix and its missing cells")
        X = np.array(X, dtype=X.dtype if X.dtype.kind == "f" else np.float64)
        codes = [cell_number(code, ".") for code in how.marks if code.lower() not in BOOLEANS]
        numbers = [code for code in codes if code is not None and abs(code) <= float(np.finfo(X.dtype).max)]
        X[np.isin(X, np.array(numbers, dtype=X.dtype))] = np.nan
        gaps = np.isnan(X)
        complete = ~gaps.any(axis=1)
        if (how.rows == "complete" and not complete.any()) or (how.rows == "imputed" and gaps.all(axis=0).any()):
            where = "every row has missing cells" if how.rows == "complete" else "a column has no other cells"
            raise ValueError(f"--rows {how.rows}: {where}; leave columns out with --drop.")
        if how.rows == "imputed":
            source = f"{self.source}; cells imputed by means: {np.sum(gaps)}"
            counts = ~gaps * (1.0 if self.weights is None else self.weights[:, None])
            means = np.sum(np.where(gaps, 0.0, X) * counts, axis=0) / np.sum(counts, axis=0)
            return replace(self, X=np.where(gaps, means, X).astype(X.dtype), source=source)
        if how.rows is None or complete.all():
            return replace(self, X=X)
        names = None if self.sample_names is None else tuple(compress(self.sample_names, complete))
        labels, weights = (None if held is None else held[complete] for held in (self.labels, self.weights))
        source = f"{self.source}; incomplete rows left out: {np.sum(~complete)}"
        return replace(
            self, X=X[complete], source=source, labels=labels, sample_names=names, weights=weights, first_line=None
        )

    def with_features(self, how: InputOptions, source: str) -> Table:
        """Return the table with the selected columns alone."""
        if not (how.chosen or how.of_model):
            return self
        names = self.feature_names
        positions = Columns(source, self.X.shape[1], names).features(how)
        if np.array_equal(positions, np.arange(self.X.shape[1])):
            return self
        kept = None if names is None else tuple(names[i] for i in positions)
        check_memory(self.X.shape[0] * len(positions) * self.X.dtype.itemsize, "the matrix of the chosen columns")
        starts = range(0, self.X.shape[0], self.X.shape[0] if is_sparse(self.X) else SLICE_ROWS)
        slices = [self.read(start, start + starts.step)[:, positions] for start in starts]
        return replace(self, X=slices[0] if len(slices) == 1 else np.concatenate(slices), feature_names=kept)


@dataclass(frozen=True)
class InputOptions:
    """Hold the options that say how to read an input.

    Columns are names, or numbers from 0 (negative: from the end). Where a number is both, #3 is a number and =3 a name.
    """

    key: str | None = None
    label_column: str | None = None
    index_column: str | None = None
    weight_column: str | None = None
    header: bool | None = None  # None: the first line of a text file shows whether it names columns
    delimiter: str | None = None  # of a text file; None: the usual one of its suffix
    decimal: str | None = None  # of a text file; None: a point
    skip: int | None = None  # lines above the first row of a text file
    columns: str | None = None
    drop: str | None = None
    transpose: bool = False  # after columns are selected
    dtype: str | None = None
    missing: bool = False  # missing cells are NaN in place of errors
    codes: str | None = None  # cells and numbers that are missing values too, separated by commas
    rows: str | None = None  # complete: leave out rows with missing cells; imputed: take the means of the columns
    of_model: tuple[str, ...] = ()  # names of the features of a saved model, selected where the input has names
    columns_of_model: dict[str, str] = field(default_factory=dict)  # as those of a table: taken where they are

    def __post_init__(self) -> None:
        if self.transpose and (self.label_column is not None or self.weight_column is not None):
            option = "label" if self.weight_column is None else "weight"
            raise ValueError(f"--{option}-column cannot go with --transpose: it belongs to rows, which become columns.")
        if self.columns is not None and self.drop is not None:
            raise ValueError("--columns and --drop contradict each other; give one of them.")

    @property
    def marks(self) -> list[str]:
        """Return the cells that --missing names."""
        return [] if self.codes is None else cells_of("--missing", self.codes)

    @property
    def chosen(self) -> list[str]:
        """Return the columns that --columns or --drop names: cells of a line of CSV, so that names may have commas."""
        option, line = ("--columns", self.columns) if self.columns is not None else ("--drop", self.drop)
        return [] if line is None else cells_of(option, line)

    def names_of_model_in(self, first: Sequence[str]) -> bool:
        """Return whether the features are selected by the names of the model: some are among those of the input."""
        return not (self.chosen or self.transpose or set(self.of_model).isdisjoint(first))


def cells_of(option: str, line: str) -> list[str]:
    """Return the cells of a line of CSV that an option gives."""
    try:
        cells = [cell.strip() for cell in next(csv.reader([line], skipinitialspace=True), [])]
    except csv.Error:  # a line break, or a cell of more than 131 072 characters
        cells = []
    if not cells or "" in cells:
        raise ValueError(f"{option} {line!r}: give names or numbers, separated by commas.")
    return cells


def input_options(options: SimpleNamespace) -> dict[str, Any]:
    """Return the fields of `InputOptions` that the options of a command set."""
    return {one.name: vars(options)[one.name] for one in fields(InputOptions) if one.name in vars(options)}


class Columns:
    """Find columns by name or by number: `names` are None where an input has none."""

    def __init__(self, source: object, width: int, names: Sequence[str] | None = None) -> None:
        self.source: object = source
        self.width: int = width
        self.names: Sequence[str] | None = names
        self.places: dict[str, list[int]] = {}
        for i, name in enumerate(names or ()):
            self.places.setdefault(name, []).append(i)

    def readings(self, column: str) -> dict[str, list[int]]:
        """Return the positions that an argument may mean, with the spelling that means no other: #3, =name."""
        found = {f"={name}": self.places[name] for name in {column, column.removeprefix("=")} if name in self.places}
        digits = re.fullmatch(r"#?(-?\d{1,9})", column)
        if digits and -self.width <= int(digits[1]) < self.width:
            found[f"#{int(digits[1])}"] = [int(digits[1]) % self.width]
        return found

    def position(self, option: str, column: str) -> int:
        """Return the position of a column given by number from 0 (negative: from the end) or by name."""
        found = self.readings(column)
        places = {place for positions in found.values() for place in positions}
        if len(places) == 1:
            return places.pop()
        where = f"columns of the {self.width} in {self.source}"
        if len(found) > 1:
            ways = ", ".join(f"'{spelled}' for column {positions[0]}" for spelled, positions in found.items())
            raise ValueError(f"{option} {column!r} means {len(found)} {where}, which count from 0: give {ways}.")
        if places:
            ways = f"'#{min(places)}' to '#{max(places)}'"
            raise ValueError(f"{option} {column!r}: {len(places)} {where} have this name; give a number: {ways}.")
        line = (
            f"the first line is: {abbreviated(self.names)}"
            if self.names
            else "they have numbers from 0 on, and no names"
        )
        raise ValueError(f"{option} {column!r}: no such column of the {self.width} in {self.source} ({line}).")

    def ends(self, column: str) -> tuple[str, str]:
        """Return first and last column of a range such as 2000-2005, and one column twice."""
        splits = [(column[:i], column[i + 1 :]) for i in range(1, len(column)) if column[i] == "-"]
        ranges = (pair for pair in splits if all(map(self.readings, pair)))
        return (column, column) if self.readings(column) else next(ranges, (column, column))

    def features(self, how: InputOptions) -> np.ndarray:
        """Return the positions of the features, in the order of the input or of the model."""
        if how.names_of_model_in(self.names or ()):
            if missing := [name for name in how.of_model if name not in self.places]:
                raise ValueError(
                    f"{self.source} has no column {abbreviated(missing)}, which the model was fitted with."
                )
            if twice := [name for name in how.of_model if len(self.places[name]) > 1]:
                count = len(self.places[twice[0]])
                raise ValueError(f"{self.source} has {count} columns named {twice[0]!r}; keep the one to use.")
            return np.array([self.places[name][0] for name in how.of_model])
        if not how.chosen:
            return np.arange(self.width)
        option, chosen = "--drop" if how.columns is None else "--columns", np.zeros(self.width, dtype=bool)
        for column in how.chosen:
            first, last = (self.position(option, end) for end in self.ends(column))
            if first > last or chosen[first : last + 1].any():
                reason = "ends before it begins" if first > last else "is given twice; give every column once"
                raise ValueError(f"{option}: column {column!r} {reason}.")
            chosen[first : last + 1] = True
        left = np.flatnonzero(chosen == (option == "--columns"))
        if not len(left):
            raise ValueError(f"{option} leaves no column of the {self.width} in {self.source}.")
        return left

    def choose(self, how: InputOptions, indexed: bool = True) -> tuple[dict[str, int], list[int]]:
        """Return the positions of names, labels and weights, and those of the features.

        Where the first column can be an index, it is that of the names if it has no name, as pandas and R write it.
        """
        roles = {}
        for role in ROLES:
            if (column := vars(how)[f"{role}_column"]) is not None:
                roles[role] = self.position(f"--{role}-column", column)
            elif (name := how.columns_of_model.get(role)) and name in self.places:
                roles[role] = self.places[name][0]
        kept = [i for i in self.features(how).tolist() if i not in roles.values()]
        unnamed = self.places.get(INDEX) or [i for i in self.places.get("", []) if i == 0]
        is_free = indexed and "index" not in roles and how.columns is None and not {INDEX, ""} & {*how.of_model}
        if is_free and unnamed and unnamed[0] in kept and len(kept) > 1:
            roles["index"] = unnamed[0]
            kept.remove(unnamed[0])
        if not kept:
            raise ValueError(f"{self.source} has no column of numbers apart from names and labels.")
        return roles, kept


def abbreviated(names: Sequence[str]) -> str:
    """Return «a, b, c», or «a, b, ... (26)» of many names."""
    return ", ".join(names[:MOST_NAMES]) + (f", ... ({len(names)})" if len(names) > MOST_NAMES else "")


def check_memory(needed: float, what: str, advice: str = "") -> None:
    """Raise `MemoryBudgetError` where `needed` bytes are not free."""
    free = host_free_bytes()
    if needed > free:
        raise MemoryBudgetError(
            f"{what} needs about {format_need(needed)} of memory, and {format_allowance(free)} are free.{advice}"
        )
