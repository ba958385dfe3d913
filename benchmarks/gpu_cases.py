"""What is measured on a card, and what should be reached there: cases, and the judge of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from benchmarks.accuracy import DEVICE_EDGE
from benchmarks.cases import EPS, Case
from benchmarks.verdicts import Judge, agreeing, copies_below, faster_than_peers, seconds_within, times_the_floor
from gpukpca.eigen.solve import DENSE_UP_TO_GPU

BLOCK = 64
RANK = 1000
ITEM = {"float32": 4, "float64": 8}
# Blocks that the basis of the iterative solver, its products and its temporaries hold (`BlockKrylov.workspace_items`).
SOLVER_BLOCKS = 30
# What a case may take of the card's free memory: the rest is for pools, contexts and libraries.
SHARE = 0.8
SMALLEST = 1000


@dataclass(frozen=True)
class Trial:
    """A case on the card and what it should reach.

    Attributes
    ----------
    case : Case
    judge : callable
        See `benchmarks.verdicts`: speed is told, never asserted.
    quick_n : int
        The size with ``--quick``.
    squares : float
        Square matrices of n × n items held at once by the contestant that holds most; ½: all upper tiles.
    """

    case: Case
    judge: Judge
    quick_n: int
    squares: float = 0.0

    def sized(self, quick: bool, free_bytes: int | None) -> Trial:
        """Return the same trial with fewer samples, where quick runs are wanted or the card is too small."""
        n = min(self.case.n, self.quick_n) if quick else self.case.n
        limit = float("inf") if free_bytes is None else SHARE * free_bytes
        while needed_bytes(replace(self.case, n=n), self.squares) > limit and n > SMALLEST:
            n = max(SMALLEST, rounded(0.8 * n))
        return replace(self, case=replace(self.case, n=n))


def needed_bytes(case: Case, squares: float) -> int:
    """Memory of the card that a case takes, the harness's own check of it included, roughly."""
    item, n = ITEM[case.dtype], case.n
    rows = 3 * n * (case.d + 2) * item
    basis = SOLVER_BLOCKS * n * max(case.block or BLOCK, BLOCK) * item
    factor = 3 * n * case.rank * item if any("Nystrom" in name for name in case.contestants) else 0
    check = 2 * n * (case.d + 2) * 8 + 8 * min(n, DEVICE_EDGE) ** 2
    return int(max(rows + basis + squares * n * n * item + factor, check))


def rounded(n: float) -> int:
    """To two digits, down."""
    digits = max(0, len(str(int(n))) - 2)
    return int(n) // 10**digits * 10**digits


def on_cupy(name: str, n: int, d: int, contestants: tuple[str, ...] = ("gpukpca on CuPy",), **more: object) -> Case:
    """Return a case on the card; ten components of Gaussian data unless it says otherwise."""
    settings = {"data": "gaussian", "dtype": "float32", "p": 10, "rounds": 1, "repeats": 5, "patience": 60.0}
    return Case(name, contestants, n=n, d=d, **(settings | more))  # type: ignore[arg-type]


