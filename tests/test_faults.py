"""Bad and extreme input: a clear error with nothing changed, or the right result; and what a fit promises around it."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import product
from typing import Any

import array_api_compat
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import gpukpca
from gpukpca import PCA, KernelPCA, kernels
from gpukpca.backend.namespace import to_host
from gpukpca.eigen import Solver
from gpukpca.exceptions import ConvergenceWarning, InvalidParameterError, PrecisionWarning
from tests.cases import CASES, Case, spectrum
from tests.conftest import MAKERS, Namespace
from tests.datasets import circle, data, gaussian
from tests.each import each

TIME_LIMIT = 2.0

FIT_ERRORS = [case for case in CASES if case.error and case.method is None]
CALL_ERRORS = [case for case in CASES if case.error and case.method is not None]
RESULTS = [case for case in CASES if case.error is None]


# -- tools -----------------------------------------------------------------------------------------------------------


def is_array(x: Any) -> bool:
    return array_api_compat.is_array_api_obj(x) or scipy.sparse.issparse(x)


def contents(x: Any) -> Any:
    """Something that changes when the values of x do."""
    if scipy.sparse.issparse(x):
        return [contents(getattr(x, part)) for part in ("data", "indices", "indptr", "row", "col") if hasattr(x, part)]
    if isinstance(x, np.ndarray):
        return (x.dtype, x.shape, repr(x.tolist()) if x.dtype == object else x.tobytes())
    if array_api_compat.is_array_api_obj(x):
        return contents(to_host(x))
    return repr(x)


def attributes(estimator: Any) -> dict[str, Any]:
    """The attributes of an estimator; arrays with a copy of their contents, to be compared later."""
    return {name: (value, contents(value) if is_array(value) else None) for name, value in vars(estimator).items()}


def assert_unchanged(estimator: Any, before: dict[str, Any]) -> None:
    now = attributes(estimator)
    assert list(now) == list(before)
    for name, (value, held) in before.items():
        assert now[name][0] is value, name
        assert now[name][1] == held, name


def assert_finite(estimator: Any) -> None:
    """No NaN and no infinity in anything that fit has set."""
    for name, value in vars(estimator).items():
        if name.endswith("_") and is_array(value):
            host = value.toarray() if scipy.sparse.issparse(value) and value.shape[1] < 100 else value
            host = host.data if scipy.sparse.issparse(host) else to_host(host)
            if host.dtype.kind == "f":
                assert np.all(np.isfinite(host)), name
        elif name.endswith("_") and isinstance(value, float):
            assert np.isfinite(value), name


def written(seen: warnings.WarningMessage) -> str:
    """The text of a warning and its numbers, as the command line writes them."""
    return f"{seen.message} ({getattr(seen.message, 'details', '')})"


@contextmanager
def only_these_warnings(expected: tuple, all_of_them: bool = True) -> Iterator[None]:
    """Every warning is one of those expected; and every one expected came, unless `all_of_them` is False."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for seen in caught:
        fits = [kind for kind, text in expected if issubclass(seen.category, kind) and text in written(seen)]
        assert fits, f"unexpected {seen.category.__name__}: {seen.message}"
    for kind, text in expected if all_of_them else ():
        assert any(issubclass(seen.category, kind) and text in written(seen) for seen in caught), f"no {kind}: {text}"


@contextmanager
def within_time() -> Iterator[None]:
    start = time.process_time()
    yield
    assert time.process_time() - start < TIME_LIMIT


def raised_by(call: Any, case: Case) -> BaseException:
    kind, text = case.error  # type: ignore[misc]
    with only_these_warnings(case.warns, all_of_them=False), pytest.raises(kind) as caught, within_time():
        call()
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)
    return caught.value


# -- messages --------------------------------------------------------------------------------------------------------


