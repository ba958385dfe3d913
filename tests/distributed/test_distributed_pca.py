"""PCA on a Dask cluster, new rows in Dask arrays, and the command line with a scheduler."""

from __future__ import annotations

import json
import os
import pickle
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.base import clone
from sklearn.decomposition import PCA as SklearnPCA

import gpukpca
from gpukpca import PCA, BayesianPCA, IncrementalPCA, KernelPCA, LocalPCA, ProbabilisticPCA, exceptions
from gpukpca.cli.app import gpukpca as program
from gpukpca.distributed import ClusterCenteredMatrix, ClusterRows, cluster_for
from gpukpca.distributed.client import connected
from tests.covariance import twins
from tests.tolerances import eps

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

QUIET = {"dashboard_address": ":0", "silence_logs": 50, "threads_per_worker": 1}
SOLVERS = ("covariance_eigh", "dual", "full", "randomized")
ALL_SOLVERS = (*SOLVERS, "tsqr")
SHAPES = {"tall": (203, 12), "wide": (12, 40)}


def data(shape: str = "tall", offset: float = 3.0, dtype: str = "float64") -> np.ndarray:
    n, d = SHAPES[shape]
    X = np.random.default_rng(0).standard_normal((n, d)) * 0.7 ** np.arange(d) + offset
    return X.astype(dtype)


