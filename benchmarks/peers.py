"""The contestants, one table: gpukpca and what it needs here, the others from the pages of `benchmarks.contestants`.

Each imports its library when it is built: a process holds what its contestant needs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from array_api_compat import array_namespace

from benchmarks import contestants
from benchmarks.cases import Case
from benchmarks.peer import Peer
from benchmarks.places import Cupy, CupyFromHost, Torch

CUPY, CUPY_FROM_HOST, TORCH = Cupy(), CupyFromHost(), Torch()


def taking_part(case: Case) -> list[str]:
    """Return the contestants of a case, and those that join it, that have its kernel and can manage its size."""
    joining = [name for name, peer in PEERS.items() if case.name.startswith(peer.joins)]
    names = dict.fromkeys((*case.contestants, *joining))
    return [name for name in names if PEERS[name].can_play(case)]


# -- gpukpca -----------------------------------------------------------------------------------------------------------


def ours(case: Case, **parameters: Any) -> Any:
    from gpukpca import KernelPCA

    gamma = None if case.kernel == "cosine" else case.gamma  # which it does not read
    settings = {"tol": case.tol, "kernel": case.kernel, "gamma": gamma, "degree": 3, "coef0": 1}
    return KernelPCA(case.p, random_state=0, **(settings | parameters))


def ours_in_little_memory(case: Case, twin: bool | None = None) -> Any:
    return ours_by_blocks(case, twin=twin).set_params(memory_limit=f"{case.limit_mib}MiB")


def ours_nystrom(case: Case, **parameters: Any) -> Any:
    from gpukpca import Nystrom

    return ours(case, eigen_solver=Nystrom(rank=min(case.rank, case.n), **parameters), tol=0)


def ours_by_blocks(case: Case, **parameters: Any) -> Any:
    """Return a model that always uses block Krylov, with the block of the case."""
    from gpukpca.eigen import BlockKrylov

    return ours(case, eigen_solver=BlockKrylov(tol=case.tol, block_size=case.block, **parameters), tol=0)


class NothingCached:
    """The iterative solver on tiles that are all recomputed in every pass, built from the library's own parts."""

    def __init__(self, case: Case) -> None:
        self.case = case

    def fit_transform(self, X: Any) -> Any:
        from gpukpca.eigen import BlockKrylov, top_eigh
        from gpukpca.gram import CenteredGram
        from gpukpca.kernels import RBF

        case = self.case
        op = CenteredGram.of_kernel(RBF(gamma=case.gamma), X, cached_tiles=0, tile_edge=case.tile_edge)
        self.op = op.base
        solver = BlockKrylov(tol=case.tol, block_size=case.block)
        result = top_eigh(op, case.p, solver=solver, rng=0)
        self.eigenvalues_, self.residual_norms_ = result.eigenvalues, result.residual_norms
        self.n_passes_, self.n_products_, self.solver_ = result.n_passes, result.n_products, result.solver
        return result.eigenvectors * result.eigenvalues[None, :] ** 0.5


def ours_pca(case: Case, share: float | None = None) -> Any:
    from gpukpca import PCA

    return PCA(share or case.p, random_state=0)


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


def sklearn_pca(case: Case, svd_solver: str = "auto", share: float | None = None) -> Any:
    from sklearn.decomposition import PCA

    return PCA(share or case.p, svd_solver=svd_solver, random_state=0)


def sklearn_truncated_svd(case: Case) -> Any:
    from sklearn.decomposition import TruncatedSVD

    return TruncatedSVD(case.p, algorithm="arpack", random_state=0)


def search(case: Case, ours: bool) -> Any:
    from sklearn.model_selection import GridSearchCV

    from gpukpca import KernelPCA
    from gpukpca.model_selection import KernelPCACV

    # From 2^-12 to 2^-5, evenly in logarithms.
    gammas = [2.0 ** (-12 + 7 * i / (case.grid[0] - 1)) for i in range(case.grid[0])]
    components = tuple(case.grid[1:])
    if ours:
        return KernelPCACV("rbf", gammas=gammas, n_components=components, preimage="ridge", cv=5)
    grid = {"gamma": gammas, "n_components": components}
    return GridSearchCV(KernelPCA(kernel="rbf", preimage="ridge"), grid, cv=5)


# -- plain arrays ------------------------------------------------------------------------------------------------------


class FullSpectrum:
    """The textbook in one array library: K, double centering, all eigenpairs, the last p of them."""

    def __init__(self, case: Case) -> None:
        self.case = case

    def fit_transform(self, X: Any) -> Any:
        xp = array_namespace(X)
        norms = xp.sum(X * X, axis=1)
        # Of a copy: products with one's own transpose crash in some builds of OpenBLAS.
        K = X @ xp.asarray(X, copy=True).T
        K *= -2
        K += norms[:, None]
        K += norms[None, :]
        K *= -self.case.gamma
        xp.exp(K, out=K)
        means = xp.mean(K, axis=0)
        K -= means[:, None]
        K -= (means - xp.mean(means))[None, :]
        values, vectors = xp.linalg.eigh(K)
        self.eigenvalues_ = xp.flip(values, axis=0)[: self.case.p]
        return xp.flip(vectors, axis=1)[:, : self.case.p] * self.eigenvalues_**0.5


