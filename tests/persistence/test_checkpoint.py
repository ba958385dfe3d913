"""Checkpoints: whatever ends a fit, the next one goes on to the same bits; whatever is wrong with the files is told."""

from __future__ import annotations

import dataclasses
import errno
import functools
import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from gpukpca import PCA, KernelPCA, Progress, load
from gpukpca import _files as files
from gpukpca._archive import read_archive, write_archive
from gpukpca.algorithms.kernel_pca import planning
from gpukpca.algorithms.progress import ETAListener
from gpukpca.backend import blocking
from gpukpca.backend.column_basis import ColumnBasis
from gpukpca.backend.namespace import to_host
from gpukpca.backend.random import format_generator, restore_generator
from gpukpca.checkpoint.checkpoint import Checkpoint
from gpukpca.checkpoint.file import FILE
from gpukpca.checkpoint.fingerprint import described, digest_of
from gpukpca.cli.app import gpukpca
from gpukpca.cli.failures import failures_in_one_line
from gpukpca.decomposition import _fingerprint
from gpukpca.eigen import BlockKrylov, KrylovState, Nystrom, block_krylov, top_eigh
from gpukpca.exceptions import CheckpointError, CheckpointWarning, ClusterError, InvalidParameterError
from gpukpca.gram import CenteredGram, TiledGram
from gpukpca.kernels import RBF, Matern
from tests.conftest import MAKERS, Namespace
from tests.long_fits import SETTINGS, rows


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)


class Stop(Exception):
    """A fit ends here, as by a kill: nothing after it runs but clean-up."""


X = rows()
KERNEL_PCA_RESULTS = ("eigenvalues_", "eigenvectors_", "projection_", "offset_", "residual_norms_", "n_passes_")
KERNEL_PCA_RESULTS += ("n_products_", "gap_", "total_variance_", "converged_", "solver_")
PCA_RESULTS = ("components_", "explained_variance_", "residual_norms_", "noise_variance_", "mean_")


def stopping_at(done: int) -> Any:
    """A listener that ends the fit when so many passes are done."""

    def listen(event: Progress) -> None:
        if event.stage == "pass" and event.done == done:
            raise Stop

    return listen


def interrupted(folder: Path, done: int, data: np.ndarray = X, cls: Any = KernelPCA, **settings: Any) -> None:
    """Fit until so many passes are done."""
    with pytest.raises(Stop):
        cls(**{**settings, "checkpoint": folder, "verbose": stopping_at(done)}).fit(data)


def resumed(folder: Path, data: np.ndarray = X, cls: Any = KernelPCA, **settings: Any) -> tuple[Any, list[int]]:
    """The fit that goes on, and the pass that it says to go on from."""
    told: list[int] = []

    def listen(event: Progress) -> None:
        if event.stage == "resumed":
            told.append(event.done)

    return cls(**{**settings, "checkpoint": folder, "verbose": listen}).fit(data), told


def assert_same(model: Any, other: Any, names: tuple[str, ...] = KERNEL_PCA_RESULTS) -> None:
    for name in names:
        np.testing.assert_array_equal(getattr(model, name), getattr(other, name), err_msg=name)


# -- the iteration -----------------------------------------------------------------------------------------------------


class Memory:
    """A checkpointer that keeps every state on the host, and ends the iteration after `last` of them."""

    def __init__(self, state: KrylovState | None = None, last: int = 10**6) -> None:
        self.state, self.last, self.states = state, last, []

    def resumed(self, p: int) -> KrylovState | None:
        return self.state

    def record(self, state: KrylovState) -> None:
        copy = lambda array: None if array is None else np.array(to_host(array), order="K")  # noqa: E731
        copies: dict[str, Any] = {name: copy(getattr(state, name)) for name in ("block", "means")}
        copies |= {name: ColumnBasis(tuple(map(copy, getattr(state, name).parts))) for name in ("Q", "W")}
        self.states.append(dataclasses.replace(state, **copies))
        if len(self.states) == self.last:
            raise Stop


SOLVERS = {
    "restarts": BlockKrylov(tol=1e-9, max_blocks=3),
    "narrow": BlockKrylov(tol=1e-4, block_size=2),
    "tight": BlockKrylov(tol=1e-13),
    "fixed": BlockKrylov(passes=5),
}


def solved(xp: Namespace, dtype: str, solver: BlockKrylov, checkpointer: Memory | None = None) -> Any:
    op = CenteredGram(TiledGram(RBF(gamma=0.3), xp.array(rows(80, 4, dtype)), tile_edge=50))
    return top_eigh(op, 4, solver=solver, rng=0, checkpointer=checkpointer)


def test_an_iteration_on_every_library_goes_on_from_every_state_to_the_same_bits(xp: Namespace, dtype: str) -> None:
    assert_goes_on(xp, dtype, "restarts")


