"""The edge of tiles on a card: of three, the one that takes the least time, measured once a process.

A small tile stays in the cache of the card between its product, its function and its two uses; a large one hides the
time that the host takes for its launches. Which counts more depends on the card.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpukpca._process import state, uses_timings
from gpukpca._typing import Array
from gpukpca.backend import blocking
from gpukpca.backend.device import describe_device, is_on_gpu, milliseconds, on_its_device
from gpukpca.backend.linalg import add_tile_product
from gpukpca.backend.namespace import dtype_name, empty_like, full, writable
from gpukpca.data.slicing import take_rows
from gpukpca.gram.product import compute_tile
from gpukpca.kernels.base import Kernel
from gpukpca.kernels.prepared import PreparedRows

# What the usual edge is divided by, and how many times as fast another one must be.
DIVISORS, FASTER = (1, 2, 4), 1.1


def known_edge(kernel: Kernel, like: Array, d: int, usual: int) -> int:
    """Return the edge that this process, or the fit of a checkpoint, has timed for such tiles; else `usual`."""
    if not (is_on_gpu(like) and uses_timings()):
        return usual
    return min(usual, state.tile_edges.get(kind_of(kernel, like, d, usual), usual))


def kind_of(kernel: Kernel, like: Array, d: int, usual: int) -> str:
    """Return what the time of a tile depends on: card, kernel, dtype, number of features to a power of two, edge."""
    card = describe_device(like).partition(" ")[2]
    return f"{card}, {type(kernel).__name__}, {dtype_name(like.dtype)}, d < {2 ** int(d).bit_length()}, edge {usual}"


@on_its_device
def timed_edge(kernel: Kernel, X: Array, template: PreparedRows | None, usual: int) -> int:
    """Return the fastest edge of tiles for rows X (n, d) on a card, `usual` unless another is a tenth faster.

    The first call for a kind of tile does the work of three tiles of the usual edge. K of X has 36 of them at least,
    else nothing is timed.
    """
    if not (is_on_gpu(X) and uses_timings()) or X.shape[0] < blocking.TILES_ALONG_A_SIDE * usual:
        return usual
    kind = kind_of(kernel, X, X.shape[1], usual)
    if kind not in state.tile_edges:
        like, rows = empty_like(X), kernel.prepare(take_rows(X, 0, 2 * usual), like=template)
        V, memory = full((usual, blocking.GPU_BLOCK_COLUMNS), 1.0, like), writable((usual * usual,), like)
        times = {}
        for divisor in DIVISORS:
            edge = max(1, usual // divisor)
            work = _use_of_tile(kernel, rows.slice(0, edge), rows.slice(usual, usual + edge), V[:edge, :], memory)
            work()  # loads and compiles what it launches
            times[edge] = milliseconds(work, divisor**2)
        fastest = min(times, key=lambda edge: times[edge])
        state.tile_edges[kind] = fastest if FASTER * times[fastest] <= times[usual] else usual
    return state.tile_edges[kind]


def _use_of_tile(kernel: Kernel, a: PreparedRows, b: PreparedRows, V: Array, memory: Any) -> Callable[[], None]:
    """Return the function that computes a tile and uses it twice, as a pass does."""
    out, total = memory[: a.n_rows * b.n_rows].reshape((a.n_rows, b.n_rows)), 0.0 * V

    def work() -> None:
        T = compute_tile(kernel, a, b, V, False, out)
        add_tile_product(total, T, V)
        add_tile_product(total, T, V, transposed=True)

    return work
