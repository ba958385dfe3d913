"""The contents of the chunks of a Dask array, as a worker finds them, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpukpca.backend.device import device_context
from gpukpca.backend.namespace import is_foreign, is_numpy, is_sparse
from gpukpca.data.finite import FINITE, NONE_FOUND, Entries, entries_not_finite, refuse_entries
from gpukpca.data.gate import LARGEST_EXACT, OF_EXTENDED, OF_INTEGERS


@dataclass(frozen=True)
class ChunkFacts:
    """The contents of a chunk; `largest` is its largest integer that float64 cannot hold, 0 without one."""

    shape: tuple[int, ...]
    dtype: str
    on_gpu: bool = False
    largest: int = 0
    nan: Entries = NONE_FOUND
    infinity: Entries = NONE_FOUND


def chunk_facts(chunk: Any, _: tuple[Any, ...], k: int) -> list[ChunkFacts]:
    """Return the contents of chunk k, in a list; raise where it is no array of real numbers."""
    dtype = str(getattr(chunk, "dtype", ""))
    if dtype.startswith("complex"):
        raise ValueError(f"Complex data not supported: chunk {k} holds {dtype}.")
    if fault := chunk_fault(chunk, getattr(chunk, "dtype", None)):
        raise TypeError(f"chunk {k} of the Dask array {fault}.")
    chunk = chunk.tocsr() if is_sparse(chunk) else chunk  # other formats hold no array of entries
    kind, largest = chunk.dtype.kind, 0
    with device_context(chunk):
        if kind in "iu" and chunk.size:
            largest = max(abs(int(chunk.max())), abs(int(chunk.min())))
        nan, infinity = entries_not_finite(chunk) if kind == "f" else (NONE_FOUND,) * 2
    largest = largest if largest > LARGEST_EXACT else 0
    shape = tuple(map(int, chunk.shape))
    return [ChunkFacts(shape, dtype, is_foreign(chunk), largest, nan, infinity)]


def check_chunk(chunk: Any, dtype: str, k: int, shape: tuple[int, int], start: int, advice: str) -> None:
    """Raise where chunk k, whose rows begin at row `start`, is not what the Dask array says, or not finite."""
    (fact,) = chunk_facts(chunk, (), k)
    if fact.shape != shape:
        raise ValueError(
            f"chunk {k} has the shape {fact.shape}, and the Dask array says {shape}; call X.compute_chunk_sizes()."
        )
    if fact.on_gpu or np.result_type(fact.dtype, dtype) != dtype:
        where = " of a GPU" if fact.on_gpu else ""
        raise TypeError(
            f"chunk {k} holds {fact.dtype}{where}, and the Dask array says {dtype}; give the type and the library of "
            "the chunks with X.map_blocks(..., meta=...)."
        )
    found = [(start, NONE_FOUND, NONE_FOUND), (shape[0], fact.nan, fact.infinity)]
    refuse_entries(found, dtype, FINITE, f"chunk {k} of X", of_missing=advice)


def chunk_fault(chunk: Any, dtype: Any) -> str:
    """Return why a chunk is not an array of real numbers."""
    if not is_sparse(chunk) and (hasattr(chunk, "todense") or type(chunk).__module__.startswith("cupyx.")):
        advice = "make it CSR of SciPy with X.map_blocks(lambda block: block.tocsr()), or dense"
        return f"is of the type {type(chunk).__module__}.{type(chunk).__name__}; {advice}"
    if isinstance(chunk, np.ma.MaskedArray):
        return "is masked; fill the array first, with dask.array.ma.filled"
    if not (is_numpy(chunk) or is_foreign(chunk) or is_sparse(chunk)):
        return f"is of the type {type(chunk).__name__}; arrays are needed"
    return "" if dtype.kind in "biuf" else f"holds {dtype}; real numbers are needed: X.astype(float)"


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
    if max(fact.largest for fact in facts):
        return OF_INTEGERS
    extended = any(fact.dtype.startswith("float") and np.dtype(fact.dtype).itemsize > 8 for fact in facts)
    return OF_EXTENDED if extended else ""
