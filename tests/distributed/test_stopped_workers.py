"""A cluster whose workers stop, whose tasks fail to be sent, or whose kernels warn in many threads."""

from __future__ import annotations

import os
import re
import signal
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gpukpca import PCA
from gpukpca.distributed.client import Cluster
from gpukpca.distributed.gram import DaskGram
from gpukpca.distributed.pairs import panel_diagonal
from gpukpca.distributed.rows import ClusterRows
from gpukpca.exceptions import ClusterError, RankWarning
from gpukpca.kernels import RBF, Cosine

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")


def rows() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((40, 3))


@pytest.fixture
def two_processes() -> Iterator[Any]:
    """The client of two workers that are processes; a wait for them ends after two seconds."""
    with (
        dask.config.set({"gpukpca.timeout": "2s"}),
        distributed.LocalCluster(
            n_workers=2, processes=True, threads_per_worker=1, dashboard_address=":0", silence_logs=50
        ) as local,
        distributed.Client(local, set_as_default=False) as client,
    ):
        yield client


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="the system cannot stop a process")
def test_a_stopped_worker_is_named_in_time(two_processes):
    processes = two_processes.run(os.getpid)
    cluster, stopped = Cluster(two_processes), max(processes)
    os.kill(processes[stopped], signal.SIGSTOP)
    try:
        message = rf"1 worker did not answer within 2 s: {re.escape(stopped)}\. Restart"
        with pytest.raises(ClusterError, match=message):
            PCA(2, client=two_processes).fit(rows())
        with pytest.raises(ClusterError, match=message):
            cluster.run(os.getpid)
    finally:
        os.kill(processes[stopped], signal.SIGCONT)
    assert cluster.run(os.getpid) == processes


def test_errors_on_a_worker_leave_it_out(client):
    cluster = Cluster(client)
    first = cluster.workers[0].address

    def fails_on_the_first(dask_worker: Any) -> int:
        return 1 // int(dask_worker.address != first)

    assert cluster.run(fails_on_the_first) == {cluster.workers[1].address: 1}


def test_pairs_are_submitted_again_after_a_submit_that_failed(client):
    op, V = DaskGram(RBF(0.1), ClusterRows.of_array(rows(), Cluster(client))), np.ones((40, 1))
    submit, calls = op.source.cluster.submit, []

    def fails_once(*given: Any, **named: Any) -> Any:
        calls.append(named["name"])
        if calls.count("tiles") == 2:
            raise OSError("the line is down")
        return submit(*given, **named)

    op.pairs.cluster.submit = fails_once
    with pytest.raises(OSError, match="the line is down"):
        op @ V
    np.testing.assert_array_equal(op @ V, DaskGram(RBF(0.1), ClusterRows.of_array(rows(), Cluster(client))) @ V)


def test_panels_of_threads_are_prepared_at_once_and_no_warning_of_others_is_kept():
    together, X = threading.Barrier(3, timeout=20), rows()
    X[7] = 0.0

    class Waiting(Cosine):
        def prepare_rows(self, X: Any, like: Any, centered: bool) -> Any:
            together.wait()
            together.wait()
            return super().prepare_rows(X, like, centered)

    def prepare(panel: np.ndarray) -> None:
        kept[len(panel)] = panel_diagonal(panel, kernel, kernel.template(X))[1]

    def warn_meanwhile() -> None:
        for thread in threads:
            thread.start()
        together.wait()
        warnings.warn("of another thread", UserWarning, stacklevel=1)
        together.wait()
        for thread in threads:
            thread.join()

    kernel, kept = Waiting(), {}
    threads = [threading.Thread(target=prepare, args=(panel,)) for panel in (X[:10], X[10:])]
    with pytest.warns(UserWarning, match="of another thread") as caught:
        warn_meanwhile()
    assert len(caught) == 1
    assert len(kept[10]) == 1
    assert str(kept[10][0]).startswith("Cosine: some rows are zero")
    assert kept[30] == []


def test_products_on_workers_do_not_warn_again(client):
    X = rows()
    X[7] = 0.0
    op = DaskGram(Cosine(), ClusterRows.of_array(X, Cluster(client)))
    op @ np.ones((40, 1))  # warnings are errors here
    op.columns([0, 7])
    with pytest.warns(RankWarning, match="Cosine: some rows are zero") as caught:
        op.diagonal()
    assert len(caught) == 1
