"""Places where contestants compute, and the clock.

A library is imported when its place is used: a process holds what its contestant needs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np


class NoDevice(Exception):
    """A library is installed and the device that it needs is missing."""


class Host:
    """NumPy on the host."""

    name = "cpu"  # the beginning of the library's name of the device
    on_device = False
    # Copies an array to where the accuracy is recomputed; None: on the host, with scikit-learn's kernels.
    check: Callable[[np.ndarray], Any] | None = None

    def put(self, X: np.ndarray) -> Any:
        """Return the array where the contestant expects its data; not timed."""
        return X

    def wait(self) -> None:
        """Return once the device is idle."""

    def taken(self) -> int | None:
        """Return the bytes in use on the device by all processes, the CUDA context included."""
        return None

    def release(self) -> None:
        """Free the pools of unused memory, so that the accuracy can be computed on the same device."""


class Chunks(Host):
    """Dask arrays of the host, with two chunks of rows for every core."""

    def put(self, X: np.ndarray) -> Any:
        import dask.array

        from gpukpca.backend.parallel import blas_threads

        return dask.array.from_array(X, chunks=(max(X.shape[1], len(X) // (2 * blas_threads())), X.shape[1]))


class Cupy(Host):
    """CuPy on the current CUDA device."""

    name = "cuda"
    on_device = True

    def check(self, X: np.ndarray) -> Any:
        import cupy

        if not cupy.is_available():
            raise NoDevice("CuPy finds no CUDA device")
        return cupy.asarray(X)

    def put(self, X: np.ndarray) -> Any:
        return self.check(X)

    def wait(self) -> None:
        import cupy

        cupy.cuda.Device().synchronize()

    def taken(self) -> int:
        import cupy

        free, total = cupy.cuda.runtime.memGetInfo()
        return int(total) - int(free)

    def release(self) -> None:
        import cupy

        cupy.get_default_memory_pool().free_all_blocks()


class CupyFromHost(Cupy):
    """NumPy arrays in and out, computed on the device."""

    def put(self, X: np.ndarray) -> np.ndarray:
        self.check(X[:1])  # raises without a device
        return np.asarray(X)


class Torch(Cupy):
    """PyTorch on the current CUDA device; the accuracy is recomputed with CuPy."""

    def put(self, X: np.ndarray) -> Any:
        import torch

        if not torch.cuda.is_available():
            raise NoDevice("PyTorch finds no CUDA device")
        return torch.as_tensor(X, device="cuda")

    def wait(self) -> None:
        import torch

        torch.cuda.synchronize()

    def taken(self) -> int:
        import torch

        free, total = torch.cuda.mem_get_info()
        return int(total) - int(free)

    def release(self) -> None:
        import torch

        torch.cuda.empty_cache()


def on_host(a: Any) -> np.ndarray:
    """Return a NumPy array, or a copy of an array of CuPy or PyTorch."""
    if hasattr(a, "get"):
        return a.get()
    return np.asarray(a.cpu() if hasattr(a, "cpu") else a)


# -- the clock ---------------------------------------------------------------------------------------------------------


def timed(run: Callable[[], Any], place: Host) -> tuple[float, Any]:
    """Return wall seconds of ``run()`` and its answer; the device is idle at both readings of the clock."""
    place.wait()
    start = time.perf_counter()
    answer = run()
    place.wait()
    return time.perf_counter() - start, answer


def seconds_each(
    run: Callable[[], Any], place: Host, *, runs: int = 7, batch: float = 0.02, patience: float = 4.0
) -> list[float]:
    """Return the seconds of one ``run()``, measured `runs` times after two that warm up.

    A call shorter than `batch` seconds is repeated between two readings of the clock, so that waiting for the device
    does not count.
    """
    for _ in range(2):
        first, _ = timed(run, place)
    calls = max(1, min(1000, int(batch / max(first, 1e-9))))

    def batch_of_calls() -> None:
        for _ in range(calls):
            run()

    found: list[float] = []
    while len(found) < runs and (len(found) < 3 or sum(found) * calls < patience):
        found.append(timed(batch_of_calls, place)[0] / calls)
    return found
