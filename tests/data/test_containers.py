"""One table of containers and estimators: every container of the same rows gives the same results, or is refused."""

from __future__ import annotations

import ast
import collections
import contextlib
import copy
import itertools
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone

import gpukpca
from gpukpca import (
    PCA,
    Batches,
    BayesianPCA,
    IncrementalPCA,
    KernelPCA,
    KernelPCACV,
    LocalPCA,
    Nystrom,
    ProbabilisticPCA,
    double_center,
    gram_matrix,
    kernel_matmat,
    kernels,
    residuals,
    variable_correlations,
)
from gpukpca.algorithms import fit_kernel_pca, fit_pca
from gpukpca.decomposition import inertia, intrinsic_dimension, reconstruction_error, squared_cosines
from gpukpca.exceptions import InvalidParameterError
from gpukpca.model_selection import n_components_for
from tests import tolerances
from tests.containers import CONTAINERS, NumpySlices, Slices

N, D = 90, 6
SVD_SOLVERS = ("auto", "covariance_eigh", "dual", "full", "tsqr", "randomized", "arpack")


HELD = (
    *("Fortran order", "strides", "list", "memory map", "pandas frame", "polars frame", "CSR", "CSC", "COO"),
    *("view of CSR", "set of NumPy", "sparse set", "short batches", "sparse batches", "Dask"),
)
RBF = {"kernel": "rbf", "gamma": 0.1}
RBF_KERNEL = kernels.RBF(0.1)
ESTIMATORS = {
    "PCA": PCA(3),
    "PCA, scaled": PCA(3, scale=True, whiten=True),
    "PCA, full": PCA(3, svd_solver="full"),
    "PCA, randomized": PCA(2, svd_solver="randomized", tol=1e-13, random_state=0),
    "PCA, dual": PCA(3, svd_solver="dual"),
    "incremental": IncrementalPCA(3, batch_size=N),
    "KernelPCA": KernelPCA(3, **RBF),
    "KernelPCA, linear": KernelPCA(3),
    "KernelPCA, randomized": KernelPCA(2, eigen_solver="randomized", tol=1e-13, random_state=0, **RBF),
    "KernelPCA, Nystrom": KernelPCA(2, eigen_solver=Nystrom(rank=60), random_state=0, **RBF),
    "probabilistic": ProbabilisticPCA(3),
    "Bayesian": BayesianPCA(4),
    "local": LocalPCA(2, 2, random_state=0),
}
ITERABLES = ("short batches", "sparse batches")
ONE_ARRAY = (
    "takes one array here, and X is an iterable .* PCA, IncrementalPCA, ProbabilisticPCA, BayesianPCA and Kernel"
)
SPARSE = ("CSR", "CSC", "COO", "view of CSR")
# The estimators that a container does not suit, with the words of the refusal.
REFUSED: dict[tuple[str, str], str] = {
    **{("PCA, full", container): "sparse" for container in SPARSE},
    **{("local", container): "sparse" for container in (*SPARSE, "sparse set")},
    **{(name, "Dask"): r"X\.compute\(\)" for name in ("probabilistic", "Bayesian", "local")},
    **{("local", container): ONE_ARRAY for container in ITERABLES},
    **{
        (name, container): "an iterable of batches needs eigen_solver=gpukpca.Nystrom"
        for name in ("KernelPCA", "KernelPCA, linear", "KernelPCA, randomized")
        for container in ITERABLES
    },
}
# Results that depend on the batches, or on where EM stops.
DIFFER = {(name, container) for name in ("incremental",) for container in ITERABLES}
DIFFER.add(("incremental", "Dask"))  # chunk by chunk


@pytest.fixture(scope="module")
def X() -> np.ndarray:
    rng = np.random.default_rng(7)
    rows = rng.standard_normal((N, D)) * np.linspace(4.0, 0.5, D)
    rows[rng.random(rows.shape) < 0.3] = 0.0
    return rows


def held_by_all(X: np.ndarray, folder: Path) -> Iterator[tuple[str, Any]]:
    """Every container that is installed, by name, with the rows in it."""
    for name in HELD:
        if name in CONTAINERS:
            yield name, CONTAINERS[name](X, folder)


