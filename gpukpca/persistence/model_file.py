"""The contents of a model file: of every step its class by name, parameters, a few facts and the fit result."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpukpca._container import Arrays, Header
from gpukpca._formatting import format_bytes, printable
from gpukpca._version import __version__
from gpukpca.exceptions import MemoryBudgetError, ModelFormatError
from gpukpca.persistence.schema import (
    MOST_TIMES,
    Field,
    Node,
    Reader,
    Writer,
    as_now,
    check_sizes,
    check_stored,
    holds_type,
)

KIND = "model"
# Of the files written and read. Raised where the meaning of a part changes, not for a new field with a default.
FORMAT = 1
# Facts of a fitted estimator that do not follow from its parameters and its fit result.
FACTS = {
    "n_features_in_": Field(int, rules=("nonnegative",)),
    "feature_names_in_": Field(np.ndarray, required=False),
    "device_": Field(str, required=False),
    "fallbacks_": Field(tuple[str, ...], required=False),
    "batch_size_": Field(int, rules=("positive",), required=False),
}
CONTRADICTION = "its parts make no model"


@dataclass(frozen=True)
class Step:
    """Hold what a model file has of an estimator or a scaler."""

    kind: str  # the name of its class
    name: str | None  # in a pipeline
    parameters: dict[str, Any]
    facts: dict[str, Any]
    fit: Any  # its fit result


def packed(steps: Sequence[Step], notes: dict[str, Any]) -> tuple[Header, Arrays]:
    """Return the header and the arrays of a file; raise `InvalidParameterError` for a value that a file cannot hold."""
    writer, nodes = Writer(), []
    for place, step in enumerate(steps):
        path = "" if step.name is None else f"steps.{place}."
        parameters = {key: writer.node(f"{path}parameters.{key}", value) for key, value in step.parameters.items()}
        facts = {key: writer.node(f"{path}{key}", value) for key, value in step.facts.items()}
        fit = writer.node(f"{path}fit", step.fit)
        nodes.append({"name": step.name, "class": step.kind, "parameters": parameters, "facts": facts, "fit": fit})
    header = {"format": FORMAT, "version": __version__, "steps": nodes}
    header["notes"] = {name: writer.node(f"notes.{name}", value) for name, value in notes.items()}
    return header, writer.arrays


def unpacked(header: Header, arrays: Arrays, known: Collection[str]) -> list[Step]:
    """Return the steps of a file with arrays on the host, and fields of the right types, shapes and ranges.

    Parameters
    ----------
    header : dict
    arrays : dict
    known : names of classes
        Those that a step may have.

    Raises
    ------
    ModelFormatError
        The header and the arrays are not those that `packed` returns. Parts that contradict each other raise any of
        `CONTRADICTIONS`, which the caller reports as this error.
    """
    if set(header) != {"format", "version", "steps", "notes"}:
        raise ModelFormatError(f"its header has {', '.join(map(repr, header))[:200]}")
    named, sizes = Counter(names_in(header)), {name: array.nbytes for name, array in arrays.items()}
    # A node that names an array costs time for all of it, before its own fields are known to be wrong.
    if sum(times * sizes.get(name, 0) for name, times in named.items()) > MOST_TIMES * sum(sizes.values()):
        raise ModelFormatError(f"its parts name the same arrays more than {MOST_TIMES} times")
    nodes = header["steps"]
    if not all(holds_type(node["name"], str if len(nodes) > 1 else None) for node in nodes):
        raise ModelFormatError("its steps have no names")
    steps = [_step(node, arrays, known) for node in nodes]
    if len({step.facts["n_features_in_"] for step in steps}) > 1:
        raise ModelFormatError("its steps have other features")
    if unused := sorted(set(arrays) - set(named)):
        raise ModelFormatError(f"no part of it has the arrays {printable(', '.join(unused))[:200]}")
    return steps


def unpacked_notes(header: Header, arrays: Arrays) -> dict[str, Any]:
    """Return the notes of a file."""
    return {name: Reader(arrays).value(node, f"notes.{name}") for name, node in header["notes"].items()}


def fit_at(header: Header, arrays: Arrays, like: Any) -> Any:
    """Return the fit result of the last step, with the arrays of its computations where `like` is."""
    return Reader(arrays, like).value(header["steps"][-1]["fit"], "fit")


def _step(node: Node, arrays: Arrays, known: Collection[str]) -> Step:
    """Return a step of a header."""
    kind, reader = node["class"], Reader(arrays)
    if not isinstance(kind, str) or kind not in known:
        raise ModelFormatError(f"its estimator is {str(kind)[:80]!r}; known are {', '.join(known)}")
    if set(node) != {"name", "class", "parameters", "facts", "fit"}:
        raise ModelFormatError(f"{kind} has {', '.join(map(repr, node))[:200]}")
    stated = as_now(kind, node["parameters"])[1]
    parameters = {key: reader.value(part, f"parameters.{key}") for key, part in stated.items()}
    facts = {key: reader.value(part, key) for key, part in node["facts"].items()}
    check_stored(kind, facts, FACTS, reader.sizes)
    d = reader.sizes["d"] = facts["n_features_in_"]
    fit = reader.value(node["fit"], "fit")
    check_sizes(reader.sizes)
    names = facts.get("feature_names_in_")
    if names is not None and (names.dtype != object or names.shape != (d,) or len(set(names)) != d):
        raise ModelFormatError(f"feature_names_in_ must be {d} different texts")
    return Step(kind, node["name"], parameters, facts, fit)


def names_in(node: Node) -> Iterator[str]:
    """Yield the names of the arrays of a node."""
    if isinstance(node, dict) and set(node) == {"array"}:
        yield node["array"]
    elif isinstance(node, (dict, list)):
        for part in node.values() if isinstance(node, dict) else node:
            yield from names_in(part)


def check_version(header: Header) -> None:
    """Raise `ModelFormatError` for a format that this version does not read."""
    number, version = header.get("format"), header.get("version")
    if not isinstance(number, int) or isinstance(number, bool) or not isinstance(version, str):
        raise ModelFormatError("its header does not say which format it has")
    if number != FORMAT:
        raise ModelFormatError(
            f"it was written by gpukpca {printable(version[:40])} in format {number}, and this is gpukpca "
            f"{__version__}, which reads format {FORMAT}; install {'a newer' if number > FORMAT else 'that'} gpukpca"
        )


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[str]:
    """Yield the path as text, and put it into errors of reading a model file."""
    path = os.fsdecode(path)
    try:
        yield path
    except (FileNotFoundError, IsADirectoryError) as error:
        what = "is a directory" if isinstance(error, IsADirectoryError) else "does not exist"
        advice = f"{what}; give a model file, which `save` or gpukpca fit --save wrote"
        raise type(error)(error.errno, advice, path) from error
    except ModelFormatError as error:
        raise ModelFormatError(f"{path} is no model file of gpukpca that can be read: {error}.") from error
    except MemoryError as error:
        size = format_bytes(os.stat(path).st_size)
        raise MemoryBudgetError(
            f"{path} holds {size}, and reading and checking it takes more memory than is free; free some, or load it "
            "on a larger machine."
        ) from error
