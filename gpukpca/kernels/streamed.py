"""Rows that are prepared for a kernel when a tile needs them: on workers of a cluster, or read from a memory map."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

from gpukpca._typing import Array
from gpukpca.backend.namespace import namespace_of
from gpukpca.data.rows import Rows
from gpukpca.data.slicing import gather_rows
from gpukpca.kernels.base import Kernel
from gpukpca.kernels.prepared import PreparedRows


class LazyRows(PreparedRows):
    """Rows that are prepared for a kernel, like a template, when a tile needs them."""

    def __init__(self, kernel: Kernel, n_rows: int, template: PreparedRows) -> None:
        self.kernel = kernel
        self.n_rows: int = n_rows
        self._template = template
        self.shifted: bool = template.shifted

    @property
    def template(self) -> PreparedRows:
        return self._template


class StreamedRows(LazyRows):
    """Rows of X (n, d), a memory map or batches, of which at most `keep` are in memory; the slices used last stay."""

    in_memory = False

    def __init__(self, kernel: Kernel, X: Array | Rows, template: PreparedRows, keep: int) -> None:
        super().__init__(kernel, int(X.shape[0]), template)
        self.X = X
        self.keep = keep
        self.rows_read: int = 0
        self._kept: OrderedDict[tuple[int, int], PreparedRows] = OrderedDict()
        self._lock = threading.Lock()

    def slice(self, start: int, stop: int) -> PreparedRows:
        with self._lock:  # two workers that need the same slice read it once
            if (rows := self._kept.pop((start, stop), None)) is None:
                self.rows_read += stop - start
                read = self.X.slice(start, stop) if isinstance(self.X, Rows) else self.X[start:stop, :]
                # In new memory: a slice of a memory map is no copy, and that of a batch would keep all of it.
                rows = self.kernel.prepare(namespace_of(read).asarray(read, copy=True), like=self._template)
            self._kept[start, stop] = rows
            while len(self._kept) > 1 and sum(e - s for s, e in self._kept) > self.keep:
                self._kept.popitem(last=False)
            return rows

    def take(self, indices: Any) -> PreparedRows:
        return self.kernel.prepare(gather_rows(self.X, indices), like=self._template)
