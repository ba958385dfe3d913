"""The loop over cases inside one test: it runs every one, names the one that fails, and starts each from one state."""

from __future__ import annotations

import inspect
import itertools

import numpy as np
import pytest

from tests.each import covering, each


def test_every_case_runs_from_the_same_state_beside_the_fixtures(tmp_path):
    seen = []

    @each("a, b", [(1, 2), (3, 4)])
    def looped(tmp_path, a, b):
        seen.append((tmp_path, a, b, np.random.default_rng().random(), np.random.random()))  # noqa: NPY002

    assert list(inspect.signature(looped).parameters) == ["tmp_path"]
    looped(tmp_path=tmp_path)
    first, second = seen
    assert (first[:3], second[:3]) == ((tmp_path, 1, 2), (tmp_path, 3, 4))
    assert first[3:] == second[3:]


def test_the_case_that_fails_is_named():
    @each("name", ["right", "wrong", "later"])
    def looped(name):
        assert name == "right"

    with pytest.raises(AssertionError) as caught:
        looped()
    assert caught.value.__notes__ == ["name = 'wrong'"]


def test_a_skipped_case_skips_no_other():
    def looped(done, fewest):
        @each("number", [1, 2])
        def test(number):
            if number < fewest:
                pytest.skip("too small")
            done.append(number)

        test()
        return done

    assert looped([], 2) == [2]
    with pytest.raises(pytest.skip.Exception, match="too small"):
        looped([], 3)


def test_few_rows_of_a_product_have_every_pair_of_values():
    factors = "abcde", [1, 2, 3], [False, True], ["x", "y"]
    rows = covering(*factors)
    assert set(rows) <= set(itertools.product(*factors))
    assert len(rows) == 15  # of 60: fewer have not all pairs of the first two
    for i, j in itertools.combinations(range(4), 2):
        assert {(row[i], row[j]) for row in rows} == set(itertools.product(factors[i], factors[j]))
    assert covering("ab", "cd") == list(itertools.product("ab", "cd"))


def test_a_loop_over_nothing_is_refused():
    with pytest.raises(AssertionError, match="no case of path"):
        each("path", [])
