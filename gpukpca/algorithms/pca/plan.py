"""The plan of a PCA: the eigenproblem of the features or of the samples, an SVD, or iteration."""

from __future__ import annotations

from dataclasses import dataclass

from gpukpca.algorithms.fields import documented, field_of
from gpukpca.algorithms.resources import memory_text
from gpukpca.algorithms.work import time_line
from gpukpca.eigen import BlockKrylov, Dense

PCASolver = Dense | BlockKrylov

DESCRIPTIONS = {
    "covariance_eigh": "eigenproblem of the features' covariance",
    "dual": "eigenproblem of the samples' Gram matrix",
    "full": "singular value decomposition",
    "randomized": "block Krylov iteration",
}


@documented
@dataclass(frozen=True)
class PCAPlan:
    """Method, solver and predicted memory of a fit of `PCA`; ``print(plan)`` states them.

    See Also
    --------
    gpukpca.PCA.plan : Returns it without a fit.
    gpukpca.Plan : The plan of kernel PCA.

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca import PCA
    >>> plan = PCA(10).plan(np.zeros((2000, 600)))
    >>> plan.method, plan.predicted_bytes <= plan.available_bytes
    ('covariance_eigh', True)
    """

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
    predicted_bytes: int = field_of("", "peak of the allocations of the fit, without the data passed in")
    available_bytes: int = field_of("", "bytes that it may allocate")
    notes: tuple[str, ...] = field_of("", "reasons for a smaller path", default=())
    estimated_seconds: float | None = field_of("", "of the fit, to a factor of a few; None on a cluster", default=None)

    def __repr__(self) -> str:
        lines = [
            f"data      {self.n_samples} x {self.n_features}, {self.dtype}, on {self.device}",
            f"method    {self.method}: {DESCRIPTIONS[self.method]} ({self.reason})",
            f"solver    {self._solver_name()} for {self.n_components} components",
            f"memory    {memory_text(self.predicted_bytes, self.available_bytes)}",
            *time_line(self.estimated_seconds),
            f"workers   {self.workers}",
        ]
        return "\n".join(lines + [f"note      {note}" for note in self.notes])

    def _solver_name(self) -> str:
        if self.solver is None:
            return "gesdd"
        side = "samples" if self.by_samples else "features"
        return f"{self.solver.name} on the side of the {side}"
