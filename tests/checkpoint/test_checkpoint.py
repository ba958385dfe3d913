"""Checkpoints: whatever ends a fit, the next one resumes to the same bits, and every fault of the files is named."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from gpukpca import PCA, Checkpoint, KernelPCA, Progress, load
from gpukpca import _files as files
from gpukpca._container import read_container, write_container
from gpukpca._process import state as process
from gpukpca.backend.namespace import to_host
from gpukpca.backend.random import format_generator, restore_generator
from gpukpca.checkpoint import KIND, NAMES, FolderCheckpointer
from gpukpca.data.batches import BatchedRows
from gpukpca.data.column_basis import ColumnBasis
from gpukpca.decomposition import _fingerprint
from gpukpca.decomposition._fingerprint import digest_of, exact_text
from gpukpca.eigen import BlockKrylov, Nystrom, top_eigh
from gpukpca.eigen.krylov_state import KrylovState
from gpukpca.exceptions import CheckpointError, CheckpointWarning, InvalidParameterError
from gpukpca.gram import CenteredGram, DenseGram, Storage, TiledGram, gram_matrix
from gpukpca.kernels import RBF, Matern
from tests.conftest import MAKERS, Namespace
from tests.long_fits import SETTINGS, rows

X = rows()
RESULTS = {
    KernelPCA: ("eigenvalues_", "eigenvectors_", "projection_", "offset_", "residual_norms_", "n_passes_", "solver_"),
    PCA: ("components_", "explained_variance_", "residual_norms_", "noise_variance_", "mean_"),
}


class Stop(Exception):
    """The end of a fit, as by Ctrl-C."""


def interrupt(folder: Any, done: int, data: Any = X, cls: Any = KernelPCA, **settings: Any) -> None:
    """Fit until so many events of passes came."""
    events = iter(range(1, 10**6))

    def stop(event: Progress) -> None:
        if event.stage == "pass" and next(events) == done:
            raise Stop

    with pytest.raises(Stop):
        cls(**{**settings, "checkpoint": folder, "verbose": stop}).fit(data)


def resume(folder: Any, data: Any = X, cls: Any = KernelPCA, **settings: Any) -> tuple[Any, list[str]]:
    """Return the fit that resumes, and the texts of its events about checkpoints, without the folder."""
    texts: list[str] = []

    def listen(event: Progress) -> None:
        if event.stage in ("resumed", "checkpoint"):
            texts.append(event.text.partition(" from /")[0].partition(":")[0])

    return cls(**{**settings, "checkpoint": folder, "verbose": listen}).fit(data), texts


def assert_same(model: Any, other: Any) -> None:
    for name in RESULTS[type(model)]:
        np.testing.assert_array_equal(getattr(model, name), getattr(other, name), err_msg=name)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def reference() -> KernelPCA:
    return KernelPCA(**SETTINGS).fit(X)


# -- choices by the clock ----------------------------------------------------------------------------------------------


def test_a_resumed_fit_takes_the_rates_of_cards_from_its_checkpoint(tmp_path: Path) -> None:
    """So it computes where the first one did, whatever is measured now."""
    model = KernelPCA(**SETTINGS, checkpoint=tmp_path / "c")
    process.product_rates[0] = 48e12, 0.75e12
    model.fit(X)
    process.product_rates.clear()
    clone(model).fit(X)
    assert process.product_rates == {0: (48e12, 0.75e12)}
    pairs: list[Any] = [1.0, [1.0], [1.0, 0.0], [-1.0, 1.0]]
    for forged in ([1.0], {"x": [1.0, 1.0]}, {"9" * 5000: [1.0, 1.0]}, *({"0": pair} for pair in pairs)):
        for path in (tmp_path / "c").glob("state-*"):
            header, arrays = read_container(path, KIND)
            write_container(path, KIND, header | {"product_rates": forged}, arrays)
        process.product_rates.clear()
        clone(model).fit(X)
        assert process.product_rates == {}, forged


# -- the iteration -----------------------------------------------------------------------------------------------------


class Memory:
    """A checkpointer that keeps every state on the host."""

    def __init__(self, state: KrylovState | None = None) -> None:
        self.state, self.states = state, []

    def resumed(self, task: Any) -> KrylovState | None:
        return self.state

    def record(self, state: KrylovState) -> None:
        copy = lambda array: None if array is None else np.array(to_host(array), order="K")  # noqa: E731
        arrays: dict[str, Any] = {name: copy(getattr(state, name)) for name in ("block", "means")}
        arrays |= {name: ColumnBasis((copy(getattr(state, name).array),)) for name in ("Q", "W")}
        self.states.append(dataclasses.replace(state, **arrays))


RESTARTS = BlockKrylov(tol=1e-9, max_blocks=3)


def solve(xp: Namespace, dtype: str, solver: BlockKrylov, checkpointer: Memory | None = None, p: int = 4) -> Any:
    op = CenteredGram(TiledGram(RBF(gamma=0.3), xp.array(rows(80, 4, dtype)), tile_edge=50))
    return top_eigh(op, p, solver=solver, rng=0, checkpointer=checkpointer)


def test_an_iteration_on_every_library_resumes_from_every_state_to_the_same_bits(xp: Namespace, dtype: str) -> None:
    solver = RESTARTS if dtype == "float64" else dataclasses.replace(RESTARTS, tol=1e-5)
    reference, memory = solve(xp, dtype, solver), Memory()
    solve(xp, dtype, solver, memory)
    assert [state.n_passes for state in memory.states] == list(range(1, reference.n_passes + 1))
    assert memory.states[-1].is_done
    for state in memory.states:
        result = solve(xp, dtype, solver, Memory(state))
        for field in ("eigenvalues", "eigenvectors", "products", "residual_norms"):
            ours, theirs = xp.host(getattr(result, field)), xp.host(getattr(reference, field))
            np.testing.assert_array_equal(ours, theirs, err_msg=f"{field} from pass {state.n_passes}")
        assert (result.n_passes, result.n_products) == (reference.n_passes, reference.n_products)
        assert xp.owns(result.eigenvectors)


@pytest.mark.parametrize("of", [2, 4, 9])
def test_states_of_other_settings_are_a_start_to_the_tolerance(of: int) -> None:
    """Fewer components, a shorter basis, a wider block; states before, between and at the end."""
    xp, memory = MAKERS["numpy"](), Memory()
    solver = BlockKrylov(tol=1e-9, max_blocks=3, block_size=12)
    solve(xp, "float64", solver, memory, p=of)
    reference = solve(xp, "float64", BlockKrylov(tol=1e-9))
    for state in memory.states:
        result = solve(xp, "float64", BlockKrylov(tol=1e-9, block_size=20), Memory(state))
        assert result.converged.all()
        np.testing.assert_allclose(result.eigenvalues, reference.eigenvalues, rtol=1e-9)


def test_a_state_of_another_operator_is_refused() -> None:
    memory = Memory()
    solve(MAKERS["numpy"](), "float64", RESTARTS, memory)
    op = CenteredGram(TiledGram(RBF(gamma=0.3), rows(70, 4)))
    with pytest.raises(InvalidParameterError, match=r"none of an operator of shape \(70, 70\)"):
        top_eigh(op, 4, solver=RESTARTS, rng=0, checkpointer=Memory(memory.states[0]))


def test_a_restart_ends_the_validity_of_earlier_states() -> None:
    class Watch(Memory):
        def record(self, state: KrylovState) -> None:
            self.states.append(state)

    watch = Watch()
    solve(MAKERS["numpy"](), "float64", RESTARTS, watch)
    last = watch.states[-2]
    assert last.restarts > 0
    for state in watch.states[:-1]:
        assert state.is_intact == (state.restarts == last.restarts)


# -- fits --------------------------------------------------------------------------------------------------------------

START = np.random.default_rng(1).standard_normal((300, 3))
FITS: dict[str, tuple[type, str, dict[str, Any]]] = {
    "tight": (KernelPCA, "float64", {**SETTINGS, "tol": 1e-13}),
    "restarts": (KernelPCA, "float64", {**SETTINGS, "eigen_solver": BlockKrylov(tol=1e-9, max_blocks=3), "tol": 0}),
    "narrow": (KernelPCA, "float64", {**SETTINGS, "eigen_solver": BlockKrylov(tol=1e-4, block_size=2), "tol": 0}),
    "fixed": (KernelPCA, "float64", {**SETTINGS, "tol": 1e-4, "iterated_power": 5}),
    "share": (KernelPCA, "float64", {**SETTINGS, "n_components": 0.6, "tol": 1e-3}),
    "float32": (KernelPCA, "float32", {**SETTINGS, "tol": 1e-5}),
    "start": (KernelPCA, "float64", {**SETTINGS, "eigen_solver": BlockKrylov(start=START), "tol": 0}),
    "PCA by samples": (PCA, "float64", {"n_components": 2, "svd_solver": "randomized", "random_state": 0}),
    "PCA by features": (PCA, "float32", {"n_components": 2, "svd_solver": "randomized", "random_state": 0}),
}


@pytest.mark.parametrize(("name", "interval"), [(name, 3600.0) for name in FITS] + [("tight", 0.0), ("restarts", 0.0)])
def test_a_fit_resumes_after_every_pass_to_the_same_bits(name: str, interval: float, tmp_path: Path) -> None:
    """The exception writes the state that the interval left out."""
    cls, dtype, settings = FITS[name]
    data = rows(30 if "by samples" in name else 300, 5 if cls is KernelPCA else 60, dtype)
    passes: list[int] = []
    listen = lambda event: passes.append(event.done) if event.stage == "pass" else None  # noqa: E731
    reference = cls(**{**settings, "verbose": listen}).fit(data)
    for number in range(1, len(passes) + 1, 1 if len(passes) < 10 else 4):
        checkpoint = Checkpoint(tmp_path / str(number), interval)
        interrupt(checkpoint, number, data, cls, **settings)
        for _ in range(2):
            model, texts = resume(checkpoint, data, cls, **settings)
            assert texts[0] == f"resumed at pass {passes[number - 1]}"
            assert_same(model, reference)
            number = len(passes)


def test_a_fit_may_be_interrupted_again_and_again(tmp_path: Path, reference: KernelPCA) -> None:
    for _ in range(reference.n_passes_):
        interrupt(tmp_path, 1, **SETTINGS)
    model, texts = resume(tmp_path, **SETTINGS)
    assert texts == [f"resumed at pass {reference.n_passes_}"]
    assert_same(model, reference)


@pytest.mark.parametrize("kind", [np.random.PCG64, np.random.MT19937])
def test_a_generator_continues(kind: Any, tmp_path: Path) -> None:
    reference = KernelPCA(**{**SETTINGS, "random_state": np.random.Generator(kind(7))}).fit(X)
    interrupt(tmp_path, 4, **{**SETTINGS, "random_state": np.random.Generator(kind(7))})
    other = np.random.Generator(kind(8))
    assert_same(resume(tmp_path, **{**SETTINGS, "random_state": other})[0], reference)


def test_results_live_where_the_data_live(xp: Namespace, tmp_path: Path) -> None:
    settings = {**SETTINGS, "tol": 1e-8}
    reference = KernelPCA(**settings).fit(xp.array(X))
    interrupt(tmp_path, 3, xp.array(X), **settings)
    model, texts = resume(tmp_path, xp.array(X), **settings)
    assert texts[0] == "resumed at pass 3"
    assert xp.owns(model.eigenvectors_)
    np.testing.assert_array_equal(xp.host(model.eigenvectors_), xp.host(reference.eigenvectors_))


# -- the interval, the two files, signals ------------------------------------------------------------------------------


def test_files_are_written_in_turn_after_the_interval_and_at_the_end(tmp_path: Path) -> None:
    memory, now, texts = Memory(), [0.0], []
    solve(MAKERS["numpy"](), "float64", BlockKrylov(tol=1e-13), memory)
    report = lambda stage, text, done: texts.append((done, sorted(os.listdir(tmp_path))))  # noqa: E731
    with FolderCheckpointer(Checkpoint(tmp_path, 60.0), {}, report, lambda: now[0]) as checkpointer:
        for state in memory.states:
            now[0] += 25.0
            checkpointer.record(state)
    count = len(memory.states)
    assert [done for done, _ in texts] == [*range(3, count, 3), count]
    assert [names for _, names in texts[:2]] == [[NAMES[1]], list(NAMES)]
    numbers = [read_container(tmp_path / name, KIND)[0]["number"] for name in NAMES]
    assert sorted(numbers) == [len(texts) - 1, len(texts)]


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="signals of POSIX")
def test_sigusr1_writes_at_the_end_of_the_pass_and_the_fit_goes_on(tmp_path: Path, reference: KernelPCA) -> None:
    before, written = signal.getsignal(signal.SIGUSR1), []

    def listen(event: Progress) -> None:
        if event.stage == "checkpoint":
            written.append(event.done)
        if event.stage == "pass" and event.done == 3:
            os.kill(os.getpid(), signal.SIGUSR1)

    assert_same(KernelPCA(**SETTINGS, checkpoint=tmp_path, verbose=listen).fit(X), reference)
    assert written == [4, reference.n_passes_]
    assert signal.getsignal(signal.SIGUSR1) is before


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="signals of POSIX")
def test_sigusr1_while_the_last_checkpoint_is_written_ends_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It finds the handler of the fit, not that of the process."""
    before, handlers = signal.getsignal(signal.SIGUSR1), []
    monkeypatch.setattr(os, "fsync", lambda handle: handlers.append(signal.getsignal(signal.SIGUSR1)))
    interrupt(tmp_path, 3, **SETTINGS)
    assert handlers
    assert before not in handlers
    assert signal.getsignal(signal.SIGUSR1) is before


