"""CUDA kernels on the CPU: their text is compiled by g++ and run.

`ElementwiseKernel` runs over the entries, with CuPy's rules for parameters, types and shapes; `return` ends the whole
loop. `RawKernel` runs block by block: the threads of a block are fibers, so that `__syncthreads` is a barrier and every
run is the same. Between two barriers they run in ascending order, then in descending order, which shows a missing
barrier. A raw kernel sees its arrays between guards, which show what it writes beyond them.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from . import state as device
from .array import check_place, created, ndarray
from .state import CompileException, lose_context, state

C_TYPES = {"float32": "float", "float64": "double", "int32": "int", "int64": "long long", "bool": "bool"}
# What device code may use without an include.
PRELUDE = r"""
#include <math.h>
#include <stddef.h>
#define __restrict__
"""
ARRAYS = r"""
static bool out_of_bounds;
static double beyond[2];
template <class T> struct CArray {
    T* data; ptrdiff_t size_;
    ptrdiff_t size() const { return size_; }
    T& operator[](ptrdiff_t i) const {
        if (i < 0 || i >= size_) { out_of_bounds = true; return *(T*)beyond; }
        return data[i];
    }
};
"""
FLAGS = ("-O2", "-std=c++17", "-shared", "-fPIC", "-fno-math-errno", "-w", "-x", "c++")


@cache
def library(source: str, name: str) -> Any:
    """Return the compiled unit. It is kept in a folder of the user among temporary files, by its text."""
    compiler = shutil.which("g++")
    if compiler is None or sys.platform != "linux":
        pytest.skip("CUDA kernels are imitated with g++ and the fibers of Linux")
    folder = Path(tempfile.gettempdir()) / f"fake-cupy-{os.getuid() if hasattr(os, 'getuid') else 'kernels'}"
    folder.mkdir(mode=0o700, exist_ok=True)
    digest = hashlib.sha256((source + " ".join(FLAGS)).encode()).hexdigest()[:32]
    path = folder / f"{digest}.so"
    if not path.exists():
        made = folder / f"{digest}.{os.getpid()}.{threading.get_ident()}"  # workers are threads, or processes
        command = [compiler, *FLAGS, "-", "-o", str(made)]
        result = subprocess.run(command, input=source, capture_output=True, text=True)
        if result.returncode:
            raise CompileException(result.stderr, source, name, ())
        made.replace(path)
    # It keeps the interpreter's lock: shared memory and threadIdx of a unit serve one launch at a time.
    return ctypes.PyDLL(str(path))


def _checked(arg: Any) -> Any:
    """Return an argument of a kernel: an array of the current device, or a number."""
    if isinstance(arg, ndarray):
        check_place(arg)
    elif not isinstance(arg, (bool, int, float, np.number, np.bool_)):
        raise TypeError(f"Unsupported type {type(arg)}")
    return arg


# -- elementwise -------------------------------------------------------------------------------------------------------


class Parameter:
    """One parameter, e.g. ``raw T x``: a single letter stands for a type that the arguments decide."""

    def __init__(self, text: str, is_const: bool) -> None:
        *words, kind, self.name = text.split()
        self.raw, self.is_const = words == ["raw"], is_const
        self.letter = kind if len(kind) == 1 else None
        self.dtype = None if self.letter else np.dtype(kind)

    def type_in(self, types: dict[str, np.dtype]) -> np.dtype:
        return types[self.letter] if self.letter else self.dtype


class ElementwiseKernel:
    """An elementwise function given as CUDA C++."""

    def __init__(self, in_params: str, out_params: str, operation: str, name: str, preamble: str = "") -> None:
        self.name, self.operation, self.preamble = name, operation, preamble
        self.in_params = [Parameter(part, True) for part in in_params.split(",")]
        self.out_params = [Parameter(part, False) for part in out_params.split(",")]
        self.params, self.nin = [*self.in_params, *self.out_params], len(self.in_params)

    def __call__(self, *args: Any, size: int | None = None) -> Any:
        if len(args) not in (self.nin, len(self.params)):
            raise TypeError(f"Wrong number of arguments for {self.name!r}")
        types = self._types([*map(_checked, args)])
        looped = [a for p, a in zip(self.params, args, strict=False) if isinstance(a, ndarray) and not p.raw]
        if (size is None) != bool(looped):
            raise ValueError("Loop size is undecided, or given beside arrays that decide it.")
        shape = np.broadcast_shapes(*(a.shape for a in looped)) if looped else (size,)
        if len(args) == self.nin:
            args = (*args, created(np.empty(shape, self.params[-1].type_in(types)), poison=True))
        if not self.params[-1].raw and args[-1].shape != shape:
            raise ValueError("Out shape is mismatched")
        if np.prod(shape, dtype=int):
            device.launch(self.name)
            arrays = [(p.name, a.dtype.name) for p, a in zip(self.params, args, strict=True) if isinstance(a, ndarray)]
            state.kernel_types.add((self.name, tuple(arrays)))
            self._run(args, types, shape)
        return args[-1]

    def _types(self, args: list[Any]) -> dict[str, np.dtype]:
        """Return what the letters stand for: the output decides first, numbers decide nothing."""
        types: dict[str, np.dtype] = {}
        for p, a in [*zip(self.params, args, strict=False)][::-1]:
            if isinstance(a, ndarray):
                expected = types.setdefault(p.letter, a.dtype) if p.letter else p.dtype
                if expected != a.dtype:
                    raise TypeError(f"Type is mismatched. {p.name} {a.dtype} {expected}")
        return types

    def _run(self, args: Any, types: dict[str, np.dtype], shape: tuple[int, ...]) -> None:
        """Run the loop over contiguous copies of arrays that move with it, and over raw arrays in their place."""
        buffers = []
        for p, a in zip(self.params, args, strict=True):
            if not isinstance(a, ndarray):
                buffers.append(np.array(a).astype(p.type_in(types)))
            elif p.raw:
                assert a.flags.c_contiguous, "the imitation reads raw arrays in C order only"
                buffers.append(a._host)
            else:
                buffers.append(np.array(np.broadcast_to(a._host, shape), order="C"))
        addresses = (ctypes.c_void_p * len(buffers))(*(b.__array_interface__["data"][0] for b in buffers))
        sizes = (ctypes.c_ssize_t * len(buffers))(*(b.size for b in buffers))
        scalars = [not isinstance(a, ndarray) for a in args]
        run = library(self._source(types, scalars), self.name).run
        if run(ctypes.c_ssize_t(int(np.prod(shape, dtype=np.int64))), addresses, sizes):
            lose_context()
        if not self.params[-1].raw:
            args[-1]._host[...] = buffers[-1]

    def _source(self, types: dict[str, np.dtype], scalars: list[bool]) -> str:
        typedefs = "".join(f"typedef {C_TYPES[dtype.name]} {letter};\n" for letter, dtype in sorted(types.items()))
        raw, entry = [], []
        for k, (p, is_scalar) in enumerate(zip(self.params, scalars, strict=True)):
            kind = f"{'const ' * p.is_const}{p.letter or C_TYPES[p.dtype.name]}"
            if p.raw:
                raw.append(f"const CArray<{kind}> {p.name} = {{({kind}*)at[{k}], sizes[{k}]}};")
            else:
                entry.append(f"{kind} &{p.name} = (({kind}*)at[{k}])[{'0' if is_scalar else 'i'}];")
        return f"""{PRELUDE}{ARRAYS}
{typedefs}
{self.preamble}
extern "C" int run(ptrdiff_t n, void** at, const ptrdiff_t* sizes) {{
    out_of_bounds = false;
    {" ".join(raw)}
    for (ptrdiff_t i = 0; i < n; ++i) {{
        {" ".join(entry)}
        {self.operation};
    }}
    return out_of_bounds;
}}
"""


# -- whole programs ----------------------------------------------------------------------------------------------------

GUARD = 4096  # bytes of ones on both sides of what a kernel may touch
DEVICE_CODE = r"""
#include <ucontext.h>
#include <type_traits>
#include <utility>
#include <vector>
#define __global__
#define __shared__ static
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
struct uint3 { unsigned x, y, z; };
static uint3 threadIdx, blockIdx, blockDim, gridDim;

