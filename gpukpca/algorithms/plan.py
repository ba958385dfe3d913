"""The plan of a fit, decided before anything large is allocated: the first candidate that fits into memory.

A candidate is a solver with a storage. It states an upper bound of its bytes and its work, from shapes alone;
`tests/algorithms/test_predicted_memory.py` compares the bytes with what fits allocate.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, TypeVar

from gpukpca._formatting import format_bytes, format_seconds
from gpukpca.algorithms.bill import Parts, parts_text, total
from gpukpca.algorithms.fields import field_of, record
from gpukpca.algorithms.resources import Resources, memory_text
from gpukpca.eigen import BlockKrylov, Nystrom
from gpukpca.eigen.landmarks import is_given
from gpukpca.eigen.solver import PlannedSolver
from gpukpca.exceptions import InvalidParameterError, MemoryBudgetError
from gpukpca.gram.storage import Storage, TiledStorage

Given = TypeVar("Given")
# A tile of two CSR matrices is made dense, which costs as much as moving so many bytes an entry.
SPARSE_ENTRY_BYTES = 60
METHODS = {
    "covariance_eigh": "eigenproblem of the features' covariance",
    "dual": "eigenproblem of the samples' Gram matrix",
    "full": "singular value decomposition",
    "randomized": "block Krylov iteration",
}
# A note.
NO_CHECKPOINT = "no checkpoint is written: this solution has no passes between which it could go on"


@record(kw_only=True)
class Plan:
    """The plan of a fit: solver, storage, memory and time; ``print(plan)`` shows it.

    See Also
    --------
    gpukpca.KernelPCA.plan, gpukpca.PCA.plan : Return it without a fit.

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca import PCA, KernelPCA
    >>> plan = KernelPCA(10, kernel="rbf").plan(np.zeros((2000, 20)))
    >>> plan.solver.name, plan.predicted_bytes <= plan.available_bytes
    ('block Krylov', True)
    >>> PCA(10).plan(np.zeros((2000, 600))).method
    'covariance_eigh'
    """

    n_samples: int
    n_features: int
    n_components: int
    dtype: str
    device: str
    solver: PlannedSolver | Nystrom | None = field_of(
        "", "Dense, BlockKrylov, LowRank, Nystrom or another solver object; None for an SVD"
    )
    solver_reason: str = field_of("", "why this solver")
    predicted_bytes: int = field_of("", "peak of the allocations, without the data passed in")
    available_bytes: int = field_of("", "limit of the allocations")
    kernel: str = field_of("", 'of kernel PCA; "" for PCA', default="")
    storage: Storage | None = field_of("", "how K is held; see `gpukpca.gram.storage`; None for PCA", default=None)
    twin: TiledStorage | None = field_of(
        "", "narrower tiles of K that most passes multiply with, before K itself verifies; None: K alone", default=None
    )
    method: str = field_of(
        "", 'of PCA: "covariance_eigh", "dual", "full" or "randomized"; "" for kernel PCA', default=""
    )
    by_samples: bool = field_of("", "whether the eigenproblem of PCA is that of the samples", default=False)
    workers: int = field_of("", "threads, those of a cluster together; of kernel PCA its machines", default=0)
    start_landmarks: int = field_of("", "rows whose components start the iteration; 0: random vectors do", default=0)
    bytes_read: int = field_of("", "read from the file of X in every pass; 0: rows are in memory", default=0)
    preimage_landmarks: int = field_of("", "landmarks of the ridge pre-image; 0: all scores, or another", default=0)
    notes: tuple[str, ...] = field_of("", "reasons for a smaller path, and remarks", default=())
    estimated_seconds: float | None = field_of(
        "",
        "the time of the fit to a factor of three, from counts of operations and rates of a core or a card; None on a "
        "cluster, for a function of two rows, and for other solvers",
        default=None,
    )
    bill: dict[str, int] = field_of("", "the bytes at the peak by what holds them", default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not self.workers and self.storage is not None:  # a model file of an earlier version
            object.__setattr__(self, "workers", self.storage.workers)

    @property
    def fits(self) -> bool:
        """Return whether the fit keeps to its limit."""
        return self.predicted_bytes <= self.available_bytes

    @property
    def solver_name(self) -> str:
        """Return the name of the solver, by which the plan shows it."""
        if isinstance(self.solver, Nystrom):
            drawn = "chosen" if is_given(self.solver) else self.solver.landmarks
            return f"Nyström ({drawn} landmarks, rank {self.solver.rank})"
        return "gesdd" if self.solver is None else self.solver.name

    @property
    def is_approximate(self) -> bool:
        """Return whether K is approximated from landmarks; points that span all features are none of a sample."""
        return isinstance(self.solver, Nystrom) and not getattr(self.storage, "is_exact", False)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as numbers, strings and lists for JSON, the solver and the storage by name.

        Returns
        -------
        dict
            Its keys are the fields, `fits` and `is_approximate`: the same ones for every plan.

        Examples
        --------
        >>> import json
        >>> from gpukpca import PCA
        >>> plan = PCA(10, memory_limit="1GiB").plan((1_000_000, 100), dtype="float32").to_dict()
        >>> plan["solver"], plan["storage"], plan["fits"], plan["notes"]
        ('dense', None, True, [])
        >>> json.loads(json.dumps(plan)) == plan
        True
        """
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        named: dict[str, Any] = {"solver": self.solver_name}
        for name, storage in {"storage": self.storage, "twin": self.twin}.items():
            named[name] = None if storage is None else str(storage)
        more = {"notes": list(self.notes), "fits": self.fits, "is_approximate": self.is_approximate}
        return values | named | more

    def __repr__(self) -> str:
        """Return the lines that ``print(plan)`` shows."""
        data = f"data      {self.n_samples} x {self.n_features}, {self.dtype}, on {self.device}"
        lines = [data, *(self._lines_of_pca() if self.method else self._lines_of_kernel_pca())]
        lines.append(f"memory    {memory_text(self.predicted_bytes, self.available_bytes)}")
        if self.bill:
            lines.append(f"parts     {parts_text(self.bill)}")
        time = "unknown" if self.estimated_seconds is None else f"{seconds_text(self.estimated_seconds)}, estimated"
        lines.append(f"time      {time}")
        lines.append(f"workers   {self.workers}")
        n, p, on_gpu = self.n_samples, self.n_components, self.device.startswith("cuda")
        if self.storage is not None and isinstance(solver := self.solver, BlockKrylov):
            max_count = solver.basis_columns(n, p, on_gpu)
            lines.append(f"block     {solver.width(n, p, on_gpu)} columns per pass, at most {max_count} kept")
        if self.start_landmarks:
            lines.append(f"start     components of {self.start_landmarks} random rows")
        if self.bytes_read:
            lines.append(f"reading   {format_bytes(self.bytes_read)} of X from its file in every pass over K")
        return "\n".join(lines + [f"note      {note}" for note in self.notes])

    def _lines_of_kernel_pca(self) -> list[str]:
        lines = [
            f"kernel    {self.kernel}",
            f"solver    {self.solver_name} for {self.n_components} components ({self.solver_reason})",
            f"K         {self.storage}",
        ]
        if self.twin is not None:
            cached = "all cached" if self.twin.is_fully_cached else str(self.twin).rpartition(", ")[2]
            tiles = f"{self.twin.type_of_twin} tiles, {cached}"
            lines.append(f"twin      iterated on {tiles}; verified by K in {self.dtype}")
        return lines

    def _lines_of_pca(self) -> list[str]:
        side = "samples" if self.by_samples else "features"
        name = self.solver_name if self.solver is None else f"{self.solver_name} on the side of the {side}"
        return [
            f"method    {self.method}: {METHODS[self.method]} ({self.solver_reason})",
            f"solver    {name} for {self.n_components} components",
        ]


