"""Files are replaced whole: a write that ends early leaves the old files and nothing else."""

from __future__ import annotations

import os
import re
import signal
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from gpukpca import PCA, KernelPCA, load, save
from gpukpca._files import replaced_whole
from gpukpca.cli.app import gpukpca
from tests.long_fits import SETTINGS, rows

SIGNALS = [number for number in ("SIGTERM", "SIGHUP", "SIGKILL") if hasattr(signal, number)]


def write_two(folder: Path, midway: Callable[[], Any] = lambda: None) -> None:
    with replaced_whole(folder / "a", folder / "b") as (a, b):
        a.write(b"new")
        a.flush()
        midway()
        b.write(b"new")


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}


@pytest.mark.skipif(os.name != "posix", reason="permissions as on POSIX")
def test_both_files_are_written_with_their_permissions(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old", encoding="utf-8")
    (tmp_path / "a").chmod(0o640)
    before = os.umask(0o027)
    try:
        write_two(tmp_path)
    finally:
        os.umask(before)
    assert contents(tmp_path) == {"a": "new", "b": "new"}
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in "ab"] == [0o640, 0o640]


@pytest.mark.skipif(os.name != "posix", reason="permissions as on POSIX")
def test_the_mask_of_the_process_is_left_alone_and_no_draft_is_more_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread would create files that all may write, while a save reads the mask by setting it."""
    (tmp_path / "a").write_text("old", encoding="utf-8")
    (tmp_path / "a").chmod(0o600)
    seen: list[int] = []

    def look() -> None:
        seen.extend(path.stat().st_mode & 0o077 for path in tmp_path.glob(".a.*"))

    before = os.umask(0o022)
    try:
        monkeypatch.setattr(os, "umask", lambda mask: pytest.fail("the mask was set"))
        write_two(tmp_path, look)
    finally:
        monkeypatch.undo()
        os.umask(before)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in "ab"] == [0o600, 0o644]
    assert seen == [0]


def interrupted_at(stop: int, work: Callable[[], None]) -> bool:
    """Run work with KeyboardInterrupt before the given line of the module that runs; return whether it has so many."""
    lines = 0

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal lines
        if not frame.f_code.co_filename.endswith("_files.py") or lines >= stop:
            return None
        lines += event == "line"
        if lines == stop:
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    try:
        sys.settrace(trace)
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_at_any_line_leaves_no_draft(tmp_path: Path) -> None:
    stop, left = 1, []
    while interrupted_at(stop, lambda: write_two(tmp_path)):
        left += [(stop, name) for name in contents(tmp_path) if name.endswith(".partial")]
        for path in tmp_path.iterdir():
            path.unlink()
        stop += 1
    assert not left
    assert stop > 20


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks as on POSIX")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning", "ignore:.*fork:RuntimeWarning")
@pytest.mark.parametrize("number", SIGNALS)
def test_a_process_that_is_killed_midway_leaves_the_old_files(number: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old", encoding="utf-8")
    child = os.fork()
    if child == 0:
        if number != "SIGKILL":  # nohup ignores SIGHUP
            signal.signal(getattr(signal, number), signal.SIG_DFL)
        write_two(tmp_path, lambda: os.kill(os.getpid(), getattr(signal, number)))
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == getattr(signal, number)
    left = {name: text for name, text in contents(tmp_path).items() if not name.endswith(".partial")}
    assert left == {"a": "old"}


@pytest.mark.skipif(os.name != "posix", reason="links as on POSIX")
def test_links_are_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old", encoding="utf-8")
    (tmp_path / "a").symlink_to("real")
    (tmp_path / "b").symlink_to("b")
    write_two(tmp_path)
    assert contents(tmp_path) == {"a": "new", "b": "new", "real": "old"}
    assert not (tmp_path / "a").is_symlink()


def test_errors_name_the_files_and_not_the_temporary_ones(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    with pytest.raises(OSError, match=re.escape(f"{tmp_path / 'a'} and {tmp_path / 'b'}")) as failed:
        write_two(tmp_path)
    assert ".partial" not in str(failed.value)


def save_model(folder: Path) -> None:
    KernelPCA(2).fit(rows(20)).save(folder / "m.npz")


def run_command(folder: Path) -> None:
    np.save(folder.parent / "x.npy", rows(20))
    options = ["-n", "2", "-o", "s.csv", "--plot", "p.png", "--save", "m.safetensors", "--force"]
    paths = [str(folder / option) if "." in option else option for option in options]
    result = CliRunner().invoke(gpukpca, ["fit", str(folder.parent / "x.npy"), *paths])
    if result.exit_code == 130:
        raise KeyboardInterrupt
    assert result.exit_code == 0, result.output


def fit_with_checkpoint(folder: Path) -> None:
    KernelPCA(**SETTINGS, checkpoint=folder).fit(rows(60))


WRITERS = {"model": save_model, "command line": run_command, "checkpoint": fit_with_checkpoint}


@pytest.mark.parametrize("call", ["fsync", "chmod", "replace"])
@pytest.mark.parametrize("writer", WRITERS)
def test_an_interrupt_in_any_step_leaves_no_temporary_file(
    writer: str, call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    original, calls = getattr(os, call), 0

    def interrupted(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > stop:
            raise KeyboardInterrupt
        return original(*arguments, **named) if call != "fsync" else None

    for stop in (0, 1):
        calls = 0
        with monkeypatch.context() as patch:
            patch.setattr(os, call, interrupted)
            try:
                WRITERS[writer](folder)
            except KeyboardInterrupt:
                assert calls > stop
            else:
                assert calls <= stop
        assert not [name for name in os.listdir(folder) if name.startswith(".") or name.endswith(".partial")]


def test_a_name_of_pickles_is_written_with_a_warning(tmp_path: Path) -> None:
    model = PCA(2).fit(rows())
    for name, said in (("m.pkl", 1), ("m.PICKLE", 1), ("m.joblib", 1), ("m.safetensors", 0), ("m", 0), ("m.v1", 0)):
        for write in (model.save, partial(save, model)):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                write(tmp_path / name)
            assert len(caught) == said, name
            if said:
                text = str(caught[0].message)
                assert text.startswith(f"the file {name} is no pickle")
                assert text.endswith("Name it m.safetensors.")
            np.testing.assert_array_equal(load(tmp_path / name).components_, model.components_)


def test_the_next_write_removes_the_drafts_of_killed_processes_alone(tmp_path: Path) -> None:
    old, new = "0123456789abcdef", "456789abcdef0123"
    names = [f".a.{old}.partial", f".b.{old}.partial", f".a.{new}.partial", f".other.{old}.partial"]
    names += [f"a.{old}.partial", ".a.backup.partial", f".a.zip.{old}.partial", f".a.{old[:4]}.partial"]
    for name in names:
        (tmp_path / name).write_text("half", encoding="utf-8")
        if new not in name:  # which another process writes
            os.utime(tmp_path / name, (0, 0))
    write_two(tmp_path)
    assert contents(tmp_path) == {"a": "new", "b": "new", **dict.fromkeys(names[2:], "half")}


def test_a_draft_that_vanishes_leaves_all_old_files(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text("old", encoding="utf-8")
        with pytest.raises(FileNotFoundError, match=r"a and .*b") as failed:
            write_two(tmp_path, lambda name=name: next(tmp_path.glob(f".{name}.*")).unlink())
        assert ".partial" not in str(failed.value)
        assert contents(tmp_path) == dict.fromkeys("ab"[: 1 + (name == "b")], "old")
