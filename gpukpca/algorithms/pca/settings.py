"""Settings of PCA, and the number of components that a fit keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral
from typing import Literal, get_args

from gpukpca._former import former_parameters
from gpukpca._rules import FLAG, NONE, SHARE, Rule, check_attributes, integer, is_real, one_of, word
from gpukpca._typing import HasShape
from gpukpca.algorithms.fields import field_of, record
from gpukpca.eigen import BlockKrylov, Dense
from gpukpca.eigen.request import FIRST_GUESS, PairRequest
from gpukpca.exceptions import InvalidParameterError

SVDSolver = Literal["auto", "covariance_eigh", "dual", "full", "randomized", "arpack", "tsqr"]

PCASolver = Dense | BlockKrylov

ITERATIVE = ("randomized", "arpack")
COUNT_OR_SHARE = one_of(NONE, integer(at_least=0), SHARE, word("mle"))
RULES = {
    "solver": Rule(
        "a name",
        lambda value: isinstance(value, str) and value in get_args(SVDSolver),
        get_args(SVDSolver),
        "{name}={value!r} is not known; give one of {known}.{near}",
    ),
    "passes": one_of(NONE, integer(at_least=1)),
    "oversampling": one_of(NONE, integer(at_least=1)),
    "tol": Rule("a number in [0, 1) (0: the default of the dtype)", lambda value: is_real(value) and 0 <= value < 1),
    "center": FLAG,
    "scale": Rule("True, False or positive numbers, one a feature", lambda value: not isinstance(value, str)),
    "has_checkpoint": FLAG,
    "warns_of_rounding": FLAG,
}


@former_parameters(svd_solver="solver")
@record(kw_only=True)
class PCASettings:
    """Settings of `fit_pca`, checked.

    See Also
    --------
    fit_pca : Takes it as `settings`.

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca.algorithms import PCASettings, fit_pca
    >>> X = np.random.default_rng(0).standard_normal((100, 5))
    >>> fit_pca(X, 2, settings=PCASettings(solver="full")).plan.method
    'full'
    """

    solver: SVDSolver = field_of(
        "", '"auto", "covariance_eigh", "dual", "full", "tsqr", "randomized" or "arpack"; see `PCA`', default="auto"
    )
    passes: int | None = field_of("", "passes of block Krylov; None: until the residuals are small", default=None)
    oversampling: int | None = field_of("", "columns of a block beyond p; None: the solver's default", default=None)
    tol: float = field_of("", "0 is the default of the dtype", default=0.0)
    center: bool = field_of("", "False: singular vectors of the rows themselves, not less their mean", default=True)
    scale: bool | HasShape | Sequence[float] = field_of(
        "", "True: divide the features by their standard deviations. An array: divide them by that", default=False
    )
    has_checkpoint: bool = field_of("", "whether the fit writes checkpoints", default=False)
    warns_of_rounding: bool = field_of("", "whether to warn of variances within rounding, and of units", default=True)

    def __post_init__(self) -> None:
        check_attributes(self, RULES.items())


@record()
class RankRequest:
    """The number of components that a fit keeps, or the rule for it."""

    max_count: int = field_of("", "the number, or its upper bound where the spectrum decides")
    share: float | None = field_of("", "the share of the variance that decides", default=None)
    minka: bool = field_of("", "whether Minka's evidence decides", default=False)
    is_number: bool = field_of("", "whether the user gave a number", default=False)

    @property
    def decides(self) -> bool:
        """Return whether the spectrum decides the number."""
        return self.share is not None or self.minka

    @property
    def first(self) -> int:
        """Return the number of components that a plan begins with; where a share decides, a guess."""
        return self.max_count if self.share is None else min(self.max_count, FIRST_GUESS)

    def up_to(self, max_count: int) -> RankRequest:
        """Return the request with a smaller upper bound."""
        return replace(self, max_count=min(self.max_count, max_count))

    def pairs(self, eps: float) -> PairRequest:
        """Return the request for eigenpairs, in the precision of the ratios; at least one, also for no components."""
        max_count = max(1, self.max_count)
        if self.share is None:
            return PairRequest.of_count(max_count)
        return PairRequest.of_share(self.share, max_count, self.first, eps)

    @classmethod
    def of(cls, n_components: int | float | str | None, svd_solver: str, n: int, d: int) -> RankRequest:
        """Return the request for n samples with d features; raise for more than min(n, d), as scikit-learn does."""
        value, max_count = n_components, min(n, d)
        if value is None:
            return cls(max(max_count - 1, 1) if svd_solver == "arpack" else max_count)
        if isinstance(value, str):
            if svd_solver in ITERATIVE:
                raise InvalidParameterError(
                    f"n_components={value!r} cannot be a string with svd_solver={svd_solver!r}, which does not compute "
                    f"all eigenvalues; give a number of components from 1 to {max_count} or a share below 1, or "
                    'svd_solver="auto".',
                    argument="n_components",
                )
            if n < d:
                raise InvalidParameterError(
                    f"n_components='mle' is only supported if n_samples >= n_features, and X has shape ({n}, {d})",
                    argument="n_components",
                )
            return cls(max_count, minka=True)
        is_number = isinstance(value, (int, Integral))
        least = 1 if svd_solver in ITERATIVE and is_number else 0
        if not least <= value <= max_count:
            raise InvalidParameterError(
                f"n_components={value!r} must be between {least} and min(n_samples, n_features)={max_count} with "
                f"svd_solver={svd_solver!r}",
                argument="n_components",
            )
        return cls(int(value), is_number=True) if is_number else cls(max_count, share=float(value))
