"""The search over kernels beside `GridSearchCV` over the same grid, in turn, both with their refit; wall seconds.

Run alone on an idle machine: ``python -m pytest benchmarks/bench_search.py --large``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV

from benchmarks.contest import alternate, clock
from benchmarks.datasets import load, why_absent
from gpukpca import KernelPCA
from gpukpca.model_selection import KernelPCACV

N, FOLDS, ROUNDS = 2000, 5, 2
# Gammas from 2^-12 to 2^-5, evenly in logarithms, and numbers of components.
GRIDS = {
    f"search-{n_gammas} gammas x {components}": (n_gammas, components)
    for n_gammas, components in (
        (2, (16, 32, 64, 128, 256)),
        (4, (8, 32, 128)),
        (5, (16, 64, 256)),
    )
}
# Relative difference of the mean scores.
AGREEMENT = 1e-9
SEARCHES = ("KernelPCACV", "GridSearchCV")

pytestmark = [pytest.mark.large, pytest.mark.benchmark(timer=clock.read)]


@cache
def taken(n_gammas: int, components: tuple[int, ...]) -> tuple[dict[str, list[float]], dict[str, Any]]:
    """Return the wall seconds of both searches, and the searches."""
    X = load("usps", N, 256, "float64")
    gammas = [float(gamma) for gamma in np.geomspace(2.0**-12, 2.0**-5, n_gammas)]
    grid = {"gamma": gammas, "n_components": components}
    make = {
        "KernelPCACV": lambda: KernelPCACV("rbf", gammas=gammas, n_components=components, preimage="ridge", cv=FOLDS),
        "GridSearchCV": lambda: GridSearchCV(KernelPCA(kernel="rbf", preimage="ridge"), grid, cv=FOLDS),
    }
    fits: dict[str, Any] = {}

    def seconds(name: str) -> float:
        search = make[name]()
        started = time.perf_counter()
        fits[name] = search.fit(X)
        return time.perf_counter() - started

    return alternate(SEARCHES, seconds, ROUNDS), fits


@pytest.mark.filterwarnings("ignore:the best gamma of the search lies on the edge")  # of few, which are timed
@pytest.mark.parametrize("contestant", SEARCHES)
@pytest.mark.parametrize("case", GRIDS)
def test_search(show_other: Callable[..., None], case: str, contestant: str) -> None:
    if reason := why_absent("usps"):
        pytest.skip(reason)
    seconds, fits = taken(*GRIDS[case])
    ours, theirs = (fits[name].cv_results_["mean_test_score"] for name in SEARCHES)
    apart = float(np.max(np.abs(ours / theirs - 1.0)))

    def check() -> None:
        assert apart <= AGREEMENT
        assert fits["KernelPCACV"].best_params_ == fits["GridSearchCV"].best_params_

    n_gammas, components = GRIDS[case]
    label = f"search: {N} USPS digits, {FOLDS} folds, {n_gammas} gammas × components {components}"
    show_other(case, contestant, label, seconds[contestant], check, apart=apart)
