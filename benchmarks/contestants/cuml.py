"""The PCA of RAPIDS on a card; it has no kernel PCA."""

from benchmarks.cases import Case
from benchmarks.peer import Peer
from benchmarks.places import Cupy


def pca(case: Case) -> object:
    from cuml.decomposition import PCA

    return PCA(n_components=case.p, output_type="cupy")


PEERS = {"cuML PCA": Peer(pca, Cupy(), kernels=("rbf",), joins=("gpu-pca",), package="cuml-cu13")}
