"""The table of faults: one entry for each kind of bad or extreme input to `KernelPCA`, and what it gets.

A row either raises (a class and a part of the text) or gives the right result (`check`), with exactly the warnings
named. `tests/test_faults.py` runs the rows. Functions make the data, so that every run has fresh arrays.
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

from gpukpca import KernelPCA, kernels
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
from gpukpca.kernels import algebra
from tests import oracle, tolerances
from tests.datasets import circle, data, gaussian, hypercube, linear_gram, wide_sparse, with_value

U = float(np.finfo(np.float64).eps)
U32 = float(np.finfo(np.float32).eps)
Warned = tuple[type[Warning], str]
Check = Callable[[Any, Any], None]


@dataclass(frozen=True)
class Case:
    """One row.

    Attributes
    ----------
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
        All warnings, each at least once.
    check : callable, optional
        ``check(estimator, X)`` asserts the right result.
    everywhere : bool
        The row holds for the arrays of every library.
    """

    what: str
    parameters: dict[str, Any] = field(default_factory=dict)
    fit: Callable[[], Any] = data
    method: str | None = None
    given: Callable[[], Any] = data
    fitted: bool = True
    error: tuple[Any, str] | None = None
    warns: tuple[Warned, ...] = ()
    check: Check | None = None
    everywhere: bool = False

    def __str__(self) -> str:
        return self.what.replace(" ", "_")[:60]


def bad(what: str, text: str, fit: Any = data, error: Any = ValueError, warns: Any = (), every: bool = False, **p: Any):
    """Return a row whose fit raises; `p` are parameters."""
    return Case(what, p, fit, error=(error, text), warns=warns, everywhere=every)


def invalid(what: str, text: str, **parameters: Any) -> Case:
    """Return a row with a parameter that is refused."""
    return bad(what, text, error=InvalidParameterError, **parameters)


def bad_call(method: str, what: str, text: str, given: Any = data, p: Any = None, error: Any = ValueError, **more: Any):
    """Return a row whose method raises; `p` are parameters."""
    return Case(
        f"{what} in {method}", RBF2 if p is None else p, method=method, given=given, error=(error, text), **more
    )


def right(what: str, check: Check | None = None, fit: Any = data, warns: Any = (), **parameters: Any) -> Case:
    """Return a row whose fit gives the right result."""
    return Case(what, parameters, fit, warns=warns, check=check)


# -- right answers ---------------------------------------------------------------------------------------------------


def spectrum(K: np.ndarray, p: int) -> np.ndarray:
    """Return the largest p eigenvalues of the centered matrix."""
    return oracle.eigenpairs(oracle.centered(K), p)[0]


def pca_spectrum(X: np.ndarray, p: int) -> np.ndarray:
    return np.linalg.svd(X - X.mean(axis=0), compute_uv=False)[:p] ** 2


def values_are(expected: Callable[[Any], np.ndarray], rtol: float = 1e-10, atol: float = 0.0) -> Check:
    """Check `eigenvalues_` against a function of X."""
    return lambda e, X: np.testing.assert_allclose(e.eigenvalues_, expected(X), rtol=rtol, atol=atol)


def same_as(other: Callable[[Any], Any], rtol: float = 1e-10) -> Check:
    """Check the eigenvalues against those of another input."""

    def check(estimator: Any, X: Any) -> None:
        expected = KernelPCA(**estimator.get_params(deep=False)).fit(other(X)).eigenvalues_
        np.testing.assert_allclose(estimator.eigenvalues_, expected, rtol=rtol)

    return check


def has_shape(*shape: int) -> Check:
    return lambda e, X: np.testing.assert_equal(e.eigenvectors_.shape, shape)


def zero_from(q: int, p: int) -> Check:
    """Check that of p components those from q on have eigenvalue, ratio and scores exactly zero."""

    def check(estimator: Any, X: Any) -> None:
        assert estimator.eigenvalues_.shape == (p,)
        assert np.all(estimator.eigenvalues_[:q] > 0)
        for values in (estimator.eigenvalues_[q:], estimator.explained_variance_ratio_[q:]):
            assert not np.any(values)
        assert not np.any(estimator.transform(X)[:, q:])

    return check


def empty(estimator: Any, X: Any) -> None:
    assert estimator.eigenvalues_.shape == (0,)
    assert estimator.transform(X).shape == (len(X), 0)


def identity_spectrum(estimator: Any, X: Any) -> None:
    """K = I: eigenvalue 1 with multiplicity n - 1."""
    np.testing.assert_allclose(estimator.eigenvalues_, np.ones(len(X) - 1), rtol=tolerances.eigenvalue(X.dtype.name))
    assert np.max(estimator.residual_norms_) <= tolerances.residual(X.dtype.name)


def hypercube_multiplicities(estimator: Any, X: Any) -> None:
    """Eigenvalues of multiplicity 8 and 28."""
    V = estimator.eigenvectors_
    np.testing.assert_allclose(estimator.eigenvalues_, spectrum(gaussian(X, 0.05), 36), rtol=1e-10)
    assert np.ptp(estimator.eigenvalues_[:8]) <= 1e-10
    np.testing.assert_allclose(V.T @ V, np.eye(36), atol=1e-12)
    assert np.max(estimator.residual_norms_) <= 1e-8 * estimator.eigenvalues_[0]


def no_gap(estimator: Any, X: Any) -> None:
    assert abs(estimator.gap_) <= 1e-10
    np.testing.assert_allclose(estimator.eigenvalues_, spectrum(gaussian(X, 1.0), 3), rtol=1e-10)


def five_then_zeros(estimator: Any, X: Any) -> None:
    zero_from(5, 10)(estimator, X)
    np.testing.assert_allclose(estimator.eigenvalues_[:5], pca_spectrum(X, 5), rtol=1e-9)


def converged_truthfully(estimator: Any, X: Any) -> None:
    """The residual that is stored is the true one, and within the tolerance."""
    K, V, values = oracle.centered(X), estimator.eigenvectors_, estimator.eigenvalues_
    true = np.linalg.norm(K @ V - V * values, axis=0)
    assert estimator.converged_
    assert np.all(true <= 1e-8 * values[0] * 1.01)
    np.testing.assert_allclose(estimator.residual_norms_, true, rtol=1e-3, atol=1e-13)
    np.testing.assert_allclose(values, spectrum(X, len(values)), rtol=1e-8)


def not_converged(estimator: Any, X: Any) -> None:
    assert not estimator.converged_
    assert np.max(estimator.residual_norms_) > 1e-8 * estimator.eigenvalues_[0]


def positive_part_is_the_denominator(estimator: Any, X: Any) -> None:
    values = oracle.eigenpairs(oracle.centered(X))[0]
    expected = values[:1] / np.sum(np.maximum(values, 0.0))
    np.testing.assert_allclose(estimator.explained_variance_ratio_, expected, rtol=1e-10)


def reconstruction_of_pca(estimator: Any, X: Any) -> None:
    mean = X.mean(axis=0)
    axes = np.linalg.svd(X - mean, full_matrices=False)[2][:2]
    expected = mean + (X - mean) @ axes.T @ axes
    np.testing.assert_allclose(estimator.inverse_transform(estimator.transform(X)), expected, rtol=0, atol=1e-12)


def dense_equivalent(estimator: Any, X: Any) -> None:
    """A sparse input gives what the dense one gives, in fit and in transform."""
    dense = KernelPCA(**estimator.get_params(deep=False)).fit(X.toarray())
    np.testing.assert_allclose(estimator.eigenvalues_, dense.eigenvalues_, rtol=1e-9)
    np.testing.assert_allclose(estimator.transform(X), dense.transform(X.toarray()), atol=1e-8)


def smaller_path_is_recorded(estimator: Any, X: Any) -> None:
    plan = estimator.plan_
    assert plan.predicted_bytes <= plan.available_bytes == 4 * 2**20
    assert isinstance(plan.storage, TiledStorage)
    assert plan.storage.cached_tiles < plan.storage.tiles
    assert plan.notes
    np.testing.assert_allclose(estimator.eigenvalues_, spectrum(gaussian(X, 1 / 3), 2), rtol=1e-8)


# -- kernels of users that misbehave ---------------------------------------------------------------------------------


def returns_array(x: Any, y: Any) -> Any:
    return np.ones(3)


def nan_for_one_pair(x: Any, y: Any) -> float:
    """Return NaN between rows 1 and 2 of `data()`."""
    X = data()
    return math.nan if {float(x[0]), float(y[0])} == {X[1, 0], X[2, 0]} else float(x @ y)


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
MATRIX = {"n_components": 2, "kernel": "precomputed"}
NO_VARIANCE = ((RankWarning, "carry variance"),)
ONE_SAMPLE = ((RankWarning, "n_samples=1"),)
NOTHING_KEPT = ((RankWarning, "none is kept"),)
NEGATIVE_DIAGONAL = ((IndefiniteKernelWarning, "diagonal"),)
ITERATIVE = {"eigen_solver": "randomized", "random_state": 0}
DOUBLES = ("dense", "randomized")
INDEFINITE = np.diag([5.0, 4.0, 3.0, -3.0, -4.0])


def repeated(row: Callable[..., Case], values: Any) -> list[Case]:
    """Return one row for each value, or for each tuple of them."""
    return [row(*value) if isinstance(value, tuple) else row(value) for value in values]


def centered_rows(X: Any) -> Any:
    return (X.astype(float) - X.astype(float).mean(axis=0)).astype(X.dtype)


def far_row(factor: float) -> np.ndarray:
    """Return data whose first row is far away: that must not cost the others their digits."""
    return data() * np.where(np.arange(30) == 0, factor, 1.0)[:, None]


def of_spectrum(values: np.ndarray) -> np.ndarray:
    """Return a centered symmetric matrix with these eigenvalues and one 0, for the constant vector."""
    columns = np.random.default_rng(0).standard_normal((len(values) + 1,) * 2)
    columns[:, 0] = 1.0
    Q = np.linalg.qr(columns)[0][:, 1:]
    K = (Q * values) @ Q.T
    return (K + K.T) / 2


SHAPES = [
    bad("one dimension", "Reshape your data", lambda: np.ones(5), every=True),
    bad("scalar", "Expected 2D array, got scalar", lambda: 3.0),
    bad("array scalar", "Expected 2D array, got scalar", lambda: np.float64(3)),
    bad("string", "Read a file first", lambda: "abc"),
    bad("strings", "could not convert string", lambda: [["a", "b"], ["c", "d"]]),
    bad("None", "X is None, and not an array of shape", lambda: None),
    bad("three dimensions", "dim 3", lambda: np.ones((2, 2, 2)), every=True),
    bad("no samples", "0 sample(s)", lambda: np.ones((0, 3)), every=True),
    bad("no features", "0 feature(s) (shape=(4, 0)) while a minimum of 1 is", lambda: np.ones((4, 0)), every=True),
    *[
        right(
            f"one sample {kernel}",
            zero_from(0, 1),
            make,
            ((RankWarning, "n_samples=1"),),
            n_components=1,
            kernel=kernel,
        )
        for make, names in (
            (lambda: data(1), "linear rbf poly sigmoid cosine laplacian matern rational_quadratic"),
            (lambda: np.array([[2.0]]), "precomputed"),
        )
        for kernel in names.split()
    ],
    right("one sample all components", empty, lambda: data(1), NOTHING_KEPT, kernel="rbf"),
    right("one sample all components linear", empty, lambda: data(1), NOTHING_KEPT),
    right(
        "two samples",
        values_are(lambda X: np.array([1.0 - gaussian(X, 0.3)[0, 1]]), rtol=10 * U),
        lambda: data(2),
        **{"n_components": 1, "kernel": "rbf", "gamma": 0.3},
    ),
    right(
        "two samples linear",
        values_are(lambda X: np.array([np.sum((X[0] - X[1]) ** 2) / 2]), rtol=10 * U),
        lambda: data(2),
        n_components=1,
    ),
    right("one feature", values_are(lambda X: spectrum(gaussian(X, 1.0), 2)), lambda: data(30, 1), **RBF2),
    *repeated(
        lambda p: right(
            f"more components than samples {p}",
            has_shape(30, 30),
            warns=(
                (
                    RankWarning,
                    f"(n_components={p}, n_samples=30)",
                ),
                *NO_VARIANCE,
            ),
            **{"n_components": p, "kernel": "rbf"},
        ),
        (40, 10**30),
    ),
    right(
        "as many components as samples",
        zero_from(29, 30),
        warns=((RankWarning, "(nonzero=29, n_components=30"),),
        **{"n_components": 30, "kernel": "rbf"},
    ),
    right("all components", has_shape(30, 29), kernel="rbf"),
    *repeated(
        lambda p: invalid(f"n_components {p!r}", "n_components=", n_components=p),
        [0, -1, 2.5, 1.0, 0.0, "3", math.nan, math.inf, [2], ((2,),), 2 + 0j, True, np.array([1, 2])],
    ),
]

NAN, WIDE_NAN = lambda: with_value(np.nan), lambda: with_value(np.nan, data(5, 2), (1, 1))
VALUES = [
    bad("NaN", "contains NaN: 1 value", NAN, every=True),
    bad("NaN row", "first in row 3", NAN, every=True),
    bad("NaN sparse", "first in row 3", lambda: scipy.sparse.csr_array(with_value(np.nan))),
    bad_call("transform", "NaN", "contains NaN", NAN, everywhere=True),
    bad_call("inverse_transform", "NaN", "contains NaN", WIDE_NAN, INVERSE, everywhere=True),
    bad("infinity", "infinity", lambda: with_value(np.inf), every=True),
    bad("minus infinity", "infinity", lambda: with_value(-np.inf), every=True),
    bad("both infinities", "infinity", lambda: with_value(-np.inf, with_value(np.inf), (7, 0)), every=True),
    right(
        "sum overflows rbf",
        identity_spectrum,
        lambda: 1e307 * (1.0 + 0.1 * data(100, 2)),
        ((PrecisionWarning, "K is nearly the identity"),),
        kernel="rbf",
    ),
    bad("sum overflows linear", "overflow", lambda: 1e307 * (1.0 + 0.1 * data(100, 2))),
    bad("products overflow linear", "overflow", lambda: (1e20 * data(60, 5)).astype(np.float32)),
    bad("complex", "Complex data not supported", lambda: data() + 1j, every=True),
    bad_call("transform", "complex", "Complex data not supported", lambda: data() + 1j, everywhere=True),
    bad_call("inverse_transform", "complex", "Complex data not", lambda: data(5, 2) + 1j, INVERSE, everywhere=True),
    right("objects", same_as(lambda X: X.astype(float)), lambda: data().astype(object), **RBF2),
    bad("objects with a dict", "argument must be", lambda: np.array([[{"a": 1}, 1.0]] * 3), error=TypeError),
    *repeated(
        lambda name: right(
            name,
            same_as(lambda X: X.astype(float), rtol=1e-12),
            lambda: (40 * np.abs(data())).astype(name),
            n_components=2,
        ),
        ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16"],
    ),
    right("bool", same_as(lambda X: X.astype(float), rtol=1e-12), lambda: data() > 0, **RBF2),
    right(
        "large uint64",
        same_as(lambda X: X.astype(float)),
        lambda: (np.abs(data()) * 2**58).astype(np.uint64),
        ((PrecisionWarning, "2**53"),),
        n_components=2,
    ),
    right(
        "longdouble",
        same_as(lambda X: X.astype(float)),
        lambda: data().astype(np.longdouble),
        ((PrecisionWarning, "extended precision"),),
        **RBF2,
    ),
]


def thinned(form: str) -> Any:
    return getattr(scipy.sparse, form)(np.where(np.abs(data()) > 0.7, data(), 0.0))


FORMS = ("csr_array", "csr_matrix", "csc_array", "coo_array")
CONTAINERS = [
    *repeated(
        lambda form, kernel: right(
            f"{form} {kernel}", dense_equivalent, lambda: thinned(form), n_components=3, kernel=kernel
        ),
        itertools.product(FORMS, ("linear", "rbf", "poly", "laplacian")),
    ),
    *repeated(
        lambda form: right(
            f"{form} cosine", None, lambda: thinned(form), ((RankWarning, "Cosine"),), n_components=3, kernel="cosine"
        ),
        FORMS,
    ),
    *repeated(
        lambda kernel: right(
            f"wide CSR stays sparse {kernel}",
            has_shape(40, 2),
            wide_sparse,
            **{"n_components": 2, "kernel": kernel, "memory_limit": "100MiB", "random_state": 0},
        ),
        ("linear", "rbf", "poly"),
    ),
    bad("no inverse for sparse", "not implemented for sparse", lambda: scipy.sparse.csr_array(data()), **INVERSE),
    right("list of lists", same_as(np.array), lambda: data().tolist(), **RBF2),
    bad("ragged list", "rows of equal length", lambda: [[1, 2], [3]]),
    bad("unknown object", "object", object, error=TypeError),
    bad_call(
        "transform",
        "other width",
        "X has 1 features, but KernelPCA is expecting 4 features as input",
        lambda: data(5, 1),
        everywhere=True,
    ),
    bad_call("transform", "no rows", "0 sample(s)", lambda: data(0), everywhere=True),
    bad_call("transform", "before fit", "not fitted", error=NotFittedError, fitted=False),
    bad_call(
        "inverse_transform", "before fit", "not fitted", lambda: data(5, 2), INVERSE, NotFittedError, fitted=False
    ),
    bad_call("inverse_transform", "not enabled", "fit_inverse_transform", lambda: data(5, 2), error=NotFittedError),
]

WRONG = {
    "tol": (-1, math.nan, "x"),
    "max_iter": (0, 2.5),
    "n_jobs": (0, 1.5),
    "alpha": (-1, math.inf),
    "copy_X": ("yes",),
    "fit_inverse_transform": (1,),
    "remove_zero_eig": (None,),
    "iterated_power": (-1, "x", np.array([1, 2])),
    "kernel_params": (3,),
    "degree": ("x", 10**400),
    "coef0": (math.nan, 10**400),
    "verbose": (-1, "x"),
    "memory_limit": (0, -1, 1.5, True, "1 furlong"),
    "gram": ("tile", np.array([1, 2])),
    "random_state": (-1, 2**32, "x", 1.5, True, [1]),
    "eigen_solver": (None,),
    "kernel": (None, 3),
}
UNKNOWN = [
    invalid("kernel name", "Did you mean 'rbf'?", kernel="rbff"),
    invalid("kernel list", "'laplacian'", kernel="rbff"),
    invalid("kernel class", "an instance, not the class", kernel=kernels.RBF),
    invalid("solver name", "Did you mean 'dense'?", eigen_solver="densee"),
    invalid("kernel_params", "kernel_params={'nuu': 1.5}", kernel="matern", kernel_params={"nuu": 1.5}),
    invalid("two gammas", "gamma was given together with", kernel=kernels.RBF(), gamma=1.0),
    *[invalid(f"{name} {value!r}", f"{name}=", **{name: value}) for name, values in WRONG.items() for value in values],
]

FAR = {"n_components": 3, "kernel": "rbf", "gamma": 0.25}
KERNELS = [
    *[
        invalid(f"gamma {value!r}", "gamma=", kernel="rbf", gamma=value)
        for value in (-1, -1e-300, math.nan, math.inf, "x", True, [1.0], 10**400, np.array([1.0, 2.0]))
    ],
    *[
        invalid(f"gamma of the object {value!r}", "RBF: gamma=", kernel=kernels.RBF(value))
        for value in (-1, math.nan, "x", True)
    ],
    right("gamma 0", zero_from(0, 2), warns=NO_VARIANCE, **RBF2, gamma=0),
    right("gamma 0 all components", empty, warns=NOTHING_KEPT, kernel="rbf", gamma=0),
    right("degree 0", zero_from(0, 2), warns=NO_VARIANCE, n_components=2, kernel="poly", degree=0),
    right(
        "tiny gamma",
        values_are(lambda X: 2e-10 * pca_spectrum(X, 4), rtol=1e-7),
        **{"n_components": 4, "kernel": "rbf", "gamma": 1e-10},
    ),
    right(
        "tiny gamma float32",
        values_are(lambda X: 2e-6 * pca_spectrum(X.astype(float), 4), rtol=4e-6),
        lambda: 0.05 * data().astype(np.float32),
        **{"n_components": 4, "kernel": "rbf", "gamma": 1e-6},
    ),
    right("huge gamma", identity_spectrum, kernel="rbf", gamma=1e10),
    invalid("degree negative", "degree=-1", kernel="poly", degree=-1),
    bad("broken power of a negative base", "NaN from power", kernel="poly", degree=2.5),
    right(
        "broken power",
        values_are(lambda X: spectrum((X @ X.T / 4 + 1) ** 2.5, 2)),
        lambda: np.abs(data()),
        **{"n_components": 2, "kernel": "poly", "degree": 2.5},
    ),
    *repeated(
        lambda c, dtype: right(
            f"rbf {dtype} at {c:g}", identity_spectrum, lambda: (c * data()).astype(dtype), kernel="rbf"
        ),
        [(1e155, "float64"), (1e200, "float64"), (1e300, "float64"), (1e30, "float32")],
    ),
    right("rbf at 1e-150", values_are(lambda X: 0.5 * pca_spectrum(X, 2)), lambda: 1e-150 * data(), **RBF2),
    right("rbf at 1e-170", zero_from(0, 2), lambda: 1e-170 * data(), NO_VARIANCE, **RBF2),
    *repeated(
        lambda c, dtype, kernel: right(
            f"offset {c:g} {dtype} {kernel}",
            same_as(centered_rows, rtol=100 * tolerances.eps(dtype)),
            lambda: (data() + c).astype(dtype),
            **{"n_components": 2, "kernel": kernel},
        ),
        [
            (c, dtype, kernel)
            for (c, dtype) in ((1e4, "float64"), (1e8, "float64"), (1e4, "float32"))
            for kernel in ("linear", "rbf", "laplacian")
        ],
    ),
    right(
        "offset 1e8 float32",
        same_as(centered_rows, rtol=20 * U32),
        lambda: (1000 * data() + 1e8).astype(np.float32),
        **RBF2,
        gamma=1e-6,
    ),
    *repeated(
        lambda c, dtype, rtol: right(
            f"one row {c:g} times as far {dtype}",
            values_are(lambda X: spectrum(gaussian(X.astype(float), 0.25), 3), rtol=rtol),
            lambda: far_row(c).astype(dtype),
            **FAR,
        ),
        [(c, *of) for c in (1e4, 1e8, 1e12, 1e18) for of in (("float64", 1e-10), ("float32", 1e-5))],
    ),
    right(
        "one row 1e200 times as far",
        same_as(lambda X: np.clip(X, -1e9, 1e9)),
        lambda: far_row(1e200),
        **FAR | {"kernel": "laplacian"},
    ),
    right(
        "cosine of a zero row",
        None,
        lambda: np.vstack([data(), np.zeros((1, 4))]),
        ((RankWarning, "rows=[30]"),),
        **{"n_components": 2, "kernel": "cosine"},
    ),
    bad("an array", "kernel returns_array must return a finite number", kernel=returns_array),
    bad("a text", "it returned str", kernel=lambda x, y: "one"),
    bad("no answer", "it returned NoneType", kernel=lambda x, y: None),
    bad("a kernel of NaN", "returned NaN at (0, 0)", kernel=lambda x, y: math.nan),
    bad("NaN for one pair", "returned NaN at (1, 2)", kernel=nan_for_one_pair),
    bad("wrong shape", "WrongShape must return a block of shape (3, 3)", n_components=2, kernel=WrongShape()),
    bad(
        "wrong dtype",
        "WrongDtype must return blocks of dtype float64; it returned float32",
        **{"n_components": 2, "kernel": WrongDtype()},
    ),
    bad("block of lists", "it returned list", n_components=2, kernel=WrongType()),
    bad("NaN in a block", "NanInATile", n_components=2, kernel=NanInATile()),
    bad("a kernel that raises", "out of the kernel", error=ZeroDivisionError, kernel=raises),
    invalid("power", "Power: exponent=-1", kernel=kernels.RBF() ** -1),
    invalid("sum with a name", "Sum: k2='rbf'", kernel=algebra.Sum(kernels.RBF(), "rbf")),
    bad("exponential overflow", "overflow", n_components=2, kernel=kernels.exp(1000 * kernels.Linear())),
    bad("polynomial overflow", "overflow", lambda: 1e3 * data(), n_components=2, kernel="poly", degree=1000),
    *[
        bad(f"sigmoid says {text}", text, error=IndefiniteKernelError, kernel="sigmoid", gamma=5.0)
        for text in ("smaller gamma", "-5.985", "17.82")
    ],
]

MATRICES = [
    bad("not square", "square in fit; got shape (30, 4)", **MATRIX),
    bad_call(
        "transform", "matrix of other width", "expecting 30", lambda: linear_gram()[:, :5], MATRIX, fit=linear_gram
    ),
    right(
        "asymmetric",
        values_are(lambda X: spectrum((X + X.T) / 2, 2)),
        lambda: linear_gram() + np.outer(np.eye(30)[2], np.eye(30)[5]),
        ((UserWarning, "asymmetry=1, entry=[2, 5]"),),
        **MATRIX,
    ),
    right(
        "asymmetric within rounding",
        values_are(lambda X: spectrum((X + X.T) / 2, 2)),
        lambda: linear_gram() * (1 + U * np.outer(np.eye(30)[2], np.eye(30)[5])),
        **MATRIX,
    ),
    bad("matrix with NaN", "row 3, column 2", lambda: with_value(np.nan, linear_gram()), **MATRIX),
    bad("matrix with infinity", "infinity", lambda: with_value(np.inf, linear_gram()), **MATRIX),
    *repeated(
        lambda text, p: bad(
            f"negative eigenvalues {p}",
            text,
            lambda: INDEFINITE - 0.0,
            IndefiniteKernelError,
            NEGATIVE_DIAGONAL,
            **{"kernel": "precomputed"} | p,
        ),
        [
            ("There are significant negative eigenvalues", {}),
            ("There are significant negative eigenvalues", {"n_components": 5}),
            ("Request at most 2 components", {"n_components": 4}),
            ("There are significant negative eigenvalues", {"n_components": 4, "eigen_solver": "randomized"}),
        ],
    ),
    *[
        bad(
            f"all negative {p}",
            "negative",
            lambda: -np.eye(50),
            IndefiniteKernelError,
            NEGATIVE_DIAGONAL,
            **{"kernel": "precomputed"} | p,
        )
        for p in ({}, {"n_components": 2}, {"n_components": 2, "eigen_solver": "randomized"})
    ],
    right(
        "tiny negative eigenvalues",
        zero_from(3, 5),
        lambda: np.diag([5.0, 4.0, 3.0, 1e-16, -1e-16]),
        NO_VARIANCE,
        **MATRIX | {"n_components": 5},
    ),
    *repeated(
        lambda value, solver: right(
            f"a matrix of {value:g} {solver}",
            zero_from(0, 2),
            lambda: np.full((60, 60), value),
            NO_VARIANCE,
            **MATRIX | {"eigen_solver": solver, "random_state": 0},
        ),
        itertools.product((0.0, 1.0, 1e300, 1 / 3), ("auto", *DOUBLES)),
    ),
    right("ones all components", empty, lambda: np.ones((6, 6)), NOTHING_KEPT, kernel="precomputed"),
    right("constant data", zero_from(0, 2), lambda: np.ones((20, 3)), NO_VARIANCE, n_components=2),
    bad("pre-image of a matrix", "Cannot find pre-images with a prec", linear_gram, **MATRIX, preimage="ridge"),
    bad(
        "inverse of a matrix", "Cannot fit_inverse_transform with a", linear_gram, **MATRIX, fit_inverse_transform=True
    ),
    *[
        right(f"matrix, copy_X={c}", values_are(lambda K: spectrum(K, 2)), linear_gram, **MATRIX, copy_X=c)
        for c in (True, False)
    ],
    right(
        "negative diagonal entry",
        None,
        lambda: np.diag([3.0, 2.0, 1.0, 1.0, -0.0001]),
        NEGATIVE_DIAGONAL,
        **{"n_components": 1, "kernel": "precomputed"},
    ),
    bad("tiles of a matrix", 'gram="tiled"', linear_gram, InvalidParameterError, **MATRIX, gram="tiled"),
    right(
        "sparse matrix",
        values_are(lambda X: spectrum(X.toarray(), 2)),
        lambda: scipy.sparse.csr_array(linear_gram()),
        **MATRIX,
    ),
]

SOLVERS = [
    *repeated(
        lambda solver: right(
            f"inside a pair {solver}",
            no_gap,
            lambda: circle(64),
            ((PrecisionWarning, "not separately determined: their eigenvalues are equal to rounding"),),
            **{"n_components": 3, "kernel": "rbf", "gamma": 1.0, "eigen_solver": solver, "random_state": 0},
        ),
        DOUBLES,
    ),
    *repeated(
        lambda solver: right(
            f"hypercube {solver}",
            hypercube_multiplicities,
            hypercube,
            **{"n_components": 36, "kernel": "rbf", "gamma": 0.05, "eigen_solver": solver, "random_state": 0},
        ),
        DOUBLES,
    ),
    *[
        right(
            f"slow decay {name}",
            converged_truthfully,
            lambda values=values: of_spectrum(values),
            **{"n_components": 5, "kernel": "precomputed"} | ITERATIVE,
        )
        for name, values in [
            ("0.99^i", 0.99 ** np.arange(299)),
            ("i^-0.5", np.arange(1, 300) ** -0.5),
            ("gap 1e-6", 1.0 - 1e-6 * np.arange(299)),
        ]
    ],
    *[
        right(
            f"too few passes {p}",
            not_converged,
            lambda: of_spectrum(1.0 - 1e-4 * np.arange(299)),
            ((ConvergenceWarning, "components=[1"),),
            **{"n_components": 5, "kernel": "precomputed"} | ITERATIVE | p,
        )
        for p in ({"max_iter": 2}, {"iterated_power": 2})
    ],
    right(
        "more than half of the components",
        values_are(lambda X: spectrum(gaussian(X, 0.25), 25), atol=1e-7),
        **{"n_components": 25, "kernel": "rbf"} | ITERATIVE,
    ),
    right(
        "more than a fifth of the components",
        lambda e, X: np.testing.assert_equal("dense" in e.solver_, True),
        **{"n_components": 7, "kernel": "rbf"},
    ),
    *[
        right(
            f"rank 5 {solver}",
            five_then_zeros,
            lambda: data(100, 5),
            ((RankWarning, "(nonzero=5, n_components=10"),),
            **{"n_components": 10, "eigen_solver": solver, "random_state": 0},
        )
        for solver in (*DOUBLES, "arpack")
    ],
    bad(
        "eigenvalue beyond float32",
        "float32",
        lambda: np.float32(3e37) * np.outer(data(30, 1), data(30, 1)).astype(np.float32),
        **MATRIX,
    ),
    *[
        right(
            f"large float32 matrix {solver}",
            values_are(lambda K: spectrum(K / 1e38, 2) * 1e38, rtol=1e-5),
            lambda: np.diag(np.linspace(3.3e38, 1e37, 60)).astype(np.float32),
            **MATRIX | {"eigen_solver": solver, "random_state": 0},
        )
        for solver in DOUBLES
    ],
]

RIDGE = RBF2 | {"preimage": "ridge"}
SIGMOID = {"kernel": "sigmoid", "gamma": 3.0} | ITERATIVE
RESULTS = [
    right(
        "zero columns",
        lambda e, X: np.testing.assert_array_equal(e.transform(3 * X)[:, 4:], 0.0),
        warns=((RankWarning, "(nonzero=4, n_components=6"),),
        n_components=6,
    ),
    *repeated(
        lambda c: right(
            f"mean restored at {c:g}",
            reconstruction_of_pca,
            lambda: data() + c,
            **{"n_components": 2, "fit_inverse_transform": True},
        ),
        (0.0, 10.0),
    ),
    *repeated(
        lambda what, text, make: bad_call("inverse_transform", what, text, make, INVERSE),
        [
            ("wrong width", "n_components = 2", lambda: data(5, 3)),
            ("one dimension", "Reshape your data", lambda: np.ones(2)),
            ("scalar", "Expected 2D array, got scalar", lambda: 3.0),
            ("text", "could not convert", lambda: [["a", "b"]]),
            ("ragged list", "rows of equal length", lambda: [[1, 2], [3]]),
            ("infinity", "infinity", lambda: with_value(np.inf, data(5, 2), (1, 1))),
        ],
    ),
    bad_call(
        "inverse_transform",
        "sparse scores",
        "parse",
        lambda: scipy.sparse.csr_array(data(5, 2)),
        INVERSE,
        (ValueError, TypeError),
    ),
    *repeated(
        lambda name: right(
            f"far points and {name}",
            lambda e, X: np.testing.assert_array_less(np.abs(e.denoise(1e6 * data(5))), 10.0),
            **RBF2 | {"preimage": name},
        ),
        ("ridge", "fixed_point", "distance_constraint"),
    ),
    *repeated(
        lambda method, of: bad_call(method, of[0], of[1], of[2], RIDGE, everywhere=True),
        itertools.product(
            ("denoise", "reconstruction_error", "feature_space_error", "score_samples", "score"),
            [("wrong width", "expecting 4 features", lambda: data(5, 3)), ("NaN", "contains NaN", NAN)],
        ),
    ),
    bad_call("score", "no pre-image", "needs a pre-image", error=NotFittedError),
    bad_call("denoise", "before fit", "not fitted", data, RIDGE, NotFittedError, fitted=False),
    bad_call("transform", "overflow", "overflow", lambda: 1e200 * data(), RBF2 | {"kernel": "poly"}, everywhere=True),
    bad_call(
        "inverse_transform",
        "overflow",
        "overflow",
        lambda: 1e200 * (1.0 + np.abs(data(5, 2))),
        INVERSE | {"kernel": "poly"},
    ),
    bad_call(
        "inverse_transform",
        "scores beyond float32",
        "float32",
        lambda: 1e200 * (1.0 + np.abs(data(5, 2))),
        INVERSE,
        fit=lambda: data().astype(np.float32),
    ),
    right(
        "indefinite dense",
        positive_part_is_the_denominator,
        lambda: of_spectrum(np.array([5.0, 4.0, 3.0, -1.0, -2.0])) + 5.0,
        ((IndefiniteKernelWarning, "relative to the sum of the positive ones"),),
        **{"n_components": 1, "kernel": "precomputed"},
    ),
    right(
        "indefinite operator",
        None,
        lambda: data(200, 3),
        ((IndefiniteKernelWarning, "holds upper bounds"),),
        **SIGMOID | {"n_components": 1},
    ),
    bad(
        "fraction of an indefinite operator",
        "n_components=0.9",
        lambda: data(200, 3),
        IndefiniteKernelError,
        **SIGMOID | {"n_components": 0.9},
    ),
    right("fraction of nothing", zero_from(0, 1), lambda: np.ones((20, 3)), NO_VARIANCE, n_components=0.9),
    right("no GPU", lambda e, X: np.testing.assert_equal("cpu" in e.device_, True), **RBF2),
    bad(
        "square matrix beyond the limit",
        "30.5 MiB",
        lambda: data(2000, 3),
        MemoryBudgetError,
        **RBF2 | {"gram": "dense", "memory_limit": "1MiB"},
    ),
    bad("nothing fits", "1000 B are allowed", error=MemoryBudgetError, **RBF2, memory_limit=1000),
    bad(
        "more than the machine has",
        "TiB",
        lambda: np.broadcast_to(np.zeros((1, 1)), (3_000_000, 1)),
        MemoryBudgetError,
        **RBF2,
        gram="dense",
    ),
    *[
        right(
            f"too big for a stored matrix, {workers} workers",
            smaller_path_is_recorded,
            lambda: data(1200, 3),
            **RBF2 | {"memory_limit": "4MiB", "random_state": 0, "n_jobs": workers},
        )
        for workers in (1, 2)
    ],
]

CASES = SHAPES + VALUES + CONTAINERS + UNKNOWN + KERNELS + MATRICES + SOLVERS + RESULTS
