"""Tables of text: polars reads them as the options say; a cell that is no number is an error that names its place."""

from __future__ import annotations

import codecs
import csv
import io
import math
import re
import warnings
from collections.abc import Iterator
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

# A blank stands for any white space.
DELIMITERS = {".csv": ",", ".tsv": "\t", ".txt": " ", ".dat": " "}
# In files of these names, as `numpy.savetxt` writes them.
COMMENTED, COMMENT = (".txt", ".dat"), re.compile(rb"\s*#(?: +|\s*$)")
MISSING = ("", "na", "n/a", "#n/a", "<na>", "nan", "null", "none", "?", "-")
# What polars reads as missing: it compares with case.
MARKS = sorted({spelling for mark in MISSING for spelling in (mark, mark.upper(), mark.capitalize())} - {""})
# Of the beginning of a file, which shows how many cells the whole has, and of the numbers of a cell: the columns that
# polars parses, and the matrix made of them.
SAMPLE_BYTES, BYTES_PER_CELL = 65536, 16
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

    def table(self, X: np.ndarray, names: list[str], labels: list[str]) -> Table:
        """Return the table of the numbers of all rows, with the cells of names and labels."""
        features = None if self.header is None else tuple(self.header[i] for i in self.kept)
        source = f"{self.path.name}, {'no header' if self.header is None else 'header in the first line'}"
        names, labels = ([unquoted(cell.strip()) for cell in cells] for cells in (names, labels))
        return Table(X, source, _as_numbers(labels) if labels else None, tuple(names) or None, features)


def read_text(path: Path, how: InputOptions) -> Table:
    """Read the numbers of a text file, with the names and labels that the options select."""
    delimiter = _delimiter(path, how)
    _check_room(path, delimiter.encode())
    try:
        body = _body(path, delimiter.encode())
        line, first = next(_rows(path, body, delimiter), (0, []))
        if not first:
            raise ValueError(f"{path} holds no rows.")
        layout = _layout(path, how, delimiter, line, [unquoted(cell) for cell in first])
        body = body.split(b"\n", layout.skipped)[-1]
        return _read_fast(layout, body, how.missing) or _read_exactly(layout, body, how.missing)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text; save it as UTF-8.") from error


def _delimiter(path: Path, how: InputOptions) -> str:
    """Return the delimiter that the option names, or the usual one of the suffix."""
    marks = "\t" if how.delimiter == "tab" else how.delimiter
    delimiter = DELIMITERS[path.suffix.lower()] if marks is None else marks
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter.isalnum() or delimiter in '"\r\n':
        raise ValueError(f"--delimiter {marks!r} is not allowed; give tab, or one character such as ; or a blank.")
    if delimiter == (how.decimal or "."):
        raise ValueError(
            f"--decimal {delimiter} is also the delimiter of {path}; give another --delimiter, such as ';'."
        )
    return delimiter


def _check_room(path: Path, delimiter: bytes) -> None:
    """Raise where the text and its numbers do not fit in memory, judged by the beginning of the file."""
    with path.open("rb") as file:
        sample, size = file.read(SAMPLE_BYTES), path.stat().st_size
    cells = len(sample.replace(delimiter, b" ").split()) * size / len(sample)
    advice = " Save it as .npy, which is read as a memory map."
    check_memory(2 * size + BYTES_PER_CELL * cells, f"{path} ({format_bytes(size)})", advice)


def _body(path: Path, delimiter: bytes) -> bytes:
    """Return the text with one kind of line ends and white space, without rows of empty cells at its end."""
    body = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    if b"\r" in body:
        body = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if delimiter == b" ":
        body = b"\n".join(b" ".join(line.split()) for line in body.split(b"\n"))
    if path.suffix.lower() in COMMENTED and b"#" in body:
        body = _without_comments(body, delimiter)
    end, blank = len(body), b" \n" + delimiter
    while end and body[end - 1] in blank:
        end -= 1
    end = body.find(b"\n", end) + 1
    return body[:end] if end else body + b"\n"


def _without_comments(body: bytes, delimiter: bytes) -> bytes:
    """Return the text with a blank line for every comment.

    The last one above the first row names the columns if it has as many cells as the row, and text among them.
    """
    lines = body.split(b"\n")
    row = next((i for i, line in enumerate(lines) if line.strip() and not COMMENT.match(line)), 0)
    comments = [i for i, line in enumerate(lines) if COMMENT.match(line)]
    last = max((i for i in comments if i < row), default=row)
    names = COMMENT.sub(b"", lines[last])
    for i in comments:
        lines[i] = b""
    text = any(_number(cell.decode(), ".") is None for cell in names.split(delimiter))
    if last < row and text and names.count(delimiter) == lines[row].count(delimiter):
        lines[last] = names
    return b"\n".join(lines)


