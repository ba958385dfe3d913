"""Local PCA: EM against explicit covariances, monotone, independent of units, better than PCA."""

from __future__ import annotations

import pickle
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.decomposition import PCA as Peer
from sklearn.exceptions import NotFittedError
from sklearn.mixture import GaussianMixture

from gpukpca import PCA, LocalPCA
from gpukpca.algorithms.mixture.assignment import ASSIGNMENTS
from gpukpca.algorithms.mixture.cluster import fit_cluster
from gpukpca.algorithms.mixture.initialization import kmeans_plusplus, start_labels
from gpukpca.algorithms.mixture.iteration import ClusterIteration, IterationSettings
from gpukpca.algorithms.mixture.scaled_rows import RowScaling, ScaledRows, rotate_into_span
from gpukpca.algorithms.mixture.selection import free_parameters
from gpukpca.backend import blocking
from gpukpca.backend.namespace import indices
from gpukpca.exceptions import (
    ConvergenceWarning,
    InvalidParameterError,
    MemoryBudgetError,
    PrecisionWarning,
    RankWarning,
)
from tests import tolerances
from tests.datasets import parallel_clusters, spiral
from tests.each import each

METHODS = ("mixture", "hard")
FLOATS = ("weights_", "means_", "components_", "explained_variance_", "noise_variance_")


def generated(n: int, k: int, p: int, d: int, seed: int, apart: float = 6.0, noise: float = 0.2):
    """Return n rows of a mixture of k probabilistic PCAs whose weights differ, and their labels."""
    rng = np.random.default_rng(seed)
    shares = np.arange(k, 2 * k, dtype=np.float64)[::-1]
    labels = np.repeat(np.arange(k), np.round(n * shares / shares.sum()).astype(int))
    rows = np.empty((len(labels), d))
    for c in range(k):
        Q = np.linalg.qr(rng.standard_normal((d, d)))[0][:, :p] * np.linspace(2.0, 1.0, p)
        m = int(np.sum(labels == c))
        mean = apart * rng.standard_normal(d)
        rows[labels == c] = mean + rng.standard_normal((m, p)) @ Q.T + noise * rng.standard_normal((m, d))
    return rows, labels


@pytest.fixture(scope="module")
def X():
    return generated(120, 3, 2, 5, 0)[0]


def squared_error(model, X) -> float:
    return float(np.mean(np.sum((np.asarray(model.denoise(X)) - X) ** 2, axis=1)))


def covariances(model):
    """Yield the covariance matrix of every cluster, from its fitted numbers."""
    for V, values, noise in zip(model.components_, model.explained_variance_, model.noise_variance_, strict=True):
        yield V.T @ np.diag(values - noise) @ V + noise * np.eye(V.shape[1])


def oracle_step(X, weights, means, covs, p):
    """One EM iteration with explicit covariances: (log-likelihood of a row, weights, means, covariances)."""
    joint = np.stack(
        [np.log(w) + multivariate_normal(m, C).logpdf(X) for w, m, C in zip(weights, means, covs, strict=True)], axis=1
    )
    total = np.logaddexp.reduce(joint, axis=1)
    R = np.exp(joint - total[:, None])
    new_means, new_covs = [], []
    for r in R.T:
        mean = r @ X / r.sum()
        S = (X - mean).T @ np.diag(r) @ (X - mean) / r.sum()
        values, V = np.linalg.eigh(S)
        noise = values[:-p].mean()
        new_means.append(mean)
        new_covs.append(V[:, -p:] @ np.diag(values[-p:] - noise) @ V[:, -p:].T + noise * np.eye(X.shape[1]))
    return total.mean(), R.mean(axis=0), np.array(new_means), np.array(new_covs)


# -- against other ways ------------------------------------------------------------------------------------------------


