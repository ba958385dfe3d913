"""What smoke.py and its parts share: lines that say what was compared, and the matrices they compare."""

from collections.abc import Callable
from dataclasses import dataclass

import cupy
import cupy_on_cpu
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.generic]


class Report:
    """Prints comparisons and counts those that differ."""

    def __init__(self) -> None:
        self.wrong = 0

    def line(self, right: bool, text: str) -> None:
        self.wrong += not right
        print(f"{'ok   ' if right else 'WRONG'} {text}")

    def same(self, what: str, got: cupy.ndarray | Array, expected: object, tolerance: float = 0.0) -> None:
        """Compare shapes, and entries up to an absolute tolerance; NaN equals NaN."""
        found, wanted = cupy.asnumpy(got), np.asarray(expected)
        if found.shape != wanted.shape:
            self.line(False, f"{what}: shape {found.shape} instead of {wanted.shape}")
            return
        wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
        with np.errstate(invalid="ignore"):
            gaps = np.abs(found.astype(wide) - wanted.astype(wide))
        gaps[(found == wanted) | ((found != found) & (wanted != wanted))] = 0  # equal infinities, NaN
        gap = float(gaps.max(initial=0.0))
        self.line(gap <= tolerance, f"{what}: largest difference {gap:.1e}, allowed {tolerance:.0e}")

    def refused(self, what: str, error: type[Exception] | tuple, text: str, call: Callable[[], object]) -> None:
        """Compare the error of a call with a type and a part of its text."""
        try:
            call()
            found = "no error"
        except error as raised:
            found = f"{type(raised).__name__}: {raised}"
        cupy_on_cpu.mend_device()  # an error of a kernel ends every later call
        self.line(text in found, f"{what} raises: {found[:140]}")


@dataclass(frozen=True)
class Data:
    """Two matrices on the host, a and b, and the same on the device, x and y."""

    a: NDArray[np.float32]
    b: NDArray[np.float32]
    x: cupy.ndarray
    y: cupy.ndarray


def random_data() -> Data:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((60, 33)).astype("f"), rng.standard_normal((60, 33)).astype("f")
    return Data(a, b, cupy.asarray(a), cupy.asarray(b))
