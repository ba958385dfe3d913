"""Fitted models of every kind, their files, and changes to the files."""

from __future__ import annotations

import copy
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone

from gpukpca import PCA, BayesianPCA, IncrementalPCA, KernelPCA, LocalPCA, Nystrom, ProbabilisticPCA, kernels
from gpukpca._container import read_container
from gpukpca.decomposition import DistanceConstraintPreimage, FixedPointPreimage, RidgePreimage
from gpukpca.decomposition._model_files import restored
from gpukpca.eigen import BlockKrylov
from gpukpca.persistence.model_file import KIND


def data(n: int = 30, d: int = 4, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) * 0.8 ** np.arange(d)


def holes() -> np.ndarray:
    X = data()
    X[np.random.default_rng(1).random(X.shape) < 0.1] = np.nan
    return X


def stretched(X: np.ndarray) -> np.ndarray:
    """Two features that matter, and noise."""
    return X * np.asarray([9.0, 3.0, 0.1, 0.1])


def frame() -> Any:
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame(data(), columns=["one", "two", "three", "four ü"])


COMBINED = 0.5 * kernels.RBF() + kernels.Linear() * kernels.Polynomial(degree=2) ** 2 + kernels.exp(kernels.Cosine())
# name -> (estimator, data)
MODELS: dict[str, tuple[Any, Callable[[], Any]]] = {
    "linear": (KernelPCA(2), data),
    "linear, inverse": (KernelPCA(2, fit_inverse_transform=True), data),
    "rbf, inverse": (KernelPCA(3, kernel="rbf", gamma="scale", fit_inverse_transform=True, random_state=3), data),
    "flat": (KernelPCA(3, kernel="rbf", gamma=1e-5), data),
    "far out": (KernelPCA(3, kernel="rbf", gamma=1.0), lambda: 1e5 * data()),
    "constant features": (KernelPCA(3, kernel="rbf"), lambda: np.pad(data(), ((0, 0), (2, 2)))),
    "poly": (KernelPCA(3, kernel="poly", degree=2, n_jobs=1), data),
    "sigmoid": (KernelPCA(2, kernel="sigmoid", gamma=0.01), data),
    "cosine": (KernelPCA(kernel="cosine"), data),
    "laplacian": (KernelPCA(2, kernel="laplacian"), data),
    "matern": (KernelPCA(2, kernel="matern", kernel_params={"nu": np.inf}), data),
    "matern, a kink": (KernelPCA(2, kernel="matern", kernel_params={"nu": 0.5}), data),
    "rational quadratic": (KernelPCA(2, kernel="rational_quadratic", kernel_params={"alpha": 2}), data),
    "combined": (KernelPCA(2, kernel=COMBINED), data),
    "precomputed": (KernelPCA(2, kernel="precomputed"), lambda: data() @ data().T),
    "precomputed, Nyström": (
        KernelPCA(2, kernel="precomputed", eigen_solver=Nystrom(rank=9), random_state=0),
        lambda: np.exp(-((data()[:, None, 0] - data()[None, :, 0]) ** 2)),
    ),
    "Nyström": (KernelPCA(2, kernel="rbf", eigen_solver=Nystrom(rank=9), random_state=0), data),
    "Nyström, chosen": (KernelPCA(2, kernel="rbf", eigen_solver=Nystrom(landmarks=np.arange(0, 27, 3))), data),
    "Nyström, flat": (KernelPCA(2, kernel="rbf", gamma=1e-5, eigen_solver="nystrom", random_state=0), data),
    "Nyström, combined": (
        KernelPCA(2, kernel=kernels.RBF(1e-5) + kernels.Laplacian(1e-5), eigen_solver=Nystrom(rank=9), random_state=0),
        data,
    ),
    "block Krylov": (KernelPCA(2, kernel="rbf", eigen_solver=BlockKrylov(tol=1e-10, start=np.ones((30, 1)))), data),
    "sparse": (KernelPCA(2, kernel="rbf"), lambda: scipy.sparse.random(30, 6, 0.4, format="csr", random_state=0)),
    "sparse array": (KernelPCA(2), lambda: scipy.sparse.random_array((30, 6), density=0.4, format="csr", rng=0)),
    "frame": (KernelPCA(2, kernel="rbf"), frame),
    "float32": (KernelPCA(2, kernel="rbf", fit_inverse_transform=True), lambda: data().astype(np.float32)),
    "one sample": (KernelPCA(1, kernel="rbf"), lambda: data(1)),
    "no variance": (KernelPCA(2, kernel="rbf"), lambda: np.ones((5, 2))),
    "nothing left": (KernelPCA(kernel="rbf"), lambda: np.ones((5, 2))),
    "more than the rank": (KernelPCA(7), data),
    "ridge": (KernelPCA(3, kernel="rbf", preimage="ridge"), data),
    "ridge, another kernel": (
        KernelPCA(3, kernel="laplacian", preimage=RidgePreimage(kernels.RBF("scale") + kernels.Linear(), alpha=0.1)),
        data,
    ),
    "ridge, not centered": (
        KernelPCA(3, kernel="poly", degree=2, preimage=RidgePreimage("poly", 0.5, centered=False)),
        data,
    ),
    "ridge, landmarks": (KernelPCA(3, kernel="rbf", preimage=RidgePreimage(gamma="scale", n_landmarks=8)), data),
    "ridge, Nyström": (
        KernelPCA(2, kernel="rbf", preimage="ridge", eigen_solver=Nystrom(rank=9), random_state=0),
        lambda: data().astype(np.float32),
    ),
    "fixed point": (KernelPCA(3, kernel="rbf", preimage="fixed_point"), data),
    "fixed point, another slope": (
        KernelPCA(3, kernel=2.0 * kernels.Matern(0.3, 1.5), preimage=FixedPointPreimage(max_iter=500, tol=1e-3)),
        lambda: np.asfortranarray(data()),
    ),
    "fixed point, Nyström": (
        KernelPCA(2, kernel="rbf", preimage="fixed_point", eigen_solver=Nystrom(rank=9), random_state=0),
        lambda: data().astype(np.float32),
    ),
    "distance constraint": (KernelPCA(3, kernel="rbf", preimage="distance_constraint"), data),
    "distance constraint, poly": (KernelPCA(3, kernel="poly", preimage=DistanceConstraintPreimage(5)), data),
    "distance constraint, Nyström": (
        KernelPCA(2, kernel="rbf", preimage="distance_constraint", eigen_solver=Nystrom(rank=9), random_state=0),
        data,
    ),
    "linear, by any method": (KernelPCA(2, preimage="fixed_point"), data),
    "linear, Nyström, inverse": (
        KernelPCA(2, preimage="ridge", eigen_solver=Nystrom(rank=4), random_state=0),
        lambda: data() + 5.0,
    ),
    "PCA": (PCA(2), data),
    "PCA, scaled and whitened": (PCA(0.9, scale=True, whiten=True), data),
    "PCA, given scale": (PCA(2, scale=np.arange(1.0, 5.0), memory_limit="1GiB"), data),
    "PCA, dual": (PCA(2), lambda: data(6, 20)),
    "PCA, randomized": (PCA(2, svd_solver="randomized", random_state=0), lambda: data(60, 40)),
    "PCA, sparse": (PCA(2), lambda: scipy.sparse.random(30, 6, 0.4, format="csr", random_state=0)),
    "PCA, float32": (PCA("mle"), lambda: data().astype(np.float32)),
    "PCA, frame": (PCA(2, scale=True), frame),
    "PCA, none": (PCA(0), data),
    "incremental": (IncrementalPCA(2, batch_size=10, whiten=True), data),
    "probabilistic": (ProbabilisticPCA(2, random_state=0), data),
    "probabilistic, holes": (ProbabilisticPCA(2, tol=1e-4, random_state=0), holes),
    "probabilistic, sparse": (
        ProbabilisticPCA(2, solver="em", random_state=0),
        lambda: scipy.sparse.random(30, 6, 0.4, format="csr", random_state=0),
    ),
    "probabilistic, float32 frame": (ProbabilisticPCA(2, ddof=0, random_state=0), lambda: frame().astype(np.float32)),
    "probabilistic, no variance": (ProbabilisticPCA(1, solver="em", random_state=0), lambda: np.ones((5, 3))),
    "Bayesian": (BayesianPCA(random_state=0), lambda: stretched(data())),
    "Bayesian, EM": (
        BayesianPCA(2, solver="em", tol=1e-3, random_state=0),
        lambda: stretched(holes()),
    ),
    "Bayesian, none left": (BayesianPCA(random_state=0), lambda: np.random.default_rng(0).standard_normal((30, 4))),
    "local": (LocalPCA(2, 1, n_init=1, random_state=0), data),
    "local, hard": (LocalPCA(range(1, 4), [1, 2], method="hard", n_init=1, random_state=0), data),
    "local, wide": (LocalPCA(2, np.asarray([2]), random_state=0), lambda: data(12, 20)),
    "local, float32 frame": (LocalPCA(3, "bic", n_init=1, random_state=0), lambda: frame().astype(np.float32)),
}


