"""CuPy's memory pool: best fit among freed blocks, which are split and merged, and cudaMalloc where none fits.

The bytes themselves live in NumPy arrays; what is modelled is the account: who is told how much, and who is refused.
"""

from __future__ import annotations

import gc
from typing import Any

import numpy as np

from . import state as device
from .state import CUDARuntimeError, lock, lose_context, state

UNIT = 512


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
    """A part of one cudaMalloc, linked to its neighbours."""

    __slots__ = ("after", "before", "direct", "free", "size")

    def __init__(self, size: int, before: Chunk | None = None, after: Chunk | None = None) -> None:
        self.size, self.before, self.after, self.free, self.direct = size, before, after, False, False

    @property
    def is_whole(self) -> bool:
        return self.before is None and self.after is None


class SingleDevicePool:
    """The pool of one device."""

    def __init__(self, index: int) -> None:
        self.index, self.total, self.used, self.limit, self.peak = index, 0, 0, 0, 0
        self.direct = 0  # bytes that were taken past the pool
        self.free: list[Chunk] = []

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
        """Take a chunk back and merge it with free neighbours."""
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


POOLS = [SingleDevicePool(index) for index in range(device.DEVICES)]


def reset() -> None:
    """Empty pools, in place. Arrays that still live, of an earlier installation, keep the account that they have."""
    POOLS[:] = [SingleDevicePool(index) for index in range(device.DEVICES)]


def free_on_device(index: int) -> int:
    """What cudaMemGetInfo calls free."""
    return max(0, state.device_bytes[index] - state.foreign_bytes[index] - POOLS[index].total - POOLS[index].direct)


def mem_get_info() -> tuple[int, int]:
    """(free, total) of the current device."""
    device.check_alive()
    index = device.current_device()
    return free_on_device(index), state.device_bytes[index]


class MemoryPool:
    """The pool as users see it: every call concerns the current device."""

    @property
    def _pool(self) -> SingleDevicePool:
        return POOLS[device.current_device()]

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
        return MemoryPointer(Memory(np.empty(size, np.uint8)), 0)


class Memory:
    """One allocation: NumPy memory with an account at the pool, closed when the last array that shares it dies."""

    __slots__ = ("__weakref__", "_chunk", "_pool", "buffer", "device_id", "ptr", "size")

    def __init__(self, buffer: np.ndarray) -> None:
        self._chunk = None
        self.buffer, self.size = buffer, buffer.nbytes
        self.device_id = device.current_device()
        self.ptr = _lowest_address(buffer) if buffer.size else 0
        self._pool = POOLS[self.device_id]
        if not self.size:
            device.check_alive()
            return
        device.operate()
        with lock:
            _refuse_if_wanted(self.size, self._pool)
            rounded = -(-self.size // UNIT) * UNIT
            self._chunk = self._pool.take(rounded) if state.pooled else self._pool.take_past(rounded)
            _LIVE[self.ptr] = self.size

    def __del__(self) -> None:
        if self._chunk is not None:
            with lock:
                _LIVE.pop(self.ptr, None)
                self._pool.give(self._chunk)

    @property
    def device(self) -> Any:
        from .devices import Device

        return Device(self.device_id)


def set_allocator(allocator: Any = None) -> None:
    """Only None is imitated: no pool any more; and the pool's own function, which puts it back."""
    if allocator is not None and getattr(allocator, "__func__", None) is not MemoryPool.malloc:
        raise NotImplementedError("the fake has its own pool or none")
    state.pooled = allocator is not None


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


Memory.__module__ = MemoryPointer.__module__ = MemoryPool.__module__ = "cupy.cuda.memory"


def bytes_at(pointer: int, size: int) -> np.ndarray:
    """The `size` bytes at a device address; an illegal address where they belong to no allocation."""
    import ctypes

    if size == 0:
        return np.empty(0, np.uint8)
    for start, length in list(_LIVE.items()):
        if start <= pointer and pointer + size <= start + length:
            return np.frombuffer((ctypes.c_uint8 * size).from_address(pointer), np.uint8)
    lose_context()