def _rows(path: Path, body: bytes, delimiter: str, skipped: int = 0) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and stripped cells of every row that is not blank, as the csv module reads them.

    So many lines of the file come before the body.
    """
    text = io.TextIOWrapper(io.BytesIO(body), "utf-8", newline="")
    reader = csv.reader(text, delimiter=delimiter, strict=True)
    try:
        for cells in reader:
            if len(cells) > 1 or "".join(cells).strip():
                yield skipped + reader.line_num, [cell.strip() for cell in cells]
    except csv.Error as error:
        reason = f"{path}, line {skipped + reader.line_num}: {error}"
        raise ValueError(f"{reason}; look for a quotation mark without its pair, or give --delimiter.") from error


def _layout(path: Path, how: InputOptions, delimiter: str, line: int, first: list[str]) -> Layout:
    """Return header and columns from the first row, which ends in a line of the file."""
    index, label = (
        None if column is None else column_position(path, option, column, first)
        for option, column in (("--index-column", how.index_column), ("--label-column", how.label_column))
    )
    kept = tuple(i for i in feature_positions(how, path, first) if i not in (index, label))
    columns = [column for column in (how.index_column, how.label_column, *how.chosen) if column is not None]
    names = [column for column in columns if not is_position(column, first)]
    if names and how.header is False:
        raise ValueError(f"{names[0]!r} is a name in the first line, and --no-header says that it has none; use one.")
    if not kept:
        raise ValueError(f"{path} has no column of numbers apart from names and labels.")
    decimal, header = how.decimal or ".", how.header
    if header is None:
        # An empty corner, or text and no number among the features.
        features = set(kept)
        corner = any(not cell for i, cell in enumerate(first) if i not in features)
        texts = [first[i] for i in kept if first[i].lower() not in MISSING]
        is_text = bool(texts) and all(_number(cell, decimal) is None for cell in texts)
        header = bool(names) or how.names_of_model_in(first) or corner or is_text
    if header and not first[0] and 0 in kept:
        text = "the first column has no name and is taken for data; if it counts the rows, give --index-column 0."
        warnings.warn(text, UserWarning, stacklevel=2)
    skipped = line if header else 0
    return Layout(path, delimiter, decimal, tuple(first) if header else None, skipped, len(first), index, label, kept)


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


def _read_fast(layout: Layout, body: bytes, missing: bool) -> Table | None:
    """Return the table that polars reads; None where a cell or a row needs a closer look."""
    import polars

    # Polars reads both signs, and an older one (1.20) closes a quotation that is open at the end.
    if (layout.decimal == "," and b"." in body) or body.count(b'"') % 2:
        return None
    kept = set(layout.kept)
    kinds = {str(i): polars.Float64 if i in kept else polars.String for i in range(layout.width)}
    try:
        frame = polars.read_csv(
            body,
            has_header=False,
            schema=kinds,
            separator=layout.delimiter,
            decimal_comma=layout.decimal == ",",
            null_values=MARKS if missing else None,
        )
    except polars.exceptions.PolarsError:
        return None
    X = frame.select(str(i) for i in layout.kept).to_numpy(order="c")
    texts = [[] if i is None else frame[str(i)].to_list() for i in (layout.index, layout.label)]
    if not np.all(np.isfinite(X)):
        # Polars fills short rows and blank lines with missing values.
        full = body.count(layout.delimiter.encode()) == (layout.width - 1) * len(X) > 0 and b'"' not in body
        if not missing or np.any(np.isinf(X)) or (frame[:, -1].null_count() and not full):
            return None
    return layout.table(X, *texts) if len(X) and not any(None in cells for cells in texts) else None


def _read_exactly(layout: Layout, body: bytes, missing: bool) -> Table:
    """Return the table that the csv module reads; raise for the first cell that is no number."""
    values, names, labels = [], [], []
    for line, cells in _rows(layout.path, body, layout.delimiter, layout.skipped):
        if len(cells) != layout.width:
            raise ValueError(
                f"{layout.path}, line {line}, column {min(len(cells), layout.width) + 1}: the row has {len(cells)} "
                f"cells, and the first row {layout.width} (separated by {layout.delimiter!r}). Correct the row, or "
                "give --delimiter and --decimal."
            )
        numbers = [_number(cells[i], layout.decimal) for i in layout.kept]
        if None in numbers:
            for number, i in zip(numbers, layout.kept, strict=True):
                if number is None and not (missing and cells[i].lower() in MISSING):
                    raise ValueError(_fault(layout, line, i, cells[i]))
        values.append(np.array(numbers, dtype=np.float64))  # None becomes NaN
        names += [] if layout.index is None else [cells[layout.index]]
        labels += [] if layout.label is None else [cells[layout.label]]
    if not values:
        raise ValueError(f"{layout.path} has a header and no rows.")
    return layout.table(np.stack(values), names, labels)


def _fault(layout: Layout, line: int, column: int, cell: str) -> str:
    """Return the message for a cell that is no finite number, with what to do."""
    called = f" ({layout.header[column]})" if layout.header is not None and layout.header[column] else ""
    where = f"{layout.path}, line {line}, column {column + 1}{called}: {abbreviated([cell])!r}"
    if cell.lower() in MISSING:
        return (
            f"{where} is a missing value. Impute it, leave the column out with --drop {column}, or fit with "
            "--method ppca or bayesian, which take missing values."
        )
    return (
        f"{where} is not a number, or not a finite one. --drop {column} or --columns leaves the column out; "
        "--index-column and --label-column take names; --delimiter and --decimal say how numbers are written."
    )


def _as_numbers(labels: list[str]) -> np.ndarray:
    """Return integers where all labels are, else floats where all are, else the strings.

    Labels with zeros before them are codes, which differ as text: 001 is not 1.
    """
    if all(len(label) <= 18 and re.fullmatch(r"0|-?[1-9][0-9]*", label) for label in labels):
        return np.array([int(label) for label in labels])
    numbers = [_number(label, ".") for label in labels]
    codes = any(re.match(r"[+-]?0[0-9]", label) for label in labels)
    return np.array(labels) if codes or None in numbers else np.array(numbers, dtype=np.float64)
