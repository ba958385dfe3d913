"""To scikit-learn's estimators and back: the same scores, and a refusal where there can be none."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import sklearn.decomposition
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline

import gpukpca
from gpukpca import PCA, KernelPCA, Nystrom, kernels
from gpukpca.decomposition import RidgePreimage
from gpukpca.exceptions import InvalidParameterError, PrecisionWarning
from tests.each import each

EPS = {"float64": float(np.finfo(np.float64).eps), "float32": float(np.finfo(np.float32).eps)}
Theirs = sklearn.decomposition.KernelPCA


def data(n: int = 40, d: int = 5, seed: int = 0, dtype: str = "float64") -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((n, d)) * 0.8 ** np.arange(d) + 0.5).astype(dtype)


def minimum(x: np.ndarray, y: np.ndarray, power: float = 1.0) -> float:
    """A kernel that is a function of two rows."""
    return float(np.sum(np.minimum(np.abs(x), np.abs(y))) ** power)


def assert_close(found: Any, wanted: Any, dtype: str, size: float = 1e3) -> None:
    """Equal to `size` eps of the largest entry: sums of n terms, divided by the root of an eigenvalue."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=size * EPS[dtype] * np.abs(wanted).max(initial=1e-300))


KERNELS = {
    "linear": {"kernel": "linear"},
    "poly": {"kernel": "poly", "degree": 2, "coef0": 0.5, "gamma": 0.2},
    "rbf": {"kernel": "rbf"},
    "rbf, a rule": {"kernel": "rbf", "gamma": "median"},
    "sigmoid": {"kernel": "sigmoid", "gamma": 0.01},
    "cosine": {"kernel": "cosine"},
    "object": {"kernel": kernels.RBF(gamma=0.3)},
}


# -- to scikit-learn ---------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:the kernel matrix has negative")
@each("name", KERNELS)
def test_the_peer_of_a_kernel_pca_has_its_scores(dtype, name):
    X, X_new = data(dtype=dtype), data(9, seed=1, dtype=dtype)
    model = KernelPCA(3, **KERNELS[name]).fit(X)
    peer = model.as_sklearn()
    assert type(peer) is Theirs
    assert_close(peer.transform(X_new), model.transform(X_new), dtype)
    assert peer.transform(X_new).dtype == dtype
    again = clone(peer).fit(X)  # its parameters are those of a peer
    assert_close(again.eigenvalues_, peer.eigenvalues_, dtype)
    assert_close(again._centerer.K_fit_rows_, peer._centerer.K_fit_rows_, dtype)
    assert_close(again.transform(X_new), peer.transform(X_new), dtype)


@pytest.mark.parametrize("kernel", ["rbf", "precomputed"])
def test_a_nystrom_model_has_no_peer(kernel):
    X = data() if kernel != "precomputed" else kernels.RBF(0.3)(data())
    model = KernelPCA(2, kernel=kernel, eigen_solver=Nystrom(rank=9), random_state=0).fit(X)
    with pytest.raises(InvalidParameterError, match="a Nyström model has scores from landmarks"):
        model.as_sklearn()


@pytest.mark.parametrize(
    "model",
    [KernelPCA(3, kernel="rbf", fit_inverse_transform=True), PCA(3, svd_solver="dual", scale=True, whiten=True)],
    ids=["exact", "PCA"],
)
def test_models_of_every_library_have_a_peer_on_the_host(xp, model):
    X, X_new = data(), data(9, seed=1)
    model = clone(model).fit(xp.array(X))
    peer, Z = model.as_sklearn(), model.transform(xp.array(X_new))
    assert_close(peer.transform(X_new), xp.host(Z), "float64", 1e5)
    if hasattr(model, "inverse_transform"):
        assert_close(peer.inverse_transform(xp.host(Z)), xp.host(model.inverse_transform(Z)), "float64", 1e4)


@pytest.mark.parametrize(
    ("settings", "make"),
    [
        ({"kernel": "rbf"}, lambda: scipy.sparse.random(40, 6, 0.4, format="csr", random_state=0)),
        ({"kernel": "linear"}, lambda: scipy.sparse.random(40, 6, 0.4, format="csr", random_state=0)),
        ({"kernel": "precomputed"}, lambda: data() @ data().T),
        ({"kernel": minimum, "kernel_params": {"power": 2.0}}, data),
        ({"kernel": "rbf", "eigen_solver": "randomized", "random_state": np.random.default_rng(0)}, lambda: data(500)),
        ({"kernel": "linear", "n_components": 0.9}, data),
        ({"kernel": "linear", "n_components": 7}, data),
        ({"kernel": "rbf", "n_components": None}, lambda: np.ones((5, 2))),
    ],
    ids=["sparse", "sparse, linear", "precomputed", "function", "solver", "share", "zeros", "nothing"],
)
@pytest.mark.filterwarnings("ignore")
def test_the_peer_of_other_models(settings, make):
    X = make()
    model = KernelPCA(**{"n_components": 2, **settings}).fit(X)
    assert_close(model.as_sklearn().transform(X), model.transform(X), "float64", 1e4)