namespace fake {
struct Fiber { ucontext_t context; bool done; };
static const size_t STACK = 65536;
static std::vector<Fiber> fibers;
static std::vector<char> stacks;
static Fiber* running;
static ucontext_t scheduler;
static void (*run_thread)();
static void* kernel;
static void** arguments;

template <class... A, size_t... I> static void call(std::index_sequence<I...>) {
    ((void (*)(A...))kernel)(*(std::remove_reference_t<A>*)arguments[I]...);
}
template <class... A> static void run() { call<A...>(std::index_sequence_for<A...>()); }
static void fiber_main() { run_thread(); running->done = true; }

// Every round lets each thread of the block run to its next barrier or to its end.
static void run_block() {
    size_t n = fibers.size(), left = n;
    for (size_t i = 0; i < n; ++i) {
        ucontext_t& context = fibers[i].context;
        getcontext(&context);
        context.uc_stack.ss_sp = stacks.data() + i * STACK;
        context.uc_stack.ss_size = STACK;
        context.uc_link = &scheduler;
        makecontext(&context, fiber_main, 0);
        fibers[i].done = false;
    }
    for (bool forward = true; left; forward = !forward) {
        for (size_t k = 0; k < n; ++k) {
            unsigned i = forward ? k : n - 1 - k;
            if (fibers[i].done) continue;
            running = &fibers[i];
            threadIdx = {i, 0, 0};
            swapcontext(&scheduler, &running->context);
            left -= fibers[i].done;
        }
    }
}

template <class... A> static void launch(void (*function)(A...), unsigned blocks, unsigned threads, void** values) {
    kernel = (void*)function;
    arguments = values;
    run_thread = &run<A...>;
    gridDim = {blocks, 1, 1};
    blockDim = {threads, 1, 1};
    fibers.resize(threads);
    stacks.resize(threads * STACK);
    for (unsigned b = 0; b < blocks; ++b) { blockIdx = {b, 0, 0}; run_block(); }
}
}

