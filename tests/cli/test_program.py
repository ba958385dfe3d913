"""The program itself: whole files, interrupts, help, the progress bar, and the base installation."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import warnings
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console

from gpukpca import Progress, __version__
from gpukpca._extras import pip_install
from gpukpca.cli import commands, main
from gpukpca.cli.app import COMMANDS, gpukpca
from gpukpca.cli.inputs import BUNDLED
from gpukpca.cli.machine import peak_memory_mib
from gpukpca.cli.methods import METHODS
from gpukpca.cli.report import ProgressBar, show_table
from tests.cli.runs import OUT, fit, loaded, run, text
from tests.hostile import forks, without_modules

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="signals as on POSIX")


def python(code: str, *arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


# -- whole files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("broken", ["cli.fit.write_rows", "cli.fit.draw", "cli.fit.write_model", "_files.os.fsync"])
def test_a_failing_write_leaves_the_old_files_whole(monkeypatch: pytest.MonkeyPatch, broken: str):
    text("s.npz", "old scores")
    text("p.png", "old plot")
    text("m.safetensors", "old model")

    def full(file: object, *_: object) -> None:
        if "fsync" not in broken:
            file.write(b"half of it")  # type: ignore[attr-defined]
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(f"gpukpca.{broken}", full)
    result = run("fit", "iris", "-k", "linear", "-n", 2, *OUT, "--plot", "p.png", "--save", "m.safetensors", "--force")
    assert result.exit_code == 2
    assert "No space left" in result.stderr
    assert Path("s.npz").read_text(encoding="utf-8") == "old scores"
    assert Path("p.png").read_text(encoding="utf-8") == "old plot"
    assert Path("m.safetensors").read_text(encoding="utf-8") == "old model"
    assert sorted(os.listdir()) == ["m.safetensors", "p.png", "s.npz"]


def test_force_replaces_and_keeps_permissions():
    text("s.npz", "old")
    Path("s.npz").chmod(0o640)
    fit("iris", "-k", "linear", "-n", 2, *OUT, "--force")
    assert loaded()["scores"].shape == (150, 2)
    assert Path("s.npz").stat().st_mode & 0o777 == 0o640


def test_an_interrupt_leaves_nothing(monkeypatch: pytest.MonkeyPatch):
    for target in ("gpukpca.KernelPCA.fit_transform", "gpukpca.cli.fit.write_rows"):
        with monkeypatch.context() as patch:
            patch.setattr(target, interrupt)
            result = run("fit", "iris", "-k", "linear", "-n", 2, *OUT)
        assert result.exit_code == 130
        assert result.stderr == "interrupted; nothing was written\n"
        assert os.listdir() == []


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


SIGNALED_IN_AN_IMPORT = """
import os, signal, sys

number, modules = getattr(signal, sys.argv[-2]), sys.argv[-1].split()
del sys.argv[-2:]

class Finder:
    def find_spec(self, name, *_):
        if name in modules:
            modules.remove(name)
            os.kill(os.getpid(), number)

sys.meta_path.insert(0, Finder())
from gpukpca.cli import main
main()
"""


@POSIX
@pytest.mark.parametrize("module", ["click", "scipy.linalg"])
def test_ctrl_c_before_the_imports_are_done_ends_in_one_line(module: str):
    ended = python(SIGNALED_IN_AN_IMPORT, "fit", "iris", *OUT, "SIGINT", module)
    assert (ended.returncode, ended.stderr.strip()) == (130, "interrupted")
    assert os.listdir() == []


@POSIX
def test_sigusr1_before_the_imports_are_done_ends_no_command():
    ended = python(SIGNALED_IN_AN_IMPORT + "assert not modules", "fit", "iris", *OUT, "SIGUSR1", "click scipy.linalg")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert os.listdir() == ["s.npz"]


# -- the program and its help ------------------------------------------------------------------------------------------


def test_the_package_runs_as_a_program():
    command = [sys.executable, "-m", "gpukpca"]
    version = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True).stdout
    assert version.startswith("gpukpca,")
    assert __version__ in version
    wrong = subprocess.run([*command, "fti"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("error: No such command 'fti'")


def test_characters_that_the_output_lacks_are_replaced(monkeypatch: pytest.MonkeyPatch):
    """Windows encodes what is redirected in cp1252."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="cp1252")
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "argv", ["gpukpca", "plan", "iris", "--solver", "nystrom", "--rank", "30"])
    with pytest.raises(SystemExit) as ended:
        main()
    out.seek(0)
    assert not ended.value.code
    assert "F F?" in out.read()


@pytest.mark.parametrize("missing", [["click"], ["click", "rich", "polars"]])
def test_the_base_installation_says_how_to_install_the_command_line(missing: list[str]):
    hide = f"import sys; sys.modules.update(dict.fromkeys({missing})); from gpukpca.cli import main; main()"
    ended = python(hide, "fit", "iris")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == f"error: {', '.join(missing)} not installed: {pip_install('cli')}\n"


