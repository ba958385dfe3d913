"""Settings of local PCA."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from gpukpca._rules import COUNT, Rule, is_real, one_of, sequence_of, word
from gpukpca.algorithms.fields import field_of, record

MixtureMethod = Literal["mixture", "hard"]
# A number, several of them of which the BIC chooses, or all up to a limit.
Counts = int | Sequence[int] | Literal["bic"]
COUNTS = one_of(COUNT, sequence_of(COUNT, "a sequence of such integers"), word("bic"))
# Of parameters of the estimator.
RULES = {
    "method": word(*get_args(MixtureMethod)),
    "reg": Rule("a number in (0, 1)", lambda value: is_real(value) and 0 < value < 1),
}


@record()
class MixtureSettings:
    """Settings of local PCA."""

    method: MixtureMethod = field_of(
        "", '"mixture" of probabilistic PCAs, or "hard": the nearest plane', default="mixture"
    )
    n_init: int = field_of("", "starts", default=4)
    max_iter: int = field_of("", "most iterations", default=300)
    tol: float = field_of(
        "", 'least gain in log-likelihood of a row, or with "hard" as a share of the total variance', default=1e-4
    )
    reg: float = field_of(
        "", "least noise variance of a cluster, as a share of the mean variance of a feature", default=1e-6
    )
