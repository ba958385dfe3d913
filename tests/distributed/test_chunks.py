"""Passes over the chunks of a Dask array: one task a chunk, which is dropped; the same answer from every chunking."""

from __future__ import annotations

import copy
import logging
import operator
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, ClassVar

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone

from gpukpca import PCA, Batches, IncrementalPCA, KernelPCA, Nystrom, Progress, exceptions, load, residuals, save
from gpukpca.data.rows import gathered
from gpukpca.distributed.chunks import ChunkRows, chunk_batches
from gpukpca.distributed.client import Cluster
from gpukpca.distributed.rows import merged_in_tree
from gpukpca.gram.storage import LandmarkStorage
from tests.each import each
from tests.tolerances import eps

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

N, D, CHUNKS = 400, 5, 16


def data() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((N, D)) * [3.0, 2.0, 1.0, 0.5, 0.2] + 7.0


class Loads:
    """A Dask array whose chunks are counted as they are loaded; the first ones may fail."""

    known: ClassVar[dict[str, Loads]] = {}  # workers are threads of this process

    def __init__(self, X: np.ndarray, failing: int = 0) -> None:
        self.X, self.count, self.failing, self.lock = X, 0, failing, threading.Lock()
        self.known[name := str(len(self.known))] = self
        chunks = (N // CHUNKS,) * CHUNKS, (D,)
        self.array = da.arange(CHUNKS, chunks=1).map_blocks(
            load_chunk, name, chunks=chunks, new_axis=1, meta=np.empty((0, D)), name=f"load-{name}"
        )


def load_chunk(k: np.ndarray, name: str) -> np.ndarray:
    source = Loads.known[name]
    with source.lock:
        source.count += 1
        fails = source.count <= source.failing
    if fails:
        raise OSError("the file cannot be read")
    start = int(k[0]) * N // CHUNKS
    return source.X[start : start + N // CHUNKS].copy()


@pytest.fixture
def no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """No chunk fits into the memory of the workers."""
    monkeypatch.setattr(Cluster, "memory", lambda self, on_gpu=False: [1, 1])


@pytest.fixture
def graphs(client: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, dict[str, Any]]]:
    """The nodes of every graph that is submitted, and the settings."""
    found, get = [], client.get

    def measured(graph: Any, keys: Any, **settings: Any) -> Any:
        found.append((len(graph), settings))
        return get(graph, keys, **settings)

    monkeypatch.setattr(client, "get", measured)
    return found


def bytes_on_this_worker(panel: np.ndarray) -> int:
    """Return the bytes of the largest array that the worker of a task keeps."""
    return max((getattr(value, "nbytes", 0) for value in dict(distributed.get_worker().data).values()), default=0)


def test_a_pass_is_one_task_a_chunk_which_is_dropped(client, no_room, graphs):
    source = Loads(data())
    rows = ChunkRows(source.array, Cluster(client))
    assert (source.count, graphs, rows.shape, rows.is_held) == (0, [], (N, D), False)
    assert rows.fold(bytes_on_this_worker, merge=max) < data()[: N // CHUNKS].nbytes
    assert source.count == CHUNKS
    # Of 16 chunks 8 are joined by a task, and a mark for each of these says that they are done.
    assert [nodes for nodes, _ in graphs] == [8 + 1 + 1] * 2
    np.testing.assert_array_equal(gathered(rows), data())


def test_pca_loads_each_chunk_once(active, no_room):
    source = Loads(data())
    there, here = PCA(3).fit(source.array), PCA(3, svd_solver="covariance_eigh").fit(data())
    assert source.count <= CHUNKS + 4  # of which the first guess of the mean is
    np.testing.assert_allclose(there.explained_variance_, here.explained_variance_, rtol=50 * eps("float64"))
    np.testing.assert_allclose(there.components_, here.components_, rtol=0, atol=2000 * eps("float64"))


def test_chunks_that_stay_give_the_same_bits(client, monkeypatch):
    source, cluster = Loads(data()), Cluster(client)
    held = ChunkRows(source.array, cluster)
    sums = [held.fold(np.sum) for _ in range(2)]
    assert (held.is_held, source.count) == (True, CHUNKS)
    monkeypatch.setattr(Cluster, "memory", lambda self, on_gpu=False: [1, 1])
    sums.append(ChunkRows(source.array, cluster).fold(np.sum))
    assert len(set(sums)) == 1


class Meeting:
    """The first tasks of two workers, which wait for each other."""

    seen: ClassVar[set[str]] = set()
    lock, barrier = threading.Lock(), threading.Barrier(2)


def workers_that_meet(panel: np.ndarray) -> set[str]:
    address = distributed.get_worker().address
    with Meeting.lock:
        is_first = address not in Meeting.seen
        Meeting.seen.add(address)
    if is_first:
        Meeting.barrier.wait(30)
    return {address}


def this_worker(panel: np.ndarray) -> set[str]:
    return {distributed.get_worker().address}


def test_workers_that_join_get_chunks_and_those_that_leave_lose_them(no_room, monkeypatch):
    settings = {"processes": False, "threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": 50}
    with (
        distributed.LocalCluster(n_workers=1, **settings) as workers,
        distributed.Client(workers, set_as_default=False) as client,
    ):
        source, cluster = Loads(data()), Cluster(client)
        rows = ChunkRows(source.array, cluster)
        first = rows.fold(this_worker, merge=operator.or_)
        monkeypatch.setattr(Cluster, "memory", lambda self, on_gpu=False: [2**30])
        held = ChunkRows(source.array, cluster)
        loaded = source.count
        workers.scale(2)
        client.wait_for_workers(2)
        assert len(first) == 1
        assert first < rows.fold(workers_that_meet, merge=operator.or_)
        loaded += CHUNKS
        client.retire_workers(sorted(first))
        assert held.fold(this_worker, merge=operator.or_).isdisjoint(first)
        assert (held.is_held, source.count) == (True, loaded)  # chunks move from worker to worker


def test_fits_leave_the_configuration_of_dask_and_of_logs_alone(active):
    def settings() -> tuple[Any, ...]:
        names = [
            name for name in logging.root.manager.loggerDict if name.startswith(("dask", "distributed", "tornado"))
        ]
        return copy.deepcopy(dask.config.config), {name: logging.getLogger(name).level for name in names}

    A = da.from_array(data(), chunks=(200, D))
    PCA(2).fit(A)  # lazy imports
    before = settings()
    for model in (
        PCA(2),
        IncrementalPCA(2),
        KernelPCA(2, kernel="rbf", gamma=0.05),
        KernelPCA(2, kernel="rbf", gamma=0.05, eigen_solver=Nystrom(rank=20)),
    ):
        residuals(model.fit(A), A)
        model.transform(A).compute()
        assert settings() == before
    with pytest.raises(ValueError, match="NaN"):
        PCA(2).fit(da.from_array(with_value(233, np.nan), chunks=(100, D)))
    assert settings() == before


def test_results_are_merged_in_order():
    for count in (1, 2, 7, 8, 9, 63, 64, 65, 600):
        joined: list[int] = []

        def join(parts: list[list[int]], joined: list[int] = joined) -> list[int]:
            joined.append(len(parts))
            return [k for part in parts for k in part]

        assert merged_in_tree(([k] for k in range(count)), join) == list(range(count))
        assert len(joined) <= count / 7 + 4
        assert max(joined, default=2) <= 16


SHARED = {
    "shared by several chunks": lambda X: da.from_array(X, chunks=(50, D)).rechunk((80, D)),
    "cut columns": lambda X: da.from_array(X, chunks=(50, 2)),
    "filtered": lambda X: (A := da.from_array(X, chunks=(50, D)))[A[:, 0] > -np.inf],
    "empty chunks": lambda X: da.concatenate([da.zeros((0, D)), da.from_array(X, chunks=(100, D)), da.zeros((0, D))]),
}


def test_chunks_of_any_graph_are_the_same_rows(client, no_room):
    persisted = client.persist(da.from_array(data(), chunks=(50, D)))
    arrays = {name: make(data()) for name, make in SHARED.items()}
    for name, A in (arrays | {"on the workers": persisted, "from the workers": persisted[5:] + 1.0}).items():
        expected = data()[5:] + 1.0 if name == "from the workers" else data()
        rows = ChunkRows(A, Cluster(client))
        np.testing.assert_allclose(rows.fold(np.sum), expected.sum(), rtol=1e-13, err_msg=name)
        np.testing.assert_array_equal(gathered(rows), expected, err_msg=name)
        np.testing.assert_array_equal(rows.take([7, 0, 7]), expected[[7, 0, 7]], err_msg=name)


def test_joined_panels_are_bounded_by_bytes(client, sizes):
    sizes(PANEL_BYTES=1000)
    rows = ChunkRows(da.from_array(data(), chunks=(2, D)), Cluster(client)).held
    assert len(rows.sizes) == 16
    assert max(rows.sizes) * D * 8 <= 1000


def with_value(k: int, value: float) -> np.ndarray:
    X = data()
    X[k, 2] = value
    return X


def test_the_first_pass_checks_the_chunks(active, no_room):
    models = [PCA(2), KernelPCA(2, kernel="linear"), KernelPCA(2, kernel="rbf", eigen_solver=Nystrom(rank=20))]
    for model in models:
        for value, text in ((np.nan, "NaN"), (-np.inf, "infinity")):
            with pytest.raises(ValueError, match=rf"contains {text}.*: 1 value\(s\), the first in row 33, column 2"):
                model.fit(da.from_array(with_value(233, value), chunks=(50, D)))
    A = da.from_array(data(), chunks=(50, D))
    for change, dtype, error, text in (
        (lambda block: block[:7], "float64", ValueError, r"chunk \d+ has the shape \(7, 5\), and the Dask array says"),
        (lambda block: block, "float32", TypeError, r"chunk \d+ holds float64, and the Dask array says float32"),
    ):
        with pytest.raises(error, match=text):
            PCA(2).fit(A.map_blocks(change, meta=np.empty((0, D), dtype)))


def test_errors_of_a_load_are_tried_again_unless_annotated(active, no_room, graphs):
    assert PCA(2).fit(Loads(data(), failing=2).array).n_samples_ == N
    with dask.annotate(retries=0, priority=7):
        source = Loads(data(), failing=1)
    graphs.clear()
    with pytest.raises(OSError, match="cannot be read"):
        PCA(2).fit(source.array)
    assert {(settings["retries"], settings["priority"]) for _, settings in graphs} == {(0, 7)}


def test_what_is_annotated_around_a_fit_is_in_its_tasks(active, no_room):
    plugin = "gpukpca-priorities"

    def watch(dask_scheduler: Any) -> None:
        class Watch(distributed.SchedulerPlugin):
            def __init__(self) -> None:
                self.found: set[Any] = set()

            def transition(self, key: Any, start: str, finish: str, *given: Any, **named: Any) -> None:
                task = dask_scheduler.tasks.get(key)
                if task is not None and "gpukpca" in str(key) and finish == "processing":
                    self.found.add((task.annotations or {}).get("priority"))

        dask_scheduler.add_plugin(Watch(), name=plugin)

    def found(dask_scheduler: Any) -> set[Any]:
        watched = dask_scheduler.plugins[plugin].found
        dask_scheduler.remove_plugin(plugin)
        return watched

    active.run_on_scheduler(watch)
    with dask.annotate(priority=11):
        PCA(2).fit(da.from_array(data(), chunks=(100, D)))
    assert active.run_on_scheduler(found) == {11}


def test_a_client_that_is_closed_in_a_fit_is_named_at_once(client):
    closed = distributed.Client(client.scheduler.address, set_as_default=False)
    cluster = Cluster(closed)
    rows = ChunkRows(da.from_array(data(), chunks=(100, D)), cluster)
    future = cluster.submit(int, name="number")
    closed.close()
    for use in (lambda: rows.fold(np.sum), lambda: rows.split(data()), lambda: cluster.wait([future], ["a number"])):
        with pytest.raises(exceptions.ClusterError, match=r"scheduler .* cannot be reached"):
            use()


def timed_out() -> None:
    raise TimeoutError("of the task")


def test_the_error_of_a_task_is_no_end_of_a_wait(client):
    cluster = Cluster(client)
    with pytest.raises(TimeoutError, match="of the task"):
        cluster.results([cluster.submit(timed_out, name="late")], ["a task"])


def test_passes_report_their_chunks(active, no_room, monkeypatch):
    batches = Cluster._batches

    def one_by_one(cluster: Cluster, pending: dict[Any, str]) -> Iterator[list[Any]]:
        """Yield the futures that a quick machine has done at once, each alone."""
        for done in batches(cluster, pending):
            yield from ([future] for future in done)

    monkeypatch.setattr(Cluster, "_batches", one_by_one)
    events: list[Progress] = []
    PCA(2, verbose=events.append).fit(Loads(data()).array)
    found = [(event.done, event.total) for event in events if event.stage == "batch"]
    assert found[0] < found[-1] == (CHUNKS, CHUNKS)
    assert found == sorted(found)


def test_incremental_pca_reads_the_chunks_in_order(active):
    X, expected = data(), IncrementalPCA(2)
    for batch in np.split(X, CHUNKS):
        expected.partial_fit(batch)
    for current in (active.as_current(), nullcontext()):
        with current:
            source = Loads(X)
            found = IncrementalPCA(2).fit(source.array)
        assert source.count == CHUNKS
        np.testing.assert_array_equal(found.components_, expected.components_)
    unknown = da.concatenate([source.array, da.zeros((0, D))])
    found = IncrementalPCA(2).fit(unknown[unknown[:, 0] > -np.inf].rechunk({1: 2}))
    np.testing.assert_array_equal(found.components_, expected.components_)
    with pytest.raises(ValueError, match=r"batch 2: Input X contains NaN"):
        IncrementalPCA(2).fit(da.from_array(with_value(233, np.nan), chunks=(100, D)))
    with pytest.raises(ValueError, match="Expected 2D array, got 1D"):
        IncrementalPCA(2).fit(source.array[:, 0])
    with active.as_current():
        found = IncrementalPCA(2).fit(Loads(X, failing=2).array)  # loads are tried again, as those of other fits
    np.testing.assert_array_equal(found.components_, expected.components_)
    again = IncrementalPCA(2).partial_fit(source.array).partial_fit(source.array)
    assert again.n_samples_seen_ == 2 * N


def test_chunks_of_a_client_that_is_closed_are_named(client):
    closed = distributed.Client(client.scheduler.address, set_as_default=False)
    chunks = chunk_batches(da.from_array(data(), chunks=(100, D)), Cluster(closed))
    assert next(chunks).shape == (100, D)
    closed.close()
    with pytest.raises(exceptions.ClusterError, match=r"scheduler .* cannot be reached"):
        next(chunks)


# -- CSR chunks --------------------------------------------------------------------------------------------------------


def sparse_data() -> scipy.sparse.csr_array:
    rng = np.random.default_rng(0)
    return scipy.sparse.csr_array(data() * (rng.random((N, D)) < [0.9, 0.3, 0.3, 0.2, 0.2]))


def test_csr_chunks_are_the_joined_matrix(active, no_room, sizes):
    sizes(READ_ENTRIES=20 * D)  # fifty rows are three dense slices
    X = sparse_data()
    chunks = da.from_array(X.toarray(), chunks=(50, D)).map_blocks(scipy.sparse.csr_array)
    hidden = chunks.map_blocks(lambda block: block, meta=np.empty((0, D)))
    points = Nystrom(landmarks=X.toarray()[::20])
    models = {
        "PCA": PCA(3, svd_solver="covariance_eigh"),
        "randomized": PCA(3, svd_solver="randomized", random_state=0),
        "Nystrom of points": KernelPCA(3, kernel="rbf", gamma=0.02, eigen_solver=points),
        "Nystrom of rows": KernelPCA(3, kernel="rbf", gamma=0.02, eigen_solver=Nystrom(landmarks=range(0, N, 20))),
        "exact": KernelPCA(3, kernel="rbf", gamma=0.02, tol=1e-10),
    }
    for name, model in models.items():
        here, expected = clone(model).fit(X), np.abs(clone(model).fit(X).transform(X))
        for A in (chunks, hidden) if "points" in name or name == "PCA" else (chunks,):
            there = clone(model).fit(A)
            np.testing.assert_allclose(there.explained_variance_, here.explained_variance_, rtol=1e-9, err_msg=name)
            found = np.abs(there.transform(A).compute())
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-7 * np.max(expected), err_msg=name)
    batches = [X[start : start + 50].toarray() for start in range(0, N, 50)]
    found, expected = IncrementalPCA(2).fit(chunks), IncrementalPCA(2).fit(Batches(batches))
    np.testing.assert_array_equal(found.components_, expected.components_)


@pytest.mark.parametrize("held", [True, False])
def test_chunks_of_every_sparse_format_of_scipy_are_read(active, held, request):
    if not held:
        request.getfixturevalue("no_room")
    X = sparse_data()
    for model in (PCA(2), KernelPCA(2, kernel="rbf", gamma=0.02)):
        expected = clone(model).fit(X)
        for form in ("lil", "dok", "bsr", "csc"):
            chunks = da.from_array(X.toarray(), chunks=(150, D)).map_blocks(getattr(scipy.sparse, f"{form}_array"))
            found = clone(model).fit(chunks)
            np.testing.assert_allclose(found.explained_variance_, expected.explained_variance_, rtol=1e-9, err_msg=form)
    scores = found.transform(chunks).compute()
    np.testing.assert_allclose(np.abs(scores), np.abs(expected.transform(X)), atol=1e-7 * np.abs(scores).max())


def test_entries_of_sparse_chunks_are_checked(active, no_room):
    X = with_value(233, np.nan)
    for model in (PCA(2), KernelPCA(2, kernel="rbf", eigen_solver=Nystrom(rank=20))):
        for form in (scipy.sparse.csr_array, scipy.sparse.lil_array):
            with pytest.raises(ValueError, match=r"contains NaN.*: 1 value\(s\), the first in row 33, column 2"):
                model.fit(da.from_array(X, chunks=(100, D)).map_blocks(form))


def test_sparse_chunks_of_another_library_are_refused_before_a_task(active, graphs):
    class Coordinates(np.ndarray):
        def todense(self) -> np.ndarray:
            return np.asarray(self)

    A = da.from_array(data(), chunks=(10, D))
    A = da.Array(A.dask, A.name, A.chunks, meta=np.empty((0, D)).view(Coordinates))
    with pytest.raises(TypeError, match=r"a sparse Coordinates .* pass a CSR matrix of SciPy"):
        PCA(2).fit(A)
    assert not graphs


# -- landmarks ---------------------------------------------------------------------------------------------------------


def test_nystrom_takes_few_tasks_a_chunk_whatever_the_rank(active, monkeypatch):
    tasks = 0
    submit, graph = Cluster.submit, Cluster.submit_graph

    def counted(self: Cluster, *futures: Any, **how: Any) -> Any:
        nonlocal tasks
        tasks += 1
        return submit(self, *futures, **how)

    def counted_graph(self: Cluster, given: Any, keys: Any, settings: Any) -> Any:
        nonlocal tasks
        tasks += len(given)
        return graph(self, given, keys, settings)

    monkeypatch.setattr(Cluster, "submit", counted)
    monkeypatch.setattr(Cluster, "submit_graph", counted_graph)
    chunks = -(-N // 8)
    for rank in (5, 100):
        tasks = 0
        solver = Nystrom(rank=rank)
        KernelPCA(2, kernel="rbf", gamma=0.05, eigen_solver=solver).fit(da.from_array(data(), chunks=(8, D)))
        assert chunks < tasks <= 5 * chunks, (rank, tasks)


def check_streamed(there: KernelPCA, here: KernelPCA, Z: Any) -> None:
    """Eigenvalues, certificate and, up to signs, scores."""
    size = 1e3 * eps("float64")
    assert isinstance(there.plan_.storage, LandmarkStorage)
    assert not hasattr(there, "eigenvectors_")
    np.testing.assert_allclose(there.eigenvalues_, here.eigenvalues_, rtol=size)
    np.testing.assert_allclose(there.certificate_, here.certificate_, rtol=0, atol=size * here.total_variance_ * N)
    assert isinstance(Z, da.Array)
    expected = np.abs(here.transform(data()))
    scores = Z.compute()
    np.testing.assert_allclose(np.abs(scores), expected, rtol=0, atol=1e4 * size * np.max(expected))
    U = scores / np.sqrt(there.eigenvalues_)  # the eigenvectors, as the page on clusters says
    np.testing.assert_allclose(U.T @ U, np.eye(2), rtol=0, atol=1e4 * size)


def test_landmarks_that_are_points_are_added_up_on_the_workers(active, monkeypatch):
    points = np.random.default_rng(1).standard_normal((30, D)) + 7.0
    for gamma in (0.05, 1e-3):
        settings = {"kernel": "rbf", "gamma": gamma, "eigen_solver": Nystrom(landmarks=points)}
        there, here = KernelPCA(2, **settings), KernelPCA(2, **settings).fit(data())
        Z = there.fit_transform(da.from_array(data(), chunks=(90, D)))
        check_streamed(there, here, Z)
        assert Z.chunks[0] == (90,) * 4 + (40,)
    monkeypatch.setattr(Cluster, "memory", lambda self, on_gpu=False: [1, 1])
    KernelPCA(2, **settings).fit((source := Loads(data())).array)
    assert source.count == CHUNKS
    # A pre-image needs the scores of all rows, which a second pass computes.
    there, here = (KernelPCA(2, fit_inverse_transform=True, **settings) for _ in range(2))
    there.fit(da.from_array(data(), chunks=(90, D)))
    here.fit(data())
    np.testing.assert_allclose(np.abs(there.eigenvectors_), np.abs(here.eigenvectors_), atol=1e-9)
    Z = here.transform(data()[:20])
    signs = np.sign(np.sum(there.transform(data()[:20]) * Z, axis=0))
    np.testing.assert_allclose(there.inverse_transform(Z * signs), here.inverse_transform(Z), atol=1e-7)


def test_a_factor_without_room_on_the_workers_is_added_up(active, monkeypatch):
    settings = {"kernel": "rbf", "gamma": 0.05, "eigen_solver": Nystrom(landmarks=range(0, N, 10))}
    A, here = da.from_array(data(), chunks=(90, D)), KernelPCA(2, **settings).fit(data())
    assert isinstance(KernelPCA(2, **settings).fit(A).plan_.storage, LandmarkStorage)
    monkeypatch.setattr(Cluster, "memory", lambda self, on_gpu=False: [1, 1])
    there = KernelPCA(2, **settings)
    check_streamed(there, here, there.fit_transform(A))
    np.testing.assert_array_equal(there.landmarks_, here.landmarks_)


@each("kernel", ["rbf", "laplacian"])
def test_landmarks_load_each_chunk_twice(active, no_room, kernel):
    """A few chunks show what the kernel prepares for, all give a sample, and all are added up."""
    settings, source = {"kernel": kernel, "gamma": 0.05}, Loads(data())
    there = KernelPCA(2, eigen_solver=Nystrom(rank=30), random_state=0, **settings).fit(source.array)
    assert source.count <= 2 * CHUNKS + 4
    here = KernelPCA(2, eigen_solver=Nystrom(landmarks=there.landmarks_), **settings).fit(data())
    check_streamed(there, here, there.transform(source.array))
    source.count = 0
    there = KernelPCA(2, eigen_solver=Nystrom(landmarks=range(0, N, 20)), **settings)
    assert isinstance(there.plan(source.array).storage, LandmarkStorage)
    assert source.count <= 4
    there.fit(source.array)
    assert source.count <= 4 + N // 20 + CHUNKS + 4


EXACT = {
    "linear": ({"kernel": "linear"}, D),
    "all components": ({"kernel": "linear", "n_components": None}, D),
    "a share": ({"kernel": "linear", "n_components": 0.9}, D),
    "requested as Nystrom": ({"kernel": "linear", "eigen_solver": "nystrom"}, D),
}


@each("name", EXACT)
def test_few_features_are_added_up_in_one_pass_without_an_approximation(active, no_room, name):
    settings, features = EXACT[name]
    X = np.c_[data()[:, :-1], np.arange(N) == 233]  # a feature that a sample of the rows does not show
    source, here = Loads(X), KernelPCA(**{"n_components": 3} | settings).fit(X)
    there = KernelPCA(**{"n_components": 3} | settings)
    Z = there.fit_transform(source.array)
    assert source.count <= CHUNKS + 4
    storage = there.plan_.storage
    assert isinstance(storage, LandmarkStorage)
    assert (storage.rank, there.plan_.is_approximate, there.X_fit_.shape[1]) == (features, False, D)
    assert len(there.X_fit_) <= features + 1
    assert hasattr(there, "certificate_") == hasattr(here, "certificate_") == (name == "requested as Nystrom")
    size = 1e4 * eps("float64")
    np.testing.assert_allclose(there.eigenvalues_, here.eigenvalues_, rtol=0, atol=size * here.eigenvalues_[0])
    np.testing.assert_allclose(there.total_variance_, here.total_variance_, rtol=1e-11)
    expected = np.abs(here.transform(X))
    gap = np.min(-np.diff(here.eigenvalues_)) / here.eigenvalues_[0]
    atol = size / gap * np.max(expected)
    np.testing.assert_allclose(np.abs(Z.compute()), expected, rtol=0, atol=atol)


def test_the_exact_pre_image_of_the_linear_kernel_needs_no_scores(active, no_room, tmp_path):
    settings = {"n_components": 2, "kernel": "linear", "fit_inverse_transform": True}
    there, here = KernelPCA(**settings).fit(da.from_array(data(), chunks=(37, D))), KernelPCA(**settings).fit(data())
    save(there, tmp_path / "model")
    for model in (there, load(tmp_path / "model")):
        points = model.inverse_transform(model.transform(data()))
        np.testing.assert_allclose(points, here.inverse_transform(here.transform(data())), atol=1e-10)
    few = da.from_array(data()[:4], chunks=(2, D))  # fewer rows than features
    assert not isinstance(KernelPCA(2, kernel="linear").fit(few).plan_.storage, LandmarkStorage)


@pytest.mark.filterwarnings("ignore::gpukpca.exceptions.RankWarning", "ignore:float32 cannot resolve")
def test_sums_of_a_factor_tell_rounding_from_variance(active):
    rng = np.random.default_rng(0)
    for X, converged in ((np.zeros((200, 4)), True), (rng.standard_normal((200, 4)).astype("float32") + 1e3, True)):
        here, there = (KernelPCA(3).fit(rows) for rows in (X, da.from_array(X, chunks=(50, 4))))
        top = 1e-3 * float(here.eigenvalues_[0])
        np.testing.assert_allclose(there.eigenvalues_, here.eigenvalues_, rtol=0, atol=top)
        np.testing.assert_allclose(there.explained_variance_ratio_, here.explained_variance_ratio_, atol=1e-3)
        assert there.converged_ == here.converged_ == converged
    kept = KernelPCA().fit(da.zeros((200, 4), chunks=(50, 4))).eigenvalues_.shape
    assert kept == KernelPCA().fit(np.zeros((200, 4))).eigenvalues_.shape


def test_rows_of_chunks_count_by_their_weights(active):
    X, w = data().copy(), np.random.default_rng(1).integers(0, 4, N)
    X[w == 0] = 1e100
    rows, again = da.from_array(X, chunks=(90, D)), np.repeat(X, w, axis=0)
    for solver in ("covariance_eigh", "full", "randomized"):
        model = PCA(2, svd_solver=solver, random_state=0)
        expected = clone(model).fit(again)
        scores = model.fit_transform(rows, sample_weight=w)
        np.testing.assert_allclose(model.explained_variance_, expected.explained_variance_, rtol=1e-10)
        np.testing.assert_allclose(scores.compute()[w > 0], expected.transform(X[w > 0]), atol=1e-9)
    wide, few = data()[:4].T @ np.eye(4, 30) + np.eye(5, 30), np.asarray([1, 3, 2, 0, 2])
    wide[3] = 1e100
    model = PCA(2).fit(da.from_array(wide, chunks=(2, 30)), sample_weight=few)
    expected = PCA(2).fit(np.repeat(wide, few, axis=0))
    assert model.plan_.method == "dual"
    np.testing.assert_allclose(model.components_, expected.components_, atol=1e-10)
    model, expected = IncrementalPCA(D).fit(rows, sample_weight=w), IncrementalPCA(D).fit(again)
    np.testing.assert_allclose(model.components_, expected.components_, atol=1e-9)
    keep = np.flatnonzero(w)
    rbf, of_both = {"kernel": "rbf", "random_state": 0}, [int(np.argmin(w)), *keep[::9].tolist()]
    for fill, model in (
        (1e100, KernelPCA(2, gamma=0.1, **rbf)),
        (np.nan, KernelPCA(2, gamma="scale", eigen_solver="randomized", gram="tiled", **rbf)),
        (np.nan, KernelPCA(2, gamma=0.1, eigen_solver=Nystrom(landmarks=data()[::9]), **rbf)),
        (np.inf, KernelPCA(2, gamma="median", eigen_solver=Nystrom(landmarks=keep[::9].tolist()), **rbf)),
        (5.0, KernelPCA(2, gamma=0.1, eigen_solver=Nystrom(landmarks=of_both), **rbf)),
        (np.nan, KernelPCA(2)),
        (np.nan, PCA(2)),
    ):
        filled = X.copy()
        filled[w == 0] = fill
        expected = clone(model).fit(filled, sample_weight=w)
        for counted, some in ((w, filled), (w[keep], filled[keep])):
            if counted is w or getattr(model, "eigen_solver", None) in ("auto", "randomized"):
                model.fit(da.from_array(some, chunks=(90, 3)), sample_weight=counted)
                np.testing.assert_allclose(model.explained_variance_, expected.explained_variance_, rtol=1e-8)
                found, ours = expected.transform(X[keep]), model.transform(X[keep])
                np.testing.assert_allclose(np.abs(ours), np.abs(found), atol=1e-8 * np.max(np.abs(found)))
                np.testing.assert_array_equal(
                    np.sort(getattr(model, "landmarks_", [])), np.sort(getattr(expected, "landmarks_", []))
                )
    sparse = da.from_array(filled, chunks=(90, D)).map_blocks(scipy.sparse.csr_array)
    model = PCA(2).fit(sparse, sample_weight=w)
    np.testing.assert_allclose(model.explained_variance_, expected.explained_variance_, rtol=1e-8)
