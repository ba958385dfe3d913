"""The fake CuPy behaves as CuPy's documentation says where the library depends on it."""

from __future__ import annotations

import copy
import pickle
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import array_api_compat
import numpy as np
import pytest

from gpukpca.exceptions import DeviceLostError
from tests import fake_cupy
from tests.conftest import is_loss


def pair(cupy, shape=(5, 7), dtype="float64"):
    host = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    return host, cupy.asarray(host)


def test_it_is_there_for_its_context_only():
    if find_spec("cupy") is not None:
        with pytest.raises(RuntimeError, match="CuPy"):
            fake_cupy.install()
        pytest.skip("the real CuPy is installed")
    with fake_cupy.installed() as cupy:
        assert sys.modules["cupy"] is cupy
        assert find_spec("cupy") is not None
        assert array_api_compat.is_cupy_array(cupy.zeros(2))
    assert find_spec("cupy") is None
    assert not [name for name in sys.modules if name.startswith(("cupy", "array_api_compat.cupy"))]


def test_array_api_compat_takes_it_for_cupy(fake_cuda):
    import array_api_compat.cupy as module

    _, x = pair(fake_cuda)
    assert array_api_compat.array_namespace(x) is module
    assert array_api_compat.device(x) == fake_cuda.cuda.Device(0)
    np.testing.assert_array_equal(module.clip(x, -0.5, None).get(), np.maximum(x.get(), -0.5))
    assert module.concat([x, x], axis=1).shape == (5, 14)


# Conversions


@pytest.mark.parametrize("convert", [np.asarray, np.array, lambda x: np.dot(np.eye(5), x)], ids=["as", "copy", "dot"])
def test_arrays_do_not_become_numpy_arrays_by_themselves(fake_cuda, convert):
    with pytest.raises(TypeError):
        convert(fake_cuda.zeros((5, 5)))


def test_numpy_arrays_are_no_operands_and_numbers_are(fake_cuda):
    host, x = pair(fake_cuda)
    for wrong in (lambda: x + host, lambda: host * x, lambda: x @ host.T, lambda: fake_cuda.minimum(x, host)):
        with pytest.raises(TypeError):
            wrong()
    np.testing.assert_array_equal((np.float64(2) * x).get(), 2 * host)
    assert (x.astype("float32") * 2.0).dtype == np.float32
    assert isinstance(x.sum(), fake_cuda.ndarray)
    with pytest.raises(TypeError):
        range(fake_cuda.asarray(3))  # no __index__


def test_to_the_device_and_back(fake_cuda):
    host, x = pair(fake_cuda)
    np.testing.assert_array_equal(x.get(), host)
    assert x.T.get().flags.c_contiguous
    assert fake_cuda.asarray(host.T).flags.f_contiguous
    assert float(x[0, 0]) == x[0, 0].item() == host[0, 0]
    for again in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):
        assert isinstance(again, fake_cuda.ndarray)
        np.testing.assert_array_equal(again.get(), host)
    x.set(host + 1)
    np.testing.assert_array_equal(x.get(), host + 1)
    with pytest.raises(ValueError, match="Unsupported dtype"):
        fake_cuda.asarray(np.array(["a"]))


def test_indices(fake_cuda):
    host, x = pair(fake_cuda)
    view = x[1:3]
    view[...] = 0.0
    assert not x.get()[1:3].any()
    rows = np.array([0, 4])
    np.testing.assert_array_equal(x[rows].get(), x.get()[rows])
    np.testing.assert_array_equal(x[fake_cuda.asarray([5])].get(), x.get()[[0]])  # out of bounds wraps around
    x[fake_cuda.asarray(rows)] = fake_cuda.ones((2, 7))
    assert (x.get()[rows] == 1).all()
    with pytest.raises(ValueError, match="non-scalar"):
        x[0] = host[0]
    x[x > 0] = 2.0
    assert x.get().max() == 2.0
    x.diagonal()[...] = 3.0
    assert x.get()[2, 2] == 3.0


def test_new_memory_holds_no_zeros(fake_cuda):
    assert np.isnan(fake_cuda.empty(3).get()).all()
    assert fake_cuda.empty(3, np.int64).get().all()


def test_answers_in_place(fake_cuda):
    host, x = pair(fake_cuda)
    assert fake_cuda.exp(x, out=x) is x
    x *= 2.0
    np.testing.assert_array_equal(x.get(), np.exp(host) * 2)
    out = fake_cuda.empty((5, 5))
    assert fake_cuda.matmul(x, x.T, out=out) is out
    np.testing.assert_allclose(out.get(), x.get() @ x.get().T)
    with pytest.raises(TypeError):
        fake_cuda.exp(x, where=x > 0)