@pytest.mark.parametrize("name", SOLVERS)
def test_every_kind_of_iteration_goes_on_from_every_state_to_the_same_bits(dtype: str, name: str) -> None:
    assert_goes_on(MAKERS["numpy"](), dtype, name)


def assert_goes_on(xp: Namespace, dtype: str, name: str) -> None:
    solver = SOLVERS[name] if dtype == "float64" else dataclasses.replace(SOLVERS[name], tol=1e-5)
    reference, checkpointer = solved(xp, dtype, solver), Memory()
    assert solved(xp, dtype, solver, checkpointer).n_passes == reference.n_passes
    assert [state.n_passes for state in checkpointer.states[:-1]] == list(range(reference.n_passes))
    assert checkpointer.states[-1].is_done
    for state in checkpointer.states:
        result = solved(xp, dtype, solver, Memory(state))
        for field in ("eigenvalues", "eigenvectors", "products", "residual_norms"):
            ours, theirs = xp.host(getattr(result, field)), xp.host(getattr(reference, field))
            np.testing.assert_array_equal(ours, theirs, err_msg=f"{field} from pass {state.n_passes}")
        assert (result.n_passes, result.n_products) == (reference.n_passes, reference.n_products)
        assert xp.owns(result.eigenvectors)


def test_a_checkpointer_costs_nothing_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(Checkpoint, "__init__", refuse)
    KernelPCA(**SETTINGS).fit(X)


# -- fits --------------------------------------------------------------------------------------------------------------

FITS: dict[str, tuple[type, str, dict[str, Any]]] = {
    "tight": (KernelPCA, "float64", {**SETTINGS, "tol": 1e-13}),
    "restarts": (KernelPCA, "float64", {**SETTINGS, "eigen_solver": BlockKrylov(tol=1e-9, max_blocks=3), "tol": 0}),
    "narrow": (KernelPCA, "float64", {**SETTINGS, "eigen_solver": BlockKrylov(tol=1e-4, block_size=2), "tol": 0}),
    "share": (KernelPCA, "float64", {**SETTINGS, "n_components": 0.6, "tol": 1e-3}),
    "float32": (KernelPCA, "float32", {**SETTINGS, "tol": 1e-5}),
    "tiles made anew, warm start": (KernelPCA, "float64", {**SETTINGS, "memory_limit": "2MB", "tol": 1e-8}),
    "PCA by samples": (PCA, "float64", {"n_components": 2, "svd_solver": "randomized", "random_state": 0}),
    "PCA by features": (PCA, "float32", {"n_components": 2, "svd_solver": "randomized", "random_state": 0}),
}


@pytest.mark.parametrize("name", FITS)
def test_a_fit_goes_on_after_every_pass_to_the_same_bits(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cls, dtype, settings = FITS[name]
    data = rows(30 if "by samples" in name else 600 if "warm" in name else 300, 5 if cls is KernelPCA else 60, dtype)
    if "warm" in name:
        monkeypatch.setattr(planning, "START_LANDMARKS", 40)
        monkeypatch.setattr(block_krylov, "SPARE_COLUMNS", 6)
        monkeypatch.setattr(planning, "tile_edge_for", lambda *_: 100)
        assert KernelPCA(**settings).plan(data).start_landmarks == 40
    passes: list[int] = []
    listen = lambda event: passes.append(event.done) if event.stage == "pass" else None  # noqa: E731
    reference = cls(**{**settings, "verbose": listen}).fit(data)
    names = KERNEL_PCA_RESULTS if cls is KernelPCA else PCA_RESULTS
    for number in range(len(passes))[:: 1 if len(passes) < 20 else 5]:
        folder = tmp_path / str(number)
        count = iter(range(len(passes)))

        def stop(event: Progress, count: Any = count, number: int = number) -> None:
            if event.stage == "pass" and next(count) == number:
                raise Stop

        with pytest.raises(Stop):
            cls(**{**settings, "checkpoint": folder, "verbose": stop}).fit(data)
        model, told = resumed(folder, data, cls, **settings)
        assert told == [passes[number] - 1]
        assert_same(model, reference, names)
        again, told = resumed(folder, data, cls, **settings)
        assert told == [passes[-1]]
        assert_same(again, reference, names)


def test_a_fit_may_be_killed_again_and_again(tmp_path: Path) -> None:
    reference = KernelPCA(**SETTINGS).fit(X)
    for done in range(1, reference.n_passes_ + 1):
        interrupted(tmp_path, done, **SETTINGS)
    model, told = resumed(tmp_path, **SETTINGS)
    assert told == [reference.n_passes_ - 1]
    assert_same(model, reference)


def test_a_generator_goes_on_where_it_was(tmp_path: Path) -> None:
    for kind in (np.random.PCG64, np.random.MT19937):
        state = lambda kind=kind: np.random.Generator(kind(7))  # noqa: E731
        reference = KernelPCA(**{**SETTINGS, "random_state": state()}).fit(X)
        folder = tmp_path / kind.__name__
        interrupted(folder, 4, **{**SETTINGS, "random_state": state()})
        other = np.random.Generator(kind(8))
        assert_same(resumed(folder, **{**SETTINGS, "random_state": other})[0], reference)


def test_results_live_where_the_data_live(xp: Namespace, tmp_path: Path) -> None:
    settings = {**SETTINGS, "tol": 1e-8}
    reference = KernelPCA(**settings).fit(xp.array(X))
    interrupted(tmp_path, 3, xp.array(X), **settings)
    model, told = resumed(tmp_path, xp.array(X), **settings)
    assert told == [2]
    assert xp.owns(model.eigenvectors_)
    np.testing.assert_array_equal(xp.host(model.eigenvectors_), xp.host(reference.eigenvectors_))


# -- what must agree ---------------------------------------------------------------------------------------------------

OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "data": ({}, "the data differ (their hashes do)"),
    "shape": ({}, "shape was 300 x 5 and is 299 x 5 now"),
    "dtype": ({}, "dtype was float64 and is float32 now"),
    "n_components": ({"n_components": 4}, "n_components was 3 and is 4 now"),
    "tol": ({"tol": 1e-6}, "tol was 1e-11 and is 1e-06 now"),
    "max_iter": ({"max_iter": 50}, "max_iter was None and is 50 now"),
    "iterated_power": ({"iterated_power": 9}, "iterated_power was 'auto' and is 9 now"),
    "gamma": ({"gamma": 0.25}, "kernel was RBF(gamma=0.2) and is RBF(gamma=0.25) now"),
    "kernel": ({"kernel": "laplacian"}, "kernel was RBF(gamma=0.2) and is Laplacian(gamma=0.2) now"),
    "solver": ({"eigen_solver": BlockKrylov(block_size=7), "tol": 0}, "eigen_solver was 'randomized' and is BlockKryl"),
    "random_state": ({"random_state": 1}, "random_state was 0 and is 1 now"),
    "version": ({}, "version was"),
    "format": ({}, "format was 2 and is 3 now"),
}


