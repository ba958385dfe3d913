"""The base of all displays, and the figures they are drawn into."""

from __future__ import annotations

import io
from functools import partial
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from gpukpca._extras import pip_install
from gpukpca.backend.namespace import is_foreign, to_host
from gpukpca.data.gate import as_rows, dask_kind
from gpukpca.data.slicing import dense_rows
from gpukpca.exceptions import InvalidParameterError

# Dots an inch in a notebook, which would show the 200 of a figure twice as large.
NOTEBOOK_DOTS = 96


class Display:
    """A picture and the axes it was last drawn into.

    Attributes
    ----------
    ax_ : matplotlib Axes, or array of Axes
    figure_ : matplotlib Figure
    """

    ax_: Any
    figure_: Any

    def _axes(self, ax: Any, projection: str | None = None) -> Any:
        """Return `ax`, or the axes of a new figure, and keep them."""
        ax = new_figure(5.6, 4.4).add_subplot(projection=projection) if ax is None else ax
        self.ax_ = checked_axes(ax, projection)
        self.figure_ = self.ax_.figure.figure
        return self.ax_

    def _repr_png_(self) -> Any:
        return _image_and_size(self.figure_) if hasattr(self, "figure_") else None


def figure_class() -> Any:
    """Return Matplotlib's Figure.

    Raises
    ------
    ImportError
        Matplotlib is not installed, or its installation is broken.
    """
    try:
        import matplotlib  # noqa: F401
        from matplotlib.figure import Figure
    except Exception as error:  # a broken installation may fail in any way
        raise ImportError(
            f"pictures need Matplotlib, and its import failed ({type(error).__name__}: {error}): {pip_install('plot')}"
        ) from error
    return Figure


def new_figure(width: float, height: float, title: str | None = None) -> Any:
    """Return a figure of this size in inches that lays out its panels and that a notebook shows."""
    make = figure_class()
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = make(figsize=(width, height), dpi=200, layout=ConstrainedLayoutEngine(w_pad=0.1, wspace=0.04))
    # IPython shows only figures of pyplot by itself.
    figure._repr_png_ = partial(_image_and_size, figure)
    if title:
        figure.suptitle(title, fontsize=11, color="#333333", parse_math=False)
    return figure


def checked_axes(ax: Any, projection: str | None = None, needed: str = "") -> Any:
    """Return Axes of Matplotlib with two or three dimensions; raise `InvalidParameterError` for anything else."""
    figure_class()
    from matplotlib.axes import Axes

    flat = needed or "ax must be matplotlib Axes, such as ax=figure.subplots()"
    deep = "three components need ax with three dimensions, such as ax=figure.add_subplot(projection='3d')"
    is_right = isinstance(ax, Axes) and (ax.name == "3d") == (projection == "3d")
    return _checked(ax, is_right, deep if projection else flat)


def checked_figure(figure: Any) -> Any:
    """Return a Figure or SubFigure of Matplotlib; raise `InvalidParameterError` for anything else."""
    figure_class()
    from matplotlib.figure import FigureBase

    needed = "figure must be a matplotlib Figure or SubFigure, such as figure=Figure()"
    return _checked(figure, isinstance(figure, FigureBase), needed)


def _checked(value: Any, is_right: bool, needed: str) -> Any:
    if not is_right:
        raise InvalidParameterError(f"{needed}; got {type(value).__name__}.")
    return value


def on_host(x: Any) -> Any:
    """Return an array of any library as one of NumPy, anything else as it is."""
    return to_host(x) if is_foreign(x) else x


def host(x: Any) -> np.ndarray:
    """Return numbers, or an array of any library, as float64 on the host."""
    return np.asarray(on_host(x), dtype=np.float64)


def drawn_rows(X: Any, name: str = "X") -> np.ndarray:
    """Return rows in any container, finite and at least one, as float64 on the host; errors call them `name`."""
    X = X.compute() if dask_kind(X) == "Array" else X
    return host(dense_rows(as_rows(X, "a picture", name=name, finite=True)))


def ratios_of(estimator: Any) -> np.ndarray:
    """Return the shares of the variance of a fitted estimator, or of the last step of a pipeline."""
    last = estimator[-1] if isinstance(estimator, Pipeline) else estimator
    check_has(last, "explained_variance_ratio_", "a fitted PCA or kernel PCA, or a pipeline that ends in one")
    return host(last.explained_variance_ratio_)


def check_has(estimator: Any, attribute: str, needed: str) -> None:
    """Raise `InvalidParameterError` for an estimator without a fitted attribute."""
    if not hasattr(estimator, attribute):
        raise InvalidParameterError(f"{type(estimator).__name__} has no {attribute}; give {needed}.")


def _image_and_size(figure: Any) -> tuple[bytes, dict[str, int]]:
    """Return a figure as PNG, and the size to show it in."""
    file = io.BytesIO()
    figure.savefig(file, format="png")
    width, height = figure.get_size_inches() * NOTEBOOK_DOTS
    return file.getvalue(), {"width": round(width), "height": round(height)}
