"""The contents of a model file, from its header: `gpukpca info FILE`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gpukpca._formatting import format_bytes
from gpukpca.cli.failures import say, shortened
from gpukpca.cli.report import Lines, show_pairs
from gpukpca.persistence.contents import contents_of

# Characters of a value.
MOST_SHOWN = 200


def show_contents(path: Path, as_json: bool) -> None:
    """Print class, version, parameters, arrays and notes of a model file, whose arrays are not read."""
    found = contents_of(path)
    if as_json:
        say(json.dumps({"file": str(path), **found}))
        return
    shown = [("file", f"{path}, {format_bytes(found['size'])}")]
    shown.append(("written by", f"gpukpca {found['version']}, in format {found['format']}"))
    for step in found["steps"]:
        shown += [("class", step["name"]), *_named("parameter", step["parameters"])]
        shown += [*_named("fact", step["facts"]), *_named("fit", step["fit"])]
    shown += [*_named("note", found["notes"]), *(("array", _described(array)) for array in found["arrays"])]
    shown.append(("digest", f"SHA-256 {found['digest']}, not checked: loading checks it"))
    show_pairs([(label, shortened(value, MOST_SHOWN)) for label, value in shown])


def _named(label: str, values: dict[str, str]) -> Lines:
    """Return a line for every value."""
    return [(label, f"{name} = {value}") for name, value in values.items()]


def _described(array: dict[str, Any]) -> str:
    shape = " x ".join(map(str, array["shape"])) or "one number"
    return f"{array['name']}: {array['dtype']}, {shape}, {format_bytes(array['size'])}"
