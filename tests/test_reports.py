"""What a fit says of digits that were lost: the same for every way of choosing the number of components."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from gpukpca import KernelPCA
from gpukpca.exceptions import PrecisionWarning, RankWarning


def data(n: int = 60, d: int = 5, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, d))


def caught(call: Any) -> list[tuple[type[Warning], str]]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
    return [(warning.category, str(warning.message)) for warning in found]


LOST = {
    "cosine": ({"kernel": "cosine"}, 1e3),
    "poly": ({"kernel": "poly", "degree": 2}, 1e4),
}
CHOICES = {
    "count": {"n_components": 3},
    "all": {"n_components": None},
    "without zeros": {"n_components": 3, "remove_zero_eig": True},
}


@pytest.mark.parametrize("solver", ["dense", "randomized"])
@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("name", LOST)
def test_lost_digits_are_reported_however_components_are_chosen(xp, name, choice, solver):
    settings, offset = LOST[name]
    X = xp.array(data() + offset, "float32")
    model = KernelPCA(**CHOICES[choice], **settings, eigen_solver=solver, random_state=0)
    found = caught(lambda: model.fit(X))
    assert any(kind is PrecisionWarning and "float32 cannot resolve" in text for kind, text in found)
    kept = model.eigenvalues_.shape[0]
    assert any(kind is RankWarning and "none is kept" in text for kind, text in found) == (kept == 0)


@pytest.mark.parametrize("solver", ["dense", "randomized", "nystrom"])
@pytest.mark.parametrize("choice", ["all", "without zeros"])
@pytest.mark.filterwarnings("ignore:only 0 of the:gpukpca.exceptions.RankWarning")
def test_where_nothing_is_kept_a_fit_says_so(xp, dtype, choice, solver):
    model = KernelPCA(**CHOICES[choice], kernel="rbf", eigen_solver=solver, random_state=0)
    with pytest.warns(RankWarning, match="none is kept"):
        scores = model.fit_transform(xp.array(np.ones((6, 2)), dtype))
    assert scores.shape == (6, 0)


def test_digits_that_are_there_are_not_reported_as_lost():
    for choice in CHOICES.values():
        assert caught(lambda choice=choice: KernelPCA(**choice, kernel="cosine").fit(data())) == []