PEERS_ON_CARD = ("gpukpca on CuPy", "plain CuPy", "plain torch on CUDA", "TorchDR on CUDA")
NUMPY_IN = ("gpukpca, NumPy in, on CUDA", "gpukpca on CuPy")
PASS = ("pass, nothing cached, on CuPy",)
# Rows of the comparison with the host, and rows with ``--quick``: "auto" takes the dense, then the iterative solver.
AGREEMENT_SIZES = ((DENSE_UP_TO_GPU, DENSE_UP_TO_GPU // 2), (10_000, 5000))

HEADLINE = [
    Trial(on_cupy("gpu-cached-100000", 100_000, 100, repeats=7), seconds_within(0.6), 5000, squares=0.5),
    Trial(on_cupy("gpu-clusters-100000", 100_000, 100, data="clusters"), seconds_within(0.6), 5000, squares=0.5),
    *(
        Trial(
            on_cupy(f"gpu-pass-1000000-d{d}", 1_000_000, d, PASS, task="product", p=BLOCK, repeats=3, patience=45.0),
            times_the_floor(1.5),
            5000,
        )
        for d in (16, 100)
    ),
    Trial(on_cupy("gpu-peers-20000", 20_000, 100, PEERS_ON_CARD, patience=32.0), faster_than_peers(50.0), 2000, 6.0),
    Trial(
        on_cupy("gpu-nystrom-1000000", 1_000_000, 20, ("gpukpca on CuPy, Nystrom",), rank=RANK),
        seconds_within(5.0),
        5000,
    ),
    Trial(on_cupy("gpu-numpy-in-50000", 50_000, 100, NUMPY_IN, repeats=7), copies_below(0.1), 5000, squares=0.5),
    *(
        Trial(
            on_cupy(f"gpu-agreement-{n}-{dtype}", n, 20, task="compared", dtype=dtype, repeats=3, tol_in_eps=100.0),
            agreeing(),
            quick_n,
            squares=6.0,
        )
        for n, quick_n in AGREEMENT_SIZES
        for dtype in EPS
    ),
    # Last, as it takes longest.
    Trial(on_cupy("gpu-fit-1000000", 1_000_000, 100, repeats=3, patience=130.0), seconds_within(90.0, 60.0), 5000),
]


@dataclass(frozen=True)
class Sweep:
    """Cases that every contestant goes through in one process.

    Attributes
    ----------
    name : str
        For ``-k``; the cases have it in front of theirs.
    cases : tuple of Case
    quick : callable
        Whether a case is for ``--quick`` too.
    squares : float
        As in `Trial`.
    axis : str
        The field of the case that varies.
    """

    name: str
    cases: tuple[Case, ...]
    quick: Callable[[Case], bool]
    squares: float
    axis: str

    def sized(self, quick: bool, free_bytes: int | None) -> Sweep:
        """Without the cases that are too large for the card, or for quick runs."""
        cases = [case for case in self.cases if self.quick(case) or not quick]
        if free_bytes is not None:
            cases = [case for case in cases if needed_bytes(case, self.squares) <= SHARE * free_bytes]
        return replace(self, cases=tuple(cases))


CROSSOVER_SIZES = (200, 500, 1000, 2000, 5000, 10_000, 20_000)
DENSE_SIZES = (250, 500, 750, 1000, 1500, 2000, 3000, 4000, 8000)
PCA_SIZES = (10_000, 100_000, 1_000_000)
EDGES = (2048, 4096, 8192, 16_384)
BLOCKS = (32, 64, 128)
BOTH_SOLVERS = ("gpukpca on CuPy, dense", "gpukpca on CuPy, block Krylov")
BOTH_PASSES = ("pass, nothing cached, on CuPy", "pass, all cached, on CuPy")
BOTH_FITS = ("gpukpca on CuPy, block Krylov", "gpukpca on CuPy, nothing cached")


def small(case: Case) -> bool:
    """For ``--quick``."""
    return case.n <= 5000


SWEEPS = [
    *(
        Sweep(
            f"gpu-crossover-d{d}",
            tuple(
                on_cupy(f"gpu-crossover-d{d}-{n}", n, d, ("gpukpca", *NUMPY_IN[::-1]), patience=8.0)
                for n in CROSSOVER_SIZES
            ),
            small,
            6.0,
            "n",
        )
        for d in (20, 784)
    ),
    Sweep(
        "gpu-dense-or-krylov",
        tuple(on_cupy(f"gpu-dense-or-krylov-{n}", n, 20, BOTH_SOLVERS, patience=10.0) for n in DENSE_SIZES),
        small,
        6.0,
        "n",
    ),
    Sweep(
        "gpu-tile-edge",
        tuple(
            on_cupy(f"gpu-tile-edge-{e}", 100_000, 100, BOTH_PASSES, task="product", p=BLOCK, tile_edge=e)
            for e in EDGES
        ),
        lambda case: False,
        0.7,  # the largest tiles of the triangle's edge reach beyond it
        "tile_edge",
    ),
    Sweep(
        "gpu-block-width",
        tuple(on_cupy(f"gpu-block-width-{b}", 100_000, 100, BOTH_FITS, block=b, patience=10.0) for b in BLOCKS),
        lambda case: False,
        0.5,
        "block",
    ),
    Sweep(
        "gpu-pca",
        tuple(
            on_cupy(f"gpu-pca-{n}", n, 100, ("gpukpca PCA on CuPy", "gpukpca PCA"), task="axes", patience=8.0)
            for n in PCA_SIZES
        ),
        lambda case: False,
        0.0,
        "n",
    ),
]