# -- operators for single products -------------------------------------------------------------------------------------


def tiled(case: Case, **parameters: Any) -> Callable[[Any], Any]:
    """Return a function of X that builds K by tiles."""
    from gpukpca.gram import CenteredGram
    from gpukpca.kernels import RBF

    settings = {"tile_edge": case.tile_edge} | parameters
    return lambda X: CenteredGram.of_kernel(RBF(gamma=case.gamma), X, **settings).base


ALL_TILES = 10**9
SVD_SOLVERS = ("auto", "full", "arpack", "randomized")
PEERS: dict[str, Peer] = {
    "gpukpca": Peer(ours, certified=True),
    "gpukpca, little memory": Peer(ours_in_little_memory, certified=True),
    "gpukpca, little memory, no twin": Peer(partial(ours_in_little_memory, twin=False), certified=True),
    "gpukpca, nothing cached": Peer(NothingCached, kernels=("rbf",), certified=True),
    "gpukpca, Nystrom": Peer(ours_nystrom, bounded=True),
    "gpukpca, Nystrom, uniform": Peer(partial(ours_nystrom, landmarks="uniform"), bounded=True),
    "gpukpca on CuPy": Peer(ours, CUPY, certified=True),
    "gpukpca, NumPy in, on CUDA": Peer(partial(ours, device="cuda"), CUPY_FROM_HOST, certified=True),
    "gpukpca on CuPy, Nystrom": Peer(ours_nystrom, CUPY, bounded=True),
    "gpukpca on CuPy, dense": Peer(partial(ours, eigen_solver="dense"), CUPY, certified=True),
    "gpukpca on CuPy, block Krylov": Peer(ours_by_blocks, CUPY, certified=True),
    "gpukpca on CuPy, twin": Peer(partial(ours_by_blocks, twin=True), CUPY, certified=True),
    "gpukpca on CuPy, no twin": Peer(partial(ours_by_blocks, twin=False), CUPY, certified=True),
    "gpukpca on CuPy, nothing cached": Peer(NothingCached, CUPY, kernels=("rbf",), certified=True),
    "sklearn auto": Peer(partial(sklearn_exact, eigen_solver="auto"), largest_n=10_000),
    "sklearn dense": Peer(partial(sklearn_exact, eigen_solver="dense"), largest_n=10_000),
    "sklearn arpack, matched": Peer(partial(sklearn_exact, eigen_solver="arpack", matched=True), largest_n=20_000),
    "sklearn randomized, default": Peer(partial(sklearn_exact, eigen_solver="randomized"), largest_n=20_000),
    "sklearn Nystroem + PCA": Peer(sklearn_nystroem),
    "gpukpca PCA": Peer(ours_pca, kernels=("rbf",), certified=True),
    "gpukpca PCA, 95 %": Peer(partial(ours_pca, share=0.95), kernels=("rbf",), certified=True),
    "gpukpca PCA on CuPy": Peer(ours_pca, CUPY, kernels=("rbf",), certified=True),
    **{
        f"sklearn PCA {solver}": Peer(partial(sklearn_pca, svd_solver=solver), kernels=("rbf",), largest_d=largest_d)
        for solver, largest_d in {"covariance_eigh": 5000, **dict.fromkeys(SVD_SOLVERS, 10**9)}.items()
    },
    "sklearn PCA, 95 %": Peer(partial(sklearn_pca, share=0.95), kernels=("rbf",)),
    "sklearn TruncatedSVD": Peer(sklearn_truncated_svd, kernels=("rbf",)),
    "gpukpca KernelPCACV": Peer(partial(search, ours=True)),
    "sklearn GridSearchCV": Peer(partial(search, ours=False)),
    "plain NumPy": Peer(FullSpectrum, kernels=("rbf",), largest_n=10_000),
    "plain CuPy": Peer(FullSpectrum, CUPY, kernels=("rbf",), largest_n=20_000, slow=True),
    "plain torch on CUDA": Peer(FullSpectrum, TORCH, ("rbf",), largest_n=20_000, slow=True, package="torch"),
    "pass, nothing cached, on CuPy": Peer(partial(tiled, cached_tiles=0), CUPY, kernels=("rbf",), certified=True),
    "pass, all cached, on CuPy": Peer(partial(tiled, cached_tiles=ALL_TILES), CUPY, kernels=("rbf",), certified=True),
}
contestants.check_apart("*", contestants.PEERS, PEERS)
PEERS |= contestants.PEERS
