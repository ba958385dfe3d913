"""The parts of an audit: the bound on a norm from Gaussian vectors, features by panels, measured pairs."""

from __future__ import annotations

import numpy as np
import pytest

from gpukpca.algorithms.audit import UnitVectors, measured_pairs
from gpukpca.algorithms.kernel_pca.audit import CenteredFactor
from gpukpca.algorithms.kernel_pca.factor_sums import LandmarkFeatures
from gpukpca.algorithms.kernel_pca.landmark_sums import FactorSums
from gpukpca.backend import blocking
from gpukpca.eigen import pivoted_cholesky
from gpukpca.eigen.norm_bound import FAILURE, VECTORS, gaussian_bound
from gpukpca.exceptions import InvalidParameterError
from gpukpca.gram import CenteredGram, DenseGram
from gpukpca.gram.base_point import BasePointGram
from gpukpca.gram.tiled import shifted_gram
from gpukpca.kernels import RBF, Linear, Polynomial, Precomputed
from tests import operators, oracle, tolerances


def test_the_norm_of_a_matrix_is_within_its_bounds_whatever_the_spectrum():
    rng = np.random.default_rng(0)
    for name in ("zero", "identity", "geometric", "one-large", "i^-1", "indefinite", "rank-5"):
        A = oracle.with_spectrum(operators.SPECTRA[name](1e-12), 1)
        norm, frobenius = np.linalg.norm(A, 2), np.linalg.norm(A)
        for _ in range(20):
            V = rng.standard_normal((operators.N, VECTORS))
            first, second = np.linalg.norm(A @ V, axis=0).max(), np.linalg.norm(A @ (A @ V), axis=0).max()
            one, two = gaussian_bound([first], 0.0), gaussian_bound([first, second], 0.0)
            assert norm <= one
            assert norm <= two <= one * (1 + 1e-12)  # where one pass has a bound, the second one tightens it
            assert one <= 8.0 * frobenius  # ‖Aω‖ has that size; of 30 normal numbers, hardly one is above 4
    assert 2.0**-VECTORS == FAILURE < 1e-9


def test_rounding_only_loosens_the_bound_on_a_norm():
    for norms in ([2.0], [2.0, 3.0]):
        bounds = [gaussian_bound(norms, rounding) for rounding in (0.0, 1e-3, 1e-2)]
        assert bounds[0] < bounds[1] - 1e-3 < bounds[2] - 1e-3
    assert gaussian_bound([0.0], 1e-3) > 1e-3


@pytest.mark.parametrize("kernel", [RBF(0.1), RBF(1e-8), Linear(), Polynomial(2, 0.3, 1.0)], ids=str)
def test_features_by_panels_are_those_of_the_cholesky_factor(xp, dtype, sizes, kernel):
    X, chosen = operators.points(90, 3).astype(dtype), np.array([3, 80, 41, 12, 5, 77])
    there, template = xp.array(X), kernel.template(xp.array(X), centered=True)
    op = shifted_gram(kernel, there, template)
    shifted = op.rows.shifted
    factor = pivoted_cholesky(BasePointGram(op, 77) if shifted else op, landmarks=chosen[:-1] if shifted else chosen)
    F0 = xp.host(factor.F).astype(np.float64)
    F = F0 - F0.mean(axis=0)
    V = operators.points(90, 4, seed=1).astype(dtype)
    rows = op.rows.take(np.append(factor.pivots, 77) if shifted else factor.pivots)
    start = FactorSums.empty(factor.pivot_factor, np.mean(F0[chosen], axis=0), relative=shifted)
    features = LandmarkFeatures(kernel, rows, start, op.like)
    assert np.allclose(xp.host(features.rows_of(there)), F0, atol=1e3 * tolerances.eps(dtype))
    # What base point and rounding of small pivots leave, relative to the largest eigenvalue.
    allowed = 1e4 * tolerances.eps(dtype) * np.linalg.norm(F, 2) ** 2
    whole = CenteredFactor(there, features, CenteredGram(op), 1)
    for entries in (2**20, 64):  # one panel, and many
        sizes(PIVOT_PANEL_ENTRIES=blocking.PerDevice(entries, entries), FEWEST_PIVOT_ROWS=7)
        gram, products = whole.products(xp.array(V))
        assert np.max(np.abs(np.linalg.eigvalsh(gram) - np.linalg.eigvalsh(F.T @ F))) <= allowed
        found = whole.times(products)
        assert xp.owns(found)
        assert np.max(np.abs(xp.host(found) - F @ (F.T @ V))) <= allowed * np.linalg.norm(V, 2)


def test_features_of_a_stored_matrix_are_those_of_its_kernel():
    X, chosen = operators.points(60, 3), np.array([3, 50, 41, 12])
    K = oracle.gram(oracle.rbf(0.1), X)
    kernel, V = RBF(0.1), operators.points(60, 2, seed=1)
    L = np.linalg.cholesky(K[np.ix_(chosen, chosen)])
    start, rows = FactorSums.empty(L, np.zeros(4)), kernel.prepare(X[chosen], like=kernel.template(X, centered=True))
    stored = LandmarkFeatures(Precomputed(), None, start, K[:0, 0], chosen)
    evaluated = LandmarkFeatures(kernel, rows, start, K[:0, 0])
    assert np.allclose(stored.rows_of(K), evaluated.rows_of(X), rtol=1e-9, atol=1e-11)
    op = CenteredGram(DenseGram(K))
    both = CenteredFactor(K, stored, op, 1).products(V), CenteredFactor(X, evaluated, op, 1).products(V)
    for one, two in zip(*both, strict=True):
        assert np.allclose(one, two, rtol=1e-9, atol=1e-11)


