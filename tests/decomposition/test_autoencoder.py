"""A linear autoencoder finds PCA's space: gradient descent on both maps reaches U Uᵀ and its error, and no axes.

min ‖X - X W_encᵀ W_decᵀ‖² over W_enc (K, d) and W_dec (d, K) has no local minimum but the global one, at
W_dec = U Ψ, W_enc = Ψ⁻¹ Uᵀ with any invertible Ψ (K, K): Baldi & Hornik, Neural Networks 2 (1989) 53.
"""

from __future__ import annotations

import numpy as np
import pytest

from gpukpca import PCA

N, D, K = 200, 6, 2


@pytest.fixture
def X(rng):
    turn = np.linalg.qr(rng.standard_normal((D, D)))[0]
    return rng.standard_normal((N, D)) * np.array([3.0, 2.0, 1.0, 0.9, 0.8, 0.7]) @ turn.T + 4.0


def descended(S, encoder, decoder, steps, rate):
    """Gradient descent on the mean squared error tr((I - D E) S (I - D E)ᵀ)."""
    for _ in range(steps):
        off = (np.eye(len(S)) - decoder @ encoder) @ S
        encoder, decoder = encoder + rate * decoder.T @ off, decoder + rate * off @ encoder.T
    return encoder, decoder


@pytest.mark.parametrize("seed", range(3))
def test_gradient_descent_reaches_the_space_and_the_error_of_pca(xp, X, seed):
    model = PCA(K).fit(xp.array(X))
    U = xp.host(model.components_).T
    centered = X - X.mean(axis=0)
    start = np.random.default_rng(seed)
    encoder, decoder = (0.3 * start.standard_normal(shape) for shape in ((K, D), (D, K)))
    encoder, decoder = descended(np.cov(X, rowvar=False, ddof=0), encoder, decoder, 3000, 0.05)
    np.testing.assert_allclose(decoder @ encoder, U @ U.T, atol=1e-8)
    error = np.mean(np.sum((centered - centered @ encoder.T @ decoder.T) ** 2, axis=1))
    left = np.sum(np.linalg.eigvalsh(np.cov(X, rowvar=False, ddof=0))[: D - K])
    assert error == pytest.approx(left, rel=1e-10)
    restored = xp.host(model.inverse_transform(model.transform(xp.array(X))))
    np.testing.assert_allclose(centered @ encoder.T @ decoder.T + X.mean(axis=0), restored, atol=1e-7)


def test_the_closed_form_leaves_a_matrix_free(xp, X, rng):
    U = xp.host(PCA(K).fit(xp.array(X)).components_).T
    S = np.cov(X, rowvar=False)
    psi = rng.standard_normal((K, K)) + 2 * np.eye(K)
    decoder, encoder = U @ psi, np.linalg.inv(psi) @ U.T
    np.testing.assert_allclose(decoder @ encoder, U @ U.T, atol=1e-12)
    off = (np.eye(D) - decoder @ encoder) @ S
    np.testing.assert_allclose(decoder.T @ off, np.zeros((K, D)), atol=1e-11)  # both gradients
    np.testing.assert_allclose(off @ encoder.T, np.zeros((D, K)), atol=1e-11)
    assert np.max(np.abs(decoder.T @ decoder - np.eye(K))) > 0.1  # not PCA's axes: only the product is determined
