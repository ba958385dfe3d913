"""Arrays on a CUDA device of other libraries than CuPy: they share their memory, and results come back as they came."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import StratifiedGroupKFold

from gpukpca import (
    PCA,
    Batches,
    BayesianPCA,
    IncrementalPCA,
    KernelPCA,
    KernelPCACV,
    LocalPCA,
    Nystrom,
    ProbabilisticPCA,
    double_center,
    gram_matrix,
    kernel_matmat,
    residuals,
    variable_correlations,
)
from gpukpca.algorithms import fit_kernel_pca, fit_pca
from gpukpca.backend import devices, to_device, to_host
from gpukpca.backend.namespace import imported
from gpukpca.data.batches import is_stream
from gpukpca.decomposition import inertia, reconstruction, reconstruction_error, squared_cosines
from gpukpca.exceptions import InvalidParameterError
from gpukpca.gram import TiledGram
from gpukpca.kernels import RBF
from gpukpca.model_selection import n_components_for
from tests import cupy_device

N, D, P = 60, 5, 2


class Capsule:
    """Memory of CuPy that has DLPack and nothing else."""

    def __init__(self, held: Any) -> None:
        self.held = held

    def __dlpack__(self, **how: Any) -> Any:
        return self.held.__dlpack__(**how)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.held.__dlpack_device__()


class Interface:
    """Memory of CuPy that has the interface of Numba and nothing else."""

    def __init__(self, held: Any) -> None:
        self.held = held

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.held.__cuda_array_interface__


class Standard(Capsule):
    """An array of a library that follows the standard."""

    shape = property(lambda self: self.held.shape)
    ndim = property(lambda self: self.held.ndim)
    dtype = property(lambda self: self.held.dtype)
    device = property(lambda self: self.held.device)

    def __array_namespace__(self, api_version: str | None = None) -> Any:
        return StandardNamespace

    def __neg__(self) -> "Standard":
        return Standard(-self.held)


class StandardNamespace:
    @staticmethod
    def from_dlpack(x: Any) -> Standard:
        return Standard(imported(Capsule(x)))

    @staticmethod
    def concat(parts: list[Standard], axis: int = 0) -> Standard:
        import cupy

        return Standard(cupy.concatenate([part.held for part in parts], axis=axis))


class Tensor(Capsule):
    """A tensor as PyTorch has it: part of a graph of gradients, which is not exported."""

    requires_grad = True
    layout = "torch.strided"
    shape = property(lambda self: self.held.shape)
    dtype = property(lambda self: f"torch.{self.held.dtype}")

    @property
    def device(self) -> Any:
        return type("device", (), {"type": "cuda", "index": self.held.device.id})()

    def detach(self) -> "Tensor":
        twin = Tensor(self.held)
        twin.requires_grad = False
        return twin

    def __dlpack__(self, **how: Any) -> Any:
        import cupy

        if self.requires_grad:
            raise RuntimeError("Can't export tensors that require gradient, use tensor.detach()")
        if cupy.cuda.runtime.getDevice() != self.held.device.id:
            raise BufferError("Can't export tensors on a different CUDA device index")
        return super().__dlpack__(**how)

    def __array_namespace__(self) -> None:
        raise AssertionError("PyTorch has none")


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module `torch` with the class of tensors and `from_dlpack`."""
    module: Any = ModuleType("torch")
    module.Tensor, module.from_dlpack = Tensor, lambda x: Tensor(imported(Capsule(x))).detach()
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


KINDS = {"DLPack": Capsule, "interface": Interface, "standard": Standard}
ESTIMATORS = {
    "PCA": PCA(P),
    "incremental": IncrementalPCA(P, batch_size=25),
    "probabilistic": ProbabilisticPCA(P),
    "Bayesian": BayesianPCA(P, solver="em", max_iter=20, tol=0.5),
    "local": LocalPCA(2, 1, n_init=1, random_state=0),
    "kernel": KernelPCA(P, kernel="rbf", gamma=0.1, fit_inverse_transform=True),
    "Nystrom": KernelPCA(P, kernel="rbf", gamma=0.1, eigen_solver=Nystrom(rank=10), random_state=0),
    "search": KernelPCACV(gammas=[0.1, 0.2], n_components=[P], cv=2, random_state=0),
}
OF_ROWS = (
    "transform",
    "denoise",
    "predict",
    "predict_proba",
    "impute",
    "posterior_covariance",
    "reconstruction_error",
    "feature_space_error",
    "score_samples",
    "score",
)


