"""The cases on a card, and the target of each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.accuracy import DEVICE_EDGE
from benchmarks.cases import EPS, Case
from benchmarks.verdicts import AgreesWithHost, CopiesBelow, FasterThanPeers, SecondsWithin, Target, TimesTheFloor
from gpukpca.eigen.solve import DENSE_UP_TO_GPU

BLOCK = 64
# Blocks that the basis of the iterative solver, its products and its temporaries hold (`BlockKrylov.workspace_items`).
SOLVER_BLOCKS = 30
# The rest of the card's free memory is for pools, contexts and libraries.
SHARE = 0.8
SMALLEST = 1000
# Rows of --quick: just enough for the iterative solver.
QUICK_N = 3 * DENSE_UP_TO_GPU // 2


def needed_bytes(case: Case) -> int:
    """Return roughly the memory of the card that a case takes, the check of its accuracy included."""
    item, n = np.dtype(case.dtype).itemsize, case.n
    rows = 3 * n * (case.d + 2) * item
    basis = SOLVER_BLOCKS * n * max(case.block or BLOCK, BLOCK) * item
    factor = 3 * n * case.rank * item if any("Nystrom" in name for name in case.contestants) else 0
    check = 2 * n * (case.d + 2) * 8 + 8 * min(n, DEVICE_EDGE) ** 2
    return int(max(rows + basis + case.squares * n * n * item + factor, check))


def fits(case: Case, free_bytes: int) -> bool:
    """Return whether a card with so much free memory can run a case."""
    return needed_bytes(case) <= SHARE * free_bytes


def sized(case: Case, quick: bool, free_bytes: int) -> Case:
    """Return the case with fewer samples where the card is too small, and with one run of few for ``--quick``."""
    if quick:
        case = replace(case, n=min(case.n, case.quick_n), repeats=1)
    while not fits(case, free_bytes) and case.n > SMALLEST:
        unit = 10 ** max(0, len(str(int(0.8 * case.n))) - 2)  # two digits
        case = replace(case, n=max(SMALLEST, int(0.8 * case.n) // unit * unit))
    return case


def on_cupy(name: str, n: int, d: int, contestants: tuple[str, ...] = ("gpukpca on CuPy",), **more: object) -> Case:
    """Return a case on the card; ten components of Gaussian data unless `more` says otherwise."""
    settings = {"data": "gaussian", "repeats": 5, "patience": 60.0, "quick_n": QUICK_N}
    return Case(name, contestants, n=n, d=d, **(settings | more))  # type: ignore[arg-type]


PEERS_ON_CARD = ("gpukpca on CuPy", "plain CuPy", "plain torch on CUDA", "TorchDR on CUDA")
NUMPY_IN = ("gpukpca, NumPy in, on CUDA", "gpukpca on CuPy")
NYSTROM = ("gpukpca on CuPy, Nystrom",)
TWIN = ("gpukpca on CuPy, twin", "gpukpca on CuPy, no twin")
PASS = ("pass, nothing cached, on CuPy",)
CACHED = {"repeats": 7, "squares": 0.5}
ONE_PASS = {"task": "product", "p": BLOCK, "repeats": 3, "patience": 45.0}
COMPARED = {"task": "compared", "repeats": 3, "tol_in_eps": 100.0, "squares": 6.0}
# Rows of the comparison with the host, and rows with ``--quick``: "auto" takes the dense, then the iterative solver.
AGREEMENT_SIZES = ((DENSE_UP_TO_GPU, DENSE_UP_TO_GPU // 2), (10_000, QUICK_N))

TRIALS: list[tuple[Case, Target]] = [
    (on_cupy("gpu-cached-100000", 100_000, 100, **CACHED), SecondsWithin(0.6)),
    # As fast for each pair of rows: 2.5² times the seconds above.
    (on_cupy("gpu-fit-250000", 250_000, 100, repeats=3), SecondsWithin(3.75)),
    (on_cupy("gpu-clusters-100000", 100_000, 100, data="clusters", **CACHED | {"repeats": 5}), SecondsWithin(0.6)),
    (on_cupy("gpu-cached-twin-50000", 50_000, 100, TWIN, dtype="float64", **CACHED), SecondsWithin(1.0)),
    (on_cupy("gpu-pass-1000000-d16", 1_000_000, 16, PASS, **ONE_PASS), TimesTheFloor(1.5)),
    (on_cupy("gpu-pass-1000000-d100", 1_000_000, 100, PASS, **ONE_PASS), TimesTheFloor(1.5)),
    (
        on_cupy("gpu-peers-20000", 20_000, 100, PEERS_ON_CARD, patience=20.0, repeats=2, squares=6.0),
        FasterThanPeers(50.0),
    ),
    # Where KeOps joins; a quarter of the seconds of 100 000 rows.
    (on_cupy("gpu-lanczos-50000", 50_000, 100, patience=20.0, repeats=2, squares=0.5), SecondsWithin(0.15)),
    (on_cupy("gpu-nystrom-1000000", 1_000_000, 20, NYSTROM, rank=1000), SecondsWithin(5.0)),
    (on_cupy("gpu-numpy-in-50000", 50_000, 100, NUMPY_IN, **CACHED), CopiesBelow(0.1)),
    *(
        (on_cupy(f"gpu-agreement-{n}-{dtype}", n, 20, dtype=dtype, quick_n=quick_n, **COMPARED), AgreesWithHost())
        for n, quick_n in AGREEMENT_SIZES
        for dtype in EPS
    ),
    # Last, as it takes longest.
    (on_cupy("gpu-fit-1000000", 1_000_000, 100, repeats=2, patience=80.0), SecondsWithin(90.0, 60.0)),
]

CROSSOVER_SIZES = (200, 500, 1000, 2000, 5000, 10_000, 20_000)
DENSE_SIZES = (250, 500, 750, 1000, 1500, 2000, 3000, 4000, 8000)
# Components of 10 000 rows: a hundredth to a tenth.
MANY = (100, 250, 500, 1000)
PCA_SIZES = (1000, 100_000, 1_000_000)
EDGES = (2048, 4096, 8192, 16_384)
BLOCKS = (32, 64, 128)
LARGE_ONLY = {"quick_n": 0}
BOTH_SOLVERS = ("gpukpca on CuPy, dense", "gpukpca on CuPy, block Krylov")
BOTH_PASSES = ("pass, nothing cached, on CuPy", "pass, all cached, on CuPy")
BOTH_FITS = ("gpukpca on CuPy, block Krylov", "gpukpca on CuPy, nothing cached")
BOTH_PCA = ("gpukpca PCA", "gpukpca PCA on CuPy")


def swept(name: str, sizes: tuple[int, ...], d: int, contestants: tuple[str, ...], **more: object) -> list[Case]:
    """Return a case for each number of samples; those up to 1000 run with ``--quick`` too."""
    settings = {"squares": 6.0, "patience": 8.0} | more
    return [on_cupy(f"{name}-{n}", n, d, contestants, quick_n=n if n <= 1000 else 0, **settings) for n in sizes]


# (name, the field of the case that varies) -> cases, whose names end in that field. A contestant answers all of them
# in one process; times are compared with those of the first.
SWEEPS: dict[tuple[str, str], list[Case]] = {
    **{
        (f"gpu-crossover-d{d}", "n"): swept(f"gpu-crossover-d{d}", CROSSOVER_SIZES, d, ("gpukpca", *NUMPY_IN[::-1]))
        for d in (20, 784)
    },
    ("gpu-dense-or-krylov", "n"): swept("gpu-dense-or-krylov", DENSE_SIZES, 20, BOTH_SOLVERS, patience=10.0),
    ("gpu-many-components", "p"): [
        on_cupy(f"gpu-many-components-{p}", 10_000, 20, BOTH_SOLVERS, p=p, patience=10.0, squares=6.0, **LARGE_ONLY)
        for p in MANY
    ],
    ("gpu-tile-edge", "tile_edge"): [
        # The largest tiles of the triangle's edge reach beyond it.
        on_cupy(f"gpu-tile-edge-{e}", 100_000, 100, BOTH_PASSES, tile_edge=e, squares=0.7, **ONE_PASS | LARGE_ONLY)
        for e in EDGES
    ],
    ("gpu-block-width", "block"): [
        on_cupy(f"gpu-block-width-{b}", 100_000, 100, BOTH_FITS, block=b, patience=10.0, squares=0.5, **LARGE_ONLY)
        for b in BLOCKS
    ],
    ("gpu-pca", "n"): swept("gpu-pca", PCA_SIZES, 100, BOTH_PCA, data="decaying", task="axes", squares=0.0),
}