@dataclass(frozen=True)
class Candidate:
    """A plan that may be chosen, and what more components cost where a share of the variance takes them.

    Attributes
    ----------
    plan : Plan
    resources : Resources
    needed : callable or None
        From a number of components to the parts of the bytes; None where the plan counts all.
    few : int
        The most components that the solver is for.
    beyond : Candidate or None
        Takes over where a share takes more components.
    """

    plan: Plan
    resources: Resources
    needed: Callable[[int], Parts] | None = None
    few: int = 0
    beyond: Candidate | None = None

    def parts_for(self, count: int) -> Parts:
        """Return the parts of the bytes where a share takes so many components."""
        return self.plan.bill if self.needed is None or count <= self.plan.n_components else self.needed(count)

    def bytes_for(self, count: int) -> int:
        """Return the bytes where a share takes so many components."""
        return total(self.parts_for(count))

    @cached_property
    def max_count(self) -> int:
        """Return the most components of a share: as many as fit into memory, and are few for the solver."""
        first, few = self.plan.n_components, max(self.few, self.plan.n_components)
        allowed = self.resources.allowed(whole := self.bytes_for(few))
        if whole <= allowed:
            return few
        return first + bisect_right(range(first + 1, few + 1), allowed, key=self.bytes_for)

    def plan_for(self, count: int) -> Plan:
        """Return the plan, once a share has taken so many components."""
        parts = self.parts_for(count)
        needed = total(parts)
        allowed = self.resources.allowed(needed)
        return replace(self.plan, n_components=count, bill=parts, predicted_bytes=needed, available_bytes=allowed)

    def with_notes(self, *notes: str) -> Candidate:
        """Return the candidate with more notes on its plan."""
        return replace(self, plan=replace(self.plan, notes=(*self.plan.notes, *notes)))

    def with_beyond(self, beyond: Candidate | None, what: str, few: int) -> Candidate:
        """Return the candidate for few components of a share, with what takes over for more of them, and a note."""
        found = replace(self, beyond=beyond, few=few)
        if beyond is None:
            return found.with_notes(f"at most {found.max_count} components fit into memory")
        needed = format_bytes(beyond.plan.predicted_bytes)
        return found.with_notes(f"a share of more than {found.max_count} components is left to {what}, with {needed}")

    def handed_over(self, share: float | None, reason: str) -> Candidate:
        """Return the candidate beyond, for a reason; raise `MemoryBudgetError` without one."""
        if self.beyond is None:
            raise share_beyond_memory(share, reason)
        first = self.plan.method or self.plan.solver_name
        beyond = self.beyond.with_notes(f"{first} came first")
        return replace(beyond, plan=replace(beyond.plan, solver_reason=reason))


