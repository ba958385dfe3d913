"""The rows of a fit with its resources, and the facts that follow from them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from gpukpca._process import uses_timings
from gpukpca.algorithms.bill import Parts, total
from gpukpca.algorithms.plan import NO_CHECKPOINT, Candidate, Plan, seconds_text
from gpukpca.algorithms.resources import Resources
from gpukpca.backend import blocking
from gpukpca.backend.device import is_on_gpu, takes_eigenproblem
from gpukpca.backend.namespace import dtype_name, is_sparse, item_size
from gpukpca.backend.parallel import usable_cpus, worker_count
from gpukpca.backend.work import Work, rates_text
from gpukpca.data.place import Placement
from gpukpca.data.rows import Rows
from gpukpca.distributed.rows import ClusterRows
from gpukpca.eigen import BlockKrylov, Dense

# Readings of the data outside of products and passes, and steps outside of them.
SWEEPS, STEPS = 4, 8


@dataclass(eq=False)
class Task:
    """The rows X of a fit (n, d), dense, CSR, in panels or on a cluster, and its resources; not changed once made.

    While a fit is planned, the rows may not be at the place of `resources` yet.
    """

    X: Any
    resources: Resources
    # Whether the fit writes checkpoints.
    has_checkpoint = False

    def __post_init__(self) -> None:
        X, place = self.X, self.resources.place
        self.n: int = int(X.shape[0])
        self.d: int = int(X.shape[1])
        self.item: int = item_size(X.dtype)  # bytes
        self.is_sparse: bool = is_sparse(X)
        self.is_in_panels: bool = isinstance(X, Rows)  # no process holds all rows: batches, or panels on a cluster
        self.is_on_cluster: bool = self.is_in_panels and isinstance(X, ClusterRows)
        self.is_batched: bool = self.is_in_panels and not self.is_on_cluster  # panel by panel, by this process
        self.place: Placement = place
        self.on_gpu: bool = is_on_gpu(place.work)
        self.stored: int = int(X.nnz) if self.is_sparse else self.n * self.d  # entries
        self.rows_at_once: int = X.largest if self.is_batched else self.n  # in memory together: all, or a batch

    @cached_property
    def device_rows(self) -> Any:
        """Return the rows of an array in panels on several devices; None on one device."""
        return self.place.device_rows(self.X) if self.place.others else None

    @property
    def copy_bytes(self) -> int:
        """Return the bytes of the rows that the fit copies to its place: all, or a batch as read and as converted.

        Of batches that are copied ahead, two more are on a device.
        """
        if self.is_batched:
            is_ahead = self.place.moved and self.on_gpu and not self.place.others
            return (4 if is_ahead else 2) * self.rows_at_once * self.d * self.item
        return self.n * self.d * self.item if self.place.moved else 0

    @property
    def multiplications(self) -> float:
        """Return the multiplications of the largest step, which decide about threads."""
        return self.stored * (min(self.n, self.d) + blocking.ENTRY_PASS)

    def candidate(self, parts: Parts, work: Work | None, narrow: Work | None = None, **fields: Any) -> Candidate:
        """Return the candidate with the parts of its bytes, its work, in float32 too, and other `fields` of its plan.

        The time is not known without work, and on a cluster, where the network decides.
        """
        notes, solver, seconds, needed = [*fields.pop("notes", ())], fields["solver"], None, total(parts)
        if work is not None and not self.is_on_cluster:
            work += Work(bytes=SWEEPS * self.stored * self.item, calls=STEPS)
            seconds = work.seconds(self.place.work, self.item, self.workers)
            seconds += 0.0 if narrow is None else narrow.seconds(self.place.work, 4, self.workers)
        if self.has_checkpoint and not getattr(solver, "grows_with_p", False):
            notes.append(NO_CHECKPOINT)
        notes += self.place.notes
        if self.place.reason:
            notes.append(self.place.reason)
        if self.on_gpu and uses_timings():
            notes.append(f"rates: {rates_text(self.place.work)}")
        n, p = self.n if fields.get("by_samples", True) else self.d, fields["n_components"]
        if isinstance(solver, Dense) and not (self.is_on_cluster or takes_eigenproblem(self.place.work, n)):
            who = "block Krylov"
            if solver.full_spectrum or not BlockKrylov().iterates(n, p):
                more = Work(eigenproblems=float(n) ** 3).seconds(np.empty(0), self.item, usable_cpus())
                who, seconds = f"LAPACK on the host, which takes {seconds_text(more)},", seconds and seconds + more
            notes.append(
                f"cuSOLVER of CUDA 12 refuses n = {n}: {who} solves the eigenproblem; CUDA 13 does not refuse it"
            )
        plan = Plan(
            n_samples=self.n,
            n_features=self.d,
            dtype=dtype_name(self.X.dtype),
            device=self.place.devices,
            predicted_bytes=needed,
            available_bytes=self.resources.allowed(needed),
            estimated_seconds=seconds,
            bill={name: size for name, size in parts.items() if size},
            notes=tuple(notes),
            **fields,
        )
        return Candidate(plan, self.resources)

    def in_float32(self) -> list[tuple[str, Self]]:
        """Return advice with the task of the same rows in float32, as far as its bytes depend on it."""
        if self.item == 4:
            return []
        place = self.place.in_dtype("float32")
        other = replace(self, resources=replace(self.resources, place=place))
        other.item = 4
        return [("float32 data", other)]

    @cached_property
    def workers(self) -> int:
        """Return the number of threads, those of a cluster together."""
        return getattr(self.X, "threads", None) or worker_count(
            self.place.work, self.resources.n_jobs, self.multiplications
        )
