"""Delimited text: detect delimiter, decimal sign and header; parse with polars; name line and column in errors."""

from __future__ import annotations

import codecs
import csv
import itertools
import math
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gpukpca._formatting import format_bytes
from gpukpca.cli.table import (
    InputOptions,
    Table,
    abbreviated,
    check_memory,
    column_position,
    feature_positions,
    is_position,
)

WHITE_SPACE = " "
# In the order of the search. A comma is also a decimal sign, so it comes after tab and semicolon.
DELIMITERS = {"\t": "tab", ";": "semicolon", ",": "comma", WHITE_SPACE: "white space"}
# White space separates columns only in files of these names: in a .csv file it is a part of names.
SPACED = (".txt", ".dat")
COMMENT = re.compile(r"\s*#(?: +|\s*$)")
MISSING = ("", "na", "n/a", "#n/a", "<na>", "nan", "null", "none", "?", "-")
# What polars reads as missing: it compares with case.
MARKS = sorted({spelling for mark in MISSING for spelling in (mark, mark.upper(), mark.capitalize())} - {""})
SAMPLE_CHARACTERS, SAMPLE_LINES, SAMPLE_ROWS = 65536, 3, 50
# The columns that polars parses, and the matrix made of them.
BYTES_PER_CELL = 16
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
    """Describe how a text file is written: the features are the columns `kept` of the lines after `skipped`."""

    path: Path
    delimiter: str
    decimal: str
    header: tuple[str, ...] | None
    skipped: int
    width: int
    index: int | None
    label: int | None
    kept: tuple[int, ...]

    def __str__(self) -> str:
        header = "no header" if self.header is None else "header in the first line"
        decimal = ", decimal comma" if self.decimal == "," else ""
        separated = f"separated by {DELIMITERS[self.delimiter]}, " if self.width > 1 else ""
        return f"{self.path.name}, {separated}{header}{decimal}"

    def table(self, X: np.ndarray, names: list[str], labels: list[str]) -> Table:
        """Return the table of the numbers of all rows, with the cells of names and labels."""
        features = None if self.header is None else tuple(self.header[i] for i in self.kept)
        names, labels = ([unquoted(cell) for cell in cells] for cells in (names, labels))
        return Table(X, str(self), _as_numbers(labels) if labels else None, tuple(names) or None, features)


def read_text(path: Path, how: InputOptions) -> Table:
    """Read the numbers of a text file, with the names and labels that the options select."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = _sample(file)
        delimiter = _delimiter(path, lines)
        rows = list(_rows(path, lines, delimiter))[:SAMPLE_ROWS]
        if not rows:
            raise ValueError(f"{path} holds no rows.")
        _check_room(path, [cells for _, cells in rows])
        layout = _layout(path, rows, delimiter, how)
        return _read_fast(layout, how.missing) or _read_exactly(layout, how.missing)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8.") from error


def _sample(file: Iterable[str]) -> list[str]:
    """Return the first lines, always whole: as many as hold `SAMPLE_CHARACTERS`, and at least `SAMPLE_LINES`."""
    lines: list[str] = []
    characters = 0
    for line in file:
        lines.append(line)
        characters += len(line)
        if characters >= SAMPLE_CHARACTERS and len(lines) >= SAMPLE_LINES:
            break
    return lines


def _check_room(path: Path, rows: list[list[str]]) -> None:
    """Raise where the text and its numbers do not fit in memory, judged by the first rows."""
    size, cells = path.stat().st_size, sum(map(len, rows))
    characters = sum(len(cell) + 1 for row in rows for cell in row)
    needed = size * (2 + BYTES_PER_CELL * cells / characters)
    check_memory(needed, f"{path} ({format_bytes(size)})", " Save it as .npy, which is read as a memory map.")


def _rows(path: Path, lines: Iterable[str], delimiter: str, whole: bool = False) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and stripped cells of every row; skip blank lines and trailing rows of empty cells.

    With `whole` the lines are all of the file, and a quotation mark that is open at its end is an error.
    """
    if path.suffix.lower() in SPACED:
        lines = _without_comments(lines, delimiter)
    if delimiter == WHITE_SPACE:
        lines = (" ".join(line.split()) for line in lines)
    ended: list[bool] = []
    reader = csv.reader(_marked_at_end(lines, ended), delimiter=delimiter)
    empty: list[tuple[int, list[str]]] = []
    start = 1
    try:
        for raw in reader:
            # The reader needs no line after the last one but where a quotation mark is open.
            if whole and ended:
                raise ValueError(f"{path}: the quotation mark that opens in line {start} is never closed.")
            start = reader.line_num + 1
            cells = [cell.strip() for cell in raw]
            if any(cells):
                yield from empty
                empty.clear()
                yield reader.line_num, cells
            elif len(cells) > 1:
                empty.append((reader.line_num, cells))
    except csv.Error as error:
        raise ValueError(
            f"{path}, line {reader.line_num}: {error}. Look for a quotation mark without its pair."
        ) from error


