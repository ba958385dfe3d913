"""Settings of PCA: checked values in place of an estimator's parameters."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PCASettings:
    """The parameters that choose the way to the components, checked.

    Attributes
    ----------
    svd_solver : "auto", "covariance_eigh", "dual", "full", "randomized" or "arpack"
    passes : int or None
        Passes of block Krylov; None: until the residuals are small.
    oversampling : int or None
        Columns of a block beyond p; None: the solver's default.
    tol : float
        0 is the default of the dtype.
    n_jobs : int or None
    has_checkpoint : bool
        Whether the fit is to leave checkpoints.
    """

    svd_solver: str = "auto"
    passes: int | None = None
    oversampling: int | None = None
    tol: float = 0.0
    n_jobs: int | None = None
    has_checkpoint: bool = False


@dataclass(frozen=True)
class RankRequest:
    """Describe how many components a fit keeps.

    Attributes
    ----------
    most : int
        The number, or the most there can be where the spectrum decides.
    share : float or None
        The share of the variance that decides.
    minka : bool
        Whether Minka's evidence decides.
    given : bool
        Whether the user gave a number.
    """

    most: int
    share: float | None = None
    minka: bool = False
    given: bool = False

    @property
    def whole(self) -> bool:
        """Return whether the whole spectrum is needed."""
        return self.share is not None or self.minka
