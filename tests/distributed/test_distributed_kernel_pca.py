"""Kernel PCA on a Dask cluster: the answers of one process, wherever the rows are."""

from __future__ import annotations

import copy
import inspect
import pickle
import warnings
from contextlib import suppress

import numpy as np
import pytest
from sklearn.base import clone

from gpukpca import PCA, BayesianPCA, IncrementalPCA, KernelPCA, LocalPCA, ProbabilisticPCA, exceptions, load
from gpukpca.decomposition import RidgePreimage
from gpukpca.distributed.gram import ClusterStorage
from gpukpca.eigen import Nystrom
from gpukpca.gram.storage import LowRankStorage, TiledStorage
from gpukpca.kernels import RBF, Laplacian, Linear
from tests.tolerances import eps

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
pytest.importorskip("dask.bag")
pytest.importorskip("distributed")

N, D = 601, 7


def data(dtype="float64", n=N):
    return (np.random.default_rng(0).standard_normal((n, D)) @ np.diag(2.0 ** -np.arange(D)) + 3.0).astype(dtype)


def chunked(X, rows=100, columns=D):
    return da.from_array(X, chunks=(rows, columns))


SETTINGS = {
    "rbf": {"kernel": "rbf", "gamma": 0.05, "n_components": 4, "tol": 1e-12},
    "rule": {"kernel": "rbf", "gamma": "median", "n_components": 4, "tol": 1e-12},
    "scale": {"kernel": "rbf", "gamma": "scale", "n_components": 3, "tol": 1e-12},
    "flat": {"kernel": "rbf", "gamma": 1e-9, "n_components": 3, "tol": 1e-12},
    "laplacian": {"kernel": "laplacian", "n_components": 3, "tol": 1e-12},
    "poly": {"kernel": "poly", "degree": 2, "n_components": 5, "tol": 1e-12},
    "linear": {"kernel": "linear", "n_components": 3, "tol": 1e-12},
    "cosine": {"kernel": "cosine", "n_components": 3, "tol": 1e-12},
    "sum": {"kernel": 0.5 * RBF(0.1) + Linear() * Laplacian(0.01), "n_components": 3, "tol": 1e-12},
    "dense": {"kernel": "rbf", "gamma": 0.05, "n_components": 4, "eigen_solver": "dense"},
    "share": {"kernel": "rbf", "gamma": 0.01, "n_components": 0.9, "tol": 1e-12},
    "nystrom": {"kernel": "rbf", "gamma": 0.05, "n_components": 4, "eigen_solver": Nystrom(rank=60)},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_dask_array_gives_the_answer_of_one_process(active, name):
    X, settings = data(), SETTINGS[name] | {"random_state": 0}
    here, there = KernelPCA(**settings).fit(X), KernelPCA(**settings).fit(chunked(X))
    if isinstance(here.plan_.storage, TiledStorage):
        assert there.n_passes_ == here.n_passes_
    size = max(float(here.eigenvalues_[0]), 0.1 * float(np.sum(np.abs(here.kernel_(X)))) / N)
    assert np.max(np.abs(there.eigenvalues_ - here.eigenvalues_)) <= 50 * eps("float64") * size
    assert there.total_variance_ == pytest.approx(here.total_variance_, rel=1e-12)
    assert isinstance(there.plan_.storage, LowRankStorage if name == "nystrom" else ClusterStorage)
    X_new = data(n=N + 20)[N:]
    leading = slice(0, 3)
    gap = float(np.min(-np.diff(here.eigenvalues_[:4]))) / size
    worst = np.max(np.abs(there.transform(X_new)[:, leading] - here.transform(X_new)[:, leading]))
    assert worst <= 1e-12 / gap * np.max(np.abs(here.transform(X_new)))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_data_in_memory_are_shared_out_where_a_client_is_given(client, dtype):
    X = data(dtype)
    settings = {"kernel": "rbf", "gamma": 0.05, "random_state": 0}
    here, there = KernelPCA(3, **settings), KernelPCA(3, client=client, **settings)
    Z, Y = here.fit_transform(X), there.fit_transform(X)
    assert isinstance(Y, np.ndarray)
    assert Y.dtype == Z.dtype == dtype
    assert np.max(np.abs(there.eigenvalues_ - here.eigenvalues_)) <= 50 * eps(dtype) * here.eigenvalues_[0]
    assert "cluster: 2 workers" in str(there.plan_)
    assert there.X_fit_ is not X
    assert there.fallbacks_ == ()


def test_the_scores_of_a_dask_array_are_one_in_the_same_chunks(active):
    X = data()
    model = KernelPCA(3, kernel="rbf", gamma=0.05)
    Z = model.fit_transform(chunked(X, 250))
    assert isinstance(Z, da.Array)
    assert Z.chunks == ((250, 250, 101), (3,))
    assert np.max(np.abs(Z.compute() - model.transform(X))) <= 1e-12


CHUNKS = {
    "unequal": lambda X: chunked(X, (1, 100, 400, 100)),
    "one": lambda X: chunked(X, N),
    "tiny": lambda X: chunked(X, 9),
    "columns": lambda X: chunked(X, 100, 3),
    "unknown": lambda X: (lambda A: A[A[:, 0] > -np.inf])(chunked(X)),
    "empty": lambda X: (lambda A: da.concatenate([A[:0], A[:300], A[:0], A[300:]]))(chunked(X)),
    "unknown and empty": lambda X: (lambda A: A[da.from_array(np.arange(len(X)) >= 0, chunks=100)])(
        da.concatenate([chunked(X[:0], 100), chunked(X)]).rechunk((100, D))
    ),
    "single among doubles": lambda X: da.concatenate(
        [chunked(X)[:300], da.from_delayed(_float32(X[300:]), shape=(N - 300, D), dtype="float64")]
    ),
}


def _float32(X):
    import dask

    return dask.delayed(lambda: X.astype("float32"))()


@pytest.mark.parametrize("chunks", CHUNKS)
def test_chunks_of_any_kind_give_the_same_answer(active, chunks):
    X = data().astype("float32").astype("float64")
    model = KernelPCA(3, kernel="rbf", gamma=0.05, tol=1e-13, random_state=0)
    expected = clone(model).fit(X).eigenvalues_
    assert np.max(np.abs(model.fit(CHUNKS[chunks](X)).eigenvalues_ - expected)) <= 50 * eps("float64") * expected[0]


def smooth(n):
    return np.random.default_rng(0).standard_normal((n, 6)) * np.linspace(2.0, 0.5, 6)


@pytest.fixture(scope="module")
def small_workers():
    """A client of two workers without the memory for a kernel matrix of 4200 rows."""
    distributed = pytest.importorskip("distributed")
    names = ("pause", "spill", "target", "terminate")
    settings = {"processes": False, "threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": 50}
    with (
        dask.config.set({f"distributed.worker.memory.{name}": False for name in names}),
        distributed.LocalCluster(n_workers=2, memory_limit="10MB", **settings) as cluster,
        distributed.Client(cluster, set_as_default=False) as found,
    ):
        yield found


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_passes_are_as_many_as_in_one_process_with_tiles_cached_and_recomputed(client, small_workers, dtype):
    X = smooth(4200).astype(dtype)
    settings = {"n_components": 6, "kernel": "rbf", "gamma": 0.1, "random_state": 0, "n_jobs": 2}
    enough, tight = KernelPCA(**settings), None
    for megabytes in range(10, 60, 2):
        with suppress(exceptions.MemoryBudgetError):
            model = KernelPCA(**settings, memory_limit=megabytes * 2**20)
            tight = model if tight is None and model.plan(X).start_landmarks else tight
    for one, workers in ((enough, client), (tight, small_workers)):
        here, there = one.fit(X), KernelPCA(**settings, client=workers).fit(X)
        assert there.n_passes_ == here.n_passes_
        assert there.plan_.start_landmarks == here.plan_.start_landmarks
        assert getattr(there.plan_.solver, "block_size", None) == here.plan_.solver.block_size
        np.testing.assert_allclose(there.eigenvalues_, here.eigenvalues_, rtol=2e3 * eps(dtype))
    assert tight.n_passes_ < enough.n_passes_
    assert "tiles are recomputed in every pass" in str(there.plan_)


def test_workers_with_gpus_multiply_blocks_as_wide_as_one_gpu_does(client, cuda):
    X = smooth(900)
    settings = {"n_components": 5, "kernel": "rbf", "gamma": 0.1, "random_state": 0, "device": "cuda"}
    settings["eigen_solver"] = "randomized"
    here, there = KernelPCA(**settings).fit(X), KernelPCA(**settings, client=client).fit(X)
    assert there.plan_.solver.block_size == here.plan_.solver.width(900, 5, True)
    assert there.n_passes_ == here.n_passes_
    np.testing.assert_allclose(there.eigenvalues_, here.eigenvalues_, rtol=1e-10)


def with_entry(value):
    X = data()
    X[333, 2] = value
    return chunked(X)


FAULTS = {
    "NaN": (lambda: with_entry(np.nan), ValueError, "contains NaN: 1 value.*first in row 333, column 2"),
    "infinity": (lambda: with_entry(np.inf), ValueError, "contains infinity.*first in row 333, column 2"),
    "one dimension": (lambda: chunked(data())[:, 0], ValueError, "Reshape your data"),
    "three dimensions": (lambda: chunked(data())[:, :, None], ValueError, "2D"),
    "no rows": (lambda: chunked(data())[:0], ValueError, r"0 sample\(s\)"),
    "complex": (lambda: chunked(data()) + 1j, ValueError, "omplex"),
    "text": (lambda: chunked(data()).astype("U5"), TypeError, "numbers"),
    "widths": (
        lambda: da.concatenate(
            [chunked(data()), da.from_delayed(_float32(data()[:, :2]), shape=(N, D), dtype="float64")]
        ),
        ValueError,
        "width",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_wrong_with_a_dask_array_is_said(active, fault):
    make, error, message = FAULTS[fault]
    model = KernelPCA(2, kernel="rbf")
    with pytest.raises(error, match=message):
        model.fit(make())
    assert not [name for name in vars(model) if name.endswith("_")]


PARAMETERS = {
    "client": (
        {"client": "tcp://somewhere:8786"},
        r"client='tcp://somewhere:8786' .* client=distributed.Client\('tcp://somewhere:8786'\)",
    ),
    "no active client": ({"client": "active"}, "no Dask client is"),
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_what_is_no_client_is_refused(name):
    settings, message = PARAMETERS[name]
    with pytest.raises(exceptions.InvalidParameterError, match=message):
        KernelPCA(2, **settings).fit(data())


def test_what_a_cluster_cannot_share_out_is_refused(client):
    X = data()
    for settings, message in (
        ({"kernel": "precomputed"}, "cluster cannot share out"),
        ({"kernel": lambda x, y: float(x @ y)}, "cluster cannot share out"),
        ({"device": "cuda:1"}, "device='cuda:1'"),
    ):
        with pytest.raises(exceptions.InvalidParameterError, match=message):
            KernelPCA(2, client=client, **settings).fit(X @ X.T if settings.get("kernel") == "precomputed" else X)


def test_memory_of_this_process_is_planned(active):
    with pytest.raises(exceptions.MemoryBudgetError, match="nystrom"):
        KernelPCA(2, kernel="rbf", memory_limit=1000).fit(chunked(data()))
    model = KernelPCA(2, kernel="rbf", memory_limit="2 MB").fit(chunked(data()))
    assert 0 < model.plan_.predicted_bytes <= 2_000_000
    with pytest.raises(exceptions.MemoryBudgetError, match="eigenvectors"):
        KernelPCA(60, kernel="rbf", memory_limit="2 MB").fit(chunked(data()))


def test_landmarks_alone_come_to_this_process(active):
    X = data()
    model = KernelPCA(3, kernel="rbf", gamma=0.05, eigen_solver=Nystrom(rank=60), random_state=0).fit(chunked(X))
    assert np.array_equal(model.X_fit_, X[model.landmarks_])


@pytest.fixture
def gathered_bytes(client, monkeypatch):
    """The bytes of every result that this process gathers."""
    sizes, gather = [], client.gather

    def size(found):
        return sum(map(size, found)) if isinstance(found, (list, tuple)) else getattr(found, "nbytes", 0)

    def measured(futures, **settings):
        async def results(found):
            found = await found
            sizes.extend(map(size, found))
            return found

        found = gather(futures, **settings)
        return results(found) if inspect.isawaitable(found) else found

    monkeypatch.setattr(client, "gather", measured)
    return sizes


@pytest.mark.parametrize("landmarks", ["rpcholesky", "uniform", "kmeans++"])
@pytest.mark.parametrize("gamma", [0.05, 1e-6])
def test_the_factor_of_nystrom_stays_on_the_workers(active, gathered_bytes, landmarks, gamma):
    X, rank = data(n=1500), 60
    settings = {"n_components": 2, "kernel": "rbf", "gamma": gamma, "random_state": 0}
    settings["eigen_solver"] = Nystrom(rank=rank, landmarks=landmarks, tol=1e-7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the tolerance, in both
        here = KernelPCA(**settings).fit(X)
        gathered_bytes.clear()
        there = KernelPCA(**settings).fit(chunked(X, 150))
    np.testing.assert_allclose(there.eigenvalues_, here.eigenvalues_, rtol=1e-10)
    # A panel of F has 150 x 60 items; squares of rank, landmarks and the blocks of two components do.
    assert max(gathered_bytes) <= 8 * max(rank * rank, rank * D, 150 * 3)


def test_a_small_limit_names_what_nystrom_needs(active):
    X = data()
    with pytest.raises(exceptions.MemoryBudgetError, match="this process needs"):
        KernelPCA(3, kernel="rbf", memory_limit=1000, eigen_solver="nystrom").fit(chunked(X))


@pytest.mark.filterwarnings("ignore:only 0 of the 3")
def test_without_a_client_a_dask_array_is_loaded():
    X = data()
    model = KernelPCA(3, kernel="rbf", gamma=0.05, random_state=0)
    expected = clone(model).fit_transform(X)
    for A, chunks in ((chunked(X, 250), (250, 250, 101)), (CHUNKS["unknown"](X), (N,))):
        Z = model.fit_transform(A)
        assert isinstance(Z, da.Array)
        assert Z.chunks == (chunks, (3,))
        assert np.array_equal(Z.compute(), expected)
    assert model.fit_transform(chunked(np.ones((9, 2)), 4)).compute().shape == (9, 3)
    model.set_params(n_components=None, kernel="precomputed")
    with pytest.warns(exceptions.RankWarning, match="none is kept"):
        assert model.fit_transform(da.ones((9, 9), chunks=(4, 5))).compute().shape == (9, 0)
    with pytest.raises(exceptions.MemoryBudgetError, match=r"distributed\.Client"):
        KernelPCA(3, memory_limit=1000).fit(chunked(X))


def test_the_fitted_model_is_an_ordinary_one(client, tmp_path):
    X = data()
    model = KernelPCA(3, kernel="rbf", gamma=0.05, client=client, preimage=RidgePreimage()).fit(X)
    Z = model.transform(X)
    assert clone(model).client is client
    assert copy.deepcopy(model).client is client
    twin = pickle.loads(pickle.dumps(model))
    assert twin.client is None
    model.save(tmp_path / "model.npz")
    for other in (twin, load(tmp_path / "model.npz"), copy.deepcopy(model)):
        assert np.array_equal(other.transform(X), Z)
        assert np.array_equal(other.inverse_transform(Z), model.inverse_transform(Z))


def test_the_plan_says_that_it_is_a_cluster_and_fits_nothing(active):
    model = KernelPCA(3, kernel="rbf")
    plan = model.plan(chunked(data()))
    assert "on 2 workers, all cached" in str(plan)
    assert not [name for name in vars(model) if name.endswith("_")]


def test_an_interrupted_fit_leaves_the_estimator_and_the_cluster_in_order(active):
    events = []

    def interrupt(event):
        events.append(event.stage)
        if event.stage == "pass":
            raise KeyboardInterrupt

    X = data()
    model = KernelPCA(3, kernel="rbf", gamma=0.05, eigen_solver="randomized", random_state=0).fit(chunked(X))
    before = model.eigenvalues_
    model.set_params(verbose=interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.fit(chunked(X))
    assert "tiles" in events
    assert model.eigenvalues_ is before
    model.set_params(verbose=0)
    assert np.array_equal(model.fit(chunked(X)).eigenvalues_, before)


def test_more_components_than_rows_are_clamped_with_a_warning(active):
    model = KernelPCA(50, kernel="rbf")
    with pytest.warns(exceptions.RankWarning):
        model.fit(chunked(data(n=20), 7))
    assert model.eigenvalues_.shape == (20,)


def test_a_fit_on_a_cluster_goes_on_from_its_checkpoint(active, tmp_path):
    class Stopped(Exception):
        pass

    def stop(event):
        if event.stage == "pass" and event.done == 3:
            raise Stopped

    model = KernelPCA(3, kernel="rbf", gamma=0.05, tol=1e-12, eigen_solver="randomized", random_state=0)
    expected = clone(model).fit(chunked(data())).eigenvectors_
    model.set_params(checkpoint=tmp_path / "job", verbose=stop)
    with pytest.raises(Stopped):
        model.fit(chunked(data()))
    told = []
    model.set_params(verbose=lambda event: told.append(event.stage))
    assert np.array_equal(model.fit(chunked(data())).eigenvectors_, expected)
    assert "resumed" in told
    with pytest.raises(exceptions.CheckpointError, match="data"):
        model.fit(chunked(data() + 1.0))


def test_the_checkpoint_of_a_pca_knows_rows_on_a_cluster(active, tmp_path):
    W = np.random.default_rng(0).standard_normal((90, 130))
    model = PCA(4, svd_solver="randomized", random_state=0, checkpoint=tmp_path / "job").fit(chunked(W, 30, 130))
    assert list((tmp_path / "job").iterdir())
    with pytest.raises(exceptions.CheckpointError, match="data"):
        model.fit(chunked(W + 1.0, 30, 130))


WIDE = pytest.param(
    "longdouble", marks=pytest.mark.skipif(np.finfo("longdouble").nmant == 52, reason="float64 is the widest type here")
)


@pytest.mark.parametrize("dtype", ["uint64", WIDE])
@pytest.mark.parametrize("estimator", [KernelPCA(2), PCA(2)], ids=["KernelPCA", "PCA"])
def test_digits_that_are_lost_are_told_at_the_line_of_the_caller(active, estimator, dtype):
    X = (data(n=60) * 2.0 ** (52 if dtype == "uint64" else 0)).clip(0).astype(dtype)
    words = r"2\*\*53" if dtype == "uint64" else "extended precision"
    with pytest.warns(exceptions.PrecisionWarning, match=words) as told:
        estimator.fit(chunked(X, 20))
    assert told[0].filename == __file__


def test_data_frames_of_a_dask_array_are_refused_before_the_fit():
    model = KernelPCA(2, kernel="rbf").set_output(transform="pandas")
    with pytest.raises(exceptions.InvalidParameterError, match="data frames in memory"):
        model.fit_transform(chunked(data()))
    assert not hasattr(model, "eigenvalues_")


COLLECTIONS = {
    "Delayed": lambda X, client: dask.delayed(X),
    "Bag": lambda X, client: dask.bag.from_sequence(X.tolist()),
    "Future": lambda X, client: client.scatter(X),
    "list of Delayed": lambda X, client: [dask.delayed(row) for row in X],
    "list of Array": lambda X, client: [chunked(X), chunked(X)],
}


@pytest.mark.parametrize("kind", COLLECTIONS)
def test_what_else_dask_has_is_refused_by_its_name(active, kind):
    X = COLLECTIONS[kind](data(n=30), active)
    for cls in (KernelPCA, PCA, IncrementalPCA, LocalPCA, ProbabilisticPCA, BayesianPCA):
        with pytest.raises(TypeError, match=f"{cls.__name__} does not take a Dask {kind.split()[-1]} here; X.*memory"):
            cls(2).fit(X)


@pytest.mark.parametrize("cls", [IncrementalPCA, LocalPCA, ProbabilisticPCA, BayesianPCA])
def test_estimators_without_a_cluster_say_who_fits_dask_arrays(cls):
    with pytest.raises(TypeError, match=r"X\.compute\(\) brings it into memory\. PCA and KernelPCA fit Dask arrays"):
        cls(2).fit(chunked(data(n=30)))
