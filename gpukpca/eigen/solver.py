"""The base class of eigensolvers: what a plan needs of one, and what a fit does with it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import singledispatch
from typing import Any

import numpy as np

from gpukpca._rules import Rule, is_real
from gpukpca._typing import PassReport, SymmetricOperator
from gpukpca.backend.namespace import to_host
from gpukpca.backend.parameters import ParameterObject, check_values
from gpukpca.backend.work import Work
from gpukpca.eigen.request import PairRequest
from gpukpca.eigen.result import EigenResult

# Subspace iteration with 2p columns holds 11 blocks of p at a time.
UNSTATED_BLOCKS = 16
TOLERANCE = Rule("a number in [0, 1) (0: the default)", lambda value: is_real(value) and 0 <= value < 1)


class PlannedSolver:
    """State what a plan needs of a solver: memory, passes and their width. Every member has a default.

    Attributes
    ----------
    grows_with_p : bool
        Whether the eigenpairs come from passes: fewer of them cost less, a share of the trace takes only the pairs that
        it needs, and `solve` takes a `checkpointer`.
    """

    grows_with_p = False

    @property
    def name(self) -> str:
        """Return the name in a plan."""
        return type(self).__name__

    def width(self, n: int, p: int, on_gpu: bool) -> int:
        """Return the columns that are multiplied in a pass."""
        return p

    def workspace_bytes(self, n: int, p: int, item_size: int, on_gpu: bool) -> int:
        """Return an upper bound of the memory beside the operator; by default 16 blocks of `width`, or 4 squares."""
        return min(UNSTATED_BLOCKS * self.width(n, p, on_gpu), 4 * n) * n * item_size

    def work(self, n: int, p: int, one_pass: Work, item_size: int, on_gpu: bool) -> Work | None:
        """Return the work for `p` pairs, given that of a product with `width` columns; None where it is unknown."""
        return None


class SolverParameters(ParameterObject):
    """The parameters of a solver of the library: a frozen dataclass that is checked when it is made.

    `set_params` alone changes it, and checks nothing. A fit works on a `normalized` copy, which is checked again.
    """

    def __post_init__(self) -> None:
        check_values(self)

    def _assign(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)


@singledispatch
def normalized(solver: Any) -> Any:
    """Return a checked copy of a solver of the library as a fit reads it; a name, or another solver, as it is."""
    return type(solver)(**solver.get_params(deep=False)) if isinstance(solver, SolverParameters) else solver


class Solver(PlannedSolver, ABC):
    """An algorithm for the largest eigenpairs of a symmetric operator of shape (n, n).

    The base class of the solvers that `top_eigh` and the estimators take. A subclass defines `solve`; the other members
    have defaults.

    See Also
    --------
    Dense, BlockKrylov : The solvers of the library.

    Examples
    --------
    A solver of the caller, which reports and delegates.

    >>> import numpy as np
    >>> from gpukpca.eigen import Dense, Solver, top_eigh
    >>> from gpukpca.gram import DenseGram
    >>> class Verbose(Solver):
    ...     def solve(self, op, p, rng, report=None):
    ...         print(f"{p} pairs of an operator of shape {op.shape}")
    ...         return Dense().solve(op, p, rng)
    >>> top_eigh(DenseGram(np.diag([3.0, 1.0, 2.0])), 1, Verbose()).eigenvalues.round(6)
    1 pairs of an operator of shape (3, 3)
    array([3.])
    """

    @abstractmethod
    def solve(
        self, op: SymmetricOperator, p: int, rng: np.random.Generator, report: PassReport | None = None
    ) -> EigenResult:
        """Return the `p` largest eigenpairs (`top_eigh`); one that `grows_with_p` also takes a `checkpointer`."""

    def solve_request(
        self, op: SymmetricOperator, request: PairRequest, rng: np.random.Generator, report: PassReport | None = None
    ) -> EigenResult:
        """Return the eigenpairs of a request; by default all `max_count` are computed, and some left out."""
        eigen = self.solve(op, request.max_count, rng, report)
        values = to_host(eigen.eigenvalues).astype(np.float64)
        return eigen.truncated(request.count_at_most(op, values))