def test_a_refused_value_of_many_lines_is_quoted_in_one() -> None:
    X = data()
    search = GridSearchCV(make_pipeline(LogisticRegression()), {"logisticregression__C": [1.0, 2.0]})
    texts = []
    for cls in (PCA, KernelPCA, gpukpca.IncrementalPCA, gpukpca.ProbabilisticPCA, gpukpca.LocalPCA):
        for name, value in product(cls().get_params(deep=False), (np.ones((40, 3)), search, "a\nb")):
            try:
                cls(**{name: value}).fit(X)
            except (ValueError, TypeError, OSError) as error:
                texts.append(str(error))
    for call in (
        lambda: gpukpca.eigen.top_eigh(X, 3),
        lambda: gpukpca.eigen.top_eigh(gpukpca.gram.DenseGram(np.eye(5)), np.ones((4, 3))),
        lambda: gpukpca.decomposition.intrinsic_dimension(X, np.ones((4, 3))),
        lambda: kernels.RBF(gamma=np.ones((4, 3)))(X),
        lambda: gpukpca.residuals(PCA(2).fit(X), X, passes=np.ones((4, 3))),
    ):
        with pytest.raises(InvalidParameterError) as caught:
            call()
        texts.append(str(caught.value))
    assert len(texts) > 100
    assert not [text for text in texts if "\n" in text]


def frame(column: str, values: Any) -> pd.DataFrame:
    return pd.DataFrame(data()[:, :3], columns=["width", "height", "age"]).assign(**{column: values})


def test_what_is_no_number_is_named_by_its_column() -> None:
    """In every function of rows, whether the gate finds it or a later pass."""
    numbers = frame("age", 1.0).assign(age=data()[:, 0] ** 2)
    pca = PCA(2).fit(numbers)
    row = np.arange(len(numbers)) == 4
    bad = [
        (frame("height", np.where(row, np.nan, 1.0)), r"NaN: 1 value\(s\), the first in row 4, column 'height'"),
        (frame("height", np.where(row, np.inf, 1.0)), "infinity.* the first in row 4, column 'height'"),
        (frame("age", pd.Timestamp("2020-01-01")), "dates or time differences in column 'age'; turn them into numbers"),
        (frame("age", 1.0j), "holds complex128 in column 'age'"),
        (frame("age", np.where(row, "old", "1.0").astype(object)), "column 'age', row 4 of X"),
    ]
    calls = [
        *(cls(2).fit for cls in (PCA, gpukpca.IncrementalPCA, gpukpca.LocalPCA)),
        gpukpca.IncrementalPCA(2).partial_fit,
        KernelPCA(2, kernel="rbf").fit,
        KernelPCA(2, kernel="rbf", eigen_solver=gpukpca.Nystrom(rank=5)).fit,
        lambda X: PCA(2).fit(gpukpca.Batches([X, X])),
        pca.transform,
        partial(gpukpca.residuals, pca),
        partial(gpukpca.decomposition.squared_cosines, pca),
        partial(gpukpca.variable_correlations, pca, numbers),
        gpukpca.model_selection.n_components_for,
    ]
    for (X, text), call in product(bad, calls):
        with pytest.raises((ValueError, TypeError), match=text):
            call(X)
    with pytest.raises(TypeError, match="dates or time differences in columns 'width', 'age';"):
        PCA(2).fit(bad[2][0].assign(width=pd.Timedelta("1h")))


# -- the table -------------------------------------------------------------------------------------------------------


@each("case", FIT_ERRORS, ids=str)
def test_bad_fit_raises_and_changes_nothing(case: Case) -> None:
    """Neither an estimator that is not fitted, nor the model of an earlier fit, nor the input."""
    X = case.fit()
    held = contents(X)
    estimator = KernelPCA(**case.parameters)
    before = attributes(estimator)
    for fit in (estimator.fit, estimator.fit_transform):
        raised_by(lambda fit=fit: fit(X), case)
        assert_unchanged(estimator, before)
    fitted = KernelPCA(2, kernel="rbf", gamma=0.5).fit(data())
    old, scores = fitted.get_params(), fitted.transform(data(7, seed=1))
    fitted.set_params(**estimator.get_params(deep=False))
    before = attributes(fitted)
    raised_by(lambda: fitted.fit(X), case)
    assert_unchanged(fitted, before)
    np.testing.assert_array_equal(fitted.set_params(**old).transform(data(7, seed=1)), scores)
    assert contents(X) == held


def check_call(case: Case, xp: Namespace) -> None:
    """Check that a method raises and changes nothing."""
    estimator = KernelPCA(**case.parameters)
    if case.fitted:
        estimator.fit(xp.array(case.fit()))
    given = case.given() if xp.name == "numpy" else xp.array(case.given())
    before, held = attributes(estimator), contents(given)
    raised_by(lambda: getattr(estimator, case.method or "")(given), case)
    assert_unchanged(estimator, before)
    assert contents(given) == held


