"""The plan of a fit, decided before anything large is allocated, and the request that it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpukpca._formatting import format_bytes
from gpukpca._typing import Array
from gpukpca.algorithms.kernel_pca.settings import KernelPCASettings, PreimageOptions
from gpukpca.algorithms.placement import Placement
from gpukpca.algorithms.resources import Resources
from gpukpca.algorithms.work import time_line
from gpukpca.backend.device import describe_device, is_on_gpu
from gpukpca.backend.limits import SHARE_FOR_TILES, SHARE_OF_FREE
from gpukpca.backend.namespace import dtype_name, is_memory_map, is_sparse, item_size
from gpukpca.eigen import Nystrom
from gpukpca.eigen.solver import Solver, complete_solver
from gpukpca.gram.storage import Storage
from gpukpca.kernels import Kernel, Linear
from gpukpca.kernels.prepared import PreparedRows


@dataclass(frozen=True)
class PlanRequest:
    """The facts of a fit that no choice of a plan changes.

    Attributes
    ----------
    settings : KernelPCASettings
    X : array or CSR matrix
    kernel : Kernel
        With numbers in place of rules.
    template : PreparedRows or None
        What the kernel learned from X; None for stored kernels.
    p : int
    resources : Resources
        X may not be at their place yet.
    workers : int
        Threads, or machines of a cluster.
    has_checkpoint : bool
        Whether the fit writes checkpoints.
    """

    settings: KernelPCASettings
    X: Array
    kernel: Kernel
    template: PreparedRows | None
    p: int
    resources: Resources
    workers: int
    has_checkpoint: bool = False

    @property
    def place(self) -> Placement:
        """Return an array of the device of the fit."""
        return self.resources.place

    @property
    def limit(self) -> int:
        """Bytes that may be allocated."""
        return self.resources.limit

    @property
    def n(self) -> int:
        """Return the number of samples."""
        return int(self.X.shape[0])

    @property
    def item(self) -> int:
        """Return the bytes of an item."""
        return item_size(self.X.dtype)

    @property
    def on_gpu(self) -> bool:
        """Return whether the fit computes on a GPU."""
        return is_on_gpu(self.place.work)

    def components_for(self, solver: Solver, rank: int = 0) -> int:
        """Return how many eigenpairs a solver computes: all where a share of the variance is requested at once.

        `rank` is the number of columns of a factor of K, where there is one.
        """
        return (rank or self.n) if self.settings.is_share and not solver.grows_with_p else self.p

    @property
    def maps_file(self) -> bool:
        """Return whether X is read from its file during the fit."""
        return is_memory_map(self.X) and not self.place.moved

    @property
    def copy_bytes(self) -> int:
        """Return the bytes of the fit's own copy of X, where it has one."""
        own = self.place.moved or (self.settings.copies_data and not self.maps_file)
        return self.data_bytes if own else 0

    @property
    def tile_limit(self) -> int:
        """Return the bytes that cached tiles may take: a share of what is free, or all of a limit that was set."""
        share = 1.0 if self.resources.is_limited else SHARE_FOR_TILES / SHARE_OF_FREE
        return int(share * self.limit)

    @property
    def d(self) -> int:
        """Return the number of features."""
        return int(self.X.shape[1])

    @property
    def data_bytes(self) -> int:
        """Return the bytes of X."""
        if is_sparse(self.X):
            return int(self.X.data.nbytes + self.X.indices.nbytes + self.X.indptr.nbytes)
        return self.n * self.d * self.item

    @property
    def preimage(self) -> PreimageOptions | None:
        """Return the options of the pre-image; None also for the linear kernel, which needs no bytes for it."""
        return None if isinstance(self.kernel, Linear) else self.settings.preimage

    @property
    def row_bytes(self) -> int:
        """Return the bytes of a prepared row."""
        if self.template is None:
            return 0
        if is_sparse(self.X):  # in float64, and its norm
            return -(-self.data_bytes * 12 // (4 + self.item) // max(self.n, 1)) + 8
        return self.template.row_bytes


@dataclass(frozen=True)
class Plan:
    """The plan of a fit: solver, storage, memory and time; ``print(plan)`` shows it in words.

    Attributes
    ----------
    n_samples, n_features, n_components : int
    dtype, device, kernel : str
    solver : Dense, BlockKrylov, LowRank, Nystrom or another solver object
    solver_reason : str
    storage : Storage
        The way to hold K; `gpukpca.gram.storage` lists them.
    predicted_bytes, available_bytes : int
        Peak of the allocations beside the data passed in, and their limit.
    start_landmarks : int
        Rows whose own components start the iteration; 0: random vectors start it.
    bytes_read : int
        Read from the file of X in every pass; 0 where its rows are held in memory.
    preimage_landmarks : int
        Scores that the ridge pre-image is approximated from; 0: all of them, or another method.
    notes : tuple of str
        Reasons for a smaller path, and remarks.
    estimated_seconds : float or None
        The time of the fit, from counts of operations and rates of a core or a card, to a factor of a few. None where
        it is not known: on a cluster, and for a function of two rows or a solver of your own.
    """

    n_samples: int
    n_features: int
    n_components: int
    dtype: str
    device: str
    kernel: str
    solver: Any
    solver_reason: str
    storage: Storage
    predicted_bytes: int
    available_bytes: int
    start_landmarks: int = 0
    bytes_read: int = 0
    preimage_landmarks: int = 0
    notes: tuple[str, ...] = ()
    estimated_seconds: float | None = None

    @property
    def is_approximate(self) -> bool:
        """Return whether K is approximated from landmarks."""
        return isinstance(self.solver, Nystrom)

    def __repr__(self) -> str:
        solver = complete_solver(self.solver)
        lines = [
            f"data      {self.n_samples} x {self.n_features}, {self.dtype}, on {self.device}",
            f"kernel    {self.kernel}",
            f"solver    {solver.name} for {self.n_components} components ({self.solver_reason})",
            f"K         {self.storage}",
            f"memory    {format_bytes(self.predicted_bytes)} predicted, {format_bytes(self.available_bytes)} allowed",
            *time_line(self.estimated_seconds),
            f"workers   {self.storage.workers}",
        ]
        n, p, on_gpu = self.n_samples, self.n_components, self.device.startswith("cuda")
        if most := solver.basis_columns(n, p, on_gpu):
            lines.append(f"block     {solver.width(n, p, on_gpu)} columns a pass, at most {most} kept")
        if self.start_landmarks:
            lines.append(f"start     components of {self.start_landmarks} random rows")
        if self.bytes_read:
            lines.append(f"reading   {format_bytes(self.bytes_read)} of X from its file in every pass over K")
        return "\n".join(lines + [f"note      {note}" for note in self.notes])


def plan_of(job: PlanRequest, solver: Solver | Nystrom, why: str, storage: Storage, needed: int, **more: Any) -> Plan:
    """Return the plan of a request with a solver, a storage and the bytes that they need."""
    return Plan(
        n_samples=job.n,
        n_features=job.d,
        n_components=job.p,
        dtype=dtype_name(job.X.dtype),
        device=describe_device(job.place.work),
        kernel=repr(job.kernel),
        solver=complete_solver(solver).given,
        solver_reason=why,
        storage=storage,
        predicted_bytes=needed,
        available_bytes=job.limit,
        **more,
    )
