"""Dask-ML's PCA: a QR of tall data by chunks of rows."""

from benchmarks.cases import Case
from benchmarks.peer import Peer
from benchmarks.places import Chunks


def pca(case: Case) -> object:
    from dask_ml.decomposition import PCA

    return PCA(case.p, svd_solver="tsqr")


PEERS = {"dask-ml PCA": Peer(pca, Chunks(), kernels=("rbf",), joins=("growth-pca",), package="dask-ml")}
