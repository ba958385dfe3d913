"""The plan of a fit, decided before anything large is allocated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpukpca._formatting import format_bytes
from gpukpca.algorithms.work import time_line
from gpukpca.eigen import Nystrom
from gpukpca.eigen.solver import complete_solver
from gpukpca.gram.storage import Storage


@dataclass(frozen=True)
class Plan:
    """The plan of a fit: solver, storage, memory and time; ``print(plan)`` shows it.

    Attributes
    ----------
    n_samples, n_features, n_components : int
    dtype, device, kernel : str
    solver : Dense, BlockKrylov, LowRank, Nystrom or another solver object
    solver_reason : str
    storage : Storage
        How K is held; see `gpukpca.gram.storage`.
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
        From counts of operations and rates of a core or a card, to a factor of a few. None where it is not known: on a
        cluster, for a function of two rows, and for other solvers.
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