@each("case", CALL_ERRORS, ids=str)
def test_bad_call_raises_and_changes_nothing(case: Case) -> None:
    check_call(case, MAKERS["numpy"]())


@each("case", [case for case in CASES if case.everywhere], ids=str)
def test_bad_array_of_any_library_raises(case: Case, xp: Namespace) -> None:
    if case.method is not None:
        check_call(case, xp)
        return
    estimator, X = KernelPCA(**case.parameters), xp.array(case.fit())
    before = attributes(estimator)
    raised_by(lambda: estimator.fit(X), case)
    assert_unchanged(estimator, before)


@each("case", RESULTS, ids=str)
def test_extreme_input_gives_the_right_result(case: Case) -> None:
    X = case.fit()
    held = contents(X)
    estimator = KernelPCA(**case.parameters)
    with only_these_warnings(case.warns), within_time():
        estimator.fit(X)
    assert_finite(estimator)
    with warnings.catch_warnings():
        for kind, _ in case.warns:
            warnings.simplefilter("ignore", kind)
        assert np.all(np.isfinite(to_host(estimator.transform(X))))
        if case.check is not None:
            case.check(estimator, X)
    assert contents(X) == held


# -- atomic fit ------------------------------------------------------------------------------------------------------


class Interrupted(kernels.RBF):
    """Raises in the k-th tile."""

    def __init__(self, gamma: float = 0.5, error: type[BaseException] = KeyboardInterrupt, k: int = 1) -> None:
        super().__init__(gamma)
        self.error, self.k = error, k

    def resolve(self, X: Any) -> Interrupted:
        resolved = Interrupted(self.gamma, self.error, self.k)
        resolved.calls = 0
        return resolved

    def tile(self, a: Any, b: Any, out: Any = None) -> Any:
        self.calls += 1
        if self.calls >= self.k:
            raise self.error("in a tile")
        return super().tile(a, b, out)


class OutOfTheBlue(Exception):
    """An error of nobody's family."""


STOPS = [KeyboardInterrupt, MemoryError, SystemExit, OutOfTheBlue, FloatingPointError]


@pytest.mark.usefixtures("threads_for_little")
@each("error", STOPS)
@each("k", [1, 2, 5])
@each("parameters", [{"gram": "tiled"}, {"gram": "dense"}, {"fit_inverse_transform": True}])
def test_stop_inside_a_tile_leaves_the_estimator_as_it_was(error: Any, k: int, parameters: dict[str, Any]) -> None:
    X = data(700, 3)
    estimator = KernelPCA(2, kernel="rbf", n_jobs=2).fit(X[:50])
    scores = estimator.transform(X)
    # Many enough for several tiles.
    estimator.set_params(kernel=Interrupted(error=error, k=k), eigen_solver="randomized", random_state=0, **parameters)
    before = attributes(estimator)
    with pytest.raises(error, match="in a tile"):
        estimator.fit(X)
    assert_unchanged(estimator, before)
    np.testing.assert_array_equal(estimator.transform(X), scores)


@each("error", STOPS)
@each("k", [1, 2, 5, 465])
def test_stop_inside_a_callable_leaves_the_estimator_as_it_was(error: type[BaseException], k: int) -> None:
    calls = []

    def kernel(x: Any, y: Any) -> float:
        calls.append(1)
        if len(calls) == k:
            raise error("in a pair")
        return float(x @ y)

    X = data()
    estimator = KernelPCA(2, kernel=kernel)
    before = attributes(estimator)
    with pytest.raises(error, match="in a pair"):
        estimator.fit(X)
    assert_unchanged(estimator, before)
    assert len(calls) == k
    calls[:] = [1] * 1000
    fitted = estimator.fit(X)
    np.testing.assert_allclose(fitted.eigenvalues_, spectrum(X @ X.T, 2), rtol=1e-10)


def test_note_says_for_which_rows_a_callable_raised() -> None:
    def kernel(x: Any, y: Any) -> float:
        raise OutOfTheBlue

    with pytest.raises(OutOfTheBlue) as caught:
        KernelPCA(2, kernel=kernel).fit(data())
    assert any("kernel" in note and "(0, 0)" in note for note in caught.value.__notes__)
    assert any("BlockCallable" in note for note in caught.value.__notes__)