def results(model: Any, new: Any) -> dict[str, np.ndarray]:
    names = ("explained_variance_", "explained_variance_ratio_", "eigenvalues_", "mean_", "components_")
    found = {name: np.asarray(getattr(model, name)) for name in names if hasattr(model, name)}
    return found | {"transform": np.asarray(model.transform(new))}


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.filterwarnings("ignore:X (has|does not have valid) feature names")
def test_every_container_of_the_same_rows_gives_the_same(name: str, X: np.ndarray, tmp_path: Any) -> None:
    expected = results(clone(ESTIMATORS[name]).fit(X), X[:9])
    for container, given in held_by_all(X, tmp_path):
        model = clone(ESTIMATORS[name])
        if words := REFUSED.get((name, container)):
            with pytest.raises((TypeError, ValueError), match=words):
                model.fit(given)
            continue
        model.fit(given)
        if (name, container) in DIFFER:
            continue
        for key, found in results(model, X[:9]).items():
            size = np.max(np.abs(expected[key]))
            # The iterative solvers stop at 1e-13 of the largest eigenvalue: vectors follow by the gaps.
            room = 1e-6 if "randomized" in name or "Nystrom" in name else 3e3 * tolerances.eps("float64")
            np.testing.assert_allclose(found, expected[key], rtol=0, atol=room * size, err_msg=f"{container}: {key}")


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.filterwarnings("ignore:X (has|does not have valid) feature names")
def test_every_container_of_new_rows_gives_the_same_scores(name: str, X: np.ndarray, tmp_path: Any) -> None:
    model = clone(ESTIMATORS[name]).fit(X)
    expected = model.transform(X)
    for container, given in held_by_all(X, tmp_path):
        if name == "local" and container in (*SPARSE, "sparse set", "sparse batches"):
            with pytest.raises((TypeError, ValueError), match="sparse"):
                model.transform(given)
        else:
            size = np.max(np.abs(expected))
            found = np.asarray(model.transform(given))
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-11 * size, err_msg=container)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_scores_of_batches_are_those_of_all_rows(name: str, X: np.ndarray) -> None:
    model = clone(ESTIMATORS[name]).fit(X)
    expected, parts = model.transform(X), [X[:10], X[10:11], X[11:]]
    pairs = Batches([(part, None) for part in parts])
    for source in (Batches(parts), Batches(lambda: iter(parts)), iter(parts), pairs):
        np.testing.assert_allclose(model.transform(source), expected, rtol=0, atol=1e-11 * np.max(np.abs(expected)))
    p = expected.shape[1]
    if name != "local":  # which has no `out`
        out = np.full((N, p), np.nan)
        assert model.transform(iter(parts), out=out) is out
        np.testing.assert_allclose(out, expected, rtol=0, atol=1e-11 * np.max(np.abs(expected)))
        for wrong in (np.empty((N - 1, p)), np.empty((N + 1, p)), np.empty((N, p + 1)), np.empty((N, p), int), [0.0]):
            of_rows = isinstance(wrong, np.ndarray) and wrong.shape[1:] == (p,) and wrong.dtype.kind == "f"
            words = rf"out must be a writable NumPy array .* with shape \({N if of_rows else 'all rows'}, {p}\)"
            with pytest.raises(InvalidParameterError, match=words):
                model.transform(Batches(parts), out=wrong)
    for words, source in (
        ("batch 1: X has 4 features", Batches([X, X[:, :4]])),
        ("batch 1: .* infinity", Batches([X, np.full_like(X, np.inf)])),
        ("the iterable of batches is empty", Batches([])),
        ("batch 0: it is a dict; name its rows", iter([{"rows": X}])),
    ):
        with pytest.raises(ValueError, match=words):
            model.transform(source)
    if (name, "short batches") in REFUSED:
        with pytest.raises(InvalidParameterError, match=REFUSED[name, "short batches"]):
            clone(model).fit_transform(Batches(parts))
        return
    again = clone(model).fit(Batches(parts))
    found = clone(model).fit_transform(Batches(parts))
    np.testing.assert_allclose(found, again.transform(X), rtol=0, atol=1e-9 * np.max(np.abs(expected)))
    with pytest.raises(InvalidParameterError, match="reads the batches more than once"):
        clone(model).fit_transform(batches := iter(parts))
    assert len(list(batches)) == 3  # none of which was read


def test_partial_fit_adds_all_batches_or_none(X: np.ndarray) -> None:
    parts = [X[:10], X[10:11], X[11:60], X[60:]]
    nystrom = ESTIMATORS["KernelPCA, Nystrom"]
    for estimator in (ESTIMATORS["incremental"], nystrom, clone(nystrom).set_params(eigen_solver=Nystrom(rank=11))):
        expected = clone(estimator)
        for part in parts:
            expected.partial_fit(part)
        for source in (Batches(parts), iter(parts), Batches([(part, None) for part in parts])):
            model = clone(estimator).partial_fit(source)
            assert model.n_samples_seen_ == N
            for key, found in results(model, X).items():
                np.testing.assert_array_equal(found, results(expected, X)[key])
        begun = clone(estimator).partial_fit(Batches(parts[:3]))
        before = results(begun.partial_fit(Batches(parts[3:])), X)
        held = dict(vars(begun))
        for words, bad, weights in (
            ("batch 1: .* NaN", [X[:5], X[:5] * np.nan], None),
            ("batch 2: X has 4 features", [X[:5], X[5:9], X[:, :4]], None),
            ("the iterable of batches is empty", [], None),
            ("sample_weight is not taken", [X[:5]], np.ones(5)),
        ):
            with pytest.raises(ValueError, match=words):
                begun.partial_fit(Batches(bad), sample_weight=weights)
            assert vars(begun) == held
        assert all(np.array_equal(before[key], found) for key, found in results(begun, X).items())


