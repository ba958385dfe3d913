"""Memory of a worker, and elementwise functions that write to it."""

from __future__ import annotations

import numpy as np
import pytest

from gpukpca.backend.elementwise import Scratch, clip_above, difference
from tests.conftest import Namespace
from tests.each import each


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_results_of_one_name_share_memory_that_grows(xp: Namespace, dtype: str) -> None:
    like = xp.array(np.zeros((1, 1), dtype))
    scratch = Scratch(like)
    first = scratch.place("block", (4, 3))
    if xp.name != "numpy":
        assert first is None
        return
    smaller, other = scratch.place("block", (2, 5)), scratch.place("product", (4, 3))
    larger = scratch.place("block", (5, 3))
    assert [place.shape for place in (first, smaller, other, larger)] == [(4, 3), (2, 5), (4, 3), (5, 3)]
    assert all(place.dtype == dtype and place.flags.c_contiguous for place in (first, smaller, other, larger))
    assert np.shares_memory(first, smaller)
    assert not np.shares_memory(first, other)
    assert np.shares_memory(larger, scratch.place("block", (1, 15)))


def test_a_difference_is_the_same_in_new_and_in_given_memory() -> None:
    a, b, place = np.arange(6.0).reshape(2, 3), np.ones((1, 3)), np.empty((2, 3))
    assert difference(a, b, place) is place
    assert np.array_equal(place, difference(a, b))


@each("dtype", ["float32", "float64"])
@each("row", [[], [-1.0, -2.0], [-1.0, 0.0], [1.0, -1.0], [np.inf, -np.inf], [np.nan, -1.0]])
def test_entries_are_clipped_where_one_exceeds_the_bound_and_where_none_does(row: list[float], dtype: str) -> None:
    T = np.array([row], dtype=dtype)
    np.testing.assert_array_equal(clip_above(T.copy(), 0.0), np.clip(T, None, 0.0), strict=True)
