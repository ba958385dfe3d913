"""The PCA of RAPIDS on a card; it has no kernel PCA."""

from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

from benchmarks.cases import Case
from benchmarks.peer import Peer
from benchmarks.places import Cupy


def pca(case: Case) -> object:
    from cuml.decomposition import PCA

    return PCA(n_components=case.p, output_type="cupy")


package = "cuml-cu13"
with suppress(PackageNotFoundError):
    package = version("cuml-cu12") and "cuml-cu12"
PEERS = {"cuML PCA": Peer(pca, Cupy(), kernels=("rbf",), joins=("gpu-pca",), package=package)}