@pytest.mark.filterwarnings("ignore:X (has|does not have valid) feature names")
def test_partial_fit_goes_on_after_a_fit_of_every_container(X: np.ndarray, tmp_path: Any) -> None:
    """And `fit` begins again, whatever held the rows before."""
    points = KernelPCA(2, eigen_solver=Nystrom(landmarks=X[:20]), **RBF)
    rule = ESTIMATORS["KernelPCA, Nystrom"]  # which chooses other landmarks in every container
    for name, estimator in (("incremental", ESTIMATORS["incremental"]), ("points", points), ("rule", rule)):
        expected = results(clone(estimator).partial_fit(X).partial_fit(X[:30]), X)
        model = clone(estimator)
        for container, given in held_by_all(X, tmp_path):
            assert model.fit(given).n_samples_seen_ == N, container
            assert model.partial_fit(X[:30]).n_samples_seen_ == N + 30, container
            if name == "rule" or (name, container) in DIFFER:
                continue
            for key, found in results(model, X).items():
                room = 1e-9 * np.max(np.abs(expected[key]))
                np.testing.assert_allclose(found, expected[key], atol=room, err_msg=f"{name}, {container}: {key}")


def test_every_fit_names_the_batch_and_changes_nothing(X: np.ndarray) -> None:
    infinite = np.where(np.arange(N)[:, None] == 70, np.inf, X)
    for name, estimator in ESTIMATORS.items():
        model = clone(estimator).fit(X)
        before = dict(vars(model))
        sources: list[tuple[Any, str]] = [(NumpySlices(infinite), "row 70, column 0")]
        if (name, "short batches") not in REFUSED:
            sources += [
                (Batches([X, infinite]), "batch 1: .*infinity.* row 70, column 0"),
                (Batches([X, X[:, :4]]), "batch 1: X has 4 features"),
                (Batches([X, 1j * X]), "batch 1: Complex data"),
                (Batches([X[:0], X]), "batch 0: Found array with 0 sample"),
                (Batches([]), "the iterable of batches is empty"),
            ]
        for source, words in sources:
            for fit in (model.fit, model.fit_transform):
                with pytest.raises(ValueError, match=words):
                    fit(source)
                assert vars(model) == before, (name, words)


@pytest.mark.filterwarnings("ignore::gpukpca.exceptions.GpuKPCAWarning")
def test_no_fit_has_more_components_than_rows(X: np.ndarray) -> None:
    few = X[:4]
    held = (few, scipy.sparse.csr_array(few), NumpySlices(few), Batches([few[:1], few[1:]]))
    for name, estimator in ESTIMATORS.items():
        for given in held:
            if name in ("local", "KernelPCA, Nystrom") or (name == "PCA, full" and given is held[1]):
                continue
            if given is held[3] and (name, "short batches") in REFUSED:
                continue
            model = clone(estimator).set_params(n_components=None).fit(given)
            assert model.transform(few).shape[1] <= 4, name
            if not name.startswith("KernelPCA"):  # which has as many as there are, and says so
                with pytest.raises(InvalidParameterError, match="n_components=5"):
                    clone(estimator).set_params(n_components=5).fit(given)


def test_scores_of_batches_are_of_one_library_or_a_frame(X: np.ndarray) -> None:
    strict = pytest.importorskip("array_api_strict")
    model, parts = PCA(3).fit(X), [strict.asarray(X[:20]), strict.asarray(X[20:])]
    scores = model.transform(Batches(parts))
    assert type(scores) is type(parts[0])
    np.testing.assert_allclose(np.asarray(scores), model.transform(X), atol=1e-12)
    with pytest.raises(gpukpca.exceptions.DeviceMismatchError, match="batch 1 is of numpy"):
        model.transform(Batches([parts[0], X[20:]]))
    pandas = pytest.importorskip("pandas")
    framed = IncrementalPCA(2).set_output(transform="pandas").fit_transform(Batches([X[:20], X[20:]]))
    assert isinstance(framed, pandas.DataFrame)
    assert framed.shape == (N, 2)


def test_other_results_of_rows_take_batches_too(X: np.ndarray) -> None:
    batches = Batches([X[:30], X[30:]])
    ridge = KernelPCA(3, preimage="ridge", **RBF).fit(X)
    for model in (ridge, PCA(3).fit(X), ProbabilisticPCA(2).fit(X)):
        np.testing.assert_allclose(model.score_samples(batches), model.score_samples(X), rtol=1e-9)
        assert np.isclose(model.score(batches), model.score(X), rtol=1e-9)
        scores = model.transform(X)
        points = model.inverse_transform(Batches([scores[:30], scores[30:]]))
        np.testing.assert_allclose(points, model.inverse_transform(scores), atol=1e-10)
    np.testing.assert_allclose(ridge.reconstruction_error(batches), ridge.reconstruction_error(X), rtol=1e-9)


