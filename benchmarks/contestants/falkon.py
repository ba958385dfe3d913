"""Falkon's kernel and centers, with the PCA of the features that Nyström's method makes of them."""

from typing import Any

import numpy as np

from benchmarks.cases import Case
from benchmarks.peer import Peer


class FalkonNystrom:
    def __init__(self, case: Case) -> None:
        self.case = case

    def fit_transform(self, X: Any) -> Any:
        import torch
        from falkon import FalkonOptions
        from falkon.center_selection import UniformSelector
        from falkon.kernels import GaussianKernel
        from sklearn.decomposition import PCA

        options = FalkonOptions(keops_active="no", use_cpu=True)
        kernel = GaussianKernel(float(self.case.gamma * 2.0) ** -0.5, opt=options)
        rows = torch.from_numpy(X)
        centers = UniformSelector(np.random.default_rng(0), min(self.case.rank, len(X))).select(rows, None)
        values, vectors = torch.linalg.eigh(kernel(centers, centers))
        floor = values[-1] * len(values) * torch.finfo(values.dtype).eps
        root = vectors / torch.clamp(values, min=floor) ** 0.5
        model = PCA(self.case.p, random_state=0)
        scores = model.fit_transform((kernel(rows, centers) @ root).numpy())
        self.eigenvalues_ = model.singular_values_**2
        return scores


INSTALL = "pip install --no-build-isolation git+https://github.com/FalkonML/falkon"
PEERS = {
    "falkon's Nystrom + PCA": Peer(
        FalkonNystrom, kernels=("rbf",), joins=("accuracy-rank",), package="falkon", install=INSTALL
    )
}
