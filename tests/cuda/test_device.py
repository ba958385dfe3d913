"""The parameter `device`: where it is computed, where results go, and every state of a machine without a GPU."""

from __future__ import annotations

import importlib.machinery
import multiprocessing
import os
import pickle
import re
import subprocess
import sys
import textwrap
import tracemalloc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from gpukpca import PCA, BayesianPCA, IncrementalPCA, KernelPCA, ProbabilisticPCA, backend
from gpukpca._extras import pip_install
from gpukpca._process import state
from gpukpca.backend import device as devices
from gpukpca.backend.device import cuda_place, describe_device, device_context, on_its_device, placed_rows
from gpukpca.backend.namespace import empty_like
from gpukpca.cuda import device as cuda_device
from gpukpca.data import place as places
from gpukpca.decomposition._base import with_host_arrays
from gpukpca.eigen import pivoted_cholesky, top_eigh
from gpukpca.exceptions import (
    DeviceFallbackWarning,
    DeviceLostError,
    DeviceMismatchError,
    DeviceUnavailableError,
    InvalidParameterError,
    MemoryBudgetError,
    PrecisionWarning,
)
from gpukpca.gram import CenteredGram, DenseGram, TiledGram, double_center, gram_matrix, kernel_matmat
from gpukpca.gram.low_rank import LowRankGram
from gpukpca.kernels import RBF, Kernel, Laplacian, Matern, Polynomial, RationalQuadratic
from tests import cupy_device
from tests.datasets import data


def model(**parameters: Any) -> KernelPCA:
    return KernelPCA(**({"n_components": 3, "kernel": "rbf", "gamma": 0.1, "random_state": 0} | parameters))


def same(a: KernelPCA, b: KernelPCA, X: np.ndarray) -> None:
    size = float(b.eigenvalues_[0])
    np.testing.assert_allclose(a.eigenvalues_, b.eigenvalues_, rtol=0, atol=1e-13 * size)
    np.testing.assert_allclose(a.transform(X), b.transform(X), rtol=0, atol=1e-10)


def attributes(estimator: KernelPCA) -> dict[str, Any]:
    """The fitted ones that users see."""
    return {name: value for name, value in vars(estimator).items() if name.endswith("_")}


# -- host data on the device -------------------------------------------------------------------------------------------


def test_new_points_come_in_batches(cuda: Any, sizes, tmp_path: Path) -> None:
    X = data(90, 4)
    fitted = model(device="cuda").fit(X)
    whole = fitted.transform(X)
    sizes(SCORES_PANEL=17)
    sizes(TRANSFER_BYTES=200)
    np.testing.assert_allclose(fitted.transform(X), whole, rtol=0, atol=1e-12)
    file = np.lib.format.open_memmap(tmp_path / "scores.npy", mode="w+", dtype=np.float64, shape=(90, 3))
    assert fitted.transform(X, out=file) is file
    np.testing.assert_allclose(file, whole, rtol=0, atol=1e-12)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    same(model(device="cuda").fit(mapped), fitted, X)
    np.testing.assert_allclose(fitted.transform(mapped), whole, rtol=0, atol=1e-12)


class Watched(np.ndarray):
    """Host rows that note how many copies to the device are under way whenever some rows are read."""

    under_way: list[int]
    fails_at = -1

    def __getitem__(self, index: Any) -> Any:
        self.under_way.append(cupy_device.controls().copies_under_way())
        if len(self.under_way) == self.fails_at:
            raise OSError("the file is gone")
        return np.asarray(self)[index]


def watched(X: np.ndarray, fails_at: int = -1) -> Watched:
    rows = X.view(Watched)
    rows.under_way, rows.fails_at = [], fails_at
    return rows


def late_copies() -> Any:
    """Copies from pinned memory that are made as late as the program allows."""
    return cupy_device.controls().change(late_copies=1)


