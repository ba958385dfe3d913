"""Memory of a device that runs out: at every allocation in turn, for good, and what is left in the pool afterwards."""

from __future__ import annotations

import re
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from gpukpca import PCA, Batches, IncrementalPCA, KernelPCA, Nystrom, ProbabilisticPCA
from gpukpca.backend.blocking import TILES_ALONG_A_SIDE
from gpukpca.backend.device import free_bytes, release_unused
from gpukpca.eigen import BlockKrylov
from gpukpca.exceptions import DeviceFallbackWarning, MemoryBudgetError
from tests import cupy_device
from tests.datasets import data

MIB = 2**20
FITS = {
    "dense": {"kernel": "rbf", "gamma": 0.1},
    "block Krylov": {"kernel": "rbf", "gamma": 0.1, "eigen_solver": "randomized", "tol": 1e-3},
    "nystrom": {"kernel": "rbf", "gamma": 0.1, "eigen_solver": Nystrom(rank=12)},
    "linear": {"kernel": "linear"},
    "inverse": {"kernel": "laplacian", "fit_inverse_transform": True},
}


def model(name: str, **more: Any) -> KernelPCA:
    return KernelPCA(**({"n_components": 3, "random_state": 0} | FITS[name] | more))


def used(cuda: Any) -> int:
    """Bytes that arrays hold on the device; no garbage is collected first, as nobody would."""
    return cuda.get_default_memory_pool().used_bytes()


