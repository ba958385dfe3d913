"""`cupy.ElementwiseKernel` on the CPU: the CUDA C++ text of the operation is compiled by g++ and run over the entries.

The rules for parameters, types and shapes are CuPy's. Not imitated: threads (`return` ends the whole loop, there is
no `threadIdx`), half precision, complex numbers.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from . import state as device
from .array import check_place, created, ndarray
from .state import CompileException, lose_context

C_TYPES = {
    "?": "bool", "b": "signed char", "B": "unsigned char", "h": "short", "H": "unsigned short", "i": "int",
    "I": "unsigned int", "l": "long long", "L": "unsigned long long", "q": "long long", "Q": "unsigned long long",
    "f": "float", "d": "double",
}  # fmt: skip

# What device code may use without an include: CUDA's overloads of the mathematical functions for float and double.
PRELUDE = r"""
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__
#define LIMITS(T, SMALLER, LARGER) \
    static inline T min(T a, T b) { return SMALLER; } \
    static inline T max(T a, T b) { return LARGER; }
LIMITS(int, b < a ? b : a, a < b ? b : a)
LIMITS(unsigned int, b < a ? b : a, a < b ? b : a)
LIMITS(long, b < a ? b : a, a < b ? b : a)
LIMITS(unsigned long, b < a ? b : a, a < b ? b : a)
LIMITS(long long, b < a ? b : a, a < b ? b : a)
LIMITS(unsigned long long, b < a ? b : a, a < b ? b : a)
LIMITS(float, fminf(a, b), fmaxf(a, b))
LIMITS(double, fmin(a, b), fmax(a, b))
static inline double min(float a, double b) { return fmin((double)a, b); }
static inline double min(double a, float b) { return fmin(a, (double)b); }
static inline double max(float a, double b) { return fmax((double)a, b); }
static inline double max(double a, float b) { return fmax(a, (double)b); }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline float rsqrt(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
template <class T> static inline T __ldg(const T* p) { return *p; }
template <class T> static inline T atomicAdd(T* p, T x) { T old = *p; *p += x; return old; }

"""
ARRAYS = r"""
static bool out_of_bounds;
static double beyond[2];
template <class T> struct CArray {
    T* data; const ptrdiff_t* shape_; const ptrdiff_t* strides_; int ndim; ptrdiff_t size_; bool contiguous;
    ptrdiff_t size() const { return size_; }
    const ptrdiff_t* shape() const { return shape_; }
    const ptrdiff_t* strides() const { return strides_; }
    T& operator[](ptrdiff_t i) const {
        if (i < 0 || i >= size_) { out_of_bounds = true; return *(T*)beyond; }
        if (contiguous) return data[i];
        char* p = (char*)data;
        for (int axis = ndim - 1; axis >= 0; --axis) { p += i % shape_[axis] * strides_[axis]; i /= shape_[axis]; }
        return *(T*)p;
    }
};
struct Indexer {
    ptrdiff_t n, at;
    ptrdiff_t size() const { return n; }
    ptrdiff_t get() const { return at; }
};
"""
# No fortified longjmp: it takes the fibers of `raw` for damaged stacks.
FLAGS = ("-O2", "-U_FORTIFY_SOURCE", "-std=c++17", "-shared", "-fPIC", "-fno-math-errno", "-w", "-x", "c++")


class ParameterInfo:
    """One parameter, e.g. ``raw T x``: a single letter stands for a type that the arguments decide."""

    def __init__(self, text: str, is_const: bool) -> None:
        words = text.split()
        if len(words) < 2:
            raise Exception(f"Syntax error: {text}")
        kind, self.name = words[-2:]
        self.dtype = None if len(kind) == 1 else np.dtype(kind)
        self.ctype = kind if len(kind) == 1 else _c_type(self.dtype)
        self.raw, self.is_const = False, is_const
        for word in words[:-2]:
            if word == "raw":
                self.raw = True
            elif word == "_non_const":
                self.is_const = False
            else:
                raise Exception(f'Unknown keyword "{word}"')


def _parameters(text: str, is_const: bool) -> tuple[ParameterInfo, ...]:
    return tuple(ParameterInfo(part, is_const) for part in text.strip().split(",")) if text else ()


def _c_type(dtype: Any) -> str:
    char = np.dtype(dtype).char
    if char not in C_TYPES:
        raise NotImplementedError(f"the fake compiles no kernels for {np.dtype(dtype)}")
    return C_TYPES[char]


class ElementwiseKernel:
    """An elementwise function given as CUDA C++."""

    def __init__(
        self, in_params: str, out_params: str, operation: str, name: str = "kernel", reduce_dims: bool = True,
        preamble: str = "", no_return: bool = False, return_tuple: bool = False, *, options: tuple = (),
        loop_prep: str = "", after_loop: str = "",
    ) -> None:  # fmt: skip
        if not re.fullmatch(r"[a-zA-Z_][a-zA-Z_0-9]*", name):
            raise ValueError(f'Invalid kernel name: "{name}"')
        self.in_params, self.out_params = _parameters(in_params, True), _parameters(out_params, False)
        self.params = self.in_params + self.out_params
        if "i" in [p.name for p in self.params]:
            raise ValueError("Can not use 'i' as a parameter name")
        self.nin, self.nout, self.nargs = len(self.in_params), len(self.out_params), len(self.params)
        self.operation, self.name, self.__name__, self.preamble = operation, name, name, preamble
        self.no_return, self.return_tuple, self.options = no_return, return_tuple, options
        self.loop_prep, self.after_loop = loop_prep, after_loop

    def __call__(self, *args: Any, size: int = -1, stream: Any = None, block_size: int = 128) -> Any:
        if len(args) not in (self.nin, self.nargs):
            raise TypeError(
                f"Wrong number of arguments for {self.name!r}. It must be either {self.nin} or {self.nargs} "
                f"(with outputs), but given {len(args)}."
            )
        for arg in args:
            _check_argument(arg)
        shape = self._loop_shape(args, size)
        types, outs = self._types(args)
        outs = self._outputs(outs, types, shape, size)
        every = [*args[: self.nin], *outs]
        if np.prod(shape, dtype=int):
            device.launch(self.name)
            _run(self._compiled(types), self.params, every, types, shape)
        if self.no_return:
            return None
        return outs[0] if self.nout == 1 and not self.return_tuple else tuple(outs)

    def _loop_shape(self, args: Any, size: int) -> tuple[int, ...]:
        shapes = [a.shape for p, a in zip(self.params, args, strict=False) if isinstance(a, ndarray) and not p.raw]
        if size != -1 and shapes:
            raise ValueError("Specified 'size' can be used only if all of the ndarray are 'raw'.")
        if size == -1 and not shapes:
            raise ValueError("Loop size is undecided.")
        return (size,) if size != -1 else np.broadcast_shapes(*shapes)

    def _types(self, args: Any) -> tuple[dict[str, np.dtype], list[Any]]:
        """What the letters stand for: outputs decide first, numbers decide nothing."""
        types: dict[str, np.dtype] = {}
        outs = list(args[self.nin :])
        if any(not isinstance(out, ndarray) for out in outs):
            raise TypeError("Output arguments must be cupy.ndarray")
        decided = [*zip(self.out_params, outs, strict=False), *zip(self.in_params, args, strict=False)]
        for p, a in decided:
            if not isinstance(a, ndarray):
                continue
            wanted = p.dtype if p.dtype is not None else types.setdefault(p.ctype, a.dtype)
            if wanted != a.dtype:
                raise TypeError(f"Type is mismatched. {p.name} {a.dtype} {wanted} {p.ctype}")
        for p in self.params:
            if p.dtype is None:
                types[p.ctype]  # a letter that no array decides is a KeyError, as in CuPy
        return types, outs

    def _outputs(self, outs: list[Any], types: dict, shape: tuple[int, ...], size: int) -> list[ndarray]:
        if not outs:
            if size == -1 and any(p.raw for p in self.out_params):
                raise ValueError("Output array size is Undecided")
            return [created(np.empty(shape, _type_of(p, types)), poison=True) for p in self.out_params]
        for p, out in zip(self.out_params, outs, strict=True):
            if not p.raw and out.shape != shape:
                raise ValueError("Out shape is mismatched")
        return outs

    def _compiled(self, types: dict[str, np.dtype]) -> Any:
        source = _source(self, types)
        return library(source, self.name, self.options).run


def _check_argument(arg: Any) -> None:
    if isinstance(arg, ndarray):
        check_place(arg)
    elif not isinstance(arg, (bool, int, float, complex, np.number, np.bool_)):
        raise TypeError(f"Unsupported type {type(arg)}")


def _type_of(p: ParameterInfo, types: dict[str, np.dtype]) -> np.dtype:
    return types[p.ctype] if p.dtype is None else p.dtype


def _source(kernel: ElementwiseKernel, types: dict[str, np.dtype]) -> str:
    """The translation unit: every parameter under its name, the operation in a loop over the entries.

    Parameter k of the call has an address and, where it is an array, strides; which of them are numbers is decided
    by their having no strides, so that one unit serves both.
    """
    typedefs = "".join(f"typedef {_c_type(dtype)} {letter};\n" for letter, dtype in sorted(types.items()))
    raw, entry = [], []
    for k, p in enumerate(kernel.params):
        kind = f"const {p.ctype}" if p.is_const else p.ctype
        if p.raw:
            raw.append(
                f"const CArray<{kind}> {p.name} = {{({kind}*)at[{k}], shapes[{k}], strides[{k}], (int)dims[{k}], "
                f"sizes[{k}], (bool)contiguous[{k}]}};"
            )
        else:
            entry.append(f"{kind} &{p.name} = *({kind}*)where[{k}];")
    count = len(kernel.params)
    return f"""{PRELUDE}{ARRAYS}
{typedefs}
{kernel.preamble}
extern "C" int run(ptrdiff_t n, int ndim, const ptrdiff_t* loop, char** at, const ptrdiff_t* const* shapes,
                   const ptrdiff_t* const* strides, const ptrdiff_t* dims, const ptrdiff_t* sizes,
                   const ptrdiff_t* contiguous) {{
    out_of_bounds = false;
    char* where[{count}];
    ptrdiff_t index[32] = {{0}};
    for (int k = 0; k < {count}; ++k) where[k] = at[k];
    auto advance = [&]() {{
        for (int axis = ndim - 1; axis >= 0; --axis) {{
            for (int k = 0; k < {count}; ++k) if (dims[k] < 0) where[k] += strides[k][axis];
            if (++index[axis] < loop[axis]) return;
            for (int k = 0; k < {count}; ++k) if (dims[k] < 0) where[k] -= strides[k][axis] * loop[axis];
            index[axis] = 0;
        }}
    }};
    Indexer _ind = {{n, 0}};
    {" ".join(raw)}
    {kernel.loop_prep};
    for (ptrdiff_t i = 0; i < n; ++i, advance()) {{
        _ind.at = i;
        {" ".join(entry)}
        {kernel.operation};
    }}
    {kernel.after_loop};
    return out_of_bounds;
}}
"""


class ReductionKernel:
    """Not imitated."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError("the fake runs elementwise and raw kernels only")


@cache
def library(source: str, name: str, options: tuple) -> Any:
    """The compiled unit; kept in a folder of the user's among temporary files, by its text."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("CUDA kernels are imitated with g++, which is not installed")
    folder = Path(tempfile.gettempdir()) / f"fake-cupy-{os.getuid() if hasattr(os, 'getuid') else 'kernels'}"
    folder.mkdir(mode=0o700, exist_ok=True)
    digest = hashlib.sha256((source + " ".join(FLAGS)).encode()).hexdigest()[:32]
    path = folder / f"{digest}.so"
    if not path.exists():
        made = folder / f"{digest}.{os.getpid()}"
        command = [compiler, *FLAGS, "-", "-o", str(made)]
        result = subprocess.run(command, input=source, capture_output=True, text=True)
        if result.returncode:
            raise CompileException(result.stderr, source, name, options)
        made.replace(path)
    # It keeps the interpreter's lock: shared memory and threadIdx of a unit serve one launch at a time.
    return ctypes.PyDLL(str(path))


def _run(function: Any, params: Any, every: list[Any], types: dict, shape: tuple[int, ...]) -> None:
    """Call the compiled loop on the arrays' own memory."""
    loop, views = _reduced(params, every, shape)
    keep: list[np.ndarray] = []  # what the addresses below point to
    addresses, shapes, strides, dims, sizes, contiguous = [], [], [], [], [], []
    for p, a, view in zip(params, every, views, strict=True):
        if not isinstance(a, ndarray):
            number = np.array(a).astype(_type_of(p, types))
            keep.append(number)
            view = number
        steps = view.strides if p.raw else view.strides if isinstance(a, ndarray) else (0,) * len(loop)
        keep += [np.array(view.shape or (0,), np.intp), np.array(steps or (0,), np.intp)]
        addresses.append(view.__array_interface__["data"][0])
        shapes.append(keep[-2].ctypes.data)
        strides.append(keep[-1].ctypes.data)
        dims.append(view.ndim if p.raw else -1)  # -1: moves with the loop
        sizes.append(view.size)
        contiguous.append(view.flags.c_contiguous)
    tables = [
        np.array(column, np.intp) for column in (loop or (1,), addresses, shapes, strides, dims, sizes, contiguous)
    ]
    n = int(np.prod(shape, dtype=np.int64))
    pointers = [ctypes.c_void_p(table.ctypes.data) for table in tables]
    if function(ctypes.c_ssize_t(n), ctypes.c_int(len(loop)), *pointers):
        lose_context()


def _reduced(params: Any, every: list[Any], shape: tuple[int, ...]) -> tuple[tuple[int, ...], list[Any]]:
    """The arrays broadcast to the loop; one axis where all of them are contiguous in its order."""
    views = []
    for p, a in zip(params, every, strict=True):
        host = a._host if isinstance(a, ndarray) else None
        views.append(host if host is None or p.raw else np.broadcast_to(host, shape))
    moving = [v for p, v in zip(params, views, strict=True) if v is not None and not p.raw]
    if len(shape) == 1 or not all(v.flags.c_contiguous for v in moving):
        return shape, views
    return (int(np.prod(shape, dtype=int)),), [
        v if v is None or p.raw else v.reshape(-1) for p, v in zip(params, views, strict=True)
    ]