# Memory


def test_the_pool_counts_every_array_and_returns_to_where_it_was(fake_cuda):
    pool, rounded = fake_cuda.get_default_memory_pool(), -(-80000 // 512) * 512
    assert pool.total_bytes() == 0
    with fake_cupy.peak_bytes() as most:
        x = fake_cuda.zeros((100, 100))
        assert pool.used_bytes() == rounded
        part = x[3:4].T
        del x
        assert pool.used_bytes() == rounded  # a view keeps it
        del part
    assert pool.used_bytes() == 0
    assert pool.free_bytes() == pool.total_bytes() == most.count == rounded
    pool.free_all_blocks()
    assert pool.total_bytes() == 0


def test_freed_blocks_are_split_and_used_again(fake_cuda):
    pool = fake_cuda.get_default_memory_pool()
    x = fake_cuda.zeros(100 * 64)
    total = pool.total_bytes()
    del x
    small = fake_cuda.zeros(64)
    assert pool.total_bytes() == total
    pool.free_all_blocks()
    assert pool.total_bytes() == total  # a split block stays until its parts are one again
    del small
    pool.free_all_blocks()
    assert pool.total_bytes() == 0


def test_memory_ends(fake_cuda):
    with fake_cupy.device_bytes(2**20):
        free, total = fake_cuda.cuda.runtime.memGetInfo()
        assert total == 2**20
        assert free <= total
        with pytest.raises(MemoryError, match="Out of memory allocating") as caught:
            fake_cuda.zeros(2**20)
        assert type(caught.value) is fake_cuda.cuda.memory.OutOfMemoryError
        with fake_cupy.foreign_bytes(2**20 - 2**10), pytest.raises(MemoryError):
            fake_cuda.zeros(2**10)
        fake_cuda.zeros(2**10)
    fake_cuda.get_default_memory_pool().set_limit(size=2**12)
    with pytest.raises(MemoryError, match="limit set to: 4,096 bytes"):
        fake_cuda.zeros(2**12)


def test_without_the_pool(fake_cuda):
    pool = fake_cuda.get_default_memory_pool()
    fake_cuda.cuda.set_allocator(None)
    free = fake_cuda.cuda.runtime.memGetInfo()[0]
    x = fake_cuda.zeros(1000)
    assert pool.used_bytes() == 0
    assert free - fake_cuda.cuda.runtime.memGetInfo()[0] == -(-8000 // 512) * 512
    with fake_cupy.foreign_bytes(2**60), pytest.raises(fake_cuda.cuda.runtime.CUDARuntimeError, match="out of memory"):
        x + 1
    del x
    assert fake_cuda.cuda.runtime.memGetInfo()[0] == free
    fake_cuda.cuda.set_allocator(pool.malloc)
    x = fake_cuda.zeros(1000)
    assert pool.used_bytes() >= x.nbytes


def test_one_allocation_fails_or_all_after_it(fake_cuda):
    with fake_cupy.count_allocations() as made:
        fake_cuda.zeros(3) + 1
    assert made.count == 2
    with fake_cupy.fail_allocation(2):
        x = fake_cuda.zeros(3)
        with pytest.raises(MemoryError):
            x + 1
        x + 1
    with fake_cupy.fail_allocation(1, forever=True):
        for _ in range(3):
            with pytest.raises(MemoryError):
                fake_cuda.zeros(3)
    fake_cuda.zeros(3)


# Kernels


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_text_of_a_kernel_is_executed(fake_cuda, dtype):
    host, x = pair(fake_cuda, dtype=dtype)
    kernel = fake_cuda.ElementwiseKernel(
        "T t, T scale", "T y", "T s = t * scale; y = exp(s > T(0) ? T(0) : s)", "clamped"
    )
    y = kernel(x, -2.0)
    assert y.dtype == dtype
    np.testing.assert_allclose(y.get(), np.exp(np.minimum(host * np.dtype(dtype).type(-2), 0)), rtol=1e-6)
    assert kernel(x, -2.0, x) is x
    np.testing.assert_array_equal(x.get(), y.get())


def test_kernels_broadcast_and_follow_strides(fake_cuda):
    host, x = pair(fake_cuda)
    add = fake_cuda.ElementwiseKernel("T a, T b", "T y", "y = a + b", "add")
    np.testing.assert_array_equal(add(x, x[0]).get(), host + host[0])
    np.testing.assert_array_equal(add(x.T, x[:, 0]).get(), host.T + host[:, 0])
    np.testing.assert_array_equal(add(x[::2, ::-1], 1).get(), host[::2, ::-1] + 1)
    wide = fake_cuda.zeros((10, 14))
    add(x, 0, wide[::2, ::2])
    np.testing.assert_array_equal(wide.get()[::2, ::2], host)


def test_raw_parameters_are_indexed(fake_cuda):
    host, x = pair(fake_cuda)
    last_first = fake_cuda.ElementwiseKernel("raw T a, int64 n", "T y", "y = a[n - 1 - i]", "backwards")
    np.testing.assert_array_equal(last_first(x.T, 35, fake_cuda.empty(35)).get(), host.T.ravel()[::-1])
    np.testing.assert_array_equal(last_first(x, 35, size=35).get(), host.ravel()[::-1])
    with pytest.raises(fake_cuda.cuda.runtime.CUDARuntimeError, match="cudaErrorIllegalAddress"):
        last_first(x, 99, size=35).get()


def test_wrong_kernels_and_arguments_are_refused(fake_cuda):
    _, x = pair(fake_cuda)
    kernel = fake_cuda.ElementwiseKernel("T a, T b", "T y", "y = a + b", "add")
    with pytest.raises(TypeError, match="Type is mismatched"):
        kernel(x, x.astype("float32"))
    with pytest.raises(TypeError, match="Wrong number of arguments"):
        kernel(x)
    with pytest.raises(ValueError, match="Out shape"):
        kernel(x, x, fake_cuda.empty((1, 7)))
    with pytest.raises(ValueError, match="Loop size"):
        kernel(1.0, 2.0)
    with pytest.raises(ValueError, match="Can not use 'i'"):
        fake_cuda.ElementwiseKernel("T i", "T y", "y = i", "wrong")
    with pytest.raises(fake_cuda.cuda.compiler.CompileException):
        fake_cuda.ElementwiseKernel("T a", "T y", "y = b", "unknown")(x)
    with pytest.raises(fake_cuda.cuda.compiler.CompileException):
        fake_cuda.ElementwiseKernel("T a", "T y", "a = 1; y = a", "writes_its_input")(x)


# Devices


def test_two_devices(fake_cuda):
    cuda = fake_cuda.cuda
    assert cuda.runtime.getDeviceCount() == 2
    x = fake_cuda.ones(3)
    with cuda.Device(1) as second:
        y = fake_cuda.ones(3)
        assert y.device == second != x.device
        with pytest.raises(RuntimeError, match="different from the current device"):
            x + 1
        assert x.get().sum() == 3
        assert fake_cuda.asarray(x).device == second  # a copy from the other device
    assert cuda.Device() == cuda.Device(0)
    with pytest.raises(RuntimeError, match="different"):
        x + y
    with pytest.raises(cuda.runtime.CUDARuntimeError, match="cudaErrorInvalidDevice"):
        cuda.Device(2).use()
    with pytest.raises(TypeError):
        hash(cuda.Device(0))


def test_the_current_device_belongs_to_the_thread(fake_cuda):
    seen = []
    with fake_cuda.cuda.Device(1):
        thread = threading.Thread(target=lambda: seen.append(fake_cuda.cuda.runtime.getDevice()))
        thread.start()
        thread.join()
    assert seen == [0]


def test_a_broken_device_stays_broken(fake_cuda):
    x = fake_cuda.ones(3)
    fake_cupy.break_device(after=2)
    y = x.get()
    for call in (lambda: x.get(), lambda: fake_cuda.zeros(3), fake_cuda.cuda.get_current_stream().synchronize):
        with pytest.raises(fake_cuda.cuda.runtime.CUDARuntimeError, match="illegal memory access") as caught:
            call()
        assert caught.value.status == 700
    fake_cupy.repair()
    np.testing.assert_array_equal(x.get(), y)


def test_libraries_may_tell_of_a_lost_device_in_their_own_way(fake_cuda):
    x = fake_cuda.ones((2, 2))
    with fake_cupy.break_device(libraries=True):
        with pytest.raises(sys.modules["cupy_backends.cuda.libs.cublas"].CUBLASError, match="EXECUTION_FAILED"):
            x @ x
        with pytest.raises(fake_cuda.cuda.runtime.CUDARuntimeError):
            fake_cuda.cuda.runtime.deviceSynchronize()


def test_no_device_and_no_kernels(fake_cuda):
    error = fake_cuda.cuda.runtime.CUDARuntimeError
    with fake_cupy.no_device():
        assert not fake_cuda.is_available()
        for call in (fake_cuda.cuda.runtime.getDeviceCount, lambda: fake_cuda.zeros(3)):
            with pytest.raises(error, match="cudaErrorNoDevice"):
                call()
    with fake_cupy.kernels_cannot_run():
        x = fake_cuda.asarray(np.ones((2, 2)))
        with pytest.raises(error, match="no kernel image"):
            x @ x
    with fake_cupy.kernels_cannot_run("compile"), pytest.raises(fake_cuda.cuda.compiler.CompileException):
        x + 1


# Linear algebra


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_eigh_computes_in_the_type_of_its_argument(fake_cuda, dtype):
    host, x = pair(fake_cuda, (6, 6), dtype)
    values, vectors = fake_cuda.linalg.eigh(x + x.T)
    assert values.dtype == vectors.dtype == dtype
    residual = (host + host.T) @ vectors.get() - vectors.get() * values.get()
    assert 0 < np.abs(residual).max() < 160 * np.finfo(dtype).eps


def test_failures_of_cusolver_are_silent(fake_cuda):
    A = fake_cuda.eye(4)
    assert np.isfinite(fake_cuda.linalg.cholesky(-A).get()).all()  # and no factor of it
    assert np.isnan(fake_cuda.linalg.eigh(0 * A)[0].get()).all()
    with fake_cupy.eigh_answers("unsorted"):
        assert fake_cuda.linalg.eigvalsh(fake_cuda.diag(fake_cuda.arange(3.0)))[0] == 2.0
    with fake_cupy.eigh_reports(1):
        fake_cuda.linalg.eigh(A)
        with sys.modules["cupyx"].errstate(linalg="raise"), pytest.raises(np.linalg.LinAlgError):
            fake_cuda.linalg.eigh(A)
    cusolver = sys.modules["cupy_backends.cuda.libs.cusolver"]
    with fake_cupy.eigh_refuses_above(3), pytest.raises(cusolver.CUSOLVERError, match="INVALID_VALUE"):
        fake_cuda.linalg.eigh(A)
    with pytest.raises(fake_cuda.cuda.runtime.CUDARuntimeError, match="IllegalAddress"):
        fake_cuda.linalg.eigh(fake_cuda.full((2, 2), 1e31, np.float32))[0].get()


def test_tf32_loses_digits(fake_cuda):
    routines = sys.modules["cupy._core._routines_linalg"]
    float32 = np.dtype(np.float32)
    x = fake_cuda.full((4, 4), 1 + 2.0**-12, float32)
    exact = (x @ x).get()
    routines.set_compute_type(float32, routines.COMPUTE_TYPE_TF32)
    assert ((x @ x).get() == 4.0).all()
    routines.set_compute_type(float32, routines.COMPUTE_TYPE_PEDANTIC)
    np.testing.assert_array_equal((x @ x).get(), exact)


def test_a_lost_device_ends_a_run_of_tests(fake_cuda):
    """What `conftest` asks of every error: sticky errors of the device, and the library's word for them."""
    error = fake_cuda.cuda.runtime.CUDARuntimeError
    assert is_loss(error(700))
    assert is_loss(DeviceLostError("lost"))
    assert not is_loss(error(2))
    assert not is_loss(RuntimeError("700"))


# Whole CUDA programs

SUMS = r"""
template <class T, int EDGE>
__global__ void sums(const T* __restrict__ x, T* out, long long n) {
    __shared__ T part[EDGE];
    extern __shared__ __align__(16) unsigned char more[];
    T* twice = (T*)more;
    long long i = blockIdx.x * (long long)EDGE + threadIdx.x;
    part[threadIdx.x] = i < n ? __ldg(x + i) : T(0);
    __syncthreads();
    for (int half = EDGE / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) { part[threadIdx.x] += part[threadIdx.x + half]; }
        __syncthreads();
    }
    twice[threadIdx.x] = 2 * part[0];
    __syncwarp();
    if (threadIdx.x == 0) { out[blockIdx.x] = twice[EDGE - 1 < 31 ? EDGE - 1 : 31]; }
}
extern "C" __global__ void scaled(float4* x, float factor, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) { return; }
    float4 v = x[i];
    x[i] = make_float4(fmaf(v.x, factor, 1.0f), v.y, rsqrtf(v.z), fabsf(v.w));
}
extern "C" __global__ void __launch_bounds__(64) stuck(int* x) {
    if (threadIdx.x == 0) { __syncwarp(); x[0] = 1; } else { __syncthreads(); }
}
extern "C" __global__ void missing_barrier(int* x) {
    __shared__ int seen[64];
    seen[threadIdx.x] = threadIdx.x;
    x[threadIdx.x] = seen[63 - threadIdx.x];
    __syncthreads();
}
extern "C" __global__ void beyond(int* x) { x[threadIdx.x + 1] = 1; }
"""
EXPRESSIONS = ("sums<float, 32>", "sums<double, 64>")


def program(cupy):
    return cupy.RawModule(code=SUMS, options=("-std=c++17",), name_expressions=EXPRESSIONS)


@pytest.mark.parametrize(("dtype", "edge"), [("float32", 32), ("float64", 64)])
@pytest.mark.parametrize("n", [1, 63, 64, 65, 200])
def test_threads_of_a_block_share_memory_and_meet_at_barriers(fake_cuda, dtype, edge, n):
    host, x = pair(fake_cuda, (n,), dtype)
    blocks = -(-n // edge)
    out = fake_cuda.empty(blocks, dtype)
    name = EXPRESSIONS[edge // 32 - 1]
    kernel = program(fake_cuda).get_function(name)
    kernel((blocks,), (edge,), (x, out, n), shared_mem=edge * out.itemsize)
    wanted = [2 * host[start : start + edge].sum() for start in range(0, n, edge)]
    np.testing.assert_allclose(out.get(), wanted, rtol=0, atol=64 * edge * np.finfo(dtype).eps)


def test_vectors_intrinsics_and_arguments_by_value(fake_cuda):
    host, x = pair(fake_cuda, (8, 4), "float32")
    host[:, 2] = np.abs(host[:, 2])
    x.set(host)
    kernel = fake_cuda.RawKernel(SUMS, "scaled")
    with fake_cupy.launches() as made:
        kernel((3,), (3,), (x[1:], np.float32(2.0), np.int32(7)))
    assert made.names == ["scaled"]
    wanted = host.copy()
    wanted[1:] = np.c_[2 * host[1:, 0] + 1, host[1:, 1], 1 / np.sqrt(host[1:, 2]), np.abs(host[1:, 3])]
    np.testing.assert_allclose(x.get(), wanted, rtol=1e-6)
    for wrong in ((x, 2.0, np.int32(7)), (x, np.float32(2.0), 7), (np.float32(2.0), x, np.int32(7)), (x,)):
        with pytest.raises(TypeError, match="scaled"):
            kernel((1,), (1,), wrong)
    with pytest.raises(TypeError, match="passed by value"):
        kernel((1,), (1,), (host, np.float32(1), np.int32(1)))


def test_missing_barriers_show(fake_cuda):
    x = fake_cuda.zeros(64, np.int32)
    fake_cuda.RawKernel(SUMS, "missing_barrier")((1,), (64,), (x,))
    assert (x.get() != np.arange(64)[::-1]).any()


@pytest.mark.parametrize(("name", "status"), [("stuck", 702), ("beyond", 700)])
def test_faults_of_whole_programs_show_at_the_next_wait(fake_cuda, name, status):
    x = fake_cuda.zeros(64, np.int32)
    program(fake_cuda).get_function(name)((1,), (64,), (x,))
    x += 1
    with pytest.raises(fake_cuda.cuda.runtime.CUDARuntimeError) as caught:
        x.get()
    assert caught.value.status == status


def test_what_a_launch_refuses(fake_cuda):
    x = fake_cuda.zeros(64, np.int32)
    driver, beyond = sys.modules["cupy_backends.cuda.api.driver"], fake_cuda.RawKernel(SUMS, "beyond")
    for wrong in (lambda: beyond((1,), (2048,), (x,)), lambda: beyond((1,), (1,), (x,), shared_mem=2**16)):
        with pytest.raises(driver.CUDADriverError):
            wrong()
    with pytest.raises(driver.CUDADriverError):
        program(fake_cuda).get_function("nobody")
    with pytest.raises(TypeError):
        beyond([1], [1], (x,))
    with pytest.raises(fake_cuda.cuda.compiler.CompileException):
        fake_cuda.RawKernel('extern "C" __global__ void wrong(int* x) { x = y; }', "wrong")((1,), (1,), (x,))
    big = 'extern "C" __global__ void big(int* x) { __shared__ double all[7000]; all[0] = 0; __syncthreads(); }'
    with pytest.raises(fake_cuda.cuda.compiler.CompileException, match="too much shared"):
        fake_cuda.RawKernel(big, "big")((1,), (1,), (x,))


def test_threads_may_compile_the_same_kernel_at_once(fake_cuda, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    x = fake_cuda.arange(5)
    kernel = fake_cuda.ElementwiseKernel("T a", "T y", "y = 3 * a", "together")
    barrier = threading.Barrier(4)

    def run(_):
        barrier.wait()
        return kernel(x).get().sum()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, range(4))) == [30] * 4


# Allocators


def test_the_current_allocator_pays(fake_cuda):
    cuda, default = fake_cuda.cuda, fake_cuda.get_default_memory_pool()
    assert cuda.get_allocator().__self__ is default
    for pool in (cuda.MemoryPool(), cuda.MemoryAsyncPool()):
        cuda.set_allocator(pool.malloc)
        assert cuda.get_allocator().__self__ is pool
        free = cuda.runtime.memGetInfo()[0]
        x = fake_cuda.zeros(1000)
        assert (pool.used_bytes(), default.used_bytes()) == (8192, 0)
        assert free - cuda.runtime.memGetInfo()[0] == pool.total_bytes()
        del x
        assert (pool.used_bytes(), pool.free_bytes()) == (0, 8192)
        pool.free_all_blocks()
        assert cuda.runtime.memGetInfo()[0] == free
    assert pool.get_limit() == 2**64 - 1
    with pytest.raises(NotImplementedError):
        pool.n_free_blocks()
    pool.set_limit(2**12)
    with pytest.raises(MemoryError, match="limit set to"):
        fake_cuda.zeros(1000)


def test_a_plain_function_allocates(fake_cuda):
    rmm = fake_cupy.rmm_allocator(2**20)
    assert fake_cuda.cuda.runtime.memGetInfo()[0] == 16 * 2**30 - 2**20
    fake_cuda.cuda.set_allocator(rmm)
    assert fake_cuda.cuda.get_allocator() is rmm
    for _ in range(3):  # what is freed is used again
        x = fake_cuda.zeros(2**16)
        x[0] = 1.0
    assert fake_cuda.get_default_memory_pool().total_bytes() == 0
    assert type(fake_cuda.cuda.alloc(8).mem) is fake_cuda.cuda.UnownedMemory
    with pytest.raises(MemoryError, match="bad_alloc"):
        x + fake_cuda.zeros((2, 2**16))


# Streams


def test_copies_from_pinned_memory_read_it_when_somebody_waits(fake_cuda):
    cupyx, cuda = sys.modules["cupyx"], fake_cuda.cuda
    buffer, stream = cupyx.empty_pinned((4,)), cuda.Stream(non_blocking=True)
    x, y, z = (fake_cuda.zeros(4) for _ in range(3))
    buffer[...] = 1.0
    x.set(buffer, stream=stream)
    event = stream.record()
    assert not event.done
    y.set(buffer, stream=stream)
    assert x.get().sum() == 0.0  # another stream, which does not wait
    event.synchronize()
    assert event.done
    buffer[...] = 2.0  # too early for y
    cuda.get_current_stream().wait_event(stream.record())
    assert x.get().sum() == 4.0
    assert y.get().sum() == 8.0
    with stream:
        z.set(buffer)
        assert (z + 1).get().sum() == 12.0  # in order on one stream
    z.set(np.zeros(4), stream=stream)  # pageable memory: read before the call returns
    assert z.get(stream=stream).sum() == 0.0
    x.get(out=buffer, blocking=False)
    assert buffer[0] == 2.0
    cuda.runtime.deviceSynchronize()
    assert buffer[0] == 1.0


def test_pinned_memory(fake_cuda):
    buffer = fake_cuda.cuda.alloc_pinned_memory(100)
    assert buffer.size() >= 100
    assert np.frombuffer(buffer, np.float32, 25).flags.writeable
    with fake_cupy.no_pinned_memory(), pytest.raises(fake_cuda.cuda.runtime.CUDARuntimeError, match="out of memory"):
        sys.modules["cupyx"].empty_pinned((4, 4), np.float32)


def test_versions_of_libraries(fake_cuda):
    cusolver = sys.modules["cupy_backends.cuda.libs.cusolver"]
    for version, of_cusolver in ((12090, (11, 7, 5)), (13000, (12, 0, 4))):
        with fake_cupy.cuda_version(version):
            assert fake_cuda.cuda.get_local_runtime_version() == version
            assert cusolver._getVersion() == of_cusolver


# Faults


def test_faults_show_where_the_host_waits(fake_cuda):
    error = fake_cuda.cuda.runtime.CUDARuntimeError
    waits = {  # name -> (a call that waits, its answer on a device that works)
        "get": (lambda x: x.get(), np.ones((2, 2))),
        "float": (lambda x: float(x[0, 0]), 1.0),
        "bool": (lambda x: bool(x[0, 0]), True),
        "item": (lambda x: x[0, 0].item(), 1.0),
        "set": (lambda x: x.set(np.ones((2, 2))), None),
        "upload": (lambda x: fake_cuda.asarray(np.ones(2)), fake_cuda.ones(2)),
        "stream": (lambda x: fake_cuda.cuda.get_current_stream().synchronize(), None),
        "device": (lambda x: fake_cuda.cuda.Device().synchronize(), None),
        "event": (lambda x: fake_cuda.cuda.get_current_stream().record().synchronize(), None),
    }
    for name, (wait, expected) in waits.items():
        x = fake_cuda.ones((2, 2))
        with fake_cupy.break_device():
            y = x @ x
            y += 1.0
            with pytest.raises(error, match="illegal memory access"):
                wait(y)
            with pytest.raises(error):
                x + 1.0  # nothing works any more
        answer = wait(x)
        assert type(answer) is type(expected), name
        np.testing.assert_array_equal(fake_cuda.asnumpy(answer), fake_cuda.asnumpy(expected), err_msg=name)


# Layout and the memory of temporaries


def test_new_arrays_are_in_c_order(fake_cuda):
    """CuPy's kernels allocate C order whatever their operands; `astype` and `copy` may keep the order."""
    _, x = pair(fake_cuda)
    for made in (
        fake_cuda.exp(x.T),
        x.T + 1.0,
        x.T * x.T,
        x.T > 0,
        fake_cuda.minimum(x.T, 0),
        fake_cuda.where(x.T > 0, x.T, 0),
        fake_cuda.concatenate([x.T, x.T]),
        fake_cuda.stack([x.T, x.T]),
        fake_cuda.sort(x.T, axis=0),
        fake_cuda.cumsum(x.T, axis=1),
        fake_cuda.stack([x.T, x.T], axis=2).sum(axis=2),
        fake_cuda.ElementwiseKernel("T a", "T y", "y = a", "same")(x.T),
        x.T.copy(),
        x.T[[0, 1]],
        x.T @ x,
    ):
        assert made.flags.c_contiguous
        assert not made.flags.f_contiguous
    for kept in (x.T.astype("float32"), fake_cuda.copy(x.T), fake_cuda.empty_like(x.T), fake_cuda.zeros_like(x.T)):
        assert kept.flags.fnc
    assert fake_cuda.linalg.solve(fake_cuda.eye(5), x).flags.fnc
    q, r = fake_cuda.linalg.qr(x.T)
    assert q.flags.fnc
    assert r.flags.c_contiguous


def entries_taken(work):
    """Return the largest number of float64 entries in use while `work` runs."""
    with fake_cupy.peak_bytes() as most:
        work()
    return most.count // 8


def test_the_pool_pays_for_the_operands_that_a_product_copies(fake_cuda):
    n = 64
    x, y = fake_cuda.ones((n, 2 * n)), fake_cuda.ones((n, n))
    for free in (lambda: y @ y, lambda: y.T @ y, lambda: y @ y.T, lambda: x[: n // 2].T @ y[: n // 2]):
        assert entries_taken(free) <= 2 * n * n
    part, stack = x[:, :n], fake_cuda.ones((2, n, n))
    assert entries_taken(lambda: part @ y) == 2 * n * n
    assert entries_taken(lambda: part.T @ part) == 3 * n * n
    assert (
        entries_taken(lambda: y @ y.astype("float32")) == (2 + 0.5) * n * n
    )  # the operand, as float64, and the answer
    assert entries_taken(lambda: y.T @ y.astype("float32")[:, :n]) >= 2 * n * n
    assert entries_taken(lambda: stack @ y) == 2 * n * n
    assert entries_taken(lambda: stack.mT @ y) == 4 * n * n  # of a stack, matrices in C order alone
    assert entries_taken(lambda: y.ravel() @ y.ravel()) == n * n + 64
    assert entries_taken(lambda: fake_cuda.matmul(y, y, out=part)) == n * n
    assert entries_taken(lambda: fake_cuda.matmul(y, y.T, out=y)) == n * n  # an operand in its place
    assert entries_taken(lambda: fake_cuda.add(y, y[0], out=y)) == 64  # an operand that overlaps the answer


def test_posv_reads_the_lower_triangle(fake_cuda):
    host = np.array([[4.0, 100.0], [1.0, 3.0]])
    solution = sys.modules["cupyx.lapack"].posv(fake_cuda.asarray(host), fake_cuda.asarray(np.eye(2)))
    np.testing.assert_allclose(solution.get() @ np.array([[4.0, 1.0], [1.0, 3.0]]), np.eye(2), rtol=0, atol=1e-14)


def test_bits_and_bytes(fake_cuda):
    bits = np.random.default_rng(0).integers(0, 2, 37).astype(np.uint8)
    packed = fake_cuda.packbits(fake_cuda.asarray(bits), bitorder="little")
    np.testing.assert_array_equal(packed.get(), np.packbits(bits, bitorder="little"))
    np.testing.assert_array_equal(fake_cuda.unpackbits(packed, bitorder="little").get()[:37], bits)
    for wrong in ({"axis": 0}, {"count": 3}):
        with pytest.raises(TypeError):
            fake_cuda.unpackbits(packed, **wrong)
    x = fake_cuda.arange(8, dtype=np.uint32).reshape(2, 4)
    assert x.view(np.float64).shape == (2, 2)
    with pytest.raises(ValueError, match="contiguous"):
        x.T.view(np.float64)


# cuBLAS by addresses


def gemm(cupy, a, b, c, compute_type, alpha=1.0, beta=0.0, transa=False, transb=False):
    """Compute c = alpha a b + beta c of arrays in Fortran's order."""
    cublas = sys.modules["cupy_backends.cuda.libs.cublas"]
    kinds = {"float32": 0, "float64": 1, "float16": 2}
    sums = np.float64 if c.dtype == np.float64 else np.float32
    factors = np.array([alpha, beta], sums)
    m, k = a.shape[::-1] if transa else a.shape
    operands = [(x.data.ptr, kinds[x.dtype.name], x.strides[1] // x.itemsize) for x in (a, b, c)]
    cublas.gemmEx(
        cupy.cuda.device.get_cublas_handle(), int(transa), int(transb), m, c.shape[1], k, factors.ctypes.data,
        *operands[0], *operands[1], factors.ctypes.data + factors.itemsize, *operands[2], compute_type,
        cublas.CUBLAS_GEMM_DEFAULT,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "answer", "kind"),
    [
        ("float16", "float32", "CUBLAS_COMPUTE_32F"),
        ("float32", "float32", "CUBLAS_COMPUTE_32F_PEDANTIC"),
        ("float64", "float64", "CUBLAS_COMPUTE_64F"),
    ],
)
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
def test_products_by_address(fake_cuda, dtype, answer, kind, transposed):
    kind = getattr(sys.modules["cupy_backends.cuda.libs.cublas"], kind)
    rng = np.random.default_rng(0)
    a, b, c = (rng.standard_normal(shape).astype(dtype) for shape in ((5, 7), (7, 4), (5, 4)))
    c = c.astype(answer)
    operands = [fake_cuda.asarray(np.asfortranarray(x.T if t else x)) for x, t in zip((a, b), transposed, strict=True)]
    wide = fake_cuda.asarray(np.asfortranarray(np.zeros((9, 4), answer)))
    out = wide[2:7]  # a leading dimension beyond the number of rows
    out[...] = fake_cuda.asarray(c)
    gemm(fake_cuda, *operands, out, kind, 2.0, 0.5, *transposed)
    wanted = 2 * a.astype("float64") @ b.astype("float64") + 0.5 * c
    np.testing.assert_allclose(out.get(), wanted, rtol=0, atol=100 * np.finfo(answer).eps)
    assert not wide[:2].get().any()
    assert not wide[7:].get().any()


def test_tf32_rounds_the_operands_and_adds_in_float32(fake_cuda):
    cublas = sys.modules["cupy_backends.cuda.libs.cublas"]
    a = fake_cuda.asarray(np.asfortranarray(np.full((4, 4), 1 + 2.0**-12, np.float32)))
    split = fake_cuda.asarray(np.asfortranarray(np.full((4, 4), 1 + 2.0**-10, np.float32)))
    out = fake_cuda.asfortranarray(fake_cuda.full((4, 4), np.nan, np.float32))  # beta = 0: it is not read
    gemm(fake_cuda, a, a, out, cublas.CUBLAS_COMPUTE_32F_FAST_TF32)
    assert (out.get() == 4.0).all()
    gemm(fake_cuda, split, split, out, cublas.CUBLAS_COMPUTE_32F_FAST_TF32)
    assert (out.get() == np.float32(4 * (1 + 2.0**-10) ** 2)).all()
    for wrong in ((a, a, out, cublas.CUBLAS_COMPUTE_64F), (a, a.astype("float16"), out, cublas.CUBLAS_COMPUTE_32F)):
        with pytest.raises(cublas.CUBLASError, match="NOT_SUPPORTED"):
            gemm(fake_cuda, *wrong)
