"""PyTorch's own PCA on a card: a randomized SVD of the rows, centered or not."""

from functools import partial
from typing import Any

from benchmarks.cases import Case
from benchmarks.peer import Peer
from benchmarks.places import Torch

OVERSAMPLES = 10  # as in scikit-learn's randomized SVD


class LowRank:
    def __init__(self, case: Case, name: str) -> None:
        self.case, self.name = case, name

    def fit(self, X: Any) -> "LowRank":
        import torch

        p = self.case.p
        if self.name == "pca_lowrank":
            self.mean_ = X.mean(dim=0)
        _, values, vectors = getattr(torch, self.name)(X, q=p + OVERSAMPLES)
        self.singular_values_, self.components_ = values[:p], vectors[:, :p].T
        return self


PEERS = {
    f"torch.{name} on CUDA": Peer(partial(LowRank, name=name), Torch(), ("rbf",), joins=("gpu-pca",), package="torch")
    for name in ("pca_lowrank", "svd_lowrank")
}
