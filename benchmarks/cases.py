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
    repeats: int = 1  # of a card: fits of each contestant
    patience: float = 3600.0  # of a card: seconds of fits after which no further one begins
    grid: tuple[int, ...] = ()  # of a search: the number of gammas, and numbers of components
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


SKLEARN = ("sklearn auto", "sklearn dense", "sklearn arpack, matched", "sklearn randomized, default")
OTHERS = (*SKLEARN, "TorchDR", "KeOps + ARPACK", "plain NumPy")
EXACT = ("gpukpca", *OTHERS)
ITERATIVE = ("gpukpca", "gpukpca, little memory", *OTHERS)
LITTLE = ("gpukpca, little memory", "gpukpca", *OTHERS)
TRANSFORM = ("gpukpca", "sklearn arpack, matched", "sklearn randomized, default")
NYSTROM = ("gpukpca, Nystrom, uniform", "gpukpca, Nystrom", "sklearn Nystroem + PCA", "falkon's Nystrom + PCA")
TWIN = ("gpukpca, little memory", "gpukpca, little memory, no twin")
KERNELS = ("rbf", "laplacian", "poly", "cosine")

SOLVERS = tuple(f"sklearn PCA {solver}" for solver in ("auto", "covariance_eigh", "full", "arpack", "randomized"))
PCA = ("gpukpca PCA", *SOLVERS, "sklearnex PCA", "dask-ml PCA")
SPARSE = (
    "gpukpca PCA",
    "sklearn PCA auto",
    "sklearn PCA covariance_eigh",
    "sklearn PCA arpack",
    "sklearn TruncatedSVD",
)
# A share of the variance beside as many components as that takes.
SHARE = ("gpukpca PCA, 95 %", "gpukpca PCA", "sklearn PCA, 95 %")
SEARCHES = ("gpukpca KernelPCACV", "sklearn GridSearchCV")
SEARCH: dict[str, Any] = {"contestants": SEARCHES, "task": "search", "gamma": 1.0, "large": True}


def axes(contestants: tuple[str, ...], data: str, n: int, d: int, **more: Any) -> Case:
    """Return a case of PCA on the host."""
    kind = "share" if contestants == SHARE else "pca"
    return Case(f"{kind}-{data}-{n}x{d}", contestants, data, n, d, task="axes", **more)


CASES = [
    Case("mnist-10000", ITERATIVE, "mnist", 10_000, 784, limit_mib=130),
    Case("gaussian-10000", ITERATIVE, "gaussian", 10_000, 50, "float64", limit_mib=387),
    # Float32 tiles fit into memory, and float64 ones do not.
    Case("twin-gaussian-20000", TWIN, "gaussian", 20_000, 20, "float64", limit_mib=1000),
    Case("twin-clusters-12000", TWIN, "clusters", 12_000, 50, "float64", limit_mib=380),
    *(Case(f"small-{n}", EXACT, "gaussian", n, 20, "float64", p=5) for n in (200, 500, 1000, 2000, 5000)),
    Case("full-2000", EXACT, "gaussian", 2000, 20),
    *(Case(f"kernel-{k}", EXACT, "gaussian", 2000, 20, "float64", kernel=k) for k in KERNELS),
    Case("mnist-10000-p20", EXACT, "mnist", 10_000, 784, p=20, large=True),
    Case("mnist-20000", LITTLE, "mnist", 20_000, 784, limit_mib=200, most_mib=600, large=True),
    Case("nystrom-200000", NYSTROM, "gaussian", 200_000, 20, rank=300, large=True),
    Case("transform-50000", TRANSFORM, "gaussian", 20_000, 20, task="transform", new=50_000, large=True),
    axes(PCA, "iris", 150, 4, dtype="float64", p=2),
    axes(PCA, "digits", 1797, 64, dtype="float64", p=2),
    axes(PCA, "mnist", 10_000, 784, p=50),
    axes(PCA, "decaying", 200_000, 100),
    axes(SHARE, "steep", 3000, 3000, p=12),
    axes(SHARE, "steep", 5000, 1000, p=12, dtype="float64"),
    axes(SHARE, "steep", 200_000, 100, p=12),
    axes(SHARE, "steep", 1000, 20_000, p=12, large=True),
    axes(SHARE, "steep", 20_000, 2000, p=12, large=True),
    axes(PCA, "decaying", 50_000, 2000, p=20, large=True),
    axes(PCA, "decaying", 1_000_000, 100, large=True),
    axes(PCA, "offset", 1_000_000, 100, large=True),
    axes(PCA, "gaussian", 1000, 100_000, large=True),
    axes(PCA, "flat", 10_000, 784, p=50),
    axes(PCA, "flat", 50_000, 2000, p=20, large=True),
    axes(SPARSE, "words", 4000, 30_000, p=5, dtype="float64"),
    axes(SPARSE, "words", 20_000, 5000, p=20, dtype="float64"),
    # Without the covariance matrix, whose eigenproblem takes half a minute.
    axes(SPARSE[:1] + SPARSE[3:], "scattered", 20_000, 5000, p=20, dtype="float64", large=True),
    axes(SPARSE, "words", 330, 500_000, p=5, dtype="float64", large=True),
    *(
        Case(f"search-{grid[0]}x{len(grid) - 1}", data="usps", n=2000, d=256, dtype="float64", grid=grid, **SEARCH)
        for grid in ((2, 16, 32, 64, 128, 256), (4, 8, 32, 128), (5, 16, 64, 256))
    ),
]


def growth(
    axis: str, contestants: tuple[str, ...], values: tuple[int, ...], quick: int = 0, name: str = "", **more: Any
) -> list[Case]:
    """Return a case for each value of a field of the case, the first `quick` of them with --quick too.

    4000 samples unless they vary; ``name-value`` is the name, ``growth-axis-value`` without one.
    """
    problem = {"data": "gaussian", "n": 4000, "d": 20, "large": True} | more
    cases = [Case(f"{name or f'growth-{axis}'}-{value}", contestants, **problem | {axis: value}) for value in values]
    return [replace(case, quick_n=case.n * (i < quick)) for i, case in enumerate(cases)]


# (name, the field of the case that varies) -> cases whose names end in that field.
GROWTH: dict[tuple[str, str], list[Case]] = {
    ("growth-n", "n"): [
        *growth("n", ("gpukpca, nothing cached", *EXACT), (500, 1000, 2000, 5000, 10_000, 20_000, 40_000), quick=2),
        *growth("n", ("gpukpca, nothing cached",), (80_000, 160_000)),
    ],
    ("growth-pca-n", "n"): growth(
        "n",
        PCA,
        (2000, 10_000, 40_000, 200_000, 1_000_000),
        quick=2,
        name="growth-pca-n",
        data="decaying",
        d=100,
        task="axes",
    ),
    # The problem of growth-p with ten components.
    ("accuracy", "rank"): growth("rank", NYSTROM, (50, 100, 200, 400, 800), quick=2, name="accuracy-rank"),
    ("growth-p", "p"): growth("p", EXACT, (2, 10, 50, 100), quick=2),
    ("growth-d", "d"): growth("d", EXACT, (2, 20, 200, 2000)),
}
EVERY = [*CASES, *(case for cases in GROWTH.values() for case in cases)]
BY_NAME = {case.name: case for case in EVERY}
