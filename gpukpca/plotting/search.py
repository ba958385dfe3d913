"""Errors of a search over kernels and numbers of components."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpukpca.plotting.display import Display
from gpukpca.plotting.legends import BESIDE, LEGEND
from gpukpca.plotting.style import INK, LINE, PLAIN, TITLE, tidy

# Beyond this factor between the errors their axis is logarithmic.
WIDE = 20.0
# On a logarithmic axis an error of zero is drawn at this part of the smallest positive one.
ZERO_AT = 0.1


class SearchDisplay(Display):
    """Mean held-out error against gamma, a line for every number of components; the best is marked.

    Without several values of gamma: against the number of components. Other parameters have their best values.

    Parameters
    ----------
    results : dict
        `cv_results_` of a KernelPCACV, or of a GridSearchCV over the same parameters.
    best_index : int

    Raises
    ------
    ValueError
        Neither gamma nor n_components has two numbers.

    See Also
    --------
    gpukpca.model_selection.KernelPCACV : The search.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gpukpca import KernelPCACV
    >>> from gpukpca.plotting import SearchDisplay
    >>> search = KernelPCACV(gammas=[0.01, 0.1], n_components=[1, 2], cv=3).fit(load_iris().data[::3])
    >>> SearchDisplay.from_estimator(search).ax_.get_xlabel()
    'gamma'
    """

    def __init__(self, results: Any, best_index: int) -> None:
        self.results = results
        self.best_index = best_index
        self.drawn: list[str] = [
            name for name in ("gamma", "kernel__gamma", "n_components") if _has_numbers(results, name)
        ]
        if not self.drawn:
            raise ValueError("the picture of a search needs two numbers of gamma or of n_components.")

    @classmethod
    def from_estimator(cls, search: Any, *, ax: Any = None) -> SearchDisplay:
        """Draw the errors of a fitted search.

        Parameters
        ----------
        search : KernelPCACV or GridSearchCV
            Fitted.
        ax : matplotlib Axes, optional
            Drawn into; a new figure without one.

        Returns
        -------
        SearchDisplay
        """
        return cls(search.cv_results_, search.best_index_).plot(ax)

    def plot(self, ax: Any = None) -> SearchDisplay:
        """Draw the errors into `ax`, matplotlib Axes (None: of a new figure); return the display."""
        ax = self._axes(ax)
        from matplotlib import colormaps

        tidy(ax)
        params = self.results["params"]
        best = params[self.best_index]
        across, lines = self.drawn[0], (*self.drawn, None)[1]
        errors = 0.0 - np.asarray(self.results["mean_test_score"])
        fixed = {name: value for name, value in best.items() if name not in self.drawn}
        chosen = [i for i, one in enumerate(params) if fixed.items() <= one.items()]
        chosen.sort(key=lambda i: params[i][across])
        finite = errors[chosen][np.isfinite(errors[chosen])]
        heights = errors
        if finite.min() >= 0 and WIDE * finite.min() < finite.max():
            ax.set_yscale("log")
            heights = np.maximum(errors, ZERO_AT * finite[finite > 0].min())
        values = sorted({params[i][lines] for i in chosen}) if lines else [None]
        shades = colormaps["viridis"](np.linspace(0.9, 0.0, len(values)))
        for value, shade in zip(values, shades, strict=True):
            rows = [i for i in chosen if lines is None or params[i][lines] == value]
            color = PLAIN if lines is None else shade
            ax.plot([params[i][across] for i in rows], heights[rows], color=color, marker="o", ms=3.5, label=str(value))
        at = best[across], heights[self.best_index]
        ax.plot(*np.array([at]).T, marker="o", ms=11, markerfacecolor="none", markeredgecolor=LINE, markeredgewidth=1.8)
        ax.annotate(
            f"{errors[self.best_index]:.3g}", at, xytext=(8, -12), textcoords="offset points", fontsize=9, color=INK
        )
        if across != "n_components":
            ax.set_xscale("log")
        ax.set_xlabel("components" if across == "n_components" else "gamma")
        ax.set_ylabel("mean squared error of held-out rows")
        folds = sum(name.startswith("split") and name.endswith("_test_score") for name in self.results)
        texts = {name: format(value, ".3g") if isinstance(value, float) else value for name, value in best.items()}
        named = ", ".join(f"{name} = {text}" for name, text in texts.items())
        ax.set_title(f"{folds} folds; best: {named}", **TITLE)
        if lines:
            ax.legend(title="components", **BESIDE, **LEGEND)
        return self


def _has_numbers(results: Any, name: str) -> bool:
    """Return whether a parameter has two different numbers, and numbers alone."""
    values = [params.get(name) for params in results["params"]]
    return all(isinstance(value, int | float) for value in values) and len(set(values)) > 1
