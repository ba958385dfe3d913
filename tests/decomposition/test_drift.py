"""Streams that leave their landmarks are told so, with the shares of the first and last rows; no others are."""

from __future__ import annotations

import functools
import itertools
import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from gpukpca import Batches, KernelPCA, Nystrom, load
from gpukpca.algorithms.drift import WINDOW, Drift
from gpukpca.exceptions import PrecisionWarning
from gpukpca.kernels import RBF, Cosine, Laplacian, Polynomial
from tests.decomposition.test_pca_of_batches import Stored

LEAVES = "the stream leaves its landmarks"


@pytest.fixture
def X(rng):
    return rng.standard_normal((1200, 4)) * np.linspace(2.0, 0.5, 4)


def model_of(rank=30, kernel=None, **settings):
    solver = Nystrom(rank=rank, **settings.pop("how", {}))
    return KernelPCA(2, kernel=kernel or RBF(0.05), eigen_solver=solver, random_state=0, **settings)


def told(function):
    """Return the values of every warning that a stream leaves its landmarks, and let no other warning pass."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("error")
        warnings.filterwarnings("always", LEAVES, PrecisionWarning)
        function()
    return [one.message.values for one in caught]


def batches_told(model, batches):
    return list(itertools.chain.from_iterable(told(lambda batch=batch: model.partial_fit(batch)) for batch in batches))


def drift_of(model):
    return model._result.stream.drift


def shares(model):
    sums = drift_of(model).sums
    return sums[:, 0] / sums[:, 1]


def test_a_stream_that_drifts_is_told_so_whatever_its_batches_are(X):
    drifted = np.concatenate([X, X + 5.0])
    found, expected = {}, None
    for size in (30, 100, 600):
        model = model_of().partial_fit(X[:300])
        values = batches_told(model, np.split(drifted[300:], range(size, 2100, size)))
        found[size] = len(values)
        assert all(one["last"] > 2.0 * one["first"] + 0.02 for one in values)
        assert all(b["last"] > 2.0 * a["last"] for a, b in itertools.pairwise(values))  # told again where twice as bad
        assert f"the landmarks miss {shares(model)[2]:.2g} of the last rows" in model.solver_
        expected = drift_of(model).sums if expected is None else expected
        np.testing.assert_allclose(drift_of(model).sums, expected, rtol=1e-9)
    assert 1 <= min(found.values()) <= max(found.values()) <= 4
    assert len(told(lambda: model_of().fit(Batches([X, X, X + 5.0, X + 5.0])))) == 1
    again = model_of().partial_fit(X)
    assert len(told(lambda: again.partial_fit(Batches([X + 5.0, X + 5.0])))) == 1


def test_rows_may_come_one_by_one_and_in_any_groups(rng):
    diagonal = rng.uniform(0.5, 2.0, 400)
    missed = diagonal * rng.uniform(0.0, 1.0, 400)
    start = Drift(sums=np.array([[1.0, 10.0, 1.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]))
    whole = start.of_rows(missed, diagonal)
    for cuts in (range(401), (0, 0, 3, 3, 399, 400, 400), (0, 200, 400)):
        parts = [start.of_rows(missed[a:b], diagonal[a:b]) for a, b in itertools.pairwise(cuts)]
        while len(parts) > 1:  # as a tree
            parts = [functools.reduce(Drift.merged, parts[i : i + 2]) for i in range(0, len(parts), 2)]
        np.testing.assert_allclose(parts[0].sums, whole.sums, rtol=1e-13)
        assert parts[0].faded == pytest.approx(np.exp(-400 / WINDOW), rel=1e-13)


def test_stationary_streams_are_not_told():
    # None of 560 others is, with heavy tails, rare clusters, repeated rows and landmarks that are points.
    kernels = [RBF(0.02), RBF(1.0), Laplacian(0.1), Polynomial(3, 0.05, 1.0), Cosine()]
    for seed in range(30):
        rng = np.random.default_rng(seed)
        rank, size, d = int(rng.choice([3, 20, 60])), int(rng.choice([3, 40, 400])), int(rng.choice([3, 10]))
        rows = rng.standard_t(2.5, (max(300, 5 * size), d)) if seed % 2 else rng.standard_normal((300 + size, d))
        rows = rows.astype(rng.choice([np.float32, np.float64]))
        how = {"landmarks": "uniform"} if seed % 3 == 0 else {}
        model = model_of(rank, kernels[seed % 5], how=how, center=seed % 4 > 0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.filterwarnings("error", LEAVES, PrecisionWarning)
            for batch in np.split(rows, range(size, len(rows), size)):
                model.partial_fit(batch)


def left(K, among):
    """Return k(x, x) less the part that the rows `among` explain, of every row of K."""
    L = np.linalg.cholesky(K[np.ix_(among, among)])
    return np.diagonal(K) - np.sum(np.linalg.solve(L, K[among]) ** 2, axis=0)


@pytest.mark.parametrize(("name", "center"), [("rbf", True), ("rbf", False), ("poly", True), ("flat", True)])
def test_the_shares_are_those_of_the_definition(name, center, X):
    pool, n = 200, 500
    rows = X[:n]
    kernel = {"rbf": RBF(0.05), "poly": Polynomial(3, 0.1, 1.0), "flat": RBF(1e-6)}[name]
    K = (0.1 * rows @ rows.T + 1.0) ** 3 if name == "poly" else np.expm1(-kernel.gamma * cdist(rows, rows) ** 2)
    K = K + 1.0 if name == "rbf" else K
    for dtype, rtol in ((np.float64, 1e-6), (np.float32, 1e-2)):
        if (name, dtype) == ("flat", np.float32):
            continue
        model = model_of(12 if name != "flat" else 4, kernel, center=center).partial_fit(rows[:pool].astype(dtype))
        model.partial_fit(rows[pool:].astype(dtype))
        S, k = [int(np.argmin(cdist(one[None], rows))) for one in np.asarray(model.X_fit_)], K
        if name == "flat":  # relative to the base point
            base = S.pop()
            k = K - K[:, [base]] - K[[base]] + K[base, base]
        missed, own = left(k, S), np.diagonal(k)
        lone = missed[:pool].copy()
        for row in S:
            lone[row] = left(k, [other for other in S if other != row])[row]
        early, late = np.exp(-np.arange(n) / WINDOW * 10.0), np.exp(-np.arange(n)[::-1] / WINDOW)
        expected = [lone.sum() / own[:pool].sum(), early @ missed / (early @ own), late @ missed / (late @ own)]
        np.testing.assert_allclose(shares(model), expected, rtol=rtol)
        assert drift_of(model).sums[2, 2] == pytest.approx(np.max(late * own), rel=1e-6)


def test_landmarks_that_are_all_of_the_first_rows_miss_each_other(X):
    # Without themselves, evenly drawn rows explain of each other what they explain of later rows.
    model = model_of(60)
    for batch in np.split(X, 20):
        model.partial_fit(batch)
    assert model.n_samples_seen_ == 1200
    first, early, last = shares(model)
    assert early < 0.6 * last  # of landmarks nothing is missed
    assert 0.6 * last < first < 1.6 * last


def test_a_stream_that_was_kept_goes_on_as_any_other(X, tmp_path):
    batches = np.split(np.concatenate([X, X + 5.0]), 12)
    whole, begun = model_of(), model_of()
    values = batches_told(whole, batches)
    kept = batches_told(begun, batches[:8])
    begun.save(tmp_path / "model")
    begun = load(tmp_path / "model")
    assert kept + batches_told(begun, batches[8:]) == values
    assert kept  # and what was told is not told again
    np.testing.assert_array_equal(drift_of(begun).sums, drift_of(whole).sums)
    assert (drift_of(begun).faded, drift_of(begun).reported) == (drift_of(whole).faded, drift_of(whole).reported)
    # Of a model file of an earlier version the first rows are unknown.
    begun._result = replace(begun._result, stream=replace(begun._result.stream, drift=None))
    begun.save(tmp_path / "model")
    older = load(tmp_path / "model")
    assert not batches_told(older, [X + 50.0])
    assert drift_of(older) is None


def test_rows_without_an_order_are_not_the_last_ones(X):
    ordered = np.concatenate([X, X + 5.0])
    ways = {
        "memory": lambda model: model.fit(ordered),
        "points": lambda model: model.set_params(eigen_solver=Nystrom(landmarks=ordered[::80])).fit(ordered),
        "set": lambda model: model.set_params(memory_limit="3MiB").fit(Stored(np.repeat(ordered, 3, axis=0))),
        "reservoir": lambda model: model.set_params(eigen_solver=Nystrom(rank=30, sample="reservoir")).fit(
            Batches(np.split(ordered, 4))
        ),
    }
    for way, fit in ways.items():
        model = model_of()
        assert not told(lambda fit=fit, model=model: fit(model)), way
        model.set_params(eigen_solver=model.eigen_solver, memory_limit=None)
        assert not batches_told(model, np.split(X, 12) if way != "reservoir" else []), way
        if way != "reservoir":
            assert len(batches_told(model, np.split(X - 20.0, 4))) >= 1, way


def test_points_are_compared_with_the_first_rows(X):
    # Points that are far from all rows are no drift, and points that are rows explain themselves.
    for points in (X[:60], X[:9] + 2.0, X[600:660]):
        model = KernelPCA(2, kernel="rbf", gamma=0.05, eigen_solver=Nystrom(landmarks=points))
        assert not batches_told(model, np.split(X, 12))
        assert batches_told(model, [X + 20.0])[0]["last"] > 0.5


def test_weights_and_equal_rows_do_not_matter(X):
    rng = np.random.default_rng(3)
    plain = model_of().partial_fit(X[:300]).partial_fit(X[300:])
    for scale in (0.1, 1e9):
        weights = scale * rng.uniform(0.5, 2.0, 1200) * np.exp(3.0 * (np.arange(1200) > 1150))
        model = model_of().partial_fit(X[:300], sample_weight=weights[:300])
        assert not told(lambda model=model, w=weights: model.partial_fit(X[300:], sample_weight=w[300:]))
        np.testing.assert_allclose(drift_of(model).sums, drift_of(plain).sums, rtol=1e-12)
    equal = model_of(3).partial_fit(X[:3])
    assert not batches_told(equal, [np.tile(X[:1], (500, 1))])


def test_of_other_libraries(xp, X):
    batches = [X[:300], X[300:600], X[:600] + 8.0]
    expected, model = model_of(), model_of()
    values = batches_told(expected, batches)
    assert [sorted(one) for one in batches_told(model, [xp.array(batch) for batch in batches])] == [
        sorted(one) for one in values
    ]
    np.testing.assert_allclose(drift_of(model).sums, drift_of(expected).sums, rtol=1e-6)
    assert all(type(part) is np.ndarray for part in (drift_of(model).sums, model._result.stream.sums))