PROCESS = """
import sys
from gpukpca import KernelPCA, Checkpoint
from tests.long_fits import SETTINGS, rows
def listen(event):
    if event.stage == "checkpoint" or (event.stage == "pass" and event.done in (3, 5)):
        print(event.stage, event.done, flush=True)
        sys.stdin.readline()
KernelPCA(**SETTINGS, checkpoint=Checkpoint(sys.argv[1], 3600), verbose=listen).fit(rows())
"""


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="signals of POSIX")
def test_a_killed_process_leaves_the_checkpoint_that_sigusr1_wrote(tmp_path: Path, reference: KernelPCA) -> None:
    one = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", PROCESS, str(tmp_path)], env={**os.environ, **one}, **pipes) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for line, number in (("pass 3", signal.SIGUSR1), ("checkpoint 4", None), ("pass 5", signal.SIGKILL)):
            assert child.stdout.readline() == line + "\n"
            if number is not None:
                child.send_signal(number)
            child.stdin.write("\n")
            child.stdin.flush()
    assert child.returncode == -signal.SIGKILL
    model, texts = resume(tmp_path, **SETTINGS)
    assert texts[0] == "resumed at pass 4"
    assert_same(model, reference)


# -- what must agree, and what may differ ------------------------------------------------------------------------------

