"""Products with a kernel matrix on 1 and 2 worker processes of this machine, and the bytes moved.

``bash ci/bench.sh --large -k distributed``
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from benchmarks.contest import clock
from benchmarks.places import Host, timed
from gpukpca.distributed.client import Cluster
from gpukpca.distributed.gram import DaskGram
from gpukpca.distributed.rows import ClusterRows, group_count
from gpukpca.gram import TiledGram
from gpukpca.kernels import RBF

N, D, B, DTYPE, ROUNDS = 20_000, 50, 30, "float64", 3
WORKERS, CACHE = (1, 2), (True, False)
CONTESTANTS = {f"{w} workers, {'cached' if c else 'recomputed'} tiles": (w, c) for w in WORKERS for c in CACHE}
ITEM = np.dtype(DTYPE).itemsize
KERNEL = RBF(1.0 / D)

pytestmark = [pytest.mark.large, pytest.mark.benchmark(timer=clock.read)]


@contextmanager
def cluster(workers: int) -> Iterator[Any]:
    """Yield the client of worker processes with one thread each."""
    import dask
    import distributed

    with (
        dask.config.set({"distributed.worker.multiprocessing-method": "spawn"}),
        distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, dashboard_address=":0", silence_logs=logging.ERROR
        ) as local,
        distributed.Client(local) as client,
    ):
        yield client


def data(n: int, columns: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, columns)).astype(DTYPE)


def received(client: Any) -> int:
    """Return the largest number of bytes that a worker has received from other workers."""
    had = client.run(lambda dask_worker: sum(one["total"] for one in dask_worker.transfer_incoming_log))
    return max(had.values())


def share_of_rows(workers: int) -> float:
    """Return the share of the groups of rows that the pairs of a worker touch, at most."""
    groups = group_count(workers)
    return min(1.0, (groups + 1) / (2.0 * workers) + 2.0 / groups)


def pass_bytes(workers: int) -> float:
    """Return the bytes that a worker receives in a pass: rows of V, and both parts of the products that it sums."""
    return N * B * ITEM * (share_of_rows(workers) + 2.0 * max(1.0, group_count(workers) / workers))


def rows_bytes(workers: int) -> float:
    """Return the bytes of X that a worker receives once: rows, and their prepared form."""
    return N * ITEM * (D + (D + 2) * share_of_rows(workers))


def measured(client: Any, X: np.ndarray, V: np.ndarray, cache: bool) -> dict[str, Any]:
    """Return the seconds of passes, and the bytes that a worker received from others."""
    op = DaskGram(KERNEL, ClusterRows.of_array(X, Cluster(client)), cached=None if cache else 0.0)
    before = received(client)
    first = timed(lambda: op @ V, Host())[0]
    once = received(client)
    seconds = [timed(lambda: op @ V, Host())[0] for _ in range(ROUNDS)]
    each = (received(client) - once) / ROUNDS
    v = data(500, 1, 2)
    expected = TiledGram(KERNEL, X[:500], n_jobs=1) @ v
    found = DaskGram(KERNEL, ClusterRows.of_array(X[:500], Cluster(client))) @ v
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)
    return {"first": first, "seconds": seconds, "first_bytes": once - before, "pass_bytes": each}


@functools.cache
def table() -> dict[tuple[int, bool], dict[str, Any]]:
    """Return the measurements for (workers, cache)."""
    X, V = data(N, D, 0), data(N, B, 1)
    found: dict[tuple[int, bool], dict[str, Any]] = {}
    for workers in WORKERS:
        with cluster(workers) as client:
            found |= {(workers, cache): measured(client, X, V, cache) for cache in CACHE}
    return found


@pytest.mark.parametrize("contestant", CONTESTANTS)
@pytest.mark.parametrize("case", [f"distributed-{N}"])
def test_distributed_passes(show_other: Callable[..., None], case: str, contestant: str) -> None:
    pytest.importorskip("distributed")
    workers, cache = CONTESTANTS[contestant]
    row = table()[workers, cache]
    once, rows = pass_bytes(workers), rows_bytes(workers)

    def check() -> None:
        assert row["pass_bytes"] <= 1.05 * once
        assert row["first_bytes"] <= 1.05 * (once + rows)

    facts = {key: value for key, value in row.items() if key != "seconds"}
    facts |= {"pass_bytes_formula": once, "first_bytes_formula": once + rows}
    label = f"a pass on a Dask cluster of this machine: {N} × {D}, {DTYPE}, {B} columns"
    show_other(case, contestant, label, row["seconds"], check, **facts)
