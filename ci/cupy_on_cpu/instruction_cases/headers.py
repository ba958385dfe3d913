"""Functions of cuda_fp16.h, cuda_bf16.h and cuda_pipeline_primitives.h, headers that hold inline PTX themselves."""

import math
import os
from collections.abc import Callable

import cupy
import numpy as np

from instruction_cases.floats import add, fma
from instruction_cases.halves import rounded
from instruction_cases.harness import Report
from instruction_cases.numbers import decode, encode

N = 64
CODE = r"""
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cuda_pipeline_primitives.h>
extern "C" __global__ void k(const unsigned* in, unsigned short* out) {
    const int i = threadIdx.x;
    HALF x = ((const HALF*)in)[3 * i], y = ((const HALF*)in)[3 * i + 1], z = ((const HALF*)in)[3 * i + 2];
    HALF results[] = {__hfma(x, y, z), __hadd(x, y), __hdiv(x, z), hexp(x), hsqrt(__habs(x)),
                      FROM_FLOAT(TO_FLOAT(x) / 3), FROM_DOUBLE(TO_FLOAT(x) * 1.001), __hlt(x, y) ? x : y};
    for (int j = 0; j < 8; j++) ((HALF*)out)[8 * i + j] = results[j];
}
extern "C" __global__ void copies(const int* in, int* out) {
    __shared__ __align__(16) int s[4 * 64];
    __pipeline_memcpy_async(s + 4 * threadIdx.x, in + 4 * threadIdx.x, 16, 4);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    for (int j = 0; j < 4; j++) out[4 * threadIdx.x + j] = s[4 * threadIdx.x + j];
}
"""
NAMES = {
    "f16": {"HALF": "__half", "FROM_FLOAT": "__float2half", "TO_FLOAT": "__half2float", "FROM_DOUBLE": "__double2half"},
    "bf16": {
        "HALF": "__nv_bfloat16", "FROM_FLOAT": "__float2bfloat16", "TO_FLOAT": "__bfloat162float",
        "FROM_DOUBLE": "__double2bfloat16",
    },
}  # fmt: skip


def once(kind: str, function: Callable[..., float]) -> Callable[..., int]:
    """Return the reference of a function that is computed in float64 and rounded to a half."""
    return lambda *v: encode(function(*(decode(x, kind) for x in v)), kind)


def check(report: Report) -> None:
    """Check both kinds of halves: exactly, but hdiv, hexp and hsqrt to a unit of the last place."""
    include = f"-I{os.environ['CUDA_PATH']}/include"
    rng = np.random.default_rng(10)
    for kind, names in NAMES.items():
        operands = [[encode(float(v), kind) for v in row] for row in rng.standard_normal((N, 3))]
        out = cupy.zeros((N, 8), np.uint16)
        kernel = report.compile(CODE, options=(include, *(f"-D{name}={text}" for name, text in names.items())))
        kernel((1,), (N,), (cupy.asarray(np.array(operands, np.uint16)), out))
        references = {
            "__hfma": (rounded(kind, fma), 0),
            "__hadd": (lambda x, y, z, kind=kind: rounded(kind, add)(x, y), 0),
            "__hdiv": (once(kind, lambda x, y, z: x / z), 1),
            "hexp": (once(kind, lambda x, y, z: math.exp(x)), 1),
            "hsqrt": (once(kind, lambda x, y, z: math.sqrt(abs(x))), 1),
            names["FROM_FLOAT"]: (once(kind, lambda x, y, z: float(np.float32(x) / np.float32(3))), 0),
            names["FROM_DOUBLE"]: (once(kind, lambda x, y, z: x * 1.001), 0),
            "__hlt": (once(kind, lambda x, y, z: min(x, y)), 0),
        }
        for j, (name, (reference, units)) in enumerate(references.items()):
            expected = np.array([reference(*row) for row in operands])
            error = abs(out.get()[:, j].astype(int) - expected)
            report.check(f"{name} of {kind}", (error > units).any(), f": {error.max()} units of the last place")
    out = cupy.zeros((N, 4), np.int32)
    options = (include, *(f"-D{name}={text}" for name, text in NAMES["f16"].items()))
    report.compile(CODE, "copies", options)((1,), (N,), (cupy.arange(4 * N, dtype=np.int32), out))
    expected = np.arange(4 * N).reshape(N, 4) * (np.arange(4) < 3)  # the last argument is the number of zeros
    report.check("__pipeline_memcpy_async with zeros", (out.get() != expected).any())
