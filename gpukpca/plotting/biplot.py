"""The biplot: scores as points, and the features with the longest arrows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any

import numpy as np

from gpukpca._typing import ArrayLike, Vector
from gpukpca.data.frequencies import checked_frequencies, rows_that_count
from gpukpca.decomposition import loadings, variable_correlations
from gpukpca.decomposition._batches import rows_to_score
from gpukpca.exceptions import InvalidParameterError
from gpukpca.plotting.display import host, ratios_of
from gpukpca.plotting.names import write_names
from gpukpca.plotting.scores import ScoresDisplay, checked_components
from gpukpca.plotting.style import LINE

# The most arrows that are drawn without a number, and the length of the longest as a share of the largest score.
ARROWS, LONGEST = 10, 0.8


class BiplotDisplay(ScoresDisplay):
    """Scores in the plane of two components, and arrows for the features that have the longest.

    Arrows have a scale of their own: the longest has 0.8 of the length of the score farthest from zero.

    Parameters
    ----------
    scores : array, shape (n, p)
    arrows : array, shape (d, p)
        A row for every feature. Of a PCA, `from_estimator` takes the axes V, or the loadings where scores are whitened.
        Then the inner product of a score and an arrow is the centered entry of the data, over `scale_` with
        ``scale=True``, as far as the plane shows it.
        Of any other model it takes `gpukpca.variable_correlations`.
    features : sequence of d str, optional
        Written at the arrows; default: "feature 1" and so on.
    ratios, labels, names : see `ScoresDisplay`

    Raises
    ------
    ValueError
        As `ScoresDisplay`; arrows of other components than the scores, or names that are not one for each feature.

    See Also
    --------
    ScoresDisplay : The scores alone.
    gpukpca.loadings : V times the standard deviations of the components.

    Notes
    -----
    Gabriel, Biometrika 58 (1971) 453: X - 1 x̄ᵀ = Z Vᵀ = G Lᵀ with whitened scores G, of which two columns are drawn.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from gpukpca import PCA
    >>> from gpukpca.plotting import BiplotDisplay
    >>> wine = load_wine()
    >>> model = PCA(2, scale=True).fit(wine.data)
    >>> display = BiplotDisplay.from_estimator(model, wine.data, features=wine.feature_names, n_arrows=3)
    >>> sorted(filter(None, (text.get_text() for text in display.ax_.texts)))
    ['alcohol', 'color_intensity', 'proline']
    """

    def __init__(
        self,
        scores: ArrayLike,
        arrows: ArrayLike,
        *,
        features: Sequence[str] | None = None,
        ratios: Vector | None = None,
        labels: Vector | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        super().__init__(scores, ratios=ratios, labels=labels, names=names)
        self.arrows: np.ndarray = host(arrows)
        p = self.scores.shape[1]
        if self.arrows.ndim != 2 or self.arrows.shape[1] != p or p < 2:
            raise InvalidParameterError(
                f"arrows must have shape (d, p) for scores of p >= 2 components; got {self.arrows.shape} for p = {p}."
            )
        d = len(self.arrows)
        self.features: list[str] = (
            [f"feature {number + 1}" for number in range(d)] if features is None else list(features)
        )
        if len(self.features) != d:
            raise InvalidParameterError(f"{len(self.features)} names of features for {d} arrows.")

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: ArrayLike,
        *,
        sample_weight: Vector | None = None,
        features: Sequence[str] | None = None,
        n_arrows: int = ARROWS,
        labels: Vector | None = None,
        names: Sequence[str] | None = None,
        components: Sequence[int] = (0, 1),
        ax: Any = None,
    ) -> BiplotDisplay:
        """Draw the scores that a fitted estimator gives rows, and arrows for the features.

        Parameters
        ----------
        estimator : fitted estimator
            With `transform` and `explained_variance_ratio_`.
        X : array, shape (n, d)
        sample_weight : array, shape (n,), optional
            How often each row counts in the correlations of a model without axes. Rows of weight 0 are not drawn.
        features : sequence of d str, optional
            Names of the columns; default: those of the data frame of fit.
        n_arrows : int
            How many features are drawn, those with the longest arrows.
        labels, names : see `ScoresDisplay`
        components : two int
            Indices of the components across and up.
        ax : matplotlib Axes, optional
            Drawn into; a new figure without one.

        Returns
        -------
        BiplotDisplay
        """
        axes, counts = getattr(estimator, "components_", None), rows_that_count(sample_weight)
        X, sample_weight = rows_to_score(X, sample_weight)
        if counts is not None:
            rows: list[Any] = [labels, names]
            labels, names = (one if np.shape(one) != counts.shape else [*compress(one, counts)] for one in rows)
        if axes is None:
            arrows = variable_correlations(estimator, X, sample_weight=sample_weight)
        else:
            arrows = loadings(estimator) if getattr(estimator, "whiten", False) else host(axes).T
        features = getattr(estimator, "feature_names_in_", None) if features is None else features
        scores, ratios = estimator.transform(X), ratios_of(estimator)
        checked_frequencies(sample_weight, int(scores.shape[0]), is_batch=True)
        display = cls(scores, arrows, features=features, ratios=ratios, labels=labels, names=names)
        return display.plot(ax, components=components, n_arrows=n_arrows)

    def plot(self, ax: Any = None, *, components: Sequence[int] = (0, 1), n_arrows: int = ARROWS) -> BiplotDisplay:
        """Draw scores and arrows.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Drawn into; a new figure without one.
        components : two int
            Indices of the components across and up.
        n_arrows : int
            How many features are drawn, those with the longest arrows.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            Components that the scores do not have, or not two, or `ax` that is no Axes.
        """
        chosen = checked_components(components, self.scores.shape[1])
        if len(chosen) != 2:
            raise InvalidParameterError(f"components={components!r}: a biplot has two, such as (0, 1).")
        arrows, farthest = self.arrows[:, chosen], np.linalg.norm(self.scores[:, chosen], axis=1).max()
        lengths = np.linalg.norm(arrows, axis=1)
        arrows = arrows * (LONGEST * farthest / (lengths.max() or 1.0))
        ax = self._named_axes(ax, chosen)
        ax.set_aspect("equal", adjustable="datalim")
        ax.update_datalim(arrows)
        ax.margins(0.2)  # for names of features beyond the arrows
        points = self._draw_points(ax, chosen)
        longest = np.argsort(-lengths, kind="stable")[:n_arrows]
        style = {"arrowstyle": "-|>", "color": LINE, "linewidth": 1.3, "shrinkA": 0.0, "shrinkB": 0.0}
        for tip in arrows[longest]:
            ax.annotate("", tip, (0.0, 0.0), arrowprops=style, zorder=2)  # below names
        features = [self.features[j] for j in longest]
        write_names(ax, arrows[longest], features, range(len(longest)), 1.0, always=True, fontsize=8, color=LINE)
        self._write_names(ax, points)
        return self
