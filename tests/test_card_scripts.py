"""The scripts for a card, run on the imitation of CuPy: what they run, keep, count and refuse."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.skipif(not (ROOT / "ci").is_dir(), reason="the scripts are not part of the package")


def script(*command: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHON": sys.executable, "GPUKPCA_TESTS_WITHOUT": "torch jax"} | settings
    return subprocess.run(
        ["bash", *command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def on_imitation(*command: str, **settings: str) -> subprocess.CompletedProcess[str]:
    if find_spec("cupy") is not None:
        pytest.skip("the real CuPy is installed, and the imitation must not hide it")
    return script("ci/on_imitation.sh", *command, **settings)


@pytest.fixture
def bare_python(tmp_path: Path) -> str:
    """A Python that has the standard library alone."""
    file = tmp_path / "python"
    file.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    file.chmod(0o755)
    return str(file)


def test_suite_on_a_card_survives_broken_files_and_counts_all_processes(tmp_path: Path) -> None:
    broken = tmp_path / "test_broken.py"
    broken.write_text("import a_module_of_no_name\n")
    large = "tests/test_large.py::test_tall_arrays_of_more_entries_than_32_bits_count"
    done = on_imitation("bash", "ci/test_gpu.sh", "-q", str(broken), "tests/test_gap.py", large, JOBS="2")
    assert done.returncode == 1
    assert "No module named 'a_module_of_no_name'" in done.stdout
    together, alone = done.stdout.split("tests passed on CuPy: ")[1:]
    assert together.startswith("6\n")
    assert "1 skipped" in alone
    assert "\n6 tests passed on CuPy in all." in alone


def test_suite_on_a_card_fails_where_no_test_ran_on_it() -> None:
    done = on_imitation("bash", "ci/test_gpu.sh", "-q", "tests/test_gap.py", "-k", "numpy", "-n", "0")
    assert done.returncode == 1
    assert "No test ran on CuPy." in done.stderr


@pytest.mark.parametrize("command", [["ci/test_gpu.sh"], ["ci/bench.sh", "--gpu"], ["ci/gpu_session.sh", "out"]])
def test_missing_packages_are_named_with_the_commands_that_bring_them(command: list[str], bare_python: str) -> None:
    done = script(*command, PYTHON=bare_python)
    assert done.returncode == 1
    assert "array-api-compat" in done.stderr.splitlines()[0]
    assert "pip download" in done.stderr
    assert "'array-api-compat>=" in done.stderr
    assert "pip install --no-index --find-links wheels --target lib" in done.stderr
