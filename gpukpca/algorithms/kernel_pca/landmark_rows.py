"""The rows among which landmarks are chosen: those that the user named, a sample, or the first of a stream."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from gpukpca.algorithms.kernel_pca.task import Candidates, FitTask
from gpukpca.backend.namespace import dtype_name, from_host, is_sparse, item_size
from gpukpca.backend.random import random_subset
from gpukpca.data.batches import BatchedRows
from gpukpca.data.distinct import DistinctRows, first_of_each, stacked
from gpukpca.data.place import rows_at
from gpukpca.data.slicing import gather_rows, place_of
from gpukpca.eigen.landmarks import FEWEST_SAMPLED, Nystrom, checked_landmarks
from gpukpca.exceptions import InvalidParameterError


def given_landmarks(solver: Any, every: Any, X: Any) -> Candidates | None:
    """Return the landmarks that the user gave where rows X (n, d) are computed; None where a rule chooses them.

    They are points, or numbers among `every` row, of which X may have those alone that count.
    """
    if not isinstance(solver, Nystrom) or not solver.is_given:
        return None
    like, d = place_of(X), int(X.shape[1])
    if solver.points is None:
        numbers = checked_landmarks(solver.landmarks, int(every.shape[0]))
        return Candidates(rows_at(gather_rows(every, numbers), like), numbers)
    points = solver.points
    if points.shape[1] != d:
        raise InvalidParameterError(
            f"landmarks of shape {points.shape} are not allowed for rows of {d} features; points have as many."
        )
    return Candidates(csr_array(points.astype(dtype_name(X.dtype))) if is_sparse(X) else from_host(points, like), None)


def sampled_candidates(task: FitTask, count: int, rng: np.random.Generator) -> Candidates:
    """Return some rows of a task in memory, drawn evenly."""
    numbers = np.sort(random_subset(rng, task.n, count))
    return Candidates(gather_rows(task.X, numbers), task.numbers_of(numbers))


def sample_size(solver: Nystrom, batches: BatchedRows, limit: int | None) -> int:
    """Return how many of the first rows of batches are read at once, within a `limit` of bytes."""
    count = solver.sample_within(int(batches.like.shape[1]) * item_size(batches.dtype), limit)
    return max(FEWEST_SAMPLED, count) if solver.is_given else count


def first_rows(
    batches: BatchedRows, count: int, needed: int, held: DistinctRows | None, once: bool
) -> tuple[Any, np.ndarray, BatchedRows, DistinctRows | None]:
    """Return `count` of the first rows, their numbers, the batches for one pass, and the rows read before these.

    Where fewer than `needed` of them differ, more are read, and each different one is kept once.
    """
    sample, numbers, rows = batches.some(count)
    if held is not None:
        sample = stacked([held.rows, sample])
        numbers = np.concatenate([held.numbers, held.n_read + numbers])
    if len(first_of_each(sample, needed)[0]) >= needed:
        return sample, numbers, rows, held
    rest = iter(rows)
    for batch in rest:
        more = DistinctRows.of(batch)
        held = more if held is None else held.joined(more)
        if len(held) >= needed:
            break
    if held is None:
        return sample, numbers, rows, held
    if not once:
        return held.rows, held.numbers, batches, None
    return held.rows, held.numbers, BatchedRows(lambda: chain([batches.like], rest), batches.like), held
