"""The plan of a fit, decided before anything large is allocated."""

from __future__ import annotations

from dataclasses import dataclass

from gpukpca._formatting import format_bytes
from gpukpca.algorithms.fields import documented, field_of
from gpukpca.algorithms.resources import memory_text
from gpukpca.algorithms.work import time_line
from gpukpca.eigen import Nystrom
from gpukpca.eigen.solver import PlannedSolver
from gpukpca.gram.storage import Storage


@documented
@dataclass(frozen=True)
class Plan:
    """The plan of a fit: solver, storage, memory and time; ``print(plan)`` shows it.

    See Also
    --------
    gpukpca.KernelPCA.plan : Returns it without a fit.
    gpukpca.PCAPlan : The plan of PCA.

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca import KernelPCA
    >>> plan = KernelPCA(10, kernel="rbf").plan(np.zeros((2000, 20)))
    >>> plan.solver.name, plan.predicted_bytes <= plan.available_bytes
    ('block Krylov', True)
    """

    n_samples: int
    n_features: int
    n_components: int
    dtype: str
    device: str
    kernel: str
    solver: PlannedSolver = field_of("", "Dense, BlockKrylov, LowRank, Nystrom or another solver object")
    solver_reason: str = field_of("", "why this solver")
    storage: Storage = field_of("", "how K is held; see `gpukpca.gram.storage`")
    predicted_bytes: int = field_of("", "peak of the allocations, without the data passed in")
    available_bytes: int = field_of("", "limit of the allocations")
    start_landmarks: int = field_of("", "rows whose components start the iteration; 0: random vectors do", default=0)
    bytes_read: int = field_of("", "read from the file of X in every pass; 0: rows are in memory", default=0)
    preimage_landmarks: int = field_of("", "landmarks of the ridge pre-image; 0: all scores, or another", default=0)
    notes: tuple[str, ...] = field_of("", "reasons for a smaller path, and remarks", default=())
    estimated_seconds: float | None = field_of(
        "",
        "the time of the fit to a factor of a few, from counts of operations and rates of a core or a card; None on a "
        "cluster, for a function of two rows, and for other solvers",
        default=None,
    )

    @property
    def is_approximate(self) -> bool:
        """Return whether K is approximated from landmarks."""
        return isinstance(self.solver, Nystrom)

    def __repr__(self) -> str:
        solver = self.solver
        lines = [
            f"data      {self.n_samples} x {self.n_features}, {self.dtype}, on {self.device}",
            f"kernel    {self.kernel}",
            f"solver    {solver.name} for {self.n_components} components ({self.solver_reason})",
            f"K         {self.storage}",
            f"memory    {memory_text(self.predicted_bytes, self.available_bytes)}",
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
