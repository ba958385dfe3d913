"""Words that plans, results and errors of every room share."""

from __future__ import annotations

import unicodedata

# Categories of characters that a terminal obeys in place of showing them: control, format, half a pair, separators.
UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")


def pluralize(count: int, noun: str) -> str:
    """«1 component», «2 components»."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def printable(text: str, keep: str = "") -> str:
    r"""Return `text` with control characters but those of `keep` as escapes, ESC as «\x1b»."""
    if text.isprintable():
        return text
    return "".join(
        c.encode("unicode_escape").decode() if unicodedata.category(c) in UNSEEN and c not in keep else c for c in text
    )
