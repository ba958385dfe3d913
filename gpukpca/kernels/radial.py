"""The distance at which a function of it has fallen by so much, where no formula says it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from gpukpca.kernels.base import Kernel

# Logarithms of the squared distances between which the answer lies: 1e-260 and 1e260.
NEAREST, FARTHEST = -600.0, 600.0
# So often halved, that interval is as long as rounding.
HALVINGS = 60


def square_distances(kernel: Kernel, drops: np.ndarray) -> np.ndarray:
    """The ‖x - y‖² at which k(x, y) is `drops` below k(x, x), by bisection; `FARTHEST` where it never falls so low."""
    drops = np.asarray(drops, dtype=np.float64)
    low, high = np.full(drops.shape, NEAREST), np.full(drops.shape, FARTHEST)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        short = kernel.drops(np.exp(middle)) < drops
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return np.where(drops > 0, np.exp(high), 0.0)
