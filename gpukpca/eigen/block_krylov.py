"""Block Krylov iteration with a random start, full orthogonalization, thick restart and a residual stop."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gpukpca._rules import COUNT, FLAG, NONE, integer, one_of
from gpukpca._typing import Array, PassReport, SymmetricOperator
from gpukpca.backend import blocking
from gpukpca.backend.device import is_on_gpu
from gpukpca.backend.parallel import single_threaded_blas
from gpukpca.backend.work import Work
from gpukpca.eigen.dense import Dense
from gpukpca.eigen.krylov_blocks import PROBES
from gpukpca.eigen.krylov_iteration import first_state, result, step
from gpukpca.eigen.krylov_resume import resumed_state
from gpukpca.eigen.krylov_state import Checkpointer, KrylovTask, rounded_up
from gpukpca.eigen.request import NeedsDense, PairRequest
from gpukpca.eigen.residuals import default_tolerance
from gpukpca.eigen.result import EigenResult
from gpukpca.eigen.solver import TOLERANCE, Solver, SolverParameters

MAX_PASSES = 300
# The solver iterates for one of so many pairs at most.
FEWEST_SHARE = 5
# The dense solver is faster for more than one pair of so many: on one core LAPACK's partial solution then takes from a
# sixth of the time to nearly as long (fast decay, n = 4000).
DENSE_SHARE = 12
# Blocks in the basis before it is compressed. Measured on real data: with 8 or 10 blocks as many passes as with 24.
MAX_BLOCKS = 10
# Copies of a basis that grows, at most.
WIDENING = 2
# Columns beyond p for which a basis is sized, and those of a block on a GPU.
EXTRA_COLUMNS = 8
# Columns of the basis of narrow blocks for every pair. Measured: a longer one saves fewer products than it costs.
NARROW_BASIS = 12
# Blocks of a basis that must be small, and of one whose blocks are wide.
FEWEST_BLOCKS, WIDE_BLOCKS = 4, 6
# Passes to the default tolerance by the bytes of an item. Measured on four spectra of 3000 to 25 000 rows, with 5 to 20
# pairs: 7 to 14 and 5 to 11 from a random start. SPARE_COLUMNS extra columns save two.
PASSES, FEWEST_PASSES = {8: 8.0, 4: 6.5}, 3.0
SPARE_COLUMNS, SAVED_BY_COLUMNS = 22, 2.0
# Squares of the columns of the basis that a card holds in float64 for their eigenproblem.
DEVICE_SQUARES = 8
# Operations a pass for each entry of the basis and each column of a block: a projection, and what it subtracts.
PER_BASIS_ENTRY, STEPS_A_PASS = 4, 10

COUNTS = dict.fromkeys(("block_size", "max_passes", "max_blocks"), one_of(NONE, COUNT))
COUNTS["passes"] = one_of(NONE, integer(at_least=0))


def too_many(n: int, p: int) -> str:
    """Return why the dense solver computes p of n eigenpairs in place of block Krylov."""
    return f"block Krylov was requested, but p = {p} is more than a fifth of n = {n}"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class BlockKrylov(SolverParameters, Solver, rules=(("tol", TOLERANCE), *COUNTS.items(), ("twin", one_of(NONE, FLAG)))):
    """Block Krylov solver for the algebraically largest eigenpairs; the operator is only multiplied with blocks.

    Parameters
    ----------
    tol : float
        Stop when every residual ``||op u - lambda u||`` is at most ``tol`` times the largest eigenvalue, and at most
        ``max(1e-3, tol)`` times its eigenvalue where rounding allows that; 0 is the default of the dtype (1e-8 in
        float64, 1e-5 in float32).
    block_size : int, optional
        Columns per pass. A block narrower than p takes fewer products and more passes; it becomes as wide as p where it
        may miss members of a cluster of equal eigenvalues, and from the start where the passes are limited. Default
        p + 3 rounded up to a multiple of 4 on a CPU, at least 64 on a GPU.
    max_passes : int, optional
        Most passes over the operator (default 300; as many columns for a narrow block).
    passes : int, optional
        The exact number of passes, for any residuals.
    max_blocks : int, optional
        Blocks kept in the basis before it is compressed to its best Ritz vectors (default 10).
    start : array, shape (n, k), or a function that returns it, optional
        Directions to start from; an iteration that resumes calls no function. Random ones fill at least a quarter of
        the block, and there are at least three passes, so that components outside the start are found.
    or_dense : bool
        Whether the dense solver takes over where it is forecast to be faster. It needs memory for the matrix.
    to_rounding : bool
        Whether the default of `tol` is what rounding allows, 100 eps, as in ARPACK.
    twin : bool, optional
        Whether the passes of kernel PCA of float64 rows are made on float32 tiles of K, its twin, until float64 tiles
        verify and complete the eigenvectors. Default: where float64 tiles do not fit into memory and float32 ones do.
        On a card those of float32 rows are made on float16 tiles; default: where these are timed as faster. True: also
        where both fit, which halves the memory. Never with `passes` or
        `max_passes`, nor on several devices.

    See Also
    --------
    Dense : All eigenpairs by LAPACK.
    top_eigh : Run a solver.

    Notes
    -----
    Work: one product with a block a pass, and O(n (m b) b) for the basis of m blocks of b columns. Memory: the basis
    and its products, 2 n m b items, allocated at the start. Random numbers are drawn on the host. The residuals are
    those of the operator's own products; where `tol` is near what rounding allows, one more pass multiplies the
    eigenvectors themselves. Where a forecast excludes the end of the iteration, the host computes no Ritz values, and a
    device launches the next product before them: a wrong forecast costs one pass, or one product that is not counted.

    Musco & Musco, arXiv 1504.05477 (block Krylov for the top eigenvectors); Wu & Simon, SIAM J. Matrix Anal. Appl. 22
    (2000) (thick restart); Chen et al., arXiv 2508.06486 (the choice of the block size).

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca.eigen import BlockKrylov, top_eigh
    >>> from gpukpca.gram import DenseGram
    >>> op = DenseGram(np.diag(np.arange(1.0, 301.0)))
    >>> result = top_eigh(op, 2, BlockKrylov(tol=1e-10), rng=0)
    >>> result.eigenvalues.round(6), result.converged
    (array([300., 299.]), array([ True,  True]))
    """

    name = "block Krylov"
    grows_with_p = True
    tol: float = 0.0
    block_size: int | None = None
    max_passes: int | None = None
    passes: int | None = None
    max_blocks: int | None = None
    start: Array | Callable[[], Array] | None = None
    or_dense: bool = False
    to_rounding: bool = False
    twin: bool | None = None

    @property
    def is_default(self) -> bool:
        """Return whether a plan may add a start and change the size of the blocks."""
        return self.passes is None and self.start is None and self.max_blocks is None

    @property
    def takes_twin(self) -> bool:
        """Return whether passes may be made on a twin of the operator."""
        return self.twin is not False and self.passes is None and self.max_passes is None

    def iterates(self, n: int, p: int) -> bool:
        """Return whether `p` of n eigenpairs are few enough for passes; else the dense solver takes over."""
        return FEWEST_SHARE * p <= n

    def width(self, n: int, p: int, on_gpu: bool) -> int:
        if on_gpu:
            usual = rounded_up(max(blocking.GPU_BLOCK_COLUMNS, p + EXTRA_COLUMNS), blocking.WIDE_COLUMNS)
        else:
            usual = -(-(p + blocking.CPU_EXTRA_COLUMNS) // blocking.GEMM_COLUMNS) * blocking.GEMM_COLUMNS
        least = p if self.passes is not None or self.max_passes else 1
        return max(1, min(n, max(least, self.block_size or usual)))

    def basis_columns(self, n: int, p: int, on_gpu: bool) -> int:
        """Return the most columns of the basis."""
        b = self.width(n, p, on_gpu)
        usual = MAX_BLOCKS * max(b, p + EXTRA_COLUMNS) if b >= p else NARROW_BASIS * p
        blocks = self.max_blocks * b if self.max_blocks else usual
        # A restart keeps up to p + b columns, and the next block may have 1.5 times as many.
        return min(n, max(blocks, 2 * p + 3 * max(b, p) + 2 * PROBES))

    def tolerance_for(self, dtype: object) -> float:
        """Return the relative residual at which the iteration stops."""
        return self.tol or default_tolerance(dtype, self.to_rounding)

    @property
    def most_passes(self) -> int:
        """Return the passes after which the iteration ends with any residuals."""
        return max(1, self.passes) if self.passes is not None else self.max_passes or MAX_PASSES

    def workspace_bytes(self, n: int, p: int, item_size: int, on_gpu: bool) -> int:
        columns, width = self.basis_columns(n, p, on_gpu), self.width(n, p, on_gpu)
        panel = min(n, blocking.GPU_INNER_PANEL if on_gpu else blocking.INNER_PANEL)
        # The basis with its products, and temporaries, or the basis of a checkpoint while a resumed fit copies it.
        held = n * (2 * columns + max(8 * width, columns)) * item_size
        squares = DEVICE_SQUARES * 8 * columns**2 * (on_gpu and columns > blocking.HOST_MATRIX)
        return held + 8 * (columns + width) * panel + squares

    def expected_passes(self, n: int, p: int, item_size: int, on_gpu: bool) -> float:
        """Return the passes that most problems take."""
        if self.passes is not None:
            return max(1, self.passes)
        width = self.width(n, p, on_gpu)
        saved = SAVED_BY_COLUMNS * (width >= p + SPARE_COLUMNS)
        dtype = "float64" if item_size == 8 else "float32"
        share = math.log(self.tolerance_for(dtype)) / math.log(default_tolerance(dtype))
        narrow = math.sqrt(max(1.0, p / width))
        return min(max(FEWEST_PASSES, (PASSES[item_size] - saved) * share * narrow), self.most_passes)

    def work(self, n: int, p: int, one_pass: Work, item_size: int, on_gpu: bool) -> Work:
        passes, width = self.expected_passes(n, p, item_size, on_gpu), self.width(n, p, on_gpu)
        columns = min(self.basis_columns(n, p, on_gpu), width * passes)
        on_basis = Work(eigenproblems=columns**3, blocks=PER_BASIS_ENTRY * n * columns * width, calls=STEPS_A_PASS)
        return (one_pass + on_basis) * passes

    def with_wide_block(self, n: int, p: int, on_gpu: bool) -> BlockKrylov | None:
        """Return the solver with `SPARE_COLUMNS` extra columns and a shorter basis."""
        if not self.is_default or self.block_size:
            return None
        columns = rounded_up(max(self.width(n, p, on_gpu), p + SPARE_COLUMNS), blocking.WIDE_COLUMNS)
        return replace(self, block_size=min(n, columns), max_blocks=WIDE_BLOCKS)

    def with_narrow_block(self, n: int, on_gpu: bool) -> BlockKrylov:
        """Return the solver with narrow blocks where passes over n rows are cheap, and not limited."""
        if on_gpu or n > blocking.NARROW_BLOCK_UP_TO or not self.is_default or self.block_size or self.max_passes:
            return self
        return replace(self, block_size=blocking.GEMM_COLUMNS)

    def with_small_basis(self, n: int, p: int) -> BlockKrylov | None:
        """Return the solver whose basis has `FEWEST_BLOCKS` blocks."""
        if self.max_blocks is not None or not self.iterates(n, p):
            return None
        return replace(self, max_blocks=FEWEST_BLOCKS)

    def solve(
        self,
        op: SymmetricOperator,
        p: int,
        rng: np.random.Generator,
        report: PassReport | None = None,
        checkpointer: Checkpointer | None = None,
    ) -> EigenResult:
        return self.solve_request(op, PairRequest.of_count(p), rng, report, checkpointer)

    def solve_request(
        self,
        op: SymmetricOperator,
        request: PairRequest,
        rng: np.random.Generator,
        report: PassReport | None = None,
        checkpointer: Checkpointer | None = None,
    ) -> EigenResult:
        n, p = op.shape[0], request.first
        if not self.iterates(n, p):
            return self._dense(op, request, rng, too_many(n, p))
        # In small blocks the waiting of a second BLAS thread costs more than its work. On a device BLAS solves only the
        # eigenproblem of the basis.
        few = n <= blocking.KRYLOV_ONE_THREAD_UP_TO.on(is_on_gpu(op.like))
        try:
            with single_threaded_blas(few):
                return self._iterate(op, request.up_to(self.most_pairs(n)), rng, report, checkpointer)
        except NeedsDense as reason:
            if not self.or_dense and request.max_count <= self.most_pairs(n):
                raise
            why = str(reason)  # the exception holds the basis
        return self._dense(op, request, rng, why)

    def _dense(self, op: SymmetricOperator, request: PairRequest, rng: np.random.Generator, why: str) -> EigenResult:
        """Return the pairs by the dense solver, which takes over for a reason."""
        dense = Dense(tol=self.tol).solve_request(op, request, rng)
        return replace(dense, solver=f"dense ({why})", has_fixed_passes=self.passes is not None)

    def most_pairs(self, n: int) -> int:
        """Return the most of n eigenpairs for which the solver iterates."""
        return max(1, n // (DENSE_SHARE if self.or_dense else FEWEST_SHARE))

    def patience(self, n: int, p: int, on_gpu: bool) -> float:
        """Return the passes that take as long as the dense solver, whose reduction is bound by memory."""
        # Measured on two cores with 10, 20 and 50 pairs of n = 784 and 2000: 11, 43, 30 and 10 passes.
        b = self.width(n, p, on_gpu)
        half = self.basis_columns(n, p, on_gpu) / 2
        return n**3 / (2.0 * n * n * b + 8.0 * n * b * half + 9.0 * half**3)

    def _iterate(
        self,
        op: SymmetricOperator,
        request: PairRequest,
        rng: np.random.Generator,
        report: PassReport | None,
        checkpointer: Checkpointer | None,
    ) -> EigenResult:
        task = self._task(op, request, rng, launches_early=checkpointer is None)
        state = None if checkpointer is None else resumed_state(task, checkpointer)
        state = state or first_state(task, self.start)
        while not state.is_done:
            state = step(task, state)
            if checkpointer is not None:
                checkpointer.record(state.for_checkpoint(op, rng))
            if report is not None:
                report(state.n_passes, task.limit, state.residual, state.tol)
        return result(task, state)

    def _task(
        self, op: SymmetricOperator, request: PairRequest, rng: np.random.Generator, launches_early: bool
    ) -> KrylovTask:
        """Return the task of a request for an operator; with a checkpointer no product is launched early."""
        n, p, on_gpu = op.shape[0], request.first, is_on_gpu(op.like)
        b = self.width(n, p, on_gpu)
        return KrylovTask(
            op=op,
            rng=rng,
            p=p,
            b=b,
            max_columns=self.basis_columns(n, p, on_gpu),
            limit=self.most_passes * -(-p // b),
            tol=self.tolerance_for(op.dtype),
            is_fixed=self.passes is not None,
            launches_early=on_gpu and launches_early,
            request=request,
            patience=self.patience(n, p, on_gpu) if self.or_dense else math.inf,
        )
