"""Dask arrays chunk by chunk: results for new rows on request."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend.namespace import cast, from_host, is_foreign, namespace_of


def mapped_rows(X: Any, answer: Callable[..., Array], model: Any, width: int | None, dtype: str) -> Any:
    """Return ``answer(model, chunk, k, first)`` of all chunks of a Dask array (m, d) as one (m, width), not computed.

    `answer` takes a chunk with at least one row, its number k, and the number of its first row, None where lengths are
    unknown. A width of None stands for one number a row. The model is in the graph once. Chunks of X may cut the
    columns, be empty, or be of unknown length, which stays unknown.
    """
    import dask

    X = whole_rows(X)
    shape = (0,) if width is None else (0, width)
    meta = np.empty(shape, dtype=dtype)
    meta = from_host(meta, X._meta, _dtype_of(X._meta, dtype)) if is_foreign(X._meta) else meta
    return X.map_blocks(
        _answered,
        answer,
        dask.delayed(model, name=f"gpukpca-model-{uuid.uuid4().hex}", traverse=False),
        width,
        dtype,
        np.cumsum([0.0, *X.chunks[0]]),
        meta=meta,
        chunks=(X.chunks[0],) if width is None else (X.chunks[0], (width,)),
        drop_axis=[1] if width is None else None,
        name=f"gpukpca-rows-{uuid.uuid4().hex}",
    )


def filled_rows(X: Any, counts: np.ndarray | None) -> Any:
    """Return a Dask array (n, d) with 0 in the rows that do not count (n,). Unknown lengths of chunks are computed."""
    if counts is None:
        return X
    import dask.array

    X = whole_rows(X)
    X = X.copy().compute_chunk_sizes() if math.isnan(X.shape[0]) else X
    if len(counts) != X.shape[0]:
        return X
    often = dask.array.from_array(counts[:, None], chunks=(X.chunks[0], 1))
    return X.map_blocks(_filled, often, dtype=X.dtype, meta=X._meta)


def in_chunks_of(A: Array, X: Any, known: Sequence[int] | None) -> Any:
    """Return an array with a row for every row of a Dask array X, in its chunks; in one where these are unknown."""
    import dask.array

    chunks = tuple(known) if known else -1 if math.isnan(X.shape[0]) else X.chunks[0]
    return dask.array.from_array(A, chunks=(chunks, -1))


def known_width(X: Any) -> int | None:
    """Return the columns of a Dask array; None where it does not know."""
    return None if math.isnan(X.shape[1]) else int(X.shape[1])


def whole_rows(X: Any) -> Any:
    """Return a Dask array (n, d) with every row in one chunk."""
    if X.ndim != 2:
        raise ValueError(
            f"Expected 2D array, got {X.ndim}D array instead: a Dask array of shape {X.shape}. Reshape your data."
        )
    if X.numblocks[1] == 1:
        return X
    if known_width(X) is None:
        raise ValueError(
            "axis 1 (columns) of the Dask array is cut into chunks of unknown width, which cannot be joined; call "
            "X.compute_chunk_sizes() first."
        )
    return X.rechunk({1: -1})


def _dtype_of(like: Any, name: str) -> Any:
    return getattr(namespace_of(like), name)


# -- what runs on the workers ------------------------------------------------------------------------------------------


def _filled(chunk: Any, counts: np.ndarray) -> Any:
    """Return a chunk with 0 in the rows that do not count (b, 1)."""
    if not counts.all():
        chunk = chunk.copy()
        chunk[np.flatnonzero(~counts)] = 0
    return chunk


def _answered(
    chunk: Any,
    answer: Callable[..., Array],
    model: Any,
    width: int | None,
    dtype: str,
    edges: np.ndarray,
    block_id: tuple[int, ...],
) -> Array:
    """Return the answer for a chunk, which may be empty."""
    if chunk.shape[0]:
        k = block_id[0]
        result = answer(model, chunk, k, None if np.isnan(edges[k]) else int(edges[k]))
        return cast(result, _dtype_of(result, dtype))
    return from_host(np.empty((0,) if width is None else (0, width)), chunk, _dtype_of(chunk, dtype))
