"""The fake CuPy behaves as CuPy's documentation says where the library depends on it."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
from importlib.util import find_spec

import array_api_compat
import fake_cupy
import numpy as np
import pytest
from conftest import is_loss

from gpukpca.exceptions import DeviceLostError


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
        last_first(x, 99, size=35)


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
        fake_cuda.linalg.eigh(fake_cuda.full((2, 2), 1e31, np.float32))


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
