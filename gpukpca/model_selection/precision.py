"""Float32 in a search: which fits are computed in it, and which of them again in full.

What two candidates differ by is as a rule far above what rounding in float32 costs, and float32 halves the bytes of
every decomposition and its time. So float64 data are searched in float32, and in float64 only where that may decide:
where float32 is not fit for a candidate, and among candidates that are too near to the best one to tell.
"""

from __future__ import annotations

import math
from collections import Counter
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
RIVAL = 5e-4


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


def unfit(folds: list[dict[int, Outcome]]) -> set[int]:
    """The candidates that float32 has left in doubt on more than one fold, and that are not tried in it on others."""
    doubts = Counter(number for fold in folds for number, outcome in fold.items() if _is_doubted(outcome))
    return {number for number, times in doubts.items() if times > 1}


def unsettled(folds: list[dict[int, Outcome]], every: set[int]) -> list[set[int]]:
    """For every fold the candidates that have no score on it, or one that may be rounding."""
    return [{number for number in every if number not in fold or _is_doubted(fold[number])} for fold in folds]


def _is_doubted(outcome: Outcome) -> bool:
    return outcome.doubtful or (outcome.narrow and outcome.error is not None)


def rivals(folds: list[dict[int, Outcome]]) -> list[set[int]]:
    """For every fold the candidates with scores in float32 and means too near to the best to decide, it included."""
    means = {number: float(np.mean([fold[number].score for fold in folds])) for number in folds[0]}
    known = {number: mean for number, mean in means.items() if math.isfinite(mean)}
    best = max(known.values(), default=0.0)
    near = {number for number, mean in known.items() if best - mean <= RIVAL * abs(best)}
    return [{number for number in near if len(near) > 1 and fold[number].narrow} for fold in folds]
