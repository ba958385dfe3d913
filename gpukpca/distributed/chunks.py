"""What a chunk of a Dask array is found to hold, and how chunks become panels; runs on the workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend.device import cuda_place, device_context, placed_rows
from gpukpca.backend.namespace import is_foreign, is_numpy, is_sparse, namespace_of, to_host
from gpukpca.backend.rows import as_rows
from gpukpca.exceptions import DeviceUnavailableError

LARGEST_EXACT = 2**53


@dataclass(frozen=True)
class Found:
    """Entries of one kind: how many, and row and column of the first."""

    count: int = 0
    row: int = 0
    column: int = 0


@dataclass(frozen=True)
class ChunkFacts:
    """What one look at a chunk tells.

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
    """Shape, dtype, and what is wrong with the entries."""
    shape = tuple(int(side) for side in getattr(chunk, "shape", ()))
    dtype = str(getattr(chunk, "dtype", type(chunk).__name__))
    if fault := _fault(chunk):
        return ChunkFacts(shape, dtype, fault)
    on_gpu, kind = is_foreign(chunk), chunk.dtype.kind
    with device_context(chunk):
        if kind == "f":
            nan, infinity = not_finite(chunk)
            return ChunkFacts(shape, dtype, "", on_gpu, 0, nan, infinity)
        largest = max(abs(int(chunk.max())), abs(int(chunk.min()))) if kind in "iu" and chunk.size else 0
    return ChunkFacts(shape, dtype, "", on_gpu, largest if largest > LARGEST_EXACT else 0)


def _fault(chunk: Any) -> str:
    """Why a chunk is not an array of real numbers."""
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
    """For NaN and for infinity: how many, and where the first is."""
    xp = namespace_of(panel)
    if bool(xp.all(xp.isfinite(panel))):
        return Found(), Found()
    host = to_host(panel)
    nan, infinity = (np.argwhere(test(host)) for test in (np.isnan, np.isinf))
    return _found(nan), _found(infinity)


def _found(places: np.ndarray) -> Found:
    return Found(len(places), *(int(place) for place in places[0])) if len(places) else Found()


def joined_facts(facts: list[ChunkFacts], kind: str) -> Found:
    """What all chunks hold of "nan" or "infinity", with the row counted over all of them."""
    count = sum(getattr(fact, kind).count for fact in facts)
    start = 0
    for fact in facts:
        found = getattr(fact, kind)
        if found.count:
            return Found(count, start + found.row, found.column)
        start += fact.shape[0]
    return Found()


# -- panels ------------------------------------------------------------------------------------------------------------


def as_panel(rows: Any, dtype: str, cuda: bool) -> Array:
    """Rows as an array that kernels take, on the GPU of this worker where that is wanted."""
    with device_context(rows):
        rows = as_rows(rows)
        rows = rows if str(rows.dtype) == dtype else rows.astype(dtype)
    if not cuda or not is_numpy(rows):
        return rows
    place, what = cuda_place(None, dtype)
    if place is None:
        raise DeviceUnavailableError(f"this worker cannot compute on a GPU: {what}")
    with device_context(place):
        return placed_rows(rows, place)


def joined(skipped: int, count: int, *panels: Array) -> Array:
    """So many rows of consecutive panels, without the first few."""
    with device_context(panels[0]):
        xp = namespace_of(*panels)
        rows = panels[0] if len(panels) == 1 else xp.concat(list(panels), axis=0)
        return xp.asarray(rows[skipped : skipped + count, :], copy=True)
