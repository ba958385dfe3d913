"""Checkpoints on the command line: the exit codes and lines of a fit that is ended, and of one that resumes."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import gpukpca.cli.fit as cli_fit
from gpukpca import _files as files
from gpukpca._process import state
from gpukpca.cli import terminate
from gpukpca.cli.app import gpukpca
from gpukpca.cli.failures import failures_in_one_line
from gpukpca.cli.report import ProgressBar
from gpukpca.exceptions import ClusterError
from tests.long_fits import rows

FIT = ["fit", "x.npy", "-n", "3", "--gamma", "0.2", "--tol", "1e-11", "--n-jobs", "1", "-o", "s.npz"]
# A process that prints a line when its fifth pass is done, and waits for its end.
PROCESS = """
import sys, gpukpca.cli.report as report
real = report.ProgressBar.__call__
def call(bar, event):
    real(bar, event)
    if event.stage == "pass" and event.done == 5:
        print("done", flush=True)
        sys.stdin.read(1)
report.ProgressBar.__call__ = call
from gpukpca.cli import main
main()
"""


def command(*arguments: Any) -> Any:
    return CliRunner().invoke(gpukpca, [str(a) for a in arguments])


def scores(path: str = "s.npz") -> np.ndarray:
    with np.load(path) as archive:
        return archive["scores"]


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", rows(500))


@contextmanager
def handled(number: int, handler: Any) -> Iterator[None]:
    """Handle a signal as the console script does."""
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_the_job_of_the_guide_requeues_itself_and_resumes() -> None:
    """Its script runs as it is, on stand-ins for Slurm's programs and for `gpukpca`."""
    guide = Path(__file__).parents[2] / "docs" / "how_to" / "batch_jobs.md"
    script = re.search(r"^```sh\n(#!.*?)^```", guide.read_text(encoding="utf-8"), flags=re.M | re.S)
    assert script is not None
    Path("process.py").write_text(PROCESS, encoding="utf-8")
    Path("job.sh").write_text(script[1], encoding="utf-8")
    programs = {
        "srun": 'echo $$ > step; exec "$@"',
        "scontrol": 'echo "$@" > scontrol.txt',
        "gpukpca": f'exec "{sys.executable}" process.py "$@"',
    }
    Path("bin").mkdir()
    for name, text in programs.items():
        Path("bin", name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        Path("bin", name).chmod(0o755)
    np.save("X.npy", rows(500, 20))
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    one = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    environment = {**os.environ, **one, "PATH": f"{Path('bin').resolve()}{os.pathsep}{os.environ['PATH']}"}
    environment |= {"SLURM_JOB_ID": "123", "SLURM_CPUS_PER_TASK": "1"}
    job = partial(subprocess.Popen, ["sh", "job.sh"], text=True, env=environment, **pipes)
    first = job()
    assert first.stdout is not None
    assert first.stdout.readline() == "done\n"
    os.kill(int(Path("step").read_text(encoding="utf-8")), signal.SIGTERM)
    _, errors = first.communicate(timeout=60)
    assert errors.splitlines()[-1] == "terminated; the checkpoint is in state: the same command resumes from it"
    assert (first.returncode, Path("scontrol.txt").read_text(encoding="utf-8")) == (143, "requeue 123\n")
    assert not Path("scores.npz").exists()
    again = job()
    _, errors = again.communicate(timeout=60)
    assert (again.returncode, "resumed at pass 5 from" in errors) == (0, True)
    assert command("fit", "X.npy", "--gamma", "scale", "-n", 20, "--n-jobs", 1, "-o", "s.npz").exit_code == 0
    np.testing.assert_array_equal(scores("scores.npz"), scores("s.npz"))


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize(
    ("number", "more", "code", "line"),
    [
        (signal.SIGTERM, [], 143, "terminated; nothing was written\n"),
        (signal.SIGINT, [], 130, "interrupted; nothing was written\n"),
        (
            signal.SIGINT,
            ["--checkpoint", "c"],
            130,
            "interrupted; the checkpoint is in c: the same command resumes from it\n",
        ),
    ],
)
def test_a_signal_during_a_pass_ends_the_command_in_one_line(
    number: int, more: list[str], code: int, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def call(bar: Any, event: Any) -> None:
        if event.stage == "pass" and event.done == 5:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(ProgressBar, "__call__", call)
    with handled(number, terminate) if number == signal.SIGTERM else nullcontext():
        result = command(*FIT, *more)
    assert (result.exit_code, result.stderr) == (code, line)
    assert sorted(os.listdir()) == sorted([*more[1:], "x.npy"])


@pytest.mark.parametrize("number", [1, 2])
def test_an_interrupt_while_a_checkpoint_is_written_is_followed_by_true_words(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes when the file is in its place, and before anything else happens."""
    real, calls = os.replace, iter(range(1, 100))

    def replace(*arguments: Any) -> None:
        real(*arguments)
        if next(calls) == number:
            raise KeyboardInterrupt

    interval = ["--checkpoint", "c", "--set", "interval=0"]
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace)
        result = command(*FIT, *interval)
    assert result.exit_code == 130
    assert result.stderr == "interrupted; the checkpoint is in c: the same command resumes from it\n"
    assert f"resumed at pass {number} from" in command(*FIT, *interval).stdout


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="signals of POSIX")
@pytest.mark.parametrize("more", [[], ["--checkpoint", "c"]], ids=["no folder", "folder"])
def test_sigusr1_outside_the_iteration_ends_no_process(more: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the input is read, after the last pass, and while the results are written."""
    reached = []

    def signaled(real: Any, *arguments: Any) -> Any:
        os.kill(os.getpid(), signal.SIGUSR1)
        reached.append(real.__name__)
        return real(*arguments)

    names = ("_prepared", "_facts", "write_rows")
    for name in names:
        monkeypatch.setattr(cli_fit, name, partial(signaled, getattr(cli_fit, name)))
    with handled(signal.SIGUSR1, signal.SIG_IGN):
        result = command(*FIT, *more)
    assert (result.exit_code, result.stderr) == (0, "")
    assert set(reached) == set(names)
    assert Path("s.npz").exists()


def test_the_options_of_checkpoints_are_checked() -> None:
    result = command(*FIT, "--checkpoint", "c")
    assert (result.exit_code, "checkpoint   in c\n" in result.stdout) == (0, True)
    result = command(*FIT, "--checkpoint", "c", "--force", "--seed", "1")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "random_state was 0 and is 1 now" in result.stderr
    result = command(*FIT, "--checkpoint", "x.npy", "--force")
    assert (result.exit_code, "x.npy: File exists" in result.stderr) == (2, True)
    result = command(*FIT, "--checkpoint", "none/here", "--force")
    assert (result.exit_code, "here: No such file or directory" in result.stderr) == (2, True)
    result = command("fit", "x.npy", "--method", "ppca", "--checkpoint", "c", "-o", "t.npz")
    assert (result.exit_code, "it is for --method kernel or pca" in result.stderr) == (2, True)
    result = command(*FIT, "--set", "interval=5", "--force")
    assert (result.exit_code, "--set interval: there is no such parameter" in result.stderr) == (2, True)
    result = command(*FIT, "--checkpoint", "c", "--set", "interval=-1", "--force")
    assert (result.exit_code, "Checkpoint: --set interval=-1 is not allowed" in result.stderr) == (2, True)
    result = command(*FIT, "--checkpoint", "", "--force")
    assert (result.exit_code, "folder must be the path of a folder" in result.stderr) == (2, True)
    assert sorted(os.listdir()) == ["c", "s.npz", "x.npy"]  # nothing in the current folder
    assert "--checkpoint" in command("fit", "--help").stdout
    assert "--checkpoint" not in command("plan", "--help").stdout


def test_the_folder_of_another_fit_is_not_named_by_one_without_passes() -> None:
    assert "checkpoint   in c\n" in command(*FIT, "--checkpoint", "c").stdout
    result = command("fit", "x.npy", "--method", "pca", "-o", "p.npz", "--checkpoint", "c")
    assert result.exit_code == 0
    assert "no checkpoint is written" in result.stdout
    assert "in c\n" not in result.stdout


@pytest.mark.parametrize("folder", ["c", "none"])
def test_after_a_lost_cluster_the_checkpoint_is_named(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(*FIT, "--checkpoint", "c").exit_code == 0
    with pytest.raises(SystemExit), failures_in_one_line(False, Path(folder)):
        raise ClusterError("the first task was lost.")
    error = capsys.readouterr().err
    assert error.startswith("error: the first task was lost.")
    assert ("The checkpoint is in c: the same command" in error) == (folder == "c")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ClusterError("the first task was lost.")])
def test_files_that_the_command_has_not_used_are_not_named(
    error: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    """They may be of another fit, as where the end comes while the input is read."""
    assert command(*FIT, "--checkpoint", "c").exit_code == 0
    state.reset()  # as in another process
    for is_named in (False, True):
        with pytest.raises(SystemExit), failures_in_one_line(False, Path("c")):
            raise error
        assert ("same command resumes" in capsys.readouterr().err) == is_named
        assert command(*FIT, "--force", "--checkpoint", "c").exit_code == 0


def test_verbose_is_a_line_a_pass_for_logs() -> None:
    result = command(*FIT, "--verbose", "--checkpoint", "c")
    passes = [line for line in result.stderr.splitlines() if " pass " in line and "checkpoint" not in line]
    count = re.search(r"passes +(\d+)", result.stdout)
    assert count is not None
    assert len(passes) == int(count[1])
    time_of_day = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
    assert all(re.match(rf"{time_of_day} \S", line) for line in result.stderr.splitlines())
    assert all(re.fullmatch(rf"{time_of_day} pass \d+.* \(\S+ s\)", line) for line in passes)
    assert "largest relative residual" in passes[-1]
    assert command(*FIT, "--force").stderr == ""
    assert command(*FIT, "-v", "--force", "--checkpoint", "c").stderr.count("resumed at pass") == 1
    every = command(*FIT, "-v", "--force", "--checkpoint", "d", "--set", "interval=0").stderr
    assert every.count("checkpoint of pass") == len(passes)
    both = command(*FIT, "-v", "-q", "--force")
    assert (both.exit_code, both.stderr.count("\n"), "contradict" in both.stderr) == (2, 1, True)


def test_a_full_disk_at_the_end_names_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files.os, "fsync", full)
    result = command(*FIT)
    assert result.exit_code == 2
    assert re.fullmatch(r"error: .*s\.npz: No space left on device\n", result.stderr)
    assert os.listdir() == ["x.npy"]
