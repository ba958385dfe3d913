"""The state of an iteration as a row of files: each holds what one pass added, and names the files before it.

A generation is the last file of such a row. It is whole when every file that it names is there with the checksum that
it names; whatever else has happened to the folder, it then gives back the state to the last bit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np

from gpukpca._archive import SKEW, Arrays, Header, read_archive, read_header, seen
from gpukpca.backend.column_basis import ColumnBasis
from gpukpca.backend.namespace import overflow_allowed, to_host
from gpukpca.checkpoint.fingerprint import Fingerprint
from gpukpca.eigen.krylov_state import KrylovState, Phase
from gpukpca.exceptions import ModelFormatError

FILE = re.compile(r"p[0-9]+_pass[0-9]{4,}(_end)?_[0-9a-f]{8}\.npz")
DRAFT = re.compile(rf"\.{FILE.pattern}\..*\.partial")
# The fields of a state and their types, apart from what no checkpoint waits for.
FIELDS = {name: kind for name, kind in get_type_hints(KrylovState).items() if name != "product"}
# Of a product in float64, whose factors are float64.
LARGEST_EXPONENT = 2200


@dataclass(frozen=True, order=True)
class Key:
    """How far a generation has come.

    Attributes
    ----------
    p : int
        Components; a share of the variance is reached by solving for more and more. 0 before any solution.
    n_passes : int
    finished : bool
    restarts : int
        What the basis was begun anew for; files of one row have the same number.
    """

    p: int
    n_passes: int
    finished: bool
    restarts: int = field(compare=False)

    @property
    def of_row(self) -> tuple[int, int, bool]:
        """What all files of one row share."""
        return self.p, self.restarts, self.finished

    @property
    def prefix(self) -> str:
        """The beginning of the name of a file."""
        return f"p{self.p}_pass{self.n_passes:04d}{'_end' if self.finished else ''}_"

    def name(self, run: str) -> str:
        """Return the name of the file that a run writes."""
        return f"{self.prefix}{run}.npz"


BEGINNING = Key(0, 0, False, 0)


@dataclass(frozen=True)
class Row:
    """The files that a generation is made of.

    Attributes
    ----------
    names, checksums : tuple
        In order; the last is the generation itself.
    q, w : int
        Columns of the basis and of the products in them.
    """

    names: tuple[str, ...] = ()
    checksums: tuple[int, ...] = ()
    q: int = 0
    w: int = 0

    def columns(self, name: str) -> int:
        """Return the columns of the basis ("Q") or of the products ("W") in the files."""
        return {"Q": self.q, "W": self.w}[name]

    def followed_by(self, name: str, checksum: int, q: int, w: int) -> Row:
        """With one more file, which brings the columns to q and w."""
        return Row((*self.names, name), (*self.checksums, checksum), q, w)


@dataclass(frozen=True)
class Generation:
    """One file of the folder whose header could be read.

    Attributes
    ----------
    path : Path
    key : Key
    row : Row
        Up to this file; without its columns.
    before : tuple of str
        Files of the row before, which are kept in case that this one is damaged.
    job : dict
        See `gpukpca.checkpoint.fingerprint`.
    generator : str
        State of the random numbers.
    """

    path: Path
    key: Key
    row: Row
    before: tuple[str, ...]
    job: dict[str, Any]
    generator: str


# -- writing -----------------------------------------------------------------------------------------------------------


def key_of(state: KrylovState) -> Key:
    """Return how far a state has come."""
    return Key(state.p, state.n_passes, state.is_done, state.restarts)


def header_of(state: Header, job: Fingerprint, row: Row, before: tuple[str, ...]) -> Header:
    """Return the header of a file that follows those of `row`; `state` holds the fields that are no arrays."""
    files = {"files": list(row.names), "checksums": list(row.checksums), "before": list(before)}
    return {f"job.{name}": value for name, value in job.items()} | files | state


def fields_of(state: KrylovState, row: Row) -> tuple[Header, Arrays]:
    """Return the fields of a state that are no arrays, and the arrays that the files of `row` do not hold yet.

    The arrays are on the host, in memory of their own.
    """
    header: Header = {}
    arrays: Arrays = {}
    for name in FIELDS:
        value = getattr(state, name)
        if isinstance(value, ColumnBasis):
            start = row.columns(name)
            if value.count > start:
                arrays[name] = _copied(value.array[:, start:])
        elif isinstance(value, Phase):
            header[name] = value.name
        elif isinstance(value, float):  # JSON has no infinity
            header[name] = value.hex()
        elif value is None or isinstance(value, (int, str)):
            header[name] = value
        else:
            arrays[name] = _copied(value)
    return header, arrays


def _copied(array: Any) -> np.ndarray:
    """A copy on the host; the order of the entries in memory stays, as products depend on it to the last bit."""
    return np.array(to_host(array), order="K")


# -- reading -----------------------------------------------------------------------------------------------------------


def generation_at(path: Path) -> Generation:
    """What a file says of itself.

    Raises
    ------
    ModelFormatError
        Damaged, or not written by this library.
    OSError
        It cannot be read.
    """
    header, checksum = read_header(path)
    p, n_passes, restarts = (_natural(header, name) for name in ("p", "n_passes", "restarts"))
    names, checksums = _list_of(header, "files", str), _list_of(header, "checksums", int)
    before = _list_of(header, "before", str)
    if not all(FILE.fullmatch(name) for name in (*names, *before)) or len(names) != len(checksums):
        raise ModelFormatError("it names files that this library does not write")
    if len({*names, path.name}) <= len(names):
        raise ModelFormatError("it names a file twice")
    generator = header.get("generator")
    if not isinstance(generator, str):
        raise ModelFormatError("it has no state of the random numbers")
    key = Key(p, n_passes, header.get("phase") == Phase.DONE.name, restarts)
    if not path.name.startswith(key.prefix):
        raise ModelFormatError("its counters are those of another pass")
    job = {name.removeprefix("job."): value for name, value in header.items() if name.startswith("job.")}
    return Generation(path, key, Row((*names, path.name), (*checksums, checksum)), before, job, generator)


def state_at(generation: Generation) -> KrylovState | None:
    """The state of a generation; None for one before any solution.

    Raises
    ------
    DamagedFileError
        One of its files is missing or damaged, or they make no state.
    """
    parts = [
        _part(generation.path.parent / name, checksum)
        for name, checksum in zip(generation.row.names, generation.row.checksums, strict=True)
    ]
    if generation.key.p == 0:
        return None
    with _blamed(generation.path.name):
        return _state(generation, parts)


class DamagedFileError(Exception):
    """A file of a checkpoint cannot be used; the message names it and says why."""


@contextmanager
def _blamed(name: str) -> Iterator[None]:
    """What goes wrong inside is the fault of the file that is named."""
    try:
        yield
    except FileNotFoundError as error:
        raise DamagedFileError(f"{name} is missing") from error
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise DamagedFileError(f"{name} cannot be used: {error}") from error


def _part(path: Path, checksum: int) -> tuple[Header, Arrays]:
    """Header and arrays of a file that has this checksum."""
    with _blamed(path.name):
        if read_header(path)[1] != checksum:
            raise ModelFormatError("it is another file than the one that was written")
        return read_archive(path, lambda header: None)


def _state(generation: Generation, parts: list[tuple[Header, Arrays]]) -> KrylovState:
    header, last = parts[-1]
    values: dict[str, Any] = {}
    for name, kind in FIELDS.items():
        if kind is ColumnBasis:
            values[name] = ColumnBasis(tuple(_column_parts(name, parts)))
        elif kind is Phase:
            values[name] = Phase[header[name]]
        elif name in header:
            values[name] = _scalar(header, name, kind)
        else:
            values[name] = last[name]
    state = KrylovState(**values)
    _check(state, generation.job)
    return state


def _column_parts(name: str, parts: list[tuple[Header, Arrays]]) -> Iterator[np.ndarray]:
    """Yield the columns of the basis, or of the products, in the files of a row: a pass adds its block to the basis."""
    for number, (_, arrays) in enumerate(parts):
        if name in arrays:
            yield arrays[name]
        if name == "Q" and number < len(parts) - 1:
            yield arrays["block"]


def _check(state: KrylovState, job: Mapping[str, Any]) -> None:
    """Raise where the parts of a state do not fit together or to the job."""
    n, k = _order(job), state.T.shape[0]
    columns = [*state.Q.parts, *([] if state.block is None else [state.block])]
    for name, part in [("Q", part) for part in columns] + [("W", part) for part in state.W.parts]:
        if part.ndim != 2 or part.shape[0] != n or part.dtype.name != job.get("dtype"):
            raise ModelFormatError(f"{name} has a part of {seen(part)} where {n} rows of {job.get('dtype')} are due")
    for name, basis in (("Q", state.Q), ("W", state.W)):
        if basis.count != k:
            shapes = [part.shape for part in basis.parts]
            raise ModelFormatError(f"{name} has the shapes {shapes} where ({n}, {k}) is due")
    for name, due in {"T": (k, k), "seen": (state.p,), "means": (n,)}.items():
        array = getattr(state, name)
        if array is not None and (array.shape != due or array.dtype.kind != "f"):
            raise ModelFormatError(f"{name} is {seen(array)} where floating-point numbers of shape {due} are due")
    b = 0 if state.block is None else state.block.shape[1]
    if (state.phase is Phase.EXTEND) != (b > 0) or k + b > n:
        raise ModelFormatError(f"{k} + {b} columns are no basis for {n} samples before «{state.phase.value}»")
    if not 0 < state.p <= (n if state.phase is Phase.EXTEND else k) or (k and state.exponent is None):
        raise ModelFormatError(f"{k} columns cannot be those of {state.p} components")
    _check_numbers(state, columns)


def _check_numbers(state: KrylovState, columns: list[np.ndarray]) -> None:
    """Raise unless all numbers are finite, the basis is orthonormal and T = QᵀW."""
    arrays = [*columns, *state.W.parts, state.T, state.seen, state.means]
    # The best residual is infinite until one is confirmed.
    if any(array is not None and not np.all(np.isfinite(array)) for array in arrays) or not (
        state.best_residual >= 0 and np.isfinite(state.smallest)
    ):
        raise ModelFormatError("it holds NaN or infinity")
    with overflow_allowed():
        skew = np.max(np.abs(_products(columns, columns) - np.eye(sum(part.shape[1] for part in columns))))
        gap = np.max(np.abs(_products(state.Q.parts, state.W.parts) - state.T), initial=0.0)
    if not skew <= SKEW:
        raise ModelFormatError(f"its basis is not orthonormal; inner products are off by {skew:.2g}")
    if not gap <= SKEW * np.max(np.abs(state.T), initial=0.0):
        raise ModelFormatError(f"its T differs from the products of Q and W by {gap:.2g}")


def _products(left: Sequence[np.ndarray], right: Sequence[np.ndarray]) -> np.ndarray:
    """Return the inner products of the columns of blocks, block by block: no copy of a whole basis is made."""
    return np.block([[a.T @ b for b in right] for a in left]) if left else np.zeros((0, 0))


def _order(job: Mapping[str, Any]) -> int:
    """Return the number of rows of the operator of a job."""
    n, d = (int(size) for size in str(job["shape"]).split(" x "))
    return d if job.get("by_samples") == "False" else n


def _natural(header: Mapping[str, Any], name: str) -> int:
    value = header.get(name)
    if type(value) is not int or value < 0:
        raise ModelFormatError(f"its {name} is {str(value)[:80]!r}")
    return value


def _scalar(header: Header, name: str, kind: Any) -> Any:
    """Return the field of a header that has this type, or None where the type allows it."""
    value, kinds = header[name], set(get_args(kind) or (kind,))
    if value is None and type(None) in kinds:
        return None
    if float in kinds and isinstance(value, str):
        return float.fromhex(value)
    smallest, largest = (-LARGEST_EXPONENT, LARGEST_EXPONENT) if name == "exponent" else (0, np.inf)
    if type(value) not in kinds or (type(value) is int and not smallest <= value <= largest):
        raise ModelFormatError(f"its {name} is {str(value)[:80]!r}")
    return value


def _list_of(header: Mapping[str, Any], name: str, kind: type) -> tuple[Any, ...]:
    values = header.get(name)
    if not isinstance(values, list) or not all(type(value) is kind for value in values):
        raise ModelFormatError(f"its {name} are no list of {kind.__name__}")
    return tuple(values)
