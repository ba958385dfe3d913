"""The PCA of RAPIDS on a card; it has no kernel PCA."""

from importlib.metadata import packages_distributions

from benchmarks.cases import Case
from benchmarks.peer import Peer
from benchmarks.places import Cupy


def pca(case: Case) -> object:
    from cuml.decomposition import PCA

    return PCA(n_components=case.p, output_type="cupy")


# cuml-cu12, cuml-cu13, or cuml of conda.
package = packages_distributions().get("cuml", ["cuml-cu13"])[0]
PEERS = {"cuML PCA": Peer(pca, Cupy(), kernels=("rbf",), joins=("gpu-pca",), package=package)}
