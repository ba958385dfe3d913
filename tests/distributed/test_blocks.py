"""Blocks whose rows stay on the workers: arrays as NumPy's, and iterations whose basis never comes to this process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpukpca import KernelPCA
from gpukpca.backend.linalg import column_norms
from gpukpca.backend.namespace import cast, from_host, full, namespace_of, to_host
from gpukpca.backend.orthogonalization import orthonormal_directions
from gpukpca.backend.random import random_directions
from gpukpca.data.products import column_sums, inner_products, times_small
from gpukpca.distributed.blocks import RemoteBlock
from gpukpca.distributed.client import Cluster
from gpukpca.distributed.rows import ClusterRows
from gpukpca.eigen import BlockKrylov
from gpukpca.exceptions import DeviceMismatchError
from tests.distributed.test_estimators import D, chunked, data, gathered_bytes, smooth
from tests.tolerances import eps

pytest.importorskip("dask")
pytest.importorskip("distributed")
__all__ = ["gathered_bytes"]


def on_workers(client: Any, A: np.ndarray) -> RemoteBlock:
    """Return an array as a block in seven panels, of which the last has fewer rows than the others."""
    return RemoteBlock.of_array(A, ClusterRows.of_array(A, Cluster(client)).grouped(7))


def test_a_block_on_the_workers_is_an_array(client):
    A = np.random.default_rng(0).standard_normal((50, 4))
    V = on_workers(client, A)
    xp, S, row = namespace_of(V), A[:4, :3], A[:1]
    small = from_host(row[0], V)
    assert type(small) is np.ndarray  # arrays of n rows alone are blocks
    everywhere = {
        "difference": (V - small[None, :], A - row),
        "operations": ((2.0 * V + V * V) / row - V, (2.0 * A + A * A) / row - A),
        "columns": (V[:, 1:3], A[:, 1:3]),
        "product": (times_small(V, S), A @ S),
        "moduli": (xp.abs(V), np.abs(A)),
        "side by side": (xp.concat([V, full((50, 1), 0.5, V)], axis=1), np.column_stack([A, np.full(50, 0.5)])),
        "narrow": (cast(V, np.float32), A.astype(np.float32)),
    }
    for name, (found, expected) in everywhere.items():
        assert isinstance(found, RemoteBlock), name
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype), name
        np.testing.assert_allclose(to_host(found), expected, rtol=0, atol=8 * eps(str(found.dtype)) * 50, err_msg=name)
    here = {
        "sums": (column_sums(V), np.sum(A, axis=0)),
        "norms": (column_norms(1e200 * V), 1e200 * np.linalg.norm(A, axis=0)),
        "products": (inner_products(V, V[:, :2]), A.T @ A[:, :2]),
        "extreme": (xp.max(V), np.max(A)),
        "column": (V[:, 2], A[:, 2]),
    }
    for name, (found, expected) in here.items():
        np.testing.assert_allclose(found, expected, rtol=8 * 50 * eps("float64"), err_msg=name)
    assert bool(xp.all(xp.isfinite(V)))
    assert not bool(xp.all(xp.isfinite(on_workers(client, np.where(np.isclose(A, A[20, 3]), np.nan, A)))))
    with pytest.raises(DeviceMismatchError):
        namespace_of(V, A)
    with pytest.raises(DeviceMismatchError):
        namespace_of(V, on_workers(client, A))
    with pytest.raises(IndexError):
        V[2:3, :]


def test_directions_of_a_block_are_orthonormal_at_any_rank(client):
    A = np.random.default_rng(0).standard_normal((50, 9))  # panels of eight rows: fewer than columns
    for B, rank in ((A, 9), (np.column_stack([A[:, :3], A[:, :3]]), 3), (A * 10.0 ** -np.arange(0, 18, 2), 7)):
        V = on_workers(client, B)
        Q = orthonormal_directions(V, floor=1e-13)
        assert Q.shape == (50, rank)
        np.testing.assert_allclose(inner_products(Q, Q), np.eye(rank), rtol=0, atol=50 * eps("float64"))
        Q = to_host(Q)
        np.testing.assert_allclose(Q @ (Q.T @ B), B, rtol=0, atol=1e-12)
    drawn = random_directions(np.random.default_rng(0), (50, 3), V)
    np.testing.assert_array_equal(to_host(drawn), random_directions(np.random.default_rng(0), (50, 3), A))


def test_an_iteration_keeps_its_basis_on_the_workers(active, gathered_bytes, sizes):
    n, p = 2000, 4
    X, settings = data(n), {"kernel": "rbf", "gamma": 0.05, "n_components": p, "random_state": 0}
    settings["eigen_solver"] = BlockKrylov(tol=1e-3)
    here = KernelPCA(**settings).fit(X)
    sizes(LOCAL_BLOCK_BYTES=0)
    there = KernelPCA(**settings).fit(chunked(X, 500))
    assert "with the basis" in str(there.plan_)
    assert there.n_passes_ == here.n_passes_
    # Blocks have eight columns here. The model has the rows, the vectors and their products; vectors are gathered
    # alone, and of the basis products with a block.
    longest, columns = -(-n // 4), here.plan_.solver.basis_columns(n, p, False)
    assert here.plan_.solver.width(n, p, False) == 8
    assert max(gathered_bytes) <= 8 * max(longest * D, columns * 9)
    np.testing.assert_allclose(there.eigenvalues_, here.eigenvalues_, rtol=100 * eps("float64"))
    np.testing.assert_allclose(there.eigenvectors_, here.eigenvectors_, rtol=0, atol=1e-9)


def test_shares_and_restarts_take_as_many_passes_as_in_one_process(active, sizes):
    sizes(LOCAL_BLOCK_BYTES=0)
    X = smooth(203)
    shared = {"n_components": 0.6, "eigen_solver": "randomized"}
    for given in (shared | {"tol": 1e-2}, {"eigen_solver": BlockKrylov(max_blocks=1, tol=3e-2)}):
        settings: dict[str, Any] = {"kernel": "rbf", "gamma": 0.1, "n_components": 2, "random_state": 0} | given
        here, there = KernelPCA(**settings).fit(X), KernelPCA(**settings).fit(chunked(X, 101))
        assert "with the basis" in str(there.plan_), given
        assert there.n_passes_ == here.n_passes_, given
        np.testing.assert_allclose(
            there.eigenvalues_, here.eigenvalues_, rtol=0, atol=1e-12 * here.eigenvalues_[0], err_msg=str(given)
        )


def test_blocks_come_here_where_they_are_needed_here(active, sizes, tmp_path):
    sizes(LOCAL_BLOCK_BYTES=0)
    settings = {"kernel": "rbf", "gamma": 0.05, "n_components": 3, "random_state": 0}
    for given in (
        {"checkpoint": tmp_path},
        {"eigen_solver": BlockKrylov(or_dense=True)},
        {"eigen_solver": "dense"},
    ):
        model = KernelPCA(**settings | given)
        assert "with the basis" not in str(model.plan(chunked(data()))), given
    assert "with the basis" in str(KernelPCA(**settings, eigen_solver="randomized").plan(chunked(data())))
    sizes(LOCAL_BLOCK_BYTES=2**28)
    assert "with the basis" not in str(KernelPCA(**settings, eigen_solver="randomized").plan(chunked(data())))
