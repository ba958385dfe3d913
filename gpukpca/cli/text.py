"""Reading delimited text: delimiter, decimal sign and header are found, and an error names line and column."""

from __future__ import annotations

import csv
import math
import re
import warnings
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpukpca._formatting import format_bytes
from gpukpca.cli.table import Choice, Table, check_memory, column_position, is_position

# A comma is also the decimal sign of half the world, so it is tried last.
DELIMITERS = {"\t": "tab", ";": "semicolon", ",": "comma"}
# In files of these names columns may also be separated by white space: in a .csv file it is a part of names.
SPACED = (".txt", ".dat")
WHITE_SPACE = " "
MISSING = ("", "na", "n/a", "#n/a", "<na>", "nan", "null", "none", "?", "-")
ALL = Choice()
SAMPLE_CHARACTERS = 65536
SAMPLE_LINES = 3
SAMPLE_ROWS = 50
# Text, its cells and the numbers made of them are in memory together.
MEMORY_OF_TEXT = 2.5


# Text that a spreadsheet runs as a formula, and the apostrophe before it that makes it text.
FORMULA = re.compile(r"'*[=+\-@\t\r]")


def quoted(name: str) -> str:
    """Return a name with an apostrophe before it where a spreadsheet would run it; numbers stay as they are."""
    return f"'{name}" if FORMULA.match(name) and _number(name, ".") is None else name


def unquoted(cell: str) -> str:
    """Return the name that `quoted` wrote."""
    return cell[1:] if cell.startswith("'") and FORMULA.match(cell) else cell


@dataclass(frozen=True)
class Layout:
    """How a text file is written; the features are the columns `kept`."""

    path: Path
    delimiter: str
    decimal: str
    header: tuple[str, ...] | None
    width: int
    index: int | None
    label: int | None
    kept: tuple[int, ...]

    @property
    def separator(self) -> str:
        """The delimiter in words."""
        return (DELIMITERS | {WHITE_SPACE: "white space"})[self.delimiter]

    def describe(self) -> str:
        """«foods.csv, separated by comma, header in the first line»."""
        header = "no header" if self.header is None else "header in the first line"
        decimal = ", decimal comma" if self.decimal == "," else ""
        separated = f"separated by {self.separator}, " if self.width > 1 else ""
        return f"{self.path.name}, {separated}{header}{decimal}"


def read_text(
    path: Path,
    label_column: str | None,
    index_column: str | None,
    missing: bool = False,
    header: bool | None = None,
    choice: Choice = ALL,
) -> Table:
    """The numbers of a text file, with the names and labels asked for; `missing` values become NaN or are errors.

    `header` says whether the first line names the columns; None: where it looks so.
    """
    size = path.stat().st_size
    check_memory(
        MEMORY_OF_TEXT * size, f"{path} ({format_bytes(size)})", " Save it as .npy, which is read as a memory map."
    )
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            layout = _layout(path, _sample(file), label_column, index_column, header, choice)
        with path.open(encoding="utf-8-sig", newline="") as file:
            return _read_rows(layout, _rows(path, file, layout.delimiter), missing)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8.") from error


def _sample(file: Any) -> list[str]:
    """Return the first lines, always whole: as many as hold `SAMPLE_CHARACTERS`, and at least `SAMPLE_LINES`."""
    lines: list[str] = []
    characters = 0
    for line in file:
        lines.append(line)
        characters += len(line)
        if characters >= SAMPLE_CHARACTERS and len(lines) >= SAMPLE_LINES:
            break
    return lines


