"""Fixtures: one namespace at a time, the real data where they are, a generator."""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import array_api_compat
import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from gpukpca._process import state
from gpukpca.backend import blocking
from gpukpca.backend.namespace import to_host
from gpukpca.cuda import device as cuda_device
from gpukpca.exceptions import DeviceLostError
from tests import cupy_device
from tests.kernel_listing import find_unlisted

# Every worker of a Dask cluster samples its stack a hundred times a second: a third of the time of these tests.
os.environ["DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED"] = "False"

# No test depends on the clock: those of choices by it allow them, and set the rates.
os.environ["GPUKPCA_TIMED_CHOICES"] = "0"

# Where Python may not store what it compiled, every process that tests start would compile NumPy and its like again.
if sys.dont_write_bytecode and "PYTHONPYCACHEPREFIX" not in os.environ:
    os.environ["PYTHONPYCACHEPREFIX"] = tempfile.mkdtemp(prefix="gpukpca-tests-")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    atexit.register(shutil.rmtree, os.environ["PYTHONPYCACHEPREFIX"], ignore_errors=True)

# Optional libraries that the suite treats as not installed: GPUKPCA_TESTS_WITHOUT="torch jax".
HIDDEN = os.environ.get("GPUKPCA_TESTS_WITHOUT", "").split()


class _Hider(MetaPathFinder):
    """Raise at the import of a hidden library what Python raises where it is not installed."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.partition(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, _Hider())


def is_installed(name: str) -> bool:
    """Whether a library can be imported and is not hidden."""
    return name not in HIDDEN and find_spec(name) is not None


@dataclass(frozen=True)
class Namespace:
    """An array library on one device, for tests that run on all of them.

    `array(a)` puts a host array there, keeping its dtype; `host(x)` brings one back.
    """

    name: str
    module: Any
    device: Any

    def array(self, a: Any, dtype: Any = None) -> Any:
        a = np.asarray(a, dtype=dtype)
        if self.name == "numpy":
            return a
        return self.module.asarray(np.ascontiguousarray(a), device=self.device)

    def dtype(self, name: str) -> Any:
        return getattr(self.module, name)

    @staticmethod
    def host(x: Any) -> np.ndarray:
        return to_host(x)

    def owns(self, x: Any) -> bool:
        """Whether x is an array of this library on this device."""
        if self.name == "numpy":
            return isinstance(x, np.ndarray)
        return array_api_compat.array_namespace(x) == self.module and array_api_compat.device(x) == self.device


def _numpy() -> Namespace:
    import array_api_compat.numpy as module

    return Namespace("numpy", module, None)


def _strict(device: str) -> Namespace:
    module = pytest.importorskip("array_api_strict")
    module.set_array_api_strict_flags(data_dependent_shapes=False, boolean_indexing=False)
    return Namespace("array_api_strict", module, module.Device(device))


def _torch() -> Namespace:
    import array_api_compat.torch as module
    import torch

    torch.set_num_threads(1)  # the arrays of tests are small: its threads only wait for each other
    return Namespace("torch", module, torch.device("cpu"))


def _jax() -> Namespace:
    import jax

    return Namespace("jax", jax.numpy, jax.devices("cpu")[0])


def _cupy() -> Namespace:
    import array_api_compat.cupy as module
    import cupy

    return Namespace("cupy", module, cupy.cuda.Device(0))


def _cuda_works() -> bool:
    from gpukpca.cuda.device import probe

    return probe()[0]


MAKERS = {"numpy": _numpy, "strict": lambda: _strict("device1")}
if is_installed("torch"):
    MAKERS["torch"] = _torch
if is_installed("jax"):
    MAKERS["jax"] = _jax
if _cuda_works():
    MAKERS["cupy"] = _cupy


# A generator without a seed takes the next one of these in place of entropy, so that every run draws the same numbers.
SEEDS = {"next": 0}
_default_rng = np.random.default_rng


def _seeded_rng(seed: Any = None) -> np.random.Generator:
    """Return `default_rng` of a seed, or of the next one of the test."""
    if seed is None:
        SEEDS["next"] += 1
        seed = SEEDS["next"]
    return _default_rng(seed)


np.random.default_rng = _seeded_rng

# No file of a test must outlast a loss of power: to wait for the disk takes longer than to write one.
os.fsync = lambda handle: None


def pytest_collection_finish() -> None:
    """Let no collection of garbage look at the modules and the tests again."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Start every test from one state."""
    reset()


