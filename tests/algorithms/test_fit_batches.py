"""PCA of batches without an estimator: the same bits as the estimator's attributes."""

from __future__ import annotations

import numpy as np
import pytest

from gpukpca import IncrementalPCA
from gpukpca.algorithms import IncrementalFit, fit_pca_batches, update_pca
from gpukpca.algorithms.fields import attributes_of
from tests.datasets import same_bits


def batches_of(xp, rng, dtype="float64"):
    rows = rng.standard_normal((90, 7)) @ np.diag(np.linspace(3.0, 0.1, 7)) + 4.0
    return [xp.array(part.astype(dtype)) for part in np.split(rows, [31, 60])]


def assert_published(fit, model, xp):
    for name, value in attributes_of(fit, "state").items():
        if value is None:
            assert name not in vars(model)
        else:
            assert same_bits(value, getattr(model, name), xp), name


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_updates_have_the_bits_of_the_estimator(xp, rng, dtype):
    state, model = None, IncrementalPCA(3, whiten=True)
    for batch in batches_of(xp, rng, dtype):
        state, model = update_pca(state, batch, 3), model.partial_fit(batch)
    fit = IncrementalFit.of(state, batch.dtype)
    assert_published(fit, model, xp)
    scores = model.transform(batch)
    assert same_bits(fit.transform(batch, whiten=True), scores, xp)
    assert same_bits(fit.inverse_transform(scores, whiten=True), model.inverse_transform(scores), xp)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_exact_fit_has_the_bits_of_the_estimator(xp, rng, dtype):
    batches = batches_of(xp, rng, dtype)
    fit = fit_pca_batches(batches, 3)
    assert_published(fit, IncrementalPCA(3, exact=True).fit(batches), xp)


def test_update_names_what_is_wrong(rng):
    state = update_pca(None, rng.standard_normal((9, 4)), 2)
    with pytest.raises(ValueError, match="5 features"):
        update_pca(state, np.ones((3, 5)))
    with pytest.raises(ValueError, match="n_components has changed"):
        update_pca(state, np.ones((3, 4)), 3)
    with pytest.raises(ValueError, match="NaN"):
        update_pca(state, np.full((3, 4), np.nan))
    with pytest.raises(ValueError, match="at least one batch"):
        fit_pca_batches([])
