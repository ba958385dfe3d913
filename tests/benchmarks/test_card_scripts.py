"""The scripts for a card: what they run, keep, count and refuse."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpukpca.cuda.device import probe

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("bash") is None, reason="the scripts need bash 4 and the tools of Linux"
)


def script(*command: str, folder: Path = ROOT, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHON": sys.executable, "GPUKPCA_TESTS_WITHOUT": "torch jax"} | settings
    return subprocess.run(
        ["bash", *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture
def bare_python(tmp_path: Path) -> str:
    """A Python that has the standard library alone."""
    file = tmp_path / "python"
    file.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n', encoding="utf-8")
    file.chmod(0o755)
    return str(file)


FAILING = """import numpy, pytest
@pytest.fixture(params=["cupy"])
def xp(request): return request.param
def test_tolerance(xp): numpy.testing.assert_allclose(1.0, 2.0)
def test_assertion(xp): assert 1 > 2
def test_code(xp): xp.no_such_attribute
"""


def test_suite_on_a_card_survives_broken_files_and_counts_all_processes(stand_in: Any, tmp_path: Path) -> None:
    broken = tmp_path / "test_broken.py"
    broken.write_text("import a_module_of_no_name\n", encoding="utf-8")
    failing = tmp_path / "test_failing.py"
    failing.write_text(FAILING, encoding="utf-8")
    small = "tests/gram/test_low_rank.py::test_no_columns_at_all"
    large = "tests/test_large.py::test_tall_arrays_of_more_entries_than_32_bits_count"
    done = script(
        "ci/test_gpu.sh", "-q", str(broken), str(failing), small, large, JOBS="2", CUPY_ON_CPU_MEMORY=str(2**34)
    )
    assert done.returncode == 1
    assert "No module named 'a_module_of_no_name'" in done.stdout
    together, alone = done.stdout.split("tests passed on CuPy: ")[1:]
    assert together.startswith("1\n")
    assert "1 skipped" in alone
    assert "\n1 tests passed on CuPy in all." in alone
    # The test of a tolerance, and the plain assertion; the missing attribute, and in both runs the broken file.
    assert "\n2 assertions failed, tolerances among them; 3 failures by another error.\n" in alone
    assert "test_code[cupy]: AttributeError" in together


@pytest.mark.parametrize("command", [["ci/test_gpu.sh"], ["ci/bench.sh", "--gpu"], ["ci/gpu_session.sh", "out"]])
def test_missing_packages_are_named_with_the_commands_that_bring_them(command: list[str], bare_python: str) -> None:
    done = script(*command, PYTHON=bare_python)
    assert done.returncode == 1
    assert "array-api-compat" in done.stderr.splitlines()[0]
    assert "pip download" in done.stderr
    assert "'array-api-compat>=" in done.stderr
    assert "pip install --no-index --find-links wheels --target lib" in done.stderr


@pytest.mark.parametrize(
    ("installed", "is_old"), [("1.7.2", True), ("1.8", False), ("1.8.0rc1", False), ("1.10", False), ("0.9+cpu", True)]
)
def test_packages_that_are_too_old_are_named_with_both_versions(
    bare_python: str, tmp_path: Path, installed: str, is_old: bool
) -> None:
    needed = {"numpy": "2.3", "scipy": "1.15", "array_api_compat": "1.12", "threadpoolctl": "3.5", "safetensors": "0.5"}
    for name, version in (needed | {"scikit_learn": installed}).items():
        (tmp_path / f"{'sklearn' if name == 'scikit_learn' else name}.py").touch()
        metadata = tmp_path / f"{name}-{version}.dist-info" / "METADATA"
        metadata.parent.mkdir()
        metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
    command = [bare_python, str(ROOT / "ci" / "missing.py")]
    done = subprocess.run(
        command, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, timeout=120, check=False
    )
    if not is_old:
        assert (done.returncode, done.stderr) == (0, "")
        return
    assert done.returncode == 1
    assert done.stderr.splitlines()[0].endswith(f" lacks scikit-learn 1.8 or newer (it has {installed}).")
    assert "'scikit-learn>=1.8'" in done.stderr


@pytest.mark.skipif(probe()[0], reason="there is a device")
@pytest.mark.parametrize("command", [["ci/bench.sh", "--gpu", "--record"], ["ci/gpu_session.sh"]])
def test_without_a_device_one_sentence_and_status_1(tmp_path: Path, command: list[str]) -> None:
    done = script(*command, str(tmp_path / "out"))
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    assert done.stderr.startswith("No CUDA device that CuPy can use")
    assert not list(tmp_path.iterdir())


# -- the session -------------------------------------------------------------------------------------------------------

PARTS = ["versions", "contact", "shapes", "ceilings", "suite", "headline", "solvers", "million", "crossover"]
RECORDED = ["ceilings", "headline", "solvers", "million", "crossover"]
# In place of Python: benchmarks write a record, whose entry is of a case without time where LATE names the record; a
# test runs on CuPy; everything else succeeds.
STAND_IN = """#!/bin/sh
record=
for argument in "$@"; do
    [ "$before" != --record ] || record="$argument"
    before="$argument"
