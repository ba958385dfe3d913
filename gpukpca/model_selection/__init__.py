"""Choices that the data make: how many components, which kernel."""

from gpukpca._former import keep_former_names
from gpukpca.model_selection.kernel_pca_cv import KernelPCACV
from gpukpca.model_selection.n_components import n_components_for

__all__ = ["KernelPCACV", "n_components_for"]

keep_former_names(__name__)
