"""Predicted bytes beside those a fit allocates, over sizes, limits, kernels and routes; plans that change nothing."""

from __future__ import annotations

import itertools
import re
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone

from gpukpca import PCA, KernelPCA, LocalPCA, Nystrom, ProbabilisticPCA, kernels
from gpukpca.algorithms import fit_kernel_pca
from gpukpca.algorithms.latent.memory import bytes_of_em
from gpukpca.algorithms.mixture.memory import mixture_bytes
from gpukpca.algorithms.mixture.selection import candidate_pairs
from gpukpca.algorithms.mixture.settings import MixtureSettings
from gpukpca.algorithms.pca.spectrum import log_evidence
from gpukpca.algorithms.resources import Resources, parsed_bytes
from gpukpca.backend import blocking, device
from gpukpca.backend.random import seeded_subset
from gpukpca.decomposition import RidgePreimage
from gpukpca.eigen import BlockKrylov, Dense
from gpukpca.exceptions import MemoryBudgetError
from gpukpca.model_selection import KernelPCACV
from tests import oracle
from tests.conftest import Namespace
from tests.each import covering, each

# The true peak of a fit, times at most so much, is the bound that its plan states; of small fits more by so many bytes.
LOOSE, SMALL = 2.5, 16 * 2**20
# What the imports, thread pools and caches of a first fit allocate is no part of any fit.
ALL_WAYS: list[dict[str, Any]] = [
    {},
    {"eigen_solver": Nystrom(rank=20)},
    {"kernel": "linear"},
    {"eigen_solver": "dense"},
]


@pytest.fixture(autouse=True, scope="module")
def _imports_out_of_the_way() -> None:
    for parameters in ALL_WAYS:
        KernelPCA(**{"n_components": 2, "kernel": "rbf", "n_jobs": 2, **parameters}).fit(rows(300, 5))
    for svd_solver in ("covariance_eigh", "dual", "full", "randomized", "arpack"):
        PCA(2, svd_solver=svd_solver, n_jobs=2).fit_transform(rows(60, 50))


def rows(n: int, d: int, dtype: str = "float64", seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, d)).astype(dtype)


