"""TF32: tensor cores that round float32 operands to 10 bits. A certificate of 1e-5 cannot be made of such products."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

# What asks for it: CuPy's own switch, and that of NVIDIA's libraries (where 0 forbids it).
SWITCHES = ("CUPY_TF32", "NVIDIA_TF32_OVERRIDE")


def tf32_switches() -> list[str]:
    """Environment variables that ask for TF32, as «NAME=value»."""
    return [f"{name}={os.environ[name]}" for name in SWITCHES if os.environ.get(name, "0") not in ("0", "")]


@contextmanager
def full_precision() -> Iterator[None]:
    """float32 products of CuPy in full float32 inside; what was set before is put back.

    The setting is one for the process, so it is only touched where TF32 is asked for.
    """
    from cupy._core import _routines_linalg as routines

    float32 = np.dtype(np.float32)
    if routines.get_compute_type(float32) != routines.COMPUTE_TYPE_TF32 and not tf32_switches():
        yield
        return
    before = routines.get_compute_type(float32)
    routines.set_compute_type(float32, routines.COMPUTE_TYPE_PEDANTIC)
    try:
        yield
    finally:
        routines.set_compute_type(float32, before)


def loses_digits() -> bool:
    """Whether a float32 product on the current device rounds its operands to TF32, whatever the settings say."""
    import cupy

    entry = np.float32(1.0 + 2.0**-14)
    block: Any = cupy.full((64, 64), entry, np.float32)
    return bool(abs(float((block @ block)[0, 0]) / 64.0 - float(entry) ** 2) > 2.0**-16)
