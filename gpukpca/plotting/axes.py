"""Rows with their principal axes: those of PCA, or of the clusters of local PCA."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpukpca._formatting import pluralize
from gpukpca._typing import ArrayLike, Vector
from gpukpca.decomposition import PCA, reconstruction, reconstruction_error
from gpukpca.plotting.display import Display, check_has, drawn_rows, host, ratios_of
from gpukpca.plotting.labels import UNKNOWN, ColorScale, Groups, groups_of, read_labels
from gpukpca.plotting.legends import draw_legend
from gpukpca.plotting.names import write_names
from gpukpca.plotting.style import (
    INK,
    LINE,
    SMALL,
    draw_points,
    marks,
    tidy,
)

# Half the length of a segment, in standard deviations along its axis.
DEVIATIONS = 2.0
# Size of the mark of a mean.
MEAN = 4.5
# Rows from which lines lead to a single axis.
MAX_FEET = 200


class AxesDisplay(Display):
    """Rows with the axes of a PCA; or of local PCA, colored by cluster, with the first axis of every cluster.

    The plane is that of the features where there are two, with the names of a data frame of fit. Otherwise it is the
    first principal plane, on which means and axes are projected. An axis extends two standard deviations to either side
    of its mean. To the axis of a PCA of one component, lines lead from up to 200 rows: their squared lengths are what
    PCA minimizes. The title gives shares of the variance. Of local PCA it gives the mean squared distances of the rows
    from their reconstruction with p components of their cluster, and of PCA of all rows, whose first axis is dashed.

    Parameters
    ----------
    estimator : PCA or LocalPCA
        Fitted; of scikit-learn too.
    X : array, shape (n, d), d >= 2
    labels : array, shape (n,), optional
        Colors with a legend; clusters then have names at their means. Default: the predicted clusters, or one color.

    Raises
    ------
    ValueError
        A model without axes in data space; labels that are not one a row.

    See Also
    --------
    gpukpca.PCA, gpukpca.LocalPCA : The estimators.
    BiplotDisplay : Scores with the features as arrows.

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca import PCA, LocalPCA
    >>> from gpukpca.plotting import AxesDisplay
    >>> t = np.linspace(0.0, 6.0, 200)
    >>> X = np.stack([t * np.cos(t), t * np.sin(t)], axis=1)
    >>> AxesDisplay.from_estimator(PCA().fit(X), X).ax_.get_title()
    'axes with 65.5 %, 34.5 % of the variance'
    >>> display = AxesDisplay.from_estimator(LocalPCA(n_clusters=4, random_state=0).fit(X), X)
    >>> display.ax_.get_xlabel(), len(display.segments)
    ('feature 1', 4)
    """

    def __init__(self, estimator: Any, X: ArrayLike, *, labels: Vector | None = None) -> None:
        check_has(estimator, "components_", "a fitted PCA or LocalPCA, which has axes in data space")
        rows = drawn_rows(X)
        self.labels: Groups | ColorScale | None = read_labels(labels, len(rows), "X")
        self.features: list[str] = list(getattr(estimator, "feature_names_in_", ("feature 1", "feature 2")))
        scale = getattr(estimator, "scale_", None)
        scale = np.ones(rows.shape[1]) if scale is None else host(scale)
        self.plane: PCA | None = PCA(2, scale=scale).fit(rows) if rows.shape[1] > 2 else None
        # Axes of standardized features are orthogonal where a standard deviation is one length across and up.
        self.aspect: float = 1.0 if self.plane else scale[0] / scale[1]
        self.points: np.ndarray = self._projected(rows)
        self.pca: PCA | None = None
        self.groups: Groups | None = None  # clusters
        self.feet: np.ndarray | None = None
        axes, variances = host(estimator.components_), host(estimator.explained_variance_)
        if hasattr(estimator, "n_clusters_"):
            parts = zip(host(estimator.means_), axes[:, 0], variances[:, 0], strict=True)
            self._compare_clusters(estimator, X, rows)
        else:
            parts = zip([host(estimator.mean_)] * 2, axes[:2] * scale, variances[:2], strict=False)
            shares = ", ".join(f"{100 * ratio:.1f} %" for ratio in ratios_of(estimator)[:2])
            self.title: str = f"{'axes' if len(axes) > 1 else 'axis'} with {shares} of the variance"
            if len(axes) == 1 and len(rows) <= MAX_FEET:
                self.feet = self._projected(host(reconstruction(estimator, X)))
        self.segments: list[np.ndarray] = [self._segment(*part) for part in parts]

    def _compare_clusters(self, estimator: Any, X: ArrayLike, rows: np.ndarray) -> None:
        """Set the clusters, PCA of all rows, and both errors as a title."""
        self.pca = PCA(estimator.n_components_).fit(rows)
        names = [f"cluster {k}" for k in range(estimator.n_clusters_)]
        self.groups = groups_of(names, host(estimator.predict(X)).astype(int))
        error = float(np.mean(np.sum((host(estimator.denoise(X)) - rows) ** 2, axis=1)))
        self.title = (
            f"squared error with {pluralize(estimator.n_components_, 'component')}: "
            f"PCA (dashed) {reconstruction_error(self.pca, rows):.3g}, {estimator.n_clusters_} clusters {error:.3g}"
        )

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: ArrayLike, *, labels: Vector | None = None, ax: Any = None
    ) -> AxesDisplay:
        """Draw the axes of a fitted PCA or LocalPCA among rows.

        Parameters
        ----------
        estimator : PCA or LocalPCA
            Fitted; of scikit-learn too.
        X : array, shape (n, d), d >= 2
        labels : array, shape (n,), optional
            See the class.
        ax : matplotlib Axes, optional
            Drawn into; a new figure without one.

        Returns
        -------
        AxesDisplay
        """
        return cls(estimator, X, labels=labels).plot(ax)

    def plot(self, ax: Any = None) -> AxesDisplay:
        """Draw rows and axes into `ax`, matplotlib Axes (None: of a new figure); return the display."""
        ax = self._axes(ax)
        tidy(ax)
        shown = self.labels or self.groups
        if self.feet is not None:
            lines = np.stack([self.points, self.feet, np.full_like(self.feet, np.nan)], axis=1).reshape(-1, 2)
            ax.plot(*lines.T, color=UNKNOWN, linewidth=0.8, zorder=0)
        draw_points(ax, self.points, shown, **marks(len(self.points)) | {"alpha": 0.45})
        drawn = [(segment, INK, "-") for segment in self.segments]
        if self.pca is not None:
            whole = self._segment(self.pca.mean_, self.pca.components_[0], float(self.pca.explained_variance_[0]))
            drawn.insert(0, (whole, LINE, "--"))
        for segment, color, style in drawn:
            ax.plot(*segment[[0, 2]].T, color=color, linewidth=2.0, linestyle=style, solid_capstyle="round")
            ax.plot(*segment[1:2].T, color=color, marker="o", markersize=MEAN)
        ax.set_aspect(self.aspect, adjustable="datalim")
        ax.set_title(self.title, **SMALL)
        for write, number in ((ax.set_xlabel, 1), (ax.set_ylabel, 2)):
            text = self.features[number - 1] if self.plane is None else f"component {number} of PCA"
            write(text, parse_math=False)
        draw_legend(ax, shown)
        if self.groups is not None and self.labels is not None:
            means = np.array([segment[1] for segment in self.segments])
            write_names(ax, means, self.groups.names, radius=MEAN, fontsize=8, weight="bold", color=INK)
        return self

    def _projected(self, rows: np.ndarray) -> np.ndarray:
        return rows if self.plane is None else np.asarray(self.plane.transform(rows))

    def _segment(self, mean: np.ndarray, axis: np.ndarray, variance: float) -> np.ndarray:
        """Return start, mean and end of an axis in the plane, shape (3, 2)."""
        steps = DEVIATIONS * np.sqrt(variance) * np.array([[-1.0], [0.0], [1.0]])
        return self._projected(mean[None, :] + steps * axis[None, :])
