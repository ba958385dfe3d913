"""Kernels that fall with the distance: samples that are all alone, and new points far from all of them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from gpukpca import KernelPCA, Nystrom, kernels
from gpukpca.backend import blocking
from gpukpca.exceptions import PrecisionWarning
from tests.each import covering, each


def data(n: int = 80, d: int = 4, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, d))


def messages(call: Any) -> list[str]:
    return [str(warning) for warning in precision_warnings(call)]


def precision_warnings(call: Any) -> list[PrecisionWarning]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [warning.message for warning in caught if isinstance(warning.message, PrecisionWarning)]


SHARP = {
    "rbf": {"kernel": "rbf", "gamma": 1e4},
    "laplacian": {"kernel": "laplacian", "gamma": 1e3},
    "matern": {"kernel": "matern", "gamma": 1e4},
    "object": {"kernel": 3.0 * kernels.RBF(1e4)},
    "sum": {"kernel": kernels.RBF(1e4) + kernels.RBF(1e3)},
}


@each("name, solver, n_components", covering(SHARP, ["dense", "randomized"], [2, None, 0.5]))
def test_a_kernel_matrix_near_the_identity_is_reported_with_advice(xp, dtype, name, solver, n_components):
    model = KernelPCA(n_components, eigen_solver=solver, random_state=0, **SHARP[name])
    X = xp.array(data(), dtype)
    (message,) = messages(lambda: model.fit(X))
    assert message.startswith("K is nearly the identity")
    assert 'gamma="scale"' in message


@pytest.mark.parametrize("name", ["rbf", "laplacian"])
def test_columns_of_different_units_are_to_be_standardized(xp, dtype, name):
    """One column decides all distances, so that no gamma helps."""
    kernel = {"kernel": name, "gamma": 1.0}
    for d, column in ((6, 2), (2, 0)):
        X = data(90, d)
        X[:, column] *= 1e4
        with pytest.warns(PrecisionWarning, match="one column varies more than 10 times as much as most") as caught:
            KernelPCA(2, **kernel).fit(xp.array(X, dtype))
        assert [warning.message.values["column"] for warning in caught] == [column]
        message = str(caught[0].message)
        assert "StandardScaler" in message
        assert "gamma" not in message
        scaled = (X - X.mean(axis=0)) / X.std(axis=0)
        (message,) = messages(lambda X=scaled: KernelPCA(2, kernel=name, gamma=1e4).fit(xp.array(X, dtype)))
        assert 'gamma="scale"' in message
        assert "column" not in message
    if xp.name == "numpy":  # to center the columns of CSR rows would fill them
        (message,) = messages(lambda: KernelPCA(2, **kernel).fit(scipy.sparse.csr_array(X.astype(dtype))))
        assert 'gamma="scale"' in message


@pytest.mark.parametrize(
    ("settings", "make"),
    [
        ({"kernel": "rbf"}, data),
        ({"kernel": "rbf"}, lambda: data(80, 100)),
        ({"kernel": "rbf", "gamma": 1e-6}, data),
        ({"kernel": "laplacian", "gamma": "scale"}, lambda: scipy.sparse.random(90, 500, 0.02, random_state=0).tocsr()),
        ({"kernel": "rbf", "gamma": "scale"}, lambda: scipy.sparse.random(90, 500, 0.02, random_state=0).tocsr()),
        ({"kernel": "linear"}, lambda: data(80, 2000)),
        ({"kernel": "cosine"}, lambda: data(80, 2000)),
        ({"kernel": "rbf", "gamma": 1e3}, lambda: np.repeat(data(8), 10, axis=0) + 1e-3 * data()),
    ],
    ids=["plain", "wide", "flat", "sparse Laplacian", "sparse", "linear", "cosine", "clusters"],
)
def test_other_kernel_matrices_are_not_reported(settings, make):
    assert messages(lambda: KernelPCA(2, **settings).fit(make())) == []


def test_a_given_identity_is_not_a_matter_of_gamma():
    (message,) = messages(lambda: KernelPCA(2, kernel="precomputed").fit(np.eye(80)))
    assert "not separately determined" in message


FAR = {
    "rbf": {"kernel": "rbf", "gamma": 0.3},
    "laplacian": {"kernel": "laplacian", "gamma": 0.3},
    "matern": {"kernel": "matern", "gamma": 0.3},
    "sum": {"kernel": kernels.RBF(0.3) + kernels.RBF(0.2)},
}


@each("p", [1, 3])
@each("name", FAR)
def test_new_points_far_from_all_data_are_reported_once(xp, dtype, name, p):
    model = KernelPCA(p, **FAR[name]).fit(xp.array(data(), dtype))
    new = data(30, seed=1)
    new[[7, 11]] += 1e4
    scores = []
    (warning,) = precision_warnings(lambda: scores.append(model.transform(xp.array(new, dtype))))
    assert "so far from all training rows" in str(warning)
    assert warning.values == {"rows": [7, 11], "n_rows": 30}
    far = xp.host(scores[0])[[7, 11]]
    np.testing.assert_allclose(far, np.broadcast_to(-xp.host(model.offset_), far.shape), rtol=1e-6)
    assert messages(lambda: model.transform(xp.array(data(30, seed=1), dtype))) == []


def test_panels_of_rows_report_together(tmp_path, monkeypatch):
    monkeypatch.setattr(blocking, "SCORES_PANEL", 8)
    model = KernelPCA(2, kernel="rbf").fit(data())
    new = data(30, seed=1)
    new[[9, 29]] = 1e6
    (warning,) = precision_warnings(lambda: model.transform(new, out=np.empty((30, 2))))
    assert warning.values == {"rows": [9, 29], "n_rows": 30}


def test_sparse_points_far_from_all_data_are_reported():
    X = scipy.sparse.random(60, 30, 0.2, format="csr", random_state=0)
    model = KernelPCA(2, kernel="rbf", gamma="scale").fit(X)
    assert messages(lambda: model.transform(X)) == []
    (message,) = messages(lambda: model.transform(1e4 * X))
    assert "so far from all training rows" in message


def test_a_point_amid_symmetric_data_is_not_far():
    X = np.concatenate([data(), -data()])  # of k(0, X) nothing is left along odd components
    model = KernelPCA(1, kernel="rbf").fit(X)
    assert messages(lambda: model.transform(np.zeros((1, 4)))) == []


@pytest.mark.parametrize("settings", [{"kernel": "linear"}, {"kernel": "poly"}, {"kernel": "sigmoid", "gamma": 1e-3}])
def test_kernels_that_do_not_fall_report_nothing(settings):
    model = KernelPCA(2, **settings).fit(data())
    assert messages(lambda: model.transform(data() + 1e3)) == []


def test_landmarks_are_not_all_of_the_data():
    model = KernelPCA(2, kernel="rbf", gamma=30.0, eigen_solver=Nystrom(rank=5), random_state=0)
    (message,) = messages(lambda: model.fit(data()))
    assert message.startswith("K is nearly the identity")
    assert messages(lambda: model.transform(data())) == []
