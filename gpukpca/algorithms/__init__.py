"""Numerical work as functions of arrays and frozen settings: nothing here knows scikit-learn or an estimator."""

from gpukpca.algorithms.pca.fit import fit_pca
from gpukpca.algorithms.pca.model import PCAFit
from gpukpca.algorithms.pca.settings import PCASettings
from gpukpca.algorithms.resources import Resources

__all__ = ["PCAFit", "PCASettings", "Resources", "fit_pca"]
