"""The rows among which landmarks are chosen: those that the user named, a sample, or the first of a stream."""

from __future__ import annotations

from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from gpukpca.algorithms.kernel_pca.task import FitTask, LandmarkPool
from gpukpca.backend.namespace import dtype_name, empty_like, from_host, is_sparse, to_host
from gpukpca.backend.random import random_subset
from gpukpca.data.batches import BatchedRows
from gpukpca.data.distinct import DistinctRows, first_of_each, stacked
from gpukpca.data.place import rows_at
from gpukpca.data.rows import Rows
from gpukpca.data.slicing import gather_rows, place_of
from gpukpca.eigen.landmarks import checked_landmarks, given_points, is_given
from gpukpca.exceptions import InvalidParameterError
from gpukpca.gram.product import compute_tile
from gpukpca.kernels.prepared import PreparedRows

# Landmarks between which the kernel falls by less than this share are relative to a base point: beside 1 their
# differences lose digits. Their span then lacks one direction, which matters by about that share where all rows are as
# near, and much where others are far.
FLAT = {"float64": 1e-4, "float32": 1e-2}


def given_landmarks(solver: Any, every: Any, X: Any) -> LandmarkPool | None:
    """Return the landmarks that the user gave where rows X (n, d) are computed; None where a rule chooses them.

    They are points, or numbers among `every` row, of which X may have those alone that count.
    """
    if not is_given(solver):
        return None
    like, d = place_of(X), int(X.shape[1])
    if (points := given_points(solver)) is None:
        numbers = checked_landmarks(solver.landmarks, int(every.shape[0]))
        return LandmarkPool(rows_at(gather_rows(every, numbers), like), numbers)
    if points.shape[1] != d:
        raise InvalidParameterError(
            f"landmarks of shape {points.shape} are not allowed for rows of {d} features; points have as many."
        )
    rows = csr_array(points.astype(dtype_name(X.dtype))) if is_sparse(X) else from_host(points, like)
    return LandmarkPool(rows, None)


def sampled_candidates(task: FitTask, count: int, rng: np.random.Generator) -> LandmarkPool:
    """Return some rows of a task, drawn evenly; all of them without a draw, as a factor in memory has them."""
    numbers = np.arange(task.n) if count >= task.n else np.sort(random_subset(rng, task.n, count))
    return LandmarkPool(gather_rows(task.X, numbers), task.numbers_of(numbers))


class FirstRows(NamedTuple):
    """The rows among which landmarks are chosen, the batches for one pass, and the weights of their rows.

    `held` are rows that were read before them, each different one once. A sample `in_order` is the first rows.
    """

    sample: LandmarkPool | Any
    rows: Rows
    held: DistinctRows | None = None
    weights: np.ndarray | None = None
    in_order: bool = False


def first_rows(
    all_rows: FirstRows, count: int, needed: int, once: bool, numbers: np.ndarray | None = None
) -> FirstRows:
    """Return `count` of the first rows; where fewer than `needed` of them differ, read more, and keep each once.

    Those `held` come first, then the batches, whose rows have these `numbers`.
    """
    _, batches, before, weights, _ = all_rows
    sample, places, rows = batches.some(count)
    in_order = len(places) > int(np.max(places, initial=-1))
    places = places if numbers is None else numbers[places]
    if before is not None:
        sample = stacked([before.rows, sample])
        places = np.concatenate([before.numbers, before.n_read + places])
    found = all_rows._replace(sample=LandmarkPool(sample, places), rows=rows, in_order=in_order)
    if len(first_of_each(sample, needed)[0]) >= needed:
        return found
    held, rest, start = before, iter(rows), 0
    for batch in rest:
        part = slice(start, start := start + int(batch.shape[0]))
        counts, named = (None if of_all is None else of_all[part] for of_all in (weights, numbers))
        more = DistinctRows.of(batch, counts, named)
        held = more if held is None else held.joined(more)
        if len(held) >= needed:
            break
    if held is None or held is before:
        return found
    found = found._replace(sample=LandmarkPool(held.rows, held.numbers), in_order=True)
    if not once:
        return found._replace(rows=batches)
    # Weighted rows that are read once are those of one batch, all of which are held now.
    left, sizes = (None, None) if weights is None else (weights[start:], [0])
    following = BatchedRows(lambda: chain([batches.like], rest), batches.like, sizes)
    return found._replace(rows=following, held=held, weights=left)


def template_of_landmarks(task: FitTask, rows: Any, is_given: bool) -> PreparedRows:
    """Return the template of a kernel for given landmarks, or for the rows among which landmarks are chosen.

    Of float32 rows that are chosen among, the kernel decides whether it is flat.
    """
    kernel, name = task.kernel, dtype_name(rows.dtype)
    template = kernel.template(rows, centered=task.settings.center)
    if not (template.shifted and kernel.depends_on_distance and (is_given or name == "float64")):
        return template
    prepared = kernel.prepare(rows, like=template)
    first = compute_tile(kernel, prepared, prepared.slice(0, 1), empty_like(place_of(rows)), diagonal=False)
    values = to_host(first)[:, 0].astype(np.float64)  # less the offset
    falls = float(values[0] - np.min(values)) / (float(values[0]) + kernel.offset(prepared))
    return template if 0.0 < falls <= FLAT[name] else kernel.template(rows, centered=False)
