"""Words that plans, results and errors of every room share."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """«1 component», «2 components»."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
