"""Signals at any moment of a fit with a checkpoint: SIGUSR1 never ends it, and an interrupt leaves what it says."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpukpca import PCA, Checkpoint, KernelPCA, Progress
from gpukpca._container import read_container
from gpukpca.checkpoint import KIND, NAMES, has_checkpoint
from gpukpca.decomposition import RidgePreimage
from gpukpca.gram import DenseGram, Storage, gram_matrix
from gpukpca.kernels import RBF
from tests.long_fits import SETTINGS, rows

X = rows()
posix = pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="signals of POSIX")


@pytest.fixture(scope="module")
def reference() -> KernelPCA:
    return KernelPCA(**SETTINGS).fit(X)


# -- SIGUSR1 -----------------------------------------------------------------------------------------------------------


def send() -> None:
    os.kill(os.getpid(), signal.SIGUSR1)


@contextmanager
def unhandled() -> Iterator[list[int]]:
    """Collect the signals that are left to the process, which would end of them."""
    received: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: received.append(number))
    try:
        yield received
    finally:
        signal.signal(signal.SIGUSR1, before)


class Reading:
    """Rows of another library that send the signal when they are read."""

    shape = X.shape
    dtype = X.dtype

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        send()
        return X.astype(dtype or X.dtype)


class Building(Storage):
    """A square matrix that sends the signal when it is built."""

    def bytes_held(self, item_size: int) -> int:
        return self.n**2 * item_size

    def build(self, source: Any) -> DenseGram:
        send()
        return DenseGram(gram_matrix(source.kernel, source.X))

    def __str__(self) -> str:
        return "square"


class Sending(RBF):
    """A kernel that sends the signal whenever it is evaluated."""

    def tile(self, a: Any, b: Any, out: Any = None) -> Any:
        send()
        return super().tile(a, b, out)


# What a fit does when it is signaled -> data, parameters.
MOMENTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "reads": (Reading(), {}),
    "builds K": (X, {"gram": Building}),
    "learns the pre-image, after the last pass": (X, {"preimage": RidgePreimage(Sending(0.1))}),
    "has no passes": (Reading(), {"eigen_solver": "dense", "tol": 0}),
}


@posix
@pytest.mark.parametrize("moment", MOMENTS)
def test_sigusr1_outside_the_iteration_ends_no_fit(moment: str, tmp_path: Path) -> None:
    data, parameters = MOMENTS[moment]
    written: list[int] = []

    def listen(event: Progress) -> None:
        if event.stage == "checkpoint":
            written.append(event.done)

    with unhandled() as received:
        handler = signal.getsignal(signal.SIGUSR1)
        model = KernelPCA(**{**SETTINGS, **parameters}, checkpoint=Checkpoint(tmp_path, 3600), verbose=listen).fit(data)
        assert signal.getsignal(signal.SIGUSR1) is handler
    assert received == []
    # A request before the iteration is one for the end of the first pass.
    expected = {"reads": [1, model.n_passes_], "builds K": [1, model.n_passes_], "has no passes": []}
    assert written == expected.get(moment, [model.n_passes_])


@posix
def test_sigusr1_while_a_pca_reads_ends_no_fit(tmp_path: Path) -> None:
    for solver in ("randomized", "full"):
        with unhandled() as received:
            PCA(2, svd_solver=solver, random_state=0, checkpoint=tmp_path).fit(Reading())
        assert received == []


@posix
def test_a_fit_without_a_checkpoint_leaves_the_signal_to_the_process() -> None:
    with unhandled() as received:
        KernelPCA(**SETTINGS).fit(Reading())
    assert received == [signal.SIGUSR1]


@posix
def test_sigusr1_in_a_failing_fit_ends_no_process_and_restores_the_handler(tmp_path: Path) -> None:
    class Failing(Reading):
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            send()
            raise OSError("the file is gone")

    with unhandled() as received:
        handler = signal.getsignal(signal.SIGUSR1)
        with pytest.raises(OSError, match="the file is gone"):
            KernelPCA(**SETTINGS, checkpoint=tmp_path).fit(Failing())
        assert signal.getsignal(signal.SIGUSR1) is handler
    assert received == []


@posix
def test_every_running_fit_answers_once_and_the_outer_one_stays_covered(tmp_path: Path, reference: KernelPCA) -> None:
    """One fit runs inside of another, and one in a thread, which can set no handler."""
    written: list[tuple[str, int]] = []

    def listener(name: str, act: Callable[[int], Any]) -> Callable[[Progress], None]:
        def listen(event: Progress) -> None:
            if event.stage == "checkpoint":
                written.append((name, event.done))
            if event.stage == "pass":
                act(event.done)

        return listen

    def run(name: str, act: Callable[[int], Any]) -> KernelPCA:
        checkpoint = Checkpoint(tmp_path / name, 3600)
        return KernelPCA(**SETTINGS, checkpoint=checkpoint, verbose=listener(name, act)).fit(X)

    is_at_three, is_sent = threading.Event(), threading.Event()

    def wait(done: int) -> None:
        if done == 3:
            is_at_three.set()
            is_sent.wait(60)

    def in_the_outer(done: int) -> None:
        if done == 4:
            is_at_three.wait(60)
            run("inner", lambda done: send() if done == 2 else None)
            is_sent.set()
        if done == 6:
            send()

    models: list[KernelPCA] = []
    with unhandled() as received:
        thread = threading.Thread(target=lambda: models.append(run("thread", wait)))
        thread.start()
        models.append(run("outer", in_the_outer))
        thread.join()
    last = reference.n_passes_
    assert received == []
    assert [done for name, done in written if name == "inner"] == [3, last]
    assert [done for name, done in written if name == "outer"] == [5, 7, last]
    assert next(done for name, done in written if name == "thread") == 4
    for model in models:
        np.testing.assert_array_equal(model.eigenvalues_, reference.eigenvalues_)


# -- interrupts while a checkpoint is written --------------------------------------------------------------------------


def interrupted(folder: Path) -> None:
    """Fit with a checkpoint after every pass, which has to be interrupted, and to warn of nothing."""
    with warnings.catch_warnings(record=True) as caught, suppress(KeyboardInterrupt):
        warnings.simplefilter("always")
        KernelPCA(**SETTINGS, checkpoint=Checkpoint(folder, 0)).fit(X)
        pytest.fail("it was not interrupted")
    assert [str(warning.message) for warning in caught] == []


def interrupted_in(call: str, number: int, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Fit, and raise KeyboardInterrupt in a call of the system for the checkpoint of this number.

    "after replace": when the new file is in its place, and nothing else has happened yet.
    """
    real, calls = getattr(os, call.rpartition(" ")[2]), iter(range(1, 10**6))

    def interrupting(*arguments: Any, **named: Any) -> Any:
        is_now = next(calls) == number
        if is_now and " " not in call:
            raise KeyboardInterrupt
        done = real(*arguments, **named)
        if is_now:
            raise KeyboardInterrupt
        return done

    with monkeypatch.context() as patch:
        patch.setattr(os, call.rpartition(" ")[2], interrupting)
        interrupted(folder)


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("call", ["fsync", "replace", "after replace"])
def test_an_interrupt_while_a_checkpoint_is_written_writes_it_and_says_so(
    call: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: KernelPCA
) -> None:
    interrupted_in(call, number, monkeypatch, tmp_path)
    assert has_checkpoint(tmp_path)
    stored = [read_container(tmp_path / name, KIND)[0]["number"] for name in NAMES if (tmp_path / name).exists()]
    assert max(stored) == number
    passes: list[int] = []

    def listen(event: Progress) -> None:
        if event.stage == "resumed":
            passes.append(event.done)

    model = KernelPCA(**SETTINGS, checkpoint=tmp_path, verbose=listen).fit(X)
    assert passes == [number]
    np.testing.assert_array_equal(model.eigenvalues_, reference.eigenvalues_)


