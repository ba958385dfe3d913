"""CuPy's memory pool: best fit among freed blocks, which are split and merged, and cudaMalloc where none fits.

The bytes themselves live in NumPy arrays; what is modeled is the account: who is told how much, and who is refused.
"""

from __future__ import annotations

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
        self._size, self._total, self._limit = size, total, limit
        limited = f", limit set to: {limit:,} bytes" if limit else ""
        super().__init__(f"Out of memory allocating {size:,} bytes (allocated so far: {total:,} bytes{limited}).")

    def __reduce__(self) -> tuple:
        return type(self), (self._size, self._total, self._limit)


OutOfMemoryError.__module__ = "cupy.cuda.memory"


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
        """A chunk of `size` bytes, a multiple of the unit."""
        fitting = [chunk for chunk in self.free if chunk.size >= size]
        chunk = min(fitting, key=lambda c: c.size) if fitting else None
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
        """cudaMalloc without the pool, as after ``cupy.cuda.set_allocator(None)``: its error is the runtime's."""
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
        """cudaFree for every free block that is not split."""
        whole = [chunk for chunk in self.free if chunk.is_whole]
        self.free = [chunk for chunk in self.free if not chunk.is_whole]
        self.total -= sum(chunk.size for chunk in whole)

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
        """cudaMalloc as CuPy calls it: over the limit it fails at once; on a full device cached blocks go first."""
        if self.limit and self.total + size > self.limit:
            raise OutOfMemoryError(size, self.total, self.limit)
        if size > free_on_device(self.index):
            self.release()
        if size > free_on_device(self.index):
            gc.collect()
            self.release()
        if size > free_on_device(self.index):
            raise OutOfMemoryError(size, self.total, self.limit)
        self.total += size
        return size


def _new_pools() -> list[SingleDevicePool]:
    return [SingleDevicePool(index) for index in range(device.DEVICES)]


# The pools of the devices that `cupy.get_default_memory_pool()` stands for.
POOLS = _new_pools()


def reset() -> None:
    """Empty pools, in place. Arrays that still live, of an earlier installation, keep the account that they have."""
    global _current
    _POOLS.clear()
    POOLS[:] = _new_pools()
    _current = DEFAULT_POOL.malloc


def free_on_device(index: int) -> int:
    """What cudaMemGetInfo calls free."""
    held = sum(pool.total + pool.direct for pool in _POOLS if pool.index == index)
    return max(0, state.device_bytes[index] - state.foreign_bytes[index] - held)


def mem_get_info() -> tuple[int, int]:
    """(free, total) of the current device."""
    device.check_alive()
    index = device.current_device()
    return free_on_device(index), state.device_bytes[index]


class MemoryPool:
    """The pool as users see it: every call concerns the current device."""

    def __init__(self, allocator: Any = None) -> None:
        self._pools = _new_pools()

    @property
    def _pool(self) -> SingleDevicePool:
        return self._pools[device.current_device()]

    def used_bytes(self) -> int:
        return self._pool.used

    def total_bytes(self) -> int:
        return self._pool.total

    def free_bytes(self) -> int:
        return sum(chunk.size for chunk in self._pool.free)

    def n_free_blocks(self) -> int:
        return len(self._pool.free)

    def free_all_blocks(self, stream: Any = None) -> None:
        with lock:
            self._pool.release()

    def get_limit(self) -> int:
        return self._pool.limit

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        if size is not None and fraction is not None:
            raise ValueError("size and fraction cannot be specified at one time")
        if fraction is not None:
            size = int(fraction * state.device_bytes[device.current_device()])
        if size is not None and size < 0:
            raise ValueError(f"memory limit size out of range: {size}")
        self._pool.limit = int(size or 0)

    def malloc(self, size: int) -> MemoryPointer:
        return MemoryPointer(Memory(np.empty(size, np.uint8), self.malloc), 0)


DEFAULT_POOL = MemoryPool()
DEFAULT_POOL._pools = POOLS


class MemoryAsyncPool(MemoryPool):
    """CUDA's own pool, of which CuPy knows the totals alone."""

    def __init__(self, pool_handles: Any = "current") -> None:
        super().__init__()
        for pool in self._pools:
            pool.limit = UNLIMITED

    def n_free_blocks(self) -> int:
        raise NotImplementedError("This function is not supported in MemoryAsyncPool")

    def free_bytes(self) -> int:
        return self.total_bytes() - self.used_bytes()

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        super().set_limit(size, fraction)
        self._pool.limit = self._pool.limit or UNLIMITED


