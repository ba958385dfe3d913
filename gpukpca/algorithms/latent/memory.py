"""The bytes and the time of EM from shapes alone: of the start, which reads the rows by panels, and of a step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from gpukpca._formatting import pluralize
from gpukpca._typing import Array
from gpukpca.algorithms.bill import SHORTER, fewer
from gpukpca.algorithms.latent.e_step import e_step_panel_rows
from gpukpca.algorithms.latent.initialization import START
from gpukpca.algorithms.plan import lines_text, seconds_text
from gpukpca.algorithms.resources import Resources, memory_text
from gpukpca.backend import blocking
from gpukpca.backend.device import describe_device, is_on_gpu
from gpukpca.backend.namespace import accumulation_dtype, dtype_name, item_size
from gpukpca.backend.parallel import worker_count
from gpukpca.backend.work import Work
from gpukpca.data.batches import BatchedRows
from gpukpca.data.slicing import panel_length

# Arrays of the size of a panel where moments are formed, and where means replace missing entries.
IN_START = 6
# Bytes of the data, the mask and residuals that a step of EM reads or writes for an entry, beyond those in cache.
BYTES_AN_ENTRY = 64


def bytes_of_em(like: Array, n: int | None, d: int, p: int, n_jobs: int | None) -> int:
    """Return the bytes of a fit of rows (n, d), computed where `like` is, in addition to a batch; n may be unknown."""
    on_gpu, workers = is_on_gpu(like), worker_count(like, n_jobs)
    longest, item = panel_length(d, on_gpu), item_size(accumulation_dtype(like))
    start = IN_START * min(n or longest, longest) * d * item + START.workspace_bytes(d, p, item, on_gpu)
    moments = d * (p + 1) * (p + 2) // 2
    in_step = e_step_panel_rows(d, p, on_gpu)
    panel = min(n or in_step, in_step) * (4 * d + 6 * p * p)
    step = moments * (blocking.E_STEP_WAVE * workers + 6) + workers * panel
    return max(start, item * step)


@dataclass(frozen=True)
class EMMemory:
    """The memory of EM of batches, of which one is copied where it is read, converted or moved."""

    resources: Resources
    batches: BatchedRows
    is_copied: bool

    def needed(self, p: int, longest: int | None = None) -> int:
        """Return the bytes of at most p components, with the largest batch or one of another length."""
        n, d = self.batches.n_rows, int(self.batches.like.shape[1])
        p = max(1, min(p, d - 1, n or p))  # more are refused with another error
        longest = self.batches.largest if longest is None else longest
        batch = self.is_copied * longest * d * item_size(self.batches.dtype)
        return bytes_of_em(self.resources.place.work, n, d, p, self.resources.n_jobs) + batch

    def check(self, p: int) -> None:
        """Raise `MemoryBudgetError` where EM with at most p components needs more than is allowed."""
        shorter = fewer(SHORTER, self.batches.largest, partial(self.needed, p))
        what = f"EM with {pluralize(p, 'component')} needs"
        self.resources.check(self.needed(p), what, [fewer("n_components={}", p, self.needed), shorter])


def plan_text(resources: Resources, n: int, d: int, p: int, needed: int, is_complete: bool) -> str:
    """Return the plan of EM, with the time of a step: their number depends on the data."""
    like = resources.place.work
    workers = worker_count(like, resources.n_jobs, n * d * (p**2 + blocking.ENTRY_PASS))
    # Scores, means of entries and sums; for incomplete rows refined scores and two products with the mask.
    columns = 4 * p if is_complete else 6 * p + p * (p + 1)
    work = Work(blocks=2.0 * n * d * columns, bytes=BYTES_AN_ENTRY * n * d)
    seconds = work.seconds(like, item_size(accumulation_dtype(like)), workers)
    lines = {
        "data": f"{n} x {d}, {dtype_name(like.dtype)}, on {describe_device(like)}",
        "method": f"EM for {pluralize(p, 'component')}{'' if is_complete else ', entries are missing'}",
        "memory": memory_text(needed, resources.allowed(needed)),
        "time": f"{seconds_text(seconds)} a step, estimated",
    }
    return lines_text(lines.items())