@pytest.mark.parametrize("n", [1, 4, 5, 8, 9, 21])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_are_read_while_others_are_copied(stand_in: Any, sizes, n: int, dtype: Any) -> None:
    X = np.arange(3.0 * n, dtype=dtype).reshape(n, 3)
    sizes(TRANSFER_BYTES=4 * 3 * X.itemsize)  # four rows
    for rows in (X, np.asfortranarray(X), np.repeat(X, 2, axis=0)[::2]):
        source = watched(rows)
        with late_copies():
            answer = placed_rows(source, stand_in.empty((0,)))
            assert cupy_device.controls().copies_under_way() == 0
        np.testing.assert_array_equal(answer.get(), X)
        parts = -(-n // 4)
        assert source.under_way == ([0] if parts == 1 else [0] + [1] * (parts - 1))
    with cupy_device.controls().change(pins_memory=0):
        np.testing.assert_array_equal(placed_rows(X, stand_in.empty((0,))).get(), X)


def test_rows_of_a_file_go_to_the_device_that_is_named(stand_in: Any, sizes, tmp_path: Path) -> None:
    X = data(50, 3)
    np.save(tmp_path / "X.npy", X)
    sizes(TRANSFER_BYTES=100)
    with stand_in.cuda.Device(1):
        like = stand_in.empty((0,))
    answer = placed_rows(np.load(tmp_path / "X.npy", mmap_mode="r"), like)
    assert answer.device.id == 1
    np.testing.assert_array_equal(answer.get(), X)


@pytest.mark.parametrize("part", [1, 2, 3, 5])
def test_a_copy_that_ends_early_leaves_nothing_under_way(stand_in: Any, sizes, part: int) -> None:
    sizes(TRANSFER_BYTES=100)
    pool = stand_in.get_default_memory_pool()
    before = pool.used_bytes()
    with late_copies(), pytest.raises(OSError, match="the file is gone") as error:
        placed_rows(watched(data(50, 3), fails_at=part), stand_in.empty((0,)))
    assert cupy_device.controls().copies_under_way() == 0
    del error
    assert pool.used_bytes() == before
    X = data(50, 3)
    np.testing.assert_array_equal(placed_rows(X, stand_in.empty((0,))).get(), X)


def test_a_batch_of_data_at_a_time_is_all_that_a_transform_holds(cuda: Any, sizes) -> None:
    X, new = data(40, 6), np.tile(data(100, 6), (400, 1))
    sizes(SCORES_PANEL=1000)
    fitted = model(device="cuda").fit(X)
    pool = cuda.get_default_memory_pool()
    pool.free_all_blocks()
    before = pool.total_bytes()  # of what earlier tests left to the garbage collector
    fitted.transform(new)
    assert pool.total_bytes() - before < new.nbytes


def test_device_arrays_stay_with_none_and_go_to_the_host_with_cpu(cuda: Any) -> None:
    X = data()
    reference = model().fit(X)
    stays = model().fit(cuda.asarray(X))
    assert isinstance(stays.eigenvectors_, cuda.ndarray)
    assert stays.device_.startswith("cuda:0")
    away = model(device="cpu").fit(cuda.asarray(X))
    assert away.device_ == "cpu"
    for answer in (away.eigenvectors_, away.X_fit_, away.transform(cuda.asarray(X)), stays.transform(cuda.asarray(X))):
        assert isinstance(answer, cuda.ndarray)
        assert answer.device == cuda.cuda.Device(0)
    assert isinstance(away.transform(X), np.ndarray)
    np.testing.assert_allclose(away.transform(X), reference.transform(X), rtol=0, atol=1e-10)
    np.testing.assert_allclose(stays.transform(X), reference.transform(X), rtol=0, atol=1e-10)
    same(model(device="cpu").fit(X), reference, X)


def test_a_plan_for_the_device_needs_no_copy_of_the_data(cuda: Any) -> None:
    X = data(500, 4)
    cuda_place(None, "float64")
    with cupy_device.count_allocations() as made:
        plan = model(device="cuda").plan(X)
    assert made.count < 20
    assert plan.device.startswith("cuda:0")
    assert plan.predicted_bytes == model(device="cuda").fit(X).plan_.predicted_bytes


def test_data_larger_than_the_device_are_refused_with_numbers(stand_in: Any) -> None:
    with cupy_device.device_bytes(2**20), pytest.raises(MemoryBudgetError, match=r"on cuda:0.* MiB, .*allowed or free"):
        model(device="cuda").fit(np.zeros((100_000, 4)))


def test_a_dense_solution_that_cannot_fit_is_refused_before_anything_is_taken(stand_in: Any) -> None:
    X = stand_in.asarray(data(1000, 4))
    with cupy_device.device_bytes(2**25), pytest.raises(MemoryBudgetError, match=r"needs .* GiB|needs .* MiB"):
        model(eigen_solver="dense").fit(X)
    with cupy_device.device_bytes(2**25):
        smaller = model(tol=1e-6).fit(X)
    assert "block Krylov" in smaller.solver_
    assert any("does not fit" in note for note in smaller.plan_.notes)


def test_sparse_rows_are_computed_on_the_cpu(cuda: Any) -> None:
    X = scipy.sparse.csr_array(data())
    with pytest.raises(InvalidParameterError, match=r"toarray\(\)"):
        model(device="cuda").fit(X)
    fitted = model(device="auto").fit(X)
    assert fitted.device_ == "cpu"
    assert fitted.fallbacks_ == ("sparse rows are computed on the CPU",)


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:x", "cpu:0", "", 0, True, b"cuda"])
def test_device_names(device: Any) -> None:
    with pytest.raises(InvalidParameterError, match=r"device=.*auto.*cpu.*cuda"):
        model(device=device).fit(data())


def test_dispatch_asks_for_the_place_of_the_data_of_fit(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    X = data()
    fitted = model().fit(cuda.asarray(X))
    moved = model(device="cuda").fit(X)
    monkeypatch.setattr("gpukpca.decomposition._validation.get_config", lambda: {"array_api_dispatch": True})
    with pytest.raises(ValueError, match="must use the same namespace and the same device"):
        fitted.transform(X)
    with pytest.raises(ValueError, match="must use the same namespace and the same device"):
        moved.transform(cuda.asarray(X))
    assert isinstance(moved.transform(X), np.ndarray)


# -- several devices ---------------------------------------------------------------------------------------------------


def test_arrays_stay_on_their_device_and_the_current_one_comes_back(stand_in: Any) -> None:
    X = data()
    with stand_in.cuda.Device(1):
        X1, wrong = stand_in.asarray(X), stand_in.full((30, 4), np.nan)
    for estimator in (model(), model(eigen_solver="randomized"), model(device="cuda"), model(device="cuda:1")):
        fitted = estimator.fit(X1)
        assert fitted.device_.startswith("cuda:1")
        assert fitted.eigenvectors_.device.id == fitted.transform(X1).device.id == 1
        assert stand_in.cuda.runtime.getDevice() == 0
    elsewhere = model(device="cuda:1").fit(stand_in.asarray(X))
    assert elsewhere.device_.startswith("cuda:1")
    assert elsewhere.transform(stand_in.asarray(X)).device.id == elsewhere.eigenvalues_.device.id == 0
    with pytest.raises(ValueError, match="NaN"):
        model().fit(wrong)
    with pytest.raises(DeviceUnavailableError, match=r"no device cuda:7"):
        model(device="cuda:7").fit(X)
    assert stand_in.cuda.runtime.getDevice() == 0


def test_an_empty_array_remembers_the_device_whichever_is_current(stand_in: Any) -> None:
    for index in (0, 1):
        with stand_in.cuda.Device(index):
            x = stand_in.zeros(3, np.float32)
        like = empty_like(x)
        assert (like.device.id, like.dtype, like.shape) == (index, np.float32, (0,))
        assert empty_like(x, np.float64).dtype == np.float64


def test_functions_work_on_the_device_of_their_arrays(stand_in: Any) -> None:
    X = data()
    with stand_in.cuda.Device(1):
        X1 = stand_in.asarray(X)
    K = gram_matrix(RBF(0.1), X1)
    assert K.device.id == double_center(K).device.id == kernel_matmat(RBF(0.1), X1, X1, X1).device.id == 1
    assert stand_in.cuda.runtime.getDevice() == 0
    with cupy_device.launches() as made, pytest.raises(DeviceMismatchError):
        kernel_matmat(RBF(0.1), X1, stand_in.asarray(X), stand_in.asarray(X))
    assert made.count == 0


@pytest.mark.parametrize("kernel", [RBF(0.1), Laplacian(0.1), Polynomial(2, 0.1)], ids=["rbf", "laplacian", "poly"])
def test_operators_work_on_the_device_of_their_arrays(stand_in: Any, kernel: Any) -> None:
    X = data()
    with stand_in.cuda.Device(1):
        X1, V1 = stand_in.asarray(X), stand_in.asarray(X)
    for op in (TiledGram(kernel, X1), DenseGram(gram_matrix(kernel, X1)), LowRankGram(X1)):
        centered = CenteredGram(op)
        assert np.isfinite(centered.trace)
        answers = [f(V1) for f in (op.__matmul__, centered.__matmul__)]
        answers += [op.diagonal(), centered.diagonal(), op.to_dense(), centered.to_dense(), op.columns([0, 2])]
        answers += [centered.column_means, kernel.diagonal(X1), kernel(X1)]
        assert {answer.device.id for answer in answers} == {1}
        assert top_eigh(centered, 2).eigenvectors.device.id == 1
    assert pivoted_cholesky(TiledGram(kernel, X1), 3, np.random.default_rng(0)).F.device.id == 1
    assert model(kernel=kernel, gamma=None).plan(X1).device.startswith("cuda:1")
    assert stand_in.cuda.runtime.getDevice() == 0


def test_streams_and_allocators_are_the_users(stand_in: Any) -> None:
    seen = []

    @on_its_device
    def work(x: Any) -> None:
        seen.append(stand_in.cuda.get_current_stream())

    with stand_in.cuda.Stream() as stream:
        work(stand_in.zeros(3))
    assert seen == [stream]
    text = "".join(path.read_text(encoding="utf-8") for path in Path(cuda_device.__file__).parents[1].rglob("*.py"))
    assert "set_allocator" not in text
    assert "set_limit" not in text


# -- no device, and why ------------------------------------------------------------------------------------------------


def test_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_device, "find_spec", lambda name: None)
    X = data()
    for device in ("auto", None):
        fitted = model(device=device).fit(X)  # and no warning: they are errors here
        assert fitted.device_ == "cpu"
        assert fitted.fallbacks_ == ()
    with pytest.raises(DeviceUnavailableError, match=re.escape(pip_install("cuda12"))):
        model(device="cuda").fit(X)


def test_a_folder_of_the_name_of_cupy_is_no_cupy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cupy").mkdir()
    monkeypatch.setattr(
        cuda_device, "find_spec", lambda name: importlib.machinery.PathFinder.find_spec(name, [str(tmp_path)])
    )
    assert cuda_device.find_spec("cupy") is not None
    assert not cuda_device.is_installed()


class Unloadable(importlib.machinery.ModuleSpec):
    """A package that is there and raises when it is imported."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        super().__init__("cupy", self, origin="broken")

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        return self if name == "cupy" else None

    def create_module(self, spec: Any) -> None:
        return None

    def exec_module(self, module: Any) -> None:
        raise self.error


IMPORT_ERRORS = {
    "no driver library": OSError("libcuda.so.1: cannot open shared object file: No such file or directory"),
    "no CUDA library": ImportError("libcublas.so.12: cannot open shared object file"),
    "other NumPy": RuntimeError("module compiled against ABI version 0x1000009 but this version of numpy is 0x2000000"),
}


def wrapped_by_cupy(cause: ImportError) -> ImportError:
    """The page of advice that CuPy puts around an error of its first import."""
    rule = 64 * "="
    error = ImportError(f"\n{rule}\nFailed to import CuPy.\n\nOriginal error:\n  ImportError: {cause}\n{rule}\n")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize("name", IMPORT_ERRORS)
def test_the_import_fails(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    error = IMPORT_ERRORS[name]
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Unloadable(error), *sys.meta_path])
    check_fallback(str(error)[:20])
    if isinstance(error, ImportError):
        monkeypatch.setattr(sys, "meta_path", [Unloadable(wrapped_by_cupy(error)), *sys.meta_path[1:]])
        works, cause = cuda_device.probe()
        assert not works
        assert cause.endswith(f"cannot be imported: ImportError: {error}; {cuda_device.INSTALL}")


STATES = {
    "no device": (cupy_device.no_device, "no CUDA device or driver"),
    "no kernel image": (cupy_device.kernels_without_image, "cannot be used"),
    "no compiler": (cupy_device.kernels_do_not_compile, "cannot be used"),
    "no workspace for eigenproblems": (lambda: cupy_device.eigh_refuses_above(2), "cannot be used"),
    "wrong eigenproblems": (lambda: cupy_device.eigh_answers("wrong values"), "small eigenproblem on it is wrong"),
}


@pytest.mark.parametrize("name", STATES)
def test_a_device_that_cannot_compute(stand_in: Any, name: str) -> None:
    state, cause = STATES[name]
    with state():
        check_fallback(cause)


# As CuPy 14, cuda-pathfinder, the loader and NVRTC say it.
MISSING = [
    ImportError("libcublas.so.12: cannot open shared object file: No such file or directory"),
    ImportError('Failure finding "libcublasLt.so.13 or libcublasLt.so.12": No such file: libcublasLt.so.12\n'),
    ImportError('Failure finding "libnvJitLink.so.13 or libnvJitLink.so.12": No such file: libnvJitLink.so.12\n'),
    ImportError("/lib/libcusparse.so.12: undefined symbol: __nvJitLinkCreate_12_8, version libnvJitLink.so.12"),
    ImportError("libcusolver.so.11: cannot open shared object file: No such file or directory"),
    ImportError("DLL load failed while importing cublas: The specified module could not be found."),
    RuntimeError('Failure finding "libnvrtc.so.13 or libnvrtc.so.12": No such file: libnvrtc.so.13\n'),
    RuntimeError("CuPy failed to load libnvrtc.so.12: OSError: libnvrtc.so.12: cannot open shared object file"),
    RuntimeError("CuPy failed to load nvrtc64_120_0.dll: FileNotFoundError: Could not find module"),
    RuntimeError("Failed to find CUDA headers. Please install CUDA toolkit headers or specify CUDA_PATH."),
    'kernel.cu(1): catastrophic error: cannot open source file "cuda_fp16.h"\n1 catastrophic error detected.\n',
]
NOT_MISSING = [
    RuntimeError("cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version"),
    ImportError("libcuda.so.1: cannot open shared object file: No such file or directory"),
    ImportError("No module named 'scipy.special'"),
    ValueError("the product is not finite"),
    'kernel.cu(7): error: identifier "foo" is undefined\n',
]


def raised(cuda: Any, error: Any) -> Exception:
    """An error of the table; a text is what NVRTC prints."""
    return error if isinstance(error, Exception) else cuda.cuda.compiler.CompileException(error, "", "kernel.cu", ())


@pytest.mark.parametrize("error", [*MISSING, *NOT_MISSING], ids=lambda error: str(error)[:50])
def test_a_missing_library_comes_with_its_installation(
    stand_in: Any, error: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, wanted = raised(stand_in, error), error in MISSING

    def fails(*_: Any) -> None:
        raise seen

    with monkeypatch.context() as patched:
        patched.setattr(stand_in.linalg, "eigh", fails)
        works, cause = cuda_device.probe()
    assert not works
    assert str(error).splitlines()[0].rstrip(".") in cause
    check_punctuation(cause)
    assert cause.endswith(cuda_device.INSTALL) is wanted
    if wanted:  # with arrays that are on a device already
        x = stand_in.zeros(3)
        with (
            pytest.raises(DeviceUnavailableError, match=re.escape(pip_install("cuda12"))) as caught,
            device_context(x),
            device_context(x),
        ):
            fails()
        assert caught.value.__cause__ is seen


@pytest.mark.parametrize(
    ("capability", "version", "wanted"),
    [
        ((7, 0), 13000, True),
        ((6, 1), 13020, True),
        ((7, 5), 13000, False),
        ((7, 0), 12090, False),
        ((9, 0), 13000, False),
    ],
)
@pytest.mark.parametrize("how", [cupy_device.kernels_do_not_compile, cupy_device.kernels_without_image])
def test_a_card_too_old_for_cuda_13_comes_with_the_wheel_of_cuda_12(
    stand_in: Any, capability: tuple[int, int], version: int, wanted: bool, how: Any
) -> None:
    x = stand_in.asarray(data())
    with cupy_device.compute_capability(*capability), cupy_device.cuda_version(version), how():
        works, cause = cuda_device.probe()
        with pytest.raises(DeviceUnavailableError) as error:
            model().fit(x)
    assert not works
    for text in (cause, str(error.value)):
        assert ("CUDA 13 does not support cards" in text) is wanted
        assert (cuda_device.CUDA_12 in text) is wanted
        check_punctuation(text)
    assert (f"{capability[0]}.{capability[1]}" in cause) is wanted


@pytest.mark.parametrize(
    ("driver", "built_for", "wanted"),
    [
        (
            12_040,
            13_000,
            f"12.4, and CuPy is built for CUDA 13.0: {cuda_device.CUDA_12_INSTEAD}, or install a driver",
        ),
        (11_080, 13_020, "serves CUDA 11.8, and CuPy is built for CUDA 13.2: install a driver for CUDA 13 or newer"),
        (11_040, 12_090, "serves CUDA 11.4, and CuPy is built for CUDA 12.9: install a driver for CUDA 12 or newer"),
        (0, 13_000, "; no NVIDIA driver is installed"),
    ],
)
def test_a_driver_too_old_comes_with_both_versions(stand_in: Any, driver: int, built_for: int, wanted: str) -> None:
    versions = {"driver_version": driver, "runtime_version": built_for}
    with cupy_device.controls().change(count_status=35, **versions):
        check_fallback(re.escape(wanted))
    assert pip_install("cuda12") in cuda_device.CUDA_12_INSTEAD


def check_punctuation(message: str) -> None:
    """No sentence ends twice, as where a full stop follows a reason that has one."""
    assert re.search(r"[.;:,?!]\s*[.;,?!]", message) is None


def check_fallback(cause: str) -> None:
    """ "auto" computes on the CPU and says why, once; "cuda" is an error that says the same."""
    X = data()
    with pytest.warns(DeviceFallbackWarning, match=cause) as warned:
        fitted = model(device="auto").fit(X)
    assert fitted.device_ == "cpu"
    assert re.search(cause, fitted.fallbacks_[0])
    model(device="auto").fit(X)  # reported once
    with pytest.raises(DeviceUnavailableError, match=cause) as error:
        model(device="cuda").fit(X)
    for message in (warned[0].message, error.value):
        check_punctuation(str(message))
    model().fit(X)


# -- faults of a device ------------------------------------------------------------------------------------------------


# An illegal address, an uncorrectable ECC error, a launch failure, "unknown", and a number that is in no table.
@pytest.mark.parametrize("status", [214, 700, 719, 999, 4711])
def test_a_lost_device_ends_its_use_in_the_process(stand_in: Any, status: int) -> None:
    X = data()
    estimator = model(device="cuda").fit(X)
    before, scores = attributes(estimator), estimator.transform(X)
    with (
        cupy_device.lose_device(status, after=20),
        pytest.raises(DeviceLostError, match=r"Restart the process") as lost,
    ):
        estimator.fit(X)
    assert lost.value.__cause__.status == status
    assert list(attributes(estimator)) == list(before)
    assert all(attributes(estimator)[name] is value for name, value in before.items())
    # The device works again, and is not asked.
    with cupy_device.launches() as made:
        for call in (lambda: model(device="cuda").fit(X), lambda: estimator.transform(X)):
            with pytest.raises((DeviceLostError, DeviceUnavailableError), match="Restart the process") as again:
                call()
            check_punctuation(str(again.value))
    assert made.count == 0
    np.testing.assert_allclose(model().fit(X).transform(X), scores, rtol=0, atol=1e-10)
    with pytest.warns(DeviceFallbackWarning, match=r"the CPU still works\. Computing on the CPU\.$"):
        assert model(device="auto").fit(X).device_ == "cpu"


@pytest.mark.parametrize("k", [1, 3, 10, 30, 60, 100, 150])
def test_a_device_lost_at_any_moment_is_reported_as_lost(stand_in: Any, k: int) -> None:
    X = stand_in.asarray(data())
    with cupy_device.lose_device(719, after=k), pytest.raises(DeviceLostError):
        model(eigen_solver="randomized").fit(X).transform(X)


@pytest.mark.parametrize("k", range(1, 12))
def test_a_device_lost_on_the_way_back_leaves_the_estimator_as_it_was(stand_in: Any, k: int) -> None:
    X = data()
    estimator = model(device="cuda").fit(X)
    before = attributes(estimator)
    with cupy_device.counted("operations") as made:
        model(device="cuda").fit_transform(X)
    with cupy_device.lose_device(700, after=made.count - k), pytest.raises(DeviceLostError):
        estimator.fit_transform(X)
    assert all(attributes(estimator)[name] is value for name, value in before.items())


# name -> (an estimator, its methods beside those that all have).
ESTIMATORS = {
    "dense": (lambda: model(), ["score_samples"]),
    "block Krylov": (lambda: model(eigen_solver="randomized"), ["score_samples"]),
    "linear": (lambda: KernelPCA(2), ["score_samples"]),
    "laplacian": (lambda: KernelPCA(2, kernel="laplacian", fit_inverse_transform=True), ["inverse_transform"]),
    "pca": (lambda: PCA(2, whiten=True), ["inverse_transform", "score_samples"]),
    "incremental": (lambda: IncrementalPCA(2), ["inverse_transform"]),
    "probabilistic": (lambda: ProbabilisticPCA(2), ["inverse_transform", "score_samples"]),
    "bayesian": (lambda: BayesianPCA(2), ["inverse_transform", "score_samples"]),
}
CALLS = [
    (name, method) for name, (_, more) in ESTIMATORS.items() for method in ("fit", "fit_transform", "transform", *more)
]


def unlike_axes() -> np.ndarray:
    """Return data whose directions differ, as Bayesian PCA needs them."""
    X = data()
    return X * np.logspace(1, -1, X.shape[1])


def test_only_the_outermost_context_of_a_device_waits(stand_in, monkeypatch):
    waits = []
    monkeypatch.setattr(cuda_device, "synchronize", lambda like: waits.append(like.device.id))
    with stand_in.cuda.Device(1):
        other = stand_in.ones(3)
    x = stand_in.ones(3)
    with devices.device_context(x):
        with devices.device_context(x):
            pass
        assert waits == []
        with devices.device_context(other):
            pass
        assert waits == [1]
    assert waits == [1, 0]


@pytest.mark.parametrize(("name", "method"), CALLS)
def test_a_fault_shows_in_the_call_that_caused_it(stand_in: Any, name: str, method: str) -> None:
    """Faults of a device are asynchronous: a call that ends without a wait would leave its fault to another."""
    X, make = stand_in.asarray(unlike_axes()), ESTIMATORS[name][0]
    fitted = make().fit(X)
    argument = fitted.transform(X) if method == "inverse_transform" else X

    def call() -> None:
        getattr(make() if method.startswith("fit") else fitted, method)(argument)

    call()
    with cupy_device.counted("operations") as made:
        call()
    for k in range(made.count - 3, made.count + 1):
        with cupy_device.lose_device(after=k), pytest.raises(DeviceLostError):
            call()
        state.device_loss = ""


@pytest.mark.parametrize("name", ESTIMATORS)
def test_answers_live_on_the_device_of_the_data_whatever_the_current_one(stand_in: Any, name: str) -> None:
    make, more = ESTIMATORS[name]
    with stand_in.cuda.Device(1):
        X = stand_in.asarray(unlike_axes())
    fitted = make().fit(X)
    for method in ("transform", *more):
        argument = fitted.transform(X) if method == "inverse_transform" else X
        assert getattr(fitted, method)(argument).device == X.device


@pytest.mark.parametrize("state", [cupy_device.kernels_without_image, cupy_device.kernels_do_not_compile])
def test_device_arrays_on_a_device_that_cannot_compute(stand_in: Any, state: Any) -> None:
    X = stand_in.asarray(data())
    with state(), pytest.raises(DeviceUnavailableError, match="cannot be used"):
        model().fit(X)
    model().fit(X)


def test_other_errors_of_a_device_are_not_a_loss(cuda: Any) -> None:
    x = cuda.zeros(3)
    with pytest.raises(cuda.cuda.runtime.CUDARuntimeError), device_context(x):
        raise cuda.cuda.runtime.CUDARuntimeError(1)
    model().fit(cuda.asarray(data()))


def in_a_child(queue: Any) -> None:
    """Put the error and the device of a forked process into the queue."""
    X = data()
    try:
        model(device="cuda").fit(X)
    except DeviceUnavailableError as error:
        queue.put(str(error))
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        queue.put(model(device="auto").fit(X).device_)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_must_spawn(cuda: Any) -> None:
    model(device="cuda").fit(data())
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=in_a_child, args=(queue,))
    child.start()
    said, where = queue.get(timeout=60), queue.get(timeout=60)
    child.join()
    assert "spawn" in said
    assert where == "cpu"


@pytest.mark.parametrize("d", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("kernel", [RBF(1.0), RationalQuadratic(1.0), Matern(1.0, nu=1.5)], ids=["rbf", "rq", "matern"])
def test_new_rows_that_need_float64_meet_training_rows_in_float32(cuda: Any, kernel: Kernel, d: int) -> None:
    rng = np.random.default_rng(d)
    X = (0.5 * rng.standard_normal((60, d))).astype(np.float32)
    Y = np.concatenate([X[:5], np.full((1, d), 30.0, np.float32)])
    fit = KernelPCA(1, kernel=kernel, eigen_solver="dense").fit(cuda.asarray(X))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the last row is far from all others
        scores = fit.transform(cuda.asarray(Y)).get()
        expected = KernelPCA(1, kernel=kernel, eigen_solver="dense").fit(X.astype(np.float64)).transform(Y)
    np.testing.assert_allclose(scores, expected, atol=2e-4)


# -- the names that users of the parts need ---------------------------------------------------------------------------


def test_devices_are_named_as_parameters_take_them(cuda: Any) -> None:
    names = backend.devices()
    assert names[0] == "cpu"
    assert "cuda:0" in names
    for name in names:
        assert describe_device(backend.to_device(np.ones((2, 3)), name)).startswith(name)


def test_devices_that_do_not_work_have_no_name(stand_in: Any) -> None:
    with cupy_device.no_device():
        assert backend.devices() == ("cpu",)
    with cupy_device.kernels_without_image():
        assert backend.devices() == ("cpu",)


@pytest.mark.parametrize("shape", [(5,), (700, 3), (2, 3, 4)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_arrays_go_to_a_device_and_back_with_their_bits(cuda: Any, sizes, shape: tuple[int, ...], dtype: str) -> None:
    sizes(TRANSFER_BYTES=1000)
    x = np.random.default_rng(0).normal(size=shape).astype(dtype)
    moved = backend.to_device(x, "cuda")
    assert isinstance(moved, cuda.ndarray)
    assert str(moved.dtype) == dtype
    assert backend.to_device(moved, "cuda:0") is moved
    devices.synchronize(moved)
    for back in (backend.to_host(moved), backend.to_device(moved, "cpu")):
        np.testing.assert_array_equal(back, x)


def test_what_cannot_go_to_a_device_is_refused(stand_in: Any) -> None:
    x = np.ones(3)
    with pytest.raises(DeviceUnavailableError, match=r"device='cuda:99': there is no device cuda:99"):
        backend.to_device(x, "cuda:99")
    with pytest.raises(InvalidParameterError, match="device='gpu' is not allowed"):
        backend.to_device(x, "gpu")
    for wrong in ([1.0], 1.0, np.float64(1.0), "x"):
        with pytest.raises(InvalidParameterError, match="give an array of at least one dimension"):
            backend.to_device(wrong, "cpu")
    with cupy_device.no_device():
        assert backend.to_device(x, "auto") is x
        with pytest.raises(DeviceUnavailableError, match="no CUDA device"):
            backend.to_device(x, "cuda")


# -- TF32 --------------------------------------------------------------------------------------------------------------


@contextmanager
def cupy_tf32(value: str) -> Iterator[None]:
    """Set the variable by which a user asks CuPy for TF32, which it reads once in a process."""
    with pytest.MonkeyPatch.context() as patched, cupy_device.compute_types_read_again():
        patched.setenv("CUPY_TF32", value)
        state.rounds_products.clear()
        yield


def test_a_note_on_precision_follows_another_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "precision_warning", lambda like: "products in TF32")
    rows = scipy.sparse.csr_array(np.eye(3, dtype=np.float32))
    with pytest.warns(PrecisionWarning, match="products in TF32"):
        notes = places.placement_for("auto", rows).notes
    assert notes == ("sparse rows are computed on the CPU", "products in TF32")


def test_tf32_is_reported_once_and_left_as_it_is(stand_in: Any) -> None:
    X, routines = data(200, 6).astype(np.float32), sys.modules["cupy._core._routines_linalg"]
    with cupy_tf32("1"):
        before = routines.get_compute_type(np.dtype(np.float32))
        with pytest.warns(PrecisionWarning, match=r"TF32.*unset.*CUPY_TF32.*pass float64\.$"):
            fitted = model(tol=1e-2).fit(stand_in.asarray(X))
        assert "TF32" in fitted.fallbacks_[0]
        assert routines.get_compute_type(np.dtype(np.float32)) == before
        model(tol=1e-2).fit(stand_in.asarray(X))  # reported once
    with cupy_tf32("0"):
        assert model().fit(stand_in.asarray(X)).fallbacks_ == ()


def test_products_are_looked_at_once_for_each_device(stand_in: Any) -> None:
    counts = []
    for index in (0, 0, 1):
        with stand_in.cuda.Device(index):
            x = stand_in.zeros(3, np.float32)
        with cupy_device.launches() as made:
            assert devices.precision_warning(x) == ""
        counts.append(len(made.products))
    assert counts == [1, 0, 1]


def test_a_full_device_is_looked_at_later(stand_in: Any) -> None:
    x = stand_in.zeros(3, np.float32)
    with cupy_device.fail_allocation(1):
        assert devices.precision_warning(x) == ""
    with cupy_device.launches() as made:
        devices.precision_warning(x)
    assert made.products


def test_float64_has_no_tf32(cuda: Any) -> None:
    with cupy_tf32("1"):
        assert model().fit(cuda.asarray(data())).fallbacks_ == ()


# -- copies and pickles ------------------------------------------------------------------------------------------------


SETTINGS: dict[str, dict[str, Any]] = {
    "exact": {},
    "landmarks": {"eigen_solver": "nystrom"},
    "linear": {"kernel": "linear", "gamma": None},
    "inverse": {"fit_inverse_transform": True},
}


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
@pytest.mark.parametrize("device", ["cuda", None])
def test_a_pickle_holds_the_numbers_once_and_takes_no_copy_of_what_is_on_the_host(
    cuda: Any, kernel: str, device: str | None
) -> None:
    """Of a model that was fitted to NumPy arrays on a device, its basis there and the data are one array."""
    X = np.random.default_rng(0).standard_normal((1000, 200))
    model = KernelPCA(2, kernel=kernel, device=device).fit(X)
    tracemalloc.start()
    try:
        model.__getstate__()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # From a device one copy comes to the host.
    assert peak < (1.5 if device else 0.2) * X.nbytes
    assert len(pickle.dumps(model)) < 1.2 * X.nbytes
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_allclose(again.transform(X[:9]), model.transform(X[:9]), atol=1e-10)
    assert model.transform(cuda.asarray(X[:9])).shape == (9, 2)  # the model itself is where it was


def test_a_device_array_that_equals_one_on_the_host_is_found(cuda: Any) -> None:
    host, state = np.arange(5.0), {}
    for first, second in ((host, cuda.asarray(host)), (cuda.asarray(host), host)):
        state = with_host_arrays({"a": first, "b": second, "c": [second]})
        assert type(state["a"]) is np.ndarray
        assert state["a"] is state["b"] is state["c"][0]
    other = with_host_arrays({"a": host, "b": host.copy(), "c": cuda.ones(3)})
    assert other["a"] is host
    assert other["b"] is not host


def test_pickles_from_a_device_are_read_without_cupy(cuda: Any, tmp_path: Path) -> None:
    """Of models of arrays there, and of models that computed there; one process reads them all."""
    X = data()
    scores = {}
    for name, settings in SETTINGS.items():
        moved, stayed = model(device="cuda", **settings).fit(X), model(**settings).fit(cuda.asarray(X))
        for fitted, home in ((moved, "host"), (stayed, "device")):
            (tmp_path / f"{name}-{home}.pickle").write_bytes(pickle.dumps(fitted))
            scores[f"{name}-{home}"] = fitted.transform(X)
    np.save(tmp_path / "X.npy", X)
    program = """
        import pathlib, pickle, sys, numpy as np
        X, scores = np.load("X.npy"), {}
        for file in pathlib.Path().glob("*.pickle"):
            model = pickle.loads(file.read_bytes())
            scores[file.stem] = model.transform(X)
            if model.fit_inverse_transform:
                assert np.isfinite(model.inverse_transform(scores[file.stem])).all()
        assert "cupy" not in sys.modules
        np.savez("scores.npz", **scores)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], cwd=tmp_path, check=True, env=dict(os.environ))
    with np.load(tmp_path / "scores.npz") as read:
        assert set(read) == set(scores)
        for name, wanted in scores.items():
            np.testing.assert_allclose(read[name], wanted, rtol=0, atol=1e-12, err_msg=name)


def test_other_libraries_can_go_to_the_device(xp: Any) -> None:
    if xp.name == "numpy" or xp.name == "cupy":
        pytest.skip("tested by itself")
    with pytest.raises(DeviceUnavailableError) if sys.modules.get("cupy") is None else warnings.catch_warnings():
        fitted = model(device="cuda").fit(xp.array(data()))
        assert xp.owns(fitted.eigenvectors_)
