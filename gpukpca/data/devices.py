"""Rows of an array as panels on several devices of this machine, with a thread for each."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, reduce
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend.device import device_context, synchronize
from gpukpca.backend.namespace import concat, from_host, is_cupy, move
from gpukpca.backend.parallel import map_in_order, row_slices
from gpukpca.data.rows import Merge, Rows
from gpukpca.data.slicing import gather_rows


class DeviceRows(Rows):
    """The rows of an array X (n, d), a panel of about n / devices on each device of a place, copied at first use.

    Results are on the first device, and merged in the order of the panels. Arguments that have `moved` come to the
    panel. Functions move arrays to it themselves.

    Parameters
    ----------
    X : array, shape (n, d)
    place : gpukpca.data.place.Placement
    bounds : list of (start, stop), optional
        Of the panels.
    """

    def __init__(self, X: Any, place: Any, bounds: list[tuple[int, int]] | None = None) -> None:
        n, d = map(int, X.shape)
        self.source: Any = X
        self.place: Any = place
        self.bounds: list[tuple[int, int]] = bounds or row_slices(n, -(-n // (1 + len(place.others))))
        self.shape: tuple[int, int] = (n, d)
        self.like: Array = from_host(np.empty((0, d)), place.work)

    @cached_property
    def panels(self) -> list[Array]:
        """The panels, each on its device."""
        places = [replace(self.place, work=work) for work in (self.place.work, *self.place.others)]
        synchronize(self.source)

        def panel(k: int) -> Array:
            with device_context(places[k].work):
                return places[k].to_work(self.source[slice(*self.bounds[k]), :])

        return self._in_threads(panel)

    def _in_threads(self, work: Callable[[int], Any]) -> list[Any]:
        """Return ``work(k)`` of every panel, in a thread for each."""
        return map_in_order(work, list(range(len(self.bounds))), len(self.bounds))

    @property
    def notes(self) -> tuple[str, ...]:
        return (f"{len(self.bounds)} devices: {' + '.join(map(str, self.counted()))} rows",)

    def counted(self) -> list[int]:
        return [b - a for a, b in self.bounds]

    def each(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        panels = self.panels
        synchronize(self.like)  # other threads read the arguments

        def result(k: int) -> Any:
            with device_context(panels[k]):
                own = [a.panels[k] if isinstance(a, DeviceRows) else a for a in arguments]
                return function(panels[k], *(a.moved(panels[k]) if hasattr(a, "moved") else a for a in own))

        return list(map(self._on_first, self._in_threads(result)))

    def _on_first(self, result: Any) -> Any:
        """Return a result with its arrays on the first device."""
        if isinstance(result, tuple | list):
            return type(result)(map(self._on_first, result))
        return move(result, self.like) if is_cupy(result) else result

    def fold(self, function: Callable[..., Any], *arguments: Any, merge: Merge = operator.add) -> Any:
        return reduce(merge, self.each(function, *arguments))

    def map(self, function: Callable[..., Array], *arguments: Any, width: int) -> DeviceRows:
        return self.split(self.joined(function, *arguments))

    def split(self, A: Array) -> DeviceRows:
        rows = DeviceRows(A, self.place, self.bounds)
        rows.panels = [A[a:b, ...] for a, b in self.bounds]
        return rows

    def take(self, chosen: Any, *others: Any) -> Array:
        with device_context(self.source):
            found = [gather_rows(rows.source, chosen) for rows in (self, *others)]
        return concat(list(map(self.place.to_work, found)), axis=1)
