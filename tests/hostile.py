"""Hostile input: work in processes that may crash, and random changes to index arrays of CSR matrices."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse

EXTREMES = (-(2**31), -1, 0, 1, 5, 6, 7, 2**31 - 1)
forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes as on POSIX")


def in_a_process(work: Callable[[], str]) -> str:
    """Return the text of `work`, run in a forked process; fail where that crashes or raises."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, work().encode())
        except BaseException:
            os.write(writer, traceback.format_exc()[-4000:].encode())
            os._exit(1)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read().decode()
    assert os.waitpid(child, 0)[1] == 0, text or "the process crashed"
    return text


def without_modules(names: tuple[str, ...], hidden: tuple[str, ...], code: str) -> None:
    """Run code in a process that has to import the named packages again, and cannot import the hidden ones."""

    def work() -> str:
        for name in [name for name in sys.modules if name.partition(".")[0] in (*names, *hidden)]:
            del sys.modules[name]
        sys.modules.update(dict.fromkeys(hidden))
        exec(code, {})
        return ""

    in_a_process(work)


def valid_parts() -> dict[str, Any]:
    matrix = scipy.sparse.random_array((8, 6), density=0.4, format="csr", rng=0)
    return {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr, "shape": matrix.shape}


def mutated(index: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return an index array after one random change."""
    index = index.astype(rng.choice([np.int32, np.int64]))
    extremes = (*EXTREMES, 2**62, -(2**63)) if index.dtype == np.int64 else EXTREMES
    place, other = rng.integers(len(index), size=2)
    change = rng.integers(8)
    if change == 0:
        index[place] = rng.choice(extremes)
    elif change == 1:
        index[[place, other]] = index[[other, place]]
    elif change == 2:  # what an order check of SciPy skips
        index[1:-1] = rng.choice(extremes)
        index[-1] = 0
    elif change == 3:
        index = index[: rng.integers(len(index))]
    elif change == 4:
        index = np.append(index, index.dtype.type(rng.choice(extremes)))
    elif change == 5:
        index = index[::-1].copy()
    elif change == 6:
        index[place] = max(int(index[place]), -(2**31) + 2) + int(rng.integers(-2, 1))
    else:
        index = index.astype(np.float64) if rng.random() < 0.2 else index[:, None]
    return index
