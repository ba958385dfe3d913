"""The audit of kernel PCA: one pass over K, which is never stored, for vectors from anywhere and for landmarks."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from gpukpca._typing import Array, SymmetricOperator
from gpukpca.algorithms.audit import (
    Residuals,
    UnitVectors,
    angles_of,
    measured_pairs,
    product_rounding,
    trace_left,
)
from gpukpca.algorithms.kernel_pca.factor_sums import LandmarkFeatures, features_times, products_of_panel
from gpukpca.algorithms.kernel_pca.planning import plan_of_pass
from gpukpca.algorithms.kernel_pca.settings import KernelPCASettings
from gpukpca.algorithms.kernel_pca.task import FitTask
from gpukpca.algorithms.progress import Listener, Progress, tile_report, timed
from gpukpca.algorithms.resources import Resources
from gpukpca.backend.namespace import cast, move, namespace_of, overflow_allowed
from gpukpca.backend.random import Randomness, keyed_generator, standard_normal
from gpukpca.backend.work import Work
from gpukpca.data.rows import along, fold, joined
from gpukpca.eigen.norm_bound import FAILURE, VECTORS, gaussian_bound, longest_column
from gpukpca.eigen.partial_cholesky import NOISE, pivot_panel
from gpukpca.eigen.solver import PlannedSolver
from gpukpca.exceptions import InvalidParameterError
from gpukpca.gram import CenteredGram
from gpukpca.gram.storage import StorageInput, TiledStorage
from gpukpca.kernels import Kernel
from gpukpca.kernels.definiteness import may_be_semidefinite

# Blocks of n rows that are held at once: the vectors, centered, with a column of ones, and two products.
BLOCKS = 6
# Copies of a panel of features in float64, of a worker; and squares of their number on the host, and of a worker.
FEATURE_COPIES, SQUARES, WORKER_SQUARES = 5, 6, 3


@dataclass(frozen=True)
class AuditPass(PlannedSolver):
    """The products of an audit, as a plan counts them: so many columns, passes, features of landmarks, and threads."""

    name = "audit"
    columns: int
    passes: int
    features: int = 0
    workers: int = 1

    def width(self, n: int, p: int, on_gpu: bool) -> int:
        return self.columns + 1  # and ones, for the means of K

    def workspace_bytes(self, n: int, p: int, item_size: int, on_gpu: bool) -> int:
        blocks = n * self.columns * (BLOCKS * item_size + (2 if item_size < 8 else 1) * 8)
        if self.features:
            wide = self.features + self.columns
            panel = min(n, pivot_panel(n, self.features, on_gpu)) * FEATURE_COPIES * wide
            blocks += 8 * self.workers * (panel + WORKER_SQUARES * self.features * wide) + 8 * SQUARES * wide**2
        return blocks + n * BLOCKS * item_size

    def work(self, n: int, p: int, one_pass: Work, item_size: int, on_gpu: bool) -> Work:
        return one_pass * self.passes


class KernelPairs(NamedTuple):
    """Hold what is audited: vectors (n, p), or F times axes (r, p) with the features F of landmarks.

    Without `eigenvalues` the vectors are scores, whose squared lengths are the eigenvalues. Without `center` they are
    those of K itself. Eigenvalue p + 1 is at most `next_eigenvalue`, and the norm of the error of landmarks at most
    `norm`.
    """

    vectors: Array | None
    eigenvalues: np.ndarray | None
    center: bool = True
    landmarks: LandmarkFeatures | None = None
    axes: np.ndarray | None = None
    norm: float = math.inf
    next_eigenvalue: float = math.inf


def audit_rows(
    X: Any,
    kernel: Kernel,
    audited: KernelPairs,
    resources: Resources,
    weights: np.ndarray | None,
    passes: int,
    random: Randomness,
    progress: Listener | None,
) -> Residuals:
    """Return the audit of vectors against K of finite rows X (n, d) where `resources` say that it computes.

    X is an array, a CSR matrix, in batches or on a cluster. The kernel has numbers for rules. With landmarks the error
    of Nyström is bounded, by one or two passes over K. With `weights` (n,) of the rows the vectors are those of
    W^½ K W^½.
    """
    vectors, eigenvalues, center, landmarks, axes, norm, next_eigenvalue = audited
    started, listener = time.perf_counter(), timed(progress)
    p: int = (axes if vectors is None else vectors).shape[1]  # type: ignore[union-attr]
    settings = KernelPCASettings(n_components=max(p, 1), copies_data=False, center=center)
    task = FitTask.of(X, kernel, settings, resources, weights=weights)
    solver = AuditPass(p, 1)
    if landmarks is not None:
        solver = AuditPass(p + VECTORS, passes, landmarks.rank, task.workers)
    op = CenteredGram(_kernel_operator(task, solver, listener), center=center, frequencies=task.frequencies)
    times = partial(_product, op, passes=solver.passes, listener=listener)
    factor = None
    if landmarks is not None:
        workers = 1 if task.is_on_cluster else task.workers  # Dask has a thread for every panel
        factor = CenteredFactor(X, landmarks, op, workers)
    given: Any = vectors if factor is None or axes is None else factor.times(axes)
    given = op.rooted(given) if eigenvalues is None else given
    unit = UnitVectors.of(cast(move(given, op.like), op.dtype))
    if eigenvalues is None:
        with overflow_allowed():
            eigenvalues = unit.lengths**2
        if not np.all(np.isfinite(eigenvalues)):
            raise InvalidParameterError(
                "the scores overflow: their squared lengths are infinite. Divide them by a constant."
            )
    if factor is None:
        pairs = measured_pairs(op, unit, times(unit.Q, 1))
        missed, known = math.inf, np.append(np.full(p, math.inf), next_eigenvalue)
        error: dict[str, Any] = {"rounding": product_rounding(op, pairs.quotients)}
        if kernel.positive_definite and op.base.has_diagonal:  # else other eigenvalues may be negative
            missed = trace_left(op, op.uncentered_trace, np.diagonal(pairs.T))[0] + error["rounding"]
    else:
        W, error, missed, known = _with_error(times, solver.passes, unit, factor, random, norm)
        pairs = measured_pairs(op, unit, W)
    return Residuals(
        matrix=f"{'centered ' * center}kernel matrix",
        n_samples=task.n,
        eigenvalues=eigenvalues,
        rayleigh_quotients=pairs.quotients,
        residual_norms=pairs.residuals,
        ritz_values=pairs.ritz_values,
        skew=pairs.skew,
        trace=op.trace if op.base.has_diagonal else math.nan,
        n_passes=solver.passes,
        n_products=int(unit.Q.shape[1]) + VECTORS * solver.passes * (factor is not None),
        seconds=time.perf_counter() - started,
        **angles_of(op, unit, pairs, error["rounding"], missed, known),
        **error,
    )


def _kernel_operator(task: FitTask, solver: AuditPass, listener: Listener | None) -> SymmetricOperator:
    """Return K in the storage of a plan; tiles are cached where a second pass uses them."""
    storage: Any = plan_of_pass(task, solver).storage
    if solver.passes == 1 and not task.is_on_cluster and isinstance(storage, TiledStorage):
        storage = replace(storage, cached_tiles=0)
    how = task.resources.n_jobs, tile_report(listener), task.place.others
    op: SymmetricOperator = storage.build(StorageInput(task.kernel, task.X, task.template, *how))
    return op


def _product(op: CenteredGram, V: Array, number: int, passes: int, listener: Listener | None) -> Array:
    """Return A V, and report the pass."""
    W = op @ V
    if listener is not None:
        listener(Progress("pass", f"pass {number} of {passes} over K", number, passes))
    return W


@dataclass(frozen=True)
class CenteredFactor:
    """F of landmarks for all rows of X, centered as `op` is: every method computes it again, panel by panel."""

    X: Any
    features: LandmarkFeatures
    op: CenteredGram
    workers: int

    def products(self, V: Array) -> tuple[np.ndarray, np.ndarray]:
        """Return FᵀF (r, r) and FᵀV (r, b) on the host in float64, the rows of F times the roots of their weights."""
        r = self.features.rank
        roots = None if self.op.frequencies is None else along(self.X, self.op.frequencies.roots)
        P = fold(self.X, products_of_panel, along(self.X, V), roots, self.features, self.workers)
        # Centered, a constant row of F changes nothing; else the shift is 0.
        P = P[:r] - np.outer(P[:r, r], P[r]) * (self.op.center / self.op.count)
        return (P[:, :r] + P[:, :r].T) / 2.0, P[:, r + 1 :]

    def times(self, S: np.ndarray) -> Array:
        """Return F S for a small host matrix (r, b)."""
        shift = self.features.start.shift
        return self.op.project(self.op.rooted(joined(self.X, features_times, self.features, self.workers, shift, S)))


def _with_error(
    times: Callable[[Array, int], Array],
    passes: int,
    unit: UnitVectors,
    factor: CenteredFactor,
    random: Randomness,
    norm: float,
) -> tuple[Array, dict[str, Any], float, np.ndarray]:
    """Return A Q, the fields of an audit that bound the error E = A - F Fᵀ of landmarks, F centered as A, and bounds.

    The first is one on all eigenvalues of A on the complement of Q, the others are on the first p + 1 of A.
    """
    op, r, p = factor.op, unit.Q.shape[1], len(unit.lengths)
    # Keyed: a fit with this seed has drawn landmarks from the numbers themselves.
    drawn = keyed_generator(int(random.generator.integers(2**63)), VECTORS)
    normal = op.project(standard_normal(drawn, (op.shape[0], VECTORS), op.like))
    V = namespace_of(normal).concat([unit.Q, normal], axis=1)
    gram, T = factor.products(V)
    theta = np.concatenate([np.maximum(np.linalg.eigvalsh(gram)[::-1], 0.0), np.zeros(p + 1)])
    rest = np.linalg.eigvalsh(gram - T[:, :r] @ T[:, :r].T)  # of F Fᵀ on the complement of Q
    W = times(V, 1)
    V = W[:, r:] - factor.times(T[:, r:])
    norms = [longest_column(V)]
    if passes == 2:
        V = times(V, 2) - factor.times(factor.products(V)[1])
        norms.append(longest_column(V))
    rounding = product_rounding(op, theta)
    norm = min(gaussian_bound(norms, rounding), norm + rounding)
    found: Any = {"trace_bound": _trace_bound(op, factor.features, theta), "norm_bound": norm}
    error = min(bound for bound in found.values() if bound is not None)
    found |= {"rounding": rounding, "landmark_eigenvalues": theta[:p], "failure_probability": FAILURE}
    return W[:, :r], found, float(np.max(rest, initial=0.0)) + error + rounding, theta[: p + 1] + error


def _trace_bound(op: CenteredGram, features: LandmarkFeatures, theta: np.ndarray) -> float | None:
    """Return tr A - tr F Fᵀ, F centered as A, with the rounding of both; None where A - F Fᵀ may not be semidefinite.

    The differences of the eigenvalues sum to it, and none is negative. None also without the diagonal of K.
    """
    if not (op.base.has_diagonal and features.is_projection and may_be_semidefinite(features.kernel)):
        return None
    left, expected = trace_left(op, op.uncentered_trace, theta)
    return left + NOISE * max(0.0, op.count * features.start.noise - expected)