def test_stop_in_a_listener_leaves_the_estimator_as_it_was() -> None:
    def listener(event: Any) -> None:
        if event.stage == "pass":
            raise KeyboardInterrupt

    estimator = KernelPCA(2, kernel="rbf", eigen_solver="randomized", verbose=listener)
    before = attributes(estimator)
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(data(200))
    assert_unchanged(estimator, before)


def test_stop_in_the_solver_leaves_the_estimator_as_it_was() -> None:
    class Broken(Solver):
        def solve(self, op: Any, p: int, rng: Any, report: Any = None) -> Any:
            raise MemoryError("no more")

        def workspace_bytes(self, n: int, p: int, item_size: int, on_gpu: bool) -> int:
            return 0

    estimator = KernelPCA(2, kernel="rbf").fit(data())
    scores = estimator.transform(data())
    estimator.set_params(eigen_solver=Broken())
    before = attributes(estimator)
    with pytest.raises(MemoryError, match="no more"):
        estimator.fit(data(20))
    assert_unchanged(estimator, before)
    np.testing.assert_array_equal(estimator.transform(data()), scores)


def test_inverse_switched_on_after_fit_names_the_flag() -> None:
    from sklearn.exceptions import NotFittedError

    estimator = KernelPCA(2, kernel="rbf").fit(data())
    estimator.fit_inverse_transform = True
    with pytest.raises(NotFittedError, match="fit_inverse_transform"):
        estimator.inverse_transform(data(5, 2))


# -- input untouched -------------------------------------------------------------------------------------------------


def test_data_changed_by_another_thread_during_fit_do_not_crash() -> None:
    X = data(300)
    stop = threading.Event()

    def change() -> None:
        while not stop.is_set():
            X[:, 0] += 0.001

    thread = threading.Thread(target=change)
    thread.start()
    try:
        assert_finite(KernelPCA(2, kernel="rbf").fit(X))
    finally:
        stop.set()
        thread.join()


@pytest.mark.filterwarnings("ignore:the kernel matrix has negative")
@pytest.mark.parametrize("kernel", ["linear", "rbf", "poly", "sigmoid", "laplacian", "matern", "rational_quadratic"])
def test_dense_and_sparse_rows_may_be_mixed(kernel: str) -> None:
    X, X_new = data(), data(7, seed=1)
    parameters = {"n_components": 2, "kernel": kernel, "gamma": None if kernel == "linear" else 0.01}
    dense = KernelPCA(**parameters).fit(X)
    sparse = KernelPCA(**parameters).fit(scipy.sparse.csr_array(X))
    expected = dense.transform(X_new)
    np.testing.assert_allclose(dense.transform(scipy.sparse.csr_array(X_new)), expected, atol=1e-12)
    np.testing.assert_allclose(sparse.transform(X_new), expected, atol=1e-12)


# -- data frames -----------------------------------------------------------------------------------------------------


def test_data_frames_work_and_give_feature_names() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(data(), columns=list("abcd"))
    held = frame.copy(deep=True)
    estimator = KernelPCA(2, kernel="rbf").fit(frame)
    assert list(estimator.feature_names_in_) == list("abcd")
    expected = KernelPCA(2, kernel="rbf").fit(data()).transform(data())
    np.testing.assert_allclose(estimator.transform(frame), expected, atol=1e-14)
    pandas.testing.assert_frame_equal(frame, held)
    with pytest.raises(ValueError, match="feature names should match"):
        estimator.transform(frame[list("dcba")])


# -- kernels ---------------------------------------------------------------------------------------------------------


def test_rows_and_columns_beyond_two_to_the_31st_entry_are_right() -> None:
    n = 46_341  # n² > 2^31
    X = data(n, 2)
    last = X[-3:]
    differences = last[:, None, :] - X[None, :, :]
    expected = np.exp(-0.5 * np.sum(differences**2, axis=2))
    operator = gpukpca.gram.TiledGram(kernels.RBF(0.5), X, cached_tiles=0)
    np.testing.assert_allclose(operator.columns([n - 3, n - 2, n - 1]), expected.T, atol=1e-13)
    V = data(n, 1, seed=1)
    np.testing.assert_allclose(gpukpca.gram.kernel_matmat(kernels.RBF(0.5), last, X, V), expected @ V, atol=1e-9)