def test_methods_of_one_table_send_batches_to_a_loop(X: np.ndarray) -> None:
    ridge, local = KernelPCA(3, preimage="ridge", **RBF).fit(X), LocalPCA(2, 1).fit(X)
    scores, K = local.transform(X), gram_matrix(RBF_KERNEL, X)
    given = KernelPCA(3, kernel="precomputed").fit(K)
    calls: tuple[tuple[np.ndarray, Callable[[Any], Any]], ...] = (
        (X, lambda batches: ridge.denoise(batches, return_info=True)),
        (K, lambda batches: given.feature_space_error(batches, diagonal=np.ones(len(X)))),
        (X, intrinsic_dimension),
        (scores, lambda batches: local.inverse_transform(batches, labels=np.zeros(len(X), dtype=int))),
    )
    for rows, call in calls:
        for batches in (Batches([rows[:30], rows[30:]]), Loader([rows[:30], rows[30:]]), iter([rows])):
            with pytest.raises(InvalidParameterError, match=r"an iterable of batches, .* call it for each batch"):
                call(batches)


def test_batches_of_frames_have_the_columns_of_the_fit(X: np.ndarray) -> None:
    whole = pytest.importorskip("pandas").DataFrame(X, columns=list("abcdef"))
    permuted = whole[list("bacdef")]
    for model in (PCA(2).fit(whole), KernelPCA(2, **RBF).fit(whole)):
        for number, first in enumerate((permuted[:40], whole[:40])):
            for call in (residuals, variable_correlations, lambda model, X: model.transform(X)):
                with pytest.raises(ValueError, match=f"batch {number}: .*\n*.*must be in the same order"):
                    call(model, Batches([first, permuted[40:]]))
        batches = Batches([whole[:40], whole[40:]])
        found, expected = variable_correlations(model, batches), variable_correlations(model, whole)
        np.testing.assert_allclose(found, expected, atol=1e-12)
        assert np.allclose(residuals(model, batches).residual_norms, residuals(model, whole).residual_norms, atol=1e-9)


def test_a_sparse_set_is_refused_by_its_first_row(X: np.ndarray) -> None:
    class Unread(Slices):
        def __getitem__(self, part: slice) -> Any:
            assert part == slice(0, 1)
            return self.rows[part]

    held = Unread(scipy.sparse.csr_matrix(X))
    for call, words in (
        (LocalPCA(2, 1).fit, r"sparse input. Pass X\[:\]\.toarray\(\)"),
        (KernelPCACV("rbf", n_components=[2]).fit, r"sparse rows .* pass X\[:\]\.toarray\(\)"),
        (IncrementalPCA(2).partial_fit, "sparse input"),
    ):
        with pytest.raises(TypeError, match=words):
            call(held)


def test_rows_and_slices_are_enough_for_a_set(X: np.ndarray) -> None:
    for estimator in (PCA(2), KernelPCA(2, **RBF), LocalPCA(2, 1, random_state=0)):
        expected = results(clone(estimator).fit(X), X)
        for key, found in results(clone(estimator).fit(Slices(X)), Slices(X)).items():
            np.testing.assert_allclose(found, expected[key], rtol=1e-9, atol=1e-9)


class Refilled:
    """Batches in one buffer, as read_direct of h5py, readinto and pinned memory fill it."""

    def __init__(self, rows: Any, size: int, entries: Any = lambda buffer: buffer) -> None:
        self.rows, self.size, self.entries = rows, size, entries

    def __iter__(self) -> Iterator[Any]:
        buffer = np.empty_like(self.rows[: self.size])
        for start in range(0, len(self.rows), self.size):
            buffer[:] = self.rows[start : start + self.size]
            yield self.entries(buffer)
            buffer[:] = np.nan  # also while the next one is read


def refilled_by_all(X: np.ndarray) -> Iterator[tuple[str, Any]]:
    yield "buffer", Refilled(X, 15)
    yield "rows and labels", Refilled(X, 15, lambda buffer: (buffer, np.zeros(15)))
    yield "part of a buffer", Refilled(np.c_[X, X], 15, lambda buffer: buffer[:, : X.shape[1]])
    yield "frame", Refilled(X, 15, lambda buffer: pytest.importorskip("pandas").DataFrame(buffer, copy=False))


