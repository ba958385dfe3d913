"""Plan of a PCA from shapes alone: the eigenproblem of the features or of the samples, an SVD, or iteration."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gpukpca._formatting import format_bytes
from gpukpca._typing import Array
from gpukpca.algorithms.fields import documented, field_of
from gpukpca.algorithms.pca.settings import PCASettings
from gpukpca.algorithms.pca.work import pca_work
from gpukpca.algorithms.progress import NO_CHECKPOINT
from gpukpca.algorithms.resources import Resources
from gpukpca.algorithms.work import estimate_seconds, time_line
from gpukpca.backend import blocking
from gpukpca.backend.device import describe_device, hidden_memory, is_on_gpu
from gpukpca.backend.namespace import dtype_name, is_sparse, item_size
from gpukpca.backend.parallel import worker_count
from gpukpca.covariance.dense import SQUARES
from gpukpca.distributed import Cluster, ClusterRows
from gpukpca.eigen import BlockKrylov, Dense
from gpukpca.exceptions import MemoryBudgetError

# Up to this many rows and columns the SVD itself costs nothing to speak of.
SMALL = 500
# Features up to which their scatter matrix is made whatever p is; beyond it, where p is not small beside them.
FEW_FEATURES = 2000
FEATURES_PER_COMPONENT = 30
# Sparse products are worth making whole up to this size of the smaller side.
FEW_OF_SPARSE = 1000
# Up to here LAPACK on a stored matrix; beyond it block Krylov, where few pairs are requested.
LAPACK_UP_TO, SIZE_PER_COMPONENT = 2500, 100
# The tightest tolerance that block Krylov can reach, in eps: what a stored matrix is solved to.
TIGHT = 100.0
# LAPACK's gesdd: the data, U and Vᵀ, and its workspace, in units of the smaller side squared.
SVD_SQUARES = 8
# Blocks of vectors in this process beside the solver's, where rows are on a cluster.
BLOCKS_ON_THE_WAY = 6

PCASolver = Dense | BlockKrylov

WORDS = {
    "covariance_eigh": "eigenproblem of the features' covariance",
    "dual": "eigenproblem of the samples' Gram matrix",
    "full": "singular value decomposition",
    "randomized": "block Krylov iteration",
}


@documented
@dataclass(frozen=True)
class PCAPlan:
    """Method, solver and predicted memory of a fit of `PCA`; ``print(plan)`` states them."""

    n_samples: int
    n_features: int
    n_components: int
    dtype: str
    device: str
    method: str = field_of("", '"covariance_eigh", "dual", "full" or "randomized"')
    reason: str = field_of("", "why this method")
    solver: PCASolver | None = field_of("", "of the eigenproblem; None for an SVD")
    by_samples: bool = field_of("", "whether the eigenproblem is that of the samples")
    workers: int = field_of("", "threads, those of a cluster together")
    predicted_bytes: int = field_of("", "peak of what the fit allocates beside the data passed in")
    available_bytes: int = field_of("", "what it may allocate")
    notes: tuple[str, ...] = field_of("", "why a smaller path was taken, if one was", default=())
    estimated_seconds: float | None = field_of("", "to a factor of a few; None on a cluster", default=None)

    def __repr__(self) -> str:
        lines = [
            f"data      {self.n_samples} x {self.n_features}, {self.dtype}, on {self.device}",
            f"method    {self.method}: {WORDS[self.method]} ({self.reason})",
            f"solver    {self._solver_name()} for {self.n_components} components",
            f"memory    {format_bytes(self.predicted_bytes)} predicted, {format_bytes(self.available_bytes)} allowed",
            *time_line(self.estimated_seconds),
            f"workers   {self.workers}",
        ]
        return "\n".join(lines + [f"note      {note}" for note in self.notes])

    def _solver_name(self) -> str:
        if self.solver is None:
            return "gesdd"
        side = "samples" if self.by_samples else "features"
        return f"{self.solver.name} on the side of the {side}"


@documented
@dataclass(frozen=True)
class PCAPlanRequest:
    """Data, settings and resources of a plan."""

    settings: PCASettings
    X: Array = field_of("n d", "dense, CSR or on a cluster")
    p: int = field_of("", "components requested; an upper bound where the spectrum decides")
    whole: bool = field_of("", "whether all eigenvalues are needed")
    resources: Resources = field_of("", "device, bytes and threads")

    @property
    def n(self) -> int:
        """Return the number of samples."""
        return int(self.X.shape[0])

    @property
    def d(self) -> int:
        """Return the number of features."""
        return int(self.X.shape[1])

    @property
    def like(self) -> Array:
        """Return a zero-size array where the fit computes."""
        return self.resources.place.work

    @property
    def on_gpu(self) -> bool:
        """Return whether the fit computes on a GPU."""
        return is_on_gpu(self.like)

    @property
    def cluster(self) -> Cluster | None:
        """Return the cluster that has the rows, or None."""
        return self.X.cluster if isinstance(self.X, ClusterRows) else None

    @property
    def workers(self) -> int:
        """Return the number of threads, those of a cluster together."""
        if self.cluster is not None:
            return sum(worker.threads for worker in self.cluster.workers)
        return worker_count(self.like, self.resources.n_jobs)


def make_pca_plan(job: PCAPlanRequest) -> PCAPlan:
    """Return the plan of the first method that fits into memory.

    Raises
    ------
    MemoryBudgetError
        None does; names what is needed, what is allowed, and what to change.
    """
    fewest: PCAPlan | None = None
    for method, reason in _ways(job):
        plan = _plan(job, method, reason, fewest)
        if plan.predicted_bytes <= job.resources.limit:
            return _with_time(job, plan)
        if fewest is None or plan.predicted_bytes < fewest.predicted_bytes:
            fewest = plan
    needed = format_bytes(fewest.predicted_bytes if fewest else 0)
    raise MemoryBudgetError(
        f"PCA of {job.n} x {job.d} needs {needed} ({fewest.method if fewest else ''}), and "
        f"{format_bytes(job.resources.limit)} are allowed or free. Try {_fewer(job)}, float32 data, or a larger "
        f"memory_limit.{hidden_memory(job.like)}"
    )


def _with_time(job: PCAPlanRequest, plan: PCAPlan) -> PCAPlan:
    """Return the plan with an estimate of its time, where that does not depend on a network."""
    if job.cluster is not None:
        return plan
    seconds = estimate_seconds(pca_work(job, plan), job.like, job.X.dtype, plan.workers, job.on_gpu)
    return replace(plan, estimated_seconds=seconds)


def _fewer(job: PCAPlanRequest) -> str:
    """Return the advice to request fewer components, and the solver for them where another one was requested."""
    iterates = job.settings.svd_solver in ("randomized", "arpack")
    return "fewer components" if iterates else 'few components (of PCA with svd_solver="randomized")'


def _ways(job: PCAPlanRequest) -> Iterator[tuple[str, str]]:
    """Yield methods in the order of preference, each with its reason."""
    asked = job.settings.svd_solver
    if asked != "auto":
        yield ("randomized" if asked == "arpack" else asked), "requested"
        return
    n, d, p = job.n, job.d, job.p
    few = min(n, d)
    exact = "dual" if n < d else "covariance_eigh"
    if is_sparse(job.X) and few > FEW_OF_SPARSE and not job.whole:
        yield "randomized", "sparse rows, of which products are cheap"
        return
    if not is_sparse(job.X) and d <= n <= SMALL and job.cluster is None:
        yield "full", "the data are small"
        return
    pays = FEATURES_PER_COMPONENT * (p + 8) < d
    if n >= d > FEW_FEATURES and pays and not job.whole:
        yield "randomized", f"p = {p} is small beside {d} features"
        return
    yield exact, f"{n} samples are fewer than {d} features" if n < d else f"{d} features are no more than {n} samples"
    if not job.whole and BlockKrylov().iterates(few, p):
        yield "randomized", "few components"


def _plan(job: PCAPlanRequest, method: str, reason: str, refused: PCAPlan | None) -> PCAPlan:
    by_samples = method == "dual" or (method == "randomized" and job.n < job.d)
    solver = solver_for(job, method)
    notes: tuple[str, ...] = ()
    if job.cluster is not None:
        notes = (f"cluster: {job.cluster.describe()}",)
    if refused is not None:
        notes = (*notes, f"{refused.method} would need {format_bytes(refused.predicted_bytes)}")
    if job.settings.has_checkpoint and (solver is None or not solver.grows_with_p):
        notes = (*notes, NO_CHECKPOINT)
    return PCAPlan(
        n_samples=job.n,
        n_features=job.d,
        n_components=job.p,
        dtype=dtype_name(job.X.dtype),
        device=describe_device(job.like),
        method=method,
        reason=reason,
        solver=solver,
        by_samples=by_samples,
        workers=job.workers,
        predicted_bytes=_bytes(job, method, solver, by_samples),
        available_bytes=job.resources.limit,
        notes=notes,
    )


def solver_for(job: PCAPlanRequest, method: str) -> PCASolver | None:
    """Return the solver of the eigenproblem of a method; None for the SVD."""
    settings = job.settings
    if method == "full":
        return None
    if method == "randomized":
        width = None if settings.oversampling is None else job.p + settings.oversampling
        return BlockKrylov(tol=settings.tol, passes=settings.passes, block_size=width)
    size = job.n if method == "dual" else job.d
    if size > LAPACK_UP_TO and not job.whole and SIZE_PER_COMPONENT * job.p <= size:
        return BlockKrylov(tol=TIGHT * 2.3e-16)
    return Dense()


def _bytes(job: PCAPlanRequest, method: str, solver: PCASolver | None, by_samples: bool) -> int:
    """Return the peak of the bytes of a method: matrices, the solver, blocks of all workers, components, scores."""
    n, d, p, item = job.n, job.d, job.p, item_size(job.X.dtype)
    workers, blocks, scores = job.workers, job.workers * 3 * _block_bytes(job, method), n * p
    if job.cluster is not None:
        # Rows and sums stay with their workers; here are one of the sums, and blocks of vectors on their way.
        workers, blocks = 0, BLOCKS_ON_THE_WAY * 8 * (n if by_samples else d) * (p + 10)
        scores = n * p if by_samples or job.X.local is not None else 0
    results = (4 * d * p + 2 * scores) * max(item, 8 if method == "covariance_eigh" else item)
    copy = n * d * item if job.resources.place.moved else 0
    if is_sparse(job.X):
        copy += 3 * int(job.X.nnz) * 12
    if solver is None:
        few, svd = min(n, d), SVD_SQUARES * min(n, d) ** 2
        whole = 2 * n * d + (n + d) * few + svd
        return copy + (whole * item if job.cluster is None else svd * 8) + blocks + results
    if method == "randomized":
        few = min(n, d)
        dense = not solver.iterates(few, p)
        work = (2 * few * few + Dense().workspace_items(few, p, job.on_gpu)) * 8 if dense else 0
        work = work or solver.workspace_items(few, p, job.on_gpu) * item
        sums = workers * few * (p + 10) * 8
        return copy + work + blocks + sums + results
    size = n if method == "dual" else d
    requested = size if job.whole else p
    private = workers if size <= blocking.PRIVATE_SCATTER_UP_TO or method == "covariance_eigh" else 0
    matrix = size * size * 8 * (1 + private) + size * size * item * (2 if private else 0)
    work = solver.workspace_items(size, min(requested, size), job.on_gpu) * 8 + 2 * size * size * 8
    work = work if solver.forms_matrix else solver.workspace_items(size, requested, job.on_gpu) * 8
    return copy + max(matrix, size * size * 8 + work) + blocks + results


def _block_bytes(job: PCAPlanRequest, method: str) -> int:
    """Return the bytes of a block of rows or columns, and a tile of a product."""
    by_rows = method == "covariance_eigh" or (method in ("randomized", "full") and job.n >= job.d)
    length, other = (job.n, job.d) if by_rows else (job.d, job.n)
    entries = blocking.SCATTER_ENTRIES.on(job.on_gpu)
    fewest = blocking.FEWEST_SCATTER_ROWS if by_rows else blocking.FEWEST_SCATTER_COLUMNS
    rows = min(length, max(fewest, entries // max(other, 1)))
    if method == "covariance_eigh":
        rows = max(rows, min(length, SQUARES * other, blocking.LONGEST_SCATTER_PANEL.cpu))
    return (rows * other + (blocking.SCATTER_TILE_EDGE**2 if method == "dual" else 0)) * 8
