"""Kernel PCA (and PCA) at large n on GPUs, with the same code on a laptop's CPU."""

from gpukpca import eigen, exceptions, gram, kernels
from gpukpca._version import __version__
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
from gpukpca.persistence import load

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
    "load",
]
