"""The passes of a block Krylov iteration: each is a function from one state to the next.

state = first_state(task, None)
while not state.is_done:
    state = step(task, state)
eigen = result(task, state)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gpukpca._formatting import pluralize
from gpukpca._typing import Array
from gpukpca.backend import blocking
from gpukpca.backend.linalg import inner_products, leading_ritz_pairs, newton_factor, ritz_pairs, smallest_eigenvalue
from gpukpca.backend.namespace import from_host, namespace_of
from gpukpca.backend.orthogonalization import orthonormal_directions
from gpukpca.backend.random import random_directions
from gpukpca.data.column_basis import ColumnBasis
from gpukpca.eigen.krylov_blocks import PROBES, first_block, next_block
from gpukpca.eigen.krylov_sizes import (
    allowed_by_pair,
    largest_modulus_of,
    operator_scale,
    residual_excess,
    residuals_of_first,
    rounding_level,
)
from gpukpca.eigen.krylov_state import TINY, KrylovState, KrylovTask, Phase, rounded_up
from gpukpca.eigen.krylov_twin import corrected, handed_over, judged_on_twin
from gpukpca.eigen.request import NeedsDense
from gpukpca.eigen.residuals import (
    NULL_FACTOR,
    estimated_residuals,
    ldexp,
    rayleigh_ritz,
)
from gpukpca.eigen.result import EigenResult
from gpukpca.exceptions import ConvergenceError, InvalidParameterError

# Before this pass ordinary spectra have not converged, and a check costs a small eigenproblem.
FIRST_CHECK = 3
PASSES_WITH_START = 3
# Passes that multiply the new directions of a wider block, and then their products, before the iteration may stop.
PASSES_WHEN_WIDER = 2
# Sums of products over the passes err by this many times the least rounding.
SUMMED_PRODUCTS = 2.0
# After so many verifications without progress the residual counts as rounding.
MOST_STAGNANT = 3
# A pass is not checked if residuals that fall so many times faster would still miss the target. So many passes in a row
# are skipped at most, or those for as many new columns as pairs. On 8 kernel matrices, 120 iterations, this takes 817
# checks for 1001 with one pass skipped, and 3 of 2078 passes in vain.
FASTEST, MOST_SKIPPED = 3.0, 3
# The least decrease of the logarithm of the residual that is worth another correction.
LEAST_GAIN = math.log(2.0)
# Eigenvalues that differ by up to so many times the residuals allowed may be equal.
CLUSTER = 10.0
# A block becomes at most so many times as wide in a pass.
MOST_WIDENED = 2


# -- from the first state to the result --------------------------------------------------------------------------------


def first_state(task: KrylovTask, start: Array | Callable[[], Array] | None) -> KrylovState:
    """Return the state before the first pass; `start`, shape (n, k), holds or returns directions to start from."""
    start, on_twin = start() if callable(start) else start, task.op.twin is not None
    task = task if task.op.twin is None else task.for_twin(task.op.twin)
    block, known = first_block(task, start)
    return KrylovState(
        p=task.p,
        b=task.b,
        limit=task.limit,
        tol=task.tol,
        is_fixed=task.is_fixed,
        phase=Phase.EXTEND,
        Q=ColumnBasis.with_capacity(task.op.shape[0], task.max_columns, task.op.like),
        W=ColumnBasis.with_capacity(task.op.shape[0], task.max_columns, task.op.like),
        T=np.zeros((0, 0)),
        block=block,
        probe_until=0 if start is None else PASSES_WITH_START,
        known=known,
        # Before the first pass the residual counts as 1 / tol times the target.
        distance=-math.log(task.tol),
        on_twin=on_twin,
        coupled=0,
    )


def step(task: KrylovTask, state: KrylovState) -> KrylovState:
    """Return the state after one more pass over the operator; raise `NeedsDense` where the dense solver is faster."""
    task = task.sized(state.p, state.b)
    if state.on_twin:
        return _step_on_twin(task, state)
    return {Phase.EXTEND: _extend, Phase.CORRECT: _correct}.get(state.phase, _verify)(task, state)


def result(task: KrylovTask, state: KrylovState) -> EigenResult:
    """Return the eigenpairs of an iteration that is done."""
    exponent, values = state.exponent or 0, np.diag(state.T)
    p = task.request.count_of(task.op, np.ldexp(values, exponent)) or state.p
    U, W = (basis.array[:, :p] for basis in (state.Q, state.W))
    on_twin = f", {state.twin_passes} of {state.n_passes} passes on a twin" if state.twin_passes else ""
    # Eigenvectors of a small matrix times a basis are orthonormal to some hundred eps only.
    factor = from_host(newton_factor(U), U)
    return EigenResult.of(
        task.op,
        np.ldexp(values[:p], exponent),
        U @ factor,
        ldexp(W @ factor, exponent),
        tolerance=task.tol,
        next_eigenvalue=float(np.ldexp(values[p], exponent)) if len(values) > p else None,
        n_passes=state.n_passes,
        n_products=state.n_products,
        smallest_seen=float(np.ldexp(state.smallest, exponent)),
        has_fixed_passes=task.is_fixed,
        solver=f"block Krylov (block of {state.b}, {pluralize(state.restarts, 'restart')}{on_twin})",
        twin_residual=state.twin_residual,
    )


# -- a pass that extends the basis -------------------------------------------------------------------------------------


def _extend(task: KrylovTask, state: KrylovState) -> KrylovState:
    """Return the state after the product with the next block: extended, restarted, before verification, or done."""
    state, remainder = _append_product(task, state)
    is_last = state.n_passes >= task.limit
    outside = inner_products(remainder, remainder)
    block = None if is_last else next_block(task, state, remainder, outside)
    if task.is_share and not is_last and (block is None or task.is_fixed or state.n_passes >= FIRST_CHECK):
        task, state = _recounted(task, state, is_closed=block is None)
        if task.b > len(outside):
            block = _wider_block(task, state, remainder)
    del remainder
    goes_on = block is not None and state.Q.count + block.shape[1] <= task.max_columns
    is_early = state.n_passes < FIRST_CHECK or state.Q.count < task.p or task.is_fixed
    if goes_on and (is_early or (state.is_far and not task.launches_early)):
        return state.updated(block=block, residual=None)
    # While a device makes the next product, the host computes Ritz values.
    product = task.op @ block if goes_on and task.launches_early and state.is_far else None
    before = state
    state, theta, S, excess = _estimate(task, state, outside)
    task.check_forecast(before, state)
    may_stop = not task.is_fixed and state.Q.count >= task.p and state.n_passes >= state.probe_until
    has_converged = may_stop and (block is None or excess <= 1.0)
    if has_converged and block is not None:
        state = _with_share(task, state, theta)
        has_converged = state.p == task.p
    if state.on_twin and may_stop and block is not None:
        state, has_converged = judged_on_twin(state, has_converged, task.is_share)
    if state.on_twin and (has_converged or is_last or block is None):
        return _to_verify(state)
    if not is_last and has_converged:
        return _stop(task, state, theta, S)
    return _continue(task, state.updated(product=product), block)


def _step_on_twin(task: KrylovTask, state: KrylovState) -> KrylovState:
    """Return the state after one more pass over the twin: extended, or with Ritz vectors for the operator to verify."""
    if task.op.twin is None:  # a resumed fit has memory for other tiles
        return handed_over(task, state)
    try:  # without a name for the twin: its memory is that of the operator's own tiles
        state = _extend(task.for_twin(task.op.twin), state)
    except NeedsDense:
        raise
    except (ConvergenceError, InvalidParameterError):  # numbers beyond the range of float32
        task.op.twin, done = None, state.n_passes
    else:
        return state if state.phase is Phase.EXTEND else handed_over(task, state)
    return _extend(task, first_state(task, None).updated(n_passes=done, twin_passes=done, twin_residual=math.inf))


def _recounted(task: KrylovTask, state: KrylovState, is_closed: bool) -> tuple[KrylovTask, KrylovState]:
    """Return task and state with as many pairs as the Ritz values say, with room for a block as wide.

    Ritz values are lower bounds of the eigenvalues, so the number at which they exceed the amount is an upper bound.
    With `is_closed` they are eigenvalues, but members of a cluster wider than the block may be missing.
    """
    theta, noise = state.ritz_values(), rounding_level(task, state)
    if (count := task.request.count_of(task.op, theta)) is None:
        # Of Ritz values that are not enough, half a block of the leading ones is near eigenvalues.
        forecast = task.request.forecast(task.op, theta[: max(1, task.b // 2)], noise)
        count = max(task.p, int(np.sum(theta > noise)) + 1 if is_closed else forecast)
        if state.n_passes > FIRST_CHECK and task.request.is_exceeded_by(task.op, theta):
            count = task.request.max_count + 1
    # The first Ritz values are too small for a forecast.
    is_early = state.n_passes < FIRST_CHECK and not is_closed
    p = min(count, task.request.max_count) if is_early else task.request.checked(count)
    b = task.b
    if p > b:  # with as many spare columns as before, and in steps: the first values are far too small
        spare = rounded_up(p + task.b - task.p, blocking.GEMM_COLUMNS)
        b = max(b, min(spare, MOST_WIDENED * b, task.op.shape[0] - state.Q.count))
    # Exact eigenpairs may lack members of a cluster, until passes with the new directions of a wider block.
    probe_until = max(state.probe_until, state.n_passes + PASSES_WHEN_WIDER if b > task.b else 0)
    task = task.sized(p, b)
    Q, W = (basis.with_room(task.max_columns) for basis in (state.Q, state.W))
    return task, state.updated(p=p, b=b, Q=Q, W=W, probe_until=probe_until)


def _with_share(task: KrylovTask, state: KrylovState, theta: np.ndarray) -> KrylovState:
    """Return the state with more pairs where the first p Ritz values do not hold the share."""
    values = np.ldexp(theta[: task.p], state.exponent or 0)
    if not task.is_share or task.request.count_of(task.op, values) is not None:
        return state
    more = max(task.p + 1, task.request.forecast(task.op, values, rounding_level(task, state)))
    return state.updated(p=task.request.checked(more))


def _wider_block(task: KrylovTask, state: KrylovState, remainder: Array) -> Array | None:
    """Return the next block of the remainder, filled with random directions."""
    fresh = random_directions(task.rng, (task.op.shape[0], task.b - remainder.shape[1]), task.op.like)
    wider = namespace_of(fresh).concat([remainder, operator_scale(task, state) * fresh], axis=1)
    return next_block(task, state, wider, inner_products(wider, wider))


def _append_product(task: KrylovTask, state: KrylovState) -> tuple[KrylovState, Array]:
    """Return the state whose basis holds the block and its product, and the part (n, b) of the product outside."""
    block: Array = state.block
    state, product = _multiply(task, state, block)
    Q, products = state.Q.append(block), state.W.append(product)
    k, b, first = state.T.shape[0], block.shape[1], state.coupled or 0
    W, near = products.array[:, k:], ColumnBasis((Q.array[:, first:],))
    coefficients = near.products_with(W)
    T = np.zeros((k + b, k + b))
    T[:k, :k] = state.T
    T[first:, k:] = coefficients
    T[k:, first:k] = coefficients[: k - first].T
    T[k:, k:] = (coefficients[k - first :] + coefficients[k - first :].T) / 2.0
    smallest = min(state.smallest, float(T.diagonal().min()))
    coupled = None if state.coupled is None else k
    state = state.updated(Q=Q, W=products, T=T, smallest=smallest, block=None, coupled=coupled)
    return state, W - near.combine(coefficients)


def _multiply(task: KrylovTask, state: KrylovState, V: Array) -> tuple[KrylovState, Array]:
    """Return the state after one more pass, and task.op @ V for V (n, b), launched ahead or now, scaled."""
    W = task.op @ V if state.product is None else state.product
    xp = namespace_of(W)
    if not bool(xp.all(xp.isfinite(W))):
        raise ConvergenceError("a product with the operator gave NaN or infinity: its entries overflow")
    exponent = state.exponent
    if exponent is None:
        exponent = math.frexp(float(xp.max(xp.abs(W))))[1]
    state = state.updated(
        n_passes=state.n_passes + 1,
        n_products=state.n_products + int(V.shape[1]),
        exponent=exponent,
        product=None,
    )
    return state, ldexp(W, -exponent)


def _estimate(
    task: KrylovTask, state: KrylovState, outside: np.ndarray
) -> tuple[KrylovState, np.ndarray, np.ndarray, float]:
    """Return the state, the p + 1 largest Ritz values, their coordinates (k, p + 1) and the excess of the residuals.

    `outside`, shape (b, b), is the Gram matrix of the part of the last product outside of the basis. All arrays are on
    the host: a device may be busy with the next product.
    """
    theta, S = leading_ritz_pairs(state.T, min(state.T.shape[0], task.p + 1), task.op.like)
    excess = residual_excess(task, state, theta, estimated_residuals(S, outside, task.p))
    distance = math.log(max(excess, TINY))
    drop = (state.distance - distance) / (state.n_passes - state.last_check)
    skipped = sum(distance > FASTEST * drop * k for k in range(1, max(MOST_SKIPPED, task.p // task.b) + 1))
    state = state.updated(
        residual=excess * task.tol,
        distance=distance,
        last_check=state.n_passes,
        next_check=state.n_passes + skipped + 1,
        first_check=state.first_check or state.n_passes,
        first_distance=state.first_distance if state.first_check else distance,
    )
    return state, theta, S, excess


def _stop(task: KrylovTask, state: KrylovState, theta: np.ndarray, S: np.ndarray) -> KrylovState:
    """Return the end with residuals of the products so far; near rounding the state before a verification."""
    target = float(np.min(allowed_by_pair(task, state, theta), initial=math.inf))
    rounding = NULL_FACTOR * task.eps * max(operator_scale(task, state), largest_modulus_of(theta, task))
    if target >= SUMMED_PRODUCTS * rounding and _is_complete(task, state, theta):
        U, W = state.Q.combine(S), state.W.combine(S)
        if residual_excess(task, state, theta, residuals_of_first(U, W, theta, task)) <= 1.0:
            smallest = min(state.smallest, smallest_eigenvalue(state.T, task.op.like))
            return _done(state.updated(smallest=smallest), theta, U, W)
    return _to_verify(state)


def _to_verify(state: KrylovState) -> KrylovState:
    """Return the state before a verification, and without corrections after it."""
    return state.updated(phase=Phase.VERIFY, guide=None, guide_T=None)


def _continue(task: KrylovTask, state: KrylovState, block: Array | None) -> KrylovState:
    """Return the state before the next extension, with a basis that has room for it; the end where none is left."""
    if block is None or state.n_passes >= task.limit:
        return _end_of_basis(task, state)
    if state.Q.count + block.shape[1] > task.max_columns:
        state = _restart(task, state)
    return state.updated(phase=Phase.EXTEND, block=block)


def _restart(task: KrylovTask, state: KrylovState) -> KrylovState:
    """Return the state whose basis holds the best Ritz vectors; their residuals all lie in the next block."""
    state, theta, S = _ritz(task, state)
    keep = min(task.p + task.b, state.Q.count - task.b)
    Q, W = (basis.replace_all(basis.combine(S[:, :keep])) for basis in (state.Q, state.W))
    coupled = None if state.coupled is None else 0
    return state.updated(Q=Q, W=W, T=np.diag(theta[:keep]), restarts=state.restarts + 1, coupled=coupled)


def _end_of_basis(task: KrylovTask, state: KrylovState) -> KrylovState:
    """Return the end with the best of the basis when no pass is left: products of Ritz vectors by linearity."""
    if task.is_share:  # the last pass may have added pairs
        p = max(task.p, task.request.count_of(task.op, state.ritz_values()) or 0)
        task, state = replace(task, p=p), state.updated(p=p)
    state, theta, S = _ritz(task, state)
    keep = min(task.p + 1, state.Q.count)
    return _done(state, theta[:keep], state.Q.combine(S[:, :keep]), state.W.combine(S[:, :keep]))


def _done(state: KrylovState, values: np.ndarray, U: Array, W: Array) -> KrylovState:
    """Return the end of an iteration: Ritz values, vectors and their products."""
    Q, products = ColumnBasis((U,)), ColumnBasis((W,))
    ended = {"phase": Phase.DONE, "Q": Q, "W": products, "T": np.diag(values)}
    return state.updated(**ended, **dict.fromkeys(("block", "product", "guide", "guide_T", "coupled")))


def _ritz(task: KrylovTask, state: KrylovState) -> tuple[KrylovState, np.ndarray, np.ndarray]:
    """Return the state with its smallest Ritz value, and as many Ritz pairs as a restart keeps."""
    theta, S, smallest = ritz_pairs(state.T, min(state.T.shape[0], task.p + task.b), task.op.like)
    return state.updated(smallest=min(state.smallest, smallest)), theta, S


# -- a pass that verifies ----------------------------------------------------------------------------------------------


def _verify(task: KrylovTask, state: KrylovState) -> KrylovState:
    """Return the state after the product with the Ritz vectors and a few random probes: done, or restarted.

    The residuals of the stopping test come from products summed over many passes. This pass gives true residuals and
    the products for the scores; random directions show an eigenvalue that was missed.
    """
    n, p, b = task.op.shape[0], task.p, task.b
    state, _, S = _ritz(task, state)
    few, follows_twin = p + max(1, b // 2), state.n_passes == state.twin_passes
    # The Ritz vectors of a twin are all worth a column.
    vectors = state.Q.array if follows_twin else state.Q.combine(S[:, :few])
    probes = random_directions(task.rng, (n, PROBES), task.op.like)
    U = namespace_of(probes).concat([vectors, probes], axis=1)
    U = orthonormal_directions(task.op.project(U), floor=0.0)
    state, W = _multiply(task, state, U)
    values, U, W = rayleigh_ritz(U, W)
    if follows_twin:
        left = residuals_of_first(U, W, values, task).max() / max(largest_modulus_of(values, task), TINY)
        state = state.updated(twin_residual=float(left), smallest=min(0.0, float(values.min())))
        state = _with_share(task, state, values)  # that of the twin is the same to its rounding only
        p, task = state.p, task.sized(state.p, b)
    norms = residuals_of_first(U, W, values, task)
    excess = residual_excess(task, state, values, norms)
    stagnant = state.stagnant + 1 if excess > 0.5 * state.best_excess else 0
    best = min(excess, state.best_excess)
    state = state.updated(residual=excess * task.tol, stagnant=stagnant, best_excess=best)
    if excess <= 1.0 or stagnant == MOST_STAGNANT:
        if _is_complete(task, state, values):
            return _done(state, values, U, W)
        # From random directions, as many as pairs, for as many passes as before.
        b, probe_until = max(b, p), 2 * state.n_passes
        state = state.updated(b=b, known=0, probe_until=probe_until, stagnant=0, best_excess=math.inf)
        task = task.sized(p, b)
    few = few + PROBES
    remainder = W[:, :few] - U[:, :few] * from_host(values[:few], U)[None, :]
    Q, products = state.Q.replace_all(U), state.W.replace_all(W)
    state = state.updated(Q=Q, W=products, T=np.diag(values), restarts=state.restarts + 1, coupled=None)
    if state.guide is not None:
        return _with_corrections(task, state, remainder[:, : p + PROBES], values, excess)
    if state.n_passes < state.probe_until:
        fresh = random_directions(task.rng, (n, b), task.op.like)
        remainder = namespace_of(U).concat([remainder, operator_scale(task, state) * fresh], axis=1)
    return _continue(task, state, next_block(task, state, remainder, inner_products(remainder, remainder)))


def _correct(task: KrylovTask, state: KrylovState) -> KrylovState:
    """Return the state after the product with corrections of the Ritz vectors: done, corrected again, or to verify."""
    state, _ = _append_product(task, state)
    theta, S = leading_ritz_pairs(state.T, min(state.Q.count, task.p + PROBES), task.op.like)
    U, W = state.Q.combine(S), state.W.combine(S)
    excess = residual_excess(task, state, theta, residuals_of_first(U, W, theta, task))
    state = state.updated(residual=excess * task.tol)
    if state.n_passes >= task.limit:
        return _end_of_basis(task, state)
    if excess <= 1.0:
        grown = _with_share(task, state, theta)
        return _stop(task, state, theta, S) if grown.p == task.p else _to_verify(grown)
    return _with_corrections(task, state, W - U * from_host(theta, U)[None, :], theta, excess)


def _with_corrections(task: KrylovTask, state: KrylovState, R: Array, theta: np.ndarray, excess: float) -> KrylovState:
    """Return the state before a pass with corrections of residuals R; before a verification where they gain little."""
    distance = math.log(max(excess, TINY))
    gains = distance < state.distance - LEAST_GAIN and state.Q.count + R.shape[1] <= task.max_columns
    R = corrected(state, R, theta)
    block = next_block(task, state, R, inner_products(R, R)) if gains else None
    if block is None:
        return _to_verify(state)
    return state.updated(phase=Phase.CORRECT, block=block, distance=distance)


def _is_complete(task: KrylovTask, state: KrylovState, values: np.ndarray) -> bool:
    """Return whether no member of a cluster can be missing: one as wide as the random directions may have more."""
    random, values = task.b - state.known, values[: task.p]
    if random >= task.p or random > len(values):
        return True
    width = CLUSTER * float(np.max(allowed_by_pair(task, state, values), initial=0.0))
    return bool(np.all(values[: len(values) - random + 1] - values[random - 1 :] > width))
