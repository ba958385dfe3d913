"""Bases from Gram matrices: the span, the digits, and the cases that they leave to Householder's method."""

from __future__ import annotations

import numpy as np
import pytest

from gpukpca.backend.linalg import inner_products, times_small
from gpukpca.backend.orthogonalization import (
    directions_by_gram,
    orthonormal_columns,
    orthonormal_directions,
    orthonormalizing_factor,
)
from tests import tolerances


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
    basis = xp.host(times_small(rough, orthonormalizing_factor(inner_products(rough, rough))))
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
    assert orthonormalizing_factor(inner_products(V, V)) is None


def test_columns_are_orthonormal_whatever_they_were(xp, rng, dtype):
    """Also dependent ones, zeros and nearly collinear ones; the first k span the first k, with their signs."""
    eps, Q = tolerances.eps(dtype), np.linalg.qr(rng.standard_normal((60, 5)))[0]
    cases = {
        "orthonormal": Q,
        "near": Q + 0.01 * rng.standard_normal((60, 5)),
        "any": rng.standard_normal((60, 5)) * [1e3, 1.0, 1e-3, 1.0, 1.0],
        "short": Q * [1.0, 1.0, 0.1, 1e-3, 1e-6],
        "collinear": Q[:, :1] + 1e-5 * rng.standard_normal((60, 5)),
        "twice": Q[:, [0, 1, 1, 0, 2]],
        "zeros": np.zeros((60, 5)),
        "square": np.ones((5, 5)),
        "none": np.zeros((60, 0)),
    }
    for name, V in cases.items():
        given = xp.array(V.astype(dtype))
        found = orthonormal_columns(given)
        assert xp.owns(found), name
        basis = xp.host(found).astype(np.float64)
        assert np.max(np.abs(basis.T @ basis - np.eye(V.shape[1])), initial=0.0) <= 100 * eps, name
        if name == "orthonormal":
            assert found is given
        if name in ("near", "any", "short"):
            expected, R = np.linalg.qr(V)
            np.testing.assert_allclose(basis, expected * np.sign(np.diagonal(R)), rtol=0, atol=200 * eps, err_msg=name)


def test_directions_of_a_matrix_whose_svd_fails_come_from_its_transpose(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    V = rng.standard_normal((30, 3)) @ rng.standard_normal((3, 5))
    expected, svd, failures = orthonormal_directions(V, 1e-9), np.linalg.svd, iter([np.linalg.LinAlgError])

    def failing(A: np.ndarray, **options: bool) -> object:
        for failure in failures:
            raise failure
        return svd(A, **options)

    monkeypatch.setattr(np.linalg, "svd", failing)
    found = orthonormal_directions(V, 1e-9)
    assert expected is not None
    assert found is not None
    np.testing.assert_allclose(found @ found.T, expected @ expected.T, atol=1e-12)