@pytest.mark.parametrize("field", OTHERS)
def test_another_fit_is_refused_by_the_field_that_differs(
    field: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(tmp_path, 3, **SETTINGS)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    if field == "version":
        monkeypatch.setattr(_fingerprint, "__version__", "99.0")
    if field == "format":
        monkeypatch.setattr(_fingerprint, "FORMAT", 3)
    changed = X.copy()
    changed[299, 4] = np.nextafter(changed[299, 4], 9.0)
    data = {"data": changed, "shape": X[:299], "dtype": X.astype(np.float32)}.get(field, X)
    parameters, words = OTHERS[field]
    with pytest.raises(CheckpointError, match="is the checkpoint of another fit") as raised:
        resumed(tmp_path, data, **{**SETTINGS, **parameters})
    assert words in str(raised.value)
    assert "Choose another folder, or delete the files p*_pass*.npz in this one" in str(raised.value)
    assert "searches make many, which cannot share one" in str(raised.value)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def closure(gamma: float) -> Any:
    return lambda x, y: float(np.exp(-gamma * np.sum((x - y) ** 2)))


def hidden(factor: float) -> Any:
    """A kernel of the user's with a parameter that it does not tell."""

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
def test_code_of_the_user_is_told_apart_by_its_values(kind: str, tmp_path: Path) -> None:
    data = X[:60]
    more = {"gamma": None, "kernel_params": {}} if kind in ("closure", "partial") else {"gamma": None}
    settings = {**SETTINGS, **more, "kernel": USERS[kind](0.25)}
    interrupted(tmp_path, 3, data, **settings)
    with pytest.raises(CheckpointError, match="kernel_values was"):
        resumed(tmp_path, data, **{**settings, "kernel": USERS[kind](0.5)})
    model, told = resumed(tmp_path, data, **{**settings, "kernel": USERS[kind](0.25)})
    assert told == [2]
    assert_same(model, KernelPCA(**settings).fit(data))


def test_what_bounds_memory_and_time_may_differ(tmp_path: Path) -> None:
    reference = KernelPCA(**SETTINGS).fit(X)
    interrupted(tmp_path, 3, **SETTINGS)
    model, told = resumed(tmp_path, **SETTINGS, memory_limit="1MB", gram="tiled", copy_X=False)
    assert told == [2]
    np.testing.assert_allclose(model.eigenvalues_, reference.eigenvalues_, rtol=1e-12)


def test_a_field_tells_all_digits_and_is_the_same_in_every_process() -> None:
    third = 1.0 / 3.0
    assert repr(third) in described(RBF(gamma=third) + Matern(nu=1.5))
    assert described(rows) == f"{rows.__module__}.rows"
    assert described(BlockKrylov(start=X)) != described(BlockKrylov(start=2 * X))
    assert described(np.float64(0.5)) == "0.5"


def test_the_hash_of_data_is_that_of_their_entries(xp: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    import scipy.sparse

    monkeypatch.setattr(blocking, "HASHED_BYTES", 2000)
    wanted = digest_of(X)
    assert digest_of(xp.array(X)) == digest_of(np.asfortranarray(X)) == digest_of(X, 2) == wanted
    assert digest_of(X[::-1]) != wanted
    sparse = scipy.sparse.csr_matrix(np.where(X > 1, X, 0.0))
    moved = sparse.copy()
    assert digest_of(sparse) == digest_of(moved)
    moved.indices[0] = (moved.indices[0] + 1) % 5
    assert digest_of(sparse) != digest_of(moved)


# -- damage ------------------------------------------------------------------------------------------------------------


def flip(path: Path, share: float) -> None:
    content = bytearray(path.read_bytes())
    content[round(share * (len(content) - 1))] ^= 0x10
    path.write_bytes(content)


FAULTS = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-200]),
    "cut to half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "a bit of the arrays": lambda path: flip(path, 0.6),
    "a bit of the header": lambda path: flip(path, 100 / path.stat().st_size),
    "empty": lambda path: path.write_bytes(b""),
    "deleted": lambda path: path.unlink(),
    "something else": lambda path: path.write_bytes(pickle.dumps(X)),
    "where the directory begins": lambda path: flip(path, 1 - 4 / path.stat().st_size),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a link to itself": lambda path: (path.unlink(), path.symlink_to(path)),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
}
STOPS = {"in a row": (5, {}), "after a restart": (7, {"eigen_solver": BlockKrylov(tol=1e-9, max_blocks=3), "tol": 0})}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("stop", STOPS)
def test_any_one_damaged_file_leaves_a_generation_to_go_on_from(fault: str, stop: str, tmp_path: Path) -> None:
    done, more = STOPS[stop]
    settings = {**SETTINGS, **more}
    reference = KernelPCA(**settings).fit(X)
    interrupted(tmp_path / "whole", done, **settings)
    names = sorted(path.name for path in (tmp_path / "whole").iterdir())
    assert len(names) >= 2
    for name in names:
        folder = tmp_path / name
        shutil.copytree(tmp_path / "whole", folder)
        FAULTS[fault](folder / name)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model, told = resumed(folder, **settings)
        assert_same(model, reference)
        words = [str(w.message) for w in caught if issubclass(w.category, CheckpointWarning)]
        if told != [done - 1] and not (fault == "deleted" and name == names[-1]):
            assert len(words) == 1
            assert name in words[0]
            assert f"Going on from pass {told[0] if told else 0}." in words[0]


