"""Kernel matrices on a Dask cluster: the answer of one machine, whatever chunks are like and workers do."""

from __future__ import annotations

import gc
import importlib
import logging
import multiprocessing
import os
import pickle
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from gpukpca.backend.limits import SHARE_OF_WORKER
from gpukpca.backend.namespace import library_of
from gpukpca.backend.random import generator
from gpukpca.distributed import Cluster, ClusterRows, DaskGram, cluster_for
from gpukpca.distributed import client as cluster_module
from gpukpca.distributed import gram as operator
from gpukpca.distributed.chunks import Found
from gpukpca.distributed.tiles import ShareSpec, TileAssignment, added, assign_tiles
from gpukpca.eigen import BlockKrylov, Dense, pivoted_cholesky, top_eigh
from gpukpca.exceptions import (
    ClusterError,
    DeviceUnavailableError,
    InvalidParameterError,
    RankWarning,
)
from gpukpca.gram import BasePointGram, CenteredGram, TiledGram
from gpukpca.kernels import RBF, BlockCallable, Cosine, Kernel, Laplacian, Linear, PairwiseCallable, Polynomial
from gpukpca.kernels.prepared import DataRows
from tests import fake_cupy, oracle, tolerances

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

N, D = 97, 5  # no multiple of the panels
U = np.finfo(np.float64).eps
KERNELS = {
    "rbf": RBF(0.1),
    "flat": RBF(1e-4),
    "linear": Linear(),
    "sum": Polynomial(2, 0.3, 1.0) + 0.5 * Laplacian(0.2),
}
QUIET = {
    "distributed.comm.retry.count": 0,
    "distributed.deploy.lost-worker-timeout": "120s",  # a busy machine takes its time to start one again
    "distributed.worker.multiprocessing-method": "forkserver",
    "distributed.worker.memory.pause": False,  # the memory of this process, where workers are its threads
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.terminate": False,
}


def rows(n: int = N, d: int = D, dtype: str = "float64", seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, d)).astype(dtype)


def started(n_workers: int, processes: bool = False, **settings: Any) -> Any:
    return distributed.LocalCluster(
        n_workers=n_workers,
        threads_per_worker=settings.pop("threads_per_worker", 1),
        processes=processes,
        dashboard_address=":0",
        silence_logs=False,
        **settings,
    )


def client_of(local: Any) -> Any:
    return distributed.Client(local, set_as_default=False)


@pytest.fixture(scope="module")
def quiet() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in ("distributed", "distributed.client")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    with dask.config.set(QUIET):
        yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


@pytest.fixture(scope="module")
def clients(quiet: None) -> Iterator[dict[int, Any]]:
    """Clients of clusters with 1, 2 and 3 workers that are threads of this process."""
    locals_ = {n: started(n, threads_per_worker=2 if n == 3 else 1) for n in (1, 2, 3)}
    found = {n: client_of(local) for n, local in locals_.items()}
    yield found
    for n, local in locals_.items():
        found[n].close()
        local.close()


@pytest.fixture
def client(clients: dict[int, Any]) -> Any:
    return clients[3]


