"""Numerical work as functions of arrays and frozen settings; nothing here knows scikit-learn or an estimator."""

from gpukpca.algorithms.kernel_pca.fit import fit_kernel_pca
from gpukpca.algorithms.kernel_pca.model import KernelPCAFit
from gpukpca.algorithms.kernel_pca.settings import KernelPCASettings
from gpukpca.algorithms.latent.fit import fit_bayesian_pca, fit_probabilistic_pca
from gpukpca.algorithms.latent.model import LatentFit
from gpukpca.algorithms.latent.settings import LatentSettings
from gpukpca.algorithms.mixture.fit import fit_local_pca
from gpukpca.algorithms.mixture.model import MixtureFit
from gpukpca.algorithms.mixture.settings import MixtureSettings
from gpukpca.algorithms.pca.fit import fit_pca
from gpukpca.algorithms.pca.incremental import IncrementalFit, IncrementalState, update_pca
from gpukpca.algorithms.pca.model import PCAFit
from gpukpca.algorithms.pca.settings import PCASettings
from gpukpca.algorithms.pca.streaming import fit_pca_batches
from gpukpca.algorithms.resources import Resources

__all__ = [
    "IncrementalFit",
    "IncrementalState",
    "KernelPCAFit",
    "KernelPCASettings",
    "LatentFit",
    "LatentSettings",
    "MixtureFit",
    "MixtureSettings",
    "PCAFit",
    "PCASettings",
    "Resources",
    "fit_bayesian_pca",
    "fit_kernel_pca",
    "fit_local_pca",
    "fit_pca",
    "fit_pca_batches",
    "fit_probabilistic_pca",
    "update_pca",
]
