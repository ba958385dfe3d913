"""Plain CuPy against NumPy: run it with `run.sh DEST python smoke.py`. Exits with status 1 where something differs.

Each line says what was compared, the largest difference and the largest one allowed, or which error was raised.
"""

import sys

import cupy
import numpy as np
from comparisons import Data, Report, random_data
from cupy import cublas
from cupy.cuda import cufft
from smoke_products import compare_math_modes, compare_products, compare_refused_products
from smoke_transforms import compare_plans, compare_transforms

ROW_SUMS = r"""
__constant__ float factor[2];
extern "C" __global__ void row_sums(const float* x, float* out, int columns, int* positive) {
    extern __shared__ float part[];
    __shared__ float scale;
    if (threadIdx.x == 0) scale = factor[1];
    float sum = 0;
    for (int j = threadIdx.x; j < columns; j += blockDim.x) sum += x[blockIdx.x * columns + j];
    part[threadIdx.x] = sum;
    int n = __syncthreads_count(sum > 0);
    for (int step = blockDim.x / 2; step >= 32; step /= 2) {
        if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x < 32) {
        sum = part[threadIdx.x];
        for (int step = 16; step; step /= 2) sum += __shfl_down_sync(0xffffffffu, sum, step);
        if (threadIdx.x == 0) { out[blockIdx.x] = sum * scale; atomicAdd(positive, n); }
    }
}
extern "C" __global__ void odd(const float* x, float* out) { *(float4*)out = *(const float4*)(x + 1); }
extern "C" __global__ void lonely(int* out) { if (threadIdx.x) out[threadIdx.x] = __shfl_sync(0xffffffffu, 1, 0); }
"""


# ---- arrays --------------------------------------------------------------------------------------------------------


