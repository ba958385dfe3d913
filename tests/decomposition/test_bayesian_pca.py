"""Bayesian PCA: which directions are pruned, by the spectrum, by EM on the rows, and beside the other rules."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

from gpukpca import PCA, Batches, BayesianPCA, ProbabilisticPCA
from gpukpca.algorithms.latent.ard import ard_of_spectrum
from gpukpca.exceptions import InvalidParameterError, PrecisionWarning, RankWarning
from gpukpca.model_selection import n_components_for


def planted(seed, n, d, K, signal):
    """K directions with variances from `signal` to twice that, beside noise of variance 1."""
    rng = np.random.default_rng(seed)
    V = np.linalg.qr(rng.standard_normal((d, d)))[0][:, :K]
    Z = rng.standard_normal((n, K)) * np.sqrt(np.linspace(signal, 2 * signal, K))
    return Z @ V.T + rng.standard_normal((n, d)) + 3.0


def with_holes(X, share=0.15, seed=0):
    holes = np.random.default_rng(seed).random(X.shape) < share
    holes[:10] = False
    return np.where(holes, np.nan, X)


def bishop(S, n, steps):
    """Run the EM of Bishop (1998), (12) and (13), with matrices, from the maximum likelihood with d - 1 columns."""
    d = len(S)
    values, vectors = np.linalg.eigh(S)
    noise = values[0]
    W = vectors[:, :0:-1] * np.sqrt(values[:0:-1] - noise)
    alpha = d / np.sum(W**2, axis=0)
    for _ in range(steps):
        M = W.T @ W + noise * np.eye(W.shape[1])
        cross = S @ W @ np.linalg.inv(M)
        second = noise * np.linalg.inv(M) + np.linalg.inv(M) @ W.T @ cross
        W = cross @ np.linalg.inv(second + noise / n * np.diag(alpha))
        noise = np.trace(S - 2 * cross @ W.T + W @ second @ W.T) / d
        W = W[:, np.sum(W**2, axis=0) > 1e-12 * noise]
        alpha = d / np.sum(W**2, axis=0)
        _, turn = np.linalg.eigh(-W.T @ W)
        W = W @ turn
        alpha = d / np.sum(W**2, axis=0)
    return W @ W.T + noise * np.eye(d), W.shape[1]


@pytest.mark.parametrize("seed", range(2))
def test_the_spectrum_alone_gives_what_the_matrices_of_bishop_give(seed):
    X = planted(seed, 200, 8, 3, 3.0)
    C, K = bishop(np.cov(X, rowvar=False, ddof=0), 200, 1500)
    model = BayesianPCA(ddof=0).fit(X)
    assert model.n_components_ == K == 3
    np.testing.assert_allclose(model.get_covariance(), C, atol=1e-7 * np.max(C))


def test_what_is_left_satisfies_the_equation_of_its_fixed_point(rng):
    n, d = 300, 12
    spectrum = np.linalg.eigvalsh(np.cov(planted(1, n, d, 4, 2.0), rowvar=False, ddof=0))[::-1]
    found = ard_of_spectrum(spectrum[:-1], spectrum[-1], n, d)
    assert found.converged
    s, kept = found.noise, found.kept
    c, values = found.lengths[kept] + s, spectrum[:-1][kept]
    np.testing.assert_allclose(n * (values - c) * (c - s), d * c**2, rtol=1e-7)
    threshold = 4 * (1 + d / n)
    assert np.all((values + s) ** 2 / (values * s) >= threshold)
    assert np.all((spectrum[:-1][~kept] + s) ** 2 / (spectrum[:-1][~kept] * s) < threshold)
    left = np.sum(spectrum) - np.sum(values)
    # The derivative of the log posterior by σ² at fixed loadings.
    slope = np.sum(1 / c - values / c**2) + (d - np.sum(kept)) / s - left / s**2
    assert abs(slope) < 1e-8 * left / s**2


@pytest.mark.parametrize(
    ("n", "d", "K", "signal"),
    [(500, 10, 3, 3.0), (200, 10, 1, 5.0), (100, 10, 8, 8.0), (300, 50, 5, 5.0), (300, 50, 20, 5.0), (200, 30, 0, 1.0)],
)
def test_the_true_dimension_is_found_over_seeds(n, d, K, signal):
    found = [n_components_for(planted(seed, n, d, K, signal), "bayesian") for seed in range(20)]
    assert np.mean(np.array(found) == K) >= 0.9


def test_every_library_and_precision(xp, dtype):
    X = planted(0, 300, 10, 3, 4.0).astype(dtype)
    reference = BayesianPCA().fit(X.astype(np.float64))
    model = BayesianPCA().fit(xp.array(X))
    assert model.n_components_ == reference.n_components_ == 3
    assert xp.owns(model.components_)
    assert str(model.components_.dtype).endswith(dtype)
    tolerance = {"float64": 1e-9, "float32": 1e-4}[dtype]
    np.testing.assert_allclose(xp.host(model.get_covariance()), reference.get_covariance(), atol=tolerance * 10)
    np.testing.assert_allclose(xp.host(model.transform(xp.array(X))), reference.transform(X), atol=tolerance * 100)
    np.testing.assert_allclose(
        xp.host(model.precisions_)[:3], 10 / np.sum(reference.loadings_**2, axis=0), rtol=tolerance * 10
    )
    assert np.all(np.isinf(xp.host(model.precisions_)[3:]))
    assert model.precisions_.shape == (9,)


def test_em_on_the_rows_agrees_with_the_spectrum(xp):
    X = planted(3, 200, 8, 2, 4.0)
    spectrum = BayesianPCA().fit(xp.array(X))
    rows = BayesianPCA(solver="em", random_state=0).fit(Batches([xp.array(X[:77]), xp.array(X[77:])]))
    assert rows.n_components_ == spectrum.n_components_ == 2
    np.testing.assert_allclose(xp.host(rows.get_covariance()), xp.host(spectrum.get_covariance()), atol=1e-3)
    np.testing.assert_allclose(xp.host(rows.precisions_), xp.host(spectrum.precisions_), rtol=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_missing_values_leave_the_dimension_and_the_posterior_never_decreases(seed):
    X = with_holes(planted(seed, 300, 10, 3, 5.0))
    model = BayesianPCA(random_state=0).fit(X)
    trace = model.log_likelihoods_
    assert model.n_components_ == 3
    assert model.converged_
    assert np.all(np.diff(trace) >= 0)
    free = ProbabilisticPCA(3, random_state=0).fit(X)
    size = np.max(free.get_covariance())
    np.testing.assert_allclose(model.get_covariance(), free.get_covariance(), atol=0.1 * size)
    assert np.all(model.explained_variance_ < free.explained_variance_)


def test_missing_values_in_every_library(xp):
    X = with_holes(planted(5, 150, 6, 2, 5.0))
    reference = BayesianPCA(4, random_state=0, tol=1e-6).fit(X)
    model = BayesianPCA(4, random_state=0, tol=1e-6).fit(xp.array(X))
    assert model.n_components_ == reference.n_components_ == 2
    np.testing.assert_allclose(xp.host(model.get_covariance()), reference.get_covariance(), atol=1e-8)
    np.testing.assert_allclose(xp.host(model.impute(xp.array(X))), reference.impute(X), atol=1e-8)


@pytest.mark.parametrize("solver", ["spectrum", "em"])
def test_noise_alone_leaves_no_component(xp, solver):
    X = np.random.default_rng(0).standard_normal((400, 5)) * 2.0 + 1.0
    rows = xp.array(X)
    with pytest.warns(RankWarning, match="no component is left"):
        model = BayesianPCA(solver=solver, random_state=0).fit(rows)
    assert model.n_components_ == 0
    assert model.transform(rows).shape == (400, 0)
    assert model.posterior_covariance().shape == (0, 0)
    assert np.all(np.isinf(xp.host(model.precisions_)))
    noise = np.var(X - X.mean(axis=0)) * 400 / 399
    assert model.noise_variance_ == pytest.approx(noise, rel=1e-6)
    centered = X - X.mean(axis=0)
    reference = -0.5 * (np.sum(centered**2, axis=1) / noise + 5 * np.log(2 * np.pi * noise))
    np.testing.assert_allclose(xp.host(model.score_samples(rows)), reference, rtol=1e-5)
    Y = with_holes(X)
    np.testing.assert_allclose(xp.host(model.impute(xp.array(Y))), np.where(np.isnan(Y), X.mean(axis=0), Y), rtol=1e-5)
    assert model.sample(3).shape == (3, 5)
    np.testing.assert_allclose(xp.host(model.get_covariance()), model.noise_variance_ * np.eye(5), rtol=1e-12)


def test_one_feature_and_no_variance():
    with pytest.warns(RankWarning):
        model = BayesianPCA().fit(np.arange(5.0)[:, None])
    assert model.n_components_ == 0
    assert model.noise_variance_ == pytest.approx(2.5)
    with pytest.warns(RankWarning):
        model = BayesianPCA().fit(np.ones((4, 3)))
    assert model.noise_variance_ == 0


@pytest.mark.parametrize("solver", ["spectrum", "em"])
def test_constant_features_change_nothing_but_the_share_of_the_noise(xp, solver):
    X = planted(0, 200, 8, 2, 5.0)
    Y = np.hstack([X, np.full((200, 3), 7.0)])
    fit = lambda data: BayesianPCA(solver=solver, random_state=0).fit(xp.array(data))  # noqa: E731
    reference, model = fit(X), fit(Y)
    assert model.n_components_ == reference.n_components_ == 2
    components = xp.host(model.components_)
    np.testing.assert_allclose(components[:, :8], xp.host(reference.components_), atol=1e-2)
    np.testing.assert_allclose(components[:, 8:], 0.0, atol=1e-12)
    likely = ProbabilisticPCA(2).fit(Y)
    assert model.noise_variance_ == pytest.approx(likely.noise_variance_, rel=1e-2)
    assert reference.noise_variance_ * 6 / 9 == pytest.approx(likely.noise_variance_, rel=1e-2)
    assert n_components_for(Y, "bayesian") == 2


def test_a_repeated_feature_and_sums_of_features_leave_the_dimension():
    X = planted(0, 300, 10, 3, 20.0)
    lift = np.linalg.qr(np.random.default_rng(1).standard_normal((14, 14)))[0][:10]
    for Y in (X @ lift, X @ lift * 1e-9, X @ lift + 1e6):
        model = BayesianPCA().fit(Y)
        assert model.converged_
        assert model.n_components_ == n_components_for(Y, "bayesian") == 3
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((500, 3)) @ rng.standard_normal((3, 20)) + 0.1 * rng.standard_normal((500, 20))
    assert BayesianPCA().fit(np.hstack([Z, np.ones((500, 1))])).n_components_ == 3
    # The noise that a feature shares with its copy is a factor of its own.
    assert BayesianPCA().fit(np.hstack([Z, Z[:, :1]])).n_components_ == 4


@pytest.mark.parametrize("solver", ["spectrum", "em"])
@pytest.mark.parametrize(("n", "d", "K"), [(40, 60, 2), (30, 200, 3), (20, 400, 0)])
def test_fewer_samples_than_features_keep_what_stands_out(solver, n, d, K):
    for seed in range(3):
        X = planted(seed, n, d, K, 20.0 * d / n)
        model = BayesianPCA(10, solver=solver, random_state=0, tol=1e-8)
        with pytest.warns(RankWarning, match="no component is left") if K == 0 else nullcontext():
            model.fit(X)
        assert model.n_components_ == K
        # The fixed point in all features, with variances over n.
        values = np.linalg.svd(X - X.mean(axis=0))[1] ** 2 / n
        c, s = model.explained_variance_ * (n - 1) / n, model.noise_variance_ * (n - 1) / n
        np.testing.assert_allclose(n * (values[:K] - c) * (c - s), d * c**2, rtol=1e-3)
        left = np.sum(values) - np.sum(values[:K])
        slope = np.sum(1 / c - values[:K] / c**2) + (d - K) / s - left / s**2
        assert abs(slope) < 1e-3 * left / s**2


def test_the_rule_takes_fewer_samples_than_features():
    X = planted(0, 30, 90, 2, 60.0)
    assert n_components_for(X, "bayesian") == n_components_for(PCA().fit(X), "bayesian") == 2
    assert BayesianPCA().fit(X).n_components_ == 2
    assert n_components_for(np.random.default_rng(0).standard_normal((20, 400)), "bayesian") == 0
    assert n_components_for(np.ones((5, 3)), "bayesian") == 0


@pytest.mark.parametrize("features", [slice(None), slice(3, None)])
def test_constant_features_with_missing_values_leave_the_dimension(features):
    X = planted(1, 300, 10, 3, 5.0)
    X[:, :3] = 4.0
    X = with_holes(X[:, features])
    model = BayesianPCA(random_state=0).fit(X)
    assert model.n_components_ == BayesianPCA(random_state=0).fit(X[:, -7:]).n_components_ < 6


def test_too_few_samples_are_reported():
    X = np.random.default_rng(0).standard_normal((51, 50))
    with pytest.warns(RankWarning, match="most candidates stay") as caught:
        assert BayesianPCA().fit(X).n_components_ == 49
    assert caught[0].message.values == {"kept": 49, "candidates": 49, "n_samples": 51}


def test_noise_at_its_floor_is_reported():
    X = planted(0, 100, 6, 2, 5.0)
    X[:, 5] = X[:, 4]
    X[::7, 0] = np.nan
    with pytest.warns(RankWarning, match="fell to its floor"):
        BayesianPCA(random_state=0).fit(X)


@pytest.mark.parametrize("factor", [1e-150, 1e150])
def test_units_do_not_matter(factor):
    X = planted(0, 200, 6, 2, 5.0)
    reference, model = BayesianPCA().fit(X), BayesianPCA().fit(X * factor)
    assert model.converged_
    assert model.n_components_ == reference.n_components_ == 2
    assert model.noise_variance_ / factor / factor == pytest.approx(reference.noise_variance_, rel=1e-9)
    Y = with_holes(X, 0.3)
    reference, model = (BayesianPCA(random_state=0, tol=1e-6).fit(Z) for Z in (Y, Y * factor))
    assert model.n_components_ == reference.n_components_ == 2
    assert model.noise_variance_ / factor / factor == pytest.approx(reference.noise_variance_, rel=1e-9)


def test_variances_that_vanish_in_single_precision_do_not_change_the_number_of_components():
    X = planted(0, 200, 6, 2, 5.0)
    with pytest.warns(PrecisionWarning, match="float32 has no variances so small"):
        model = BayesianPCA().fit((X * 2.0**-100).astype(np.float32))
    assert model.n_components_ == 2
    assert model.noise_variance_ * 4.0**100 == pytest.approx(BayesianPCA().fit(X).noise_variance_, rel=1e-5)


def test_no_step_makes_the_posterior_smaller_where_there_is_next_to_no_noise():
    X = planted(0, 40, 6, 2, 5.0)
    X[:, 2] = 4.0
    model = BayesianPCA(random_state=0, tol=1e-6).fit(with_holes(X, 0.5))
    assert np.all(np.diff(model.log_likelihoods_) >= 0)
    assert len(model.log_likelihoods_) == model.n_iter_ + 1


def test_a_limit_on_the_candidates_is_kept():
    model = BayesianPCA(2).fit(planted(0, 300, 10, 4, 5.0))
    assert model.n_components_ == len(model.precisions_) == 2


def test_a_solver_of_another_estimator_is_refused():
    with pytest.raises(InvalidParameterError, match="'spectrum'"):
        BayesianPCA(solver="closed_form").fit(np.eye(3))


def test_the_rule_is_the_estimator():
    for seed in range(5):
        X = planted(seed, 200, 12, 4, 1.0)
        report = n_components_for(X, "bayesian", return_report=True)
        assert report.n_components == BayesianPCA().fit(X).n_components_
        assert np.sum(report.values > 0) == report.n_components


@pytest.mark.parametrize(("n", "d"), [(120, 6), (40, 9), (10, 14), (7, 30)])
@pytest.mark.filterwarnings("ignore::gpukpca.exceptions.GpuKPCAWarning")
def test_data_of_a_lower_rank_keep_all_their_directions_as_with_a_little_noise(n, d, dtype):
    """By the spectrum, by EM on rows and batches, by the rule and for any units: the limit of small noise."""
    for rank in range(1, min(n - 1, d)):
        rng = np.random.default_rng(rank)
        X = (rng.standard_normal((n, rank)) @ rng.standard_normal((rank, d))).astype(dtype)
        wide = X.astype(np.float64) - X.astype(np.float64).mean(axis=0)
        values = np.linalg.svd(wide, compute_uv=False)[: rank + 1] ** 2
        assert values[rank - 1] > 1e-5 * values[0]  # else rounding of float32
        model = BayesianPCA().fit(X)
        assert model.n_components_ == rank
        assert model.noise_variance_ == 0.0
        room = 1e3 * np.finfo(dtype).eps * values[0] / (n - 1)
        np.testing.assert_allclose(model.explained_variance_, values[:rank] / (n - 1), rtol=0, atol=room)
        np.testing.assert_allclose(model.get_covariance(), np.cov(wide, rowvar=False), rtol=0, atol=room)
        assert np.all(np.isfinite(model.transform(X)))
        assert np.all(np.isfinite(model.precisions_) == (np.arange(len(model.precisions_)) < rank))
        noisy = X.astype(np.float64) + 1e-5 * rng.standard_normal(X.shape)
        assert BayesianPCA().fit(noisy).n_components_ == rank
        for other in (X * 2.0**40, X + X.dtype.type(8.0), np.hstack([X, np.full((n, 3), 7.0, dtype=dtype)])):
            assert BayesianPCA().fit(other).n_components_ == rank
        assert BayesianPCA(rank).fit(X).n_components_ == rank
        assert n_components_for(X, "bayesian") == n_components_for(PCA().fit(X), "bayesian") == rank
        if rank < 4:
            assert BayesianPCA(random_state=0).fit(Batches([X[:3], X[3:]])).n_components_ == rank


def test_data_without_noise_are_reported():
    rng = np.random.default_rng(0)
    with pytest.warns(RankWarning, match="the noise variance is 0: features are combinations of others"):
        assert BayesianPCA().fit(rng.standard_normal((120, 2)) @ rng.standard_normal((2, 6))).n_components_ == 2
