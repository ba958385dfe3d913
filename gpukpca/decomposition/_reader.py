"""The rows of functions without an estimator: one reader for every container."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from gpukpca.backend.device import on_its_device
from gpukpca.data.batches import is_held, is_sliced
from gpukpca.data.frequencies import checked_frequencies, rows_that_count
from gpukpca.data.gate import as_rows, columns_named
from gpukpca.data.place import Placement
from gpukpca.decomposition._batches import rows_and_place
from gpukpca.decomposition.pca import PCA
from gpukpca.exceptions import InvalidParameterError


@on_its_device
def read_rows(
    name: str, X: Any, sample_weight: Any = None, model: Any = None, *, in_memory: str = ""
) -> tuple[Any, Placement, np.ndarray | None]:
    """Return the finite rows of X, their place, and their weights (n,) on the host.

    Errors call the function `name`. X is an array, a CSR matrix, a data frame, an iterable of batches, or a Dask array,
    whose rows stay on the workers. A memory map, and a set of zarr or HDF5, is read by slices. The weights are None
    where each row counts once. A row of weight 0 may hold anything. The columns of X have the names of those that
    `model` was fitted to. Rows that are not in memory are refused with the text `in_memory`, before one is read.
    """
    if in_memory and not is_held(X):
        raise InvalidParameterError(in_memory)
    reader: Any = _reader_of(name)()
    reader._audited = model
    how: dict[str, Any] = {"in_batches": True if is_sliced(X) else None, "sample_weight": sample_weight}
    with columns_named(X):
        rows, place = rows_and_place(reader, X, name, counted=True, finite=False, **how)
        rows = as_rows(rows, name, finite=True, counts=rows_that_count(sample_weight))
    return rows, place, checked_frequencies(sample_weight, int(rows.shape[0]), is_batch=True)


@cache
def _reader_of(name: str) -> type[PCA]:
    """Return a PCA which errors call by the name of a function."""
    return type(name, (PCA,), {})
