"""The audit of kernel PCA: one pass over K, which is never stored, for vectors from anywhere and for landmarks."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpukpca._typing import Array, SymmetricOperator
from gpukpca.algorithms.audit import EigenpairAudit, UnitVectors, measured_pairs, product_rounding
from gpukpca.algorithms.kernel_pca.planning import plan_of_pass
from gpukpca.algorithms.kernel_pca.settings import KernelPCASettings
from gpukpca.algorithms.kernel_pca.task import FitTask
from gpukpca.algorithms.kernel_pca.weighted_features import WeightedFeatures
from gpukpca.algorithms.progress import Listener, Progress, tile_report, timed
from gpukpca.algorithms.resources import Resources
from gpukpca.backend import blocking
from gpukpca.backend.linalg import column_norms
from gpukpca.backend.namespace import cast, dtype_name, epsilon, move, namespace_of, to_host
from gpukpca.backend.random import Randomness, standard_normal
from gpukpca.backend.work import Work
from gpukpca.eigen.partial_cholesky import NOISE, ROUNDING
from gpukpca.eigen.solver import PlannedSolver
from gpukpca.gram import CenteredGram
from gpukpca.gram.storage import StorageInput, TiledStorage
from gpukpca.kernels import Kernel
from gpukpca.kernels.definiteness import may_be_semidefinite

# Random vectors and the base of the failure probability of the bound on the norm, ALPHA^-VECTORS.
VECTORS, ALPHA = 30, 2.0
# Rows of X, or features of another library; None without an approximation.
Landmarks = np.ndarray | WeightedFeatures | None
# Blocks of n rows that are held at once: the vectors, centered, with a column of ones, and two products.
BLOCKS = 6
# Panels of features, alone, with columns beside them, and widened; and squares of their number on the host.
FEATURE_PANELS, SQUARES = 3, 6


@dataclass(frozen=True)
class AuditPass(PlannedSolver):
    """The products of an audit, as a plan counts them: so many columns, passes, and features of landmarks."""

    columns: int
    passes: int
    features: int = 0

    @property
    def name(self) -> str:
        return "audit"

    def width(self, n: int, p: int, on_gpu: bool) -> int:
        return self.columns + 1  # and ones, for the means of K

    def workspace_bytes(self, n: int, p: int, item_size: int, on_gpu: bool) -> int:
        blocks = n * self.columns * (BLOCKS * item_size + (2 if item_size < 8 else 1) * 8)
        panel = min(n, blocking.PANEL_ENTRIES.on(on_gpu) // max(1, self.features)) * (self.features + self.columns)
        return blocks + n * BLOCKS * item_size + 8 * (FEATURE_PANELS * panel + SQUARES * self.features**2)

    def work(self, n: int, p: int, one_pass: Work, item_size: int, on_gpu: bool) -> Work:
        return one_pass * self.passes


def audit_rows(
    X: Any,
    kernel: Kernel,
    vectors: Array,
    eigenvalues: np.ndarray | None,
    resources: Resources,
    *,
    center: bool = True,
    landmarks: Landmarks = None,
    passes: int = 1,
    random: Randomness | None = None,
    progress: Listener | None = None,
) -> EigenpairAudit:
    """Return the audit of vectors (n, p) against K of finite rows X (n, d) where `resources` say that it computes.

    X is an array, a CSR matrix or on a cluster. The kernel has numbers in place of rules. Without `eigenvalues` the
    vectors are scores, whose squared lengths are the eigenvalues. `landmarks` are rows of X, or features; with them the
    error of Nyström is bounded, by one or two passes over K. Without `center` the vectors are those of K itself.
    """
    started, listener, p = time.perf_counter(), timed(progress), int(vectors.shape[1])
    passes = 1 if landmarks is None else passes
    settings = KernelPCASettings(n_components=max(p, 1), copies_data=False, center=center)
    task = FitTask.of(X, kernel, settings, resources)
    op = CenteredGram(_kernel_operator(task, _audit_pass(p, landmarks, passes), listener), center=center)
    U, lengths = UnitVectors.of(cast(move(vectors, op.like), op.dtype))
    products = _Products(op, passes, listener)
    error: dict[str, Any] = {}
    if landmarks is None:
        W = products.times(U)
    else:
        n_jobs = 1 if task.is_on_cluster else resources.n_jobs  # Dask has a thread for every panel
        if isinstance(landmarks, np.ndarray):
            landmarks = WeightedFeatures.of_rows(kernel, X, landmarks, task.template)
        W, error = _with_error(products, X, U, landmarks, random or Randomness(None), n_jobs)
    pairs = measured_pairs(op, U, W)
    return EigenpairAudit(
        matrix=f"{'centered ' * center}kernel matrix",
        n_samples=task.n,
        eigenvalues=lengths**2 if eigenvalues is None else eigenvalues,
        rayleigh_quotients=pairs.quotients,
        residual_norms=pairs.residuals,
        ritz_values=pairs.ritz_values,
        skew=pairs.skew,
        trace=op.trace,
        n_passes=products.done,
        n_products=products.columns,
        seconds=time.perf_counter() - started,
        **({"rounding": product_rounding(op, pairs.quotients)} | error),
    )


def _audit_pass(p: int, landmarks: Landmarks, passes: int) -> AuditPass:
    """Return the products for p vectors, and for the random ones where there are landmarks."""
    if landmarks is None:
        return AuditPass(p, passes)
    rank = len(landmarks) if isinstance(landmarks, np.ndarray) else landmarks.rank
    return AuditPass(p + VECTORS, passes, rank)


def _kernel_operator(task: FitTask, solver: AuditPass, listener: Listener | None) -> SymmetricOperator:
    """Return K in the storage of a plan; tiles are cached where a second pass uses them."""
    storage: Any = plan_of_pass(task, solver).storage
    if solver.passes == 1 and not task.is_on_cluster and isinstance(storage, TiledStorage):
        storage = replace(storage, cached_tiles=0)
    report = tile_report(listener)
    op: SymmetricOperator = storage.build(
        StorageInput(task.kernel, task.X, task.template, task.resources.n_jobs, report)
    )
    return op


class _Products:
    """The products of an operator, counted and reported."""

    def __init__(self, op: CenteredGram, passes: int, listener: Listener | None) -> None:
        self.op, self.passes, self.listener = op, passes, listener
        self.done = self.columns = 0

    def times(self, V: Array) -> Array:
        """Return A V."""
        W = self.op @ V
        self.done, self.columns = self.done + 1, self.columns + int(V.shape[1])
        if self.listener is not None:
            self.listener(Progress("pass", f"pass {self.done} of {self.passes} over K", self.done, self.passes))
        return W


def _with_error(
    products: _Products, X: Any, U: Array, features: WeightedFeatures, random: Randomness, n_jobs: int | None
) -> tuple[Array, dict[str, Any]]:
    """Return A U, and the fields of an audit that bound the error E = A - F Fᵀ of landmarks, F centered."""
    op, p = products.op, int(U.shape[1])
    n = op.shape[0]
    V = op.project(standard_normal(random.generator, (n, VECTORS), op.like))
    gram, T = features.gram_and_products(X, V, n_jobs)
    theta = np.maximum(np.linalg.eigvalsh(gram)[::-1], 0.0)
    W = products.times(namespace_of(U).concat([U, V], axis=1))
    V = W[:, p:] - cast(features.times(X, T, n_jobs), op.dtype)
    norms = [float(np.max(column_norms(V)))]
    if products.passes == 2:
        T = features.products(X, V, n_jobs)
        V = products.times(V) - cast(features.times(X, T, n_jobs), op.dtype)
        norms.append(float(np.max(column_norms(V))))
    rounding = product_rounding(op, theta)
    return W[:, :p], {
        "rounding": rounding,
        "landmark_eigenvalues": np.concatenate([theta, np.zeros(p)])[:p],
        "trace_bound": _trace_bound(op, features, theta),
        "norm_bound": norm_bound(norms, rounding),
        "failure_probability": ALPHA**-VECTORS,
    }


def norm_bound(norms: list[float], rounding: float) -> float:
    """Return a bound on ‖E‖₂ from max ‖Eω‖, or max ‖Eω‖ and max ‖E²ω‖, of Gaussian vectors ω.

    ‖E‖₂ <= α √(2/π) max ‖Eω‖ but for a probability of α^-r with r vectors; the same holds for E², whose norm is the
    square. Products with unit vectors err by `rounding`, and so do the entries. Halko, Martinsson & Tropp, SIAM Review
    53 (2011) 217, lemma 4.1.
    """
    factor = ALPHA * math.sqrt(2.0 / math.pi)
    if len(norms) == 1:
        return factor * (norms[0] + rounding) + rounding
    return math.sqrt(factor * (norms[1] + rounding * norms[0])) + (factor + 1.0) * rounding


def _trace_bound(op: CenteredGram, features: WeightedFeatures, theta: np.ndarray) -> float | None:
    """Return tr A - tr F Fᵀ, F centered, with the rounding of both; None for a kernel that is not semidefinite.

    The differences of the eigenvalues sum to it, and none is negative.
    """
    if not may_be_semidefinite(features.kernel):
        return None
    n, base = op.shape[0], to_host(op.base.diagonal()).astype(np.float64)
    share = max(ROUNDING[dtype_name(op.dtype)], op.rounding * epsilon(op.like))
    expected = share * max(float(np.sum(np.abs(base))), op.noise_scale)
    noise = NOISE * max(0.0, n * features.noise - expected)
    return max(op.trace - float(np.sum(theta)), 0.0) + expected + noise
