"""Scores of the candidates of a search on one fold: fitted to its training rows, judged by its held-out rows.

Candidates share work: one matrix of distances or inner products serves all kernels of a family, and the eigenpairs at
the largest number of components serve all smaller ones.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
from sklearn.base import clone

from gpukpca._typing import Array
from gpukpca.algorithms.kernel_pca.feature_space import AffineProjection, FeatureSpace, square_sums
from gpukpca.algorithms.kernel_pca.settings import is_nystrom
from gpukpca.algorithms.kernel_pca.spectrum import checked_spectrum, truncates_cluster, warn_of_passes
from gpukpca.backend.device import is_on_gpu, synchronize
from gpukpca.backend.finite import check_finite
from gpukpca.backend.linalg import column_sums
from gpukpca.backend.namespace import accumulation_dtype, cast, item_size, namespace_of, to_host
from gpukpca.backend.parallel import map_tasks, worker_count
from gpukpca.backend.random import generator
from gpukpca.decomposition._kernels import kernel_from
from gpukpca.decomposition._session import settings_of
from gpukpca.decomposition.preimage.methods import RidgePreimage, check_preimage_suits, preimage_method
from gpukpca.eigen import Dense, EigenResult, top_eigh
from gpukpca.exceptions import ConvergenceWarning, DeviceLostError, InvalidParameterError, held_warnings
from gpukpca.gram import CenteredGram, DenseGram, gram_matrix
from gpukpca.kernels import Kernel
from gpukpca.kernels.user_defined import check_symmetry
from gpukpca.model_selection.grid import Candidate, same_setting
from gpukpca.model_selection.shared_gram import CommonKernel, common_kernel, from_common, widest_member

# Most matrices of n x n of a candidate: K, its copies in LAPACK, and the matrix of the scores.
SQUARES = 5
# Arrays of n x p that a model keeps: eigenvectors, their products, scores, and the projection.
ARRAYS = 4
# With K stored, LAPACK's partial solution is faster than iteration from one component in so many rows.
DENSE_FROM = 32

Result = TypeVar("Result")
Report = Callable[[int], None]
# Candidates that one decomposition serves, with their kernel.
Group = tuple[list[Candidate], Kernel]


@dataclass(frozen=True)
class CVFold:
    """Training rows X (n, d) and held-out rows X_new (m, d), bytes that may be allocated, and threads."""

    X: Array
    X_new: Array
    limit: int
    n_jobs: int | None


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
    shared : bool
        It took its distances from the matrix of its family.
    """

    score: float = math.nan
    fit_seconds: float = 0.0
    score_seconds: float = 0.0
    error: Exception | None = None
    unconverged: int = 0
    undetermined: bool = False
    shared: bool = False


@dataclass(frozen=True)
class _Family:
    """The matrices of the common kernel of some groups: between training rows, and from them to held-out rows."""

    common: CommonKernel
    square: Array
    across: Array


@dataclass(frozen=True)
class SharedDecomposition:
    """The eigenpairs of the most components of a group, the map of new points, and both sets of scores."""

    kernel: Kernel
    n_jobs: int | None
    eigen: EigenResult
    projection: AffineProjection
    scores: Array
    Z_new: Array
    facts: Any  # shape, dtype, like, trace and noise_scale of the centered matrix


def score_fold(fold: CVFold, groups: list[list[Candidate]], report: Report) -> dict[int, CandidateScore]:
    """Return the scores of the members of all groups by their numbers; a group begins with the most components."""
    scores: dict[int, CandidateScore] = {}
    families: dict[Any, list[Group]] = {}
    alone: list[list[Candidate]] = []
    n = int(fold.X.shape[0])
    for group in groups:
        members = [member for member in group if member.p <= n]
        for member in group[: len(group) - len(members)]:
            message = f"n_components={member.p} is more than the {n} training rows of the fold"
            scores[member.number] = CandidateScore(error=InvalidParameterError(message))
        if not members:
            continue
        kernel, _ = _attempt(partial(_resolved_kernel, fold, members[0]))
        if isinstance(kernel, Exception):
            scores |= {member.number: CandidateScore(error=kernel) for member in members}
            continue
        can_share = all(member.p for member in members) and not is_nystrom(members[0].estimator.eigen_solver)
        common = common_kernel(kernel) if can_share else None
        if common is None:
            alone.append(members)
        else:
            families.setdefault((type(common), common.kink), []).append((members, kernel))
    for family in families.values():
        workers = _workers(fold, [members for members, _ in family])
        if workers:
            before = len(scores)
            scores |= _score_together(fold, family, workers, lambda done: report(before + done))  # noqa: B023
        else:
            alone += [members for members, _ in family]
    for members in alone:
        scores |= _score_alone(fold, members)
        report(len(scores))
    return scores


def _attempt(work: Callable[[], Result]) -> tuple[Result | Exception, float]:
    """Return the result of some work, or its error, and its seconds; a lost device ends the search."""
    started = time.perf_counter()
    result: Result | Exception
    try:
        result = work()
    except DeviceLostError:
        raise
    except Exception as error:
        result = error
    return result, time.perf_counter() - started


