"""Estimators: scikit-learn's vocabulary over the kernels, operators and solvers below."""

from gpukpca._former import keep_former_names
from gpukpca.algorithms.audit import Residuals
from gpukpca.decomposition.audit import residuals
from gpukpca.decomposition.diagnostics import (
    inertia,
    intrinsic_dimension,
    reconstruction,
    reconstruction_error,
    squared_cosines,
)
from gpukpca.decomposition.incremental_pca import IncrementalPCA
from gpukpca.decomposition.kernel_pca import KernelPCA
from gpukpca.decomposition.latent_pca import BayesianPCA, ProbabilisticPCA
from gpukpca.decomposition.local_pca import LocalPCA
from gpukpca.decomposition.pca import PCA
from gpukpca.decomposition.preimage.methods import DistanceConstraintPreimage, FixedPointPreimage, RidgePreimage
from gpukpca.decomposition.trusted import TRUSTED_TYPES
from gpukpca.decomposition.variables import loadings, variable_correlations

__all__ = [
    "PCA",
    "TRUSTED_TYPES",
    "BayesianPCA",
    "DistanceConstraintPreimage",
    "FixedPointPreimage",
    "IncrementalPCA",
    "KernelPCA",
    "LocalPCA",
    "ProbabilisticPCA",
    "Residuals",
    "RidgePreimage",
    "inertia",
    "intrinsic_dimension",
    "loadings",
    "reconstruction",
    "reconstruction_error",
    "residuals",
    "squared_cosines",
    "variable_correlations",
]

keep_former_names(__name__)
