"""Settings of probabilistic and Bayesian PCA."""

from __future__ import annotations

from gpukpca._rules import COUNT, NONE, Rule, is_integer, number, one_of
from gpukpca.algorithms.fields import field_of, record
from gpukpca.data.frequencies import degrees_of_freedom

# Of parameters of the estimators.
RULES = {
    "ddof": Rule("0 or 1", lambda value: is_integer(value) and value in (0, 1)),
    "tol": one_of(NONE, number(at_least=0)),
}
N_COMPONENTS = one_of(NONE, COUNT)


@record()
class LatentSettings:
    """Settings of probabilistic and Bayesian PCA."""

    ddof: int = field_of("", "variances over n - ddof", default=1)
    tol: float | None = field_of(
        "",
        "EM stops when a step adds no more than this to the log-likelihood of an observed entry, without a prior also "
        "turns the components by an angle whose sine is at most its square root. None: 1e-5, with the prior of "
        "Bayesian PCA 1e-10",
        default=None,
    )
    max_iter: int = field_of("", "most steps of EM, extrapolations included", default=1000)

    def degrees(self, n: float) -> float:
        """Return the degrees of freedom of n rows."""
        return degrees_of_freedom(n) if self.ddof else n
