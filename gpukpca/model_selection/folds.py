"""One fold of a search: every candidate fitted to its training rows and judged by the rows held out.

What candidates have in common is computed once: the distances or inner products for all kernels of a family, the
eigenpairs at the largest number of components for all smaller ones.
"""

from __future__ import annotations

import math
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import clone

from gpukpca._typing import Array
from gpukpca.algorithms.kernel_pca.feature_space import FeatureSpace, square_sums
from gpukpca.algorithms.kernel_pca.projection import AffineProjection
from gpukpca.algorithms.kernel_pca.settings import is_nystrom
from gpukpca.algorithms.kernel_pca.spectrum import checked_spectrum, truncates_cluster
from gpukpca.algorithms.solver_warnings import warn_of_convergence
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
from gpukpca.exceptions import ConvergenceWarning, DeviceLostError, InvalidParameterError
from gpukpca.gram import CenteredGram, DenseGram, gram_matrix
from gpukpca.kernels import Kernel
from gpukpca.kernels.user_defined import check_symmetry
from gpukpca.model_selection.grid import Candidate, Group, same_setting
from gpukpca.model_selection.shared_gram import common_kernel, from_common, widest_member

# Matrices of n x n that a candidate holds at most: K, its copies in LAPACK, and the matrix of the scores.
SQUARES = 5
# Arrays of n x p that a model keeps: eigenvectors, their products, scores, and the projection.
ARRAYS = 4
# With K stored, LAPACK's partial solution is faster than iteration from one component in so many rows.
DENSE_FROM = 32


