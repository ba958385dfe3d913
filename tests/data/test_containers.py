"""One table of containers and estimators: every container of the same rows gives the same results, or is refused."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone

from gpukpca import (
    PCA,
    BayesianPCA,
    IncrementalPCA,
    KernelPCA,
    KernelPCACV,
    LocalPCA,
    Nystrom,
    ProbabilisticPCA,
    residuals,
)
from tests import tolerances

N, D = 90, 6
SVD_SOLVERS = ("auto", "covariance_eigh", "dual", "full", "tsqr", "randomized", "arpack")


class Slices:
    """A set on a disk, as zarr and h5py have them."""

    def __init__(self, rows: np.ndarray) -> None:
        self.rows, self.shape, self.dtype = rows, rows.shape, rows.dtype

    def __getitem__(self, part: Any) -> np.ndarray:
        return np.array(self.rows[part])

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array(self.rows, dtype=dtype)


class Bare:
    """A set that knows nothing of NumPy; of a CSR matrix its slices are sparse, as those of a backed AnnData."""

    def __init__(self, rows: Any) -> None:
        self.rows, self.shape, self.dtype = rows, rows.shape, rows.dtype

    def __getitem__(self, part: Any) -> Any:
        return self.rows[part]


class View(scipy.sparse.csr_matrix):
    """A CSR matrix of a class of another library, as that of some columns of an AnnData is."""


def frame(X: np.ndarray) -> Any:
    return pytest.importorskip("pandas").DataFrame(X)


def polars_frame(X: np.ndarray) -> Any:
    return pytest.importorskip("polars").DataFrame(X)


def dask_array(X: np.ndarray) -> Any:
    return pytest.importorskip("dask.array").from_array(X, chunks=(31, 4))


CONTAINERS: dict[str, Any] = {
    "Fortran order": np.asfortranarray,
    "strides": lambda X: np.repeat(X, 2, axis=0)[::2],
    "list": np.ndarray.tolist,
    "memory map": lambda X: X,  # in `held_by_all`, which has a folder
    "frame": frame,
    "polars": polars_frame,
    "CSR": scipy.sparse.csr_array,
    "CSC": scipy.sparse.csc_matrix,
    "COO": scipy.sparse.coo_array,
    "view of CSR": View,
    "slices": Slices,
    "sparse slices": lambda X: Bare(scipy.sparse.csr_matrix(X)),  # of the class that anndata gives
    "batches": lambda X: [X[:10], X[10:11], X[11:]],
    "sparse batches": lambda X: [scipy.sparse.csr_array(X[:40]), X[40:]],
    "Dask": dask_array,
}
RBF = {"kernel": "rbf", "gamma": 0.1}
ESTIMATORS = {
    "PCA": PCA(3),
    "PCA, scaled": PCA(3, scale=True, whiten=True),
    "PCA, full": PCA(3, svd_solver="full"),
    "PCA, randomized": PCA(2, svd_solver="randomized", tol=1e-13, random_state=0),
    "PCA, dual": PCA(3, svd_solver="dual"),
    "incremental": IncrementalPCA(3, batch_size=N),
    "KernelPCA": KernelPCA(3, **RBF),
    "KernelPCA, linear": KernelPCA(3),
    "KernelPCA, randomized": KernelPCA(2, eigen_solver="randomized", tol=1e-13, random_state=0, **RBF),
    "KernelPCA, Nystrom": KernelPCA(2, eigen_solver=Nystrom(rank=60), random_state=0, **RBF),
    "probabilistic": ProbabilisticPCA(3),
    "Bayesian": BayesianPCA(4),
    "local": LocalPCA(2, 2, random_state=0),
}
ITERABLES = ("batches", "sparse batches")
SPARSE = ("CSR", "CSC", "COO", "view of CSR")
# The estimators that a container does not suit, with the words of the refusal.
REFUSED: dict[tuple[str, str], str] = {
    **{("PCA, full", container): "sparse" for container in SPARSE},
    **{("local", container): "sparse" for container in (*SPARSE, "sparse slices")},
    **{(name, "Dask"): r"X\.compute\(\)" for name in ("probabilistic", "Bayesian", "local")},
    **{("local", container): "takes one array here, and X is an iterable of batches" for container in ITERABLES},
    **{
        (name, container): "an iterable of batches needs eigen_solver=gpukpca.Nystrom"
        for name in ("KernelPCA", "KernelPCA, linear", "KernelPCA, randomized")
        for container in ITERABLES
    },
}
# Results that depend on the batches, or on where EM stops.
DIFFER = {(name, container) for name in ("incremental", "probabilistic", "Bayesian") for container in ITERABLES}
DIFFER.add(("incremental", "Dask"))  # chunk by chunk


@pytest.fixture(scope="module")
def X() -> np.ndarray:
    rng = np.random.default_rng(7)
    rows = rng.standard_normal((N, D)) * np.linspace(4.0, 0.5, D)
    rows[rng.random(rows.shape) < 0.3] = 0.0
    return rows


def held_by_all(X: np.ndarray, folder: Path) -> Iterator[tuple[str, Any]]:
    """Every container that is installed, by name, with the rows in it."""
    np.save(folder / "X.npy", X)
    for name, convert in CONTAINERS.items():
        try:
            held = np.load(folder / "X.npy", mmap_mode="r") if name == "memory map" else convert(X)
        except pytest.skip.Exception:
            continue
        yield name, held


def results(model: Any, new: Any) -> dict[str, np.ndarray]:
    names = ("explained_variance_", "explained_variance_ratio_", "eigenvalues_", "mean_", "components_")
    found = {name: np.asarray(getattr(model, name)) for name in names if hasattr(model, name)}
    return found | {"transform": np.asarray(model.transform(new))}


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.filterwarnings("ignore:X (has|does not have valid) feature names")
def test_every_container_of_the_same_rows_gives_the_same(name: str, X: np.ndarray, tmp_path: Any) -> None:
    expected = results(clone(ESTIMATORS[name]).fit(X), X[:9])
    for container, given in held_by_all(X, tmp_path):
        model = clone(ESTIMATORS[name])
        if words := REFUSED.get((name, container)):
            with pytest.raises((TypeError, ValueError), match=words):
                model.fit(given)
            continue
        model.fit(given)
        if (name, container) in DIFFER:
            continue
        for key, found in results(model, X[:9]).items():
            size = np.max(np.abs(expected[key]))
            # The iterative solvers stop at 1e-13 of the largest eigenvalue: vectors follow by the gaps.
            room = 1e-6 if "randomized" in name or "Nystrom" in name else 3e3 * tolerances.eps("float64")
            np.testing.assert_allclose(found, expected[key], rtol=0, atol=room * size, err_msg=f"{container}: {key}")


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.filterwarnings("ignore:X (has|does not have valid) feature names")
def test_every_container_of_new_rows_gives_the_same_scores(name: str, X: np.ndarray, tmp_path: Any) -> None:
    model = clone(ESTIMATORS[name]).fit(X)
    expected = model.transform(X)
    for container, given in held_by_all(X, tmp_path):
        if container in ITERABLES:
            with pytest.raises(ValueError, match="takes rows, not an iterable of batches"):
                model.transform(given)
        elif REFUSED.get((name, container)) == "sparse" and name == "local":
            with pytest.raises((TypeError, ValueError), match="sparse"):
                model.transform(given)
        else:
            size = np.max(np.abs(expected))
            found = np.asarray(model.transform(given))
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-11 * size, err_msg=container)


def test_a_sparse_set_is_refused_by_its_first_row(X: np.ndarray) -> None:
    class Unread(Bare):
        def __getitem__(self, part: slice) -> Any:
            assert part == slice(0, 1)
            return self.rows[part]

    held = Unread(scipy.sparse.csr_matrix(X))
    for call, words in (
        (LocalPCA(2, 1).fit, r"sparse input. Pass X\[:\]\.toarray\(\)"),
        (KernelPCACV("rbf", n_components=[2]).fit, r"sparse rows .* pass X\[:\]\.toarray\(\)"),
        (IncrementalPCA(2).partial_fit, "sparse input"),
    ):
        with pytest.raises(TypeError, match=words):
            call(held)


def test_rows_and_slices_are_enough_for_a_set(X: np.ndarray) -> None:
    for estimator in (PCA(2), KernelPCA(2, **RBF), LocalPCA(2, 1, random_state=0)):
        expected = results(clone(estimator).fit(X), X)
        for key, found in results(clone(estimator).fit(Bare(X)), Bare(X)).items():
            np.testing.assert_allclose(found, expected[key], rtol=1e-9, atol=1e-9)


class Refilled:
    """Batches in one buffer, as read_direct of h5py, readinto and pinned memory fill it."""

    def __init__(self, rows: Any, size: int, entries: Any = lambda buffer: buffer) -> None:
        self.rows, self.size, self.entries = rows, size, entries

    def __iter__(self) -> Iterator[Any]:
        buffer = np.empty_like(self.rows[: self.size])
        for start in range(0, len(self.rows), self.size):
            buffer[:] = self.rows[start : start + self.size]
            yield self.entries(buffer)
            buffer[:] = np.nan  # also while the next one is read


def refilled_by_all(X: np.ndarray) -> Iterator[tuple[str, Any]]:
    yield "buffer", Refilled(X, 15)
    yield "rows and labels", Refilled(X, 15, lambda buffer: (buffer, np.zeros(15)))
    yield "part of a buffer", Refilled(np.c_[X, X], 15, lambda buffer: buffer[:, : X.shape[1]])
    yield "frame", Refilled(X, 15, lambda buffer: pytest.importorskip("pandas").DataFrame(buffer, copy=False))


def test_batches_may_be_in_one_buffer_that_is_filled_again(X: np.ndarray) -> None:
    doors = {
        **{f"PCA, {solver}": PCA(2, svd_solver=solver, random_state=0) for solver in ("auto", "dual", "full")},
        "PCA, randomized": PCA(2, svd_solver="randomized", tol=1e-12, random_state=0),
        "incremental": IncrementalPCA(2),
        "probabilistic": ProbabilisticPCA(2),
        "Bayesian": BayesianPCA(3),
        "first": KernelPCA(2, eigen_solver=Nystrom(rank=40), random_state=0, **RBF),
        "reservoir": KernelPCA(2, eigen_solver=Nystrom(rank=40, sample="reservoir"), random_state=0, **RBF),
        "numbers": KernelPCA(2, eigen_solver=Nystrom(landmarks=range(20)), **RBF),
    }
    model = KernelPCA(2, **RBF).fit(X)
    for kind, batches in refilled_by_all(X):
        copies = [np.array(batch[0] if isinstance(batch, tuple) else batch) for batch in batches]
        if not np.all(np.isfinite(copies[0])):
            continue
        for name, estimator in doors.items():
            expected = results(clone(estimator).fit(copies), X)
            for source in (batches, iter(batches)):
                if source is not batches and name not in ("incremental", "first", "numbers"):
                    continue  # which read the batches more than once
                for key, found in results(clone(estimator).fit(source), X).items():
                    np.testing.assert_allclose(found, expected[key], rtol=1e-9, atol=1e-11, err_msg=f"{name}, {kind}")
        audit = residuals(model, batches)
        assert np.max(audit.residual_norms) < 1e-10 * model.eigenvalues_[0], kind
        for name in ("first", "incremental"):
            streamed, expected = clone(doors[name]), clone(doors[name])
            for batch, copy in zip(batches, copies, strict=True):
                streamed.partial_fit(batch[0] if isinstance(batch, tuple) else batch)
                expected.partial_fit(copy)
            np.testing.assert_allclose(streamed.transform(X), expected.transform(X), atol=1e-11, err_msg=name)


def graded_rows(shape: tuple[int, int], decay: float, seed: int) -> np.ndarray:
    """Return rows of which columns repeat, with standard deviations that fall by a factor."""
    rng, (n, d) = np.random.default_rng(seed), shape
    return (rng.standard_normal((n, 5)) * decay ** np.arange(5))[:, rng.integers(0, 5, d)]


@pytest.mark.parametrize("shape", [(15, 16), (24, 9), (12, 12)], ids=["wide", "tall", "square"])
@pytest.mark.filterwarnings("ignore::gpukpca.exceptions.GpuKPCAWarning")
def test_components_are_orthonormal_also_those_of_variance_0(shape: tuple[int, int], tmp_path: Any) -> None:
    """Whatever the solver, the container and the rank: an axis of variance 0 has length 1, and no variance."""
    counts = np.random.default_rng(0).integers(0, 4, shape[0])
    counts[:4] = 1
    options: list[tuple[dict[str, Any], np.ndarray]] = [({}, np.ones(shape[0])), ({}, counts)]
    options += [({"center": False}, np.ones(shape[0])), ({"scale": True}, counts)]
    for seed, (decay, dtype) in enumerate(
        [(0.4, "float32"), (0.4, "float32"), (0.4, "float64"), (0.1, "float32"), (1e-3, "float64"), (1e-3, "float32")]
    ):
        X, eps = graded_rows(shape, decay, seed).astype(dtype), np.finfo(dtype).eps
        held = [pair for pair in held_by_all(X, tmp_path) if pair[0] in ("memory map", "CSR", "batches", "Dask")]
        for (parameters, weights), solver in itertools.product(options, SVD_SOLVERS):
            Z = np.repeat(X.astype(np.float64), weights.astype(int), axis=0)
            Z = Z - Z.mean(axis=0) * parameters.get("center", True)
            if parameters.get("scale"):
                Z = Z / np.std(Z, axis=0, ddof=1)
            singular = np.linalg.svd(Z, compute_uv=False)
            some = held if not parameters and seed == 0 else held[:2] if seed > 2 else []
            for name, given in [("array", X), *some]:
                if name == "CSR" and solver in ("full", "tsqr"):
                    continue
                given = list(given) if name == "batches" else given
                model = PCA(svd_solver=solver, random_state=0, **parameters)
                model.fit(given, sample_weight=None if np.all(weights == 1) else weights)
                V = np.asarray(model.components_, dtype=np.float64)
                case = f"{name}, {solver}, {parameters}, {dtype}, seed {seed}, weighted {bool(np.any(weights != 1))}"
                assert np.max(np.abs(V @ V.T - np.eye(len(V)))) <= 100 * eps, case
                found = np.asarray(model.singular_values_, dtype=np.float64)
                room = 300 * eps * singular[0]
                np.testing.assert_allclose(found, singular[: len(found)], rtol=0, atol=room, err_msg=case)
                np.testing.assert_allclose(np.linalg.norm(Z @ V.T, axis=0), found, rtol=0, atol=room, err_msg=case)
