"""Counts of operations, and the time that a core or a card takes for them, to a factor of three.

Of a core nothing is measured. Of a card two products are, once a process, unless timings may not decide.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from itertools import repeat

from gpukpca._typing import Array
from gpukpca.backend.device import device_context, is_on_gpu
from gpukpca.backend.namespace import is_numpy
from gpukpca.backend.parallel import usable_cpus
from gpukpca.cuda import device as cuda_device


@dataclass  # not frozen: every plan adds a few of them
class Work:
    """Counts of the operations of a fit, by kind, or the rates of a device.

    Attributes
    ----------
    products : float
        Additions and multiplications of products of two blocks of rows.
    blocks : float
        The same of products with a block of few columns.
    functions : float
        Exponentials.
    differences : float
        Absolute differences, one a feature of a Manhattan distance.
    sparse_products : float
        Multiplications in products of two CSR matrices.
    sparse_blocks : float
        The same of products of a CSR matrix with a block.
    eigenproblems : float
        n³ of an eigenproblem whose eigenpairs are all computed.
    bytes : float
        Read or written.
    calls : float
        Tiles and other steps that Python starts.
    """

    products: float = 0.0
    blocks: float = 0.0
    functions: float = 0.0
    differences: float = 0.0
    sparse_products: float = 0.0
    sparse_blocks: float = 0.0
    eigenproblems: float = 0.0
    bytes: float = 0.0
    calls: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(*map(operator.add, vars(self).values(), vars(other).values()))

    def __mul__(self, factor: float) -> Work:
        return Work(*map(operator.mul, vars(self).values(), repeat(factor)))

    def seconds(self, like: Array, item_size: int, workers: int) -> float:
        """Return the time of all kinds one after another where `like` is, on items of so many bytes.

        Libraries other than NumPy use all threads of the host.
        """
        on_gpu = is_on_gpu(like)
        rates, threads = rates_of(like)[item_size], workers if is_numpy(like) else usable_cpus()
        seconds = 0.0
        for kind, count in vars(self).items():
            if count:
                shared_by = 1 if on_gpu else min(threads, SHARED_BY.get(kind, threads))
                seconds += count / getattr(rates, kind) / shared_by
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
# Kinds of work that a card does as fast as its products, relative to the table.
SCALED = ("products", "blocks", "functions", "differences", "eigenproblems")
# Bytes a second of a copy of host rows to a card, and the seconds that a fit must save to be moved there: a process
# loads libraries and kernels. Kernels are compiled once a machine, for 8 to 13 s, which are not counted. Estimated.
COPIED, START_SECONDS = 1e10, 0.5
# Columns of all passes of block Krylov together, and of a basis of the smaller side of the data, at most.
PASS_COLUMNS, BASIS_COLUMNS = 100, 500
# Work that is large: the rates alone decide.
OF_ANY_SIZE = Work(products=1e15)
# Most workers that share a kind of work: LAPACK and copies are bound by memory.
SHARED_BY = {"eigenproblems": 4, "bytes": 4}


def rates_of(like: Array) -> dict[int, Work]:
    """Return what a core, or the card of `like`, does in a second, by the bytes of an item: 8 and 4.

    The rates of a card are those of the table, times the ratio of its measured products to those of the table.
    """
    if not is_on_gpu(like):
        return CORE
    with device_context(like):
        measured = cuda_device.product_rates()
    if measured is None:
        return CARD
    ratios = {item: rate / CARD[item].products for item, rate in zip((4, 8), measured, strict=True)}
    return {
        item: replace(rates, **{kind: ratios[item] * getattr(rates, kind) for kind in SCALED})
        for item, rates in CARD.items()
    }


def rates_text(like: Array) -> str:
    """Return the rates of products on a card, and where they come from."""
    rates = rates_of(like)
    single, double = (rates[item].products / 1e12 for item in (4, 8))
    source = "of a data sheet" if rates is CARD else "measured"
    return f"float32 {single:.3g}, float64 {double:.3g} TF/s, {source}"


def fit_work(shape: tuple[int, ...], of_pairs: bool) -> Work:
    """Return a bound of the work of a fit of rows (n, d), of all pairs of them or not, before its plan."""
    n, d = shape
    if of_pairs:
        return Work(products=n * n * d, functions=n * n / 2, blocks=2 * PASS_COLUMNS * n * n)
    return Work(products=2 * n * d * min(n, d, BASIS_COLUMNS))
