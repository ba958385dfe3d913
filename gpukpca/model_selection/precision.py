"""Float32 in a search: which fits are computed in it, and which of them again in full.

What two candidates differ by is as a rule far above what rounding in float32 costs, and float32 halves the bytes of
every decomposition and its time. So float64 data are searched in float32, and in float64 only where that may decide:
where float32 is not fit for a candidate, and among candidates that are too near to the best one to tell.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend.namespace import dtype_name
from gpukpca.decomposition.preimage.methods import RidgePreimage, preimage_method
from gpukpca.kernels.families import is_of_distances
from gpukpca.model_selection.fold_rows import CONDITION
from gpukpca.model_selection.folds import Outcome
from gpukpca.model_selection.grid import Candidate

SEARCH_DTYPES = ("auto", "float32", "float64")
# With fewer training rows a search in float64 is a matter of seconds.
NARROW_FROM = 1000
# Mean scores that are nearer to the best than this share of it are compared in full.
RIVAL = 3e-4


def suited(search_dtype: str, X: Array, smallest: int, candidates: list[Candidate]) -> set[int]:
    """The numbers of the candidates that are fitted in float32 first.

    Parameters
    ----------
    search_dtype : one of SEARCH_DTYPES
    X : array, shape (n, d)
    smallest : int
        Rows of the smallest training part.
    candidates : list of Candidate
    """
    wanted = search_dtype == "float32" or (search_dtype == "auto" and smallest >= NARROW_FROM)
    if not wanted or dtype_name(X.dtype) != "float64":
        return set()
    return {one.number for one in candidates if _is_suited(one.estimator, int(X.shape[0]))}


def _is_suited(estimator: Any, n: int) -> bool:
    """Whether pre-images are continuous in the data, move with them, and are found by a well-conditioned matrix.

    The other methods choose, a nearest point or neighbours: a difference of 1e-7 may send a point elsewhere.
    """
    method = preimage_method(estimator)
    if not isinstance(method, RidgePreimage):
        return False
    return method.centered and is_of_distances(method.latent_kernel()) and n <= CONDITION * method.alpha


def doubtful(folds: list[dict[int, Outcome]]) -> set[int]:
    """The candidates whose scores in float32 may be rounding on some fold, or that failed."""
    every = ((number, outcome) for fold in folds for number, outcome in fold.items())
    return {number for number, outcome in every if outcome.doubtful or (outcome.narrow and outcome.error is not None)}


def rivals(folds: list[dict[int, Outcome]]) -> set[int]:
    """The candidates whose scores in float32 are too near to the best mean score to decide, the best one included."""
    means = {number: float(np.mean([fold[number].score for fold in folds])) for number in folds[0]}
    known = {number: mean for number, mean in means.items() if math.isfinite(mean)}
    best = max(known.values(), default=0.0)
    near = {number for number, mean in known.items() if best - mean <= RIVAL * abs(best)}
    if len(near) < 2:
        return set()
    return {number for number in near if any(fold[number].narrow for fold in folds)}