CHANGED = X.copy()
CHANGED[299, 4] = np.nextafter(X[299, 4], 9.0)
OTHERS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "data": (CHANGED, {}, "the data differ (their hashes do)"),
    "shape": (X[:299], {}, "shape was 300 x 5 and is 299 x 5 now"),
    "dtype": (X.astype(np.float32), {}, "dtype was float64 and is float32 now"),
    "iterated_power": (X, {"iterated_power": 9}, "iterated_power was 'auto' and is 9 now"),
    "passes": (X, {"eigen_solver": BlockKrylov(passes=9), "tol": 0}, "passes was None and is 9 now"),
    "gamma": (X, {"gamma": 0.25}, "kernel was RBF(gamma=0.2) and is RBF(gamma=0.25) now"),
    "kernel": (X, {"kernel": "laplacian"}, "kernel was RBF(gamma=0.2) and is Laplacian(gamma=0.2) now"),
    "random_state": (X, {"random_state": 1}, "random_state was 0 and is 1 now"),
    "version": (X, {}, "version was"),
}


@pytest.mark.parametrize("field", OTHERS)
def test_another_fit_is_refused_by_the_field_that_differs(
    field: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, parameters, text = OTHERS[field]
    interrupt(tmp_path, 3, **SETTINGS)
    before = contents(tmp_path)
    if field == "version":
        monkeypatch.setattr(_fingerprint, "__version__", "99.0.1")
    with pytest.raises(CheckpointError, match="is the checkpoint of another fit") as raised:
        resume(tmp_path, data, **{**SETTINGS, **parameters})
    assert text in str(raised.value)
    assert "Choose another folder, or delete the files state-*.safetensors in this one" in str(raised.value)
    assert "searches make many, which cannot share one" in str(raised.value)
    assert contents(tmp_path) == before


MAY_DIFFER: dict[str, tuple[dict[str, Any], str]] = {
    "more components": ({"n_components": 6}, "other settings"),
    "fewer components": ({"n_components": 2}, "other settings"),
    "a share of the variance": ({"n_components": 0.3}, "resumed at pass 5"),
    "looser tolerance": ({"tol": 1e-6}, "resumed at pass 5"),
    "tighter tolerance": ({"tol": 1e-12}, "resumed at pass 5"),
    "most passes": ({"max_iter": 50}, "resumed at pass 5"),
    "another width": ({"eigen_solver": BlockKrylov(block_size=7, tol=1e-11), "tol": 0}, "other settings"),
    "a shorter basis": ({"eigen_solver": BlockKrylov(max_blocks=3, tol=1e-11), "tol": 0}, "resumed at pass 5"),
    "memory and storage": ({"memory_limit": "1MB", "gram": "tiled", "copy_X": False}, ""),
    "threads": ({"n_jobs": 2}, "resumed at pass 5"),
}


@pytest.mark.parametrize("done", [5, 10**6])
@pytest.mark.parametrize("case", MAY_DIFFER)
def test_a_fit_resumes_with_other_settings_to_its_tolerance(case: str, done: int, tmp_path: Path) -> None:
    parameters, text = MAY_DIFFER[case]
    if done == 5:
        interrupt(tmp_path, done, **SETTINGS)
    else:
        KernelPCA(**SETTINGS, checkpoint=tmp_path).fit(X)
    model, texts = resume(tmp_path, **{**SETTINGS, **parameters})
    fresh = KernelPCA(**{**SETTINGS, **parameters}).fit(X)
    assert done > 5 or text in texts[0]
    assert model.converged_
    tolerance = max(parameters.get("tol", 0.0), 1e-11)
    np.testing.assert_allclose(model.eigenvalues_, fresh.eigenvalues_, atol=2 * tolerance * fresh.eigenvalues_[0])
    assert_same(resume(tmp_path, **{**SETTINGS, **parameters})[0], model)


def test_an_end_counts_for_a_looser_tolerance_and_not_for_a_tighter_one(tmp_path: Path, reference: KernelPCA) -> None:
    KernelPCA(**{**SETTINGS, "tol": 1e-4}, checkpoint=tmp_path).fit(X)
    model, texts = resume(tmp_path, **{**SETTINGS, "tol": 1e-3})
    assert texts == [f"resumed at pass {model.n_passes_}"]
    model, texts = resume(tmp_path, **SETTINGS)
    assert texts[0] == "other settings"
    assert np.all(model.residual_norms_ <= 2e-11 * model.eigenvalues_[0])


def test_passes_beyond_the_first_limit_resume(tmp_path: Path, reference: KernelPCA) -> None:
    with pytest.warns(UserWarning, match="did not converge|not reached|passes"):
        KernelPCA(**SETTINGS, max_iter=4, checkpoint=tmp_path).fit(X)
    model = KernelPCA(**SETTINGS, checkpoint=tmp_path).fit(X)
    assert model.converged_
    assert model.n_passes_ < reference.n_passes_


@pytest.mark.parametrize("to_device", [True, False])
def test_a_fit_resumes_on_another_device(to_device: bool, cuda: Any, tmp_path: Path, reference: KernelPCA) -> None:
    first, second = (X, cuda.asarray(X)) if to_device else (cuda.asarray(X), X)
    settings = {**SETTINGS, "gamma": "scale"}
    interrupt(tmp_path, 4, first, **settings)
    model, texts = resume(tmp_path, second, **settings)
    assert texts[0] == "other settings"  # a device takes wider blocks
    expected = KernelPCA(**settings).fit(X).eigenvalues_
    np.testing.assert_allclose(to_host(model.eigenvalues_), expected, atol=1e-10 * expected[0])


def closure(gamma: float) -> Any:
    return lambda x, y: float(np.exp(-gamma * np.sum((x - y) ** 2)))


def hidden(factor: float) -> Any:
    """Return a kernel of the user with a parameter that its `get_params` does not list."""

    class Hidden(RBF):
        def tile(self, a: Any, b: Any, out: Any = None) -> Any:
            return factor * super().tile(a, b, out)

        def tile_diagonal(self, a: Any) -> Any:
            return factor * super().tile_diagonal(a)

    return Hidden(gamma=0.2)


USERS = {
    "closure": closure,
    "partial": lambda gamma: functools.partial(lambda x, y, gamma: closure(gamma)(x, y), gamma=gamma),
    "in a sum": lambda gamma: RBF(gamma=0.2) + hidden(gamma),
    "subclass": hidden,
}


@pytest.mark.parametrize("kind", USERS)
def test_code_of_the_user_is_distinguished_by_its_values(kind: str, tmp_path: Path) -> None:
    data, settings = X[:60], {**SETTINGS, "gamma": None, "kernel": USERS[kind](0.25)}
    interrupt(tmp_path, 3, data, **settings)
    with pytest.raises(CheckpointError, match="kernel_values was"):
        resume(tmp_path, data, **{**settings, "kernel": USERS[kind](0.5)})
    model, texts = resume(tmp_path, data, **{**settings, "kernel": USERS[kind](0.25)})
    assert texts[0] == "resumed at pass 3"
    assert_same(model, KernelPCA(**settings).fit(data))


class Square(Storage):
    """The square matrix, times a factor."""

    factor = 1.0

    def bytes_held(self, item_size: int) -> int:
        return self.n**2 * item_size

    def build(self, source: Any) -> DenseGram:
        return DenseGram(self.factor * gram_matrix(source.kernel, source.X))

    def __str__(self) -> str:
        return "square"


class Twice(Square):
    factor = 2.0


@pytest.mark.parametrize("done", [3, 10**6])
def test_a_fit_with_another_class_of_storage_is_refused(done: int, tmp_path: Path) -> None:
    settings = {**SETTINGS, "gram": Square}
    if done == 3:
        interrupt(tmp_path, done, **settings)
    else:
        KernelPCA(**settings, checkpoint=tmp_path).fit(X)
    with pytest.raises(CheckpointError, match=r"gram was .*Square and is .*Twice now"):
        resume(tmp_path, **{**settings, "gram": Twice})
    with pytest.raises(CheckpointError, match=r"gram was .*Square and is None now"):
        resume(tmp_path, **SETTINGS)
    assert resume(tmp_path, **settings)[1][0].startswith("resumed at pass")


def test_a_description_has_all_digits_and_is_the_same_in_every_process() -> None:
    third = 1.0 / 3.0
    assert repr(third) in exact_text(RBF(gamma=third) + Matern(nu=1.5))
    assert exact_text(rows) == f"{rows.__module__}.rows"
    assert exact_text(BlockKrylov(start=X)) != exact_text(BlockKrylov(start=2 * X))
    assert exact_text(np.float64(0.5)) == "0.5"


def panels(data: np.ndarray, *cuts: int) -> BatchedRows:
    """Return the rows of an array cut at some of them."""
    return BatchedRows(lambda: iter(np.split(data, cuts)), data[:0])


def test_the_hash_of_data_is_that_of_their_entries(xp: Namespace) -> None:
    data = rows(5000, 40)  # 204 rows a block
    expected = digest_of(data)
    assert digest_of(xp.array(data)) == digest_of(np.asfortranarray(data)) == digest_of(data, 2) == expected
    for cuts in ((7,), (204, 408), (1, 2, 3, 205), (4896,), (203, 204, 205, 300, 4999), range(50, 5000, 50)):
        assert digest_of(panels(data, *cuts)) == expected
    assert digest_of(panels(data[:408], 204)) == digest_of(data[:408])
    assert digest_of(data[::-1]) != expected
    assert digest_of(panels(data[::-1], 7)) != expected
    sparse = scipy.sparse.csr_matrix(np.where(X > 1, X, 0.0))
    moved = sparse.copy()
    assert digest_of(sparse) == digest_of(moved)
    moved.indices[0] = (moved.indices[0] + 1) % 5
    assert digest_of(sparse) != digest_of(moved)


# -- damage ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return the folder of a fit that was interrupted after its sixth pass, and the name of the newer file."""
    folder = tmp_path_factory.mktemp("states") / "whole"
    interrupt(Checkpoint(folder, 0), 6, **SETTINGS)
    assert sorted(os.listdir(folder)) == list(NAMES)
    return folder, NAMES[0]


def flip(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :]


def forge(change: Callable[[dict[str, Any], dict[str, np.ndarray]], Any]) -> Callable[[Path], None]:
    """Return a fault that changes the header and the arrays of a file, whose digest stays right."""

    def fault(path: Path) -> None:
        header, arrays = read_container(path, KIND)
        change(header, arrays)
        write_container(path, KIND, header, arrays)

    return fault


FAULTS: dict[str, Callable[[Path], Any]] = {
    "something else": lambda path: path.write_bytes(pickle.dumps(X)),
    "NaN": forge(lambda header, arrays: arrays["W"].__setitem__((0, 0), np.nan)),
    "fewer rows": forge(lambda header, arrays: arrays.update(W=arrays["W"][1:].copy())),
    "another dtype": forge(lambda header, arrays: arrays.update(block=arrays["block"].astype(np.float32))),
    "no T": forge(lambda header, arrays: arrays.pop("T")),
    "no block": forge(lambda header, arrays: arrays.pop("block")),
    "another phase": forge(lambda header, arrays: header["state"].update(phase="WAIT")),
    "no counter": forge(lambda header, arrays: header["state"].pop("n_passes")),
}


def test_every_prefix_and_flipped_bit_of_the_newer_file_leaves_the_older_one(
    two_files: tuple[Path, str], tmp_path: Path
) -> None:
    whole, name = two_files
    shutil.copytree(whole, tmp_path / "c")
    path, content = tmp_path / "c" / name, (whole / name).read_bytes()
    fingerprint = read_container(whole / name, KIND)[0]["fingerprint"]
    places = [*range(40), *range(40, len(content), len(content) // 40), len(content) - 1]
    for damaged in [content[:place] for place in places] + [flip(content, place) for place in places]:
        path.write_bytes(damaged)
        with pytest.warns(CheckpointWarning, match=rf"{name} cannot be used: .*\. Resuming at pass 5\."):
            stored = FolderCheckpointer(Checkpoint(tmp_path / "c"), fingerprint, print)._stored
        assert stored is not None
        assert stored.n_passes == 5


@pytest.mark.parametrize("fault", FAULTS)
def test_a_newer_file_that_holds_no_state_leaves_the_older_one(
    fault: str, two_files: tuple[Path, str], tmp_path: Path, reference: KernelPCA
) -> None:
    whole, name = two_files
    shutil.copytree(whole, tmp_path / "c")
    FAULTS[fault](tmp_path / "c" / name)
    with pytest.warns(CheckpointWarning, match=rf"{name} cannot be used: .*\. Resuming at pass 5\."):
        model, texts = resume(tmp_path / "c", **SETTINGS)
    assert texts[0] == "resumed at pass 5"
    assert_same(model, reference)


def test_two_damaged_files_are_an_error_that_names_the_damage(two_files: tuple[Path, str], tmp_path: Path) -> None:
    shutil.copytree(two_files[0], tmp_path / "c")
    for path in (tmp_path / "c").iterdir():
        path.write_bytes(flip(path.read_bytes(), path.stat().st_size - 9))
    before = contents(tmp_path / "c")
    with pytest.raises(CheckpointError, match=r"no checkpoint that is whole: state-.*SHA-256.*Choose another folder"):
        resume(tmp_path / "c", **SETTINGS)
    assert contents(tmp_path / "c") == before


@pytest.mark.parametrize("name", NAMES)
def test_a_deleted_file_leaves_the_other_one(
    name: str, two_files: tuple[Path, str], tmp_path: Path, reference: KernelPCA
) -> None:
    shutil.copytree(two_files[0], tmp_path / "c")
    (tmp_path / "c" / name).unlink()
    model, texts = resume(tmp_path / "c", **SETTINGS)
    assert texts[0] == f"resumed at pass {5 if name == two_files[1] else 6}"
    assert_same(model, reference)


def test_a_search_over_one_folder_is_an_error_that_says_why(tmp_path: Path) -> None:
    model = KernelPCA(**SETTINGS, preimage="ridge", checkpoint=tmp_path / "job")
    with pytest.raises(CheckpointError, match="A folder is for one fit: cross-validation"):
        cross_val_score(model, X, cv=2, error_score="raise")


def test_drafts_of_a_kill_are_removed_and_other_files_stay(tmp_path: Path) -> None:
    interrupt(tmp_path, 4, **SETTINGS)
    (tmp_path / ".state-1.safetensors.x1y2.partial").write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    resume(tmp_path, **SETTINGS)
    assert sorted(os.listdir(tmp_path)) == ["notes.txt", *NAMES]


@pytest.mark.parametrize("kind", ["MT19937", "Philox"])
@pytest.mark.parametrize("number", [-1, 10**9, "0", None])
def test_positions_beyond_the_buffer_of_a_generator_are_refused(kind: str, number: Any) -> None:
    """NumPy would read there."""
    rng = np.random.Generator(getattr(np.random, kind)(0))
    state = json.loads(format_generator(rng))
    state["state"]["pos"] = state["buffer_pos"] = number
    with pytest.raises(ValueError, match=f"position of {kind}"):
        restore_generator(rng, json.dumps(state))
    restore_generator(rng, format_generator(rng))


# -- the disk ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kth", [1, 2, 5, 1000])
def test_a_full_disk_is_a_warning_and_the_fit_goes_on(
    kth: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: KernelPCA
) -> None:
    """From the k-th write on in two of them, or (1000) in all."""
    written, folder = iter(range(10**6)), tmp_path / "c"

    def full(handle: int) -> None:
        if kth == 1000 or kth <= next(written) < kth + 4:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.warns(CheckpointWarning, match=r"c/state-.*could not be written \(No space left") as caught:
        model = KernelPCA(**SETTINGS, checkpoint=Checkpoint(folder, 0)).fit(X)
    assert len(caught) == 1
    assert_same(model, reference)
    assert not list(folder.glob(".*"))
    monkeypatch.setattr(files.os, "fsync", lambda handle: None)
    again, texts = resume(folder, **SETTINGS)
    assert_same(again, reference)
    last = reference.n_passes_
    assert texts[0] == (f"checkpoint of pass {last} written" if kth == 1000 else f"resumed at pass {last}")


def test_a_folder_that_vanishes_is_created_again(tmp_path: Path, reference: KernelPCA) -> None:
    folder = tmp_path / "c"

    def vanish(event: Progress) -> None:
        if event.stage == "pass" and event.done == 3:
            folder.rename(tmp_path / "gone")

    KernelPCA(**SETTINGS, checkpoint=Checkpoint(folder, 0), verbose=vanish).fit(X)
    model, texts = resume(folder, **SETTINGS)
    assert texts == [f"resumed at pass {reference.n_passes_}"]
    assert_same(model, reference)


def test_a_folder_that_cannot_be_is_an_error_before_the_first_pass(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    passes = []
    for name, error in {"file": FileExistsError, "file/c": OSError, "a/b": FileNotFoundError}.items():
        for given in (tmp_path / name, Checkpoint(str(tmp_path / name))):
            with pytest.raises(error, match=name.partition("/")[0]):
                KernelPCA(**SETTINGS, checkpoint=given, verbose=passes.append).fit(X)
    assert not [event for event in passes if event.stage == "pass"]
    for value in (3, "", True):
        with pytest.raises(InvalidParameterError, match=r"checkpoint=.*the path of a folder, or a gpukpca\.Checkpoint"):
            KernelPCA(**SETTINGS, checkpoint=value).fit(X)
    for arguments, text in ((("", 1), "folder=''"), (("c", -1), "interval=-1"), (("c", None), "interval=None")):
        with pytest.raises(InvalidParameterError, match=f"Checkpoint: {text} is not allowed"):
            Checkpoint(*arguments)  # type: ignore[arg-type]


def test_two_fits_in_one_folder_are_both_right(tmp_path: Path, reference: KernelPCA) -> None:
    """One begins and ends while the other is under way, which then writes no more."""

    def other(event: Progress) -> None:
        if event.stage == "pass" and event.done == 4:
            assert_same(KernelPCA(**SETTINGS, checkpoint=Checkpoint(tmp_path, 0)).fit(X), reference)

    with pytest.warns(CheckpointWarning, match=r"state-.* was written by another fit") as caught:
        assert_same(KernelPCA(**SETTINGS, checkpoint=Checkpoint(tmp_path, 0), verbose=other).fit(X), reference)
    assert len(caught) == 1
    model, texts = resume(tmp_path, **SETTINGS)
    assert texts == [f"resumed at pass {reference.n_passes_}"]
    assert_same(model, reference)


@pytest.mark.parametrize("ends", [True, False])
def test_of_two_fits_that_start_together_the_later_writer_leaves_the_files_of_the_other(
    ends: bool, tmp_path: Path, reference: KernelPCA
) -> None:
    """Both find the folder empty. The exception at an end writes no checkpoint either."""

    def other(event: Progress) -> None:
        if event.stage == "pass" and event.done == 1:
            interrupt(Checkpoint(tmp_path, 0), 4, **SETTINGS)
            found.update(contents(tmp_path))
        if event.stage == "pass" and event.done == 5 and ends:
            raise Stop

    found: dict[str, bytes] = {}
    changed = {**SETTINGS, "gamma": 0.25, "verbose": other, "checkpoint": Checkpoint(tmp_path, 3600)}
    with (
        pytest.warns(CheckpointWarning, match="This fit goes on without further checkpoints") as caught,
        pytest.raises(Stop) if ends else contextlib.nullcontext(),
    ):
        assert KernelPCA(**changed).fit(X).converged_
    assert len(caught) == 1
    assert contents(tmp_path) == found
    assert_same(resume(tmp_path, **SETTINGS)[0], reference)


# -- estimators --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [{"eigen_solver": "dense"}, {"eigen_solver": Nystrom(rank=20)}, {"kernel": "linear", "eigen_solver": "auto"}],
    ids=["dense", "nystrom", "low rank"],
)
def test_solutions_without_passes_leave_no_folder_and_say_so(settings: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "c"
    model = KernelPCA(3, **{"kernel": "rbf", "checkpoint": folder, "random_state": 0, **settings}).fit(X)
    assert any("no checkpoint is written" in note for note in model.plan_.notes)
    for svd_solver in ("auto", "full"):
        pca = PCA(2, svd_solver=svd_solver, checkpoint=folder).fit(X)
        assert any("no checkpoint is written" in note for note in pca.plan_.notes)
    assert not any("checkpoint" in note for note in KernelPCA(**SETTINGS, checkpoint=folder).plan(X).notes)
    assert not folder.exists()


def test_an_interrupt_leaves_the_estimator_as_it_was_and_the_checkpoint(tmp_path: Path, reference: KernelPCA) -> None:
    def ctrl_c(event: Progress) -> None:
        if event.stage == "tiles" and len(passes) == 4:
            raise KeyboardInterrupt
        passes.extend([event.done] if event.stage == "pass" else [])

    passes: list[int] = []
    model = KernelPCA(**SETTINGS, checkpoint=tmp_path, verbose=ctrl_c)
    before = dict(vars(model))
    with pytest.raises(KeyboardInterrupt):
        model.fit(X)
    assert vars(model) == before
    again, texts = resume(tmp_path, **SETTINGS)
    assert texts[0] == "resumed at pass 4"
    assert_same(again, reference)


def test_the_parameter_is_cloned_and_pickled_and_not_saved(tmp_path: Path) -> None:
    for checkpoint in (tmp_path / "c", Checkpoint(tmp_path / "c", 5)):
        model = KernelPCA(**SETTINGS, checkpoint=checkpoint).fit(X)
        assert clone(model).checkpoint == checkpoint
        assert pickle.loads(pickle.dumps(model)).checkpoint == checkpoint
        model.save(tmp_path / "m")
        read = load(tmp_path / "m")
        assert read.checkpoint is None
        np.testing.assert_array_equal(read.transform(X), model.transform(X))