def fitted(name: str) -> tuple[Any, Any]:
    """Return a fitted model and its data."""
    estimator, make = MODELS[name]
    X = make()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return clone(estimator).fit(X), X


Header = dict[str, Any]
Arrays = dict[str, np.ndarray]


@cache
def parts(name: str) -> tuple[Header, Arrays]:
    """Header and arrays of the file of a model."""
    with tempfile.TemporaryDirectory() as folder:
        fitted(name)[0].save(f"{folder}/m")
        return read_container(f"{folder}/m", KIND)


def changed(name: str, change: Callable[[Header, Arrays], Any]) -> Any:
    """Return what the file of a model is read as after a change to its header or arrays."""
    header, arrays = copy.deepcopy(parts(name))
    change(header, arrays)
    return restored(header, arrays)[0]


def put(header: Header, path: str, value: Any) -> None:
    """Set a value of a header, such as put(header, "steps.0.fit.map.mean_norm", 1.0)."""
    *folders, last = path.split(".")
    for folder in folders:
        header = header[int(folder) if isinstance(header, list) else folder]
    header[int(last) if isinstance(header, list) else last] = value


def get(header: Header, path: str) -> Any:
    """Return a value of a header."""
    for folder in path.split("."):
        header = header[int(folder) if isinstance(header, list) else folder]
    return header


def paths(node: Any, start: str = "") -> list[str]:
    """Return the paths of all values of a header that are no lists or objects."""
    if not isinstance(node, (dict, list)):
        return [start]
    items = node.items() if isinstance(node, dict) else enumerate(node)
    return [path for key, part in items for path in paths(part, f"{start}.{key}" if start else str(key))]


# Models that together have every shape of a file.
DIVERSE = ["combined", "ridge, landmarks", "fixed point, another slope", "distance constraint"]
DIVERSE += ["linear, by any method", "block Krylov", "PCA", "incremental", "Bayesian, EM", "local, hard"]