def test_nothing_whole_is_an_error_that_names_the_damage(tmp_path: Path) -> None:
    interrupted(tmp_path, 4, **SETTINGS)
    for path in tmp_path.iterdir():
        flip(path, 0.5)
    with pytest.raises(CheckpointError, match=r"no checkpoint that is whole: p.*\.npz cannot be used") as raised:
        resumed(tmp_path, **SETTINGS)
    assert str(raised.value).count("cannot be used") == 1
    assert re.search(r"\(and \d more\)\. Choose another folder", str(raised.value))


def forged(path: Path, change: Any) -> None:
    """Write a file of a checkpoint again with a change to its header and arrays: its checksum is right."""
    header, arrays = read_archive(path, lambda header: None)
    change(header, arrays)
    write_archive(path, header, arrays)


def first(name: str, value: Any) -> Any:
    """Return a change of the first entry of an array."""
    return lambda header, arrays: arrays[name].__setitem__((0,) * arrays[name].ndim, value)


def basis(change: Any) -> Any:
    """Return a change of the columns of the basis that a file has: before a pass those of the next block."""
    return lambda header, arrays: [arrays.update({k: change(arrays[k])}) for k in ("Q", "block") if k in arrays]


def counter(name: str, value: Any) -> Any:
    return lambda header, arrays: header.update({name: value})


