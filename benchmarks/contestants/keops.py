"""KeOps' lazy kernel matrix, whose products are compiled, with ARPACK's Lanczos iteration."""

from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.cases import Case
from benchmarks.peer import Peer
from benchmarks.places import Torch, on_host


class KeopsArpack:
    """`library` has the arrays that KeOps takes; those of ARPACK are always on the host."""

    def __init__(self, case: Case, library: str) -> None:
        self.case, self.library = case, library

    def fit_transform(self, X: Any) -> Any:
        from scipy.sparse.linalg import LinearOperator, eigsh

        lazy = import_module(f"pykeops.{self.library}").LazyTensor
        K = (-self.case.gamma * ((lazy(X[:, None, :]) - lazy(X[None, :, :])) ** 2).sum(-1)).exp()
        kind = np.dtype(self.case.dtype)

        def centered_product(v: np.ndarray) -> Any:
            column = v.reshape(-1, 1) - v.mean()
            image = on_host(K @ (column if self.library == "numpy" else X.new_tensor(column)))
            return image - image.mean()

        op = LinearOperator((len(X), len(X)), matvec=centered_product, dtype=kind)
        start = np.random.default_rng(0).standard_normal(len(X)).astype(kind)
        values, vectors = eigsh(op, self.case.p, which="LA", tol=self.case.tol, v0=start)
        self.eigenvalues_ = values[::-1]
        return vectors[:, ::-1] * self.eigenvalues_**0.5


PEERS = {
    "KeOps + ARPACK": Peer(
        partial(KeopsArpack, library="numpy"),
        kernels=("rbf",),
        largest_n=10_000,
        joins=("growth-n", "growth-p-"),
        package="pykeops",
    ),
    "KeOps + ARPACK on CUDA": Peer(
        partial(KeopsArpack, library="torch"), Torch(), ("rbf",), joins=("gpu-lanczos",), package="pykeops"
    ),
}