def test_device_without_float64_computes_in_float32_and_says_so() -> None:
    strict = pytest.importorskip("array_api_strict")
    device = strict.Device("no_float64")
    X = strict.asarray((10 * data()).astype(np.int32), device=device)
    estimator = KernelPCA(2, kernel="rbf", gamma=0.001)
    with pytest.warns(PrecisionWarning, match="float32"):
        estimator.fit(X)
    assert estimator.eigenvalues_.dtype == strict.float32
    expected = spectrum(gaussian((10 * data()).astype(np.int32).astype(float), 0.001), 2)
    np.testing.assert_allclose(to_host(estimator.eigenvalues_), expected, rtol=1e-5)


@pytest.mark.parametrize("fitted_on", ["numpy", "other"])
def test_under_dispatch_new_data_must_be_where_fit_was(fitted_on: str, monkeypatch: pytest.MonkeyPatch) -> None:
    strict = pytest.importorskip("array_api_strict")
    A, B = data(), strict.asarray(data(), device=strict.Device("device1"))
    first, second = (A, B) if fitted_on == "numpy" else (B, A)
    estimator = KernelPCA(2, kernel="rbf").fit(first)
    np.testing.assert_allclose(to_host(estimator.transform(second)), to_host(estimator.transform(first)), atol=1e-13)
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # which scikit-learn demands
    with config_context(array_api_dispatch=True), pytest.raises(ValueError, match="must use the same namespace"):
        estimator.transform(second)


def test_other_array_libraries_are_refused_by_name() -> None:
    class Foreign:
        __module__ = "nobody.arrays"
        shape, ndim, dtype = (30, 4), 2, "float64"

        def __array_namespace__(self, api_version: Any = None) -> Any:
            return np

    with pytest.raises(TypeError, match=r"nobody.*Supported"):
        KernelPCA(2).fit(Foreign())


# -- determinism -----------------------------------------------------------------------------------------------------


def fitted_arrays(estimator: Any) -> dict[str, bytes]:
    return {name: value.tobytes() for name, value in vars(estimator).items() if isinstance(value, np.ndarray)}


@pytest.mark.parametrize("make", [np.random.RandomState, np.random.default_rng])
def test_generators_with_the_same_state_give_the_same_bits_and_are_consumed(make: Any) -> None:
    X, generator = data(300), make(3)
    parameters = {"n_components": 2, "kernel": "rbf", "eigen_solver": "randomized"}
    first = fitted_arrays(KernelPCA(random_state=generator, **parameters).fit(X))
    assert fitted_arrays(KernelPCA(random_state=make(3), **parameters).fit(X)) == first
    assert fitted_arrays(KernelPCA(random_state=generator, **parameters).fit(X)) != first


def test_every_fit_takes_one_seed_of_a_random_state() -> None:
    states = []
    for solver in ("full", "randomized"):
        generator = np.random.RandomState(3)
        PCA(2, svd_solver=solver, random_state=generator).fit(data(300))
        states.append(generator.randint(1000))
    assert states[0] == states[1]


@pytest.mark.filterwarnings("ignore:K is nearly the identity:gpukpca.exceptions.PrecisionWarning")
def test_eight_threads_at_once_give_what_one_gives(two_blas_threads: None) -> None:
    def fit(seed: int) -> dict[str, bytes]:
        X = data(120, seed=seed)
        if seed % 4 == 3:  # beyond the range of squares, so that floating-point flags are raised on the way
            return fitted_arrays(KernelPCA(kernel="rbf", n_jobs=1).fit(1e155 * X))
        solver = "randomized" if seed % 2 else "dense"
        return fitted_arrays(KernelPCA(2, kernel="rbf", eigen_solver=solver, random_state=0, n_jobs=1).fit(X))

    alone = [fit(seed) for seed in range(8)]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(fit, range(8)))
    assert together == alone


def test_eight_threads_may_transform_with_one_model(two_blas_threads: None) -> None:
    estimator = pickle.loads(pickle.dumps(KernelPCA(2, kernel="rbf").fit(data(200))))
    X = data(300, seed=1)
    expected = KernelPCA(2, kernel="rbf").fit(data(200)).transform(X)
    with ThreadPoolExecutor(8) as pool:
        for scores in pool.map(lambda _: estimator.transform(X), range(16)):
            np.testing.assert_allclose(scores, expected, atol=1e-13)


