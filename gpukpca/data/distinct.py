"""Rows that are held until enough of them differ: each once, with the number of rows that equal it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse

from gpukpca.backend import blocking
from gpukpca.backend.namespace import cast, concat, is_sparse, to_host
from gpukpca.backend.parallel import row_slices
from gpukpca.data.slicing import dense_rows, gather_rows, place_of, take_rows


@dataclass(frozen=True, eq=False)
class DistinctRows:
    """Rows of which no two are equal.

    Attributes
    ----------
    rows : array or CSR matrix, shape (m, d)
    counts : host array, shape (m,)
        How often each counts.
    numbers : host array of int, shape (m,)
        The numbers of the first ones among all that were read.
    n_read : int
        Rows that were read.
    """

    rows: Any
    counts: np.ndarray
    numbers: np.ndarray
    n_read: int

    @classmethod
    def of(
        cls, rows: Any, weights: np.ndarray | None = None, numbers: np.ndarray | None = None, n_read: int | None = None
    ) -> Self:
        """Return the different rows of a batch (b, d), whose rows count as weights (b,) say, in new memory.

        The rows have these `numbers` (b,) among `n_read`; by default they are all.
        """
        first, group = first_of_each(rows)
        counts = np.bincount(group, weights, minlength=len(first)).astype(np.float64)
        named = first if numbers is None else numbers[first]
        return cls(gather_rows(rows, first), counts, named, int(rows.shape[0]) if n_read is None else n_read)

    def joined(self, other: DistinctRows) -> DistinctRows:
        """Return the different rows of these and of others that were read after them."""
        counts = np.concatenate([self.counts, other.counts])
        numbers = np.concatenate([self.numbers, self.n_read + other.numbers])
        return DistinctRows.of(stacked([self.rows, other.rows]), counts, numbers, self.n_read + other.n_read)

    def __len__(self) -> int:
        return len(self.counts)


def first_of_each(rows: Any, limit: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of the rows that equal none before, and for every row the position of its equal among them.

    The search ends once `limit` are found.
    """
    found: dict[bytes, int] = {}
    group: list[int] = []
    for start, stop in row_slices(int(rows.shape[0]), blocking.COMPARED_ROWS):
        group += [
            found.setdefault(key, number) for number, key in enumerate(_keys(take_rows(rows, start, stop)), start)
        ]
        if limit is not None and len(found) >= limit:
            break
    first = np.array([*found.values()], dtype=np.int64)
    return first, np.searchsorted(first, group)


def _keys(rows: Any) -> list[bytes]:
    """Return bytes for every row that are equal where its numbers are; -0 is 0."""
    if not is_sparse(rows):
        return [row.tobytes() for row in to_host(rows) + 0.0]
    entries = ((rows.indices[a:b], rows.data[a:b]) for a, b in zip(rows.indptr[:-1], rows.indptr[1:], strict=True))
    return [places[data != 0].tobytes() + data[data != 0].tobytes() for places, data in entries]


def stacked(parts: list[Any]) -> Any:
    """Return rows one below another, arrays or CSR matrices of the type of the first."""
    first, rows = parts[0], [cast(part, place_of(parts[0]).dtype) for part in parts]
    if is_sparse(first):
        return type(first)(scipy.sparse.vstack([type(first)(part) for part in rows]))
    return concat([dense_rows(part) for part in rows], axis=0)
