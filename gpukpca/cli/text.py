"""Tables: polars reads them as the options say; a cell that is no number is an error that names its place."""

from __future__ import annotations

import codecs
import csv
import io
import math
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from gpukpca._formatting import format_bytes
from gpukpca.cli.failures import shortened
from gpukpca.cli.header import BOOLEANS, MISSING, cell_number, holds_names, is_header, lacks_a_name
from gpukpca.cli.table import ROLES, Columns, InputOptions, Source, Table, abbreviated, check_memory
from gpukpca.data.reading import reading

# A blank stands for any white space.
DELIMITERS = {".csv": ",", ".tsv": "\t", ".txt": " ", ".dat": " "}
# Delimiter -> what an error calls many of them.
CALLED = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas", " ": "blanks"}
TEXT_SUFFIXES, PACKINGS = tuple(DELIMITERS), (".gz", ".zst")
# In files of these names, as `numpy.savetxt` writes them.
COMMENTED, COMMENT = (".txt", ".dat"), re.compile(rb"\s*#(?: +|\s*$)")
# What polars reads as missing: it compares with case.
MARKS = sorted({spelling for mark in MISSING for spelling in (mark, mark.upper(), mark.capitalize())} - {""})
# Of the beginning of a file, which shows how many cells the whole has, and of the numbers of a cell: the columns that
# polars parses, and the matrix made of them. Text is packed to about a tenth at best, and is held twice meanwhile.
SAMPLE_BYTES, BYTES_PER_CELL, UNPACKED = 65536, 16, 20
# Rows after the first line, or after a cell that is no number, which show how columns are written; and their cells.
SHOWN_ROWS, SHOWN_CELLS = 100, 200_000
NO_HINT = "--delimiter and --decimal say how numbers are written"
# Numbers with signs of other programs, such as $(1,000.50), and what removes these from a frame of pandas.
WRITTEN = re.compile(r"[-($€£]*\d[\d.,' ]*[%)]*( [a-z]+)?")
CLEANED = (
    r".replace({r'[$€£%]|(?<=\d),(?=\d{3})|(?<=\d) [a-z]*$': ''}, regex=True)"
    r".replace({r'^\((.*)\)$': r'-\1'}, regex=True)"
)
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
    """Describe how a table is written: the features are the columns `kept`, in a text of the lines after `skipped`."""

    path: Source
    how: InputOptions
    header: tuple[str, ...] | None
    roles: dict[str, int]
    kept: list[int]
    width: int
    delimiter: str = ""
    decimal: str = "."
    skipped: int = 0
    hint: str = ""  # for a cell that is no number: which delimiter fits

    def table(self, X: np.ndarray, cells: dict[str, list[str]], source: str) -> Table:
        """Return the table of the numbers of all rows, with the cells of names, labels and weights."""
        names = None if self.header is None else tuple(self.header[i] for i in self.kept)
        columns = {} if self.header is None else {role: self.header[i] for role, i in self.roles.items()}
        weights = [cell_number(cell, self.decimal) for cell in cells.get("weight", ())]
        for row, (weight, cell) in enumerate(zip(weights, cells.get("weight", ()), strict=True)):
            if weight is None and cell.lower() not in MISSING:
                raise ValueError(f"{self.path}: --weight-column: {cell!r} of row {row} is not a number.")
        return Table(
            X,
            f"{self.path.name}{source}",
            _as_numbers(cells["label"]) if "label" in cells else None,
            tuple(cells["index"]) if "index" in cells else None,
            names,
            weights=np.array(weights, dtype=np.float64) if weights else None,
            columns=columns,
        )

    def of_text(self, X: np.ndarray, cells: dict[str, list[str]]) -> Table:
        """Return the table of a text."""
        source = ", no header" if self.header is None else f", header: line {self.skipped}"
        return self.table(X, {role: [unquoted(cell.strip()) for cell in held] for role, held in cells.items()}, source)