def rows(cupy: Any, device: int = 1, dtype: Any = np.float64) -> Any:
    """Two clusters, on a device that is not the current one."""
    X = np.random.default_rng(0).standard_normal((N, D)) * [4.0, 2.0, 1.0, 0.5, 0.2]
    X[: N // 2, 1] += 9.0
    with cupy.cuda.Device(device):
        return cupy.asarray(X, dtype)


def held(result: Any, kind: type) -> np.ndarray:
    """The numbers of a result, which is as the rows of a kind came: CuPy's where a kind takes no DLPack."""
    library = {Standard: "tests", Tensor: "tests"}.get(kind, "cupy")
    assert type(result).__module__.startswith(library), type(result)
    assert library == "cupy" or isinstance(result, kind)
    return to_host(getattr(result, "held", result))


@contextmanager
def no_host_copies_beyond(counts: dict[str, int] | None) -> Iterator[dict[str, int]]:
    """Count what crosses between host and device: not more than `counts`, where they are given."""
    names, before, made = ("copies_to_device", "copies_to_host"), cupy_device.controls().counts(), dict[str, int]()
    yield made
    made |= {name: cupy_device.controls().counts()[name] - before[name] for name in names}
    if counts is not None:
        assert all(made[name] <= counts[name] for name in names), (made, counts)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_memory_is_shared(stand_in: Any, kind: type) -> None:
    devices()  # once in a process each is tried
    for device in (0, 1):
        X = rows(stand_in, device)
        with stand_in.cuda.Device(device):
            layouts = [X, stand_in.asfortranarray(X), X[::2], X[::-1], X[:0], X.astype(np.float32), X.astype(bool)]
        for x in layouts:
            with cupy_device.counted("operations") as made:
                found = imported(kind(x))
            assert made.count == 0
            assert found.data.ptr == x.data.ptr or not x.size
            assert (found.shape, found.dtype) == (x.shape, x.dtype)
            assert not x.size or (found.device.id, found.strides) == (device, x.strides)
            assert imported(found) is found
        assert to_device(kind(X), f"cuda:{device}").data.ptr == X.data.ptr
        np.testing.assert_array_equal(to_host(kind(X)), X.get())
    managed = stand_in.ndarray((3, D), np.float64, stand_in.cuda.malloc_managed(24 * D))
    assert Capsule(managed).__dlpack_device__()[0] == 13
    assert imported(kind(managed)).data.ptr == managed.data.ptr


FITS = [(name, kind) for name in ESTIMATORS for kind in KINDS if kind == "standard" or name in ("PCA", "kernel")]


@pytest.mark.parametrize(("name", "kind"), [(name, KINDS[kind]) for name, kind in FITS], ids=map("-".join, FITS))
def test_fits_and_results_are_those_of_cupy(stand_in: Any, name: str, kind: type) -> None:
    X = rows(stand_in)
    before = X.get()
    devices()  # once in a process each is tried
    clone(ESTIMATORS[name]).fit(X)  # what a first fit copies, such as tables
    with no_host_copies_beyond(None) as counts:
        expected = clone(ESTIMATORS[name]).fit(X)
    with no_host_copies_beyond(counts):
        model = clone(ESTIMATORS[name]).fit(kind(X))
    methods = [method for method in OF_ROWS if hasattr(model, method)]
    for method in methods:
        wanted = getattr(expected, method)(X)
        found = getattr(model, method)(kind(X))
        if method == "score":
            assert found == wanted
        else:
            np.testing.assert_array_equal(held(found, kind), to_host(wanted), err_msg=method)
    if hasattr(model, "inverse_transform"):
        Z = expected.transform(X)
        labels = {"labels": expected.predict(X)} if name == "local" else {}
        exported = {key: kind(value) for key, value in labels.items()}
        found = model.inverse_transform(kind(Z), **exported)
        np.testing.assert_array_equal(held(found, kind), to_host(expected.inverse_transform(Z, **labels)))
    if hasattr(model, "fit_transform"):
        wanted = clone(ESTIMATORS[name]).fit_transform(X)
        np.testing.assert_array_equal(held(clone(ESTIMATORS[name]).fit_transform(kind(X)), kind), to_host(wanted))
    # A model of another place takes them too, and gives them back.
    at_home = clone(ESTIMATORS[name]).fit(before)
    found = held(at_home.transform(kind(X)), kind)
    np.testing.assert_allclose(found, at_home.transform(before), rtol=0, atol=1e-9)
    np.testing.assert_array_equal(X.get(), before)


class Loader:
    """Pairs of rows and labels, as a DataLoader gives them in every pass."""

    def __init__(self, parts: list[Any]) -> None:
        self.parts = parts

    def __iter__(self) -> Iterator[Any]:
        return ((part, np.zeros(1)) if hasattr(part, "shape") else part for part in self.parts)


@pytest.mark.parametrize("kind", [Interface, Standard])
@pytest.mark.parametrize("name", ["PCA", "incremental", "probabilistic", "Nystrom"])
def test_batches_are_exporters(stand_in: Any, name: str, kind: type) -> None:
    X = rows(stand_in)
    with stand_in.cuda.Device(1):
        parts = [X[:25], X[25:26], X[26:]]
    exporters = [kind(part) for part in parts]
    devices()  # once in a process each is tried
    assert not any(map(is_stream, exporters))
    expected = clone(ESTIMATORS[name]).fit(Batches(parts))
    scores = expected.transform(X).get()
    sources: list[Callable[[], Any]] = [lambda: Batches(exporters), lambda: Loader(exporters)]
    if name in ("incremental", "Nystrom"):  # which read each batch once
        sources.append(lambda: iter(exporters))
    for source in sources:
        with no_host_copies_beyond(None) as counts:
            clone(ESTIMATORS[name]).fit(Batches(parts))
        with no_host_copies_beyond(counts):
            model = clone(ESTIMATORS[name]).fit(source())
        found = held(model.transform(source()), kind)
        np.testing.assert_allclose(found, scores, rtol=0, atol=1e-9)
        with stand_in.cuda.Device(1):
            out = stand_in.empty((N, P))
        assert model.transform(source(), out=out) is out
        np.testing.assert_array_equal(out.get(), found)
    if hasattr(model, "partial_fit"):
        one, two = clone(ESTIMATORS[name]), clone(ESTIMATORS[name])
        for part, exporter in zip(parts[::2], exporters[::2], strict=True):
            one.partial_fit(part)
            two.partial_fit(exporter)
        np.testing.assert_array_equal(held(two.transform(exporters[0]), kind), to_host(one.transform(parts[0])))
        with pytest.raises(ValueError, match="library"):  # of another device
            two.partial_fit(kind(rows(stand_in, 0)))


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_weights_landmarks_and_diagonals_are_exporters(stand_in: Any, kind: type) -> None:
    X = rows(stand_in)
    with stand_in.cuda.Device(1):
        weights, points = stand_in.arange(float(N)) % 3, X[:7] + 0.5
    for estimator in (
        PCA(P),
        KernelPCA(P, kernel="rbf", gamma=0.1),
        ProbabilisticPCA(P),
        LocalPCA(2, 1, random_state=0),
    ):
        expected = clone(estimator).fit(X, sample_weight=weights)
        found = clone(estimator).fit(kind(X), y=kind(weights), sample_weight=kind(weights))
        np.testing.assert_array_equal(held(found.transform(kind(X)), kind), to_host(expected.transform(X)))
        if hasattr(estimator, "score"):
            wanted = expected.score(X, sample_weight=weights)
            assert found.score(kind(X), sample_weight=kind(weights)) == wanted
    by_points = KernelPCA(P, kernel="rbf", gamma=0.1, eigen_solver=Nystrom(landmarks=points))
    expected = clone(by_points).fit(X)
    found = clone(by_points).set_params(eigen_solver=Nystrom(landmarks=kind(points))).fit(kind(X))
    np.testing.assert_array_equal(held(found.transform(kind(X)), kind), to_host(expected.transform(X)))
    K = gram_matrix(RBF(0.1), X)
    expected = KernelPCA(P, kernel="precomputed").fit(K)
    found = KernelPCA(P, kernel="precomputed").fit(kind(K))
    with stand_in.cuda.Device(1):
        ones = stand_in.ones(N)
    wanted = expected.feature_space_error(K, diagonal=ones)
    assert np.array_equal(held(found.feature_space_error(kind(K), diagonal=kind(ones)), kind), to_host(wanted))


def test_folds_are_made_of_exported_labels(stand_in: Any) -> None:
    X = rows(stand_in)
    with stand_in.cuda.Device(1):
        labels = stand_in.arange(N) % 3
    search = clone(ESTIMATORS["search"]).set_params(cv=StratifiedGroupKFold(2))
    expected = clone(search).fit(X, labels.get(), groups=labels.get())
    for kind in (Capsule, Interface, lambda x: x):
        found = clone(search).fit(kind(X), kind(labels), groups=kind(labels))
        assert found.cv_results_["mean_test_score"].tolist() == expected.cv_results_["mean_test_score"].tolist()


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_functions_take_exporters(stand_in: Any, kind: type) -> None:
    X, kernel = rows(stand_in), RBF(0.1)
    with stand_in.cuda.Device(1):
        V = X[:, :2].copy()
    model = PCA(P).fit(X)
    dual, fit = fit_kernel_pca(kind(X), kernel, P), fit_pca(kind(X), P)
    wanted, fitted = fit_kernel_pca(X, kernel, P), fit_pca(X, P)
    np.testing.assert_array_equal(to_host(dual.scores), to_host(wanted.scores))
    K = gram_matrix(kernel, X)
    pairs = [
        (dual.transform(kind(X)), wanted.transform(X)),
        (fit.transform(kind(X)), fitted.transform(X)),
        (fit.inverse_transform(kind(V)), fitted.inverse_transform(V)),
        (fit.log_density(kind(X)), fitted.log_density(X)),
        (gram_matrix(kernel, kind(X)), K),
        (kernel(kind(X), kind(X)), kernel(X, X)),
        (kernel_matmat(kernel, kind(X), kind(X), kind(V)), kernel_matmat(kernel, X, X, V)),
        (double_center(kind(K)), double_center(K)),
        (TiledGram(kernel, kind(X)) @ kind(V), TiledGram(kernel, X) @ V),
        (reconstruction(model, kind(X)), reconstruction(model, X)),
        (squared_cosines(model, kind(X)), squared_cosines(model, X)),
        (reconstruction_error(model, kind(X), per_sample=True), reconstruction_error(model, X, per_sample=True)),
        (variable_correlations(model, kind(X)), variable_correlations(model, X)),
    ]
    for number, (found, expected) in enumerate(pairs):
        np.testing.assert_array_equal(held(found, kind), to_host(expected), err_msg=str(number))
    given = K.copy()
    double_center(kind(given), overwrite=True)
    np.testing.assert_array_equal(given.get(), to_host(double_center(K)))
    assert inertia(kind(X)) == inertia(X)
    assert n_components_for(kind(X)) == n_components_for(X)
    np.testing.assert_array_equal(residuals(model, kind(X)).residual_norms, residuals(model, X).residual_norms)
    # CuPy rows come back as CuPy's, with whatever weights.
    with stand_in.cuda.Device(1):
        weights = stand_in.ones(N)
    assert held(PCA(P).fit_transform(X, sample_weight=kind(weights)), Capsule).shape == (N, P)


def test_the_owner_waits_for_the_stream_that_computes(stand_in: Any) -> None:
    X, streams = rows(stand_in), []

    class Asked(Capsule):
        def __dlpack__(self, stream: Any = None, **how: Any) -> Any:
            streams.append((stand_in.cuda.runtime.getDevice(), stream))
            return super().__dlpack__(stream=stream, **how)

    imported(Asked(X))
    with stand_in.cuda.Device(1):
        own = stand_in.cuda.Stream(non_blocking=True)
        with own:
            PCA(P).fit(Asked(X))
    assert streams[0] == (1, 1)  # the default stream
    assert set(streams[1:]) == {(1, own.ptr)}


@pytest.mark.parametrize("name", ["PCA", "kernel", "local"])
def test_another_device_computes(stand_in: Any, name: str) -> None:
    X = rows(stand_in)
    for device in ("cpu", "cuda:0", "cuda:1", "auto"):
        model = clone(ESTIMATORS[name]).set_params(device=device)
        expected = clone(model).fit(X).transform(X)
        found = model.fit(Standard(X)).transform(Standard(X))
        np.testing.assert_array_equal(held(found, Standard), expected.get(), err_msg=device)
        assert found.held.device.id == 1
        assert "cpu" in model.device_ if device == "cpu" else device in ("auto", model.device_[:6])
    frames = clone(ESTIMATORS[name]).set_output(transform="pandas")
    assert type(frames.fit_transform(Standard(X))).__name__ == "DataFrame"


def test_tensors_of_pytorch_leave_their_graph(stand_in: Any, torch: Any) -> None:
    X = rows(stand_in)
    for estimator in (PCA(P), KernelPCA(P, kernel="rbf", gamma=0.1, fit_inverse_transform=True)):
        expected, model = clone(estimator).fit(X), clone(estimator).fit(Tensor(X))
        scores = model.transform(Tensor(X))
        assert not scores.requires_grad
        np.testing.assert_array_equal(held(scores, Tensor), to_host(expected.transform(X)))
        points = to_host(expected.inverse_transform(expected.transform(X)))
        np.testing.assert_array_equal(held(model.inverse_transform(scores), Tensor), points)
        held(clone(estimator).fit_transform(Tensor(X)), Tensor)
    held(kernel_matmat(RBF(0.1), Tensor(X), Tensor(X), Tensor(X)), Tensor)
    for sparse in (PCA(P).fit, model.transform):
        tensor = Tensor(X)
        tensor.layout = "torch.sparse_coo"
        with pytest.raises(InvalidParameterError, match="to_dense"):
            sparse(tensor)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_numbers_of_other_types_are_computed_in_float64(stand_in: Any, kind: type) -> None:
    X = rows(stand_in)
    with stand_in.cuda.Device(1):
        for dtype in (np.float16, np.int32, np.uint8, bool):
            x = (0.5 * X.std(axis=0) < X).astype(dtype)
            expected = PCA(P).fit(x).transform(x)
            found = PCA(P).fit(kind(x)).transform(kind(x))
            np.testing.assert_array_equal(held(found, kind), to_host(expected))
            assert expected.dtype == np.float64
        assert held(PCA(P).fit_transform(kind(X.astype(np.float32))), kind).dtype == np.float32
        for wrong, words in ((X + 1j, "Complex data not supported"), (X[:, 0], "1D array"), (X[None], "dim 3")):
            with pytest.raises(InvalidParameterError, match=words):
                PCA(P).fit(kind(wrong))
        X[3, 1] = np.nan
    with pytest.raises(ValueError, match="contains NaN"):
        KernelPCA(P).fit(kind(X))


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_model_keeps_no_memory_of_an_exporter(stand_in: Any, kind: type) -> None:
    X = rows(stand_in)
    model = KernelPCA(P, kernel="rbf", gamma=0.1).fit(kind(X))
    nystrom = KernelPCA(P, kernel="rbf", gamma=0.1, eigen_solver=Nystrom(rank=N)).fit(iter([kind(X)]))
    new = rows(stand_in)
    scores = [one.transform(new).get() for one in (model, nystrom)]
    with stand_in.cuda.Device(1):
        X[:] = 7.0
    for one, before in zip((model, nystrom), scores, strict=True):
        np.testing.assert_array_equal(one.transform(new).get(), before)
    shared = KernelPCA(P, kernel="rbf", gamma=0.1, copy_X=False).fit(kind(new))
    assert shared.X_fit_.data.ptr == new.data.ptr


@pytest.mark.parametrize("name", ["PCA", "incremental", "probabilistic", "kernel", "Nystrom"])
def test_scores_are_written_into_memory_of_the_device(stand_in: Any, sizes: Any, name: str) -> None:
    X = rows(stand_in)
    host = X.get()
    model, moved = clone(ESTIMATORS[name]).fit(X), clone(ESTIMATORS[name]).set_params(device="cuda:1").fit(host)
    sizes(SCORES_PANEL=17)
    expected = model.transform(X)
    with stand_in.cuda.Device(1):
        wide = stand_in.full((N, 2 * P), 7.0)
        outs = [
            stand_in.empty((N, P)),
            stand_in.empty((N, P), np.float32),
            stand_in.empty((N, P), order="F"),
            wide[:, ::2],
        ]
    for out in outs:
        with no_host_copies_beyond(None) as counts:
            model.transform(X)
        with no_host_copies_beyond(counts if name in ("PCA", "probabilistic") else None):
            assert model.transform(X, out=out) is out
        np.testing.assert_allclose(
            out.get(), expected.get(), rtol=1e-6, atol=1e-6 if out.dtype == np.float32 else 1e-12
        )
    assert np.all(wide[:, 1].get() == 7.0)
    for kind in KINDS.values():
        out = kind(outs[0])
        for given in (X, kind(X), host, Batches([kind(X)])):
            outs[0].fill(0.0)
            for one in (model, moved):
                assert one.transform(given, out=out) is out
                np.testing.assert_allclose(outs[0].get(), expected.get(), rtol=0, atol=1e-9)
    at_home = np.empty((N, P))
    assert model.transform(X, out=at_home) is at_home
    np.testing.assert_allclose(at_home, expected.get(), rtol=0, atol=1e-12)
    with stand_in.cuda.Device(1):
        wrong = [stand_in.empty((N, P + 1)), stand_in.empty((N - 1, P)), stand_in.empty((N, P), np.int64)]
    wrong += [Interface(wrong[0]), rows(stand_in, 0)[:, :P]]
    for out in wrong:
        with pytest.raises(
            InvalidParameterError, match=r"or an array on cuda:1 .*got (float64|int64) of shape .* cuda:[01]"
        ):
            model.transform(X, out=out)
    with pytest.raises(InvalidParameterError, match=r"\(a memory map, say\) of floating-point numbers"):
        clone(ESTIMATORS[name]).fit(host).transform(host, out=outs[0])
