"""Many cases of one test in one item of pytest, which costs time and a line of the report for every item."""

from __future__ import annotations

import functools
import inspect
import itertools
import unittest
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tests.conftest import reset


def covering(*factors: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return rows of the product of the factors in which every two values of two factors meet: few of very many."""
    values = [list(factor) for factor in factors]
    rows = list(itertools.product(*(range(len(factor)) for factor in values)))
    pairs = {row: set(itertools.combinations(enumerate(row), 2)) for row in rows}
    missing, chosen = set().union(*pairs.values()), []
    while missing:
        chosen.append(max(rows, key=lambda row: len(pairs[row] & missing)))
        missing -= pairs[chosen[-1]]
    return [tuple(factor[k] for factor, k in zip(values, row, strict=True)) for row in chosen]


def each(names: str, cases: Iterable[Any], ids: Callable[[Any], str] = repr) -> Callable[..., Any]:
    """Run a test for every case, as `pytest.mark.parametrize(names, cases)`, in one item; a failure names its case.

    Every case starts from the state that a test starts from: seeds, and what the process knows. Fixtures are shared,
    so a test takes none that it changes. A case that is skipped skips no other; where all are skipped, the test is.
    """
    keys = [name.strip() for name in names.split(",")]
    rows = [tuple(case) if len(keys) > 1 else (case,) for case in cases]
    assert rows, f"no case of {names}"
    assert all(len(row) == len(keys) for row in rows), f"a case of {names} has another number of values"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)

        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            skipped = []
            for row in rows:
                reset()
                try:
                    test(**fixtures, **dict(zip(keys, row, strict=True)))
                except (pytest.skip.Exception, unittest.SkipTest) as skip:
                    skipped.append(str(skip))
                except BaseException as error:
                    error.add_note(", ".join(f"{key} = {ids(value)}" for key, value in zip(keys, row, strict=True)))
                    raise
            if len(skipped) == len(rows):
                pytest.skip("; ".join(dict.fromkeys(skipped)))

        others = [value for name, value in signature.parameters.items() if name not in keys]
        run.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return run

    return decorate