def reset() -> None:
    """Reset what a test starts from: seeds of generators without one, and what the process knows.

    The process knows which devices it has and which warnings it has given.
    """
    SEEDS["next"] = 0
    np.random.seed(0)  # noqa: NPY002  # the global state is what scikit-learn's generators without a seed use
    state.reset()


# JAX compiles every operation for every shape, which takes a second or more a test. These tests run on it, beside those
# of test_jax.py; with all tests that take `xp` the suite would take longer by many minutes.
ON_JAX = {
    "test_solvers.py": {"test_top_eigenpairs_on_every_library", "test_random_numbers_are_the_same_on_every_library"},
    "test_kernels.py": {"test_near_pairs_and_duplicates_keep_their_digits", "test_integers_are_computed_in_float64"},
    "test_pivoted_cholesky.py": {"test_libraries_agree_on_pivots"},
    "test_preimage.py": {"test_ridge_is_the_regression_written_out"},
    "test_probabilistic_pca.py": {"test_missing_values_in_every_library_and_precision"},
}


# Libraries whose tests of both precisions run in the narrower one: it takes the same calls, and those that widen.
IN_ONE_PRECISION = {"strict", "torch"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out parameters of JAX that are not in `ON_JAX`, and a second precision; mark tests that run on CuPy.

    Of the tests whose device is absent, the first of every file is skipped for the others.
    """
    first: dict[Path, pytest.Item] = {}
    without = {item: first.setdefault(item.path, item) for item in items if lacks_device(item)}
    items[:] = [item for item in items if is_needed(item) and without.get(item, item) is item]
    for item in items:
        if library_under_test(item) == "cupy" or DEVICE_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker("cupy")


def library_under_test(item: pytest.Item) -> str | None:
    """The parameter of the fixture `xp`, or of `large` in `tests/test_large.py`."""
    call = getattr(item, "callspec", None)
    return None if call is None else call.params.get("xp", call.params.get("large"))


def is_needed(item: pytest.Item) -> bool:
    """Whether a test runs on its library in its precision."""
    library = library_under_test(item)
    if library in IN_ONE_PRECISION and "dtype" in getattr(item, "fixturenames", ()):
        return item.callspec.params.get("dtype") != "float64"
    return library != "jax" or is_on_jax(item)


def lacks_device(item: pytest.Item) -> bool:
    """Whether a fixture of a test would skip it."""
    fixtures = getattr(item, "fixturenames", ())
    return ("cuda" in fixtures and "cupy" not in MAKERS) or ("stand_in" in fixtures and not cupy_device.is_stand_in())


def is_on_jax(item: pytest.Item) -> bool:
    """Whether a test is listed in `ON_JAX`."""
    return item.originalname in ON_JAX.get(item.path.name, ())


@pytest.fixture(params=list(MAKERS))
def xp(request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """Every numerical test takes this: NumPy, array-api-strict off its default device, torch and CuPy where they are.

    What mixes devices fails off the default one alone; on it scikit-learn's checks of arrays run every estimator.
    """
    with LIBRARY_STATE.get(request.param, nullcontext)():
        yield MAKERS[request.param]()


def _jax_with_float64() -> Any:
    """A context in which JAX, alone among the libraries, has float64: without it `jax_enable_x64` is off."""
    import jax

    return jax.enable_x64(True)


@contextmanager
def _cuda_device() -> Iterator[None]:
    """CuPy's device, which is as it was afterwards. What a test launches must be among the kernels that are listed."""
    with cupy_device.as_it_was():
        yield
    if cupy_device.is_stand_in():
        unlisted = find_unlisted(cupy_device.controls().launched())
        assert not unlisted, "add these kernels to KERNELS of their module in gpukpca/cuda"


# What a library needs while a test runs.
LIBRARY_STATE = {"cupy": _cuda_device, "jax": _jax_with_float64}
# The fixtures beside `xp` that put a test on CuPy.
DEVICE_FIXTURES = {"cuda", "stand_in"}


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """BLAS and OpenMP held to one: on the small matrices of tests a second thread only waits, on another core.

    `n_jobs=None` is then one worker; tests of what threads do take `two_blas_threads`.
    """
    with threadpool_limits(1):
        yield


@pytest.fixture(scope="session", autouse=True)
def interrupts_reach_processes() -> None:
    """Where a shell runs the suite in the background, what tests start would ignore Ctrl-C, as the suite does."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Set sizes of the table `backend.blocking`, so that small data have several panels: `sizes(PANEL_ROWS=16)`."""

    def set_sizes(**values: Any) -> None:
        for name, value in values.items():
            monkeypatch.setattr(blocking, name, value)

    return set_sizes


@pytest.fixture
def threads_for_little(sizes: Callable[..., None]) -> None:
    """Threads for work of any size, which otherwise stays in the calling thread."""
    sizes(MULTIPLICATIONS_A_THREAD=1)


@pytest.fixture
def two_blas_threads(threads_for_little: None) -> Iterator[None]:
    """BLAS as on a machine with two cores, for tests of threads."""
    with threadpool_limits(2, "blas"):
        yield


@pytest.fixture(autouse=True)
def new_process() -> None:
    """Forget also what fixtures of a wider scope made the process know."""
    state.reset()


@pytest.fixture
def cuda() -> Iterator[Any]:
    """The module `cupy` on a machine with a device, or on the stand-in (`bash ci/test_cupy.sh`)."""
    if "cupy" not in MAKERS:
        pytest.skip("needs a CUDA device, or ci/test_cupy.sh, as others of its file may")
    with _cuda_device():
        yield importlib.import_module("cupy")


@pytest.fixture
def stand_in() -> Iterator[Any]:
    """The module `cupy` on the stand-in, for tests of what a device can do wrong; it has two devices."""
    if not cupy_device.is_stand_in():
        pytest.skip("needs ci/test_cupy.sh, as others of its file may")
    with _cuda_device():
        yield importlib.import_module("cupy")


@pytest.fixture
def timings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let times decide; a test sets `state.product_rates`, so that nothing is timed."""
    monkeypatch.setenv("GPUKPCA_TIMED_CHOICES", "1")


@pytest.fixture(params=["float64", "float32"])
def dtype(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20240229)


def data_folder() -> Path | None:
    """Where the real data are: GPUKPCA_DATA, else ../shared/data beside the checkout, else nowhere."""
    given = os.environ.get("GPUKPCA_DATA")
    folder = Path(given) if given else Path(__file__).resolve().parents[2] / "shared" / "data"
    return folder if folder.is_dir() else None


@pytest.fixture
def real_data() -> Path:
    folder = data_folder()
    if folder is None:
        pytest.skip("real data not found: set GPUKPCA_DATA to their folder")
    return folder


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """A CUDA device that is lost fails every later test of the process: end it at the first."""
    if call.excinfo is not None and not cupy_device.is_stand_in() and is_loss(call.excinfo.value):
        item.session.shouldstop = f"the CUDA device is lost: {call.excinfo.value}"


def is_loss(error: BaseException) -> bool:
    """Whether an error says that the process can use its device no more."""
    is_of_cupy = "cupy" in sys.modules and type(error).__module__.startswith("cupy")
    return isinstance(error, DeviceLostError) or (is_of_cupy and cuda_device.fault(error) == "lost")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say why tests were skipped, and how many ran on CuPy: `ci/test_gpu.sh` and `ci/test_cupy.sh` fail on too few.

    Say of failures which are of code: a failed assertion may be a tolerance that another card's rounding exceeds.
    """
    skipped = [report.longrepr for report in terminalreporter.getreports("skipped")]
    for reason, count in Counter(where[2].removeprefix("Skipped: ") for where in skipped).most_common():
        terminalreporter.write_line(f"skipped {count:4}: {reason}")
    ran = sum("cupy" in report.keywords for report in terminalreporter.getreports("passed"))
    terminalreporter.write_line(f"tests passed on CuPy: {ran}")
    failed = [*terminalreporter.getreports("failed"), *terminalreporter.getreports("error")]
    messages = {report.nodeid: message_of(report) for report in failed}
    others = {test: text for test, text in messages.items() if not text.startswith(("AssertionError", "assert "))}
    if failed:
        terminalreporter.write_line(f"failed assertions, tolerances among them: {len(messages) - len(others)}")
        terminalreporter.write_line(f"failures of code: {len(others)}")
        for test, text in others.items():
            terminalreporter.write_line(f"  {test}: {text}")


def message_of(report: Any) -> str:
    """Return the first line of the error of a failed test."""
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = (str(report.longrepr) if crash is None else crash.message).strip().splitlines()
    return lines[0][:200] if lines else "no message"


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """A Dask client of two workers that are threads of this process, on any free port; not the active one."""
    distributed = pytest.importorskip("distributed")
    settings = {"processes": False, "threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": 50}
    with (
        distributed.LocalCluster(n_workers=2, **settings) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture
def active(client: Any) -> Iterator[Any]:
    """The client as the active one."""
    with client.as_current():
        yield client
