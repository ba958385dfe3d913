"""Bases from Gram matrices: the span, the digits, and the cases that they leave to Householder's method."""

from __future__ import annotations

import numpy as np
import pytest

from gpukpca.backend.linalg import inner_products
from gpukpca.backend.orthogonalization import directions_by_gram, orthonormalized_by_gram


def columns(rng, sizes):
    """Return columns (60, b) with these singular values, and an orthonormal basis of their span."""
    Q = np.linalg.qr(rng.standard_normal((60, len(sizes))))[0]
    P = np.linalg.qr(rng.standard_normal((len(sizes), len(sizes))))[0]
    return (Q * np.asarray(sizes)) @ P, Q


@pytest.mark.parametrize("smallest", [1.0, 1e-3, 1e-5])
def test_two_gram_matrices_give_an_orthonormal_basis_of_the_span(xp, rng, smallest):
    V, Q = columns(rng, np.geomspace(1.0, smallest, 7))
    V = xp.array(V)
    rough = directions_by_gram(V, inner_products(V, V), floor=0.1 * smallest)
    assert np.allclose(inner_products(rough, rough), np.eye(7), atol=1e-3)
    basis = xp.host(orthonormalized_by_gram(rough, inner_products(rough, rough)))
    assert np.allclose(basis.T @ basis, np.eye(7), atol=1e-14)
    assert np.allclose(Q @ (Q.T @ basis), basis, atol=1e-14 / smallest)


@pytest.mark.parametrize(
    ("sizes", "floor"), [([1.0, 0.5, 0.0], 0.0), ([1.0, 1e-7], 0.0), ([1.0, 1e-3], 2e-3), ([0.0, 0.0], 0.0)]
)
def test_directions_that_a_gram_matrix_does_not_show_are_left_to_others(xp, rng, sizes, floor):
    V = xp.array(columns(rng, sizes)[0])
    assert directions_by_gram(V, inner_products(V, V), floor) is None


def test_columns_that_lose_most_of_their_length_are_no_basis(xp, rng):
    V = xp.array(columns(rng, [1.0, 0.4])[0])
    assert orthonormalized_by_gram(V, inner_products(V, V)) is None
