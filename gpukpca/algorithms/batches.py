"""Batches of rows that every pass reads again."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gpukpca._typing import Array


class RepeatedBatches:
    """Batches that a function reads again for every iteration."""

    def __init__(self, read: Callable[[], Iterator[Array]]) -> None:
        self._read = read

    def __iter__(self) -> Iterator[Array]:
        return self._read()


class Batches(RepeatedBatches):
    """Batches of checked, dense rows (b, d) where they are computed.

    Parameters
    ----------
    read : callable
        Returns an iterator over all batches.
    like : array of size 0, in the library and dtype of the rows
    n_rows : int or None
        None where only a pass shows it.
    largest : int
        The rows of the largest batch so far.
    """

    def __init__(
        self, read: Callable[[], Iterator[Array]], like: Array, n_rows: int | None = None, largest: int = 0
    ) -> None:
        super().__init__(read)
        self.like: Array = like
        self.n_rows: int | None = n_rows
        self.largest = largest

    def __iter__(self) -> Iterator[Array]:
        for batch in super().__iter__():
            self.largest = max(self.largest, int(batch.shape[0]))
            yield batch
