"""Clusters with their principal axes, and the first axis of PCA."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpukpca._formatting import pluralize
from gpukpca._typing import ArrayLike, Vector
from gpukpca.decomposition import PCA, LocalPCA, reconstruction_error
from gpukpca.plotting.display import Display, check_has, host
from gpukpca.plotting.style import INK, LINE, SMALL, check_rows, checked_labels, draw_legend, draw_points, marks, tidy

# Half the length of a segment, in standard deviations along its axis.
DEVIATIONS = 2.0


class LocalDisplay(Display):
    """Rows colored by cluster, the first axis of every cluster, and that of PCA; the title gives the errors of both.

    The plane is that of the features where there are two. Otherwise it is the first principal plane, on which means and
    axes are projected. An axis extends two standard deviations to either side of its mean. The errors are mean squared
    distances of the rows from their reconstruction with p components of their cluster, and of PCA of all rows.

    Parameters
    ----------
    estimator : LocalPCA
        Fitted.
    X : array, shape (n, d), d >= 2
    labels : array, shape (n,), optional
        Colors in place of the predicted clusters.

    Raises
    ------
    ValueError
        Labels that are not one a row.

    See Also
    --------
    gpukpca.LocalPCA : The estimator.

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca import LocalPCA
    >>> from gpukpca.plotting import LocalDisplay
    >>> t = np.linspace(0.0, 6.0, 200)
    >>> X = np.stack([t * np.cos(t), t * np.sin(t)], axis=1)
    >>> model = LocalPCA(n_clusters=4, random_state=0).fit(X)
    >>> display = LocalDisplay.from_estimator(model, X)
    >>> display.ax_.get_xlabel(), display.ax_.get_title().startswith("error")
    ('feature 1', True)
    """

    def __init__(self, estimator: LocalPCA, X: ArrayLike, *, labels: Vector | None = None) -> None:
        check_has(estimator, "n_clusters_", "a fitted LocalPCA")
        rows = host(X)
        check_rows(rows, of="X")
        self.labels: np.ndarray | None = checked_labels(labels, len(rows), "X")
        self.pca: PCA = PCA(estimator.n_components_).fit(rows)
        self.plane: PCA | None = PCA(2).fit(rows) if rows.shape[1] > 2 else None
        self.points: np.ndarray = self._projected(rows)
        self.clusters: np.ndarray = host(estimator.predict(X)).astype(int)
        axes, variances = host(estimator.components_)[:, 0], host(estimator.explained_variance_)[:, 0]
        parts = zip(host(estimator.means_), axes, variances, strict=True)
        self.segments: list[np.ndarray] = [self._segment(*part) for part in parts]
        error = float(np.mean(np.sum((host(estimator.denoise(X)) - rows) ** 2, axis=1)))
        self.title: str = (
            f"error with {pluralize(estimator.n_components_, 'component')}: "
            f"PCA (dashed) {reconstruction_error(self.pca, rows):.3g}, {estimator.n_clusters_} clusters {error:.3g}"
        )

    @classmethod
    def from_estimator(
        cls, estimator: LocalPCA, X: ArrayLike, *, labels: Vector | None = None, ax: Any = None
    ) -> LocalDisplay:
        """Draw a fitted LocalPCA on rows.

        Parameters
        ----------
        estimator : LocalPCA
            Fitted.
        X : array, shape (n, d), d >= 2
        labels : array, shape (n,), optional
            Colors in place of the predicted clusters.
        ax : matplotlib Axes, optional
            Drawn into; a new figure without one.

        Returns
        -------
        LocalDisplay
        """
        return cls(estimator, X, labels=labels).plot(ax)

    def plot(self, ax: Any = None) -> LocalDisplay:
        """Draw clusters and axes into `ax`, matplotlib Axes (None: of a new figure); return the display."""
        ax = self._axes(ax)
        tidy(ax)
        shown = np.array([f"cluster {k}" for k in self.clusters]) if self.labels is None else self.labels
        classes = draw_points(ax, self.points, shown, **marks(len(self.points)) | {"alpha": 0.45})
        whole = self._segment(self.pca.mean_, self.pca.components_[0], float(self.pca.explained_variance_[0]))
        for segment, color, style in [(whole, LINE, "--"), *((segment, INK, "-") for segment in self.segments)]:
            ax.plot(*segment[[0, 2]].T, color=color, linewidth=2.0, linestyle=style, solid_capstyle="round")
            ax.plot(*segment[1:2].T, color=color, marker="o", markersize=4.5)
        ax.set_aspect("equal", adjustable="datalim")
        ax.set_title(self.title, **SMALL)
        for name, number in ((ax.set_xlabel, 1), (ax.set_ylabel, 2)):
            name(f"feature {number}" if self.plane is None else f"component {number} of PCA")
        if self.labels is not None:
            draw_legend(ax, classes)
        return self

    def _projected(self, rows: np.ndarray) -> np.ndarray:
        return rows if self.plane is None else np.asarray(self.plane.transform(rows))

    def _segment(self, mean: np.ndarray, axis: np.ndarray, variance: float) -> np.ndarray:
        """Return start, mean and end of an axis in the plane, shape (3, 2)."""
        steps = DEVIATIONS * np.sqrt(variance) * np.array([[-1.0], [0.0], [1.0]])
        return self._projected(mean[None, :] + steps * axis[None, :])
