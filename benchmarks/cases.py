"""The cases: data, size, kernel, accuracy and contestants of each problem."""

from __future__ import annotations

from dataclasses import dataclass

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
    rounds: int = 3  # processes for each contestant
    repeats: int = 1  # runs in each process
    patience: float = 3600.0  # seconds of runs in a process after which no further one begins
    tol_in_eps: float = 0.0  # tolerance in units of the spacing of the dtype at 1; 0 is the usual one
    block: int | None = None  # columns of a block of the iterative solver; None leaves them to the library
    tile_edge: int | None = None  # rows of a tile; None leaves them to the library
    limit_mib: int | None = None  # memory limit of "gpukpca, little memory"
    most_mib: int | None = None  # promised bound on the whole process of the first contestant
    large: bool = False  # only with --large
    quick_n: int = 0  # on a card: rows with --quick; 0 leaves the case out
    squares: float = 0.0  # on a card: n × n matrices that the largest contestant holds at once; ½: all upper tiles

    @property
    def tol(self) -> float:
        """Return the tolerance of residuals relative to the largest eigenvalue."""
        return self.tol_in_eps * EPS[self.dtype] or TOLERANCE[self.dtype]


ON_DEVICE = ("gpukpca on CuPy", "plain CuPy", "plain torch on CUDA", "TorchDR on CUDA")
ITERATIVE = (
    "gpukpca",
    "gpukpca, little memory",
    "sklearn arpack, matched",
    "sklearn arpack, default",
    "sklearn randomized, default",
    "gpukpca on CuPy",
)
FULL = ("gpukpca", "sklearn dense", "TorchDR", "plain NumPy", *ON_DEVICE)
NYSTROM = ("gpukpca, Nystrom", "sklearn Nystroem + PCA")
PAIR = ("gpukpca", "sklearn arpack, matched")
KERNELS = ("rbf", "laplacian", "poly", "cosine")
PASSES = {"nothing-cached": ("pass, nothing cached", "GEMM X Y^T"), "cached": ("pass, all cached", "GEMM K V")}
OTHER_DATA = {"digits": (1797, 64), "usps": (7291, 256), "clusters": (5000, 20)}

CASES = [
    Case("mnist-10000", ITERATIVE, "mnist", 10_000, 784, limit_mib=130),
    Case("gaussian-10000", ITERATIVE, "gaussian", 10_000, 50, "float64", limit_mib=387),
    Case("small-200", ("gpukpca", "sklearn auto"), "gaussian", 200, 20, "float64", p=5, rounds=2, repeats=100),
    Case("small-500", ("gpukpca", "sklearn auto"), "gaussian", 500, 20, "float64", p=5, rounds=2, repeats=50),
    Case("small-2000", ("gpukpca", "sklearn auto"), "gaussian", 2000, 20, "float64", p=5, rounds=2, repeats=10),
    Case("full-2000", FULL, "gaussian", 2000, 20, rounds=1, repeats=3),
    Case("full-5000", FULL, "gaussian", 5000, 20, large=True),
    Case("mnist-10000-p20", ("gpukpca", "sklearn auto"), "mnist", 10_000, 784, p=20, rounds=1, large=True),
    Case("mnist-10000-p50", ("gpukpca", "sklearn auto"), "mnist", 10_000, 784, p=50, rounds=1, large=True),
    Case(
        "mnist-20000-little-memory",
        ("gpukpca, little memory", "gpukpca", "sklearn arpack, matched", "sklearn arpack, default"),
        *("mnist", 20_000, 784),
        limit_mib=200,
        most_mib=600,
        large=True,
    ),
    Case(
        "tiled-100000",
        ("gpukpca, little memory", "gpukpca on CuPy"),
        *("gaussian", 100_000, 20),
        rounds=1,
        limit_mib=1000,
        large=True,
    ),
    Case("nystrom-1000000", NYSTROM, "gaussian", 1_000_000, 20, rounds=1, large=True),
    Case(
        "transform-100000",
        (*PAIR, "gpukpca on CuPy"),
        *("gaussian", 20_000, 20),
        task="transform",
        new=100_000,
        large=True,
    ),
    *(
        Case(f"product-20000-{kind}", names, "mnist", 20_000, 784, p=26, task="product", repeats=3, large=True)
        for kind, names in PASSES.items()
    ),
]

AXES = ("gpukpca PCA", "sklearn PCA covariance_eigh", "sklearn PCA randomized", "sklearn PCA full")
PCA_CASES = [
    Case("pca-tall", AXES[:3], "gaussian", 1_000_000, 100, task="axes"),
    Case("pca-tall-offset", AXES[:2], "offset", 1_000_000, 100, task="axes", rounds=1),
    Case("pca-mnist", AXES, "mnist", 10_000, 784, p=50, task="axes"),
    Case("pca-wide", AXES[:1] + AXES[2:], "gaussian", 1000, 100_000, task="axes", rounds=1),
]

# With ten components scikit-learn's automatic choice is the dense solver.
SCALING = [
    Case(
        f"scaling-{n}",
        ("gpukpca", "sklearn arpack, matched", "sklearn auto", "plain NumPy", *NYSTROM, *ON_DEVICE),
        *("gaussian", n, 20),
        rounds=3 if n < 10_000 else 1,
        large=True,
    )
    for n in (1000, 2000, 5000, 10_000, 20_000, 50_000)
]

SWEEPS = [
    *SCALING,
    *(Case(f"kernel-{k}", PAIR, "gaussian", 2000, 20, "float64", kernel=k, rounds=1, repeats=3) for k in KERNELS),
    *(Case(f"dtype-{t}", PAIR, "gaussian", 5000, 20, t, rounds=1, repeats=3, large=True) for t in TOLERANCE),
    *(Case(f"p-{p}", PAIR, "gaussian", 4000, 20, p=p, rounds=1, repeats=3, large=True) for p in (2, 10, 50, 200)),
    *(Case(f"d-{d}", PAIR, "gaussian", 4000, d, rounds=1, repeats=3, large=True) for d in (2, 20, 200, 2000)),
    *(Case(f"data-{s}", PAIR, s, n, d, rounds=1, repeats=3, large=True) for s, (n, d) in OTHER_DATA.items()),
]
