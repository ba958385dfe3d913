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


@dataclass(frozen=True)
class Found:
    """Entries of one kind: their count, and row and column of the first."""

    count: int = 0
    row: int = 0
    column: int = 0


@dataclass(frozen=True)
class ChunkFacts:
    """The contents of a chunk.

    Attributes
    ----------
    shape : tuple of int
    dtype : str
    fault : str
        Why it cannot be used; empty where it can.
    on_gpu : bool
    largest : int
        The largest integer that float64 cannot hold; 0 without one.
    nan, infinity : Found
    """

    shape: tuple[int, ...]
    dtype: str
    fault: str = ""
    on_gpu: bool = False
    largest: int = 0
    nan: Found = Found()
    infinity: Found = Found()


def chunk_facts(chunk: Any) -> ChunkFacts:
    """Return shape, dtype and faults of a chunk."""
    shape = tuple(int(side) for side in getattr(chunk, "shape", ()))
    dtype = str(getattr(chunk, "dtype", type(chunk).__name__))
    if fault := _fault(chunk):
        return ChunkFacts(shape, dtype, fault)
    on_gpu, kind = is_foreign(chunk), chunk.dtype.kind
    with device_context(chunk):
        if kind == "f":
            return ChunkFacts(shape, dtype, "", on_gpu, 0, *not_finite(chunk))
        largest = max(abs(int(chunk.max())), abs(int(chunk.min()))) if kind in "iu" and chunk.size else 0
    return ChunkFacts(shape, dtype, "", on_gpu, largest if largest > LARGEST_EXACT else 0)


def _fault(chunk: Any) -> str:
    """Return why a chunk is not an array of real numbers."""
    if is_sparse(chunk) or hasattr(chunk, "todense") or type(chunk).__module__.startswith("cupyx."):
        return "is sparse; make it dense with X.map_blocks(lambda block: block.toarray())"
    if isinstance(chunk, np.ma.MaskedArray):
        return "is masked; fill the array first, with dask.array.ma.filled"
    if not (is_numpy(chunk) or is_foreign(chunk)):
        return f"is of the type {type(chunk).__name__}; arrays are needed"
    if chunk.dtype.kind not in "biuf":
        return f"holds {chunk.dtype}; real numbers are needed: X.astype(float)"
    return ""


def not_finite(panel: Array) -> tuple[Found, Found]:
    """Return count and first place of NaN and of infinity."""
    xp = namespace_of(panel)
    if bool(xp.all(xp.isfinite(panel))):
        return Found(), Found()
    places = [np.argwhere(test(to_host(panel))) for test in (np.isnan, np.isinf)]
    nan, infinity = (Found(len(at), *map(int, at[0])) if len(at) else Found() for at in places)
    return nan, infinity


def first_of_all(found: Sequence[Found], lengths: Sequence[int]) -> Found:
    """Return the count over chunks of these lengths, and the first place with its row counted over all of them."""
    start = 0
    for one, length in zip(found, lengths, strict=True):
        if one.count:
            return Found(sum(other.count for other in found), start + one.row, one.column)
        start += length
    return Found()


def checked_width(facts: Sequence[ChunkFacts]) -> int:
    """Return the width that all chunks have; raise an error that names the chunk that is wrong."""
    for k, fact in enumerate(facts):
        if fact.dtype.startswith("complex"):
            raise ValueError(f"Complex data not supported: chunk {k} holds {fact.dtype}.")
        if fact.fault:
            raise TypeError(f"chunk {k} of the Dask array {fact.fault}.")
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