def _rows(path: Path, lines: Iterable[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Line number and stripped cells of every row; blank lines and trailing rows of empty cells left out."""
    if path.suffix.lower() in SPACED:
        lines = _without_mark(lines)
    if delimiter == WHITE_SPACE:
        lines = (" ".join(line.split()) for line in lines)
    reader = csv.reader(lines, delimiter=delimiter)
    empty: list[tuple[int, list[str]]] = []
    try:
        for raw in reader:
            cells = [cell.strip() for cell in raw]
            if any(cells):
                yield from empty
                empty.clear()
                yield reader.line_num, cells
            elif len(cells) > 1 and not empty:
                empty.append((reader.line_num, cells))
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: {error}") from error


def _without_mark(lines: Iterable[str]) -> Iterator[str]:
    """The lines, names in the first without the «# » that `numpy.savetxt` puts before them; numbers keep it."""
    for i, line in enumerate(lines):
        mark, _, names = line.partition("# ") if i == 0 else ("", "", "")
        is_names = bool(names) and not mark.strip() and any(_number(part, ".") is None for part in names.split())
        yield names.lstrip(" ") if is_names else line


def _layout(
    path: Path,
    sample: list[str],
    label_column: str | None,
    index_column: str | None,
    wanted: bool | None,
    choice: Choice,
) -> Layout:
    """Delimiter, decimal sign, header and columns from the first lines."""
    delimiter = _delimiter(path, sample)
    rows = [cells for _, cells in _rows(path, sample, delimiter)][:SAMPLE_ROWS]
    if not rows:
        raise ValueError(f"{path} holds no rows.")
    first, decimal = [unquoted(cell) for cell in rows[0]], _decimal(rows, delimiter)
    index, label = (
        None if column is None else column_position(path, option, column, first)
        for option, column in (("--index-column", index_column), ("--label-column", label_column))
    )
    features = [i for i in choice.positions(path, first) if i not in (index, label)]
    given = [column for column in (index_column, label_column, *choice.named) if column is not None]
    names = [column for column in given if not is_position(column, first)]
    if names and wanted is False:
        raise ValueError(f"{names[0]!r} is a name in the first line, and --no-header says that it has none; use one.")
    header = (
        bool(names)
        or choice.knows(first)
        or _is_header(first, [i for i in range(len(first)) if i not in features], decimal)
    )
    header = header if wanted is None else wanted
    layout = Layout(
        path, delimiter, decimal, tuple(first) if header else None, len(first), index, label, tuple(features)
    )
    if not layout.kept:
        raise ValueError(f"{path} has no column of numbers beside names and labels.")
    if header and not first[0].strip() and 0 in layout.kept:
        warnings.warn(
            "the first column has no name and is taken for data; if it counts the rows, give --index-column 0.",
            UserWarning,
            stacklevel=2,
        )
    return layout


def _delimiter(path: Path, sample: list[str]) -> str:
    """The first of tab, semicolon and comma that splits most rows into as many cells as the first row.

    In files that may have white space, first the one that splits every row alike, white space among them.
    """
    for delimiter in (*DELIMITERS, WHITE_SPACE) if path.suffix.lower() in SPACED else ():
        widths = _widths(path, sample, delimiter)
        if len(set(widths)) == 1 and widths[0] > 1:
            return delimiter
    for delimiter in DELIMITERS:
        widths = _widths(path, sample, delimiter)
        if widths and widths[0] > 1 and 2 * widths.count(widths[0]) >= len(widths):
            return delimiter
    return ","


def _widths(path: Path, sample: list[str], delimiter: str) -> list[int]:
    """Return the number of cells in each of the first rows; none where a cell would be longer than csv allows."""
    try:
        return [len(cells) for _, cells in _rows(path, sample, delimiter)][:SAMPLE_ROWS]
    except ValueError:  # a long line is one cell to a delimiter that it does not have
        return []


def _decimal(rows: list[list[str]], delimiter: str) -> str:
    """«,» where the sample has numbers with a comma and none with a point."""
    cells = [cell for row in rows for cell in row]
    commas = any(re.fullmatch(r"[+-]?\d*,\d+([eE][+-]?\d+)?", cell) for cell in cells)
    points = any("." in cell and _number(cell, ".") is not None for cell in cells)
    return "," if delimiter != "," and commas and not points else "."


def _is_header(first: list[str], special: list[int], decimal: str) -> bool:
    """Whether the first row names columns: text and no number outside the columns of names and labels."""
    if any(first[i] == "" for i in special):
        return True
    cells = [cell for i, cell in enumerate(first) if i not in special]
    texts = [cell for cell in cells if cell.lower() not in MISSING]
    # Numbers in one cell are a row that was not cut.
    return bool(texts) and all(any(_number(part, decimal) is None for part in cell.split()) for cell in texts)


def _number(cell: str, decimal: str) -> float | None:
    """The finite number in a cell, None where there is none."""
    if decimal == ",":
        cell = "" if "." in cell else cell.replace(",", ".")
    try:
        value = float(cell)
    except ValueError:
        return None
    # Python reads 1_000 as a number; no table means it.
    return value if math.isfinite(value) and "_" not in cell else None


def _read_rows(layout: Layout, rows: Iterator[tuple[int, list[str]]], missing: bool) -> Table:
    """All rows below the header, as numbers, names and labels."""
    if layout.header is not None:
        next(rows)
    values, names, labels = array("d"), [], []
    for line, cells in rows:
        if len(cells) != layout.width:
            raise ValueError(_ragged(layout, line, len(cells)))
        numbers = [_number(cells[i], layout.decimal) for i in layout.kept]
        if missing and None in numbers:
            pairs = zip(numbers, layout.kept, strict=True)
            numbers = [math.nan if cells[i].lower() in MISSING else number for number, i in pairs]
        if None in numbers:
            raise ValueError(_no_number(layout, line, cells, layout.kept[numbers.index(None)]))
        values.extend(numbers)  # type: ignore[arg-type]  # no None is left
        if layout.index is not None:
            names.append(unquoted(cells[layout.index]))
        if layout.label is not None:
            labels.append(unquoted(cells[layout.label]))
    if not values:
        raise ValueError(f"{layout.path} has a header and no rows.")
    return Table(
        X=np.frombuffer(values).reshape(-1, len(layout.kept)),
        source=layout.describe(),
        labels=_as_numbers(labels) if labels else None,
        sample_names=tuple(names) or None,
        feature_names=None if layout.header is None else tuple(layout.header[i] for i in layout.kept),
    )


def _ragged(layout: Layout, line: int, width: int) -> str:
    column = min(width, layout.width) + 1
    return (
        f"{layout.path}, line {line}, column {column}: the row has {width} cells, and the first row {layout.width} "
        f"(separated by {layout.separator})."
    )


def _no_number(layout: Layout, line: int, cells: list[str], column: int) -> str:
    """What is wrong with a cell, and what to do."""
    cell = cells[column]
    called = f" ({layout.header[column]})" if layout.header is not None and layout.header[column] else ""
    where = f"{layout.path}, line {line}, column {column + 1}{called}"
    if cell.lower() in MISSING:
        return (
            f"{where}: {cell!r} is a missing value; impute or drop missing values first, or fit with --method ppca "
            "or bayesian, which take them."
        )
    if layout.width == 1 and len(cell.split()) > 1:
        return (
            f"{where}: {cell!r} is not a number; columns must be separated by tab, semicolon or comma, "
            f"or by white space with as many cells in every row where the file is called {' or '.join(SPACED)}."
        )
    if _number(cell, "," if layout.decimal == "." else ".") is not None:
        mark = {",": "a decimal comma", ".": "a decimal point"}
        return f"{where}: {cell!r} is not a number with {mark[layout.decimal]}, as the first rows have."
    return (
        f"{where}: {cell!r} is not a number. A column of names or labels: --index-column or --label-column {column}; "
        f"--drop {column} leaves it out."
    )


def _as_numbers(labels: list[str]) -> np.ndarray:
    """Integers where all labels are, else floats where all are, else the strings."""
    if all(re.fullmatch(r"[+-]?\d{1,18}", label) for label in labels):
        return np.array([int(label) for label in labels])
    numbers = [_number(label, ".") for label in labels]
    return np.array(labels) if None in numbers else np.array(numbers, dtype=np.float64)
