"""The base class of eigensolvers, with the properties that a plan needs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Self

import numpy as np

from gpukpca._rules import Rule, is_real
from gpukpca._typing import Array, PassReport, SymmetricOperator
from gpukpca.backend.namespace import to_host
from gpukpca.eigen.request import PairRequest
from gpukpca.eigen.result import EigenResult

TOLERANCE = Rule("a number in [0, 1) (0: the default)", lambda value: is_real(value) and 0 <= value < 1)


class PlannedSolver:
    """State what a plan needs of a solver: memory, passes and their width. Every member has a default.

    Attributes
    ----------
    forms_matrix : bool
        Whether the whole matrix is formed.
    grows_with_p : bool
        Whether fewer eigenpairs cost less; a share of the trace then takes only the pairs that it needs.
    is_default : bool
        Whether a plan may add a start and change the size of the blocks.
    passes : int or None
        The number of passes where the user fixed it.
    """

    forms_matrix = False
    grows_with_p = False
    is_default = False
    passes: int | None = None

    @property
    def name(self) -> str:
        """Return the name in a plan."""
        return type(self).__name__

    def draws(self, on_gpu: bool) -> bool:
        """Return whether random numbers are drawn; the generator of others is never used."""
        return True

    def iterates(self, n: int, p: int) -> bool:
        """Return whether `p` eigenpairs take several passes, between which a checkpoint is written."""
        return False

    def width(self, n: int, p: int, on_gpu: bool) -> int:
        """Return the columns that are multiplied in a pass."""
        return p

    def basis_columns(self, n: int, p: int, on_gpu: bool) -> int:
        """Return the most columns of a basis that grows over the passes; 0 without one."""
        return 0

    def workspace_items(self, n: int, p: int, on_gpu: bool) -> int:
        """Return the items of memory in addition to those of the operator."""
        return 0

    def checkpoint_items(self, n: int, p: int, on_gpu: bool) -> int:
        """Return the items in addition to the workspace while a checkpoint is read."""
        return 0

    def widened_items(self, n: int, p: int, panel: int, on_gpu: bool) -> int:
        """Return the float64 items of temporary wide copies, by panels of `panel` rows."""
        return 0

    def expected_passes(self, n: int, p: int, item_size: int, on_gpu: bool, with_start: bool = False) -> int:
        """Return the passes that most problems take."""
        return 1

    def direct_work(self, n: int, p: int) -> float | None:
        """Return the work of a direct solution, 1 for all eigenpairs of the matrix; None where it is unknown."""
        return None

    def most_pairs(self, n: int) -> int:
        """Return the most of n eigenpairs that the solver computes by itself."""
        return n

    def with_start(self, start: Callable[[], Array]) -> Self:
        """Return the solver that starts from the directions (n, k) of a function, where it takes a start."""
        return self

    def with_full_spectrum(self) -> Self:
        """Return the solver that also computes all eigenvalues, where it can."""
        return self

    def with_block(self, columns: int) -> Self:
        """Return the solver that multiplies so many columns in a pass, unless the user chose a number."""
        return self

    def with_wide_block(self, n: int, p: int, on_gpu: bool) -> Self | None:
        """Return the solver with fewer, more expensive passes; None without one or where the user chose a size."""
        return None

    def with_small_basis(self, n: int, p: int) -> Self | None:
        """Return the solver with less memory and more passes; None without one or where the user chose a size."""
        return None


class Solver(PlannedSolver, ABC):
    """An algorithm for the largest eigenpairs of a symmetric operator of shape (n, n).

    The base class of the solvers that `top_eigh` and the estimators take. A subclass defines `solve`; the other members
    have defaults.

    See Also
    --------
    Dense, BlockKrylov, LowRank : The solvers of the library.

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
        """Return the `p` largest eigenpairs (`top_eigh`); a solver that `iterates` also takes a `checkpointer`."""

    def solve_request(
        self, op: SymmetricOperator, request: PairRequest, rng: np.random.Generator, report: PassReport | None = None
    ) -> EigenResult:
        """Return the eigenpairs of a request; by default `most` pairs are computed, and the others are left out."""
        eigen = self.solve(op, request.most, rng, report)
        values = to_host(eigen.eigenvalues).astype(np.float64)
        return eigen.truncated(request.count_at_most(op, values))
