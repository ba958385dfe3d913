"""Clusters with axes of their own, beside the one axis of PCA."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpukpca._typing import ArrayLike, Vector
from gpukpca.backend.namespace import to_host
from gpukpca.decomposition import PCA, LocalPCA, reconstruction_error
from gpukpca.plotting.style import (
    INK,
    LINE,
    SMALL,
    draw_classes,
    legend_of,
    marks,
    new_axes,
    tidy,
)

# Half the length of a segment, in standard deviations along its axis.
DEVIATIONS = 2.0


def plot_local(model: LocalPCA, X: ArrayLike, ax: Any = None, labels: Vector | None = None) -> Any:
    """Rows colored by cluster, the first axis of every cluster, and that of PCA; the title has the errors of both.

    The plane is that of the features where there are two, else the first principal plane, on which means and axes are
    projected. An axis is drawn two standard deviations to either side of its mean.

    Parameters
    ----------
    model : LocalPCA
        Fitted.
    X : array, shape (n, d), d >= 2
    ax : matplotlib Axes, optional
        Drawn into; a new figure without one.
    labels : array (n,), optional
        Colors instead of the clusters that the model predicts.

    Returns
    -------
    matplotlib Figure
        Of the axes drawn into.

    Raises
    ------
    ValueError
        Labels that are not one a row.

    Notes
    -----
    The errors are mean squared distances of the rows from what is left of them with the p local components of their
    cluster, and with p components of PCA of all rows.
    """
    rows = np.asarray(to_host(X), dtype=np.float64)
    whole = PCA(model.n_components_).fit(rows)
    plane = PCA(2).fit(rows) if rows.shape[1] > 2 else None
    classes, codes = _classes(model, X, labels)
    ax = new_axes() if ax is None else ax
    tidy(ax)
    points = rows if plane is None else plane.transform(rows)
    draw_classes(ax, points, codes, **marks(len(rows)) | {"alpha": 0.45})
    _segment(ax, plane, whole.mean_, whole.components_[0], float(whole.explained_variance_[0]), LINE, "--")
    means, axes, variances = (to_host(a) for a in (model.means_, model.components_, model.explained_variance_))
    for mean, axis, variance in zip(means, axes[:, 0], variances[:, 0], strict=True):
        _segment(ax, plane, mean, axis, float(variance), INK, "-")
    ax.set_aspect("equal", adjustable="datalim")
    local = float(np.mean(np.sum((to_host(model.denoise(X)) - rows) ** 2, axis=1)))
    ax.set_title(_title(model, reconstruction_error(whole, rows), local), **SMALL)
    for name, number in ((ax.set_xlabel, 1), (ax.set_ylabel, 2)):
        name(f"feature {number}" if plane is None else f"component {number} of PCA")
    if labels is not None:
        legend_of(ax, classes)
    return ax.figure.figure


def _classes(model: LocalPCA, X: Any, labels: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return classes and codes of the labels, by default the clusters."""
    chosen = to_host(model.predict(X)) if labels is None else np.asarray(labels)
    if len(chosen) != len(X):
        raise ValueError(f"{len(chosen)} labels for {len(X)} rows.")
    return np.unique(chosen, return_inverse=True)


def _segment(
    ax: Any, plane: PCA | None, mean: np.ndarray, axis: np.ndarray, variance: float, color: str, style: str
) -> None:
    """Two standard deviations to either side of a mean, seen in the plane."""
    ends = mean[None, :] + DEVIATIONS * np.sqrt(variance) * np.asarray([[-1.0], [1.0]]) * axis[None, :]
    middle = mean[None, :]
    if plane is not None:
        ends, middle = plane.transform(ends), plane.transform(middle)
    ax.plot(*ends.T, color=color, linewidth=2.0, linestyle=style, solid_capstyle="round")
    ax.plot(*middle.T, color=color, marker="o", markersize=4.5)


def _title(model: LocalPCA, whole: float, local: float) -> str:
    """Both errors in words, which explain the dashed line too."""
    p = model.n_components_
    what = "1 component" if p == 1 else f"{p} components"
    return f"error with {what}: PCA (dashed) {whole:.3g}, {model.n_clusters_} clusters {local:.3g}"
