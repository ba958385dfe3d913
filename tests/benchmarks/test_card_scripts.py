"""The scripts for a card: what they run, keep, count and refuse."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark.expression import Expression

pytest.importorskip("benchmarks", reason="the benchmarks are not part of the package")

from benchmarks import contest
from benchmarks.gpu_cases import SWEEPS, TRIALS
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
    ("installed", "is_old"), [("1.6.2", True), ("1.7", False), ("1.7.0rc1", False), ("1.10", False), ("0.9+cpu", True)]
)
def test_packages_that_are_too_old_are_named_with_both_versions(
    bare_python: str, tmp_path: Path, installed: str, is_old: bool
) -> None:
    needed = {"numpy": "2.2", "scipy": "1.15", "array_api_compat": "1.11", "threadpoolctl": "3.5", "safetensors": "0.5"}
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
    assert done.stderr.splitlines()[0].endswith(f" lacks scikit-learn 1.7 or newer (it has {installed}).")
    assert "'scikit-learn>=1.7'" in done.stderr


@pytest.mark.skipif(probe()[0], reason="there is a device")
@pytest.mark.parametrize("command", [["ci/bench.sh", "--gpu", "--record"], ["ci/gpu_session.sh"]])
def test_without_a_device_one_sentence_and_status_1(tmp_path: Path, command: list[str]) -> None:
    done = script(*command, str(tmp_path / "out"))
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    assert done.stderr.startswith("No CUDA device that CuPy can use")
    assert not list(tmp_path.iterdir())


# -- the session: scheduling ------------------------------------------------------------------------------------------


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`ci/gpu_session.py`."""
    spec = importlib.util.spec_from_file_location("gpu_session", ROOT / "ci" / "gpu_session.py")
    made = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, made)
    spec.loader.exec_module(made)
    return made


class Invented:
    """Parts that take the seconds that a test says, and end as it says; nothing runs."""

    def __init__(self, module: Any, out: Path, **limits: int) -> None:
        self.module, self.out, self.now, self.ran = module, out, 0.0, []
        self.parts = [module.Part(name, limit, "invented") for name, limit in limits.items()]
        self.takes: dict[str, float] = {}
        self.ends: dict[str, tuple[int, str]] = {}

    def call(self, total: float, *names: str, done: Sequence[str] = ()) -> bool:
        def run(part: Any, out: Path) -> tuple[int, str]:
            self.ran.append(part.name)
            self.now += self.takes.get(part.name, 1.0)
            return self.ends.get(part.name, (0, ""))

        self.ran.clear()
        session = self.module.Session(self.out, self.parts, {"gpu": "a card", "driver": "1.2"}, done)
        return session.play(total, names, run, lambda: self.now)