def _marked_at_end(lines: Iterable[str], ended: list[bool]) -> Iterator[str]:
    """Yield the lines; put True into `ended` when a line after the last one is requested."""
    yield from lines
    ended.append(True)


def _without_comments(lines: Iterable[str], delimiter: str) -> Iterator[str]:
    """Yield the lines, and a blank line for every comment: «# » begins it, as `numpy.savetxt` writes it.

    The last comment above the first row names the columns if it has as many cells as the row, and text among them.
    """

    def split(line: str) -> list[str]:
        cells = " ".join(line.split()) if delimiter == WHITE_SPACE else line
        try:
            return next(csv.reader([cells], delimiter=delimiter), [])
        except csv.Error:  # a cell of more than 131 072 characters is no name
            return []

    lines, head = iter(lines), []
    for line in lines:
        head.append(line)
        if line.strip() and not COMMENT.match(line):
            break
    last = max((i for i, line in enumerate(head) if COMMENT.match(line)), default=-1)
    for i, line in enumerate(itertools.chain(head, lines)):
        comment = COMMENT.match(line)
        names = split(line[comment.end() :]) if comment and i == last else []
        is_names = len(names) == len(split(head[-1])) and any(_number(name, ".") is None for name in names)
        yield line if comment is None else line[comment.end() :] if is_names else "\n"


def _delimiter(path: Path, lines: list[str]) -> str:
    """Return the first of tab, semicolon and comma that splits most rows into as many cells as the first row.

    In files that may have white space, first the one that splits every row alike, white space among them.
    """
    spaced = path.suffix.lower() in SPACED
    widths = {one: _widths(path, lines, one) for one in DELIMITERS if spaced or one != WHITE_SPACE}
    split = {one: found for one, found in widths.items() if found and found[0] > 1}
    alike = [one for one, found in split.items() if spaced and len(set(found)) == 1]
    most = [one for one, found in split.items() if one != WHITE_SPACE and 2 * found.count(found[0]) >= len(found)]
    return [*alike, *most, ","][0]


def _widths(path: Path, lines: list[str], delimiter: str) -> list[int]:
    """Return the number of cells in each of the first rows; none where a cell would be longer than csv allows."""
    try:
        return [len(cells) for _, cells in _rows(path, lines, delimiter)][:SAMPLE_ROWS]
    except ValueError:  # a long line is one cell to a delimiter that it does not have
        return []


def _layout(path: Path, rows: list[tuple[int, list[str]]], delimiter: str, how: InputOptions) -> Layout:
    """Return decimal sign, header and columns from the first rows."""
    first, decimal = [unquoted(cell) for cell in rows[0][1]], _decimal(path, [cells for _, cells in rows], delimiter)
    index, label = (
        None if column is None else column_position(path, option, column, first)
        for option, column in (("--index-column", how.index_column), ("--label-column", how.label_column))
    )
    kept = tuple(i for i in feature_positions(how, path, first) if i not in (index, label))
    given = [column for column in (how.index_column, how.label_column, *how.chosen) if column is not None]
    names = [column for column in given if not is_position(column, first)]
    if names and how.header is False:
        raise ValueError(f"{names[0]!r} is a name in the first line, and --no-header says that it has none; use one.")
    special = sorted(set(range(len(first))) - set(kept))
    header = how.header
    if header is None:
        header = bool(names) or how.names_of_model_in(first) or _is_header(first, special, decimal)
    if not kept:
        raise ValueError(f"{path} has no column of numbers apart from names and labels.")
    if header and not first[0].strip() and 0 in kept:
        warnings.warn(
            "the first column has no name and is taken for data; if it counts the rows, give --index-column 0.",
            UserWarning,
            stacklevel=2,
        )
    skipped = rows[0][0] if header else 0
    return Layout(path, delimiter, decimal, tuple(first) if header else None, skipped, len(first), index, label, kept)


