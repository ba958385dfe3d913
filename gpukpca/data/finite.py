"""Checks for NaN and infinity in dense and sparse arrays of every library."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from gpukpca._typing import Array, SymmetricOperator
from gpukpca.backend import blocking
from gpukpca.backend.device import is_on_gpu
from gpukpca.backend.namespace import dtype_name, from_host, is_sparse, namespace_of, to_host
from gpukpca.backend.parallel import row_slices
from gpukpca.data.rows import Rows, fold
from gpukpca.data.slicing import gather_rows, panel_length, place_of
from gpukpca.exceptions import InvalidParameterError

# Advice for infinity, which is not a missing value.
FINITE = "Every entry must be a finite number; look where this one comes from."
# Advice where an entry is missing, for which the shell names its options.
IMPUTE = "impute or drop them first"
# Entries of one kind: their count, and row and column of the first.
Entries = tuple[int, int, int]
NONE_FOUND: Entries = (0, 0, 0)
# The rows of a panel, its NaN and its infinities.
PanelEntries = tuple[int, Entries, Entries]


@dataclass(frozen=True)
class NumberSource:
    """State the source of numbers, for errors: an operator has both attributes as well."""

    name: str
    dtype: Any


class NotFiniteError(InvalidParameterError):
    """An entry is NaN or infinite: the arguments are the text before its row, the row, and the text after, in parts.

    One part may be the number of the column.
    """

    def __str__(self) -> str:
        return "".join(map(str, self.args))

    def moved(self, start: int) -> NotFiniteError:
        """Return the error for rows that begin at row `start` of a whole."""
        text, row, *rest = self.args
        return NotFiniteError(text, row + start, *rest)

    def named(self, names: Sequence[Any] | None) -> NotFiniteError:
        """Return the error with the name of the column in place of its number; the error itself without names."""
        text, row, *rest = self.args
        return NotFiniteError(text, row, *(repr(names[one]) if names and isinstance(one, int) else one for one in rest))


def advice_for(purpose: str) -> str:
    """Return the advice where an entry is missing, for what needs the entries; empty where that has no name."""
    whose = f"{purpose} does not accept missing values" if purpose else "missing values are not supported"
    return f"{whose}; {IMPUTE}."


def check_finite(
    X: Any,
    advice: str,
    what: str = "Input X",
    *,
    missing: bool = False,
    of_missing: str | None = None,
    counts: np.ndarray | None = None,
) -> None:
    """Raise `NotFiniteError` with the count and the first row where X holds NaN or infinity.

    With `missing` only infinity raises. `of_missing` is the advice for NaN where it differs. Of a dense X only the rows
    with `counts` (n,) are read, by default all.
    """
    if isinstance(X, Rows):
        found = X.fold(entries_of_panel, merge=operator.add)
    elif _all_panels(lambda xp, A: ~xp.isinf(A) if missing else xp.isfinite(A), X, counts):
        return
    else:
        found = entries_of_panel(X if is_sparse(X) else blanked(to_host(X), counts))
    refuse_entries(found, X.dtype, advice, what, missing=missing, of_missing=of_missing)


def refuse_entries(
    found: Sequence[PanelEntries],
    dtype: Any,
    advice: str,
    what: str,
    *,
    missing: bool = False,
    of_missing: str | None = None,
) -> None:
    """Raise `NotFiniteError` where consecutive panels hold NaN or infinity; see `check_finite`."""
    sizes = [size for size, *_ in found]
    kind = f"infinity or a value too large for {dtype_name(dtype)}"
    count, row, column = first_of_all([infinity for *_, infinity in found], sizes)
    nan = NONE_FOUND if missing else first_of_all([nan for _, nan, _ in found], sizes)
    if nan[0]:
        kind, (count, row, column), advice = "NaN", nan, of_missing or advice
    if count:
        text = f"{what} contains {kind}: {count} value(s), the first in row "
        raise NotFiniteError(text, row, ", column ", column, f". {advice}")


def entries_of_panel(panel: Any) -> list[PanelEntries]:
    """Return the rows of a panel with its NaN and its infinities, in a list, so that those of panels are added."""
    return [(int(panel.shape[0]), *entries_not_finite(panel))]


def entries_not_finite(panel: Any) -> tuple[Entries, Entries]:
    """Return count and first place of NaN and of infinity."""
    entries = place_of(panel)
    xp = namespace_of(entries)
    if bool(xp.all(xp.isfinite(entries))):
        return NONE_FOUND, NONE_FOUND
    host = to_host(entries)
    return _entries(panel, np.isnan(host)), _entries(panel, np.isinf(host))


def _entries(panel: Any, marks: np.ndarray) -> Entries:
    """Return count and first place of marked entries, the stored ones of a CSR panel."""
    if not (count := int(np.count_nonzero(marks))):
        return NONE_FOUND
    first = int(np.argmax(marks))
    if is_sparse(panel):
        return count, int(np.searchsorted(panel.indptr, first, side="right")) - 1, int(panel.indices[first])
    row, column = divmod(first, int(panel.shape[1]))
    return count, row, column


def first_of_all(found: Sequence[Entries], lengths: Sequence[int]) -> Entries:
    """Return the count over panels of these lengths, and the first place with its row counted over all of them."""
    start = 0
    for (count, row, column), length in zip(found, lengths, strict=True):
        if count:
            return sum(other[0] for other in found), start + row, column
        start += length
    return NONE_FOUND


def blanked(X: Any, counts: np.ndarray | None) -> Any:
    """Return X (n, d), in new memory where rows that do not count are not finite: with zeros in place of these rows.

    `counts` may go on for more rows.
    """
    counts = None if counts is None else counts[: X.shape[0]]
    if counts is None or len(counts) < X.shape[0] or np.all(counts):
        return X
    others = gather_rows(X, np.flatnonzero(~counts))
    others = others.data if is_sparse(X) else others
    if bool(namespace_of(others).all(namespace_of(others).isfinite(others))):
        return X
    if is_sparse(X):
        X = X.copy()
        X.data[np.repeat(~counts, np.diff(X.indptr))] = 0.0
        return X
    xp = namespace_of(X)
    return xp.where(from_host(counts.astype(np.float64), X)[:, None] > 0.0, X, xp.zeros_like(X[:1, :]))


def has_missing(X: Any) -> bool:
    """Return whether an entry is NaN."""
    return bool(fold(X, _misses_entries, merge=operator.or_))


def _misses_entries(panel: Any) -> bool:
    return not _all_panels(lambda xp, A: ~xp.isnan(A), panel)


def not_finite(op: SymmetricOperator | NumberSource, i: int, j: int, value: float) -> InvalidParameterError:
    """Return the error for an entry of an operator that is NaN or infinite, or whose products are."""
    if np.isnan(value):
        return InvalidParameterError(f"{op.name} returned NaN at ({i}, {j}).")
    return overflow(op, f"infinity at ({i}, {j})")


def overflow(op: SymmetricOperator | NumberSource, where: str) -> InvalidParameterError:
    """Return the error for numbers of an operator beyond the range of its dtype."""
    kind = dtype_name(op.dtype)
    return InvalidParameterError(
        f"{op.name} overflows {kind} on these data: {where}. Scale the features, or choose a smaller gamma, coef0 or "
        f"degree{', or pass float64' if kind == 'float32' else ''}."
    )


def _all_panels(test: Callable[[Any, Array], Array], X: Any, counts: np.ndarray | None = None) -> bool:
    """Return whether ``test(xp, panel)`` is true of all entries, of a sparse X the stored ones, by panels of rows.

    The host ends at the first panel that fails. A device makes all flags before one wait: each wait empties its queue.
    """
    values = X.data[:, None] if is_sparse(X) else X
    xp, on_gpu = namespace_of(values), is_on_gpu(values)
    rows = panel_length(int(values.shape[1]), True) if on_gpu else blocking.CHECKED_ROWS
    flags = (
        xp.all(test(xp, blanked(values[start:stop, :], None if counts is None or is_sparse(X) else counts[start:])))
        for start, stop in row_slices(int(values.shape[0]), rows)
    )
    return bool(reduce(xp.logical_and, flags, True)) if on_gpu else all(map(bool, flags))
