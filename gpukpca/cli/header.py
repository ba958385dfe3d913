"""The first line of a text file: names of the columns, a row of data, or a question to the user."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

MISSING = ("", "na", "n/a", "#n/a", "<na>", "nan", "null", "none", "?", "-")
BOOLEANS = ("false", "true")
# A number, also as it is written elsewhere: such text is data, and an error, rather than a name. Dates are names.
NUMERAL = re.compile(
    r"(?!\d{1,2}\.\d{1,2}\.\d{2,4}$)[<>]?[+-]?[\d.,' ]*\d[\d.,' ]*(e[+-]?\d+)?|[+-]?inf(inity)?", re.IGNORECASE
)
YEARS = (1800, 2100)
# The largest share of the rows that may look like names as the first line does, where numbers are names; and by how
# much such numbers are farther from their columns than the rows are from each other.
FEW, FAR = 0.1, 2.0
# Numbers in a line from which on they run one way, or are all different, by design and not by chance.
MANY = 5


def cell_number(cell: str, decimal: str) -> float | None:
    """Return the finite number in a cell, 1 and 0 for TRUE and FALSE, None for any other cell."""
    if cell.lower() in BOOLEANS:
        return float(BOOLEANS.index(cell.lower()))
    if decimal == ",":
        cell = "" if "." in cell else cell.replace(",", ".")
    try:
        value = float(cell)
    except ValueError:
        return None
    # Python reads 1_000 as a number; no table means it.
    return value if math.isfinite(value) and "_" not in cell else None


def is_header(first: Sequence[str], below: list[list[str]], kept: Sequence[int], decimal: str) -> bool | None:
    """Return whether a first line names the columns, judged with some rows below it; None where both are possible.

    `kept` are the positions of the features. Text above numbers names a column, also one that is no feature, and so
    does an empty corner above names. Numbers are a question where they, or the text before them, look like names.
    """

    def is_text(i: int) -> bool:
        cell = first[i].lower()
        if cell in BOOLEANS:  # a name above numbers, and a number above such words
            return not all(row[i].lower() in (*BOOLEANS, *MISSING) for row in below)
        return not (cell in MISSING or NUMERAL.fullmatch(cell))

    texts = {i for i in range(len(first)) if is_text(i)}
    names, others = [i for i in kept if first[i].lower() not in MISSING], texts.difference(kept)
    if names and texts.issuperset(names):
        return True
    columns = [[row[i] for row in below if row[i].lower() not in MISSING] for i in range(len(first))]
    numeric = [bool(cells) and all(cell_number(cell, decimal) is not None for cell in cells) for cells in columns]
    if any(numeric[i] for i in others):
        return True
    numbers = [i for i in names if numeric[i] and cell_number(first[i], decimal) is not None]
    likely = bool(numbers) and numbers_look_like_names(
        [first[i] for i in numbers], [[row[i] for i in numbers] for row in below], decimal
    )
    if first[0] == "" and len(first) > 1 and len(columns[0]) == len(below) and holds_names(columns[0]):
        counts = any(cells == [str(i) for i in range(len(cells))] for cells in (columns[0], [first[i] for i in names]))
        return True if likely or counts or not numeric[0] else None
    # The label of a class, which comes again in other rows, is no name; one of few classes that does not is a name. A
    # text alone above numbers may be no number.
    again = any(first[i] in columns[i] for i in others)
    above = any(numeric[i] or 2 * len({*columns[i]}) <= len(columns[i]) for i in texts)
    if likely and above and not again:
        return True
    return None if likely or any(numeric[i] or _differs(first[i], columns[i]) for i in texts) else False


def holds_names(cells: list[str]) -> bool:
    """Return whether a column without a name holds the names of the rows: text or different whole numbers."""
    return (all(map(_is_whole, cells)) and len(set(cells)) == len(cells)) or any(
        cell_number(c, ".") is None for c in cells
    )


def lacks_a_name(first: Sequence[str], names: list[str]) -> bool:
    """Return whether a first line with one cell less names columns, as R writes it."""
    counting = names == [str(i + 1) for i in range(len(names))]
    of_names, of_first = (all(cell_number(cell, ".") is None for cell in cells) for cells in (names, first))
    return of_names or (of_first and counting)


def _is_whole(cell: str) -> bool:
    return cell.lstrip("+-").isdigit()


def _differs(cell: str, cells: list[str]) -> bool:
    """Return whether digits, or capitals at the start, tell a column's texts from a cell."""
    return len(cells) > 1 and any(
        not of(cell) and all(map(of, cells))
        for of in (lambda text: any(map(str.isdigit, text)), lambda text: text[:1].isupper())
    )


def numbers_look_like_names(cells: list[str], below: list[list[str]], decimal: str) -> bool:
    """Return whether numbers in the first line differ from the rows below as years, wavelengths or codes do.

    They have a property of names that next to no row below has. Rows of data that can change places have an equal
    chance to be the one with a property, so that a long table is asked about by mistake once in as many tables as it
    has rows; the smallest numbers of rows and columns keep short tables from it.
    """
    k, m = len(cells), len(below)
    if m < 2 or (k > 2 and cells[1 : m + 1] == [row[0] for row in below][: k - 1]):  # of a symmetric matrix
        return False
    lines = np.array([[cell_number(cell, decimal) for cell in row] for row in (cells, *below)], dtype=float)
    with np.errstate(all="ignore"):
        steps, ratios = np.diff(lines), lines[:, 1:] / lines[:, :-1]
    ways = [np.all(sign * steps > 0, axis=1) for sign in (1, -1) if k > 1]
    even = [
        np.all(np.isclose(x, x[:, :1], rtol=1e-6), axis=1) & (x[:, 0] != 1 * (x is ratios))
        for x in (steps, ratios)
        if k > 2
    ]
    different = np.array([len({*row}) == k for row in (cells, *below)])

    def alone(found: np.ndarray, most: float = FEW) -> bool:
        return bool(found[0]) and np.mean(found[1:]) <= most

    values, rows, whole = lines[0], lines[1:], all(map(_is_whole, cells))
    low, high = np.fmin.reduce(rows), np.fmax.reduce(rows)
    gap = np.fmax.reduce(np.diff(np.sort(rows, axis=0), axis=0))
    distance, in_years = np.fmax(low - values, values - high), (lines >= YEARS[0]) & (lines <= YEARS[1])
    pointed = np.mean([[decimal in cell for cell in row] for row in below], axis=0)
    runs = any(found[0] for found in ways)
    return bool(
        # Many numbers that run one way, or are all different: wavelengths, questions.
        (k >= MANY and (any(map(alone, ways)) or (whole and m >= 2 * MANY and alone(different))))
        # Equal steps or ratios: numbers of columns, doses.
        or (any(map(alone, even)) and (k > 3 or m >= MANY or values[0] == 0))
        # Years above other numbers; whole numbers above decimals.
        or (whole and np.all(in_years[0]) and (k == 1 or runs) and not np.any(in_years[1:]))
        or (whole and different[0] and (k > 1 or m >= 2 * MANY) and np.all(pointed > 0.8))
        # Numbers outside their columns that run one way, as few points of time; numbers far outside, as codes.
        or (k > 2 and m > 2 and np.all(distance > gap) and any(alone(found, 0.5) for found in ways))
        or (k > 1 and m > 2 and np.all(distance > FAR * gap) and (whole or runs))
    )
