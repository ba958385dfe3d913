"""Formats of numbers and text that plans, results and errors of every room share."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable

# Categories of characters that control a terminal: control, format, half a pair, separators.
UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")


def pluralize(count: int, noun: str) -> str:
    """Return "1 component" or "2 components"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def printable(text: str, keep: str = "") -> str:
    r"""Return `text` with control characters but those of `keep` as escapes, ESC as «\x1b»."""
    if text.isprintable():
        return text
    return "".join(
        c.encode("unicode_escape").decode() if unicodedata.category(c) in UNSEEN and c not in keep else c for c in text
    )


def format_bytes(size: float) -> str:
    """Return a size such as "1.4 GiB"."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def format_need(size: float) -> str:
    """Return a needed size as `format_bytes` does, rounded up: a limit of what is printed is enough."""
    return _format_rounded(size, math.ceil)


def format_allowance(size: float) -> str:
    """Return a size that is allowed or free as `format_bytes` does, rounded down: all that is printed is there."""
    return _format_rounded(size, math.floor)


def _format_rounded(size: float, to_integer: Callable[[float], int]) -> str:
    size, unit = to_integer(size), 1
    while unit < 2**40 and size >= 1024 * unit:
        unit *= 1024
    return format_bytes(to_integer(10 * size / unit) * unit / 10)


def format_seconds(seconds: float) -> str:
    """Return a time such as "12 s", "3 min" or "1.5 h"."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
