"""Promises of every estimator: input untouched, results where the input lives, atomic fits, copies, seeds, devices."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone

from gpukpca import PCA, BayesianPCA, IncrementalPCA, KernelPCA, LocalPCA, Nystrom, ProbabilisticPCA, kernels
from gpukpca.algorithms.fields import field_of
from gpukpca.data.place import Placement
from gpukpca.exceptions import ConvergenceWarning, MemoryBudgetError, RankWarning
from tests.conftest import Namespace
from tests.datasets import data
from tests.each import each
from tests.hostile import in_a_process

KERNELS = ("linear", "poly", "laplacian", "matern", "rational_quadratic", "cosine")
RBF = {"n_components": 3, "kernel": "rbf", "gamma": 0.1, "random_state": 0}
ESTIMATORS = {
    "dense": KernelPCA(**RBF, eigen_solver="dense"),
    "block Krylov": KernelPCA(**RBF, eigen_solver="randomized", tol=1e-6),
    "stored": KernelPCA(**RBF, gram="dense"),
    "landmarks": KernelPCA(**RBF, eigen_solver=Nystrom(rank=20)),
    "inverse": KernelPCA(**RBF, fit_inverse_transform=True, alpha=0.1),
    "fixed point": KernelPCA(**RBF, preimage="fixed_point"),
    "distance constraint": KernelPCA(**RBF, preimage="distance_constraint"),
    "share": KernelPCA(0.4, kernel="rbf", gamma=0.1),
    "kernel object": KernelPCA(3, kernel=kernels.RBF(0.1) + 0.5 * kernels.RBF(0.01)),
    "rule": KernelPCA(3, kernel="rbf", gamma="median"),
    "no copy": KernelPCA(**RBF, copy_X=False),
    **{kernel: KernelPCA(3, kernel=kernel, random_state=0) for kernel in KERNELS},
    "PCA": PCA(3, svd_solver="full", whiten=True),
    "PCA, covariance": PCA(3, svd_solver="covariance_eigh", scale=True),
    "PCA, dual": PCA(3, svd_solver="dual"),
    "PCA, iterated": PCA(3, svd_solver="randomized", random_state=0),
    "incremental": IncrementalPCA(3, batch_size=20),
    "probabilistic": ProbabilisticPCA(2, random_state=0),
    "Bayesian": BayesianPCA(2, random_state=0),
    "local": LocalPCA(1, 2, random_state=0),
}
EACH = pytest.mark.parametrize("name", ESTIMATORS)
ON_EVERY_LIBRARY = ["dense", "block Krylov", "landmarks", "inverse", "cosine", "PCA", "PCA, dual", "incremental"]
# No pre-image of sparse rows, no singular values of the data themselves, no mixture.
DENSE_ONLY = ("inverse", "fixed point", "distance constraint", "PCA", "local")
N, D = 80, 5


def rows(dtype: str = "float64", n: int = N, seed: int = 0) -> np.ndarray:
    """Return rows whose directions differ, off the origin."""
    return (data(n, D, seed) * np.linspace(3.0, 0.3, D) + 0.5).astype(dtype)


def answers(model: Any, X: Any) -> list[Any]:
    """Return what the methods of a fitted model give for X."""
    Z = model.transform(X)
    has_inverse = model.fit_inverse_transform or model.preimage if isinstance(model, KernelPCA) else True
    return [Z, model.inverse_transform(Z)] if has_inverse and not isinstance(model, LocalPCA) else [Z]


def bits(model: Any) -> dict[str, bytes]:
    return {name: value.tobytes() for name, value in vars(model).items() if isinstance(value, np.ndarray)}


@each("name", ON_EVERY_LIBRARY)
def test_results_live_where_the_input_does_and_have_its_dtype(xp: Namespace, dtype: str, name: str) -> None:
    X = xp.array(rows(dtype))
    model = clone(ESTIMATORS[name])
    scores = model.fit_transform(X)
    for found in (scores, *answers(model, X)):
        assert xp.owns(found)
        assert found.dtype == xp.dtype(dtype)
    before = xp.host(model.transform(xp.array(rows(dtype, 5, 1))))
    np.testing.assert_array_equal(xp.host(X), rows(dtype))
    if name != "no copy":
        X[...] = 666.0  # the model does not follow
        np.testing.assert_array_equal(xp.host(model.transform(xp.array(rows(dtype, 5, 1)))), before)


@EACH
def test_read_only_rows_memory_maps_and_any_layout_give_the_same(name: str, tmp_path: Path) -> None:
    X, new = rows(), rows(n=9, seed=1)
    X.flags.writeable = False
    np.save(tmp_path / "X.npy", X)
    before = (tmp_path / "X.npy").read_bytes()
    expected = clone(ESTIMATORS[name]).fit(X).transform(new)
    size = np.abs(expected).max()
    for given in (np.load(tmp_path / "X.npy", mmap_mode="r"), np.asfortranarray(X), X[::-1][::-1], X.tolist()):
        model = clone(ESTIMATORS[name]).fit(given)
        assert type(model.transform(given)) is np.ndarray
        np.testing.assert_allclose(model.transform(new), expected, rtol=0, atol=1e-7 * size)
    assert (tmp_path / "X.npy").read_bytes() == before


@EACH
@pytest.mark.filterwarnings("ignore:K is nearly the identity")
def test_integers_are_the_numbers_they_are(name: str) -> None:
    X = np.round(4 * rows()).astype(np.int16)
    found, expected = (clone(ESTIMATORS[name]).fit(given).transform(X) for given in (X, X.astype(np.float64)))
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-7 * np.abs(expected).max())


@EACH
def test_a_failed_fit_leaves_the_old_model(name: str) -> None:
    pandas = pytest.importorskip("pandas")
    new = pandas.DataFrame(rows(n=8, seed=5), columns=list("abcde"))
    model = clone(ESTIMATORS[name]).fit(pandas.DataFrame(rows(), columns=list("abcde")))
    before, scores = dict(vars(model)), model.transform(new)
    wrong = pandas.DataFrame(rows(), columns=list("vwxyz"))
    wrong.iloc[7, 3] = np.inf
    for given in (wrong, rows()[:0], rows() * np.nan, rows()[0]):
        with pytest.raises(ValueError, match=r"infinity|sample|NaN|missing|2D|observed"):
            model.fit(given)
    assert list(vars(model)) == list(before)
    assert all(vars(model)[key] is value for key, value in before.items())
    np.testing.assert_array_equal(model.transform(new), scores)
    assert list(model.feature_names_in_) == list("abcde")


@EACH
def test_copies_clones_and_second_fits_give_the_same_bits(name: str) -> None:
    X, new = rows(), rows(n=9, seed=1)
    model = clone(ESTIMATORS[name]).fit(X)
    for twin in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model), copy.copy(model), clone(model).fit(X)):
        for found, expected in zip(answers(twin, new), answers(model, new), strict=True):
            np.testing.assert_array_equal(found, expected)
        assert bits(twin) == bits(model)
    assert bits(clone(model).fit(X).fit(X)) == bits(model)
    assert set(vars(clone(model))) == set(model.get_params(deep=False))


def test_a_warning_that_is_an_error_leaves_the_old_model() -> None:
    for model, parameters, given, warning in (
        (KernelPCA(3, kernel="rbf"), {"n_components": N + 1}, rows(), RankWarning),
        (LocalPCA(2, 1, random_state=0), {"max_iter": 1}, rows(), ConvergenceWarning),
        (IncrementalPCA(2), {}, np.ones((N, D)), RankWarning),
    ):
        before = dict(vars(model.fit(rows()).set_params(**parameters)))
        with pytest.raises(warning):
            model.fit(given)
        assert list(vars(model)) == list(before)
        assert all(vars(model)[key] is value for key, value in before.items())


@EACH
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_threads_and_forks_fit_and_share_a_model_as_if_alone(name: str) -> None:
    X, new = rows(), rows(n=9, seed=1)
    model = clone(ESTIMATORS[name]).fit(X)
    expected = [answer.tobytes() for answer in answers(model, new)]

    def has_the_same_bits(_: int = 0) -> bool:
        twin = clone(ESTIMATORS[name]).fit(X)
        found = [[answer.tobytes() for answer in answers(one, new)] for one in (model, twin)]
        return bits(twin) == bits(model) and found == [expected, expected]

    with ThreadPoolExecutor(3) as pool:
        assert all(pool.map(has_the_same_bits, range(6)))
    if sys.platform == "linux":  # Apple's BLAS does not survive a fork
        assert in_a_process(lambda: str(has_the_same_bits())) == "True"


def test_a_new_field_of_a_fit_is_an_attribute() -> None:
    for name in ("landmarks", "PCA", "incremental", "probabilistic", "local"):
        model = clone(ESTIMATORS[name]).fit(rows())
        before, fit = set(vars(model)), model._result
        wider: Any = dataclasses.make_dataclass(
            "Wider",
            [("new", np.ndarray, field_of("n", "", default=None))],
            bases=(type(fit),),
            frozen=True,
            kw_only=True,
        )
        kept = {field.name: getattr(fit, field.name) for field in dataclasses.fields(fit)}
        host = np.empty(0)
        model._publish(wider(**kept, new=np.arange(3.0)), Placement(host, host))
        assert set(vars(model)) == before | {"new_"}, name
        np.testing.assert_array_equal(model.new_, [0.0, 1.0, 2.0])


@EACH
def test_sparse_rows_are_rows_or_refused(name: str) -> None:
    X = np.where(rows() > 0.5, rows(), 0.0)
    sparse, model = scipy.sparse.csr_array(X), clone(ESTIMATORS[name])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = clone(model).fit(X).transform(X)
        if name in DENSE_ONLY:
            with pytest.raises((TypeError, ValueError), match="sparse"):
                model.fit(sparse)
            return
        scores = model.fit(sparse).transform(sparse)
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


class Exhausted(RuntimeError):
    """Stand for the error of a device whose memory is full."""


class Reads:
    """Batches, of which a read fails once."""

    def __init__(self, X: np.ndarray, fails: int) -> None:
        self.X, self.left = X, fails

    def __iter__(self) -> Iterator[np.ndarray]:
        for part in np.array_split(self.X, 4):
            self.left -= 1
            if not self.left:
                raise Exhausted
            yield part


def test_every_fit_of_batches_is_repeated_where_a_device_runs_out_of_memory(monkeypatch: Any) -> None:
    X = rows("float64")
    names = "gpukpca.algorithms.resources.is_out_of_device_memory"
    monkeypatch.setattr(names, lambda error, like: isinstance(error, Exhausted))
    landmarks = KernelPCA(**RBF, eigen_solver=Nystrom(landmarks=X[:20]))
    for model in (PCA(2), IncrementalPCA(2), ProbabilisticPCA(2, random_state=0), landmarks):
        expected = clone(model).fit(Reads(X, 0)).transform(X)
        for fails in (2, 3, 7):
            np.testing.assert_array_equal(clone(model).fit(Reads(X, fails)).transform(X), expected)
        if isinstance(model, IncrementalPCA | KernelPCA):  # batches that an attempt has read are gone
            before = vars(model.fit(X)).copy()
            with pytest.raises(MemoryBudgetError, match="memory ran out"):
                model.fit(iter(Reads(X, 3)))
            assert vars(model) == before


@pytest.mark.parametrize(
    ("name", "dtype"), [*((name, "float64") for name in ESTIMATORS), *((name, "float32") for name in ON_EVERY_LIBRARY)]
)
@pytest.mark.filterwarnings("ignore::gpukpca.exceptions.ConvergenceWarning")
def test_host_data_are_computed_on_the_device_and_come_back(cuda: Any, dtype: str, name: str) -> None:
    X, new = rows(dtype), rows(dtype, 9, 1)
    host = clone(ESTIMATORS[name]).fit(X)
    model = clone(ESTIMATORS[name]).set_params(device="cuda").fit(X)
    assert model.device_.startswith("cuda:0")
    for value in (*vars(model).values(), *answers(model, X)):
        assert not isinstance(value, cuda.ndarray)
    bound = 1e-6 if dtype == "float64" else 5e-3
    for found, expected in zip(answers(model, new), answers(host, new), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=bound * max(1.0, np.abs(expected).max()))
        assert found.dtype == dtype
    assert isinstance(model.transform(cuda.asarray(new)), cuda.ndarray)
    stays = clone(ESTIMATORS[name]).fit(cuda.asarray(X))
    for twin in (stays, copy.copy(stays), copy.deepcopy(stays)):
        scores = twin.transform(cuda.asarray(new))
        assert isinstance(scores, cuda.ndarray)
        np.testing.assert_allclose(scores.get(), answers(host, new)[0], rtol=0, atol=bound * 10)
