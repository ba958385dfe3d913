"""Figures of fitted models: spectrum and scores, images rebuilt and denoised, methods and maps side by side, clusters
with their own axes.

Matplotlib's object interface only: no pyplot, no global state, nothing to show or close. Every function returns the
figure, which a notebook shows; save it with ``figure.savefig("plot.png")``.
"""

from gpukpca.plotting.comparison import plot_comparison
from gpukpca.plotting.components import plot_components
from gpukpca.plotting.denoising import plot_denoised
from gpukpca.plotting.fit import plot_fit
from gpukpca.plotting.geography import plot_map
from gpukpca.plotting.images import plot_eigenimages, plot_images, plot_reconstructions
from gpukpca.plotting.local import plot_local
from gpukpca.plotting.scores import plot_scores
from gpukpca.plotting.search import plot_cv_surface
from gpukpca.plotting.spectrum import plot_spectrum

__all__ = [
    "plot_comparison",
    "plot_components",
    "plot_cv_surface",
    "plot_denoised",
    "plot_eigenimages",
    "plot_fit",
    "plot_images",
    "plot_local",
    "plot_map",
    "plot_reconstructions",
    "plot_scores",
    "plot_spectrum",
]