def test_floating_point_warnings_of_the_caller_are_his_own() -> None:
    with np.errstate(all="raise"):
        KernelPCA(2, kernel="rbf", fit_inverse_transform=True).fit(data()).transform(data())
        KernelPCA(kernel="rbf").fit(1e200 * data())
        KernelPCA(2, kernel="rbf").fit(1e-150 * data())


# Kernel matrices of points on a circle are circulant: eigenvectors are cosines, with many entries of largest modulus.
# A second circle at half the radius with other weights leaves simple eigenvalues beside the pairs.
def symmetric_points() -> np.ndarray:
    return np.vstack([circle(16) * [2.0, 1.0], circle(16) * [1.0, 0.5]])


@pytest.mark.parametrize("kernel", ["rbf", "linear", "poly"])
def test_last_bit_changes_do_not_flip_signs(kernel: str) -> None:
    X = symmetric_points()
    parameters = {"kernel": kernel, "gamma": None if kernel == "linear" else 0.3, "n_components": 2}
    reference = KernelPCA(**parameters).fit(X)
    assert reference.gap_ > 1e-6
    rng = np.random.default_rng(0)
    for _ in range(100):
        nudged = np.nextafter(X, X + rng.choice([-1.0, 1.0], X.shape))
        vectors = KernelPCA(**parameters).fit(nudged).eigenvectors_
        assert np.all(np.sum(vectors * reference.eigenvectors_, axis=0) > 0.99)


# -- invariance ------------------------------------------------------------------------------------------------------


# -- round trips -----------------------------------------------------------------------------------------------------


def test_fit_does_not_write_to_the_parameters() -> None:
    kernel = kernels.RBF("scale") + kernels.Polynomial()
    extra = {"nu": 1.5}
    KernelPCA(2, kernel=kernel).fit(data())
    KernelPCA(2, kernel="matern", kernel_params=extra).fit(data())
    assert kernel == kernels.RBF("scale") + kernels.Polynomial()
    assert extra == {"nu": 1.5}


def test_parameters_of_kernel_objects_are_reached_by_name() -> None:
    estimator = KernelPCA(2, kernel=kernels.RBF(0.1) + kernels.Linear())
    assert estimator.get_params()["kernel__k1__gamma"] == 0.1
    estimator.set_params(kernel__k1__gamma=0.7)
    assert estimator.kernel.k1.gamma == 0.7
    assert clone(estimator).get_params()["kernel__k1__gamma"] == 0.7
    with pytest.raises(ValueError, match=r"no parameter 'gama'.*Did you mean 'gamma'"):
        estimator.set_params(kernel__k1__gama=1.0)


def test_changing_a_kernel_after_fit_does_not_change_the_model() -> None:
    estimator = KernelPCA(2, kernel=kernels.RBF(0.1)).fit(data())
    scores = estimator.transform(data())
    estimator.set_params(kernel__gamma=5.0, n_components=1)
    np.testing.assert_array_equal(estimator.transform(data()), scores)


def test_errors_carry_the_name_of_the_argument_through_a_pickle() -> None:
    X = np.eye(5)
    for name, model in (
        ("tol", KernelPCA(tol=-1.0)),
        ("n_components", PCA(9)),
        ("n_components", gpukpca.ProbabilisticPCA(9)),
        ("n_components", gpukpca.LocalPCA(n_components=9)),
        ("n_clusters", gpukpca.LocalPCA(n_clusters=9)),
        ("device", PCA(device="gpu7")),
        ("memory_limit", KernelPCA(memory_limit="much")),
        ("random_state", KernelPCA(random_state=-1)),
        ("gamma", KernelPCA(kernel="rbf", gamma=-1.0)),
        (None, KernelPCA(kernel=kernels.RBF(1.0), gamma=2.0)),
    ):
        with pytest.raises(InvalidParameterError) as failed:
            model.fit(X)
        again = pickle.loads(pickle.dumps(failed.value))
        assert (again.argument, str(again)) == (name, str(failed.value))


def test_unknown_keywords_are_refused() -> None:
    with pytest.raises(TypeError, match="kernl"):
        KernelPCA(2, kernl="rbf")
    with pytest.raises(ValueError, match="kernl"):
        KernelPCA(2).set_params(kernl="rbf")


