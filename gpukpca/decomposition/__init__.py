"""Estimators: scikit-learn's vocabulary over the kernels, operators and solvers below."""

from gpukpca.algorithms.audit import EigenpairAudit
from gpukpca.algorithms.plan import Plan
from gpukpca.algorithms.preimage.result import PreimageInfo
from gpukpca.algorithms.progress import Progress
from gpukpca.decomposition._base import ConvergenceWarning
from gpukpca.decomposition._model_files import load, load_with_notes, save
from gpukpca.decomposition.audit import residuals
from gpukpca.decomposition.diagnostics import (
    IntrinsicDimension,
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

__all__ = [
    "PCA",
    "BayesianPCA",
    "ConvergenceWarning",
    "DistanceConstraintPreimage",
    "EigenpairAudit",
    "FixedPointPreimage",
    "IncrementalPCA",
    "IntrinsicDimension",
    "KernelPCA",
    "LocalPCA",
    "Plan",
    "PreimageInfo",
    "ProbabilisticPCA",
    "Progress",
    "RidgePreimage",
    "inertia",
    "intrinsic_dimension",
    "load",
    "load_with_notes",
    "reconstruction",
    "reconstruction_error",
    "residuals",
    "save",
    "squared_cosines",
]
