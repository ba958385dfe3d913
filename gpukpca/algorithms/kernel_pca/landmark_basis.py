"""The landmarks of a fit in one pass, with their factor: chosen by a rule or given, and those of an earlier fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpukpca._typing import SymmetricOperator
from gpukpca.algorithms.drift import Drift
from gpukpca.algorithms.kernel_pca.factor_sums import LandmarkFeatures
from gpukpca.algorithms.kernel_pca.landmark_sums import FactorSums
from gpukpca.algorithms.kernel_pca.task import FitTask
from gpukpca.algorithms.plan import Plan
from gpukpca.algorithms.progress import Listener, rank_report
from gpukpca.algorithms.slots import Slots
from gpukpca.backend.namespace import dtype_name, namespace_of, to_host
from gpukpca.backend.random import random_subset
from gpukpca.data.distinct import stacked
from gpukpca.data.products import column_sums
from gpukpca.data.slicing import gather_rows
from gpukpca.data.statistics import mean_row
from gpukpca.eigen.landmark_choice import LandmarkChoice
from gpukpca.eigen.partial_cholesky import means_of_some
from gpukpca.eigen.pivoted_factor import PivotedCholesky
from gpukpca.gram.base_point import BasePointGram
from gpukpca.gram.tiled import shifted_gram
from gpukpca.kernels import Linear

BASE_POINT_CANDIDATES = 32


@dataclass(frozen=True)
class LandmarkBasis:
    """The rows of the model: landmarks, and a base point as the last one where `start` says so.

    Attributes
    ----------
    rows : array or CSR matrix, shape (m, d), or None
        None of a precomputed kernel.
    features : LandmarkFeatures
        The map of points to the features of these rows.
    n_columns : int
        Columns of K that were evaluated to choose them.
    factor : PivotedCholesky, optional
        Of all rows of the fit, where these were the candidates and it stays in memory.
    whole : SymmetricOperator, optional
        Their K.
    """

    rows: Any
    features: LandmarkFeatures
    n_columns: int
    factor: PivotedCholesky | None = None
    whole: SymmetricOperator | None = None

    @classmethod
    def chosen(
        cls, task: FitTask, plan: Plan, among: Any, rng: np.random.Generator, listener: Listener | None
    ) -> tuple[LandmarkBasis, np.ndarray]:
        """Return the basis that the solver of a plan chooses, and the numbers of its rows among the candidates.

        These are rows (b, d), or K of all rows of the task, whose factor the basis then has. Given landmarks among rows
        are all used. Their base point is their mean, so that no other row matters.
        """
        is_all, kernel, report = isinstance(among, SymmetricOperator), task.kernel, rank_report(listener)
        op, rows = (among, task.basis) if is_all else (_operator(task, among), among)
        weights = task.weights if is_all else None
        is_shifted = op.rows is not None and op.rows.shifted
        settings, kept = task.settings, plan.n_components
        choice = LandmarkChoice.of(plan.solver, op.shape[0], kept)
        if choice.is_given and not is_all:
            points = [rows]
            if isinstance(kernel, Linear) and settings.center and not task.is_spanned:
                # Rows are centered at the mean of the landmarks, from where these span one direction less.
                points.append(0.0 * gather_rows(rows, [0]))
            if is_shifted:
                points.append(mean_row(rows))
            if len(points) > 1:
                rows = stacked(points)
                op = _operator(task, rows)
            anchor = int(rows.shape[0]) - is_shifted
            choice = choice.of_first(anchor)
        else:
            anchor = _central_row(op, rng) if is_shifted else 0
        source = BasePointGram(op, anchor) if is_shifted else op
        least = 0 if settings.is_share or settings.n_components is None else kept  # else components would lack
        factor = choice.factor(source, rng, report, weights, least)
        numbers = np.append(factor.pivots, anchor) if is_shifted else factor.pivots
        numbers = numbers if len(numbers) else np.zeros(1, dtype=np.int64)  # K is 0, and a model needs a row
        rows = None if rows is None else gather_rows(rows, numbers)
        shift = np.zeros(factor.rank)
        # The mean of points that span the features is that of some rows, or near it.
        if settings.center if is_all else not task.is_spanned:
            mean = means_of_some(factor.F, weights)
            shift = mean.astype(dtype_name(factor.F.dtype)).astype(np.float64)  # as rows of F less the shift have it
        storage: Any = plan.storage
        size = max(storage.slots, 0 if factor.looks is None else factor.looks.rows)
        diagonal = source.diagonal()
        diagonal = diagonal if weights is None else to_host(diagonal) * weights
        drift = Drift.of_candidates(factor, float(namespace_of(diagonal).max(diagonal)), weights)
        more = {"noise": factor.noise, "stopped": factor.stopped, "drift": drift}
        slots = Slots.empty(size, rng, factor) if size else None
        start = FactorSums.empty(factor.pivot_factor, shift, relative=is_shifted, slots=slots, **more)
        prepared = None if kernel.stored_only else kernel.prepare(rows, like=task.template)
        features = LandmarkFeatures(kernel, prepared, start, op.like)
        return cls(rows, features, factor.n_columns, *((factor, among) if is_all else ())), numbers


def _central_row(op: SymmetricOperator, rng: np.random.Generator) -> int:
    """Return the most central of a few random rows. A base point far from the data would lose digits."""
    candidates = random_subset(rng, op.shape[0], min(op.shape[0], BASE_POINT_CANDIDATES))
    return int(candidates[int(np.argmax(to_host(column_sums(op.columns(candidates)))))])


def _operator(task: FitTask, rows: Any) -> SymmetricOperator:
    """Return the operator of K of a few rows."""
    return shifted_gram(task.kernel, rows, task.template, cached_tiles=0, n_jobs=task.resources.n_jobs)
