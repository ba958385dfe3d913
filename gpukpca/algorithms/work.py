"""Estimates of the time of a fit, from counts of its operations and the rates of a core or a card.

Nothing is measured when a plan is made, so that the same job has the same plan. Estimates hold to a factor of a few.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass

from gpukpca._formatting import format_seconds
from gpukpca._typing import Array
from gpukpca.algorithms.fields import documented, field_of
from gpukpca.algorithms.task import Task
from gpukpca.backend.device import is_on_gpu
from gpukpca.backend.namespace import is_numpy
from gpukpca.backend.parallel import usable_cpus
from gpukpca.eigen.solver import PlannedSolver


@documented
@dataclass  # not frozen: every plan adds a few of them
class Work:
    """Counts of the operations of a fit, by kind, or the rates of a device."""

    products: float = field_of("", "additions and multiplications of products of two blocks of rows", default=0.0)
    blocks: float = field_of("", "the same of products with a block of few columns", default=0.0)
    functions: float = field_of("", "exponentials", default=0.0)
    differences: float = field_of("", "absolute differences, one a feature of a Manhattan distance", default=0.0)
    sparse_products: float = field_of("", "multiplications in products of two CSR matrices", default=0.0)
    sparse_blocks: float = field_of("", "multiplications in products of a CSR matrix and a block", default=0.0)
    eigenproblems: float = field_of("", "n³ for all eigenpairs of an (n, n) matrix", default=0.0)
    bytes: float = field_of("", "read or written", default=0.0)
    calls: float = field_of("", "tiles and other steps that Python starts", default=0.0)

    def __add__(self, other: Work) -> Work:
        return Work(*map(operator.add, vars(self).values(), vars(other).values()))

    def __mul__(self, factor: float) -> Work:
        return Work(*(factor * count for count in vars(self).values()))

    def seconds(self, in_a_second: Work, workers: int = 1) -> float:
        """Return the time of all kinds one after another, by workers with the rates `in_a_second`."""
        seconds: float = sum(
            count / rate / min(workers, SHARED_BY.get(kind, workers))
            for (kind, count), rate in zip(vars(self).items(), vars(in_a_second).values(), strict=True)
            if count
        )
        return seconds


# What one core does in a second, by the bytes of an item. Measured on one core of a server (AVX-512, OpenBLAS, BLAS at
# one thread): products of tiles 54 and 103 GF/s, with a block of 24 columns 24 and 52 GF/s, an exponential 0.79 and
# 0.44 ns in cache, a difference 0.43 ns, 13 ns a multiplication of two CSR matrices and 1 ns with a block, copies
# 5 GB/s, 130 µs a tile; all eigenpairs of n = 10 000 in 48 and 27 s on two cores.
CORE = {
    8: Work(54e9, 24e9, 1.3e9, 2.3e9, 7.5e7, 1e9, 1.0e10, 5e9, 8e3),
    4: Work(103e9, 52e9, 2.3e9, 2.3e9, 7.5e7, 1e9, 1.8e10, 5e9, 8e3),
}
# What a card does, an estimate from the data sheet of an NVIDIA H200: float32 products at 47 of 67 TF/s, tiles with a
# block bound by 4.3 TB/s of memory. CSR rows are computed on the host.
CARD = {
    8: Work(50e12, 20e12, 2e11, 1e12, 7.5e7, 1e9, 2e11, 4.3e12, 8e3),
    4: Work(47e12, 40e12, 4e11, 1.8e12, 7.5e7, 1e9, 2e11, 4.3e12, 8e3),
}
# Most workers that share a kind of work: LAPACK and copies are bound by memory.
SHARED_BY = {"eigenproblems": 4, "bytes": 4}

# Operations a pass for each entry of the basis and each column of a block: two projections, and what they subtract.
PER_BASIS_ENTRY = 8
# Copies of the data while they are prepared, and steps of a fit outside of its passes.
COPIES, STEPS, STEPS_A_PASS = 6, 30, 10
# A tile of two CSR matrices is made dense, which costs as much as moving so many bytes an entry.
SPARSE_ENTRY_BYTES = 60


def estimate_seconds(work: Work, task: Task) -> float:
    """Return the time of the work of a task in seconds."""
    return seconds_at(task.place.work, task.item, work, task.workers)


def seconds_at(like: Array, item: int, work: Work, workers: int) -> float:
    """Return the time of work on items of so many bytes; libraries other than NumPy use all threads of the host."""
    if is_on_gpu(like):
        return work.seconds(CARD[item])
    return work.seconds(CORE[item], workers if is_numpy(like) else usable_cpus())


def krylov_work(solver: PlannedSolver, n: int, p: int, passes: int, on_gpu: bool) -> Work:
    """Return the work on the basis of a block Krylov iteration, without the products with the operator."""
    b = solver.width(n, p, on_gpu)
    columns = min(solver.basis_columns(n, p, on_gpu), b * passes)
    small = Work(eigenproblems=columns**3) * passes
    return small + Work(blocks=PER_BASIS_ENTRY * n * columns * b * passes, calls=STEPS_A_PASS * passes)


def time_line(seconds: float | None) -> list[str]:
    """Return the line of a plan about its time, if that is known."""
    if seconds is None:
        return []
    return [f"time      {_rounded(seconds)}, estimated"]


def step_line(seconds: float) -> str:
    """Return the line of a plan about the time of a step, where nobody knows how many there will be."""
    return f"time      {_rounded(seconds)} a step, estimated"


def _rounded(seconds: float) -> str:
    return f"about {format_seconds(seconds)}" if seconds >= 1 else "less than 1 s"
