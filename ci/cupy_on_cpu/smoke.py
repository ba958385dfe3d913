"""Plain CuPy against NumPy: run it with `run.sh DEST python smoke.py`. Exits with status 1 where something differs."""

import sys

import cupy
import numpy as np

rng = np.random.default_rng(0)
wrong = 0


def check(what, got, expected, tolerance=0.0):
    global wrong
    got, expected = cupy.asnumpy(got).astype("d"), np.asarray(expected, "d")
    error = np.abs(got - expected).max() if got.shape == expected.shape else np.inf
    wrong += not error <= tolerance
    print(f"{'ok   ' if error <= tolerance else 'WRONG'} {what}: {error:.1e}")


def refused(what, error, text, call):
    global wrong
    try:
        call()
        found = "no error"
    except error as e:
        found = str(e)
    wrong += text not in found
    print(f"{'ok   ' if text in found else 'WRONG'} {what}: {found[:110]}")


a, b = rng.standard_normal((60, 33)).astype("f"), rng.standard_normal((60, 33)).astype("f")
x, y = cupy.asarray(a), cupy.asarray(b)
check("copies", x[::2, 3:].copy(), a[::2, 3:])
check("arithmetic", x * y + 2 - x / (1 + y * y), a * b + 2 - a / (1 + b * b), 1e-5)
check("exp, tanh, power", cupy.exp(x) + cupy.tanh(y) + abs(x) ** 1.5, np.exp(a) + np.tanh(b) + abs(a) ** 1.5, 1e-4)
check("float64", cupy.log(abs(x.astype("d"))), np.log(abs(a.astype("d"))), 1e-13)
check("integers", cupy.arange(-50, 50) // 7 % 5, np.arange(-50, 50) // 7 % 5)
check("float16", (x.astype("e") * 2).astype("f"), (a.astype("e") * 2).astype("f"))
check("sums", cupy.concatenate([x.sum(0), x.max(1), x.var(0)]), np.concatenate([a.sum(0), a.max(1), a.var(0)]), 1e-4)
check("argmin", x.argmin(1), a.argmin(1))
check("cumsum, where", cupy.where(x > 0, cupy.cumsum(x, 1), y), np.where(a > 0, np.cumsum(a, 1), b), 1e-4)
check(
    "mask, nonzero",
    cupy.concatenate([x[x > 0], x.ravel().nonzero()[0]]),
    np.concatenate([a[a > 0], a.ravel().nonzero()[0]]),
)
check(
    "sort, argsort, lexsort",
    cupy.sort(x, 0) + x.argsort(1) + cupy.lexsort(y),
    np.sort(a, 0) + a.argsort(1) + np.lexsort(b),
)
cupy._core.set_reduction_accelerators(["cub"])
check("CUB's block reductions", cupy.concatenate([x.sum(1), x.max(1)]), np.concatenate([a.sum(1), a.max(1)]), 1e-4)
cupy._core.set_reduction_accelerators([])
check("matmul", x.T @ y, a.T @ b, 1e-4)
check(
    "batched matmul",
    cupy.matmul(x.reshape(4, 15, 33), y.reshape(4, 33, 15)),
    a.reshape(4, 15, 33) @ b.reshape(4, 33, 15),
    1e-4,
)
check("float16 matmul", x.astype("e").T @ y.astype("e"), a.astype("e").astype("f").T @ b.astype("e").astype("f"), 3e-2)
symmetric = a.T.astype("d") @ a
check("eigh", cupy.linalg.eigh(cupy.asarray(symmetric))[0], np.linalg.eigh(symmetric)[0], 1e-11)
check(
    "solve",
    cupy.linalg.solve(cupy.asarray(symmetric), x.T.astype("d")),
    np.linalg.solve(symmetric, a.T.astype("d")),
    1e-9,
)
check(
    "svd, qr",
    cupy.linalg.qr(x)[0] @ cupy.linalg.qr(x)[1] + cupy.linalg.svd(x)[1].sum(),
    a + np.linalg.svd(a)[1].sum(),
    1e-3,
)
source = r"""
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
module = cupy.RawModule(code=source)
pointer = module.get_global("factor")
cupy.ndarray(2, "f", pointer)[:] = cupy.asarray([1, 3], "f")
out, positive = cupy.zeros(60, "f"), cupy.zeros(1, "i")
module.get_function("row_sums")((60,), (64,), (x, out, np.int32(33), positive), shared_mem=256)
check("RawKernel: shared memory, warp exchange, constants", out, 3 * a.sum(1), 1e-4)
check("RawKernel: __syncthreads_count, atomicAdd", positive, [(a > 0).sum()])
errors = (cupy.cuda.driver.CUDADriverError, RuntimeError)
refused(
    "misaligned vector", errors, "misaligned access of 16", lambda: module.get_function("odd")((1,), (1,), (x, out))
)
refused(
    "lanes that never arrive", errors, "wait for each other", lambda: module.get_function("lonely")((1,), (32,), (out,))
)
refused("block of 2048 threads", errors, "INVALID_VALUE", lambda: module.get_function("odd")((1,), (2048,), (x, out)))
refused("complex product", RuntimeError, "cublasGemmEx with types 4 4 4", lambda: x.astype("F") @ y.T.astype("F"))
refused(
    "complex eigenvectors",
    RuntimeError,
    "cusolverDnXsyevd of a complex matrix",
    lambda: cupy.linalg.eigh(cupy.eye(3, dtype="F")),
)
refused(
    "runtime function that is not written",
    RuntimeError,
    "cudaDeviceGetLimit",
    lambda: cupy.cuda.runtime.deviceGetLimit(0),
)
refused("generator", NotImplementedError, "cupy.random", lambda: cupy.random.default_rng(0))
cupy._core.set_routine_accelerators(["cub"])
refused("CUB's device reductions", NotImplementedError, "cupy.cuda.cub.cub_reduction", lambda: x.sum())
cupy._core.set_routine_accelerators([])
refused("FFT", RuntimeError, "cufft", lambda: cupy.fft.fft(x))
pool = cupy.get_default_memory_pool()
pool.free_all_blocks()
pool.set_limit(size=pool.total_bytes() + 2**20)
refused("memory pool limit", cupy.cuda.memory.OutOfMemoryError, "Out of memory", lambda: cupy.zeros(2**20))
pool.set_limit(size=0)
first, second = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Event()
with first:
    z = x + 1
    first.record(second)
cupy.cuda.Stream.null.wait_event(second)
check("streams and events", z * 2, (a + 1) * 2)
print(f"{wrong} differences" if wrong else "all as NumPy")
sys.exit(wrong > 0)
