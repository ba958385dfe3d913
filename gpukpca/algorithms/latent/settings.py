"""Settings of probabilistic and Bayesian PCA."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpukpca._rules import COUNT, NONE, Rule, is_integer, number, one_of, word
from gpukpca.algorithms.fields import check_fields, documented, field_of

RULES = {
    "solver": word("auto", "direct", "em"),
    "ddof": Rule("0 or 1", lambda value: is_integer(value) and value in (0, 1)),
    "tol": one_of(NONE, number(at_least=0)),
    "max_iter": COUNT,
}
N_COMPONENTS = one_of(NONE, COUNT)


@documented
@dataclass(frozen=True)
class LatentSettings:
    """Settings of `fit_probabilistic_pca` and `fit_bayesian_pca`, checked.

    See Also
    --------
    fit_probabilistic_pca, fit_bayesian_pca : Take it as `settings`.

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca.algorithms import LatentSettings, fit_probabilistic_pca
    >>> X = np.random.default_rng(0).standard_normal((100, 5)) * [5.0, 3.0, 1.0, 1.0, 1.0]
    >>> fit_probabilistic_pca(X, 2, settings=LatentSettings(solver="em"), rng=0).solver
    'em'
    """

    solver: Literal["auto", "direct", "em"] = field_of(
        "",
        '"direct": from the spectrum of `fit_pca`, for complete data in one array. "em": expectation '
        'maximization on the rows. "auto": "em" for batches and where entries are missing',
        default="auto",
    )
    ddof: int = field_of("", "variances over n - ddof", default=1)
    tol: float | None = field_of(
        "",
        "EM stops when a step adds no more than this to the log-likelihood of an observed entry, without a prior also "
        "turns the components by an angle whose sine is at most its square root. None: 1e-5, with the prior of "
        "Bayesian PCA 1e-10",
        default=None,
    )
    max_iter: int = field_of("", "most steps of EM, extrapolations included", default=1000)

    def __post_init__(self) -> None:
        check_fields(self, RULES)

    def degrees(self, n: int) -> int:
        """Return the degrees of freedom of n rows."""
        return max(n - self.ddof, 1)
