"""KernelPCA and PCA on a Dask cluster: the answers of one process, wherever the rows are."""

from __future__ import annotations

import copy
import inspect
import json
import logging
import pickle
import re
import socket
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.base import clone

import gpukpca
from gpukpca import PCA, BayesianPCA, IncrementalPCA, KernelPCA, LocalPCA, ProbabilisticPCA, exceptions
from gpukpca.cli.app import gpukpca as program
from gpukpca.covariance.panels import PanelCenteredMatrix
from gpukpca.decomposition import RidgePreimage
from gpukpca.decomposition._dask import shared_rows
from gpukpca.distributed.client import Cluster, connected
from gpukpca.distributed.gram import ClusterStorage
from gpukpca.distributed.rows import ClusterRows
from gpukpca.eigen import Nystrom
from gpukpca.gram.storage import LandmarkStorage, TiledStorage
from gpukpca.kernels import RBF, Laplacian, Linear, Polynomial
from tests.covariance import twins
from tests.tolerances import eps

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
pytest.importorskip("dask.bag")
distributed = pytest.importorskip("distributed")

N, D = 301, 7
LOCAL = {"dashboard_address": ":0", "silence_logs": 50, "threads_per_worker": 1}


def data(n: int = N, dtype: str = "float64") -> np.ndarray:
    return (np.random.default_rng(0).standard_normal((n, D)) @ np.diag(2.0 ** -np.arange(D)) + 3.0).astype(dtype)


