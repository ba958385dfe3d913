"""Products of float32 that round their operands: TF32 keeps 10 bits, too few for a certificate of 1e-5.

CuPy, NVIDIA's libraries and environment variables can each turn this on. Known settings are read. Test products show
the others: one of a size that small kernels serve, and one of the shape of a tile.
"""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np

from gpukpca._process import state
from gpukpca.cuda.device import is_out_of_memory

FLOAT32 = np.dtype(np.float32)
# Rows, columns and terms of the test products. cuBLAS chooses its kernels by the shape.
SHAPES = ((64, 64, 64), (512, 512, 102))
# Variable of NVIDIA's libraries that overrides every program where it is set to anything but 0.
OVERRIDE = "NVIDIA_TF32_OVERRIDE"


class _FullPrecision:
    """Keep float32 products of CuPy in full float32; the last user restores the earlier setting.

    The setting belongs to the process, so its users are counted. It is changed only where products lose digits.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._before = 0
        self._rounds = False

    def __enter__(self) -> None:
        from cupy._core import _routines_linalg as routines

        with self._lock:
            now = routines.get_compute_type(FLOAT32)
            if self._users == 0:
                self._before = now
            if now == self._before:
                is_set = now == routines.COMPUTE_TYPE_TF32 or os.environ.get(OVERRIDE, "0") not in ("", "0")
                rounds = is_set or _test_products()
                self._rounds = rounds is True
                if rounds is not False:
                    routines.set_compute_type(FLOAT32, routines.COMPUTE_TYPE_PEDANTIC)
            self._users += 1

    def __exit__(self, *exception: object) -> None:
        from cupy._core import _routines_linalg as routines

        with self._lock:
            self._users -= 1
            if self._users == 0 and routines.get_compute_type(FLOAT32) != self._before:
                routines.set_compute_type(FLOAT32, self._before)

    def is_needed(self) -> bool:
        """Return whether products are known to lose digits outside."""
        return self._rounds


# The context of the process.
full_precision = _FullPrecision()


def loses_digits() -> bool:
    """Return whether a float32 product on the current device, as CuPy is set now, is known to round its operands."""
    return _test_products() is True


def _test_products() -> bool | None:
    """Return whether test products round their operands; None where the device has no memory for them now."""
    import cupy
    from cupy._core import _routines_linalg as routines

    try:
        key = (cupy.cuda.get_device_id(), routines.get_compute_type(FLOAT32))
        if key not in state.rounded_operands:
            state.rounded_operands[key] = _rounds_operands()
        return state.rounded_operands[key]
    except Exception as error:
        if is_out_of_memory(error):
            return None
        raise


def _rounds_operands() -> bool:
    """Multiply test matrices on the current device. Reading the answer waits for the device."""
    import cupy

    entry = np.float32(1.0 + 2.0**-14)

    def error(n: int, m: int, k: int) -> float:
        left: Any = cupy.full((n, k), entry, np.float32)
        product = left @ cupy.full((k, m), entry, np.float32)
        wrong = [float(extreme) / k - float(entry) ** 2 for extreme in (product.max(), product.min())]
        return max(map(abs, wrong))

    return max(error(*shape) for shape in SHAPES) > 2.0**-16
