"""The parts of an audit: the bound on a norm from Gaussian vectors, features by panels, measured pairs."""

from __future__ import annotations

import numpy as np
import pytest

from gpukpca.algorithms.audit import UnitVectors, measured_pairs
from gpukpca.algorithms.kernel_pca.audit import ALPHA, VECTORS, norm_bound
from gpukpca.algorithms.kernel_pca.weighted_features import WeightedFeatures
from gpukpca.backend import blocking
from gpukpca.eigen import landmark_cholesky
from gpukpca.exceptions import InvalidParameterError
from gpukpca.gram import BasePointGram, DenseGram
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
            one, two = norm_bound([first], 0.0), norm_bound([first, second], 0.0)
            assert norm <= one
            assert norm <= two <= one * (1 + 1e-12)  # where one pass has a bound, the second one tightens it
            assert one <= 8.0 * frobenius  # ‖Aω‖ has that size; of 30 normal numbers, hardly one is above 4
    assert 0.0 < ALPHA**-VECTORS < 1e-9


def test_rounding_only_loosens_the_bound_on_a_norm():
    for norms in ([2.0], [2.0, 3.0]):
        bounds = [norm_bound(norms, rounding) for rounding in (0.0, 1e-3, 1e-2)]
        assert bounds[0] < bounds[1] - 1e-3 < bounds[2] - 1e-3
    assert norm_bound([0.0], 1e-3) > 1e-3


@pytest.mark.parametrize("kernel", [RBF(0.1), RBF(1e-8), Linear(), Polynomial(2, 0.3, 1.0)], ids=str)
def test_features_by_panels_are_those_of_the_cholesky_factor(xp, dtype, sizes, kernel):
    X, chosen = operators.points(90, 3).astype(dtype), np.array([3, 80, 41, 12, 5, 77])
    there, template = xp.array(X), kernel.template(xp.array(X), centered=True)
    op = shifted_gram(kernel, there, template)
    shifted = op.rows.shifted
    factor = landmark_cholesky(BasePointGram(op, 77) if shifted else op, chosen[:-1] if shifted else chosen)
    F = xp.host(factor.F).astype(np.float64)
    F = F - F.mean(axis=0)
    V = operators.points(90, 4, seed=1).astype(dtype)
    features = WeightedFeatures.of_rows(kernel, there, chosen, template)
    assert features.rank == factor.rank
    # What base point and rounding of small pivots leave, relative to the largest eigenvalue.
    allowed = 1e4 * tolerances.eps(dtype) * np.linalg.norm(F, 2) ** 2
    for entries in (2**20, 64):  # one panel, and many
        sizes(PANEL_ENTRIES=blocking.PerDevice(entries, entries))
        gram, products = features.gram_and_products(there, xp.array(V), 1)
        assert np.max(np.abs(np.linalg.eigvalsh(gram) - np.linalg.eigvalsh(F.T @ F))) <= allowed
        assert np.allclose(products, features.products(there, xp.array(V), 1), rtol=1e-9, atol=0.0)
        found = features.times(there, products, 1)
        assert xp.owns(found)
        assert np.max(np.abs(xp.host(found) - F @ (F.T @ V))) <= allowed * np.linalg.norm(V, 2)


def test_features_of_a_stored_matrix_are_those_of_its_kernel():
    X, chosen = operators.points(60, 3), np.array([3, 50, 41, 12])
    K = oracle.gram(oracle.rbf(0.1), X)
    stored = WeightedFeatures.of_rows(Precomputed(), K, chosen, None)
    kernel = RBF(0.1)
    evaluated = WeightedFeatures.of_rows(kernel, X, chosen, kernel.template(X, centered=True))
    V = operators.points(60, 2, seed=1)
    for one, other in zip(stored.gram_and_products(K, V, 1), evaluated.gram_and_products(X, V, 1), strict=True):
        assert np.allclose(one, other, rtol=1e-9, atol=1e-11)
    assert max(stored.noise, evaluated.noise) < 1e-12


def test_equal_landmarks_count_once():
    X = np.repeat(operators.points(30, 3), 2, axis=0)
    kernel = RBF(0.1)
    features = WeightedFeatures.of_rows(kernel, X, np.array([0, 1, 8, 9]), kernel.template(X, centered=True))
    assert features.rank == 2
    assert features.noise < 1e-12


def test_pairs_are_measured_for_any_vectors():
    A = oracle.with_spectrum(np.array([3.0, 2.0, 1.0, 0.5, 0.0]), 2)
    op, V = DenseGram(A), np.random.default_rng(0).standard_normal((5, 3)) * [1e-200, 1.0, 1e200]
    U, lengths = UnitVectors.of(V)
    assert np.allclose(np.linalg.norm(U, axis=0), 1.0)
    assert np.allclose(lengths, np.linalg.norm(V / [1e-200, 1.0, 1e200], axis=0) * [1e-200, 1.0, 1e200])
    pairs = measured_pairs(op, U, op @ U)
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
        measured_pairs(op, U, np.full((5, 3), np.inf))