# -- grid search -----------------------------------------------------------------------------------------------------


def search(grid: dict[str, Any], **parameters: Any) -> GridSearchCV:
    pipeline = make_pipeline(KernelPCA(**{"n_components": 2, **parameters}), LogisticRegression())
    return GridSearchCV(pipeline, {f"kernelpca__{name}": values for name, values in grid.items()}, cv=3)


def labels() -> np.ndarray:
    return (data()[:, 0] > 0).astype(int)


def test_grid_search_over_the_parameters_of_a_kernel_object() -> None:
    fitted = search({"kernel__gamma": [0.1, 1.0]}, kernel=kernels.RBF()).fit(data(), labels())
    assert np.all(np.isfinite(fitted.cv_results_["mean_test_score"]))
    assert fitted.best_estimator_[0].kernel_.gamma in (0.1, 1.0)


@pytest.mark.parametrize(
    ("grid", "parameters", "reason"),
    [
        ({"gamma": [0.001, -1.0]}, {"kernel": "rbf"}, "gamma=-1.0 is not allowed"),
        ({"kernel": ["rbf", "sigmoid"]}, {"n_components": 15, "gamma": 5.0}, "negative eigenvalues"),
    ],
    ids=["invalid", "indefinite"],
)
def test_grid_search_scores_a_failing_candidate_nan_with_the_reason(grid: Any, parameters: Any, reason: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted = search(grid, **parameters).fit(data(), labels())
    scores = fitted.cv_results_["mean_test_score"]
    assert np.isfinite(scores[0])
    assert np.isnan(scores[1])
    assert any(reason in str(seen.message) for seen in caught)


@pytest.mark.filterwarnings("ignore::gpukpca.exceptions.RankWarning")
def test_folds_smaller_than_the_components_are_scored() -> None:
    fitted = search({"gamma": [0.1]}, kernel="rbf", n_components=25).fit(data(), labels())
    assert np.all(np.isfinite(fitted.cv_results_["mean_test_score"]))


# -- import ----------------------------------------------------------------------------------------------------------


def python(code: str) -> str:
    command = [sys.executable, "-W", "error", "-c", code]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert ran.stderr == ""
    return ran.stdout.strip()


def test_import_and_fit_are_silent_and_load_little_more_than_scikit_learn() -> None:
    code = (
        "import sys, sklearn.decomposition, sklearn.gaussian_process; before = set(sys.modules)\n"
        "import gpukpca, numpy; X = numpy.random.default_rng(0).standard_normal((40, 3))\n"
        "for device in (None, 'cpu'): gpukpca.KernelPCA(2, kernel='rbf', device=device).fit(X).transform(X)\n"
        "new = {m.partition('.')[0] for m in set(sys.modules) - before} - sys.stdlib_module_names\n"
        "base = {'numpy', 'scipy', 'sklearn', 'joblib', 'threadpoolctl', 'array_api_compat', 'psutil', 'safetensors'}\n"
        "print(sorted(new - base))\n"
        "import gpukpca.plotting; gpukpca.load; optional = ('cupy', 'torch', 'dask', 'matplotlib', 'click', 'polars')\n"
        "print([name for name in optional if name in sys.modules])"
    )
    assert python(code) == "['gpukpca']\n[]"


@pytest.mark.parametrize("kernel", ["poly", "cosine"])
@pytest.mark.parametrize("offset", [1e2, 1e3, 1e4])
def test_what_float32_cannot_resolve_is_reported_also_where_nothing_is_left(kernel, offset):
    X = (np.random.default_rng(0).standard_normal((80, 5)) + offset).astype(np.float32)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        KernelPCA(2, kernel=kernel, eigen_solver="dense").fit(X)
    assert any(issubclass(warning.category, PrecisionWarning) for warning in caught) or (kernel, offset) == (
        "poly",
        1e2,
    )


@pytest.mark.parametrize("passes", [0, 1, 3])
def test_fixed_passes_warn_and_name_the_parameter_that_fixed_them(passes):
    X = np.random.default_rng(0).standard_normal((2000, 6))
    with pytest.warns(ConvergenceWarning, match="iterated_power"):
        KernelPCA(2, kernel="rbf", gamma=0.05, iterated_power=passes, random_state=0).fit(X)
