"""Settings of local PCA."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

MixtureMethod = Literal["mixture", "hard"]
# A number, several of them of which the BIC chooses, or all up to a limit.
Counts = int | Sequence[int] | Literal["bic"]


@dataclass(frozen=True)
class MixtureSettings:
    """Settings of `fit_local_pca`, checked.

    Attributes
    ----------
    method : "mixture" or "hard"
        Mixture of probabilistic PCAs, or the nearest plane.
    n_init : int
        Starts.
    max_iter : int
        Most iterations.
    tol : float
        Least gain of an iteration: in log-likelihood of a row, or with "hard" as a share of the total variance.
    reg : float
        Least noise variance of a cluster, as a share of the mean variance of a feature.
    """

    method: MixtureMethod = "mixture"
    n_init: int = 4
    max_iter: int = 300
    tol: float = 1e-4
    reg: float = 1e-6
