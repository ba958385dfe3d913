"""`cv_results_` in scikit-learn's layout, and what is told of fits that failed."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import rankdata
from sklearn.exceptions import FitFailedWarning

from gpukpca.exceptions import ConvergenceWarning, PrecisionWarning, warn_user
from gpukpca.model_selection.folds import CandidateScore

REASONS_TOLD = 5


def results_table(grid: list[dict[str, Any]], folds: list[dict[int, CandidateScore]]) -> dict[str, Any]:
    """Return the columns of `GridSearchCV.cv_results_`, from the parameters and the scores of every candidate."""
    table: dict[str, Any] = {}
    for column, values in (
        ("fit_time", _of_all(folds, "fit_seconds")),
        ("score_time", _of_all(folds, "score_seconds")),
    ):
        table[f"mean_{column}"], table[f"std_{column}"] = values.mean(axis=1), values.std(axis=1)
    for name in sorted({name for params in grid for name in params}):
        table[f"param_{name}"] = _parameter_column(name, grid)
    table["params"] = grid
    scores = _of_all(folds, "score")
    for k in range(scores.shape[1]):
        table[f"split{k}_test_score"] = scores[:, k]
    table["mean_test_score"], table["std_test_score"] = scores.mean(axis=1), scores.std(axis=1)
    table["rank_test_score"] = _ranks(table["mean_test_score"])
    return table


def _of_all(folds: list[dict[int, CandidateScore]], name: str) -> np.ndarray:
    """One number of every outcome, shape (candidates, folds)."""
    return np.array([[getattr(fold[number], name) for fold in folds] for number in sorted(folds[0])])


def _parameter_column(name: str, grid: list[dict[str, Any]]) -> np.ma.MaskedArray:
    """The values of a parameter, masked where a candidate has none; numbers where all are."""
    values = [params.get(name) for params in grid]
    mask = [name not in params for params in grid]
    kinds = {type(value) for value, hidden in zip(values, mask, strict=True) if not hidden}
    if kinds <= {int} or kinds <= {float}:
        filled = [0 if hidden else value for value, hidden in zip(values, mask, strict=True)]
        return np.ma.MaskedArray(np.array(filled), mask=mask)
    column = np.ma.MaskedArray(np.empty(len(grid), dtype=object), mask=True)
    for i, value in enumerate(values):
        if not mask[i]:
            column[i] = value
    return column


def _ranks(means: np.ndarray) -> np.ndarray:
    """1 for the best; candidates that failed on a fold share the last rank."""
    worst = np.nanmin(means, initial=0.0) - 1.0
    return rankdata(-np.where(np.isnan(means), worst, means), method="min").astype(np.int32)


def sharing_of(folds: list[dict[int, CandidateScore]], kernels: int) -> str:
    """Return how much the fits shared, in words; `kernels` need decompositions of their own."""
    fits = len(folds) * len(folds[0])
    together = sum(outcome.shared for fold in folds for outcome in fold.values())
    if together == fits:
        return f"distances once a fold; one decomposition for each of {kernels} kernels on every fold"
    return (
        f"distances once a fold for {together} of {fits} fits; the others by separate fits, one for all numbers "
        "of components: kernels of no family, shares of the variance, Nyström, or too little memory for n x n "
        "distances"
    )


def warn_of_convergence(folds: list[dict[int, CandidateScore]]) -> None:
    """Warn where pre-images of rows held out have not converged; their scores count all the same."""
    counts = [outcome.unconverged for fold in folds for outcome in fold.values()]
    if any(counts):
        fits = f"{sum(map(bool, counts))} of {len(counts)} fits"
        warn_user(
            f"{sum(counts)} pre-images of held-out rows have not converged, in {fits}; they are scored where "
            "they are. Allow more (max_iter) or a larger tol of FixedPointPreimage.",
            ConvergenceWarning,
        )


def warn_of_undetermined(grid: list[dict[str, Any]], folds: list[dict[int, CandidateScore]]) -> None:
    """Warn where a number of components cuts through equal eigenvalues, so that rounding decides on the score."""
    every = ((number, outcome) for fold in folds for number, outcome in fold.items())
    numbers = sorted({number for number, outcome in every if outcome.undetermined})
    if numbers:
        more = f" and {len(numbers) - 1} more" if len(numbers) > 1 else ""
        warn_user(
            f"the last component of {grid[numbers[0]]}{more} and the one after it are not separately determined on "
            "some folds: their eigenvalues are equal to rounding, and so is the choice between them, with the score. "
            "Try other n_components, or for kernels of distances a smaller gamma.",
            PrecisionWarning,
        )


def warn_of_failures(grid: list[dict[str, Any]], folds: list[dict[int, CandidateScore]]) -> None:
    """Warn of fits that failed, with their reasons; raise ValueError where no candidate has a score on every fold."""
    failed = [(k, number, fold[number].error) for k, fold in enumerate(folds) for number in sorted(fold)]
    failed = [(k, number, error) for k, number, error in failed if error is not None]
    if not failed:
        return
    reasons: dict[str, list[str]] = {}
    for k, number, error in failed:
        reasons.setdefault(f"{type(error).__name__}: {error}", []).append(f"{grid[number]} on fold {k}")
    every = len(grid) * len(folds)
    if len({number for _, number, _ in failed}) == len(grid):
        _, number, first = failed[0]
        how = "all" if len(failed) == every else "some"
        raise ValueError(
            f"no candidate could be scored on every fold: {how} of the {every} fits failed. The first, {grid[number]}: "
            f"{type(first).__name__}: {first}"
        ) from first
    lines = [
        f"{where[0]} and {len(where) - 1} more: {reason}" for reason, where in list(reasons.items())[:REASONS_TOLD]
    ]
    warn_user(
        f"{len(failed)} of {every} fits failed; their scores are NaN, and the candidates come last. "
        + " | ".join(line.replace(" and 0 more", "") for line in lines),
        FitFailedWarning,
    )