def test_batches_may_be_in_one_buffer_that_is_filled_again(X: np.ndarray) -> None:
    doors = {
        **{f"PCA, {solver}": PCA(2, svd_solver=solver, random_state=0) for solver in ("auto", "dual", "full")},
        "PCA, randomized": PCA(2, svd_solver="randomized", tol=1e-12, random_state=0),
        "incremental": IncrementalPCA(2),
        "probabilistic": ProbabilisticPCA(2),
        "Bayesian": BayesianPCA(3),
        "first": KernelPCA(2, eigen_solver=Nystrom(rank=40), random_state=0, **RBF),
        "reservoir": KernelPCA(2, eigen_solver=Nystrom(rank=40, sample="reservoir"), random_state=0, **RBF),
        "numbers": KernelPCA(2, eigen_solver=Nystrom(landmarks=range(20)), **RBF),
    }
    model = KernelPCA(2, **RBF).fit(X)
    for kind, batches in refilled_by_all(X):
        copies = [np.array(batch[0] if isinstance(batch, tuple) else batch) for batch in batches]
        if not np.all(np.isfinite(copies[0])):
            continue
        for name, estimator in doors.items():
            expected = results(clone(estimator).fit(Batches(copies)), X)
            for source in (batches, iter(batches)):
                if source is not batches and name not in ("incremental", "first", "numbers"):
                    continue  # which read the batches more than once
                for key, found in results(clone(estimator).fit(source), X).items():
                    np.testing.assert_allclose(found, expected[key], rtol=1e-9, atol=1e-11, err_msg=f"{name}, {kind}")
        audit = residuals(model, batches)
        assert np.max(audit.residual_norms) < 1e-10 * model.eigenvalues_[0], kind
        for name in ("first", "incremental"):
            streamed, expected = clone(doors[name]), clone(doors[name])
            for batch, own in zip(batches, copies, strict=True):
                streamed.partial_fit(batch[0] if isinstance(batch, tuple) else batch)
                expected.partial_fit(own)
            np.testing.assert_allclose(streamed.transform(X), expected.transform(X), atol=1e-11, err_msg=name)


def graded_rows(shape: tuple[int, int], decay: float, seed: int) -> np.ndarray:
    """Return rows of which columns repeat, with standard deviations that fall by a factor."""
    rng, (n, d) = np.random.default_rng(seed), shape
    return (rng.standard_normal((n, 5)) * decay ** np.arange(5))[:, rng.integers(0, 5, d)]


@pytest.mark.parametrize("shape", [(15, 16), (24, 9), (12, 12)], ids=["wide", "tall", "square"])
@pytest.mark.filterwarnings("ignore::gpukpca.exceptions.GpuKPCAWarning")
def test_components_are_orthonormal_also_those_of_variance_0(shape: tuple[int, int], tmp_path: Any) -> None:
    """Whatever the solver, the container and the rank: an axis of variance 0 has length 1, and no variance."""
    counts = np.random.default_rng(0).integers(0, 4, shape[0])
    counts[:4] = 1
    options: list[tuple[dict[str, Any], np.ndarray]] = [({}, np.ones(shape[0])), ({}, counts)]
    options += [({"center": False}, np.ones(shape[0])), ({"scale": True}, counts)]
    for seed, (decay, dtype) in enumerate(
        [(0.4, "float32"), (0.4, "float32"), (0.4, "float64"), (0.1, "float32"), (1e-3, "float64"), (1e-3, "float32")]
    ):
        X, eps = graded_rows(shape, decay, seed).astype(dtype), np.finfo(dtype).eps
        held = [pair for pair in held_by_all(X, tmp_path) if pair[0] in ("memory map", "CSR", "short batches", "Dask")]
        for (parameters, weights), solver in itertools.product(options, SVD_SOLVERS):
            Z = np.repeat(X.astype(np.float64), weights.astype(int), axis=0)
            Z = Z - Z.mean(axis=0) * parameters.get("center", True)
            if parameters.get("scale"):
                Z = Z / np.std(Z, axis=0, ddof=1)
            singular = np.linalg.svd(Z, compute_uv=False)
            some = held if not parameters and seed == 0 else held[:2] if seed > 2 else []
            for name, given in [("array", X), *some]:
                if name == "CSR" and solver in ("full", "tsqr"):
                    continue
                model = PCA(svd_solver=solver, random_state=0, **parameters)
                model.fit(given, sample_weight=None if np.all(weights == 1) else weights)
                V = np.asarray(model.components_, dtype=np.float64)
                case = f"{name}, {solver}, {parameters}, {dtype}, seed {seed}, weighted {bool(np.any(weights != 1))}"
                assert np.max(np.abs(V @ V.T - np.eye(len(V)))) <= 100 * eps, case
                found = np.asarray(model.singular_values_, dtype=np.float64)
                room = 300 * eps * singular[0]
                np.testing.assert_allclose(found, singular[: len(found)], rtol=0, atol=room, err_msg=case)
                np.testing.assert_allclose(np.linalg.norm(Z @ V.T, axis=0), found, rtol=0, atol=room, err_msg=case)


