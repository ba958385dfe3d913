"""What a test may do to the fake device. Each takes effect at once and, as a context, is undone at its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import memory
from .state import state

GARBAGE = {
    "nan": lambda values, vectors: (np.full_like(values, np.nan), np.full_like(vectors, np.nan)),
    "nan values": lambda values, vectors: (np.full_like(values, np.nan), vectors),
    "nan vectors": lambda values, vectors: (values, np.full_like(vectors, np.nan)),
    "unsorted": lambda values, vectors: (values[::-1].copy(), vectors[:, ::-1].copy()),
    "wrong values": lambda values, vectors: (values + np.max(np.abs(values), initial=0.0) * 0.1, vectors),
    "wrong vectors": lambda values, vectors: (values, np.roll(vectors, 1, axis=0)),
    "zero": lambda values, vectors: (np.zeros_like(values), np.zeros_like(vectors)),
}


class Change:
    """Fields of the state that were set, and what they were before."""

    def __init__(self, **fields: Any) -> None:
        self._before = {name: getattr(state, name) for name in fields}
        state.__dict__.update(fields)

    def undo(self) -> None:
        state.__dict__.update(self._before)

    def __enter__(self) -> Change:
        return self

    def __exit__(self, *exception: object) -> None:
        self.undo()


class Count:
    """How much a counter of the state has grown since; stands still after the context's end."""

    def __init__(self, field: str) -> None:
        self._field, self._start, self._stop = field, getattr(state, field), None

    @property
    def count(self) -> int:
        return (getattr(state, self._field) if self._stop is None else self._stop) - self._start

    @property
    def names(self) -> list[str]:
        """The kernels, in order."""
        return state.launched[self._start : self._stop]

    def __enter__(self) -> Count:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop = getattr(state, self._field)


def fail_allocation(k: int = 1, forever: bool = False) -> Change:
    """The k-th allocation from now on raises OutOfMemoryError; `forever`: and every one after it."""
    return Change(fail_from=state.allocations + k, fail_forever=forever)


def count_allocations() -> Count:
    """`with count_allocations() as made: ...; made.count`."""
    return Count("allocations")


def launches() -> Count:
    """`with launches() as made: ...; made.count, made.names`."""
    return Count("launches")


class Peak:
    """The most bytes that were in use on a device since, beyond those at the start."""

    def __init__(self, device: int) -> None:
        self._pool = memory.POOLS[device]
        self._start = self._pool.peak = self._pool.used
        self._end: int | None = None

    @property
    def count(self) -> int:
        return (self._pool.peak if self._end is None else self._end) - self._start

    def __enter__(self) -> Peak:
        return self

    def __exit__(self, *exception: object) -> None:
        self._end = self._pool.peak


def peak_bytes(device: int = 0) -> Peak:
    """`with peak_bytes() as most: ...; most.count`; one at a time for each device."""
    return Peak(device)


def operations() -> Count:
    """Launches, allocations and copies together, as `break_device` counts them."""
    return Count("operations")


def foreign_bytes(size: int, device: int = 0) -> Change:
    """Memory of a device that another process holds."""
    return Change(foreign_bytes=[size if i == device else held for i, held in enumerate(state.foreign_bytes)])


def device_bytes(size: int, device: int = 0) -> Change:
    """The whole memory of a device."""
    return Change(device_bytes=[size if i == device else had for i, had in enumerate(state.device_bytes)])


def break_device(status: int = 700, after: int = 1, libraries: bool = False) -> Change:
    """The `after`-th operation (launch, allocation or copy) loses the context with CUDARuntimeError(status).

    The host sees it at its next wait, and every call after that fails. With `libraries` products and eigenproblems
    fail with CUBLASError and CUSOLVERError instead.
    """
    return Change(broken_from=state.operations + after, broken_status=status, broken_libraries=libraries, shown=False)


def no_device() -> Change:
    """CuPy is there, a device or its driver is not."""
    return Change(no_device=True)


def kernels_cannot_run(how: str = "image") -> Change:
    """Memory works, kernels do not: "image" (error 209 at each launch) or "compile" (NVRTC refuses)."""
    return Change(kernels=how)


def cuda_version(version: int) -> Change:
    """Versions of runtime and driver as CUDA numbers them, e.g. 13000."""
    return Change(runtime_version=version, driver_version=version)


def compute_capability(major: int, minor: int) -> Change:
    """The generation of the cards, e.g. (7, 0) of Volta."""
    return Change(capability=(major, minor))


def cusolver_version(version: tuple[int, int, int]) -> Change:
    """The version of cuSOLVER: 11 belongs to CUDA 12, 12 to CUDA 13. The runtime's is another one."""
    return Change(cusolver_version=version)


def no_pinned_memory() -> Change:
    """Let the system refuse to pin memory of the host."""
    return Change(pinned_fails=True)


def rmm_allocator(held: int, device: int = 0) -> Callable[[int], Any]:
    """Return a plain function such as RMM's, over a pool that holds `held` bytes of the device already."""
    pool = memory.SingleDevicePool(device)
    pool.free, pool.total = [memory.Chunk(held)], held
    pool.free[0].free = True

    def allocate(size: int) -> Any:
        if not any(chunk.size >= size for chunk in pool.free):
            raise MemoryError("std::bad_alloc: out_of_memory: RMM failure: Maximum pool size exceeded")
        chunk = pool.take(size)
        return _Owner(pool, chunk)

    return allocate


class _Owner:
    """The owner of a chunk, which returns it to RMM's pool when nothing holds it any more."""

    def __init__(self, pool: memory.SingleDevicePool, chunk: memory.Chunk) -> None:
        self._pool, self._chunk = pool, chunk

    def __del__(self) -> None:
        self._pool.give(self._chunk)


def eigh_reports(info: int) -> Change:
    """What cuSOLVER's syevd writes into its report; 0 is success."""
    return Change(eigh_info=info)


def eigh_answers(answer: str | Callable) -> Change:
    """What comes out of syevd with a report of success: a key of `GARBAGE`, or a function of (values, vectors)."""
    return Change(eigh_answer=GARBAGE[answer] if isinstance(answer, str) else answer)


def eigh_refuses_above(n: int | None) -> Change:
    """The size of the workspace is refused with CUSOLVER_STATUS_INVALID_VALUE for larger matrices."""
    return Change(eigh_largest=n)


def live_allocations() -> int:
    """Allocations that some array still holds, on all devices."""
    return len(memory._LIVE)