def test_names_of_features_go_along():
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(data(), columns=list("abcde"))
    for model in (KernelPCA(2, kernel="rbf"), PCA(2), PCA(2, scale=True)):
        np.testing.assert_array_equal(model.fit(X).as_sklearn().feature_names_in_, list("abcde"))
        assert_close(model.as_sklearn().transform(X), model.transform(X), "float64")


def test_the_inverse_is_kept_where_the_peer_has_the_same():
    X = data()
    model = KernelPCA(3, kernel="rbf", fit_inverse_transform=True, alpha=0.1).fit(X)
    Z = model.transform(X)
    assert_close(model.as_sklearn().inverse_transform(Z), model.inverse_transform(Z), "float64", 1e4)
    same = KernelPCA(
        3,
        kernel=kernels.RBF(0.3),
        preimage=RidgePreimage(kernels.RBF(0.3), alpha=0.2, centered=False, n_landmarks=None),
    ).fit(X)
    peer = same.as_sklearn()
    assert peer.alpha == 0.2
    assert_close(peer.inverse_transform(Z), same.inverse_transform(Z), "float64", 1e4)
    again = clone(peer).fit(X)
    assert_close(again.inverse_transform(again.transform(X)), same.inverse_transform(same.transform(X)), "float64", 1e4)


@pytest.mark.parametrize(
    ("kernel", "preimage"),
    [
        ("linear", None),  # scikit-learn's would lose the mean
        ("rbf", "ridge"),
        ("rbf", RidgePreimage(kernels.RBF(0.2), centered=True)),
        ("rbf", RidgePreimage(kernels.RBF(0.2), centered=False, n_landmarks=9)),
        ("rbf", "fixed_point"),
        ("rbf", "distance_constraint"),
    ],
    ids=str,
)
def test_an_inverse_that_the_peer_lacks_is_left_out(kernel, preimage):
    X = data()
    settings = {"preimage": preimage, "fit_inverse_transform": preimage is None}
    model = KernelPCA(3, kernel=kernel, gamma=None if kernel == "linear" else 0.2, **settings).fit(X)
    peer = model.as_sklearn()
    assert peer.fit_inverse_transform is False
    assert not hasattr(peer, "dual_coef_")
    assert_close(peer.transform(X), model.transform(X), "float64")
    with pytest.raises(NotFittedError):
        peer.inverse_transform(model.transform(X))


@pytest.mark.parametrize("settings", [{}, {"whiten": True}, {"scale": True}, {"scale": True, "whiten": True}], ids=str)
def test_the_peer_of_a_pca_has_its_scores_both_ways(dtype, settings):
    X, X_new = data(dtype=dtype), data(9, seed=1, dtype=dtype)
    model = PCA(3, svd_solver="dual", **settings).fit(X)
    peer = model.as_sklearn()
    assert isinstance(peer, Pipeline if "scale" in settings else sklearn.decomposition.PCA)
    scores = model.transform(X_new)
    assert_close(peer.transform(X_new), scores, dtype)
    assert_close(peer.inverse_transform(scores), model.inverse_transform(scores), dtype)
    assert clone(peer).fit(X) is not None
    if not settings:
        assert_close(peer.score_samples(X_new), model.score_samples(X_new), dtype)


def test_what_the_peer_cannot_say_is_refused():
    X = data()
    for kernel in ("matern", "laplacian", kernels.RBF() + kernels.Linear()):
        with pytest.raises(InvalidParameterError, match="no kernel for"):
            KernelPCA(2, kernel=kernel).fit(X).as_sklearn()
    for estimator in (KernelPCA(2), PCA(2)):
        with pytest.raises(NotFittedError):
            estimator.as_sklearn()


