"""The imitation of CuPy refuses, counts and fails as CuPy does, where other tests rely on it."""

from __future__ import annotations

import sys
import threading
from importlib.util import find_spec
from typing import Any

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
        assert array_api_compat.is_cupy_array(cupy.zeros(2))
        import array_api_compat.cupy as module

        assert array_api_compat.array_namespace(cupy.zeros(2)) is module
    assert find_spec("cupy") is None
    assert not [name for name in sys.modules if name.startswith(("cupy", "array_api_compat.cupy"))]


# -- arrays ------------------------------------------------------------------------------------------------------------


REFUSED = {
    "asarray": lambda cupy, x, host: np.asarray(x),
    "dot": lambda cupy, x, host: np.dot(host.T, x),
    "host added": lambda cupy, x, host: x + host,
    "added to host": lambda cupy, x, host: host * x,
    "product": lambda cupy, x, host: x @ host.T,
    "function": lambda cupy, x, host: cupy.minimum(x, host),
    "index": lambda cupy, x, host: range(cupy.asarray(3)),
    "keyword": lambda cupy, x, host: cupy.sum(x, where=x > 0),
}


@pytest.mark.parametrize("name", REFUSED)
def test_host_and_device_arrays_do_not_mix(fake_cuda, name):
    host, x = pair(fake_cuda)
    with pytest.raises(TypeError):
        REFUSED[name](fake_cuda, x, host)
    assert (np.float64(2) * x.astype("float32") * 2.0).dtype in (np.float32, np.float64)


def test_indices_and_new_memory(fake_cuda):
    host, x = pair(fake_cuda)
    assert np.isnan(fake_cuda.empty(3).get()).all()
    assert fake_cuda.empty(3, np.int64).get().all()
    x[1:3][...] = 0.0
    assert not x.get()[1:3].any()
    rows = np.array([0, 4])
    np.testing.assert_array_equal(x[rows].get(), x.get()[rows])
    np.testing.assert_array_equal(x[fake_cuda.asarray([5])].get(), x.get()[[0]])  # out of bounds wraps around
    x[fake_cuda.asarray(rows)] = fake_cuda.ones((2, 7))
    assert (x.get()[rows] == 1).all()
    with pytest.raises(ValueError, match="non-scalar"):
        x[0] = host[0]


def test_new_arrays_are_in_c_order(fake_cuda):
    """CuPy's kernels allocate C order whatever their operands; `astype` may keep the order."""
    _, x = pair(fake_cuda)
    for made in (
        fake_cuda.exp(x.T),
        x.T + 1.0,
        fake_cuda.where(x.T > 0, x.T, 0),
        fake_cuda.concatenate([x.T, x.T]),
        fake_cuda.stack([x.T, x.T], axis=2).sum(axis=2),
        fake_cuda.ElementwiseKernel("T a", "T y", "y = a", "same")(x.T),
        x.T.copy(),
        x.T[[0, 1]],
        x.T @ x,
    ):
        assert made.flags.c_contiguous
        assert not made.flags.f_contiguous
    for kept in (x.T.astype("float32"), fake_cuda.empty_like(x.T), fake_cuda.linalg.solve(fake_cuda.eye(5), x)):
        assert kept.flags.fnc


# -- memory ------------------------------------------------------------------------------------------------------------


