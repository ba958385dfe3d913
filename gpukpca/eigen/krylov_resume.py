"""The state of an iteration that resumes: stored arrays where the operator computes."""

from __future__ import annotations

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend.namespace import cast, from_host, namespace_of
from gpukpca.backend.random import restore_generator
from gpukpca.data.column_basis import ColumnBasis
from gpukpca.eigen.krylov_iteration import first_state
from gpukpca.eigen.krylov_state import TWIN_COLUMNS, Checkpointer, KrylovState, KrylovTask
from gpukpca.exceptions import InvalidParameterError


def resumed_state(task: KrylovTask, checkpointer: Checkpointer) -> KrylovState | None:
    """Return the stored state where the operator computes, or a first state that starts with its Ritz vectors.

    None where nothing is stored.
    """
    n, state = task.op.shape[0], checkpointer.resumed(task)
    if state is None:
        return None
    like = state.multiplied(task.op).like
    if state.T.shape[0] == 0 or tuple(state.Q.array.shape) != (n, state.T.shape[0]):
        raise InvalidParameterError(f"the checkpointer gave a state that is none of an operator of shape ({n}, {n}).")
    restore_generator(task.rng, state.generator)
    state.restore_means(task.op)
    if not state.continues(task):
        return first_state(task, state.ritz_vectors(task.b))
    if not state.on_twin:
        task.op.twin, state = None, state.updated(limit=task.limit, tol=task.tol)
    task = task.sized(state.p, state.b)
    block = None if state.block is None else _on_device(state.block, like)
    columns = state.Q.count + (0 if block is None else int(block.shape[1]))
    most = task.max_columns * (TWIN_COLUMNS if state.on_twin else 1)
    room = 0 if state.is_done else max(most, columns)
    # One after the other: two copies of both bases would take more memory than any pass.
    if state.guide is not None:
        narrow = cast(like, namespace_of(like).float32)
        state = state.updated(guide=_in_store(state.guide, state.guide.count, narrow))
    state = state.updated(block=block, Q=_in_store(state.Q, room, like))
    return state.updated(W=_in_store(state.W, room, like))


def _in_store(host: ColumnBasis, room: int, like: Array) -> ColumnBasis:
    """Return the columns of a host array where `like` is, in memory for `room` columns if any."""
    columns = _on_device(host.array, like)
    return ColumnBasis.with_capacity(columns.shape[0], room, like).append(columns) if room else ColumnBasis((columns,))


def _on_device(A: np.ndarray, like: Array) -> Array:
    """Return a host array in the library and place of `like`, with its order in memory: last bits depend on it."""
    if A.flags.c_contiguous or not A.flags.f_contiguous:
        return from_host(A, like)
    return from_host(A.T, like).T
