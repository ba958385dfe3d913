"""Flat kernels inside sums, products, powers and exponentials keep k - 1: the digits of what varies."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from gpukpca import KernelPCA
from gpukpca.eigen import BlockKrylov, Nystrom
from gpukpca.exceptions import ConvergenceWarning, PrecisionWarning, RankWarning
from gpukpca.kernels import RBF, Kernel, Laplacian, Linear, Matern, Polynomial, RationalQuadratic, exp
from gpukpca.kernels.algebra import Modulated
from tests import oracle
from tests.each import each

GAMMAS = [1e-3, 1e-6, 1e-9, 1e-12]


class Value:
    """A kernel's value as a constant and what is above it, in float64 without cancellation."""

    def __init__(self, constant: float, above: np.ndarray) -> None:
        self.constant, self.above = constant, above

    def __add__(self, other: Value) -> Value:
        return Value(self.constant + other.constant, self.above + other.above)

    def __mul__(self, other: Any) -> Value:
        if not isinstance(other, Value):
            return Value(other * self.constant, other * self.above)
        product = self.constant * other.above + other.constant * self.above + self.above * other.above
        return Value(self.constant * other.constant, product)

    __rmul__ = __mul__

    def __pow__(self, exponent: int) -> Value:
        return math.prod([self] * exponent, start=Value(1.0, 0.0 * self.above))

    def exp(self) -> Value:
        return Value(math.exp(self.constant), math.exp(self.constant) * np.expm1(self.above))


def rbf(gamma: float, X: np.ndarray) -> Value:
    return Value(1.0, np.expm1(-gamma * ((X[:, None, :] - X[None, :, :]) ** 2).sum(axis=2)))


def laplacian(gamma: float, X: np.ndarray) -> Value:
    return Value(1.0, np.expm1(-gamma * np.abs(X[:, None, :] - X[None, :, :]).sum(axis=2)))


def rational(gamma: float, alpha: float, X: np.ndarray) -> Value:
    D = gamma * ((X[:, None, :] - X[None, :, :]) ** 2).sum(axis=2)
    return Value(1.0, np.expm1(-alpha * np.log1p(D / alpha)))


def random_kernel(rng: np.random.Generator, X: np.ndarray, depth: int) -> tuple[Kernel, Value]:
    """A random expression of flat kernels, and its value."""
    if depth == 0:
        gamma = float(rng.choice(GAMMAS)) * float(rng.uniform(0.5, 2.0))
        kind = int(rng.integers(3))
        if kind == 0:
            return RBF(gamma), rbf(gamma, X)
        if kind == 1:
            return Laplacian(gamma), laplacian(gamma, X)
        return RationalQuadratic(gamma, 1.5), rational(gamma, 1.5, X)
    k, value = random_kernel(rng, X, depth - 1)
    kind = int(rng.integers(5))
    if kind == 0:
        return exp(k), value.exp()
    if kind == 1:
        exponent = int(rng.integers(1, 6))
        return k**exponent, value**exponent
    if kind == 2:
        factor = float(rng.uniform(0.1, 2.0))
        return factor * k, factor * value
    other, other_value = random_kernel(rng, X, int(rng.integers(depth)))
    return (k * other, value * other_value) if kind == 3 else (k + other, value + other_value)


def points(rng: np.random.Generator, dtype: str) -> np.ndarray:
    return (rng.standard_normal((50, 4)) * (rng.random((50, 4)) < 0.8)).astype(dtype)


@each("seed", range(6))
@each("dtype", ["float64", "float32"])
@each("route", ["dense", "sparse", "randomized", "nystrom"])
def test_random_expressions_of_flat_kernels_keep_their_digits(route: str, dtype: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = points(rng, dtype)
    kernel, value = random_kernel(rng, X.astype(np.float64), 3)
    Kc = oracle.centered(value.above)
    wanted = oracle.eigenpairs(Kc, 2)[0]
    iterative = BlockKrylov(tol=1e-4 if dtype == "float32" else 1e-10)
    solver = {"nystrom": Nystrom(rank=50), "randomized": iterative}.get(route, "dense")
    rows = scipy.sparse.csr_array(X) if route == "sparse" else X
    model = KernelPCA(2, kernel=kernel, eigen_solver=solver, random_state=0)
    model.fit(rows)
    accuracy = (
        {"float64": 1e-9, "float32": 1e-4}[dtype]
        if route in ("randomized", "nystrom")
        else (100.0 * np.finfo(dtype).eps)
    )
    assert np.max(np.abs(model.eigenvalues_ - wanted)) <= accuracy * wanted[0]
    scores = model.transform(rows)
    assert np.max(np.abs(scores.T @ scores - np.diag(wanted))) <= 20.0 * accuracy * wanted[0]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    "make", [lambda k: k * k, lambda k: k**3, exp, lambda k: exp(k * k) ** 2], ids=["square", "cube", "exp", "nested"]
)
def test_the_flat_limit_of_a_combined_kernel_is_pca(make: Any, dtype: str) -> None:
    """With k = 1 - gamma ‖x - y‖² + ... any smooth function of it gives the axes of PCA."""
    X = np.random.default_rng(0).standard_normal((60, 3)).astype(dtype) * np.asarray([3.0, 2.0, 1.0], dtype=dtype)
    flat = KernelPCA(3, kernel=make(RBF(1e-10))).fit(X)
    linear = KernelPCA(3, kernel="linear").fit(X)
    shares = flat.eigenvalues_ / flat.eigenvalues_[0]
    accuracy = {"float64": 1e-7, "float32": 1e-5}[dtype]
    assert np.max(np.abs(shares - linear.eigenvalues_ / linear.eigenvalues_[0])) <= accuracy
    assert flat.converged_


