"""The bytes of EM from shapes alone: the start, which reads the rows by panels, and a step."""

from __future__ import annotations

from gpukpca._typing import Array
from gpukpca.algorithms.latent.e_step import e_step_panel_rows
from gpukpca.algorithms.latent.initialization import START
from gpukpca.algorithms.resources import Resources
from gpukpca.backend import blocking
from gpukpca.backend.device import is_on_gpu
from gpukpca.backend.namespace import accumulation_dtype, item_size
from gpukpca.backend.parallel import worker_count

# Arrays of the size of a panel where moments are formed, and where means replace missing entries.
IN_START = 6


def bytes_of_em(like: Array, n: int | None, d: int, p: int, n_jobs: int | None) -> int:
    """Return the bytes of a fit of rows (n, d), computed where `like` is, in addition to a batch; n may be unknown."""
    on_gpu, workers = is_on_gpu(like), worker_count(like, n_jobs)
    longest = max(1, blocking.PANEL_ENTRIES.on(on_gpu) // d)
    longest = longest if on_gpu else min(blocking.PANEL_ROWS, longest)
    item = item_size(accumulation_dtype(like))
    start = IN_START * min(n or longest, longest) * d * item + START.workspace_bytes(d, p, item, on_gpu)
    moments = d * (p + 1) * (p + 2) // 2
    in_step = e_step_panel_rows(d, p, on_gpu)
    panel = min(n or in_step, in_step) * (4 * d + 6 * p * p)
    step = moments * (blocking.E_STEP_WAVE * workers + 6) + workers * panel
    return max(start, item * step)


def check_em_memory(resources: Resources, n: int | None, d: int, p: int, batch_bytes: int) -> None:
    """Raise `MemoryBudgetError` where EM with at most p components needs more than is allowed.

    `batch_bytes` are those of a batch that is read, converted or moved.
    """
    p = max(1, min(p, d - 1, n or p))  # more are refused with another error
    needed = bytes_of_em(resources.place.work, n, d, p, resources.n_jobs) + batch_bytes
    resources.check(needed, f"EM with {p} components of {d} features needs", "Request fewer components")
