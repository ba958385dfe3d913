"""What the rooms export: complete and sorted."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import gpukpca
from tests.each import each
from tests.hostile import forks, without_modules

ROOMS = [
    *("gpukpca", "gpukpca.algorithms", "gpukpca.backend", "gpukpca.datasets", "gpukpca.decomposition"),
    *("gpukpca.eigen", "gpukpca.gram", "gpukpca.kernels", "gpukpca.model_selection", "gpukpca.plotting"),
]


def order(name: str) -> tuple[int, str]:
    """The order of isort: constants, classes, the rest."""
    return (0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2, name)


@each("room", [*ROOMS, "gpukpca.exceptions"])
def test_all_is_sorted_and_without_repetition(room):
    names = list(import_module(room).__all__)
    assert names == sorted(set(names), key=order)


@pytest.mark.parametrize("room", ROOMS)
def test_all_is_complete(room):
    """Every name that an __init__ imports from the package is in its __all__."""
    tree = ast.parse(Path(import_module(room).__file__).read_text(encoding="utf-8"))
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module.startswith("gpukpca")
        for alias in node.names
    }
    assert imported <= set(import_module(room).__all__)


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
    assert set(declared) == set(gpukpca.__all__)
    assert set(gpukpca.__all__) <= set(dir(gpukpca))
    for name, module in declared.items():
        found = getattr(gpukpca, name)
        assert found is getattr(import_module(module), name)
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