def _decimal(path: Path, rows: list[list[str]], delimiter: str) -> str:
    """Return a comma where the sample has numbers with a comma and none with a point; warn where it is ambiguous."""
    cells = [cell for row in rows for cell in row]
    commas = [cell for cell in cells if re.fullmatch(r"[+-]?\d*,\d+([eE][+-]?\d+)?", cell)]
    points = any("." in cell and _number(cell, ".") is not None for cell in cells)
    if delimiter == "," or points or not commas:
        return "."
    if all(re.fullmatch(r"[+-]?[1-9]\d{0,2},\d{3}", cell) for cell in commas):
        warnings.warn(
            f"{path}: commas are read as decimal signs, {commas[0]} as {commas[0].replace(',', '.')}; if they separate "
            "thousands, remove them from the file.",
            UserWarning,
            stacklevel=2,
        )
    return ","


def _is_header(first: list[str], special: list[int], decimal: str) -> bool:
    """Return whether the first row names columns: text and no number outside the columns of names and labels."""
    if any(first[i] == "" for i in special):
        return True
    texts = [cell for i, cell in enumerate(first) if i not in special and cell.lower() not in MISSING]
    # Numbers in one cell are a row whose delimiter is unknown.
    return bool(texts) and all(any(_number(part, decimal) is None for part in cell.split()) for cell in texts)


def _number(cell: str, decimal: str) -> float | None:
    """Return the finite number in a cell, None for any other cell."""
    if decimal == ",":
        cell = "" if "." in cell else cell.replace(",", ".")
    try:
        value = float(cell)
    except ValueError:
        return None
    # Python reads 1_000 as a number; no table means it.
    return value if math.isfinite(value) and "_" not in cell else None


def _body(layout: Layout) -> bytes | None:
    """Return the lines below the header without quotes; None where polars would read them otherwise than csv."""
    with layout.path.open("rb") as file:
        skipped = [file.readline() for _ in range(layout.skipped)]
        body = file.read()
    body = body if skipped else body.removeprefix(codecs.BOM_UTF8)
    if body.endswith((b"\n\n", b"\n\r\n")):
        body = body.rstrip(b"\r\n")
    # Polars takes a carriage return alone for a part of a cell, reads both decimal signs, and ignores a delimiter at
    # the end of the file.
    returns = any(b"\r" in part and part.count(b"\r") > part.count(b"\r\n") for part in (*skipped, body))
    signs = layout.decimal == "," and b"." in body
    comments = layout.path.suffix.lower() in SPACED and b"#" in body and re.search(rb"(?m)^\s*#(?: |\s*$)", body)
    if returns or signs or comments or not body or body.endswith(layout.delimiter.encode()):
        return None
    if layout.delimiter == WHITE_SPACE:
        body = "\n".join(" ".join(line.split()) for line in body.decode().split("\n")).encode()
    if quotes := body.count(b'"'):
        # Polars ends in a panic at a single quote: only cells without delimiters that are quoted as a whole.
        whole = re.findall(rb'(?<![^\n%b])"[^"\r\n%b]*"(?![^\r\n%b])' % (3 * (layout.delimiter.encode(),)), body)
        body = body.replace(b'"', b"")
        return body if 2 * len(whole) == quotes else None
    return body


def _read_fast(layout: Layout, missing: bool) -> Table | None:
    """Return the table that polars reads; None where a cell, a quote or a width needs the exact reader."""
    import polars

    body = _body(layout)
    if body is None:
        return None
    kept = set(layout.kept)
    kinds = {str(i): polars.Float64 if i in kept else polars.String for i in range(layout.width)}
    try:
        frame = polars.read_csv(
            body,
            has_header=False,
            schema=kinds,
            separator=layout.delimiter,
            quote_char=None,
            decimal_comma=layout.decimal == ",",
            null_values=MARKS if missing else None,
        )
    except polars.exceptions.PolarsError:
        return None
    if not len(frame):
        return None
    # Polars fills short rows and blank lines with missing values.
    short = frame[:, -1].null_count() and body.count(layout.delimiter.encode()) != (layout.width - 1) * len(frame)
    X = frame.select(str(i) for i in layout.kept).to_numpy(order="c")
    if short or not np.all(np.isfinite(X)):
        holes = np.isnan(X)
        if short or not missing or layout.width == 1 or np.all(holes[-1]) or np.any(np.isinf(X)):
            return None
    texts = [[] if i is None else frame[str(i)].to_list() for i in (layout.index, layout.label)]
    if any(None in cells for cells in texts):
        return None
    return layout.table(X, *([cell.strip() for cell in cells] for cells in texts))


