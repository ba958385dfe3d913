"""The landmarks of a fit in one pass, with their factor: chosen by a rule or given, and those of an earlier fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpukpca._typing import SymmetricOperator
from gpukpca.algorithms.kernel_pca.factor_sums import FactorSums, LandmarkFeatures
from gpukpca.algorithms.kernel_pca.landmark_model import Approximation, pairs_of
from gpukpca.algorithms.kernel_pca.model import KernelPCAFit
from gpukpca.algorithms.kernel_pca.task import FitTask
from gpukpca.algorithms.plan import Plan
from gpukpca.algorithms.progress import Listener, rank_report
from gpukpca.backend.namespace import dtype_name, empty_like, to_host
from gpukpca.backend.random import random_subset
from gpukpca.data.distinct import stacked
from gpukpca.data.products import column_sums
from gpukpca.data.slicing import gather_rows, place_of
from gpukpca.data.statistics import mean_row
from gpukpca.eigen import Nystrom, PivotedCholesky, landmark_cholesky
from gpukpca.eigen.partial_cholesky import NOISE, weighted_means
from gpukpca.gram import BasePointGram, DenseGram
from gpukpca.gram.product import compute_tile
from gpukpca.gram.tiled import shifted_gram
from gpukpca.kernels import Linear
from gpukpca.kernels.prepared import PreparedRows

BASE_POINT_CANDIDATES = 32
# Landmarks between which the kernel falls by less than this share are relative to a base point: beside 1 their
# differences lose digits. Their span then lacks one direction, which matters by about that share where all rows are as
# near, and much where others are far.
FLAT = {"float64": 1e-4, "float32": 1e-2}


def template_of_landmarks(task: FitTask, rows: Any, is_given: bool) -> PreparedRows:
    """Return the template of a kernel for given landmarks, or for the rows among which landmarks are chosen.

    Of float32 rows that are chosen among, the kernel decides whether it is flat.
    """
    kernel, name = task.kernel, dtype_name(rows.dtype)
    template = kernel.template(rows, centered=task.settings.center)
    if not (template.shifted and kernel.depends_on_distance and (is_given or name == "float64")):
        return template
    prepared = kernel.prepare(rows, like=template)
    first = compute_tile(kernel, prepared, prepared.slice(0, 1), empty_like(place_of(rows)), diagonal=False)
    values = to_host(first)[:, 0].astype(np.float64)  # less the offset
    falls = float(values[0] - np.min(values)) / (float(values[0]) + kernel.offset(prepared))
    return template if 0.0 < falls <= FLAT[name] else kernel.template(rows, centered=False)


@dataclass(frozen=True)
class LandmarkBasis:
    """The rows of the model: landmarks, and a base point as the last one where `start` says so.

    Attributes
    ----------
    rows : array or CSR matrix, shape (m, d), or None
        None of a precomputed kernel.
    op : SymmetricOperator
        Of these rows.
    start : FactorSums
        Of no rows.
    n_columns : int
        Columns of K that were evaluated to choose them.
    factor : PivotedCholesky, optional
        Of all rows of the fit, where these were the candidates and it stays in memory.
    """

    rows: Any
    op: SymmetricOperator
    start: FactorSums
    n_columns: int
    factor: PivotedCholesky | None = None

    @classmethod
    def chosen(
        cls, task: FitTask, plan: Plan, among: Any, rng: np.random.Generator, listener: Listener | None
    ) -> tuple[LandmarkBasis, np.ndarray]:
        """Return the basis that the solver of a plan chooses among rows (b, d), and the numbers of its rows there.

        Given landmarks are all used. Their base point is their mean, so that no other row matters.
        """
        solver: Nystrom | Any = plan.solver
        op = _operator(task, among)
        shifted: BasePointGram | None
        if solver.is_given:
            is_shifted, points = op.rows.shifted, [among]
            if isinstance(task.kernel, Linear) and task.settings.center and not task.is_spanned:
                # Rows are centered at the mean of the landmarks, from where these span one direction less.
                points.append(0.0 * gather_rows(among, [0]))
            if is_shifted:
                points.append(mean_row(among))
            if len(points) > 1:
                among = stacked(points)
                op = _operator(task, among)
            count = int(among.shape[0]) - is_shifted
            shifted = BasePointGram(op, count) if is_shifted else None
            report = rank_report(listener)
            factor = landmark_cholesky(shifted or op, np.arange(count), tol=solver.tol, report=report)
        else:
            factor, shifted = _factor_by_rule(task, plan, op, rng, listener)
        numbers = _rows_of_model(factor, shifted)
        rows = gather_rows(among, numbers)
        # The mean of points that span the features is that of some rows, or near it.
        start = _start_of(factor, shifted, None, not task.is_spanned)
        return cls(rows, _operator(task, rows), start, factor.n_columns), numbers

    @classmethod
    def of_all(
        cls, task: FitTask, plan: Plan, op: SymmetricOperator, rng: np.random.Generator, listener: Listener | None
    ) -> tuple[LandmarkBasis, np.ndarray]:
        """Return the basis chosen among all rows of a task, whose K is `op`, with the factor; see `chosen`."""
        factor, shifted = _factor_by_rule(task, plan, op, rng, listener, task.weights)
        numbers = _rows_of_model(factor, shifted)
        rows = None if task.basis is None else gather_rows(task.basis, numbers)
        start = _start_of(factor, shifted, task.weights, task.settings.center)
        if not task.kernel.stored_only:
            return cls(rows, _operator(task, rows), start, factor.n_columns, factor), numbers
        block = op.block(numbers, numbers)
        K = gather_rows(op.columns(numbers), numbers) if block is None else block
        return cls(rows, DenseGram(K), start, factor.n_columns, factor), numbers

    @classmethod
    def of_fit(cls, task: FitTask, fit: KernelPCAFit) -> LandmarkBasis:
        """Return the basis of a fit, from which its sums go on."""
        stream: Any = fit.stream
        return cls(fit.map.basis, _operator(task, fit.map.basis), stream.without_rows(), fit.n_products)

    def features(self, task: FitTask) -> LandmarkFeatures:
        """Return the map of rows to features."""
        return LandmarkFeatures(task.kernel, self.op.rows, self.start, self.op.like)

    def approximation(self, sums: FactorSums, task: FitTask) -> Approximation:
        """Return K ≈ F Fᵀ of all rows that were added up."""
        rounding = self.features(task).rounding * sums.sizes + sums.count * NOISE * sums.noise
        return Approximation(sums, self.op, *sums.about_mean(task.settings.center), rounding, self.n_columns)


def _factor_by_rule(
    task: FitTask,
    plan: Plan,
    op: SymmetricOperator,
    rng: np.random.Generator,
    listener: Listener | None,
    weights: np.ndarray | None = None,
) -> tuple[PivotedCholesky, BasePointGram | None]:
    """Return the factor of K by the landmarks of a plan's solver, and K relative to a base point where it has one."""
    solver: Any = plan.solver
    shifted = relative_to_base(op, rng)
    return solver.factor(shifted or op, pairs_of(task, plan) or 1, rng, rank_report(listener), weights), shifted


