"""Estimators: scikit-learn's vocabulary over the kernels, operators and solvers below."""

from gpukpca.decomposition.kernel_pca import KernelPCA
from gpukpca.decomposition.plan import Plan
from gpukpca.decomposition.progress import Progress

__all__ = ["KernelPCA", "Plan", "Progress"]