STATES = {"before a pass": 6, "finished": 10**6}
FORGERIES = {
    "NaN in the basis": (basis(lambda Q: np.nan * Q), "NaN or infinity"),
    "NaN in the products": (first("W", np.nan), "NaN or infinity"),
    "NaN in T": (first("T", np.nan), "NaN or infinity"),
    "infinite means": (first("means", np.inf), "NaN or infinity"),
    "NaN for a residual": (counter("best_residual", "nan"), "NaN or infinity"),
    "a basis of zeros": (basis(np.zeros_like), "not orthonormal"),
    "a basis that is not unit": (basis(lambda Q: 1.1 * Q), "not orthonormal"),
    "huge vectors": (basis(lambda Q: 1e300 * Q), "not orthonormal"),
    "products of another basis": (lambda header, arrays: arrays.update(W=-arrays["W"]), "T differs"),
    "T of zeros": (lambda header, arrays: arrays["T"].fill(0.0), "T differs"),
    "fewer rows": (basis(lambda Q: Q[1:]), "where 300 rows"),
    "fewer rows everywhere": (
        lambda header, arrays: arrays.update({k: v[1:] for k, v in arrays.items() if len(v) == 300}),
        "where 300 rows",
    ),
    "fewer products": (lambda header, arrays: arrays.update(W=arrays["W"][:, 1:]), "W has the shapes"),
    "means of other length": (lambda header, arrays: arrays.update(means=arrays["means"][1:]), "means is"),
    "a vector": (basis(lambda Q: Q[:, 0].copy()), "has a part"),
    "T of three dimensions": (lambda header, arrays: arrays.update(T=arrays["T"][None]), ""),
    "T of none": (lambda header, arrays: arrays.update(T=arrays["T"][0, 0][...]), ""),
    "T of integers": (lambda header, arrays: arrays.update(T=arrays["T"].astype(np.int64)), "T is int64"),
    "another dtype": (basis(lambda Q: Q.astype(np.float32)), "rows of float64"),
    "integers": (lambda header, arrays: arrays.update(W=arrays["W"].astype(np.int64)), "rows of float64"),
    "no T": (lambda header, arrays: arrays.pop("T"), "T"),
    "an exponent beyond numbers": (counter("exponent", 10**9), "exponent"),
    "an exponent of text": (counter("exponent", "0"), "exponent"),
    "no exponent": (counter("exponent", None), "components"),
    "more components than columns": (counter("p", 10**6), ""),
    "passes of another file": (counter("n_passes", 1), "another pass"),
    "a file twice": (
        lambda header, arrays: header.update(files=["p3_pass0001_00000000.npz"] * 2, checksums=[1, 1]),
        "",
    ),
    "a generator that is none": (counter("generator", "[" * 10**5), ""),
    "a generator in a list": (counter("generator", "[]"), ""),
}


