"""What a test may do to CuPy's device, and what it may ask: each function is a context whose end undoes it.

Allocations are counted, watched and refused by CuPy's own hooks of memory, on every device. Whatever else a device can
do wrong is imitated by the stand-in that runs CuPy on a CPU (ci/cupy_on_cpu): its tests take the fixture `stand_in`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import numpy as np

DEVICES = 2  # of the stand-in, in every test but those that ask for more


def is_stand_in() -> bool:
    """Return whether CuPy runs on the CPU."""
    return find_spec("cupy_on_cpu") is not None


def controls() -> Any:
    """Return the module that controls the stand-in."""
    import cupy_on_cpu

    return cupy_on_cpu


# -- allocations, on every device --------------------------------------------------------------------------------------


class Allocations:
    """Allocations of this thread since the start: their number, the bytes in use beyond those at the start, the peak.

    Attributes
    ----------
    count, used, peak : int
    """

    def __init__(self, refuses: Callable[[int], bool] = lambda number: False) -> None:
        self.count = self.used = self.peak = 0
        self._refuses = refuses

    def begin(self, size: int) -> None:
        """Count one allocation, or refuse it."""
        from cupy.cuda.memory import OutOfMemoryError

        if size == 0:  # takes no memory
            return
        self.count += 1
        if self._refuses(self.count):
            raise OutOfMemoryError(size, 0, 0)

    def add(self, size: int) -> None:
        """Add bytes; of memory that is freed they are negative."""
        self.used += size
        self.peak = max(self.peak, self.used)


@contextmanager
def watched(allocations: Allocations, device: int | None = None) -> Iterator[Allocations]:
    """Let an account follow the pools of one device, or of all."""
    from cupy.cuda import MemoryHook

    class Hook(MemoryHook):
        name = f"account {id(allocations)}"

        def malloc_preprocess(self, device_id: int, size: int, mem_size: int) -> None:
            if device in (None, device_id):
                allocations.begin(size)

        def malloc_postprocess(self, device_id: int, size: int, mem_size: int, mem_ptr: int, pmem_id: int) -> None:
            if device in (None, device_id) and mem_ptr:
                allocations.add(mem_size)

        def free_postprocess(self, device_id: int, mem_size: int, mem_ptr: int, pmem_id: int) -> None:
            if device in (None, device_id):
                allocations.add(-mem_size)

    with Hook():
        yield allocations


def count_allocations() -> Any:
    """`with count_allocations() as made: ...; made.count`."""
    return watched(Allocations())


def peak_bytes(device: int = 0) -> Any:
    """`with peak_bytes() as most: ...; most.peak` are the most bytes in use on a device beyond those at the start."""
    return watched(Allocations(), device)


def fail_allocation(k: int = 1, forever: bool = False) -> Any:
    """Let the k-th allocation from now on raise OutOfMemoryError; `forever`: and every one after it."""
    return watched(Allocations(lambda number: number == k or (forever and number > k)))


# -- what the stand-in counts ------------------------------------------------------------------------------------------


@dataclass
class Launches:
    """The kernels and library functions that were launched in a context, by name and in order, at its end."""

    names: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        return len(self.names)

    @property
    def products(self) -> list[str]:
        """The names of matrix products."""
        return [name for name in self.names if "gemm" in name.lower()]

    @property
    def copies(self) -> list[str]:
        """The names of kernels that copy an array; those that fill one with a Python number are left out."""
        return [
            name for name in self.names if name.startswith("cupy_copy") and not re.match("cupy_copy__[a-z]+_", name)
        ]


@contextmanager
def launches() -> Iterator[Launches]:
    """`with launches() as made: ...; made.count, made.names`."""
    start, made = len(controls().launched()), Launches()
    yield made
    made.names = controls().launched()[start:]


class Counter:
    """How much a counter of the stand-in has grown, at the end of a context."""

    count = 0


@contextmanager
def counted(name: str) -> Iterator[Counter]:
    """`with counted("operations") as made: ...; made.count`: the names are those of `cupy_on_cpu.COUNTERS`."""
    start, made = controls().counts()[name], Counter()
    yield made
    made.count = controls().counts()[name] - start


@contextmanager
def copied() -> Iterator[list[int]]:
    """`with copied() as sizes: ...`: the bytes of every copy between host and device, in order.

    Copies are seen where arrays pass through Python, and the counters of the stand-in say that these are all.
    """
    import array_api_compat.cupy as xp
    import cupy

    sizes: list[int] = []
    get, asarray = cupy.ndarray.get, xp.asarray

    def seen_get(x: Any, *args: Any, **kwargs: Any) -> Any:
        sizes.extend([x.nbytes] * (x.nbytes > 0))
        return get(x, *args, **kwargs)

    def seen_asarray(x: Any, *args: Any, **kwargs: Any) -> Any:
        sizes.extend([x.nbytes] * (isinstance(x, np.ndarray) and x.nbytes > 0))
        return asarray(x, *args, **kwargs)

    before = controls().counts()
    cupy.ndarray.get, xp.asarray = seen_get, seen_asarray
    try:
        yield sizes
    finally:
        cupy.ndarray.get, xp.asarray = get, asarray
    made = controls().counts()
    assert len(sizes) == sum(made[name] - before[name] for name in ("copies_to_device", "copies_to_host"))


# -- what the stand-in imitates ----------------------------------------------------------------------------------------


@contextmanager
def lose_device(status: int = 700, after: int = 1) -> Iterator[None]:
    """Lose the device at the `after`-th operation; the host sees it where it waits next, and in every later call."""
    with controls().change(late_errors=1), controls().lose_device(status, after):
        yield


def no_device() -> Any:
    """CuPy is there, a device or its driver is not."""
    return controls().change(devices=0)


def kernels_without_image() -> Any:
    """Memory works; a launch finds no binary of its kernel for this card."""
    return controls().change(kernels_have_image=0)


@contextmanager
def kernels_do_not_compile() -> Iterator[None]:
    """NVRTC refuses the card, as that of CUDA 13 does an old one."""
    import cupy
    from cupy.cuda import compiler

    def refuse(source: str, options: Any, *_: Any, **__: Any) -> Any:
        message = "nvrtc: error: invalid value for --gpu-architecture (-arch)\n"
        raise compiler.CompileException(message, source, "kernel.cu", options)

    before = compiler._compile_module_with_cache
    cupy.clear_memo()  # kernels that this process has loaded
    compiler._compile_module_with_cache = refuse
    try:
        yield
    finally:
        compiler._compile_module_with_cache = before
        cupy.clear_memo()


def device_bytes(size: int, device: int = 0) -> Any:
    """The memory of a device beyond what arrays hold now."""
    import cupy

    with cupy.cuda.Device(device):
        cupy.get_default_memory_pool().free_all_blocks()
        free, total = cupy.cuda.runtime.memGetInfo()
    return controls().change(memory={device: total - free + size})


def foreign_bytes(size: int, device: int = 0) -> Any:
    """Memory of a device that another program holds."""
    return controls().change(foreign={device: size})


GARBAGE = {
    "nan": lambda values, vectors: (np.full_like(values, np.nan), np.full_like(vectors, np.nan)),
    "nan values": lambda values, vectors: (np.full_like(values, np.nan), vectors),
    "nan vectors": lambda values, vectors: (values, np.full_like(vectors, np.nan)),
    "unsorted": lambda values, vectors: (values[::-1].copy(), vectors[:, ::-1].copy()),
    "wrong values": lambda values, vectors: (values + np.max(np.abs(values), initial=0.0) * 0.1, vectors),
    "wrong vectors": lambda values, vectors: (values, np.roll(vectors, 1, axis=0)),
    "zero": lambda values, vectors: (np.zeros_like(values), np.zeros_like(vectors)),
}


def eigh_answers(answer: str | Callable[[Any, Any], Any]) -> Any:
    """What comes out of syevd with a report of success: a key of `GARBAGE`, or a function of (values, vectors)."""
    return controls().answer_eigenproblems(GARBAGE[answer] if isinstance(answer, str) else answer)


def eigh_reports(info: int) -> Any:
    """What syevd writes into its report; 0 is success."""
    return controls().change(eigh_info=info)


def eigh_refuses_above(n: int) -> Any:
    """The largest matrix for which syevd says how much memory it needs."""
    return controls().change(eigh_largest_n=n)


def compute_capability(major: int, minor: int) -> Any:
    """The generation of the cards, e.g. (7, 0) of Volta."""
    return controls().change(capability=10 * major + minor)


def cuda_version(version: int) -> Any:
    """Versions of runtime and driver as CUDA numbers them, e.g. 13000."""
    return controls().change(runtime_version=version, driver_version=version)


@contextmanager
def compute_types_read_again() -> Iterator[None]:
    """Let CuPy read `CUPY_TF32` at its next product, and again after the context."""
    from cupy._core import _routines_linalg as routines

    def forget() -> None:
        for dtype in (np.float32, np.float64):
            routines.set_compute_type(np.dtype(dtype), routines.COMPUTE_TYPE_TBD)

    forget()
    try:
        yield
    finally:
        forget()


@contextmanager
def allocator(function: Callable[[int], Any] | None) -> Iterator[None]:
    """The allocator of CuPy; None is CUDA itself."""
    from cupy.cuda import get_allocator, set_allocator

    before = get_allocator()
    set_allocator(function)
    try:
        yield
    finally:
        set_allocator(before)


# -- between tests -----------------------------------------------------------------------------------------------------


@contextmanager
def as_it_was() -> Iterator[None]:
    """Restore device, allocator, limits of the pools and unused memory when the context ends; mend the stand-in."""
    import cupy

    with ExitStack() as restored:
        if is_stand_in():
            cupy.empty(1)  # while there are all: CuPy counts the devices once
            controls().forget_launched()
            restored.enter_context(controls().change(devices=DEVICES))
            restored.callback(controls().mend_device)
        restored.enter_context(cupy.cuda.Device(0))
        restored.enter_context(allocator(cupy.cuda.get_allocator()))
        yield
        cupy.cuda.Device(0).synchronize()
    pool = cupy.get_default_memory_pool()
    for index in range(cupy.cuda.runtime.getDeviceCount()):
        with cupy.cuda.Device(index):
            pool.set_limit(size=0)
            pool.free_all_blocks()
