"""Iterations on a float32 twin of K: K itself verifies, so that every result means what it means without one."""

from __future__ import annotations

import re
import warnings
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.linalg

from gpukpca import Checkpoint, KernelPCA, Progress, kernels, load
from gpukpca.algorithms.kernel_pca import exact
from gpukpca.eigen import BlockKrylov, top_eigh
from gpukpca.eigen.krylov_iteration import first_state, step
from gpukpca.eigen.krylov_state import Phase
from gpukpca.eigen.request import NeedsDense, PairRequest
from gpukpca.exceptions import GpuKPCAWarning, IndefiniteKernelWarning
from gpukpca.gram import CenteredGram, gram_matrix
from gpukpca.gram.storage import TiledStorage
from gpukpca.gram.tiled import TiledGram
from tests import oracle, tolerances
from tests.conftest import Namespace

TWIN = BlockKrylov(twin=True)


def rows(n: int = 300, d: int = 5, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, d)) * np.linspace(2.0, 0.5, d)


def fitted(X: Any, p: int | float = 5, kernel: Any = None, **settings: Any) -> KernelPCA:
    settings = {"eigen_solver": TWIN, "random_state": 0, "gram": "tiled", **settings}
    return KernelPCA(p, kernel=kernels.RBF(0.1) if kernel is None else kernel, **settings).fit(X)


def passes_on_twin(model: KernelPCA) -> int:
    """Return how many passes were made on the twin, as `solver_` says."""
    found = re.search(r"(\d+) of \d+ passes on a twin", model.solver_)
    return int(found[1]) if found else 0


def spectrum(K: np.ndarray, weights: np.ndarray | None, center: bool) -> np.ndarray:
    """Return the eigenvalues of the centered, weighted matrix by LAPACK, descending."""
    n = len(K)
    w = np.ones(n) if weights is None else weights
    H = np.eye(n) - np.outer(np.ones(n), w) / w.sum() * center
    root = np.sqrt(w)[:, None]
    return scipy.linalg.eigvalsh(root * (H @ K @ H.T) * root.T)[::-1]


KERNELS: list[Any] = [
    kernels.Linear(),
    kernels.RBF(0.1),
    kernels.RBF(1e-4),
    kernels.Laplacian(0.2),
    kernels.Matern(0.1, nu=0.5),
    kernels.Matern(0.3, nu=1.5),
    kernels.RationalQuadratic(0.2),
    kernels.Polynomial(gamma=0.2, coef0=1.0, degree=3),
    kernels.Cosine(),
    kernels.RBF(0.3) + 0.1 * kernels.Linear(),
    kernels.RBF(0.1) * kernels.Polynomial(gamma=0.1, degree=2),
]


