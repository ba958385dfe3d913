"""Kernel matrices on a Dask cluster: the answer of one machine, whatever chunks are like and workers do."""

from __future__ import annotations

import gc
import importlib
import logging
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpukpca import PCA, Progress
from gpukpca.backend.namespace import library_of
from gpukpca.backend.random import generator
from gpukpca.data.rows import gathered
from gpukpca.distributed.chunks import ChunkRows
from gpukpca.distributed.client import Cluster, LostWorkError, active_cluster, version_reader
from gpukpca.distributed.gram import ClusterStorage, DaskGram
from gpukpca.distributed.pairs import Group, TilePair, added, place_pairs
from gpukpca.distributed.rows import ClusterRows, group_count
from gpukpca.eigen import BlockKrylov, EigenResult, pivoted_cholesky, top_eigh
from gpukpca.exceptions import ClusterError, DeviceUnavailableError, InvalidParameterError, RankWarning
from gpukpca.gram import CenteredGram, TiledGram
from gpukpca.gram.base_point import BasePointGram
from gpukpca.kernels import (
    RBF,
    BlockCallable,
    Cosine,
    Kernel,
    Laplacian,
    Linear,
    PairwiseCallable,
    Polynomial,
    Sigmoid,
    exp,
)
from gpukpca.kernels.prepared import DataRows
from tests import cupy_device, oracle, tolerances
from tests.each import each

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

N, D = 97, 5  # no multiple of the groups
U = np.finfo(np.float64).eps
KERNELS = {
    "rbf": RBF(0.1),
    "flat": RBF(1e-4),
    "linear": Linear(),
    "sum": Polynomial(2, 0.3, 1.0) + 0.5 * Laplacian(0.2),
    "exponential": exp(0.3 * Linear()),
}
# Processes start faster from a server that has made the imports, which Windows lacks.
START = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
SETTINGS = {
    "distributed.comm.retry.count": 0,
    "distributed.comm.timeouts.connect": "3s",  # a worker may look for data at one that has just died
    "distributed.deploy.lost-worker-timeout": "300s",  # longer than a busy machine takes to start one again
    "distributed.scheduler.work-stealing": False,  # where a machine is busy, it would move pairs with all their tiles
    "distributed.worker.multiprocessing-method": START,
    "distributed.worker.memory.pause": False,  # the memory of this process, where workers are its threads
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.terminate": False,
}


def rows(n: int = N, d: int = D, dtype: str = "float64", seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, d)).astype(dtype)


def started(n_workers: int, processes: bool = False, **settings: Any) -> Any:
    settings = {"threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": False, **settings}
    return distributed.LocalCluster(n_workers=n_workers, processes=processes, **settings)


def client_of(local: Any) -> Any:
    return distributed.Client(local, set_as_default=False)


@pytest.fixture(scope="module", autouse=True)
def quiet() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in ("distributed", "distributed.client")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    with dask.config.set(SETTINGS):
        yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


@pytest.fixture(scope="module")
def two_processes(quiet: None) -> Iterator[Any]:
    """The client of two worker processes."""
    distributed.utils.get_mp_context()  # or it would choose the imports later
    multiprocessing.get_context(START).set_forkserver_preload(["distributed", "gpukpca.distributed"])
    with started(2, processes=True) as local, client_of(local) as found:
        yield found


@pytest.fixture
def processes(two_processes: Any) -> Any:
    """The client of two worker processes that may end."""
    settle(two_processes)
    return two_processes


def settle(client: Any) -> None:
    """Wait until two workers run: a death leaves one for the work, however late a busy machine starts another."""

    def are_settled() -> bool:
        running = [nanny.process.status == distributed.core.Status.running for nanny in client.cluster.workers.values()]
        return all(running) and len(client.scheduler_info()["workers"]) == len(running) == 2

    until(are_settled, "two workers that their nannies know")


@pytest.fixture
def impatient() -> Iterator[None]:
    """Errors come in less than a second."""
    with dask.config.set({"gpukpca.timeout": "300ms"}):
        yield


