"""Settings of probabilistic and Bayesian PCA."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class LatentSettings:
    """Settings of `fit_probabilistic_pca` and `fit_bayesian_pca`, checked.

    Attributes
    ----------
    solver : "auto", "direct" or "em"
        "direct": from the spectrum of `fit_pca`, for complete data in one array. "em": expectation maximization on the
        rows. "auto": "em" for batches and where entries are missing.
    ddof : 0 or 1
        Variances over n - ddof.
    tol : float
        EM stops when a step adds no more than this to the log-likelihood of an observed entry.
    max_iter : int
        Most steps of EM.
    """

    solver: Literal["auto", "direct", "em"] = "auto"
    ddof: int = 1
    tol: float = 1e-10
    max_iter: int = 1000

    def degrees(self, n: int) -> int:
        """Return the degrees of freedom of n rows."""
        return max(n - self.ddof, 1)