def test_random_fits_are_within_their_residuals_beside_lapack() -> None:
    for seed in range(200):
        rng = np.random.default_rng(seed)
        n, d = int(rng.integers(60, 160)), int(rng.integers(1, 9))
        p, center = int(rng.integers(1, 7)), bool(rng.random() < 0.8)
        X = rng.standard_normal((n, d)) * 10.0 ** rng.uniform(-1, 1, d)
        X = X / X.std() + rng.standard_normal(d) * 10.0 ** rng.uniform(-1, 3)
        if rng.random() < 0.3:  # equal rows
            X = X[rng.integers(0, n // 2, n)]
        w = rng.integers(1, 4, n).astype(float) if rng.random() < 0.3 else None
        kernel = KERNELS[rng.integers(len(KERNELS))]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GpuKPCAWarning)  # of rank, and of rounding
            model = KernelPCA(p, kernel=kernel, center=center, gram="tiled", eigen_solver=TWIN, random_state=seed).fit(
                X, sample_weight=w
            )
        truth = spectrum(gram_matrix(kernel, X), w, center)
        found = model.eigenvalues_
        what = f"seed {seed}: {kernel!r}, {n} x {d}, p={p}, center={center}, weights: {w is not None}"
        assert passes_on_twin(model) > 0, what
        size = max(truth[0], abs(np.trace(gram_matrix(kernel, X))))
        rounding = tolerances.ROOM * 10.0 * np.finfo(float).eps * size
        assert np.all(np.abs(found - truth[: len(found)]) <= model.residual_norms_ + rounding), what
        assert model.converged_, what


def test_a_table_says_how_the_twin_of_each_kernel_takes_rows() -> None:
    table = {
        kernels.RBF: "always",
        kernels.Laplacian: "always",
        kernels.Matern: "always",
        kernels.RationalQuadratic: "always",
        kernels.Linear: "centered",
        kernels.Polynomial: "never",
        kernels.Sigmoid: "never",
        kernels.Cosine: "never",
        kernels.Precomputed: None,
        kernels.PairwiseCallable: None,
        kernels.BlockCallable: None,
    }
    assert {kernel: kernel.moves_rows for kernel in table} == table
    rbf, linear, poly = kernels.RBF(1.0), kernels.Linear(), kernels.Polynomial()
    combined = {
        rbf + kernels.Laplacian(1.0): "always",
        rbf + linear: "centered",
        2.0 * linear: "centered",
        rbf * linear: "never",
        rbf + poly: "never",
        kernels.exp(rbf): "always",
        kernels.exp(linear): "never",
        kernels.modulate(rbf, lambda X: X[:, 0]): None,
        rbf + kernels.BlockCallable(lambda X, Y: X @ Y.T): None,
    }
    assert [kernel.moves_rows for kernel in combined] == list(combined.values())


def pair(kernel: Any, X: Any, edge: int = 50, center: bool = True) -> CenteredGram:
    """Return the operator of K with its twin from float32 rows."""
    op = CenteredGram(TiledGram(kernel, X, tile_edge=edge), center=center)
    narrow = X - X.mean(axis=0) if kernel.moves_rows == "always" else X
    op.twin = CenteredGram(TiledGram(kernel, narrow.astype(np.float32), tile_edge=edge), center=center)
    return op


def test_the_operator_of_every_library_verifies_what_its_twin_found(xp: Namespace) -> None:
    X, k = rows(120), kernels.RBF(0.1)
    op = CenteredGram(TiledGram(k, xp.array(X), tile_edge=50))
    op.twin = CenteredGram(TiledGram(k, xp.array((X - X.mean(axis=0)).astype(np.float32)), tile_edge=50))
    tiles = weakref.ref(op.twin.base)
    result = top_eigh(op, 4, BlockKrylov(), rng=0)
    assert (op.twin, tiles()) == (None, None)  # its memory is free
    assert xp.owns(result.eigenvectors)
    assert result.eigenvectors.dtype == xp.dtype("float64")
    assert 1e-9 < (result.twin_residual or 0.0) < 1e-5
    truth = spectrum(oracle.gram(oracle.rbf(0.1), X), None, True)[:4]
    values, U = xp.host(result.eigenvalues), xp.host(result.eigenvectors)
    np.testing.assert_allclose(values, truth, rtol=1e-10)
    K = oracle.centered(oracle.gram(oracle.rbf(0.1), X))
    true_residuals = np.linalg.norm(K @ U - U * values, axis=0)
    assert np.all(true_residuals <= xp.host(result.residual_norms) + 1e-13 * truth[0])
    assert np.all(true_residuals <= 1e-8 * truth[0])


def test_progress_names_the_tolerance_of_each_part() -> None:
    seen: list[tuple[float | None, float]] = []
    top_eigh(
        pair(kernels.RBF(0.1), rows(200)),
        4,
        BlockKrylov(),
        rng=0,
        report=lambda n, most, left, tol: seen.append((left, tol)),
    )
    assert [tol for _, tol in seen] == sorted([tol for _, tol in seen], reverse=True)
    assert {tol for _, tol in seen} == {1e-6, 1e-8}
    assert all((left or 1.0) > tol for left, tol in seen[:3])


def test_the_scale_of_products_is_kept_at_the_hand_over() -> None:
    """With another scale, float32 vectors would count as converged."""
    for factor in (1e-9, 1.0, 1e9):
        op = pair(factor * kernels.RBF(0.1), rows(200))
        solver = BlockKrylov()
        task = solver._task(op, PairRequest.of_count(4), np.random.default_rng(0), launches_early=False)
        state = first_state(task, None)
        while state.on_twin:
            exponent, state = state.exponent, step(task, state)
        assert (state.phase, state.exponent) == (Phase.VERIFY, exponent)
        assert exponent is not None
        result = top_eigh(pair(factor * kernels.RBF(0.1), rows(200)), 4, solver, rng=0)
        assert float(result.residual_norms.max()) <= 1e-8 * float(result.eigenvalues[0])


def test_shares_of_the_variance_are_those_of_K_itself() -> None:
    for share in (0.3, 0.5, 0.7, 0.8):
        with_twin, without = (fitted(rows(), share, eigen_solver=BlockKrylov(twin=twin)) for twin in (True, False))
        assert passes_on_twin(with_twin)
        assert not passes_on_twin(without)
        assert len(with_twin.eigenvalues_) == len(without.eigenvalues_)
        np.testing.assert_allclose(with_twin.explained_variance_ratio_, without.explained_variance_ratio_, rtol=1e-9)


@pytest.mark.filterwarnings("ignore:the last component:gpukpca.exceptions.PrecisionWarning")
def test_equal_eigenvalues_are_all_found() -> None:
    """The rows of a simplex: K has one eigenvalue n - 1 times; and groups of equal ones of several sizes."""
    sizes = [1, 4, 3, 6]
    values = np.repeat([4.0, 3.0, 2.0, 1.0], sizes)
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((200, len(values))))[0]
    Q = np.linalg.qr(Q - Q.mean(axis=0))[0]
    for p in (1, 2, 5, 8, 14):
        model = fitted(Q * np.sqrt(values), p, kernels.Linear(), eigen_solver=BlockKrylov(twin=True, block_size=4))
        assert passes_on_twin(model)
        np.testing.assert_allclose(model.eigenvalues_, values[:p], rtol=1e-12)


