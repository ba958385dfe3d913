"""Numerical work as functions of arrays and frozen settings; nothing here knows scikit-learn or an estimator."""

from gpukpca.algorithms.kernel_pca.fit import fit_kernel_pca
from gpukpca.algorithms.kernel_pca.model import KernelPCAFit
from gpukpca.algorithms.kernel_pca.settings import KernelPCASettings
from gpukpca.algorithms.pca.fit import fit_pca
from gpukpca.algorithms.pca.model import PCAFit
from gpukpca.algorithms.pca.settings import PCASettings
from gpukpca.algorithms.resources import Resources

__all__ = [
    "KernelPCAFit",
    "KernelPCASettings",
    "PCAFit",
    "PCASettings",
    "Resources",
    "fit_kernel_pca",
    "fit_pca",
]