class Corpus:
    """A set of Hugging Face, as far as it tells what it is; only `with_format` knows arrays."""

    def __init__(self, columns: dict[str, np.ndarray]) -> None:
        self.columns_, self.column_names, self.features = columns, list(columns), dict.fromkeys(columns)
        self.shape = (len(next(iter(columns.values()))), len(columns))

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key: Any) -> Any:
        return {name: column[key] for name, column in self.columns_.items()}

    def with_format(self, kind: str) -> Corpus:
        assert kind == "numpy"
        return self

    def to_pandas(self) -> Any:
        return pytest.importorskip("pandas").DataFrame({name: list(column) for name, column in self.columns_.items()})


def tables(X: np.ndarray) -> Iterator[tuple[Any, list[np.ndarray]]]:
    """Lists that are no table, and the tables that the ways out give which their error names, in its order."""
    n, labels = len(X), np.zeros(len(X))
    pandas = pytest.importorskip("pandas")
    images = [X[:4], X[4:8], X[8:12]]
    stacked = np.array([image.ravel() for image in images])
    for given in (images, tuple(images), collections.deque(images), [pandas.DataFrame(one) for one in images]):
        yield given, [stacked, X[:12]]
    yield [X[i : i + 1] for i in range(n)], [X, X]
    for given in ([X[:10], X[10:11], X[11:]], [pandas.DataFrame(X[:10]), pandas.DataFrame(X[10:])]):
        yield given, [X, X]
    yield [scipy.sparse.csr_array(X[:40]), scipy.sparse.csr_array(X[40:80])], [X[:80]]
    yield [(X[:40], labels[:40]), (X[40:], labels[40:])], [X]
    yield [[X[:40]], [X[40:]]], [X]
    yield list(X.reshape(-1, 1, 2, 3)), [X]
    yield (X[:40], X[40:]), [X[:40], X]
    for given in ((X, labels), [X, labels], (X, X[:, :2]), [X]):
        yield given, [X]
    yield [dict(zip("abcdef", row, strict=True)) for row in X], [X]
    yield [{"rows": X[:40]}, {"rows": X[40:]}], [X]
    yield {"rows": X}, [X]
    yield Corpus({"rows": X, "label": labels}), [X]
    yield Corpus(dict(zip("abcdef", X.T, strict=True))), [X]


WAY_OUT = r"(?:gpukpca\.|pandas\.|numpy\.|scipy\.|\b(?:[KY]|X(?:_new)?)[\[.]|batch\[)"


def ways_out(message: str) -> list[str]:
    """The calls that a message names, as Python: they end before what is said of them."""
    found = []
    for match in re.finditer(WAY_OUT, message):
        rest, longest = message[match.start() :], ""
        for stop in [k for k, sign in enumerate(rest + " ") if sign in " ,;." or k == len(rest)]:
            with contextlib.suppress(SyntaxError):
                body = ast.parse(call := rest[:stop].rstrip(",;. "), mode="eval").body
                longest = call if isinstance(body, ast.Call | ast.Subscript) else longest
        if longest and not any(longest in one for one in found):
            found.append(longest)
    return found


def doors(X: np.ndarray) -> dict[str, Any]:
    """Every call that takes rows, by name."""
    found: dict[str, Any] = {}
    for name, estimator in ESTIMATORS.items():
        fitted = clone(estimator).fit(X)
        found |= {f"{name}: fit": clone(estimator).fit, f"{name}: fit_transform": clone(estimator).fit_transform}
        for method in ("transform", "inverse_transform", "partial_fit", "plan", "score", "score_samples", "impute"):
            if hasattr(fitted, method):
                found[f"{name}: {method}"] = getattr(fitted, method)
    model, rows = PCA(2).fit(X), fit_pca(X, 2)
    return found | {
        "search": KernelPCACV("rbf", n_components=[2]).fit,
        "precomputed": KernelPCA(2, kernel="precomputed").fit,
        "residuals": lambda given: residuals(model, given),
        "variable_correlations": lambda given: variable_correlations(model, given),
        "variables": lambda given: variable_correlations(model, X, given),
        "reconstruction_error": lambda given: reconstruction_error(model, given),
        "squared_cosines": lambda given: squared_cosines(model, given),
        "intrinsic_dimension": intrinsic_dimension,
        "inertia": inertia,
        "n_components_for": lambda given: n_components_for(given, "variance"),
        "double_center": double_center,
        "gram_matrix": lambda given: gram_matrix(RBF_KERNEL, given),
        "new rows of a Gram matrix": lambda given: gram_matrix(RBF_KERNEL, X, given),
        "kernel_matmat": lambda given: kernel_matmat(RBF_KERNEL, X, given, np.ones((len(X), 1))),
        "fit_pca": lambda given: fit_pca(given, 2),
        "fit_kernel_pca": lambda given: fit_kernel_pca(given, RBF_KERNEL, 2),
        "transform of a fit": rows.transform,
    }