@pytest.mark.filterwarnings("ignore:rounding leaves large:gpukpca.exceptions.PrecisionWarning")
def test_a_twin_without_the_digits_is_dropped_and_named() -> None:
    """A polynomial far off the origin: the mean of K, 1e24 times its differences, is all that float32 holds."""
    X = rows(150) + 1e4
    kernel = kernels.Polynomial(gamma=1.0, coef0=1.0, degree=2)
    model = fitted(X, 3, kernel)
    assert "the float32 twin was dropped" in str(model.plan_)
    alone = fitted(X, 3, kernel, eigen_solver=BlockKrylov(twin=False))
    slack = model.residual_norms_ + alone.residual_norms_
    assert np.all(np.abs(model.eigenvalues_ - alone.eigenvalues_) <= slack)
    assert "dropped" not in str(fitted(rows(150), 3).plan_)


def test_numbers_beyond_float32_leave_the_fit_to_K_itself(tmp_path: Path) -> None:
    for X, kernel in [
        (rows(150) * 1e14, kernels.Polynomial(gamma=1.0, coef0=1.0, degree=3)),  # products of rows overflow
        (rows(150) * 1e100, kernels.Linear()),  # rows overflow
        (rows(150) * 1e-100, kernels.Linear()),  # rows vanish
    ]:
        model = fitted(X, 3, kernel)
        truth = spectrum(gram_matrix(kernel, X), None, True)[:3]
        np.testing.assert_allclose(model.eigenvalues_, truth, rtol=1e-9)
        assert model.converged_
        assert "the float32 twin was not used" in str(model.plan_)
        checkpoint = Checkpoint(tmp_path / f"{float(X[0, 0])}", interval=0.0)
        np.testing.assert_array_equal(fitted(X, 3, kernel, checkpoint=checkpoint).eigenvalues_, model.eigenvalues_)


