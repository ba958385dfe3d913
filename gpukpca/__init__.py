"""Kernel PCA (and PCA) at large n on GPUs, with the same code on a laptop's CPU."""

from gpukpca import eigen, exceptions, gram, kernels
from gpukpca.decomposition import (
    PCA,
    BayesianPCA,
    IncrementalPCA,
    KernelPCA,
    LocalPCA,
    PCAPlan,
    Plan,
    ProbabilisticPCA,
    Progress,
)
from gpukpca.eigen import Nystrom

__version__ = "0.4.0"

__all__ = [
    "PCA",
    "BayesianPCA",
    "IncrementalPCA",
    "KernelPCA",
    "LocalPCA",
    "Nystrom",
    "PCAPlan",
    "Plan",
    "ProbabilisticPCA",
    "Progress",
    "__version__",
    "eigen",
    "exceptions",
    "gram",
    "kernels",
]
