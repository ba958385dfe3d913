"""What the stand-in imitates: errors and copies that are late, lost devices, memory of others, wrong answers."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from gpukpca.exceptions import DeviceLostError
from tests import cupy_device
from tests.conftest import is_loss

WAITS = {
    "get": lambda cupy, x: x.get(),
    "bool": lambda cupy, x: bool(x[0, 0]),
    "stream": lambda cupy, x: cupy.cuda.get_current_stream().synchronize(),
    "device": lambda cupy, x: cupy.cuda.Device().synchronize(),
    "event": lambda cupy, x: recorded(cupy).synchronize(),
}


def recorded(cupy):
    event = cupy.cuda.Event()
    event.record()
    return event


def test_an_event_shows_what_came_before_it_alone(stand_in):
    before = recorded(stand_in)
    with cupy_device.lose_device():
        x = stand_in.ones((2, 2))
        before.synchronize()
        with pytest.raises(RuntimeError, match="IllegalAddress"):
            recorded(stand_in).synchronize()
        del x


def test_threads_may_load_one_new_kernel(stand_in):
    source = f'extern "C" __global__ void new_one(double* x) {{ x[threadIdx.x] += {time.time_ns()}; }}'
    x = stand_in.zeros(4)

    def launch(_):
        with stand_in.cuda.Device(0):
            stand_in.RawKernel(source, "new_one")((1,), (4,), (x,))
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(launch, range(4)))


def test_more_shared_memory_than_usual_must_be_asked_for(stand_in):
    kernel = stand_in.RawKernel('extern "C" __global__ void wide(double* x) { x[0] += 1; }', "wide")
    x = stand_in.zeros(1)
    with pytest.raises(RuntimeError, match="48 KiB"):
        kernel((1,), (1,), (x,), shared_mem=100_000)
    kernel.max_dynamic_shared_size_bytes = 100_000
    kernel((1,), (1,), (x,), shared_mem=100_000)
    assert x[0] == 1.0


def test_pools_of_cuda_count_on_their_device(stand_in):
    runtime = stand_in.cuda.runtime
    other = runtime.deviceGetDefaultMemPool(1)
    runtime.memPoolTrimTo(other, 0)  # what earlier tests left in it
    free = [available(stand_in, index) for index in range(2)]
    pointer = runtime.mallocFromPoolAsync(2**20, other, 0)
    assert [available(stand_in, index) for index in range(2)] == [free[0], free[1] - 2**20]
    runtime.freeAsync(pointer, 0)
    runtime.memPoolTrimTo(other, 0)
    assert [available(stand_in, index) for index in range(2)] == free


def available(cupy, index):
    with cupy.cuda.Device(index):
        return cupy.cuda.runtime.memGetInfo()[0]


def test_a_late_fault_shows_where_the_host_waits_and_stays(stand_in):
    x = stand_in.ones((2, 2))
    for wait in WAITS.values():
        with cupy_device.lose_device():
            y = x @ x
            y += 1.0
            for call in (lambda wait=wait, y=y: wait(stand_in, y), lambda: x + 1.0, stand_in.cuda.Device().synchronize):
                with pytest.raises(RuntimeError, match=r"ILLEGAL_ADDRESS|IllegalAddress"):
                    call()
        wait(stand_in, x)


def test_a_fault_that_is_not_late_shows_at_once_and_libraries_have_errors_of_their_own(stand_in):
    x, y = stand_in.ones((2, 2)), stand_in.ones((2, 2))
    cublas = sys.modules["cupy_backends.cuda.libs.cublas"]
    with cupy_device.controls().lose_device(719):
        with pytest.raises(RuntimeError, match=r"LAUNCH_FAILED|LaunchFailure"):
            x += 1.0
        with pytest.raises(cublas.CUBLASError, match="EXECUTION_FAILED"):
            x.dot(x, out=y)
    np.testing.assert_array_equal((x + 1.0).get(), 2.0)


def test_an_error_of_a_kernel_is_late_where_a_test_says_so(stand_in):
    source = 'extern "C" __global__ void odd(float4* x) { *(float4*)((float*)x + 1) = x[2]; }'
    kernel = stand_in.RawKernel(source, "odd")
    x = stand_in.zeros(16, np.float32)
    for late in (False, True):
        try:
            with cupy_device.controls().change(late_errors=int(late)):
                if late:
                    kernel((1,), (1,), (x,))
                with pytest.raises(RuntimeError, match=r"(?i)misaligned"):
                    stand_in.cuda.Device().synchronize() if late else kernel((1,), (1,), (x,))
        finally:
            cupy_device.controls().mend_device()


def test_a_lost_device_ends_a_run_of_tests(stand_in):
    """`conftest` asks it of every error: those of a device that answers no more, and the library's own."""
    error = stand_in.cuda.runtime.CUDARuntimeError
    with cupy_device.lose_device():
        with pytest.raises(error) as lost:
            stand_in.zeros(3).get()
        assert is_loss(lost.value)
        assert not is_loss(RuntimeError("700"))
    assert is_loss(DeviceLostError("lost"))
    assert not is_loss(error(2))


def test_late_copies_read_pinned_memory_late_and_in_order(stand_in):
    from cupyx import empty_pinned

    pinned = empty_pinned((4,), np.float64)
    x, under_way = stand_in.zeros(4), cupy_device.controls().copies_under_way
    with cupy_device.controls().change(late_copies=1):
        pinned[...] = 1.0
        x.set(pinned)
        assert under_way() == 1
        pinned[...] = 2.0  # too early
        np.testing.assert_array_equal((x + 1.0).get(), 3.0)
        assert under_way() == 0
        event, other = stand_in.cuda.Event(), stand_in.cuda.Stream(non_blocking=True)
        with other:
            x.set(pinned)
            event.record()
            x.set(pinned)
        x + 1.0  # of a stream that does not wait for the other
        assert under_way() == 2
        event.synchronize()
        assert under_way() == 1
        other.synchronize()
        assert under_way() == 0


def test_memory_ends_at_what_others_leave(stand_in):
    free, total = stand_in.cuda.runtime.memGetInfo()
    with cupy_device.foreign_bytes(2**30), cupy_device.foreign_bytes(2**20, device=1):
        assert stand_in.cuda.runtime.memGetInfo() == (free - 2**30, total)
    with cupy_device.device_bytes(2**20), pytest.raises(stand_in.cuda.memory.OutOfMemoryError):
        stand_in.zeros(2**18)
    with cupy_device.peak_bytes() as most, cupy_device.count_allocations() as made:
        stand_in.zeros(2**18)
    assert most.peak == 8 * 2**18
    assert made.used == 0
    assert made.count >= 1


def test_the_answers_of_eigenproblems_are_what_a_test_says(stand_in):
    A = stand_in.diag(stand_in.arange(3.0))
    with cupy_device.eigh_answers("unsorted"):
        assert stand_in.linalg.eigh(A)[0][0] == 2.0
    cusolver = sys.modules["cupy_backends.cuda.libs.cusolver"]
    with cupy_device.eigh_refuses_above(2), pytest.raises(cusolver.CUSOLVERError, match="INVALID_VALUE"):
        stand_in.linalg.eigh(A)
    assert stand_in.linalg.eigh(A)[0][0] == 0.0


def test_what_is_not_written_names_itself(stand_in):
    with pytest.raises(Exception, match="not written in the CPU stand-in"):
        stand_in.random.default_rng(0).random(3)
    complex_ones = stand_in.ones((2, 2), np.complex128)
    with pytest.raises(Exception, match="not written in the CPU stand-in"):
        stand_in.linalg.cholesky(complex_ones)
