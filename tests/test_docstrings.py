"""Docstrings: every public object has an example that runs, and the reference lists each object once.

The build of the documentation checks their form (numpydoc's validation, `docs/conf.py`).
"""

from __future__ import annotations

import ast
import doctest
import inspect
import io
import re
from collections import Counter
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gpukpca import (
    PCA,
    BayesianPCA,
    KernelPCA,
    KernelPCACV,
    LocalPCA,
    ProbabilisticPCA,
    exceptions,
)
from tests.test_public_api import ROOMS

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted((ROOT / "gpukpca").rglob("*.py"))


def is_object(value: Any) -> bool:
    return inspect.isclass(value) or inspect.isroutine(value)


PUBLIC = {
    f"{room}.{name}": getattr(import_module(room), name) for room in ROOMS for name in import_module(room).__all__
}
# Every class and function under one of its names.
OBJECTS = {value: name for name, value in PUBLIC.items() if is_object(value)}
CLASSES = {name: value for value, name in OBJECTS.items() if inspect.isclass(value)}
METHODS = [
    (name, method)
    for name, cls in CLASSES.items()
    for method, value in vars(cls).items()
    if method[0] != "_" and (inspect.isfunction(value) or isinstance(value, property | classmethod))
]


def docstrings(file: Path) -> list[tuple[str, str, int]]:
    """Return name, text and first line of the docstrings of a file that hold examples."""
    found = []
    text = file.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)) if ">>>" in text else ():
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            text = ast.get_docstring(node) or ""
            if ">>>" in text:
                found.append((getattr(node, "name", file.stem), text, node.body[0].lineno))
    return found


WITH_EXAMPLES = [file for file in FILES if docstrings(file)]


@pytest.mark.parametrize("file", WITH_EXAMPLES, ids=lambda file: ".".join(file.relative_to(ROOT).with_suffix("").parts))
def test_examples_run_as_they_are_written(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    report = io.StringIO()
    for name, text, line in docstrings(file):
        test = doctest.DocTestParser().get_doctest(text, {}, name, str(file), line)
        doctest.DocTestRunner().run(test, out=report.write)
    assert not report.getvalue(), report.getvalue()


@pytest.mark.parametrize("section", ["See Also", "Examples"])
def test_every_public_object_has_an_example_and_names_its_relatives(section):
    heading = f"\n{section}\n{'-' * len(section)}\n"
    assert not [name for value, name in OBJECTS.items() if heading not in (inspect.getdoc(value) or "")]


def test_the_reference_lists_every_public_object_once():
    listed: Counter[Any] = Counter()
    for page in (ROOT / "docs" / "reference").glob("*.rst"):
        module = ""
        for line in page.read_text(encoding="utf-8").splitlines():
            if match := re.match(r"\.\. currentmodule:: (\S+)", line):
                module = match[1]
            elif match := re.match(r" {3}(\w+)$", line):
                listed[getattr(import_module(module), match[1])] += 1
            elif match := re.match(r"\.\. automodule:: (\S+)", line):
                listed.update(getattr(import_module(match[1]), name) for name in import_module(match[1]).__all__)
            elif match := re.match(r"\.\. autoexception:: (\S+)\.(\w+)", line):
                listed[getattr(import_module(match[1]), match[2])] += 1
    expected = {*OBJECTS, *(getattr(exceptions, name) for name in exceptions.__all__)}
    assert listed == Counter(expected)
    # Rooms, the version, the trusted types.
    assert {type(value) for value in PUBLIC.values() if not is_object(value)} == {ModuleType, str, tuple}


@pytest.mark.parametrize(
    "model",
    [
        PCA(2),
        KernelPCA(2, kernel="rbf", preimage="ridge"),
        KernelPCA(2, kernel="rbf", eigen_solver="nystrom"),
        ProbabilisticPCA(2, solver="em", max_iter=3000),
        BayesianPCA(),
        LocalPCA(2),
        KernelPCACV(gammas=[0.1], n_components=[1, 2], cv=2),
    ],
    ids=lambda model: type(model).__name__,
)
def test_every_fitted_attribute_is_documented(model, rng):
    model.fit(rng.standard_normal((40, 4)) * [4.0, 3.0, 1.0, 1.0])
    names = {name for name in vars(model) if name.endswith("_") and name[0] != "_"}
    assert names
    assert not [name for name in sorted(names) if not re.search(rf"\b{name}\b", type(model).__doc__)]


def is_described(name: str, method: str) -> bool:
    """A property may instead be named among the attributes of its class or of a base."""
    cls = CLASSES[name]
    own = [vars(base).get(method) for base in cls.__mro__]
    described = any(isinstance(value, property) for value in own) and any(
        method in (base.__doc__ or "") for base in cls.__mro__
    )
    return described or any(getattr(value, "__doc__", None) for value in own)


def test_public_methods_are_documented_here_or_in_a_base():
    assert not [f"{name}.{method}" for name, method in METHODS if not is_described(name, method)]
