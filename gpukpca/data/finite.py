"""Checks for NaN and infinity in dense and sparse arrays of every library."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpukpca._typing import Array, SymmetricOperator
from gpukpca.backend import blocking
from gpukpca.backend.namespace import dtype_name, from_host, is_sparse, namespace_of, to_host
from gpukpca.backend.parallel import row_slices
from gpukpca.data.rows import Rows
from gpukpca.data.slicing import gather_rows
from gpukpca.exceptions import InvalidParameterError

# Advice for infinity, which is not a missing value.
FINITE = "Every entry must be a finite number; look where this one comes from."
# Advice where an entry is missing, for which the shell names its options.
IMPUTE = "impute or drop them first"


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
    before = 0
    for panel in _panels(X, counts):
        xp = namespace_of(panel)
        if bool(xp.all(xp.isfinite(panel))) or (missing and not bool(xp.any(xp.isinf(panel)))):
            before += int(panel.shape[0])
            continue
        if isinstance(X, Rows):
            host = to_host(panel)
        else:
            host, before = X.data[:, None] if is_sparse(X) else blanked(to_host(X), counts), 0
        kind, bad = f"infinity or a value too large for {host.dtype}", np.argwhere(np.isinf(host))
        if not missing and np.isnan(host).any():
            kind, bad, advice = "NaN", np.argwhere(np.isnan(host)), of_missing or advice
        row, column = bad[0]
        if is_sparse(X):
            row, column = np.searchsorted(X.indptr, row, side="right") - 1, X.indices[row]
        text = f"{what} contains {kind}: {len(bad)} value(s), the first in row "
        raise NotFiniteError(text, before + int(row), ", column ", int(column), f". {advice}")


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
    return any(bool(namespace_of(panel).any(namespace_of(panel).isnan(panel))) for panel in _panels(X))


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


def _panels(X: Any, counts: np.ndarray | None = None) -> Iterator[Array]:
    """Yield the entries by panels of rows, those of batches as they come; the stored ones of a sparse X."""
    if isinstance(X, Rows):
        yield from X  # type: ignore[misc]  # batches can be iterated
        return
    values = X.data[:, None] if is_sparse(X) else X
    for start, stop in row_slices(int(values.shape[0]), blocking.CHECKED_ROWS):
        yield blanked(values[start:stop, :], None if counts is None or is_sparse(X) else counts[start:])
