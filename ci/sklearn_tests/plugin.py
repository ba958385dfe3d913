"""Runs scikit-learn's own tests on the classes of gpukpca: a plugin of pytest for `ci/test_sklearn.sh`.

The test files are those of the installed scikit-learn. While one of them is imported, the module
`sklearn.decomposition` has the classes of gpukpca. Tests in `deviations.toml` must fail.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sklearn
import sklearn.decomposition
import sklearn.utils.estimator_checks  # before the classes are replaced: it has tables by class

import gpukpca
from tests.conftest import reset

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "reference" / "deviations.md"
CLASSES = {name: getattr(gpukpca, name) for name in ("PCA", "KernelPCA", "IncrementalPCA")}
FOLDER = Path(sklearn.decomposition.__file__).parent / "tests"
# What is wrong with the table or the test files; `test_table.py` fails with it. A hook of a worker could not say it.
ERRORS: list[str] = []


def reason_of(label: str) -> str:
    """Return what the page of deviations says after a label."""
    line = rf"^- \*\*{re.escape(label)}\.\*\* (.*(?:\n  .*)*)"
    text = re.search(line, PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    if text is None:
        ERRORS.append(f"docs/reference/deviations.md has no line «{label}».")
    return f"{label}. {' '.join(text[1].split()) if text else ''}"


def pytest_report_header() -> str:
    """Say which tests run on what."""
    classes = ", ".join(CLASSES)
    return f"The tests of scikit-learn {sklearn.__version__} of {classes} run on gpukpca {gpukpca.__version__}."


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[Any]:
    """Import a test file with the classes of gpukpca in place of those of scikit-learn."""
    with pytest.MonkeyPatch.context() as patch:
        if isinstance(collector, pytest.Module) and collector.path.parent == FOLDER:
            for name, kind in CLASSES.items():
                patch.setattr(sklearn.decomposition, name, kind)
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Expect the tests of the table to fail."""
    theirs = [item for item in items if item.path.parent == FOLDER]
    for module in {item.module for item in theirs}:  # type: ignore[attr-defined]
        if any(getattr(module, name, kind) is not kind for name, kind in CLASSES.items()):
            ERRORS.append(f"{module.__name__} was imported before, and tests scikit-learn itself.")
    for label, patterns in tomllib.loads((HERE / "deviations.toml").read_text(encoding="utf-8")).items():
        mark = pytest.mark.xfail(strict=True, reason=reason_of(label))
        for pattern in patterns:
            some = [item for item in theirs if re.fullmatch(pattern, f"{item.path.name}::{item.name}")]
            if not some:
                ERRORS.append(f"scikit-learn {sklearn.__version__} has no test {pattern} of deviations.toml.")
            for item in some:
                item.add_marker(mark)


def pytest_runtest_setup() -> None:
    """Start every test from one state: some of them draw from NumPy's global generator."""
    reset()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say why tests were skipped, and how many show each deviation."""
    skipped = (report.longrepr[2].removeprefix("Skipped: ") for report in terminalreporter.getreports("skipped"))
    for reason, count in Counter(skipped).items():
        terminalreporter.write_line(f"{count:4} tests were skipped: {reason}")
    for reason, count in Counter(report.wasxfail for report in terminalreporter.getreports("xfailed")).items():
        terminalreporter.write_line(f"{count:4} tests fail as documented: {reason}")
