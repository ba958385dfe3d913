"""The search over kernels beside `GridSearchCV` over the same grid, in turn, both with their refit; wall seconds.

Run alone on an idle machine: ``python -m pytest benchmarks/bench_search.py --large -s``.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV

from benchmarks.datasets import load, why_absent
from gpukpca import KernelPCA
from gpukpca.model_selection import KernelPCACV

N, FOLDS, ROUNDS = 2000, 5, 3
# Gammas from 2^-12 to 2^-5, evenly in logarithms, and numbers of components.
GRIDS = [(2, (16, 32, 64, 128, 256)), (4, (8, 32, 128)), (5, (4, 8, 16, 32, 64)), (5, (16, 64, 256))]
# Of the mean scores.
AGREEMENT = 1e-9


@pytest.mark.large
@pytest.mark.parametrize(("n_gammas", "components"), GRIDS, ids=str)
def test_search(benchmark: Any, n_gammas: int, components: tuple[int, ...]) -> None:
    if reason := why_absent("usps"):
        pytest.skip(reason)
    X = load("usps", N, 256, "float64")
    gammas = [float(gamma) for gamma in np.geomspace(2.0**-12, 2.0**-5, n_gammas)]
    taken: dict[str, list[float]] = {"KernelPCACV": [], "GridSearchCV": []}
    fitted: dict[str, Any] = {}

    def both() -> None:
        """The one that came last comes first in the next round."""
        searches = {
            "KernelPCACV": KernelPCACV("rbf", gammas=gammas, n_components=components, preimage="ridge", cv=FOLDS),
            "GridSearchCV": GridSearchCV(
                KernelPCA(kernel="rbf", preimage="ridge"), {"gamma": gammas, "n_components": components}, cv=FOLDS
            ),
        }
        for name in sorted(searches, reverse=bool(len(taken["KernelPCACV"]) % 2)):
            started = time.perf_counter()
            fitted[name] = searches[name].fit(X)
            taken[name].append(time.perf_counter() - started)

    benchmark.pedantic(both, rounds=ROUNDS)
    ours, theirs = (fitted[name].cv_results_["mean_test_score"] for name in ("KernelPCACV", "GridSearchCV"))
    apart = float(np.max(np.abs(ours / theirs - 1.0)))
    assert apart <= AGREEMENT
    assert fitted["KernelPCACV"].best_params_ == fitted["GridSearchCV"].best_params_
    ratio = median(b / a for a, b in zip(taken["KernelPCACV"], taken["GridSearchCV"], strict=True))
    benchmark.extra_info |= {"ratio": ratio, "apart": apart}
    seconds = ", ".join(f"{name} {median(each):.1f} s" for name, each in taken.items())
    print(f"\nUSPS {N}, {n_gammas} gammas x {components}, {FOLDS} folds: {seconds}, median of the ratios {ratio:.1f}")
    print(f"  mean scores apart by {apart:.0e}; {fitted['KernelPCACV'].sharing_}")