def test_a_fit_resumes_from_every_pass_to_the_same_bits(tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    X = rows(200)
    reference = fitted(X)
    assert passes_on_twin(reference) < reference.n_passes_
    for done in range(1, reference.n_passes_):
        folder = tmp_path / str(done)
        passes = iter(range(1, 1000))

        def stop(event: Progress, passes: Any = passes, done: int = done) -> None:
            if event.stage == "pass" and next(passes) == done:
                raise Stop

        with pytest.raises(Stop):
            fitted(X, checkpoint=folder, verbose=stop)
        resumed = fitted(X, checkpoint=folder)
        for name in ("eigenvalues_", "eigenvectors_", "residual_norms_", "n_passes_", "solver_"):
            np.testing.assert_array_equal(getattr(resumed, name), getattr(reference, name), err_msg=f"{name} {done}")


def test_a_fit_that_resumes_without_the_twin_computes_the_means_of_K() -> None:
    class Stopped:
        state: Any = None

        def resumed(self, task: Any) -> Any:
            return self.state

        def record(self, state: Any) -> None:
            if self.state is None and state.n_passes == 4:
                self.state = state
                raise KeyboardInterrupt

    X, k, stopped = rows(), kernels.RBF(0.1), Stopped()
    with pytest.raises(KeyboardInterrupt):
        top_eigh(pair(k, X), 5, BlockKrylov(), rng=0, checkpointer=stopped)
    assert (stopped.state.on_twin, stopped.state.means is None) == (True, False)
    op = CenteredGram(TiledGram(k, X, tile_edge=50))  # a fit with memory for float64 tiles
    assert "4 of" in top_eigh(op, 5, BlockKrylov(), rng=0, checkpointer=stopped).solver
    np.testing.assert_allclose(op.column_means, gram_matrix(k, X).mean(axis=0), rtol=1e-13)


def test_the_share_is_counted_by_K_where_float32_counts_otherwise() -> None:
    X, kernel = rows(400, 12), kernels.RBF(0.01)
    alone = fitted(X, 20, kernel, eigen_solver=BlockKrylov(twin=False))
    share = float(np.cumsum(alone.explained_variance_ratio_)[19]) * (1.0 - 1e-9)
    for factor in (0.3, 0.9, 1.0, 1.1):  # the trace of the twin, of which a share takes fewer or more pairs
        op = pair(kernel, X)
        vars(op.twin)["trace"] = factor * op.trace
        request = PairRequest.of_share(share, 80, 4, np.finfo(float).eps)
        result = top_eigh(op, request, BlockKrylov(block_size=4), rng=0)
        assert len(result.eigenvalues) == 20, factor
        assert result.converged.all(), factor


def test_rounding_of_a_twin_is_no_negative_eigenvalue() -> None:
    rng = np.random.default_rng(0)
    equal = np.zeros((91, 2)) + rng.standard_normal(2)
    for X, kernel in [
        (equal, kernels.Cosine()),
        (equal, kernels.Sigmoid(gamma=0.5, coef0=1.0)),
        (rows(100) + 1e6, kernels.Sigmoid(gamma=2e-14)),
        (rows(100), kernels.RBF(0.02) + kernels.Sigmoid(gamma=1e-5)),
    ]:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            fitted(X, 2, kernel)
        assert not [one for one in seen if issubclass(one.category, IndefiniteKernelWarning)], kernel
    with pytest.warns(IndefiniteKernelWarning, match="negative eigenvalues"):
        indefinite = fitted(rows(100), 2, kernels.Sigmoid(gamma=0.3))
    assert passes_on_twin(indefinite)


def test_a_storage_of_the_user_has_no_twin() -> None:
    @dataclass(frozen=True)
    class Narrow(TiledStorage):
        tile_edge: int = 40
        cached_tiles: int = 0

    plan = KernelPCA(5, kernel="rbf", gram=Narrow, eigen_solver=TWIN).plan(rows())
    assert (type(plan.storage), plan.twin) == (Narrow, None)


def test_the_dense_solver_takes_over_without_the_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def spied(op: Any, request: Any, solver: Any, **how: Any) -> Any:
        if not seen:  # as where all tiles of K are cached beside those of the twin
            op.twin = CenteredGram(op.base)
        seen.append(op.twin is not None)
        if len(seen) == 1:
            raise NeedsDense("block Krylov would take too long")
        return top_eigh(op, request, solver, **how)

    monkeypatch.setattr(exact, "top_eigh", spied)
    model = fitted(rows(), 0.9, eigen_solver=BlockKrylov(twin=False))
    assert seen == [True, False]
    assert (model.plan_.solver.name, model.plan_.twin) == ("dense", None)


def test_a_plan_has_a_twin_where_float64_tiles_alone_do_not_fit(tmp_path: Path) -> None:
    X = np.zeros((6000, 20)) + np.arange(20.0)
    full = 6000**2 // 2 * 8

    def plan(share: float | None, X: Any = X, kernel: Any = "rbf", **settings: Any) -> Any:
        limit = None if share is None else int(share * full) + 40 * 2**20
        return KernelPCA(10, kernel=kernel, memory_limit=limit, **settings).plan(X)

    half = plan(0.6)
    assert "iterated on float32 tiles, all cached; verified by K in float64" in str(half)
    assert (half.twin.is_fully_cached, half.storage.is_fully_cached) == (True, False)
    assert half.predicted_bytes <= half.available_bytes
    assert half.to_dict()["twin"] == str(half.twin)
    assert plan(1.2).twin is None  # float64 tiles fit
    assert plan(None, eigen_solver=BlockKrylov(twin=True)).predicted_bytes < 0.7 * plan(None).predicted_bytes
    for settings in (
        {"eigen_solver": BlockKrylov(twin=False)},
        {"eigen_solver": BlockKrylov(passes=5)},
        {"iterated_power": 5, "eigen_solver": "randomized"},
        {"X": X.astype(np.float32)},
        {"X": X[:3000]},
        {"kernel": kernels.modulate(kernels.RBF(0.1), lambda X: X[:, 0])},
    ):
        assert plan(0.6, **settings).twin is None, settings
    callables = {"X": X[:200], "kernel": lambda x, y: float(x @ y), "eigen_solver": TWIN}
    assert plan(None, **callables).twin is None
    model = fitted(rows())
    model.save(tmp_path / "model")
    assert load(tmp_path / "model").plan_.twin == model.plan_.twin is not None
