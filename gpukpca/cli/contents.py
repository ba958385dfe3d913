"""The contents of a model file, from its header: `gpukpca info FILE`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from gpukpca._formatting import format_bytes, pluralize
from gpukpca.cli.failures import say, shortened
from gpukpca.cli.report import show_pairs
from gpukpca.persistence.contents import StoredArray, StoredStep, contents_of

# Of the arrays, and of the values of a kind.
MOST_LINES = 100
# Characters of a value.
MOST_SHOWN = 200


def show_contents(path: Path, as_json: bool) -> None:
    """Print class, version, parameters, arrays and notes of a model file, whose arrays are not read."""
    found = contents_of(path)
    if as_json:
        say(json.dumps({"file": str(path), **asdict(found)}))
        return
    lines = [
        ("file", f"{path}, {format_bytes(found.size)}"),
        ("written by", f"gpukpca {found.version}, in format {found.format}"),
        *(line for step in found.steps for line in _lines_of(step)),
        *_named("note", found.notes),
        *_first([("array", _array(array)) for array in found.arrays], "array", "array"),
        ("digest", f"SHA-256 {found.digest}, not checked: loading checks it"),
    ]
    show_pairs(Console(), [(label, shortened(value, MOST_SHOWN)) for label, value in lines])


def _lines_of(step: StoredStep) -> list[tuple[str, str]]:
    return [
        ("class", step.name),
        *_named("parameter", step.parameters),
        *_named("fact", step.facts),
        *_named("fit", step.fit),
    ]


def _named(label: str, values: dict[str, str]) -> list[tuple[str, str]]:
    """Return a line for every value."""
    return _first([(label, f"{name} = {value}") for name, value in values.items()], label, "value")


def _array(array: StoredArray) -> str:
    shape = " x ".join(map(str, array.shape)) or "one number"
    return f"{array.name}: {array.dtype}, {shape}, {format_bytes(array.size)}"


def _first(lines: list[tuple[str, str]], label: str, noun: str) -> list[tuple[str, str]]:
    """Return the first lines, and how many more there are."""
    more = len(lines) - MOST_LINES
    return lines if more <= 0 else [*lines[:MOST_LINES], (label, f"and {pluralize(more, f'more {noun}')}")]
