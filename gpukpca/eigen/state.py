"""What a block Krylov iteration is made of between two passes, so that another process can go on from there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend.column_basis import ColumnBasis
from gpukpca.backend.namespace import accumulation_dtype, from_host, namespace_of
from gpukpca.backend.random import format_generator, restore_generator

# Attributes of the iteration by the same names: integers, or None before the first product.
COUNTERS = (
    *("b", "limit", "max_columns", "n_passes", "n_products", "restarts"),
    *("probe_until", "first_look", "stagnant", "verifying", "exponent"),
)


@dataclass(frozen=True)
class KrylovState:
    """An iteration before its next pass, or after its last one.

    Between two restarts the basis only grows: a pass adds the last block to it, and its product.

    Attributes
    ----------
    p : int
        Eigenpairs wanted.
    Q, W : tuple of arrays with n rows and k columns in all
        The basis and its products, divided by 2**exponent; of a finished iteration the Ritz vectors and theirs.
    block : array, shape (n, b), or None
        What is multiplied next; None once nothing is.
    T : host array, shape (k, k)
        Qᵀ W, symmetric.
    counters : dict
        `COUNTERS` by name.
    extremes : host array, shape (2,)
        The best residual that a pass of its own has confirmed (infinite before), and the smallest Ritz value seen.
    seen : host array, shape (p,), or None
        Eigenvalues at the last probe of a narrow block.
    learned : array or None
        What the operator learned in earlier products.
    generator : str
        State of the random numbers.
    """

    p: int
    Q: tuple[Array, ...] = field(repr=False)
    W: tuple[Array, ...] = field(repr=False)
    block: Array | None = field(repr=False)
    T: np.ndarray = field(repr=False)
    counters: dict[str, int | None]
    extremes: np.ndarray
    seen: np.ndarray | None
    learned: Array | None = field(repr=False)
    generator: str = field(repr=False)

    @property
    def n_passes(self) -> int:
        """Passes made."""
        return self.counters["n_passes"] or 0

    @property
    def finished(self) -> bool:
        """Whether no pass is left."""
        return self.block is None


class Checkpointer(Protocol):
    """Where an iteration leaves its state, and where it finds that of one like it."""

    def resumed(self, p: int) -> KrylovState | None:
        """The state to go on from with p eigenpairs, with arrays on the host; None to begin."""

    def record(self, state: KrylovState) -> None:
        """Take the state before every pass and at the end.

        Its arrays are those of the iteration, which goes on when this returns; `Q` and `W` then change.
        """


def record(iteration: Any, block: Array | None, result: tuple[Array, Array, np.ndarray] | None = None) -> None:
    """Tell the checkpointer, where there is one, of the next block, or at the end of Ritz vectors, products and T."""
    if iteration.checkpointer is None:
        return
    Q, W, T = result or (iteration.Q.array, iteration.W.array, iteration.T)
    iteration.checkpointer.record(_state_of(iteration, Q, W, T, block))


def _state_of(iteration: Any, Q: Array | None, W: Array | None, T: np.ndarray, block: Array | None) -> KrylovState:
    return KrylovState(
        p=iteration.p,
        Q=() if Q is None else (Q,),
        W=() if W is None else (W,),
        block=block,
        T=T,
        counters={name: getattr(iteration, name) for name in COUNTERS},
        extremes=np.array([iteration.best_verified, iteration.smallest]),
        seen=iteration.seen,
        learned=iteration.op.known_means,
        generator=format_generator(iteration.rng),
    )


def restore(iteration: Any, state: KrylovState) -> Array | None:
    """Put an iteration where the state was taken; the block that comes next, None at the end."""
    like = iteration.op.like
    for name in COUNTERS:
        setattr(iteration, name, state.counters[name])
    iteration.best_verified, iteration.smallest = map(float, state.extremes)
    iteration.seen, iteration.T = state.seen, state.T
    if state.learned is not None:
        iteration.op.known_means = from_host(state.learned, like, accumulation_dtype(like))
    restore_generator(iteration.rng, state.generator)
    if state.block is None:
        return None
    iteration.Q = _columns(state.Q, iteration.n, iteration.max_columns, like)
    iteration.W = _columns(state.W, iteration.n, iteration.max_columns, like)
    return to_device(state.block, like)


def to_device(A: np.ndarray, like: Array) -> Array:
    """A host array in the library and place of `like`, its entries in the same order in memory.

    Products depend on that in their last bits.
    """
    if A.flags.c_contiguous or not A.flags.f_contiguous:
        return from_host(A, like)
    return namespace_of(like).matrix_transpose(from_host(A.T, like))


def _columns(parts: tuple[np.ndarray, ...], n: int, capacity: int, like: Array) -> ColumnBasis:
    """The columns of several blocks, put together as they were before."""
    columns = ColumnBasis(n, capacity, like)
    for part in parts:
        if part.shape[1]:
            columns.append(to_device(part, like))
    return columns
