"""The passes of a block Krylov iteration: each is a function from one state to the next.

state = first_state(op, settings, None, rng)
while not state.is_done:
    state = step(op, state, settings, rng)
eigen = result(op, state, settings)
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from gpukpca._formatting import pluralize
from gpukpca._typing import Array, SymmetricOperator
from gpukpca.backend.column_basis import ColumnBasis
from gpukpca.backend.linalg import inner_products, leading_ritz_pairs, newton_factor, ritz_pairs, smallest_eigenvalue
from gpukpca.backend.namespace import cast, from_host, move, namespace_of
from gpukpca.backend.orthogonalization import orthonormal_directions
from gpukpca.backend.random import random_directions
from gpukpca.eigen.krylov_state import KrylovSettings, KrylovState, Phase
from gpukpca.eigen.residuals import (
    NULL_FACTOR,
    allowed_residual,
    estimated_residual,
    ldexp,
    make_result,
    operator_size,
    orthonormalized,
    rayleigh_ritz,
    residuals,
)
from gpukpca.eigen.result import EigenResult
from gpukpca.exceptions import ConvergenceError, InvalidParameterError

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
# The next look is taken not to be the last if residuals that fall so many times faster would still be above the target.
# On 34 spectra in both precisions this held for half of the looks; 3 of 1956 passes were launched needlessly.
FASTEST = 3.0
# In place of 0 in logarithms.
TINY = 1e-300


# -- from the first state to the result --------------------------------------------------------------------------------


def first_state(
    op: SymmetricOperator, settings: KrylovSettings, start: Array | None, rng: np.random.Generator
) -> KrylovState:
    """Return the state before the first pass; `start`, shape (n, k), holds directions to start from."""
    empty = ColumnBasis.with_capacity(op.shape[0], settings.max_columns, op.like)
    return KrylovState(
        p=settings.p,
        phase=Phase.EXTEND,
        Q=empty,
        W=ColumnBasis.with_capacity(op.shape[0], settings.max_columns, op.like),
        T=np.zeros((0, 0)),
        block=_first_block(op, settings, start, rng),
        probe_until=0 if start is None else PASSES_WITH_START,
        # Before the first pass a residual is taken for 1 / tol times the target.
        distance=-math.log(settings.tol),
    )


def step(op: SymmetricOperator, state: KrylovState, settings: KrylovSettings, rng: np.random.Generator) -> KrylovState:
    """Return the state after one more pass over the operator."""
    if state.phase is Phase.EXTEND:
        return _extend(op, state, settings, rng)
    return _verify(op, state, settings, rng)


def result(op: SymmetricOperator, state: KrylovState, settings: KrylovSettings) -> EigenResult:
    """Return the eigenpairs of an iteration that is done."""
    p, exponent, values = settings.p, state.exponent or 0, np.diag(state.T)
    U, W = orthonormalized(state.Q.array[:, :p], state.W.array[:, :p])
    return make_result(
        op,
        np.ldexp(values[:p], exponent),
        U,
        ldexp(W, exponent),
        tolerance=settings.tol,
        next_eigenvalue=float(np.ldexp(values[p], exponent)) if len(values) > p else None,
        n_passes=state.n_passes,
        n_products=state.n_products,
        smallest_seen=float(np.ldexp(state.smallest, exponent)),
        has_fixed_passes=settings.is_fixed,
        solver=f"block Krylov (block of {settings.b}, {pluralize(state.restarts, 'restart')})",
    )


# -- a pass that extends the basis -------------------------------------------------------------------------------------


def _extend(
    op: SymmetricOperator, state: KrylovState, settings: KrylovSettings, rng: np.random.Generator
) -> KrylovState:
    """Return the state after multiplying the next block: extended, restarted, to be verified, or done."""
    state, remainder = _append_product(op, state)
    is_last = state.n_passes >= settings.limit
    block = None if is_last else _next_block(op, state, remainder, settings, rng)
    goes_on = block is not None and state.Q.count + block.shape[1] <= settings.max_columns
    if goes_on and _is_early(state, settings):
        return replace(state, block=block, residual=None)
    outside = inner_products(remainder, remainder)
    del remainder
    # While a device makes the next product, the host computes Ritz values.
    product = op @ block if goes_on and settings.looks_late and state.is_far else None
    state, theta, S, estimate = _look(op, state, settings, outside)
    may_stop = not settings.is_fixed and state.Q.count >= settings.p and state.n_passes >= state.probe_until
    if not is_last and may_stop and (block is None or estimate <= _target(op, state, settings, theta)):
        return _stop(op, state, settings, theta, S)
    return _continue(replace(state, product=product), block, settings)


def _is_early(state: KrylovState, settings: KrylovSettings) -> bool:
    """Return whether it is too early to look at residuals."""
    return state.n_passes < FIRST_LOOK or state.Q.count < settings.p or settings.is_fixed


def _append_product(op: SymmetricOperator, state: KrylovState) -> tuple[KrylovState, Array]:
    """Return the state whose basis holds the block and its product, and the part (n, b) of the product outside."""
    block: Array = state.block
    state, W = _multiply(op, state, block)
    Q = state.Q.append(block)
    coefficients = Q.products_with(W)
    k, b = state.T.shape[0], block.shape[1]
    T = np.zeros((k + b, k + b))
    T[:k, :k] = state.T
    T[:, k:] = coefficients
    T[k:, :k] = coefficients[:k].T
    T[k:, k:] = (coefficients[k:] + coefficients[k:].T) / 2.0
    smallest = min(state.smallest, float(np.min(np.diag(T))))
    state = replace(state, Q=Q, W=state.W.append(W), T=T, smallest=smallest, block=None)
    return state, W - Q.combine(coefficients)


def _multiply(op: SymmetricOperator, state: KrylovState, V: Array) -> tuple[KrylovState, Array]:
    """Return the state after one more pass, and op @ V for V (n, b), launched ahead or now, scaled."""
    W = op @ V if state.product is None else state.product
    xp = namespace_of(W)
    if not bool(xp.all(xp.isfinite(W))):
        raise ConvergenceError("a product with the operator gave NaN or infinity: its entries overflow")
    exponent = state.exponent
    if exponent is None:
        largest = float(xp.max(xp.abs(W)))
        exponent = int(np.frexp(largest)[1]) if largest > 0 else 0
    state = replace(
        state,
        n_passes=state.n_passes + 1,
        n_products=state.n_products + int(V.shape[1]),
        exponent=exponent,
        product=None,
    )
    return state, ldexp(W, -exponent)


def _look(
    op: SymmetricOperator, state: KrylovState, settings: KrylovSettings, outside: np.ndarray
) -> tuple[KrylovState, np.ndarray, np.ndarray, float]:
    """Return the state, the p + 1 largest Ritz values, their coordinates (k, p + 1) and the estimated residual.

    `outside`, shape (b, b), is the Gram matrix of the part of the last product outside of the basis. All arrays are on
    the host: a device may be busy with the next product.
    """
    theta, S = leading_ritz_pairs(state.T, min(state.T.shape[0], settings.p + 1))
    estimate = estimated_residual(S, outside, settings.p)
    distance = math.log(max(estimate, TINY)) - math.log(max(_target(op, state, settings, theta), TINY))
    drop = (state.distance - distance) / (state.n_passes - state.last_look)
    state = replace(
        state,
        residual=_relative(estimate, theta, settings),
        distance=distance,
        last_look=state.n_passes,
        is_far=distance > FASTEST * drop,
    )
    return state, theta, S, estimate


def _stop(
    op: SymmetricOperator, state: KrylovState, settings: KrylovSettings, theta: np.ndarray, S: np.ndarray
) -> KrylovState:
    """Return the end with residuals of the products made so far; the state before a verification near rounding."""
    target = _target(op, state, settings, theta)
    rounding = NULL_FACTOR * settings.eps * max(_size(op, state), _largest(theta, settings))
    if settings.b >= settings.p and target >= SUMMED_PRODUCTS * rounding:
        U, W = state.Q.combine(S), state.W.combine(S)
        if _worst(U, W, theta, settings) <= target:
            smallest = min(state.smallest, smallest_eigenvalue(state.T))
            return _done(replace(state, smallest=smallest), theta, U, W)
    return replace(state, phase=Phase.VERIFY)


def _continue(state: KrylovState, block: Array | None, settings: KrylovSettings) -> KrylovState:
    """Return the state before the next extension, with a basis that has room for it; the end where none is left."""
    if block is None or state.n_passes >= settings.limit:
        return _end_of_basis(state, settings)
    if state.Q.count + block.shape[1] > settings.max_columns:
        state = _restart(state, settings)
    return replace(state, phase=Phase.EXTEND, block=block)


def _restart(state: KrylovState, settings: KrylovSettings) -> KrylovState:
    """Return the state with the best Ritz vectors for a basis; their residuals all lie in the block that comes next."""
    state, theta, S = _ritz(state, settings)
    keep = min(settings.p + settings.b, state.Q.count - settings.b)
    Q, W = (basis.replace_all(basis.combine(S[:, :keep])) for basis in (state.Q, state.W))
    return replace(state, Q=Q, W=W, T=np.diag(theta[:keep]), restarts=state.restarts + 1)


def _end_of_basis(state: KrylovState, settings: KrylovSettings) -> KrylovState:
    """Return the end with the best of the basis when no pass is left: products of Ritz vectors by linearity."""
    state, theta, S = _ritz(state, settings)
    keep = min(settings.p + 1, state.Q.count)
    return _done(state, theta[:keep], state.Q.combine(S[:, :keep]), state.W.combine(S[:, :keep]))


def _done(state: KrylovState, values: np.ndarray, U: Array, W: Array) -> KrylovState:
    """Return the end of an iteration: Ritz values, vectors and their products."""
    Q, products = ColumnBasis((U,)), ColumnBasis((W,))
    return replace(state, phase=Phase.DONE, Q=Q, W=products, T=np.diag(values), block=None, product=None)


def _ritz(state: KrylovState, settings: KrylovSettings) -> tuple[KrylovState, np.ndarray, np.ndarray]:
    """Return the state with its smallest Ritz value, and as many Ritz pairs as a restart keeps."""
    theta, S, smallest = ritz_pairs(state.T, min(state.T.shape[0], settings.p + settings.b))
    return replace(state, smallest=min(state.smallest, smallest)), theta, S


# -- a pass that verifies ----------------------------------------------------------------------------------------------


def _verify(
    op: SymmetricOperator, state: KrylovState, settings: KrylovSettings, rng: np.random.Generator
) -> KrylovState:
    """Return the state after multiplying the Ritz vectors themselves, with a few random probes: done, or restarted.

    The residuals of the stopping test come from products summed over many passes. This pass gives true ones and the
    product that scores are made of, and random directions show an eigenvalue that was missed.
    """
    n, p, b = op.shape[0], settings.p, settings.b
    state, _, S = _ritz(state, settings)
    keep = min(p + max(1, b // 2), state.Q.count)
    probes = random_directions(rng, (n, PROBES), op.like)
    U = namespace_of(probes).concat([state.Q.combine(S[:, :keep]), probes], axis=1)
    U = orthonormal_directions(op.project(U), floor=0.0)
    state, W = _multiply(op, state, U)
    values, U, W = rayleigh_ritz(U, W)
    worst, target = _worst(U, W, values, settings), _target(op, state, settings, values)
    stagnant = state.stagnant + 1 if worst > 0.5 * state.best_residual else 0
    best = min(worst, state.best_residual)
    state = replace(state, residual=_relative(worst, values, settings), stagnant=stagnant, best_residual=best)
    if worst <= target or stagnant == MOST_STAGNANT:
        if _has_seen(state, settings, values, target):
            return _done(state, values, U, W)
        state = _probe(state, values[:p])
    remainder = W - U * from_host(values, U)[None, :]
    Q, products = state.Q.replace_all(U), state.W.replace_all(W)
    state = replace(state, Q=Q, W=products, T=np.diag(values), restarts=state.restarts + 1)
    if state.n_passes < state.probe_until:
        fresh = random_directions(rng, (n, b), op.like)
        remainder = namespace_of(U).concat([remainder, _size(op, state) * fresh], axis=1)
    return _continue(state, _next_block(op, state, remainder, settings, rng), settings)


def _has_seen(state: KrylovState, settings: KrylovSettings, values: np.ndarray, target: float) -> bool:
    """Return whether no member of a cluster can be missing: a block narrower than p may hide some until a probe."""
    if settings.b >= settings.p:
        return True
    return state.seen is not None and float(np.max(np.abs(values[: settings.p] - state.seen))) <= target


def _probe(state: KrylovState, values: np.ndarray) -> KrylovState:
    """Return the state that goes on from random directions until nothing new can show."""
    first_look = state.first_look or state.n_passes
    return replace(
        state,
        seen=values,
        first_look=first_look,
        probe_until=state.n_passes + first_look,
        stagnant=0,
        best_residual=float("inf"),
    )


# -- blocks ------------------------------------------------------------------------------------------------------------


def _first_block(
    op: SymmetricOperator, settings: KrylovSettings, start: Array | None, rng: np.random.Generator
) -> Array:
    """Return orthonormal directions to start with, shape (n, b): those of `start` first, then random ones."""
    n, b = op.shape[0], settings.b
    room = max(0, b - max(PROBES, b // 4))  # random directions always take part
    given = None if start is None or room == 0 else _checked_start(op, start)
    if given is not None:  # of length one, like the random ones, whatever the size of a start
        given = orthonormal_directions(op.project(given[:, : min(room, given.shape[1])]), floor=0.0)
    parts = [] if given is None else [given]
    missing = b - (given.shape[1] if given is not None else 0)
    parts.append(random_directions(rng, (n, missing), op.like) * n**-0.5)
    block = op.project(parts[0] if len(parts) == 1 else namespace_of(op.like).concat(parts, axis=1))
    block = orthonormal_directions(block, floor=0.0)
    # A centered problem on so few points that nothing but the constant vector is left.
    return block if block is not None else from_host(np.eye(n, 1), op.like)


def _checked_start(op: SymmetricOperator, start: Array) -> Array:
    if start.ndim != 2 or start.shape[0] != op.shape[0]:
        raise InvalidParameterError(
            f"BlockKrylov: start of shape {tuple(start.shape)} does not fit; expected ({op.shape[0]}, k)."
        )
    return cast(move(start, op.like), op.dtype)


def _next_block(
    op: SymmetricOperator, state: KrylovState, remainder: Array, settings: KrylovSettings, rng: np.random.Generator
) -> Array | None:
    """Return orthonormal directions of the remainder that are not rounding noise; None when the basis is closed.

    While the basis has fewer than p columns, random directions make up for what is missing.
    """
    n, Q = op.shape[0], state.Q
    room = n - Q.count
    if room <= 0:
        return None
    block = orthonormal_directions(remainder, floor=DROP_FACTOR * settings.eps * _size(op, state))
    count = 0 if block is None else block.shape[1]
    if count < settings.b and Q.count + count < settings.p:
        random = random_directions(rng, (n, min(settings.b - count, room)), op.like)
        block = random if block is None else namespace_of(block).concat([block, random], axis=1)
        block = orthonormal_directions(_outside(Q, block), floor=0.0)
    if block is None:
        return None
    # Twice is enough: the second projection makes small directions orthogonal to the basis to rounding.
    block = op.project(_outside(Q, block))
    gram = inner_products(block, block)
    if float(np.max(np.abs(gram - np.eye(len(gram))))) <= NEARLY_ORTHONORMAL * math.sqrt(settings.eps):
        return block @ from_host(newton_factor(gram), block)
    return orthonormal_directions(block, floor=0.5)


def _outside(Q: ColumnBasis, V: Array) -> Array:
    """Return V minus its projection on the basis."""
    return V - Q.combine(Q.products_with(V))


# -- sizes, all divided by 2**exponent ---------------------------------------------------------------------------------


def _size(op: SymmetricOperator, state: KrylovState) -> float:
    """Return the size of the operator: rounding errors of a product are eps times this.

    What centering cancels errs entry by entry with random signs, which costs a factor of sqrt(n) less.
    """
    noise = float(np.ldexp(operator_size(op, np.zeros(0)), -(state.exponent or 0))) / float(op.shape[0] ** 0.5)
    return max(noise, -state.smallest, float(np.max(np.abs(np.diag(state.T)), initial=0.0)))


def _target(op: SymmetricOperator, state: KrylovState, settings: KrylovSettings, theta: np.ndarray) -> float:
    """Return the largest residual allowed: what the tolerance leaves or rounding allows."""
    largest = _largest(theta, settings)
    allowed = allowed_residual(op, settings.tol, largest, state.exponent or 0)
    return max(allowed, NULL_FACTOR * settings.eps * max(_size(op, state), largest))


def _largest(theta: np.ndarray, settings: KrylovSettings) -> float:
    return float(np.max(np.abs(theta[: settings.p]), initial=0.0))


def _relative(residual: float, theta: np.ndarray, settings: KrylovSettings) -> float:
    """Return a residual as a share of the largest Ritz value."""
    largest = _largest(theta, settings)
    return residual / largest if largest > 0 else 0.0


def _worst(U: Array, W: Array, values: np.ndarray, settings: KrylovSettings) -> float:
    """Return the largest residual of the first p pairs."""
    p = settings.p
    return float(np.max(residuals(U[:, :p], W[:, :p], values[:p]), initial=0.0))
