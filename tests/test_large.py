"""Sizes whose entries 32 bits cannot count: 46 341² > 2³¹. Points on a circle are the oracle at any n.

K of n even points on the unit circle is circulant, its eigenvectors are cos kθ and sin kθ, and with the Gaussian kernel
λ_k = n exp(-2γ) I_k(2γ), up to aliases that vanish for n >> k. Abramowitz & Stegun, eq. 9.6.34.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import ive

from gpukpca import KernelPCA
from gpukpca.data.column_basis import ColumnBasis
from gpukpca.data.statistics import constant_columns, feature_means
from gpukpca.gram import CenteredGram, DenseGram, gram_matrix
from gpukpca.kernels import RBF
from tests.tolerances import eps

N = 46_342
GAMMA = 0.5
GIB = 2**30
LIBRARIES = ["numpy", "cupy"]

pytestmark = pytest.mark.alone


@pytest.fixture(params=LIBRARIES)
def large(request: pytest.FixtureRequest) -> Any:
    """NumPy, and CuPy where a device is."""
    from tests.conftest import MAKERS

    if request.param not in MAKERS:
        pytest.skip("no CUDA device")
    return MAKERS[request.param]()


@pytest.fixture
def on_device(large: Any) -> Any:
    """The device alone, where it has memory for arrays beyond 2³¹ entries."""
    if large.name != "cupy":
        pytest.skip("a matter of devices")
    free, _ = large.module.cuda.runtime.memGetInfo()
    if free < 30 * GIB:
        pytest.skip("the device has less than 30 GiB free")
    return large


def circle(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Points (n, 2), and the vectors cos θ, sin θ, cos 2θ of unit length (n, 3)."""
    angles = 2 * np.pi * np.arange(n) / n
    waves = np.stack([np.cos(angles), np.sin(angles), np.cos(2 * angles)], axis=1)
    return waves[:, :2].copy(), waves * np.sqrt(2 / n)


def eigenvalues(n: int) -> np.ndarray:
    """Of cos θ, sin θ and cos 2θ."""
    return n * ive([1, 1, 2], 2 * GAMMA)


def test_a_pass_over_more_entries_than_32_bits_count(large: Any) -> None:
    X, V = circle(N)
    V = V.astype(np.float32)
    op = CenteredGram.of_kernel(RBF(GAMMA), large.array(X.astype(np.float32)), cached_tiles=0)
    product = large.host(op @ large.array(V)).astype(np.float64)
    size = eigenvalues(N)[0]
    np.testing.assert_allclose(product, V * eigenvalues(N), rtol=0, atol=100 * eps("float32") * size * N**-0.5)
    assert abs(op.trace - N * (1 - ive(0, 2 * GAMMA))) <= 1e-6 * N


def test_a_stored_matrix_of_more_entries_than_32_bits_count(on_device: Any) -> None:
    X, V = circle(N)
    K = gram_matrix(RBF(GAMMA), on_device.array(X.astype(np.float32)))
    # Rows on both sides of entry 2³¹, and the last.
    for row in (0, 2**31 // N - 1, 2**31 // N, 2**31 // N + 1, N - 1):
        wanted = np.exp(-GAMMA * ((X - X[row]) ** 2).sum(axis=1))
        np.testing.assert_allclose(on_device.host(K[row, :]), wanted, rtol=0, atol=4e-6)
    product = on_device.host(CenteredGram(DenseGram(K)) @ on_device.array(V.astype(np.float32)))
    size = eigenvalues(N)[0]
    np.testing.assert_allclose(product, V * eigenvalues(N), rtol=0, atol=50 * eps("float32") * size * N**-0.5)


def test_a_fit_whose_dense_solver_is_not_offered_so_much(on_device: Any) -> None:
    X, _ = circle(N)
    model = KernelPCA(3, kernel="rbf", gamma=GAMMA, random_state=0).fit(on_device.array(X.astype(np.float32)))
    np.testing.assert_allclose(on_device.host(model.eigenvalues_), eigenvalues(N), rtol=2e-5)


def test_tall_arrays_of_more_entries_than_32_bits_count(on_device: Any) -> None:
    xp = on_device.module
    X = xp.ones((23_000_000, 100), dtype=xp.float32)
    X[-1, 7] = 3.0
    means = on_device.host(feature_means(X))
    np.testing.assert_allclose(means[[6, 7]], [1.0, 1.0 + 2.0 / len(X)], rtol=0, atol=1e-12)
    constant = constant_columns(X)
    assert constant.sum() == 99
    assert not constant[7]


def test_a_basis_of_more_entries_than_32_bits_count(on_device: Any) -> None:
    xp, n, b = on_device.module, 3_500_000, 64
    basis = ColumnBasis.with_capacity(n, 10 * b, xp.zeros(0, dtype=xp.float32))
    for number in range(10):
        basis = basis.append(xp.full((n, b), float(number + 1), dtype=xp.float32))
    last = basis.array[:, -1:]
    products = basis.products_with(last)
    np.testing.assert_allclose(products[:, 0], n * 10.0 * np.repeat(np.arange(1.0, 11.0), b), rtol=1e-12)
    combined = basis.combine(np.ones((10 * b, 2)))
    np.testing.assert_allclose(on_device.host(combined[-3:, :]), 55.0 * b, rtol=1e-6)