def chunked(X: np.ndarray, rows: Any = None, columns: int = -1) -> Any:
    return da.from_array(X, chunks=(rows or -(-len(X) // 5), columns))


def settings(solver: str, **more: Any) -> dict[str, Any]:
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


# -- the answer of one process -----------------------------------------------------------------------------------------


UNITS = [("float64", -500), ("float64", 500), ("float32", -50), ("float32", 60)]


@pytest.mark.parametrize(("dtype", "exponent"), UNITS)
@pytest.mark.parametrize("solver", SOLVERS)
def test_the_unit_of_data_on_a_cluster_does_not_matter(active, solver, dtype, exponent):
    X, factor = data("tall", dtype=dtype), np.dtype(dtype).type(2.0**exponent)
    parameters = settings(solver) | {"tol": 1e-14 if (solver, dtype) == ("randomized", "float64") else 0.0}
    here, there = (PCA(3, **parameters).fit(chunked(Y)) for Y in (X, X * factor))
    np.testing.assert_allclose(there.singular_values_ / factor, here.singular_values_, rtol=50 * eps(dtype))
    np.testing.assert_allclose(there.components_, here.components_, atol=2000 * eps(dtype))
    np.testing.assert_allclose(there.explained_variance_ratio_, here.explained_variance_ratio_, rtol=50 * eps(dtype))
    scores, expected = (model.transform(Y) for model, Y in ((there, X * factor), (here, X)))
    np.testing.assert_allclose(scores / factor, expected, atol=2000 * eps(dtype))


@pytest.mark.parametrize("scaled", [False, True], ids=["centered", "scaled"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("offset", twins.OFFSETS)
@pytest.mark.parametrize(("shape", "by_rows"), [((63, 5), True), ((5, 63), False), ((1, 3), True)], ids=str)
def test_every_member_of_rows_on_a_cluster_agrees_with_the_matrix(client, shape, by_rows, offset, dtype, scaled):
    X = twins.rows(shape, offset, dtype)
    Z = ClusterCenteredMatrix(ClusterRows.of_array(X, cluster_for(client)), by_rows)
    twins.check_twin(Z, X, np.linspace(0.5, 2.0, shape[1]) if scaled else None)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("solver", ALL_SOLVERS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_dask_array_gives_the_answer_of_one_process(active, shape, solver, dtype):
    X = data(shape, dtype=dtype)
    tol = {"tol": 1e-5} if solver == "randomized" and dtype == "float32" else {}
    here, there = (PCA(3, **settings(solver) | tol) for _ in range(2))
    Z, Y = here.fit_transform(X), there.fit_transform(chunked(X))
    check_same(there, here, dtype)
    assert isinstance(Y, da.Array)
    assert Y.dtype == dtype
    assert np.max(np.abs(Y.compute() - Z)) <= 2000 * eps(dtype) * np.max(np.abs(Z))
    assert there.n_samples_ == len(X)
    assert there.fallbacks_ == ()


@pytest.mark.parametrize("solver", SOLVERS)
def test_data_in_memory_are_shared_out_where_a_client_is_given(client, solver):
    X = data()
    here, there = PCA(3, **settings(solver)), PCA(3, client=client, **settings(solver))
    Z, Y = here.fit_transform(X), there.fit_transform(X)
    check_same(there, here)
    assert isinstance(Y, np.ndarray)
    assert np.max(np.abs(Y - Z)) <= 1e-12 * np.max(np.abs(Z))
    assert "cluster: 2 workers with 2 threads, scheduler at inproc://" in str(there.plan_)


def test_variances_and_axes_are_those_of_plain_float64_and_of_scikit_learn(active):
    X = data()
    centered = X - X.mean(axis=0)
    values = np.linalg.eigvalsh(centered.T @ centered / (len(X) - 1))[::-1]
    model, peer = PCA(4).fit(chunked(X)), SklearnPCA(4, svd_solver="full").fit(X)
    np.testing.assert_allclose(model.explained_variance_, values[:4], rtol=1e-12)
    np.testing.assert_allclose(model.explained_variance_, peer.explained_variance_, rtol=1e-12)
    np.testing.assert_allclose(model.components_, peer.components_, atol=1e-11)
    V = model.components_
    np.testing.assert_allclose(V @ V.T, np.eye(4), atol=100 * eps("float64"))


@pytest.mark.parametrize("solver", SOLVERS)
def test_an_offset_costs_no_digits(active, solver):
    X = np.round(data(offset=0.0) * 2**20) * 2.0**-20  # so that adding 2^27 is exact
    expected = np.linalg.svd(X - X.mean(axis=0), compute_uv=False)[:3] ** 2 / (len(X) - 1)
    model = PCA(3, **settings(solver)).fit(chunked(X + 2.0**27))
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
    X = data()
    if name == "scale":
        X[:, 4] = 7.0  # constant columns are left as they are
    here, there = PCA(**PARAMETERS[name]).fit(X), PCA(**PARAMETERS[name])
    Z = there.fit_transform(chunked(X))
    if here.n_components_:
        check_same(there, here)
    assert Z.shape == (len(X), here.n_components_)
    np.testing.assert_allclose(Z.compute(), here.transform(X), atol=1e-11)
    np.testing.assert_allclose(there.score(chunked(X)), here.score(X), rtol=1e-11)


def test_the_answer_is_the_same_every_time(active):
    for solver in ("covariance_eigh", "dual"):
        first, second = (PCA(3, svd_solver=solver, random_state=0).fit(chunked(data())) for _ in range(2))
        np.testing.assert_array_equal(first.components_, second.components_)
        np.testing.assert_array_equal(first.explained_variance_, second.explained_variance_)


CHUNKS = {
    "unequal": lambda X: chunked(X, (1, 50, 102, 50)),
    "one": lambda X: chunked(X, len(X)),
    "tiny": lambda X: chunked(X, 3),
    "columns": lambda X: chunked(X, 100, 5),
    "unknown": lambda X: (lambda A: A[A[:, 0] > -np.inf])(chunked(X)),
    "empty": lambda X: (lambda A: da.concatenate([A[:0], A[:100], A[:0], A[100:]]))(chunked(X)),
    "integers among doubles": lambda X: da.concatenate([chunked(np.round(X)).astype(int), chunked(np.round(X))]),
}


@pytest.mark.parametrize("chunks", CHUNKS)
def test_chunks_of_any_kind_give_the_same_answer(active, chunks):
    A = CHUNKS[chunks](data())
    model = PCA(3, svd_solver="full" if chunks == "tiny" else "auto")
    check_same(clone(model).fit(A), model.fit(np.asarray(A)))


def test_a_cluster_with_processes_gives_the_same_answer_though_a_worker_dies():
    X, killed = data(), []
    with (
        distributed.LocalCluster(n_workers=2, processes=True, **QUIET) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):

        def kill(event: Any) -> None:  # the rows are on the workers by now, and nothing is added up yet
            killed.append(min(client.scheduler_info()["workers"]))
            client.run(os._exit, 0, workers=killed, on_error="ignore")

        model = PCA(3, client=client, verbose=kill).fit(X)
    assert len(killed) == 1
    check_same(model, PCA(3, svd_solver="covariance_eigh").fit(X))


@pytest.mark.parametrize("solver", SOLVERS)
def test_blocks_on_a_gpu_are_multiplied_there(active, cuda, solver):
    X = data()
    upload = dask.delayed(cuda.asarray)
    blocks = [da.from_delayed(upload(rows), rows.shape, meta=cuda.empty((0, 0))) for rows in (X[:100], X[100:])]
    model = PCA(3, **settings(solver)).fit(da.concatenate(blocks))
    check_same(model, PCA(3, **settings(solver)).fit(X))
    assert isinstance(model.components_, np.ndarray)


# -- what is refused, what is planned ----------------------------------------------------------------------------------


def with_entry(value: float) -> Any:
    X = data()
    X[133, 2] = value
    return chunked(X)


FAULTS = {
    "NaN": ({}, lambda: with_entry(np.nan), "contains NaN: 1 value.*first in row 133, column 2"),
    "one dimension": ({}, lambda: chunked(data())[:, 0], "Reshape your data"),
    "no rows": ({}, lambda: chunked(data())[:0], r"0 sample\(s\)"),
    "complex": ({}, lambda: chunked(data()) + 1j, "omplex"),
    "too many": ({"n_components": 13}, lambda: chunked(data()), "must be between"),
    "mle of few rows": ({"n_components": "mle"}, lambda: chunked(data("wide")), "n_samples >= n_features"),
    "scale": ({"scale": np.ones(3)}, lambda: chunked(data()), "12 features"),
    "device": ({"device": "cuda:1"}, lambda: chunked(data()), "device='cuda:1'"),
    "client": ({"client": "tcp://somewhere:1"}, data, "client='tcp://somewhere:1' is not allowed"),
    "overflow": ({"svd_solver": "covariance_eigh"}, lambda: chunked(data() * 1e200), "overflow"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_wrong_is_said_and_nothing_is_fitted(active, fault):
    parameters, make, message = FAULTS[fault]
    model = PCA(**{"n_components": 2} | parameters)
    with pytest.raises(ValueError, match=message):
        model.fit(make())
    assert not [name for name in vars(model) if name.endswith("_")]


def test_a_wait_for_a_worker_is_an_event(monkeypatch):
    def nobody_there(client: Any, waiting: Any) -> None:
        waiting("waiting for the scheduler")

    monkeypatch.setattr("gpukpca.decomposition._dask.cluster_for", nobody_there)
    events: list[gpukpca.Progress] = []
    PCA(2, verbose=events.append).fit(chunked(data()))
    assert (events[0].stage, events[0].text) == ("waiting", "waiting for the scheduler")


def test_sparse_rows_are_not_shared_out(client):
    sparse = pytest.importorskip("scipy.sparse")
    with pytest.raises(exceptions.InvalidParameterError, match="toarray"):
        PCA(2, client=client).fit(sparse.csr_array(data()))


def test_the_plan_says_that_it_is_a_cluster_and_fits_nothing(active):
    model = PCA(3)
    plan = model.plan(chunked(data()))
    assert "cluster: 2 workers" in str(plan)
    assert plan.method == "covariance_eigh"
    assert plan.workers == 2
    assert model.fit(chunked(data())).plan_.predicted_bytes == plan.predicted_bytes
    assert not hasattr(clone(model), "plan_")
    with pytest.raises(exceptions.MemoryBudgetError, match="memory_limit"):
        PCA(3, memory_limit=1000).plan(chunked(data()))


def test_without_a_client_a_dask_array_is_loaded():
    X = data()
    here, there = PCA(3), PCA(3)
    Z = here.fit_transform(X)
    Y = there.fit_transform(chunked(X))
    assert isinstance(Y, da.Array)
    np.testing.assert_array_equal(there.components_, here.components_)
    np.testing.assert_allclose(Y.compute(), Z, atol=1e-12)
    with pytest.raises(exceptions.MemoryBudgetError, match=r"distributed\.Client"):
        PCA(3, memory_limit=1000).fit(chunked(X))


def test_the_fitted_model_is_an_ordinary_one(client, tmp_path):
    X = data()
    model = PCA(3, client=client).fit(X)
    assert clone(model).client is client
    twin = pickle.loads(pickle.dumps(model))
    assert twin.client is None
    model.save(tmp_path / "model.npz")
    for other in (twin, gpukpca.load(tmp_path / "model.npz")):
        np.testing.assert_array_equal(other.transform(X), model.transform(X))
    assert model.transform(chunked(X)).compute().shape == (len(X), 3)


# -- new rows ----------------------------------------------------------------------------------------------------------

MODELS = {
    "PCA": lambda: PCA(3, whiten=True),
    "IncrementalPCA": lambda: IncrementalPCA(3),
    "ProbabilisticPCA": lambda: ProbabilisticPCA(3),
    "BayesianPCA": lambda: BayesianPCA(5),
    "LocalPCA": lambda: LocalPCA(2, 3, random_state=0),
    "KernelPCA": lambda: KernelPCA(3, kernel="rbf", preimage="ridge"),
    "KernelPCA, linear": lambda: KernelPCA(3, kernel="linear"),
    "KernelPCA, Nystrom": lambda: KernelPCA(3, kernel="rbf", eigen_solver="nystrom", random_state=0),
}
METHODS = ("transform", "score_samples", "denoise", "reconstruction_error", "inverse_transform")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", MODELS)
def test_new_rows_in_a_dask_array_are_answered_lazily(name, dtype):
    X = data(dtype=dtype)
    model = MODELS[name]().fit(X)
    # Column chunks, an empty block, doubles for a model of singles.
    A = da.from_array(X.astype("float64"), chunks=((50, 0, 103, 50), (5, 7)))
    for method in METHODS:
        if not hasattr(model, method) or (name, method) == ("LocalPCA", "inverse_transform"):
            continue
        given = model.transform(X) if method == "inverse_transform" else X
        rows = da.from_array(given, chunks=((50, 0, 103, 50), 2)) if method == "inverse_transform" else A
        found, expected = getattr(model, method)(rows), getattr(model, method)(given)
        assert isinstance(found, da.Array), method
        assert found.chunks[0] == (50, 0, 103, 50)
        assert found.shape == expected.shape
        assert found.dtype == found._meta.dtype == found.compute().dtype == dtype
        assert found._meta.ndim == expected.ndim
        size = np.max(np.abs(expected))
        np.testing.assert_allclose(found.compute(), expected, atol=2000 * eps(dtype) * size, err_msg=method)
        assert found.blocks[1].compute().shape == (0, *expected.shape[1:])
        squares = float(np.sum(expected.astype("float64") ** 2))
        assert float((found.astype("float64") ** 2).sum()) == pytest.approx(squares, rel=1e-3)  # the graph goes on
    if hasattr(model, "score"):
        assert model.score(A) == pytest.approx(model.score(X), rel=1e-3)


def test_unknown_lengths_of_chunks_stay_unknown():
    X = data()
    model = PCA(3).fit(X)
    A = chunked(X)
    found = model.transform(A[A[:, 0] > 3.0])
    assert np.all(np.isnan(found.chunks[0]))
    np.testing.assert_allclose(found.compute(), model.transform(X[X[:, 0] > 3.0]), atol=1e-12)
    assert model.score(A[A[:, 0] > 3.0]) == pytest.approx(model.score(X[X[:, 0] > 3.0]))


def test_the_model_is_in_the_graph_once():
    X = np.random.default_rng(0).standard_normal((200, 2000))
    model = PCA(20).fit(X)
    found = model.transform(da.from_array(X, chunks=(5, 2000)))
    graph = dict(dask.optimize(found)[0].__dask_graph__())
    models = {key for key in graph if "gpukpca-model" in str(key)}
    assert len(models) == 1
    others = sum(len(pickle.dumps(value)) for key, value in graph.items() if "gpukpca-rows" in str(key))
    assert others < model.components_.nbytes


def test_a_later_fit_does_not_change_what_was_asked_before():
    X = data()
    model = PCA(3).fit(X)
    expected, found = model.transform(X), model.transform(chunked(X))
    model.fit(-2 * X)
    np.testing.assert_allclose(found.compute(), expected, atol=1e-12)


REFUSED = {
    "width": (lambda m, A: m.transform(A[:, :5]), ValueError, "5 features, but KernelPCA is expecting 12"),
    "width of scores": (lambda m, A: m.inverse_transform(A), ValueError, "n_components = 3"),
    "one dimension": (lambda m, A: m.transform(A[:, 0]), ValueError, "2D"),
    "complex": (lambda m, A: m.transform(A + 1j), ValueError, "Complex"),
    "out": (lambda m, A: m.transform(A, out=np.empty((203, 3))), ValueError, "takes no out"),
    "info": (lambda m, A: m.denoise(A, return_info=True), ValueError, "takes no return_info"),
    "data frames": (lambda m, A: m.set_output(transform="pandas").transform(A), ValueError, "data frames"),
    "not fitted": (lambda m, A: clone(m).transform(A), ValueError, "not fitted"),
    "NaN": (lambda m, A: m.transform(A * np.nan).compute(), ValueError, "NaN"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_answered_is_refused(name):
    ask, error, message = REFUSED[name]
    model = KernelPCA(3, kernel="rbf", preimage="ridge").fit(data())
    with pytest.raises(error, match=message):
        ask(model, chunked(data()))


def test_an_argument_goes_to_every_block():
    X = data()
    model = KernelPCA(3, kernel="rbf", preimage="ridge").fit(X)
    found = model.denoise(chunked(X), n_components=1).compute()
    np.testing.assert_allclose(found, model.denoise(X, n_components=1), atol=1e-12)


def test_names_of_columns_are_missed_once():
    frame = pytest.importorskip("pandas").DataFrame(data(), columns=[f"c{k}" for k in range(12)])
    model = PCA(3).fit(frame)
    with pytest.warns(UserWarning, match="feature names"):
        found = model.transform(chunked(data()))
    assert found.compute().shape == (203, 3)  # without a warning, which would be an error


def test_blocks_on_a_gpu_are_answered_there(cuda):
    X = data()
    model = PCA(3).fit(cuda.asarray(X))
    meta, upload = cuda.empty((0, 0)), dask.delayed(cuda.asarray)
    blocks = [da.from_delayed(upload(rows), rows.shape, meta=meta) for rows in (X[:100], X[100:])]
    found = model.transform(da.concatenate(blocks))
    assert isinstance(found._meta, cuda.ndarray)
    part = dask.compute(found.to_delayed()[0, 0], scheduler="sync")[0]
    assert isinstance(part, cuda.ndarray)
    np.testing.assert_allclose(part.get(), PCA(3).fit(X).transform(X[:100]), atol=1e-12)


# -- the command line --------------------------------------------------------------------------------------------------


def run(*arguments: object) -> Any:
    return CliRunner().invoke(program, [str(a) for a in arguments])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", data())
    return tmp_path


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Of a scheduler on the loopback, with one worker."""
    settings = {"n_workers": 1, "processes": False, "protocol": "tcp://"}
    with distributed.LocalCluster(**settings, **QUIET) as cluster:
        yield cluster.scheduler_address


@pytest.mark.parametrize("method", ["pca", "kernel"])
def test_the_command_line_shares_a_fit_out(address, folder, method):
    result = run(
        "fit", "x.npy", "--method", method, "-n", 3, "--scheduler", address, "-o", "s.npz", "--save", "m.safetensors"
    )
    assert result.exit_code == 0, result.output
    assert f"1 worker with 1 thread, scheduler at {address}" in result.stdout
    assert "\ncluster " in result.stdout
    with np.load("s.npz") as found:
        X, model = data(), (PCA if method == "pca" else KernelPCA)
        kernel = {} if method == "pca" else {"kernel": "rbf"}
        variances = model(3, random_state=0, **kernel).fit(X).explained_variance_
        np.testing.assert_allclose(found["explained_variance"], variances, rtol=1e-9)
        assert json.loads(str(found["metadata"]))["parameters"]["client"] is None
    assert gpukpca.load("m.safetensors").transform(data()).shape == (203, 3)
    result = run("plan", "x.npy", "--method", method, "-n", 3, "--scheduler", address)
    assert result.exit_code == 0, result.output
    assert "cluster: 1 worker" in result.stdout


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
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(exceptions.ClusterError, match=r"no scheduler answers .* within 0\.2 s"):
            connected(address, timeout=0.2).__enter__()
