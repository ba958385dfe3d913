"""Checkpoints of long fits: whole states of an iteration, written in turn to two files of a folder."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np

from gpukpca._container import CONTRADICTIONS, Arrays, Header, read_container, read_header, write_container
from gpukpca._formatting import format_bytes, printable
from gpukpca._process import state as process
from gpukpca._rules import FOLDER, number
from gpukpca.backend.namespace import dtype_name
from gpukpca.backend.random import is_state_of
from gpukpca.data.column_basis import ColumnBasis
from gpukpca.eigen.krylov_state import KrylovState, KrylovTask, Phase
from gpukpca.exceptions import CheckpointError, CheckpointWarning, ModelFormatError, warn_user
from gpukpca.persistence.schema import Field, Reader, Writer, check_stored

KIND = "checkpoint"
NAMES = ("state-0.safetensors", "state-1.safetensors")
AGAIN = "Choose another folder, or delete the files state-*.safetensors in this one to start again"
ONE_FIT = "A folder is for one fit: cross-validation and searches make many, which cannot share one"

Fingerprint = dict[str, str]
# Takes the stage of an event, its text, and the passes done.
Report = Callable[[str, str, int], None]


@dataclass(frozen=True)
class Checkpoint:
    """The folder of the checkpoints of one fit, and how often they are written.

    A fit of the same data resumes from the state of block Krylov there: with the same settings to the same last bit on
    a CPU with as many threads, otherwise to the tolerance. Solutions without passes leave the folder alone. A folder is
    for one fit, not for a search.

    Parameters
    ----------
    folder : str or path
        Created by the first fit that iterates; its parent must exist.
    interval : float
        Seconds after a checkpoint until the end of a pass writes the next one; 0: after every pass. The end of the
        iteration, an exception such as KeyboardInterrupt, and SIGUSR1 write one too. In the main thread SIGUSR1 ends no
        fit with a checkpoint, whatever the fit does; before, between and after fits it does what the process has set.

    Raises
    ------
    InvalidParameterError
        The folder is no path, or the interval is no number >= 0.

    See Also
    --------
    gpukpca.KernelPCA : Takes it as the parameter `checkpoint`; so does `gpukpca.PCA`.

    Examples
    --------
    >>> from gpukpca import Checkpoint, KernelPCA
    >>> model = KernelPCA(10, kernel="rbf", checkpoint=Checkpoint("job", interval=600))
    """

    folder: str | os.PathLike[str]
    interval: float = 60.0

    def __post_init__(self) -> None:
        FOLDER.check("Checkpoint", "folder", self.folder)
        number(at_least=0).check("Checkpoint", "interval", self.interval)

    @classmethod
    def of(cls, setting: str | os.PathLike[str] | Checkpoint) -> Checkpoint:
        """Return a checkpoint from a folder or from itself.

        Parameters
        ----------
        setting : str, path or Checkpoint

        Returns
        -------
        Checkpoint
        """
        return setting if isinstance(setting, cls) else cls(setting)  # type: ignore[arg-type]

    @property
    def path(self) -> Path:
        """Return the folder, links followed."""
        return Path(os.path.realpath(self.folder))


def has_checkpoint(folder: str | os.PathLike[str]) -> bool:
    """Return whether a folder holds a file to resume from that a fit of this process has written or resumed."""
    folder = Path(os.path.realpath(folder))
    fingerprint = process.checkpoint_folders.get(folder)
    headers = [] if fingerprint is None else [_header_of(folder / name) for name in NAMES]
    return any(isinstance(header, dict) and header.get("fingerprint") == fingerprint for header in headers)


def restore_choices(checkpoint: Checkpoint) -> None:
    """Take the rates of cards and the choice of tiles from the files of a checkpoint: a resumed fit chooses alike."""
    for name in NAMES:
        with suppress(AttributeError, KeyError, TypeError, ValueError):  # no file, an older one, or a forged one
            header = _header_of(checkpoint.path / name)
            rates, edges = header["product_rates"].items(), header["tile_edges"].items()
            process.product_rates |= {int(index): (a + 0.0, b + 0.0) for index, (a, b) in rates if a > 0 and b > 0}
            process.tile_edges |= {kind: edge for kind, edge in edges if type(edge) is int and edge > 0}
            process.half_tiles |= {kind: use for kind, use in header["half_tiles"].items() if type(use) is bool}


# -- signals -----------------------------------------------------------------------------------------------------------

# The requests of the process before the running fit.
_before: ContextVar[int | None] = ContextVar("_before", default=None)


@contextmanager
def requests_by_signal() -> Iterator[None]:
    """Let SIGUSR1 ask the fit in this context for a checkpoint in place of ending the process, whatever the fit does.

    Only the main thread can set the handler. The end restores the one before, unless that is not of Python.
    """
    token, before = _before.set(process.checkpoint_requests), None
    if threading.current_thread() is threading.main_thread() and hasattr(signal, "SIGUSR1"):
        before = signal.getsignal(signal.SIGUSR1)
    try:
        if before is not None:
            signal.signal(signal.SIGUSR1, _request)
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGUSR1, before)
        _before.reset(token)


def _request(*_: object) -> None:
    process.checkpoint_requests += 1


# -- the two files of a fit --------------------------------------------------------------------------------------------


def differing_field(found: Mapping[str, Any], expected: Fingerprint) -> str:
    """Return the first field in which two fingerprints differ, as text; empty where they agree."""
    for name in {**expected, **found}:
        was, now = found.get(name), expected.get(name)
        if was != now:
            if name == "data" and name in found:
                return "the data differ (their hashes do)"
            return printable(f"{name} was {str(was)[:200]} and is {str(now)[:200]} now")
    return ""


class FolderCheckpointer:
    """The checkpointer of one fit, used in a ``with`` statement; implements `Checkpointer`.

    Raises
    ------
    CheckpointError
        The folder holds the checkpoint of another fit, or files that are all damaged.
    OSError
        The folder cannot be created.

    Warns
    -----
    CheckpointWarning
        The newer file is damaged and the older one is used, or a file could not be written; the fit goes on. Another
        fit writes to the folder; this one goes on and writes no further checkpoint.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        fingerprint: Fingerprint,
        report: Report,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder, self._interval, self._fingerprint = checkpoint.path, checkpoint.interval, fingerprint
        self._report, self._clock, self._written = report, clock, clock()
        self._unwritten: KrylovState | None = None
        self._has_warned = self._has_stopped = False
        before = _before.get()
        self._answered = process.checkpoint_requests if before is None else before
        # Of the files as this fit read them, wrote them, or may have written them before an interrupt.
        self._headers: dict[Path, list[Any]] = {}
        self._folder.mkdir(exist_ok=True)
        self._damage: list[str] = []
        self._left = self._numbered()
        self._number, self._stored = self._newest()
        if self._stored is not None:
            process.checkpoint_folders[self._folder] = fingerprint
        for draft in self._folder.glob(".state-*.partial"):  # left by a kill
            with suppress(OSError):
                draft.unlink()

    def resumed(self, task: KrylovTask) -> KrylovState | None:
        """Return the stored state, once; that of the older file where the newer one does not fit the task."""
        while self._stored is not None and (reason := _misfit(self._stored, task)):
            self._damage.append(f"{NAMES[self._number % 2]} cannot be used: {reason}")
            self._stored = None  # two states take twice the memory
            self._number, self._stored = self._newest()
        state, self._stored = self._stored, None
        if state is not None:
            state.restore_means(task.op)
            where = f"pass {state.n_passes} from {self._folder}"
            how = "resumed at" if state.continues(task) else "other settings: started with the components of"
            self._report("resumed", f"{how} {where}", state.n_passes)
        return state

    def record(self, state: KrylovState) -> None:
        """Write the state where one is due: by its end, by the interval, or by SIGUSR1."""
        self._unwritten = state
        is_due = self._answered != process.checkpoint_requests
        if state.is_done or is_due or self._clock() - self._written >= self._interval:
            self._write(state)

    def __enter__(self) -> FolderCheckpointer:
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        if kind is not None and self._unwritten is not None and self._unwritten.is_intact:
            with suppress(Exception):  # the exception that ends the fit says more, such as a lost device
                self._write(self._unwritten)

    def _write(self, state: KrylovState) -> None:
        """Write over the older file. Where that fails, warn once; the next pass tries again.

        Where the file is of another fit, which started at the same time, warn and write no more.
        """
        # Writing waits for the disk. At n = 100 000 the widest basis of 10 components takes 0.3 GiB and 1.5 s, little
        # of a minute; a thread would need a copy of it, as a restart overwrites the columns.
        started, path = self._clock(), self._folder / NAMES[(self._number + 1) % 2]
        answered = process.checkpoint_requests
        if self._has_stopped or self._is_of_another(path):
            return
        numbers, arrays = _packed(state)
        header = {"number": self._number + 1, "fingerprint": self._fingerprint, "state": numbers}
        header["product_rates"] = {str(index): list(rates) for index, rates in process.product_rates.items()}
        header |= {"tile_edges": dict(process.tile_edges), "half_tiles": dict(process.half_tiles)}
        # An interrupt may come when the file is in its place already. Then it is known as one of this fit.
        self._headers.setdefault(path, []).append(header)
        process.checkpoint_folders[self._folder] = self._fingerprint
        try:
            self._folder.mkdir(exist_ok=True)
            write_container(path, KIND, header, arrays)
        except OSError as error:
            if not self._has_warned:
                self._has_warned = True
                warn_user(
                    f"checkpoint {path} could not be written ({error.strerror or error}). The fit goes on, and the "
                    "checkpoint before it is intact.",
                    CheckpointWarning,
                )
            return
        self._headers[path] = [header]
        self._number, self._unwritten, self._answered, self._written = self._number + 1, None, answered, self._clock()
        size = format_bytes(sum(array.nbytes for array in arrays.values()))
        text = f"checkpoint of pass {state.n_passes} written: {size} in {self._written - started:.2g} s"
        self._report("checkpoint", text, state.n_passes)

    def _is_of_another(self, path: Path) -> bool:
        """Return whether a file is none that this fit has read or written; then warn. A damaged file is of no fit."""
        header = _header_of(path)
        self._has_stopped = header is not None and header not in self._headers.get(path, [])
        if self._has_stopped:
            warn_user(
                f"checkpoint {path} was written by another fit. This fit goes on without further checkpoints. "
                f"Choose another folder for one of the two. {ONE_FIT}.",
                CheckpointWarning,
            )
        return self._has_stopped

    def _numbered(self) -> list[tuple[int, Path]]:
        """Return the numbers and paths of the files, the older one first."""
        numbered = []
        for place, path in enumerate(self._folder / name for name in NAMES):
            with _noted(path, self._damage):
                header = read_header(path, KIND)
                self._headers[path] = [header]
                number = header["number"]
                if not (type(number) is int and 0 < number <= MOST and number % 2 == place):
                    raise ValueError(f"its number is {number!r:.80}")
                numbered.append((number, path))
        return sorted(numbered)

    def _newest(self) -> tuple[int, KrylovState | None]:
        """Return the number and the state of the newest file left that is whole; 0 and None for no files."""
        while self._left:
            number, path = self._left.pop()
            with _noted(path, self._damage):
                header, arrays = read_container(path, KIND)
                if apart := differing_field(header["fingerprint"], self._fingerprint):
                    another = f"{self._folder} is the checkpoint of another fit: {apart}"
                    raise CheckpointError(f"{another}. {AGAIN}. {ONE_FIT}.")
                state = _unpacked(header["state"], arrays)
                if self._damage:
                    text = f"checkpoint {self._folder}: {self._damage[0]}. Resuming at pass {state.n_passes}."
                    warn_user(text, CheckpointWarning)
                return number, state
        if self._damage:
            raise CheckpointError(f"{self._folder} has no checkpoint that is whole: {self._damage[0]}. {AGAIN}.")
        return 0, None


