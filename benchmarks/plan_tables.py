"""Tables of memory and time that the plan predicts: ``python -m benchmarks.plan_tables`` writes them into the page.

Plans follow from shapes, so no data of these sizes exist, and no figure depends on the machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from benchmarks.machine import ROOT
from benchmarks.publish import with_section
from benchmarks.report import spaced, table
from gpukpca import Plan
from gpukpca._formatting import format_seconds
from gpukpca.algorithms import KernelPCASettings, PCASettings, Resources
from gpukpca.algorithms.kernel_pca import planning
from gpukpca.algorithms.kernel_pca.task import FitTask
from gpukpca.algorithms.pca import planning as pca_planning
from gpukpca.algorithms.pca.settings import RankRequest
from gpukpca.eigen import Nystrom
from gpukpca.exceptions import MemoryBudgetError
from gpukpca.kernels import RBF

PAGE = "docs/explanation/memory_and_plan.md"
MEMORY, THREADS, COMPONENTS, LANDMARKS = 16 * 2**30, 2, 10, 1000
DTYPES = ("float32", "float64")
# Samples and features of the tables of time.
KERNEL_SHAPES = ((1_000, 100), (10_000, 100), (10_000, 1_000), (100_000, 100), (100_000, 1_000), (1_000_000, 100))
PCA_SHAPES = (
    *((10_000, 100), (100_000, 1_000), (1_000_000, 100), (10_000, 10_000)),
    *((1_000, 100_000), (100_000, 10_000)),
)
FEATURES = (10, 100, 1_000)
UNBROKEN = "\N{NO-BREAK SPACE}"


@dataclass(eq=False)
class KernelTask(FitTask):
    """A fit of kernel PCA by a fixed number of threads."""

    workers = THREADS  # type: ignore[assignment]


@dataclass(eq=False)
class LinearTask(pca_planning.PCATask):
    """A fit of PCA by a fixed number of threads."""

    workers = THREADS  # type: ignore[assignment]

    def workers_for(self, columns: int) -> int:
        return THREADS


def resources_beside(X: np.ndarray) -> Resources:
    """Return what `MEMORY` leaves beside data of the shape of X."""
    left = max(0, MEMORY - X.size * X.itemsize)
    return replace(Resources.for_data(X[:1]), limit=left, is_limited=True)


def shaped(n: int, d: int, dtype: str) -> np.ndarray:
    """Return an array of this shape that takes no memory."""
    return np.broadcast_to(np.zeros((), dtype), (n, d))


@cache
def template(d: int, dtype: str) -> object:
    """Return the template of the kernel on unit normal data, where a product of float32 rows is accurate enough."""
    rows = np.random.default_rng(0).standard_normal((50, d)).astype(dtype)
    return RBF(1.0 / d).template(rows, centered=True)


def kernel_plan(n: int, d: int, dtype: str, solver: object = "auto", p: int = COMPONENTS) -> Plan:
    """Return the plan of kernel PCA with a Gaussian kernel; raise `MemoryBudgetError` where nothing fits."""
    X = shaped(n, d, dtype)
    settings = KernelPCASettings(n_components=p, solver=solver, copies_data=False)
    task = KernelTask(X, resources_beside(X), RBF(1.0 / d), settings, X, template(d, dtype), p)
    return planning.plan_of(task).plan


def linear_plan(n: int, d: int, dtype: str, p: int = COMPONENTS) -> Plan:
    """Return the plan of PCA."""
    X = shaped(n, d, dtype)
    rank = RankRequest.of(p, "auto", n, d)
    return pca_planning.plan_of(LinearTask(X, resources_beside(X), rank, PCASettings())).plan


def fits(plan: Callable[[], Plan]) -> bool:
    """Return whether a plan exists."""
    try:
        plan()
    except MemoryBudgetError:
        return False
    return True


def keeps_tiles(n: int, d: int, dtype: str) -> bool:
    """Return whether the default fit of n samples computes every tile of K once."""
    return fits(lambda: kernel_plan(n, d, dtype)) and kernel_plan(n, d, dtype).storage.is_fully_cached


def largest(suits: Callable[[int], bool]) -> str:
    """Return the largest n of two digits that suits."""
    n = 100
    while suits(10 * n):
        n *= 10
    tenth = n // 10
    return spaced(n + tenth * next(k for k in range(90) if not suits(n + tenth * (k + 1))))


# -- the tables --------------------------------------------------------------------------------------------------------


def capacity_table() -> str:
    """Return the largest number of samples by solver that `MEMORY` holds."""
    rows = []
    for d in FEATURES:
        for dtype in DTYPES:
            ways: list[Callable[[int], bool]] = [
                lambda n, d=d, dtype=dtype: fits(lambda: kernel_plan(n, d, dtype, "dense")),
                lambda n, d=d, dtype=dtype: keeps_tiles(n, d, dtype),
                lambda n, d=d, dtype=dtype: fits(lambda: kernel_plan(n, d, dtype)),
                lambda n, d=d, dtype=dtype: fits(lambda: kernel_plan(n, d, dtype, Nystrom(rank=LANDMARKS))),
            ]
            rows.append([spaced(d), dtype, *map(largest, ways)])
    header = "d | dtype | dense | block Krylov, K computed once | block Krylov, tiles recomputed | Nyström"
    return table(header, rows)


def kernel_table() -> str:
    """Return memory and time of fits of kernel PCA."""
    rows = []
    for n, d in KERNEL_SHAPES:
        for dtype in DTYPES:
            cells = [spaced(n), spaced(d), dtype]
            for solver in ("auto", "dense", Nystrom(rank=min(LANDMARKS, n // 2))):
                cells.append(cell(lambda n=n, d=d, dtype=dtype, solver=solver: kernel_plan(n, d, dtype, solver)))
            storage = kernel_plan(n, d, dtype).storage
            cells.insert(3, f"{100 * (storage.tiles - storage.recomputed_tiles) // storage.tiles} %")
            rows.append(cells)
    return table("n | d | dtype | tiles cached | block Krylov | dense | Nyström", rows)


def linear_table() -> str:
    """Return method, memory and time of fits of PCA."""
    rows = []
    for n, d in PCA_SHAPES:
        for dtype in DTYPES:
            plan = linear_plan(n, d, dtype)
            rows.append([spaced(n), spaced(d), dtype, f"`{plan.method}`", cell(lambda plan=plan: plan)])
    return table("n | d | dtype | method | memory, time", rows)


def cell(plan: Callable[[], Plan]) -> str:
    """Return memory and time of a plan, each to one or two digits."""
    try:
        made = plan()
    except MemoryBudgetError:
        return "does not fit"
    seconds, mebibytes = rounded(made.estimated_seconds), made.predicted_bytes / 2**20
    time = format_seconds(seconds) if seconds >= 1 else "under 1 s"
    size = f"{rounded(mebibytes):g} MiB" if mebibytes < 1000 else f"{rounded(mebibytes / 1024):g} GiB"
    return f"{size}, {time}".replace(" ", UNBROKEN).replace(f",{UNBROKEN}", ", ")


def rounded(value: float) -> float:
    """Return a number of two digits."""
    return float(f"{value:.1e}")


TABLES = {"capacity": capacity_table, "kernel PCA": kernel_table, "PCA": linear_table}


def page_with_tables(text: str) -> str:
    """Return the text of the page with its tables."""
    for name, make in TABLES.items():
        text = with_section(text, name, make(), PAGE)
    return text


def main() -> None:
    path = ROOT / PAGE
    path.write_text(page_with_tables(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
