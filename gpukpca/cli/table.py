"""What an input becomes, and whether there is room for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpukpca.backend.device import host_free_bytes
from gpukpca.decomposition.plan import spelled_bytes
from gpukpca.exceptions import MemoryBudgetError


@dataclass(frozen=True)
class Table:
    """What was read.

    Attributes
    ----------
    X : array, shape (n, d)
    source : str
        Where it came from and how it was understood.
    labels : array (n,) or None
        Integers, floats or strings.
    sample_names, feature_names : tuple of str or None
    """

    X: np.ndarray
    source: str
    labels: np.ndarray | None = None
    sample_names: tuple[str, ...] | None = None
    feature_names: tuple[str, ...] | None = None


def check_room(needed: float, what: str, advice: str = "") -> None:
    """Raise `MemoryBudgetError` where `needed` bytes are not free."""
    free = host_free_bytes()
    if needed > free:
        raise MemoryBudgetError(
            f"{what} needs about {spelled_bytes(int(needed))} of memory, and {spelled_bytes(free)} are free.{advice}"
        )