@forks
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_the_library_needs_neither_terminal_nor_plotting():
    without_modules(("gpukpca",), ("rich", "click", "polars", "matplotlib"), "import gpukpca; gpukpca.KernelPCA")


def test_the_help_names_commands_methods_and_groups():
    assert set(COMMANDS) == {name for name, value in vars(commands).items() if isinstance(value, click.Command)}
    assert list(COMMANDS) == sorted(COMMANDS)
    assert run().exit_code == 0
    for name, sentence in COMMANDS.items():
        assert sentence in run("--help").stdout
        assert run(name, "-h").stdout.startswith(f"Usage: gpukpca {name} ")
    found = " ".join(run("fit", "--help").stdout.split())
    assert f"[{'|'.join(METHODS)}]" in found
    for sentence in (*BUNDLED, "COUNT|SHARE", "[pca] Scale the scores", "[kernel] Degree of the polynomial kernel."):
        assert sentence in found
    headings = [line[:-1] for line in run("fit", "--help").stdout.splitlines() if line.endswith(":") and line[0] != " "]
    assert headings == ["Input", "Model", "Kernel PCA", "Other methods", "Solver", "Computation", "Output", "Help"]


def test_a_shell_completes_commands_options_and_values():
    for words, expected in (
        ("gpukpca tr", "plain,transform"),
        ("gpukpca fit --wei", "plain,--weight-column"),
        ("gpukpca fit iris --method pp", "plain,ppca"),
        ("gpukpca fit x", "file,x"),
        ("gpukpca fit iris --plot x", "file,x"),
    ):
        environment = {"_GPUKPCA_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        result = CliRunner().invoke(gpukpca, prog_name="gpukpca", env=environment)
        assert result.stdout.split() == [expected]


def test_info_names_devices_versions_and_libraries():
    out = run("info").stdout
    for word in ("cpu", "cuda", "gpukpca", "numpy", "scikit-learn", "array-api-compat", "cupy", "blas", "thread"):
        assert word in out


# -- the terminal ------------------------------------------------------------------------------------------------------


def test_the_bar_only_shows_on_a_terminal():
    for terminal, hidden in ((True, False), (True, True), (False, False)):
        file = io.StringIO()
        with ProgressBar(Console(force_terminal=terminal, file=file, width=120), hidden) as bar:
            bar(Progress("plan", "plan"))
            bar(Progress("tiles", "3 of 4 tiles", 3, 4))
            bar(Progress("resumed", "resumed at pass 3"))
            for residual in (0.0, 1e-2, 1e-9):
                bar(Progress("pass", f"residual {residual}", 2, 300, residual, 1e-8, seconds_left=3.0))
            bar.refresh()
        assert bar.resumed == "resumed at pass 3"
        shown = file.getvalue()
        assert bool(shown) is (terminal and not hidden)
        for word in ("whole fit", "3 s left", "resumed at pass 3", "residual 1e-09") if shown else ():
            assert word in shown


def test_the_bar_of_the_whole_fit_follows_the_time():
    with ProgressBar(Console(force_terminal=False)) as bar:
        whole = bar.tasks[bar.whole]
        now = [0.0]
        bar.get_time = whole._get_time = lambda: now[0]
        shares = []
        for now[0], event in (
            (5.0, Progress("plan", "", seconds_left=20.0)),
            (10.0, Progress("tiles", "", 4, 4, seconds_left=15.0)),
            (15.0, Progress("pass", "", 1, 9, 1e-2, 1e-8, seconds_left=30.0)),
            (30.0, Progress("pass", "", 2, 9, 1e-2, 1e-8)),
            (35.0, Progress("pass", "", 5, 9, 1e-9, 1e-8, seconds_left=0.0)),
        ):
            bar(event)
            shares.append(whole.completed / whole.total)
    np.testing.assert_allclose(shares, [0, 0.25, 0.25, 0.25, 1])


def test_the_table_of_results_loses_no_digit_and_fits_eighty_columns(
    rng: np.random.Generator, capsys: pytest.CaptureFixture[str]
):
    wide = -np.exp(rng.uniform(-30.0, 30.0, 23))
    columns = [("eigenvalue", wide, ".6g"), ("variance ratio", np.abs(wide) / 1e14, ".5f")]
    columns += [("cumulative", np.linspace(0, 1, 23), ".5f"), ("relative residual at most", np.abs(wide), ".1e")]
    show_table("component", 1, columns, "in all")
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["component", *" ".join(heading for heading, *_ in columns).split()]
    for i in range(20):
        expected = [str(i + 1), *(f"{values[i]:{how}}" for _, values, how in columns)]
        assert lines[2 + i].split() == expected
    assert lines[22:] == ["and 3 more; in all", ""]
    show_table("component", 1, [("eigenvalue", [], ".6g")], "in all")
    assert capsys.readouterr().out == ""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not report it")
def test_peak_memory_is_known():
    peak = peak_memory_mib()
    assert peak is not None
    assert 20 < peak < 1e6


def test_warnings_filters_are_restored():
    before = list(warnings.filters)
    fit("iris", "-k", "linear", "-n", 2, *OUT)
    assert list(warnings.filters) == before
