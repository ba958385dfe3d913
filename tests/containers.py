"""One table of what holds rows, for the tests of all rooms."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import scipy.sparse

from gpukpca import Batches
from tests.conftest import is_installed


class Slices:
    """A set on a disk that knows nothing of NumPy, and counts the rows that are read at once.

    Of a CSR matrix its slices are sparse, as those of a backed AnnData.
    """

    def __init__(self, rows: Any) -> None:
        self.rows, self.shape, self.dtype, self.most = rows, rows.shape, rows.dtype, 0

    def __getitem__(self, part: slice) -> Any:
        assert isinstance(part, slice), part
        start, stop, step = part.indices(self.shape[0])
        assert step == 1
        self.most = max(self.most, stop - start)
        return self.rows[start:stop]


class NumpySlices(Slices):
    """A set that NumPy converts, as those of zarr and h5py."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array(self[:], dtype=dtype)


class View(scipy.sparse.csr_matrix):
    """A CSR matrix of a class of another library, as that of some columns of an AnnData is."""


class Again:
    """An iterable of batches that starts again."""

    def __init__(self, parts: list[Any]) -> None:
        self.parts = parts

    def __iter__(self) -> Iterator[Any]:
        return iter(self.parts)


class Loader(Again):
    """Batches that come again, and that have numbers, as a Sequence of Keras has them."""

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, number: int) -> Any:
        return self.parts[number]


def halves(rows: np.ndarray) -> list[np.ndarray]:
    return [rows[:40], rows[40:]]


def mapped(rows: np.ndarray, folder: Path) -> np.ndarray:
    path = folder / f"{rows.dtype}-{'x'.join(map(str, rows.shape))}-{crc32(rows.tobytes())}.npy"
    if not path.exists():
        np.save(path, rows)
    return np.load(path, mmap_mode="r")


def dask_array(rows: np.ndarray) -> Any:
    return import_module("dask.array").from_array(rows, chunks=(20, 3))


def dask_of_csr(rows: np.ndarray) -> Any:
    chunks = dask_array(rows).rechunk((20, -1))
    return chunks.map_blocks(scipy.sparse.csr_matrix, dtype=rows.dtype, meta=scipy.sparse.csr_matrix((0, 0)))


# From rows and an empty folder to what holds the rows.
CONTAINERS: dict[str, Callable[[np.ndarray, Path], Any]] = {
    "list": lambda rows, _: rows.tolist(),
    "C order": lambda rows, _: np.ascontiguousarray(rows),
    "Fortran order": lambda rows, _: np.asfortranarray(rows),
    "strides": lambda rows, _: np.repeat(rows, 2, axis=0)[::2],
    "float32": lambda rows, _: rows.astype(np.float32),
    "integers": lambda rows, _: rows.astype(np.int64),
    "objects": lambda rows, _: rows.astype(object),
    "masked array": lambda rows, _: np.ma.MaskedArray(rows),
    "memory map": mapped,
    "memory map of integers": lambda rows, folder: mapped(rows.astype(np.int32), folder),
    "CSR": lambda rows, _: scipy.sparse.csr_array(rows),
    "CSR matrix": lambda rows, _: scipy.sparse.csr_matrix(rows),
    "CSC": lambda rows, _: scipy.sparse.csc_matrix(rows),
    "COO": lambda rows, _: scipy.sparse.coo_array(rows),
    "view of CSR": lambda rows, _: View(rows),
    "set": lambda rows, _: Slices(rows),
    "set of NumPy": lambda rows, _: NumpySlices(rows),
    "set of integers": lambda rows, _: Slices(rows.astype(np.int32)),
    "set of masked rows": lambda rows, _: Slices(np.ma.MaskedArray(rows)),
    "sparse set": lambda rows, _: Slices(scipy.sparse.csr_matrix(rows)),
    "batches": lambda rows, _: Batches(halves(rows)),
    "short batches": lambda rows, _: Batches([rows[:10], rows[10:11], rows[11:]]),
    "sparse batches": lambda rows, _: Batches([scipy.sparse.csr_array(rows[:40]), rows[40:]]),
    "generator": lambda rows, _: (part for part in halves(rows)),
    "iterable": lambda rows, _: Again(halves(rows)),
    "loader": lambda rows, _: Loader(halves(rows)),
}
for _library, _name in (("pandas", "pandas frame"), ("polars", "polars frame")):
    if is_installed(_library):
        CONTAINERS[_name] = lambda rows, _, library=_library: import_module(library).DataFrame(rows)
if is_installed("dask"):
    CONTAINERS["Dask"] = lambda rows, _: dask_array(rows)
    CONTAINERS["Dask of CSR"] = lambda rows, _: dask_of_csr(rows)
