"""`Rows` in batches: every verb gives what it gives for one array, however the rows are cut."""

from __future__ import annotations

from itertools import pairwise
from operator import matmul

import numpy as np
import pytest

from gpukpca.backend.namespace import namespace_of
from gpukpca.data.batches import BatchedRows, Batches, is_sliced, is_stream
from gpukpca.data.products import column_sums, inner_products, times_small
from gpukpca.data.rows import along, fold, gathered, joined, map_rows
from gpukpca.data.slicing import gather_rows, take_rows
from gpukpca.data.statistics import feature_bounds, feature_means
from gpukpca.exceptions import InvalidParameterError

N, D = 40, 5
CUTS = [(), (1,), (39,), (13, 14, 30), tuple(range(1, N))]


def batched(X, cuts=(13, 14, 30), counted=False):
    bounds = [0, *cuts, X.shape[0]]
    parts = [X[a:b, ...] for a, b in pairwise(bounds)]
    return BatchedRows(lambda: iter(parts), X[:0, ...], [int(part.shape[0]) for part in parts] if counted else None)


def squares(panel, shift):
    return namespace_of(panel).sum((panel - shift) ** 2)


def scaled(panel, other, factor):
    return panel * other * factor


def test_every_verb_is_that_of_the_array(xp, rng):
    A, B, S = (rng.standard_normal(shape) for shape in ((N, D), (N, D), (D, 2)))
    X, Y = xp.array(A), xp.array(B)
    for cuts in CUTS:
        rows = batched(X, cuts)
        assert rows.shape == (N, D)
        assert float(fold(rows, squares, 2.0)) == pytest.approx(float(fold(X, squares, 2.0)), rel=1e-13)
        np.testing.assert_array_equal(xp.host(gathered(rows)), A)
        np.testing.assert_allclose(xp.host(rows @ xp.array(S)), A @ S, atol=1e-13)
        np.testing.assert_allclose(xp.host(joined(rows, matmul, xp.array(S))), A @ S, atol=1e-13)
        mapped = map_rows(rows, scaled, along(rows, Y), 3.0, width=D)
        assert mapped.shape == (N, D)
        np.testing.assert_array_equal(xp.host(gathered(mapped)), xp.host(map_rows(X, scaled, Y, 3.0, width=D)))
        np.testing.assert_allclose(xp.host(column_sums(rows)), A.sum(axis=0), atol=1e-13)
        np.testing.assert_allclose(inner_products(rows, Y), A.T @ B, atol=1e-12)
        np.testing.assert_allclose(inner_products(rows, rows), A.T @ A, atol=1e-12)
        np.testing.assert_allclose(xp.host(times_small(rows, S)), A @ S, atol=1e-13)
        np.testing.assert_allclose(xp.host(feature_means(rows)), A.mean(axis=0), atol=1e-14)
        low, high = feature_bounds(rows)
        np.testing.assert_array_equal(xp.host(low), A.min(axis=0))
        np.testing.assert_array_equal(xp.host(high), A.max(axis=0))


def test_rows_are_taken_in_any_order(xp, rng):
    A, B = rng.standard_normal((N, D)), rng.standard_normal((N, 2))
    X, Y = xp.array(A), xp.array(B)
    for cuts in CUTS:
        rows = batched(X, cuts)
        for chosen in ([], [0], [39, 0, 0, 13], range(N), rng.permutation(N)):
            np.testing.assert_array_equal(xp.host(gather_rows(rows, chosen)), A[list(chosen)])
            both = xp.host(rows.take(chosen, rows.split(Y)))
            np.testing.assert_array_equal(both, np.c_[A, B][list(chosen)])
        np.testing.assert_array_equal(xp.host(take_rows(rows, 5, 20)), A[5:20])


def test_a_fold_merges_in_the_order_of_the_panels():
    rows = batched(np.arange(12.0)[:, None], (3, 4))
    first = rows.fold(lambda panel: [float(panel[0, 0])], merge=lambda a, b: a + b)
    assert first == [0.0, 3.0, 4.0]
    assert rows.each(len) == [3, 1, 8]


def test_counts_and_changes(rng):
    X = rng.standard_normal((N, D))
    reads = []

    def read():
        reads.append(1)
        yield from (X[:10], X[10:]) if len(reads) < 3 else (X[:10],)

    rows = BatchedRows(read, X[:0])
    assert (rows.n_rows, rows.largest) == (None, 0)
    assert rows.shape == (N, D)
    assert (rows.n_rows, rows.largest, len(reads)) == (N, 30, 1)
    rows.each(len)
    with pytest.raises(InvalidParameterError, match=r"first pass gave 40 rows, a later one 10"):
        rows.fold(len)


def test_what_is_a_stream_and_what_is_read_by_slices(tmp_path):
    X = np.ones((4, 3))
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    for given in (Batches([X, X]), Batches(lambda: iter([X])), iter([X]), (x for x in [X]), map(np.asarray, [X])):
        assert is_stream(given)
        assert not is_sliced(given)
    for given in (X, [X, X], (X,), X.tolist(), [1.0], [], "X", b"X", {"a": X}, None, mapped, batched(np.ones((N, D)))):
        assert not is_stream(given)
    assert is_sliced(mapped)
    assert not is_sliced(X)


def test_slices_of_batches_are_those_of_the_array():
    A = np.arange(60.0).reshape(20, 3)
    for sizes in ([7, 7, 6], [1] * 20, [20], [3, 1, 12, 4]):
        cuts = list(pairwise(np.cumsum([0, *sizes]).tolist()))
        begun = []

        def read(cuts=cuts, begun=begun):
            begun.append(1)
            return (A[start:stop] for start, stop in cuts)

        rows = BatchedRows(read, A[:0], sizes)
        pairs = [(start, stop) for start in range(20) for stop in range(start + 1, 21)]
        assert all(np.array_equal(rows.slice(*pair), A[slice(*pair)]) for pair in pairs)
        del begun[:]
        rows.slice(0, 1)
        for start in range(0, 20, 4):  # forward in one pass, and back by less than a batch
            rows.slice(start, start + 4)
            rows.slice(max(start - min(sizes), 0), start + 1)
        assert len(begun) <= 1
