"""Tables: polars reads them as the options say; a cell that is no number is an error that names its place."""

from __future__ import annotations

import codecs
import csv
import io
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from gpukpca._formatting import format_bytes
from gpukpca.cli.header import BOOLEANS, MISSING, cell_number, is_header, names_of_rows
from gpukpca.cli.table import (
    Columns,
    InputOptions,
    Source,
    Table,
    abbreviated,
    check_memory,
)
from gpukpca.data.reading import reading

# A blank stands for any white space.
DELIMITERS = {".csv": ",", ".tsv": "\t", ".txt": " ", ".dat": " "}
TAB = "\t"
TEXT_SUFFIXES, PACKINGS = tuple(DELIMITERS), (".gz", ".zst")
# In files of these names, as `numpy.savetxt` writes them.
COMMENTED, COMMENT = (".txt", ".dat"), re.compile(rb"\s*#(?: +|\s*$)")
# What polars reads as missing: it compares with case.
MARKS = sorted({spelling for mark in MISSING for spelling in (mark, mark.upper(), mark.capitalize())} - {""})
# The column of a parquet file in which pandas writes an index without a name.
INDEX = "__index_level_0__"
# Of the beginning of a file, which shows how many cells the whole has, and of the numbers of a cell: the columns that
# polars parses, and the matrix made of them.
SAMPLE_BYTES, BYTES_PER_CELL = 65536, 16
# Rows after a cell that is no number, which show all columns of text, or after the first line; and their cells.
SHOWN_ROWS, SHOWN_CELLS = 100, 200_000
BLANKS = r"\s+"
NO_HINT = "--delimiter and --decimal say how numbers are written"
# Numbers with signs of their own, and what removes them from a frame of pandas.
WRITTEN = re.compile(r"[-($€£]*\d[\d.,' ]*[%)]*")
CLEANED = (
    r".replace({r'[$€£%]|(?<=\d),(?=\d{3})': ''}, regex=True).replace({r'^\((.*)\)$': r'-\1'}, regex=True)"
    ".to_csv('x.csv', index=False)"
)
# Delimiter -> what an error calls many of them.
MARKS_CALLED = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas", " ": "blanks"}
# Text that a spreadsheet runs as a formula, and the apostrophe before it that makes it text.
FORMULA = re.compile(r"'*[=+\-@\t\r]")


def quoted(name: str) -> str:
    """Return a name with an apostrophe before it where a spreadsheet would run it; numbers stay as they are."""
    return f"'{name}" if FORMULA.match(name) and cell_number(name, ".") is None else name


def unquoted(cell: str) -> str:
    """Return the name that `quoted` wrote."""
    return cell[1:] if cell.startswith("'") and FORMULA.match(cell) else cell


@dataclass(frozen=True)
class Layout:
    """Describe how a text file is written: the features are the columns `kept` of the lines after `skipped`."""

    path: Source
    how: InputOptions
    delimiter: str
    decimal: str
    header: tuple[str, ...] | None
    skipped: int
    width: int
    index: int | None
    label: int | None
    kept: tuple[int, ...]
    hint: str  # for a cell that is no number: which delimiter fits

    def table(self, X: np.ndarray, names: list[str], labels: list[str]) -> Table:
        """Return the table of the numbers of all rows, with the cells of names and labels."""
        features = None if self.header is None else tuple(self.header[i] for i in self.kept)
        source = f"{self.path.name}, {'no header' if self.header is None else f'header: line {self.skipped}'}"
        names, labels = ([unquoted(cell.strip()) for cell in cells] for cells in (names, labels))
        label, index = ("" if i is None or self.header is None else self.header[i] for i in (self.label, self.index))
        return Table(X, source, _as_numbers(labels) if labels else None, tuple(names) or None, features, label, index)


