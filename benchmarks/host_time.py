"""Time the host's code for a tile of K on a device: ``bash ci/cupy_on_cpu/run.sh DEST python -m benchmarks.host_time``.

On the stand-in, launches return at once, so that the time of the thread is that of Python and of CuPy. A card waits for
the host where a tile takes it less time.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from gpukpca.gram import TiledGram
from gpukpca.kernels import RBF, Kernel, Laplacian, Matern, Polynomial, Sigmoid

KERNELS: dict[str, Kernel] = {
    "rbf": RBF(gamma=0.1),
    "matern": Matern(gamma=0.1),
    "poly": Polynomial(3, gamma=0.1),
    "sigmoid": Sigmoid(gamma=0.01),
    "laplacian": Laplacian(gamma=0.1),
}
# Tiles along a side, as for 100 000 rows; the edge does not matter.
SIDE, EDGE, D, COLUMNS, REPEATS = 13, 128, 10, 64, 20


def microseconds(op: TiledGram, V: Any) -> float:
    """Return the least time of the thread for a tile of a product."""
    times = []
    for _ in range(REPEATS + 1):  # the first one fills the cache
        start = time.thread_time()
        op @ V
        times.append(time.thread_time() - start)
    return 1e6 * min(times[1:]) / op.tiles


def main() -> None:
    """Print a line for every kernel and dtype."""
    import cupy
    import cupy_on_cpu

    rng = np.random.default_rng(0)
    for dtype in (np.float32, np.float64):
        X, V = (cupy.asarray(rng.standard_normal((SIDE * EDGE, k)).astype(dtype)) for k in (D, COLUMNS))
        for name, kernel in KERNELS.items():
            fresh, cached = (TiledGram(kernel, X, tile_edge=EDGE, cached_tiles=count) for count in (0, SIDE**2))
            fresh @ V, cached @ V  # compiles
            with cupy_on_cpu.change(no_work=True):
                computed, used = microseconds(fresh, V), microseconds(cached, V)
            print(f"{name:10} {np.dtype(dtype).name}: {computed:.0f} µs a computed tile, {used:.0f} a cached one")


if __name__ == "__main__":
    main()