@pytest.mark.parametrize("home", ["host", "device"])
@pytest.mark.parametrize("name", FITS)
def test_one_failure_at_any_allocation_is_survived(cuda: Any, name: str, home: str) -> None:
    X = data(40, 3) if home == "host" else cuda.asarray(data(40, 3))
    settings = {"device": "cuda"}
    model(name, **settings).fit(X)
    with cupy_device.count_allocations() as made:
        wanted = model(name, **settings).fit(X)
    values = np.asarray(wanted.eigenvalues_ if home == "host" else wanted.eigenvalues_.get())
    baseline = used(cuda)
    estimator = model(name, **settings)
    step = {"dense": 1, "block Krylov": 7}.get(name) if home == "device" else None
    for k in range(1, made.count + 1, step or max(1, made.count // 7)):
        with cupy_device.fail_allocation(k):
            estimator.fit(X)
        found = estimator.eigenvalues_ if home == "host" else estimator.eigenvalues_.get()
        np.testing.assert_array_equal(found, values)
        if estimator.fallbacks_:
            assert "memory ran out" in estimator.fallbacks_[0]
    del estimator
    assert used(cuda) <= baseline


@pytest.mark.parametrize("home", ["host", "device"])
@pytest.mark.parametrize("name", FITS)
def test_no_memory_from_any_allocation_on_is_an_error_with_numbers(cuda: Any, name: str, home: str) -> None:
    X = data(40, 3) if home == "host" else cuda.asarray(data(40, 3))
    estimator = model(name, device="cuda").fit(X)
    before = dict(vars(estimator))
    with cupy_device.count_allocations() as made:
        model(name, device="cuda").fit(X)
    baseline = used(cuda)
    for k in range(1, made.count + 1, max(1, made.count // 15)):
        with (
            cupy_device.fail_allocation(k, forever=True),
            pytest.raises(MemoryBudgetError, match=r"ran out|[KM]iB") as no,
        ):
            estimator.fit(X)
        assert used(cuda) <= baseline, f"allocation {k}"  # while the error and its traceback are alive
        assert no.value.__traceback__ is not None
        assert all(vars(estimator)[key] is value for key, value in before.items())
        del no
    estimator.transform(X)


POOLS = {
    "default": lambda cuda: cuda.get_default_memory_pool(),
    "own": lambda cuda: cuda.cuda.MemoryPool(),
    "asynchronous": lambda cuda: cuda.cuda.MemoryAsyncPool(),
}


@pytest.mark.parametrize("name", POOLS)
def test_free_memory_is_that_of_the_current_pool(stand_in: Any, name: str) -> None:
    pool = POOLS[name](stand_in)
    stand_in.cuda.set_allocator(pool.malloc)
    like, held = stand_in.empty((0,)), pool.used_bytes()  # by what lives longer than a test
    whole = free_bytes(like)
    block, kept = stand_in.zeros(MIB // 2), stand_in.zeros(MIB // 8)
    assert free_bytes(like) == whole - block.nbytes - kept.nbytes
    del block
    on_device, _ = stand_in.cuda.runtime.memGetInfo()
    assert free_bytes(like) == whole - kept.nbytes > on_device
    release_unused(like)
    assert pool.free_bytes() < MIB // 2  # what lies beside blocks in use
    assert stand_in.cuda.runtime.memGetInfo()[0] > on_device
    pool.set_limit(2 * MIB)
    assert free_bytes(like) == 2 * MIB - kept.nbytes - held
    pool.set_limit(0)
    assert free_bytes(like) == whole - kept.nbytes


@pytest.mark.parametrize("estimator", [KernelPCA(3, kernel="rbf", gamma=0.1), PCA(3)], ids=["KernelPCA", "PCA"])
@pytest.mark.parametrize("home", ["host", "device"])
def test_the_memory_of_an_unknown_allocator_is_what_memory_limit_says(stand_in: Any, estimator: Any, home: str) -> None:
    """A function such as RMM's holds nearly the whole device; what of it is free CuPy cannot say."""
    rows, held = data(300, 3), stand_in.cuda.MemoryPool()
    held.malloc(64 * MIB)
    stand_in.cuda.set_allocator(lambda size: held.malloc(size))
    X = rows if home == "host" else stand_in.asarray(rows)
    estimator = clone(estimator).set_params(device="cuda")
    with cupy_device.device_bytes(512):
        with pytest.raises(MemoryBudgetError, match="larger memory_limit"):
            estimator.fit(X)
        for k in (20, 40):  # what the device calls free is not what another attempt may take
            with cupy_device.fail_allocation(k):
                fitted = clone(estimator).set_params(memory_limit=32 * MIB).fit(X)
            assert "memory ran out" in fitted.fallbacks_[0]


def test_allocators_of_the_users_own_run_out_in_their_own_words(stand_in: Any) -> None:
    """Without a pool CUDA itself says that there is no memory."""
    X = data(40, 3)
    wanted = model("block Krylov", device="cuda").fit(X).eigenvalues_
    with cupy_device.allocator(None):
        for k in (5, 20, 60):
            with cupy_device.controls().change(mallocs_before_failure=k):
                estimator = model("block Krylov", device="cuda").fit(X)
            np.testing.assert_array_equal(estimator.eigenvalues_, wanted)
            assert "memory ran out" in estimator.fallbacks_[0]


@pytest.mark.parametrize("name", ["dense", "poly"])
@pytest.mark.parametrize(("p", "dtype"), [(None, "float32"), (None, "float64"), (0.8, "float32"), (0.8, "float64")])
def test_the_peak_stays_below_what_was_predicted(cuda: Any, name: str, p: Any, dtype: str) -> None:
    kernel = {"kernel": "poly", "degree": 2, "gamma": 0.1} if name == "poly" else FITS["dense"]
    X = cuda.asarray(data(500, 8).astype(dtype))
    KernelPCA(p, **kernel).fit(X)
    with cupy_device.peak_bytes() as peak:
        estimator = KernelPCA(p, **kernel).fit(X)
    assert peak.peak <= estimator.plan_.predicted_bytes + MIB // 4


TILES = {
    "rbf": {"kernel": "rbf", "gamma": 0.01},
    "wide products": {"kernel": "rbf", "gamma": 5.0},
    "laplacian": {"kernel": "laplacian", "gamma": 0.1},
    "kink": {"kernel": "matern", "gamma": 0.1, "kernel_params": {"nu": 0.5}},
    "matern": {"kernel": "matern", "gamma": 0.1, "kernel_params": {"nu": 2.5}},
    "rational_quadratic": {"kernel": "rational_quadratic", "gamma": 0.1},
    "poly": {"kernel": "poly", "degree": 3, "gamma": 0.1, "gram": "tiled"},
    "inverse": {"kernel": "rbf", "gamma": 0.01, "fit_inverse_transform": True},
}


@pytest.mark.filterwarnings("ignore:K is nearly the identity:gpukpca.exceptions.PrecisionWarning")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", TILES)
def test_the_peak_of_tiles_stays_below_what_was_predicted(cuda: Any, sizes, name: str, dtype: str) -> None:
    sizes(GPU_STRIP_BYTES=MIB // 2)
    X = cuda.asarray(data(1000, 8).astype(dtype))
    settings = {"n_components": 2, "eigen_solver": BlockKrylov(block_size=8, tol=1e-3), "random_state": 0}
    KernelPCA(**settings, **TILES[name]).fit(X)
    with cupy_device.peak_bytes() as peak:
        estimator = KernelPCA(**settings, **TILES[name]).fit(X)
    predicted = estimator.plan_.predicted_bytes
    assert 0.3 * predicted <= peak.peak <= 1.05 * predicted + MIB // 4


@pytest.mark.parametrize("k", [1, 2, 3, 5, 8])
def test_transform_leaves_nothing_behind(cuda: Any, k: int) -> None:
    X = data(40, 3)
    estimator = model("block Krylov", device="cuda").fit(X)
    scores, baseline = estimator.transform(X), used(cuda)
    with cupy_device.fail_allocation(k, forever=True), pytest.raises(MemoryError):
        estimator.transform(X)
    assert used(cuda) <= baseline
    np.testing.assert_array_equal(estimator.transform(X), scores)


def test_nothing_leaks_over_many_fits_and_failures(cuda: Any) -> None:
    X = data(40, 3)
    estimator = model("block Krylov", device="cuda")
    estimator.fit(X).transform(X)
    baseline = used(cuda)
    for _ in range(50):
        estimator.fit(X).transform(X)
    assert used(cuda) <= baseline
    wrong = X.copy()
    wrong[3, 1] = np.inf
    for _ in range(100):
        with pytest.raises(ValueError, match="infinity"):
            estimator.fit(cuda.asarray(wrong))
    assert used(cuda) <= baseline


def test_nothing_leaks_over_failures_in_the_middle(cuda: Any) -> None:
    X = data(40, 3)
    with cupy_device.count_allocations() as made:
        estimator = model("block Krylov", device="cuda").fit(X)
    baseline = used(cuda)
    # Less than all of them: the first fit also asked the device whether it works.
    for k in np.linspace(1, made.count // 2, 50).astype(int).tolist():
        with cupy_device.fail_allocation(k, forever=True), pytest.raises(MemoryError):
            estimator.fit(X)
    assert used(cuda) <= baseline


def test_another_program_that_takes_memory_meanwhile_leaves_the_smaller_way(stand_in: Any) -> None:
    """The plan fits when it is made; in the fit there is less, and what is left suffices for recomputed tiles."""
    n = 1500
    X = data(n, 4)
    wanted = model("block Krylov", tol=1e-8).fit(X)
    estimator = model("block Krylov", tol=1e-8, device="cuda").fit(X)
    assert estimator.plan_.storage.is_fully_cached
    predicted = estimator.plan_.predicted_bytes
    del estimator
    taken = []

    def listener(event: Any) -> None:
        if event.stage == "plan" and not taken:
            stand_in.get_default_memory_pool().free_all_blocks()
            free, _ = stand_in.cuda.runtime.memGetInfo()
            taken.append(others.enter_context(cupy_device.foreign_bytes(free - int(0.5 * predicted))))

    small = model("block Krylov", tol=1e-8, device="cuda", verbose=listener)
    with ExitStack() as others:
        small.fit(X)
    assert not small.plan_.storage.is_fully_cached or small.plan_.predicted_bytes < predicted
    assert "memory ran out" in small.fallbacks_[0]
    np.testing.assert_allclose(small.eigenvalues_, wanted.eigenvalues_, rtol=1e-10)


@pytest.mark.parametrize("name", ["dense", "block Krylov", "nystrom"])
def test_what_is_predicted_is_what_is_taken(stand_in: Any, name: str) -> None:
    X = data(700, 8)
    estimator = model(name, device="cuda")
    pool = stand_in.get_default_memory_pool()
    pool.free_all_blocks()
    with cupy_device.device_bytes(2**30):
        estimator.fit(X)
    predicted = estimator.plan_.predicted_bytes
    assert pool.total_bytes() <= 1.1 * predicted + MIB
    assert pool.total_bytes() >= 0.3 * predicted


def test_the_limit_of_a_pool_counts(stand_in: Any) -> None:
    X = data(1500, 4)
    pool = stand_in.get_default_memory_pool()
    try:
        pool.set_limit(size=26 * MIB)
        fitted = model("block Krylov", tol=1e-6, device="cuda").fit(X)
    finally:
        pool.set_limit(size=0)
    assert fitted.plan_.available_bytes < 26 * MIB
    assert not fitted.plan_.storage.is_fully_cached


def test_tiles_shrink_with_the_memory(stand_in: Any) -> None:
    X = np.zeros((TILES_ALONG_A_SIDE * 8192, 2), dtype=np.float32)
    edges = []
    for size in (40 * 2**30, 2**30, 600 * MIB):
        with cupy_device.device_bytes(size):
            edges.append(model("block Krylov", device="cuda").plan(X).storage.tile_edge)
    assert edges == sorted(edges, reverse=True)
    assert edges[0] == 8192
    assert edges[-1] < 8192


def test_tiles_fill_a_card_that_no_other_program_uses(stand_in: Any) -> None:
    X, size, shares = np.zeros((2 * TILES_ALONG_A_SIDE * 8192, 2), dtype=np.float32), 24 * 2**30, []
    held = stand_in.empty(size // 8, dtype=np.uint8)  # by this process
    for foreign in (0, size // 20, size // 8):
        with cupy_device.device_bytes(size), cupy_device.foreign_bytes(foreign):
            free = free_bytes(stand_in.empty((0,)))
            shares.append(model("block Krylov", device="cuda").plan(X).storage.bytes_held(4) / free)
    assert held.size
    assert all(0.75 < share < 0.85 for share in shares[:2])
    assert 0.5 < shares[2] < 0.6


# -- cuSOLVER's faults -------------------------------------------------------------------------------------------------

FAULTS = {
    "info": (lambda: cupy_device.eigh_reports(7), "did not converge"),
    "nan": (lambda: cupy_device.eigh_answers("nan"), "NaN"),
    "nan values": (lambda: cupy_device.eigh_answers("nan values"), "NaN"),
    "nan vectors": (lambda: cupy_device.eigh_answers("nan vectors"), "NaN"),
    "unsorted": (lambda: cupy_device.eigh_answers("unsorted"), "not in order"),
    "wrong values": (lambda: cupy_device.eigh_answers("wrong values"), "trace|residuals"),
    "wrong vectors": (lambda: cupy_device.eigh_answers("wrong vectors"), "residuals"),
    "zero": (lambda: cupy_device.eigh_answers("zero"), "trace|orthonormal"),
    "too large": (lambda: cupy_device.eigh_refuses_above(10), "INVALID_VALUE"),
}


@pytest.mark.filterwarnings("ignore:.* not separately:gpukpca.exceptions.PrecisionWarning")
@pytest.mark.parametrize(("p", "dtype"), [(3, "float64"), (30, "float64"), (3, "float32")])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_failing_device_solver_is_replaced_and_reported(stand_in: Any, fault: str, p: int, dtype: str) -> None:
    X = data(60, 3).astype(dtype)
    wanted = model("dense", n_components=p).fit(X)
    state, cause = FAULTS[fault]
    estimator = model("dense", n_components=p)
    with state(), pytest.warns(DeviceFallbackWarning, match="another one took its place") as caught:
        estimator.fit(stand_in.asarray(X))
    assert caught[0].message.values["n"] == 60
    assert re.search(cause, "; ".join(caught[0].message.values["fallbacks"]))
    assert len(estimator.fallbacks_) == 1
    assert ("block Krylov" in estimator.solver_) == (5 * p <= 60)
    assert ("host" in estimator.solver_) == (5 * p > 60)
    size = wanted.eigenvalues_[0]
    error = np.abs(estimator.eigenvalues_.get() - wanted.eigenvalues_).max()
    assert error <= (1e-13 if dtype == "float64" else 1e-5) * size


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("K", [np.zeros((12, 12)), np.ones((12, 12))], ids=["zero", "constant"])
def test_matrices_without_variance_never_reach_cusolver(cuda: Any, K: np.ndarray, dtype: str) -> None:
    with pytest.warns(UserWarning, match="variance"):
        estimator = KernelPCA(2, kernel="precomputed").fit(cuda.asarray(K.astype(dtype)))
    assert np.all(estimator.eigenvalues_.get() == 0.0)
    assert estimator.fallbacks_ == ()


# Below 1e-38 CuPy's kernels flush float32 to zero.
@pytest.mark.parametrize("size", [3e38, 1e-30, 1.0])
def test_extreme_entries_are_scaled_before_cusolver(cuda: Any, size: float) -> None:
    B = data(12, 12)
    K = (B @ B.T / np.abs(B @ B.T).max()).astype(np.float32) * np.float32(size / 40)
    wanted = KernelPCA(2, kernel="precomputed").fit(K.astype(np.float64)).eigenvalues_
    estimator = KernelPCA(2, kernel="precomputed", eigen_solver="dense").fit(cuda.asarray(K))
    assert estimator.fallbacks_ == ()
    np.testing.assert_allclose(estimator.eigenvalues_.get(), wanted, rtol=1e-5)


OF_BATCHES = {
    "IncrementalPCA": IncrementalPCA(2),
    "PCA": PCA(2),
    "EM": ProbabilisticPCA(2, tol=1e-3, random_state=0),
}


@pytest.mark.parametrize("estimator", OF_BATCHES.values(), ids=OF_BATCHES)
def test_batches_of_a_fit_that_ran_out_of_memory_once_are_all_counted_once(cuda: Any, estimator: Any) -> None:
    batches = Batches([cuda.asarray(batch) for batch in np.split(data(60, 4), 3)])
    with cupy_device.count_allocations() as made:
        wanted = clone(estimator).fit(batches)
    fitted = 0
    for k in range(1, made.count + 1, max(1, made.count // 15)):
        try:
            with cupy_device.fail_allocation(k):
                model = clone(estimator).fit(batches)
        except MemoryError:  # where nothing can be done again: a batch is checked, the answer handed over
            continue
        fitted += 1
        assert getattr(model, "n_samples_seen_", 60) == getattr(model, "n_samples_", 60) == 60
        np.testing.assert_array_equal(model.components_.get(), wanted.components_.get())
    assert fitted >= 8