@dataclass(frozen=True)
class CandidateScore:
    """The result of a candidate on a fold.

    Attributes
    ----------
    score : float
        Minus the mean squared reconstruction error of the rows held out; NaN where the candidate failed.
    fit_seconds, score_seconds : float
        The candidate's own time, with an equal part of what it shared.
    error : Exception or None
    unconverged : int
        Pre-images of rows held out that the method's iteration left before they had converged.
    undetermined : bool
        The last component and the first one left out are not separately determined, and rounding chose.
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
    """Groups whose kernels are functions of one common matrix."""

    common: Kernel
    square: Array
    across: Array
    seconds: float


Report = Callable[[int], None]


class CVFold:
    """Training rows and held-out rows of one split.

    Parameters
    ----------
    X, X_new : array, shape (n, d), (m, d)
    limit : int
        Bytes that may be allocated.
    n_jobs : int, optional
        Threads. Groups are dealt to them; alone a group has them all.
    """

    def __init__(self, X: Array, X_new: Array, limit: int, n_jobs: int | None) -> None:
        self.X, self.X_new, self.limit, self.n_jobs = X, X_new, limit, n_jobs
        self.n = int(X.shape[0])
        self.outcomes: dict[int, CandidateScore] = {}

    def run(self, groups: list[Group], report: Report) -> None:
        """Fill `outcomes` for the members of all groups."""
        families: dict[Any, list[tuple[Group, Kernel]]] = {}
        alone = []
        for group in self._possible(groups):
            kernel = self._resolved(group)
            if kernel is None:
                continue
            common = common_kernel(kernel) if _shares(group) else None
            if common is None:
                alone.append(group)
            else:
                families.setdefault((type(common), getattr(common, "kink", False)), []).append((group, kernel))
        for members in families.values():
            workers = self._workers([group for group, _ in members])
            if workers:
                self._together(members, workers, report)
            else:
                alone += [group for group, _ in members]
        for group in alone:
            self._alone(group)
            report(len(self.outcomes))

    def _possible(self, groups: list[Group]) -> list[Group]:
        """The groups without members that ask for more components than there are rows."""
        kept = []
        for group in groups:
            fits = [member for member in group.members if member.p <= self.n]
            for member in group.members[: len(group.members) - len(fits)]:
                message = f"n_components={member.p} is more than the {self.n} training rows of the fold"
                self.outcomes[member.number] = CandidateScore(error=InvalidParameterError(message))
            if fits:
                kept.append(Group(fits))
        return kept

    def _resolved(self, group: Group) -> Kernel | None:
        """The kernel with numbers from the training rows; None where there is none, and the members have failed."""
        try:
            kernel = kernel_from(group.estimator).resolve(self.X)
            check_symmetry(kernel, self.X)
            return kernel
        except Exception as error:
            self._failed(group.members, error)
            return None

    def _failed(self, members: list[Candidate], error: Exception, seconds: float = 0.0) -> None:
        if isinstance(error, DeviceLostError):
            raise error
        for member in members:
            self.outcomes[member.number] = CandidateScore(fit_seconds=seconds / len(members), error=error)

    def _workers(self, groups: list[Group]) -> int:
        """Threads that the memory allows beside the common matrices and the models; 0 where these do not fit."""
        n, m, item = self.n, int(self.X_new.shape[0]), item_size(self.X.dtype)
        models = sum((ARRAYS * n + m) * group.members[0].p for group in groups) * item
        left = self.limit - 8 * n * (n + m) - models
        each = (SQUARES * n * n + n * m + 3 * n * int(self.X.shape[1])) * item
        tasks = sum(len(group.members) for group in groups)
        return max(0, min(worker_count(self.X, self.n_jobs), tasks, left // each))

    # -- kernels of one family -------------------------------------------------------------------------------------

    def _together(self, members: list[tuple[Group, Kernel]], workers: int, report: Report) -> None:
        """Candidates whose kernels are functions of one matrix: first all decompositions, then all pre-images."""
        family, n_jobs = self._family(members), 1 if workers > 1 else self.n_jobs
        shared = [_Shared(self.X, self.X_new, group, kernel, n_jobs) for group, kernel in members]
        every = [(one, member) for one in shared for member in one.group.members]
        decompositions = [partial(one.decompose, family) for one in shared]
        if len(shared) < workers:  # then each has all threads of BLAS
            for decompose in decompositions:
                decompose()
            decompositions = []
        before, first = len(self.outcomes), len(decompositions)

        def told(done: int) -> None:
            if done > first:
                report(before + done - first)

        outcomes = [partial(one.outcome, member, family) for one, member in every]
        found = _done([*decompositions, *outcomes], workers, told)
        for (_, member), outcome in zip(every, found[first:], strict=True):
            self.outcomes[member.number] = replace(outcome, shared=True)

    def _family(self, members: list[tuple[Group, Kernel]]) -> _Family:
        """Compute the matrices that all kernels are made of."""
        started = time.perf_counter()
        wide = accumulation_dtype(self.X)
        X, X_new = cast(self.X, wide), cast(self.X_new, wide)
        common = widest_member([common_kernel(kernel) for _, kernel in members])  # type: ignore[misc]
        square = gram_matrix(common, X, n_jobs=self.n_jobs)
        across = gram_matrix(common, X, X_new, n_jobs=self.n_jobs)
        return _Family(common, square, across, (time.perf_counter() - started) / len(members))

    # -- others ----------------------------------------------------------------------------------------------------

    def _alone(self, group: Group) -> None:
        """Fits of `KernelPCA`, one for all members that differ in their number of components only."""
        left = list(group.members)
        while left:
            first, *others = left
            left = [one for one in others if not _one_fit(first, one)]
            self._by_one_fit([first, *(one for one in others if _one_fit(first, one))])

    def _by_one_fit(self, members: list[Candidate]) -> None:
        """Fit with the most components; where that fails, with the next fewer."""
        while members:
            started = time.perf_counter()
            model = clone(members[0].estimator).set_params(device=None, n_jobs=self.n_jobs, copy_X=False)
            try:
                model.fit(self.X)
                break
            except Exception as error:
                self._failed(members[:1], error, time.perf_counter() - started)
                members = members[1:]
        else:
            return
        seconds = (time.perf_counter() - started) / len(members)
        for member in members:
            self.outcomes[member.number] = self._judged(model, member, seconds)

    def _judged(self, model: Any, member: Candidate, seconds: float) -> CandidateScore:
        started = time.perf_counter()
        fitted = int(model.eigenvalues_.shape[0])
        try:
            with warnings.catch_warnings():  # what has not converged is told of all fits together
                warnings.simplefilter("ignore", ConvergenceWarning)
                points, info = model.denoise(self.X_new, min(member.p or fitted, fitted), return_info=True)
            score = _score_of(points, self.X_new)
        except Exception as error:
            self._failed([member], error, seconds)
            return self.outcomes[member.number]
        return CandidateScore(score, seconds, time.perf_counter() - started, unconverged=int(np.sum(~info.converged)))


class _Shared:
    """One group on one fold, its kernel made of the family's common matrix."""

    def __init__(self, X: Array, X_new: Array, group: Group, kernel: Kernel, n_jobs: int | None) -> None:
        self.X, self.X_new, self.group, self.kernel, self.n_jobs = X, X_new, group, kernel, n_jobs
        self.estimator = group.estimator
        self.seconds = 0.0
        self.error: Exception | None = None
        self._one_at_a_time, self._decomposed = threading.Lock(), False
        # Of the most components: eigenpairs, map of new points, scores of the rows trained on and held out; and what is
        # known of the centered matrix.
        self.eigen: Any = None
        self.map: Any = None
        self.scores: Array = None
        self.Z_new: Array = None
        self.op: Any = None

    def decompose(self, family: _Family) -> None:
        """Find what all members share, once: who comes second waits for the first. An error is kept for them."""
        with self._one_at_a_time:
            if self._decomposed:
                return
            started = time.perf_counter()
            try:
                self._decompose(family)
            except DeviceLostError:
                raise
            except Exception as error:
                self.error = error
            finally:
                self.seconds = (family.seconds + time.perf_counter() - started) / len(self.group.members)
                self._decomposed = True

    def _decompose(self, family: _Family) -> None:
        template = self.kernel.template(self.X, centered=True)
        K = from_common(self.kernel, family.common, family.square, self.X, flat=template.shifted)
        op = CenteredGram(DenseGram(K, n_jobs=self.n_jobs))
        eigen = self._eigenpairs(op)
        # Every member is checked by itself: what is wrong with the last components may be right for fewer.
        values = np.maximum(to_host(eigen.eigenvalues).astype(np.float64), 0.0)
        found, scores = AffineProjection.of_eigenpairs(op, eigen, values, self.X, template.slice(0, 0))
        K_new = from_common(self.kernel, family.common, family.across, self.X, flat=template.shifted)
        Z_new = namespace_of(K_new).matrix_transpose(K_new) @ found.projection - found.offset[None, :]
        check_finite(Z_new, "The kernel overflows on the rows held out.", "The array of scores")
        synchronize(Z_new)
        self.eigen, self.map, self.scores, self.Z_new = eigen, found, scores, Z_new
        self.op = _Known(op.shape, op.dtype, op.total_variance, op.noise_scale)

    def _eigenpairs(self, op: CenteredGram) -> EigenResult:
        n, p, on_gpu = op.shape[0], self.group.members[0].p, is_on_gpu(op.like)
        solver, _ = settings_of(self.estimator, self.kernel).solver_for(n, p, on_gpu)
        asked = self.estimator.eigen_solver
        if asked == "auto" and not solver.forms_matrix and not on_gpu and DENSE_FROM * p >= n:
            solver = Dense(tol=solver.tol)
        eigen = top_eigh(op, p, solver=solver, rng=generator(self.estimator.random_state))
        check_finite(eigen.eigenvectors, "The eigensolver failed on this matrix.", "The matrix of eigenvectors")
        warn_of_convergence(eigen)
        return eigen

    def outcome(self, member: Candidate, family: _Family) -> CandidateScore:
        """The score of a member, or why there is none."""
        self.decompose(family)
        if self.error is not None:
            return CandidateScore(fit_seconds=self.seconds, error=self.error)
        started = time.perf_counter()
        try:
            eigen = self.eigen.truncated(member.p)
            checked_spectrum(eigen, self.op, self.kernel.positive_definite, None)
            preimage = self._preimage(member)
            fitted = time.perf_counter()
            score, unconverged = self._score(preimage, self.Z_new[:, : member.p])
        except DeviceLostError:
            raise
        except Exception as error:
            seconds = self.seconds + time.perf_counter() - started
            return CandidateScore(fit_seconds=seconds, error=error)
        return CandidateScore(
            score,
            fit_seconds=self.seconds + fitted - started,
            score_seconds=time.perf_counter() - fitted,
            unconverged=unconverged,
            undetermined=truncates_cluster(eigen),
        )

    def _preimage(self, member: Candidate) -> Any:
        """The pre-image that the member asks for, learned from as many components as it has."""
        method = preimage_method(member.estimator, self.kernel)
        check_preimage_suits(method, self.kernel, by_flag=False)
        space = FeatureSpace(self.kernel, self.map.truncated(member.p), self.n_jobs)
        landmarks = method.landmarks_for(int(self.X.shape[0]), fits=True) if isinstance(method, RidgePreimage) else 0
        return method.learn(self.X, space, self.scores[:, : member.p], landmarks)

    def _score(self, preimage: Any, Z: Array) -> tuple[float, int]:
        """Minus the mean squared error, and how many pre-images have not converged."""
        points, info = preimage(Z, self.X_new)
        check_finite(points, "The kernel overflows on these scores.", "The array of points")
        return _score_of(points, self.X_new), int(np.sum(~info.converged))


