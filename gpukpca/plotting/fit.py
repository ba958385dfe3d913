"""The standard figure of a fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpukpca._typing import ArrayLike, Vector
from gpukpca.plotting.scores import plot_scores
from gpukpca.plotting.spectrum import plot_spectrum
from gpukpca.plotting.style import new_figure


def plot_fit(
    model: Any,
    scores: ArrayLike,
    labels: Vector | None = None,
    names: Sequence[str] | None = None,
    title: str | None = None,
) -> Any:
    """Spectrum and scores side by side.

    Parameters
    ----------
    model : fitted estimator
    scores : array, shape (n, p)
    labels, names : see `plot_scores`
    title : str, optional

    Returns
    -------
    matplotlib Figure
    """
    figure = new_figure(10.0, 4.4, title)
    left, right = figure.subplots(1, 2, width_ratios=(1.0, 1.35))
    plot_spectrum(model, left)
    plot_scores(scores, model.explained_variance_ratio_, labels, names, right)
    return figure
