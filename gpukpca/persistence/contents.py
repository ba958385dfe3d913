"""The contents of a model file, read from its header alone."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any

from gpukpca._container import CODES, CONTRADICTIONS, format_errors, read_outline
from gpukpca.exceptions import ModelFormatError
from gpukpca.persistence.model_file import CONTRADICTION, KIND, check_version, naming
from gpukpca.persistence.schema import Node

DTYPES: dict[str, Any] = {code: dtype for dtype, code in CODES.items()}
# Nodes that show their items alone.
LISTS = ("texts", "flags", "list")


@dataclass(frozen=True)
class StoredArray:
    """Hold what the header says of an array."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int  # bytes


@dataclass(frozen=True)
class StoredStep:
    """Hold what the header says of an estimator or a scaler. Values are text, since nothing is checked."""

    name: str  # of the class
    parameters: dict[str, str]
    facts: dict[str, str]
    fit: dict[str, str]  # the fields without arrays


@dataclass(frozen=True)
class ModelContents:
    """Hold what the header of a model file says.

    Attributes
    ----------
    size : int
        Bytes of the file.
    version : str
        Of the gpukpca that wrote the file.
    format : int
    steps : tuple of StoredStep
        The estimator, or a scaler and the estimator.
    notes : dict
        Name -> value as text.
    arrays : tuple of StoredArray
        In the order of their names.
    digest : str
        The SHA-256 digest that the file states.
    """

    size: int
    version: str
    format: int
    steps: tuple[StoredStep, ...]
    notes: dict[str, str]
    arrays: tuple[StoredArray, ...]
    digest: str


def contents_of(path: str | os.PathLike[str]) -> ModelContents:
    """Return what the header of a model file says. No array is read, no object is made, and the digest is not checked.

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
        arrays = tuple(
            StoredArray(name, DTYPES[code].name, shape, math.prod(shape) * DTYPES[code].itemsize)
            for name, (code, shape) in sorted(outline.items())
        )
        steps = tuple(_step(node) for node in header["steps"])
        if not steps:
            raise ModelFormatError("it holds no estimator")
        size, notes = os.stat(name).st_size, _spelled_values(header["notes"])
        return ModelContents(size, header["version"], header["format"], steps, notes, arrays, digest)


def _step(node: Node) -> StoredStep:
    """Return the summary of the node of an estimator."""
    fit = {key: part for key, part in node["fit"].items() if key != "class" and not _has_array(part)}
    return StoredStep(str(node["class"]), *map(_spelled_values, (node["parameters"], node["facts"], fit)))


def _has_array(node: Node) -> bool:
    """Return whether a node names an array at any depth."""
    if isinstance(node, dict):
        return "array" in node or any(map(_has_array, node.values()))
    return isinstance(node, list) and any(map(_has_array, node))


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
