"""The base classes of the table of protocols in the drawing of the house: what they promise, their subclasses do."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gpukpca

ROW = re.compile(r"^\| `(\w+)` \| `([\w/]+)\.py` \| (.*) \|$", re.MULTILINE)
TABLE = ROW.findall((Path(gpukpca.__file__).parent / "README.md").read_text(encoding="utf-8").split("## Protocols")[1])


def base_of(name: str, path: str) -> Any:
    return getattr(importlib.import_module("gpukpca." + path.replace("/", ".")), name)


def subclasses(base: type) -> Iterator[type]:
    for cls in base.__subclasses__():
        if cls.__module__.startswith("gpukpca."):
            yield cls
            yield from subclasses(cls)


def promises_in_vain(cls: type) -> list[str]:
    """The methods that state a result, and whose body is a docstring alone, but for abstract ones."""
    tree: Any = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    methods = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    abstract = getattr(cls, "__abstractmethods__", frozenset())
    return [
        f"{cls.__name__}.{node.name}"
        for node in methods
        if node.name not in abstract
        and "overload" not in map(ast.unparse, node.decorator_list)
        and node.returns is not None
        and ast.unparse(node.returns) != "None"
        and all(isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) for line in node.body)
    ]


def test_no_class_of_the_table_promises_a_value_and_returns_none():
    for module in pkgutil.walk_packages(gpukpca.__path__, "gpukpca."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    assert len(TABLE) >= 12
    seen = 0
    for name, path, members in TABLE:
        base = base_of(name, path)
        stated, heirs = set(re.findall(r"`(\w+)`", members)), list(subclasses(base))
        abstract = set(getattr(base, "__abstractmethods__", ()))
        assert abstract <= stated, (name, abstract - stated)
        assert stated <= {*dir(base), *inspect.get_annotations(base)}, name
        if not heirs:  # a protocol of which objects need the methods alone
            continue
        for cls in {base, *heirs}:
            assert promises_in_vain(cls) == []
        for cls in heirs:  # classes between the base and those that are made may lack members
            assert not inspect.isabstract(cls) or list(subclasses(cls)), cls
            seen += 1
    assert seen > 40
