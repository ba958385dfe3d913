"""The contents of the chunks of a Dask array, as a worker finds them, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpukpca.backend.device import device_context
from gpukpca.backend.namespace import dtype_name, is_foreign
from gpukpca.data.finite import FINITE, NONE_FOUND, Entries, entries_not_finite, refuse_entries
from gpukpca.data.gate import as_rows, check_not_empty
from gpukpca.exceptions import GpuKPCAWarning, held_warnings


@dataclass(frozen=True)
class ChunkFacts:
    """The contents of a chunk as rows: `dtype` is float32 or float64, and `warned` says what the numbers lose in it."""

    shape: tuple[int, ...]
    dtype: str
    on_gpu: bool = False
    nan: Entries = NONE_FOUND
    infinity: Entries = NONE_FOUND
    warned: tuple[GpuKPCAWarning, ...] = ()


def chunk_facts(chunk: Any, _: tuple[Any, ...], k: int) -> list[ChunkFacts]:
    """Return the contents of chunk k, in a list; raise as the gate does where it is no table of real numbers."""
    with device_context(chunk), held_warnings() as held:
        rows = as_rows(chunk, name=f"X.blocks[{k}]")
        found = entries_not_finite(rows)
    return [ChunkFacts(tuple(map(int, rows.shape)), dtype_name(rows.dtype), is_foreign(rows), *found, tuple(held))]


def check_chunk(chunk: Any, dtype: str, k: int, shape: tuple[int, int], advice: str) -> None:
    """Raise where chunk k is not what the Dask array says, or not finite."""
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
    refuse_entries([(shape[0], fact.nan, fact.infinity)], dtype, FINITE, f"X.blocks[{k}]", of_missing=advice)


def checked_width(facts: Sequence[ChunkFacts]) -> int:
    """Return the width that all chunks have; raise an error that names the chunk that is wrong."""
    for k, fact in enumerate(facts):
        if fact.shape[1] != facts[0].shape[1]:
            raise ValueError(
                f"chunk {k} has the shape {fact.shape}, and chunk 0 {facts[0].shape}: along axis 1 all must be of one "
                "width."
            )
    n, d = sum(fact.shape[0] for fact in facts), facts[0].shape[1]
    check_not_empty(np.broadcast_to(0.0, (n, d)), "a fit on a cluster")
    return d
