"""The state of a block Krylov iteration, and the task that stays fixed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Protocol, runtime_checkable

import numpy as np

from gpukpca._typing import Array, SymmetricOperator
from gpukpca.backend.linalg import leading_ritz_pairs
from gpukpca.backend.namespace import accumulation_dtype, epsilon, from_host
from gpukpca.backend.random import format_generator
from gpukpca.data.column_basis import ColumnBasis
from gpukpca.eigen.request import NeedsDense, PairRequest

# In place of 0 in logarithms.
TINY = 1e-300
# The relative residual at which an iteration on a float32 twin hands over: ten times the rounding of its products.
TWIN_TOL = 1e-6
# Passes over the operator itself that follow its twin. Of 200 random problems 97 took 2, 82 took 3, 21 took more.
EXACT_PASSES = 3
# So many times as many columns has the basis on a twin, in the same bytes: it restarts less, and corrects better.
# Measured on a flat spectrum with 10 pairs of 12 000 rows: 15 + 2 passes for 21 + 7.
TWIN_COLUMNS = 2


class Phase(Enum):
    """The task of the next pass of an iteration."""

    EXTEND = "extend the basis"
    VERIFY = "multiply the Ritz vectors themselves"
    CORRECT = "extend the basis by corrections of the Ritz vectors"
    DONE = "no further pass"


@dataclass(frozen=True)
class KrylovTask:
    """Hold what stays fixed over an iteration."""

    op: SymmetricOperator
    rng: np.random.Generator
    p: int  # eigenpairs to compute
    b: int  # columns of a block
    max_columns: int  # most columns of the basis
    limit: int  # most passes
    tol: float  # relative residual at which the iteration stops
    is_fixed: bool  # the number of passes is `limit`, for any residuals
    launches_early: bool  # the next product may be launched before the Ritz values of the last one are computed
    request: PairRequest  # decides p where it is a share of the trace
    patience: float = math.inf  # passes that take as long as the dense solver

    @property
    def is_share(self) -> bool:
        """Return whether Ritz values decide p."""
        return self.request.is_share

    def sized(self, p: int, b: int) -> KrylovTask:
        """Return the task for p pairs and blocks of b columns, with a basis that is longer by as much."""
        if (p, b) == (self.p, self.b):
            return self
        columns = min(self.op.shape[0], -(-self.max_columns * max(b, p) // max(self.b, self.p)))
        return replace(self, p=p, b=b, max_columns=columns, patience=self.patience * self.b / b)

    def for_twin(self, twin: SymmetricOperator) -> KrylovTask:
        """Return the task for the operator's twin, which leaves passes to the operator itself."""
        columns, limit = min(self.op.shape[0], TWIN_COLUMNS * self.max_columns), max(1, self.limit - EXACT_PASSES)
        tol = max(self.tol, TWIN_TOL, twin.resolution)
        return replace(self, op=twin, tol=tol, limit=limit, max_columns=columns)

    def check_forecast(self, before: KrylovState, state: KrylovState) -> None:
        """Raise `NeedsDense` where the residuals of two checks forecast more passes than the dense solver is worth."""
        if before.last_check == 0 or state.distance <= 0.0:
            return
        recent = (before.distance - state.distance) / (state.n_passes - before.last_check)
        # From the first check on: before it residuals fall fast, also where the eigenvalues are those of noise.
        mean = (state.first_distance - state.distance) / (state.n_passes - state.first_check)
        passes = state.n_passes + state.distance / max(recent, mean, TINY)
        if passes > self.patience:
            raise NeedsDense(f"block Krylov would take some {passes:.0f} passes")

    @property
    def eps(self) -> float:
        """Return that of the dtype."""
        return epsilon(self.op.like)


