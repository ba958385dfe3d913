"""CuPy's memory pool: best fit among freed blocks, which are split and merged, and cudaMalloc where none fits.

The bytes themselves live in NumPy arrays. What is modeled is the account.
"""

from __future__ import annotations

import ctypes
import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from . import state as device
from .state import CUDARuntimeError, lock, lose_context, state

UNIT = 512
UNLIMITED = 2**64 - 1  # what an asynchronous pool without a limit answers


class OutOfMemoryError(MemoryError):
    """Raised by the pool; the signature is CuPy's."""

    def __init__(self, size: int, total: int, limit: int = 0) -> None:
        limited = f", limit set to: {limit:,} bytes" if limit else ""
        super().__init__(f"Out of memory allocating {size:,} bytes (allocated so far: {total:,} bytes{limited}).")


class Chunk:
    """A part of one cudaMalloc, linked to its neighbors."""

    __slots__ = ("after", "before", "direct", "free", "size")

    def __init__(self, size: int, before: Chunk | None = None, after: Chunk | None = None) -> None:
        self.size, self.before, self.after, self.free, self.direct = size, before, after, False, False

    @property
    def is_whole(self) -> bool:
        return self.before is None and self.after is None


# Every pool of this installation: what they hold is missing on the device.
_POOLS: weakref.WeakSet[SingleDevicePool] = weakref.WeakSet()


class SingleDevicePool:
    """The pool of one device."""

    def __init__(self, index: int) -> None:
        self.index, self.total, self.used, self.limit, self.peak = index, 0, 0, 0, 0
        self.direct = 0  # bytes that were taken past the pool
        self.free: list[Chunk] = []
        _POOLS.add(self)

    def take(self, size: int) -> Chunk:
        """Return a chunk of `size` bytes, a multiple of the unit."""
        chunk = min((chunk for chunk in self.free if chunk.size >= size), key=lambda c: c.size, default=None)
        if chunk is None:
            chunk = Chunk(self._from_device(size))
        else:
            self.free.remove(chunk)
            self._split(chunk, size)
        chunk.free = False
        self.used += size
        self.peak = max(self.peak, self.used)
        return chunk

    def take_past(self, size: int) -> Chunk:
        """Allocate without the pool, as after ``cupy.cuda.set_allocator(None)``: the error is the runtime's."""
        if size > free_on_device(self.index):
            raise CUDARuntimeError(2)
        chunk = Chunk(size)
        chunk.direct = True
        self.direct += size
        return chunk

    def give(self, chunk: Chunk) -> None:
        """Take a chunk back and merge it with free neighbors."""
        if chunk.direct:
            self.direct -= chunk.size
            return
        self.used -= chunk.size
        if chunk.after is not None and chunk.after.free:
            self.free.remove(chunk.after)
            self._absorb(chunk)
        if chunk.before is not None and chunk.before.free:
            chunk = chunk.before
            self.free.remove(chunk)
            self._absorb(chunk)
        chunk.free = True
        self.free.append(chunk)

    def release(self) -> None:
        """Free every block that is not split."""
        self.total -= sum(chunk.size for chunk in self.free if chunk.is_whole)
        self.free = [chunk for chunk in self.free if not chunk.is_whole]

    def _split(self, chunk: Chunk, size: int) -> None:
        if chunk.size == size:
            return
        rest = Chunk(chunk.size - size, chunk, chunk.after)
        if chunk.after is not None:
            chunk.after.before = rest
        chunk.size, chunk.after, rest.free = size, rest, True
        self.free.append(rest)

    @staticmethod
    def _absorb(chunk: Chunk) -> None:
        gone = chunk.after
        chunk.size += gone.size
        chunk.after = gone.after
        if gone.after is not None:
            gone.after.before = chunk

    def _from_device(self, size: int) -> int:
        """Allocate as CuPy does: over the limit it fails at once; on a full device cached blocks go first."""
        if self.limit and self.total + size > self.limit:
            raise OutOfMemoryError(size, self.total, self.limit)
        if size > free_on_device(self.index):
            gc.collect()
            self.release()
        if size > free_on_device(self.index):
            raise OutOfMemoryError(size, self.total, self.limit)
        self.total += size
        return size


class MemoryPool:
    """The pool as users see it: every call concerns the current device."""

    def __init__(self) -> None:
        self._pools = [SingleDevicePool(index) for index in range(device.DEVICES)]

    @property
    def _pool(self) -> SingleDevicePool:
        return self._pools[device.current_device()]

    def used_bytes(self) -> int:
        return self._pool.used

    def total_bytes(self) -> int:
        return self._pool.total

    def free_bytes(self) -> int:
        return sum(chunk.size for chunk in self._pool.free)

    def free_all_blocks(self, stream: Any = None) -> None:
        with lock:
            self._pool.release()

    def get_limit(self) -> int:
        return self._pool.limit

    def set_limit(self, size: int | None = None) -> None:
        self._pool.limit = int(size or 0)

    def malloc(self, size: int) -> Any:
        raise NotImplementedError("the imitation allocates by `Memory`")