def test_the_pool_counts_every_array_and_uses_freed_blocks_again(fake_cuda):
    pool, rounded = fake_cuda.get_default_memory_pool(), -(-80000 // 512) * 512
    with fake_cupy.peak_bytes() as most:
        x = fake_cuda.zeros((100, 100))
        part = x[3:4].T
        del x
        assert pool.used_bytes() == rounded  # a view keeps it
        del part
    assert pool.used_bytes() == 0
    assert pool.free_bytes() == pool.total_bytes() == most.count == rounded
    small = fake_cuda.zeros(64)
    pool.free_all_blocks()
    assert pool.total_bytes() == rounded  # a split block stays until its parts are one again
    del small
    pool.free_all_blocks()
    assert pool.total_bytes() == 0


def test_memory_ends_at_the_device_at_a_limit_and_where_a_test_says(fake_cuda):
    with fake_cupy.device_bytes(2**20):
        assert fake_cuda.cuda.runtime.memGetInfo()[1] == 2**20
        with pytest.raises(MemoryError, match="Out of memory allocating"):
            fake_cuda.zeros(2**20)
        with fake_cupy.foreign_bytes(2**20 - 2**10), pytest.raises(MemoryError):
            fake_cuda.zeros(2**10)
    with fake_cupy.fail_allocation(2):
        x = fake_cuda.zeros(3)
        with pytest.raises(MemoryError):
            x + 1
        x + 1
    with fake_cupy.fail_allocation(1, forever=True):
        for _ in range(2):
            with pytest.raises(MemoryError):
                fake_cuda.zeros(3)
    fake_cuda.get_default_memory_pool().set_limit(size=2**12)
    with pytest.raises(MemoryError, match="limit set to: 4,096 bytes"):
        fake_cuda.zeros(2**12)


@pytest.mark.parametrize("name", ["MemoryPool", "MemoryAsyncPool", "CUDA", "RMM"])
def test_the_current_allocator_pays(fake_cuda, name):
    cuda, pool = fake_cuda.cuda, None
    if name == "RMM":
        allocator = fake_cupy.rmm_allocator(2**20)
    else:
        pool = getattr(cuda, name)() if name != "CUDA" else None
        allocator = pool.malloc if pool else None
    free = cuda.runtime.memGetInfo()[0]
    cuda.set_allocator(allocator)
    for _ in range(3):  # what is freed is used again
        x = fake_cuda.zeros(1000)
        assert fake_cuda.get_default_memory_pool().total_bytes() == 0
        assert free - cuda.runtime.memGetInfo()[0] == (0 if name == "RMM" else 8192)
        del x
    error = MemoryError if name != "CUDA" else cuda.runtime.CUDARuntimeError
    with fake_cupy.foreign_bytes(2**60), pytest.raises(error, match=r"[Oo]ut.of.memory"):
        fake_cuda.zeros(2**18)


def entries_taken(work):
    """Return the largest number of float64 entries in use while `work` runs."""
    with fake_cupy.peak_bytes() as most:
        work()
    return most.count // 8


def test_the_pool_pays_for_the_operands_that_a_product_copies(fake_cuda):
    n = 64
    x, y = fake_cuda.ones((n, 2 * n)), fake_cuda.ones((n, n))
    part, stack = x[:, :n], fake_cuda.ones((2, n, n))
    for free in (lambda: y @ y, lambda: y.T @ y, lambda: y @ y.T):
        assert entries_taken(free) == n * n
    assert entries_taken(lambda: part @ y) == 2 * n * n
    assert entries_taken(lambda: stack.mT @ y) == 4 * n * n  # of a stack, matrices in C order alone
    assert entries_taken(lambda: fake_cuda.matmul(y, y.T, out=y)) == n * n  # an operand in its place
    assert entries_taken(lambda: fake_cuda.add(y, y[0], out=y)) == 64  # an operand that overlaps the answer


# -- kernels -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_text_of_a_kernel_is_executed(fake_cuda, dtype):
    host, x = pair(fake_cuda, dtype=dtype)
    kernel = fake_cuda.ElementwiseKernel(
        "T t, T scale", "T y", "T s = t * scale; y = exp(s > T(0) ? T(0) : s)", "clamped"
    )
    for view in (lambda a: a, lambda a: a.T, lambda a: a[::2, ::-1]):
        expected = np.exp(np.minimum(view(host) * np.dtype(dtype).type(-2), 0))
        np.testing.assert_allclose(kernel(view(x), -2.0).get(), expected, rtol=1e-6)
    out = fake_cuda.zeros((10, 14), dtype)[::2, ::2]
    assert kernel(x, -2.0, out) is out
    np.testing.assert_array_equal(out.get(), kernel(x, -2.0).get())


def test_raw_parameters_are_indexed_within_their_arrays(fake_cuda):
    host, x = pair(fake_cuda)
    last_first = fake_cuda.ElementwiseKernel("raw T a, int64 n", "T y", "y = a[n - 1 - i]", "backwards")
    np.testing.assert_array_equal(last_first(x, 35, size=35).get(), host.ravel()[::-1])
    with pytest.raises(fake_cuda.cuda.runtime.CUDARuntimeError, match="IllegalAddress"):
        last_first(x, 99, size=35).get()


def test_wrong_kernels_and_arguments_are_refused(fake_cuda):
    _, x = pair(fake_cuda)
    kernel = fake_cuda.ElementwiseKernel("T a, T b", "T y", "y = a + b", "add")
    for error, call in (
        (TypeError, lambda: kernel(x, x.astype("float32"))),
        (TypeError, lambda: kernel(x)),
        (ValueError, lambda: kernel(x, x, fake_cuda.empty((1, 7)))),
        (ValueError, lambda: kernel(1.0, 2.0)),
        (
            fake_cuda.cuda.compiler.CompileException,
            lambda: fake_cuda.ElementwiseKernel("T a", "T y", "y = b", "unknown")(x),
        ),
    ):
        with pytest.raises(error):
            call()


PROGRAM = r"""
extern "C" __global__ void NAME(int* x, long long n) {
    __shared__ int seen[64];
    seen[threadIdx.x] = threadIdx.x;
    BARRIER
    x[threadIdx.x + n] = seen[63 - threadIdx.x];
    __syncthreads();
}
"""


@pytest.mark.parametrize(("barrier", "works"), [("__syncthreads();", True), ("", False)])
def test_missing_barriers_and_writes_beyond_an_array_show(fake_cuda, barrier, works):
    x = fake_cuda.zeros(64, np.int32)
    code = PROGRAM.replace("BARRIER", barrier).replace("NAME", "reversed_threads")
    kernel = fake_cuda.RawKernel(code, "reversed_threads")
    kernel((1,), (64,), (x, 0))
    assert (x.get() == np.arange(64)[::-1]).all() == works
    kernel((1,), (64,), (x, 1))
    with pytest.raises(fake_cuda.cuda.runtime.CUDARuntimeError, match="illegal memory access"):
        x.get()


# -- devices, streams and faults ---------------------------------------------------------------------------------------


def test_two_devices_and_a_current_one_for_each_thread(fake_cuda):
    cuda, seen = fake_cuda.cuda, []
    x = fake_cuda.ones(3)
    with cuda.Device(1) as second:
        y = fake_cuda.ones(3)
        assert y.device == second != x.device
        with pytest.raises(RuntimeError, match="different from the current device"):
            x + 1
        assert fake_cuda.asarray(x).device == second  # a copy from the other device
        thread = threading.Thread(target=lambda: seen.append(cuda.runtime.getDevice()))
        thread.start()
        thread.join()
    assert seen == [0]
    with pytest.raises(cuda.runtime.CUDARuntimeError, match="cudaErrorInvalidDevice"), cuda.Device(2):
        pass
    with pytest.raises(TypeError):
        hash(cuda.Device(0))


def test_copies_from_pinned_memory_read_it_late(fake_cuda):
    cupyx, cuda = sys.modules["cupyx"], fake_cuda.cuda
    buffer, stream = cupyx.empty_pinned((4,)), cuda.Stream(non_blocking=True)
    x, y = (fake_cuda.zeros(4) for _ in range(2))
    buffer[...] = 1.0
    x.set(buffer, stream=stream)
    event = cuda.Event()
    event.record(stream)
    y.set(buffer, stream=stream)
    assert x.get().sum() == 0.0  # another stream, which does not wait
    event.synchronize()
    assert x.get().sum() == 4.0
    buffer[...] = 2.0  # too early for y
    stream.synchronize()
    assert y.get().sum() == 8.0
    x.set(np.zeros(4), stream=stream)  # pageable memory: read before the call returns
    assert x.get().sum() == 0.0
    with fake_cupy.no_pinned_memory(), pytest.raises(cuda.runtime.CUDARuntimeError):
        cupyx.empty_pinned((4, 4), np.float32)


# name -> a call that waits for the device
WAITS: dict[str, Any] = {
    "get": lambda cupy, x: x.get(),
    "float": lambda cupy, x: float(x[0, 0]),
    "bool": lambda cupy, x: bool(x[0, 0]),
    "set": lambda cupy, x: x.set(np.ones((2, 2))),
    "upload": lambda cupy, x: cupy.asarray(np.ones(2)),
    "stream": lambda cupy, x: cupy.cuda.get_current_stream().synchronize(),
    "device": lambda cupy, x: cupy.cuda.Device().synchronize(),
    "event": lambda cupy, x: cupy.cuda.Event().synchronize(),
}


@pytest.mark.parametrize("name", WAITS)
def test_faults_show_where_the_host_waits_and_stay(fake_cuda, name):
    x = fake_cuda.ones((2, 2))
    with fake_cupy.break_device():
        y = x @ x
        y += 1.0
        for call in (lambda: WAITS[name](fake_cuda, y), lambda: x + 1.0):
            with pytest.raises(fake_cuda.cuda.runtime.CUDARuntimeError, match="illegal memory access") as caught:
                call()
            assert caught.value.status == 700
    WAITS[name](fake_cuda, x)


def test_libraries_may_report_a_lost_device_by_errors_of_their_own(fake_cuda):
    x = fake_cuda.ones((2, 2))
    with fake_cupy.break_device(libraries=True):
        with pytest.raises(sys.modules["cupy_backends.cuda.libs.cublas"].CUBLASError, match="EXECUTION_FAILED"):
            x @ x
        with pytest.raises(fake_cuda.cuda.runtime.CUDARuntimeError):
            fake_cuda.cuda.runtime.deviceSynchronize()


def test_a_lost_device_ends_a_run_of_tests(fake_cuda):
    """`conftest` asks it of every error: those of a device that answers no more, and the library's own."""
    error = fake_cuda.cuda.runtime.CUDARuntimeError
    with fake_cupy.break_device(700):
        with pytest.raises(error) as lost:
            fake_cuda.zeros(3).get()
        assert is_loss(lost.value)
        assert not is_loss(RuntimeError("700"))
    assert is_loss(DeviceLostError("lost"))
    assert not is_loss(error(2))
    assert not is_loss(RuntimeError("700"))


# -- linear algebra ----------------------------------------------------------------------------------------------------


def test_failures_of_cusolver_are_silent(fake_cuda):
    A = fake_cuda.eye(4)
    assert np.isfinite(fake_cuda.linalg.cholesky(-A).get()).all()  # and no factor of it
    assert np.isnan(fake_cuda.linalg.eigh(0 * A)[0].get()).all()
    with fake_cupy.eigh_answers("unsorted"):
        assert fake_cuda.linalg.eigh(fake_cuda.diag(fake_cuda.arange(3.0)))[0][0] == 2.0
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