def compare_arrays(report: Report, data: Data) -> None:
    a, b, x, y = data.a, data.b, data.x, data.y
    report.same("copy of x[::2, 3:]", x[::2, 3:].copy(), a[::2, 3:])
    report.same("x·y + 2 - x/(1 + y²)", x * y + 2 - x / (1 + y * y), a * b + 2 - a / (1 + b * b), 1e-5)
    report.same("exp x + tanh y", cupy.exp(x) + cupy.tanh(y), np.exp(a) + np.tanh(b), 1e-4)
    report.same("|x|^1.5", abs(x) ** 1.5, abs(a) ** 1.5, 1e-5)
    report.same("log |x| in float64", cupy.log(abs(x.astype("d"))), np.log(abs(a.astype("d"))), 1e-13)
    report.same("integers: n // 7 % 5", cupy.arange(-50, 50) // 7 % 5, np.arange(-50, 50) // 7 % 5)
    report.same("2·x in float16", x.astype("e") * 2, a.astype("e") * 2)
    report.same("sums of columns", x.sum(0), a.sum(0), 1e-4)
    report.same("largest of rows, variances of columns", x.max(1) + x.var(0).sum(), a.max(1) + a.var(0).sum(), 1e-4)
    report.same("argmin of rows", x.argmin(1), a.argmin(1))
    report.same("cumsum of rows", cupy.cumsum(x, 1), np.cumsum(a, 1), 1e-4)
    report.same("where x > 0", cupy.where(x > 0, x, y), np.where(a > 0, a, b))
    report.same("entries x > 0", x[x > 0], a[a > 0])
    report.same("places of entries that are not 0", x.ravel().nonzero()[0], a.ravel().nonzero()[0])
    report.same("sort of columns", cupy.sort(x, 0), np.sort(a, 0))
    report.same("argsort of rows", x.argsort(1), a.argsort(1))
    report.same("lexsort", cupy.lexsort(y), np.lexsort(b))
    with_nan = np.where(a > 1, np.nan, a)
    report.same("sort with NaN, which go last", cupy.sort(cupy.asarray(with_nan), 1), np.sort(with_nan, 1))
    cupy._core.set_reduction_accelerators(["cub"])
    report.same("CUB's block reductions: sums of rows", x.sum(1), a.sum(1), 1e-4)
    report.same("CUB's block reductions: largest of rows", x.max(1), a.max(1))
    cupy._core.set_reduction_accelerators([])
    first, second = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Event()
    with first:
        z = x + 1
        first.record(second)
    cupy.cuda.Stream.null.wait_event(second)
    report.same("x + 1 from another stream, after its event", z * 2, (a + 1) * 2)


# ---- kernels -------------------------------------------------------------------------------------------------------


def compare_kernels(report: Report, data: Data) -> None:
    x = data.x
    module = cupy.RawModule(code=ROW_SUMS)
    cupy.ndarray(2, "f", module.get_global("factor"))[:] = cupy.asarray([1, 3], "f")
    out, positive = cupy.zeros(60, "f"), cupy.zeros(1, "i")
    module.get_function("row_sums")((60,), (64,), (x, out, np.int32(33), positive), shared_mem=256)
    report.same("RawKernel with shared memory, warp exchange, constants: sums of rows", out, 3 * data.a.sum(1), 1e-4)
    report.same("RawKernel with __syncthreads_count, atomicAdd: number of x > 0", positive, [(data.a > 0).sum()])
    errors = (cupy.cuda.driver.CUDADriverError, RuntimeError)
    odd, lonely = module.get_function("odd"), module.get_function("lonely")
    report.refused("a misaligned vector", errors, "misaligned access of 16", lambda: odd((1,), (1,), (x, out)))
    report.refused("lanes that never arrive", errors, "wait for each other", lambda: lonely((1,), (32,), (out,)))
    report.refused("a block of 2048 threads", errors, "INVALID_VALUE", lambda: odd((1,), (2048,), (x, out)))


# ---- linear algebra ------------------------------------------------------------------------------------------------


def compare_linear_algebra(report: Report, data: Data) -> None:
    a, b, x, y = data.a, data.b, data.x, data.y
    report.same("asfortranarray", cupy.asfortranarray(x), a, 0)
    report.same("sum of matrices by geam", cublas.geam("T", "N", 2.0, x, -1.0, x.T), a.T, 1e-6)
    report.same("matmul", x.T @ y, a.T @ b, 1e-4)
    report.same("matmul in float64", x.T.astype("d") @ y, a.T.astype("d") @ b, 1e-12)
    batch = cupy.matmul(x.reshape(4, 15, 33), y.reshape(4, 33, 15))
    report.same("batched matmul", batch, a.reshape(4, 15, 33) @ b.reshape(4, 33, 15), 1e-4)
    halves = a.astype("e").astype("d"), b.astype("e").astype("d")
    report.same("matmul in float16", x.astype("e").T @ y.astype("e"), halves[0].T @ halves[1], 3e-2)
    symmetric = a.T.astype("d") @ a
    on_device = cupy.asarray(symmetric)
    report.same("eigenvalues by eigh", cupy.linalg.eigh(on_device)[0], np.linalg.eigh(symmetric)[0], 1e-11)
    right = a.T.astype("d")
    report.same("solve", cupy.linalg.solve(on_device, cupy.asarray(right)), np.linalg.solve(symmetric, right), 1e-9)
    report.same("inverse", cupy.linalg.inv(on_device) @ on_device, np.eye(33), 1e-11)
    many = np.stack([symmetric, symmetric + np.eye(33)])
    report.same("inverses of a batch", cupy.linalg.inv(cupy.asarray(many)), np.linalg.inv(many), 1e-9)
    q, r = cupy.linalg.qr(x)
    report.same("q·r of qr", q @ r, a, 1e-5)
    report.same("singular values by svd", cupy.linalg.svd(x)[1], np.linalg.svd(a)[1], 1e-4)


# ---- what is not written -------------------------------------------------------------------------------------------


def compare_errors(report: Report, data: Data) -> None:
    x = data.x
    unwritten = "is not written in the CPU stand-in"
    matrix = cupy.eye(3, dtype="F")
    name = f"cusolverDnXsyevd of a complex matrix {unwritten}"
    report.refused("eigh of a complex matrix", RuntimeError, name, lambda: cupy.linalg.eigh(matrix))
    name = f"cudaDeviceGetLimit {unwritten}"
    report.refused("deviceGetLimit", RuntimeError, name, lambda: cupy.cuda.runtime.deviceGetLimit(0))
    report.refused("random.default_rng", NotImplementedError, "cupy.random", lambda: cupy.random.default_rng(0))
    cupy._core.set_routine_accelerators(["cub"])
    name = "cupy.cuda.cub.cub_reduction"
    report.refused("a device reduction of CUB", NotImplementedError, name, lambda: x.sum())
    cupy._core.set_routine_accelerators([])
    name = f"cufftXtMakePlanMany {unwritten}"
    plan, order = ((8,), (8,), 1, 8, "E", (8,), 1, 8, "E", 1, "E"), {"order": "C", "last_axis": -1, "last_size": None}
    report.refused("an FFT of float16", RuntimeError, name, lambda: cufft.XtPlanNd(*plan, **order))
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    pool.set_limit(size=pool.total_bytes() + 2**20)
    error = cupy.cuda.memory.OutOfMemoryError
    report.refused("8 MiB above the limit of the memory pool", error, "Out of memory", lambda: cupy.zeros(2**20))
    pool.set_limit(size=0)


def main() -> int:
    """Return the exit status: 1 where something differs."""
    report, data = Report(), random_data()
    compare_arrays(report, data)
    compare_kernels(report, data)
    compare_linear_algebra(report, data)
    compare_products(report, data)
    compare_math_modes(report, data)
    compare_refused_products(report, data)
    compare_transforms(report)
    compare_plans(report)
    compare_errors(report, data)
    print(f"{report.wrong} lines differ" if report.wrong else "everything is as NumPy has it")
    return int(report.wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
