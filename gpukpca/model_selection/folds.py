"""Scores of the candidates of a search on one fold: fitted to its training rows, judged by its held-out rows.

Candidates of one kernel share K and its eigenpairs: those at the largest number of components serve all smaller ones.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.algorithms.kernel_pca.fit import fit_rows
from gpukpca.algorithms.kernel_pca.model import KernelPCAFit
from gpukpca.algorithms.kernel_pca.settings import resolved_within
from gpukpca.algorithms.kernel_pca.spectrum import is_cluster
from gpukpca.algorithms.kernel_pca.task import FitTask
from gpukpca.algorithms.preimage.linear import fit_preimage
from gpukpca.algorithms.resources import MemoryBudget, Resources, retry_on_oom
from gpukpca.backend.linalg import column_sums
from gpukpca.backend.namespace import accumulation_dtype, cast, epsilon, item_size
from gpukpca.backend.random import Randomness
from gpukpca.data.finite import check_finite
from gpukpca.data.place import placement_for
from gpukpca.data.statistics import square_sums
from gpukpca.decomposition._kernels import kernel_from
from gpukpca.decomposition._session import settings_of
from gpukpca.decomposition.preimage.methods import check_preimage_suits
from gpukpca.eigen.residuals import NULL_FACTOR
from gpukpca.exceptions import DeviceLostError, InvalidParameterError, PrecisionWarning, held_warnings
from gpukpca.model_selection.grid import GridPoint

Report = Callable[[int], None]


@dataclass(frozen=True)
class CVFold:
    """Training rows X (n, d) and held-out rows X_new (m, d) where they are computed, a limit of bytes, and threads."""

    X: Array
    X_new: Array
    limit: int | None
    n_jobs: int | None


def left_for_candidates(X: Array, splits: list[Any], candidates: list[GridPoint], resources: Resources) -> int | None:
    """Return what the copies of a fold leave of a limit that was set; raise `MemoryBudgetError` where nothing is left.

    Candidates need those of a rule for gamma, and a vector of the training rows for each component.
    """
    n, d, item = int(X.shape[0]), int(X.shape[1]), item_size(X.dtype)
    copies = max(len(train) + len(test) for train, test in splits) * d * item
    rules = min(kernel_from(one.estimator).rule_bytes(n, d) for one in candidates)
    vectors = min(max(one.p, 1) for one in candidates) * min(len(train) for train, _ in splits) * item
    needed = copies + max(rules, vectors)
    resources.check(needed, f"a fold of {n} rows of {d} features needs")
    return resources.allowed() - copies if resources.is_limited else None


@dataclass(frozen=True)
class CandidateScore:
    """The result of a candidate on a fold.

    Attributes
    ----------
    score : float
        Minus the mean squared reconstruction error of the held-out rows; NaN where the candidate failed.
    fit_seconds, score_seconds : float
        The candidate's own time, with an equal part of what it shared.
    error : Exception or None
    unconverged : int
        Pre-images of held-out rows that did not converge.
    undetermined : bool
        The last component and the next one have equal eigenvalues to rounding.
    """

    score: float = math.nan
    fit_seconds: float = 0.0
    score_seconds: float = 0.0
    error: Exception | None = None
    unconverged: int = 0
    undetermined: bool = False


# The fit of the most components of a group, its resources, and the scores of the held-out rows.
_SharedFit = tuple[KernelPCAFit, Resources, Array]


def score_fold(fold: CVFold, groups: list[list[GridPoint]], report: Report) -> dict[int, CandidateScore]:
    """Return the scores of the members of all groups by their numbers; a group begins with the most components."""
    scores: dict[int, CandidateScore] = {}
    n = int(fold.X.shape[0])
    for group in groups:
        members = [member for member in group if member.p <= n]
        for member in group[: len(group) - len(members)]:
            message = f"n_components={member.p} is more than the {n} training rows of the fold"
            scores[member.number] = CandidateScore(error=InvalidParameterError(message))
        scores |= _score_group(fold, members)
        report(len(scores))
    return scores


def _score_group(fold: CVFold, group: list[GridPoint]) -> dict[int, CandidateScore]:
    """Return the scores of members by one fit: that of the first which succeeds."""
    scores: dict[int, CandidateScore] = {}
    while group:
        started = time.perf_counter()
        try:
            shared = _shared_fit(fold, group[0])
        except DeviceLostError:  # which ends the search
            raise
        except Exception as error:  # fewer components may be possible
            first, *group = group
            scores[first.number] = CandidateScore(fit_seconds=time.perf_counter() - started, error=error)
            continue
        seconds = (time.perf_counter() - started) / len(group)
        scores |= {member.number: _score(fold, member, shared, seconds) for member in group}
        break
    return scores


def _shared_fit(fold: CVFold, candidate: GridPoint) -> _SharedFit:
    """Return the fit of a candidate to the training rows."""
    estimator, budget = candidate.estimator, MemoryBudget(fold.limit, fold.X)

    def attempt() -> _SharedFit:
        resources = Resources.within(budget, placement_for(None, fold.X), fold.n_jobs)
        kernel = resolved_within(kernel_from(estimator), fold.X, resources)
        settings = replace(settings_of(estimator, kernel), copies_data=False)
        # One warning reports the undetermined components of all fits together.
        with held_warnings(PrecisionWarning):
            fit = fit_rows(fold.X, kernel, settings, resources, random=Randomness(estimator.random_state))
        return fit, resources, fit.space.checked_scores(fold.X_new)

    return retry_on_oom(attempt, budget)


def _score(fold: CVFold, member: GridPoint, shared: _SharedFit, seconds: float) -> CandidateScore:
    """Return the score of a member by the leading components of a shared fit."""
    fit, resources, scores = shared
    computed, started = len(fit.spectrum.eigenvalues), time.perf_counter()
    p = min(member.p or computed, computed)
    part = fit.leading(p)
    try:
        preimage = _learned_preimage(fold, member, part, resources)
        learned = time.perf_counter()
        points, info = preimage(scores[:, :p], fold.X_new)
        check_finite(points, "The kernel overflows on these scores.", "The array of points")
        wide = accumulation_dtype(points)
        errors = square_sums(cast(fold.X_new, wide) - cast(points, wide))
        score = -float(column_sums(errors[:, None])[0]) / int(errors.shape[0])
    except DeviceLostError:
        raise
    except Exception as error:
        return CandidateScore(fit_seconds=seconds + time.perf_counter() - started, error=error)
    seconds, score_seconds = seconds + learned - started, time.perf_counter() - learned
    unconverged = int(np.sum(~info.converged))
    return CandidateScore(score, seconds, score_seconds, None, unconverged, _ends_in_cluster(part))


def _learned_preimage(fold: CVFold, member: GridPoint, fit: KernelPCAFit, resources: Resources) -> Any:
    """Return the pre-image that a separate fit of a member would learn."""
    settings = settings_of(member.estimator, fit.kernel)
    check_preimage_suits(settings.preimage, fit.kernel, by_flag=member.estimator.preimage is None)
    landmarks = FitTask.of(fold.X, fit.kernel, settings, resources).preimage_landmarks
    return fit_preimage(fold.X, replace(fit, plan=replace(fit.plan, preimage_landmarks=landmarks)), settings.preimage)


def _ends_in_cluster(fit: KernelPCAFit) -> bool:
    """Return whether rounding alone separates the last component of an exact fit from the next one."""
    values = fit.spectrum.eigenvalues
    if fit.gap is None or fit.certificate is not None or not len(values):
        return False
    # What centering took from K, 1ᵀK1/n, is the scale of the rounding where it is larger than the eigenvalues.
    size = max(float(values[0]), fit.n_samples * abs(fit.map.mean_norm))
    return is_cluster(fit.gap, float(values[-1]), NULL_FACTOR * epsilon(fit.eigenvectors) * size)
