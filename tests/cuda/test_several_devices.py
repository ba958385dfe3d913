"""One fit on several devices: the answer of one device, the copies between devices, limits of memory, and faults."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from gpukpca import PCA, Batches, IncrementalPCA, KernelPCA, LocalPCA, Nystrom, load, residuals, save
from gpukpca._process import state
from gpukpca.algorithms import Resources, fit_pca
from gpukpca.cuda import device as cuda_device
from gpukpca.cuda import distances
from gpukpca.data.place import placement_for
from gpukpca.exceptions import DeviceLostError, DeviceUnavailableError, InvalidParameterError
from gpukpca.gram import TiledGram, tiled
from gpukpca.gram.product import compute_tile
from gpukpca.gram.storage import DevicesStorage, StorageInput
from gpukpca.kernels import RBF, BlockCallable, Laplacian, Polynomial
from tests import cupy_device
from tests.datasets import data

COUNTS = (8, 3, 2)  # the largest first: a kernel counts the devices when it is made
EDGE = 16


@pytest.fixture(autouse=True)
def small_tiles(stand_in: Any, sizes: Any) -> Iterator[None]:
    if int(os.environ.get("CUPY_ON_CPU_DEVICES", "1")) < max(COUNTS):
        pytest.skip("needs CUPY_ON_CPU_DEVICES=8")
    sizes(GPU_TILE_EDGES=(EDGE, EDGE))
    distances._kernel.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # CuPy warns where a kernel reads the memory of another device
        yield
    for index in range(max(COUNTS)):
        with cupy_device.controls().change(devices=max(COUNTS)), stand_in.cuda.Device(index):
            stand_in.get_default_memory_pool().free_all_blocks()


def devices(count: int) -> Any:
    return cupy_device.controls().change(devices=count)


def model(device: Any = "cuda:all", **more: Any) -> KernelPCA:
    named = {"kernel": "rbf", "gamma": 0.1, "eigen_solver": "randomized", "random_state": 0, "device": device}
    return KernelPCA(3, **named | more)


@contextmanager
def copied_bytes(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, int, int]]]:
    """Collect (from, to, bytes) of the copies between devices."""
    runtime, made = cupy.cuda.runtime, list[tuple[int, int, int]]()
    copy = runtime.memcpyPeerAsync

    def counted(to: int, to_device: int, source: int, from_device: int, size: int, stream: int) -> None:
        made.append((from_device, to_device, size))
        copy(to, to_device, source, from_device, size, stream)

    with monkeypatch.context() as patched:
        patched.setattr(runtime, "memcpyPeerAsync", counted)
        yield made


def assert_same(found: Any, wanted: Any, X: Any, atol: float = 1e-12) -> None:
    for name in ("eigenvalues_", "eigenvectors_", "projection_", "total_variance_"):
        scale = np.max(np.abs(getattr(wanted, name)))
        np.testing.assert_allclose(getattr(found, name), getattr(wanted, name), rtol=0, atol=atol * scale)
    np.testing.assert_allclose(found.transform(X[:7]), wanted.transform(X[:7]), rtol=0, atol=10 * atol)
    assert type(found.eigenvectors_) is type(found.transform(X)) is np.ndarray
    assert np.all(found.residual_norms_ <= 10 * atol * wanted.eigenvalues_[0] + 2 * wanted.residual_norms_)


# -- kernel PCA --------------------------------------------------------------------------------------------------------

FITS: dict[str, dict[str, Any]] = {
    "rbf": {},
    "nothing is centered": {"center": False},
    "half of the tiles cached": {"gram": "tiled"},
    "laplacian": {"kernel": Laplacian(0.1), "gamma": None},
    "polynomial": {"kernel": Polynomial(3, 0.1), "gamma": None, "gram": "tiled"},
    "sum": {"kernel": RBF(0.1) + 0.5 * Laplacian(0.2), "gamma": None},
    "own": {"kernel": BlockCallable(lambda A, B: np.exp(A @ B.T / 9)), "gamma": None},
}


@pytest.mark.parametrize("name", FITS)
def test_several_devices_give_the_answer_of_one_and_each_time_its_bits(name: str) -> None:
    X, new = data(121, 4), FITS[name]
    for count in COUNTS:
        with devices(count):
            wanted, plan = model("cuda:0", **new).fit(X), model(**new).plan(X)
            limit = plan.predicted_bytes - plan.bill["K"] // 2 if name.startswith("half") else None
            found, again = (model(**new, memory_limit=limit).fit(X) for _ in range(2))
        assert_same(found, wanted, X)
        for attribute in ("eigenvalues_", "eigenvectors_", "residual_norms_"):
            np.testing.assert_array_equal(getattr(found, attribute), getattr(again, attribute))
        assert f"{count} devices" in str(found.plan_.storage)
        assert found.device_.count("cuda:") == found.plan_.device.count("cuda:") == count
        assert (found.plan_.storage.recomputed_tiles > 0) == name.startswith("half")
        assert found.plan_.predicted_bytes <= found.plan_.available_bytes


def test_weights_float32_and_ranges_of_rows() -> None:
    rng = np.random.default_rng(0)
    for count in COUNTS:
        # Fewer tiles than devices: 1 tile, 3 tiles, and one row in the last slice.
        for n, dtype in ((15, np.float64), (EDGE + 1, np.float64), (8 * EDGE + 1, np.float32), (97, np.float64)):
            X, weights = data(n, 3).astype(dtype), rng.integers(0, 3, n).astype(float)
            with devices(count):
                for w in (None, weights):
                    wanted, found = model("cuda:0").fit(X, sample_weight=w), model().fit(X, sample_weight=w)
                    assert_same(found, wanted, X, 1e-12 if dtype == np.float64 else 3e-6)
                    assert found.eigenvectors_.dtype == dtype


def test_results_live_where_the_rows_live(stand_in: Any) -> None:
    X = data(60, 3)
    with devices(3):
        for home in (0, 1, 2):
            with stand_in.cuda.Device(home):
                rows = stand_in.asarray(X)
            found = model(["cuda:1", "cuda:2"]).fit(rows)
            assert found.plan_.device.startswith("cuda:1")
            arrays = (found.eigenvectors_, found.X_fit_, found.projection_, found.transform(rows))
            assert {array.device.id for array in arrays} == {home}
            np.testing.assert_allclose(
                abs(found.eigenvectors_.get()), abs(model("cuda:0").fit(X).eigenvectors_), atol=1e-9
            )
            assert stand_in.cuda.runtime.getDevice() == 0


def test_a_product_moves_the_leading_rows_of_a_block_and_as_many_sums(stand_in: Any, monkeypatch: Any) -> None:
    X, V = stand_in.asarray(data(100, 4)), stand_in.asarray(data(100, 5))
    tiles = np.array([(i, j) for j in range(7) for i in range(j + 1)])
    for count in COUNTS:
        with devices(count):
            one = TiledGram(Laplacian(0.1), X)
            others = placement_for("cuda:all", X).others
            op = DevicesStorage(100, 1, EDGE, 28, devices=count).build(StorageInput(Laplacian(0.1), X, others=others))
            rows = [min(100, EDGE * (int(share[:, 1].max()) + 1)) for share in np.array_split(tiles, count)]
            for first in (True, False):
                with copied_bytes(stand_in, monkeypatch) as copies:
                    stand_in.testing.assert_allclose(op @ V, one @ V, rtol=1e-13)
                moved = [(0, k, 8 * 4 * rows[k]) for k in range(1, count) if first]
                moved += [(0, k, 8 * 5 * rows[k]) for k in range(1, count)]
                moved += [(k, 0, 8 * 5 * rows[k]) for k in range(1, count)]
                assert sorted(copies) == sorted(moved)
            stand_in.testing.assert_allclose(op.to_dense(), one.to_dense(), rtol=1e-13)


def test_every_device_holds_no_more_than_the_plan_says(stand_in: Any) -> None:
    X = data(400, 6)
    with devices(3):
        plan, pool = model().plan(X), stand_in.get_default_memory_pool()
        for k in range(3):
            with stand_in.cuda.Device(k):
                pool.free_all_blocks()
        model().fit(X)
        for k in range(3):
            with stand_in.cuda.Device(k):
                assert plan.bill["K"] < pool.total_bytes() <= plan.predicted_bytes
        for index in (0, 2):  # what the smallest device has is allowed
            with cupy_device.controls().change(foreign={index: 17179869184 - 2**30}):
                assert model().plan(X).available_bytes < 2**30


# -- names and faults --------------------------------------------------------------------------------------------------


def test_names_of_devices(stand_in: Any) -> None:
    X = data(60, 3)
    with devices(3):
        for same in (["cuda:1"], ("cuda:1",)):
            np.testing.assert_array_equal(model(same).fit(X).eigenvectors_, model("cuda:1").fit(X).eigenvectors_)
            assert model(same).plan(X) == model("cuda:1").plan(X)
        assert model(["cuda:2", "cuda:0"]).fit(X).device_.split(", ")[0].startswith("cuda:2")
        for wrong in ([], ["cuda:0", "cuda:0"], ["cuda"], ["cpu", "cuda:0"], ["cuda:0", None], [0, 1], "cuda:0,cuda:1"):
            with pytest.raises(InvalidParameterError, match=r"device=.*is not allowed"):
                model(wrong).fit(X)
        with pytest.raises(DeviceUnavailableError, match=r"no device cuda:7; 3 found"):
            model(["cuda:0", "cuda:7"]).fit(X)
        for other in (LocalPCA(2, 2, device="cuda:all"), IncrementalPCA(2, device=["cuda:0", "cuda:1"])):
            with pytest.raises(InvalidParameterError, match=r"Several devices are for .*KernelPCA"):
                other.fit(X)
        with pytest.raises(InvalidParameterError, match="batches"):
            model(eigen_solver=Nystrom(rank=5)).fit(Batches([X, X]))
        with pytest.raises(InvalidParameterError, match="sparse rows"):
            model().fit(scipy.sparse.csr_array(X))
    with devices(1):
        assert "devices" not in str(model().fit(X).plan_)
    with cupy_device.no_device(), pytest.raises(DeviceUnavailableError, match="no CUDA"):
        model().fit(X)


def test_a_plan_says_where_one_device_computes_alone() -> None:
    X = data(60, 3)
    with devices(2):
        for alone in (model(eigen_solver="dense"), model(kernel="poly", eigen_solver="auto", degree=2)):
            assert any("computes alone" in note for note in alone.fit(X).plan_.notes)
        assert not model().fit(X).plan_.notes


def test_another_program_on_any_device_leaves_room_on_all() -> None:
    size = 2**29
    caches = []
    for foreign in ({0: size}, {1: size}):
        with cupy_device.controls().change(devices=2, memory={0: 8 * size, 1: 8 * size}, foreign=foreign):
            plan = model().plan((40000, 5))
        caches.append(plan.storage.cached)
        assert 0 < plan.storage.cached_tiles < plan.storage.tiles
    # But for what pools hold of other tests; the shares with and without another program differ by 1.4.
    assert max(caches) < 1.2 * min(caches)


def test_a_model_file_keeps_no_device_and_an_audit_takes_several(tmp_path: Path) -> None:
    X = data(60, 3)
    with devices(3):
        found = model().fit(X)
        audit = residuals(found, X, device="cuda:all")
        np.testing.assert_allclose(audit.residual_norms, 0, atol=1e-10 * found.eigenvalues_[0])
        save(found, tmp_path / "model")
        scores = found.transform(X)
    with cupy_device.no_device():
        kept = load(tmp_path / "model")
        assert kept.device is None
        assert kept.plan_ == found.plan_
        np.testing.assert_allclose(kept.transform(X), scores, atol=1e-12)


def test_a_lost_device_is_named(stand_in: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    X, lost = data(60, 3), 0

    def fails(kernel: Any, a: Any, b: Any, like: Any, *more: Any) -> Any:
        if like.device.id == lost:
            raise stand_in.cuda.runtime.CUDARuntimeError(700)
        return compute_tile(kernel, a, b, like, *more)

    monkeypatch.setattr(tiled, "compute_tile", fails)
    monkeypatch.setattr(cuda_device, "answers", lambda index: index != lost)
    with devices(3):
        for lost in (1, 2):
            with pytest.raises(DeviceLostError, match=rf"the CUDA device cuda:{lost} failed .*IllegalAddress"):
                model().fit(X)
            state.device_loss = ""
        monkeypatch.undo()
        for make in (model, pca):
            make().fit(X)
            with cupy_device.counted("operations") as made:
                make().fit(X)
            for after in range(1, made.count, made.count // 9):
                with cupy_device.lose_device(after=after), pytest.raises(DeviceLostError, match=r"cuda:[012] failed"):
                    make().fit(X)
                state.device_loss = ""


def test_memory_that_runs_out_on_another_device_is_tried_again(stand_in: Any, monkeypatch: Any) -> None:
    X, failures = data(60, 3), [1]

    def fails(kernel: Any, a: Any, b: Any, like: Any, *more: Any) -> Any:
        if like.device.id == 1 and failures and failures.pop():
            raise stand_in.cuda.memory.OutOfMemoryError(1, 1, 1)
        return compute_tile(kernel, a, b, like, *more)

    monkeypatch.setattr(tiled, "compute_tile", fails)
    with devices(2):
        found = model().fit(X)
        assert "memory ran out" in found.fallbacks_[0]
        assert_same(found, model("cuda:0").fit(X), X)


# -- rows: PCA, and Nyström --------------------------------------------------------------------------------------------

PCAS: dict[str, dict[str, Any]] = {
    "default": {},
    "randomized": {"svd_solver": "randomized"},
    "full": {"svd_solver": "full"},
    "arpack": {"svd_solver": "arpack"},
    "not centered": {"center": False},
    "scaled and whitened": {"scale": True, "whiten": True},
    "share": {"n_components": 0.7},
    "mle": {"n_components": "mle"},
}


def pca(device: Any = "cuda:all", **more: Any) -> PCA:
    return PCA(**{"n_components": 3, "random_state": 0, "device": device} | more)


def assert_same_axes(found: PCA, wanted: PCA, atol: float = 1e-12) -> None:
    for name in (
        "components_",
        "explained_variance_",
        "singular_values_",
        "mean_",
        "noise_variance_",
        "total_variance_",
    ):
        one, other = getattr(found, name), getattr(wanted, name)
        np.testing.assert_allclose(one, other, rtol=0, atol=atol * max(1.0, np.max(np.abs(other))), err_msg=name)


@pytest.mark.parametrize("name", PCAS)
def test_pca_on_several_devices_gives_the_answer_of_one_and_each_time_its_bits(name: str) -> None:
    X = data(101, 7) * np.linspace(3, 1, 7) + 5
    for count in COUNTS:
        with devices(count):
            one, several, again = pca("cuda:0", **PCAS[name]), pca(**PCAS[name]), pca(**PCAS[name])
            wanted, found = one.fit_transform(X), several.fit_transform(X)
            again.fit(X)
            assert several.plan(X).predicted_bytes == again.plan_.predicted_bytes
            np.testing.assert_allclose(several.transform(X), found, atol=1e-12)
        assert_same_axes(several, one)
        np.testing.assert_allclose(found, wanted, atol=1e-11)
        np.testing.assert_array_equal(several.components_, again.components_)
        sizes = np.diff([*range(0, 101, -(-101 // count)), 101])
        assert f"{count} devices: {' + '.join(map(str, sizes))} rows" in str(several.plan_)
        assert several.device_.count("cuda:") == count


def test_pca_of_weighted_wide_few_and_float32_rows(stand_in: Any) -> None:
    X = data(101, 7)
    weights = np.random.default_rng(0).integers(0, 3, 101).astype(float)
    holes = np.where(weights[:, None] == 0, np.nan, X)
    for count in COUNTS:
        with devices(count):
            for rows, w in ((X, weights), (holes, weights), (X[:20].T.copy(), None), (X[:5], None)):
                fits = [pca(device).fit(rows, sample_weight=w) for device in ("cuda:0", "cuda:all")]
                assert_same_axes(fits[1], fits[0])
            single = X.astype(np.float32)
            assert_same_axes(pca().fit(single), pca("cuda:0").fit(single), 1e-5)
            with stand_in.cuda.Device(1):
                there = stand_in.asarray(X)
            found = pca()
            assert {A.device.id for A in (found.fit_transform(there), found.components_, found.mean_)} == {1}
            fit = fit_pca(X, 3, resources=Resources.for_data(X, device="cuda:all"), with_scores=True)
            assert fit.components.device.id == fit.scores.device.id == 0
            np.testing.assert_allclose(residuals(pca().fit(X), X, device="cuda:all").residual_norms, 0, atol=1e-11)
            with pytest.raises(ValueError, match=r"NaN: 7 value\(s\), the first in row 100"):
                pca().fit(np.where(np.arange(101)[:, None] == 100, np.nan, X))


def test_a_product_of_rows_moves_no_rows(stand_in: Any, monkeypatch: Any) -> None:
    X = data(6000, 4)
    for count in COUNTS:
        with devices(count), copied_bytes(stand_in, monkeypatch) as copies:
            found = pca(svd_solver="covariance_eigh").fit(X)
        assert 0 < sum(size for *_, size in copies) <= 12 * (count - 1) * 8 * 4 * 4
        assert all(0 in pair[:2] for pair in copies)
    assert found.converged_


def test_rows_that_one_device_cannot_hold_fit_into_several(stand_in: Any) -> None:
    X = np.repeat(data(2000, 32), 16, axis=0)
    with devices(8):
        size = pca().plan(X).predicted_bytes * 5 // 4
    assert size < X.nbytes
    with ExitStack() as limits:
        limits.enter_context(devices(8))
        for index in range(8):
            limits.enter_context(cupy_device.device_bytes(size, index))
        alone, found = pca("cuda:0").fit(X), pca().fit(X)
    assert "rows are read in every pass, in batches" in str(alone.plan_)
    assert "8 devices: 4000 + " in str(found.plan_)
    for model in (alone, found):
        assert_same_axes(model, pca("cpu").fit(X), 1e-10)


NYSTROM: dict[str, dict[str, Any]] = {
    "drawn": {"eigen_solver": Nystrom(rank=20)},
    "given": {"eigen_solver": Nystrom(rank=20, landmarks=list(range(0, 60, 3)))},
    "not centered": {"eigen_solver": Nystrom(rank=20), "center": False},
    "pre-image": {"eigen_solver": Nystrom(rank=20), "preimage": "fixed_point"},
    "linear": {"kernel": "linear", "gamma": None, "eigen_solver": Nystrom(rank=20)},
    "exact linear": {"kernel": "linear", "gamma": None, "eigen_solver": "auto"},
}


@pytest.mark.parametrize("name", NYSTROM)
def test_factors_on_several_devices_are_those_of_one(name: str, tmp_path: Path) -> None:
    X = data(101, 5)
    weights = np.random.default_rng(0).integers(1, 3, 101).astype(float) if name == "given" else None
    for count in COUNTS:
        with devices(count):
            wanted = model("cuda:0", **NYSTROM[name]).fit(X, sample_weight=weights)
            found, again = (model(**NYSTROM[name]).fit(X, sample_weight=weights) for _ in range(2))
            scores = found.transform(X)
            save(found, tmp_path / "model")
            for attribute in ("eigenvalues_", "eigenvectors_", "total_variance_"):
                np.testing.assert_allclose(getattr(found, attribute), getattr(wanted, attribute), atol=1e-11)
            np.testing.assert_allclose(scores, wanted.transform(X), atol=1e-11)
            np.testing.assert_array_equal(found.eigenvectors_, again.eigenvectors_)
            if name == "pre-image":
                np.testing.assert_allclose(found.inverse_transform(scores), wanted.inverse_transform(scores), atol=1e-9)
        assert f"{count} devices: " in str(found.plan_)
        np.testing.assert_allclose(load(tmp_path / "model").transform(X), scores, atol=1e-11)
