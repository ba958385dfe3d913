"""TorchDR's kernel PCA: the whole kernel matrix and all its eigenpairs."""

from functools import partial

from benchmarks.cases import Case
from benchmarks.peer import Peer
from benchmarks.places import Torch


def kernel_pca(case: Case, device: str = "cpu") -> object:
    from torchdr import KernelPCA
    from torchdr.affinity import NormalizedGaussianAffinity

    # All instances share the default affinity, its diagonal is zero, and duplicate rows are dropped: none of it is
    # the problem that the others solve.
    affinity = NormalizedGaussianAffinity(sigma=1.0 / case.gamma, zero_diag=False, normalization_dim=None)
    return KernelPCA(affinity, n_components=case.p, device=device, process_duplicates=False)


PEERS = {
    "TorchDR": Peer(kernel_pca, kernels=("rbf",), largest_n=5000, joins=("growth-n",), package="torchdr"),
    "TorchDR on CUDA": Peer(
        partial(kernel_pca, device="cuda"), Torch(), ("rbf",), largest_n=20_000, slow=True, package="torchdr"
    ),
}
