"""Rules for the parameters of probabilistic and Bayesian PCA."""

from __future__ import annotations

from gpukpca._rules import COUNT, NONE, Rule, is_integer, number, one_of

# Of parameters of the estimators.
RULES = {
    "ddof": Rule("0 or 1", lambda value: is_integer(value) and value in (0, 1)),
    "tol": one_of(NONE, number(at_least=0)),
}
N_COMPONENTS = one_of(NONE, COUNT)