DEFAULT_POOL = MemoryPool()
# The pools of the devices that `cupy.get_default_memory_pool()` stands for.
POOLS = DEFAULT_POOL._pools


class MemoryAsyncPool(MemoryPool):
    """CUDA's own pool, of which CuPy knows the totals alone."""

    def __init__(self, pool_handles: Any = "current") -> None:
        super().__init__()
        for pool in self._pools:
            pool.limit = UNLIMITED

    def free_bytes(self) -> int:
        return self.total_bytes() - self.used_bytes()

    def set_limit(self, size: int | None = None) -> None:
        self._pool.limit = int(size or UNLIMITED)


def cuda_malloc(size: int) -> Any:
    """Stand for CUDA itself, which allocates after ``cupy.cuda.set_allocator(None)``."""
    raise NotImplementedError("the imitation allocates by `Memory`")


cuda_malloc.__module__ = "cupy.cuda.memory"
_current: Callable[[int], Any] = DEFAULT_POOL.malloc


def reset() -> None:
    """Empty the pools, in place. Arrays that still live, of an earlier installation, keep the account they have."""
    global _current
    _POOLS.clear()
    POOLS[:] = [SingleDevicePool(index) for index in range(device.DEVICES)]
    _current = DEFAULT_POOL.malloc


def free_on_device(index: int) -> int:
    """Return what cudaMemGetInfo calls free."""
    held = sum(pool.total + pool.direct for pool in _POOLS if pool.index == index)
    return max(0, state.device_bytes[index] - state.foreign_bytes[index] - held)


def mem_get_info() -> tuple[int, int]:
    """Return (free, total) of the current device."""
    device.check_alive()
    index = device.current_device()
    return free_on_device(index), state.device_bytes[index]


def set_allocator(allocator: Callable[[int], Any] | None = None) -> None:
    """Allocate by a pool's `malloc`, or by a user's function of bytes; None: by CUDA itself, without a pool."""
    global _current
    _current = cuda_malloc if allocator is None else allocator


def get_allocator() -> Callable[[int], Any]:
    """Return the function that allocates at present."""
    return _current


# address -> bytes of every allocation, so that a raw pointer can be checked.
_LIVE: dict[int, int] = {}


class Memory:
    """One allocation: NumPy memory with an account at a pool, closed when the last array that shares it dies.

    The current allocator opens the account: a pool, CUDA itself, or a user's function, whose answer is kept as long as
    the memory.
    """

    __slots__ = ("__weakref__", "_chunk", "_held", "_pool", "buffer", "device_id", "ptr", "size")

    def __init__(self, buffer: np.ndarray) -> None:
        self._chunk = self._held = None
        self.buffer, self.size, self.device_id = buffer, buffer.nbytes, device.current_device()
        self.ptr = np.lib.array_utils.byte_bounds(buffer)[0] if buffer.size else 0
        owner = getattr(_current, "__self__", None)
        pooled = isinstance(owner, MemoryPool)
        self._pool = owner._pool if pooled else POOLS[self.device_id]
        if not self.size:
            device.check_alive()
            return
        device.operate()
        with lock:
            _fail_if_set(self.size, self._pool)
            rounded = -(-self.size // UNIT) * UNIT
            if pooled:
                self._chunk = self._pool.take(rounded)
            elif _current is cuda_malloc:
                self._chunk = self._pool.take_past(rounded)
            else:
                self._held = _current(self.size)
            _LIVE[self.ptr] = self.size

    def __del__(self) -> None:
        with lock:
            if self._chunk is not None:
                self._pool.give(self._chunk)
            if self._chunk is not None or self._held is not None:
                _LIVE.pop(self.ptr, None)


class MemoryPointer:
    """An address inside an allocation."""

    __slots__ = ("mem", "ptr")

    def __init__(self, mem: Memory, offset: int) -> None:
        self.mem, self.ptr = mem, mem.ptr + offset


for _class in (OutOfMemoryError, Memory, MemoryPointer, MemoryPool, MemoryAsyncPool):
    _class.__module__ = "cupy.cuda.memory"


def _fail_if_set(size: int, pool: SingleDevicePool) -> None:
    state.allocations += 1
    if state.fail_from is None or state.allocations < state.fail_from:
        return
    if state.allocations == state.fail_from or state.fail_forever:
        raise OutOfMemoryError(size, pool.total, pool.limit)


def bytes_at(pointer: int, size: int) -> np.ndarray:
    """Return the `size` bytes at a device address. An address of no allocation loses the context."""
    if size == 0:
        return np.empty(0, np.uint8)
    for start, length in list(_LIVE.items()):
        if start <= pointer and pointer + size <= start + length:
            return np.frombuffer((ctypes.c_uint8 * size).from_address(pointer), np.uint8)
    lose_context()
    return np.zeros(size, np.uint8)
