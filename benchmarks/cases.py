"""The cases: data, size, kernel, accuracy and contestants of each problem."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

# Tolerance of gpukpca and of the peers "matched" to it: residuals relative to the largest eigenvalue.
TOLERANCE = {"float32": 1e-5, "float64": 1e-8}
EPS = {"float32": 2.0**-23, "float64": 2.0**-52}


@dataclass(frozen=True)
class Case:
    """One problem; plain values alone, so that it travels to another process and into the record as JSON."""

    name: str
    contestants: tuple[str, ...]  # keys of `benchmarks.peers.PEERS`; ratios are to the first
    data: str  # data, n, d and dtype are the arguments of `benchmarks.datasets.load`
    n: int
    d: int
    dtype: str = "float32"
    p: int = 10  # components; in a product the columns of the block
    kernel: str = "rbf"  # with degree 3 and coef0 1
    gamma: float = 0.0  # 0 is 1/(d Var(X)), computed before any contestant gets it
    task: str = "fit"  # the computation that is timed, a key of `benchmarks.contestant.TASKS`
    new: int = 0  # rows to transform
    rank: int = 500  # of the Nyström models
    rounds: int = 2  # processes for each contestant
    repeats: int = 1  # runs in each process
    patience: float = 3600.0  # seconds of runs in a process after which no further one begins
    tol_in_eps: float = 0.0  # tolerance in units of the spacing of the dtype at 1; 0 is the usual one
    block: int | None = None  # columns of a block of the iterative solver; None leaves them to the library
    tile_edge: int | None = None  # rows of a tile; None leaves them to the library
    limit_mib: int | None = None  # memory limit of "gpukpca, little memory"
    most_mib: int | None = None  # promised bound on the whole process of the first contestant
    large: bool = False  # only with --large
    quick_n: int = 0  # rows with --quick; 0 leaves the case out
    squares: float = 0.0  # on a card: n × n matrices that the largest contestant holds at once; ½: all upper tiles

    @property
    def tol(self) -> float:
        """Return the tolerance of residuals relative to the largest eigenvalue."""
        return self.tol_in_eps * EPS[self.dtype] or TOLERANCE[self.dtype]


MATCHED = ("gpukpca", "sklearn arpack, matched")
ITERATIVE = (
    *("gpukpca", "gpukpca, little memory"),
    *("sklearn arpack, matched", "sklearn randomized, default"),
)
LITTLE = ("gpukpca, little memory", "gpukpca", "sklearn arpack, matched")
AUTO = ("gpukpca", "sklearn auto")
FULL = ("gpukpca", "sklearn dense", "TorchDR", "plain NumPy")
NYSTROM = ("gpukpca, Nystrom, uniform", "gpukpca, Nystrom", "sklearn Nystroem + PCA")
KERNELS = ("rbf", "laplacian", "poly", "cosine")
SMALL = {200: 100, 500: 50, 1000: 20, 2000: 10, 5000: 3}  # samples -> runs in a process

PCA = ("gpukpca PCA", "sklearn PCA auto", "sklearnex PCA")
TALL = ("gpukpca PCA", "sklearn PCA covariance_eigh", "sklearnex PCA")
ALL_PCA = (*TALL, "sklearn PCA randomized", "sklearn PCA full")
WIDE = ("gpukpca PCA", "sklearn PCA randomized", "sklearn PCA full")
SPARSE = ("gpukpca PCA", "sklearn PCA arpack", "sklearn TruncatedSVD")
# A share of the variance beside as many components as that takes.
SHARE = ("gpukpca PCA, 95 %", "gpukpca PCA", "sklearn PCA, 95 %")


def axes(contestants: tuple[str, ...], data: str, n: int, d: int, **more: Any) -> Case:
    """Return a case of PCA on the host."""
    kind = "share" if contestants == SHARE else "pca"
    return Case(f"{kind}-{data}-{n}x{d}", contestants, data, n, d, task="axes", **more)


CASES = [
    Case("mnist-10000", ITERATIVE, "mnist", 10_000, 784, limit_mib=130),
    Case("gaussian-10000", ITERATIVE, "gaussian", 10_000, 50, "float64", limit_mib=387),
    *(Case(f"small-{n}", AUTO, "gaussian", n, 20, "float64", p=5, repeats=runs) for n, runs in SMALL.items()),
    Case("full-2000", FULL, "gaussian", 2000, 20, rounds=1, repeats=3),
    *(Case(f"kernel-{k}", MATCHED, "gaussian", 2000, 20, "float64", kernel=k, rounds=1, repeats=3) for k in KERNELS),
    Case("mnist-10000-p20", AUTO, "mnist", 10_000, 784, p=20, rounds=1, large=True),
    Case("mnist-20000", LITTLE, "mnist", 20_000, 784, rounds=1, limit_mib=200, most_mib=600, large=True),
    Case("nystrom-200000", NYSTROM, "gaussian", 200_000, 20, rank=300, large=True),
    Case("transform-50000", MATCHED, "gaussian", 20_000, 20, task="transform", new=50_000, rounds=1, large=True),
    axes(PCA, "iris", 150, 4, dtype="float64", p=2, repeats=100),
    axes(PCA, "digits", 1797, 64, dtype="float64", p=2, repeats=50),
    axes(ALL_PCA, "mnist", 10_000, 784, p=50, repeats=3),
    axes(TALL, "decaying", 200_000, 100, repeats=5),
    axes(SHARE, "steep", 3000, 3000, p=12, rounds=1, repeats=3),
    axes(SHARE, "steep", 5000, 1000, p=12, rounds=1, repeats=3, dtype="float64"),
    axes(SHARE, "steep", 200_000, 100, p=12, rounds=1, repeats=5),
    axes(SHARE, "steep", 1000, 20_000, p=12, rounds=1, repeats=3, large=True),
    axes(SHARE, "steep", 20_000, 2000, p=12, rounds=1, repeats=3, patience=20.0, large=True),
    axes(TALL, "decaying", 50_000, 2000, p=20, repeats=2, large=True),
    axes(TALL, "decaying", 1_000_000, 100, repeats=3, large=True),
    axes(TALL[:2], "offset", 1_000_000, 100, large=True),
    axes(WIDE, "gaussian", 1000, 100_000, rounds=1, large=True),
    axes(TALL, "flat", 10_000, 784, p=50, repeats=3),
    axes(TALL, "flat", 50_000, 2000, p=20, repeats=2, large=True),
    axes(SPARSE, "words", 4000, 30_000, p=5, dtype="float64", repeats=5),
    axes(SPARSE, "words", 20_000, 5000, p=20, dtype="float64", repeats=3),
    axes(SPARSE, "words", 330, 500_000, p=5, dtype="float64", repeats=3, large=True),
]


def growth(
    axis: str, contestants: tuple[str, ...], values: tuple[int, ...], quick: int = 0, name: str = "", **more: Any
) -> list[Case]:
    """Return a case for each value of a field of the case, the first `quick` of them with --quick too.

    4000 samples unless they vary; ``name-value`` is the name, ``growth-axis-value`` without one.
    """
    problem = {"data": "gaussian", "n": 4000, "d": 20, "rounds": 1, "repeats": 3, "patience": 6.0, "large": True} | more
    cases = [Case(f"{name or f'growth-{axis}'}-{value}", contestants, **problem | {axis: value}) for value in values]
    return [replace(case, quick_n=case.n * (i < quick)) for i, case in enumerate(cases)]


SKLEARN = ("sklearn arpack, matched", "sklearn randomized, default")
SOLVERS = ("covariance_eigh", "full", "arpack", "randomized")
# (name, the field of the case that varies) -> cases whose names end in that field.
GROWTH: dict[tuple[str, str], list[Case]] = {
    ("growth-n", "n"): [
        *growth(
            "n",
            ("gpukpca, nothing cached", "gpukpca", *SKLEARN, "sklearn dense"),
            (500, 1000, 2000, 5000, 10_000, 20_000, 40_000),
            quick=3,
        ),
        *growth("n", ("gpukpca, nothing cached",), (80_000, 160_000)),
    ],
    ("growth-pca-n", "n"): growth(
        "n",
        ("gpukpca PCA", *(f"sklearn PCA {solver}" for solver in SOLVERS)),
        (2000, 10_000, 40_000, 200_000, 1_000_000),
        quick=3,
        name="growth-pca-n",
        data="decaying",
        d=100,
        task="axes",
    ),
    # The problem of growth-p with ten components.
    ("accuracy", "rank"): growth("rank", NYSTROM, (50, 100, 200, 400, 800), quick=4, name="accuracy-rank"),
    ("growth-p", "p"): growth("p", ("gpukpca", *SKLEARN), (2, 10, 50, 100), quick=3),
    ("growth-d", "d"): growth("d", MATCHED, (2, 20, 200, 2000)),
}
