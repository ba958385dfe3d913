"""The table of faults: one entry for each row of bad or extreme input to `KernelPCA`, and what it gets.

A row either raises (`error`: class and a part of the text) or gives the right result (`check`), with exactly the
warnings named (`warns`). `tests/test_faults.py` runs the rows. Functions make the data, so that every run has fresh
arrays; everything is seeded.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.exceptions import NotFittedError

from gpukpca import kernels
from gpukpca.exceptions import (
    ConvergenceWarning,
    IndefiniteKernelError,
    IndefiniteKernelWarning,
    InvalidParameterError,
    MemoryBudgetError,
    PrecisionWarning,
    RankWarning,
)
from gpukpca.gram.storage import TiledStorage
from tests import tolerances

U = float(np.finfo(np.float64).eps)
U32 = float(np.finfo(np.float32).eps)
Warned = tuple[type[Warning], str]


@dataclass(frozen=True)
class Case:
    """One row.

    Attributes
    ----------
    row : str
        Its number in the list of faults, with a letter where a row has several inputs.
    what : str
    parameters : dict
        Of `KernelPCA`.
    fit : callable
        Makes the input of `fit`.
    method : str, optional
        What is called on the fitted estimator, with `given`; else `fit` is what is tried.
    fitted : bool
        False: `method` is called without `fit`.
    error : (class, part of the text), optional
    warns : tuple of (class, part of the text)
        All that may be warned of, each at least once.
    check : callable, optional
        ``check(estimator, X, result)`` asserts the right result; `result` is what `method` returned.
    everywhere : bool
        The row holds for the arrays of every library.
    """

    row: str
    what: str
    parameters: dict[str, Any] = field(default_factory=dict)
    fit: Callable[[], Any] = lambda: data()
    method: str | None = None
    given: Callable[[], Any] = lambda: data()
    fitted: bool = True
    error: tuple[type[BaseException], str] | None = None
    warns: tuple[Warned, ...] = ()
    check: Callable[[Any, Any, Any], None] | None = None
    everywhere: bool = False

    def __str__(self) -> str:
        return f"{self.row}-{self.what}".replace(" ", "_")[:60]


# -- data ------------------------------------------------------------------------------------------------------------


def data(n: int = 30, d: int = 4, seed: int = 0) -> np.ndarray:
    """Normal numbers."""
    return np.random.default_rng(seed).standard_normal((n, d))


def with_value(value: float, X: np.ndarray | None = None, at: tuple[int, int] = (3, 2)) -> np.ndarray:
    """Data with one entry replaced."""
    X = data() if X is None else X
    X[at] = value
    return X


def objects_with_dict() -> np.ndarray:
    X = data().astype(object)
    X[0, 0] = {"a": 1}
    return X


def hypercube(d: int = 8) -> np.ndarray:
    return np.array(list(itertools.product([-1.0, 1.0], repeat=d)))


def circle(n: int = 64) -> np.ndarray:
    angles = 2.0 * np.pi * np.arange(n) / n
    return np.column_stack([np.cos(angles), np.sin(angles)])


def with_outlier(factor: float) -> np.ndarray:
    """Data whose first row is far away: that must not cost the others their digits."""
    X = data()
    X[0] *= factor
    return X


def linear_gram(n: int = 30) -> np.ndarray:
    X = data(n)
    return X @ X.T


def with_spectrum(values: np.ndarray, seed: int = 0) -> np.ndarray:
    """A centered symmetric matrix with these eigenvalues and one 0, for the constant vector."""
    n = len(values) + 1
    columns = np.random.default_rng(seed).standard_normal((n, n))
    columns[:, 0] = 1.0
    Q = np.linalg.qr(columns)[0][:, 1:]
    K = (Q * values) @ Q.T
    return (K + K.T) / 2


def wide_sparse(n: int = 40, d: int = 4_000_000) -> Any:
    """CSR rows that would be 1.3 GB as a dense array."""
    rng = np.random.default_rng(1)
    entries = (rng.standard_normal(20 * n), (np.repeat(np.arange(n), 20), rng.integers(0, d, 20 * n)))
    return scipy.sparse.csr_array(entries, shape=(n, d))


INDEFINITE = np.diag([5.0, 4.0, 3.0, -3.0, -4.0])


# -- right answers ---------------------------------------------------------------------------------------------------


def centered(K: np.ndarray) -> np.ndarray:
    K = np.asarray(K, dtype=np.float64)
    return K - K.mean(axis=0)[None, :] - K.mean(axis=1)[:, None] + K.mean()


def spectrum(K: np.ndarray, p: int) -> np.ndarray:
    """Largest p eigenvalues of the centered matrix, from LAPACK in float64."""
    return np.linalg.eigvalsh(centered(K))[::-1][:p]


def gaussian(X: np.ndarray, gamma: float) -> np.ndarray:
    """The RBF kernel matrix from differences."""
    differences = X[:, None, :] - X[None, :, :]
    return np.exp(-gamma * np.sum(differences * differences, axis=2))


def pca_spectrum(X: np.ndarray, p: int) -> np.ndarray:
    return np.linalg.svd(X - X.mean(axis=0), compute_uv=False)[:p] ** 2


def eigenvalues_are(expected: Callable[[Any], np.ndarray], rtol: float = 1e-10, atol: float = 0.0) -> Any:
    """A check of `eigenvalues_` against a function of X."""

    def check(estimator: Any, X: Any, result: Any) -> None:
        np.testing.assert_allclose(estimator.eigenvalues_, expected(X), rtol=rtol, atol=atol)

    return check


def all_zero(p: int) -> Any:
    """p components without variance: eigenvalues, ratios and scores exactly zero."""

    def check(estimator: Any, X: Any, result: Any) -> None:
        assert estimator.eigenvalues_.shape == (p,)
        assert not np.any(estimator.eigenvalues_)
        assert not np.any(estimator.explained_variance_ratio_)
        assert not np.any(estimator.transform(X))

    return check


def empty(estimator: Any, X: Any, result: Any) -> None:
    assert estimator.eigenvalues_.shape == (0,)
    assert estimator.transform(X).shape == (len(X), 0)


def same_as(parameters: dict[str, Any], other: Callable[[Any], Any], rtol: float = 1e-10) -> Any:
    """The eigenvalues that another input gives."""

    def check(estimator: Any, X: Any, result: Any) -> None:
        from gpukpca import KernelPCA

        expected = KernelPCA(**parameters).fit(other(X)).eigenvalues_
        np.testing.assert_allclose(estimator.eigenvalues_, expected, rtol=rtol)

    return check


def last_is_exactly_zero(estimator: Any, X: Any, result: Any) -> None:
    assert estimator.eigenvalues_[-1] == 0.0
    assert np.all(estimator.eigenvalues_[:-1] > 0)
    assert not np.any(estimator.transform(X)[:, -1])


def fraction_is_smallest(estimator: Any, X: Any, result: Any) -> None:
    values = spectrum(gaussian(X, 0.25), len(X))
    ratios = np.cumsum(values) / np.sum(values)
    assert len(estimator.eigenvalues_) == int(np.flatnonzero(ratios >= 0.95)[0]) + 1
    np.testing.assert_allclose(estimator.explained_variance_ratio_.sum(), ratios[len(estimator.eigenvalues_) - 1])


def identity_matrix_spectrum(estimator: Any, X: Any, result: Any) -> None:
    """K = I: eigenvalue 1 with multiplicity n - 1."""
    dtype = X.dtype.name
    np.testing.assert_allclose(estimator.eigenvalues_, np.ones(len(X) - 1), rtol=tolerances.eigenvalue(dtype))
    assert np.max(estimator.residual_norms_) <= tolerances.residual(dtype)


def fit_and_transform_agree(estimator: Any, X: Any, result: Any) -> None:
    """Row E1: to 100 u sqrt(lambda_1) lambda_1 / lambda_i a column."""
    values = estimator.eigenvalues_
    scores = estimator.eigenvectors_ * np.sqrt(values)
    bound = 100 * np.finfo(values.dtype).eps * np.sqrt(values[0]) * values[0] / values
    assert np.all(np.max(np.abs(estimator.transform(X) - scores), axis=0) <= bound + 100 * estimator.residual_norms_)


def orthonormal_with_small_residuals(estimator: Any, X: Any, result: Any) -> None:
    V = estimator.eigenvectors_
    np.testing.assert_allclose(V.T @ V, np.eye(V.shape[1]), atol=1e-12)
    assert np.max(estimator.residual_norms_) <= 1e-8 * estimator.eigenvalues_[0]


def hypercube_multiplicities(estimator: Any, X: Any, result: Any) -> None:
    """Eigenvalues of multiplicity 8 and 28."""
    np.testing.assert_allclose(estimator.eigenvalues_, spectrum(gaussian(X, 0.05), 36), rtol=1e-10)
    assert np.ptp(estimator.eigenvalues_[:8]) <= 1e-10
    orthonormal_with_small_residuals(estimator, X, result)


def gap_is_nothing(estimator: Any, X: Any, result: Any) -> None:
    assert estimator.gap_ is not None
    assert abs(estimator.gap_) <= 1e-10
    np.testing.assert_allclose(estimator.eigenvalues_, spectrum(gaussian(X, 1.0), 3), rtol=1e-10)


def five_then_zeros(estimator: Any, X: Any, result: Any) -> None:
    np.testing.assert_allclose(estimator.eigenvalues_[:5], pca_spectrum(X, 5), rtol=1e-9)
    assert not np.any(estimator.eigenvalues_[5:])
    assert not np.any(estimator.transform(X)[:, 5:])


def converged_truthfully(estimator: Any, X: Any, result: Any) -> None:
    """The residual that is stored is the true one, and within the tolerance."""
    K, V, values = centered(X), estimator.eigenvectors_, estimator.eigenvalues_
    true = np.linalg.norm(K @ V - V * values, axis=0)
    assert estimator.converged_
    assert np.all(true <= 1e-8 * values[0] * 1.01)
    np.testing.assert_allclose(estimator.residual_norms_, true, rtol=1e-3, atol=1e-13)
    np.testing.assert_allclose(values, spectrum(X, len(values)), rtol=1e-8)


def not_converged(estimator: Any, X: Any, result: Any) -> None:
    assert not estimator.converged_
    assert np.max(estimator.residual_norms_) > 1e-8 * estimator.eigenvalues_[0]


def symmetric_part_used(estimator: Any, X: Any, result: Any) -> None:
    np.testing.assert_allclose(estimator.eigenvalues_, spectrum((X + X.T) / 2, 2), rtol=1e-10)


def positive_part_is_the_denominator(estimator: Any, X: Any, result: Any) -> None:
    values = np.linalg.eigvalsh(centered(X))[::-1]
    expected = values[:1] / np.sum(np.maximum(values, 0.0))
    np.testing.assert_allclose(estimator.explained_variance_ratio_, expected, rtol=1e-10)


def reconstruction_of_pca(estimator: Any, X: Any, result: Any) -> None:
    mean = X.mean(axis=0)
    _, _, axes = np.linalg.svd(X - mean, full_matrices=False)
    expected = mean + (X - mean) @ axes[:2].T @ axes[:2]
    np.testing.assert_allclose(estimator.inverse_transform(estimator.transform(X)), expected, rtol=0, atol=1e-12)


def dense_equivalent(parameters: dict[str, Any]) -> Any:
    """A sparse input gives what the dense one gives, in fit and in transform."""

    def check(estimator: Any, X: Any, result: Any) -> None:
        from gpukpca import KernelPCA

        dense = KernelPCA(**parameters).fit(X.toarray())
        np.testing.assert_allclose(estimator.eigenvalues_, dense.eigenvalues_, rtol=1e-9)
        np.testing.assert_allclose(estimator.transform(X), dense.transform(X.toarray()), atol=1e-8)

    return check


def has_shape(*shape: int) -> Any:
    def check(estimator: Any, X: Any, result: Any) -> None:
        assert estimator.eigenvectors_.shape == shape

    return check


def smaller_path_is_recorded(estimator: Any, X: Any, result: Any) -> None:
    plan = estimator.plan_
    assert plan.predicted_bytes <= plan.available_bytes == 4 * 2**20
    assert isinstance(plan.storage, TiledStorage)
    assert plan.storage.cached_tiles < plan.storage.tiles
    assert plan.notes
    np.testing.assert_allclose(estimator.eigenvalues_, spectrum(gaussian(X, 1 / 3), 2), rtol=1e-8)


def ran_on_the_cpu(estimator: Any, X: Any, result: Any) -> None:
    assert "cpu" in estimator.device_.lower()


# -- kernels of users that misbehave ---------------------------------------------------------------------------------


def returns_array(x: Any, y: Any) -> Any:
    return np.ones(3)


def returns_text(x: Any, y: Any) -> Any:
    return "one"


def returns_none(x: Any, y: Any) -> Any:
    return None


def returns_nan(x: Any, y: Any) -> float:
    return float("nan")


def nan_for_one_pair(x: Any, y: Any) -> float:
    """NaN between rows 1 and 2 of `data()`."""
    X = data()
    pair = {float(x[0]), float(y[0])}
    return float("nan") if pair == {X[1, 0], X[2, 0]} else float(x @ y)


def raises(x: Any, y: Any) -> float:
    raise ZeroDivisionError("out of the kernel")


class WrongShape(kernels.RBF):
    def tile(self, a: Any, b: Any, out: Any = None) -> Any:
        return super().tile(a, b, out)[:, :-1]


class WrongDtype(kernels.RBF):
    def tile(self, a: Any, b: Any, out: Any = None) -> Any:
        return super().tile(a, b, out).astype(np.float32)


class WrongType(kernels.RBF):
    def tile(self, a: Any, b: Any, out: Any = None) -> Any:
        return super().tile(a, b, out).tolist()


class NanInATile(kernels.RBF):
    def tile(self, a: Any, b: Any, out: Any = None) -> Any:
        T = super().tile(a, b, out)
        T[0, -1] = np.nan
        return T


# -- the table -------------------------------------------------------------------------------------------------------

RBF2 = {"n_components": 2, "kernel": "rbf"}
INVERSE = {"n_components": 2, "kernel": "rbf", "fit_inverse_transform": True}
PRECOMPUTED = {"n_components": 2, "kernel": "precomputed"}
PRECOMPUTED_ALL = {"kernel": "precomputed"}
FULL = {"n_components": 5, "kernel": "precomputed"}
NO_VARIANCE = (RankWarning, "carry variance")
NOTHING_KEPT = (RankWarning, "none is kept")
TIED = (PrecisionWarning, "not separately determined")
NEGATIVE_DIAGONAL = (IndefiniteKernelWarning, "diagonal")
INVALID = InvalidParameterError
NOT_FITTED = (NotFittedError, "not fitted")

SHAPES = [
    Case("A1", "one dimension", fit=lambda: np.ones(5), error=(ValueError, "Reshape your data"), everywhere=True),
    Case("A2a", "scalar", fit=lambda: 3.0, error=(ValueError, "Expected 2D array, got scalar")),
    Case("A2b", "array scalar", fit=lambda: np.float64(3), error=(ValueError, "Expected 2D array, got scalar")),
    Case("A2c", "string", fit=lambda: "abc", error=(ValueError, "could not convert string")),
    Case("A2d", "strings", fit=lambda: [["a", "b"], ["c", "d"]], error=(ValueError, "could not convert string")),
    Case("A2e", "None", fit=lambda: None, error=(ValueError, "Expected 2D array, got scalar")),
    Case("A3", "three dimensions", fit=lambda: np.ones((2, 2, 2)), error=(ValueError, "dim 3"), everywhere=True),
    Case("A4", "no samples", fit=lambda: np.ones((0, 3)), error=(ValueError, "0 sample(s)"), everywhere=True),
    Case(
        "A5",
        "no features",
        fit=lambda: np.ones((4, 0)),
        error=(ValueError, "0 feature(s) (shape=(4, 0)) while a minimum of 1 is required"),
        everywhere=True,
    ),
    *[
        Case(
            "A6",
            f"one sample {kernel}",
            {"n_components": 1, "kernel": kernel},
            fit=lambda: data(1),
            warns=((RankWarning, "1 sample"),),
            check=all_zero(1),
        )
        for kernel in ("linear", "rbf", "poly", "sigmoid", "cosine", "laplacian", "matern", "rational_quadratic")
    ],
    Case(
        "A6",
        "one sample precomputed",
        {"n_components": 1, "kernel": "precomputed"},
        fit=lambda: np.array([[2.0]]),
        warns=((RankWarning, "1 sample"),),
        check=all_zero(1),
    ),
    Case("A6", "one sample all components", {"kernel": "rbf"}, fit=lambda: data(1), warns=(NOTHING_KEPT,), check=empty),
    Case("A6", "one sample all components linear", fit=lambda: data(1), warns=(NOTHING_KEPT,), check=empty),
    Case(
        "A7",
        "two samples",
        {"n_components": 1, "kernel": "rbf", "gamma": 0.3},
        fit=lambda: data(2),
        check=eigenvalues_are(lambda X: np.array([1.0 - gaussian(X, 0.3)[0, 1]]), rtol=10 * U),
    ),
    Case(
        "A7",
        "two samples linear",
        {"n_components": 1},
        fit=lambda: data(2),
        check=eigenvalues_are(lambda X: np.array([np.sum((X[0] - X[1]) ** 2) / 2]), rtol=10 * U),
    ),
    Case(
        "A8",
        "one feature",
        RBF2,
        fit=lambda: data(30, 1),
        check=eigenvalues_are(lambda X: spectrum(gaussian(X, 1.0), 2)),
    ),
    Case(
        "A9",
        "more components than samples",
        {"n_components": 40, "kernel": "rbf"},
        warns=((RankWarning, "n_components=40 is more than the 30 sample(s)"), NO_VARIANCE),
        check=has_shape(30, 30),
    ),
    Case(
        "A9",
        "far more components than samples",
        {"n_components": 10**30, "kernel": "rbf"},
        warns=((RankWarning, "is more than the 30 sample(s)"), NO_VARIANCE),
        check=has_shape(30, 30),
    ),
    Case(
        "A10",
        "as many components as samples",
        {"n_components": 30, "kernel": "rbf"},
        warns=((RankWarning, "only 29 of the 30"),),
        check=last_is_exactly_zero,
    ),
    Case("A10", "all components", {"kernel": "rbf"}, check=has_shape(30, 29)),
    *[
        Case("A11", f"n_components {value!r}", {"n_components": value}, error=(INVALID, f"n_components={value!r}"))
        for value in (0, -1, 2.5, 1.0, 0.0, "3", math.nan, math.inf, [2], (2,), 2 + 0j)
    ],
    Case(
        "A11",
        "n_components array",
        {"n_components": np.array([1, 2])},
        error=(INVALID, "n_components=array"),
    ),
    Case("A12", "n_components True", {"n_components": True}, error=(INVALID, "n_components=True")),
    Case("A13", "fraction", {"n_components": 0.95, "kernel": "rbf"}, check=fraction_is_smallest),
    Case(
        "A13",
        "fraction randomized",
        {"n_components": 0.95, "kernel": "rbf", "eigen_solver": "randomized", "random_state": 0},
        check=fraction_is_smallest,
    ),
]

VALUES = [
    Case("A14", "NaN", fit=lambda: with_value(np.nan), error=(ValueError, "contains NaN: 1 value"), everywhere=True),
    Case("A14", "NaN row", fit=lambda: with_value(np.nan), error=(ValueError, "first in row 3"), everywhere=True),
    Case(
        "A14",
        "NaN in transform",
        RBF2,
        method="transform",
        given=lambda: with_value(np.nan),
        error=(ValueError, "contains NaN"),
        everywhere=True,
    ),
    Case(
        "A14",
        "NaN in inverse",
        INVERSE,
        method="inverse_transform",
        given=lambda: with_value(np.nan, data(5, 2), (1, 1)),
        error=(ValueError, "contains NaN"),
        everywhere=True,
    ),
    Case(
        "A14",
        "NaN sparse",
        fit=lambda: scipy.sparse.csr_array(with_value(np.nan)),
        error=(ValueError, "first in row 3"),
    ),
    *[
        Case("A15", f"{value}", fit=lambda v=value: with_value(v), error=(ValueError, "infinity"), everywhere=True)
        for value in (np.inf, -np.inf)
    ],
    Case(
        "A15",
        "both infinities",
        fit=lambda: with_value(-np.inf, with_value(np.inf), (7, 0)),
        error=(ValueError, "contains infinity"),
        everywhere=True,
    ),
    Case(
        "A15",
        "sum overflows rbf",
        {"kernel": "rbf"},
        fit=lambda: 1e307 * (1.0 + 0.1 * data(100, 2)),
        warns=((PrecisionWarning, "K is nearly the identity"),),
        check=identity_matrix_spectrum,
    ),
    Case(
        "A15",
        "sum overflows linear",
        fit=lambda: 1e307 * (1.0 + 0.1 * data(100, 2)),
        error=(ValueError, "overflow"),
    ),
    Case(
        "A15",
        "products overflow linear",
        fit=lambda: (1e20 * data(60, 5)).astype(np.float32),
        error=(ValueError, "overflow"),
    ),
    Case("A16", "complex", fit=lambda: data() + 1j, error=(ValueError, "Complex data not supported"), everywhere=True),
    Case(
        "A16",
        "complex in transform",
        RBF2,
        method="transform",
        given=lambda: data() + 1j,
        error=(ValueError, "Complex data not supported"),
        everywhere=True,
    ),
    Case(
        "A16",
        "complex in inverse",
        INVERSE,
        method="inverse_transform",
        given=lambda: data(5, 2) + 1j,
        error=(ValueError, "Complex data not supported"),
        everywhere=True,
    ),
    Case("A17", "objects", RBF2, fit=lambda: data().astype(object), check=same_as(RBF2, lambda X: X.astype(float))),
    Case("A17", "objects with a dict", fit=objects_with_dict, error=(TypeError, "argument must be")),
    *[
        Case(
            "A18",
            name,
            {"n_components": 2},
            fit=lambda name=name: (40 * np.abs(data())).astype(name),
            check=same_as({"n_components": 2}, lambda X: X.astype(float), rtol=1e-12),
        )
        for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16")
    ],
    Case("A18", "bool", RBF2, fit=lambda: data() > 0, check=same_as(RBF2, lambda X: X.astype(float), rtol=1e-12)),
    Case(
        "A18",
        "large uint64",
        {"n_components": 2},
        fit=lambda: (np.abs(data()) * 2**58).astype(np.uint64),
        warns=((PrecisionWarning, "2**53"),),
        check=same_as({"n_components": 2}, lambda X: X.astype(float)),
    ),
    Case(
        "A20",
        "longdouble",
        RBF2,
        fit=lambda: data().astype(np.longdouble),
        warns=((PrecisionWarning, "extended precision"),),
        check=same_as(RBF2, lambda X: X.astype(float)),
    ),
]

CONTAINERS = [
    *[
        Case(
            "A27",
            f"{form} {kernel}",
            {"n_components": 3, "kernel": kernel},
            fit=lambda form=form: getattr(scipy.sparse, form)(np.where(np.abs(data()) > 0.7, data(), 0.0)),
            warns=((RankWarning, "Cosine"),) if kernel == "cosine" else (),
            check=None if kernel == "cosine" else dense_equivalent({"n_components": 3, "kernel": kernel}),
        )
        for form, kernel in itertools.product(
            ("csr_array", "csr_matrix", "csc_array", "coo_array"), ("linear", "rbf", "poly", "cosine", "laplacian")
        )
    ],
    *[
        Case(
            "A27",
            f"wide CSR stays sparse {kernel}",
            {"n_components": 2, "kernel": kernel, "memory_limit": "100MiB", "random_state": 0},
            fit=wide_sparse,
            check=has_shape(40, 2),
        )
        for kernel in ("linear", "rbf", "poly")
    ],
    Case(
        "A27",
        "no inverse for sparse",
        INVERSE,
        fit=lambda: scipy.sparse.csr_array(data()),
        error=(ValueError, "not implemented for sparse"),
    ),
    Case(
        "A28",
        "list of lists",
        RBF2,
        fit=lambda: data().tolist(),
        check=same_as(RBF2, lambda X: np.array(X)),
    ),
    Case("A28", "ragged list", fit=lambda: [[1, 2], [3]], error=(ValueError, "inhomogeneous")),
    Case("A28", "unknown object", fit=object, error=(TypeError, "object")),
    Case(
        "A29",
        "other width",
        RBF2,
        method="transform",
        given=lambda: data(5, 1),
        error=(ValueError, "X has 1 features, but KernelPCA is expecting 4 features as input"),
        everywhere=True,
    ),
    Case("A30", "transform before fit", RBF2, method="transform", fitted=False, error=(NotFittedError, "not fitted")),
    Case(
        "A30",
        "inverse before fit",
        INVERSE,
        method="inverse_transform",
        given=lambda: data(5, 2),
        fitted=False,
        error=(NotFittedError, "not fitted"),
    ),
    Case(
        "A30",
        "inverse not enabled",
        RBF2,
        method="inverse_transform",
        given=lambda: data(5, 2),
        error=(NotFittedError, "fit_inverse_transform"),
    ),
    Case(
        "A31",
        "transform of nothing",
        RBF2,
        method="transform",
        given=lambda: data(0),
        error=(ValueError, "0 sample(s)"),
        everywhere=True,
    ),
]

UNKNOWN = [
    Case("A34", "kernel name", {"kernel": "rbff"}, error=(INVALID, "Did you mean 'rbf'?")),
    Case("A34", "kernel list", {"kernel": "rbff"}, error=(INVALID, "'laplacian'")),
    Case("A34", "kernel None", {"kernel": None}, error=(INVALID, "kernel=None")),
    Case("A34", "kernel class", {"kernel": kernels.RBF}, error=(INVALID, "an instance, not the class")),
    Case("A34", "kernel number", {"kernel": 3}, error=(INVALID, "kernel=3")),
    Case("A34", "solver name", {"eigen_solver": "densee"}, error=(INVALID, "Did you mean 'dense'?")),
    Case("A34", "solver None", {"eigen_solver": None}, error=(INVALID, "eigen_solver=None")),
    Case("A34", "gram", {"gram": "tile"}, error=(INVALID, "gram='tile'")),
    Case(
        "A34",
        "kernel_params",
        {"kernel": "matern", "kernel_params": {"nuu": 1.5}},
        error=(INVALID, "kernel_params={'nuu': 1.5}"),
    ),
    Case(
        "A34", "two gammas", {"kernel": kernels.RBF(), "gamma": 1.0}, error=(INVALID, "gamma was given together with")
    ),
    *[
        Case("A34", f"{name} {value!r}", {name: value}, error=(INVALID, f"{name}="))
        for name, value in [
            ("tol", -1),
            ("tol", math.nan),
            ("tol", "x"),
            ("max_iter", 0),
            ("max_iter", 2.5),
            ("n_jobs", 0),
            ("n_jobs", 1.5),
            ("alpha", -1),
            ("alpha", math.inf),
            ("copy_X", "yes"),
            ("fit_inverse_transform", 1),
            ("remove_zero_eig", None),
            ("iterated_power", -1),
            ("iterated_power", "x"),
            ("kernel_params", 3),
            ("degree", "x"),
            ("degree", 10**400),
            ("coef0", math.nan),
            ("coef0", 10**400),
            ("verbose", -1),
            ("verbose", "x"),
            ("memory_limit", 0),
            ("memory_limit", -1),
            ("memory_limit", 1.5),
            ("memory_limit", True),
            ("memory_limit", "1 furlong"),
            ("gram", np.array([1, 2])),
            ("iterated_power", np.array([1, 2])),
        ]
    ],
]

KERNELS = [
    *[
        Case("B1", f"gamma {value!r}", {"kernel": "rbf", "gamma": value}, error=(INVALID, "gamma="))
        for value in (-1, -1e-300, math.nan, math.inf, "x", True, [1.0], 10**400, np.array([1.0, 2.0]))
    ],
    *[
        Case("B1", f"gamma of the object {value!r}", {"kernel": kernels.RBF(value)}, error=(INVALID, "RBF: gamma="))
        for value in (-1, math.nan, "x", True)
    ],
    Case("B2", "gamma 0", RBF2 | {"gamma": 0}, warns=(NO_VARIANCE,), check=all_zero(2)),
    Case("B2", "gamma 0 all components", {"kernel": "rbf", "gamma": 0}, warns=(NOTHING_KEPT,), check=empty),
    Case(
        "B2",
        "degree 0",
        {"n_components": 2, "kernel": "poly", "degree": 0},
        warns=(NO_VARIANCE,),
        check=all_zero(2),
    ),
    Case(
        "B3",
        "tiny gamma",
        {"n_components": 4, "kernel": "rbf", "gamma": 1e-10},
        check=eigenvalues_are(lambda X: 2e-10 * pca_spectrum(X, 4), rtol=1e-7),
    ),
    Case(
        "B3",
        "tiny gamma float32",
        {"n_components": 4, "kernel": "rbf", "gamma": 1e-6},
        fit=lambda: 0.05 * data().astype(np.float32),
        check=eigenvalues_are(lambda X: 2e-6 * pca_spectrum(X.astype(float), 4), rtol=4e-6),
    ),
    Case("B4", "huge gamma", {"kernel": "rbf", "gamma": 1e10}, check=identity_matrix_spectrum),
    Case("B5", "degree negative", {"kernel": "poly", "degree": -1}, error=(INVALID, "degree=-1")),
    Case(
        "B5", "broken power of a negative base", {"kernel": "poly", "degree": 2.5}, error=(ValueError, "NaN from power")
    ),
    Case(
        "B5",
        "broken power",
        {"n_components": 2, "kernel": "poly", "degree": 2.5},
        fit=lambda: np.abs(data()),
        check=eigenvalues_are(lambda X: spectrum((X @ X.T / 4 + 1) ** 2.5, 2)),
    ),
    *[
        Case("B7", f"rbf at {c:g}", {"kernel": "rbf"}, fit=lambda c=c: c * data(), check=identity_matrix_spectrum)
        for c in (1e155, 1e200, 1e300)
    ],
    Case(
        "B7",
        "rbf float32 at 1e30",
        {"kernel": "rbf"},
        fit=lambda: (1e30 * data()).astype(np.float32),
        check=identity_matrix_spectrum,
    ),
    Case(
        "B8",
        "rbf at 1e-150",
        RBF2,
        fit=lambda: 1e-150 * data(),
        check=eigenvalues_are(lambda X: 0.5 * pca_spectrum(X, 2), rtol=1e-10),
    ),
    Case("B8", "rbf at 1e-170", RBF2, fit=lambda: 1e-170 * data(), warns=(NO_VARIANCE,), check=all_zero(2)),
    *[
        Case(
            "B11",
            f"offset {c:g} {dtype} {kernel}",
            {"n_components": 2, "kernel": kernel},
            fit=lambda c=c, dtype=dtype: (data() + c).astype(dtype),
            check=same_as(
                {"n_components": 2, "kernel": kernel},
                lambda X: (X.astype(float) - X.astype(float).mean(axis=0)).astype(X.dtype),
                rtol=100 * tolerances.eps(dtype),
            ),
        )
        for c, dtype, kernel in itertools.product((1e4, 1e8), ("float64", "float32"), ("linear", "rbf", "laplacian"))
        if (c, dtype) != (1e8, "float32")
    ],
    Case(
        "B11",
        "offset 1e8 float32",
        RBF2 | {"gamma": 1e-6},
        fit=lambda: (1000 * data() + 1e8).astype(np.float32),
        check=same_as(
            RBF2 | {"gamma": 1e-6},
            lambda X: (X.astype(float) - X.astype(float).mean(axis=0)).astype(X.dtype),
            rtol=20 * U32,
        ),
    ),
    *[
        Case(
            "B11",
            f"one row {c:g} times as far {dtype}",
            {"n_components": 3, "kernel": "rbf", "gamma": 0.25},
            fit=lambda c=c, dtype=dtype: with_outlier(c).astype(dtype),
            check=eigenvalues_are(
                lambda X: spectrum(gaussian(X.astype(float), 0.25), 3), rtol=1e-10 if dtype == "float64" else 1e-5
            ),
        )
        for c, dtype in itertools.product((1e4, 1e8, 1e12, 1e18), ("float64", "float32"))
    ],
    Case(
        "B11",
        "one row 1e200 times as far",
        {"n_components": 3, "kernel": "laplacian", "gamma": 0.25},
        fit=lambda: with_outlier(1e200),
        check=same_as({"n_components": 3, "kernel": "laplacian", "gamma": 0.25}, lambda X: np.clip(X, -1e9, 1e9)),
    ),
    Case(
        "B15",
        "cosine of a zero row",
        {"n_components": 2, "kernel": "cosine"},
        fit=lambda: np.vstack([data(), np.zeros((1, 4))]),
        warns=((RankWarning, "row 30"),),
    ),
    Case("B16", "an array", {"kernel": returns_array}, error=(ValueError, "kernel returns_array must return a number")),
    Case("B16", "a text", {"kernel": returns_text}, error=(ValueError, "it returned str")),
    Case("B16", "None", {"kernel": returns_none}, error=(ValueError, "it returned NoneType")),
    Case("B16", "NaN", {"kernel": returns_nan}, error=(ValueError, "returned NaN at (0, 0)")),
    Case("B16", "NaN for one pair", {"kernel": nan_for_one_pair}, error=(ValueError, "returned NaN at (1, 2)")),
    Case(
        "B16",
        "block of wrong shape",
        {"n_components": 2, "kernel": WrongShape()},
        error=(ValueError, "WrongShape must return a block of shape (3, 3)"),
    ),
    Case(
        "B16",
        "block of wrong dtype",
        {"n_components": 2, "kernel": WrongDtype()},
        error=(ValueError, "WrongDtype must return blocks of dtype float64; it returned float32"),
    ),
    Case("B16", "block of lists", {"n_components": 2, "kernel": WrongType()}, error=(ValueError, "it returned list")),
    Case("B16", "NaN in a block", {"n_components": 2, "kernel": NanInATile()}, error=(ValueError, "NanInATile")),
    Case("B17", "a kernel that raises", {"kernel": raises}, error=(ZeroDivisionError, "out of the kernel")),
    Case("B19", "power", {"kernel": kernels.RBF() ** -1}, error=(INVALID, "Power: exponent=-1")),
    Case("B19", "sum with a name", {"kernel": kernels.Sum(kernels.RBF(), "rbf")}, error=(INVALID, "Sum: k2='rbf'")),
    Case(
        "B19",
        "exponential overflow",
        {"n_components": 2, "kernel": kernels.exp(1000 * kernels.Linear())},
        error=(ValueError, "overflow"),
    ),
    Case(
        "B19",
        "polynomial overflow",
        {"n_components": 2, "kernel": "poly", "degree": 1000},
        fit=lambda: 1e3 * data(),
        error=(ValueError, "overflow"),
    ),
    Case("B21", "sigmoid", {"kernel": "sigmoid", "gamma": 5.0}, error=(IndefiniteKernelError, "smaller gamma")),
    Case("B21", "sigmoid says", {"kernel": "sigmoid", "gamma": 5.0}, error=(IndefiniteKernelError, "-5.985")),
    Case("B21", "sigmoid largest", {"kernel": "sigmoid", "gamma": 5.0}, error=(IndefiniteKernelError, "17.82")),
]

MATRICES = [
    Case("C1", "not square", PRECOMPUTED, fit=data, error=(ValueError, "square in fit; got shape (30, 4)")),
    Case(
        "C2",
        "other width",
        PRECOMPUTED,
        fit=linear_gram,
        method="transform",
        given=lambda: linear_gram()[:, :5],
        error=(ValueError, "expecting 30 features"),
    ),
    Case(
        "C3",
        "asymmetric",
        PRECOMPUTED,
        fit=lambda: linear_gram() + np.outer(np.eye(30)[2], np.eye(30)[5]),
        warns=((UserWarning, "reaches 1 at (2, 5)"),),
        check=symmetric_part_used,
    ),
    Case(
        "C4",
        "asymmetric within rounding",
        PRECOMPUTED,
        fit=lambda: linear_gram() * (1 + U * np.outer(np.eye(30)[2], np.eye(30)[5])),
        check=symmetric_part_used,
    ),
    Case(
        "C5", "NaN", PRECOMPUTED, fit=lambda: with_value(np.nan, linear_gram()), error=(ValueError, "row 3, column 2")
    ),
    Case("C5", "infinity", PRECOMPUTED, fit=lambda: with_value(np.inf, linear_gram()), error=(ValueError, "infinity")),
    *[
        Case(
            "C7",
            f"negative eigenvalues {parameters}",
            {"kernel": "precomputed", **parameters},
            fit=lambda: INDEFINITE - 0.0,
            warns=(NEGATIVE_DIAGONAL,),
            error=(IndefiniteKernelError, "There are significant negative eigenvalues"),
        )
        for parameters in (
            {},
            {"n_components": 5},
            {"n_components": 4},
            {"n_components": 4, "eigen_solver": "randomized"},
        )
    ],
    Case(
        "C7",
        "numbers and remedies",
        {"kernel": "precomputed"},
        fit=lambda: INDEFINITE - 0.0,
        warns=(NEGATIVE_DIAGONAL,),
        error=(IndefiniteKernelError, "Ask for fewer components"),
    ),
    *[
        Case(
            "C8",
            f"all negative {parameters}",
            {"kernel": "precomputed", **parameters},
            fit=lambda: -np.eye(50),
            warns=(NEGATIVE_DIAGONAL,),
            error=(IndefiniteKernelError, "negative"),
        )
        for parameters in ({}, {"n_components": 2}, {"n_components": 2, "eigen_solver": "randomized"})
    ],
    Case(
        "C9",
        "tiny negative eigenvalues",
        FULL,
        fit=lambda: np.diag([5.0, 4.0, 3.0, 1e-16, -1e-16]),
        warns=(NO_VARIANCE,),
        check=lambda e, X, r: np.testing.assert_array_equal(e.eigenvalues_[3:], 0.0),
    ),
    *[
        Case(
            "C11",
            f"{name} {solver}",
            PRECOMPUTED | {"eigen_solver": solver, "random_state": 0},
            fit=make,
            warns=(NO_VARIANCE,),
            check=all_zero(2),
        )
        for (name, make), solver in itertools.product(
            [
                ("zeros", lambda: np.zeros((60, 60))),
                ("ones", lambda: np.ones((60, 60))),
                ("huge ones", lambda: np.full((60, 60), 1e300)),
                ("third", lambda: np.full((60, 60), 1 / 3)),
            ],
            ("auto", "dense", "randomized"),
        )
    ],
    Case(
        "C11",
        "ones all components",
        {"kernel": "precomputed"},
        fit=lambda: np.ones((6, 6)),
        warns=(NOTHING_KEPT,),
        check=empty,
    ),
    Case(
        "C11",
        "constant data",
        {"n_components": 2},
        fit=lambda: np.ones((20, 3)),
        warns=(NO_VARIANCE,),
        check=all_zero(2),
    ),
    Case(
        "C13",
        "pre-image of precomputed",
        PRECOMPUTED | {"preimage": "ridge"},
        fit=linear_gram,
        error=(ValueError, "Cannot find pre-images with a precomputed kernel"),
    ),
    Case(
        "C13",
        "inverse of precomputed",
        PRECOMPUTED | {"fit_inverse_transform": True},
        fit=linear_gram,
        error=(ValueError, "Cannot fit_inverse_transform with a precomputed kernel"),
    ),
    Case("C14", "matrix untouched", PRECOMPUTED, fit=linear_gram, check=eigenvalues_are(lambda K: spectrum(K, 2))),
    Case(
        "C14",
        "matrix untouched without a copy",
        PRECOMPUTED | {"copy_X": False},
        fit=linear_gram,
        check=eigenvalues_are(lambda K: spectrum(K, 2)),
    ),
    Case(
        "C16",
        "negative diagonal entry",
        {"n_components": 1, "kernel": "precomputed"},
        fit=lambda: np.diag([3.0, 2.0, 1.0, 1.0, -0.0001]),
        warns=(NEGATIVE_DIAGONAL,),
    ),
    Case("C16", "tiles of a matrix", PRECOMPUTED | {"gram": "tiled"}, fit=linear_gram, error=(INVALID, 'gram="tiled"')),
    Case(
        "C16",
        "sparse matrix",
        PRECOMPUTED,
        fit=lambda: scipy.sparse.csr_array(linear_gram()),
        error=(ValueError, "sparse"),
    ),
]

SOLVERS = [
    *[
        Case(
            "D1",
            f"inside a pair {solver}",
            {"n_components": 3, "kernel": "rbf", "gamma": 1.0, "eigen_solver": solver, "random_state": 0},
            fit=circle,
            warns=((PrecisionWarning, "components 3 and 4 are not separately determined"),),
            check=gap_is_nothing,
        )
        for solver in ("dense", "randomized")
    ],
    *[
        Case(
            "D2",
            f"hypercube {solver}",
            {"n_components": 36, "kernel": "rbf", "gamma": 0.05, "eigen_solver": solver, "random_state": 0},
            fit=hypercube,
            check=hypercube_multiplicities,
        )
        for solver in ("dense", "randomized")
    ],
    *[
        Case(
            "D3",
            f"slow decay {name}",
            {"n_components": 5, "kernel": "precomputed", "eigen_solver": "randomized", "random_state": 0},
            fit=lambda values=values: with_spectrum(values),
            check=converged_truthfully,
        )
        for name, values in [
            ("0.99^i", 0.99 ** np.arange(299)),
            ("i^-0.5", np.arange(1, 300) ** -0.5),
            ("gap 1e-6", 1.0 - 1e-6 * np.arange(299)),
        ]
    ],
    *[
        Case(
            "D3",
            f"too few passes {parameters}",
            FULL | {"eigen_solver": "randomized", "random_state": 0} | parameters,
            fit=lambda: with_spectrum(1.0 - 1e-4 * np.arange(299)),
            warns=((ConvergenceWarning, "components 1 ("),),
            check=not_converged,
        )
        for parameters in ({"max_iter": 2}, {"iterated_power": 2})
    ],
    Case(
        "D6",
        "more than half of the components",
        {"n_components": 25, "kernel": "rbf", "eigen_solver": "randomized", "random_state": 0},
        check=eigenvalues_are(lambda X: spectrum(gaussian(X, 0.25), 25), atol=1e-7),
    ),
    Case(
        "D7",
        "more than a fifth of the components",
        {"n_components": 7, "kernel": "rbf"},
        check=lambda e, X, r: np.testing.assert_equal("dense" in e.solver_.lower(), True),
    ),
    *[
        Case(
            "D9",
            f"rank 5 {solver}",
            {"n_components": 10, "eigen_solver": solver, "random_state": 0},
            fit=lambda: data(100, 5),
            warns=((RankWarning, "only 5 of the 10"),),
            check=five_then_zeros,
        )
        for solver in ("dense", "randomized", "arpack")
    ],
    Case(
        "D16",
        "eigenvalue beyond float32",
        PRECOMPUTED,
        fit=lambda: np.float32(3e37) * np.outer(data(30, 1), data(30, 1)).astype(np.float32),
        error=(ValueError, "float32"),
    ),
    *[
        Case(
            "D16",
            f"large float32 matrix {solver}",
            PRECOMPUTED | {"eigen_solver": solver, "random_state": 0},
            fit=lambda: np.diag(np.linspace(3.3e38, 1e37, 60)).astype(np.float32),
            check=eigenvalues_are(lambda K: spectrum(K / 1e38, 2) * 1e38, rtol=1e-5),
        )
        for solver in ("dense", "randomized")
    ],
    *[
        Case("D18", f"random_state {value!r}", RBF2 | {"random_state": value}, error=(INVALID, "random_state="))
        for value in (-1, 2**32, "x", 1.5, True, [1])
    ],
]

RESULTS = [
    *[
        Case(
            "E1",
            f"fit and transform {kernel} {dtype}",
            {"n_components": 3, "kernel": kernel},
            fit=lambda dtype=dtype: data().astype(dtype),
            check=fit_and_transform_agree,
        )
        for kernel, dtype in itertools.product(
            ("linear", "rbf", "poly", "cosine", "laplacian", "matern"), ("float64", "float32")
        )
    ],
    Case(
        "E2",
        "zero columns",
        {"n_components": 6},
        warns=((RankWarning, "only 4 of the 6"),),
        check=lambda e, X, r: np.testing.assert_array_equal(e.transform(3 * X)[:, 4:], 0.0),
    ),
    *[
        Case(
            "E7",
            f"mean restored at {c:g}",
            {"n_components": 2, "fit_inverse_transform": True},
            fit=lambda c=c: data() + c,
            check=reconstruction_of_pca,
        )
        for c in (0.0, 10.0)
    ],
    *[
        Case(
            "E8",
            f"inverse of {name}",
            INVERSE,
            method="inverse_transform",
            given=make,
            error=(ValueError, text),
        )
        for name, make, text in [
            ("wrong width", lambda: data(5, 3), "n_components = 2"),
            ("one dimension", lambda: np.ones(2), "Reshape your data"),
            ("scalar", lambda: 3.0, "Expected 2D array, got scalar"),
            ("text", lambda: [["a", "b"]], "could not convert"),
            ("ragged list", lambda: [[1, 2], [3]], "inhomogeneous"),
            ("infinity", lambda: with_value(np.inf, data(5, 2), (1, 1)), "infinity"),
        ]
    ],
    *[
        Case(
            "E5",
            f"far points and {name}",
            {"n_components": 2, "kernel": "rbf", "preimage": name},
            check=lambda e, X, r: np.testing.assert_array_less(np.abs(e.denoise(1e6 * data(5))), 10.0),
        )
        for name in ("ridge", "fixed_point", "distance_constraint")
    ],
    *[
        Case(
            "E8",
            f"{method} of {name}",
            {"n_components": 2, "kernel": "rbf", "preimage": "ridge"},
            method=method,
            given=make,
            error=(ValueError, text),
            everywhere=True,
        )
        for method in ("denoise", "reconstruction_error", "feature_space_error", "score_samples", "score")
        for name, make, text in [
            ("wrong width", lambda: data(5, 3), "expecting 4 features"),
            ("NaN", lambda: with_value(np.nan), "contains NaN"),
        ]
    ],
    Case("E8", "score without a pre-image", RBF2, method="score", error=(NotFittedError, "needs a pre-image")),
    Case("E8", "denoise before fit", RBF2 | {"preimage": "ridge"}, method="denoise", fitted=False, error=NOT_FITTED),
    Case(
        "E8",
        "inverse of sparse scores",
        INVERSE,
        method="inverse_transform",
        given=lambda: scipy.sparse.csr_array(data(5, 2)),
        error=((ValueError, TypeError), "parse"),
    ),
    Case(
        "E8",
        "transform that overflows",
        {"n_components": 2, "kernel": "poly"},
        method="transform",
        given=lambda: 1e200 * data(),
        error=(ValueError, "overflow"),
        everywhere=True,
    ),
    Case(
        "E8",
        "inverse that overflows",
        INVERSE | {"kernel": "poly"},
        method="inverse_transform",
        given=lambda: 1e200 * (1.0 + np.abs(data(5, 2))),
        error=(ValueError, "overflow"),
    ),
    Case(
        "E8",
        "scores beyond float32",
        INVERSE,
        fit=lambda: data().astype(np.float32),
        method="inverse_transform",
        given=lambda: 1e200 * (1.0 + np.abs(data(5, 2))),
        error=(ValueError, "float32"),
    ),
    Case(
        "E12",
        "indefinite dense",
        {"n_components": 1, "kernel": "precomputed"},
        fit=lambda: with_spectrum(np.array([5.0, 4.0, 3.0, -1.0, -2.0])) + 5.0,
        check=positive_part_is_the_denominator,
    ),
    Case(
        "E12",
        "indefinite operator",
        {"n_components": 1, "kernel": "sigmoid", "gamma": 3.0, "eigen_solver": "randomized", "random_state": 0},
        fit=lambda: data(200, 3),
        warns=((IndefiniteKernelWarning, "relative to the trace"),),
    ),
    Case(
        "E12",
        "fraction of an indefinite operator",
        {"n_components": 0.9, "kernel": "sigmoid", "gamma": 3.0, "eigen_solver": "randomized", "random_state": 0},
        fit=lambda: data(200, 3),
        error=(IndefiniteKernelError, "n_components=0.9"),
    ),
    Case(
        "E12",
        "fraction of nothing",
        {"n_components": 0.9},
        fit=lambda: np.ones((20, 3)),
        warns=(NO_VARIANCE,),
        check=all_zero(1),
    ),
    Case("F1", "no GPU asked for", RBF2, check=ran_on_the_cpu),
    Case(
        "F16",
        "square matrix beyond the limit",
        RBF2 | {"gram": "dense", "memory_limit": "1MiB"},
        fit=lambda: data(2000, 3),
        error=(MemoryBudgetError, "30.5 MiB"),
    ),
    Case(
        "F16",
        "nothing fits",
        RBF2 | {"memory_limit": 1000},
        error=(MemoryBudgetError, "1000 B are allowed"),
    ),
    Case(
        "F16",
        "more than the machine has",
        {"n_components": 2, "kernel": "rbf", "gram": "dense"},
        fit=lambda: np.broadcast_to(np.zeros((1, 1)), (3_000_000, 1)),
        error=(MemoryBudgetError, "TiB"),
    ),
    *[
        Case(
            "F14",
            f"too big for a stored matrix, {workers} workers",
            RBF2 | {"memory_limit": "4MiB", "random_state": 0, "n_jobs": workers},
            fit=lambda: data(1200, 3),
            check=smaller_path_is_recorded,
        )
        for workers in (1, 2)
    ],
]

CASES = SHAPES + VALUES + CONTAINERS + UNKNOWN + KERNELS + MATRICES + SOLVERS + RESULTS


def same_bits(actual, expected, xp):
    """Arrays by their bits, anything else by equality."""
    if hasattr(expected, "shape"):
        return xp.owns(actual) == xp.owns(expected) and xp.host(actual).tobytes() == xp.host(expected).tobytes()
    return str(actual) == str(expected)