static void __syncthreads() { swapcontext(&fake::running->context, &fake::scheduler); }
"""
ENTRY = """
extern "C" void launch(unsigned blocks, unsigned threads, void** values) {{
    fake::launch(&{name}, blocks, threads, values);
}}
"""


class RawKernel:
    """A kernel given as a whole CUDA program, with grid and blocks of one dimension."""

    def __init__(self, code: str, name: str) -> None:
        self.code, self.name, self.options = code, name, ()

    def __call__(self, grid: tuple, block: tuple, args: Any) -> None:
        (blocks,), (threads,) = grid, block
        if threads > 1024:
            raise ValueError("a block has 1024 threads at most")
        values = [_checked(argument) for argument in args]
        program = library(PRELUDE + DEVICE_CODE + self.code + ENTRY.format(name=self.name), self.name)
        device.launch(self.name)
        guarded = {k: _Guarded(value) for k, value in enumerate(values) if isinstance(value, ndarray)}
        # Numbers have 64 bits, as CuPy passes Python's; a parameter that is narrower reads its low ones.
        held = [
            np.asarray(guarded[k].address if k in guarded else value, np.int64 if k in guarded else None)
            for k, value in enumerate(values)
        ]
        addresses = (ctypes.c_void_p * len(held))(*(x.ctypes.data for x in held))
        program.launch(ctypes.c_uint(blocks), ctypes.c_uint(threads), addresses)
        if not all(part.is_whole() for part in guarded.values()):
            lose_context()


class _Guarded:
    """A copy of an array between guards, aligned as on the device, whose bytes are copied back in the end."""

    def __init__(self, array: ndarray) -> None:
        assert array.flags.c_contiguous, "a raw kernel reads addresses, whatever the strides"
        self._array, size = array, array.nbytes
        self._whole = np.full(size + 3 * GUARD, 0xFF, np.uint8)
        self._start = GUARD + -self._whole.ctypes.data % GUARD
        self._whole[self._start : self._start + size] = array._host.reshape(-1).view(np.uint8)
        self.address = self._whole.ctypes.data + self._start

    def is_whole(self) -> bool:
        """Copy the bytes back, and return whether the guards are what they were."""
        before, held, after = np.split(self._whole, [self._start, self._start + self._array.nbytes])
        self._array._host.reshape(-1).view(np.uint8)[...] = held
        return bool((before == 0xFF).all() and (after == 0xFF).all())


ElementwiseKernel.__module__ = RawKernel.__module__ = "cupy"