def _header_of(path: Path) -> Any:
    """Return the header of a file that is a checkpoint; None for any other."""
    with suppress(OSError, ModelFormatError):
        return read_header(path, KIND)
    return None


@contextmanager
def _noted(path: Path, damage: list[str]) -> Iterator[None]:
    """Add an error of reading a file to `damage`; a file that does not exist has none."""
    try:
        yield
    except CheckpointError:
        raise
    except FileNotFoundError:
        pass
    except (OSError, *CONTRADICTIONS) as error:
        damage.append(printable(f"{path.name} cannot be used: {error}"))


# -- states ------------------------------------------------------------------------------------------------------------

# Shapes and rules of the fields of a state, which `persistence` writes and checks as those of a model.
SHAPES = {"Q": "n k", "W": "n k", "T": "k k", "block": "n b", "product": "n b", "means": "n"}
SHAPES |= {"guide": "n g", "guide_T": "g g"}
POSITIVE = {"p", "b", "limit", "tol", "n_passes"}


def _field(name: str, hint: Any) -> Field:
    """Return the type, the shape and the rules of a field of a state; no number is NaN, and no array infinite."""
    numbers = ("positive",) if name in POSITIVE else ("nonnegative",) if hint is int else ("infinite",)
    return Field(hint, tuple(SHAPES.get(name, "").split()), () if name in SHAPES else numbers)