done
case "$record" in
"") ;;
*/"$LATE".json) echo '{"machine": {}, "entries": [{"outcome": "not run: no time left"}]}' >"$record"; exit 1 ;;
*) echo '{"machine": {}, "entries": []}' >"$record" ;;
esac
case "$*" in
*cpu_count*) echo 2 ;;
*pytest*) echo "tests passed on CuPy: ${RAN:-1}"; echo "kernels in $CUPY_CACHE_DIR" ;;
esac
"""


@pytest.fixture
def session(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a session in ``tmp_path / "out"`` with a stand-in for Python; settings are of its environment."""
    python = tmp_path / "python"
    python.write_text(STAND_IN, encoding="utf-8")
    python.chmod(0o755)
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "kernel.cubin").write_text("compiled", encoding="utf-8")
    usual = {"PYTHON": str(python), "CUPY_CACHE_DIR": str(cache), "LATE": "none"}
    command = (str(ROOT / "ci" / "gpu_session.sh"), "out")
    return lambda *parts, **settings: script(*command, *parts, folder=tmp_path, **(usual | settings))


def statuses(out: Path) -> list[str]:
    return [line.partition(" after ")[0] for line in (out / "status.txt").read_text(encoding="utf-8").splitlines()]


def test_parts_run_in_order_and_once(session: Callable[..., Any], tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = session(LATE="headline")
    assert first.returncode == 1
    expected = [f"{part}: passed" for part in PARTS]
    expected[5] = "headline: out of time"
    assert statuses(out) == expected
    # The next session runs what had no time, and a named part though it has ended.
    again = session()
    assert again.returncode == 0
    assert statuses(out)[9:] == ["headline: passed"]
    assert [line.split(":")[0] for line in again.stdout.splitlines() if "ended before" in line] == PARTS[:5] + PARTS[6:]
    session("million")
    assert statuses(out)[10:] == ["million: passed"]
    # A part whose record is lost has not ended.
    (out / "solvers.json").unlink()
    session()
    assert statuses(out)[11:] == ["solvers: passed"]
    assert session("lunch").returncode == 2


def test_a_session_leaves_few_files_and_one_archive(session: Callable[..., Any], tmp_path: Path) -> None:
    out = tmp_path / "out"
    session()
    records = {f"{part}.json" for part in RECORDED}
    assert {file.name for file in out.iterdir()} == {"status.txt", "session.log", "session.tar.gz", *records}
    with tarfile.open(out / "session.tar.gz") as archive:
        names = {member.name for member in archive if member.isfile()}
    assert names == {"status.txt", "session.log", "kernel_cache/kernel.cubin", *records}
    # Another machine begins with the kernels of this one.
    elsewhere = tmp_path / "elsewhere"
    session("ceilings", CUPY_CACHE_DIR=str(elsewhere))
    assert (elsewhere / "kernel.cubin").read_text(encoding="utf-8") == "compiled"
    # A cache that is too large stays where it is.
    (elsewhere / "large").write_bytes(os.urandom(17 * 2**20))
    done = session("ceilings", CUPY_CACHE_DIR=str(elsewhere))
    assert "The archive has no kernel cache" in done.stdout
    assert (out / "session.tar.gz").stat().st_size < 2**20


def test_a_relative_cache_is_one_folder_beside_the_caller(session: Callable[..., Any], tmp_path: Path) -> None:
    session("suite", CUPY_CACHE_DIR="cache")
    assert f"kernels in {tmp_path / 'cache'}\n" in (tmp_path / "out" / "session.log").read_text(encoding="utf-8")
    with tarfile.open(tmp_path / "out" / "session.tar.gz") as archive:
        assert "kernel_cache/kernel.cubin" in archive.getnames()
    session("ceilings", CUPY_CACHE_DIR="new")
    assert (tmp_path / "new" / "kernel.cubin").read_text(encoding="utf-8") == "compiled"
    settings = {"PYTHON": str(tmp_path / "python"), "CUPY_CACHE_DIR": "cache"}
    suite = script(str(ROOT / "ci" / "test_gpu.sh"), folder=tmp_path, **settings)
    assert f"kernels in {tmp_path / 'cache'}\n" in suite.stdout


@pytest.mark.parametrize(("status", "holds_cache"), [(1, True), (2, False)])
def test_an_error_of_tar_costs_the_kernel_cache_at_most(
    session: Callable[..., Any], tmp_path: Path, status: int, holds_cache: bool
) -> None:
    """Status 1: a file changed as it was read. Status 2: a file could not be read."""
    tar = tmp_path / "bin" / "tar"
    tar.parent.mkdir()
    fails = f'case "$*" in *kernel_cache*) exit {status} ;; esac'
    tar.write_text(f'#!/bin/sh\n{shutil.which("tar")} "$@" || exit\n{fails}\n', encoding="utf-8")
    tar.chmod(0o755)
    done = session("suite", PATH=f"{tar.parent}{os.pathsep}{os.environ['PATH']}")
    with tarfile.open(tmp_path / "out" / "session.tar.gz") as archive:
        names = {member.name for member in archive if member.isfile()}
    assert {"status.txt", "session.log"} <= names
    assert ("kernel_cache/kernel.cubin" in names) is holds_cache
    assert ("The archive has no kernel cache" in done.stdout) is not holds_cache


def limits(out: Path) -> list[int]:
    """Return the most seconds of every command in the log."""
    return [int(seconds) for seconds in re.findall(r"\(at most (\d+) s\)", (out / "session.log").read_text("utf-8"))]


def test_a_part_that_may_not_end_in_time_is_left_and_never_cut(session: Callable[..., Any], tmp_path: Path) -> None:
    out = tmp_path / "out"
    short = session(SECONDS_IN_ALL="200")
    assert short.returncode == 0
    assert statuses(out) == [f"{part}: passed" for part in PARTS[:4]]
    left = re.findall(
        r"^(\w+): left for the next call: it may take (\d+) s, and 1[5-9]\d s are left$", short.stdout, re.M
    )
    assert [(part, int(seconds)) for part, seconds in left] == [
        *(("suite", 510), ("headline", 510), ("solvers", 300), ("million", 510), ("crossover", 510))
    ]
    # A shorter part takes the place of those that are left.
    session(SECONDS_IN_ALL="320")
    assert statuses(out)[4:] == ["solvers: passed"]
    # Ten minutes suffice for each part.
    assert session(SECONDS_IN_ALL="570").returncode == 0
    assert statuses(out)[5:] == [f"{part}: passed" for part in PARTS if part not in (*PARTS[:4], "solvers")]
    assert max(limits(out)) <= 510


def test_records_of_a_session_that_is_killed_are_in_its_folder(session: Callable[..., Any], tmp_path: Path) -> None:
    """The archive is made at the end."""
    python = tmp_path / "python"
    killed = STAND_IN + 'case "$record" in */headline.json) kill -9 "$(cat "$SESSION")" ;; esac\n'
    python.write_text(
        killed.replace("record=\n", 'record=\nSESSION="$(dirname "$0")/session.pid"\n', 1), encoding="utf-8"
    )
    command = f'echo $$ >session.pid; exec bash "{ROOT}/ci/gpu_session.sh" out'
    environment = os.environ | {"PYTHON": str(python), "CUPY_CACHE_DIR": str(tmp_path / "cache"), "LATE": "none"}
    subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, timeout=120, check=False
    )
    out = tmp_path / "out"
    assert statuses(out) == [f"{part}: passed" for part in PARTS[:5]]
    assert (out / "ceilings.json").exists()
    assert not (out / "session.tar.gz").exists()


def test_suite_on_a_card_fails_where_no_test_ran_on_it(session: Callable[..., Any], tmp_path: Path) -> None:
    assert session("suite").returncode == 0
    assert session("suite", RAN="0").returncode == 1
    assert "No test ran on CuPy." in (tmp_path / "out" / "session.log").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["bench", "compile_kernels", "gpu_session", "test_blas", "test_gpu"])
def test_a_python_that_is_not_there_is_named(tmp_path: Path, name: str) -> None:
    done = script(f"ci/{name}.sh", str(tmp_path), PYTHON="no-such-python")
    assert done.returncode == 2
    assert done.stderr == "There is no program no-such-python. Set PYTHON to a Python of version 3.11 or newer.\n"
