"""The rows of a fit with its resources, and the facts that follow from them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from gpukpca._process import uses_timings
from gpukpca.algorithms.bill import Parts, total
from gpukpca.algorithms.plan import Plan, seconds_text
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


@dataclass(frozen=True)
class Task:
    """The rows X of a fit (n, d), dense, CSR, in panels or on a cluster, and its resources.

    While a fit is planned, the rows may not be at the place of `resources` yet.
    """

    X: Any
    resources: Resources
    n: int = field(init=False)
    d: int = field(init=False)
    item: int = field(init=False)  # bytes
    is_sparse: bool = field(init=False)
    is_batched: bool = field(init=False)
    is_on_cluster: bool = field(init=False)
    is_in_panels: bool = field(init=False)  # no process holds all rows: batches, or panels on a cluster
    place: Placement = field(init=False)
    on_gpu: bool = field(init=False)
    stored: int = field(init=False)  # entries
    rows_at_once: int = field(init=False)  # in memory together: all, or those of the largest batch

    def __post_init__(self) -> None:
        X, place = self.X, self.resources.place
        n, d = map(int, X.shape)
        is_in_panels, sparse = isinstance(X, Rows), is_sparse(X)
        is_on_cluster = is_in_panels and isinstance(X, ClusterRows)
        is_batched = is_in_panels and not is_on_cluster  # panel by panel, by this process as far as it knows
        facts = {
            "n": n,
            "d": d,
            "item": item_size(X.dtype),
            "is_sparse": sparse,
            "is_batched": is_batched,
            "is_on_cluster": is_on_cluster,
            "is_in_panels": is_in_panels,
            "place": place,
            "on_gpu": is_on_gpu(place.work),
            "stored": int(X.nnz) if sparse else n * d,
            "rows_at_once": X.largest if is_batched else n,
        }
        vars(self).update(facts)

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

    def plan(self, bill: Parts, **fields: Any) -> Plan:
        """Return the plan of a fit of these rows with these parts of its bytes; `fields` are its others."""
        needed = total(bill)
        fields["notes"] = (*fields.get("notes", ()), *self.place.notes, *self._notes_on_device(fields))
        return Plan(
            n_samples=self.n,
            n_features=self.d,
            dtype=dtype_name(self.X.dtype),
            device=self.place.devices,
            predicted_bytes=needed,
            available_bytes=self.resources.allowed(needed),
            bill={name: size for name, size in bill.items() if size},
            **fields,
        )

    def _notes_on_device(self, fields: dict[str, Any]) -> Iterator[str]:
        """Yield what the device means for a plan of these fields; add the time of an eigenproblem that it refuses."""
        if self.place.reason:
            yield self.place.reason
        if self.on_gpu and uses_timings():
            yield f"rates: {rates_text(self.place.work)}"
        n, p, solver = self.n if fields.get("by_samples", True) else self.d, fields["n_components"], fields["solver"]
        if not isinstance(solver, Dense) or self.is_on_cluster or takes_eigenproblem(self.place.work, n):
            return
        who = "block Krylov"
        if solver.full_spectrum or not BlockKrylov().iterates(n, p):
            seconds = Work(eigenproblems=float(n) ** 3).seconds(np.empty(0), self.item, usable_cpus())
            who = f"LAPACK on the host, which takes {seconds_text(seconds)},"
            if fields["estimated_seconds"] is not None:
                fields["estimated_seconds"] += seconds
        yield f"cuSOLVER of CUDA 12 refuses n = {n}: {who} solves the eigenproblem; CUDA 13 has no such limit"

    def in_float32(self) -> list[tuple[str, Self]]:
        """Return advice with the task of the same rows in float32, as far as its bytes depend on it."""
        if self.item == 4:
            return []
        place = self.place.in_dtype("float32")
        other = replace(self, resources=replace(self.resources, place=place))
        vars(other).update(item=4)
        return [("float32 data", other)]

    @cached_property
    def workers(self) -> int:
        """Return the number of threads, those of a cluster together."""
        return getattr(self.X, "threads", None) or worker_count(
            self.place.work, self.resources.n_jobs, self.multiplications
        )
