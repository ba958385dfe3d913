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
        n, p, solver, on_gpu = self.n_samples, self.n_components, self.solver, self.device.startswith("cuda")
        lines = {"data": f"{n} x {self.n_features}, {self.dtype}, on {self.device}"}
        if self.method:
            side = f" on the side of the {'samples' if self.by_samples else 'features'}" if solver is not None else ""
            lines["method"] = f"{self.method}: {METHODS[self.method]} ({self.solver_reason})"
            lines["solver"] = f"{self.solver_name}{side} for {p} components"
        else:
            lines["kernel"] = self.kernel
            lines["solver"] = f"{self.solver_name} for {p} components ({self.solver_reason})"
            lines["K"] = str(self.storage)
        if self.twin is not None:
            cached = "all cached" if self.twin.is_fully_cached else str(self.twin).rpartition(", ")[2]
            tiles = f"{self.twin.type_of_twin} tiles, {cached}"
            lines["twin"] = f"iterated on {tiles}; verified by K in {self.dtype}"
        lines["memory"] = memory_text(self.predicted_bytes, self.available_bytes)
        if self.bill:
            lines["parts"] = parts_text(self.bill)
        seconds = self.estimated_seconds
        lines["time"] = "unknown" if seconds is None else f"{seconds_text(seconds)}, estimated"
        lines["workers"] = str(self.workers)
        if self.storage is not None and isinstance(solver, BlockKrylov):
            width, most = solver.width(n, p, on_gpu), solver.basis_columns(n, p, on_gpu)
            lines["block"] = f"{width} columns per pass, at most {most} kept"
        if self.start_landmarks:
            lines["start"] = f"components of {self.start_landmarks} random rows"
        if self.bytes_read:
            lines["reading"] = f"{format_bytes(self.bytes_read)} of X from its file in every pass over K"
        return lines_text([*lines.items(), *(("note", note) for note in self.notes)])


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

    @cached_property
    def max_count(self) -> int:
        """Return the most components of a share: as many as fit into memory, and are few for the solver."""
        first, few = self.plan.n_components, max(self.few, self.plan.n_components)
        allowed = self.resources.allowed(total(self.parts_for(few)))
        counts = range(first + 1, few + 1)
        return first + bisect_right(counts, allowed, key=lambda count: total(self.parts_for(count)))

    def plan_for(self, count: int) -> Plan:
        """Return the plan, once a share has taken so many components."""
        needed = total(parts := self.parts_for(count))
        allowed = self.resources.allowed(needed)
        return replace(self.plan, n_components=count, bill=parts, predicted_bytes=needed, available_bytes=allowed)

    def with_notes(self, *notes: str) -> Candidate:
        """Return the candidate with more notes on its plan."""
        return replace(self, plan=replace(self.plan, notes=(*self.plan.notes, *notes)))

    def for_share(self, needed: Callable[[int], Parts] | None, few: int, beyond: Candidate | None) -> Candidate:
        """Return the candidate for few components of a share, with what takes over for more of them, and a note."""
        found = replace(self, needed=needed, few=few, beyond=beyond)
        if beyond is not None:
            what = f"left to {beyond.plan.method or 'all eigenvalues'}"
            return found.with_notes(f"a share of more than {found.max_count} components is {what}")
        most = format_bytes(total(found.parts_for(found.max_count)))
        return found.with_notes(f"a share takes at most {found.max_count} components, up to {most}")

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
    refused = []
    for candidate in candidates_of(task):
        if candidate.plan.fits:
            return candidate
        refused.append(candidate)

    def smallest(candidates: Iterable[Candidate]) -> Candidate:
        return min(candidates, key=lambda one: one.plan.predicted_bytes)

    def in_bytes(series: Iterable[tuple[str, Given | int]]) -> Iterator[tuple[str, int]]:
        for text, other in series:
            with suppress(InvalidParameterError):  # of parameters that exclude each other
                yield text, other if isinstance(other, int) else smallest(candidates_of(other)).plan.predicted_bytes

    fewest = smallest(refused)
    parts = f" ({parts_text(fewest.plan.bill)})"
    fewest.resources.check(fewest.plan.predicted_bytes, f"{what} needs", map(in_bytes, changes), parts)
    return fewest


def lines_text(lines: Iterable[tuple[str, str]]) -> str:
    """Return what a plan prints: lines with names."""
    return "\n".join(f"{name:<9} {text}" for name, text in lines)


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