FIELDS = {name: _field(name, hint) for name, hint in (get_type_hints(KrylovState) | {"phase": str}).items()}
BASES = ("Q", "W", "guide")
# Counts are at most this number, and the exponent is one of float64.
MOST, MOST_EXPONENT = 2**53, 1100
# A block is at most so many times as wide as the basis, which holds the blocks before it.
WIDEST_BLOCK = 4


def _packed(state: KrylovState) -> tuple[Header, Arrays]:
    """Return the nodes of the fields of a state, and its arrays on the host."""
    writer, parts = Writer(), vars(state) | {"phase": state.phase.name}
    parts |= {name: basis.array for name in BASES if (basis := parts[name]) is not None}
    return {name: writer.node(name, parts[name]) for name in FIELDS}, writer.arrays


def _unpacked(header: Header, arrays: Arrays) -> KrylovState:
    """Return the state of a file; raise one of `CONTRADICTIONS` where its parts do not fit together."""
    reader, sizes = Reader(arrays), dict[str, int]()
    parts = {name: reader.value(node, name) for name, node in header.items()}
    check_stored("a state", parts, FIELDS, sizes)
    phase, Q = Phase[parts["phase"]], parts["Q"]
    bases = {name: ColumnBasis((parts[name],)) for name in BASES if parts[name] is not None}
    state = KrylovState(**parts | bases | {"phase": phase})
    if (state.guide is None) != (state.guide_T is None):
        raise ValueError("a guide has a basis and its matrix")
    blocks = [block for block in (state.block, state.product) if block is not None]
    n, k, b = sizes["n"], sizes["k"], sizes.get("b", 0)
    if (
        (phase in (Phase.EXTEND, Phase.CORRECT)) != (state.block is not None and b > 0)
        or not 0 < k <= k + b <= n
        or any(array.dtype != Q.dtype for array in (parts["W"], *blocks))
    ):
        raise ValueError(f"{k} + {b} columns are no basis before the phase {phase.name}")
    if state.on_twin and (phase is not Phase.EXTEND or state.twin_passes):
        raise ValueError(f"no pass over a twin follows the phase {phase.name}")
    numbers = [value for value in parts.values() if type(value) is int and value > MOST]
    counts = state.first_check <= state.last_check <= state.n_passes and state.twin_passes <= state.n_passes
    counts = counts and state.p <= n and 0 <= (state.coupled or 0) <= k
    if numbers or abs(state.exponent or 0) > MOST_EXPONENT or not counts:
        raise ValueError(f"its counts contradict each other, such as {state.p} components of {n} rows")
    return state


def _misfit(state: KrylovState, task: KrylovTask) -> str:
    """Return why a state is none of a task; empty where it is one."""
    n, columns = task.op.shape[0], state.Q.count + (0 if state.block is None else int(state.block.shape[1]))
    type_of_basis = np.dtype(dtype_name(state.multiplied(task.op).like.dtype))
    has_other_type = state.Q.array.dtype != type_of_basis and not (state.on_twin and task.op.twin is None)
    if state.Q.array.shape[0] != n or has_other_type:
        return f"its basis is {state.Q.array.dtype} with {state.Q.array.shape[0]} rows"
    if task.is_share and state.b > max(task.b, WIDEST_BLOCK * columns):
        return f"a block of {state.b} columns does not follow a basis of {columns}"
    return "" if is_state_of(task.rng, state.generator) else "it holds no state of these random numbers"