@pytest.fixture(scope="module", params=STATES)
def whole_states(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a fit that was interrupted, and of one that was not."""
    folder = tmp_path_factory.mktemp("states") / "whole"
    with patch.object(os, "fsync", lambda handle: None):
        if request.param == "finished":
            KernelPCA(**SETTINGS, checkpoint=folder).fit(X)
        else:
            interrupted(folder, STATES[request.param], **SETTINGS)
    return folder


@pytest.fixture(scope="module")
def reference() -> KernelPCA:
    return KernelPCA(**SETTINGS).fit(X)


@pytest.mark.parametrize("case", FORGERIES)
def test_states_that_are_none_are_refused_whatever_their_checksum(
    case: str, whole_states: Path, reference: KernelPCA, tmp_path: Path
) -> None:
    change, words = FORGERIES[case]
    folder = tmp_path / "job"
    shutil.copytree(whole_states, folder)
    last = max(folder.iterdir())
    forged(last, change)
    with pytest.warns(CheckpointWarning, match=rf"{last.name} cannot be used: .*{words}"):
        model, _ = resumed(folder, **SETTINGS)
    assert_same(model, reference)


def test_a_folder_of_states_that_are_none_is_an_error(whole_states: Path, tmp_path: Path) -> None:
    shutil.copytree(whole_states, tmp_path / "job")
    for path in (tmp_path / "job").iterdir():
        forged(path, counter("generator", "{}"))
    with pytest.raises(CheckpointError, match="no checkpoint that is whole"):
        resumed(tmp_path / "job", **SETTINGS)


def test_positions_beyond_the_buffer_of_a_generator_are_refused() -> None:
    """NumPy would read there."""
    for kind, place in (("MT19937", ("state", "pos")), ("Philox", ("buffer_pos",))):
        rng = np.random.Generator(getattr(np.random, kind)(0))
        for number in (-1, 10**9, "0", None):
            state = json.loads(format_generator(rng))
            (state["state"] if len(place) > 1 else state)[place[-1]] = number
            with pytest.raises(ValueError, match=f"position of {kind}"):
                restore_generator(rng, json.dumps(state))
        restore_generator(rng, format_generator(rng))


def test_a_search_over_one_folder_is_told_what_to_do(tmp_path: Path) -> None:
    model = KernelPCA(**SETTINGS, preimage="ridge", checkpoint=tmp_path / "job")
    with pytest.raises(CheckpointError, match="A folder is for one fit: cross-validation"):
        cross_val_score(model, X, cv=2, error_score="raise")


def test_what_a_kill_leaves_behind_is_cleaned_up_and_other_files_stay(tmp_path: Path) -> None:
    interrupted(tmp_path, 4, **SETTINGS)
    (tmp_path / ".p3_pass0007_0123abcd.npz.x1y2.partial").write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("mine")
    resumed(tmp_path, **SETTINGS)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left[0] == "notes.txt"
    assert all(FILE.fullmatch(name) for name in left[1:])


def test_the_folder_does_not_grow(tmp_path: Path) -> None:
    """Two rows of files: the present one, and the one before it."""
    solver = BlockKrylov(tol=1e-9, max_blocks=3)
    counts: list[int] = []

    def count(event: Progress) -> None:
        if event.stage == "pass":
            counts.append(len(os.listdir(tmp_path)))

    model = KernelPCA(**{**SETTINGS, "eigen_solver": solver, "tol": 0, "checkpoint": tmp_path, "verbose": count}).fit(X)
    assert "restarts" in model.solver_
    assert len(counts) > 6
    assert max(counts) <= 8


# -- the disk ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kth", [1, 2, 5, 1000])
def test_a_full_disk_is_a_warning_and_the_fit_goes_on(
    kth: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the k-th file on in five of them, or (1000) in all: what comes later holds what is missing."""
    reference = KernelPCA(**SETTINGS).fit(X)
    written = iter(range(10**6))
    real = os.fsync

    def full(handle: int) -> None:
        number = next(written)
        if kth == 1000 or kth <= number < kth + 5:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(handle)

    monkeypatch.setattr(files.os, "fsync", full)
    folder = tmp_path / "c"
    with pytest.warns(CheckpointWarning, match=r"c/p.*could not be written \(No space left") as caught:
        model = KernelPCA(**SETTINGS, checkpoint=folder).fit(X)
    assert len(caught) == 1
    assert_same(model, reference)
    assert not [name for name in os.listdir(folder) if name.endswith(".partial")]
    monkeypatch.setattr(files.os, "fsync", real)
    again, told = resumed(folder, **SETTINGS)
    assert_same(again, reference)
    assert told == ([] if kth == 1000 else [reference.n_passes_])


def test_a_folder_that_vanishes_is_made_anew(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    reference = KernelPCA(**SETTINGS).fit(X)

    def vanish(event: Progress) -> None:
        if event.stage == "pass" and event.done == 3:
            folder.rename(tmp_path / "gone")
        if event.stage == "pass" and event.done == 6:
            raise Stop

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CheckpointWarning)  # where a file was being written just then
        with pytest.raises(Stop):
            KernelPCA(**SETTINGS, checkpoint=folder, verbose=vanish).fit(X)
        assert_same(resumed(folder, **SETTINGS)[0], reference)


def test_a_folder_that_cannot_be_is_an_error_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("gpukpca.algorithms.kernel_pca.fit.make_plan", None)
    with pytest.raises(NotADirectoryError, match="is a file; name a folder"):
        KernelPCA(**SETTINGS, checkpoint=tmp_path / "file").fit(X)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        PCA(2, checkpoint=tmp_path / "a" / "b").fit(X)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(OSError, match="leads back to itself"):
        PCA(2, checkpoint=tmp_path / "loop").fit(X)
    for value in (3, "", True):
        with pytest.raises(InvalidParameterError, match="checkpoint"):
            KernelPCA(**SETTINGS, checkpoint=value).fit(X)
    monkeypatch.setattr("tempfile.TemporaryFile", _refused)
    with pytest.raises(PermissionError, match="nothing can be written to"):
        KernelPCA(**SETTINGS, checkpoint=tmp_path / "c").fit(X)


def _refused(**_: Any) -> None:
    raise PermissionError(errno.EACCES, "Permission denied")


def test_two_fits_in_one_folder_are_both_right(tmp_path: Path) -> None:
    """One begins and ends while the other is under way."""
    reference = KernelPCA(**SETTINGS).fit(X)

    def other(event: Progress) -> None:
        if event.stage == "pass" and event.done == 4:
            assert_same(KernelPCA(**SETTINGS, checkpoint=tmp_path).fit(X), reference)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CheckpointWarning)
        assert_same(KernelPCA(**SETTINGS, checkpoint=tmp_path, verbose=other).fit(X), reference)
        model, told = resumed(tmp_path, **SETTINGS)
    assert told == [reference.n_passes_]
    assert_same(model, reference)


