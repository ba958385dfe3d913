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
from typing import Any

import numpy as np

from gpukpca.backend.namespace import overflow_allowed, to_host
from gpukpca.decomposition.checkpoint.job import Fingerprint
from gpukpca.decomposition.saved.archive import Arrays, Header, read_archive, read_header
from gpukpca.decomposition.saved.kinds import SKEW, seen
from gpukpca.eigen.state import COUNTERS, KrylovState
from gpukpca.exceptions import ModelFormatError

FILE = re.compile(r"p[0-9]+_pass[0-9]{4,}(_end)?_[0-9a-f]{8}\.npz")
DRAFT = re.compile(rf"\.{FILE.pattern}\..*\.partial")
# Integers that count something.
NATURAL = tuple(name for name in COUNTERS if name != "exponent")
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

    def name(self, run: str) -> str:
        """Of the file that a run writes."""
        return f"p{self.p}_pass{self.n_passes:04d}{'_end' if self.finished else ''}_{run}.npz"


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
        See `gpukpca.decomposition.checkpoint.job`.
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
    """How far a state has come."""
    return Key(state.p, state.n_passes, state.finished, state.counters["restarts"] or 0)


def header_of(key: Key, generator: str, job: Fingerprint, row: Row, before: tuple[str, ...]) -> Header:
    """What a file says beside its arrays, where it follows those of `row`."""
    return {
        **{f"job.{name}": value for name, value in job.items()},
        "p": key.p,
        "n_passes": key.n_passes,
        "finished": key.finished,
        "restarts": key.restarts,
        "generator": generator,
        "files": list(row.names),
        "checksums": list(row.checksums),
        "before": list(before),
    }


def counters_of(state: KrylovState) -> Header:
    """The integers of a state."""
    return {f"counters.{name}": value for name, value in state.counters.items()}


def arrays_of(state: KrylovState, row: Row) -> Arrays:
    """The arrays that a state has beyond those in the files of `row`, on the host, in memory of their own."""
    arrays = {"T": state.T, "extremes": state.extremes}
    for name, parts, start in (("Q", state.Q, row.q), ("W", state.W, row.w)):
        if parts and parts[0].shape[1] > start:
            arrays[name] = _copied(parts[0][:, start:])
    optional = {"block": state.block, "seen": state.seen, "learned": state.learned}
    return arrays | {name: _copied(array) for name, array in optional.items() if array is not None}


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
    before, generator = _list_of(header, "before", str), header.get("generator")
    if not all(FILE.fullmatch(name) for name in (*names, *before)) or len(names) != len(checksums):
        raise ModelFormatError("it names files that this library does not write")
    if len({*names, path.name}) <= len(names):
        raise ModelFormatError("it names a file twice")
    if not isinstance(generator, str):
        raise ModelFormatError("it has no state of the random numbers")
    job = {name.removeprefix("job."): value for name, value in header.items() if name.startswith("job.")}
    key = Key(p, n_passes, header.get("finished") is True, restarts)
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
    counters = {name: _natural(header, f"counters.{name}") for name in NATURAL}
    exponent = header["counters.exponent"]
    if exponent is not None and not (type(exponent) is int and abs(exponent) <= LARGEST_EXPONENT):
        raise ModelFormatError(f"its exponent is {str(exponent)[:80]!r}")
    columns: dict[str, list[np.ndarray]] = {"Q": [], "W": []}
    for number, (_, arrays) in enumerate(parts):
        columns["Q"] += [arrays["Q"]] if "Q" in arrays else []
        columns["Q"] += [arrays["block"]] if number < len(parts) - 1 else []
        columns["W"] += [arrays["W"]] if "W" in arrays else []
    learned = [arrays["learned"] for _, arrays in parts if "learned" in arrays]
    state = KrylovState(
        p=generation.key.p,
        Q=tuple(columns["Q"]),
        W=tuple(columns["W"]),
        block=None if generation.key.finished else last["block"],
        T=last["T"],
        counters={**counters, "exponent": exponent},
        extremes=last["extremes"],
        seen=last.get("seen"),
        learned=learned[-1] if learned else None,
        generator=generation.generator,
    )
    if key_of(state) != generation.key:
        raise ModelFormatError("its counters are those of another pass")
    _check(state, generation.job)
    return state


def _check(state: KrylovState, job: Mapping[str, Any]) -> None:
    """Raise where the parts of a state do not fit together or to the job."""
    n, k, most = _order(job), state.T.shape[0], state.counters["max_columns"] or 0
    columns = [*state.Q, *([] if state.block is None else [state.block])]
    for name, part in [("Q", part) for part in columns] + [("W", part) for part in state.W]:
        if part.ndim != 2 or part.shape[0] != n or part.dtype.name != job.get("dtype"):
            raise ModelFormatError(f"{name} has a part of {seen(part)} where {n} rows of {job.get('dtype')} are due")
    for name, parts in (("Q", state.Q), ("W", state.W)):
        if sum(part.shape[1] for part in parts) != k:
            raise ModelFormatError(f"{name} has the shapes {[part.shape for part in parts]} where ({n}, {k}) is due")
    for name, due in {"T": (k, k), "extremes": (2,), "seen": (state.p,), "learned": (n,)}.items():
        array = getattr(state, name)
        if array is not None and (array.shape != due or array.dtype.kind != "f"):
            raise ModelFormatError(f"{name} is {seen(array)} where floating-point numbers of shape {due} are due")
    b = 0 if state.block is None else state.block.shape[1]
    if not state.finished and not (b > 0 and k + b <= most <= n):
        raise ModelFormatError(f"{k} + {b} columns do not fit into a basis of {most} for {n} samples")
    if not 0 < state.p <= (k if state.finished else most) or (k and state.counters["exponent"] is None):
        raise ModelFormatError(f"{k} columns cannot be those of {state.p} components")
    _check_numbers(state, columns)


def _check_numbers(state: KrylovState, columns: list[np.ndarray]) -> None:
    """Raise unless all numbers are finite, the basis is orthonormal and T = QᵀW."""
    arrays = [*columns, *state.W, state.T, state.seen, state.learned]
    # The first of the extremes is infinite until a residual is confirmed.
    if any(array is not None and not np.all(np.isfinite(array)) for array in arrays) or not (
        state.extremes[0] >= 0 and np.isfinite(state.extremes[1])
    ):
        raise ModelFormatError("it holds NaN or infinity")
    with overflow_allowed():
        skew = np.max(np.abs(_products(columns, columns) - np.eye(sum(part.shape[1] for part in columns))))
        gap = np.max(np.abs(_products(state.Q, state.W) - state.T), initial=0.0)
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
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ModelFormatError(f"its {name} is {str(value)[:80]!r}")
    return value


def _list_of(header: Mapping[str, Any], name: str, kind: type) -> tuple[Any, ...]:
    values = header.get(name)
    if not isinstance(values, list) or not all(type(value) is kind for value in values):
        raise ModelFormatError(f"its {name} are no list of {kind.__name__}")
    return tuple(values)
