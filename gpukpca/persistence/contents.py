"""The contents of a model file, read from its header alone."""

from __future__ import annotations

import math
import os
from typing import Any

from gpukpca._container import CODES, CONTRADICTIONS, format_errors, read_outline
from gpukpca.exceptions import ModelFormatError
from gpukpca.persistence.model_file import CONTRADICTION, KIND, check_version, names_in, naming
from gpukpca.persistence.schema import Node

DTYPES: dict[str, Any] = {code: dtype for dtype, code in CODES.items()}
# Nodes that show their items alone.
LISTS = ("texts", "flags", "list")


def contents_of(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what the header of a model file says. No array is read, no object is made, and the digest is not checked.

    Returns
    -------
    dict
        The "size" of the file in bytes, the "version" of the gpukpca that wrote it, its "format", and the SHA-256
        "digest" that it states; the "steps" (the estimator, or a scaler and the estimator), the "notes", and the
        "arrays" in the order of their names. Values of steps and notes are text, since nothing is checked.

    Raises
    ------
    ModelFormatError
        No model file, or one whose header is not that of a model of this format.
    OSError
        No such file, a directory, no permission.
    """
    with naming(path) as name, format_errors(CONTRADICTION, *CONTRADICTIONS):
        header, outline, digest = read_outline(name, KIND)
        check_version(header)
        steps = [_step(node) for node in header["steps"]]
        if not steps:
            raise ModelFormatError("it holds no estimator")
        known = {"size": os.stat(name).st_size, "version": header["version"], "format": header["format"]}
        notes, arrays = _spelled_values(header["notes"]), [_array(*item) for item in sorted(outline.items())]
        return known | {"steps": steps, "notes": notes, "arrays": arrays, "digest": digest}


def _array(name: str, stored: tuple[str, tuple[int, ...]]) -> dict[str, Any]:
    """Return what the header says of an array; its size is in bytes."""
    dtype, shape = DTYPES[stored[0]], stored[1]
    return {"name": name, "dtype": dtype.name, "shape": shape, "size": math.prod(shape) * dtype.itemsize}


def _step(node: Node) -> dict[str, Any]:
    """Return the class of an estimator, its parameters and facts, and the fields of its fit without arrays."""
    fit = {key: part for key, part in node["fit"].items() if key != "class" and not any(names_in(part))}
    values = {"parameters": node["parameters"], "facts": node["facts"], "fit": fit}
    return {"name": str(node["class"])} | {key: _spelled_values(part) for key, part in values.items()}


def _spelled_values(values: dict[str, Node]) -> dict[str, str]:
    """Return the values of an object of the header as text, without those that are None."""
    return {key: spelled(part) for key, part in values.items() if part is not None}


def spelled(node: Node) -> str:
    """Return a node as text: «RBF(gamma=0.5)», «(1, 2)», «array fit.map.basis»."""
    if isinstance(node, list):
        return f"({', '.join(map(spelled, node))})"
    if not isinstance(node, dict):
        return repr(node)
    if set(node) == {"array"}:
        return f"array {node['array']}"
    name, parts = node.get("class"), {key: part for key, part in node.items() if key != "class"}
    items: Any = parts.get("items")
    if name == "float":
        return str(items)
    if name == "dict":
        return f"{{{', '.join(': '.join(map(spelled, pair)) for pair in items)}}}"
    if name in LISTS:
        return f"[{', '.join(map(spelled, items))}]"
    return f"{name}({', '.join(f'{key}={spelled(part)}' for key, part in parts.items())})"
