"""The surface that a search over kernels has seen."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpukpca.plotting.style import INK, LEGEND, LINE, PLAIN, TITLE, new_axes, tidy

# Beyond this factor between the errors of a surface its axis is logarithmic.
WIDE = 20.0
FLOOR = 1e-12


def plot_cv_surface(cv: Any, ax: Any = None) -> Any:
    """Mean held-out error against gamma, a line for every number of components; the best is marked.

    Without several gammas: against the number of components. Of a search over more parameters, the part in which the
    others have their best values.

    Parameters
    ----------
    cv : fitted KernelPCACV, or GridSearchCV over the same parameters
    ax : matplotlib Axes, optional
        Drawn into; a new figure without one.

    Returns
    -------
    matplotlib Figure
        Of the axes drawn into.

    Raises
    ------
    ValueError
        Neither gamma nor n_components has two numbers to draw a line through.
    """
    results, best = cv.cv_results_, cv.best_params_
    drawn = [name for name in ("gamma", "kernel__gamma", "n_components") if _several_numbers(results, name)]
    if not drawn:
        raise ValueError("a surface needs two numbers of gamma or of n_components at least.")
    chosen = [
        i
        for i, params in enumerate(results["params"])
        if all(name in drawn or params.get(name) == value for name, value in best.items())
    ]
    across, lines = drawn[0], drawn[1] if len(drawn) > 1 else None
    ax = new_axes() if ax is None else ax
    tidy(ax)
    errors = np.maximum(-np.asarray(results["mean_test_score"]), FLOOR)
    values = sorted({results["params"][i][lines] for i in chosen}) if lines else [None]
    for k, value in enumerate(values):
        own = [i for i in chosen if lines is None or results["params"][i][lines] == value]
        own.sort(key=lambda i: results["params"][i][across])
        color = PLAIN if lines is None else _shade(k, len(values))
        label = None if lines is None else str(value)
        ax.plot([results["params"][i][across] for i in own], errors[own], color=color, marker="o", ms=3.5, label=label)
    _mark(ax, best[across], errors[cv.best_index_])
    if across != "n_components":
        ax.set_xscale("log")
    found = errors[chosen][np.isfinite(errors[chosen])]
    if found.max() > WIDE * found.min():
        ax.set_yscale("log")
    ax.set_xlabel("components" if across == "n_components" else "gamma")
    ax.set_ylabel("mean squared error of rows held out")
    ax.set_title(f"{results_folds(results)} folds; best: {_in_words(best)}", **TITLE)
    if lines:
        ax.legend(title="components", loc="center left", bbox_to_anchor=(1.0, 0.5), **LEGEND)
    return ax.figure.figure


def results_folds(results: Any) -> int:
    """How many folds a table of results has."""
    return sum(name.startswith("split") and name.endswith("_test_score") for name in results)


def _several_numbers(results: Any, name: str) -> bool:
    values = {params.get(name) for params in results["params"] if isinstance(params.get(name), int | float)}
    return len(values) > 1 and all(isinstance(params.get(name), int | float) for params in results["params"])


def _shade(k: int, count: int) -> Any:
    from matplotlib import colormaps

    return colormaps["viridis"](0.9 * (1.0 - k / max(count - 1, 1)))


def _mark(ax: Any, x: float, error: float) -> None:
    ax.plot([x], [error], marker="o", markersize=11, markerfacecolor="none", markeredgecolor=LINE, markeredgewidth=1.8)
    ax.annotate(f"{error:.3g}", (x, error), xytext=(8, -12), textcoords="offset points", fontsize=9, color=INK)


def _in_words(params: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} = {value:.3g}" if isinstance(value, float) else f"{name} = {value}" for name, value in params.items()
    )
