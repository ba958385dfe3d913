"""The contents of a model file, from its header: `gpukpca info FILE`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from gpukpca._formatting import format_bytes
from gpukpca.cli.failures import say, shortened
from gpukpca.cli.report import Lines, show_pairs
from gpukpca.persistence.contents import StoredArray, StoredStep, contents_of

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
        *(("array", f"{one.name}: {one.dtype}, {_shape(one)}, {format_bytes(one.size)}") for one in found.arrays),
        ("digest", f"SHA-256 {found.digest}, not checked: loading checks it"),
    ]
    show_pairs([(label, shortened(value, MOST_SHOWN)) for label, value in lines])


def _lines_of(step: StoredStep) -> Lines:
    values = (*_named("parameter", step.parameters), *_named("fact", step.facts), *_named("fit", step.fit))
    return [("class", step.name), *values]


def _named(label: str, values: dict[str, str]) -> Lines:
    """Return a line for every value."""
    return [(label, f"{name} = {value}") for name, value in values.items()]


def _shape(array: StoredArray) -> str:
    return " x ".join(map(str, array.shape)) or "one number"
