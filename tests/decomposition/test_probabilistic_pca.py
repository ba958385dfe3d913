"""Probabilistic PCA: the closed form, EM with missing values and batches, and what the model says of new rows."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.decomposition import PCA as Peer
from sklearn.exceptions import NotFittedError

from gpukpca import PCA, Batches, BayesianPCA, ProbabilisticPCA
from gpukpca.backend import blocking
from gpukpca.backend.batched_linalg import SWEPT_UP_TO
from gpukpca.decomposition._base import ConvergenceWarning
from gpukpca.exceptions import (
    DeviceMismatchError,
    GpuKPCAWarning,
    InvalidParameterError,
    MemoryBudgetError,
    PrecisionWarning,
    RankWarning,
)
from tests import tolerances
from tests.decomposition.test_pca_of_batches import Stored

N, D, P = 200, 7, 2
ARRAYS = ("components_", "explained_variance_", "explained_variance_ratio_", "loadings_", "mean_")


@pytest.fixture
def X(rng):
    return planted(rng)


def planted(rng, n=N, d=D, p=P, noise=0.5):
    W = rng.standard_normal((d, p)) * np.linspace(3.0, 1.5, p)
    return rng.standard_normal((n, p)) @ W.T + noise * rng.standard_normal((n, d)) + rng.standard_normal(d) * 5


def with_holes(rng, X, share=0.2):
    """Entries missing at random, and some rows complete."""
    holes = rng.random(X.shape) < share
    holes[:20] = False
    holes[np.arange(len(X)), rng.integers(X.shape[1], size=len(X))] = False
    return np.where(holes, np.nan, X)


class Again:
    """Batches that can be read in every pass."""

    def __init__(self, *batches):
        self.batches = batches

    def __iter__(self):
        yield from self.batches


# -- oracles: the d x d covariance, row by row -------------------------------------------------------------------------


def covariance(model):
    W = np.asarray(model.loadings_, np.float64)
    return W @ W.T + model.noise_variance_ * np.eye(len(W))


def log_density(x, mean, C):
    o = ~np.isnan(x)
    return multivariate_normal(mean[o], C[np.ix_(o, o)]).logpdf(x[o]) if o.any() else 0.0


def log_likelihood(X, mean, C):
    return sum(log_density(x, mean, C) for x in X)


def conditional(x, mean, C):
    """Return the mean of all entries given the observed ones."""
    o = ~np.isnan(x)
    return mean + C[:, o] @ np.linalg.solve(C[np.ix_(o, o)], (x - mean)[o])


def posterior(x, mean, W, noise):
    """Mean and covariance of z given x, from the joint normal distribution of both."""
    o = ~np.isnan(x)
    C = (W @ W.T + noise * np.eye(len(W)))[np.ix_(o, o)]
    gain = W[o].T @ np.linalg.inv(C)
    return gain @ (x - mean)[o], np.eye(W.shape[1]) - gain @ W[o]


# -- the closed form ---------------------------------------------------------------------------------------------------


def test_closed_form_is_the_gaussian_model_of_scikit_learn(xp, dtype, X):
    rows = X.astype(dtype)
    model, peer = ProbabilisticPCA(P).fit(xp.array(rows)), Peer(P).fit(rows.astype(np.float64))
    allowed = 300 * tolerances.eps(dtype)
    for name in ARRAYS:
        assert xp.owns(getattr(model, name)), name
        assert str(getattr(model, name).dtype).endswith(dtype), name
    np.testing.assert_allclose(xp.host(model.components_), peer.components_, atol=allowed)
    np.testing.assert_allclose(xp.host(model.explained_variance_), peer.explained_variance_, rtol=allowed)
    np.testing.assert_allclose(xp.host(model.explained_variance_ratio_), peer.explained_variance_ratio_, rtol=allowed)
    assert model.noise_variance_ == pytest.approx(peer.noise_variance_, rel=allowed)
    size = np.max(np.abs(peer.get_covariance()))
    np.testing.assert_allclose(xp.host(model.get_covariance()), peer.get_covariance(), atol=allowed * size)
    np.testing.assert_allclose(xp.host(model.get_precision()), peer.get_precision(), atol=30 * allowed)
    found = model.score_samples(xp.array(rows))
    assert xp.owns(found)
    np.testing.assert_allclose(xp.host(found), peer.score_samples(rows.astype(np.float64)), rtol=30 * allowed)
    assert model.score(xp.array(rows)) == pytest.approx(peer.score(rows.astype(np.float64)), rel=30 * allowed)


@pytest.mark.parametrize("ddof", [0, 1])
def test_closed_form_is_the_maximum_of_the_likelihood(X, ddof):
    values, vectors = np.linalg.eigh(np.cov(X, rowvar=False, ddof=ddof))
    model = ProbabilisticPCA(P, ddof=ddof).fit(X)
    noise = np.mean(values[:-P])
    V = vectors[:, -P:]
    reference = V @ np.diag(values[-P:] - noise) @ V.T + noise * np.eye(D)
    np.testing.assert_allclose(covariance(model), reference, atol=1e-13 * values[-1])
    np.testing.assert_allclose(model.loadings_.T @ model.loadings_, np.diag(values[: -P - 1 : -1] - noise), atol=1e-12)


def test_maximum_likelihood_averages_over_d_minus_p_for_wide_data(rng):
    X = rng.standard_normal((10, 30))
    model = ProbabilisticPCA(3).fit(X)
    left = np.sum(np.var(X, axis=0, ddof=1)) - np.sum(Peer(3).fit(X).explained_variance_)
    assert model.noise_variance_ == pytest.approx(left / 27, rel=1e-12)
    assert np.trace(model.get_covariance()) == pytest.approx(model.total_variance_, rel=1e-12)


def test_all_components_leave_no_noise(X):
    model = ProbabilisticPCA(D).fit(X)
    assert model.noise_variance_ == 0
    np.testing.assert_allclose(model.get_covariance(), np.cov(X, rowvar=False), atol=1e-12)
    np.testing.assert_allclose(model.score_samples(X), Peer(D).fit(X).score_samples(X), rtol=1e-12)
    np.testing.assert_allclose(model.denoise(X), X, atol=1e-12)
    np.testing.assert_array_equal(model.posterior_covariance(), np.zeros((D, D)))


def test_sparse_rows_and_memory_maps_are_as_dense_ones(X, tmp_path):
    few = np.where(np.abs(X) < 2.0, 0.0, X)
    dense, sparse = (ProbabilisticPCA(P).fit(rows) for rows in (few, scipy.sparse.csr_array(few)))
    np.testing.assert_allclose(sparse.get_covariance(), dense.get_covariance(), rtol=1e-10, atol=1e-12)
    for method in ("transform", "score_samples", "denoise"):
        found = getattr(sparse, method)(scipy.sparse.csr_array(few))
        np.testing.assert_allclose(found, getattr(dense, method)(few), atol=1e-10)
    np.save(tmp_path / "X.npy", with_holes(np.random.default_rng(0), X))
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    by_file = ProbabilisticPCA(P, random_state=0, batch_size=33).fit(mapped)
    whole = ProbabilisticPCA(P, random_state=0).fit(np.array(mapped))
    np.testing.assert_allclose(by_file.get_covariance(), whole.get_covariance(), rtol=1e-9)
    np.testing.assert_allclose(by_file.transform(mapped), whole.transform(np.array(mapped)), atol=1e-9)


# -- EM ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ddof", [0, 1])
@pytest.mark.parametrize("noise", [0.5, 2.0])
def test_em_finds_the_closed_form(xp, dtype, rng, ddof, noise):
    rows = planted(rng, d=20, p=3, noise=noise).astype(dtype)
    closed = ProbabilisticPCA(3, ddof=ddof).fit(xp.array(rows))
    model = ProbabilisticPCA(3, ddof=ddof, solver="em", random_state=0).fit(xp.array(rows))
    assert model.solver_ == "em"
    assert model.converged_
    for name in ARRAYS:
        assert xp.owns(getattr(model, name)), name
        assert str(getattr(model, name).dtype).endswith(dtype), name
    reference = xp.host(closed.get_covariance())
    np.testing.assert_allclose(xp.host(model.get_covariance()), reference, atol=1e-4 * np.max(np.abs(reference)))
    assert model.noise_variance_ == pytest.approx(closed.noise_variance_, rel=1e-4)
    assert float(xp.host(model.explained_variance_ratio_).sum()) == pytest.approx(
        float(xp.host(closed.explained_variance_ratio_).sum()), rel=1e-4
    )


def test_em_that_reaches_max_iter_states_what_the_last_step_changed(rng):
    """A spectrum without a gap, so that the start is not the end."""
    X = rng.standard_normal((300, 80)) * np.linspace(1.3, 1.0, 80)
    model = ProbabilisticPCA(3, solver="em", random_state=0, ddof=0, tol=0.0, max_iter=2)
    with pytest.warns(ConvergenceWarning, match="stopped after max_iter steps") as caught:
        model.fit(X)
    values = caught[0].message.values
    assert values["max_iter"] == 2
    assert values["gain"] > 0.0 < values["turn"]
    assert model.n_iter_ == 2
    assert not model.converged_
    assert np.all(np.diff(model.log_likelihoods_) >= 0)
    best = ProbabilisticPCA(3, ddof=0).fit(X)
    assert model.log_likelihoods_[-1] < len(X) * best.score(X)
    assert model.log_likelihoods_[-1] == pytest.approx(len(X) * best.score(X), rel=1e-3)


@pytest.mark.parametrize(("p", "tol"), [(1, 1e-8), (2, 1e-5), (4, 1e-3)])
def test_the_log_likelihood_of_observed_entries_never_decreases(xp, rng, p, tol):
    X = with_holes(rng, planted(rng), 0.4)
    model = ProbabilisticPCA(p, random_state=0, ddof=0, tol=tol).fit(xp.array(X))
    trace = xp.host(model.log_likelihoods_)
    assert len(trace) == model.n_iter_ + 1
    assert np.all(np.diff(trace) >= 0)
    reference = log_likelihood(X, xp.host(model.mean_), xp.host(model.get_covariance()))
    assert trace[-1] == pytest.approx(reference, rel=1e-11)


def test_missing_values_the_gradient_of_the_likelihood_is_zero(rng):
    X = with_holes(rng, planted(rng, n=60, d=5))
    model = ProbabilisticPCA(2, random_state=0, ddof=0, tol=1e-14).fit(X)
    W, mean, noise = model.loadings_, model.mean_, model.noise_variance_

    def value(theta):
        loadings = theta[:10].reshape(5, 2)
        C, total = loadings @ loadings.T + theta[15] * np.eye(5), 0.0
        for x in X:
            o = ~np.isnan(x)
            part, off = C[np.ix_(o, o)], (x - theta[10:15])[o]
            total -= 0.5 * (np.linalg.slogdet(part)[1] + off @ np.linalg.solve(part, off))
        return total

    at = np.concatenate([W.ravel(), mean, [noise]])
    steps = 1e-5 * np.eye(16)
    slopes = np.array([(value(at + h) - value(at - h)) / 2e-5 for h in steps])
    bends = np.array([(value(at + h) - 2 * value(at) + value(at - h)) / 1e-10 for h in 10 * steps])
    assert np.max(np.abs(slopes)) < 1e-4 * np.max(np.abs(bends))


def test_missing_values_in_every_library_and_precision(xp, dtype, rng):
    X = with_holes(rng, planted(rng)).astype(dtype)
    held = X.copy()
    rows = xp.array(X)
    model = ProbabilisticPCA(P, random_state=0, tol=1e-5).fit(rows)
    reference = ProbabilisticPCA(P, random_state=0, tol=1e-5).fit(X.astype(np.float64))
    assert model.solver_ == "em"
    allowed = 1e3 * tolerances.eps(dtype)
    for name in ARRAYS:
        assert xp.owns(getattr(model, name)), name
        size = np.max(np.abs(getattr(reference, name)))
        np.testing.assert_allclose(
            xp.host(getattr(model, name)), getattr(reference, name), atol=allowed * size, err_msg=name
        )
    for method in ("transform", "denoise", "impute", "score_samples", "posterior_covariance"):
        found = getattr(model, method)(rows)
        assert xp.owns(found), method
        assert str(found.dtype).endswith(dtype), method
        expected = getattr(reference, method)(X.astype(np.float64))
        size = max(1.0, np.max(np.abs(expected)))
        np.testing.assert_allclose(xp.host(found), expected, atol=30 * allowed * size, err_msg=method)
    np.testing.assert_array_equal(xp.host(rows), held)


@pytest.mark.usefixtures("threads_for_little")
def test_a_seed_gives_the_same_bits_and_a_refit_forgets(rng, X):
    Y, events = with_holes(rng, X), []
    first, again = (ProbabilisticPCA(P, random_state=3, n_jobs=2, verbose=events.append).fit(Y) for _ in range(2))
    for name in (*ARRAYS, "log_likelihoods_"):
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))
    assert [event.done for event in events if event.stage == "step"] == 2 * list(range(first.n_iter_ + 1))
    first.fit(X)
    assert not hasattr(first, "log_likelihoods_")
    assert first.solver_.startswith("closed_form")


def test_masked_arrays_and_frames_have_missing_values_of_their_own(rng, X):
    pandas = pytest.importorskip("pandas")
    Y = with_holes(rng, X)
    reference = ProbabilisticPCA(P, random_state=0).fit(Y)
    frame = pandas.DataFrame(Y, columns=list("abcdefg"))
    masked = np.ma.MaskedArray(np.nan_to_num(Y, nan=9e9), mask=np.isnan(Y))
    for given in (masked, frame, frame.astype("Float64"), frame.astype(object).where(frame.notna(), None)):
        model = ProbabilisticPCA(P, random_state=0).fit(given)
        np.testing.assert_allclose(model.get_covariance(), reference.get_covariance(), rtol=1e-12)
        np.testing.assert_allclose(model.impute(given), reference.impute(Y), rtol=1e-9)


def test_points_that_overflow_are_an_error(X):
    with pytest.raises(ValueError, match="scores are too large"):
        ProbabilisticPCA(P).fit(X).inverse_transform(np.full((4, P), 1.7e308))


@pytest.mark.parametrize("Estimator", [ProbabilisticPCA, BayesianPCA])
def test_em_without_a_number_takes_few_components_and_says_what_all_would_need(xp, Estimator):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3)) @ rng.standard_normal((3, 70)) * 5.0 + rng.standard_normal((60, 70))
    X[rng.random(X.shape) < 0.1] = np.nan
    rows = xp.array(X)
    with pytest.warns(UserWarning, match=r"EM takes 20 components.* Set n_comp"):
        model = Estimator(random_state=0, tol=1e-3).fit(rows)
    assert model.n_components_ == (20 if Estimator is ProbabilisticPCA else 3)
    assert Estimator(3, random_state=0, tol=1e-3).fit(rows).n_components_ == 3
    assert Estimator(random_state=0, tol=1e-3).fit(rows[:, :21]).n_components_ <= 20


@pytest.mark.usefixtures("threads_for_little")
def test_batches_rows_and_threads_do_not_matter(xp, rng):
    X = with_holes(rng, planted(rng, n=60))
    whole = ProbabilisticPCA(P, random_state=0, n_jobs=1, tol=1e-3).fit(xp.array(X))
    cut = [xp.array(X[a:b]) for a, b in ((0, 15), (15, 16), (16, 40), (40, 60))]
    for rows, more in (
        (Batches(cut), {}),
        (Again(*cut), {}),
        (xp.array(X), {"batch_size": 25}),
        (xp.array(X), {"n_jobs": 2}),
        (xp.array(X[::-1].copy()), {}),
    ):
        other = ProbabilisticPCA(P, random_state=0, tol=1e-3, **more).fit(rows)
        for name in ARRAYS:
            np.testing.assert_allclose(xp.host(getattr(other, name)), xp.host(getattr(whole, name)), atol=1e-9)


def test_complete_batches_are_fitted_from_their_spectrum_as_arrays_are(rng, X):
    """Also of sparse batches, and where a later batch is wider; one missing entry asks for EM."""
    sparse, narrow, holes = scipy.sparse.csr_array, X.astype("float32"), X.copy()
    holes[-1, 0] = np.nan
    for kind, direct in ((ProbabilisticPCA, "closed_form"), (BayesianPCA, "spectrum")):
        for p, solver in ((None, "auto"), (2, direct)):
            expected = kind(p, solver=solver).fit(X)
            for rows in (
                Batches([X[:70], X[70:]]),
                Again(X[:1], X[1:]),
                Batches([sparse(X[:70]), sparse(X[70:])]),
                Stored(X),
            ):
                model = kind(p, solver=solver).fit(rows)
                assert model.solver_.startswith(expected.solver_.split(":")[0])
                assert not hasattr(model, "log_likelihoods_")
                assert model.n_samples_ == len(X)
                for name in ("explained_variance_", "noise_variance_", "total_variance_", "mean_"):
                    np.testing.assert_allclose(getattr(model, name), getattr(expected, name), rtol=1e-9)
                np.testing.assert_allclose(model.get_covariance(), expected.get_covariance(), atol=1e-9)
        mixed = kind(2).fit(Batches([narrow[:70], narrow[70:].astype("float64")]))
        assert mixed.components_.dtype == np.float64
        np.testing.assert_allclose(mixed.get_covariance(), kind(2).fit(X).get_covariance(), rtol=1e-4, atol=1e-4)
        assert kind(2, random_state=0).fit(Batches([holes[:70], holes[70:]])).solver_ == "em"


def test_an_offset_and_turned_features_do_not_matter(rng, X):
    Q = np.linalg.qr(rng.standard_normal((D, D)))[0]
    plain, turned = (ProbabilisticPCA(P, solver="em", random_state=0, tol=1e-13).fit(Z) for Z in (X, X @ Q))
    np.testing.assert_allclose(turned.get_covariance(), Q.T @ plain.get_covariance() @ Q, atol=1e-6)
    Y = np.round(with_holes(rng, X) * 2**20) / 2**20
    near, far = (ProbabilisticPCA(P, random_state=0).fit(Z) for Z in (Y, Y + 2.0**27))
    np.testing.assert_allclose(far.get_covariance(), near.get_covariance(), rtol=1e-6)
    np.testing.assert_allclose(far.transform(Y + 2.0**27), near.transform(Y), atol=1e-6)


def test_imputing_beats_the_mean_and_estimates_what_is_there(rng):
    whole = planted(rng, n=2000, d=12, p=3)
    X = with_holes(rng, whole, 0.3)
    model = ProbabilisticPCA(3, random_state=0).fit(X)
    filled, holes = model.impute(X), np.isnan(X)
    np.testing.assert_array_equal(filled[~holes], X[~holes])
    error = np.sqrt(np.mean((filled - whole)[holes] ** 2))
    assert error < 0.35 * np.std(whole[holes])
    complete = ProbabilisticPCA(3).fit(whole)
    size = np.max(complete.get_covariance())
    np.testing.assert_allclose(model.get_covariance(), complete.get_covariance(), atol=0.1 * size)
    assert model.noise_variance_ == pytest.approx(complete.noise_variance_, rel=0.05)


# -- new rows ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [1, 3, SWEPT_UP_TO + 2])
def test_posterior_denoising_imputing_and_likelihood_are_those_of_the_joint_normal(xp, rng, p):
    d = p + 4
    X = planted(rng, n=120, d=d, p=p)
    model = ProbabilisticPCA(p).fit(xp.array(X))
    W, mean, noise = xp.host(model.loadings_), xp.host(model.mean_), model.noise_variance_
    C = W @ W.T + noise * np.eye(d)
    Y = with_holes(rng, X[:40], 0.4)
    Y[-1] = np.nan
    rows = xp.array(Y)
    means, covariances = zip(*(posterior(y, mean, W, noise) for y in Y), strict=True)
    np.testing.assert_allclose(xp.host(model.transform(rows)), means, atol=1e-9)
    np.testing.assert_array_equal(xp.host(model.transform(rows))[-1], np.zeros(p))
    np.testing.assert_allclose(xp.host(model.posterior_covariance(rows)), covariances, atol=1e-10)
    np.testing.assert_allclose(xp.host(model.posterior_covariance()), covariances[0], atol=1e-10)
    np.testing.assert_allclose(xp.host(model.denoise(rows)), np.array(means) @ W.T + mean, atol=1e-8)
    np.testing.assert_allclose(xp.host(model.inverse_transform(model.transform(rows))), xp.host(model.denoise(rows)))
    filled = np.where(np.isnan(Y), np.array([conditional(y, mean, C) for y in Y]), Y)
    np.testing.assert_allclose(xp.host(model.impute(rows)), filled, atol=1e-8)
    np.testing.assert_allclose(xp.host(model.score_samples(rows)), [log_density(y, mean, C) for y in Y], atol=1e-8)


def test_a_row_depends_neither_on_the_holes_of_others_nor_on_its_panel(rng, X, monkeypatch):
    model, Y = ProbabilisticPCA(P).fit(X), with_holes(rng, X)
    whole = {name: getattr(model, name)(Y) for name in ("transform", "score_samples", "posterior_covariance", "impute")}
    complete = ~np.any(np.isnan(Y), axis=1)
    np.testing.assert_allclose(whole["transform"][complete], model.transform(X)[complete], rtol=1e-12)
    np.testing.assert_array_equal(whole["score_samples"][complete], model.score_samples(X)[complete])
    monkeypatch.setattr(blocking, "E_STEP_ENTRIES", blocking.PerDevice(1, 1))  # panels of 64 rows
    for name, reference in whole.items():
        np.testing.assert_allclose(getattr(model, name)(Y), reference, rtol=1e-12, err_msg=name)


def test_samples_have_the_moments_of_the_model(xp, X):
    model = ProbabilisticPCA(P, random_state=1).fit(xp.array(X))
    drawn = model.sample(40_000)
    assert xp.owns(drawn)
    S, C = xp.host(drawn), xp.host(model.get_covariance())
    assert S.shape == (40_000, D)
    np.testing.assert_allclose(S.mean(axis=0), xp.host(model.mean_), atol=5 * np.sqrt(np.max(C) / 40_000))
    np.testing.assert_allclose(np.cov(S, rowvar=False), C, atol=8 * np.max(C) / np.sqrt(40_000))
    np.testing.assert_array_equal(xp.host(model.sample(3)), xp.host(model.sample(3)))
    assert model.sample().shape == (1, D)
    again = xp.host(model.sample(3, random_state=7))
    np.testing.assert_array_equal(again, xp.host(model.sample(3, random_state=np.random.default_rng(7))))
    assert not np.array_equal(again, xp.host(model.sample(3)))


def test_computed_on_a_device_for_data_on_the_host(cuda, rng):
    X = with_holes(rng, planted(rng))
    reference = ProbabilisticPCA(P, random_state=0, tol=1e-5).fit(X)
    for rows, more in ((X, {}), (X, {"batch_size": 50}), (Batches([X[:90], X[90:]]), {})):
        model = ProbabilisticPCA(P, random_state=0, tol=1e-5, device="cuda", **more).fit(rows)
        assert isinstance(model.components_, np.ndarray)
        assert model.device_ != "cpu"
        np.testing.assert_allclose(model.get_covariance(), reference.get_covariance(), rtol=1e-8)
        assert isinstance(model.transform(X), np.ndarray)
        np.testing.assert_allclose(model.transform(X), reference.transform(X), atol=1e-8)


# -- hard data ---------------------------------------------------------------------------------------------------------


def constant_column(rng):
    X = planted(rng)
    X[:, 2] = 4.0
    return X


def units(rng):
    return planted(rng) * 10.0 ** np.linspace(-8, 8, D)


def without_noise(rng):
    return planted(rng, noise=0.0)


def once_observed(rng):
    X = with_holes(rng, planted(rng))
    X[1:, 3] = np.nan
    return X


def never_together(rng):
    X = planted(rng)
    X[::2, 0] = np.nan
    X[1::2, 1] = np.nan
    return X


HARD = {
    "constant column": constant_column,
    "constant column with holes": lambda rng: with_holes(rng, constant_column(rng)),
    "units": units,
    "units with holes": lambda rng: with_holes(rng, units(rng)),
    "no noise": without_noise,
    "no noise with holes": lambda rng: with_holes(rng, without_noise(rng)),
    "observed once": once_observed,
    "never together": never_together,
    "duplicates": lambda rng: with_holes(rng, np.repeat(planted(rng, n=5), 20, axis=0)),
    "few rows": lambda rng: with_holes(rng, planted(rng, n=24, d=30)),
    "tiny": lambda rng: 1e-100 * with_holes(rng, planted(rng)),
    "large": lambda rng: 1e100 * with_holes(rng, planted(rng)),
    "one entry a row": lambda rng: (
        np.where(rng.permuted(np.tile(np.arange(D), (N, 1)), axis=1) == 0, 1.0, np.nan) * planted(rng)
    ),
}


@pytest.mark.filterwarnings("ignore:the noise variance fell to its floor")
@pytest.mark.filterwarnings("ignore::gpukpca.exceptions.RankWarning")  # rank 2 is right where there is no noise
@pytest.mark.parametrize("solver", ["auto", "em"])
@pytest.mark.parametrize("what", HARD)
def test_hard_data_give_finite_models(rng, what, solver):
    X = HARD[what](rng)
    model = ProbabilisticPCA(3, solver=solver, random_state=0, max_iter=60, tol=1e-5, ddof=0).fit(X)
    for name in (*ARRAYS, "noise_variance_", "total_variance_"):
        assert np.all(np.isfinite(getattr(model, name))), name
    np.testing.assert_allclose(model.components_ @ model.components_.T, np.eye(3), atol=1e-12)
    for method in ("transform", "denoise", "impute", "score_samples", "posterior_covariance"):
        assert np.all(np.isfinite(getattr(model, method)(X))), method
    if hasattr(model, "log_likelihoods_"):
        assert len(model.log_likelihoods_) == model.n_iter_ + 1
        assert np.all(np.diff(model.log_likelihoods_) >= 0)


@pytest.mark.filterwarnings("ignore:the noise variance fell to its floor")
def test_next_to_no_noise_costs_the_likelihood_few_digits(xp, rng):
    """Where rows have fewer entries than there are components, the smallest eigenvalue of M is the noise."""
    X = with_holes(rng, constant_column(rng), 0.5)
    model = ProbabilisticPCA(D - 1, random_state=0, ddof=0, tol=0.1).fit(xp.array(X))
    C, mean, reference = xp.host(model.get_covariance()), xp.host(model.mean_), []
    assert model.noise_variance_ < 1e-10 * np.max(C)
    for x in X:
        o = ~np.isnan(x)
        root = np.linalg.cholesky(C[np.ix_(o, o)])
        misfit = np.linalg.solve(root, (x - mean)[o])
        reference.append(-0.5 * (o.sum() * np.log(2 * np.pi) + misfit @ misfit) - np.sum(np.log(np.diag(root))))
    np.testing.assert_allclose(xp.host(model.score_samples(xp.array(X))), reference, atol=0.01)
    assert float(xp.host(model.log_likelihoods_)[-1]) == pytest.approx(sum(reference), abs=0.1)


def test_one_sample_and_equal_rows_have_no_variance(rng):
    row = rng.standard_normal((1, 4))
    for X, solver in ((row, "auto"), (np.repeat(row, 5, axis=0), "auto"), (np.repeat(row, 5, axis=0), "em")):
        with pytest.warns(RankWarning):
            model = ProbabilisticPCA(1, solver=solver).fit(X)
        assert model.noise_variance_ == 0
        np.testing.assert_array_equal(model.explained_variance_, [0.0])
        np.testing.assert_allclose(model.transform(X), np.zeros((len(X), 1)))
        np.testing.assert_allclose(model.denoise(X), X, rtol=1e-12)
        with pytest.raises(np.linalg.LinAlgError):
            model.score_samples(X)


# -- bad input ---------------------------------------------------------------------------------------------------------


def holes_at(*where):
    X = planted(np.random.default_rng(0))
    for rows, columns in where:
        X[rows, columns] = np.nan
    return X


def interrupt(event):
    raise KeyboardInterrupt


def strict(X):
    return pytest.importorskip("array_api_strict").asarray(X)


class Shrinking:
    """Batches of which the last is missing in the second pass."""

    def __init__(self):
        self.batches = [holes_at()[:50], holes_at()[50:]]

    def __iter__(self):
        yield from self.batches
        self.batches = self.batches[:1]


WRONG = [
    ({"n_components": D + 1}, holes_at, InvalidParameterError, r"n_components=8 .*n_samples=200, n_features=7"),
    ({"n_components": 5}, lambda: holes_at()[:4], InvalidParameterError, r"n_components=5 .*n_samples=4, n_features=7"),
    ({"n_components": D, "solver": "em"}, holes_at, InvalidParameterError, "at most 6"),
    ({"n_components": D}, lambda: holes_at((1, 2)), InvalidParameterError, "direction of noise"),
    ({"n_components": 1, "solver": "em"}, lambda: holes_at()[:, :1], InvalidParameterError, "n_features=1"),
    ({"n_components": 2.0}, holes_at, InvalidParameterError, "n_components=2.0"),
    ({"solver": "svd"}, holes_at, InvalidParameterError, "'closed_form'"),
    ({"memory_limit": 1000, "solver": "em"}, holes_at, MemoryBudgetError, "larger memory_limit"),
    ({"solver": "closed_form"}, lambda: holes_at((5, 6)), ValueError, 'NaN: 1 value.*row 5, column 6.*solver="em"'),
    ({"solver": "closed_form"}, lambda: Batches([holes_at(), holes_at((5, 6))]), ValueError, 'NaN.*solver="em"'),
    ({}, lambda: np.full((9, D), np.nan), ValueError, "feature 0 of X has no observed entry"),
    ({}, lambda: holes_at((slice(None), 2)), ValueError, "feature 2 of X has no observed entry"),
    ({}, lambda: np.where(holes_at((1, 2)) == holes_at()[3, 4], np.inf, holes_at()), ValueError, "infinity.*row 3"),
    ({}, lambda: (batch for batch in [holes_at()]), InvalidParameterError, "only once"),
    ({}, lambda: Batches([]), ValueError, "empty"),
    ({}, lambda: Batches([holes_at(), holes_at()[:, :3]]), ValueError, "batch 1"),
    ({}, Shrinking, ValueError, "changed between passes"),
    ({}, lambda: Batches([holes_at(), strict(holes_at())]), DeviceMismatchError, "library|namespace|array_api_strict"),
    ({"solver": "em"}, lambda: 1e200 * holes_at(), ValueError, "overflow"),
    ({}, lambda: 1e200 * holes_at(), ValueError, "overflow"),
    ({"verbose": interrupt}, lambda: holes_at((1, 2)), KeyboardInterrupt, None),
]


@pytest.mark.parametrize(("parameters", "make", "kind", "text"), WRONG)
@pytest.mark.filterwarnings("ignore::gpukpca.exceptions.PrecisionWarning")
def test_bad_input_raises_and_changes_nothing(X, parameters, make, kind, text):
    model = ProbabilisticPCA(P, random_state=0).fit(X)
    before = dict(vars(model)) | ProbabilisticPCA(**{"n_components": P, **parameters}).get_params()
    model.set_params(**ProbabilisticPCA(**{"n_components": P, **parameters}).get_params())
    with pytest.raises(kind, match=text):
        model.fit(make())
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[name] is before[name] for name in vars(model) if name.endswith("_"))


@pytest.mark.parametrize("kind", [ProbabilisticPCA, BayesianPCA])
def test_rows_without_an_observed_entry_are_left_out_with_a_warning_and_score_0(X, kind):
    holes = X.copy()
    holes[::5, 1] = np.nan
    empty = [3, 4, 5, 60, len(X) - 1]
    rest = np.setdiff1d(np.arange(len(X)), empty)
    expected = kind(P, random_state=0).fit(holes[rest])
    holes[empty] = np.nan
    for rows, unit in ((holes, 1.0), (1e-150 * holes, 1e-150), (Batches([holes[:3], holes[3:6], holes[6:]]), 1.0)):
        with pytest.warns(GpuKPCAWarning, match="rows without any observed entry") as caught:
            model = kind(P, random_state=0).fit(rows)
        (values,) = [one.message.values for one in caught if "observed entry" in str(one.message)]
        assert list(values["rows"]) == empty
        np.testing.assert_allclose(model.mean_, unit * expected.mean_, rtol=1e-9)
        np.testing.assert_allclose(model.noise_variance_, unit**2 * expected.noise_variance_, rtol=1e-6)
    scores = model.transform(holes)
    assert np.all(scores[empty] == 0.0)
    np.testing.assert_allclose(scores[rest], expected.transform(holes[rest]), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(model.impute(holes)[3], model.mean_, rtol=1e-12)
    np.testing.assert_allclose(model.score_samples(holes)[empty], 0.0, atol=1e-9)


def test_bad_calls_are_named(X):
    model = ProbabilisticPCA(P).fit(X)
    for method in ("transform", "inverse_transform", "denoise", "impute", "score_samples", "posterior_covariance"):
        with pytest.raises(NotFittedError):
            getattr(clone(model), method)(X)
    with pytest.raises(NotFittedError):
        clone(model).sample()
    with pytest.raises(ValueError, match="3 features"):
        model.transform(X[:, :3])
    with pytest.raises(ValueError, match="infinity"):
        model.transform(np.where(X[0, 0] == X, np.inf, X))
    with pytest.raises(ValueError, match="NaN"):
        model.inverse_transform(np.full((2, P), np.nan))
    with pytest.raises(ValueError, match="n_components = 2"):
        model.inverse_transform(np.zeros((2, 3)))
    with pytest.raises(InvalidParameterError, match="n_samples=0"):
        model.sample(0)
    with pytest.raises(ValueError, match="does not accept missing"):
        PCA(P).fit(holes_at((0, 0)))


def test_columns_of_different_units_keep_the_noise_or_are_named(rng):
    X = np.column_stack([1.7e9 + rng.integers(0, 3e7, 300), rng.poisson(5, 300)]).astype(float)
    truth = float(np.linalg.svd(X - X.mean(axis=0), compute_uv=False)[1] ** 2 / 299)
    for dtype in ("float64", "float32"):
        model = ProbabilisticPCA(1).fit(X.astype(dtype))
        assert model.noise_variance_ == pytest.approx(truth, rel=1e-3)
    X[3, 1] = np.nan
    with pytest.warns(PrecisionWarning, match="fell to its floor.*Standardize"):
        ProbabilisticPCA(1, random_state=0).fit(X)
