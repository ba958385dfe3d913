"""The float16 twin of float32 rows on a card: what it finds, when times choose it, and how it is refused."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpukpca import Checkpoint, KernelPCA, Progress, kernels, load
from gpukpca._container import read_container, write_container
from gpukpca._process import state
from gpukpca.checkpoint import KIND
from gpukpca.eigen import BlockKrylov
from gpukpca.exceptions import GpuKPCAWarning
from gpukpca.gram import CenteredGram, TiledGram, gram_matrix, half_tiles
from gpukpca.gram.half_tiles import in_halves
from tests import cupy_device
from tests.datasets import data

# 55 tiles, of which the last ones are no multiple of 8 wide.
N, EDGE = 603, 64
LINE = "twin      iterated on float16 tiles, all cached; verified by K in float32"
TWIN = BlockKrylov(twin=True)


@pytest.fixture
def rows(cuda: Any, timings: None, sizes: Any) -> Any:
    sizes(GPU_TILE_EDGES=(EDGE, EDGE))
    state.product_rates[0] = 48e12, 24e12
    return cuda.asarray(data(N, 5).astype(np.float32) * np.linspace(2.0, 0.5, 5, dtype=np.float32))


def takes(monkeypatch: pytest.MonkeyPatch, half: float) -> list[int]:
    """Let products with float32 tiles take 1 ms and those with float16 ones so much; return how often each was made."""
    calls: list[int] = []

    def time(work: Callable[[], Any], count: int) -> float:
        calls.append(count)
        return {"float32": 1.0, "float16": half}[str(work.args[0].dtype)]  # type: ignore[attr-defined]

    monkeypatch.setattr("gpukpca.gram.timed_edge.milliseconds", lambda work, count: 1.0)
    monkeypatch.setattr(half_tiles, "milliseconds", time)
    return calls


def model(p: int | float = 5, **more: Any) -> KernelPCA:
    parameters = {"kernel": kernels.RBF(0.1), "eigen_solver": BlockKrylov(), "gram": "tiled", "random_state": 0} | more
    return KernelPCA(p, **parameters)


def passes_on_twin(fitted: KernelPCA) -> int:
    found = re.search(r"(\d+) of \d+ passes on a twin", fitted.solver_)
    return int(found[1]) if found else 0


def spectrum(kernel: Any, X: np.ndarray, center: bool, weights: np.ndarray | None) -> np.ndarray:
    """Return the eigenvalues of the centered, weighted matrix in float64, descending."""
    w = np.ones(len(X)) if weights is None else weights
    H = np.eye(len(X)) - np.outer(np.ones(len(X)), w) / w.sum() * center
    root = np.sqrt(w)[:, None]
    return np.linalg.eigvalsh(root * (H @ gram_matrix(kernel, X.astype(np.float64)) @ H.T) * root.T)[::-1]


FITS: list[dict[str, Any]] = [
    {},
    {"center": False},
    {"kernel": kernels.Linear()},
    {"kernel": kernels.Laplacian(0.2)},
    {"kernel": kernels.Matern(0.3, nu=1.5), "center": False},
    {"kernel": kernels.Polynomial(gamma=0.2, coef0=1.0, degree=3)},
    {"kernel": kernels.Polynomial(gamma=0.5, coef0=1.0, degree=7)},  # entries above 1e7
    {"kernel": 1e-9 * kernels.RBF(0.1)},
    {"kernel": 1e9 * kernels.RBF(0.1)},
    {"kernel": kernels.Cosine()},
    {"kernel": kernels.RBF(1e-4)},  # 1 but for its fourth digit
]


def test_a_fit_on_float16_tiles_is_within_the_residuals_that_K_measures(rows: Any) -> None:
    X, plain = rows.get(), np.random.default_rng(0).integers(1, 4, N).astype(np.float64)
    for fit in FITS:
        for weights in (None, plain):
            fitted = model(**fit, eigen_solver=TWIN).fit(rows, sample_weight=weights)
            alone = model(**fit, eigen_solver=BlockKrylov(twin=False)).fit(rows, sample_weight=weights)
            assert LINE in str(fitted.plan_), fit
            assert (passes_on_twin(fitted) > 2, passes_on_twin(alone)) == (True, 0), fit
            assert fitted.n_passes_ - passes_on_twin(fitted) <= 4, fit
            assert fitted.converged_, fit
            assert "dropped" not in str(fitted.plan_), fit
            kernel, center = fit.get("kernel", kernels.RBF(0.1)), fit.get("center", True)
            truth = spectrum(kernel, X, center, weights)[:5]
            values, residuals = fitted.eigenvalues_.get(), fitted.residual_norms_.get()
            rounding = 2e-6 * max(truth[0], float(np.trace(gram_matrix(kernel, X))))
            assert np.all(np.abs(values - truth) <= residuals + rounding), fit
            assert np.all(residuals <= 2e-5 * values[0]), fit
            np.testing.assert_allclose(values, alone.eigenvalues_.get(), rtol=0, atol=2 * rounding, err_msg=str(fit))


def test_products_are_those_of_K_to_nine_bits(rows: Any, cuda: Any) -> None:
    """For widths that are no multiples of 8 too, whatever the size of the entries."""
    for kernel in (kernels.RBF(0.1), 1e-30 * kernels.RBF(0.1), kernels.Polynomial(gamma=0.5, coef0=1.0, degree=7)):
        op = TiledGram(kernel, rows, tile_edge=EDGE, cached_tiles=0)
        halved = in_halves(op)
        assert halved.rows is op.rows  # no second copy
        for width in (1, 5, 8, 67):
            V = cuda.linalg.qr(cuda.asarray(data(N, width, seed=width).astype(np.float32)))[0]
            exact, rounded = (A @ V for A in (op, halved))
            assert (rounded.shape, rounded.dtype) == (exact.shape, exact.dtype)
            exact = exact.astype(np.float64)
            error = float(cuda.linalg.norm(exact - rounded) / cuda.linalg.norm(exact))
            assert 1e-6 < error < half_tiles.RESOLUTION, (kernel, width)
        cache = list(halved._upper.cache.values())
        assert sum(tile.size for tile in cache) == sum(
            min(EDGE, N - i) * min(EDGE, N - j) for i in range(0, N, EDGE) for j in range(i, N, EDGE)
        )
        assert {str(tile.dtype) for tile in cache} == {"float16"}
        assert {tile.strides[0] % 16 for tile in cache} == {0}
        assert (op._upper.cache, CenteredGram(halved).resolution) == ({}, half_tiles.RESOLUTION)


def test_a_pass_over_float16_tiles_waits_and_launches_as_one_over_float32_tiles(stand_in: Any, rows: Any) -> None:
    V, side, made = rows[:, :1] * rows, -(-N // EDGE), []
    full = TiledGram(kernels.RBF(0.1), rows, tile_edge=EDGE, cached_tiles=side**2)
    for op in (full, in_halves(full)):
        op @ V
        with (
            cupy_device.counted("waits") as waits,
            cupy_device.counted("copies_to_device") as uploads,
            cupy_device.launches() as launched,
        ):
            op @ V
        made.append((waits.count, uploads.count, launched))
    assert made[0][:2] == made[1][:2]
    assert made[1][2].products == ["cublasGemmEx"] * side**2  # a tile of the diagonal is used once
    # The rounded block, and results in float32.
    assert made[1][2].count == made[0][2].count + 1 + side


def test_times_and_digits_of_the_first_tile_choose(rows: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = model().set_params(eigen_solver=BlockKrylov(twin=False)).fit(rows)
    for half, is_taken in ((0.39, True), (0.41, False)):
        state.half_tiles.clear()
        calls = takes(monkeypatch, half)
        fitted = model().fit(rows)
        assert list(state.half_tiles.values()) == [is_taken]
        assert ((LINE in str(fitted.plan_)), passes_on_twin(fitted) > 0) == (is_taken, is_taken), half
        assert ("float16 tiles took less" in str(fitted.plan_)) == is_taken
        if is_taken:  # K itself then holds its own tiles
            assert fitted.plan_.storage.is_fully_cached
        timed = len(calls)
        assert timed == 2
        again = model().fit(rows)
        assert (again.plan_.twin, again.plan_.notes, len(calls)) == (fitted.plan_.twin, fitted.plan_.notes, timed)
        np.testing.assert_array_equal(again.eigenvalues_.get(), fitted.eigenvalues_.get())
        assert (model(device="cuda").plan((N, 5), dtype="float32").twin is not None) == is_taken
        np.testing.assert_allclose(fitted.eigenvalues_.get(), alone.eigenvalues_.get(), rtol=1e-5)
        np.testing.assert_allclose(fitted.transform(rows).get(), alone.transform(rows).get(), atol=1e-3)
        with monkeypatch.context() as setting:
            setting.setenv("GPUKPCA_TIMED_CHOICES", "0")
            plain = model().fit(rows)
            np.testing.assert_array_equal(plain.eigenvectors_.get(), alone.eigenvectors_.get())
            assert passes_on_twin(model(eigen_solver=TWIN).fit(rows)) > 0  # asked for
    # Digits that products in float16 lose.
    state.half_tiles.clear()
    takes(monkeypatch, 0.1)
    monkeypatch.setattr(half_tiles, "RESOLUTION", 1e-6)
    assert not passes_on_twin(model().fit(rows))
    assert list(state.half_tiles.values()) == [False]


def test_where_there_is_no_choice_nothing_is_timed(rows: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = takes(monkeypatch, 0.1)
    for X, parameters in [
        (rows[: 7 * EDGE], {}),  # few tiles
        (rows.astype(np.float64), {}),
        (rows.get(), {}),
        (rows, {"gram": "dense"}),
        (rows, {"eigen_solver": "dense"}),
        (rows, {"eigen_solver": BlockKrylov(twin=False)}),
        (rows, {"eigen_solver": BlockKrylov(passes=4)}),
        (rows, {"eigen_solver": BlockKrylov(max_passes=40)}),
        (rows, {"kernel": kernels.modulate(kernels.RBF(0.1), lambda X: X[:, 0])}),
    ]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GpuKPCAWarning)
            assert model(**parameters).fit(X).plan_.twin is None, parameters
    assert (calls, state.half_tiles) == ([], {})
    # float16 tiles that do not all fit.
    limit = model(eigen_solver=BlockKrylov(twin=False)).fit(rows).plan_.predicted_bytes
    assert model(memory_limit=limit - 2 * N**2).fit(rows).plan_.twin is None
    assert len(calls) == 2


def test_entries_beyond_the_range_leave_the_fit_to_K_itself(rows: Any) -> None:
    """The first tile says what is in range: 6e4 times its largest entry."""
    X = rows.copy()
    X[:EDGE] *= 1e-3
    kernel = kernels.Polynomial(gamma=1.0, coef0=0.0, degree=3)
    fitted, alone = (model(kernel=kernel, eigen_solver=BlockKrylov(twin=twin)).fit(X) for twin in (True, False))
    assert "the float16 twin was not used" in str(fitted.plan_)
    np.testing.assert_allclose(fitted.eigenvalues_.get(), alone.eigenvalues_.get(), rtol=1e-5)
    assert fitted.converged_


def test_shares_of_the_variance_are_those_of_K_itself(rows: Any) -> None:
    for share in (0.3, 0.5, 0.7):
        fits = [model(share, eigen_solver=BlockKrylov(twin=twin)).fit(rows) for twin in (True, False)]
        assert [passes_on_twin(fitted) > 0 for fitted in fits] == [True, False]
        assert len(fits[0].eigenvalues_) == len(fits[1].eigenvalues_)
        first, second = (fitted.explained_variance_ratio_.get() for fitted in fits)
        np.testing.assert_allclose(first, second, rtol=2e-5)


def test_a_fit_resumes_from_every_pass_to_the_same_bits(
    rows: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Stop(Exception):
        pass

    takes(monkeypatch, 0.1)
    reference = model(checkpoint=tmp_path / "whole").fit(rows)
    assert 0 < passes_on_twin(reference) < reference.n_passes_
    for done in range(1, reference.n_passes_):
        folder, passes = tmp_path / str(done), iter(range(1, 1000))

        def stop(event: Progress, passes: Any = passes, done: int = done) -> None:
            if event.stage == "pass" and next(passes) == done:
                raise Stop

        with pytest.raises(Stop):
            model(checkpoint=Checkpoint(folder, interval=0), verbose=stop).fit(rows)
        state.half_tiles.clear()  # another process, where float16 would lose
        calls = takes(monkeypatch, 0.9)
        resumed = model(checkpoint=folder).fit(rows)
        assert calls == []
        for name in ("eigenvalues_", "eigenvectors_", "residual_norms_"):
            np.testing.assert_array_equal(getattr(resumed, name).get(), getattr(reference, name).get(), err_msg=name)
        assert (resumed.n_passes_, resumed.solver_) == (reference.n_passes_, reference.solver_)
        takes(monkeypatch, 0.1)
    # A forged choice, and none of an earlier version: the fit is timed again.
    kinds = list(state.half_tiles)
    for forged in (None, [True], dict.fromkeys(kinds, 1), dict.fromkeys(kinds, "yes")):
        for path in folder.glob("state-*"):
            header, arrays = read_container(path, KIND)
            changed = {key: value for key, value in header.items() if key != "half_tiles"}
            write_container(path, KIND, changed if forged is None else changed | {"half_tiles": forged}, arrays)
        state.half_tiles.clear()
        calls = takes(monkeypatch, 0.9)
        resumed = model(checkpoint=folder).fit(rows)
        assert len(calls) == 2, forged
        np.testing.assert_allclose(resumed.eigenvalues_.get(), reference.eigenvalues_.get(), rtol=1e-5)


def test_predicted_bytes_are_above_every_peak(stand_in: Any, rows: Any, tmp_path: Path) -> None:
    for n, p, fit in (
        (N, 5, {"kernel": kernels.RBF(0.01)}),
        (1500, 5, {"kernel": kernels.RBF(0.01)}),
        (1500, 30, {"center": False, "kernel": kernels.Laplacian(0.01)}),
        (1501, 70, {"kernel": kernels.Linear()}),
    ):
        X = stand_in.asarray(data(n, 90).astype(np.float32))
        estimator = model(p, **fit, eigen_solver=TWIN)
        estimator.fit(X)  # compiles
        with cupy_device.peak_bytes() as most:
            fitted = estimator.fit(X)
        assert passes_on_twin(fitted) > 0
        tiles = fitted.plan_.twin.bytes_held(4)
        assert tiles == 2 * fitted.plan_.twin.entries
        assert tiles < most.peak <= fitted.plan_.predicted_bytes, (n, p)
    fitted.save(tmp_path / "model")
    assert load(tmp_path / "model").plan_.twin == fitted.plan_.twin


def test_events_time_float16_products(rows: Any) -> None:
    fitted = model().fit(rows)
    assert list(state.half_tiles.values()) == [passes_on_twin(fitted) > 0]
