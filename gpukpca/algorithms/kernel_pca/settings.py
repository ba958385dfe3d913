"""Settings of kernel PCA: checked values in place of an estimator's parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

import numpy as np

from gpukpca._rules import FLAG, NONE, SHARE, Rule, integer, is_real, one_of, word
from gpukpca._typing import Array
from gpukpca.algorithms.kernel_pca.feature_space import FeatureSpace
from gpukpca.algorithms.work import Work
from gpukpca.eigen import BlockKrylov, Dense, Nystrom, choose_solver
from gpukpca.eigen.solve import are_many
from gpukpca.eigen.solver import MinimalSolver

# Nyström is a model, not a solver of a given operator.
EigenSolverName = Literal["auto", "dense", "randomized", "arpack", "nystrom"]
EigenSolver = EigenSolverName | MinimalSolver | Nystrom
GramStorageName = Literal["auto", "dense", "tiled"]

EIGEN_SOLVERS = get_args(EigenSolverName)
RULES = {
    "n_components": one_of(
        NONE,
        integer(at_least=1),
        SHARE,
        message="{name}={value!r} is not allowed; give None (all), an integer >= 1, or a fraction of the variance "
        "strictly between 0 and 1.",
    ),
    "eigen_solver": Rule(
        "a name or a solver object",
        lambda value: (
            value in EIGEN_SOLVERS
            if isinstance(value, str)
            else not isinstance(value, type) and (hasattr(value, "solve") or isinstance(value, Nystrom))
        ),
        EIGEN_SOLVERS,
        "{name}={value!r} is not a solver; give a name or an object such as gpukpca.eigen.BlockKrylov(tol=1e-6).",
        "{name}={value!r} is not known; give one of {known}, or a solver object.{near}",
    ),
    "tol": Rule(
        "a number in [0, 1) (0: the default)",
        lambda value: is_real(value) and 0 <= value < 1,
        message="{name}={value!r} is not allowed; it must be {text}.",
    ),
    "max_passes": one_of(NONE, integer(at_least=1)),
    "passes": one_of(NONE, integer(at_least=0)),
    "gram": word(*get_args(GramStorageName)),
    "remove_zeros": FLAG,
    "copies_data": FLAG,
    "preimage": Rule(
        "None or an object such as gpukpca.decomposition.RidgePreimage()",
        lambda value: value is None or PreimageOptions in type(value).__mro__,
    ),
}


class PreimageOptions(Protocol):
    """The options of a pre-image, and the base class of all methods: what a plan needs of them, and the pre-image."""

    def peak_bytes(self, n: int, d: int, p: int, item: int, on_gpu: bool, landmarks: int) -> int:
        """Return the bytes that its fit allocates."""

    def landmarks_for(self, n: int, fits: bool) -> int:
        """Return the landmarks for n rows, 0 for none, given whether an n x n matrix fits into memory."""
        return 0

    def fit_work(self, n: int, d: int, p: int, landmarks: int) -> Work:
        """Return the work of its fit; none where points are computed when they are mapped back."""
        return Work()

    def learn(self, X: Array, space: FeatureSpace, scores: Array, landmarks: int) -> Any:
        """Return the pre-image of training rows X (n, d) with scores (n, p)."""


@dataclass(frozen=True)
class KernelPCASettings:
    """The parameters of a fit, checked.

    Attributes
    ----------
    n_components : int, float or None
        A number of components, a share of the variance, or all.
    eigen_solver : "auto", "dense", "randomized", "arpack", "nystrom" or a solver object
    tol : float
        0 is the default of the dtype.
    max_passes, passes : int or None
        The most passes of block Krylov, and exactly so many.
    gram : "auto", "dense" or "tiled"
    remove_zeros : bool
        Whether components without variance are left out; with all components they always are.
    copies_data : bool
        Whether the fit keeps a copy of the data.
    preimage : method or None
        The options of the pre-image.
    """

    n_components: int | float | None = None
    eigen_solver: EigenSolver = "auto"
    tol: float = 0.0
    max_passes: int | None = None
    passes: int | None = None
    gram: GramStorageName = "auto"
    remove_zeros: bool = False
    copies_data: bool = True
    preimage: PreimageOptions | None = None

    def __post_init__(self) -> None:
        for name, rule in RULES.items():
            rule.check("KernelPCASettings", name, getattr(self, name))

    @property
    def drops_zeros(self) -> bool:
        """Return whether components without variance are left out."""
        return self.n_components is None or self.remove_zeros

    @property
    def is_share(self) -> bool:
        """Return whether `n_components` is a share of the variance."""
        return isinstance(self.n_components, (float, np.floating))

    @property
    def share(self) -> float:
        """Return the share of the variance; 0 where a number of components is given."""
        return float(self.n_components or 0.0) if self.is_share else 0.0

    @property
    def is_nystrom(self) -> bool:
        """Return whether the approximation by landmarks is meant."""
        return is_nystrom(self.eigen_solver)

    def names_solver(self, *names: str) -> bool:
        """Return whether the solver is given by one of these names."""
        return isinstance(self.eigen_solver, str) and self.eigen_solver in names

    def requests(self, solver_class: type, *names: str) -> bool:
        """Return whether the user gave a solver of this class or one of these names."""
        return isinstance(self.eigen_solver, solver_class) or self.names_solver(*names)

    def solver_for(self, n: int, p: int, on_gpu: bool) -> tuple[Any, str]:
        """Return the solver object for p of n components and the reason for it."""
        tol, chosen = self.tol, self.eigen_solver
        iterative = BlockKrylov(tol=tol, max_passes=self.max_passes, passes=self.passes)
        if self.is_nystrom:
            solver = Nystrom(tol=tol) if chosen == "nystrom" else chosen
            return solver, "requested: an approximation with a certificate"
        if not isinstance(chosen, str):
            return chosen, "solver object given"
        if chosen == "dense":
            return Dense(tol=tol), "requested"
        if chosen in ("randomized", "arpack"):
            return iterative, "requested"
        count = f"p = {p}" + (", where a share of the variance begins," if self.is_share else "")
        if choose_solver(n, p, on_gpu=on_gpu).forms_matrix:
            is_large = are_many(n, p, on_gpu)
            return Dense(tol=tol), f"{count} is large compared with n = {n}" if is_large else f"n = {n} is small"
        return iterative, f"{count} is small compared with n = {n}"


def is_nystrom(eigen_solver: Any) -> bool:
    """Return whether the approximation by landmarks is meant."""
    return isinstance(eigen_solver, Nystrom) or (isinstance(eigen_solver, str) and eigen_solver == "nystrom")