def test_a_second_interrupt_leaves_what_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: KernelPCA
) -> None:
    """Nothing is in the folder where both come before the first file is in its place."""
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", stop)
        interrupted(tmp_path)
    assert (has_checkpoint(tmp_path), os.listdir(tmp_path)) == (False, [])
    interrupted_in("after replace", 1, monkeypatch, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", stop)
        interrupted(tmp_path)
    assert has_checkpoint(tmp_path)
    model = KernelPCA(**SETTINGS, checkpoint=tmp_path).fit(X)
    np.testing.assert_array_equal(model.eigenvalues_, reference.eigenvalues_)


def stop(*_: Any) -> None:
    raise KeyboardInterrupt


def test_files_of_another_fit_are_no_checkpoint_of_this_one(tmp_path: Path) -> None:
    """Another fit began in the same empty folder, and its files are those that are left."""

    def other(event: Progress) -> None:
        if event.stage == "pass" and event.done == 2:
            (tmp_path / NAMES[1]).unlink()
            KernelPCA(**{**SETTINGS, "gamma": 0.3}, checkpoint=Checkpoint(tmp_path / "other", 0)).fit(X)
            for name in NAMES:
                (tmp_path / "other" / name).rename(tmp_path / name)
            raise KeyboardInterrupt

    with warnings.catch_warnings(), suppress(KeyboardInterrupt):
        warnings.simplefilter("ignore")
        KernelPCA(**SETTINGS, checkpoint=Checkpoint(tmp_path, 0), verbose=other).fit(X)
    assert not has_checkpoint(tmp_path)