def test_weights_of_another_library_are_features_up_to_a_rotation():
    X, rng = operators.points(50, 3), np.random.default_rng(0)
    K = oracle.gram(oracle.rbf(0.1), X)
    # Symmetric roots, of a singular K(S, S) with an inverse that was cut off, and any matrix.
    values, Q = np.linalg.eigh(oracle.gram(oracle.rbf(0.1), X[[0, 1, 2, 2]]))
    for M in (Q @ np.diag(np.maximum(values, 1e-12) ** -0.5) @ Q.T, rng.standard_normal((4, 4))):
        features, rotation = LandmarkFeatures.of_weights(RBF(0.1), X[[0, 1, 2, 2]], M)
        F, allowed = K[:, [0, 1, 2, 2]] @ M, 1e-14 * np.linalg.cond(M)
        assert np.allclose(features.rows_of(X) @ rotation, F, atol=allowed * np.max(np.abs(F)))
        assert np.allclose(rotation.T @ rotation, np.eye(4), atol=1e-14)
        left = np.max(np.abs(1.0 - np.sum(F[[0, 1, 2, 2]] ** 2, axis=1)))
        assert np.isclose(features.start.noise, left, rtol=1e-6, atol=allowed * np.max(F**2))


def test_pairs_are_measured_for_any_vectors():
    A = oracle.with_spectrum(np.array([3.0, 2.0, 1.0, 0.5, 0.0]), 2)
    op, V = DenseGram(A), np.random.default_rng(0).standard_normal((5, 3)) * [1e-200, 1.0, 1e200]
    unit = UnitVectors.of(V)
    U, lengths = unit.Q @ unit.R, unit.lengths
    assert np.allclose(np.linalg.norm(U, axis=0), 1.0)
    assert np.allclose(lengths, np.linalg.norm(V / [1e-200, 1.0, 1e200], axis=0) * [1e-200, 1.0, 1e200])
    pairs = measured_pairs(op, unit, op @ unit.Q)
    theta = np.sum(U * (A @ U), axis=0)
    assert np.allclose(pairs.quotients, theta)
    assert np.allclose(pairs.residuals, np.linalg.norm(A @ U - U * theta, axis=0), atol=1e-12)
    Q = np.linalg.qr(U)[0]
    assert np.allclose(pairs.ritz_values, np.linalg.eigvalsh(Q.T @ A @ Q)[::-1])
    assert np.all(pairs.ritz_values <= np.array([3.0, 2.0, 1.0]) + 1e-12)  # interlacing
    with pytest.raises(InvalidParameterError, match="the vectors overflow: their lengths are infinite"):
        UnitVectors.of(np.full((5, 1), np.inf))
    with (
        np.errstate(all="ignore"),
        pytest.raises(InvalidParameterError, match="overflow: products of the matrix with the vectors are infinite"),
    ):
        measured_pairs(op, unit, np.full((5, 3), np.inf))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_ritz_values_of_nearly_collinear_vectors_are_at_most_the_eigenvalues(dtype):
    """However near the vectors are to each other, the values err by rounding of the largest eigenvalue."""
    rng, eps = np.random.default_rng(0), tolerances.eps(dtype)
    values = np.append(np.geomspace(1.0, 1e-6, 12), np.zeros(28))
    for angle in 10.0 ** -np.arange(0, 17):
        A = oracle.with_spectrum(values, int(rng.integers(99))).astype(dtype)
        V = rng.standard_normal((40, 1)) + angle * rng.standard_normal((40, 4))
        V = np.column_stack([V, V[:, 0], np.zeros(40)]).astype(dtype)  # and one twice, and one of zeros
        unit = UnitVectors.of(V)
        assert np.max(np.abs(unit.Q.T @ unit.Q - np.eye(unit.Q.shape[1]))) <= 100 * eps
        length = np.linalg.norm(V, axis=0)
        np.testing.assert_allclose(unit.Q @ unit.R * length, V, rtol=0, atol=100 * eps * np.max(length))
        op = DenseGram(A)
        pairs = measured_pairs(op, unit, op @ unit.Q)
        known = np.isfinite(pairs.ritz_values)
        assert 1 <= np.sum(known) <= 4
        assert np.all(pairs.ritz_values[known] <= values[: np.sum(known)] + 200 * eps)
        true = V[:, :5].astype(np.float64) / length[:5]
        theta = np.sum(true * (A @ true), axis=0)
        np.testing.assert_allclose(pairs.quotients, np.append(theta, 0.0), rtol=0, atol=200 * eps)
        np.testing.assert_allclose(pairs.residuals[:5], np.linalg.norm(A @ true - true * theta, axis=0), atol=400 * eps)
        assert pairs.residuals[5] == np.inf
