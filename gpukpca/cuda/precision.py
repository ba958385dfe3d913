"""TF32: tensor cores that round float32 operands to 10 bits. A certificate of 1e-5 cannot be made of such products."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np

FLOAT32 = np.dtype(np.float32)
# What asks for it: CuPy's own switch, and that of NVIDIA's libraries (where 0 forbids it).
SWITCHES = ("CUPY_TF32", "NVIDIA_TF32_OVERRIDE")


def tf32_switches() -> list[str]:
    """Environment variables that ask for TF32, as «NAME=value»."""
    return [f"{name}={os.environ[name]}" for name in SWITCHES if os.environ.get(name, "0") not in ("0", "")]


class _FullPrecision:
    """float32 products of CuPy in full float32 inside; what was set before is put back by the last to leave.

    The setting is one for the process, so that the users of it are counted, and it is only touched where TF32 is asked
    for.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._before = 0

    def __enter__(self) -> None:
        from cupy._core import _routines_linalg as routines

        with self._lock:
            now = routines.get_compute_type(FLOAT32) if self._users == 0 else 0
            if self._users == 0 and (tf32_switches() or now == routines.COMPUTE_TYPE_TF32):
                self._before = now
                routines.set_compute_type(FLOAT32, routines.COMPUTE_TYPE_PEDANTIC)
            self._users += 1

    def __exit__(self, *exception: object) -> None:
        from cupy._core import _routines_linalg as routines

        with self._lock:
            self._users -= 1
            if self._users == 0 and self._before:
                before, self._before = self._before, 0
                routines.set_compute_type(FLOAT32, before)


_full_precision = _FullPrecision()


def full_precision() -> _FullPrecision:
    """The context of the process; see `_FullPrecision`."""
    return _full_precision


def loses_digits() -> bool:
    """Whether a float32 product on the current device rounds its operands to TF32, whatever the settings say."""
    import cupy

    entry = np.float32(1.0 + 2.0**-14)
    block: Any = cupy.full((64, 64), entry, np.float32)
    return bool(abs(float((block @ block)[0, 0]) / 64.0 - float(entry) ** 2) > 2.0**-16)