@contextmanager
def traced() -> Iterator[Callable[[], int]]:
    """Yield a function that returns the most bytes allocated since the start of the block."""
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def model_and_peak(X: Any, **parameters: Any) -> tuple[KernelPCA, int]:
    """The fitted model, and the most bytes that its fit held at a time."""
    settings = {"n_components": 5, "kernel": "rbf", "random_state": 0, "n_jobs": 2, **parameters}
    model = KernelPCA(**settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with traced() as peak:
            model.fit(X)
            return model, peak()


def assert_predicted(model: KernelPCA, peak: int) -> None:
    predicted = model.plan_.predicted_bytes
    assert peak <= predicted <= LOOSE * peak + SMALL, f"{predicted} predicted, {peak} allocated: {model.plan_}"
    assert predicted <= model.plan_.available_bytes


# -- predictions -------------------------------------------------------------------------------------------------------

# n, d, dtype, and the limit as a share of the square matrix; None: what is free.
SIZES = [
    (1000, 20, "float64", None),
    (1000, 300, "float64", None),
    (1000, 300, "float32", None),
    (2000, 20, "float64", 1 / 3),
    (2000, 20, "float32", None),
    (2000, 300, "float32", None),
    (3000, 20, "float64", None),
    (4000, 20, "float32", 1 / 3),
]


@each("n, d, dtype, share", SIZES)
def test_every_size_and_limit(n: int, d: int, dtype: str, share: float | None) -> None:
    X = rows(n, d, dtype)
    limit = None if share is None else int(share * n * n * X.itemsize)
    model, peak = model_and_peak(X, gamma=0.5 / d, memory_limit=limit)
    assert_predicted(model, peak)
    assert model.plan_.storage.is_fully_cached == (share is None)


KERNELS: dict[str, tuple[int, int, str, dict[str, Any]]] = {
    "laplacian": (1000, 20, "float64", {"kernel": "laplacian"}),
    "matern": (2000, 20, "float64", {"kernel": "matern"}),
    "rational quadratic": (2000, 20, "float32", {"kernel": "rational_quadratic"}),
    "cosine": (3000, 20, "float32", {"kernel": "cosine", "gram": "tiled"}),
    "sigmoid": (2000, 20, "float64", {"kernel": "sigmoid"}),
    "polynomial by tiles": (2000, 20, "float32", {"kernel": "poly", "gram": "tiled"}),
    "polynomial by features": (5000, 20, "float64", {"kernel": "poly", "degree": 2}),
    "linear": (2000, 300, "float64", {"kernel": "linear"}),
    "linear, iterated": (2300, 2050, "float32", {"kernel": "linear", "n_components": 40}),
    "linear by tiles": (1200, 300, "float32", {"kernel": "linear", "gram": "tiled", "eigen_solver": "randomized"}),
    "far-out rows": (2000, 20, "float64", {"gamma": 1e4}),
    "products in float64": (2000, 300, "float32", {"gamma": 1.0}),
    "gamma from the variance": (2000, 20, "float32", {"gamma": "scale"}),
    "dense": (1000, 20, "float64", {"eigen_solver": "dense"}),
    "square matrix": (2000, 20, "float64", {"gram": "dense"}),
    "fifty components": (2000, 20, "float64", {"n_components": 50}),
    "pre-image": (2000, 20, "float64", {"fit_inverse_transform": True}),
    "fixed point": (1200, 200, "float64", {"preimage": "fixed_point"}),
    "distance constraint": (1200, 200, "float64", {"preimage": "distance_constraint"}),
    "wide": (100, 20_000, "float64", {}),
    "wide, float32": (1000, 2000, "float32", {}),
    "wide cosine": (1000, 2000, "float32", {"kernel": "cosine", "gram": "tiled"}),
    "wide, landmarks": (1000, 2000, "float64", {"eigen_solver": Nystrom(rank=200)}),
    "wide rows, landmarks": (300, 20_000, "float64", {"eigen_solver": Nystrom(rank=200)}),
    "wide rows, cosine, landmarks": (
        *(400, 5000, "float32"),
        {"eigen_solver": Nystrom(rank=200), "kernel": "cosine", "copy_X": False},
    ),
    "fixed point, wide": (100, 20_000, "float64", {"preimage": "fixed_point"}),
    "fixed point, wider": (150, 40_000, "float32", {"preimage": "fixed_point"}),
    "fixed point, float32": (1000, 2000, "float32", {"preimage": "fixed_point"}),
    "fixed point, landmarks": (
        *(1000, 2000, "float64"),
        {"preimage": "fixed_point", "eigen_solver": Nystrom(rank=200), "n_jobs": 1},
    ),
    "fixed point, narrow": (3000, 5, "float32", {"preimage": "fixed_point"}),
    "distance constraint, wide": (100, 20_000, "float32", {"preimage": "distance_constraint"}),
    "distance constraint, wider": (150, 40_000, "float64", {"preimage": "distance_constraint"}),
    "distance constraint, few rows": (1000, 2000, "float64", {"preimage": "distance_constraint"}),
    "distance constraint, landmarks": (
        *(1000, 2000, "float32"),
        {"preimage": "distance_constraint", "eigen_solver": Nystrom(rank=200), "n_jobs": 1},
    ),
    "distance constraint of products": (
        *(1500, 1000, "float64"),
        {"preimage": "distance_constraint", "kernel": "poly", "gram": "tiled"},
    ),
    "ridge, another kernel": (2000, 20, "float64", {"preimage": "ridge"}),
    "ridge, wide": (1000, 2000, "float32", {"preimage": "ridge"}),
    "ridge, one worker": (1000, 20, "float64", {"fit_inverse_transform": True, "n_jobs": 1}),
    "ridge on landmarks": (1500, 50, "float64", {"preimage": RidgePreimage(n_landmarks=300)}),
    "landmarks": (5000, 20, "float64", {"eigen_solver": Nystrom(rank=200), "gamma": 0.05}),
    # Two workers do not always hold their panels at the same time.
    "even landmarks": (
        5000,
        20,
        "float64",
        {"eigen_solver": Nystrom(rank=200, landmarks="uniform"), "gamma": 0.05, "n_jobs": 1},
    ),
    "many landmarks": (2000, 20, "float32", {"eigen_solver": Nystrom(rank=800, landmarks="uniform"), "gamma": 0.5}),
    "chosen landmarks": (
        *(5000, 20, "float64"),
        {"eigen_solver": Nystrom(landmarks=range(0, 5000, 25)), "gamma": 0.05, "n_jobs": 1},
    ),
    "fifty by landmarks": (5000, 20, "float64", {"eigen_solver": Nystrom(rank=200), "gamma": 0.05, "n_components": 50}),
    "few blocks": (2000, 20, "float64", {"eigen_solver": BlockKrylov(max_blocks=4)}),
    "a float32 twin": (3000, 20, "float64", {"eigen_solver": BlockKrylov(twin=True), "gamma": 0.02}),
    "a float32 twin in a limit": (4200, 20, "float64", {"memory_limit": "65MiB", "gamma": 0.02}),
    "a float32 twin of fifty": (
        *(4100, 20, "float64"),
        {"memory_limit": "56MiB", "gamma": 0.02, "n_components": 50, "n_jobs": 2},
    ),
    "a float32 twin of wide rows": (
        *(1500, 1000, "float64"),
        {"eigen_solver": BlockKrylov(twin=True), "gram": "tiled", "kernel": "laplacian", "gamma": 0.01},
    ),
    "a narrow block": (2000, 20, "float64", {"eigen_solver": BlockKrylov(block_size=4)}),
}


@each("case", KERNELS)
def test_every_kernel_and_route(case: str) -> None:
    n, d, dtype, parameters = KERNELS[case]
    assert_predicted(*model_and_peak(rows(n, d, dtype), **parameters))


def test_one_worker() -> None:
    X = rows(2000, 20)
    for limit in (None, "12MB"):
        model, peak = model_and_peak(X, gamma=0.02, n_jobs=1, memory_limit=limit)
        assert model.plan_.storage.workers == 1
        assert_predicted(model, peak)


def test_small_pivots_in_float32() -> None:
    """Their panels are widened, which is not known before the fit."""
    X = rows(9000, 20, "float32")
    model, peak = model_and_peak(X, gamma=5e-4, n_jobs=1, eigen_solver=Nystrom(rank=200, landmarks="uniform"))
    assert_predicted(model, peak)


# Data of so many rows and columns, with standard deviations that fall by this factor from column to column.
PCA_FITS: dict[str, tuple[tuple[int, int], float, dict[str, Any]]] = {
    "few rows": ((150, 4), 0.8, {"n_components": 2}),
    "tall": ((20_000, 50), 0.95, {"n_components": 3}),
    "tall, standardized": ((20_000, 50), 0.95, {"n_components": 3, "scale": True}),
    "tall, tiny variances": ((20_000, 50), 0.75, {"n_components": 40, "svd_solver": "covariance_eigh"}),
    "tall, all": ((6000, 50), 0.95, {}),
    "tall, iterated": ((6000, 200), 0.9, {"n_components": 3, "svd_solver": "randomized"}),
    "square": ((700, 500), 0.99, {"n_components": 3}),
    "wide": ((100, 5000), 0.999, {"n_components": 3}),
    "wide, tiny variances": ((60, 5000), 0.99, {"n_components": 50, "svd_solver": "dual"}),
    "wide, iterated": ((200, 5000), 0.99, {"n_components": 3, "svd_solver": "randomized"}),
    "rotation": ((800, 100), 0.99, {"n_components": 3, "svd_solver": "full"}),
    "a share that widens": ((500, 400), 0.97, {"n_components": 0.9, "svd_solver": "auto"}),
}


@each("case, dtype, with_scores, n_jobs", covering(PCA_FITS, ["float64", "float32"], [False, True], [1, 2]))
def test_pca_allocates_no_more_than_predicted_and_not_much_less(
    case: str, dtype: str, with_scores: bool, n_jobs: int
) -> None:
    shape, factor, parameters = PCA_FITS[case]
    X = (rows(*shape) * factor ** np.arange(shape[1])).astype(dtype)
    model = PCA(**parameters, n_jobs=n_jobs, random_state=0)
    fit = model.fit_transform if with_scores else model.fit
    with traced() as peak:
        fit(X)
        allocated = peak()
    predicted = model.plan_.predicted_bytes
    assert allocated <= predicted <= LOOSE * allocated + SMALL, f"{predicted} predicted, {allocated} allocated"


# Solvers, shapes, components and threads. Two threads do not always hold their blocks at the same time.
BOUNDS_OF_PCA: list[tuple[str, tuple[int, int], int, int]] = [
    ("covariance_eigh", (6000, 50), 20, 1),
    ("covariance_eigh", (900, 400), 10, 2),
    ("randomized", (6000, 50), 20, 1),
    ("randomized", (600, 800), 5, 1),
    ("arpack", (1000, 200), 5, 1),
    ("dual", (600, 700), 5, 1),
    ("dual", (1500, 20), 4, 2),
    ("full", (6000, 50), 20, 1),
    ("full", (700, 300), 10, 1),
]


def test_the_bound_of_pca_is_near_the_largest_peak() -> None:
    """A plan does not know the variances: equal ones, tiny ones, and all but one tiny take different ways."""
    for number, (svd_solver, (n, d), p, n_jobs) in enumerate(BOUNDS_OF_PCA):
        Z, place = rows(n, d), np.arange(d)
        falling = 10.0 ** (-10.0 * np.minimum(place, 2 * p) / p)
        tiny = np.where(place < 1, 1.0, 1e-9)
        spectra = (np.ones(d), falling, tiny) if d <= 50 else (np.ones(d), tiny)
        dtype, with_scores = (("float64", True), ("float32", False))[number % 2]  # both of each but arpack
        model = PCA(p, svd_solver=svd_solver, n_jobs=n_jobs, random_state=0)
        fit = model.fit_transform if with_scores else model.fit
        peaks = []
        for deviations in spectra:
            X = (Z * deviations).astype(dtype)
            with warnings.catch_warnings(), traced() as peak:
                warnings.simplefilter("ignore")
                fit(X)
                peaks.append(peak())
        bound = model.plan_.predicted_bytes
        case = f"{svd_solver}, {n} x {d}, {dtype}, {n_jobs} threads"
        assert max(peaks) <= bound <= LOOSE * max(peaks) + SMALL, f"{case}: {bound} predicted, {peaks} allocated"


def test_the_bound_of_pca_of_sparse_rows_is_near_the_peak() -> None:
    """Whether a column is full, which takes a copy of the entries, is known once they were read."""
    PCA(2, random_state=0).fit(scipy.sparse.random_array((600, 40), density=0.2, format="csr", rng=0))  # imports
    for svd_solver, shape, density in (
        ("covariance_eigh", (1400, 500), 0.1),
        ("randomized", (3000, 300), 0.1),
        ("randomized", (1000, 1500), 0.1),
        ("dual", (1000, 1500), 0.02),
    ):
        for dtype, scale in (("float64", False), ("float32", True)):
            X = scipy.sparse.random_array(shape, density=density, format="csr", rng=0, dtype=dtype)
            model = PCA(10, svd_solver=svd_solver, scale=scale, random_state=0)
            with traced() as peak:
                model.fit_transform(X)
                allocated = peak()
            bound = model.plan_.predicted_bytes
            assert allocated <= bound <= LOOSE * allocated + SMALL, (
                f"{svd_solver}, {dtype}: {bound} predicted, {allocated} allocated"
            )


def test_a_matrix_of_huge_entries_takes_no_more_memory() -> None:
    """It is scaled in place before LAPACK."""
    X = 1e6 * rows(1100, 700)
    fits = [
        PCA(5, svd_solver="covariance_eigh", n_jobs=1),
        KernelPCA(5, kernel="poly", gamma=1.0, eigen_solver="dense", gram="tiled", n_jobs=1),
    ]
    for model in fits:
        model.fit(X[:400])  # imports
        with warnings.catch_warnings(), traced() as peak:
            warnings.simplefilter("ignore")
            model.fit(X)
            allocated = peak()
        assert allocated <= model.plan_.predicted_bytes <= LOOSE * allocated


# Rows, columns, clusters and components of local PCA.
MIXTURES = {
    "tall": ((12_000, 8), 3, 2),
    "many clusters": ((6000, 3), 8, 1),
    "several pairs": ((4000, 5), [2, 5], [1, 2]),
    "square": ((800, 200), 2, 2),
    "wide": ((120, 3000), 2, 2),
}


@each("case", MIXTURES)
def test_local_pca_keeps_to_its_limit_and_refuses_a_smaller_one_before_it_allocates(case: str) -> None:
    shape, clusters, components = MIXTURES[case]
    for dtype, method in (("float64", "mixture"), ("float32", "hard")):
        X = rows(*shape, dtype)
        X[::2] += 5.0
        settings = MixtureSettings(method, n_init=2, max_iter=2)
        pairs, resources = candidate_pairs(clusters, components, *shape), Resources.for_data(X, n_jobs=2)
        limit = mixture_bytes(X, pairs, settings, resources)
        model = LocalPCA(clusters, components, method=method, n_init=2, max_iter=2, random_state=0, n_jobs=2)
        with warnings.catch_warnings(), traced() as peak:
            warnings.simplefilter("ignore")
            model.set_params(memory_limit=limit).fit(X)
            allocated = peak()
        assert allocated <= limit <= LOOSE * allocated + SMALL, f"{limit} predicted, {allocated} allocated"
        with traced() as peak, pytest.raises(MemoryBudgetError, match=r"clusters of \d+ rows"):
            model.set_params(memory_limit=limit - 1).fit(X)
        assert peak() < 2**18


def test_the_plan_of_a_share_states_the_bytes_of_the_components_it_took() -> None:
    X = rows(2100, 2010, "float32") * np.exp(-np.arange(2010, dtype="float32") / 100)
    model = PCA(0.9, n_jobs=1, random_state=0)
    plan = model.plan(X)
    with traced() as peak:
        model.fit(X)
        allocated = peak()
    assert plan.method == model.plan_.method == "randomized"
    assert plan.predicted_bytes < allocated <= model.plan_.predicted_bytes
    assert "a share of more than" in str(plan)


@pytest.fixture
def mapped(tmp_path: Path) -> np.ndarray:
    np.save(tmp_path / "X.npy", rows(2000, 300))
    return np.load(tmp_path / "X.npy", mmap_mode="r")


def test_wide_rows_of_a_memory_map_keep_to_the_bound(tmp_path: Path) -> None:
    for n, d, dtype, limits in (
        (400, 4000, "float64", ("32MiB", "60MiB", None)),
        (400, 4000, "float32", ("25MiB", None)),
        (1000, 2000, "float32", ("20MiB", "30MiB", None)),
        (2000, 500, "float64", ("30MiB", "40MiB")),
    ):
        np.save(tmp_path / "X.npy", rows(n, d, dtype))
        X = np.load(tmp_path / "X.npy", mmap_mode="r")
        for kernel, limit in itertools.product(("rbf", "laplacian", "poly"), limits):
            given = {"kernel": kernel, "gamma": 1e-3, "memory_limit": limit, "n_jobs": 1}
            try:
                model, peak = model_and_peak(X, **given)
            except MemoryBudgetError:
                assert kernel == "rbf", given  # which prepares a second copy of a slice
                continue
            assert peak <= model.plan_.predicted_bytes, (n, d, dtype, given)


def test_a_memory_map_is_not_counted_and_not_copied(mapped: np.ndarray) -> None:
    """In memory the same data are copied once, and prepared once."""
    model, peak = model_and_peak(mapped, gamma=0.002)
    held, _ = model_and_peak(np.array(mapped), gamma=0.002)
    assert_predicted(model, peak)
    assert held.plan_.predicted_bytes - model.plan_.predicted_bytes == mapped.nbytes
    assert model.plan_.bytes_read == 0


def test_every_pass_reads_what_the_plan_says(mapped: np.ndarray) -> None:
    """Tiles by panels: the rows up to the end of each panel, once."""
    plan = KernelPCA(5, kernel="rbf", gamma=0.002, memory_limit="12MB", n_jobs=2).plan(mapped)
    storage = plan.storage
    assert storage.panel > 0
    width = storage.panel * storage.tile_edge
    stops = [min(start + width, 2000) for start in range(0, 2000, width)]
    assert plan.bytes_read == sum(stops) * 300 * 8
    assert f"{plan.bytes_read / 2**20:.1f} MiB of X from its file in every pass over K" in str(plan)


def sampled_only(path: Path, X: np.ndarray, most: int) -> np.ndarray:
    """X as a memory map whose entries are NaN, or the largest integers, in all rows but those of the sample."""
    hidden = np.full_like(X, np.nan if X.dtype.kind == "f" else np.iinfo(X.dtype).max)
    chosen = seeded_subset(len(X), most)
    hidden[chosen] = X[chosen]
    np.save(path, hidden)
    return np.load(path, mmap_mode="r")


def test_the_plan_of_a_memory_map_reads_a_sample_of_its_rows(tmp_path: Path, sizes: Callable[..., None]) -> None:
    sizes(PLAN_ROWS=200)
    X = rows(1500, 6)
    for dtype in ("float64", "float32", "int16"):
        given = (100 * X).astype(dtype)
        mapped = sampled_only(tmp_path / f"{dtype}.npy", given, 200)
        for gamma in (1e-6, None, "scale", "median"):
            model = KernelPCA(3, kernel="rbf", gamma=gamma, memory_limit="1GB", random_state=0)
            plan, held = model.plan(mapped), model.plan(given)
            assert (plan.n_samples, plan.n_features, plan.dtype) == (1500, 6, held.dtype)
            if gamma != "scale":  # its value differs
                assert plan.kernel == held.kernel or gamma == "median"
            kept = given.nbytes if dtype != "int16" else 0  # a memory map of floating-point numbers is not copied
            assert plan.predicted_bytes == held.predicted_bytes - kept
        plan, held = PCA(3).plan(mapped), PCA(3).plan(given)
        if dtype == "int16":  # which is converted slice by slice
            assert plan.notes == ("rows are read in every pass, in batches of up to 1500",)
            held = replace(held, notes=plan.notes, predicted_bytes=plan.predicted_bytes, bill=plan.bill)
        assert plan == held
    K = sampled_only(tmp_path / "K.npy", X @ X.T, 200)
    precomputed = KernelPCA(3, kernel="precomputed", memory_limit="1GB", random_state=0)
    assert precomputed.plan(K).predicted_bytes == precomputed.plan(X @ X.T).predicted_bytes


def test_a_plan_of_wide_rows_reads_few_of_them(tmp_path: Path, sizes: Callable[..., None]) -> None:
    sizes(PLAN_ENTRIES=1000)
    X = sampled_only(tmp_path / "X.npy", rows(60, 100), 10)
    assert KernelPCA(3, kernel="rbf").plan(X).n_samples == 60


def test_a_fit_with_the_median_rule_takes_the_rows_of_the_plan(tmp_path: Path) -> None:
    X = sampled_only(tmp_path / "X.npy", rows(1200, 3), blocking.PLAN_ROWS)
    plan = KernelPCA(3, kernel="rbf", gamma="median").plan(X)
    assert plan.kernel == KernelPCA(3, kernel="rbf", gamma="median").plan(rows(1200, 3)).kernel


# -- sparse rows and missing entries -----------------------------------------------------------------------------------


@each(
    "kernel, dtype",
    [
        ("rbf", "float64"),
        ("matern", "float32"),
        ("linear", "float32"),
        ("cosine", "float64"),
    ],
)
def test_sparse_rows_keep_to_the_limit(kernel: str, dtype: str) -> None:
    """Products of sparse rows are dense here, and take more as sparse matrices."""
    for (n, d), density, n_jobs in [((1500, 40), 0.9, 1), ((1300, 3000), 0.02, 2)]:
        X = scipy.sparse.random_array((n, d), density=density, format="csr", rng=0, dtype=dtype)
        limit = 12 * 2**20
        # A larger tolerance takes fewer passes, each of which allocates the same.
        model, peak = model_and_peak(X, kernel=kernel, gram="tiled", memory_limit=limit, n_jobs=n_jobs, tol=0.3)
        assert peak <= model.plan_.predicted_bytes <= limit, f"{peak} allocated: {model.plan_}"


EM_FITS = {"tall": (12_000, 20, 3), "wide": (400, 4000, 3), "square": (1200, 1000, 4)}


@each("case", EM_FITS)
def test_em_keeps_to_its_limit_and_refuses_a_smaller_one_before_it_allocates(case: str) -> None:
    n, d, p = EM_FITS[case]
    for dtype in ("float64", "float32"):
        X = rows(n, d, dtype)
        X[::7, 1] = np.nan
        resources = Resources.for_data(X, n_jobs=2)
        limit = bytes_of_em(resources.place.work, n, d, p, 2)
        model = ProbabilisticPCA(p, max_iter=2, random_state=0, n_jobs=2)
        with warnings.catch_warnings(), traced() as peak:
            warnings.simplefilter("ignore")
            model.set_params(memory_limit=limit).fit(X)
            allocated = peak()
        assert allocated <= limit <= 6 * allocated, f"{limit} predicted, {allocated} allocated"
        with traced() as peak, pytest.raises(MemoryBudgetError, match=f"EM with {p} components"):
            model.set_params(memory_limit=limit - 1).fit(X)
        assert peak() <= X.size + 2**18  # the mask of missing entries


def test_the_evidence_of_many_features_holds_no_matrix() -> None:
    d = 1200
    variances = np.linspace(2.0, 1.0, d)
    with traced() as peak:
        evidence = log_evidence(variances, 5000, d)
        assert peak() < 100 * 8 * d
    assert evidence.shape == (d - 1,)


# -- gamma from the data -----------------------------------------------------------------------------------------------

# What a rule may hold: a few panels of 1 MiB and the distances of 1000 rows, however long or wide the data are.
RULE_BYTES = 20 * 2**20


def held_rows(case: str, folder: Path) -> Any:
    """Rows whose sample in float64 takes at least 28 MiB."""
    if case == "csr":
        return scipy.sparse.random_array((1300, 5_000), density=0.002, format="csr", rng=0)
    if case == "csr with many entries":
        return scipy.sparse.csr_array(rows(100_000, 40, "float32"))
    X = rows(1300, 3_700, "float32")
    if case == "memory map":
        np.save(folder / "X.npy", X)
        return np.load(folder / "X.npy", mmap_mode="r")
    return np.asfortranarray(X) if case == "by columns" else X


@pytest.mark.parametrize("rule", ["median", "scale"])
@each("case", ["dense", "by columns", "memory map", "csr", "csr with many entries"])
def test_no_rule_for_gamma_copies_the_data(rule: str, case: str, sizes: Any, tmp_path: Path) -> None:
    sizes(PANEL_ENTRIES=blocking.PerDevice(2**17, 2**17))
    X = held_rows(case, tmp_path)
    kernels.RBF(rule).resolve(rows(60, 40))  # imports
    with traced() as peak:
        kernels.RBF(rule).resolve(X)
        assert peak() <= RULE_BYTES


@each("rule", ["median", "scale"])
def test_a_rule_for_gamma_holds_no_more_than_it_says(rule: str) -> None:
    equal = np.repeat(rows(30, 4), 40, axis=0)
    kernels.RBF(rule).resolve(rows(60, 40))  # imports
    for X in (
        rows(2000, 4),
        equal,
        rows(1200, 40),
        rows(300, 3000),
        rows(1500, 40, "float32") * 100.0 ** (np.arange(40) % 4),
    ):
        kernel = 2.0 * kernels.RBF(rule) + kernels.Linear()
        with traced() as peak:
            kernel.resolve(X)
            assert peak() <= kernel.rule_bytes(*X.shape) + 2**16
    assert kernels.RBF(0.1).rule_bytes(2000, 4) == kernels.RBF().rule_bytes(2000, 4) == 0


def test_a_rule_for_gamma_beyond_the_limit_is_refused_before_it_is_evaluated() -> None:
    X = rows(1200, 4)
    model = KernelPCA(2, kernel="rbf", gamma="median", memory_limit=2**20)
    fits = [
        model.fit,
        model.plan,
        KernelPCACV(memory_limit=2**20).fit,
        KernelPCACV(gammas="median", memory_limit=2**20).fit,
    ]
    fits.append(lambda X: fit_kernel_pca(X, model_kernel, 2, resources=Resources.for_data(X, memory_limit=2**20)))
    model_kernel = kernels.RBF("median")
    for fit in fits:
        with traced() as peak, pytest.raises(MemoryBudgetError, match=r"gamma|a fold of 1200 rows"):
            fit(X)
        assert peak() < 2**19


def test_a_search_refuses_a_limit_below_its_folds_before_it_copies_them() -> None:
    X = rows(6000, 40)
    search = KernelPCACV(gammas=[0.01, 0.1], n_components=[2, 3], memory_limit=X.nbytes)
    with traced() as peak, pytest.raises(MemoryBudgetError, match="a fold of 6000 rows"):
        search.fit(X)
    assert peak() < X.nbytes / 2


def test_a_fit_with_gamma_from_distances_stays_within_its_limit() -> None:
    X = scipy.sparse.random_array((1300, 20_000), density=0.002, format="csr", rng=0)
    model, peak = model_and_peak(X, gamma="median", memory_limit="64MiB")
    assert peak <= model.plan_.available_bytes


# -- a plan before the fit ---------------------------------------------------------------------------------------------

SETTINGS: dict[str, dict[str, Any]] = {
    "tiled": {},
    "some cached": {"memory_limit": "2.2MB"},
    "dense": {"eigen_solver": "dense"},
    "square": {"gram": "dense"},
    "nystrom": {"eigen_solver": Nystrom(rank=30)},
    "nystrom with a tolerance": {"eigen_solver": Nystrom(rank=30, tol=0.9)},
    "linear": {"kernel": "linear"},
    "polynomial": {"kernel": "poly", "degree": 2},
    "sigmoid": {"kernel": "sigmoid", "gamma": 0.01},
    "gamma from distances": {"gamma": "median"},
    "pre-image": {"fit_inverse_transform": True},
    "all components": {"n_components": None, "eigen_solver": Nystrom(rank=30)},
    "fixed passes": {"iterated_power": 3, "eigen_solver": "randomized", "n_components": 1},
}


@each("case, dtype", itertools.product(SETTINGS, ["float64", "float32"]))
def test_the_plan_before_the_fit_is_the_plan_of_the_fit(case: str, dtype: str) -> None:
    X = rows(600, 6, dtype)
    model = KernelPCA(**{"n_components": 3, "kernel": "rbf", "memory_limit": "1GB", "random_state": 0} | SETTINGS[case])
    before = dict(vars(model))
    plan = model.plan(X)
    assert vars(model) == before
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = model.fit(X)
    if case == "all components":
        plan = replace(plan, n_components=fitted.plan_.n_components)
    assert plan == fitted.plan_
    assert str(plan) == str(fitted.plan_)


def test_plans_of_other_inputs(xp: Namespace) -> None:
    X = rows(500, 6)
    model = KernelPCA(3, kernel="rbf", memory_limit="1GB", random_state=0)
    for given in (xp.array(X), scipy.sparse.csr_array(X)):
        assert model.plan(given) == KernelPCA(3, kernel="rbf", memory_limit="1GB", random_state=0).fit(given).plan_
    K = xp.array(oracle.centered(X @ X.T) + np.eye(500))
    precomputed = KernelPCA(3, kernel="precomputed", memory_limit="1GB", random_state=0)
    assert precomputed.plan(K) == precomputed.fit(K).plan_


def test_a_plan_leaves_a_fitted_model_alone() -> None:
    X = rows(500, 6)
    model = KernelPCA(3, kernel="rbf", random_state=0).fit(X)
    before, scores = dict(vars(model)), model.transform(X[:5])
    model.set_params(n_components=4)
    plan = model.plan(rows(700, 9))
    assert (plan.n_samples, plan.n_features, plan.n_components) == (700, 9, 4)
    model.set_params(n_components=3)
    assert vars(model) == before
    assert model.n_features_in_ == 6
    assert np.array_equal(model.transform(X[:5]), scores)


@each(
    "parameters, X",
    [({"n_components": 0}, rows(9, 2)), ({"gamma": -1.0}, rows(9, 2)), ({}, rows(9, 2) * np.nan), ({}, rows(9, 2)[0])],
)
def test_a_plan_refuses_what_a_fit_refuses(parameters: dict[str, Any], X: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r".") as of_the_fit:
        KernelPCA(kernel="rbf", **parameters).fit(X)
    with pytest.raises(type(of_the_fit.value)) as of_the_plan:
        KernelPCA(kernel="rbf", **parameters).plan(X)
    assert str(of_the_plan.value) == str(of_the_fit.value)


# -- too little memory -------------------------------------------------------------------------------------------------

TOO_MUCH: dict[str, dict[str, Any]] = {
    "auto": {"n_components": 10},
    "dense": {"n_components": 10, "eigen_solver": "dense"},
    "all components": {"n_components": None},
    "many components": {"n_components": 30_000},
    "square": {"n_components": 10, "gram": "dense"},
    "nystrom": {"n_components": 10, "eigen_solver": Nystrom(rank=2000)},
    "pre-image": {"n_components": 10, "fit_inverse_transform": True},
}


@each("method, case", itertools.product(["plan", "fit"], TOO_MUCH))
def test_what_cannot_fit_is_an_error_before_anything_large_is_allocated(case: str, method: str) -> None:
    X = rows(100_000, 2, "float32")
    model = KernelPCA(kernel="rbf", memory_limit="7MiB", copy_X=False, **TOO_MUCH[case])
    with (
        traced() as peak,
        pytest.raises(MemoryBudgetError, match=r"needs [\d.]+ [MGT]iB \(.*\), and 7\.0 MiB are allowed.*Try"),
    ):
        getattr(model, method)(X)
    # The sweeps over X go by panels of rows.
    assert peak() < 3 * X.nbytes if method == "plan" else 4 * X.nbytes
    assert not hasattr(model, "plan_")


# What a user does who follows an advice, by its words.
FOLLOWED: dict[str, Callable[[str], dict[str, Any]]] = {
    r'gram="auto"': lambda _: {"gram": "auto"},
    r"eigen_solver=Nystrom\(rank=(\d+)\)": lambda rank: {"eigen_solver": Nystrom(rank=int(rank))},
    r'(eigen|svd)_solver="randomized"': lambda kind: {f"{kind}_solver": "randomized"},
    r"n_components=(\d+)": lambda count: {"n_components": int(count)},
    r'the approximation eigen_solver="nystrom"': lambda _: {"eigen_solver": "nystrom"},
    "float32 data": lambda _: {},
}
REFUSED: list[tuple[Any, tuple[int, int], str]] = [
    (KernelPCA(5, kernel="rbf"), (3000, 4), "float64"),
    (KernelPCA(5, kernel="rbf", eigen_solver="dense"), (3000, 4), "float64"),
    (KernelPCA(900, kernel="rbf", eigen_solver="arpack"), (3000, 4), "float32"),
    (KernelPCA(900, kernel="rbf"), (3000, 4), "float64"),
    (KernelPCA(5, kernel="rbf", gram="dense"), (30_000, 40), "float32"),
    (KernelPCA(5, kernel="rbf", gram="dense", eigen_solver="dense"), (30_000, 40), "float64"),
    (KernelPCA(kernel="rbf"), (2000, 5), "float64"),
    (KernelPCA(0.9, kernel="rbf", eigen_solver="dense"), (2000, 5), "float64"),
    (KernelPCA(500, kernel="rbf"), (400_000, 5), "float32"),
    (KernelPCA(5, kernel="sigmoid"), (3000, 4), "float64"),
    (KernelPCA(5, kernel="linear"), (3000, 40), "float64"),
    (KernelPCA(5, kernel="rbf", fit_inverse_transform=True), (3000, 4), "float64"),
    (KernelPCA(5, kernel="rbf", eigen_solver="nystrom"), (30_000, 4), "float64"),
    (KernelPCA(5, kernel="rbf", eigen_solver=Nystrom(rank=500)), (3000, 4), "float32"),
    (PCA(5), (3000, 400), "float64"),
    (PCA(), (3000, 400), "float64"),
    (PCA(0.9), (3000, 400), "float32"),
    (PCA("mle"), (3000, 400), "float64"),
    (PCA(300, svd_solver="full"), (3000, 400), "float32"),
    (PCA(50, svd_solver="randomized"), (300, 4000), "float64"),
    (PCA(5, svd_solver="dual"), (3000, 40), "float64"),
]


def test_every_advice_of_an_error_makes_the_plan_fit() -> None:
    seen = set()
    for model, shape, dtype in REFUSED:
        model = clone(model).set_params(memory_limit="64KiB", n_jobs=2)
        with pytest.raises(MemoryBudgetError) as refused:
            model.plan(shape, dtype=dtype)
        needed = needed_of(refused.value)
        for share in (0.9, 0.5, 0.2):
            tight = clone(model).set_params(memory_limit=int(share * needed))
            with pytest.raises(MemoryBudgetError) as refused:
                tight.plan(shape, dtype=dtype)
            advice = str(refused.value).partition(" Try ")[2].split(", ")
            assert advice.pop() in ("or a larger memory_limit.", "a larger memory_limit.")
            for text in advice:
                followed = clone(tight)
                for words, follow in FOLLOWED.items():
                    if match := re.search(words, text):
                        followed.set_params(**follow(match[1] if match.lastindex else ""))
                        seen.add(words)
                assert followed.plan(shape, dtype="float32" if text == "float32 data" else dtype).fits, (model, text)
    assert seen == set(FOLLOWED)


def needed_of(error: MemoryBudgetError) -> int:
    """The bytes that the message of an error names."""
    return parsed_bytes((re.search(r"needs ([\d.]+ [KMGT]?i?B)", str(error)) or [""])[1])


def test_the_number_in_the_error_is_enough() -> None:
    """An attempt with what the error asks for succeeds, and one with a little less does not."""
    X = rows(3000, 4)
    for parameters in ({}, {"eigen_solver": "dense"}, {"eigen_solver": Nystrom(rank=300)}, {"gram": "dense"}):
        model = KernelPCA(5, kernel="rbf", **parameters)
        needed = min(model.set_params(memory_limit=limit).plan(X).predicted_bytes for limit in limits_from(model, X))
        assert model.set_params(memory_limit=needed).plan(X).predicted_bytes <= needed
        with pytest.raises(MemoryBudgetError):
            model.set_params(memory_limit=int(0.9 * needed)).plan(X)


def limits_from(model: KernelPCA, X: np.ndarray) -> list[int]:
    """Limits down to about the smallest one that is enough."""
    low, high = 1, 2**30
    while high - low > 2**10:
        middle = (low + high) // 2
        try:
            model.set_params(memory_limit=middle).plan(X)
            high = middle
        except MemoryBudgetError:
            low = middle
    return [high]


def test_the_smaller_way_is_named() -> None:
    few = KernelPCA(3, kernel="rbf", random_state=0, memory_limit="9MB").plan(rows(2000, 20))
    assert "tiles are recomputed in every pass" in " ".join(few.notes)
    small = KernelPCA(3, kernel="rbf", random_state=0, memory_limit="1.5MB").plan(rows(390, 20))
    assert isinstance(small.solver, BlockKrylov)
    assert "the dense solver does not fit into memory; block Krylov instead" in " ".join(small.notes)
    roomy = KernelPCA(3, kernel="rbf", random_state=0, memory_limit="1GB").plan(rows(390, 20))
    assert isinstance(roomy.solver, Dense)
    assert roomy.notes == ()
    tightest = limits_from(KernelPCA(3, kernel="rbf"), rows(2000, 20))[0]
    blocks = KernelPCA(3, kernel="rbf", memory_limit=tightest).plan(rows(2000, 20))
    assert blocks.solver.max_blocks == 4
    assert "held to 4 blocks" in " ".join(blocks.notes)


def test_less_memory_means_fewer_tiles_and_the_same_eigenvalues() -> None:
    X = rows(2000, 20)
    limits = ("1GB", "26MB", "16MB", "8MB")
    settings = {"kernel": "rbf", "gamma": 0.03, "random_state": 0, "n_jobs": 2}
    models = [KernelPCA(3, memory_limit=limit, **settings).fit(X) for limit in limits]
    bytes_kept = [model.plan_.storage.bytes_held(8) for model in models]
    assert bytes_kept == sorted(bytes_kept, reverse=True)
    assert bytes_kept[0] > 8 * bytes_kept[-1]
    for model in models:
        assert model.converged_
        assert model.plan_.predicted_bytes <= model.plan_.available_bytes
        np.testing.assert_allclose(model.eigenvalues_, models[0].eigenvalues_, rtol=1e-12)


# -- what is free ------------------------------------------------------------------------------------------------------


def test_a_fit_in_a_container_keeps_to_its_limit(monkeypatch: pytest.MonkeyPatch, sizes: Callable[..., None]) -> None:
    system = 7_000_000
    sizes(UNREAD_BYTES=0)
    monkeypatch.setattr(device, "host_free_bytes", lambda: system)
    X = rows(1500, 10)
    model, peak = model_and_peak(X, n_components=3)
    assert model.plan_.available_bytes == int(0.85 * system)
    assert not model.plan_.storage.is_fully_cached
    assert peak <= system
    assert model.converged_
    larger = KernelPCA(3, kernel="rbf", memory_limit="1GB").plan(X)
    assert larger.available_bytes == 10**9
    assert larger.storage.is_fully_cached


@pytest.mark.parametrize("model", [PCA(2, svd_solver="covariance_eigh"), KernelPCA(2, gram="dense")])
def test_only_a_large_fit_reads_what_is_free(monkeypatch: pytest.MonkeyPatch, model: Any) -> None:
    monkeypatch.setattr(device, "host_free_bytes", lambda: 10**6)
    small, large = rows(60, 5), rows(2000, 1000)
    assert model.fit(small).plan_.available_bytes == blocking.UNREAD_BYTES
    assert "(free memory not checked)" in str(model.plan(small))
    assert "16.0 MiB allowed\n" in str(clone(model).set_params(memory_limit="16MiB").plan(small))
    with pytest.raises(MemoryBudgetError, match="allowed or free"):
        model.fit(large)
    with pytest.raises(MemoryBudgetError):
        clone(model).set_params(memory_limit=1000).fit(small)


@each("share, dtype", itertools.product([0.3, 0.55, 0.65, 0.8, 1.5], ["float32", "float64"]))
def test_cached_tiles_take_at_most_sixty_percent_of_what_is_free(
    monkeypatch: pytest.MonkeyPatch, share: float, dtype: str
) -> None:
    """A limit that was set may be filled."""
    X, alone = rows(20_000, 2, dtype), {"kernel": "rbf", "n_jobs": 1, "eigen_solver": BlockKrylov(twin=False)}
    roomy = KernelPCA(2, memory_limit="10GB", **alone)
    everything = roomy.plan(X).storage.bytes_held(X.itemsize)
    free = int(everything / share)
    monkeypatch.setattr(device, "host_free_bytes", lambda: free)
    plan = KernelPCA(2, **alone).plan(X)
    tile = plan.storage.tile_edge**2 * X.itemsize
    kept = plan.storage.bytes_held(X.itemsize)
    assert kept <= 0.6 * free
    assert kept == everything or kept + tile > 0.6 * free - 1
    assert plan.available_bytes == int(0.85 * free)
    given = KernelPCA(2, memory_limit=free, **alone).plan(X)
    assert given.storage.bytes_held(X.itemsize) >= kept
    assert given.storage.is_fully_cached == (share < 0.9)
