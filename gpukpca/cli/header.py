"""The first line of a text file: names of the columns, a row of data, or a question."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

MISSING = ("", "na", "n/a", "#n/a", "<na>", "nan", "null", "none", "?", "-")
BOOLEANS = ("false", "true")
# A number, also as it is written elsewhere: such text is data, and an error, rather than a name.
NUMERAL = re.compile(r"[<>]?[+-]?[\d.,' ]*\d[\d.,' ]*(e[+-]?\d+)?|[+-]?inf(inity)?", re.IGNORECASE)
# Of numbers that run one way; beyond it the rows of few numbers do so by chance.
MANY = 5
YEARS = (1800, 2100)


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


def names_of_rows(first: Sequence[str], below: list[list[str]]) -> bool:
    """Return whether a first line of text has one cell less than the rows, which R begins with their names."""
    names = [row[0] for row in below]
    counting = [str(i + 1) for i in range(len(names))]
    is_text = all(cell_number(cell, ".") is None for cell in (*first, *(names if names != counting else ())))
    return len(first) > 1 and is_text and all(len(row) == len(first) + 1 and row[-1] for row in below)


def is_header(first: Sequence[str], below: list[list[str]], kept: Sequence[int], decimal: str) -> bool | None:
    """Return whether a first line names the columns, judged with some rows below it; None where both are possible.

    `kept` are the positions of the features. Text above numbers names a column, also one that is no feature, and so
    does an empty corner. Only numbers that look like names are then names without a question.
    """
    # The word TRUE is a name above numbers, and a number in a column of such words.
    texts = [
        i
        for i, cell in enumerate(first)
        if not (cell.lower() in MISSING or NUMERAL.fullmatch(cell))
        and not (cell.lower() in BOOLEANS and any(row[i].lower() in BOOLEANS for row in below))
    ]
    names = [i for i in kept if first[i].lower() not in MISSING]
    if names and set(names) <= set(texts):
        return True
    if any(first[i] in (row[i] for row in below) for i in texts):  # as the label of a class
        return False
    values = {
        i: [cell_number(row[i], decimal) for row in below if row[i].lower() not in MISSING] for i in range(len(first))
    }
    named = [i for i in names if cell_number(first[i], decimal) is not None and values[i] and None not in values[i]]
    looks = bool(named) and _look_like_names([first[i] for i in named], below, named, decimal)
    above = any(values[i] and None not in values[i] for i in texts)
    corner = first[0] == "" and len(first) > 1 and all(row[0] for row in below)
    if corner and (0 not in kept or None in values[0] or values[0] == list(range(len(below)))):
        return True
    if above or corner:
        return looks or None
    return None if looks else False


def _look_like_names(cells: list[str], below: list[list[str]], columns: list[int], decimal: str) -> bool:
    """Return whether numbers in the first line differ from those below as years, wavelengths or numbers of columns do.

    They are years, count, go by equal steps, run one way, or are far from the columns below, which do not.
    """
    values = np.array([cell_number(cell, decimal) for cell in cells], dtype=float)
    rows = np.array([[cell_number(row[i], decimal) for i in columns] for row in below], dtype=float)
    count, steps, low, high = len(values), np.diff(values), np.fmin.reduce(rows), np.fmax.reduce(rows)
    spread = high - low
    whole = all(cell.lstrip("+-").isdigit() for cell in cells)
    pointed = len(rows) > 1 and all(decimal in row[i] for row in below for i in columns if row[i])
    differ = np.any(np.abs(np.diff(rows) - steps) > 0)
    counts = count > 1 and values[0] in (0, 1) and np.all(steps == 1) and (values[0] == 0 or count + len(rows) > 4)
    even = count > 2 and steps[0] != 0 and np.all(steps == steps[0])
    outside, distance = np.all((values < low) | (values > high)), np.fmax(low - values, values - high)
    years = np.all((values >= YEARS[0]) & (values <= YEARS[1])) and np.all(steps > 0)
    others = np.any((low < YEARS[0]) | (high > YEARS[1]))
    one_way = (count >= MANY or (outside and count > 1 and len(rows) > 2)) and any(
        np.all(s * steps > 0) and np.any(s * np.diff(rows) < 0) for s in (1, -1)
    )
    far = np.all((spread > 0) & (distance > (1 if count >= MANY else 3) * spread))
    of_whole = differ and (counts or (even and (outside or np.max(np.abs(values)) >= 10)))
    of_whole = of_whole or (years and others) or (pointed and (count > 2 or values[0] == 0))
    return bool(one_way or (far and count >= MANY) or (whole and (of_whole or far)))