def smooth(n: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((n, 6)) * np.linspace(2.0, 0.5, 6)


SHAPES = {"tall": (203, 12), "wide": (12, 40)}


def rows_of(shape: str = "tall", offset: float = 3.0, dtype: str = "float64") -> np.ndarray:
    n, d = SHAPES[shape]
    return (np.random.default_rng(0).standard_normal((n, d)) * 0.7 ** np.arange(d) + offset).astype(dtype)


def chunked(X: np.ndarray, rows: Any = None) -> Any:
    """Return a Dask array of two chunks, or of chunks of so many rows: a pass has a task for every pair of chunks."""
    return da.from_array(X, chunks=(rows or -(-len(X) // 2), -1))


def unknown(A: Any) -> Any:
    return A[A[:, 0] > -np.inf]


# -- kernel PCA --------------------------------------------------------------------------------------------------------


SETTINGS: dict[str, dict[str, Any]] = {
    "rule": {"gamma": "median", "n_components": 4},
    "scale": {"gamma": "scale", "n_components": 3},
    "flat": {"gamma": 1e-9, "n_components": 3},
    "linear": {"kernel": "linear", "n_components": 3},
    "monomials": {"kernel": "poly", "degree": 2, "n_components": 3},
    "cosine": {"kernel": "cosine", "n_components": 3},
    "sum": {"kernel": RBF(0.1) + Linear() * Laplacian(0.01) + Polynomial(2, 0.1, 1.0), "n_components": 3},
    "dense": {"gamma": 0.05, "n_components": 4, "eigen_solver": "dense"},
    "share": {"gamma": 0.01, "n_components": 0.9},
    "nystrom": {"gamma": 0.05, "n_components": 4, "eigen_solver": Nystrom(rank=40), "tol": 0.0},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_kernel_pca_of_a_dask_array_gives_the_answer_of_one_process(active, name):
    X, settings = data(), {"kernel": "rbf", "tol": 1e-12, "random_state": 0} | SETTINGS[name]
    here, there = KernelPCA(**settings).fit(X), KernelPCA(**settings).fit(chunked(X, 101))
    if isinstance(here.plan_.storage, TiledStorage):
        assert there.n_passes_ == here.n_passes_
    size = max(float(here.eigenvalues_[0]), 0.1 * float(np.sum(np.abs(here.kernel_(X)))) / N)
    assert np.max(np.abs(there.eigenvalues_ - here.eigenvalues_)) <= 50 * eps("float64") * size
    assert there.total_variance_ == pytest.approx(here.total_variance_, rel=1e-12)
    storage = {"nystrom": LandmarkStorage, "linear": LandmarkStorage}
    assert isinstance(there.plan_.storage, storage.get(name, ClusterStorage))
    X_new = data(N + 20)[N:]
    gap = float(np.min(-np.diff(here.eigenvalues_[:4]))) / size
    expected, found = here.transform(X_new), there.transform(X_new)
    if not hasattr(there, "eigenvectors_"):  # which set the signs
        expected, found = np.abs(expected), np.abs(found)
    assert np.max(np.abs(found - expected)[:, :3]) <= 1e-12 / gap * np.max(np.abs(expected))


@pytest.fixture(scope="module")
def small_workers() -> Iterator[Any]:
    """A client of two workers without the memory for a kernel matrix of 4200 rows."""
    names = ("pause", "spill", "target", "terminate")
    with (
        dask.config.set({f"distributed.worker.memory.{name}": False for name in names}),
        distributed.LocalCluster(n_workers=2, processes=False, memory_limit="10MB", **LOCAL) as cluster,
        distributed.Client(cluster, set_as_default=False) as found,
    ):
        yield found


def test_passes_are_as_many_as_in_one_process_with_tiles_cached_and_recomputed(client, small_workers):
    X = smooth(4200).astype("float32")
    settings = {"n_components": 6, "kernel": "rbf", "gamma": 0.1, "random_state": 0, "n_jobs": 2}
    enough, tight = KernelPCA(**settings), None
    for megabytes in range(10, 60, 2):
        with suppress(exceptions.MemoryBudgetError):
            model = KernelPCA(**settings, memory_limit=megabytes * 2**20)
            tight = model if tight is None and model.plan(X).start_landmarks else tight
    for one, workers in ((enough, client), (tight, small_workers)):
        with workers.as_current():
            here, there = one.fit(X), KernelPCA(**settings).fit(chunked(X))
        assert there.n_passes_ == here.n_passes_
        assert there.plan_.start_landmarks == here.plan_.start_landmarks
        assert there.plan_.solver.block_size == here.plan_.solver.block_size
        np.testing.assert_allclose(there.eigenvalues_, here.eigenvalues_, rtol=2e3 * eps("float32"))
    assert tight.n_passes_ < enough.n_passes_
    assert "tiles are recomputed in every pass" in str(there.plan_)


def test_workers_with_gpus_multiply_blocks_as_wide_as_one_gpu_does(active, cuda):
    X = smooth(400)
    settings = {"n_components": 5, "kernel": "rbf", "gamma": 0.1, "random_state": 0, "device": "cuda"}
    settings["eigen_solver"] = "randomized"
    here, there = KernelPCA(**settings).fit(X), KernelPCA(**settings).fit(chunked(X))
    assert there.plan_.solver.block_size == here.plan_.solver.width(400, 5, True)
    assert there.n_passes_ == here.n_passes_
    np.testing.assert_allclose(there.eigenvalues_, here.eigenvalues_, rtol=1e-10)


@pytest.fixture
def gathered_bytes(client: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of every result that this process gathers."""
    sizes: list[int] = []
    gather = client.gather

    def size(found: Any) -> int:
        return sum(map(size, found)) if isinstance(found, (list, tuple)) else getattr(found, "nbytes", 0)

    def measured(futures: Any, **settings: Any) -> Any:
        async def results(found: Any) -> Any:
            found = await found
            sizes.extend(map(size, found))
            return found

        found = gather(futures, **settings)
        return results(found) if inspect.isawaitable(found) else found

    monkeypatch.setattr(client, "gather", measured)
    return sizes


@pytest.mark.parametrize(("gamma", "landmarks"), [(0.05, "rpcholesky"), (1e-6, "uniform"), (0.05, range(0, 450, 15))])
def test_no_row_of_the_factor_of_nystrom_leaves_the_workers(active, gathered_bytes, gamma, landmarks):
    X, rank = data(450), 30
    settings = {"n_components": 2, "kernel": "rbf", "gamma": gamma, "random_state": 0}
    settings["eigen_solver"] = Nystrom(rank=rank, landmarks=landmarks, tol=1e-7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the tolerance, in both
        here = KernelPCA(**settings).fit(X)
        gathered_bytes.clear()
        there = KernelPCA(**settings).fit(chunked(X, 150))
    np.testing.assert_allclose(there.eigenvalues_, here.eigenvalues_, rtol=1e-10)
    np.testing.assert_array_equal(there.X_fit_, X[there.landmarks_])
    # A panel of F has 150 x 30 items; sums of squares, and rows among which landmarks are chosen, have fewer.
    assert max(gathered_bytes) <= 8 * max(rank * (rank + 1), 150 * D)


def test_landmarks_of_a_cluster_show_that_a_matrix_is_near_the_identity(active):
    solver = Nystrom(rank=30)
    with pytest.warns(exceptions.PrecisionWarning, match="K is nearly the identity") as caught:
        KernelPCA(2, kernel="rbf", gamma=1e8, eigen_solver=solver, random_state=0).fit(chunked(data(200), 50))
    assert len(caught) == 1


def test_memory_of_this_process_is_planned(active):
    A = chunked(data())
    for settings, message in (
        ({"memory_limit": 1000}, "nystrom"),
        ({"memory_limit": 1000, "eigen_solver": "nystrom"}, "this process needs"),
        ({"memory_limit": "2 MB", "n_components": 60}, "this process needs .*n_components=15"),
    ):
        with pytest.raises(exceptions.MemoryBudgetError, match=message):
            KernelPCA(**{"n_components": 2, "kernel": "rbf"} | settings).fit(A)
    model = KernelPCA(2, kernel="rbf", memory_limit="2 MB").fit(A)
    assert 0 < model.plan_.predicted_bytes <= 2_000_000


def test_kernels_that_are_stored_whole_are_rejected(active):
    for kernel, X in (("precomputed", np.eye(N)), (lambda x, y: float(x @ y), data())):
        with pytest.raises(exceptions.InvalidParameterError, match="cluster cannot share out"):
            KernelPCA(2, kernel=kernel).fit(chunked(X))


def test_more_components_than_rows_are_clamped_with_a_warning(active):
    with pytest.warns(exceptions.RankWarning):
        model = KernelPCA(50, kernel="rbf").fit(chunked(data(20), 7))
    assert model.eigenvalues_.shape == (20,)


def test_an_interrupted_fit_leaves_the_estimator_and_the_cluster_in_order(active):
    events = []

    def interrupt(event: gpukpca.Progress) -> None:
        events.append(event.stage)
        if event.stage == "pass":
            raise KeyboardInterrupt

    A = chunked(data(101))
    model = KernelPCA(3, kernel="rbf", gamma=0.05, eigen_solver="randomized", random_state=0).fit(A)
    before = model.eigenvalues_
    with pytest.raises(KeyboardInterrupt):
        model.set_params(verbose=interrupt).fit(A)
    assert "tiles" in events
    assert model.eigenvalues_ is before
    assert np.array_equal(model.set_params(verbose=0).fit(A).eigenvalues_, before)


def test_a_fit_on_a_cluster_resumes_from_its_checkpoint(active, tmp_path):
    class Stopped(Exception):
        pass

    def stop(event: gpukpca.Progress) -> None:
        if event.stage == "pass" and event.done == 3:
            raise Stopped

    A, events = chunked(data(101)), []
    model = KernelPCA(3, kernel="rbf", gamma=0.05, tol=1e-6, eigen_solver="randomized", random_state=0)
    expected = clone(model).fit(A).eigenvectors_
    model.set_params(checkpoint=tmp_path / "job", verbose=stop)
    with pytest.raises(Stopped):
        model.fit(A)
    model.set_params(verbose=lambda event: events.append(event.stage))
    assert np.array_equal(model.fit(A).eigenvectors_, expected)
    assert "resumed" in events
    with pytest.raises(exceptions.CheckpointError, match="data"):
        model.fit(A + 1.0)


def test_the_checkpoint_of_a_pca_knows_rows_on_a_cluster(active, tmp_path):
    W = np.random.default_rng(0).standard_normal((90, 130)) * 0.9 ** np.arange(130)
    events: list[str] = []
    model = PCA(4, svd_solver="randomized", random_state=0, checkpoint=tmp_path / "job").fit(chunked(W, 30))
    model.set_params(verbose=lambda event: events.append(event.stage))
    for count, same in enumerate((chunked(W, 41), chunked(W, 17), W), start=1):  # other panels, and one process
        model.fit(same)
        assert events.count("resumed") == count
    with pytest.raises(exceptions.CheckpointError, match="data"):
        model.fit(chunked(W + 1.0, 30))


# -- PCA ---------------------------------------------------------------------------------------------------------------


SOLVERS = ("covariance_eigh", "dual", "full", "randomized")


def settings_of(solver: str, **more: Any) -> dict[str, Any]:
    return {"svd_solver": solver, "random_state": 0, "tol": 1e-14 if solver == "randomized" else 0.0, **more}


def check_same(there: PCA, here: PCA, dtype: str = "float64") -> None:
    """Variances to 50 u of the largest, axes to what their gaps allow."""
    size = float(here.explained_variance_[0])
    assert there.n_components_ == here.n_components_
    assert np.max(np.abs(there.explained_variance_ - here.explained_variance_)) <= 50 * eps(dtype) * size
    assert there.total_variance_ == pytest.approx(here.total_variance_, rel=50 * eps(dtype))
    assert there.noise_variance_ == pytest.approx(here.noise_variance_, abs=50 * eps(dtype) * size)
    assert np.max(np.abs(there.components_ - here.components_)) <= 2000 * eps(dtype)
    np.testing.assert_allclose(there.mean_, here.mean_, rtol=4 * eps(dtype), atol=50 * eps(dtype) * np.sqrt(size))
    for name in ("components_", "explained_variance_", "mean_", "residual_norms_"):
        assert getattr(there, name).dtype == getattr(here, name).dtype


MEMBERS = [
    ((63, 5), True, 1e4, "float64", True),
    ((63, 5), True, 1e4, "float32", False),
    ((5, 63), False, 1e4, "float64", False),
    ((5, 63), False, 0.0, "float32", True),
    ((1, 3), True, 0.0, "float64", False),
]


@pytest.mark.parametrize(("shape", "by_rows", "offset", "dtype", "scaled"), MEMBERS)
def test_every_member_of_rows_on_a_cluster_agrees_with_the_matrix(client, shape, by_rows, offset, dtype, scaled):
    X = twins.rows(shape, offset, dtype)
    Z = PanelCenteredMatrix(ClusterRows.of_array(X, Cluster(client)), by_rows)
    twins.check_twin(Z, X, np.linspace(0.5, 2.0, shape[1]) if scaled else None)


@pytest.mark.parametrize("solver", [*SOLVERS, "tsqr"])
@pytest.mark.parametrize(("shape", "dtype"), [("tall", "float64"), ("wide", "float64"), ("tall", "float32")])
def test_pca_of_a_dask_array_gives_the_answer_of_one_process(active, shape, solver, dtype):
    X = rows_of(shape, dtype=dtype)
    tol = {"tol": 1e-5} if solver == "randomized" and dtype == "float32" else {}
    here, there = (PCA(3, **settings_of(solver) | tol) for _ in range(2))
    Z, Y = here.fit_transform(X), there.fit_transform(chunked(X, -(-len(X) // 3)))
    check_same(there, here, dtype)
    assert isinstance(Y, da.Array)
    assert Y.dtype == dtype
    assert np.max(np.abs(Y.compute() - Z)) <= 2000 * eps(dtype) * np.max(np.abs(Z))
    assert there.n_samples_ == len(X)
    assert there.fallbacks_ == ()


@pytest.mark.parametrize(("dtype", "exponent"), [("float64", -500), ("float32", 60)])
@pytest.mark.parametrize("solver", SOLVERS)
def test_the_unit_of_data_on_a_cluster_does_not_matter(active, solver, dtype, exponent):
    X, factor = rows_of(dtype=dtype), np.dtype(dtype).type(2.0**exponent)
    parameters = settings_of(solver) | {"tol": 1e-14 if (solver, dtype) == ("randomized", "float64") else 0.0}
    here, there = PCA(3, **parameters).fit(X), PCA(3, **parameters).fit(chunked(X * factor))
    np.testing.assert_allclose(there.singular_values_ / factor, here.singular_values_, rtol=50 * eps(dtype))
    np.testing.assert_allclose(there.components_, here.components_, atol=2000 * eps(dtype))
    scores, expected = there.transform(X * factor), here.transform(X)
    np.testing.assert_allclose(scores / factor, expected, atol=2000 * eps(dtype))


@pytest.mark.parametrize("solver", SOLVERS)
def test_an_offset_costs_no_digits(active, solver):
    X = np.round(rows_of(offset=0.0) * 2**20) * 2.0**-20  # so that adding 2^27 is exact
    expected = np.linalg.svd(X - X.mean(axis=0), compute_uv=False)[:3] ** 2 / (len(X) - 1)
    model = PCA(3, **settings_of(solver)).fit(chunked(X + 2.0**27))
    np.testing.assert_allclose(model.explained_variance_, expected, rtol=1e-12)


@pytest.mark.parametrize("solver", ["covariance_eigh", "dual", "full"])
@pytest.mark.parametrize("shape", [(80, 10), (10, 80)], ids=["tall", "wide"])
def test_small_singular_values_keep_their_digits(active, solver, shape):
    singular = np.array([1.0, 1e-2, 1e-4, 1e-5, 1e-7, 1e-9])
    rng = np.random.default_rng(1)
    left, right = (np.linalg.qr(rng.standard_normal((size, 7)))[0] for size in shape)
    left = np.linalg.qr(np.column_stack([np.ones(len(left)), left]))[0][:, 1:7]
    model = PCA(6, svd_solver=solver).fit(chunked((left * singular) @ right[:, :6].T))
    error = np.abs(model.singular_values_ / singular - 1.0)
    assert np.all(error <= 100 * eps("float64") / singular)


def test_rows_that_mislead_about_the_mean(active):
    """The shift is the mean of some rows: here all of those are far from the others."""
    X = np.random.default_rng(0).standard_normal((5000, 2))
    X[np.linspace(0, 4999, 1000).astype(np.int64)] += 1e9
    X[::7] -= 1e9
    here = PCA(2, svd_solver="covariance_eigh").fit(X)
    for solver in ("covariance_eigh", "randomized"):
        check_same(PCA(2, svd_solver=solver).fit(chunked(X)), here)


PARAMETERS = {
    "all": {},
    "share": {"n_components": 0.9},
    "mle": {"n_components": "mle"},
    "none": {"n_components": 0},
    "whiten": {"n_components": 3, "whiten": True},
    "scale": {"n_components": 3, "scale": True},
    "given scale": {"n_components": 3, "scale": np.arange(1.0, 13.0)},
    "fixed power": {"n_components": 2, "svd_solver": "randomized", "iterated_power": 4, "random_state": 0},
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_every_parameter_means_what_it_means_in_one_process(active, name):
    X = rows_of()
    if name == "scale":
        X[:, 4] = 7.0  # constant columns are left as they are
    here, there = (PCA(**PARAMETERS[name]) for _ in range(2))
    here.fit(X)
    Z = there.fit_transform(chunked(X))
    if here.n_components_:
        check_same(there, here)
    assert Z.shape == (len(X), here.n_components_)
    np.testing.assert_allclose(Z.compute(), here.transform(X), atol=1e-11)
    np.testing.assert_allclose(there.score(chunked(X)), here.score(X), rtol=1e-11)


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_that_are_not_centered_give_the_answer_of_one_process(active, shape):
    X = rows_of(shape)
    for k, solver in enumerate((*SOLVERS, "tsqr"), start=len(shape)):  # each with a scale in one shape of the two
        settings = settings_of(solver, n_components=3, center=False, scale=bool(k % 2))
        here, there = PCA(**settings).fit(X), PCA(**settings).fit(chunked(X))
        check_same(there, here)
        np.testing.assert_allclose(there.transform(chunked(X)).compute(), here.transform(X), atol=1e-10)
        assert not there.mean_.any()


@pytest.mark.parametrize("name", ["flat", "linear", "sum", "dense", "nystrom"])
def test_kernel_matrices_that_are_not_centered_give_the_answer_of_one_process(active, name):
    X, settings = data(), {"kernel": "rbf", "tol": 1e-12, "random_state": 0} | SETTINGS[name] | {"center": False}
    settings["n_components"] = 2
    here, there = KernelPCA(**settings).fit(X), KernelPCA(**settings).fit(chunked(X, 101))
    K = here.kernel_(X)
    values, trace = np.linalg.eigvalsh(K)[::-1][:2], float(np.trace(K))
    lost = values - there.eigenvalues_
    assert lost.sum() <= (there.certificate_ if name == "nystrom" else 0.0) + 1e-11 * trace
    assert np.all(lost >= -1e-11 * trace)
    assert there.total_variance_ == pytest.approx(trace / (N - 1), rel=1e-9)
    assert not there.offset_.any()
    ours, theirs = there.transform(X), here.transform(X)
    ours = ours * np.sign(np.sum(ours * theirs, axis=0))  # of the linear kernel signs are those of the axes
    np.testing.assert_allclose(ours, theirs, atol=1e-8 * np.max(np.abs(theirs)))


@pytest.mark.parametrize("solver", SOLVERS)
def test_blocks_on_a_gpu_are_multiplied_there(active, cuda, solver):
    X = rows_of()
    upload = dask.delayed(cuda.asarray)
    blocks = [da.from_delayed(upload(rows), rows.shape, meta=cuda.empty((0, 0))) for rows in (X[:100], X[100:])]
    model = PCA(3, **settings_of(solver)).fit(da.concatenate(blocks))
    check_same(model, PCA(3, **settings_of(solver)).fit(X))
    assert isinstance(model.components_, np.ndarray)


# -- both --------------------------------------------------------------------------------------------------------------


ESTIMATORS = {"KernelPCA": KernelPCA(3, kernel="rbf", gamma=0.05, random_state=0), "PCA": PCA(3)}
BOTH = pytest.mark.parametrize("name", ESTIMATORS)


@BOTH
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_rows_that_are_sent_to_the_workers_give_the_answer_of_one_process(client, name, dtype):
    X = data(dtype=dtype)
    here, there = clone(ESTIMATORS[name]), clone(ESTIMATORS[name])
    Z, Y = here.fit_transform(X), there.fit_transform(shared_rows(there, X, client))
    assert type(Y) is np.ndarray
    assert Y.dtype == Z.dtype == dtype
    assert np.max(np.abs(Y - Z)) <= 1e5 * eps(dtype) * np.max(np.abs(Z))
    size = here.explained_variance_[0]
    assert np.max(np.abs(there.explained_variance_ - here.explained_variance_)) <= 50 * eps(dtype) * size
    assert "cluster: 2 workers with 2 threads, scheduler at inproc://" in str(there.plan_)
    assert there.fallbacks_ == ()


@BOTH
def test_the_active_client_computes_dask_arrays_alone(active, small_workers, name):
    model = clone(ESTIMATORS[name])
    for current in (active, small_workers):
        with current.as_current():
            assert current.scheduler.address in str(model.fit(chunked(data())).plan_)
            assert "cluster" not in str(model.fit(data()).plan_)


@BOTH
def test_the_plan_names_the_cluster_and_fits_nothing(active, name):
    model = clone(ESTIMATORS[name])
    plan = model.plan(chunked(data()))
    assert "cluster: 2 workers" in str(plan)
    assert ("on 2 workers, all cached" in str(plan)) == (name == "KernelPCA")
    assert not [attribute for attribute in vars(model) if attribute.endswith("_")]
    assert model.fit(chunked(data())).plan_.predicted_bytes >= plan.predicted_bytes


@BOTH
def test_scores_have_the_chunks_of_the_rows(active, name):
    X, model = data(), clone(ESTIMATORS[name])
    for A in (chunked(X, 250), da.concatenate([chunked(X)[:0], chunked(X, 250)])):
        Z = model.fit_transform(A)
        assert isinstance(Z, da.Array)
        assert Z.chunks == (A.chunks[0], (3,))
        np.testing.assert_allclose(Z.compute(), model.transform(X), atol=1e-12)
    np.testing.assert_array_equal(model.transform(X), clone(model).fit(A).transform(X))  # to the last bit


@BOTH
@pytest.mark.filterwarnings("ignore:fewer components carry")
def test_without_a_client_a_dask_array_is_loaded(name):
    X, model = data(), clone(ESTIMATORS[name])
    expected = clone(model).fit_transform(X)
    for A in (chunked(X, 250), unknown(chunked(X, 250))):
        Z = model.fit_transform(A)
        assert isinstance(Z, da.Array)
        np.testing.assert_allclose(Z.compute(), expected, atol=1e-12)
    assert model.fit_transform(chunked(np.ones((9, 3)), 4)).compute().shape == (9, 3)
    with pytest.raises(exceptions.MemoryBudgetError, match=r"distributed\.Client"):
        model.set_params(memory_limit=1000).fit(chunked(X))


@BOTH
def test_the_fitted_model_is_an_ordinary_one(active, tmp_path, name):
    X, model = data(), clone(ESTIMATORS[name])
    if name == "KernelPCA":
        model.set_params(preimage=RidgePreimage())
    Z = model.fit(chunked(X)).transform(X)
    twin = pickle.loads(pickle.dumps(model))
    model.save(tmp_path / "model")
    for other in (twin, gpukpca.load(tmp_path / "model"), copy.deepcopy(model)):
        np.testing.assert_array_equal(other.transform(X), Z)
        np.testing.assert_array_equal(other.inverse_transform(Z), model.inverse_transform(Z))


def with_entry(value: float) -> Any:
    X = data()
    X[233, 2] = value
    return chunked(X)


FAULTS: dict[str, tuple[dict[str, Any], Any, type[Exception], str]] = {
    "NaN": ({}, lambda: with_entry(np.nan), ValueError, "contains NaN: 1 value.*first in row 233, column 2"),
    "infinity": ({}, lambda: with_entry(np.inf), ValueError, "contains infinity.*first in row 233, column 2"),
    "one dimension": ({}, lambda: chunked(data())[:, 0], ValueError, "Reshape your data"),
    "no rows": ({}, lambda: chunked(data())[:0], ValueError, r"0 sample\(s\)"),
    "complex": ({}, lambda: chunked(data()) + 1j, ValueError, "omplex"),
    "text": ({}, lambda: da.full((N, D), "a", chunks=(50, D)), ValueError, r"could not convert .* row 0 of X.blocks"),
    "device": ({"device": "cuda:1"}, lambda: chunked(data()), ValueError, "device='cuda:1'"),
}
OF_PCA: dict[str, tuple[dict[str, Any], Any, type[Exception], str]] = {
    "too many": ({"n_components": 13}, lambda: chunked(rows_of()), ValueError, "must be between"),
    "few rows": ({"n_components": "mle"}, lambda: chunked(rows_of("wide")), ValueError, "n_samples >= n_features"),
    "scale": ({"scale": np.ones(3)}, lambda: chunked(rows_of()), ValueError, "12 features"),
    "overflow": ({"svd_solver": "covariance_eigh"}, lambda: chunked(rows_of() * 1e200), ValueError, "overflow"),
}
CASES = [(name, fault) for name in ESTIMATORS for fault in FAULTS] + [("PCA", fault) for fault in OF_PCA]


@pytest.mark.parametrize(("name", "fault"), CASES)
def test_faults_are_named_and_nothing_is_fitted(active, name, fault):
    settings, make, error, message = (FAULTS | OF_PCA)[fault]
    model = clone(ESTIMATORS[name]).set_params(**settings)
    X = make()
    with pytest.raises(error, match=message):
        model.fit(X)
    assert not [attribute for attribute in vars(model) if attribute.endswith("_")]


WIDE = pytest.param(
    "longdouble", marks=pytest.mark.skipif(np.finfo("longdouble").nmant == 52, reason="float64 is the widest type here")
)


@pytest.mark.parametrize("dtype", ["uint64", WIDE])
@pytest.mark.parametrize("estimator", [KernelPCA(2), PCA(2)], ids=["KernelPCA", "PCA"])
def test_digits_that_are_lost_are_reported_at_the_line_of_the_caller(active, estimator, dtype):
    X = (data(60) * 2.0 ** (52 if dtype == "uint64" else 0)).clip(0).astype(dtype)
    text = r"integers that exceed 2\*\*53 lose" if dtype == "uint64" else "extended precision is reduced"
    with pytest.warns(exceptions.PrecisionWarning, match=text) as caught:
        estimator.fit(chunked(X, 20))
    # Once: in-process workers would warn in this process too, at a line of Dask.
    lines = [warning.filename for warning in caught if re.search(text, str(warning.message))]
    assert lines == [__file__]


def test_data_frames_of_a_dask_array_are_rejected_before_the_fit():
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
def test_other_collections_of_dask_are_rejected_by_their_name(active, kind):
    X = COLLECTIONS[kind](data(30), active)
    for cls in (KernelPCA, PCA, IncrementalPCA, LocalPCA, ProbabilisticPCA, BayesianPCA):
        with pytest.raises(TypeError, match=f"{cls.__name__} does not take a Dask {kind.split()[-1]} here; X.*memory"):
            cls(2).fit(X)


@pytest.mark.parametrize("cls", [LocalPCA, ProbabilisticPCA, BayesianPCA])
def test_estimators_without_a_cluster_name_those_that_fit_dask_arrays(cls):
    names = r"KernelPCA, PCA and IncrementalPCA fit Dask arrays"
    with pytest.raises(TypeError, match=rf"X\.compute\(\) brings it into memory\. {names}"):
        cls(2).fit(chunked(data(30)))


# -- the command line --------------------------------------------------------------------------------------------------


def run(*arguments: object) -> Any:
    return CliRunner().invoke(program, [str(a) for a in arguments])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", rows_of())
    return tmp_path


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Of a scheduler on the loopback, with one worker."""
    with distributed.LocalCluster(n_workers=1, processes=False, protocol="tcp://", **LOCAL) as cluster:
        yield cluster.scheduler_address


@pytest.mark.parametrize("method", ["pca", "kernel"])
def test_the_command_line_shares_a_fit_out(address, folder, method):
    result = run(
        "fit", "x.npy", "--method", method, "-n", 3, "--scheduler", address, "-o", "s.npz", "--save", "m.safetensors"
    )
    assert result.exit_code == 0, result.output
    assert f"1 worker with 1 thread, scheduler at {address}" in result.stdout
    with np.load("s.npz") as found:
        kernel = {} if method == "pca" else {"kernel": "rbf"}
        model = (PCA if method == "pca" else KernelPCA)(3, random_state=0, **kernel).fit(rows_of())
        np.testing.assert_allclose(found["explained_variance"], model.explained_variance_, rtol=1e-9)
        assert "client" not in json.loads(str(found["metadata"]))["parameters"]
    assert gpukpca.load("m.safetensors").transform(rows_of()).shape == (203, 3)
    result = run("plan", "x.npy", "--method", method, "-n", 3, "--scheduler", address)
    assert result.exit_code == 0, result.output
    assert "cluster: 1 worker" in result.stdout


def test_a_connection_silences_dask_and_no_other_logs(address):
    dask_logs = [logging.getLogger(name) for name in ("distributed", "distributed.client", "tornado.application")]
    before = [logger.level for logger in dask_logs]
    with connected(address):
        assert not any(logger.isEnabledFor(logging.CRITICAL) for logger in dask_logs)
        assert logging.getLogger("gpukpca").isEnabledFor(logging.CRITICAL)
    assert [logger.level for logger in dask_logs] == before


WRONG = {
    "method": (["--method", "ppca", "--scheduler", "tcp://127.0.0.1:8786"], "does not apply to --method ppca"),
    "address": (["--method", "pca", "--scheduler", "nowhere"], "'nowhere' is no address of a scheduler"),
    "scheme": (["--method", "pca", "--scheduler", "http://127.0.0.1:80"], "is no address of a scheduler"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_scheduler_is_one_line(folder, name):
    arguments, message = WRONG[name]
    result = run("fit", "x.npy", *arguments, "-o", "s.npz")
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert not Path("s.npz").exists()


def test_a_scheduler_that_does_not_answer_is_an_error():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens there
        where = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(exceptions.ClusterError, match=r"no scheduler answers .* within 0\.2 s"):
            connected(where, timeout=0.2).__enter__()
