"""`cv_results_` in the layout of scikit-learn, and the warnings about fits that failed."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import rankdata
from sklearn.exceptions import FitFailedWarning as SklearnFitFailedWarning

from gpukpca._rules import is_real
from gpukpca.exceptions import ConvergenceWarning, GpuKPCAWarning, MemoryBudgetError, PrecisionWarning, warn_user
from gpukpca.model_selection.folds import CandidateScore

MOST_REASONS = 5
# Scores of the candidates of every fold, by number.
SearchResult = list[dict[int, CandidateScore]]


class FitFailedWarning(GpuKPCAWarning, SklearnFitFailedWarning):
    """Warning of fits of a search that raised; filters of scikit-learn's class apply too."""


def results_table(grid: list[dict[str, Any]], folds: SearchResult) -> dict[str, Any]:
    """Return the columns of `GridSearchCV.cv_results_`; candidates that failed on a fold share the last rank."""
    columns = {
        name: np.array([[getattr(fold[number], field) for fold in folds] for number in range(len(grid))])
        for name, field in (("fit_time", "fit_seconds"), ("score_time", "score_seconds"), ("test_score", "score"))
    }
    table = {f"mean_{name}": values.mean(axis=1) for name, values in columns.items()}
    table |= {f"std_{name}": values.std(axis=1) for name, values in columns.items()}
    table |= {f"split{k}_test_score": values for k, values in enumerate(columns["test_score"].T.copy())}
    means = table["mean_test_score"]
    scored = ~np.isnan(means)
    table["rank_test_score"] = np.full(len(grid), 1 + np.sum(scored), dtype=np.int32)
    table["rank_test_score"][scored] = rankdata(-means[scored], method="min")
    table |= {f"param_{name}": _parameter_column(name, grid) for name in sorted({name for one in grid for name in one})}
    return table | {"params": grid}


def _parameter_column(name: str, grid: list[dict[str, Any]]) -> np.ndarray:
    """Return the values of a parameter, masked where a candidate has none; a numerical array where all are numbers."""
    column = np.ma.MaskedArray(np.zeros(len(grid), dtype=object), mask=True)
    for i, params in enumerate(grid):
        if name in params:
            column[i] = params[name]
    kinds = {type(value) for value in column.compressed()}
    return column.astype(kinds.pop()) if kinds in ({int}, {float}) else column


def warn_of_scores(grid: list[dict[str, Any]], folds: SearchResult) -> None:
    """Warn of fits that failed, of pre-images that did not converge, and of scores that rounding decides.

    Raises ValueError where no candidate has a score on every fold.
    """
    scores = [(k, number, fold[number]) for k, fold in enumerate(folds) for number in sorted(fold)]
    _warn_of_failures(grid, len(scores), [(k, number, score.error) for k, number, score in scores if score.error])
    counts = [score.unconverged for _, _, score in scores if score.unconverged]
    if counts:
        warn_user(
            "some pre-images of held-out rows did not converge; the scores include them as they are. Allow more "
            "iterations (max_iter) or a larger tol of FixedPointPreimage.",
            ConvergenceWarning,
            unconverged=sum(counts),
            fits=len(counts),
            n_fits=len(scores),
        )
    numbers = sorted({number for _, number, score in scores if score.undetermined})
    if numbers:
        warn_user(
            "the last component of some candidates and the next one are not separately determined: their eigenvalues "
            "are equal to rounding, so that rounding decides on the score. Try other n_components, or for kernels of "
            "distances a smaller gamma.",
            PrecisionWarning,
            candidates=[grid[number] for number in numbers],
        )


def warn_of_edge(grid: list[dict[str, Any]], best: dict[str, Any], automatic: bool) -> None:
    """Warn where the best gamma is the smallest or the largest of the three or more numbers that were tried.

    The smallest of `automatic` gammas is nearly the linear kernel, and no end of the grid.
    """
    for name in ("gamma", "kernel__gamma"):
        tried = sorted({params[name] for params in grid if is_real(params.get(name))})
        if len(tried) > 2 and best.get(name) in tried[-1:] + ([] if automatic else tried[:1]):
            warn_user(
                f"the best {name} of the search lies on the edge of the grid, and a better one may lie beyond it. "
                "Extend the grid there.",
                GpuKPCAWarning,
                best=best[name],
                smallest=tried[0],
                largest=tried[-1],
            )


def _warn_of_failures(grid: list[dict[str, Any]], fits: int, failed: list[tuple[int, int, Exception]]) -> None:
    """Warn of fits that failed (fold, number, error); raise where each candidate failed on some fold."""
    if len({number for _, number, _ in failed}) == len(grid):
        _, number, first = failed[0]
        how = "all" if len(failed) == fits else "some"
        is_too_large = all(isinstance(error, MemoryBudgetError) for *_, error in failed)  # which "auto" takes elsewhere
        raise (MemoryBudgetError if is_too_large else ValueError)(
            f"no candidate could be scored on every fold: {how} of the {fits} fits failed. The first, {grid[number]}: "
            f"{type(first).__name__}: {first}"
        ) from first
    reasons: dict[str, str] = {}
    for k, number, error in failed:
        reasons.setdefault(f"{type(error).__name__}: {error}", f"{grid[number]} on fold {k}")
    if reasons:
        lines = [f"{where}: {reason}" for reason, where in list(reasons.items())[:MOST_REASONS]]
        warn_user(
            "some fits failed; their scores are NaN, and the candidates come last. " + " | ".join(lines),
            FitFailedWarning,
            failed=len(failed),
            n_fits=fits,
        )
