"""What an input becomes, and whether there is room for it."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpukpca._formatting import format_bytes
from gpukpca.backend.device import host_free_bytes
from gpukpca.exceptions import MemoryBudgetError

# Of the columns that the report names.
MOST_NAMES, LONGEST_NAME = 12, 30


@dataclass(frozen=True)
class Table:
    """What was read.

    Attributes
    ----------
    X : array, shape (n, d)
    source : str
        Where it came from and how it was understood.
    labels : array (n,) or None
        Integers, floats or strings.
    sample_names, feature_names : tuple of str or None
    """

    X: np.ndarray
    source: str
    labels: np.ndarray | None = None
    sample_names: tuple[str, ...] | None = None
    feature_names: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Choice:
    """Columns of an input that are features.

    Attributes
    ----------
    keep, drop : tuple of str or None
        Names, or numbers from 0 (negative: from the end); None: all, and none.
    of_model : tuple of str
        Names of the features of a saved model. An input that has names in common with them must have all of them.
    """

    keep: tuple[str, ...] | None = None
    drop: tuple[str, ...] | None = None
    of_model: tuple[str, ...] = ()

    @classmethod
    def of(cls, columns: str | None, drop: str | None) -> Choice:
        """Return the choice that --columns and --drop make: cells of a line of CSV, so that names may have commas."""
        if columns is not None and drop is not None:
            raise ValueError("--columns and --drop contradict each other; give one of them.")
        return cls(_cells("--columns", columns), _cells("--drop", drop))

    @property
    def option(self) -> str:
        """Return the option that made the choice; empty where none did."""
        return "--columns" if self.keep is not None else "--drop" if self.drop is not None else ""

    @property
    def named(self) -> tuple[str, ...]:
        """Return the columns that the option names."""
        return self.keep or self.drop or ()

    def knows(self, first: Sequence[str]) -> bool:
        """Return whether an input has names of the features of the model."""
        return not self.option and not set(self.of_model).isdisjoint(first)

    def positions(self, source: object, first: Sequence[str]) -> list[int]:
        """Return the positions of the columns that stay; `first` are the names.

        They are in the order of the file, or in that of the model.

        Raises
        ------
        ValueError
            No such column, or none is left.
        """
        if self.knows(first):
            if missing := [name for name in self.of_model if name not in first]:
                raise ValueError(f"{source} has no column {abbreviated(missing)}, which the model was fitted with.")
            return [first.index(name) for name in self.of_model]
        if not self.option:
            return list(range(len(first)))
        given = {column_position(source, self.option, one, first) for one in self.named}
        left = [i for i in range(len(first)) if (i in given) is (self.keep is not None)]
        if not left:
            raise ValueError(f"{self.option} leaves no column of the {len(first)} in {source}.")
        return left


def _cells(option: str, line: str | None) -> tuple[str, ...] | None:
    if line is None:
        return None
    cells = tuple(cell.strip() for cell in next(csv.reader([line], skipinitialspace=True), []))
    if not cells or "" in cells:
        raise ValueError(f"{option} {line!r}: give names or numbers of columns, separated by commas.")
    return cells


def column_position(source: object, option: str, column: str, first: Sequence[str]) -> int:
    """Return the position of a column given by number from 0 (negative: from the end) or by name.

    Raises
    ------
    ValueError
        No such column, or several of this name.
    """
    if is_position(column, first):
        return int(column) % len(first)
    many = first.count(column)
    if many == 1:
        return first.index(column)
    names = ", ".join(first[:12]) + (", ..." if len(first) > 12 else "")
    what = f"{many} columns are called so; give a number" if many else f"the first line is: {names}"
    raise ValueError(f"{option} {column!r}: no such column of the {len(first)} in {source} ({what}).")


def is_position(column: str, first: Sequence[str]) -> bool:
    """Return whether a column is given by its number: then the same number in the first line is no name."""
    return bool(re.fullmatch(r"-?\d{1,9}", column)) and -len(first) <= int(column) < len(first)


def abbreviated(names: Sequence[str]) -> str:
    """Return «a, b, c», or «a, b, ..., z (26)» of many names; what is long in a name is left out too."""
    short = [name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 3]}..." for name in names]
    if len(names) <= MOST_NAMES:
        return ", ".join(short)
    return ", ".join([*short[: MOST_NAMES - 2], "...", short[-1]]) + f" ({len(names)})"


def with_columns(table: Table, choice: Choice, source: str) -> Table:
    """Return the table with the chosen columns alone."""
    names = table.feature_names or tuple(f"number {i}" for i in range(table.X.shape[1]))
    positions = choice.positions(source, names)
    if positions == list(range(len(names))):
        return table
    kept = None if table.feature_names is None else tuple(table.feature_names[i] for i in positions)
    check_memory(len(table.X) * len(positions) * table.X.itemsize, "the matrix of the chosen columns")
    return replace(table, X=table.X[:, positions], feature_names=kept)


def check_memory(needed: float, what: str, advice: str = "") -> None:
    """Raise `MemoryBudgetError` where `needed` bytes are not free."""
    free = host_free_bytes()
    if needed > free:
        raise MemoryBudgetError(
            f"{what} needs about {format_bytes(int(needed))} of memory, and {format_bytes(free)} are free.{advice}"
        )
