"""State of the process: known facts about its devices, and the warnings that it has given.

All state that survives a call is here. Caches of pure functions and contexts that count their users are not state.
"""

from __future__ import annotations

import os
from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class ProcessState:
    """Hold what later calls of the process rely on.

    Attributes
    ----------
    warned : set
        Messages that `warn_once` has given, and what searches have: text, category, file and line.
    device_loss : str
        Why no CUDA device can be used any more, without a full stop; empty while they can.
    cuda_process : int or None
        The process that used CUDA first: CUDA does not survive a fork.
    working_devices : dict
        Index -> description of devices that have worked. A probe costs milliseconds, and some memory.
    rounds_products : dict
        Index of a device -> whether float32 products round their operands there.
    product_rates : dict
        Index of a device -> additions and multiplications a second of float32 and float64 products, measured once.
    tile_edges : dict
        Kind of tile on a card -> edge by timed tiles.
    half_tiles : dict
        Kind of tile on a card -> whether float16 ones are used, as timed.
    checkpoint_folders : dict
        Folder -> fingerprint of the fit that has resumed its checkpoint, or has begun to write one.
    checkpoint_requests : int
        Signals so far that asked the running fits for a checkpoint.
    """

    warned: set[Hashable] = field(default_factory=set)
    device_loss: str = ""
    cuda_process: int | None = None
    working_devices: dict[int, str] = field(default_factory=dict)
    rounds_products: dict[int, bool] = field(default_factory=dict)
    product_rates: dict[int, tuple[float, float]] = field(default_factory=dict)
    tile_edges: dict[str, int] = field(default_factory=dict)
    half_tiles: dict[str, bool] = field(default_factory=dict)
    checkpoint_folders: dict[Path, dict[str, str]] = field(default_factory=dict)
    checkpoint_requests: int = 0

    def reset(self) -> None:
        """Forget everything, as in a new process."""
        vars(self).update(vars(ProcessState()))


state = ProcessState()


def uses_timings() -> bool:
    """Return whether measured times may decide; GPUKPCA_TIMED_CHOICES=0 in the environment forbids it."""
    return os.environ.get("GPUKPCA_TIMED_CHOICES", "1") != "0"
