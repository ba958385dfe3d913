"""Fits of latent variable models without an estimator: the same bits as the estimators' attributes."""

from __future__ import annotations

import doctest

import numpy as np
import pytest

from gpukpca import BayesianPCA, ProbabilisticPCA
from gpukpca.algorithms import LatentSettings, fit_bayesian_pca, fit_probabilistic_pca
from gpukpca.algorithms.fields import attributes_of
from gpukpca.algorithms.latent import fit as latent_fit
from tests.datasets import same_bits

PAIRS = [(fit_probabilistic_pca, ProbabilisticPCA), (fit_bayesian_pca, BayesianPCA)]


def rows_of(xp, rng, dtype, missing):
    rows = rng.standard_normal((57, 3)) @ rng.standard_normal((3, 8)) + 0.1 * rng.standard_normal((57, 8)) + 5.0
    if missing:
        rows[rng.random(rows.shape) < 0.1] = np.nan
    return xp.array(rows.astype(dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("missing", [False, True], ids=["complete", "missing"])
@pytest.mark.parametrize(("function", "estimator"), PAIRS, ids=["probabilistic", "bayesian"])
def test_functions_have_the_bits_of_the_estimators(xp, rng, function, estimator, missing, dtype):
    X = rows_of(xp, rng, dtype, missing)
    fit = function(X, 3, settings=LatentSettings(tol=1e-3), rng=0)
    model = estimator(3, tol=1e-3, random_state=0).fit(X)
    for name, value in attributes_of(fit, "model").items():
        if value is None:
            assert name not in vars(model)
        else:
            assert same_bits(value, getattr(model, name), xp), name
    scores = model.transform(X)
    assert same_bits(fit.transform(X), scores, xp)
    assert same_bits(fit.inverse_transform(scores), model.inverse_transform(scores), xp)
    assert same_bits(fit.log_density(X), model.score_samples(X), xp)


def test_batches_are_one_set_of_rows(rng):
    X = rng.standard_normal((60, 6)) * np.arange(1.0, 7.0)
    whole = fit_probabilistic_pca(X, 2, settings=LatentSettings(solver="em"), rng=0)
    parts = fit_probabilistic_pca([X[:17], X[17:]], 2, rng=0)
    assert np.allclose(whole.explained_variance, parts.explained_variance)
    assert np.all(np.diff(parts.log_likelihoods) >= 0)


def test_em_finds_the_closed_form(rng):
    X = rng.standard_normal((60, 6)) * np.arange(1.0, 7.0)
    closed = fit_probabilistic_pca(X, 2)
    em = fit_probabilistic_pca(X, 2, settings=LatentSettings(solver="em", tol=0.0), rng=0)
    assert closed.noise_variance == pytest.approx(em.noise_variance, rel=1e-5)
    assert np.allclose(np.sum(closed.log_density(X)), np.sum(em.log_density(X)))


@pytest.mark.parametrize(
    ("X", "settings", "words"),
    [
        (np.ones(3), LatentSettings(), "two-dimensional"),
        (np.array([[1.0, np.inf]]), LatentSettings(), "infinity"),
        ([np.ones((3, 2))], LatentSettings(solver="direct"), "iterable of batches"),
        (np.array([[1.0, np.nan], [1.0, 2.0]]), LatentSettings(solver="direct"), "missing values"),
    ],
    ids=["one dimension", "infinity", "batches", "missing"],
)
def test_functions_name_what_is_wrong(X, settings, words):
    with pytest.raises(ValueError, match=words):
        fit_probabilistic_pca(X, settings=settings)


def test_examples_run():
    assert doctest.testmod(latent_fit).failed == 0