def test_parts_run_in_order_while_they_fit_and_later_calls_run_the_rest(
    module: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    invented = Invented(module, tmp_path, first=30, long=80, short=20, last=10)
    invented.takes = {"first": 25.0, "short": 20.0}
    assert invented.call(module.PACKING + 75)
    # 50 seconds are left for the second, 30 for the last.
    assert invented.ran == ["first", "short", "last"]
    output = capsys.readouterr().out
    assert "\nlong: waits for the next call: it may take 80 s, and 50 s are left\n" in output
    table = output[output.index("part  ") :].splitlines()
    assert [line.split() for line in table[1:5]] == [
        ["first", "30", "25.0", "0", "0", "passed"],
        ["long", "80", "waits"],
        ["short", "20", "20.0", "0", "0", "passed"],
        ["last", "10", "1.0", "0", "0", "passed"],
    ]
    assert table[5] == 'In another folder: DONE="first short last"'
    # No part is cut: one second less than its limit, and it waits again.
    invented.call(module.PACKING + 79)
    assert invented.ran == []
    invented.call(module.PACKING + 80)
    assert invented.ran == ["long"]
    assert capsys.readouterr().out.endswith("No part is left.\n")
    # A named part runs again, in the order given.
    invented.call(100, "short", "first")
    assert invented.ran == ["short", "first"]


def test_a_call_elsewhere_is_told_what_ended(module: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    invented = Invented(module, tmp_path, first=30, second=30, third=30)
    invented.call(1000, done=["first", "third"])
    assert invented.ran == ["second"]
    assert "first           30                               ended before\n" in capsys.readouterr().out


def test_crashes_end_their_part_alone_and_what_was_late_runs_again(module: Any, tmp_path: Path) -> None:
    invented = Invented(module, tmp_path, good=30, failed=30, crashed=30, killed=30, late=30, last=30)
    told = "failed assertions, tolerances among them: 2\nfailures of code: 0\n" * 2 + "failures of code: 5\n"
    invented.ends = {
        "failed": (1, told),
        "crashed": (139, "Segmentation fault\n"),
        "killed": (137, ""),
        "late": (124, told),
    }
    invented.takes = {"late": 30.1}
    assert not invented.call(1000)
    rows = [json.loads(line) for line in (tmp_path / "parts.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [(row["part"], row["result"], row["assertions"], row["errors"]) for row in rows] == [
        ("good", "passed", 0, 0),
        ("failed", "failed", 4, 5),
        ("crashed", "failed", 0, 1),
        ("killed", "failed", 0, 1),  # and not for want of time
        ("late", "out of time", 4, 5),
        ("last", "passed", 0, 0),
    ]
    assert {(row["machine"]["gpu"], row["machine"]["driver"]) for row in rows} == {("a card", "1.2")}
    log = (tmp_path / "session.log").read_text(encoding="utf-8")
    assert log.count('"driver": "1.2"') == 6
    assert "== crashed: failed after 1 s" in log
    invented.takes = {}
    invented.ends = {}
    assert invented.call(1000)
    assert invented.ran == ["late"]


def test_rows_of_benchmarks_are_counted_by_what_failed(module: Any) -> None:
    row = "FAILED benchmarks/bench_gpu.py::test_trial[gpu-cached-100000-gpukpca on CuPy, dense]"
    text = "\n".join(
        [
            f"{row} - AssertionError: gpukpca on CuPy, dense",
            f"{row} - AssertionError: gpukpca on CuPy, dense computed on cpu",
            f"{row} - assert 3 < 2",
            f"{row} - AssertionError: gpukpca on CuPy, dense: MemoryError: too large",
            f"{row} - KeyError: 'median'",
            "ERROR benchmarks/bench_gpu.py::test_trial[x] - ValueError",
            "FAILED tests/test_x.py::test_x - KeyError: 'counted by the suite itself'",
        ]
    )
    part = module.Part("part", 30, "invented")
    found = module.judged(part, 1, text, "", 20.0)
    assert (found["result"], found["assertions"], found["errors"]) == ("failed", 3, 3)
    # A row that had no time fails too; that is no wrong answer.
    found = module.judged(part, 1, text, json.dumps({"entries": [{"outcome": contest.NO_TIME}]}, indent=1), 20.0)
    assert (found["result"], found["assertions"], found["errors"]) == ("out of time", 2, 3)


def test_a_part_is_interrupted_first_so_that_it_can_say_what_failed(module: Any, tmp_path: Path) -> None:
    told = "failures of code: 3"
    script = f"trap 'echo {told}; exit 1' INT; read -r line < <(tail -f /dev/null)"
    status, text = module.executed(module.Part("part", 1, script), tmp_path)
    assert (status, text.strip()) == (124, told)
    assert not list(tmp_path.iterdir())


def test_parts_fit_into_their_calls_and_measure_every_case_once(module: Any) -> None:
    parts = {part.name: part for part in module.parts(is_quick=False)}
    assert list(parts) == PARTS
    assert module.PACKING + sum(parts[name].limit for name in PARTS[:5]) <= 540
    assert module.PACKING + max(part.limit for part in parts.values()) <= 540
    usage = (ROOT / "ci" / "gpu_session.sh").read_text(encoding="utf-8")
    assert re.findall(r"^#   (\w+) +(\d+)  ", usage, re.MULTILINE) == [
        (name, str(part.limit)) for name, part in parts.items()
    ]
    cases = [f"test_trial[{case.name}-" for case, _ in TRIALS]
    cases += [f"test_sweep_on_card[{case.name}-" for family in SWEEPS.values() for case in family]
    times = Counter()
    for part in parts.values():
        if selection := re.search('-k "(.*?)"', part.command):
            expression = Expression.compile(selection[1])
            matched = [case for case in cases if expression.evaluate(lambda word, case=case, **_: word in case)]
            assert matched, part.name
            times.update(matched)
    assert times == Counter(cases)


# -- the session: the script ------------------------------------------------------------------------------------------

PARTS = ["versions", "contact", "shapes", "headline", "suite", "million", "peers", "targets", "crossover"]
RECORDED = ["headline", "million", "peers", "targets", "crossover"]
# In place of Python: benchmarks write a record; a test runs on CuPy; everything else but the session succeeds.
STAND_IN = """#!/bin/sh
record=
for argument in "$@"; do
    [ "$before" != --record ] || record="$argument"
    before="$argument"
done
[ -z "$record" ] || echo '{"machine": {}, "entries": []}' >"$record"
case "$*" in
*gpu_session.py*) exec "$REAL_PYTHON" "$@" ;;
*benchmarks.machine*) echo '{"gpu": "a card"}' ;;
*cpu_count*) echo 2 ;;
*"-m pip"*) echo "installs $*" >&2 ;;
*pytest*) echo "tests passed on CuPy: ${RAN:-1}"; echo "kernels in $CUPY_CACHE_DIR; path $PYTHONPATH" ;;
esac
"""


@pytest.fixture
def session(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a session in ``tmp_path / "out"`` with a stand-in for Python; settings are of its environment."""
    python = tmp_path / "python"
    python.write_text(STAND_IN, encoding="utf-8")
    python.chmod(0o755)
    usual = {"PYTHON": str(python), "REAL_PYTHON": sys.executable, "SECONDS_IN_ALL": "3000"}
    command = (str(ROOT / "ci" / "gpu_session.sh"), "out")
    return lambda *parts, **settings: script(*command, *parts, folder=tmp_path, **(usual | settings))


def test_a_session_leaves_few_files_and_one_archive(session: Callable[..., Any], tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = session()
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout.endswith("No part is left.\n")
    rows = [json.loads(line) for line in (out / "parts.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [(row["part"], row["result"]) for row in rows] == [(part, "passed") for part in PARTS]
    records = {f"{part}.json" for part in RECORDED}
    assert {file.name for file in out.iterdir()} == {"parts.jsonl", "session.log", "session.tar.gz", *records}
    with tarfile.open(out / "session.tar.gz") as archive:
        names = {member.name for member in archive if member.isfile()}
    assert names == {"parts.jsonl", "session.log", *records}
    lost = session("lunch")
    assert lost.returncode == 2
    assert lost.stderr == f"There is no part «lunch»; parts are {', '.join(PARTS)}.\n"
    assert session(DONE="lunch").returncode == 2


def test_settings_of_a_session_reach_its_parts(session: Callable[..., Any], tmp_path: Path) -> None:
    wheel = tmp_path / "wheels" / "a.whl"
    wheel.parent.mkdir()
    wheel.touch()
    few = {"CUPY_CACHE_DIR": "new", "SECONDS_IN_ALL": "225", "DONE": " ".join(PARTS[:4]), "WHEELS": "wheels"}
    done = session(**few)
    assert done.returncode == 0
    assert "\ntargets: waits for the next call: it may take 450 s, and 21" in done.stdout
    assert f'DONE="{" ".join(PARTS[:7])}"\n' in done.stdout
    log = (tmp_path / "out" / "session.log").read_text(encoding="utf-8")
    assert f"kernels in {tmp_path / 'new'}; path " in log
    site, file = re.search(r"installs .* --no-index .* --target (\S+) (\S+)$", done.stderr, re.MULTILINE).groups()
    assert file == str(wheel)
    assert f":{site}\n" in log
    assert not Path(site).exists()
    # The suite alone counts its tests, and takes a relative cache too.
    suite = script(
        str(ROOT / "ci" / "test_gpu.sh"), folder=tmp_path, PYTHON=str(tmp_path / "python"), CUPY_CACHE_DIR="cache"
    )
    assert f"kernels in {tmp_path / 'cache'}; path" in suite.stdout


def test_suite_on_a_card_fails_where_no_test_ran_on_it(session: Callable[..., Any], tmp_path: Path) -> None:
    assert session("suite").returncode == 0
    assert session("suite", RAN="0").returncode == 1
    assert "No test ran on CuPy." in (tmp_path / "out" / "session.log").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["bench", "compile_kernels", "gpu_session", "test_blas", "test_gpu"])
def test_a_python_that_is_not_there_is_named(tmp_path: Path, name: str) -> None:
    done = script(f"ci/{name}.sh", str(tmp_path), PYTHON="no-such-python")
    assert done.returncode == 2
    assert done.stderr == "There is no program no-such-python. Set PYTHON to a Python of version 3.11 or newer.\n"
