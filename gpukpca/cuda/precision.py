"""Products of float32 that round their operands: TF32 keeps 10 bits, and a certificate of 1e-5 cannot be made of them.

CuPy, NVIDIA's libraries and their environment variables all can ask for it, so nobody is asked: a product is looked at.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

import numpy as np

from gpukpca.cuda.device import is_out_of_memory

FLOAT32 = np.dtype(np.float32)


class _FullPrecision:
    """float32 products of CuPy in full float32 inside; what was set before is put back by the last to leave.

    The setting is one for the process, so that the users of it are counted, and it is only touched where products lose
    digits without it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._before = 0

    def __enter__(self) -> None:
        from cupy._core import _routines_linalg as routines

        with self._lock:
            now = routines.get_compute_type(FLOAT32)
            if self._users == 0:
                self._before = now
            if now == self._before and loses_digits():
                routines.set_compute_type(FLOAT32, routines.COMPUTE_TYPE_PEDANTIC)
            self._users += 1

    def __exit__(self, *exception: object) -> None:
        from cupy._core import _routines_linalg as routines

        with self._lock:
            self._users -= 1
            if self._users == 0 and routines.get_compute_type(FLOAT32) != self._before:
                routines.set_compute_type(FLOAT32, self._before)

    def is_needed(self) -> bool:
        """Return whether products lose digits outside."""
        from cupy._core import _routines_linalg as routines

        return routines.get_compute_type(FLOAT32) != self._before


_full_precision = _FullPrecision()


def full_precision() -> _FullPrecision:
    """The context of the process; see `_FullPrecision`."""
    return _full_precision


def loses_digits() -> bool:
    """Return whether a float32 product on the current device, as CuPy is set now, rounds its operands."""
    import cupy
    from cupy._core import _routines_linalg as routines

    try:
        return _rounds_operands(cupy.cuda.get_device_id(), routines.get_compute_type(FLOAT32))
    except Exception as error:
        if is_out_of_memory(error):  # the next product on the device will be looked at
            return False
        raise


@cache
def _rounds_operands(device: int, compute_type: int) -> bool:
    """Multiply small matrices, once for each device and each setting of CuPy: reading the answer waits for the device.

    Libraries read their environment variables when they start, so that only CuPy's setting changes in a process.
    """
    import cupy

    entry = np.float32(1.0 + 2.0**-14)
    block: Any = cupy.full((64, 64), entry, np.float32)
    return bool(abs(float((block @ block)[0, 0]) / 64.0 - float(entry) ** 2) > 2.0**-16)
