"""Images before and after denoising, one row a method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gpukpca._typing import ArrayLike
from gpukpca.backend.namespace import to_host
from gpukpca.plotting.images import GRAY, check_image_shape, show_image
from gpukpca.plotting.style import SMALL, new_figure

# Space between images, in inches and in shares of one.
NARROW = {"w_pad": 0.02, "h_pad": 0.02, "wspace": 0.0, "hspace": 0.0}


def plot_denoised(
    rows: Mapping[str, ArrayLike],
    image_shape: tuple[int, int],
    errors: Mapping[str, float] | None = None,
    title: str | None = None,
    figure: Any = None,
    grays: str | None = None,
) -> Any:
    """The same images in rows: as they are, with noise, and as every method gives them back.

    Parameters
    ----------
    rows : mapping of str to array, shape (m, d)
        Name of the row and its m images. Pixels that are NaN stay white.
    image_shape : (int, int)
        Rows and columns of an image; their product is d.
    errors : mapping of str to float, optional
        Written below the names of the rows that have one, such as the mean squared error.
    title : str, optional
    figure : matplotlib Figure or SubFigure, optional
        Drawn into; a new one without.
    grays : str, optional
        Name of the row whose least and largest pixel are black and white; the first without it. Of noisy images the
        extremes are noise, and on their scale all others look pale.

    Returns
    -------
    matplotlib Figure or SubFigure

    Raises
    ------
    ValueError
        No rows, rows of different shapes, a shape that is not that of the features, or no row named `grays`.
    """
    images = {name: np.asarray(to_host(row), dtype=np.float64) for name, row in rows.items()}
    shapes = {row.shape for row in images.values()}
    if len(shapes) != 1 or len(next(iter(shapes))) != 2:
        raise ValueError(f"rows must be arrays of one shape (m, d); got {sorted(shapes)}.")
    count, d = shapes.pop()
    check_image_shape(image_shape, d)
    low, high = _black_and_white(images, next(iter(images)) if grays is None else grays)
    figure = new_figure(0.62 * count + 1.4, 0.62 * len(images) + 0.4) if figure is None else figure
    if title:
        figure.suptitle(title, **SMALL)
    figure.get_layout_engine().set(**NARROW)
    axes = figure.subplots(len(images), count, squeeze=False)
    for line, (name, row) in zip(axes, images.items(), strict=True):
        for ax, image in zip(line, row, strict=True):
            show_image(ax, image.reshape(image_shape), GRAY, low, high)
        label = name if errors is None or name not in errors else f"{name}\n{errors[name]:.3f}"
        line[0].set_ylabel(label, rotation=0, ha="right", va="center", **SMALL)
    return figure


def _black_and_white(images: Mapping[str, np.ndarray], name: str) -> tuple[float, float]:
    """The least and the largest pixel of a row."""
    if name not in images:
        raise ValueError(f"grays={name!r} is no row; give one of {', '.join(images)}.")
    return float(np.nanmin(images[name])), float(np.nanmax(images[name]))