def choose_plan(
    candidates_of: Callable[[Given], Iterable[Candidate]],
    task: Given,
    what: str,
    changes: Iterable[Iterable[tuple[str, Given | int]]],
) -> Candidate:
    """Return the first candidate of a task that fits into memory.

    Else raise `MemoryBudgetError`: `what` needs the bytes of the smallest plan. The `changes` are those of
    `Resources.check`, with the task that follows from advice, or its bytes.
    """
    if (chosen := next((one for one in candidates_of(task) if one.plan.fits), None)) is not None:
        return chosen

    def smallest(task: Given) -> Candidate:
        return min(candidates_of(task), key=lambda one: one.plan.predicted_bytes)

    def in_bytes(series: Iterable[tuple[str, Given | int]]) -> Iterator[tuple[str, int]]:
        for text, other in series:
            with suppress(InvalidParameterError):  # of parameters that exclude each other
                yield text, other if isinstance(other, int) else smallest(other).plan.predicted_bytes

    fewest = smallest(task)
    parts = f" ({parts_text(fewest.plan.bill)})"
    fewest.resources.check(fewest.plan.predicted_bytes, f"{what} needs", map(in_bytes, changes), parts)
    return fewest


def seconds_text(seconds: float) -> str:
    """Return a time as a plan states it."""
    return f"about {format_seconds(seconds)}" if seconds >= 1 else "less than 1 s"


def share_beyond_memory(share: float | None, reason: str) -> MemoryBudgetError:
    """Return the error for a share of the variance that takes too many components."""
    return MemoryBudgetError(
        f"n_components={share} needs many components: {reason}, and these do not fit into the memory. "
        "Give their number, for which less memory is enough, or a larger memory_limit."
    )


STORED = (Plan,)
