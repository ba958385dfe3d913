"""`Rows` of a class outside of the library: counted and checked in one pass, and then visited where they are."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend.namespace import is_sparse, library_of, to_host
from gpukpca.data.finite import NONE_FOUND, PanelEntries, blanked, entries_of_panel
from gpukpca.data.rows import Merge, Rows
from gpukpca.exceptions import InvalidParameterError

FLOATS = ("float32", "float64")


class CheckedRows(Rows):
    """The rows of a class outside of the library, without its empty panels: no function is called with one of these.

    Parameters
    ----------
    rows : Rows
    sizes : list of int
        The rows of every panel.
    """

    is_checked = True

    def __init__(self, rows: Rows, sizes: list[int]) -> None:
        self.rows = rows
        self.sizes: list[int] = [size for size in sizes if size]
        self.like: Array = rows.like
        self.shape: tuple[int, int] = (sum(sizes), int(rows.like.shape[1]))

    def counted(self) -> list[int]:
        return self.sizes

    def fold(self, function: Callable[..., Any], *arguments: Any, merge: Merge = operator.add) -> Any:
        of_rows, merge = partial(_of_rows, function), partial(_merged, merge)
        return self.rows.fold(of_rows, *map(_source, arguments), merge=merge)

    def each(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        results = self.rows.each(partial(_of_rows, function), *map(_source, arguments))
        return [result for result in results if result is not None]

    def map(self, function: Callable[..., Array], *arguments: Any, width: int) -> CheckedRows:
        return CheckedRows(self.rows.map(function, *map(_source, arguments), width=width), self.sizes)

    def split(self, A: Array) -> CheckedRows:
        return CheckedRows(self.rows.split(A), self.sizes)

    def take(self, chosen: Any, *others: Any) -> Array:
        return self.rows.take(np.asarray(chosen, dtype=np.int64).reshape(-1), *map(_source, others))


def counted_and_checked(rows: Rows, name: str, counts: np.ndarray | None) -> tuple[CheckedRows, list[PanelEntries]]:
    """Return third-party `Rows` after a pass, and their entries that are not finite, by panel.

    Rows without `counts` (n,) come out as zeros where they are not finite. Errors call the rows `name`. Raise
    `InvalidParameterError` where panels are not what `shape` and `like` say.
    """
    n, d = map(int, rows.shape)
    kind = _kind(rows.like)
    if is_sparse(rows.like) or rows.like.ndim != 2 or not kind.endswith(FLOATS):
        raise InvalidParameterError(
            f"`like` of {name}, {type(rows).__name__}, is {kind} with {rows.like.ndim} dimension(s); give a dense "
            "array of shape (0, d) in float32 or float64, as the panels are."
        )
    if counts is not None and len(counts) == n and not np.all(counts):
        rows = rows.map(_blanked_panel, rows.split(counts[:, None]), width=d)
    found = rows.fold(_facts, kind, merge=operator.add)
    for number, (shape, other, _) in enumerate(found):
        if shape[1:] != (d,) or other != kind:
            raise InvalidParameterError(
                f"panel {number} of {name} is {other} of shape {shape}, where `like` and `shape` say {kind} with {d} "
                "features; give all panels one floating-point type and one width."
            )
    sizes = [shape[0] for shape, *_ in found]
    if sum(sizes) != n:
        raise InvalidParameterError(f"the panels of {name} have {sum(sizes)} rows together, and its `shape` says {n}.")
    return CheckedRows(rows, sizes), [entries for *_, entries in found]


def _facts(panel: Any, kind: str) -> list[tuple[tuple[int, ...], str, PanelEntries]]:
    """Return shape, kind and entries of a panel, in a list, so that those of panels are added."""
    shape, own = tuple(map(int, panel.shape)), _kind(panel)
    (found,) = entries_of_panel(panel) if own == kind else [(shape[0], NONE_FOUND, NONE_FOUND)]
    return [(shape, own, found)]


def _kind(panel: Any) -> str:
    """Return the library and the type of an array, for a comparison and an error."""
    held = "sparse rows" if is_sparse(panel) else library_of(panel)
    return f"{held} {str(panel.dtype).rpartition('.')[2]}"


def _blanked_panel(panel: Array, counts: Any) -> Array:
    return blanked(panel, to_host(counts)[:, 0] != 0)


def _source(argument: Any) -> Any:
    """Return an argument of a verb as the class outside of the library knows it."""
    return argument.rows if isinstance(argument, CheckedRows) else argument


def _of_rows(function: Callable[..., Any], panel: Array, *arguments: Any) -> Any:
    """Return ``function(panel, *arguments)``; None of a panel without rows."""
    return function(panel, *arguments) if panel.shape[0] else None


def _merged(merge: Merge, a: Any, b: Any) -> Any:
    """Return two results merged, either of which may be None."""
    if a is None or b is None:
        return b if a is None else a
    return merge(a, b)
