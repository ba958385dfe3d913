"""What the rooms export: complete and sorted."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import gpukpca
from gpukpca.eigen import Solver
from gpukpca.gram import Storage, SymmetricOperator
from gpukpca.kernels import Kernel
from tests.each import each
from tests.hostile import forks, without_modules

ROOMS = [
    *("gpukpca", "gpukpca.algorithms", "gpukpca.backend", "gpukpca.datasets", "gpukpca.decomposition"),
    *("gpukpca.eigen", "gpukpca.gram", "gpukpca.kernels", "gpukpca.model_selection", "gpukpca.plotting"),
]

# All public names, with parameters, defaults and members; `python -m tests.test_public_api` writes the file.
LISTING = Path(__file__).with_name("public_api.txt")
# Classes whose members their subclasses need not repeat.
PROTOCOLS = (Kernel, Solver, Storage, SymmetricOperator)


def listing() -> str:
    """Return the public interface as text, a line for each name."""
    lines, seen = [], {}
    for room in (*ROOMS, "gpukpca.exceptions"):
        for name in import_module(room).__all__:
            value, path = getattr(import_module(room), name), f"{room}.{name}"
            if inspect.isclass(value) or inspect.isroutine(value):
                first = seen.setdefault(value, path)
                lines += described(path, value) if first == path else [f"{path} = {first}"]
            else:
                lines.append(f"{path}: {type(value).__name__}")
    return "\n".join([*lines, *command_lines()]) + "\n"


def described(path: str, value: Any) -> list[str]:
    """Return the line of a function or a class, and one for each member that its class or a public base adds."""
    if inspect.isclass(value) and issubclass(value, Exception):
        return [f"{path}: {', '.join(base.__name__ for base in value.__mro__[1:-2])}"]
    lines = [path + parameters_of(value)]
    bases = [base for base in getattr(value, "__mro__", ()) if base.__module__.startswith("gpukpca")]
    known = {*inspect.signature(value).parameters}
    for base in bases:
        if base.__name__[0] == "_":
            known |= {name for name in members_of(base) if not isinstance(vars(base).get(name), classmethod)}
        elif base in PROTOCOLS and base is not value:
            known |= {name for one in base.__mro__ for name in members_of(one)}
    for name in sorted({name for base in bases for name in members_of(base)} - known):
        member = getattr(value, name, None)
        lines.append(f"    {name}{parameters_of(member) if callable(member) else ''}")
    return lines


def members_of(cls: type) -> set[str]:
    """Return the public names that a class itself defines or annotates, but for those that scikit-learn adds to it."""
    names = {*vars(cls), *inspect.get_annotations(cls)}
    return {name for name in names if name[0] != "_" and not re.fullmatch(r"set_\w+_request", name)}


def parameters_of(function: Any) -> str:
    """Return names, kinds and defaults of parameters, without types, which may become more exact."""
    signature = inspect.signature(function)
    parameters = [one.replace(annotation=one.empty) for one in signature.parameters.values() if one.name != "self"]
    return str(signature.replace(parameters=parameters, return_annotation=signature.empty))


def command_lines() -> list[str]:
    """Return the commands of the program with their arguments and options."""
    import click

    from gpukpca.cli.app import COMMANDS, gpukpca

    found = []
    for name in COMMANDS:
        command = gpukpca.get_command(click.Context(gpukpca), name)
        names = [" ".join([*one.opts, *one.secondary_opts]) for one in command.params]
        found += [f"gpukpca {name}", *(f"    {one}" for one in names)]
    return found


def order(name: str) -> tuple[int, str]:
    """The order of isort: constants, classes, the rest."""
    return (0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2, name)


@each("room", [*ROOMS, "gpukpca.exceptions"])
def test_all_is_sorted_and_without_repetition(room):
    names = list(import_module(room).__all__)
    assert names == sorted(set(names), key=order)


@pytest.mark.parametrize("room", ROOMS)
def test_all_is_complete(room):
    """Every name that an __init__ imports from the package is in its __all__, or a room that is imported when used."""
    module = import_module(room)
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module.startswith("gpukpca") and node.module != "gpukpca._former"
        for alias in node.names
    }
    assert imported <= {*module.__all__, *getattr(module, "_ROOMS", ())}


def test_the_public_interface_is_the_one_that_is_listed():
    """A change of `public_api.txt` is one for users: it belongs to the changes, and from 1.0 on to the deprecations."""
    pytest.importorskip("click")
    assert listing().splitlines() == LISTING.read_text(encoding="utf-8").splitlines()


def test_only_public_rooms_export():
    files = Path(gpukpca.__file__).parent.rglob("*.py")
    exporting = {file for file in files if "\n__all__ =" in file.read_text(encoding="utf-8")}
    assert exporting == {Path(import_module(room).__file__) for room in (*ROOMS, "gpukpca.exceptions")}


def test_a_folder_exports_names_or_says_that_it_is_internal():
    folder = Path(gpukpca.__file__).parent
    for file in folder.rglob("__init__.py"):
        room = ".".join(("gpukpca", *file.parent.relative_to(folder).parts))
        doc = import_module(room).__doc__
        assert doc.endswith("\n\nInternal: it may change in any version.\n") == (room not in ROOMS), room


def test_a_room_below_the_top_exports_what_no_other_does():
    names = [name for room in ROOMS[1:] for name in import_module(room).__all__]
    assert len(names) == len({*names, "Plan", "Progress", "load", "save"}) - 4


def test_what_is_imported_late_is_what_type_checkers_see():
    tree = ast.parse(Path(gpukpca.__file__).read_text(encoding="utf-8"))
    declared = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module.startswith("gpukpca")
        for alias in node.names
    }
    assert set(declared) == {*gpukpca.__all__, *gpukpca._ROOMS}
    assert set(gpukpca.__all__) <= set(dir(gpukpca))
    for name in gpukpca.__all__:
        found = getattr(gpukpca, name)
        assert found is getattr(import_module(declared[name]), name)
        assert getattr(gpukpca, name) is found
    with pytest.raises(AttributeError, match="module 'gpukpca' has no attribute 'KernelPca'"):
        gpukpca.KernelPca  # noqa: B018


@pytest.mark.parametrize(
    "code",
    [
        "import gpukpca; gpukpca.kernels.RBF(); gpukpca.decomposition.PCA(); gpukpca.plotting.AxesDisplay",
        "from gpukpca import *; LocalPCA(); load; kernels.RBF()",
    ],
)
@forks
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_every_way_to_a_name_works_where_nothing_is_imported(code):
    without_modules(("gpukpca",), (), code)


def test_every_exception_is_exported_and_documented():
    module = gpukpca.exceptions
    classes = {
        name for name, value in vars(module).items() if inspect.isclass(value) and value.__module__ == module.__name__
    }
    assert classes == set(module.__all__)
    assert all(getattr(module, name).__doc__ for name in classes)


def test_the_import_alone_opens_nothing_that_takes_time():
    assert not imported_by("import gpukpca") & {"numpy", "scipy", "sklearn"}


def test_the_help_of_the_program_opens_nothing_that_takes_time():
    code = (
        "from click.testing import CliRunner; from gpukpca.cli.app import gpukpca; CliRunner().invoke(gpukpca, ['-h'])"
    )
    assert not imported_by(code) & {"numpy", "scipy", "sklearn", "rich", "polars"}


def imported_by(code: str) -> set[str]:
    """The packages in memory after the code ran, without a word, in a fresh process."""
    code += "\nimport sys; print(*{name.split('.')[0] for name in sys.modules})"
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert run.stderr == ""
    return set(run.stdout.split())


def test_citation_and_changes_state_the_version_and_the_same_date():
    root = Path(__file__).resolve().parents[1]
    citation = (root / "CITATION.cff").read_text(encoding="utf-8")
    stated = re.search(r"^version: (\S+)\ndate-released: (\S+)$", citation, flags=re.M)
    heading = re.search(r"^## (\S+) \((\S+)\)$", (root / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.M)
    assert stated is not None
    assert heading is not None
    assert heading[2] == "unreleased" or heading.groups() == stated.groups() == (gpukpca.__version__, stated[2])


def test_the_version_is_the_one_of_the_distribution():
    from importlib.metadata import version

    assert gpukpca.__version__ == version("gpukpca")


if __name__ == "__main__":
    LISTING.write_text(listing(), encoding="utf-8", newline="\n")
