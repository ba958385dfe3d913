"""Kernels from what their family shares: the same matrix as from the rows, on every library."""

from __future__ import annotations

import numpy as np
import pytest

from gpukpca.backend.namespace import accumulation_dtype, cast
from gpukpca.gram import gram_matrix
from gpukpca.kernels import RBF, Cosine, Laplacian, Linear, Matern, Polynomial, RationalQuadratic, Sigmoid
from gpukpca.model_selection.shared_gram import common_kernel, from_common, widest_member
from tests import tolerances
from tests.conftest import Namespace

MEMBERS = [
    RBF(0.3),
    RationalQuadratic(0.3, 1.7),
    Matern(0.3, 0.5),
    Matern(0.3, 1.5),
    Matern(0.3, 2.5),
    Laplacian(0.3),
    Polynomial(3, 0.3, 1.0),
    Sigmoid(0.1, 0.2),
]

GAMMAS = (0.01, 2.0)


def with_gamma(kernel, gamma):
    return type(kernel)(**kernel.get_params() | {"gamma": gamma})


@pytest.mark.parametrize("kernel", MEMBERS, ids=repr)
def test_members_come_from_the_common_matrix_at_any_gamma(kernel, xp: Namespace, dtype, rng):
    host = rng.standard_normal((17, 3))
    if not isinstance(kernel, Polynomial | Sigmoid):  # inner products of offset data are large by themselves
        host += 1e3
    host[4] = host[7]
    X, Y = xp.array(host[:12], dtype), xp.array(host[12:], dtype)
    wide = accumulation_dtype(X)
    common = widest_member([common_kernel(with_gamma(kernel, gamma)) for gamma in GAMMAS])
    square = gram_matrix(common, cast(X, wide))
    across = gram_matrix(common, cast(X, wide), cast(Y, wide))
    before = xp.host(square).copy()
    for gamma in GAMMAS:
        member = with_gamma(kernel, gamma)
        direct = xp.host(gram_matrix(member, X)).astype(np.float64)
        K = from_common(member, common, square, X)
        assert K.dtype == X.dtype
        assert xp.owns(K)
        size = max(1.0, float(np.max(np.abs(direct))))
        np.testing.assert_allclose(xp.host(K), direct, rtol=0, atol=10 * tolerances.kernel(dtype, size))
        np.testing.assert_array_equal(xp.host(K), xp.host(K).T)
        crossed = xp.host(from_common(member, common, across, X))
        direct = xp.host(gram_matrix(member, X, Y))
        np.testing.assert_allclose(crossed, direct, rtol=0, atol=10 * tolerances.kernel(dtype, size))
    np.testing.assert_array_equal(xp.host(square), before)


@pytest.mark.parametrize("kernel", [RBF(1e-7), RationalQuadratic(1e-7), Laplacian(1e-7)], ids=repr)
def test_flat_members_keep_the_digits_that_1_would_swamp(kernel, xp: Namespace, dtype, rng):
    X = xp.array(rng.standard_normal((12, 3)), dtype)
    common = common_kernel(kernel)
    T = gram_matrix(common, cast(X, accumulation_dtype(X)))
    K = xp.host(from_common(kernel, common, T, X, flat=True)).astype(np.float64)
    exponent = xp.host(T).astype(np.float64)
    if isinstance(kernel, RationalQuadratic):
        exponent = -kernel.alpha * np.log1p(-exponent / kernel.alpha)
    np.testing.assert_allclose(K, np.expm1(exponent), rtol=20 * tolerances.eps(dtype))


def test_kernels_of_no_family_are_told(rng):
    class Own(RBF):
        """A subclass may compute anything."""

    for kernel in (Linear(), Cosine(), RBF(1.0) + RBF(2.0), Own(1.0)):
        assert common_kernel(kernel) is None


def test_a_common_kernel_with_gamma_0_gives_the_constant_kernel(rng):
    X = rng.standard_normal((5, 2))
    T = gram_matrix(common_kernel(RBF(0.0)), X)
    np.testing.assert_array_equal(from_common(RBF(0.0), common_kernel(RBF(0.0)), T, X), np.ones((5, 5)))