# -- estimators --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [{"eigen_solver": "dense"}, {"eigen_solver": Nystrom(20)}, {"kernel": "linear", "eigen_solver": "auto"}],
    ids=["dense", "nystrom", "low rank"],
)
def test_solutions_without_passes_leave_no_folder_and_say_so(settings: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "c"
    model = KernelPCA(3, **{"kernel": "rbf", "checkpoint": folder, "random_state": 0, **settings}).fit(X)
    assert any("no checkpoint is written" in note for note in model.plan_.notes)
    assert any("no checkpoint is written" in note for note in PCA(2, checkpoint=folder).fit(X).plan_.notes)
    assert not folder.exists()
    assert not any("checkpoint" in note for note in KernelPCA(**SETTINGS, checkpoint=folder).plan(X).notes)
    assert not folder.exists()


def test_an_interrupt_leaves_the_estimator_as_it_was_and_the_checkpoint(tmp_path: Path) -> None:
    def interrupt(event: Progress) -> None:
        if event.stage == "pass" and event.done == 4:
            raise KeyboardInterrupt

    model = KernelPCA(**SETTINGS, checkpoint=tmp_path).set_params(verbose=interrupt)
    before = dict(vars(model))
    with pytest.raises(KeyboardInterrupt):
        model.fit(X)
    assert vars(model) == before
    reference = KernelPCA(**SETTINGS).fit(X)
    np.testing.assert_array_equal(model.set_params(verbose=0).fit(X).eigenvectors_, reference.eigenvectors_)


def test_the_parameter_is_cloned_and_pickled_and_not_saved(tmp_path: Path) -> None:
    model = KernelPCA(**SETTINGS, checkpoint=tmp_path / "c").fit(X)
    assert clone(model).checkpoint == tmp_path / "c"
    assert pickle.loads(pickle.dumps(model)).checkpoint == tmp_path / "c"
    model.save(tmp_path / "m.npz")
    read = load(tmp_path / "m.npz")
    assert read.checkpoint is None
    np.testing.assert_array_equal(read.transform(X), model.transform(X))


# -- the command line --------------------------------------------------------------------------------------------------

FIT = ["fit", "x.npy", "-n", "3", "--gamma", "0.2", "--tol", "1e-11", "--n-jobs", "1", "-o", "s.npz"]
# A process that tells when a pass is done, and waits to be ended.
TELLING = """
import sys, gpukpca.algorithms.progress as progress
real = progress.pass_report
def telling(listener):
    report = real(listener)
    def told(done, *more):
        report(done, *more)
        if done == 5:
            print("done", flush=True)
            sys.stdin.read(1)
    return told
import gpukpca.algorithms.kernel_pca.fit as routes
routes.pass_report = telling
from gpukpca.cli import main
main()
"""


def command(*arguments: Any) -> Any:
    return CliRunner().invoke(gpukpca, [str(a) for a in arguments])


def ended_by(number: int, *arguments: str) -> subprocess.Popen[str]:
    """A fit that gets a signal after its fifth pass."""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    one = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    child = subprocess.Popen([sys.executable, "-c", TELLING, *arguments], text=True, env={**os.environ, **one}, **pipes)
    assert child.stdout is not None
    assert child.stdout.readline() == "done\n"
    child.send_signal(number)
    return child


def scores(path: str = "s.npz") -> np.ndarray:
    with np.load(path) as archive:
        return archive["scores"]


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", rows(500))
    return tmp_path


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize(
    ("number", "code", "words"),
    [
        (signal.SIGTERM, 143, "terminated; the checkpoint is in c: the same command goes on from it\n"),
        (signal.SIGINT, 130, "interrupted; the checkpoint is in c: the same command goes on from it\n"),
        (getattr(signal, "SIGKILL", None), -9, ""),
    ],
    ids=["SIGTERM", "Ctrl-C", "kill -9"],
)
def test_a_process_that_is_ended_leaves_a_checkpoint(number: int, code: int, words: str, in_folder: Path) -> None:
    assert command(*FIT).exit_code == 0
    reference = scores()
    Path("s.npz").unlink()
    child = ended_by(number, *FIT, "--checkpoint", "c")
    _, errors = child.communicate(timeout=60)
    assert (child.returncode, errors) == (code, words)
    assert not Path("s.npz").exists()
    result = command(*FIT, "--checkpoint", "c")
    assert result.exit_code == 0
    # What was being written when the process was killed is not there.
    assert re.search("resumed at pass [0-4] from" if code == -9 else "resumed at pass 4 from", result.stdout)
    np.testing.assert_array_equal(scores(), reference)


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_without_a_checkpoint_sigterm_leaves_nothing(in_folder: Path) -> None:
    child = ended_by(signal.SIGTERM, *FIT)
    _, errors = child.communicate(timeout=60)
    assert (child.returncode, errors) == (143, "terminated; nothing was written\n")
    assert os.listdir() == ["x.npy"]


def test_the_command_line_checks_and_tells(in_folder: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    result = command(*FIT, "--checkpoint", "c")
    assert result.exit_code == 0
    assert "checkpoint" in result.stdout
    assert signal.getsignal(signal.SIGTERM) is before
    result = command(*FIT, "--checkpoint", "c", "--force", "--seed", "1")
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert "--seed was 0 and is 1 now" in result.stderr
    result = command(*FIT, "--checkpoint", "x.npy", "--force")
    assert (result.exit_code, result.stderr) == (2, "error: --checkpoint x.npy is a file; name a folder.\n")
    result = command("fit", "x.npy", "--method", "ppca", "--checkpoint", "c", "-o", "t.npz")
    assert result.exit_code == 2
    assert "it is for --method kernel or pca" in result.stderr
    result = command(*FIT, "--checkpoint", "", "--force")
    assert (result.exit_code, "the name is empty" in result.stderr) == (2, True)
    assert sorted(os.listdir()) == ["c", "s.npz", "x.npy"]  # nothing in the current folder


def test_the_folder_of_another_fit_is_not_named_by_one_without_passes(in_folder: Path) -> None:
    assert "checkpoint   in c\n" in command(*FIT, "--checkpoint", "c").stdout
    result = command("fit", "x.npy", "--method", "pca", "-o", "p.npz", "--checkpoint", "c")
    assert result.exit_code == 0
    assert "no checkpoint is written" in result.stdout
    assert "in c\n" not in result.stdout


def test_after_a_lost_cluster_the_checkpoint_is_named(in_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder, words in (("c", " The checkpoint is in c: the same command goes on from it.\n"), ("none", "\n")):
        if folder == "c":
            assert command(*FIT, "--checkpoint", folder).exit_code == 0
        with pytest.raises(SystemExit), failures_in_one_line(False, Path(folder)):
            raise ClusterError("the first task was lost.")
        assert capsys.readouterr().err == "error: the first task was lost." + words


def test_verbose_is_a_line_a_pass_for_logs(in_folder: Path) -> None:
    result = command(*FIT, "--verbose", "--checkpoint", "c")
    assert result.exit_code == 0
    passes = [line for line in result.stderr.splitlines() if line.startswith("pass ")]
    assert len(passes) == int(re.search(r"passes +(\d+)", result.stdout)[1])
    assert "largest relative residual" in passes[-1]
    assert command(*FIT, "--force").stderr == ""
    again = command(*FIT, "-v", "--force", "--checkpoint", "c")
    assert again.stderr.count("resumed at pass") == 1
    both = command(*FIT, "-v", "-q", "--force")
    assert (both.exit_code, both.stderr.count("\n")) == (2, 1)
    assert "contradict" in both.stderr
    assert "--checkpoint" in command("fit", "--help").stdout
    assert "--checkpoint" not in command("plan", "--help").stdout


def test_a_full_disk_at_the_end_names_the_file(in_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files.os, "fsync", full)
    result = command(*FIT)
    assert result.exit_code == 2
    assert (
        result.stderr == f"error: {in_folder / 's.npz'}: No space left on device\n"
        or "s.npz: No space" in result.stderr
    )
    assert os.listdir() == ["x.npy"]


# -- progress ----------------------------------------------------------------------------------------------------------


class Clock:
    """Stands still between calls."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def timed_events(*steps: tuple[float, Progress]) -> list[float | None]:
    """What is said to be left at every event, each at its time."""
    clock, told = Clock(), []
    listener = ETAListener(lambda event: told.append(event.seconds_left), clock)
    for now, event in steps:
        clock.now = now
        listener(event)
    return told


def a_pass(done: int, residual: float | None, total: int = 300) -> Progress:
    return Progress("pass", "", done, total, residual, 1e-8)


def tiles(done: int) -> Progress:
    return Progress("tiles", "", done, 4)


def test_time_left_of_the_first_pass_is_told_by_its_tiles() -> None:
    assert timed_events((0.0, tiles(0)), (1.0, tiles(1)), (3.0, tiles(3))) == [None, 3.0, 1.0]


def test_time_left_follows_the_decay_of_the_residual() -> None:
    """Ten times less a pass of two seconds, four powers of ten to go; within a pass it runs down."""
    told = timed_events(
        *((10.0, a_pass(1, None)), (12.0, a_pass(2, 1e-2)), (14.0, a_pass(3, 1e-3)), (16.0, a_pass(4, 1e-4))),
        *((17.0, tiles(2)), (18.0, a_pass(5, 1e-9))),
    )
    assert told == [None, None, 10.0, 8.0, 7.0, 0.0]


def test_time_left_of_a_resumed_fit_counts_its_own_passes_only() -> None:
    told = timed_events(
        *((5.0, Progress("resumed", "", 7)), (6.0, tiles(1)), (9.0, a_pass(8, 1e-5))),
        *((10.0, tiles(1)), (11.0, a_pass(9, 1e-6)), (13.0, a_pass(10, 1e-7, total=10))),
    )
    assert told == [None, 3.0, None, None, 4.0, 0.0]


def test_time_left_is_unknown_where_the_residual_does_not_fall() -> None:
    told = timed_events((1.0, a_pass(1, 1e-3)), (2.0, a_pass(2, 2e-3)), (3.0, a_pass(3, 1e-4)), (4.0, a_pass(1, None)))
    assert told[:2] == [None, None]
    assert told[2] is not None
    assert told[3] is None


def test_a_line_a_pass_says_what_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    KernelPCA(**SETTINGS, verbose=1).fit(X)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("pass ")]
    assert any("largest relative residual" in line and line.endswith(" s left") for line in lines)
