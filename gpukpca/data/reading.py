"""The door to rows that other libraries read: whatever these raise becomes one error, which names the rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from operator import attrgetter
from typing import Any

import numpy as np

from gpukpca.backend.namespace import is_sparse
from gpukpca.data.rows import Rows
from gpukpca.exceptions import InvalidParameterError

# What ends the work, whoever raises it.
PASSED = (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError)
# Characters of a reason, which may quote the whole of a header.
MOST_QUOTED = 300
# Where sets of zarr and HDF5 state their file.
PLACES = ("store_path", "file.filename", "filename")


class UnreadableError(InvalidParameterError):
    """Another library cannot read the data; the message names them, and the cause is its error."""


@contextmanager
def reading(what: str, *, system: bool = False) -> Iterator[None]:
    """Turn what a library raises into `UnreadableError`, which begins with `what`.

    With `system` the errors of the system, which have a number, are raised as they are: they name the file.
    """
    try:
        yield
    except (UnreadableError, *PASSED):
        raise
    except BaseException as error:  # a panic of Rust, as that of polars, is no Exception
        if system and getattr(error, "errno", None) is not None:
            raise
        reason = " ".join(str(error).split())[:MOST_QUOTED]
        raise UnreadableError(f"{what}: {reason or type(error).__name__}") from error


def rows_of_set(X: Any, start: int, stop: int) -> Any:
    """Return rows of a set of zarr, HDF5 or the like, or of `Rows`, in memory; raise for another number of rows."""
    with reading(f"rows {start} to {stop - 1} of {_name_of(X)} cannot be read, it is damaged or closed"):
        if isinstance(X, Rows):
            return X.slice(start, stop)
        rows = X[start:stop]
        rows = rows if is_sparse(rows) else np.asanyarray(rows)  # those of netCDF are masked
    if rows.ndim == 2 and rows.shape[0] != stop - start:
        raise InvalidParameterError(
            f"X[{start}:{stop}] gave {rows.shape[0]} row(s), and X has the shape {tuple(X.shape)}; is it still open "
            "and whole?"
        )
    return rows


def _name_of(X: Any) -> str:
    """Return the file of a set, and its name there where the file does not have it, else its class."""
    for place in PLACES:
        with suppress(Exception):  # such as that of a closed file
            return f"{attrgetter(place)(X)}" + (f"{X.name}" if place == "file.filename" else "")
    return f"a set of class {type(X).__name__}"
