"""The blocks of directions that a Krylov iteration multiplies."""

from __future__ import annotations

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend.linalg import inner_products, times_small
from gpukpca.backend.namespace import cast, from_host, move, namespace_of
from gpukpca.backend.orthogonalization import directions_by_gram, orthonormal_directions, orthonormalizing_factor
from gpukpca.backend.random import random_directions
from gpukpca.data.column_basis import ColumnBasis
from gpukpca.eigen.krylov_sizes import DROP_FACTOR, operator_scale
from gpukpca.eigen.krylov_state import KrylovState, KrylovTask
from gpukpca.exceptions import InvalidParameterError

# Random directions that a first block and a verification hold at least.
PROBES = 2


def first_block(task: KrylovTask, start: Array | None) -> tuple[Array, int]:
    """Return orthonormal directions to start with, shape (n, b): those of `start` first, then random ones; how many."""
    n, b = task.op.shape[0], task.b
    room = max(0, b - max(PROBES, b // 4))  # random directions always take part
    start_block = None if start is None or room == 0 else _checked_start(task, start)
    if start_block is not None:  # of length one, like the random ones, for any size of a start
        start_block = orthonormal_directions(
            task.op.project(start_block[:, : min(room, start_block.shape[1])]), floor=0.0
        )
    known = 0 if start_block is None else int(start_block.shape[1])
    block = random_directions(task.rng, (n, b - known), task.op.like) * n**-0.5
    block = block if start_block is None else namespace_of(block).concat([start_block, block], axis=1)
    block = orthonormal_directions(task.op.project(block), floor=0.0)
    # A centered problem on so few points has the constant vector only.
    return (block if block is not None else from_host(np.eye(n, 1), task.op.like)), known


def _checked_start(task: KrylovTask, start: Array) -> Array:
    if start.ndim != 2 or start.shape[0] != task.op.shape[0]:
        raise InvalidParameterError(
            f"BlockKrylov: start of shape {tuple(start.shape)} does not fit; expected ({task.op.shape[0]}, k)."
        )
    return cast(move(start, task.op.like), task.op.dtype)


def next_block(task: KrylovTask, state: KrylovState, remainder: Array, gram: np.ndarray) -> Array | None:
    """Return orthonormal directions of the remainder that are not rounding noise; None when the basis is closed.

    `gram`, shape (b, b), is the Gram matrix of the remainder, shape (n, b). While the basis has fewer than p columns,
    random directions make up for what is missing.
    """
    n, Q = task.op.shape[0], state.Q
    room = n - Q.count
    if room <= 0:
        return None
    floor = DROP_FACTOR * task.eps * operator_scale(task, state)
    block = directions_by_gram(remainder, gram, floor)
    if block is None:
        block = orthonormal_directions(remainder, floor)
    count = 0 if block is None else block.shape[1]
    if count < task.b and Q.count + count < task.p:
        random = random_directions(task.rng, (n, min(task.b - count, room)), task.op.like)
        block = random if block is None else namespace_of(block).concat([block, random], axis=1)
        block = orthonormal_directions(_outside(Q, block), floor=0.0)
    if block is None:
        return None
    # Twice is enough: the second projection makes small directions orthogonal to the basis to rounding.
    block = task.op.project(_outside(Q, block))
    factor = orthonormalizing_factor(inner_products(block, block))
    return orthonormal_directions(block, floor=0.5) if factor is None else times_small(block, factor)


def _outside(Q: ColumnBasis, V: Array) -> Array:
    """Return V minus its projection on the basis."""
    return V - Q.combine(Q.products_with(V))
