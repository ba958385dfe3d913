"""Rows made ready for a kernel: once per data set, so that a tile is made from two slices."""

from __future__ import annotations

from copy import copy
from dataclasses import is_dataclass
from typing import Any

from gpukpca._typing import Array
from gpukpca.backend.namespace import is_foreign, is_numpy, move, real_floating
from gpukpca.backend.rows import gather_rows, take_rows


class PreparedRows:
    """Rows of one data set made ready for one kernel; slices of it are what a tile is made from.

    Attributes
    ----------
    n_rows : int
    in_memory : bool
        Whether slices cost nothing; False where they are read from a file.
    is_local : bool
        Whether this process can make slices; False where workers of a cluster hold the rows.
    """

    n_rows: int
    in_memory = True
    is_local = True

    def slice(self, start: int, stop: int) -> PreparedRows:
        """The rows from `start` to `stop`, sharing memory."""
        raise AttributeError("a kernel's rows must define slice(start, stop)")

    def take(self, indices: Any) -> PreparedRows:
        """The rows named by a host sequence of integers, in its order, as a copy."""
        raise AttributeError("a kernel's rows must define take(indices)")

    @property
    def shifted(self) -> bool:
        """Whether tiles hold k minus a constant: then the uncentered matrix is not positive semidefinite by itself."""
        return False

    @property
    def wide(self) -> bool:
        """Whether tiles are begun in the widest type, so that strips of them exist beside the tile."""
        return False

    @property
    def template(self) -> PreparedRows:
        """What new rows must be made ready like (`Kernel.prepare`)."""
        return self

    @property
    def row_bytes(self) -> int:
        """Bytes that a row takes beside the data themselves; 0 for rows kept as they are."""
        return 0

    def moved(self, like: Array) -> PreparedRows:
        """The rows where `like` lives."""
        return _moved(self, like)


def _moved(value: Any, like: Array) -> Any:
    """Rows, and what they consist of, where `like` lives; host integers, which index, stay."""
    if isinstance(value, list):
        return [_moved(one, like) for one in value]
    if isinstance(value, PreparedRows) or is_dataclass(value):
        other = copy(value)
        for name, part in vars(value).items():
            object.__setattr__(other, name, _moved(part, like))  # the dataclasses are frozen
        return other
    return move(value, like) if (is_numpy(value) or is_foreign(value)) and real_floating(value) else value


class DataRows(PreparedRows):
    """Rows kept as they are: an array (n, d) or a CSR matrix."""

    def __init__(self, data: Any) -> None:
        self.data = data
        self.n_rows = int(data.shape[0])

    def slice(self, start: int, stop: int) -> DataRows:
        return DataRows(take_rows(self.data, start, stop))

    def take(self, indices: Any) -> DataRows:
        return DataRows(gather_rows(self.data, indices))