def read_text(path: Source, how: InputOptions) -> Table:
    """Read the numbers of a text file, with the names, labels and weights that the options select."""
    path = _unpacked(path)
    sample, size = path.read(SAMPLE_BYTES), path.size
    delimiter = _delimiter(path, how, sample)
    cells = len(sample.replace(delimiter.encode(), b" ").split()) * size / max(1, len(sample))
    advice = " Save it as .npy, which is read as a memory map."
    check_memory(2 * size + BYTES_PER_CELL * cells, f"{path} ({format_bytes(size)})", advice)
    try:
        body = _body(path, delimiter.encode(), how.skip or 0)
        layout = _layout(path, how, delimiter, body)
        body = body.split(b"\n", layout.skipped)[-1]
        table = _read_fast(layout, body) or _read_exactly(layout, body)
        return replace(table, first_line=layout.skipped + 1 if body.count(b"\n") == len(table.X) else None)
    except UnicodeDecodeError as error:
        encoding = "utf-16" if body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "cp1252"
        text = f"pathlib.Path({str(path)!r}).read_text({encoding!r})"
        raise ValueError(
            f"{path} is not UTF-8 text: pathlib.Path('x{path.suffix}').write_text({text}, 'utf-8') converts it."
        ) from error


def read_parquet(path: Source, how: InputOptions) -> Table:
    """Read the numbers of a parquet file, with the names, labels and weights that the options select."""
    import polars

    damaged = f"{path} cannot be read as parquet, it is damaged"
    with reading(damaged, system=True):
        schema = polars.read_parquet_schema(path.readable)
        rows = polars.scan_parquet(path.readable, glob=False).select(polars.len()).collect().item()
    header = tuple(schema)
    roles, kept = Columns(path, len(header), header).choose(how)
    layout = Layout(path, how, header, roles, kept, len(header))
    check_memory(rows * (len(kept) + 2) * BYTES_PER_CELL, str(path))
    with reading(damaged, system=True):
        columns = [header[i] for i in sorted({*kept, *roles.values()})]
        frame = polars.read_parquet(path.readable, columns=columns, glob=False)
    if not rows:
        raise ValueError(f"{path} has columns and no rows.")
    kinds = [schema[header[i]] for i in kept]
    texts = [i for i, kind in zip(kept, kinds, strict=True) if not (kind.is_numeric() or kind == polars.Boolean)]
    for i in texts or [i for i in kept if frame[header[i]].null_count() and not how.missing]:
        row = 0 if texts else int(frame[header[i]].is_null().arg_max())
        cell = "" if frame[header[i]][row] is None else str(frame[header[i]][row])
        raise ValueError(_not_a_number(layout, f"{path}, row {row}, column {header[i]}", cell, i, texts))
    kind = polars.Float32 if set(kinds) == {polars.Float32} else polars.Float64
    X = frame.select(polars.col(header[i]).cast(kind) for i in kept).to_numpy(order="c")
    with reading(f"{path}: names, labels and weights are columns of text or numbers"):
        held = {role: frame[header[i]].cast(polars.String).fill_null("").to_list() for role, i in roles.items()}
    return layout.table(X, held, "")


def _delimiter(path: Source, how: InputOptions, sample: bytes) -> str:
    """Return the delimiter that the option names, or the usual one of the suffix."""
    marks = "\t" if how.delimiter == "tab" else how.delimiter
    delimiter = DELIMITERS[path.suffix] if marks is None else marks
    tabs = {line.count(b"\t") for line in sample.split(b"\n")[:-1] if line.strip() and not COMMENT.match(line)}
    if marks is None and delimiter == " " and len(tabs) == 1 and tabs != {0}:  # as spreadsheets save text
        delimiter = "\t"
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter.isalnum() or delimiter in '"\r\n':
        raise ValueError(f"--delimiter {marks!r} is not allowed; give tab, or one character such as ; or a blank.")
    if delimiter == (how.decimal or "."):
        raise ValueError(f"--decimal {delimiter} is also the delimiter of {path}; give another --delimiter.")
    return delimiter


def _unpacked(path: Source) -> Source:
    """Return a packed file (gzip, zstd) with its text as content."""
    packing = next((packing for packing in PACKINGS if path.suffix.endswith(packing)), None)
    if packing is None:
        return path
    import polars

    check_memory(UNPACKED * path.size, f"{path}, unpacked,")
    # One column of whole lines: the separator of units is in no table.
    with reading(f"{path} cannot be unpacked, or is not UTF-8 text; write it again"):
        schema = {"line": polars.String}
        frame = polars.read_csv(path.read(), has_header=False, separator="\x1f", quote_char=None, schema=schema)
    content = "\n".join(frame["line"].fill_null("")).encode()
    return replace(path, suffix=path.suffix.removesuffix(packing), content=content)


