"""The cases: data, size, kernel and accuracy of one problem, and who takes part."""

from __future__ import annotations

from dataclasses import dataclass

# Tolerance of gpukpca and of the peers "matched" to it: residuals relative to the largest eigenvalue.
TOLERANCE = {"float32": 1e-5, "float64": 1e-8}
EPS = {"float32": 2.0**-23, "float64": 2.0**-52}


@dataclass(frozen=True)
class Case:
    """One problem; plain values alone, so that it travels to another process and into the record as JSON.

    Attributes
    ----------
    name : str
        For ``-k`` and for the record.
    contestants : tuple of str
        Keys of `benchmarks.peers.PEERS`; ratios are to the first.
    data, n, d, dtype
        Arguments of `benchmarks.datasets.load`.
    p : int
        Components; in a product the columns of the block.
    kernel, gamma
        With degree 3 and coef0 1; gamma 0 is 1/(d Var(X)), computed before any contestant gets it.
    task : "fit", "compared", "transform", "product" or "axes"
        The computation that is timed, a key of `benchmarks.contestant.TASKS`.
    new, rank : int
        Rows to transform; rank of the Nyström models.
    rounds, repeats : int
        Processes for each contestant; runs in each of them.
    patience : float
        Seconds of runs in a process after which no further one begins.
    tol_in_eps : float
        The tolerance in units of the spacing of the dtype at 1; 0 is the usual tolerance.
    block, tile_edge : int, optional
        Columns of a block of the iterative solver, rows of a tile; None leaves both to the library.
    limit_mib, most_mib : int, optional
        Memory limit of "gpukpca, little memory"; promised bound on the whole process of the first contestant.
    large : bool
        Only with ``--large``.
    quick_n : int
        On a card: rows with ``--quick``; 0 leaves the case out.
    squares : float
        On a card: matrices of n × n items that the largest contestant holds at once; ½: all upper tiles.
    """

    name: str
    contestants: tuple[str, ...]
    data: str
    n: int
    d: int
    dtype: str = "float32"
    p: int = 10
    kernel: str = "rbf"
    gamma: float = 0.0
    task: str = "fit"
    new: int = 0
    rank: int = 500
    rounds: int = 3
    repeats: int = 1
    patience: float = 3600.0
    tol_in_eps: float = 0.0
    block: int | None = None
    tile_edge: int | None = None
    limit_mib: int | None = None
    most_mib: int | None = None
    large: bool = False
    quick_n: int = 0
    squares: float = 0.0

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