@pytest.mark.filterwarnings("ignore:partial_fit begins a new stream")
def test_no_door_takes_a_list_of_arrays(X: np.ndarray) -> None:
    """Samples or batches, rows and labels, two halves: a list of arrays is none of these without a word."""
    lists = {"arrays": [X[:6], X[6:12]], "one": [X], "tuple": (X[:40], X[40:]), "labels": (X, np.zeros(len(X)))}
    lists["pairs"] = [(X[:40], np.zeros(40)), (X[40:], np.zeros(50))]
    for door, call in doors(X).items():
        for kind, given in lists.items():
            with pytest.raises(InvalidParameterError) as caught:
                call(given)
            words = ways_out(str(caught.value))
            name = next(
                (one for one in ("X", "K", "Y", "X_new") if f"({one})" in str(words) or f"{one}[0]" in words), "X"
            )
            expected = {
                "arrays": [f"numpy.stack({name}).reshape(2, -1)", f"gpukpca.Batches({name})"],
                "tuple": [f"{name}[0]", f"gpukpca.Batches({name})"],
                "pairs": [f"{name}[0][0]", f"gpukpca.Batches({name})"],
            }
            assert words == expected.get(kind, [f"{name}[0]"]), f"{door}, {kind}: {caught.value}"
            if f"gpukpca.Batches({name})" in words:  # which not every door takes
                assert "where each holds rows and the estimator reads batches" in str(caught.value)


def test_every_way_out_of_a_list_ends_in_its_table(X: np.ndarray) -> None:
    names = {"gpukpca": gpukpca, "numpy": np, "scipy": scipy, "pandas": pytest.importorskip("pandas")}
    for given, expected in tables(X):
        with pytest.raises(InvalidParameterError) as caught:
            PCA(2).fit(given)
        found = []
        for way in ways_out(str(caught.value)):
            with contextlib.suppress(TypeError, ValueError):  # a better error
                found.append(PCA(2).fit(eval(way, names | {"X": given})).explained_variance_)
        wanted = [np.linalg.eigvalsh(np.cov(table.T))[::-1][:2] for table in expected]
        for numbers in wanted:
            assert any(np.allclose(numbers, one, rtol=1e-9) for one in found), caught.value


class Loader:
    """Batches that come again, as those of a loader of PyTorch."""

    def __init__(self, batches: list[Any]) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batches)


def test_batches_of_a_loader_have_their_sentence(X: np.ndarray) -> None:
    """Rows and labels are taken; images, dictionaries and lists of samples name the call that has their rows."""
    expected, labels = PCA(2).fit(X).explained_variance_, np.zeros(30)
    images = X.reshape(-1, 1, 2, 3)
    halves = (slice(0, 30), slice(30, None))
    loaders: dict[str, Any] = {
        "tuples": [(X[half], labels) for half in halves],
        "lists": [[X[half], labels] for half in halves],
        "lists of one": [[X[half]] for half in halves],
        "dictionaries": [{"pixels": X[half], "label": labels} for half in halves],
        "images and labels": [[images[half], labels] for half in halves],
        "lists of samples": [list(X[half].reshape(-1, 2, 3)) for half in halves],
    }
    for kind, batches in loaders.items():
        loader = Loader(batches)
        for estimator in (PCA(2), KernelPCA(2, eigen_solver=Nystrom(rank=20), random_state=0), IncrementalPCA(2)):
            model, given = clone(estimator), loader
            if kind not in ("tuples", "lists", "lists of one"):
                with pytest.raises(InvalidParameterError, match=r"^batch 0: it is a (dict|list); ") as caught:
                    model.fit(loader)
                (way,) = ways_out(str(caught.value).partition("; ")[2])
                given = eval(way, {"gpukpca": gpukpca, "numpy": np, "loader": loader})
            found = model.fit(given).explained_variance_
            if not isinstance(model, IncrementalPCA):
                np.testing.assert_allclose(found, expected, rtol=1e-9, err_msg=kind)