class Memory:
    """One allocation: NumPy memory with an account at a pool, closed when the last array that shares it dies.

    The allocator (default: the current one) opens the account: a pool's `malloc`, CUDA itself, or a user's function,
    whose answer is kept as long as the memory.
    """

    __slots__ = ("__weakref__", "_chunk", "_held", "_pool", "buffer", "device_id", "ptr", "size")

    def __init__(self, buffer: np.ndarray, allocator: Callable[[int], Any] | None = None) -> None:
        self._chunk = self._held = None
        self.buffer, self.size = buffer, buffer.nbytes
        self.device_id = device.current_device()
        self.ptr = _lowest_address(buffer) if buffer.size else 0
        allocator = allocator or _current
        owner = getattr(allocator, "__self__", None)
        pooled = isinstance(owner, MemoryPool)
        self._pool = owner._pool if pooled else POOLS[self.device_id]
        if not self.size:
            device.check_alive()
            return
        device.operate()
        with lock:
            _refuse_if_wanted(self.size, self._pool)
            rounded = -(-self.size // UNIT) * UNIT
            if pooled or allocator is cuda_malloc:
                self._chunk = self._pool.take(rounded) if pooled else self._pool.take_past(rounded)
            else:
                self._held = allocator(self.size)
            _LIVE[self.ptr] = self.size

    def __del__(self) -> None:
        with lock:
            if self._chunk is not None:
                self._pool.give(self._chunk)
            if self._chunk is not None or self._held is not None:
                _LIVE.pop(self.ptr, None)

    @property
    def device(self) -> Any:
        from .devices import Device

        return Device(self.device_id)


class UnownedMemory:
    """Memory of another library, kept alive by its owner."""

    def __init__(self, ptr: int, size: int, owner: Any, device_id: int = -1) -> None:
        self.ptr, self.size, self._owner = ptr, size, owner
        self.device_id = device.current_device() if device_id < 0 else device_id


def cuda_malloc(size: int) -> MemoryPointer:
    """Allocate without any pool, as after ``cupy.cuda.set_allocator(None)``."""
    return MemoryPointer(Memory(np.empty(size, np.uint8), cuda_malloc), 0)


cuda_malloc.__module__ = "cupy.cuda.memory"
_current: Callable[[int], Any] = DEFAULT_POOL.malloc


def set_allocator(allocator: Callable[[int], Any] | None = None) -> None:
    """Allocate by a function of bytes that returns a `MemoryPointer`; None: by CUDA itself, without a pool."""
    global _current
    _current = cuda_malloc if allocator is None else allocator


def get_allocator() -> Callable[[int], Any]:
    """Return the function that allocates at present."""
    return _current


def alloc(size: int) -> Any:
    return _current(size)


def _lowest_address(buffer: np.ndarray) -> int:
    if buffer.flags.forc:
        return buffer.__array_interface__["data"][0]
    return np.lib.array_utils.byte_bounds(buffer)[0]


# address -> bytes of every allocation, so that a raw pointer can be checked.
_LIVE: dict[int, int] = {}


def _refuse_if_wanted(size: int, pool: SingleDevicePool) -> None:
    state.allocations += 1
    if state.fail_from is None or state.allocations < state.fail_from:
        return
    if state.allocations == state.fail_from or state.fail_forever:
        raise OutOfMemoryError(size, pool.total, pool.limit)


class MemoryPointer:
    """An address inside an allocation."""

    __slots__ = ("mem", "ptr")

    def __init__(self, mem: Memory, offset: int) -> None:
        self.mem, self.ptr = mem, mem.ptr + offset

    @property
    def device(self) -> Any:
        return self.mem.device

    @property
    def device_id(self) -> int:
        return self.mem.device_id

    def __int__(self) -> int:
        return self.ptr

    def __add__(self, offset: int) -> MemoryPointer:
        return MemoryPointer(self.mem, self.ptr - self.mem.ptr + offset)


for _class in (Memory, MemoryPointer, MemoryPool, MemoryAsyncPool, UnownedMemory):
    _class.__module__ = "cupy.cuda.memory"


def bytes_at(pointer: int, size: int) -> np.ndarray:
    """The `size` bytes at a device address; an illegal address where they belong to no allocation."""
    import ctypes

    if size == 0:
        return np.empty(0, np.uint8)
    for start, length in list(_LIVE.items()):
        if start <= pointer and pointer + size <= start + length:
            return np.frombuffer((ctypes.c_uint8 * size).from_address(pointer), np.uint8)
    lose_context()
    return np.zeros(size, np.uint8)