def test_what_is_no_constant_is_not_left_out() -> None:
    """Products with kernels that are not flat, whose centering leaves out more, or that are too large to shift."""
    X = np.random.default_rng(0).standard_normal((40, 3))
    flat = RBF(1e-8)
    for kernel in (flat * Linear(), flat * RBF(0.5), Modulated(flat, lambda rows: rows[:, 0]), exp(Linear() + flat)):
        template = kernel.template(X, centered=True)
        assert not template.shifted
        assert kernel.offset(template) == 0.0
        values = oracle.eigenpairs(oracle.centered(kernel(X)), 3)[0]
        assert np.max(np.abs(KernelPCA(3, kernel=kernel).fit(X).eigenvalues_ - values)) <= 1e-12 * values[0]
    for kernel in (exp(1e3 * flat), (1e200 * flat) ** 2, Matern(1e-8) * flat):
        assert not kernel.template(X, centered=True).shifted
    zero = flat**0
    assert not zero.template(X, centered=True).shifted
    assert np.array_equal(zero(X), np.ones((40, 40)))


@pytest.mark.parametrize("kernel", [RBF(1e-8) * Laplacian(1e-8), (2.0 * RBF(1e-8)) ** 3, exp(RBF(1e-8) + RBF(1e-9))])
def test_offset_and_tile_make_the_kernel(kernel: Kernel) -> None:
    X = np.random.default_rng(1).standard_normal((20, 3))
    rows = kernel.prepare(X, centered=True)
    assert rows.shifted
    assert kernel.offset(rows) == pytest.approx(float(kernel.diagonal(X)[0]), rel=1e-14)
    assert np.max(np.abs(kernel.tile(rows, rows) + kernel.offset(rows) - kernel(X))) <= 1e-14 * kernel.offset(rows)
    assert np.max(np.abs(kernel.tile_diagonal(rows))) <= 1e-15 * kernel.offset(rows)


# -- sums of a large, nearly constant kernel and a small one -----------------------------------------------------------


def matern(gamma: float, X: np.ndarray) -> Value:
    """Matérn with nu = 3/2, (1 + r) exp(-r) = 1 + ((1 + r) expm1(-r) + r), by its series for small r."""
    r = np.sqrt(6.0 * gamma * ((X[:, None, :] - X[None, :, :]) ** 2).sum(axis=2))
    series = -(r**2) / 2.0 + r**3 / 3.0 - r**4 / 8.0 + r**5 / 30.0
    return Value(1.0, np.where(r < 1e-2, series, (1.0 + r) * np.expm1(-r) + r))


def products(gamma: float, X: np.ndarray) -> Value:
    t = gamma * (X @ X.T)
    return Value(1.0, 2.0 * t + t * t)


LARGE = {
    "matern": (lambda gamma: Matern(gamma, 1.5), matern),
    "poly": (lambda gamma: Polynomial(2, gamma=gamma), products),
    "rbf": (RBF, rbf),
}


@each("dtype", ["float64", "float32"])
@each("small", [1e-5, 1e-3, 0.1])
@each("size", [1e2, 1e6, 1e9])
@each("name", LARGE)
def test_the_certificate_of_a_sum_knows_the_size_that_cancels(name: str, size: float, small: float, dtype: str) -> None:
    """Never refused as indefinite, never further off than certified, and lost components are reported."""
    make, exact = LARGE[name]
    X = np.random.default_rng(0).standard_normal((70, 3)).astype(dtype)
    gamma = 1e-3 / size
    wide = X.astype(np.float64)
    kernel, value = size * make(gamma) + RBF(small), size * exact(gamma, wide) + rbf(small, wide)
    wanted = oracle.eigenpairs(oracle.centered(value.above), 3)[0]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = KernelPCA(3, kernel=kernel, eigen_solver=Nystrom(rank=65), random_state=0).fit(X)
    lost = [str(seen.message) for seen in caught if issubclass(seen.category, PrecisionWarning)]
    assert all(issubclass(seen.category, (PrecisionWarning, RankWarning)) for seen in caught)
    error = np.abs(model.eigenvalues_ - wanted)
    assert np.max(error) <= model.certificate_ * 1.001 + 1e-12 * wanted[0]
    assert np.max(error) <= 0.05 * wanted[0] or any("cannot resolve" in text for text in lost)
    largest = float(model.eigenvalues_[0])
    tolerance = {"float64": 1e-8, "float32": 1e-5}[dtype]
    assert model.converged_ == bool(np.all(model.residual_norms_ <= tolerance * largest))
    assert ("not converged" in model.solver_) == (not model.converged_)


def test_rounding_above_the_tolerance_of_nystrom_is_what_the_warning_names() -> None:
    X = np.random.default_rng(0).standard_normal((70, 3))
    kernel = 1e6 * Matern(1e-10, 1.5) + RBF(1e-4)
    with pytest.warns(ConvergenceWarning, match=r"the kernel's rounding exceeds the tolerance.*Allow a larger tol"):
        KernelPCA(2, kernel=kernel, eigen_solver=Nystrom(rank=65, tol=1e-7), random_state=0).fit(X)