def test_what_batches_are_made_of(X: np.ndarray) -> None:
    expected = PCA(2).fit(X).explained_variance_
    halves = [X[:40], X[40:]]
    for source in (halves, tuple(halves), collections.deque(halves), lambda: iter(halves), lambda: halves):
        np.testing.assert_allclose(PCA(2).fit(Batches(source)).explained_variance_, expected, rtol=1e-9)
    for copied in (
        copy.copy,
        copy.deepcopy,
        lambda one: pickle.loads(pickle.dumps(one)),
        lambda one: clone(one, safe=False),
    ):
        np.testing.assert_allclose(PCA(2).fit(copied(Batches(halves))).explained_variance_, expected, rtol=1e-9)
    again = Batches(lambda: Refilled(X, 15))  # one buffer
    np.testing.assert_allclose(PCA(2, svd_solver="dual").fit(again).explained_variance_, expected, rtol=1e-9)
    for source in (iter(halves), (one for one in halves), X, {"rows": X}, None, 3, Refilled(X, 15)):
        with pytest.raises(InvalidParameterError, match=r"source is of type .*; give a list of arrays"):
            Batches(source)  # type: ignore[arg-type]
    for source, words in (
        ([], "empty"),
        (lambda: None, "returned None, and not an iter"),
        ([X, X[:, :2]], "batch 1: "),
        ("ab", "batch 0: "),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            PCA(2).fit(Batches(source))
    once = iter(halves)
    with pytest.raises(InvalidParameterError, match="the first pass gave 90 rows, a later one 0"):
        PCA(2).fit(Batches(lambda: once))


def test_an_iterator_that_is_refused_loses_no_batch(X: np.ndarray) -> None:
    """The next fit would go without the batches that the refusal had read."""
    model, stream = PCA(2).fit(X), KernelPCA(2, eigen_solver=Nystrom(rank=5))
    refusals = (
        PCA(2).fit,
        PCA(2).plan,
        stream.plan,
        ProbabilisticPCA(2).fit,
        lambda batches: residuals(model, batches),
        lambda batches: variable_correlations(model, batches),
    )
    for refuse in refusals:
        batches = iter([X[:40], X[40:]])
        with pytest.raises(InvalidParameterError, match="reads the batches more than once, and an iterator"):
            refuse(batches)
        assert IncrementalPCA(2).fit(batches).n_samples_seen_ == len(X)
    for call in (IncrementalPCA(2).fit, IncrementalPCA(2).partial_fit, stream.fit, stream.partial_fit):
        batches = iter([X[:40], X[40:]])
        with pytest.raises(InvalidParameterError, match="sample_weight is not taken with batches"):
            call(batches, sample_weight=np.ones(len(X)))
        assert IncrementalPCA(2).fit(batches).n_samples_seen_ == len(X)


def test_what_is_no_table_has_a_sentence_instead_of_the_error_of_numpy(X: np.ndarray) -> None:
    row, labels = X[0], np.zeros(len(X))
    ragged = (
        ([[1.0, 2.0], [3.0]], "list of 2 items with 1 to 2 entries"),
        ((row[:2], row[:3]), "tuple of 2 items with 2 to 3 entries"),
        ([row, X], "list of 2 items with 6 to 90 entries"),
        (Batches([(labels, X)]), "batch 0: X is a tuple of 2 items with 90 to 90 entries"),
        (
            [[1.0, 2.0], [3.0, [4.0, 5.0]]],
            r"an entry is a sequence, and no number \(column 1, row 1 of X\)\. Leave out",
        ),
        (["a", "b"], "Expected 2D array, got 1D array"),
        ([None, None], "Expected 2D array, got 1D array"),
        (X.reshape(-1, 2, 3).tolist(), r"with dim 3, .* numpy\.reshape\(X, \(len\(X\), -1\)\) if each"),
    )
    for given, words in ragged:
        for estimator in (PCA(2), KernelPCA(2), IncrementalPCA(2), ProbabilisticPCA(1), LocalPCA(2, 1)):
            if isinstance(given, Batches) and isinstance(estimator, KernelPCA | LocalPCA):
                continue
            with pytest.raises(ValueError, match=words) as caught:
                estimator.fit(given)
            assert "inhomogeneous" not in str(caught.value)
    found = PCA(2).fit(np.reshape(X.reshape(-1, 2, 3).tolist(), (len(X), -1))).explained_variance_
    np.testing.assert_allclose(found, PCA(2).fit(X).explained_variance_, rtol=1e-9)


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_matrices_of_numpy_are_rows_and_fields_are_none(X: np.ndarray) -> None:
    for name, estimator in ESTIMATORS.items():
        expected = results(clone(estimator).fit(X), X)
        for key, found in results(clone(estimator).fit(np.matrix(X)), np.matrix(X)).items():
            np.testing.assert_allclose(found, expected[key], rtol=1e-9, atol=1e-9, err_msg=name)
            assert type(found) is np.ndarray
    three = np.array([tuple(row) for row in X], dtype=[(name, "f8") for name in "abcdef"])
    one = X[:, :1].copy().view([("a", "f8")])
    for given, table in ((three, X), (three[["a", "c"]], X[:, [0, 2]]), (one[:, 0], X[:, :1]), (one, X[:, :1])):
        with pytest.raises(InvalidParameterError, match="structured array with the field") as caught:
            PCA(1).fit(given)
        (way,) = ways_out(str(caught.value))
        found = PCA(1).fit(eval(way, {"numpy": np, "X": given})).explained_variance_
        np.testing.assert_allclose(found, np.linalg.eigvalsh(np.atleast_2d(np.cov(table.T)))[-1:], rtol=1e-9)