LOSING = {
    "linear": (KernelPCA(3), 1e4, "float32"),
    "rbf": (KernelPCA(3, kernel="rbf"), 1e7, "float64"),
    "flat": (KernelPCA(3, kernel="rbf", gamma=1e-8), 0.0, "float32"),
    "flat, reported": (KernelPCA(3, kernel="rbf", gamma=1e-6), 0.0, "float32"),
    "PCA": (PCA(3), 1e7, "float32"),
    "PCA, whitened": (PCA(3, whiten=True), 1e13, "float64"),
    "PCA, scaled": (PCA(3, scale=True), 1e6, "float32"),
}


def exported(model: Any, X: np.ndarray) -> tuple[Any, Any, list[str]]:
    """A model fitted to X, its peer (None where it was refused), and what was said of their difference."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = clone(model).fit(X)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            peer = model.as_sklearn()
        except InvalidParameterError as error:
            return model, None, [str(error)]
    assert {warning.category for warning in caught} <= {PrecisionWarning}
    return model, peer, [f"{warning.message} {warning.message.details}" for warning in caught]


@pytest.mark.parametrize("name", LOSING)
def test_a_peer_with_other_scores_is_reported_or_refused_with_the_difference(name):
    model, offset, dtype = LOSING[name]
    X = (data(60) + offset).astype(dtype)
    model, peer, messages = exported(model, X)
    assert len(messages) == 1
    assert re.search(r"differ from those of the model .*(by |relative_difference=)\d", messages[0])
    if peer is not None:
        scores = model.transform(X)
        assert np.abs(peer.transform(X) - scores).max() < 0.08 * np.abs(scores).max()


@each("offset", [0.0, 1e2, 1e4, 1e6])
@each("model", [KernelPCA(3), KernelPCA(3, kernel="rbf"), PCA(3)], ids=str)
def test_a_peer_without_a_report_has_the_scores(dtype, model, offset):
    X = (data(60) + offset).astype(dtype)
    model, peer, messages = exported(model, X)
    assert offset > 0.0 or not messages
    if not messages:
        scores = model.transform(X)
        assert np.abs(peer.transform(X) - scores).max() <= 8 * np.sqrt(EPS[dtype]) * np.abs(scores).max()


def test_the_model_is_not_shared_with_its_peer():
    model = KernelPCA(2, kernel="rbf").fit(data())
    before = model.transform(data())
    peer = model.as_sklearn()
    for array in (peer.X_fit_, peer.eigenvectors_, peer.eigenvalues_):
        array += 1.0
    np.testing.assert_array_equal(model.transform(data()), before)


# -- from scikit-learn -------------------------------------------------------------------------------------------------

PEERS = {
    "linear": ({"kernel": "linear"}, data),
    "linear, inverse": ({"kernel": "linear", "fit_inverse_transform": True}, data),
    "poly": ({"kernel": "poly", "degree": 2, "coef0": 0.5}, data),
    "rbf, inverse": ({"kernel": "rbf", "gamma": 0.3, "fit_inverse_transform": True, "alpha": 0.1}, data),
    "rbf, flat": ({"kernel": "rbf", "gamma": 1e-4}, data),
    "cosine": ({"kernel": "cosine"}, data),
    "sigmoid": ({"kernel": "sigmoid", "gamma": 0.01}, data),
    "precomputed": ({"kernel": "precomputed"}, lambda: data() @ data().T),
    "function": ({"kernel": minimum, "kernel_params": {"power": 2.0}}, data),
    "ignored": ({"kernel": "rbf", "kernel_params": {"nu": 1}}, data),
    "sparse": ({"kernel": "rbf"}, lambda: scipy.sparse.random(40, 6, 0.4, format="csr", random_state=0)),
    "float32": ({"kernel": "rbf"}, lambda: data(dtype="float32")),
    "arpack": ({"kernel": "rbf", "eigen_solver": "arpack", "random_state": 0}, data),
    "all": ({"kernel": "rbf", "n_components": None}, lambda: data(8)),
}


@pytest.mark.parametrize("name", PEERS)
def test_a_kernel_pca_of_a_peer_has_its_scores(name, tmp_path):
    settings, make = PEERS[name]
    X = make()
    peer = Theirs(**{"n_components": 3, **settings}).fit(X)
    model = KernelPCA.from_sklearn(peer)
    dtype = str(peer.eigenvalues_.dtype)
    scores = peer.transform(X)
    assert_close(model.transform(X), scores, dtype, 1e5 if "flat" in name else 1e4)
    assert model.transform(X).dtype == scores.dtype
    if settings.get("fit_inverse_transform"):
        assert_close(model.inverse_transform(scores), peer.inverse_transform(scores), dtype, 1e4)
        np.testing.assert_array_equal(model.denoise(X), model.inverse_transform(model.transform(X)))
    if "precomputed" not in name:
        K = model.kernel_(X)
        centered = K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean()
        errors = np.diag(centered) - np.sum(scores.astype(np.float64) ** 2, axis=1)
        size = 1e5 * EPS[dtype] * np.abs(np.diag(K)).max()
        np.testing.assert_allclose(model.feature_space_error(X), errors, rtol=0, atol=size)
    if name != "sigmoid":  # where the dense solver leaves negative eigenvalues out of the total
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            own = clone(model).fit(X)
        np.testing.assert_allclose(model.total_variance_, own.total_variance_, rtol=1e5 * EPS[dtype])
        assert_close(model.explained_variance_ratio_, own.explained_variance_ratio_, dtype, 1e5)
    assert model.converged_
    assert np.all(model.residual_norms_ <= 1e5 * EPS[dtype] * model.eigenvalues_[0])
    if name == "precomputed":
        assert_close(model.X_fit_, X, dtype)
    if name != "function":
        model.save(tmp_path / "m.npz")
        np.testing.assert_array_equal(gpukpca.load(tmp_path / "m.npz").transform(X), model.transform(X))
        if "inverse" not in name:
            assert_close(model.as_sklearn().transform(X), scores, dtype, 1e5 if "flat" in name else 1e4)


def test_residuals_show_a_poor_peer():
    X = np.random.default_rng(0).standard_normal((200, 30))
    peer = Theirs(10, kernel="rbf", eigen_solver="randomized", iterated_power=0, random_state=0).fit(X)
    model = KernelPCA.from_sklearn(peer)
    assert not model.converged_
    assert model.residual_norms_.max() > 1e-3 * model.eigenvalues_[0]


@pytest.mark.parametrize("settings", [{}, {"whiten": True}, {"n_components": 0.9}, {"svd_solver": "arpack"}], ids=str)
def test_a_pca_of_a_peer_has_its_scores(dtype, settings, tmp_path):
    X = data(dtype=dtype)
    peer = sklearn.decomposition.PCA(**{"n_components": 3, **settings}).fit(X)
    model = PCA.from_sklearn(peer)
    scores = peer.transform(X)
    assert_close(model.transform(X), scores, dtype)
    assert_close(model.inverse_transform(scores), peer.inverse_transform(scores), dtype)
    assert_close(model.as_sklearn().transform(X), scores, dtype)
    np.testing.assert_allclose(model.total_variance_, PCA().fit(X).total_variance_, rtol=100 * EPS[dtype])
    assert (model.residual_norms_, model.converged_, model.plan_) == (None, None, None)
    model.save(tmp_path / "m.npz")
    np.testing.assert_array_equal(gpukpca.load(tmp_path / "m.npz").transform(X), model.transform(X))


def test_only_fitted_peers_are_taken():
    X = data()
    for ours, theirs in ((KernelPCA, Theirs), (PCA, sklearn.decomposition.PCA)):
        with pytest.raises(NotFittedError):
            ours.from_sklearn(theirs())
        for other in (ours(2).fit(X), None, theirs):
            with pytest.raises(InvalidParameterError, match="from_sklearn takes a fitted"):
                ours.from_sklearn(other)


# -- exported ----------------------------------------------------------------------------------------------------------


@each(
    "model",
    [KernelPCA(3, kernel="rbf"), KernelPCA(3), KernelPCA(3, kernel="cosine"), PCA(3, whiten=True), PCA(3, scale=True)],
    ids=str,
)
def test_a_peer_becomes_an_onnx_graph(dtype, model):
    skl2onnx = pytest.importorskip("skl2onnx")
    runtime = pytest.importorskip("onnxruntime")
    X = data(dtype=dtype)
    scores = clone(model).fit(X).transform(X)
    graph = skl2onnx.to_onnx(clone(model).fit(X).as_sklearn(), X[:1])
    session = runtime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    assert_close(session.run(None, {"X": X})[0], scores, dtype, 1e4)


@pytest.mark.parametrize(
    "of", [lambda module: module.KernelPCA(2), lambda module: module.PCA(2)], ids=["kernel", "linear"]
)
def test_a_model_of_a_peer_has_the_attributes_of_a_fit(rng, of):
    X = rng.standard_normal((30, 4))
    converted = type(of(gpukpca)).from_sklearn(of(sklearn.decomposition).fit(X))
    fitted = {name for name in vars(of(gpukpca).fit(X)) if name.endswith("_")}
    assert {name for name in vars(converted) if name.endswith("_")} >= fitted