@pytest.fixture(scope="module")
def processes(quiet: None) -> Iterator[Any]:
    """The client of two worker processes, forked from one that has made the imports: workers will die here."""
    distributed.utils.get_mp_context()  # or it would choose the imports later
    multiprocessing.get_context("forkserver").set_forkserver_preload(["distributed", "gpukpca.distributed"])
    # Of workers that died soon after they came, distributed loses count, and says so with a KeyError when it closes.
    with suppress(KeyError), started(2, processes=True) as local, client_of(local) as found:
        yield found


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Errors come in less than a second."""
    monkeypatch.setattr(cluster_module, "LOOK", 0.05)
    with dask.config.set({"gpukpca.timeout": "300ms"}):
        yield


def until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait for something that happens by itself."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def on_cluster(client: Any, X: np.ndarray, kernel: Kernel = KERNELS["rbf"], **settings: Any) -> DaskGram:
    return DaskGram(kernel, ClusterRows.of_array(X, Cluster(client)), **settings)


# -- the answer of one machine -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_workers", [1, 2, 3])
@pytest.mark.parametrize("n", [1, 11, N])
def test_products_equal_those_of_one_machine(clients, n_workers, n, dtype):
    X, V = rows(n, dtype=dtype), rows(n, 4, dtype, 1)
    for kernel in KERNELS.values() if n == N and dtype == "float64" else [KERNELS["rbf"]]:
        op, one = on_cluster(clients[n_workers], X, kernel), TiledGram(kernel, X)
        for _ in range(2):  # the second product reads the cache
            W = op @ V
            assert type(W) is np.ndarray
            assert W.dtype == dtype
            size = max(1.0, float(np.max(np.abs(one.to_dense()))))
            np.testing.assert_allclose(W, one @ V, rtol=0, atol=tolerances.product(dtype, n, 3 * size))


def test_products_equal_the_oracle(client):
    X, V = rows(), rows(N, 3, seed=1)
    expected = oracle.gram(oracle.rbf(0.1), X) @ V
    for cache in (True, False):
        op = on_cluster(client, X, cache=cache)
        np.testing.assert_allclose(op @ V, expected, rtol=0, atol=tolerances.product("float64", N, 3))
        np.testing.assert_array_equal(op @ V, op @ V)


@pytest.mark.parametrize("name", KERNELS)
def test_the_rest_of_the_protocol_equals_one_machine(client, name):
    X, kernel = rows(), KERNELS[name]
    op, one = on_cluster(client, X, kernel), TiledGram(kernel, X)
    chosen = [3, 96, 0, 40]
    bound = 100 * U * float(np.max(np.abs(one.to_dense())))
    assert (op.shape, op.dtype, op.factor()) == (one.shape, one.dtype, None)
    np.testing.assert_allclose(op.diagonal(), one.diagonal(), rtol=0, atol=bound)
    np.testing.assert_allclose(op.columns(chosen), one.columns(chosen), rtol=0, atol=bound)
    np.testing.assert_allclose(op.block([1, 2], chosen), one.block([1, 2], chosen), rtol=0, atol=bound)
    K = op.to_dense()
    np.testing.assert_array_equal(K, K.T)
    np.testing.assert_allclose(K, one.to_dense(), rtol=0, atol=bound)


@pytest.mark.parametrize("n_workers", [1, 2, 3])
@pytest.mark.parametrize("solver", [Dense(), BlockKrylov(tol=1e-13)], ids=["dense", "krylov"])
def test_eigenvalues_equal_those_of_one_machine(clients, n_workers, solver):
    X = rows() + 10.0
    template = KERNELS["rbf"].resolve(X).template(X, centered=True)
    op = CenteredGram(on_cluster(clients[n_workers], X, template=template))
    found = top_eigh(op, 5, solver=solver, rng=generator(0))
    one = top_eigh(CenteredGram.of_kernel(KERNELS["rbf"], X), 5, solver=solver, rng=generator(0))
    np.testing.assert_allclose(found.eigenvalues, one.eigenvalues, rtol=0, atol=50 * U * one.eigenvalues[0])
    expected, _ = oracle.eigenpairs(oracle.centered(oracle.gram(oracle.rbf(0.1), X)), 5)
    np.testing.assert_allclose(found.eigenvalues, expected, rtol=0, atol=1e-13 * expected[0])


def test_pivoted_cholesky_finds_the_pivots_of_one_machine(client):
    X = rows()
    for wrap in (lambda op: op, BasePointGram):
        found = pivoted_cholesky(wrap(on_cluster(client, X)), 12, generator(0))
        one = pivoted_cholesky(wrap(TiledGram(KERNELS["rbf"], X)), 12, generator(0))
        np.testing.assert_array_equal(found.pivots, one.pivots)
        np.testing.assert_allclose(found.F, one.F, rtol=0, atol=1e-10)


def test_sums_made_by_workers_are_the_same_to_the_last_bit(client, monkeypatch, dtype):
    X, V = rows(dtype=dtype), rows(N, 4, dtype, 1)
    op = on_cluster(client, X)
    here = op @ V
    monkeypatch.setattr(operator, "ADDED_BY_WORKERS_FROM", 1)
    np.testing.assert_array_equal(op @ V, here)


def test_a_client_need_not_be_the_default_one(clients):
    with clients[1].as_current():
        np.testing.assert_array_equal(
            on_cluster(clients[2], rows()) @ np.eye(N), on_cluster(clients[2], rows()) @ np.eye(N)
        )


def test_workers_report_their_shares(client):
    told: list[tuple[int, int]] = []
    op = on_cluster(client, rows(), report=lambda done, of: told.append((done, of)))
    op @ np.ones((N, 1))
    assert told == [(1, 3), (2, 3), (3, 3)]


# -- how work is dealt out ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shares", [1, 2, 3, 8, 64])
def test_every_pair_of_panels_is_dealt_out_once_and_evenly(shares):
    sizes = [100 + k % 7 for k in range(4 * shares)]
    found = assign_tiles(sizes, [1.0] * shares)
    pairs = sorted(pair for _, own in found for pair in own)
    assert pairs == sorted((i, j) for j in range(len(sizes)) for i in range(j + 1))
    for panels, own in found:
        assert set(panels) == {k for pair in own for k in pair}
    work = [sum(sizes[i] * sizes[j] * (0.5 if i == j else 1.0) for i, j in own) for _, own in found]
    assert max(work) <= 1.05 * np.mean(work)
    rows_of = [sum(sizes[k] for k in panels) for panels, _ in found]
    assert max(rows_of) <= 1.05 * sum(sizes) * min(1.0, 0.5 + 1.0 / shares)


def test_a_worker_with_more_threads_gets_more_work():
    (_, small), (_, large) = assign_tiles([10] * 16, [1.0, 3.0])
    assert 2.5 < len(large) / len(small) < 3.6


def test_sums_are_made_in_float64():
    tiny = np.full((1, 1), 1e-8, dtype=np.float32)
    parts = [[np.ones((1, 1), dtype=np.float32)]] + [[tiny]] * 10
    (found,) = added("float32", [[0]] * 11, *parts)
    assert found[0, 0] == np.float32(1 + 1e-7)


def share_of(panels: list[np.ndarray], memory: int, **settings: Any) -> TileAssignment:
    pairs = tuple((i, j) for j in range(len(panels)) for i in range(j + 1))
    kernel = KERNELS["rbf"]
    spec = ShareSpec(tuple(range(len(panels))), pairs, 1, memory, 1, **settings)
    return TileAssignment(kernel, kernel.template(np.concatenate(panels)), spec, *panels)


def test_tiles_are_kept_within_half_of_the_memory_beside_rows_and_other_shares():
    panels = [rows(50, seed=k) for k in range(4)]
    data = 200 * 8 * (D + D + 2)  # the panels, and the rows made ready
    tile = 50 * 50 * 8
    share = share_of(panels, int((data + 3 * tile) / SHARE_OF_WORKER) + 10)
    assert (share.bytes_of_rows, share.bytes_of_tiles) == (data, 3 * tile)
    assert sys.getsizeof(share) >= data + 3 * tile
    other = share_of(panels, int((data + 5 * tile) / SHARE_OF_WORKER) + 10)
    assert other.bytes_of_tiles == 2 * tile
    assert share_of(panels, data).bytes_of_tiles == 0
    assert share_of(panels, 10**9, cache=False).bytes_of_tiles == 0


def test_a_share_that_is_spilled_leaves_its_tiles_and_gives_the_same_answer():
    panels = [rows(300, seed=k) for k in range(3)]
    share = share_of(panels, 10**9)
    blocks = [rows(300, 2, seed=9 + k) for k in range(3)]
    expected = share.times(*blocks)
    packed = pickle.dumps(share)
    assert len(packed) < 1.5 * share.bytes_of_rows < share.bytes_of_tiles
    del share
    for part, again in zip(expected, pickle.loads(packed).times(*blocks), strict=True):
        np.testing.assert_array_equal(part, again)


# -- Dask arrays -------------------------------------------------------------------------------------------------------


def unknown(X: Any) -> Any:
    return X[da.ones(X.shape[0], chunks=X.chunks[0], dtype=bool)]


def lazily_wrong(chunk: Any, dtype: Any = np.float64) -> Any:
    """A Dask array of one chunk that is not what it says it is."""
    return da.from_delayed(dask.delayed(lambda: chunk, pure=False)(), (2, 2), dtype=dtype)


ARRAYS = {
    "even chunks": lambda X: da.from_array(X, chunks=(10, D)),
    "one chunk": lambda X: da.from_array(X, chunks=(N, D)),
    "many chunks": lambda X: da.from_array(X, chunks=(2, D)),
    "uneven chunks": lambda X: da.from_array(X, chunks=((90, 1, 6), D)),
    "column chunks": lambda X: da.from_array(X, chunks=(30, 2)),
    "unknown chunks": lambda X: unknown(da.from_array(X, chunks=(30, D))),
    "unknown and column chunks": lambda X: unknown(da.from_array(X, chunks=(30, 2))),
    "an empty chunk": lambda X: da.concatenate([da.from_array(X[:40]), da.zeros((0, D)), da.from_array(X[40:])]),
    "all but one empty": lambda X: unknown(da.concatenate([da.zeros((0, D)), da.from_array(X), da.zeros((0, D))])),
    "persisted elsewhere": lambda X: da.from_array(np.asfortranarray(X), chunks=(33, D)),
    "big-endian": lambda X: da.from_array(X.astype(">f8"), chunks=(33, D)),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_chunks_of_any_kind_are_the_same_rows(client, name):
    X, V = rows(), rows(N, 2, seed=1)
    found = ClusterRows.of_dask(ARRAYS[name](X), Cluster(client))
    assert (found.shape, found.dtype) == ((N, D), np.float64)
    assert sum(found.chunks) == N
    np.testing.assert_array_equal(found.take(np.arange(N)), X)
    np.testing.assert_array_equal(found.take([5, 96, 5]), X[[5, 96, 5]])
    expected = TiledGram(KERNELS["rbf"], X) @ V
    np.testing.assert_allclose(DaskGram(KERNELS["rbf"], found) @ V, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("made", "dtype"),
    [
        (lambda X: da.from_array(X.astype(np.float32), chunks=(30, D)), np.float32),
        (lambda X: da.from_array(X.astype(np.float16), chunks=(30, D)), np.float64),
        (lambda X: da.from_array((10 * X).astype(np.int8), chunks=(30, D)), np.float64),
        (lambda X: da.from_array(X > 0, chunks=(30, D)), np.float64),
        (lambda X: da.concatenate([da.from_array(X[:50].astype(np.float32)), da.from_array(X[50:])]), np.float64),
        (
            lambda X: da.from_array(X, chunks=(30, D)).map_blocks(lambda b: b.astype(np.float32), dtype=float),
            np.float32,
        ),
    ],
    ids=["float32", "float16", "int8", "bool", "float32 and float64", "float32 that says float64"],
)
def test_dtypes_are_those_of_the_chunks(client, made, dtype):
    X = made(rows())
    found = ClusterRows.of_dask(X, Cluster(client))
    assert found.dtype == dtype
    np.testing.assert_array_equal(found.take(np.arange(N)), X.compute().astype(dtype))


def test_what_float64_cannot_hold_is_told(client):
    integers = np.array([[2**53 + 1, 0], [1, -3]])
    for X, words in (
        (integers, "integers up to 9007199254740993 exceed 2**53 and lose digits in float64."),
        (rows().astype(np.longdouble), "extended precision is reduced to float64."),
        (rows(), ""),
    ):
        told = ClusterRows.of_dask(da.from_array(X, chunks=(1 if X is integers else 30, -1)), Cluster(client))
        assert told.lost_digits == (words if X.dtype != np.float64 else "")  # the widest type of some machines


WRONG = {
    "one dimension": (lambda: da.ones(5), ValueError, r"expected a 2D Dask array, got 1 dimension"),
    "no rows": (lambda: da.zeros((0, 3)), ValueError, r"0 sample\(s\): every chunk is empty"),
    "no columns": (lambda: da.zeros((3, 0)), ValueError, r"0 feature\(s\) \(shape=\(3, 0\)\) while"),
    "sparse": (
        lambda: lazily_wrong(scipy.sparse.csr_array(np.eye(2))),
        TypeError,
        r"chunk 0 of the Dask array is sparse; make it dense with X\.map_blocks",
    ),
    "masked": (lambda: lazily_wrong(np.ma.masked_less(np.eye(2), 1)), TypeError, r"chunk 0 .* is masked"),
    "objects": (lambda: lazily_wrong(np.array([["a", 1]] * 2, dtype=object)), TypeError, r"holds object; real numbers"),
    "dates": (lambda: lazily_wrong(np.zeros((2, 2), dtype="M8[s]")), TypeError, r"holds datetime64\[s\]"),
    "complex": (lambda: lazily_wrong(1j * np.eye(2)), ValueError, r"Complex data not supported: chunk 0"),
    "no array": (lambda: lazily_wrong("text"), TypeError, r"chunk 0 .* is of the type str"),
    "three dimensions": (lambda: lazily_wrong(np.zeros((2, 2, 2))), ValueError, r"chunk 0 has the shape \(2, 2, 2\)"),
    "widths": (
        lambda: da.concatenate([lazily_wrong(np.eye(2)), lazily_wrong(np.ones((2, 3)))]),
        ValueError,
        r"chunk 1 has the shape \(2, 3\), and chunk 0 \(2, 2\): along axis 1",
    ),
    "columns of unknown width": (
        lambda: da.ones((4, 4), chunks=2)[:, da.ones(4, chunks=2, dtype=bool)],
        ValueError,
        r"axis 1 \(columns\) .* unknown width",
    ),
    "an error in a chunk": (
        lambda: da.ones((4, 2), chunks=2).map_blocks(lambda b: 1 // 0, meta=np.ones((0, 2))),
        ZeroDivisionError,
        "by zero",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_table_of_numbers_is_refused(client, name):
    made, kind, text = WRONG[name]
    with pytest.raises(kind, match=text):
        ClusterRows.of_dask(made(), Cluster(client))


def test_sparse_rows_of_this_process_are_refused(client):
    with pytest.raises(InvalidParameterError, match="sparse rows cannot be dealt out"):
        ClusterRows.of_array(scipy.sparse.csr_array(rows()), Cluster(client))


@pytest.mark.parametrize("dask_array", [True, False])
def test_entries_that_are_not_finite_are_counted_and_the_first_is_named(client, dask_array):
    X = rows()
    assert ClusterRows.of_array(X, Cluster(client)).not_finite() == (Found(), Found())
    X[70:73, 1] = np.nan
    X[95, 4] = X[80, 2] = -np.inf
    made = ClusterRows.of_dask(da.from_array(X, chunks=(9, 2)), Cluster(client)) if dask_array else None
    found = made or ClusterRows.of_array(X, Cluster(client))
    assert found.not_finite() == (Found(3, 70, 1), Found(2, 80, 2))


# -- kernels on workers ------------------------------------------------------------------------------------------------


def test_what_a_kernel_warns_of_on_workers_reaches_the_caller_once(client):
    X = rows()
    X[::20] = 0.0
    op = on_cluster(client, X, Cosine())
    with pytest.warns(RankWarning, match=r"panel 0 of the rows: Cosine: 1 row\(s\) are zero") as caught:
        op.diagonal()
    assert len(caught) == 1
    expected = oracle.gram(oracle.cosine, X) @ np.ones((N, 1))
    np.testing.assert_allclose(op @ np.ones((N, 1)), expected, rtol=0, atol=1e-12)


def test_errors_of_kernels_come_back_with_what_they_were_for(client):
    def full(A, B):
        raise MemoryError("no room")

    with pytest.raises(MemoryError, match="no room") as caught:
        on_cluster(client, rows(), BlockCallable(full)) @ np.ones((N, 1))
    assert any("the product with panels" in note for note in caught.value.__notes__)
    with pytest.raises(InvalidParameterError, match="must return a block of shape"):
        on_cluster(client, rows(), BlockCallable(lambda A, B: np.ones(3))) @ np.ones((N, 1))


def test_a_kernel_of_the_users_own_runs_where_its_rows_need_no_others(client):
    class Counts(Kernel):
        def tile(self, a: Any, b: Any, out: Any = None) -> Any:
            return a.data @ b.data.T

        def tile_diagonal(self, a: Any) -> Any:
            return np.sum(a.data**2, axis=1)

    class OnTheWhole(Counts):
        def prepare_rows(self, X: Any, like: Any, centered: bool) -> Any:
            return DataRows(X - X.mean(axis=0))

    X, V = rows(), rows(N, 2, seed=1)
    np.testing.assert_allclose(on_cluster(client, X, Counts()) @ V, X @ (X.T @ V), rtol=0, atol=1e-12)
    with pytest.raises(InvalidParameterError, match=r"defines prepare_rows but no template\(X, centered\)"):
        on_cluster(client, X, OnTheWhole())
    with pytest.raises(InvalidParameterError, match="cannot be evaluated tile by tile"):
        on_cluster(client, X, PairwiseCallable(lambda x, y: 1.0))
    lock = threading.Lock()
    with pytest.raises(InvalidParameterError, match=r"BlockCallable.* cannot be sent to the workers: .*lock"):
        on_cluster(client, X, BlockCallable(lambda A, B: lock))


def test_blocks_of_a_wrong_shape_are_refused(client):
    op = on_cluster(client, rows())
    with pytest.raises(InvalidParameterError, match=r"expected a block of shape \(97, b\), got \(3, 2\)"):
        op @ np.ones((3, 2))


# -- GPUs --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KERNELS)
def test_workers_with_gpus_give_the_same_answer_as_host_arrays(client, cuda, name):
    X, V, kernel = rows(), rows(N, 2, seed=1), KERNELS[name]
    op = DaskGram(kernel, ClusterRows.of_array(X, Cluster(client), cuda=True))
    W = op @ V
    assert type(W) is np.ndarray
    assert op.source.over_panels(library_of) == ["cupy"] * len(op.source.panels)
    one = TiledGram(kernel, X)
    bound = 1e-12 * float(np.max(np.abs(one.to_dense())))
    np.testing.assert_allclose(W, one @ V, rtol=0, atol=30 * bound)
    np.testing.assert_allclose(op.columns([0, 96]), one.columns([0, 96]), rtol=0, atol=bound)
    np.testing.assert_allclose(op.diagonal(), one.diagonal(), rtol=0, atol=bound)
    np.testing.assert_allclose(op.block([0], [96]), one.block([0], [96]), rtol=0, atol=bound)


def test_a_share_computes_on_the_device_of_its_panels(fake_cuda):
    X, V, kernel = rows(20), rows(20, 2, seed=1), KERNELS["rbf"]
    with fake_cuda.cuda.Device(1):
        panels = [fake_cuda.asarray(X[:12]), fake_cuda.asarray(X[12:])]
        template = kernel.template(panels[0])
    share = TileAssignment(kernel, template, ShareSpec((0, 1), ((0, 0), (0, 1), (1, 1)), 1, 0, 1), *panels)
    assert share.like.device.id == 1
    bound = tolerances.product("float64", len(X), 3)
    for _ in range(2):  # the second product reads the cache
        np.testing.assert_allclose(
            np.concatenate(share.times(V[:12], V[12:])), TiledGram(kernel, X) @ V, rtol=0, atol=bound
        )
    assert fake_cuda.cuda.runtime.getDevice() == 0


def test_chunks_on_a_gpu_take_the_others_with_them(client, cuda):
    X = rows()
    chunks = [dask.delayed(lambda a: cuda.asarray(a))(X[:50]), dask.delayed(X[50:])]
    shapes = [(50, D), (47, D)]
    made = da.concatenate([da.from_delayed(c, s, dtype=float) for c, s in zip(chunks, shapes, strict=True)])
    found = ClusterRows.of_dask(made, Cluster(client))
    assert found.over_panels(library_of) == ["cupy"] * len(found.panels)
    np.testing.assert_array_equal(found.take(np.arange(N)), X)
    assert found.not_finite() == (Found(), Found())


def test_a_worker_without_a_gpu_is_named_at_the_start(client, fake_cuda, monkeypatch):
    lacking = Cluster(client).workers[1].address

    def fault() -> str:
        return "no driver" if distributed.get_worker().address == lacking else ""

    monkeypatch.setattr(cluster_module, "gpu_fault", fault)
    with pytest.raises(DeviceUnavailableError, match=f"the worker at {lacking} cannot compute on a GPU: no driver"):
        ClusterRows.of_array(rows(), Cluster(client), cuda=True)
    monkeypatch.undo()
    with fake_cupy.no_device(), pytest.raises(DeviceUnavailableError, match="cannot compute on a GPU"):
        ClusterRows.of_array(rows(), Cluster(client), cuda=True)


# -- clients -----------------------------------------------------------------------------------------------------------


def test_clients_that_cannot_be_waited_for_are_refused(clients, client):
    with pytest.raises(InvalidParameterError, match="asynchronous"):
        Cluster(SimpleNamespace(asynchronous=True))
    closed = distributed.Client(client.scheduler.address, set_as_default=False)
    closed.close()
    with pytest.raises(InvalidParameterError, match="the Dask client is closed"):
        Cluster(closed)
    with pytest.raises(InvalidParameterError, match=r'give a distributed\.Client, "active" or None'):
        cluster_for("tcp://nowhere:1")
    with pytest.raises(InvalidParameterError, match='client="active", and no Dask client is'):
        cluster_for("active")
    assert cluster_for(None) is None
    with client.as_current():
        assert cluster_for(None).client is client
        assert cluster_for("active").client is client


def test_a_fit_inside_a_task_is_refused_unless_the_task_lets_go_of_its_thread(clients):
    def fit(lets_go: bool) -> Any:
        if lets_go:
            distributed.secede()
        with distributed.Client(distributed.get_worker().scheduler.address, set_as_default=False) as client:
            return on_cluster(client, rows()) @ np.ones((N, 1))

    expected = TiledGram(KERNELS["rbf"], rows()) @ np.ones((N, 1))
    np.testing.assert_allclose(clients[1].submit(fit, True, pure=False).result(), expected, rtol=0, atol=1e-12)
    with pytest.raises(InvalidParameterError, match="would wait for the thread"):
        clients[1].submit(fit, False, pure=False).result()


def test_another_version_on_a_worker_is_named(client, monkeypatch):
    monkeypatch.setattr(cluster_module, "version_here", lambda: "0.1")
    with pytest.raises(ClusterError, match=r"the worker at .* runs gpukpca 0\.1"):
        Cluster(client)


def test_a_worker_with_another_layout_of_the_package_tells_its_version(tmp_path):
    (tmp_path / "gpukpca").mkdir()
    (tmp_path / "gpukpca" / "__init__.py").touch()
    (tmp_path / "gpukpca" / "_version.py").write_text('__version__ = "0.0.1"')
    packed, _ = cluster_module._packed(cluster_module.version_here, ())
    (tmp_path / "task").write_bytes(packed)
    work = "import pickle; call, *_ = pickle.load(open('task', 'rb')); print(call())"
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", work]
    told = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert told.stdout == "0.0.1\n"


# -- what workers are left with ----------------------------------------------------------------------------------------


def tasks_left(client: Any) -> set[str]:
    """What kinds of tasks the scheduler knows."""
    keys = client.run_on_scheduler(lambda dask_scheduler: [str(key) for key in dask_scheduler.tasks])
    return {key.split("-")[1] for key in keys if key.startswith("gpukpca")}


@pytest.mark.parametrize("added_by", ["this process", "the workers"])
def test_nothing_is_left_on_the_workers(clients, monkeypatch, added_by):
    client = clients[2]
    gc.collect()  # what other tests left, but not what this one leaves
    monkeypatch.setattr(cluster_module, "LOOK", 1e-4)
    monkeypatch.setattr(operator, "ADDED_BY_WORKERS_FROM", 1 if added_by == "the workers" else 9)
    op = on_cluster(client, rows())
    op @ np.ones((N, 2))
    op.columns([1, 2])
    until(lambda: tasks_left(client) == {"panel", "tiles"})
    del op
    until(lambda: not tasks_left(client))


def test_an_interrupt_releases_what_is_under_way(clients):
    client = clients[2]

    def interrupt(done: int, of: int) -> None:
        raise KeyboardInterrupt

    op = on_cluster(client, rows(), report=interrupt)
    with pytest.raises(KeyboardInterrupt):
        op @ np.ones((N, 2))
    del op
    until(lambda: not tasks_left(client))


# -- what goes wrong ---------------------------------------------------------------------------------------------------


def test_what_was_cancelled_is_named(client):
    op = on_cluster(client, rows())
    client.cancel(op._shares)
    with pytest.raises(ClusterError, match=r"the product with panels 0, .* was lost: it was cancelled"):
        op @ np.ones((N, 1))


def test_without_workers_there_is_a_word_and_then_an_error_in_time(quiet, impatient, monkeypatch):
    with started(1) as local, client_of(local) as client:
        op = on_cluster(client, rows())
        local.scale(0)
        until(lambda: not op.cluster.workers_now())
        with pytest.raises(ClusterError, match=r"the product with panels 0, 1, 2, 3 was lost: .* no worker for 0 s"):
            op @ np.ones((N, 1))
        with pytest.raises(ClusterError, match=r"diagonal of panel 0 \(rows 0 to 24\) was lost"):
            op.diagonal()
        monkeypatch.setattr(cluster_module, "SILENCE", 0.1)
        told: list[str] = []
        with pytest.raises(ClusterError, match="the first task was lost"):
            Cluster(client, told.append)
        assert len(told) == 1
        assert re.fullmatch(r"waiting for the scheduler at .* to have a worker that takes work, .* at most", told[0])


def test_without_a_scheduler_there_is_an_error_in_time(quiet, impatient):
    local = started(1)
    client = distributed.Client(local.scheduler_address, set_as_default=False, timeout="1s")
    op = on_cluster(client, rows())
    local.close()
    with pytest.raises(ClusterError, match=r"was lost: the scheduler at .* cannot be reached"):
        op @ np.ones((N, 1))
    until(lambda: client.status == "closed")  # by itself, once it has given up


def test_others_do_the_work_of_a_worker_whose_memory_is_full_as_long_as_there_are_any(quiet, impatient):
    with started(2) as local, client_of(local) as client:
        op = on_cluster(client, rows())
        expected = op @ np.ones((N, 1))
        first, second = (home.address for home in op._homes)
        for address in (first, second):
            client.run(pause, workers=[address])
            until(lambda at=address: not next(one.running for one in op.cluster.workers_now() if one.address == at))
            if address == first:
                np.testing.assert_array_equal(op @ np.ones((N, 1)), expected)
        with pytest.raises(ClusterError, match=f"the worker at {first} takes no work, as its memory is full"):
            op @ np.ones((N, 1))


def pause(dask_worker: Any) -> None:
    """What a worker does whose memory is full, and whose disk is."""
    dask_worker.status = distributed.core.Status.paused


# -- processes ---------------------------------------------------------------------------------------------------------


def received(client: Any) -> dict[str, int]:
    """Bytes that each worker has had from others so far."""
    return client.run(lambda dask_worker: sum(one["total"] for one in dask_worker.transfer_incoming_log))


def blocks_made(client: Any) -> dict[str, int]:
    """Bytes of the blocks of V that came to each worker from the scheduler."""
    return client.run(
        lambda dask_worker: sum(
            value.nbytes for key, value in dict(dask_worker.data).items() if "gpukpca-block" in str(key)
        )
    )


def test_a_pass_moves_no_more_than_the_formula_says(processes):
    n, b = 1003, 7
    X, V = rows(n), rows(n, b, seed=1)
    op = on_cluster(processes, X)
    expected = TiledGram(KERNELS["rbf"], X) @ V
    before = received(processes)
    np.testing.assert_allclose(op @ V, expected, rtol=0, atol=1e-11)
    first = received(processes)
    for address, bytes_had in first.items():
        assert 0 < bytes_had - before[address] <= 1.05 * n * (D + b) * 8
    op @ V
    for address, bytes_had in received(processes).items():
        assert bytes_had - first[address] <= 1.05 * n * b * 8


def mortal(folder: Any) -> BlockCallable:
    """A Gaussian kernel; a worker that makes a tile of it takes a file out of the folder, and ends."""

    def function(A: np.ndarray, B: np.ndarray) -> np.ndarray:
        for name in os.listdir(folder):
            try:
                os.unlink(os.path.join(folder, name))
            except FileNotFoundError:  # somebody else has died of it
                continue
            os._exit(1)
        return np.exp(-0.1 * np.sum((A[:, None, :] - B[None, :, :]) ** 2, axis=2))

    return BlockCallable(function)


def test_what_workers_cannot_import_is_named(processes, tmp_path, monkeypatch):
    # Before any worker has died: one that is started now would look where this process looks.
    (tmp_path / "known_here_only.py").write_text("def function(A, B):\n    return A @ B.T\n")
    monkeypatch.syspath_prepend(tmp_path)
    function = importlib.import_module("known_here_only").function
    with pytest.raises(ClusterError, match=r"cannot import what it needs .*known_here_only.*client\.upload_file"):
        on_cluster(processes, rows(), BlockCallable(function)) @ np.ones((N, 1))
    assert len(processes.scheduler_info()["workers"]) == 2


def test_three_deaths_in_a_fit_change_nothing(processes, tmp_path):
    X, V = rows(), rows(N, 3, seed=1)
    op = on_cluster(processes, X, mortal(tmp_path), cache=False)
    undisturbed = op @ V
    for death in range(3):
        (tmp_path / str(death)).touch()
        np.testing.assert_allclose(op @ V, undisturbed, rtol=0, atol=1e-12)
        assert not list(tmp_path.iterdir())
    processes.wait_for_workers(2, timeout=120)
    np.testing.assert_allclose(op @ V, undisturbed, rtol=0, atol=1e-12)
    assert {home.address for home in op._homes} == {worker.address for worker in op.cluster.workers_now()}


def test_a_task_that_ends_four_workers_is_named(processes, tmp_path):
    op = on_cluster(processes, rows(), mortal(tmp_path), cache=False)
    for death in range(12):  # whichever share they are of
        (tmp_path / str(death)).touch()
    with pytest.raises(ClusterError, match=r"the product with panels 0, .*: 4 workers in turn ended .* out of memory"):
        op @ np.ones((N, 1))


def test_a_restarted_client_says_so(processes):
    processes.wait_for_workers(2, timeout=120)
    op = on_cluster(processes, rows())
    processes.restart(timeout=120)
    with pytest.raises(ClusterError, match="was lost: it was cancelled, the client restarted"):
        op @ np.ones((N, 1))
    expected = TiledGram(KERNELS["rbf"], rows()) @ np.ones((N, 1))
    np.testing.assert_allclose(on_cluster(processes, rows()) @ np.ones((N, 1)), expected, rtol=0, atol=1e-12)
