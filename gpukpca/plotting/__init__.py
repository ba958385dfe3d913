"""Pictures of fitted models: scores, biplots, spectrum, contours, images, axes and searches.

A Display holds the data of one picture. `from_estimator` computes and draws it, and `plot` draws it again. `ax_` and
`figure_` are the axes and the figure. Only Matplotlib's object interface is used: no pyplot and no global state. A
notebook shows a Display; a script saves it with ``display.figure_.savefig("scores.png")``.
"""

from gpukpca.plotting.axes import AxesDisplay
from gpukpca.plotting.biplot import BiplotDisplay
from gpukpca.plotting.contours import ContoursDisplay
from gpukpca.plotting.figures import plot_fit, plot_images
from gpukpca.plotting.images import ComponentImagesDisplay, ImageRowsDisplay
from gpukpca.plotting.scores import ScoresDisplay
from gpukpca.plotting.search import SearchDisplay
from gpukpca.plotting.spectrum import SpectrumDisplay

__all__ = [
    "AxesDisplay",
    "BiplotDisplay",
    "ComponentImagesDisplay",
    "ContoursDisplay",
    "ImageRowsDisplay",
    "ScoresDisplay",
    "SearchDisplay",
    "SpectrumDisplay",
    "plot_fit",
    "plot_images",
]