@dataclass(frozen=True, kw_only=True)
class KrylovState:
    """A block Krylov iteration between two passes over the operator; a checkpoint stores it.

    Between two restarts the basis only grows: a pass adds `block` to it, and its product. The columns are appended in
    place where the library can, and a restart overwrites them.

    Attributes
    ----------
    p, b, limit, tol, is_fixed
        As in the `KrylovTask` of the passes so far. For a share of the trace, p follows the Ritz values, and b p. A
        narrow block becomes as wide as p where members of a cluster may be missing.
    phase : Phase
    Q, W : ColumnBasis, (n, k)
        Orthonormal basis and its products, divided by 2**exponent; Ritz vectors and their products once done.
    T : host array, shape (k, k)
        Qᵀ W, symmetric.
    block : array, shape (n, b), or None
        Orthonormal directions of the next extension; None in the other phases.
    coupled : int or None
        The first column that the product of the next block couples with: products of those before it lie in the span of
        the basis, and K is symmetric. None where passes left out directions of residuals: all columns.
    n_passes, n_products, restarts : int
    exponent : int or None
        The scale of the products, so that squares neither overflow nor vanish; None before the first one.
    smallest : float
        The smallest Ritz value so far: an upper bound on the smallest eigenvalue, and so a proof of indefiniteness.
    residual : float or None
        `tol` times the largest ratio of a residual to the one allowed, after the last pass, where it was computed.
    best_excess : float
        The smallest such ratio that a verification has confirmed; infinite before.
    stagnant : int
        Verifications without progress.
    probe_until : int
        The iteration does not stop before this pass: a start may lie in an invariant subspace that is not the top one.
    known : int
        Columns of the first block that came from a start. The others were random, and they alone find new members of a
        cluster of equal eigenvalues, each one.
    means : array, shape (n,), or None
        `SymmetricOperator.known_means`.
    generator : str
        State of the random numbers.
    distance, last_check, next_check : float, int, int
        Logarithm of the residual over its target at the last check, the pass of that check, and the first pass that
        may be the last one.
    first_check, first_distance : int, float
        The same two at the first check.
    product : array, shape (n, b), or None
        The product of the operator with `block`, where it was launched already.
    on_twin : bool
        Whether the passes are those of the operator's twin; its Ritz vectors are verified by the operator itself.
    twin_passes : int
        Of `n_passes`, those on the twin.
    guide : ColumnBasis or None
        The basis on the twin, (n, k), which corrects the Ritz vectors of the operator itself.
    guide_T : host array, shape (k, k), or None
        Its `T`.
    twin_residual : float or None
        The largest residual of the twin's Ritz vectors over the largest eigenvalue, from the first product with the
        operator itself; infinite where the twin failed.

    See Also
    --------
    Checkpointer : Receives the states.

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca.eigen import BlockKrylov, top_eigh
    >>> from gpukpca.gram import DenseGram
    >>> class LastState:
    ...     def resumed(self, task):
    ...         return None
    ...     def record(self, state):
    ...         self.n_passes, self.p = state.n_passes, state.p
    >>> states = LastState()
    >>> result = top_eigh(DenseGram(np.diag(np.arange(1.0, 301.0))), 2, BlockKrylov(), rng=0, checkpointer=states)
    >>> states.n_passes == result.n_passes, states.p
    (True, 2)
    """

    p: int
    b: int
    limit: int
    tol: float
    is_fixed: bool
    phase: Phase
    Q: ColumnBasis
    W: ColumnBasis
    T: np.ndarray = field(repr=False)
    block: Array | None = field(default=None, repr=False)
    n_passes: int = 0
    n_products: int = 0
    restarts: int = 0
    exponent: int | None = None
    smallest: float = 0.0
    residual: float | None = None
    best_excess: float = float("inf")
    stagnant: int = 0
    probe_until: int = 0
    known: int = 0
    means: Array | None = field(default=None, repr=False)
    generator: str = field(default="", repr=False)
    distance: float = 0.0
    last_check: int = 0
    next_check: int = 0
    first_check: int = 0
    first_distance: float = 0.0
    product: Array | None = field(default=None, repr=False)
    on_twin: bool = False
    twin_passes: int = 0
    twin_residual: float | None = None
    coupled: int | None = None
    guide: ColumnBasis | None = field(default=None, repr=False)
    guide_T: np.ndarray | None = field(default=None, repr=False)

    @property
    def is_done(self) -> bool:
        """Return whether no pass is left."""
        return self.phase is Phase.DONE

    @property
    def is_far(self) -> bool:
        """Return whether the last pass was not to be checked."""
        return self.n_passes < self.next_check

    @property
    def is_intact(self) -> bool:
        """Return whether no later pass has overwritten the basis or its products."""
        return self.Q.is_intact and self.W.is_intact

    def updated(self, **fields: Any) -> KrylovState:
        """Return the state with other values of some fields, in a tenth of the time of `dataclasses.replace`."""
        state = object.__new__(type(self))
        vars(state).update(vars(self) | fields)
        return state

    def continues(self, task: KrylovTask) -> bool:
        """Return whether a task continues the state; else it only starts with its Ritz vectors."""
        # The start of an iteration has as many directions as a block, and an end is one for its tolerance and limit.
        # The Ritz vectors of a last pass are those of a share that their values reach. Narrow blocks may be wider now.
        is_as_wide = self.p == task.p and self.b in (task.b, max(task.b, task.p))
        same = self.is_fixed == task.is_fixed and (task.is_share or is_as_wide)
        is_cut = self.n_passes >= self.limit and self.limit < task.limit
        if not same or (self.is_done and (is_cut or self.tol > task.tol)):
            return False
        return (
            not task.is_share
            or self.phase in (Phase.EXTEND, Phase.CORRECT)
            or task.request.count_of(task.op, self.ritz_values()[: self.p]) is not None
        )

    def restore_means(self, op: SymmetricOperator) -> None:
        """Give what the next pass multiplies with its column means, so that neither trace nor product computes them.

        Those of a twin that this fit does not have are not means of K.
        """
        if self.means is not None and not (self.on_twin and op.twin is None):
            op = self.multiplied(op)
            op.known_means = from_host(self.means, op.like, accumulation_dtype(op.like))

    def ritz_values(self) -> np.ndarray:
        """Return the Ritz values, descending, in the units of the operator."""
        return np.ldexp(np.linalg.eigvalsh(self.T)[::-1], self.exponent or 0)

    def ritz_vectors(self, count: int) -> Array:
        """Return the Ritz vectors of the largest Ritz values so far, shape (n, count or less)."""
        return self.Q.combine(leading_ritz_pairs(self.T, min(count, self.Q.count), self.Q.parts[0])[1])

    def for_checkpoint(self, op: SymmetricOperator, rng: np.random.Generator) -> KrylovState:
        """Return the state with that of the operator and of the random numbers, as a checkpoint stores it."""
        return replace(self, means=self.multiplied(op).known_means, generator=format_generator(rng))

    def multiplied(self, op: SymmetricOperator) -> SymmetricOperator:
        """Return what the next pass multiplies with: the operator, or its twin while there is one."""
        return op.twin if self.on_twin and op.twin is not None else op


