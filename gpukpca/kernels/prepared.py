"""Rows prepared for a kernel: once per data set, so that a tile is made from two slices."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import is_dataclass
from typing import Any, ClassVar, Self

from gpukpca._typing import Array
from gpukpca.backend.namespace import is_foreign, is_numpy, move, real_floating
from gpukpca.data.slicing import dense_rows, gather_rows


class PreparedRows:
    """Rows of one data set prepared for one kernel; slices of it are what a tile is made from.

    Attributes
    ----------
    n_rows : int
    in_memory : bool
        Whether slices share memory; False where they are read from a file.
    is_local : bool
        Whether this process can make slices; False where workers of a cluster hold the rows.
    shifted : bool
        Whether tiles hold k minus a constant: the uncentered matrix is then not positive semidefinite.
    wide : bool
        Whether tiles begin in the widest type, so that strips of them need additional memory.
    row_bytes : int
        Bytes of a row in addition to the data; 0 for rows kept as they are.
    """

    n_rows: int
    in_memory = True
    is_local = True
    shifted = False
    wide = False
    row_bytes = 0

    def slice(self, start: int, stop: int) -> PreparedRows:
        """Return the rows from `start` to `stop`, sharing memory."""
        raise AttributeError(f"{type(self).__name__} must define slice(start, stop)")

    def take(self, indices: Any) -> PreparedRows:
        """Return the rows named by a host sequence of integers, in its order, as a copy."""
        raise AttributeError(f"{type(self).__name__} must define take(indices)")

    @property
    def template(self) -> PreparedRows:
        """Return the rows that new rows are prepared like (`Kernel.prepare`)."""
        return self

    def moved(self, like: Array) -> PreparedRows:
        """Return the rows where `like` lives."""

        def placed(_: str, part: Any) -> Any:
            # Host integers are indices, and stay.
            return move(part, like) if (is_numpy(part) or is_foreign(part)) and real_floating(part) else part

        return _changed(self, placed)

    def of_every_feature(self) -> PreparedRows:
        """Return a template that omits no feature, for tiles with none of its rows on one side."""
        return _changed(self, lambda name, part: None if name == "varying" else part)


def _changed(value: Any, change: Callable[[str, Any], Any], name: str = "") -> Any:
    """Return rows with ``change(name, part)`` for every part."""
    if isinstance(value, list):
        return [_changed(one, change, name) for one in value]
    if isinstance(value, PreparedRows) or is_dataclass(value):
        other = copy(value)
        vars(other).update({name: _changed(part, change, name) for name, part in vars(value).items()})
        return other
    return change(name, value)


class DataRows(PreparedRows):
    """Rows kept as they are: an array (n, d) or a CSR matrix."""

    data: Any
    # The attributes with an entry for each row, which slices cut.
    by_row: ClassVar[tuple[str, ...]] = ("data",)

    def __init__(self, data: Any) -> None:
        vars(self)["data"] = data  # a subclass may define another `data` for tiles
        self.n_rows: int = int(data.shape[0])

    @property
    def kept(self) -> Any:
        """Return the rows as they are."""
        return vars(self)["data"]

    def slice(self, start: int, stop: int) -> Self:
        whole = start == 0 and stop == self.n_rows
        return self._cut(lambda part: part if whole else part[start:stop, ...])

    def take(self, indices: Any) -> Self:
        return self._cut(lambda part: gather_rows(part, indices))

    def _cut(self, cut: Callable[[Any], Any]) -> Self:
        """Return rows that share everything else with these, given a cut of each attribute by row."""
        other = object.__new__(type(self))
        held = vars(other)
        held.update(vars(self))
        held.pop("right", None)  # cached, of all rows
        for name in self.by_row:
            held[name] = cut(held[name])
        other.n_rows = int(held["data"].shape[0])
        return other


class DensifiedRows(DataRows):
    """Rows kept as they are, whose `data` is a dense array: CSR rows are converted whenever it is read."""

    @property
    def data(self) -> Array:
        return dense_rows(self.kept)
