"""KeOps' lazy kernel matrix, whose products are compiled, with ARPACK."""

from typing import Any

import numpy as np

from benchmarks.cases import Case
from benchmarks.peer import Peer


class KeopsArpack:
    def __init__(self, case: Case) -> None:
        self.case = case

    def fit_transform(self, X: Any) -> Any:
        from pykeops.numpy import LazyTensor
        from scipy.sparse.linalg import LinearOperator, eigsh

        K = (-self.case.gamma * ((LazyTensor(X[:, None, :]) - LazyTensor(X[None, :, :])) ** 2).sum(-1)).exp()

        def centered_product(v: Any) -> Any:
            image = K @ (v.reshape(-1, 1) - v.mean())
            return image - image.mean()

        op = LinearOperator((len(X), len(X)), matvec=centered_product, dtype=X.dtype)
        start = np.random.default_rng(0).standard_normal(len(X)).astype(X.dtype)
        values, vectors = eigsh(op, self.case.p, which="LA", tol=self.case.tol, v0=start)
        self.eigenvalues_ = values[::-1]
        return vectors[:, ::-1] * self.eigenvalues_**0.5


PEERS = {
    "KeOps + ARPACK": Peer(
        KeopsArpack, kernels=("rbf",), largest_n=10_000, joins=("growth-n", "growth-p-"), package="pykeops"
    )
}