@runtime_checkable
class Checkpointer(Protocol):
    """A store of the states of iterations, in this run and in later ones.

    See Also
    --------
    gpukpca.Checkpoint : The checkpoints of an estimator, in a folder.
    KrylovState : What it receives.

    Examples
    --------
    Stop an iteration after three passes, and resume it.

    >>> import numpy as np
    >>> from gpukpca.eigen import BlockKrylov, top_eigh
    >>> from gpukpca.gram import DenseGram
    >>> class InMemory:
    ...     state = None
    ...     def resumed(self, task):
    ...         return self.state
    ...     def record(self, state):
    ...         if self.state is None and state.n_passes == 3:
    ...             self.state = state
    ...             raise KeyboardInterrupt
    >>> op, store = DenseGram(np.diag(np.arange(1.0, 301.0))), InMemory()
    >>> try:
    ...     top_eigh(op, 2, BlockKrylov(), rng=0, checkpointer=store)
    ... except KeyboardInterrupt:
    ...     print("stopped after", store.state.n_passes, "passes")
    stopped after 3 passes
    >>> top_eigh(op, 2, BlockKrylov(), rng=0, checkpointer=store).eigenvalues.round(6)
    array([300., 299.])
    """

    def resumed(self, task: KrylovTask) -> KrylovState | None:
        """Return a state to resume from, with arrays on the host; None to begin."""

    def record(self, state: KrylovState) -> None:
        """Take the state after a pass; it is valid while it `is_intact`."""


def rounded_up(number: int, multiple: int) -> int:
    """Return the next multiple."""
    return -(-number // multiple) * multiple