def test_em_is_that_of_explicit_covariances(xp, rng):
    """Three iterations from a start where the clusters lie in each other."""
    X = rng.standard_normal((90, 4)) * [3.0, 2.0, 1.0, 0.5] + 5.0
    rows = xp.array(X)
    frame = RowScaling.of(rows, rows[:0, 0])
    labels = rng.integers(0, 3, 90)
    task = IterationSettings(ASSIGNMENTS["mixture"], 2, 1e-9, 0.0)
    run = ClusterIteration(ScaledRows(rows, frame), task, indices(labels, rows))
    R = np.eye(3)[labels]
    weights, means = R.mean(axis=0), (R.T @ X) / R.sum(axis=0)[:, None]
    covs = []
    for r, mean in zip(R.T, means, strict=True):
        values, V = np.linalg.eigh((X - mean).T @ np.diag(r) @ (X - mean) / r.sum())
        covs.append((V[:, 2:] * (values[2:] - values[:2].mean())) @ V[:, 2:].T + values[:2].mean() * np.eye(4))
    for most in (1, 2, 3):
        value, weights, means, covs = oracle_step(X, weights, means, covs, 2)
        units = 4 * np.log(frame.factor)
        assert run.value + units == pytest.approx(value, rel=1e-12)
        run.advance(most)
        for cluster, weight, mean, C in zip(run.clusters, weights, means, covs, strict=True):
            assert cluster.weight == pytest.approx(weight, rel=1e-11)
            np.testing.assert_allclose(xp.host(frame.in_data_units(cluster.mean[None, :]))[0], mean, rtol=1e-11)
            V = xp.host(cluster.axes)
            mine = V.T @ np.diag(cluster.variances - cluster.noise) @ V + cluster.noise * np.eye(4)
            np.testing.assert_allclose(mine / frame.factor**2, C, atol=1e-10)


def test_planes_of_all_directions_but_one_are_full_gaussians():
    """With p = d - 1 a probabilistic PCA is any Gaussian: the same optimum as scikit-learn's mixture."""
    X, _ = generated(300, 2, 1, 2, 3, noise=0.5)
    model = LocalPCA(2, 1, tol=1e-10, random_state=0).fit(X)
    peer = GaussianMixture(2, tol=1e-12, reg_covar=0.0, random_state=0, max_iter=1000).fit(X)
    order = np.argsort(-peer.weights_)
    assert model.score(X) == pytest.approx(peer.score(X), rel=1e-8)
    np.testing.assert_allclose(model.weights_, peer.weights_[order], atol=1e-5)
    np.testing.assert_allclose(model.means_, peer.means_[order], atol=1e-4)
    np.testing.assert_allclose(list(covariances(model)), peer.covariances_[order], atol=1e-3)
    np.testing.assert_allclose(model.predict_proba(X), peer.predict_proba(X)[:, order], atol=1e-4)
    assert model.bic_[2, 1] == pytest.approx(peer.bic(X), rel=1e-8)


@pytest.mark.parametrize("method", METHODS)
def test_one_cluster_is_pca(xp, dtype, X, method):
    rows = X.astype(dtype)
    model = LocalPCA(1, 2, method=method, n_init=1).fit(xp.array(rows))
    peer = Peer(2, svd_solver="full").fit(rows.astype(np.float64))
    n, allowed = len(X), 100 * tolerances.eps(dtype)
    largest = peer.explained_variance_[0]
    np.testing.assert_allclose(xp.host(model.means_)[0], peer.mean_, rtol=1e-12)
    np.testing.assert_allclose(
        xp.host(model.explained_variance_)[0], peer.explained_variance_ * (n - 1) / n, atol=allowed * largest
    )
    assert float(model.noise_variance_[0]) == pytest.approx(peer.noise_variance_ * (n - 1) / n, rel=20 * allowed)
    np.testing.assert_allclose(xp.host(model.components_)[0], peer.components_, atol=20 * allowed)
    scores = model.transform(xp.array(rows))
    assert xp.owns(scores)
    np.testing.assert_allclose(xp.host(scores), peer.transform(rows), atol=30 * allowed * np.sqrt(largest))
    points_ = peer.inverse_transform(peer.transform(rows.astype(np.float64)))
    np.testing.assert_allclose(xp.host(model.inverse_transform(scores)), points_, atol=200 * allowed)
    np.testing.assert_allclose(xp.host(model.denoise(xp.array(rows))), points_, atol=200 * allowed)
    if method == "mixture":
        C = next(covariances(LocalPCA(1, 2).fit(rows.astype(np.float64))))
        reference = multivariate_normal(peer.mean_, C).logpdf(rows.astype(np.float64))
        np.testing.assert_allclose(xp.host(model.score_samples(xp.array(rows))), reference, atol=300 * allowed)


