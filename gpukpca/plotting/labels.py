"""Labels of rows: groups with a name, a color and a marker each, or numbers and dates on a scale of colors."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from numbers import Real
from typing import Any

import numpy as np

from gpukpca.exceptions import InvalidParameterError
from gpukpca.plotting.display import on_host

UNKNOWN, MISSING = "#a6a6a6", "no label"
# Distinct for most color-blind readers up to seven (Okabe & Ito), then ordered by contrast; gray is UNKNOWN alone.
COLORS = (
    *("#0072b2", "#e69f00", "#009e73", "#cc3311", "#56b4e9", "#aa4499", "#332288"),
    *("#ddcc77", "#882255", "#88b04b", "#99ddff", "#000000"),
)
# More different numbers or dates than colors are a scale. More names repeat the colors with another marker.
MAX_CLASSES = len(COLORS)
MARKERS = "os^DvPX"
# The most letters of a name in a picture, and the fewest to which a lack of room shortens names.
LONGEST_NAME, FEWEST_LETTERS = 30, 8
ISO_DATE = re.compile(r"\d{4}-\d\d(-\d\d([ T]\d\d:\d\d(:\d\d(\.\d+)?)?Z?)?)?")
DAY = np.timedelta64(1, "D")


@dataclass(frozen=True)
class Groups:
    """The group of every row. Points, legends and names of groups take their colors from `looks` alone."""

    names: list[Any]
    codes: np.ndarray  # (n,) indices of names
    looks: list[tuple[str, str]]  # color and marker of every group

    def largest(self, count: int) -> list[int]:
        """Return the codes of the largest groups, in descending order of their rows."""
        return np.argsort(-np.bincount(self.codes, minlength=len(self.names)), kind="stable")[:count].tolist()


@dataclass(frozen=True)
class ColorScale:
    """The number of every row, NaN where it has none; dates are days since 1970."""

    values: np.ndarray  # (n,)
    is_dates: bool


def groups_of(names: list[Any], codes: np.ndarray, known: np.ndarray | None = None) -> Groups:
    """Return the groups of n rows: `codes` of the known rows, and a last, gray group of the others."""
    looks = [(COLORS[k % len(COLORS)], MARKERS[k // len(COLORS) % len(MARKERS)]) for k in range(len(names))]
    if known is None or np.all(known):
        return Groups(names, codes, looks)
    rows = np.full(len(known), len(names))
    rows[known] = codes
    return Groups([*names, MISSING], rows, [*looks, (UNKNOWN, "o")])


def read_labels(labels: Any, n: int, of: str = "scores") -> Groups | ColorScale | None:
    """Return the groups of n rows, or a scale where more than 12 numbers or dates differ.

    Missing labels are None, NaN, NaT and empty text. Categories of pandas are groups in their order.
    """
    if labels is None:
        return None
    check_one_a_row("labels", labels, n, of)
    values = np.asarray(on_host(labels))
    if values.ndim != 1:
        raise InvalidParameterError(f"labels must have shape ({n},), one a row of {of}; got {values.shape}.")
    categories = getattr(labels, "cat", labels)  # of a series, or labels that are categories themselves
    if hasattr(categories, "categories"):
        known = (codes := np.asarray(categories.codes)) >= 0
        used, codes = np.unique(codes[known], return_inverse=True)
        return groups_of([categories.categories[k] for k in used], codes, known)
    known = np.array([_is_known(v) for v in values.tolist()]) if values.dtype.kind in "OUT" else values == values
    given = _without_objects(values[known])
    classes, codes = np.unique(given, return_inverse=True)
    numbers = _dates_of_text(given) if len(classes) > MAX_CLASSES else given
    if len(classes) <= MAX_CLASSES or numbers.dtype.kind not in "iufM":
        names = np.datetime_as_string(classes, unit="auto") if classes.dtype.kind == "M" else classes
        return groups_of(names.tolist(), codes, known)
    scaled = np.full(n, np.nan)
    scaled[known] = (numbers - np.datetime64(0, "D")) / DAY if numbers.dtype.kind == "M" else numbers
    return ColorScale(np.where(np.isfinite(scaled), scaled, np.nan), numbers.dtype.kind == "M")


def _is_known(label: Any) -> bool:
    return label != "" if isinstance(label, str) else str(label) not in ("None", "nan", "NaT", "<NA>")


def _without_objects(values: np.ndarray) -> np.ndarray:
    """Return objects as numbers where all are, or as dates, else as text."""
    items = values.tolist() if values.dtype.kind == "O" else []
    if all(isinstance(item, Real | np.number) for item in items):
        return np.asarray(items) if items else values
    if not all(isinstance(item, date | np.datetime64) for item in items):
        return np.array([str(item) for item in items])
    # The time of the clock: the other zones have other names for one moment.
    clock = [item.replace(tzinfo=None) if getattr(item, "tzinfo", None) else item for item in items]
    return np.asarray(clock, dtype="datetime64[us]")


def _dates_of_text(values: np.ndarray) -> np.ndarray:
    """Return text that is dates alone, such as 2020-01-31 12:00, as dates; anything else as it is."""
    if values.dtype.kind not in "UT" or not all(ISO_DATE.fullmatch(text) for text in values.tolist()):
        return values
    try:
        return np.array([text.removesuffix("Z") for text in values.tolist()], dtype="datetime64[us]")
    except ValueError:  # no such month or day
        return values


def check_one_a_row(what: str, values: Any, n: int, of: str) -> None:
    """Raise where values are no sequence of n."""
    if not hasattr(values, "__len__") or len(values) != n:
        given = f"{len(values)} {what}" if hasattr(values, "__len__") else f"{what}={values!r}"
        raise InvalidParameterError(f"{given} for {n} rows of {of}; give a sequence, one a row.")


def shown_names(names: Any, longest: int = LONGEST_NAME) -> list[str]:
    """Return numbers in six digits, and of longer names the parts by which they differ from the most similar ones."""
    texts = [f"{name:.6g}" if isinstance(name, float | np.floating) else str(name) for name in names]
    ordered = sorted({*texts})
    shared = dict.fromkeys(ordered, 0)  # the letters that a text has in common with the most similar one
    for one, other in pairwise(ordered):
        same = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
        shared |= {one: max(shared[one], same), other: same}
    return [_shortened(text, shared[text], longest) for text in texts]


def _shortened(text: str, shared: int, longest: int) -> str:
    """Return beginning and end of a text that is too long; where others begin alike, the part at letter `shared`."""
    if len(text) <= longest:
        return text
    is_alike = shared >= longest * 2 // 3
    head = longest // 4 if is_alike else longest * 2 // 3
    room = longest - head - 1
    start = min(max(shared - room // 2, head), len(text) - room) if is_alike else len(text) - room
    return f"{text[:head]}…{text[start : start + room]}{'…' * (start + room < len(text))}"
