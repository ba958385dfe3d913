"""Where a contestant finds its data and computes: putting arrays there, waiting for it, asking what it holds."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

Wait = Callable[[], None]


class NoDevice(Exception):
    """A library is there and the device that it needs is not."""


def nothing() -> None:
    """There is nothing to wait for, and nothing to give back."""


@dataclass(frozen=True)
class Place:
    """One library on one device. Libraries are imported when a place is used, not when it is named.

    Attributes
    ----------
    put : callable
        NumPy array -> array where the contestant wants its data; not timed.
    wait : callable
        Returns once all work given to the device has ended: the clock is read after it.
    taken : callable
        Bytes in use on the device by everybody, the CUDA context included; None on a host.
    release : callable
        Give pools of unused memory back, so that the accuracy can be computed where the contestant has been.
    check : callable
        NumPy array -> array where the harness computes the accuracy.
    on_device : bool
        Whether the contestant computes on a device.
    name : str
        How the library's name of the place of a computation begins.
    """

    put: Callable[[np.ndarray], Any] = np.asarray
    wait: Wait = nothing
    taken: Callable[[], int | None] = lambda: None
    release: Callable[[], None] = nothing
    check: Callable[[np.ndarray], Any] = np.asarray
    on_device: bool = False
    name: str = "cpu"


# -- the clock ---------------------------------------------------------------------------------------------------------


def timed(run: Callable[[], Any], wait: Wait = nothing) -> tuple[float, Any]:
    """Wall seconds of ``run()``, and its answer; the device is idle when the clock starts and when it stops."""
    wait()
    start = time.perf_counter()
    answer = run()
    wait()
    return time.perf_counter() - start, answer


def timed_runs(
    run: Callable[[], Any], wait: Wait = nothing, *, runs: int = 1, patience: float = float("inf")
) -> tuple[list[float], Any]:
    """Seconds of up to `runs` runs, and the last answer; no run begins that would likely end after `patience` s."""
    seconds: list[float] = []
    answer = None
    while len(seconds) < runs and (not seconds or sum(seconds) + seconds[-1] <= patience):
        second, answer = timed(run, wait)
        seconds.append(second)
    return seconds, answer


def seconds_each(
    run: Callable[[], Any],
    wait: Wait = nothing,
    *,
    before: Callable[[], Any] | None = None,
    runs: int = 7,
    batch: float = 0.02,
    patience: float = 4.0,
) -> list[float]:
    """Seconds of one ``run()``, measured `runs` times after two that warm up.

    What is over sooner than `batch` seconds is called that often between two looks at the clock that waiting for the
    device does not count; `before` is called outside of the clock, and then every measurement is one call.
    """
    for _ in range(2):
        if before is not None:
            before()
        first, _ = timed(run, wait)
    calls = 1 if before is not None else max(1, min(1000, int(batch / max(first, 1e-9))))

    def batch_of_calls() -> None:
        for _ in range(calls):
            run()

    found: list[float] = []
    while len(found) < runs and (len(found) < 3 or sum(found) * calls < patience):
        if before is not None:
            before()
        found.append(timed(batch_of_calls, wait)[0] / calls)
    return found


def median_of(seconds: list[float]) -> float | None:
    """None of nothing."""
    return median(seconds) if seconds else None


# -- the places --------------------------------------------------------------------------------------------------------


def on_cupy(X: np.ndarray) -> Any:
    """As a CuPy array on the current device."""
    return with_cupy().asarray(X)


def with_cupy() -> Any:
    """Return CuPy; raise `NoDevice` without a device."""
    import cupy

    if not cupy.is_available():
        raise NoDevice("CuPy finds no CUDA device")
    return cupy


def checked_host(X: np.ndarray) -> np.ndarray:
    """NumPy, for a contestant that will take it to the device by itself."""
    with_cupy()
    return np.asarray(X)


def wait_for_cupy() -> None:
    """Until everything given to the device, in any stream, has ended."""
    import cupy

    cupy.cuda.Device().synchronize()


def taken_by_cupy() -> int:
    """Bytes."""
    import cupy

    free, total = cupy.cuda.runtime.memGetInfo()
    return int(total) - int(free)


def release_cupy() -> None:
    """Empty CuPy's pool."""
    import cupy

    cupy.get_default_memory_pool().free_all_blocks()


def on_torch_cuda(X: np.ndarray) -> Any:
    """As a PyTorch tensor on the current CUDA device."""
    import torch

    if not torch.cuda.is_available():
        raise NoDevice("PyTorch finds no CUDA device")
    return torch.as_tensor(X, device="cuda")


def wait_for_torch() -> None:
    """Until everything given to the device has ended."""
    import torch

    torch.cuda.synchronize()


def taken_by_torch() -> int:
    """Bytes."""
    import torch

    free, total = torch.cuda.mem_get_info()
    return int(total) - int(free)


def release_torch() -> None:
    """Empty PyTorch's pool: CuPy computes the accuracy on the same card."""
    import torch

    torch.cuda.empty_cache()


HOST = Place()
CUPY = Place(on_cupy, wait_for_cupy, taken_by_cupy, release_cupy, on_cupy, True, "cuda")
# NumPy in, NumPy out, computed on the device.
FROM_HOST = Place(checked_host, wait_for_cupy, taken_by_cupy, release_cupy, on_cupy, True, "cuda")
TORCH = Place(on_torch_cuda, wait_for_torch, taken_by_torch, release_torch, on_cupy, True, "cuda")
