"""Intel's PCA for scikit-learn."""

from benchmarks.cases import Case
from benchmarks.peer import Peer


def pca(case: Case) -> object:
    from sklearnex.decomposition import PCA

    return PCA(case.p)


PEERS = {"sklearnex PCA": Peer(pca, kernels=("rbf",), joins=("growth-pca",), package="scikit-learn-intelex")}
