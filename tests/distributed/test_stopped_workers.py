"""A cluster whose workers stop, whose tasks are large or fail to be sent, or whose kernels warn in many threads."""

from __future__ import annotations

import copy
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
from gpukpca.backend import blocking
from gpukpca.distributed.client import Cluster
from gpukpca.distributed.gram import DaskGram
from gpukpca.distributed.pairs import panel_diagonal
from gpukpca.distributed.rows import ClusterRows
from gpukpca.exceptions import ClusterError, RankWarning
from gpukpca.kernels import RBF, Cosine

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
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
        with two_processes.as_current(), pytest.raises(ClusterError, match=message):
            PCA(2).fit(da.from_array(rows(), chunks=(10, -1)))
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


def test_fits_of_several_threads_leave_the_configuration_of_dask_alone(client, monkeypatch):
    """The first thread leaves its submission after the second has begun one, and before that ends."""
    before, found = copy.deepcopy(dask.config.config), []
    cluster, submit, second_began, first_ended = Cluster(client), client.submit, threading.Event(), threading.Event()

    def slow_submit(*given: Any, **named: Any) -> Any:
        if threading.current_thread().name == "first":
            second.start()
            assert second_began.wait(20)
        else:
            second_began.set()
            assert first_ended.wait(20)
        found.append(copy.deepcopy(dask.config.config))
        return submit(*given, **named)

    def send() -> None:
        cluster.submit(int, name="number")
        if threading.current_thread().name == "first":
            first_ended.set()

    first, second = (threading.Thread(target=send, name=name) for name in ("first", "second"))
    monkeypatch.setattr(client, "submit", slow_submit)
    first.start()
    first.join()
    second.join()
    assert found == [before, before]
    assert dask.config.config == before


def test_large_arguments_arrive_without_a_warning_in_tasks_of_bounded_size(client, monkeypatch):
    cluster, submit, sent = Cluster(client), client.submit, []
    block = np.random.default_rng(0).standard_normal((3 * 2**18, 10))  # 60 MiB, and Dask warns beyond 10 MB

    def measured(task: Any, *given: Any, **named: Any) -> Any:
        sent.append(sum(len(one) for one in given if isinstance(one, bytes)))
        return submit(task, *given, **named)

    monkeypatch.setattr(client, "submit", measured)
    shape, total = cluster.results(
        [
            cluster.submit(np.shape, arguments=(block,), name="shape"),
            cluster.submit(np.sum, arguments=(block,), name="sum"),
        ],
        ["shape", "sum"],
    )
    assert shape == block.shape
    assert total == np.sum(block)
    assert max(sent) == blocking.TASK_BYTES
    assert sum(sent) >= 2 * block.nbytes


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
