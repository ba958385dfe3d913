"""The PCA and the truncated SVD of RAPIDS on a card; it has no kernel PCA."""

from functools import partial
from importlib import import_module
from importlib.metadata import packages_distributions

from benchmarks.cases import Case
from benchmarks.peer import Peer
from benchmarks.places import Cupy


def model(case: Case, name: str) -> object:
    return getattr(import_module("cuml.decomposition"), name)(n_components=case.p, output_type="cupy")


# cuml-cu12, cuml-cu13, or cuml of conda.
package = packages_distributions().get("cuml", ["cuml-cu13"])[0]
PEERS = {
    f"cuML {name}": Peer(partial(model, name=name), Cupy(), kernels=("rbf",), joins=("gpu-pca",), package=package)
    for name in ("PCA", "TruncatedSVD")
}
