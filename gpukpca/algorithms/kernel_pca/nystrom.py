"""Nyström: the fit by K ≈ F Fᵀ, whose basis is the landmarks."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from gpukpca._typing import Array, SymmetricOperator
from gpukpca.algorithms.kernel_pca.landmark_model import (
    Approximation,
    Landmarks,
    cancelled_trace,
    finished_fit,
    pairs_of,
)
from gpukpca.algorithms.kernel_pca.model import KernelPCAFit
from gpukpca.algorithms.kernel_pca.task import FitTask
from gpukpca.algorithms.plan import Plan
from gpukpca.algorithms.progress import Listener, rank_report
from gpukpca.backend import blocking
from gpukpca.backend.linalg import subtract_outer_product
from gpukpca.backend.namespace import cast, to_host
from gpukpca.backend.parallel import worker_count
from gpukpca.backend.random import random_subset
from gpukpca.data.products import column_sums, inner_products
from gpukpca.data.rows import fold
from gpukpca.data.slicing import gather_rows, subtract_row
from gpukpca.eigen import LowRank
from gpukpca.gram import BasePointGram, LowRankGram
from gpukpca.gram.weighted import WeightedGram

BASE_POINT_CANDIDATES = 32


def nystrom_fit(
    task: FitTask, plan: Plan, op: SymmetricOperator, rng: np.random.Generator, listener: Listener | None
) -> KernelPCAFit:
    """Return the fit of a plan with a `Nystrom` solver; `op` is K, shape (n, n)."""
    n: float = task.n
    started, frequencies = time.perf_counter(), task.frequencies
    solver: Any = plan.solver
    shifted = relative_to_base(op, rng)
    base = shifted or op
    whole = base if frequencies is None else WeightedGram(base, frequencies)
    factor = solver.factor(whole, pairs_of(task, plan) or 1, rng, rank_report(listener))
    F = factor.F
    workers = worker_count(F, task.resources.n_jobs, n * factor.rank * blocking.ENTRY_PASS)
    mean = np.zeros(factor.rank)
    if frequencies is not None:  # F is W^½ times the factor of K, and L that of W^½ K W^½
        n, roots = frequencies.count, to_host(gather_rows(frequencies.roots, factor.pivots)).astype(np.float64)
        factor = replace(factor, pivot_factor=factor.pivot_factor / roots)
    if task.settings.center:
        means = (column_sums(F, workers) if frequencies is None else frequencies.sums(F)) / n
        mean = to_host(means).astype(np.float64)
        # In place where the library can: F is as large as memory allows.
        if frequencies is None:
            F = subtract_row(F, cast(means, F.dtype))
        else:
            F = subtract_outer_product(F, frequencies.roots[:, 0], means)
    gram = LowRankGram(F, cancelled_trace(factor, mean, n), n_jobs=task.resources.n_jobs)
    eigen, axes = LowRank().pairs(gram, pairs_of(task, plan) or max(1, factor.rank), rng)
    if frequencies is not None:
        eigen, sign = eigen.signed_by(frequencies.unrooted(eigen.eigenvectors))
        axes = axes * sign
    eigen = replace(eigen, seconds=time.perf_counter() - started)
    few = Approximation(n, mean, gram, eigen, axes, lambda r: fold(F, _leading_products, r))
    return finished_fit(task, plan, Landmarks(op, shifted, factor), few)


def relative_to_base(op: SymmetricOperator, rng: np.random.Generator) -> BasePointGram | None:
    """Return the operator relative to a base point where its kernel is semidefinite only so; else None."""
    return BasePointGram(op, _central_row(op, rng)) if op.rows is not None and op.rows.shifted else None


def _central_row(op: SymmetricOperator, rng: np.random.Generator) -> int:
    """Return the most central of a few random rows. A base point far from the data would lose digits."""
    candidates = random_subset(rng, op.shape[0], min(op.shape[0], BASE_POINT_CANDIDATES))
    return int(candidates[int(np.argmax(to_host(column_sums(op.columns(candidates)))))])


def _leading_products(F: Array, r: int) -> np.ndarray:
    """Return the inner products of the first r columns."""
    few = F[:, :r]
    return inner_products(few, few)
