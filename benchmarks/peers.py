"""The contestants, one table. Each imports its library when it is built: a process holds what its contestant needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.cases import KERNELS, Case


class NoDevice(Exception):
    """A library is there and the device that it needs is not."""


@dataclass(frozen=True)
class Peer:
    """One contestant.

    Attributes
    ----------
    build : callable
        Case -> model with ``fit_transform(X)``, and ``transform`` where a case has new points. In the cases about
        single products: with ``fit(X)`` and ``product(V)``.
    place : callable
        NumPy array -> array where the contestant computes; not timed.
    kernels : tuple of str
        Those it has.
    largest_n : int
        Left out above: it would take longer than all others together, or more memory than usual machines have.
    certified : bool
        Its error is asserted; the others' is only recorded.
    on_device : bool
    """

    build: Callable[[Case], Any]
    place: Callable[[np.ndarray], Any] = np.asarray
    kernels: tuple[str, ...] = KERNELS
    largest_n: int = 10**9
    certified: bool = False
    on_device: bool = False


def taking_part(case: Case) -> list[str]:
    """The contestants of a case that have its kernel and can manage its size."""
    return [name for name in case.contestants if case.kernel in PEERS[name].kernels and case.n <= PEERS[name].largest_n]


# -- gpukpca -----------------------------------------------------------------------------------------------------------


def ours(case: Case, **parameters: Any) -> Any:
    from gpukpca import KernelPCA

    settings = {"tol": case.tol, "kernel": case.kernel, "gamma": case.gamma, "degree": 3, "coef0": 1}
    return KernelPCA(case.p, random_state=0, **(settings | parameters))


def ours_in_little_memory(case: Case) -> Any:
    return ours(case, memory_limit=f"{case.limit_mib}MiB")


def ours_nystrom(case: Case) -> Any:
    from gpukpca import Nystrom

    return ours(case, eigen_solver=Nystrom(min(case.rank, case.n)), tol=0)


# -- scikit-learn ------------------------------------------------------------------------------------------------------


def sklearn_exact(case: Case, eigen_solver: str, matched: bool = False) -> Any:
    from sklearn.decomposition import KernelPCA
    from sklearn.metrics.pairwise import pairwise_kernels
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    stored = case.kernel == "laplacian"  # its KernelPCA has no such kernel; its users pass the matrix
    model = KernelPCA(
        case.p,
        kernel="precomputed" if stored else case.kernel,
        gamma=case.gamma,
        degree=3,
        coef0=1,
        eigen_solver=eigen_solver,
        tol=case.tol if matched else 0,
        random_state=0,
    )
    if not stored:
        return model
    matrix = FunctionTransformer(pairwise_kernels, kw_args={"metric": case.kernel, "gamma": case.gamma})
    return make_pipeline(matrix, model)


def sklearn_nystroem(case: Case) -> Any:
    from sklearn.decomposition import PCA
    from sklearn.kernel_approximation import Nystroem
    from sklearn.pipeline import make_pipeline

    rank = min(case.rank, case.n)
    features = Nystroem(case.kernel, gamma=case.gamma, degree=3, coef0=1, n_components=rank, random_state=0)
    return make_pipeline(features, PCA(case.p, random_state=0))


# -- others ------------------------------------------------------------------------------------------------------------


def torchdr(case: Case) -> Any:
    from torchdr import KernelPCA
    from torchdr.affinity import NormalizedGaussianAffinity

    # All instances share the default affinity, its diagonal is zero, and duplicate rows are dropped: none of it is
    # the problem that the others solve.
    affinity = NormalizedGaussianAffinity(sigma=1.0 / case.gamma, zero_diag=False, normalization_dim=None)
    return KernelPCA(affinity, n_components=case.p, process_duplicates=False)


class FullSpectrum:
    """The textbook in one array library: K, double centring, all eigenpairs, the last p of them."""

    def __init__(self, case: Case) -> None:
        self.case = case

    def fit_transform(self, X: Any) -> Any:
        from array_api_compat import array_namespace

        xp = array_namespace(X)
        norms = xp.sum(X * X, axis=1)
        K = X @ X.copy().T  # of a copy: products with one's own transpose crash in some builds of OpenBLAS
        K *= -2
        K += norms[:, None]
        K += norms[None, :]
        K *= -self.case.gamma
        xp.exp(K, out=K)
        means = xp.mean(K, axis=0)
        K -= means[:, None]
        K -= (means - xp.mean(means))[None, :]
        values, vectors = xp.linalg.eigh(K)
        self.eigenvalues_ = values[::-1][: self.case.p]
        return vectors[:, ::-1][:, : self.case.p] * self.eigenvalues_**0.5


def on_cupy(X: np.ndarray) -> Any:
    import cupy

    if not cupy.is_available():
        raise NoDevice("CuPy finds no CUDA device")
    return cupy.asarray(X)


def on_torch_cuda(X: np.ndarray) -> Any:
    import torch

    if not torch.cuda.is_available():
        raise NoDevice("PyTorch finds no CUDA device")
    return torch.as_tensor(X, device="cuda")


# -- single products: the hot loop beside matrix products of its shapes ------------------------------------------------


class Pass:
    """K @ V by tiles."""

    def __init__(self, case: Case, **parameters: Any) -> None:
        self.case, self.parameters = case, parameters

    def fit(self, X: Any) -> Pass:
        from gpukpca.gram import TiledGram
        from gpukpca.kernels import RBF

        self.op = TiledGram(RBF(gamma=self.case.gamma), X, centered=True, **self.parameters)
        return self

    def product(self, V: Any) -> Any:
        return self.op @ V


class DataGemm:
    """X @ Y.T, Y a copy of X: the inner products of a whole K; a pass makes half of them, and everything after them."""

    def __init__(self, case: Case) -> None:
        pass

    def fit(self, X: Any) -> DataGemm:
        self.X, self.Y = X, X.copy()
        self.out = np.zeros((len(X), len(X)), X.dtype)
        return self

    def product(self, V: Any) -> Any:
        np.matmul(self.X, self.Y.T, out=self.out)


class BlockGemm:
    """K @ V for a stored square K."""

    def __init__(self, case: Case) -> None:
        pass

    def fit(self, X: Any) -> BlockGemm:
        self.K = np.ones((len(X), len(X)), X.dtype)
        return self

    def product(self, V: Any) -> Any:
        np.matmul(self.K, V)


PEERS = {
    "gpukpca": Peer(ours, certified=True),
    "gpukpca, little memory": Peer(ours_in_little_memory, certified=True),
    "gpukpca, Nystrom": Peer(ours_nystrom),
    "gpukpca on CuPy": Peer(ours, on_cupy, certified=True, on_device=True),
    "sklearn auto": Peer(partial(sklearn_exact, eigen_solver="auto"), largest_n=10_000),
    "sklearn dense": Peer(partial(sklearn_exact, eigen_solver="dense"), largest_n=10_000),
    "sklearn arpack, default": Peer(partial(sklearn_exact, eigen_solver="arpack"), largest_n=20_000),
    "sklearn arpack, matched": Peer(partial(sklearn_exact, eigen_solver="arpack", matched=True), largest_n=20_000),
    "sklearn randomized, default": Peer(partial(sklearn_exact, eigen_solver="randomized"), largest_n=20_000),
    "sklearn Nystroem + PCA": Peer(sklearn_nystroem),
    "TorchDR": Peer(torchdr, kernels=("rbf",), largest_n=5000),
    "TorchDR on CUDA": Peer(torchdr, on_torch_cuda, kernels=("rbf",), largest_n=20_000, on_device=True),
    "plain NumPy": Peer(FullSpectrum, kernels=("rbf",), largest_n=10_000),
    "plain CuPy": Peer(FullSpectrum, on_cupy, kernels=("rbf",), largest_n=20_000, on_device=True),
    "pass, nothing cached": Peer(partial(Pass, cached_tiles=0), kernels=("rbf",), certified=True),
    "pass, all cached": Peer(partial(Pass, cached_tiles=10**9), kernels=("rbf",), certified=True),
    "GEMM X Y^T": Peer(DataGemm),
    "GEMM K V": Peer(BlockGemm),
}
