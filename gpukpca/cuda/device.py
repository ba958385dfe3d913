"""Which CUDA devices there are, how much memory is free, and waiting for work to end."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any


def is_installed() -> bool:
    """Whether a CuPy package is installed; imports nothing."""
    return find_spec("cupy") is not None


def probe() -> tuple[bool, str]:
    """Whether a device can compute, and a sentence that says what was found.

    CuPy imports on machines without a driver, and `getDeviceCount` raises there, so the only honest answer comes
    from a small product on the device.
    """
    if not is_installed():
        return False, "CuPy is not installed"
    try:
        import cupy

        if not cupy.is_available():
            return False, "CuPy is installed, but no CUDA device or driver was found"
        block = cupy.eye(8, dtype=cupy.float32)
        if float((block @ block).sum()) != 8.0:
            return False, "a CUDA device was found, but a small matrix product on it is wrong"
    except Exception as error:  # an import or a driver may fail in any way; the caller only wants to know why
        return False, f"CuPy cannot be used: {type(error).__name__}: {error}"
    return True, describe(0)


def describe(index: int) -> str:
    """Name of one CUDA device, e.g. ``cuda:0 NVIDIA H200``."""
    import cupy

    name = cupy.cuda.runtime.getDeviceProperties(index)["name"]
    return f"cuda:{index} {name.decode() if isinstance(name, bytes) else name}"


def free_bytes(array: Any) -> int:
    """Free memory on the device of `array`, blocks that CuPy's pool holds unused included."""
    import cupy

    with array.device:
        free, _ = cupy.cuda.runtime.memGetInfo()
        pool = cupy.get_default_memory_pool()
        return int(free) + int(pool.free_bytes())


def synchronize(array: Any) -> None:
    """Wait until the current stream of the array's device has ended its work."""
    import cupy

    with array.device:
        cupy.cuda.get_current_stream().synchronize()
