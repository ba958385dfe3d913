"""The landmarks of a fit in one pass, with their factor: chosen by a rule or given, and those of an earlier fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpukpca._typing import SymmetricOperator
from gpukpca.algorithms.kernel_pca.factor_sums import FactorSums, LandmarkFeatures
from gpukpca.algorithms.kernel_pca.landmark_model import pairs_of
from gpukpca.algorithms.kernel_pca.model import KernelPCAFit
from gpukpca.algorithms.kernel_pca.nystrom import relative_to_base
from gpukpca.algorithms.kernel_pca.task import FitTask
from gpukpca.algorithms.plan import Plan
from gpukpca.algorithms.progress import Listener, rank_report
from gpukpca.backend.namespace import dtype_name, empty_like, full, to_host
from gpukpca.data.distinct import stacked
from gpukpca.data.products import column_sums
from gpukpca.data.slicing import gather_rows, place_of
from gpukpca.data.statistics import mean_row
from gpukpca.eigen import Nystrom, PivotedCholesky, landmark_cholesky
from gpukpca.eigen.partial_cholesky import NOISE
from gpukpca.gram import BasePointGram
from gpukpca.gram.product import compute_tile
from gpukpca.gram.storage import StorageInput
from gpukpca.kernels.prepared import PreparedRows

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
    rows : array or CSR matrix, shape (m, d)
    op : SymmetricOperator
        Of these rows.
    start : FactorSums
        Of no rows.
    n_columns : int
        Columns of K that were evaluated to choose them.
    """

    rows: Any
    op: SymmetricOperator
    start: FactorSums
    n_columns: int

    @classmethod
    def chosen(
        cls, task: FitTask, plan: Plan, among: Any, rng: np.random.Generator, listener: Listener | None
    ) -> tuple[LandmarkBasis, np.ndarray]:
        """Return the basis that the solver of a plan chooses among rows (b, d), and the numbers of its rows there.

        Given landmarks are all used. Their base point is their mean, so that no other row matters.
        """
        solver: Nystrom | Any = plan.solver
        op, report, count = _operator(task, plan, among), rank_report(listener), int(among.shape[0])
        shifted: BasePointGram | None
        if solver.is_given:
            if op.rows.shifted:
                among = stacked([among, mean_row(among)])
                op = _operator(task, plan, among)
            shifted = BasePointGram(op, count) if op.rows.shifted else None
            factor = landmark_cholesky(shifted or op, np.arange(count), tol=solver.tol, report=report)
        else:
            shifted = relative_to_base(op, rng)
            factor = solver.factor(shifted or op, pairs_of(task, plan) or 1, rng, report)
        numbers = factor.pivots if shifted is None else np.append(factor.pivots, shifted.anchor)
        numbers = numbers if len(numbers) else np.zeros(1, dtype=np.int64)
        rows = gather_rows(among, numbers)
        start = FactorSums.empty(
            factor.pivot_factor,
            to_host(column_sums(factor.F)).astype(np.float64) / max(1, op.shape[0]),
            is_relative=shifted is not None,
            noise=factor.noise,
            stopped=factor.stopped,
        )
        return cls(rows, _operator(task, plan, rows), start, factor.n_columns), numbers

    @classmethod
    def of_fit(cls, task: FitTask, fit: KernelPCAFit) -> LandmarkBasis:
        """Return the basis of a fit, from which its sums go on."""
        stream: Any = fit.stream
        return cls(fit.map.basis, _operator(task, fit.plan, fit.map.basis), stream.without_rows(), fit.n_products)

    def features(self, task: FitTask) -> LandmarkFeatures:
        """Return the map of rows to features."""
        return LandmarkFeatures(task.kernel, self.op.rows, self.start, self.op.like)

    def factor(self, sums: FactorSums, rounding: float) -> PivotedCholesky:
        """Return the factor of all rows, which holds none of them; `rounding` is the share of entries of K."""
        return PivotedCholesky(
            F=full((0, len(sums.shift)), 0.0, self.op.like),
            pivots=np.arange(len(sums.shift)),
            pivot_factor=sums.pivot_factor,
            residual_trace=sums.residual,
            trace=sums.trace,
            uncancelled_trace=sums.sizes,
            rounding=rounding * sums.sizes + sums.count * NOISE * sums.noise,
            noise=sums.noise,
            n_columns=self.n_columns,
            stopped=sums.stopped,
        )


def _operator(task: FitTask, plan: Plan, rows: Any) -> SymmetricOperator:
    """Return the operator of K of a few rows."""
    storage: Any = plan.storage
    op: SymmetricOperator = storage.build(StorageInput(task.kernel, rows, task.template, task.resources.n_jobs))
    return op