def read_text(path: Source, how: InputOptions) -> Table:
    """Read the numbers of a text file, with the names and labels that the options select."""
    path = _unpacked(path)
    delimiter = _delimiter(path, how)
    _check_room(path, delimiter.encode())
    try:
        body = _body(path, delimiter.encode(), how.skip or 0)
        rows = _rows(path, body, delimiter)
        line, first = next(rows, (0, []))
        if not first:
            raise ValueError(f"{path} holds no rows.")
        shown = list(islice(rows, 1 + min(SHOWN_ROWS, SHOWN_CELLS // len(first))))
        below = [["" if cell in how.missing_codes else cell for cell in row] for _, row in shown]
        if first[0].startswith("sep="):
            mark = first[0][4:] or delimiter
            raise ValueError(f"{path}, line {line}: {first[0]!r} is no row; give --skip {line} --delimiter '{mark}'.")
        hint = _hint(delimiter, line, [delimiter.join(row) for row in (first, *below)])
        for at, row in shown if len(first) == 1 else ():
            if len(row) > 1:
                raise ValueError(_ragged(path, at, row, 1, delimiter, hint))
        if how.header is not False and below and names_of_rows(first, below):
            first = ["", *first]
        layout = _layout(path, how, delimiter, line, [unquoted(cell) for cell in first], below, hint)
        body = body.split(b"\n", layout.skipped)[-1]
        return _read_fast(layout, body) or _read_exactly(layout, body)
    except UnicodeDecodeError as error:
        encoding = "utf-16" if body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "cp1252"
        text = f"pathlib.Path({str(path)!r}).read_text({encoding!r})"
        raise ValueError(
            f"{path} is not UTF-8 text: pathlib.Path('x{path.suffix}').write_text({text}, 'utf-8') converts it."
        ) from error


def read_parquet(path: Source, how: InputOptions) -> Table:
    """Read the numbers of a parquet file, with the names and labels that the options select."""
    import polars

    damaged = f"{path} cannot be read as parquet, it is damaged"
    with reading(damaged, system=True):
        schema = polars.read_parquet_schema(path.readable)
        rows = polars.scan_parquet(path.readable, glob=False).select(polars.len()).collect().item()
    first = list(schema)
    index, label, kept = _columns(Columns(path, len(first), first), how)
    index, kept = _index(how, first, index, label, kept)
    check_memory(rows * (len(kept) + 2) * BYTES_PER_CELL, str(path))
    read = [first[i] for i in sorted({*kept, *(i for i in (index, label) if i is not None)})]
    with reading(damaged, system=True):
        frame = polars.read_parquet(path.readable, columns=read, glob=False)
    if not rows:
        raise ValueError(f"{path} has columns and no rows.")
    names = [first[i] for i in kept]
    texts = [name for name in names if not (schema[name].is_numeric() or schema[name] == polars.Boolean)]
    for name in texts or ([] if how.missing else names):
        cells = frame[name]
        if texts or cells.null_count():
            row = 0 if texts else int(cells.is_null().arg_max())
            cell = "" if cells[row] is None else str(cells[row])
            raise ValueError(_not_a_number(f"{path}, row {row}, column {name}", cell, name, texts, how, ""))
    single = all(schema[name] == polars.Float32 for name in names)
    X = frame.select(polars.col(names).cast(polars.Float32 if single else polars.Float64)).to_numpy(order="c")
    labels, samples = (None if i is None else frame[first[i]].cast(polars.String).fill_null("") for i in (label, index))
    return Table(
        X,
        path.name,
        None if labels is None else _as_numbers(labels.to_list()),
        None if samples is None else tuple(samples.to_list()),
        tuple(names),
        "" if label is None else first[label],
        "" if index is None else first[index],
    )


def _delimiter(path: Source, how: InputOptions) -> str:
    """Return the delimiter that the option names, or the usual one of the suffix."""
    marks = "\t" if how.delimiter == "tab" else how.delimiter
    delimiter = DELIMITERS[path.suffix] if marks is None else marks
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter.isalnum() or delimiter in '"\r\n':
        raise ValueError(f"--delimiter {marks!r} is not allowed; give tab, or one character such as ; or a blank.")
    if delimiter == (how.decimal or "."):
        raise ValueError(
            f"--decimal {delimiter} is also the delimiter of {path}; give another --delimiter, such as ';'."
        )
    return delimiter


def _check_room(path: Source, delimiter: bytes) -> None:
    """Raise where the text and its numbers do not fit in memory, judged by the beginning of the file."""
    with path.open() as file:
        sample, size = file.read(SAMPLE_BYTES), path.size
    cells = len(sample.replace(delimiter, b" ").split()) * size / max(1, len(sample))
    advice = " Save it as .npy, which is read as a memory map."
    check_memory(2 * size + BYTES_PER_CELL * cells, f"{path} ({format_bytes(size)})", advice)


def _unpacked(path: Source) -> Source:
    """Return a file that gzip or zstd packed with its text as content, and the suffix of the text."""
    packing = next((packing for packing in PACKINGS if path.suffix.endswith(packing)), None)
    if packing is None:
        return path
    import polars

    # One column of whole lines: the separator of units is in no table.
    with path.open() as file:
        packed = file.read()
    with reading(f"{path} cannot be unpacked, or is not UTF-8 text; write it again"):
        frame = polars.read_csv(
            packed, has_header=False, separator="\x1f", quote_char=None, schema={"line": polars.String}
        )
    content = "\n".join(frame["line"].fill_null("")).encode()
    return replace(path, suffix=path.suffix.removesuffix(packing), content=content)


def _body(path: Source, delimiter: bytes, skip: int) -> bytes:
    """Return the text with one kind of line ends and white space, blank lines for those to skip, and no empty end."""
    with path.open() as file:
        body = file.read().removeprefix(codecs.BOM_UTF8)
    if b"\r" in body:
        body = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    body = b"\n" * skip + body.split(b"\n", skip)[-1]
    if delimiter == b" ":
        body = b"\n".join(b" ".join(line.split()) for line in body.split(b"\n"))
    if path.suffix in COMMENTED and b"#" in body:
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
    text = any(cell_number(cell.decode(), ".") is None for cell in names.split(delimiter))
    if last < row and text and names.count(delimiter) == lines[row].count(delimiter):
        lines[last] = names
    return b"\n".join(lines)


def _rows(
    path: Source, body: bytes, delimiter: str, codes: Sequence[str] = (), skipped: int = 0
) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and stripped cells of every row that is not blank, as the csv module reads them.

    So many lines of the file come before the body. Codes of missing values are empty cells.
    """
    text = io.TextIOWrapper(io.BytesIO(body), "utf-8", newline="")
    reader = csv.reader(text, delimiter=delimiter, strict=True)
    try:
        for cells in reader:
            if len(cells) > 1 or "".join(cells).strip():
                yield skipped + reader.line_num, ["" if cell.strip() in codes else cell.strip() for cell in cells]
    except csv.Error as error:
        reason = f"{path}, line {skipped + reader.line_num}: {error}"
        hint = _hint(delimiter, 1, body[:SAMPLE_BYTES].decode(errors="replace").split("\n")[:2])
        raise ValueError(f"{reason}; look for a quotation mark without its pair; {hint}.") from error


def _layout(
    path: Source, how: InputOptions, delimiter: str, line: int, first: list[str], below: list[list[str]], hint: str
) -> Layout:
    """Return header and columns from the first row, which ends in a line of the file, and some rows below it."""
    numbered, words = Columns(path, len(first)), [how.index_column, how.label_column, *how.chosen]
    by_name = [word for word in words if word and not (numbered.readings(word) or numbered.ends(word))]
    decimal, header = how.decimal or ".", how.header
    if by_name and header is False:
        raise ValueError(f"{by_name[0]!r} is a name in the first line, and --no-header says that it has none; use one.")
    if header is None:
        header = bool(by_name) or how.names_of_model_in(first) or None
    if header is None:
        rows = [row for row in below if len(row) == len(first)]
        header = is_header(first, rows, _columns(numbered, how)[2], decimal)
    if header is None:
        raise ValueError(
            f"{path}, line {line}: {abbreviated(first)} may name the columns, and may be a row of data; give "
            "--header or --no-header."
        )
    index, label, kept = _columns(Columns(path, len(first), first if header else None), how)
    if header:
        index, kept = _index(how, first, index, label, kept)
    skipped = line if header else how.skip or 0
    return Layout(
        path, how, delimiter, decimal, tuple(first) if header else None, skipped, len(first), index, label, kept, hint
    )


def _hint(delimiter: str, line: int, lines: list[str]) -> str:
    """Return which options may read a cell that is no number: the delimiter that all lines have equally often."""
    for mark, called in MARKS_CALLED.items():
        count = lines[0].count(mark)
        if mark != delimiter and count and all(one.count(mark) == count for one in lines):
            comma = " --decimal ," if mark != "," and any(re.search(r"\d,\d", one) for one in lines) else ""
            return f"{count} {called} in line {line}: --delimiter {'tab' if mark == TAB else repr(mark)}{comma}"
    return NO_HINT


def _columns(columns: Columns, how: InputOptions) -> tuple[int | None, int | None, tuple[int, ...]]:
    """Return the positions of the names, of the labels, and of the features."""

    def position(option: str, column: str | None, of_model: str) -> int | None:
        if column is None:
            return columns.places[of_model][0] if of_model and of_model in columns.places else None
        return columns.position(option, column)

    index = position("--index-column", how.index_column, how.index_of_model)
    label = position("--label-column", how.label_column, how.label_of_model)
    kept = tuple(i for i in columns.features(how) if i not in (index, label))
    if not kept:
        raise ValueError(f"{columns.source} has no column of numbers apart from names and labels.")
    return index, label, kept


def _index(
    how: InputOptions, first: Sequence[str], index: int | None, label: int | None, kept: tuple[int, ...]
) -> tuple[int | None, tuple[int, ...]]:
    """Return the positions of the names and of the features; a column without a name of its own holds the names.

    pandas and R write an index in the first column of a text, pandas in a parquet file under a name that it reserves.
    """
    if index is not None or how.columns is not None:
        return index, kept
    for i, name in enumerate(first):
        if (name == INDEX or (name == "" and i == 0)) and name not in how.of_model and i != label and kept != (i,):
            return i, tuple(one for one in kept if one != i)
    return index, kept


def _read_fast(layout: Layout, body: bytes) -> Table | None:
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
            null_values=[*MARKS, *filter(None, layout.how.missing_codes)] if layout.how.missing else None,
        )
    except polars.exceptions.PolarsError:
        return None
    X = frame.select(str(i) for i in layout.kept).to_numpy(order="c")
    texts = [[] if i is None else frame[str(i)].to_list() for i in (layout.index, layout.label)]
    if not np.all(np.isfinite(X)):
        # Polars fills short rows and blank lines with missing values.
        full = body.count(layout.delimiter.encode()) == (layout.width - 1) * len(X) > 0 and b'"' not in body
        if not layout.how.missing or np.any(np.isinf(X)) or (frame[:, -1].null_count() and not full):
            return None
    return layout.table(X, *texts) if len(X) and not any(None in cells for cells in texts) else None


def _read_exactly(layout: Layout, body: bytes) -> Table:
    """Return the table that the csv module reads; raise for the first cell that is no number."""
    values, names, labels = [], [], []
    rows = _rows(layout.path, body, layout.delimiter, layout.how.missing_codes, layout.skipped)
    for line, cells in rows:
        if len(cells) != layout.width:
            raise ValueError(_ragged(layout.path, line, cells, layout.width, layout.delimiter, layout.hint))
        numbers = [cell_number(cells[i], layout.decimal) for i in layout.kept]
        if None in numbers:
            for value, i in zip(numbers, layout.kept, strict=True):
                if value is None and not (layout.how.missing and cells[i].lower() in MISSING):
                    following = (row for _, row in islice(rows, SHOWN_ROWS) if len(row) == layout.width)
                    raise ValueError(_fault(layout, line, i, [cells, *following]))
        values.append(np.array(numbers, dtype=np.float64))  # None becomes NaN
        names += [] if layout.index is None else [cells[layout.index]]
        labels += [] if layout.label is None else [cells[layout.label]]
    if not values:
        raise ValueError(f"{layout.path} has a header and no rows.")
    return layout.table(np.stack(values), names, labels)


def _ragged(path: Source, line: int, cells: list[str], width: int, delimiter: str, hint: str) -> str:
    """Return the message for a row with another number of cells than the first."""
    title = f", or give --skip {line - 1} if the lines above are a title" if len(cells) > width else ""
    return (
        f"{path}, line {line}, column {min(len(cells), width) + 1}: the row has {len(cells)} cells, and the first row "
        f"{width} (separated by {delimiter!r}). Correct the row{title}; {hint}."
    )


def _fault(layout: Layout, line: int, column: int, rows: list[list[str]]) -> str:
    """Return the message for a cell in the first of some rows that is no finite number, with what to do."""

    def text(cell: str) -> bool:
        return cell.lower() not in MISSING and cell_number(cell, layout.decimal) is None

    texts = [i for i in layout.kept if any(text(row[i]) for row in rows)]
    header = layout.header or ("",) * layout.width
    # A column is given by its name where that is one cell of CSV that means no number.
    shown = [header[i] if re.fullmatch(r"[^\d\W][\w .-]*", header[i]) else str(i) for i in range(layout.width)]
    where = f"{layout.path}, line {line}, column {column + 1}{header[column] and f' ({header[column]})'}"
    signs, other = f"; {layout.hint}", "," if layout.decimal == "." else "."
    written = [row[i] for row in rows for i in texts if WRITTEN.fullmatch(row[i])]
    frame = f"pandas.read_csv({str(layout.path)!r}, sep={layout.delimiter.replace(' ', BLANKS)!r}"
    if layout.hint == NO_HINT and WRITTEN.fullmatch(rows[0][column]):
        signs += f"; --decimal {other} if it is the decimal sign"
        if all(re.fullmatch(rf"\D*\d{{1,3}}(\{other}?\d{{3}})*(\{layout.decimal}\d+)?\D*", cell) for cell in written):
            frame += f", thousands={other!r}, decimal={layout.decimal!r})"
            signs += f"; {frame}{CLEANED} converts other signs, and {other} as a mark of thousands"
    elif len(rows) > 1 and not any(text(row[i]) for row in rows[1:] for i in texts) and len(texts) == len(layout.kept):
        signs += f"; {frame}, skiprows=[{line - 1}]).to_csv('x.csv', index=False) leaves out a line of units"
    elif 3 * len(texts) > 2 * len(layout.kept):
        signs += f"; pandas.get_dummies({frame})).to_csv('x.csv', index=False) makes a column of every category"
    return _not_a_number(where, rows[0][column], shown[column], [shown[i] for i in texts], layout.how, signs)


def _not_a_number(where: str, cell: str, column: str, texts: list[str], how: InputOptions, signs: str) -> str:
    """Return the message for a cell that is no finite number; `texts` are all columns with such cells."""
    where = f"{where}: {abbreviated([cell])!r}"
    if cell.lower() in MISSING and column not in texts:
        return (
            f"{where} is a missing value. Impute it, leave the column out with --drop {column}, or fit with "
            "--method ppca or bayesian, which take missing values. --rows complete leaves out such rows, and "
            "--rows imputed takes the mean of the column."
        )
    several = f" The columns {', '.join(texts)} have such cells." if len(texts) > 1 else ""
    free = [
        f"{option} takes {what}"
        for option, what, value in (
            ("--index-column", "names", how.index_column),
            ("--label-column", "labels", how.label_column or (how.transpose or None)),
        )
        if value is None
    ]
    line, them = ",".join(texts), "them" if several else "it"
    leave = f"Leave {line} out of --columns" if how.columns else f"--drop {line} leaves {them} out"
    return f"{where} is not a number, or not a finite one.{several} {'; '.join([leave, *free])}{signs}."


def _as_numbers(labels: list[str]) -> np.ndarray:
    """Return integers where all labels are, else floats where all are, NaN for missing ones, else the strings.

    Labels with zeros before them are codes, which differ as text: 001 is not 1.
    """
    if all(len(label) <= 18 and re.fullmatch(r"0|-?[1-9][0-9]*", label) for label in labels):
        return np.array([int(label) for label in labels])
    known = [label for label in labels if label.lower() not in MISSING]
    codes = any(label.lower() in BOOLEANS or re.match(r"[+-]?0[0-9]", label) for label in known)
    if codes or not known or any(cell_number(label, ".") is None for label in known):
        return np.array(labels)
    return np.array([math.nan if label.lower() in MISSING else float(label) for label in labels])
