"""One file of a checkpoint: what a pass added to the state of an iteration, and the names of the files before it.

Files that follow one another without a restart make a row. A file is whole when every file that it names is there with
the checksum that it names; whatever else has happened to the folder, it then gives back the state to the last bit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np

from gpukpca._archive import SKEW, Arrays, Header, read_archive, read_header, seen
from gpukpca.backend.column_basis import ColumnBasis
from gpukpca.backend.namespace import overflow_allowed, to_host
from gpukpca.eigen.krylov_state import KrylovState, Phase
from gpukpca.exceptions import ModelFormatError

FILE = re.compile(r"p[0-9]+_pass[0-9]{4,}(_end)?_[0-9a-f]{8}\.npz")
DRAFT = re.compile(rf"\.{FILE.pattern}\..*\.partial")
# The fields of a state and their types, apart from what no checkpoint waits for.
FIELDS = {name: kind for name, kind in get_type_hints(KrylovState).items() if name != "product"}
# Of a product in float64, whose factors are float64.
LARGEST_EXPONENT = 2200


@dataclass(frozen=True)
class CheckpointFile:
    """A file of a checkpoint by its header.

    Attributes
    ----------
    name : str
    header : dict
        The fields of the state that are no arrays; ``job.*``; `files` and `checksums` of the row up to this file, and
        the files of the row `before`, which are kept in case that this one is damaged.
    checksum : int
        That of the file itself.
    """

    name: str
    header: Header
    checksum: int = 0

    @property
    def names(self) -> list[str]:
        """The files of the row up to this one."""
        return [*self.header["files"], self.name]

    @property
    def checksums(self) -> list[int]:
        """The checksums of `names`."""
        return [*self.header["checksums"], self.checksum]

    @property
    def before(self) -> list[str]:
        """The files of the row before."""
        return list(self.header["before"])

    @property
    def job(self) -> dict[str, Any]:
        """The fields that must agree with those of a fit that resumes."""
        return {name.removeprefix("job."): value for name, value in self.header.items() if name.startswith("job.")}

    @property
    def has_state(self) -> bool:
        """Return whether it was written after the first solution began."""
        return bool(self.header["p"])


def progress_of(header: Header) -> tuple[int, int, bool]:
    """Return how far a file is: components (a share of the variance takes more and more), passes, and the end."""
    return header["p"], header["n_passes"], _is_done(header)


def row_of(header: Header) -> tuple[int, int, bool]:
    """Return the values that all files of a row share."""
    return header["p"], header["restarts"], _is_done(header)


def _is_done(header: Header) -> bool:
    return bool(header.get("phase") == Phase.DONE.name)


def prefix_of(header: Header) -> str:
    """Return the beginning of the name of a file."""
    return f"p{header['p']}_pass{header['n_passes']:04d}{'_end' if _is_done(header) else ''}_"


# -- writing -----------------------------------------------------------------------------------------------------------


def first_header(generator: str) -> Header:
    """Return the fields of a file before any solution."""
    return {"p": 0, "n_passes": 0, "restarts": 0, "phase": Phase.EXTEND.name, "generator": generator}


def header_of(state: KrylovState) -> Header:
    """Return the fields of a state that are no arrays."""
    header: Header = {}
    for name in FIELDS:
        value = getattr(state, name)
        if isinstance(value, Phase):
            header[name] = value.name
        elif isinstance(value, float):  # JSON has no infinity
            header[name] = value.hex()
        elif value is None or isinstance(value, (int, str)):
            header[name] = value
    return header


def arrays_of(state: KrylovState, held: Mapping[str, int]) -> Arrays:
    """Return the arrays of a state on the host, in memory of their own; of the bases without the columns `held`."""
    arrays: Arrays = {}
    for name in FIELDS:
        value = getattr(state, name)
        if isinstance(value, ColumnBasis):
            start = held.get(name, 0)
            value = value.array[:, start:] if value.count > start else None
        if value is not None and not isinstance(value, (int, float, str, Phase)):
            # The order of the entries in memory stays, as products depend on it to the last bit.
            arrays[name] = np.array(to_host(value), order="K")
    return arrays


def columns_of(state: KrylovState) -> dict[str, int]:
    """Return the columns that the files of a state hold: of the basis with the next block, and of the products."""
    b = 0 if state.block is None else int(state.block.shape[1])
    return {"Q": state.Q.count + b, "W": state.W.count}


# -- reading -----------------------------------------------------------------------------------------------------------


def file_at(path: Path) -> CheckpointFile:
    """Return the file at a path, its header checked.

    Raises
    ------
    ModelFormatError
        Damaged, or not written by this library.
    OSError
        It cannot be read.
    """
    header, checksum = read_header(path)
    for name in ("p", "n_passes", "restarts"):
        _check_natural(header, name)
    names, checksums = _list_of(header, "files", str), _list_of(header, "checksums", int)
    if not all(FILE.fullmatch(name) for name in (*names, *_list_of(header, "before", str))):
        raise ModelFormatError("it names files that this library does not write")
    if len({*names, path.name}) <= len(names) or len(names) != len(checksums):
        raise ModelFormatError("it names a file twice")
    if not isinstance(header.get("generator"), str):
        raise ModelFormatError("it has no state of the random numbers")
    if not path.name.startswith(prefix_of(header)):
        raise ModelFormatError("its counters are those of another pass")
    return CheckpointFile(path.name, header, checksum)


def state_at(folder: Path, file: CheckpointFile) -> KrylovState | None:
    """Return the state of a file; None for one before any solution.

    Raises
    ------
    DamagedFileError
        One of the files of its row is missing or damaged, or they make no state.
    """
    parts = [_part(folder / name, checksum) for name, checksum in zip(file.names, file.checksums, strict=True)]
    if not file.has_state:
        return None
    with _blamed(file.name):
        state = _state(parts)
        _check(state, file.job)
        return state


class DamagedFileError(Exception):
    """A file of a checkpoint cannot be used; the message names it and says why."""


@contextmanager
def _blamed(name: str) -> Iterator[None]:
    """Turn errors inside into those of the named file."""
    try:
        yield
    except FileNotFoundError as error:
        raise DamagedFileError(f"{name} is missing") from error
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise DamagedFileError(f"{name} cannot be used: {error}") from error


def _part(path: Path, checksum: int) -> tuple[Header, Arrays]:
    """Return header and arrays of a file that has this checksum."""
    with _blamed(path.name):
        if read_header(path)[1] != checksum:
            raise ModelFormatError("it is another file than the one that was written")
        return read_archive(path, lambda header: None)


def _state(parts: list[tuple[Header, Arrays]]) -> KrylovState:
    """Return the state that the files of a row make together."""
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
    return KrylovState(**values)


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


def _check_natural(header: Header, name: str) -> None:
    value = header.get(name)
    if type(value) is not int or value < 0:
        raise ModelFormatError(f"its {name} is {str(value)[:80]!r}")


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


def _list_of(header: Header, name: str, kind: type) -> list[Any]:
    values = header.get(name)
    if not isinstance(values, list) or not all(type(value) is kind for value in values):
        raise ModelFormatError(f"its {name} are no list of {kind.__name__}")
    return values