def relative_to_base(op: SymmetricOperator, rng: np.random.Generator) -> BasePointGram | None:
    """Return the operator relative to a base point where its kernel is semidefinite only so; else None."""
    return BasePointGram(op, _central_row(op, rng)) if op.rows is not None and op.rows.shifted else None


def _central_row(op: SymmetricOperator, rng: np.random.Generator) -> int:
    """Return the most central of a few random rows. A base point far from the data would lose digits."""
    candidates = random_subset(rng, op.shape[0], min(op.shape[0], BASE_POINT_CANDIDATES))
    return int(candidates[int(np.argmax(to_host(column_sums(op.columns(candidates)))))])


def _rows_of_model(factor: PivotedCholesky, shifted: BasePointGram | None) -> np.ndarray:
    """Return the numbers of the landmarks, and of the base point; one row where K is 0."""
    numbers = factor.pivots if shifted is None else np.append(factor.pivots, shifted.anchor)
    return numbers if len(numbers) else np.zeros(1, dtype=np.int64)


def _start_of(
    factor: PivotedCholesky, shifted: BasePointGram | None, weights: np.ndarray | None, at_mean: bool
) -> FactorSums:
    """Return the sums of no rows, about the mean of F whose rows have these weights, or about 0."""
    shift = np.zeros(factor.rank)
    if at_mean:
        mean = weighted_means(factor.F, weights)
        shift = mean.astype(dtype_name(factor.F.dtype)).astype(np.float64)  # as rows of F less the shift have it
    return FactorSums.empty(
        factor.pivot_factor, shift, relative=shifted is not None, noise=factor.noise, stopped=factor.stopped
    )


def _operator(task: FitTask, rows: Any) -> SymmetricOperator:
    """Return the operator of K of a few rows."""
    return shifted_gram(task.kernel, rows, task.template, cached_tiles=0, n_jobs=task.resources.n_jobs)