@pytest.mark.parametrize("method", METHODS)
def test_every_library_finds_the_same(xp, dtype, X, method):
    rows = X.astype(dtype)
    model, wide = (
        LocalPCA(3, 2, method=method, n_init=2, random_state=0).fit(data)
        for data in (xp.array(rows), rows.astype(np.float64))
    )
    for name in (*FLOATS, "labels_"):
        value, reference = getattr(model, name), getattr(wide, name)
        assert xp.owns(value), name
        kind = "int64" if name == "labels_" else "float64" if name == "means_" else dtype
        assert str(value.dtype).endswith(kind), name
        allowed = 1e3 * tolerances.eps(dtype) * max(1.0, np.max(np.abs(reference)))
        np.testing.assert_allclose(xp.host(value), reference, atol=allowed, err_msg=name)
    labels, chances = model.predict(xp.array(rows)), model.predict_proba(xp.array(rows))
    assert xp.owns(labels)
    np.testing.assert_array_equal(xp.host(labels), xp.host(model.labels_))
    np.testing.assert_array_equal(np.argmax(xp.host(chances), axis=1), xp.host(labels))
    np.testing.assert_allclose(np.sum(xp.host(chances), axis=1), 1.0, rtol=10 * tolerances.eps(dtype))
    V = xp.host(model.components_).astype(np.float64)
    allowed = tolerances.orthogonality(dtype, xp.name)
    np.testing.assert_allclose(V @ V.transpose(0, 2, 1), np.tile(np.eye(2), (3, 1, 1)), atol=allowed)
    back = model.inverse_transform(model.transform(xp.array(rows)), labels)
    np.testing.assert_allclose(xp.host(back), xp.host(model.denoise(xp.array(rows))), atol=200 * tolerances.eps(dtype))


@pytest.mark.parametrize("method", METHODS)
def test_wide_data_are_the_same_by_way_of_their_span(xp, rng, method):
    """More features than rows: rotated, and directly in all directions."""
    X = np.concatenate([rng.standard_normal((12, 40)) * 0.2 + c * rng.standard_normal(40) for c in (1.0, 3.0)])
    rows = xp.array(X)
    frame = RowScaling.of(rows, rows[:0, 0])
    direct = ScaledRows(rows, frame)
    spanned, Q = rotate_into_span(direct, 2)
    assert spanned.shape[1] < 40
    task = IterationSettings(ASSIGNMENTS[method], 2, 1e-6 * frame.variance, 0.0)
    runs = [ClusterIteration(way, task, indices(np.repeat([0, 1], 12), rows)) for way in (direct, spanned)]
    for run in runs:
        run.advance(5)
    assert runs[0].value == pytest.approx(runs[1].value, rel=1e-11)
    for one, other in zip(*(run.clusters for run in runs), strict=True):
        assert one.noise == pytest.approx(other.noise, rel=1e-11)
        np.testing.assert_allclose(one.variances, other.variances, rtol=1e-11)
        np.testing.assert_allclose(xp.host(one.mean), xp.host(Q @ other.mean), atol=1e-13)
    model = LocalPCA(2, 2, method=method, random_state=0).fit(rows)
    V = xp.host(model.components_)
    assert np.all(np.max(V, axis=2) == np.max(np.abs(V), axis=2))
    values = getattr(model, "log_likelihoods_" if method == "mixture" else "errors_")
    assert abs(model.score(rows)) == pytest.approx(abs(float(values[-1])), rel=1e-9)


# -- promises of the iteration -----------------------------------------------------------------------------------------


def singular_sets(rng):
    """Return data whose covariances are singular, one way or another."""
    plane = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 5))
    constant = rng.standard_normal((60, 5))
    constant[:, 1:3] = 7.25
    copies = np.repeat(rng.standard_normal((10, 4)), 6, axis=0)
    lines = np.concatenate([np.outer(rng.standard_normal(30), v) + 4 * v[::-1] for v in rng.standard_normal((2, 3))])
    spread = rng.standard_normal((60, 4)) * [1e6, 1.0, 1e-6, 0.0]
    return {"plane": plane, "constant": constant, "copies": copies, "lines": lines, "units": spread}


