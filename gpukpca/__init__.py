"""Kernel PCA (and PCA) at large n on GPUs, with the same code on a laptop's CPU."""

from gpukpca import eigen, exceptions, gram, kernels
from gpukpca.decomposition import KernelPCA, Plan, Progress
from gpukpca.eigen import Nystrom

__version__ = "0.3.0"

__all__ = ["KernelPCA", "Nystrom", "Plan", "Progress", "__version__", "eigen", "exceptions", "gram", "kernels"]
