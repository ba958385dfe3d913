"""Local PCA without an estimator: the same bits as the estimator's attributes."""

from __future__ import annotations

import doctest

import numpy as np
import pytest
import scipy.sparse

from gpukpca import LocalPCA
from gpukpca.algorithms import MixtureSettings, fit_local_pca
from gpukpca.algorithms.fields import attributes_of
from gpukpca.algorithms.mixture import fit as local_fit
from tests.datasets import same_bits


def rows_of(rng):
    rows = rng.standard_normal((90, 4)) * np.array([3.0, 1.0, 0.3, 0.1])
    rows[45:] = rows[45:, ::-1] + 8.0
    return rows


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("method", ["mixture", "hard"])
def test_fit_local_pca_has_the_bits_of_the_estimator(xp, rng, method, dtype):
    X = xp.array(rows_of(rng).astype(dtype))
    fit = fit_local_pca(X, 2, 2, settings=MixtureSettings(method), rng=0)
    model = LocalPCA(2, 2, method=method, random_state=0).fit(X)
    for name, value in attributes_of(fit, "model").items():
        if value is None:
            assert name not in vars(model)
        else:
            assert same_bits(value, getattr(model, name), xp), name
    scores = model.transform(X)
    assert same_bits(fit.transform(X), scores, xp)
    assert same_bits(fit.predict(X), model.predict(X), xp)
    assert same_bits(fit.inverse_transform(scores, fit.labels), model.inverse_transform(scores, model.labels_), xp)
    assert same_bits(fit.log_density(X), model.score_samples(X), xp)


def test_bic_chooses_the_clusters(rng):
    fit = fit_local_pca(rows_of(rng), [1, 2, 3], 1, rng=0)
    assert fit.bic[fit.n_clusters, fit.n_components] == min(fit.bic.values())
    assert sorted(fit.bic) == [(1, 1), (2, 1), (3, 1)]


@pytest.mark.parametrize(
    ("X", "arguments", "words"),
    [
        (np.ones(3), (), "two-dimensional"),
        (np.array([[1.0, np.nan], [1.0, 2.0]]), (), "NaN"),
        (scipy.sparse.eye_array(5).tocsr(), (), "dense"),
        (np.eye(5), (9,), "n_clusters=9"),
    ],
    ids=["one dimension", "NaN", "sparse", "too many"],
)
def test_fit_local_pca_names_what_is_wrong(X, arguments, words):
    with pytest.raises(ValueError, match=words):
        fit_local_pca(X, *arguments)


def test_examples_run():
    assert doctest.testmod(local_fit).failed == 0
