"""Rows that are made ready for a kernel when they are used: on workers of a cluster, or read from a memory map."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

from gpukpca._typing import Array
from gpukpca.backend.rows import gather_rows, read_rows
from gpukpca.kernels.base import Kernel
from gpukpca.kernels.prepared import PreparedRows


class LazyRows(PreparedRows):
    """Rows that are made ready for a kernel, like a template, when they are asked for."""

    def __init__(self, kernel: Kernel, n_rows: int, template: PreparedRows) -> None:
        self.kernel, self.n_rows, self._template = kernel, n_rows, template

    @property
    def template(self) -> PreparedRows:
        return self._template

    @property
    def shifted(self) -> bool:
        return self._template.shifted


class StreamedRows(LazyRows):
    """Rows of X made ready for a kernel when a slice of them is wanted.

    Parameters
    ----------
    kernel : Kernel
    X : array, shape (n, d)
        Usually a memory map.
    template : Rows
        What the kernel learned from the whole of X.
    keep : int
        Most rows kept ready; the slices used last stay.

    Attributes
    ----------
    n_rows : int
    rows_read : int
        Rows read so far.
    """

    in_memory = False

    def __init__(self, kernel: Kernel, X: Array, template: PreparedRows, keep: int) -> None:
        super().__init__(kernel, int(X.shape[0]), template)
        self.X, self.keep = X, keep
        self.rows_read = 0
        self._kept: OrderedDict[tuple[int, int], PreparedRows] = OrderedDict()
        self._lock = threading.Lock()

    def slice(self, start: int, stop: int) -> PreparedRows:
        """The rows from `start` to `stop`, from memory or read anew."""
        with self._lock:  # two workers that want the same slice read it once
            rows = self._kept.pop((start, stop), None) or self._read(start, stop)
            self._kept[start, stop] = rows
            while len(self._kept) > 1 and sum(e - s for s, e in self._kept) > self.keep:
                self._kept.popitem(last=False)
            return rows

    def _read(self, start: int, stop: int) -> PreparedRows:
        self.rows_read += stop - start
        return self.kernel.prepare(read_rows(self.X, start, stop), like=self._template)

    def take(self, indices: Any) -> PreparedRows:
        return self.kernel.prepare(gather_rows(self.X, indices), like=self._template)
