"""What the rooms export: complete, sorted, documented."""

from __future__ import annotations

import ast
import doctest
import inspect
import io
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import gpukpca
from tests.hostile import forks, without_modules

ROOMS = ["gpukpca", "gpukpca.backend", "gpukpca.kernels", "gpukpca.gram", "gpukpca.eigen", "gpukpca.decomposition"]
NAMES = [(room, name) for room in ROOMS for name in import_module(room).__all__]
PUBLIC = {f"{room}.{name}": getattr(import_module(room), name) for room, name in NAMES if name not in ("__version__",)}
FUNCTIONS = {name: value for name, value in PUBLIC.items() if inspect.isfunction(value)}
CLASSES = {name: value for name, value in PUBLIC.items() if inspect.isclass(value)}


def order(name: str) -> tuple[int, str]:
    """The order of isort: constants, classes, the rest."""
    return (0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2, name)


@pytest.mark.parametrize("room", [*ROOMS, "gpukpca.exceptions"])
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
        "import gpukpca; gpukpca.kernels.RBF(); gpukpca.decomposition.PCA(); gpukpca.plotting.LocalDisplay",
        "from gpukpca import *; LocalPCA(); load; kernels.RBF()",
    ],
)
@forks
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_every_way_to_a_name_works_where_nothing_is_imported(code):
    without_modules(("gpukpca",), (), code)


def test_every_public_name_is_documented():
    assert not [name for name, value in PUBLIC.items() if len(inspect.getdoc(value) or "") <= 10]


@pytest.mark.parametrize("name", [name for name, value in PUBLIC.items() if ">>>" in (inspect.getdoc(value) or "")])
def test_examples_of_docstrings_run_as_they_are_written(name):
    finder = doctest.DocTestFinder(recurse=inspect.isclass(PUBLIC[name]))
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    report = io.StringIO()
    for test in finder.find(PUBLIC[name], name):
        runner.run(test, out=report.write)
    assert not runner.failures, report.getvalue()
    assert runner.tries


def test_every_exception_is_exported_and_documented():
    module = gpukpca.exceptions
    classes = {
        name for name, value in vars(module).items() if inspect.isclass(value) and value.__module__ == module.__name__
    }
    assert classes == set(module.__all__)
    assert all(getattr(module, name).__doc__ for name in classes)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_public_functions_have_numpydoc_docstrings(name):
    function = FUNCTIONS[name]
    text = inspect.getdoc(function)
    parameters = list(inspect.signature(function).parameters)
    if parameters:
        assert "Parameters\n----------" in text
        assert "Returns\n-------" in text or inspect.signature(function).return_annotation == "None"
    for parameter in parameters:
        assert parameter in text.split("Returns\n")[0]


@pytest.mark.parametrize("name", CLASSES)
def test_public_classes_document_what_they_are_made_of(name):
    cls = CLASSES[name]
    text = inspect.getdoc(cls)
    parameters = [p for p in inspect.signature(cls.__init__).parameters if p not in ("self", "args", "kwargs")]
    if parameters:
        assert "Parameters\n----------" in text or "Attributes\n----------" in text
    for parameter in parameters:
        assert parameter in text


@pytest.mark.parametrize("name", [name for name in CLASSES if hasattr(CLASSES[name], "_layout")])
def test_every_fitted_attribute_is_documented(name):
    cls = CLASSES[name]
    text = " ".join(base.__doc__ or "" for base in cls.__mro__ if base.__module__.startswith("gpukpca"))
    assert not [attribute for attribute in cls._layout.fitted if attribute[0] != "_" and attribute not in text]


METHODS = [
    (name, method)
    for name, cls in CLASSES.items()
    for method, value in vars(cls).items()
    if not method.startswith("_") and (inspect.isfunction(value) or isinstance(value, property | classmethod))
]


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


def test_every_module_says_what_it_is_for():
    files = sorted(Path(gpukpca.__file__).parent.rglob("*.py"))
    assert not [file for file in files if not ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))]


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


def test_the_version_is_the_one_of_the_distribution():
    from importlib.metadata import version

    assert gpukpca.__version__ == version("gpukpca")