def _body(path: Source, delimiter: bytes, skip: int) -> bytes:
    """Return the text with uniform line ends and blanks, skipped lines blank, no empty end."""
    body = path.read().removeprefix(codecs.BOM_UTF8)
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
    text = any(cell_number(cell.decode(errors="replace"), ".") is None for cell in names.split(delimiter))
    if last < row and text and names.count(delimiter) == lines[row].count(delimiter):
        lines[last] = names
    return b"\n".join(lines)


def _rows(layout: Layout, body: bytes) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and stripped cells of every row, by the csv module."""
    text = io.TextIOWrapper(io.BytesIO(body), "utf-8", newline="")
    reader = csv.reader(text, delimiter=layout.delimiter, strict=True)
    try:
        for cells in reader:
            if len(cells) > 1 or "".join(cells).strip():
                yield layout.skipped + reader.line_num, [cell.strip() for cell in cells]
    except csv.Error as error:
        where = f"{layout.path}, line {layout.skipped + reader.line_num}: {error}"
        raise ValueError(f"{where}; look for a quotation mark without its pair; {layout.hint}.") from error


def _layout(path: Source, how: InputOptions, delimiter: str, body: bytes) -> Layout:
    """Return header and columns, judged by the first row and some rows below it."""
    hint = _hint(delimiter, body)
    layout = Layout(path, how, None, {}, [], 0, delimiter, how.decimal or ".", hint=hint)
    rows = _rows(layout, body)
    line, first = next(rows, (0, [""]))
    if not line:
        raise ValueError(f"{path} holds no rows.")
    shown = list(islice(rows, 1 + min(SHOWN_ROWS, SHOWN_CELLS // len(first))))
    first = [unquoted(cell) for cell in first]
    below = [["" if cell in how.marks else cell for cell in row] for _, row in shown]
    # R leaves out the name of its first column, which holds the names of the rows; others end rows with a delimiter.
    is_short = below and len(first) > 1 and all(len(row) == len(first) + 1 and row[-1] for row in below)
    if is_short and (how.header or (how.header is None and lacks_a_name(first, [row[0] for row in below]))):
        first = ["", *first]
    for at, row in shown:
        if len(row) != len(first):
            raise ValueError(_ragged(layout, at, row, len(first), bool(is_short)))
    numbered, words = Columns(path, len(first)), [*how.chosen, *(vars(how)[f"{role}_column"] for role in ROLES)]
    by_name = [word for word in words if word and not numbered.readings(word) and numbered.ends(word) == (word, word)]
    if by_name and how.header is False:
        raise ValueError(f"{by_name[0]!r} is a name in the first line, and --no-header says that it has none; use one.")
    named = how.header if how.header is not None else bool(by_name) or how.names_of_model_in(first) or None
    if named is None:
        named = is_header(first, below, numbered.choose(how)[1], layout.decimal)
    if named is None:
        raise ValueError(
            f"{path}, line {line}: {abbreviated(first)} may name the columns, or may be a row of data; give "
            "--header or --no-header."
        )
    indexed = holds_names([row[0] for row in below])
    roles, kept = Columns(path, len(first), first if named else None).choose(how, indexed)
    if named and how.columns is None and not how.of_model and (unnamed := [i for i in kept if not first[i]]):
        raise ValueError(
            f"{path}, line {line}: column {unnamed[0]} has no name. Give --drop '#{unnamed[0]}' to leave it out, "
            f"--index-column '#{unnamed[0]}' if it names rows, --skip {line} if the line is a title, or --columns."
        )
    header, skipped = (tuple(first), line) if named else (None, how.skip or 0)
    return replace(layout, header=header, skipped=skipped, width=len(first), roles=roles, kept=kept)


def _hint(delimiter: str, body: bytes) -> str:
    """Return which options may read a cell that is no number: the delimiter that all lines have equally often."""
    lines = [line for line in body[:SAMPLE_BYTES].decode(errors="replace").split("\n")[:-1] if line.strip()]
    for mark, called in CALLED.items():
        count = lines[-1].count(mark) if lines else 0
        within = mark == " " and any(delimiter in line for line in lines)  # blanks in cells
        if mark != delimiter and count and not within and all(line.count(mark) == count for line in lines):
            comma = " --decimal ," if mark != "," and any(re.search(r"\d,\d", line) for line in lines) else ""
            return f"{count} {called} in every line: --delimiter {'tab' if called == 'tabs' else repr(mark)}{comma}"
    return NO_HINT


def _read_fast(layout: Layout, body: bytes) -> Table | None:
    """Return the table that polars reads; None where a cell or a row needs a closer look."""
    import polars

    # Polars reads both signs, and an older one (1.20) closes a quotation that is open at the end.
    # Codes of missing cells are labels where they stand in a column of these.
    if (layout.decimal == "," and b"." in body) or body.count(b'"') % 2 or (layout.roles and layout.how.marks):
        return None
    kept, missing = set(layout.kept), layout.how.missing
    kinds = {str(i): polars.Float64 if i in kept else polars.String for i in range(layout.width)}
    try:
        frame = polars.read_csv(
            body,
            has_header=False,
            schema=kinds,
            separator=layout.delimiter,
            decimal_comma=layout.decimal == ",",
            null_values=[*MARKS, *layout.how.marks] if missing else None,
        )
    except polars.exceptions.PolarsError:
        return None
    X = frame.select(str(i) for i in layout.kept).to_numpy(order="c")
    if not np.all(np.isfinite(X)):
        # Polars fills short rows and blank lines with missing values.
        full = body.count(layout.delimiter.encode()) == (layout.width - 1) * len(X) > 0 and b'"' not in body
        if not missing or np.any(np.isinf(X)) or (frame[:, -1].null_count() and not full):
            return None
    cells = {role: frame[str(i)].to_list() for role, i in layout.roles.items()}
    return layout.of_text(X, cells) if len(X) and not any(None in held for held in cells.values()) else None


def _read_exactly(layout: Layout, body: bytes) -> Table:
    """Return the table that the csv module reads; raise for the first cell that is no number."""
    values: list[np.ndarray] = []
    held: dict[str, list[str]] = {role: [] for role in layout.roles}
    rows, marks = _rows(layout, body), layout.how.marks
    for line, cells in rows:
        if len(cells) != layout.width:
            raise ValueError(_ragged(layout, line, cells, layout.width))
        numbers = [None if cells[i] in marks else cell_number(cells[i], layout.decimal) for i in layout.kept]
        if None in numbers:
            for value, i in zip(numbers, layout.kept, strict=True):
                if value is None and not (layout.how.missing and (cells[i] in marks or cells[i].lower() in MISSING)):
                    following = (row for _, row in islice(rows, SHOWN_ROWS) if len(row) == layout.width)
                    raise ValueError(_fault(layout, line, i, [cells, *following]))
        values.append(np.array(numbers, dtype=np.float64))  # None becomes NaN
        for role, i in layout.roles.items():
            held[role].append(cells[i])
    if not values:
        raise ValueError(f"{layout.path} has a header and no rows.")
    return layout.of_text(np.stack(values), held)


def _ragged(layout: Layout, line: int, cells: list[str], width: int, is_short: bool = False) -> str:
    """Return the message for a row with another number of cells than the first."""
    where = f"{layout.path}, line {line}, column {min(len(cells), width) + 1}"
    ways = ["correct the row", layout.hint]
    if layout.hint == NO_HINT and len(cells) > width:
        ways.append(f"--skip {line - 1} if the lines above are a title")
        ways += ["--header if the first line leaves out the name of the first column, as R does"] * is_short
    row = f"the row has {len(cells)} cells, and the first row {width} (separated by {layout.delimiter!r})"
    return f"{where}: {row}. What helps: {'; '.join(ways)}."


def _fault(layout: Layout, line: int, column: int, rows: list[list[str]]) -> str:
    """Return the message for a cell that is no finite number, with remedies."""

    def is_text(cell: str) -> bool:
        return cell.lower() not in MISSING and cell_number(cell, layout.decimal) is None

    texts = [i for i in layout.kept if any(is_text(row[i]) for row in rows)]
    name = layout.header[column] if layout.header else ""
    where = f"{layout.path}, line {line}, column {column + 1}{name and f' ({name})'}"
    separator = r"\s+" if layout.delimiter == " " else layout.delimiter
    frame, ways = f"pandas.read_csv({str(layout.path)!r}, sep={separator!r}", [layout.hint]
    cells, other = [row[i] for row in rows for i in texts if is_text(row[i])], "," if layout.decimal == "." else "."
    if cells and all(map(WRITTEN.fullmatch, cells)) and layout.hint == NO_HINT:
        ways = [f"--decimal {other} if it is the decimal sign"] if other != layout.delimiter else []
        grouped = rf"\D*\d{{1,3}}(\{other}?\d{{3}})*(\{layout.decimal}\d+)?\D*"
        if all(re.fullmatch(grouped, cell) for cell in cells):
            call = f"{frame}, thousands={other!r}, decimal={layout.decimal!r}){CLEANED}.to_csv('x.csv', index=False)"
            ways.append(f"{call} removes other signs, and {other} between thousands")
    elif len({*cells}) == 1:  # a code such as .. or #DIV/0!
        ways.append(f"--missing {shlex.quote(cells[0])} --rows complete if it marks missing cells")
    elif texts == layout.kept and rows[1:] and not any(is_text(row[i]) for row in rows[1:] for i in texts):
        ways.append(f"{frame}, skiprows=[{line - 1}]).to_csv('x.csv', index=False) leaves out a line of units")
    elif 2 * len(texts) > len(layout.kept) and not any(map(WRITTEN.fullmatch, cells)) and layout.hint == NO_HINT:
        ways.append(f"pandas.get_dummies({frame}), dummy_na=True).to_csv('x.csv', index=False) codes categories")
    return _not_a_number(layout, where, rows[0][column], column, texts, *ways)


def _not_a_number(layout: Layout, where: str, cell: str, column: int, texts: list[int], *more: str) -> str:
    """Return the message for a cell that is no finite number; `texts` are all columns with such cells."""
    how, header = layout.how, layout.header or ()

    def shown(*columns: int) -> str:
        """Return columns as a cell of the shell: by name where that is one cell of CSV that means no number."""
        named = {i: header[i] for i in columns if header and re.fullmatch(r"[^\d\W][\w .-]*", header[i])}
        return shlex.quote(",".join(named.get(i, "#" * (str(i) in header) + str(i)) for i in columns))

    where = f"{where}: {shortened(cell, 30)!r}"
    is_missing = cell.lower() in MISSING and column not in texts
    if header and header[column] in how.of_model:
        leave = "--rows complete" if is_missing else f"--missing {shlex.quote(cell)} --rows complete"
        return f"{where} is not a number, and the model needs it. Correct the cell, or leave out such rows: {leave}."
    if is_missing:
        return (
            f"{where} is a missing value. Give --rows complete to leave out such rows, --rows imputed for the means of "
            f"the columns, --drop {shown(column)}, or --method ppca or bayesian, which take missing values."
        )
    leave = "leave {} out of --columns" if how.columns else "--drop {} leaves out such columns"
    ways = [leave.format(shown(*texts))] if texts != layout.kept else []
    ways += [] if how.index_column else [f"--index-column {shown(texts[0])} takes names"]
    ways += [] if how.label_column or how.transpose else [f"--label-column {shown(texts[0])} takes labels"]
    return f"{where} is not a number, or not a finite one. What helps: {'; '.join([*ways, *more])}."


def _as_numbers(labels: list[str]) -> np.ndarray:
    """Return labels as integers or floats where all are, NaN for missing ones, else strings.

    Labels with zeros before them are codes, which differ as text: 001 is not 1.
    """
    if all(len(label) <= 18 and re.fullmatch(r"0|-?[1-9][0-9]*", label) for label in labels):
        return np.array([int(label) for label in labels])
    known = [label for label in labels if label.lower() not in MISSING]
    codes = any(label.lower() in BOOLEANS or re.match(r"[+-]?0[0-9]", label) for label in known)
    if codes or not known or any(cell_number(label, ".") is None for label in known):
        return np.array(labels)
    return np.array([math.nan if label.lower() in MISSING else float(label) for label in labels])
