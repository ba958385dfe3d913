"""The real CuPy on a machine without a driver: `bash ci/test_no_driver.sh` makes the environment for it."""

from __future__ import annotations

import inspect
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from gpukpca import KernelPCA
from gpukpca.cuda import device as cuda_device
from gpukpca.cuda import distances, elementwise
from gpukpca.exceptions import DeviceFallbackWarning, DeviceUnavailableError
from tests.datasets import data


def is_without_driver() -> bool:
    """Whether CuPy is installed and finds nothing."""
    if find_spec("cupy") is None:
        return False
    import cupy

    return not cupy.is_available()


pytestmark = pytest.mark.skipif(not is_without_driver(), reason="needs CuPy on a machine without a CUDA driver")


def test_the_count_of_devices_raises_and_is_not_asked() -> None:
    import cupy

    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError):
        cupy.cuda.runtime.getDeviceCount()
    works, what = cuda_device.probe()
    assert not works
    assert "no CUDA device or driver" in what


def test_auto_falls_back_once_and_cuda_is_an_error() -> None:
    X = data()
    with pytest.warns(DeviceFallbackWarning, match="no CUDA device or driver"):
        fitted = KernelPCA(3, kernel="rbf", device="auto").fit(X)
    KernelPCA(3, kernel="rbf", device="auto").fit(X)
    assert fitted.device_ == "cpu"
    np.testing.assert_array_equal(fitted.eigenvalues_, KernelPCA(3, kernel="rbf").fit(X).eigenvalues_)
    with pytest.raises(DeviceUnavailableError, match="no CUDA device or driver"):
        KernelPCA(3, kernel="rbf", device="cuda").fit(X)


@pytest.mark.parametrize(("device", "status", "says"), [("auto", 0, "warning: "), ("cuda", 2, "error: ")])
def test_the_command_line_says_it_in_one_line(tmp_path: Path, device: str, status: int, says: str) -> None:
    command = ["fit", "iris", "-o", str(tmp_path / "scores.csv"), "--device", device, "-q"]
    done = gpukpca(*command)
    assert done.returncode == status
    (line,) = done.stderr.splitlines()
    assert line.startswith(says)
    assert "no CUDA device or driver" in line
    assert "no CUDA device or driver" in gpukpca("info").stdout


def gpukpca(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from gpukpca.cli import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "200"})


@pytest.mark.skipif(sys.platform == "win32" or shutil.which("bash") is None, reason="needs bash")
def test_the_benchmarks_end_with_one_sentence() -> None:
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        ["bash", "ci/bench.sh", "--gpu"],
        capture_output=True,
        text=True,
        check=False,
        cwd=root,
        env={**os.environ, "PYTHON": sys.executable},
    )
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1


def test_the_library_and_its_kernels_are_built_without_a_driver() -> None:
    for room in (elementwise, distances):
        for name in room.KERNELS:
            assert room._kernel(name).name == name


def test_what_is_used_of_cupy_is_there() -> None:
    import cupy
    import cupyx
    from cupy._core._dtype import to_cuda_dtype

    assert issubclass(cupy.cuda.memory.OutOfMemoryError, MemoryError)
    assert issubclass(cupy.cuda.runtime.CUDARuntimeError, RuntimeError)
    assert callable(cupy.cuda.device.get_cusolver_handle)
    assert to_cuda_dtype(np.dtype("float32")) != to_cuda_dtype(np.dtype("float64"))
    for method in ("used_bytes", "free_bytes", "get_limit", "free_all_blocks"):
        for pool in (cupy.cuda.MemoryPool, cupy.cuda.MemoryAsyncPool):
            assert callable(getattr(pool, method))
    assert cuda_device.current_pool() is cupy.get_default_memory_pool()
    assert callable(cupyx.empty_pinned)
    for method in ("record", "synchronize"):
        assert callable(getattr(cupy.cuda.Event, method))
    for method in ("get", "set"):
        assert callable(getattr(cupy.ndarray, method))


def test_cusolver_is_called_as_this_cupy_calls_it() -> None:
    """Its own callers are the documentation of the order of arguments."""
    from cupy.linalg import _eigenvalue

    source = "".join(inspect.getsource(_eigenvalue._syevd).split())
    wanted = "handle,params,jobz,uplo,m,type_v,v.data.ptr,lda,type_w,w.data.ptr,type_v"
    assert f"xsyevd_bufferSize({wanted})" in source
    assert f"xsyevd({wanted},work_device.data.ptr,work_device_size,work_host.ctypes.data,work_host_sizse," in source


def test_cublas_is_called_as_this_cupy_calls_it() -> None:
    """Its bindings hold their signatures as text, and load with the libraries of CUDA alone."""
    bindings = Path(find_spec("cupy_backends.cuda.libs.cublas").origin).read_bytes()
    operands = "size_t alpha, size_t A, int lda, long long strideA, size_t B, int ldb, long long strideB, size_t beta"
    answer = "size_t C, int ldc, long long strideC, int batchCount"
    sizes = "intptr_t handle, int transa, int transb, int m, int n, int k"
    assert f"dgemmStridedBatched({sizes}, {operands}, {answer})".encode() in bindings