@dataclass(frozen=True)
class _Known:
    """The facts about a centered matrix that outlive it."""

    shape: tuple[int, int]
    dtype: Any
    total_variance: float
    noise_scale: float


def _score_of(points: Array, X_new: Array) -> float:
    """Minus the mean squared distance of points from the rows that they stand for, in the widest type."""
    wide = accumulation_dtype(points)
    errors = square_sums(cast(X_new, wide) - cast(points, wide))
    return -float(column_sums(errors[:, None])[0]) / int(errors.shape[0])


def _done(jobs: list[Callable[[], Any]], workers: int, told: Report) -> list[Any]:
    """Return the results of jobs in their order, by threads or one after another with all threads of BLAS."""
    if workers > 1:
        return map_tasks(lambda job: job(), jobs, workers, lambda done, total: told(done))
    found = []
    for job in jobs:
        found.append(job())
        told(len(found))
    return found


def _shares(group: Group) -> bool:
    """Return whether the members may take their eigenpairs from a stored matrix."""
    return group.counts_components and not is_nystrom(group.estimator.eigen_solver)


def _one_fit(one: Candidate, other: Candidate) -> bool:
    """Return whether two members of a group differ in their number of components only."""
    a, b = one.estimator, other.estimator
    return one.p > 0 < other.p and same_setting(a.preimage, b.preimage) and same_setting(a.alpha, b.alpha)
