"""Block Krylov iteration with a random start, full orthogonalization, thick restart and a residual stop."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import numpy as np

from gpukpca._formatting import pluralize
from gpukpca._typing import Array, PassReport, SymmetricOperator
from gpukpca.backend import blocking
from gpukpca.backend.column_basis import ColumnBasis
from gpukpca.backend.device import is_on_gpu
from gpukpca.backend.linalg import inner_products, leading_ritz_pairs, newton_factor, ritz_pairs, smallest_eigenvalue
from gpukpca.backend.namespace import cast, epsilon, from_host, move, namespace_of
from gpukpca.backend.orthogonalization import orthonormal_directions
from gpukpca.backend.parallel import single_threaded_blas
from gpukpca.backend.random import random_directions
from gpukpca.eigen.dense import Dense, check_tolerance
from gpukpca.eigen.forecast import Forecast
from gpukpca.eigen.residuals import (
    NULL_FACTOR,
    allowed_residual,
    default_tolerance,
    estimated_residual,
    ldexp,
    make_result,
    operator_size,
    orthonormalized,
    rayleigh_ritz,
    residuals,
)
from gpukpca.eigen.result import EigenResult
from gpukpca.eigen.state import Checkpointer, record, restore, to_device
from gpukpca.exceptions import ConvergenceError, InvalidParameterError

MAX_PASSES = 300
# Blocks in the basis before it is compressed. Measured on real data: with 8 or 10 blocks as many passes as with 24.
MAX_BLOCKS = 10
# Before this pass ordinary spectra have not converged, and looking costs a small eigenproblem.
FIRST_LOOK = 3
PROBES = 2
PASSES_WITH_START = 3
# Products added up over the passes err by this many times what rounding allows at best.
SUMMED_PRODUCTS = 2.0
# Verifications without progress after which the residual is taken for what rounding allows.
MOST_STAGNANT = 3
# In units of sqrt(eps): Newton's step squares the distance from orthonormal.
NEARLY_ORTHONORMAL = 0.3
# Directions smaller than this many eps of the operator's size are rounding noise, not directions.
DROP_FACTOR = 50.0


@dataclass(frozen=True)
class BlockKrylov:
    """Block Krylov solver for the algebraically largest eigenpairs; the operator is only multiplied with blocks.

    Parameters
    ----------
    tol : float
        Stop when every residual ``||op u - lambda u||`` is at most ``tol`` times the largest eigenvalue; 0 is the
        default of the dtype (1e-8 in float64, 1e-5 in float32). 100 eps can be reached.
    block_size : int, optional
        Columns a pass. Default p + 8 rounded up to a multiple of 4 on a CPU, at least 64 on a GPU. With fewer columns
        than p, members of a cluster of more equal eigenvalues than columns may be missed; a probe of fresh random
        directions looks for them.
    max_passes : int, optional
        Most passes over the operator (default 300, more for a block narrower than p).
    passes : int, optional
        Exactly so many passes, whatever the residuals.
    max_blocks : int, optional
        Blocks kept in the basis before it is compressed to its best Ritz vectors (default 10).
    start : array, shape (n, k), optional
        Directions to start from; random ones fill at least a quarter of the block, and three passes are made at least,
        so that what the start does not know of is found.

    Notes
    -----
    Work: one product with a block a pass, and O(n (m b) b) for the basis of m blocks of b columns. Memory: the basis
    and its products, 2 n m b items, taken at the start. Random numbers are drawn on the host. The residuals are those
    of the operator's own products; where `tol` is near what rounding allows, one more pass multiplies the eigenvectors
    themselves. On a device the next product may be launched before Ritz values are looked at: the numbers are the same,
    and a wrong forecast costs one product, which is not counted.

    Musco & Musco, arXiv 1504.05477 (block Krylov for the top eigenvectors); Wu & Simon, SIAM J. Matrix Anal. Appl. 22
    (2000) (thick restart); Chen et al., arXiv 2508.06486 (the choice of the block size).
    """

    tol: float = 0.0
    block_size: int | None = None
    max_passes: int | None = None
    passes: int | None = None
    max_blocks: int | None = None
    start: Array | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_tolerance(self.tol)
        for name in ("block_size", "max_passes", "passes", "max_blocks"):
            value = getattr(self, name)
            if value is not None and value < (0 if name == "passes" else 1):
                raise InvalidParameterError(f"BlockKrylov: {name}={value!r} is not allowed; it must be at least 1.")

    def width(self, n: int, p: int, on_gpu: bool) -> int:
        """Columns of a block."""
        if on_gpu:
            usual = rounded_up(max(blocking.GPU_BLOCK_COLUMNS, p + blocking.CPU_EXTRA_COLUMNS), blocking.GPU_COLUMNS)
        else:
            usual = rounded_up(p + blocking.CPU_EXTRA_COLUMNS, blocking.GEMM_COLUMNS)
        return max(1, min(n, self.block_size or usual))

    def basis_columns(self, n: int, p: int, on_gpu: bool) -> int:
        """Most columns that the basis ever has."""
        b = self.width(n, p, on_gpu)
        blocks = self.max_blocks * b if self.max_blocks else MAX_BLOCKS * max(b, p + blocking.CPU_EXTRA_COLUMNS)
        # A restart keeps up to p + b columns, and the block after it may be as wide again and half as wide.
        return min(n, max(blocks, 2 * p + 3 * b + 2 * PROBES))

    def most_passes(self, p: int, b: int) -> int:
        """Passes after which the iteration ends whatever the residuals."""
        if self.passes is not None:
            return max(1, self.passes)
        # A narrow block needs more passes for as many columns.
        return self.max_passes or MAX_PASSES * -(-p // b)

    def workspace_items(self, n: int, p: int, on_gpu: bool) -> int:
        """Items beside what the operator itself holds: basis, products, and a few blocks of temporaries."""
        return n * (2 * self.basis_columns(n, p, on_gpu) + 8 * self.width(n, p, on_gpu))

    def solve(
        self,
        op: SymmetricOperator,
        p: int,
        rng: np.random.Generator,
        report: PassReport | None = None,
        checkpointer: Checkpointer | None = None,
    ) -> EigenResult:
        """See `gpukpca.eigen.top_eigh`."""
        n = op.shape[0]
        if 5 * p > n:
            dense = Dense(tol=self.tol).solve(op, p, rng)
            why = f"dense (block Krylov was requested, but p = {p} is more than a fifth of n = {n})"
            return replace(dense, solver=why)
        # Small blocks are not worth a second BLAS thread, whose waiting costs more than its work.
        # On a device BLAS has only the eigenproblem of the basis to do.
        few = n <= blocking.KRYLOV_ONE_THREAD_UP_TO.on(is_on_gpu(op.like))
        with single_threaded_blas() if few else nullcontext():
            return _Iteration(self, op, p, rng, report, checkpointer).run()


class _Iteration:
    """One solution under way: the basis Q, its products W = op Q, and the small matrix T = Qᵀ op Q."""

    def __init__(
        self,
        settings: BlockKrylov,
        op: SymmetricOperator,
        p: int,
        rng: np.random.Generator,
        report: PassReport | None,
        checkpointer: Checkpointer | None,
    ) -> None:
        self.op, self.p, self.rng, self.report, self.checkpointer = op, p, rng, report, checkpointer
        self.n = op.shape[0]
        on_gpu = is_on_gpu(op.like)
        self.max_columns = settings.basis_columns(self.n, p, on_gpu)
        self.fixed = settings.passes is not None
        self.b = settings.width(self.n, p, on_gpu)
        self.limit = settings.most_passes(p, self.b)
        # So few passes must still give p directions.
        self.b = max(self.b, -(-p // self.limit))
        self.tol = settings.tol or default_tolerance(op.dtype)
        self.eps = epsilon(op.like)
        self.start = settings.start
        self.n_passes = self.n_products = self.restarts = 0
        # Before this pass nothing is believed: a start may lie in an invariant subspace that is not the top one.
        self.probe_until = 0 if self.start is None else PASSES_WITH_START
        self.seen: np.ndarray | None = None
        self.first_look = 0
        self.best_verified = float("inf")
        self.stagnant = 0
        self.forecast = Forecast(self.tol)
        # While a device makes the next product the host looks at Ritz values; a checkpointer waits for the device.
        self.looks_late = on_gpu and checkpointer is None
        self.product: Array | None = None
        # Whether the next pass is that of `_verified`.
        self.verifying = 0
        # The smallest Ritz value seen: an upper bound on the smallest eigenvalue, and so a proof of indefiniteness.
        self.smallest = 0.0
        self.Q = ColumnBasis(self.n, self.max_columns, op.like)
        self.W = ColumnBasis(self.n, self.max_columns, op.like)
        self.T = np.zeros((0, 0))
        # Entries of the products are divided by 2**exponent, so that squares neither overflow nor vanish.
        self.exponent: int | None = None

    # -- the driver ------------------------------------------------------------------------------------------------

    def run(self) -> EigenResult:
        state = None if self.checkpointer is None else self.checkpointer.resumed(self.p)
        block: Array | None = self._first_block() if state is None else restore(self, state)
        if state is not None and block is None:
            U, W = (to_device(parts[0], self.op.like) for parts in (state.Q, state.W))
            return self._result(np.diag(state.T), U, W)
        while True:
            if not self.verifying:
                record(self, block)
                remainder = self._extend(block)
                block = self._next_block(remainder) if self.n_passes < self.limit else None
                goes_on = block is not None and self._has_room_for(block)
                if goes_on and self._is_early():
                    self._tell(None, np.zeros(0))
                    continue
                outside = inner_products(remainder, remainder)
                if goes_on and self.looks_late and self.forecast.is_far:
                    self.product = self.op @ block
                theta, S, estimate = self._look(outside)
                if self.n_passes >= self.limit:
                    return self._from_basis()
            if self.verifying or self._may_stop(block, estimate, theta):
                self.product = None
                result, remainder = self._verified() if self.verifying else self._stopped(theta, S, block)
                if result is not None:
                    return result
                block = self._next_block(remainder)
            if block is None or self.n_passes >= self.limit:
                return self._from_basis()
            if not self._has_room_for(block):
                self._compress()

    def _is_early(self) -> bool:
        """Whether it is too early to look at residuals."""
        return self.n_passes < FIRST_LOOK or self.Q.count < self.p or self.fixed

    def _has_room_for(self, block: Array) -> bool:
        return self.Q.count + block.shape[1] <= self.max_columns

    def _may_stop(self, block: Array | None, estimate: float, theta: np.ndarray) -> bool:
        """Whether the residuals may be small enough."""
        if self.fixed or self.Q.count < self.p or self.n_passes < self.probe_until:
            return False
        return block is None or estimate <= self._target(theta)

    def _stopped(
        self, theta: np.ndarray, S: np.ndarray, block: Array | None
    ) -> tuple[EigenResult | None, Array | None]:
        """The result with residuals of the products made so far, or of one more pass where rounding matters."""
        rounding = NULL_FACTOR * self.eps * max(self._size(), self._largest(theta))
        if self.b >= self.p and self._target(theta) >= SUMMED_PRODUCTS * rounding:
            U, W = self.Q.combined(S), self.W.combined(S)
            if self._worst(U, W, theta) <= self._target(theta):
                self.smallest = min(self.smallest, smallest_eigenvalue(self.T))
                return self._result(theta, U, W), None
        self.verifying = 1
        if block is not None:
            record(self, block)
        return self._verified()

    def _worst(self, U: Array, W: Array, values: np.ndarray) -> float:
        """Largest residual of the first p pairs."""
        return float(np.max(residuals(U[:, : self.p], W[:, : self.p], values[: self.p]), initial=0.0))

    def _first_block(self) -> Array:
        room = max(0, self.b - max(PROBES, self.b // 4))  # random directions always take part
        start = None if self.start is None or room == 0 else self._checked_start(self.start)
        if start is not None:  # of length one, like the random ones: no size of a start may drown them
            start = orthonormal_directions(self._projected(start[:, : min(room, start.shape[1])]), floor=0.0)
        parts = [] if start is None else [start]
        missing = self.b - (start.shape[1] if start is not None else 0)
        parts.append(random_directions(self.rng, (self.n, missing), self.op.like) * self.n**-0.5)
        block = self._projected(parts[0] if len(parts) == 1 else namespace_of(self.op.like).concat(parts, axis=1))
        block = orthonormal_directions(block, floor=0.0)
        # A centered problem on so few points that nothing is left beside the constant vector.
        return block if block is not None else from_host(np.eye(self.n, 1), self.op.like)

    def _checked_start(self, start: Array) -> Array:
        if start.ndim != 2 or start.shape[0] != self.n:
            raise InvalidParameterError(
                f"BlockKrylov: start of shape {tuple(start.shape)} does not fit; expected ({self.n}, k)."
            )
        return cast(move(start, self.op.like), self.op.dtype)

    def _extend(self, block: Array) -> Array:
        """Multiply a new orthonormal block, append it, and return what of the product lies outside the basis."""
        W = self._multiplied(block)
        self.Q.append(block)
        self.W.append(W)
        coefficients = self.Q.products_with(W)
        k, b = self.T.shape[0], block.shape[1]
        T = np.zeros((k + b, k + b))
        T[:k, :k] = self.T
        T[:, k:] = coefficients
        T[k:, :k] = coefficients[:k].T
        T[k:, k:] = (coefficients[k:] + coefficients[k:].T) / 2.0
        self.T = T
        self.smallest = min(self.smallest, float(np.min(np.diag(T))))
        return W - self.Q.combined(coefficients)

    def _multiplied(self, V: Array) -> Array:
        """op @ V, launched ahead or now, scaled; counted as one pass."""
        W, self.product = self.op @ V if self.product is None else self.product, None
        self.n_passes += 1
        self.n_products += V.shape[1]
        xp = namespace_of(W)
        if not bool(xp.all(xp.isfinite(W))):
            raise ConvergenceError("a product with the operator gave NaN or infinity: its entries overflow")
        if self.exponent is None:
            largest = float(xp.max(xp.abs(W)))
            self.exponent = int(np.frexp(largest)[1]) if largest > 0 else 0
        return ldexp(W, -self.exponent)

    # -- Rayleigh–Ritz ---------------------------------------------------------------------------------------------

    def _look(self, outside: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """Return the p + 1 largest Ritz values, their coordinates and the estimated residual, all from host arrays."""
        theta, S = leading_ritz_pairs(self.T, min(self.T.shape[0], self.p + 1))
        estimate = estimated_residual(S, outside, self.p)
        self._tell(estimate, theta)
        self.forecast.update(self.n_passes, estimate, self._target(theta))
        return theta, S, estimate

    def _ritz(self) -> tuple[np.ndarray, np.ndarray]:
        """As many Ritz pairs as a restart keeps, and the smallest Ritz value."""
        theta, S, smallest = ritz_pairs(self.T, min(self.T.shape[0], self.p + self.b))
        self.smallest = min(self.smallest, smallest)
        return theta, S

    def _target(self, theta: np.ndarray) -> float:
        """Return the largest residual allowed, in scaled units: what the tolerance leaves or rounding allows."""
        largest = self._largest(theta)
        allowed = allowed_residual(self.op, self.tol, largest, self.exponent or 0)
        return max(allowed, NULL_FACTOR * self.eps * max(self._size(), largest))

    def _largest(self, theta: np.ndarray) -> float:
        return float(np.max(np.abs(theta[: self.p]), initial=0.0))

    def _verified(self) -> tuple[EigenResult | None, Array]:
        """Multiply the Ritz vectors themselves, with a few random probes: the result, or None and a new remainder.

        The residuals of the stopping test come from products added up over many passes. This pass gives true ones and
        the product that scores are made of, and random directions show an eigenvalue that was missed.
        """
        S = self._ritz()[1]
        keep = min(self.p + max(1, self.b // 2), self.Q.count)
        probes = random_directions(self.rng, (self.n, PROBES), self.op.like)
        U = namespace_of(probes).concat([self.Q.combined(S[:, :keep]), probes], axis=1)
        U = orthonormal_directions(self._projected(U), floor=0.0)
        W = self._multiplied(U)
        self.verifying = 0
        values, U, W = rayleigh_ritz(U, W)
        worst = self._worst(U, W, values)
        self._tell(worst, values)
        confirmed = worst <= self._target(values)
        self.stagnant = self.stagnant + 1 if worst > 0.5 * self.best_verified else 0
        self.best_verified = min(worst, self.best_verified)
        if (confirmed or self.stagnant == MOST_STAGNANT) and not self._needs_another_look(values):
            return self._result(values, U, W), W
        self.restarts += 1
        self.Q.replace(U)
        self.W.replace(W)
        self.T = np.diag(values)
        remainder = W - U * from_host(values, U)[None, :]
        if self.n_passes < self.probe_until:
            fresh = random_directions(self.rng, (self.n, self.b), self.op.like)
            remainder = namespace_of(U).concat([remainder, self._size() * fresh], axis=1)
        return None, remainder

    def _needs_another_look(self, values: np.ndarray) -> bool:
        """A block narrower than p can hide members of a cluster: on from random directions until nothing new shows."""
        if self.b >= self.p:
            return False
        values = values[: self.p]
        if self.seen is not None and float(np.max(np.abs(values - self.seen))) <= self._target(values):
            return False
        self.seen = values
        self.first_look = self.first_look or self.n_passes
        self.stagnant, self.best_verified = 0, float("inf")
        self.probe_until = self.n_passes + self.first_look
        return True

    def _from_basis(self) -> EigenResult:
        """The best of the basis when no pass is left: products of Ritz vectors by linearity."""
        theta, S = self._ritz()
        keep = min(self.p + 1, self.Q.count)
        return self._result(theta[:keep], self.Q.combined(S[:, :keep]), self.W.combined(S[:, :keep]))

    def _result(self, values: np.ndarray, U: Array, W: Array) -> EigenResult:
        record(self, None, (U, W, np.diag(values)))
        exponent = self.exponent or 0
        following = float(np.ldexp(values[self.p], exponent)) if len(values) > self.p else None
        U, W = orthonormalized(U[:, : self.p], W[:, : self.p])
        return make_result(
            self.op,
            np.ldexp(values[: self.p], exponent),
            U,
            ldexp(W, exponent),
            tolerance=self.tol,
            next_eigenvalue=following,
            n_passes=self.n_passes,
            n_products=self.n_products,
            smallest_seen=float(np.ldexp(self.smallest, exponent)),
            solver=f"block Krylov (block of {self.b}, {pluralize(self.restarts, 'restart')})",
        )

    # -- the basis -------------------------------------------------------------------------------------------------

    def _compress(self) -> None:
        """Thick restart: keep the best Ritz vectors; their residuals all lie in the block that comes next."""
        theta, S = self._ritz()
        keep = min(self.p + self.b, self.Q.count - self.b)
        self.Q.replace(self.Q.combined(S[:, :keep]))
        self.W.replace(self.W.combined(S[:, :keep]))
        self.T = np.diag(theta[:keep])
        self.restarts += 1

    def _outside(self, V: Array) -> Array:
        """V minus its projection on the basis."""
        return V - self.Q.combined(self.Q.products_with(V))

    def _next_block(self, remainder: Array) -> Array | None:
        """Orthonormal directions of the remainder that are not rounding noise; None when the basis is closed.

        While the basis has fewer than p columns, random directions make up for what is missing.
        """
        room = self.n - self.Q.count
        if room <= 0:
            return None
        block = orthonormal_directions(remainder, floor=DROP_FACTOR * self.eps * self._size())
        found = 0 if block is None else block.shape[1]
        if found < self.b and self.Q.count + found < self.p:
            random = random_directions(self.rng, (self.n, min(self.b - found, room)), self.op.like)
            block = random if block is None else namespace_of(block).concat([block, random], axis=1)
            block = orthonormal_directions(self._outside(block), floor=0.0)
        if block is None:
            return None
        # Twice is enough: the second projection makes small directions orthogonal to the basis to rounding.
        block = self._projected(self._outside(block))
        gram = inner_products(block, block)
        if float(np.max(np.abs(gram - np.eye(len(gram))))) <= NEARLY_ORTHONORMAL * math.sqrt(self.eps):
            return block @ from_host(newton_factor(gram), block)
        return orthonormal_directions(block, floor=0.5)

    def _projected(self, V: Array) -> Array:
        return self.op.project(V)

    # -- bookkeeping -----------------------------------------------------------------------------------------------

    def _size(self) -> float:
        """Size of the operator, in scaled units: rounding errors of a product are eps times this.

        What centering cancels errs entry by entry with random signs, which costs a factor of sqrt(n) less.
        """
        noise = float(np.ldexp(operator_size(self.op, np.zeros(0)), -(self.exponent or 0))) / self.n**0.5
        return max(noise, -self.smallest, float(np.max(np.abs(np.diag(self.T)), initial=0.0)))

    def _tell(self, residual: float | None, theta: np.ndarray) -> None:
        if self.report is not None:
            largest = self._largest(theta)
            relative = residual if residual is None else residual / largest if largest > 0 else 0.0
            self.report(self.n_passes, self.limit, relative, self.tol)


def rounded_up(number: int, multiple: int) -> int:
    """The next multiple."""
    return -(-number // multiple) * multiple