def until(true: Callable[[], bool], what: str, seconds: float = 120.0) -> None:
    """Wait for something that happens by itself."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"{what}: not within {seconds:.0f} s"
        time.sleep(0.01)


def on_cluster(client: Any, X: np.ndarray, kernel: Kernel = KERNELS["rbf"], **settings: Any) -> DaskGram:
    return DaskGram(kernel, ClusterRows.of_array(X, Cluster(client)), **settings)


def of_chunks(client: Any, X: np.ndarray, kernel: Kernel = KERNELS["rbf"], **settings: Any) -> DaskGram:
    return DaskGram(kernel, ChunkRows(da.from_array(X, chunks=(25, D)), Cluster(client)), **settings)


# -- the answer of one machine -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 11, N])
def test_products_equal_those_of_one_machine(client, n, dtype):
    X, V = rows(n, dtype=dtype), rows(n, 4, dtype, 1)
    for kernel in KERNELS.values() if n == N and dtype == "float64" else [KERNELS["rbf"]]:
        op, one = on_cluster(client, X, kernel), TiledGram(kernel, X)
        size = max(1.0, float(np.max(np.abs(one.to_dense()))))
        W = op @ V
        assert type(W) is np.ndarray
        assert W.dtype == dtype
        np.testing.assert_allclose(W, one @ V, rtol=0, atol=tolerances.product(dtype, n, 3 * size))
        np.testing.assert_array_equal(op @ V, W)  # reads the cache


def test_products_equal_the_oracle_and_do_not_depend_on_the_cache(client):
    X, V = rows(), rows(N, 3, seed=1)
    W = on_cluster(client, X) @ V
    expected = oracle.gram(oracle.rbf(0.1), X) @ V
    np.testing.assert_allclose(W, expected, rtol=0, atol=tolerances.product("float64", N, 3))
    np.testing.assert_array_equal(on_cluster(client, X, cached=0.0) @ V, W)


@pytest.mark.parametrize("name", KERNELS)
def test_the_rest_of_the_protocol_equals_one_machine(client, name):
    X, kernel = rows(), KERNELS[name]
    op, one = on_cluster(client, X, kernel), TiledGram(kernel, X)
    chosen = [3, 96, 0, 40]
    bound = 100 * U * float(np.max(np.abs(one.to_dense())))
    assert (op.shape, op.dtype, op.factor()) == (one.shape, one.dtype, None)
    assert op.rounding == pytest.approx(one.rounding)
    np.testing.assert_allclose(op.diagonal(), one.diagonal(), rtol=0, atol=bound)
    np.testing.assert_allclose(op.columns(chosen), one.columns(chosen), rtol=0, atol=bound)
    np.testing.assert_array_equal(op.columns(chosen)[chosen, range(4)], op.diagonal()[chosen])
    np.testing.assert_allclose(op.block([1, 2], chosen), one.block([1, 2], chosen), rtol=0, atol=bound)
    K = op.to_dense()
    np.testing.assert_array_equal(K, K.T)
    np.testing.assert_allclose(K, one.to_dense(), rtol=0, atol=bound)


def test_rows_near_each_other_are_shifted_on_a_cluster_too(client):
    X = 1.0 + 1e-6 * rows()
    kernel = Sigmoid(1.0 / D, -1.0)
    K, one = on_cluster(client, X, kernel).to_dense(), TiledGram(kernel, X).to_dense()
    np.testing.assert_allclose(K, one, rtol=0, atol=100 * U * np.max(np.abs(one)))  # of numbers near 1e-6
    assert len(np.unique(on_cluster(client, np.ones((N, D)), kernel).to_dense())) == 1


@pytest.mark.parametrize("wrap", [lambda op: op, BasePointGram], ids=["K", "base point"])
def test_pivoted_cholesky_finds_the_pivots_of_one_machine(client, wrap):
    X = rows()
    op = DaskGram(KERNELS["rbf"], ClusterRows.of_array(X, Cluster(client)))
    found, one = (pivoted_cholesky(wrap(K), 12, generator(0)) for K in (op, TiledGram(KERNELS["rbf"], X)))
    np.testing.assert_array_equal(found.pivots, one.pivots)
    np.testing.assert_allclose(found.F, one.F, rtol=0, atol=1e-10)
    assert found.residual_trace == pytest.approx(one.residual_trace, rel=1e-9)


# -- how work is shared out --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2, 3, 8, 64, 500])
def test_pairs_are_placed_evenly_and_their_number_grows_as_the_threads(threads):
    groups = group_count(threads)
    pairs = [(i, j) for j in range(groups) for i in range(j + 1)]
    assert 4 * threads <= len(pairs) <= 6 * threads + 4
    costs = [0.5 if i == j else 1.0 for i, j in pairs]
    workers = {f"w{k}": 1 for k in range(threads)}
    homes = place_pairs(costs, [""] * len(costs), workers)
    load = {worker: sum(cost for cost, home in zip(costs, homes, strict=True) if home == worker) for worker in workers}
    assert max(load.values()) <= sum(costs) / threads + 1.0


def test_pairs_move_to_late_workers_and_from_lost_ones_and_no_others_do():
    costs = [1.0] * 24
    first = place_pairs(costs, [""] * 24, {"a": 1, "b": 3})
    assert (first.count("a"), first.count("b")) == (6, 18)
    later = place_pairs(costs, first, {"a": 1, "b": 3, "c": 2})
    assert (later.count("a"), later.count("b"), later.count("c")) == (4, 12, 8)
    assert all(home in ("c", before) for before, home in zip(first, later, strict=True))
    lost = place_pairs(costs, later, {"b": 3, "c": 1})
    assert (lost.count("b"), lost.count("c")) == (18, 6)


def test_sums_are_made_in_float64_and_in_order():
    tiny, one = np.full((1, 1), 1e-8, dtype=np.float32), np.ones((1, 1), dtype=np.float32)
    found = added([one, tiny], *[[tiny, one]] * 10, [0] * 11, "float32")
    assert found[0, 0] == np.float32(1 + 1e-7)
    assert found.dtype == np.float32


def test_a_pass_has_tasks_in_proportion_to_the_threads_and_reports_its_pairs(client):
    reports: list[tuple[int, int]] = []
    op, kinds = on_cluster(client, rows(), report=lambda done, of: reports.append((done, of))), []
    op @ np.ones((N, 1))
    groups = group_count(2)
    count = groups * (groups + 1) // 2
    assert len(op.pairs.groups) == count
    assert reports[-1] == (count, count)
    assert reports == sorted(reports)
    submit = op.pairs.cluster.submit
    op.pairs.cluster.submit = lambda *given, **named: kinds.append(named["name"]) or submit(*given, **named)
    op @ np.ones((N, 1))
    assert (kinds.count("block"), kinds.count("sum"), kinds.count("product")) == (groups, groups, count)
    assert len(kinds) == 2 * groups + count


def test_tiles_are_cached_within_half_of_the_memory_of_the_workers(client):
    found = ClusterRows.of_array(rows(2000, 1), Cluster(client))
    workers = found.cluster.workers
    storage = ClusterStorage.of(found, 16)
    assert storage.is_fully_cached
    assert "2 workers, all cached" in str(storage)
    # Each holds its rows, a part of 24 bytes each, and half of a half of K.
    needed = int(2 * (2000 * 24 + 2000**2 * 8 / 2 / 2))
    found.cluster.workers = [SimpleNamespace(**vars(worker) | {"memory": needed // 2}) for worker in workers]
    tight = ClusterStorage.of(found, 16)
    assert 0.2 < tight.cached_share < 0.5
    found.cluster.workers = [SimpleNamespace(**vars(worker) | {"memory": 1000}) for worker in workers]
    assert ClusterStorage.of(found, 16).cached_tiles == 0


def pair_of(panels: list[np.ndarray], share: float) -> TilePair:
    kernel = KERNELS["rbf"]
    template = kernel.template(np.concatenate(panels))
    return TilePair((kernel,), *(Group(panel, kernel, template) for panel in panels), share)


def test_a_pair_that_is_spilled_leaves_its_tiles_and_gives_the_same_answer():
    panels, blocks = [rows(700, seed=k) for k in range(2)], [rows(700, 2, seed=9 + k) for k in range(2)]
    pair = pair_of(panels, 1.0)
    expected = pair.times(*blocks)
    assert pair.__sizeof__() == 700 * 700 * 8
    assert pair_of(panels, 0.5).__sizeof__() < 700 * 700 * 8
    packed = pickle.dumps(pair)
    assert len(packed) < 0.1 * pair.__sizeof__()
    for part, again in zip(expected, pickle.loads(packed).times(*blocks), strict=True):
        np.testing.assert_array_equal(part, again)


# -- Dask arrays -------------------------------------------------------------------------------------------------------


def unknown(X: Any) -> Any:
    return X[da.ones(X.shape[0], chunks=X.chunks[0], dtype=bool)]


class Coordinates:
    """A sparse array of another library."""

    dtype, shape, ndim = np.dtype(float), (2, 2), 2

    def todense(self) -> np.ndarray:
        return np.eye(2)


def lazily_wrong(chunk: Any, dtype: Any = np.float64) -> Any:
    """A Dask array of one chunk that is not what it says it is."""
    return da.from_delayed(dask.delayed(lambda: chunk, pure=False)(), (2, 2), dtype=dtype)


ARRAYS = {
    "even chunks": lambda X: da.from_array(X, chunks=(10, D)),
    "one chunk": lambda X: da.from_array(X, chunks=(N, D)),
    "many chunks": lambda X: da.from_array(X, chunks=(3, D)),
    "uneven chunks": lambda X: da.from_array(X, chunks=((90, 1, 6), D)),
    "column chunks": lambda X: da.from_array(X, chunks=(30, 2)),
    "unknown and column chunks": lambda X: unknown(da.from_array(X, chunks=(30, 2))),
    "an empty chunk": lambda X: da.concatenate([da.from_array(X[:40]), da.zeros((0, D)), da.from_array(X[40:])]),
    "all but one empty": lambda X: unknown(da.concatenate([da.zeros((0, D)), da.from_array(X), da.zeros((0, D))])),
    "big-endian": lambda X: da.from_array(np.asfortranarray(X).astype(">f8"), chunks=(33, D)),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_chunks_of_any_kind_are_the_same_rows(client, name):
    X, V = rows(), rows(N, 2, seed=1)
    found = ChunkRows(ARRAYS[name](X), Cluster(client))
    assert (found.shape, found.dtype) == ((N, D), np.float64)
    assert sum(found.chunks) == N
    np.testing.assert_array_equal(gathered(found), X)
    np.testing.assert_array_equal(found.take([5, 96, 5]), X[[5, 96, 5]])
    expected = TiledGram(KERNELS["rbf"], X) @ V
    np.testing.assert_allclose(DaskGram(KERNELS["rbf"], found) @ V, expected, rtol=0, atol=1e-12)


DTYPES = {
    "float32": (lambda X: da.from_array(X.astype(np.float32), chunks=(30, D)), np.float32),
    "float16": (lambda X: da.from_array(X.astype(np.float16), chunks=(30, D)), np.float64),
    "int8": (lambda X: da.from_array((10 * X).astype(np.int8), chunks=(30, D)), np.float64),
    "bool": (lambda X: da.from_array(X > 0, chunks=(30, D)), np.float64),
    "float32 and float64": (
        lambda X: da.concatenate([da.from_array(X[:50].astype(np.float32)), da.from_array(X[50:])]),
        np.float64,
    ),
    "float32 that says float64": (
        lambda X: da.from_array(X, chunks=(30, D)).map_blocks(lambda b: b.astype(np.float32), dtype=float),
        np.float32,
    ),
}


@pytest.mark.parametrize("name", DTYPES)
def test_dtypes_are_those_of_the_chunks(client, name):
    made, dtype = DTYPES[name]
    found = ChunkRows(made(rows()), Cluster(client))
    assert found.dtype == dtype
    np.testing.assert_array_equal(gathered(found), made(rows()).compute().astype(dtype))


WRONG = {
    "one dimension": (lambda: da.ones(5), ValueError, "Expected 2D array, got 1D array"),
    "no rows": (lambda: da.zeros((0, 3)), ValueError, r"0 sample\(s\) .* required by a fit on a cluster"),
    "no columns": (lambda: da.zeros((3, 0)), ValueError, r"0 feature\(s\) \(shape=\(3, 0\)\) while"),
    "sparse, of another library": (
        lambda: lazily_wrong(Coordinates()),
        TypeError,
        r"X.blocks\[0\] is a sparse Coordinates .* pass a CSR matrix of SciPy",
    ),
    "masked": (lambda: lazily_wrong(np.ma.masked_less(np.eye(2), 1)), TypeError, r"X.blocks\[0\] has masked entries"),
    "objects": (
        lambda: lazily_wrong(np.array([["a", 1]] * 2, dtype=object)),
        ValueError,
        "'a' .column 0, row 0 of X.blocks",
    ),
    "dates": (lambda: lazily_wrong(np.zeros((2, 2), dtype="M8[s]")), TypeError, r"X.blocks\[0\] holds dates"),
    "complex": (lambda: lazily_wrong(1j * np.eye(2)), ValueError, "Complex data not supported: X.blocks"),
    "no array": (lambda: lazily_wrong("text"), TypeError, r"X.blocks\[0\] is 'text', and not"),
    "three dimensions": (lambda: lazily_wrong(np.zeros((2, 2, 2))), ValueError, "Found array with dim 3"),
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


@each("name", WRONG)
def test_arrays_that_are_no_table_of_numbers_are_rejected(client, name):
    made, kind, text = WRONG[name]
    with pytest.raises(kind, match=text):
        ChunkRows(made(), Cluster(client))


def test_entries_that_are_not_finite_are_counted_and_the_first_is_named(client):
    X = rows()
    X[70:73, 1] = np.nan
    X[95, 4] = X[80, 2] = -np.inf
    for text in (
        r"NaN: 3 value\(s\), the first in row 70, column 1",
        r"infinity .*: 2 value\(s\), the first in row 80",
    ):
        with pytest.raises(ValueError, match=f"Input X contains {text}"):
            ChunkRows(da.from_array(X, chunks=(9, 2)), Cluster(client))
        X[70:73, 1] = 0.0


# -- kernels on workers ------------------------------------------------------------------------------------------------


def test_warnings_of_kernels_on_workers_reach_the_caller_once(client):
    X = rows()
    X[::20] = 0.0
    op = on_cluster(client, X, Cosine())
    with pytest.warns(RankWarning, match="Cosine: some rows are zero") as caught:
        op.diagonal()
    assert len(caught) == 1
    assert 0 in caught[0].message.values["panels"]
    expected = oracle.gram(oracle.cosine, X) @ np.ones((N, 1))
    np.testing.assert_allclose(op @ np.ones((N, 1)), expected, rtol=0, atol=1e-12)


def test_errors_of_kernels_name_their_task(client):
    def full(A, B):
        raise MemoryError("no room")

    with pytest.raises(MemoryError, match="no room") as caught:
        on_cluster(client, rows(), BlockCallable(full)) @ np.ones((N, 1))
    assert any("the product of rows" in note for note in caught.value.__notes__)
    with pytest.raises(InvalidParameterError, match="must return a block of shape"):
        on_cluster(client, rows(), BlockCallable(lambda A, B: np.ones(3))) @ np.ones((N, 1))
    with pytest.raises(InvalidParameterError, match=r"expected a block of shape \(97, b\), got \(3, 2\)"):
        on_cluster(client, rows()) @ np.ones((3, 2))


def test_a_kernel_of_the_users_own_runs_where_its_rows_need_no_others(client):
    class Counts(Kernel):
        def tile(self, a: Any, b: Any, out: Any = None) -> Any:
            return a.data @ b.data.T

        def tile_diagonal(self, a: Any) -> Any:
            return np.sum(a.data**2, axis=1)

    class OnTheWhole(Counts):
        def prepare_rows(self, X: Any, like: Any, centered: bool) -> Any:
            return DataRows(X - X.mean(axis=0))

    X, V, lock = rows(), rows(N, 2, seed=1), threading.Lock()
    np.testing.assert_allclose(on_cluster(client, X, Counts()) @ V, X @ (X.T @ V), rtol=0, atol=1e-12)
    for kernel, text in (
        (OnTheWhole(), r"defines prepare_rows but no template\(X, centered\)"),
        (PairwiseCallable(lambda x, y: 1.0), "cannot be evaluated tile by tile"),
        (BlockCallable(lambda A, B: lock), r"BlockCallable.* cannot be sent to the workers: .*lock"),
    ):
        with pytest.raises(InvalidParameterError, match=text):
            on_cluster(client, X, kernel) @ V


# -- GPUs --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KERNELS)
def test_workers_with_gpus_give_the_same_answer_as_host_arrays(client, cuda, name):
    X, V, kernel = rows(), rows(N, 2, seed=1), KERNELS[name]
    op, one = DaskGram(kernel, ClusterRows.of_array(X, Cluster(client), cuda=True)), TiledGram(kernel, X)
    assert op.source.on_gpu
    assert op.source.each(library_of) == ["cupy"] * len(op.source.panels)
    bound = 1e-12 * float(np.max(np.abs(one.to_dense())))
    for found, expected, terms in (
        (op @ V, one @ V, 30),
        (op.columns([0, 96]), one.columns([0, 96]), 1),
        (op.diagonal(), one.diagonal(), 1),
        (op.block([0], [96]), one.block([0], [96]), 1),
    ):
        assert type(found) is np.ndarray
        np.testing.assert_allclose(found, expected, rtol=0, atol=terms * bound)


def test_a_pair_computes_on_the_device_of_its_groups(stand_in):
    X, V, kernel = rows(20), rows(20, 2, seed=1), KERNELS["rbf"]
    with stand_in.cuda.Device(1):
        panels = [stand_in.asarray(X[:12]), stand_in.asarray(X[12:])]
        groups = [Group(panel, kernel, kernel.template(panels[0])) for panel in panels]
        pair = TilePair((kernel,), *groups, 1.0)
    assert pair.like.device.id == 1
    K = kernel(X)
    for _ in range(2):  # the second product reads the cache
        above, below = pair.times(V[:12], V[12:])
        np.testing.assert_allclose(above, K[:12, 12:] @ V[12:], rtol=0, atol=tolerances.product("float64", 20, 3))
        np.testing.assert_allclose(below, K[12:, :12] @ V[:12], rtol=0, atol=tolerances.product("float64", 20, 3))
    assert stand_in.cuda.runtime.getDevice() == 0


def test_chunks_on_a_gpu_take_the_others_with_them(client, cuda):
    X = rows()
    chunks = [dask.delayed(lambda a: cuda.asarray(a))(X[:50]), dask.delayed(X[50:])]
    shapes = [(50, D), (47, D)]
    made = da.concatenate([da.from_delayed(c, s, dtype=float) for c, s in zip(chunks, shapes, strict=True)])
    found = ChunkRows(made, Cluster(client))
    assert found.each(library_of) == ["cupy"] * len(found.panels)
    np.testing.assert_array_equal(gathered(found), X)


def test_a_worker_without_a_gpu_is_named_at_the_start(client, stand_in):
    said = r"worker at inproc.* cannot compute on a"
    with cupy_device.no_device(), pytest.raises(DeviceUnavailableError, match=said):
        ClusterRows.of_array(rows(), Cluster(client), cuda=True)


# -- clients -----------------------------------------------------------------------------------------------------------


def test_clients_that_cannot_be_waited_for_are_rejected(client):
    with pytest.raises(InvalidParameterError, match="asynchronous"):
        Cluster(SimpleNamespace(asynchronous=True))
    closed = distributed.Client(client.scheduler.address, set_as_default=False)
    closed.close()
    with pytest.raises(ClusterError, match=r"the Dask client is closed, .* start one with distributed\.Client"):
        Cluster(closed)
    assert active_cluster() is None
    with client.as_current():
        assert active_cluster().client is client
    assert active_cluster() is None


def test_a_fit_inside_a_task_is_rejected_unless_the_task_lets_go_of_its_thread(client):
    def fit(lets_go: bool) -> Any:
        if lets_go:
            distributed.secede()
        with distributed.Client(distributed.get_worker().scheduler.address, set_as_default=False) as inner:
            return on_cluster(inner, rows()) @ np.ones((N, 1))

    expected = TiledGram(KERNELS["rbf"], rows()) @ np.ones((N, 1))
    np.testing.assert_allclose(client.submit(fit, True, pure=False).result(), expected, rtol=0, atol=1e-12)
    with pytest.raises(InvalidParameterError, match="would wait for the thread"):
        client.submit(fit, False, pure=False).result()


def test_another_version_on_a_worker_is_named(client, monkeypatch):
    monkeypatch.setattr(Cluster, "run", lambda *given, **named: {"tcp://worker:1": "0.1"})
    with pytest.raises(ClusterError, match=r"the worker at tcp://worker:1 runs gpukpca 0\.1"):
        Cluster(client)


def test_a_worker_with_another_layout_of_the_package_returns_its_version(tmp_path):
    (tmp_path / "gpukpca").mkdir()
    (tmp_path / "gpukpca" / "__init__.py").touch()
    (tmp_path / "gpukpca" / "_version.py").write_text('__version__ = "0.0.1"', encoding="utf-8")
    (tmp_path / "task").write_bytes(distributed.protocol.pickle.dumps(version_reader()))
    command = [sys.executable, "-c", "import pickle; print(pickle.load(open('task', 'rb'))())"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    found = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert found.stdout == "0.0.1\n"


# -- data and tasks that are left --------------------------------------------------------------------------------------


def tasks_left(client: Any) -> set[str]:
    """What kinds of tasks the scheduler knows."""
    keys = client.run_on_scheduler(lambda dask_scheduler: [str(key) for key in dask_scheduler.tasks])
    return {key.split("-")[1] for key in keys if key.startswith("gpukpca")}


def test_nothing_is_left_on_the_workers_of_an_interrupted_fit_either(client):
    def interrupt(done: int, of: int) -> None:
        raise KeyboardInterrupt

    gc.collect()  # what other tests left, but not what this one leaves
    kept = {"rows", "panel", "tiles", "shared", "Group", "block"}
    op = on_cluster(client, rows())
    op @ np.ones((N, 2))
    op.columns([1, 2])
    until(lambda: tasks_left(client) <= kept, "the end of products, sums and columns")
    op.report = interrupt
    with pytest.raises(KeyboardInterrupt):
        op @ np.ones((N, 2))
    del op
    until(lambda: not tasks_left(client), "the end of all tasks")


def bytes_at_the_scheduler(client: Any) -> int:
    """The bytes of the tasks that the scheduler keeps, arguments included."""

    def size(dask_scheduler: Any) -> int:
        specs = [task.run_spec for task in dask_scheduler.tasks.values()]
        return len(distributed.protocol.pickle.dumps(specs))

    return client.run_on_scheduler(size)


def test_rows_of_this_process_are_on_the_workers_alone(processes):
    X = rows(4000, 50)
    op = on_cluster(processes, X)
    op @ np.ones((len(X), 1))
    assert bytes_at_the_scheduler(processes) < 0.1 * X.nbytes
    held = processes.run(lambda dask_worker: sum(getattr(v, "nbytes", 0) for v in dict(dask_worker.data).values()))
    assert len(held) == 2
    assert min(held.values()) > 0.4 * X.nbytes


# -- failures ----------------------------------------------------------------------------------------------------------


def test_cancelled_work_is_named_and_lost_rows_are_sent_again(client):
    expected = on_cluster(client, rows()) @ np.ones((N, 1))
    op = of_chunks(client, rows())
    client.cancel(op.source.panels)
    with pytest.raises(ClusterError, match=r"the product of rows .* was lost: it was cancelled"):
        op @ np.ones((N, 1))
    op = on_cluster(client, rows())
    client.cancel(op.source.panels)
    np.testing.assert_array_equal(op @ np.ones((N, 1)), expected)


def test_without_workers_there_is_a_report_and_then_an_error_in_time(impatient):
    with started(1) as local, client_of(local) as client:
        op = of_chunks(client, rows())
        op @ np.ones((N, 1))
        local.scale(0)
        until(lambda: not op.source.cluster.workers_now(), "no workers")
        with pytest.raises(ClusterError, match=r"the product of rows .* was lost: .* no worker for 0 s"):
            op @ np.ones((N, 1))
        with pytest.raises(ClusterError, match=r"diagonal of panel 0 \(rows 0 to .*\) was lost"):
            op.diagonal()
        events: list[Progress] = []
        with client.as_current(), pytest.raises(ClusterError, match="the first task was lost"):
            PCA(2, verbose=events.append).fit(da.from_array(rows(), chunks=(9, D)))
    (event,) = events
    assert event.stage == "waiting"
    assert event.text.startswith("waiting for the scheduler at ")
    assert event.text.endswith(" to have a worker that takes work, for 0 s at most")


def test_lost_rows_are_sent_again_three_times(client):
    def lost() -> None:
        attempts.append(1)
        raise LostWorkError("rows were lost")

    for made, expected in ((on_cluster, 4), (of_chunks, 1)):  # the scheduler computes chunks again by itself
        attempts: list[int] = []
        with pytest.raises(LostWorkError, match="rows were lost"):
            made(client, rows()).source.retried(lost)
        assert len(attempts) == expected


def test_rows_are_sent_until_a_worker_takes_them(client, impatient, monkeypatch):
    cluster, scatter, directly = Cluster(client), client.scatter, []
    faults = [OSError("busy"), OSError("busy"), KeyError("ended"), TimeoutError]

    def send(data: Any, **settings: Any) -> Any:
        directly.append(settings["direct"])
        if faults:
            raise faults.pop()
        return scatter(data, **settings)

    monkeypatch.setattr(client, "scatter", send)
    assert cluster.scatter(rows(), cluster.workers[0]).result().shape == (N, D)
    assert directly == [True, True, False, False, False]
    faults = [OSError("busy")] * 10**6
    with pytest.raises(
        ClusterError, match="sending rows was lost: no worker could be reached for 0 s, such as the one"
    ):
        cluster.scatter(rows(), None)


def test_without_a_scheduler_there_is_an_error_in_time(impatient):
    local = started(1)
    client = distributed.Client(local.scheduler_address, set_as_default=False, timeout="1s")
    op = on_cluster(client, rows())
    op @ np.ones((N, 1))
    local.close()
    with pytest.raises(ClusterError, match=r"was lost: the scheduler at .* cannot be reached"):
        op @ np.ones((N, 1))
    until(lambda: client.status == "closed", "a closed client")  # by itself, once it has given up


def pause(dask_worker: Any) -> None:
    """What a worker does whose memory is full, and whose disk is."""
    dask_worker.status = distributed.core.Status.paused


def test_late_workers_take_their_share_and_full_ones_none(impatient):
    V = rows(N, 2, seed=1)
    with started(1, threads_per_worker=2) as local, client_of(local) as client:
        op = on_cluster(client, rows())
        before = op @ V
        (first,) = set(op.pairs.owners)
        local.scale(2)
        client.wait_for_workers(2, timeout=120)
        np.testing.assert_array_equal(op @ V, before)
        share = op.pairs.owners.count(first) / len(op.pairs.owners)
        assert 0.3 < share < 0.7
        (second,) = set(op.pairs.owners) - {first}
        tiles = client.run(lambda dask_worker: sum("-tiles-" in str(key) for key in dict(dask_worker.data)))
        assert tiles[second] >= op.pairs.owners.count(second)
        for full, takes_work in ((first, {second}), (second, set())):
            client.run(pause, workers=[full])
            until(lambda left=takes_work: {one.address for one in op.source.cluster.workers_now()} == left, "a pause")
            if takes_work:
                np.testing.assert_array_equal(op @ V, before)
        with pytest.raises(ClusterError, match=f"the worker at {first} takes no work, as its memory is full"):
            op @ V


# -- processes ---------------------------------------------------------------------------------------------------------


def received(client: Any) -> dict[str, int]:
    """Bytes that each worker has had from others so far."""
    return client.run(lambda dask_worker: sum(one["total"] for one in dask_worker.transfer_incoming_log))


def test_a_pass_moves_no_more_than_the_formula_says(processes):
    n, b = 4003, 7
    X, V = rows(n), rows(n, b, seed=1)
    op = on_cluster(processes, X)
    expected = TiledGram(KERNELS["rbf"], X) @ V
    before = received(processes)
    np.testing.assert_allclose(op @ V, expected, rtol=0, atol=1e-10)
    first = received(processes)
    for address, bytes_had in first.items():  # the prepared rows are as wide again, and one number wider
        assert 0 < bytes_had - before[address] <= 1.05 * n * (2 * (D + 2) + 3 * b) * 8
    op @ V
    for address, bytes_had in received(processes).items():
        assert bytes_had - first[address] <= 1.05 * 3 * n * b * 8


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


def test_modules_that_workers_lack_are_named(processes, tmp_path, monkeypatch):
    # Before any worker has died: one that is started now would look where this process looks.
    (tmp_path / "known_here_only.py").write_text("def function(A, B):\n    return A @ B.T\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    function = importlib.import_module("known_here_only").function
    with pytest.raises(ClusterError, match=r"cannot import what it needs .*known_here_only.*client\.upload_file"):
        on_cluster(processes, rows(), BlockCallable(function)) @ np.ones((N, 1))
    assert len(processes.scheduler_info()["workers"]) == 2


def test_three_deaths_in_a_fit_change_nothing(processes, tmp_path):
    V = rows(N, 3, seed=1)
    ops = [made(processes, rows(), mortal(tmp_path), cached=0.0) for made in (on_cluster, of_chunks)]
    undisturbed = [op @ V for op in ops]
    for death in range(3):
        (tmp_path / str(death)).touch()
        for k in (death % 2, 1 - death % 2):  # a worker dies in a product of the first, with rows of both
            np.testing.assert_array_equal(ops[k] @ V, undisturbed[k])
            assert not list(tmp_path.iterdir())
        settle(processes)
    for op, expected in zip(ops, undisturbed, strict=True):
        np.testing.assert_array_equal(op @ V, expected)
        assert set(op.pairs.owners) == {worker.address for worker in op.source.cluster.workers_now()}


def test_a_fit_goes_on_though_a_worker_dies(processes):
    X, killed = rows(), []

    def kill(event: Progress) -> None:  # the rows are on the workers by now, and nothing is added up yet
        if event.stage != "plan":
            return
        killed.append(min(processes.scheduler_info()["workers"]))
        processes.run(os._exit, 0, workers=killed, on_error="ignore")

    with processes.as_current():
        found = PCA(3, verbose=kill).fit(da.from_array(X, chunks=(9, D)))
    one = PCA(3, svd_solver="covariance_eigh").fit(X)
    assert len(killed) == 1
    np.testing.assert_allclose(found.explained_variance_, one.explained_variance_, rtol=50 * U)
    np.testing.assert_allclose(found.components_, one.components_, rtol=0, atol=2000 * U)


def test_a_large_argument_outlives_the_worker_that_held_it(processes, sizes):
    sizes(TASK_BYTES=1000)
    X, cluster = rows(), Cluster(processes)
    home = cluster.workers[0].address
    block = cluster.submit(np.negative, arguments=(X,), name="block", worker=home)
    cluster.wait([block], ["a block"])
    assert list(processes.who_has([block]).values()) == [(home,)]
    processes.run(os._exit, 1, workers=[home], on_error="ignore")
    np.testing.assert_array_equal(cluster.results([block], ["a block"])[0], -X)


def test_a_worker_that_dies_while_landmarks_are_chosen_changes_nothing(processes, tmp_path):
    X = rows()
    op = DaskGram(mortal(tmp_path), ClusterRows.of_array(X, Cluster(processes)))
    expected = pivoted_cholesky(op, 16, generator(0))

    def kill(done: int, of: int, left: float) -> None:
        if done == 8:
            processes.run(os._exit, 1, workers=[op.source.cluster.workers_now()[0].address], on_error="ignore")

    found = pivoted_cholesky(op, 16, generator(0), report=kill)
    np.testing.assert_array_equal(found.pivots, expected.pivots)
    np.testing.assert_array_equal(gathered(found.F), gathered(expected.F))


def test_a_worker_that_dies_during_an_iteration_changes_nothing(processes):
    X = rows()

    def solved(report: Callable[..., None] | None) -> EigenResult:
        op = CenteredGram(of_chunks(processes, X))
        return top_eigh(op, 2, BlockKrylov(passes=2), rng=0, report=report)

    def kill(n_passes: int, *_: Any) -> None:
        if n_passes == 1:
            processes.run(os._exit, 1, workers=[Cluster(processes).workers_now()[0].address], on_error="ignore")

    expected, found = solved(None), solved(kill)
    np.testing.assert_array_equal(found.eigenvectors, expected.eigenvectors)
    one = top_eigh(CenteredGram(TiledGram(KERNELS["rbf"], X)), 2, BlockKrylov(passes=2), rng=0)
    np.testing.assert_allclose(found.eigenvalues, one.eigenvalues, rtol=100 * U)


def test_a_task_that_ends_worker_after_worker_is_named(processes, tmp_path):
    def allow(failures: int) -> None:
        processes.run_on_scheduler(lambda dask_scheduler: setattr(dask_scheduler, "allowed_failures", failures))

    op = of_chunks(processes, rows(1), mortal(tmp_path))  # a product of one task
    for death in range(2):
        (tmp_path / str(death)).touch()
    allow(1)
    with pytest.raises(ClusterError, match=r"2 workers in turn ended .* out of memory"):
        op @ np.ones((1, 1))
    allow(3)
    assert not list(tmp_path.iterdir())


def test_a_restarted_client_says_so(processes):
    op = of_chunks(processes, rows())
    op @ np.ones((N, 1))
    processes.restart(timeout=120)
    with pytest.raises(ClusterError, match="was lost: it was cancelled, the client restarted"):
        op @ np.ones((N, 1))
    expected = TiledGram(KERNELS["rbf"], rows()) @ np.ones((N, 1))
    np.testing.assert_allclose(on_cluster(processes, rows()) @ np.ones((N, 1)), expected, rtol=0, atol=1e-12)
