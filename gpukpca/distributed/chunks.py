"""The contents of the chunks of a Dask array: shape, dtype and faults, found on the workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend.device import device_context
from gpukpca.backend.namespace import is_foreign, is_numpy, is_sparse, namespace_of, to_host

LARGEST_EXACT = 2**53

# Entries of one kind: their count, and row and column of the first.
Entries = tuple[int, int, int]


@dataclass(frozen=True)
class ChunkFacts:
    """The contents of a chunk; `largest` is its largest integer that float64 cannot hold, 0 without one."""

    shape: tuple[int, ...]
    dtype: str
    on_gpu: bool
    largest: int
    nan: Entries
    infinity: Entries


def chunk_facts(chunk: Any, k: int) -> ChunkFacts:
    """Return the contents of chunk k; raise where it is no array of real numbers."""
    dtype = str(getattr(chunk, "dtype", ""))
    if dtype.startswith("complex"):
        raise ValueError(f"Complex data not supported: chunk {k} holds {dtype}.")
    if fault := _fault(chunk):
        raise TypeError(f"chunk {k} of the Dask array {fault}.")
    kind, largest = chunk.dtype.kind, 0
    with device_context(chunk):
        if kind in "iu" and chunk.size:
            largest = max(abs(int(chunk.max())), abs(int(chunk.min())))
        nan, infinity = not_finite(chunk) if kind == "f" else ((0, 0, 0),) * 2
    largest = largest if largest > LARGEST_EXACT else 0
    return ChunkFacts(tuple(map(int, chunk.shape)), dtype, is_foreign(chunk), largest, nan, infinity)


def _fault(chunk: Any) -> str:
    """Return why a chunk is not an array of real numbers."""
    if is_sparse(chunk) or hasattr(chunk, "todense") or type(chunk).__module__.startswith("cupyx."):
        return "is sparse; make it dense with X.map_blocks(lambda block: block.toarray())"
    if isinstance(chunk, np.ma.MaskedArray):
        return "is masked; fill the array first, with dask.array.ma.filled"
    if not (is_numpy(chunk) or is_foreign(chunk)):
        return f"is of the type {type(chunk).__name__}; arrays are needed"
    return "" if chunk.dtype.kind in "biuf" else f"holds {chunk.dtype}; real numbers are needed: X.astype(float)"


def not_finite(panel: Array) -> tuple[Entries, Entries]:
    """Return count and first place of NaN and of infinity."""
    xp = namespace_of(panel)
    if bool(xp.all(xp.isfinite(panel))):
        return (0, 0, 0), (0, 0, 0)
    nan, infinity = (np.argwhere(test(to_host(panel))) for test in (np.isnan, np.isinf))
    return _entries(nan), _entries(infinity)


def _entries(places: np.ndarray) -> Entries:
    return (len(places), int(places[0, -2]), int(places[0, -1])) if len(places) else (0, 0, 0)


def first_of_all(found: Sequence[Entries], lengths: Sequence[int]) -> Entries:
    """Return the count over chunks of these lengths, and the first place with its row counted over all of them."""
    start = 0
    for (count, row, column), length in zip(found, lengths, strict=True):
        if count:
            return sum(other[0] for other in found), start + row, column
        start += length
    return 0, 0, 0


def checked_width(facts: Sequence[ChunkFacts]) -> int:
    """Return the width that all chunks have; raise an error that names the chunk that is wrong."""
    for k, fact in enumerate(facts):
        if len(fact.shape) != 2 or fact.shape[1] != facts[0].shape[1]:
            raise ValueError(
                f"chunk {k} has the shape {fact.shape}, and chunk 0 {facts[0].shape}: along axis 1 all must be of one "
                "width."
            )
    n, d = sum(fact.shape[0] for fact in facts), facts[0].shape[1]
    if not n:
        raise ValueError("Found array with 0 sample(s): every chunk is empty, and a minimum of 1 is required.")
    if not d:
        raise ValueError(f"Found array with 0 feature(s) (shape=({n}, 0)) while a minimum of 1 is required.")
    return d


def lost_digits(facts: Sequence[ChunkFacts]) -> str:
    """Return what of the chunks float64 cannot hold; nothing where it holds all."""
    if largest := max(fact.largest for fact in facts):
        return f"integers up to {largest} exceed 2**53 and lose digits in float64."
    extended = any(fact.dtype.startswith("float") and np.dtype(fact.dtype).itemsize > 8 for fact in facts)
    return "extended precision is reduced to float64." if extended else ""