def _read_exactly(layout: Layout, missing: bool) -> Table:
    """Return the table as the csv module reads it; raise for the first cell that is no number."""
    values: list[np.ndarray] = []
    names, labels = [], []
    with layout.path.open(encoding="utf-8-sig", newline="") as file:
        rows = _rows(layout.path, file, layout.delimiter, whole=True)
        if layout.header is not None:
            next(rows)
        for line, cells in rows:
            if len(cells) != layout.width:
                raise ValueError(
                    f"{layout.path}, line {line}, column {min(len(cells), layout.width) + 1}: the row has {len(cells)} "
                    f"cells, and the first row {layout.width} (separated by {DELIMITERS[layout.delimiter]})."
                )
            numbers = [_number(cells[i], layout.decimal) for i in layout.kept]
            if None in numbers:
                for number, i in zip(numbers, layout.kept, strict=True):
                    if number is None and not (missing and cells[i].lower() in MISSING):
                        raise ValueError(_no_number(layout, line, cells[i], i))
            values.append(np.array(numbers, dtype=np.float64))  # None becomes NaN
            names += [] if layout.index is None else [cells[layout.index]]
            labels += [] if layout.label is None else [cells[layout.label]]
    if not values:
        raise ValueError(f"{layout.path} has a header and no rows.")
    return layout.table(np.stack(values), names, labels)


def _no_number(layout: Layout, line: int, cell: str, column: int) -> str:
    """Return the message for a cell that is no finite number, with what to do."""
    called = f" ({layout.header[column]})" if layout.header is not None and layout.header[column] else ""
    where = f"{layout.path}, line {line}, column {column + 1}{called}: {abbreviated([cell])!r}"
    if cell == "" and _is_empty(layout, column):
        return f"{where}: no row has a value in this column, and it has no name; --drop {column} leaves it out."
    if cell.lower() in MISSING:
        return (
            f"{where} is a missing value; impute or drop missing values first, or fit with --method ppca "
            "or bayesian, which take them."
        )
    if layout.width == 1 and len(cell.split()) > 1:
        return (
            f"{where} is not a number. Separate the columns by tab, semicolon or comma, "
            f"or by white space with as many cells in every row where the file is called {' or '.join(SPACED)}."
        )
    if re.fullmatch(r"[+-]?inf(inity)?", cell, re.IGNORECASE):
        return f"{where} is infinite; every cell must be a finite number. Correct or drop the row."
    if re.fullmatch(r"[+-]?([0-9.,]+e\+?[0-9]+|[0-9]{309,})", cell, re.IGNORECASE):
        return f"{where} is too large for float64; the largest number is about 1.8e308."
    if _number(cell, "," if layout.decimal == "." else ".") is not None:
        mark = {",": "a decimal comma", ".": "a decimal point"}
        return f"{where} is not a number with {mark[layout.decimal]}, as the first rows have."
    if re.fullmatch(r"[+-]?\d{1,3}((,\d{3})+(\.\d*)?|(\.\d{3})+(,\d*)?)", cell):
        return f"{where} is not a number; remove the thousands separators."
    return (
        f"{where} is not a number. A column of names or labels: --index-column or --label-column {column}; "
        f"--drop {column} leaves it out."
    )


def _is_empty(layout: Layout, column: int) -> bool:
    """Return whether a column has neither a name nor a cell that is not empty, as one after a comma at every end."""
    with layout.path.open(encoding="utf-8-sig", newline="") as file:
        return not any(cells[column:][:1] != [""] for _, cells in _rows(layout.path, file, layout.delimiter))


def _as_numbers(labels: list[str]) -> np.ndarray:
    """Return integers where all labels are, else floats where all are, else the strings.

    Labels with zeros before them are codes, which differ as text: 001 is not 1.
    """
    if all(len(label) <= 18 and re.fullmatch(r"0|-?[1-9][0-9]*", label) for label in labels):
        return np.array([int(label) for label in labels])
    numbers = [_number(label, ".") for label in labels]
    codes = any(re.match(r"[+-]?0[0-9]", label) for label in labels)
    return np.array(labels) if codes or None in numbers else np.array(numbers, dtype=np.float64)
