"""Choices that the data make: how many components, which kernel."""

from gpukpca.model_selection.kernel_pca_cv import KernelPCACV
from gpukpca.model_selection.n_components import RankSelection, n_components_for

__all__ = ["KernelPCACV", "RankSelection", "n_components_for"]