@pytest.mark.filterwarnings("ignore::gpukpca.exceptions.RankWarning")
@pytest.mark.filterwarnings("ignore::gpukpca.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["plane", "constant", "copies", "lines", "units", "noise", "clusters"])
def test_no_iteration_makes_it_worse(rng, X, method, name):
    sets = singular_sets(rng) | {"noise": rng.standard_normal((80, 4)), "clusters": X}
    model = LocalPCA(3, 2, method=method, max_iter=25, tol=1e-9, n_init=1, random_state=0).fit(sets[name])
    history = -model.errors_ if method == "hard" else model.log_likelihoods_
    assert np.all(np.diff(history) >= 0)
    for attribute in FLOATS:
        assert np.all(np.isfinite(getattr(model, attribute)))
    assert np.all(model.noise_variance_ > 0)
    assert np.all(np.isfinite(model.score_samples(sets[name])))
    assert np.sum(model.weights_) == pytest.approx(1.0)


@pytest.mark.parametrize("method", METHODS)
def test_the_iteration_ends_where_it_gains_no_more_than_the_tolerance(method):
    X, tol = 1e3 * np.random.default_rng(0).standard_t(2.5, (400, 4)), 1e-3
    model = LocalPCA(3, 1, method=method, n_init=1, tol=tol, random_state=0).fit(X)
    if method == "hard":
        gains, least = -np.diff(model.errors_), tol * np.sum(np.var(X, axis=0))
    else:
        gains, least = np.diff(model.log_likelihoods_), tol
    assert model.converged_
    assert len(gains) == model.n_iter_ > 5
    assert gains[-1] <= least
    assert np.all(gains[:-1] > least)


def test_the_last_value_is_the_score_and_another_method_has_another_history(X):
    mixture, hard = (LocalPCA(3, 2, method=method, random_state=0).fit(X) for method in METHODS)
    assert mixture.score(X) == pytest.approx(mixture.log_likelihoods_[-1], rel=1e-12)
    assert hard.score(X) == pytest.approx(-hard.errors_[-1], rel=1e-12)
    assert hard.errors_[-1] == pytest.approx(squared_error(hard, X), rel=1e-12)
    assert not hasattr(hard, "log_likelihoods_")
    assert not hasattr(mixture.set_params(method="hard").fit(X), "log_likelihoods_")


def test_the_m_step_is_the_best_under_the_floor(rng):
    """No other noise and no other axes within the floor explain the weighted rows better."""
    X = rng.standard_normal((40, 3)) * [2.0, 0.3, 0.01]
    frame = RowScaling(np.zeros(3), 1.0, 1.0)
    floor, weights = 0.05, rng.random(40)
    mean = weights @ X / weights.sum()
    best = fit_cluster(ScaledRows(X, frame), weights, mean, float(weights.sum()), 2, floor, 1)
    assert best.noise == floor
    assert best.variances[1] >= floor

    def worth(cluster):
        return float(weights @ cluster.joint_log_density(X))

    for _ in range(200):
        Q = np.linalg.qr(best.axes.T + 0.1 * rng.standard_normal((3, 2)))[0].T
        noise = floor * (1 + rng.exponential(0.2))
        variances = np.maximum(best.variances * rng.uniform(0.7, 1.4, 2), noise)
        assert worth(replace(best, axes=Q, noise=noise, variances=variances)) <= worth(best) + 1e-9


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("change", ["rows", "rotation", "offset", "scale", "panels", "threads", "solver", "nothing"])
def test_what_must_not_matter_does_not(X, rng, method, change, monkeypatch):
    Q = np.linalg.qr(rng.standard_normal((5, 5)))[0]
    other, factor, allowed = {
        "rows": (X[rng.permutation(len(X))], 1.0, 1e-10),
        "rotation": (X @ Q, 1.0, 1e-10),
        "offset": (X + 2.0**27, 1.0, 1e-6),
        "scale": (X * 2.0**300, 2.0**300, 0.0),
        "panels": (X, 1.0, 1e-10),
        "threads": (X, 1.0, 1e-10),
        "solver": (X, 1.0, 1e-10),
        "nothing": (X, 1.0, 0.0),
    }[change]
    model = LocalPCA(3, 2, method=method, random_state=1, n_init=1, tol=0.0, max_iter=500)
    twin = clone(model).set_params(n_jobs=2 if change == "threads" else None)
    model.fit(X)
    if change == "threads":
        monkeypatch.setattr(blocking, "MULTIPLICATIONS_A_THREAD", 1)
    if change == "panels":
        monkeypatch.setattr(blocking, "MIXTURE_ENTRIES", blocking.PerDevice(1, 1))
        monkeypatch.setattr(blocking, "SMALLEST_MIXTURE_PANEL", 7)
    if change == "solver":  # of large covariances
        monkeypatch.setattr(blocking, "MIXTURE_HOST_UP_TO", 0)
    twin.fit(other)
    for name in ("weights_", "explained_variance_", "noise_variance_"):
        units = 1.0 if name == "weights_" else factor
        mine = getattr(twin, name) / units / units
        np.testing.assert_allclose(mine, getattr(model, name), rtol=allowed, err_msg=name)
    assert twin.score(other) == pytest.approx(
        model.score(X) * factor**2 if method == "hard" else model.score(X) - 5 * np.log(factor), rel=max(allowed, 1e-12)
    )


def test_float32_far_from_zero(rng):
    X = (generated(90, 2, 1, 3, 5)[0] + 1e4).astype(np.float32)
    model, wide = (LocalPCA(2, 1, random_state=0).fit(rows) for rows in (X, X.astype(np.float64)))
    np.testing.assert_allclose(model.means_, wide.means_, rtol=1e-14)
    np.testing.assert_allclose(model.noise_variance_, wide.noise_variance_, rtol=1e-6)
    np.testing.assert_allclose(model.transform(X), wide.transform(X.astype(np.float64)), atol=1e-5)


# -- empty clusters, few rows ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_fewer_different_rows_than_clusters(xp, method):
    X = np.repeat([[0.0, 0.0, 1.0], [5.0, 1.0, 0.0]], 8, axis=0)
    with pytest.warns(RankWarning, match="fewer clusters are left") as caught:
        model = LocalPCA(4, 1, method=method, random_state=0).fit(xp.array(X))
    assert caught[0].message.values == {"left": 2, "n_clusters": 4, "n_components": 1}
    assert model.n_clusters_ == 2
    assert len(set(xp.host(model.labels_).tolist())) == 2
    np.testing.assert_allclose(xp.host(model.denoise(xp.array(X))), X, atol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_an_empty_cluster_moves_to_the_worst_row_once_and_is_then_dropped(X, method):
    frame = RowScaling.of(X, X[:0, 0])
    rows = ScaledRows(X, frame)
    run = ClusterIteration(
        rows,
        IterationSettings(ASSIGNMENTS[method], 2, 1e-6 * frame.variance, 0.0),
        start_labels(rows, 3, np.random.default_rng(0)),
    )
    away = replace(run.clusters[0], mean=run.clusters[0].mean + 1e3, weight=1e-9)
    run.clusters = [*run.clusters[:2], away]
    run._assign()
    # Moved, it finds the rows that no cluster explains.
    run.advance(30)
    assert len(run.clusters) == 3
    assert [cluster.reseeded for cluster in run.clusters] == [False, False, True]
    assert min(run.responsibilities.counts) >= 3
    run.clusters = [*run.clusters[:2], replace(away, reseeded=True)]
    run._assign()
    assert len(run.clusters) == 2
    assert sum(cluster.weight for cluster in run.clusters) == pytest.approx(1.0)


@each("method", METHODS)
@each("rows", [np.ones((1, 4)), np.full((9, 3), 0.1), np.zeros((5, 2))])
def test_no_variance_at_all(xp, method, rows):
    with pytest.warns(RankWarning, match="every variance is 0"):
        model = LocalPCA(1, 1, method=method, n_init=1).fit(xp.array(rows))
    for name in FLOATS:
        assert np.all(np.isfinite(xp.host(getattr(model, name))))
    np.testing.assert_allclose(xp.host(model.denoise(xp.array(rows))), rows, rtol=1e-15)
    assert np.isfinite(model.score(xp.array(rows)))


# -- choosing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_bic_finds_clusters_and_dimension(method):
    X, labels = generated(180, 3, 2, 5, seed=0)
    model = LocalPCA([2, 3, 4], [1, 2, 3], method=method, n_init=2, tol=1e-3, random_state=0).fit(X)
    assert (model.n_clusters_, model.n_components_) == (3, 2)
    assert sorted(model.bic_) == [(k, p) for k in (2, 3, 4) for p in (1, 2, 3)]
    assert min(model.bic_, key=model.bic_.get) == (3, 2)
    assert np.mean(model.labels_ == labels) > 0.99  # the heaviest first in both


def test_a_pair_is_fitted_as_if_it_were_alone(X):
    several = LocalPCA([1, 3], "bic", random_state=4).fit(X)
    alone = LocalPCA(3, several.n_components_, random_state=4).fit(X)
    assert several.bic_[3, several.n_components_] == alone.bic_[3, several.n_components_]
    np.testing.assert_array_equal(several.components_, alone.components_)
    assert {p for _, p in several.bic_} == {1, 2, 3, 4}


def test_bic_is_its_formula(X):
    model = LocalPCA(3, 2, random_state=0).fit(X)
    n, d = X.shape
    free = 3 * (d * 2 - 1 + 1 + d) + 2
    assert free_parameters(3, 2, d) == free
    assert model.bic_ == {(3, 2): pytest.approx(-2 * n * model.score(X) + free * np.log(n))}
    hard = LocalPCA(3, 2, method="hard", random_state=0).fit(X)
    joint = [
        np.log(w) + multivariate_normal(m, C).logpdf(X)
        for w, m, C in zip(hard.weights_, hard.means_, covariances(hard), strict=True)
    ]
    own = np.array(joint)[hard.labels_, np.arange(n)]
    assert hard.bic_[3, 2] == pytest.approx(-2 * own.sum() + free * np.log(n))


def test_starts_are_different_rows_far_from_each_other(xp, rng):
    X = np.repeat(100.0 * rng.standard_normal((5, 3)), 8, axis=0) + 0.01 * rng.standard_normal((40, 3))
    rows = xp.array(X)
    points = ScaledRows(rows, RowScaling.of(rows, rows[:0, 0]))
    assert sorted(kmeans_plusplus(points, 5, np.random.default_rng(0)) // 8) == [0, 1, 2, 3, 4]
    labels = xp.host(start_labels(points, 5, np.random.default_rng(0))).reshape(5, 8)
    assert np.array_equal(np.sort(labels[:, 0]), np.arange(5))
    assert np.all(labels == labels[:, :1])


# -- reconstruction ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_clusters_and_curves_are_followed(method):
    for X, k in ((parallel_clusters(300, 3, 5.0)[0], 3), (spiral(400), 10)):
        whole = PCA(1).fit(X)
        error = np.mean(np.sum((whole.inverse_transform(whole.transform(X)) - X) ** 2, axis=1))
        assert squared_error(LocalPCA(k, 1, method=method, random_state=0).fit(X), X) < error / 5


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("method", METHODS)
def test_long_clusters_side_by_side_are_counted_and_separated(method, seed):
    X, truth = parallel_clusters()
    model = LocalPCA(2 if method == "hard" else [1, 2, 3], 1, method=method, random_state=seed).fit(X)
    assert model.n_clusters_ == 2
    assert np.mean(model.labels_ == truth) in (0.0, 1.0)


@pytest.mark.parametrize("seed", range(3))
def test_a_mixture_is_at_least_as_likely_as_em_from_the_hard_answer(seed):
    X, _ = parallel_clusters(200, 3, seed=seed)
    frame = RowScaling.of(X, X[:0])
    labels = LocalPCA(3, 1, method="hard", random_state=seed).fit(X).labels_
    settings = IterationSettings(ASSIGNMENTS["mixture"], 1, 1e-6 * frame.variance, 1e-4)
    run = ClusterIteration(ScaledRows(X, frame, None), settings, labels)
    run.advance(300)
    model = LocalPCA(3, 1, random_state=seed).fit(X)
    assert model.log_likelihoods_[-1] >= run.value + 2 * np.log(frame.factor) - 1e-3


@pytest.mark.real_data
@pytest.mark.parametrize("method", METHODS)
def test_usps_is_reconstructed_better_than_by_pca_of_equal_dimension(real_data, method):
    with np.load(real_data / "usps" / "usps.npz") as archive:
        X, X_new = archive["x_train"][:1000], archive["x_test"][:500]
    for K in (5, 10):
        whole = PCA(K).fit(X)
        error = np.mean(np.sum((whole.inverse_transform(whole.transform(X_new)) - X_new) ** 2, axis=1))
        model = LocalPCA(10, K, method=method, n_init=1, tol=1e-2 if method == "mixture" else 1e-3, random_state=0)
        assert squared_error(model.fit(X), X_new) < 0.8 * error


def test_samples_are_those_of_the_mixture(xp, X):
    model = LocalPCA(3, 2, random_state=0).fit(xp.array(X))
    drawn, labels = model.sample(40_000, random_state=1)
    assert xp.owns(drawn)
    assert xp.owns(labels)
    host, labels = xp.host(drawn), xp.host(labels)
    wide = LocalPCA(3, 2, random_state=0).fit(X)
    for c, C in enumerate(covariances(wide)):
        own = host[labels == c]
        assert len(own) / 40_000 == pytest.approx(wide.weights_[c], abs=0.01)
        np.testing.assert_allclose(own.mean(axis=0), wide.means_[c], atol=0.1)
        np.testing.assert_allclose(np.cov(own, rowvar=False), C, atol=0.06 * np.max(C))
    np.testing.assert_array_equal(
        xp.host(model.sample(5, random_state=3)[0]), xp.host(model.sample(5, random_state=3)[0])
    )
    np.testing.assert_array_equal(xp.host(model.sample(5)[0]), xp.host(model.sample(5, random_state=0)[0]))
    assert not hasattr(LocalPCA(method="hard"), "sample")
    with pytest.raises(InvalidParameterError, match="n_samples=0"):
        model.sample(0)


# -- coordinates and labels --------------------------------------------------------------------------------------------


def test_coordinates_without_labels_are_a_guess(X):
    model = LocalPCA(3, 2, random_state=0).fit(X)
    Z, labels = model.transform(X), model.predict(X)
    with pytest.warns(PrecisionWarning, match="the likeliest one is a guess"):
        assert model.inverse_transform(Z).shape == X.shape
    np.testing.assert_allclose(model.inverse_transform(Z, labels), model.denoise(X), atol=1e-13)
    assert LocalPCA(1, 2).fit(X).inverse_transform(Z).shape == X.shape  # one cluster: nothing to guess
    for wrong, text in [
        (labels[:2], "one a row"),
        (labels / 1.0, "integers"),
        (labels + 1, "from 0 to n_clusters_ - 1 = 2"),
        (labels - 1, "from 0 to n_clusters_ - 1 = 2"),
        (labels[:, None], "one a row"),
        (labels > 0, "integers"),
        (np.ma.masked_equal(labels, 1), "masked"),
    ]:
        with pytest.raises(InvalidParameterError, match=text):
            model.inverse_transform(Z, wrong)


# -- promises of every estimator ---------------------------------------------------------------------------------------


WRONG = [
    ({"n_clusters": 31}, np.asarray, InvalidParameterError, "n_clusters=31 must be at most n_samples=30"),
    ({"n_components": 4}, np.asarray, InvalidParameterError, "n_components=4 must be less than n_features=4"),
    ({"n_components": 3}, lambda X: X[:2], InvalidParameterError, "n_components=3 must be at most"),
    ({"n_clusters": True}, np.asarray, InvalidParameterError, "n_clusters=True"),
    ({"n_clusters": "aic"}, np.asarray, InvalidParameterError, 'or "bic"'),
    ({"n_components": [1, 0]}, np.asarray, InvalidParameterError, r"n_components=\[1, 0\]"),
    ({"memory_limit": 1000}, np.asarray, MemoryBudgetError, "2 clusters of 30 rows"),
    ({}, lambda X: np.where(X[4, 1] == X, np.nan, X), ValueError, "contains NaN"),
    ({}, lambda X: np.where(X[4, 1] == X, np.inf, X), ValueError, "contains infinity"),
    ({}, lambda X: np.ma.masked_less(X, 0.0), ValueError, "X has masked entries"),
    ({}, scipy.sparse.csr_array, TypeError, r"sparse input. Pass X.toarray\(\)"),
    ({}, lambda X: 1e306 * X, ValueError, "has no variances so large"),
]


@pytest.mark.parametrize(("parameters", "change", "kind", "fragment"), WRONG)
def test_what_cannot_be_fitted_changes_nothing(parameters, change, kind, fragment, rng):
    X = rng.standard_normal((30, 4))
    model = LocalPCA(2, 1, n_init=1, random_state=0).fit(X)
    before = dict(vars(model.set_params(**parameters)))
    with pytest.raises(kind, match=fragment):
        model.fit(change(X))
    assert vars(model) == before


def test_new_rows_that_cannot_be(xp, X):
    model = LocalPCA(random_state=0).fit(xp.array(X))
    for value, text in ((np.nan, "contains NaN"), (np.inf, "contains infinity"), (1e300, "too large")):
        with pytest.raises(ValueError, match=text):
            model.predict(xp.array(np.where(X[4, 1] == X, value, X)))
    with pytest.raises(NotFittedError):
        LocalPCA().predict(xp.array(X))


def test_huge_and_tiny_data_work(X):
    for exponent in (-1000, -450, 500):
        is_lost = exponent < -500
        with pytest.warns(PrecisionWarning, match="so small") if is_lost else nullcontext() as caught:
            model = LocalPCA(3, 2, random_state=0).fit(X * 2.0**exponent)
        assert not is_lost or caught[0].message.values["factor"] == "2**998"
        np.testing.assert_array_equal(model.labels_, LocalPCA(3, 2, random_state=0).fit(X).labels_)
    far = X * 2.0**507  # squared errors of rows are numbers, their sum is not
    assert np.isfinite(LocalPCA(1, 1, method="hard").fit(far).score(far))


def test_a_memory_map_is_read_by_panels(X, tmp_path):
    np.save(tmp_path / "rows.npy", X)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    model, whole = (LocalPCA(3, 2, random_state=0).fit(rows) for rows in (mapped, X))
    np.testing.assert_array_equal(model.components_, whole.components_)
    np.testing.assert_array_equal(model.transform(mapped), whole.transform(X))


def test_iterations_of_the_best_start_are_reported_to_the_last(rng):
    events, X = [], rng.standard_normal((60, 4))
    with pytest.warns(ConvergenceWarning, match="stopped after max_iter iterations"):
        model = LocalPCA(3, 1, max_iter=15, tol=0.0, random_state=0, verbose=events.append).fit(X)
    assert [event.done for event in events] == list(range(11, 16))  # after 10 of every start
    assert events[0].text.startswith("3 clusters, 1 components, iteration 11: ")
    assert (model.converged_, model.n_iter_, len(model.log_likelihoods_)) == (False, 15, 16)


@pytest.mark.parametrize("method", METHODS)
def test_a_device_that_works_is_used_and_results_come_home(cuda, X, method):
    model = LocalPCA(3, 2, method=method, device="cuda", random_state=0).fit(X)
    host = LocalPCA(3, 2, method=method, random_state=0).fit(X)
    assert model.device_.startswith("cuda")
    for name in (*FLOATS, "labels_"):
        assert isinstance(getattr(model, name), np.ndarray), name
        np.testing.assert_allclose(getattr(model, name), getattr(host, name), atol=1e-10, err_msg=name)
    for call in ("predict", "predict_proba", "transform", "denoise", "score_samples"):
        mine = getattr(model, call)(X)
        assert isinstance(mine, np.ndarray), call
        np.testing.assert_allclose(mine, getattr(host, call)(X), atol=1e-9, err_msg=call)
    np.testing.assert_allclose(pickle.loads(pickle.dumps(model)).transform(X), host.transform(X), atol=1e-9)