def _resolved_kernel(fold: CVFold, candidate: Candidate) -> Kernel:
    kernel = kernel_from(candidate.estimator).resolve(fold.X)
    check_symmetry(kernel, fold.X)
    return kernel


def _candidate_score(
    fold: CVFold, learn: Callable[[], Any], denoise: Callable[[Any], tuple[Array, Any]], shared_seconds: float
) -> CandidateScore:
    """Return the score of ``denoise(learn())``, the points for the held-out rows and their convergence."""
    model, seconds = _attempt(learn)
    seconds += shared_seconds
    if isinstance(model, Exception):
        return CandidateScore(fit_seconds=seconds, error=model)

    def score() -> tuple[float, int]:
        points, info = denoise(model)
        wide = accumulation_dtype(points)
        errors = square_sums(cast(fold.X_new, wide) - cast(points, wide))
        return -float(column_sums(errors[:, None])[0]) / int(errors.shape[0]), int(np.sum(~info.converged))

    found, score_seconds = _attempt(score)
    if isinstance(found, Exception):
        return CandidateScore(fit_seconds=seconds + score_seconds, error=found)
    return CandidateScore(found[0], seconds, score_seconds, unconverged=found[1])


# -- kernels of one family ---------------------------------------------------------------------------------------------


def _workers(fold: CVFold, groups: list[list[Candidate]]) -> int:
    """Return the threads that fit into the memory with the common matrices and the models; 0 where these do not fit."""
    (n, d), m, item = fold.X.shape, int(fold.X_new.shape[0]), item_size(fold.X.dtype)
    models = sum((ARRAYS * n + m) * group[0].p for group in groups) * item
    left = fold.limit - 8 * n * (n + m) - models
    each = (SQUARES * n * n + n * m + 3 * n * d) * item
    return max(0, min(worker_count(fold.X, fold.n_jobs), sum(map(len, groups)), left // each))


def _score_together(fold: CVFold, groups: list[Group], workers: int, report: Report) -> dict[int, CandidateScore]:
    """Return the scores of candidates whose kernels share one matrix: first the decompositions, then the pre-images."""
    started = time.perf_counter()
    family, n_jobs = _family(fold, [kernel for _, kernel in groups]), 1 if workers > 1 else fold.n_jobs
    family_seconds = (time.perf_counter() - started) / len(groups)
    decompositions = [_Once(partial(_attempt, partial(_decompose, fold, *group, family, n_jobs))) for group in groups]
    if len(groups) < workers:  # each has all threads of BLAS
        _run(decompositions, 1, lambda done: None)

    def score(member: Candidate, decomposition: _Once, sharers: int) -> CandidateScore:
        shared, seconds = decomposition()
        found = _score_shared(fold, member, shared, (family_seconds + seconds) / sharers)
        return replace(found, shared=True)

    def report_scores(done: int) -> None:
        if done > len(groups):
            report(done - len(groups))

    members: list[Candidate] = []
    jobs: list[Callable[[], Any]] = [*decompositions]
    for (group, _), decomposition in zip(groups, decompositions, strict=True):
        members += group
        jobs += [partial(score, member, decomposition, len(group)) for member in group]
    # A thread that finds no decomposition left begins with the scores.
    scores = _run(jobs, workers, report_scores)[len(groups) :]
    return {member.number: score for member, score in zip(members, scores, strict=True)}


class _Once:
    """A call whose first caller computes the result; the others wait for it."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work, self._lock = work, threading.Lock()
        self._results: list[Any] = []

    def __call__(self) -> Any:
        with self._lock:
            if not self._results:
                self._results.append(self._work())
        return self._results[0]


def _run(jobs: list[Any], workers: int, report: Report) -> list[Any]:
    """Return the results of jobs in their order, by threads or one after another with all threads of BLAS."""
    if workers > 1:
        return map_tasks(lambda job: job(), jobs, workers, lambda done, total: report(done))
    results = []
    for job in jobs:
        results.append(job())
        report(len(results))
    return results


def _family(fold: CVFold, kernels: list[Kernel]) -> _Family:
    """Compute the matrices that all kernels are functions of."""
    wide = accumulation_dtype(fold.X)
    X, X_new = cast(fold.X, wide), cast(fold.X_new, wide)
    common = widest_member([common_kernel(kernel) for kernel in kernels])  # type: ignore[misc]
    square = gram_matrix(common, X, n_jobs=fold.n_jobs)
    return _Family(common, square, gram_matrix(common, X, X_new, n_jobs=fold.n_jobs))


def _decompose(
    fold: CVFold, group: list[Candidate], kernel: Kernel, family: _Family, n_jobs: int | None
) -> SharedDecomposition:
    """Return what all members of a group share."""
    template = kernel.template(fold.X, centered=True)
    K = from_common(kernel, family.common, family.square, fold.X, flat=template.shifted)
    op = CenteredGram(DenseGram(K, n_jobs=n_jobs))
    eigen = _eigenpairs(op, group[0], kernel)
    # Every member is checked by itself: what is wrong with the last components may be right for fewer.
    values = np.maximum(to_host(eigen.eigenvalues).astype(np.float64), 0.0)
    projection, scores = AffineProjection.of_eigenpairs(op, eigen, values, fold.X, template.slice(0, 0))
    K_new = from_common(kernel, family.common, family.across, fold.X, flat=template.shifted)
    Z_new = namespace_of(K_new).matrix_transpose(K_new) @ projection.projection - projection.offset[None, :]
    check_finite(Z_new, "The kernel overflows on the held-out rows.", "The array of scores")
    synchronize(Z_new)
    facts = SimpleNamespace(shape=op.shape, dtype=op.dtype, like=op.like, trace=op.trace, noise_scale=op.noise_scale)
    return SharedDecomposition(kernel, n_jobs, eigen, projection, scores, Z_new, facts)


def _eigenpairs(op: CenteredGram, candidate: Candidate, kernel: Kernel) -> EigenResult:
    n, p, on_gpu, estimator = op.shape[0], candidate.p, is_on_gpu(op.like), candidate.estimator
    solver, _ = settings_of(estimator, kernel).solver_for(n, p, on_gpu)
    if estimator.eigen_solver == "auto" and not solver.forms_matrix and not on_gpu and DENSE_FROM * p >= n:
        solver = Dense(tol=solver.tol)
    eigen = top_eigh(op, p, solver=solver, rng=generator(estimator.random_state))
    check_finite(eigen.eigenvectors, "The eigensolver failed on this matrix.", "The matrix of eigenvectors")
    warn_of_passes(eigen)
    return eigen


def _score_shared(
    fold: CVFold, member: Candidate, shared: SharedDecomposition | Exception, seconds: float
) -> CandidateScore:
    """Return the score of a member, from the decomposition of its group or the error of it."""
    if isinstance(shared, Exception):
        return CandidateScore(fit_seconds=seconds, error=shared)
    eigen = shared.eigen.truncated(member.p)

    def denoise(preimage: Any) -> tuple[Array, Any]:
        points, info = preimage(shared.Z_new[:, : member.p], fold.X_new)
        check_finite(points, "The kernel overflows on these scores.", "The array of points")
        return points, info

    score = _candidate_score(fold, partial(_learned_preimage, fold, member, shared, eigen), denoise, seconds)
    return replace(score, undetermined=score.error is None and truncates_cluster(eigen))


def _learned_preimage(fold: CVFold, member: Candidate, shared: SharedDecomposition, eigen: EigenResult) -> Any:
    """Return the pre-image method of the member, learned from its components."""
    checked_spectrum(eigen, shared.facts, shared.kernel, None)
    method = preimage_method(member.estimator, shared.kernel)
    check_preimage_suits(method, shared.kernel, by_flag=False)
    space = FeatureSpace(shared.kernel, shared.projection.truncated(member.p), shared.n_jobs)
    landmarks = method.landmarks_for(int(fold.X.shape[0]), fits=True) if isinstance(method, RidgePreimage) else 0
    return method.learn(fold.X, space, shared.scores[:, : member.p], landmarks)


# -- fits of KernelPCA -------------------------------------------------------------------------------------------------


def _score_alone(fold: CVFold, group: list[Candidate]) -> dict[int, CandidateScore]:
    """Return the scores of members by fits of `KernelPCA`, one for all that differ in their n_components only."""
    scores: dict[int, CandidateScore] = {}
    while group:
        first, *others = group
        limit = first.estimator.memory_limit if first.estimator.memory_limit is None else fold.limit
        settings = {"device": None, "n_jobs": fold.n_jobs, "copy_X": False, "memory_limit": limit}
        estimator = clone(first.estimator).set_params(**settings)
        model, seconds = _attempt(partial(estimator.fit, fold.X))
        if isinstance(model, Exception):  # fewer components may be possible
            scores[first.number], group = CandidateScore(fit_seconds=seconds, error=model), others
            continue
        served = [first, *(other for other in others if _has_same_fit(first, other))]
        group = [other for other in others if other not in served]
        for member in served:
            denoise = partial(_denoise, fold, member)
            scores[member.number] = _candidate_score(fold, lambda: model, denoise, seconds / len(served))  # noqa: B023
    return scores


def _has_same_fit(one: Candidate, other: Candidate) -> bool:
    """Return whether two members of a group differ in their number of components only."""
    a, b = one.estimator, other.estimator
    return one.p > 0 < other.p and same_setting(a.preimage, b.preimage) and same_setting(a.alpha, b.alpha)


def _denoise(fold: CVFold, member: Candidate, model: Any) -> tuple[Array, Any]:
    fitted = int(model.eigenvalues_.shape[0])
    with held_warnings(ConvergenceWarning):  # one warning reports all fits together
        return model.denoise(fold.X_new, min(member.p or fitted, fitted), return_info=True)
