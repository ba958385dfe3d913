"""Checkpoints of long fits: whole states of an iteration, written in turn to two files of a folder."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np

from gpukpca._container import Arrays, Header, read_container, read_header, write_container
from gpukpca._files import check_writable
from gpukpca._formatting import format_bytes, printable
from gpukpca._process import state as process
from gpukpca._rules import FOLDER, number
from gpukpca.backend.column_basis import ColumnBasis
from gpukpca.backend.namespace import from_host, overflow_allowed, to_host
from gpukpca.backend.random import generator, standard_normal
from gpukpca.eigen.krylov_state import KrylovState, KrylovTask, Phase
from gpukpca.exceptions import CheckpointError, CheckpointWarning, ModelFormatError, warn_user

KIND = "checkpoint"
NAMES = ("state-0.safetensors", "state-1.safetensors")
AGAIN = "Choose another folder, or delete the files state-*.safetensors in this one to start again"
ONE_FIT = "A folder is for one fit: cross-validation and searches make many, which cannot share one"
# How far the basis may be from orthonormal: rounding leaves 1e-5.
SKEW = 1e-3
# The field of a fingerprint that kernels of the user have: a hash of a few entries.
KERNEL_VALUES = "kernel_values"
# The fields of fits whose K code of the user computes: a product with K is checked too.
OF_USER = {KERNEL_VALUES, "gram"}

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
        Created by the first checkpoint; its parent must exist.
    interval : float
        Seconds after a checkpoint until the end of a pass writes the next one; 0: after every pass. The end of the
        iteration, an exception such as KeyboardInterrupt, and SIGUSR1 write one too.

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
    def of(cls, given: str | os.PathLike[str] | Checkpoint) -> Checkpoint:
        """Return a checkpoint from a folder or from itself.

        Parameters
        ----------
        given : str, path or Checkpoint

        Returns
        -------
        Checkpoint
        """
        return given if isinstance(given, cls) else cls(given)  # type: ignore[arg-type]

    @property
    def path(self) -> Path:
        """Return the folder, links followed."""
        return Path(os.path.realpath(self.folder))

    def check_folder(self) -> None:
        """Raise where no checkpoint could be written, before any work; create nothing.

        Raises
        ------
        OSError
            A file, a loop of links, a folder whose parent does not exist, no permission, a read-only file system.
        """
        name = f"checkpoint={os.fspath(self.folder)!r}"
        if self.path.is_symlink():  # links are followed already
            raise OSError(f"{name} is a link that leads back to itself; name a folder.")
        if self.path.exists() and not self.path.is_dir():
            raise NotADirectoryError(f"{name} is a file; name a folder.")
        parent = self.path if self.path.exists() else self.path.parent
        if not parent.is_dir():
            raise FileNotFoundError(f"{name}: there is no folder {parent}.")
        check_writable(parent, name)


def has_checkpoint(folder: str | os.PathLike[str]) -> bool:
    """Return whether a folder holds a file to resume from that a fit of this process has written or resumed."""
    known = Path(os.path.realpath(folder)) in process.checkpoint_folders
    return known and any(os.path.isfile(os.path.join(folder, name)) for name in NAMES)


def difference(found: Mapping[str, Any], expected: Fingerprint) -> str:
    """Return the first field in which two fingerprints differ, as text; empty where they agree."""
    for name in {**expected, **found}:
        was, now = found.get(name), expected.get(name)
        if was != now:
            if name == "data" and name in found:
                return "the data differ (their hashes do)"
            return printable(f"{name} was {str(was)[:200]} and is {str(now)[:200]} now")
    return ""


class FolderCheckpointer:
    """The checkpointer of one fit, used in a ``with`` statement; implements `eigen.Checkpointer`.

    Raises
    ------
    CheckpointError
        The folder holds the checkpoint of another fit, or files that are all damaged.

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
        self._is_due = self._has_warned = self._has_stopped = False
        self._headers: dict[Path, Header] = {}  # of the files as this fit read or wrote them
        self._number, self._stored = self._newest()
        if self._stored is not None:
            process.checkpoint_folders.add(self._folder)
        for draft in self._folder.glob(".state-*.partial"):  # left by a kill where files need names
            with suppress(OSError):
                draft.unlink()

    def resumed(self, task: KrylovTask) -> KrylovState | None:
        """Return the stored state, once.

        Raise `CheckpointError` where code of the user gives other products now; that check takes one product.
        """
        state, self._stored = self._stored, None
        if state is not None:
            state.restore_means(task.op)
            if OF_USER & self._fingerprint.keys() and not _has_products_of(state, task):
                another = f"{self._folder} is the checkpoint of another fit"
                parts = (
                    f"{name}={self._fingerprint[name]}" for name in ("kernel", "gram") if name in self._fingerprint
                )
                changed = f"{' with '.join(parts)} has other values now"
                raise CheckpointError(f"{another}: {changed}. {AGAIN}.")
            where = f"pass {state.n_passes} from {self._folder}"
            how = "resumed at" if state.continues(task) else "other settings: started with the components of"
            self._report("resumed", f"{how} {where}", state.n_passes)
        return state

    def record(self, state: KrylovState) -> None:
        """Write the state where one is due: by its end, by the interval, or by SIGUSR1."""
        self._unwritten = state
        if state.is_done or self._is_due or self._clock() - self._written >= self._interval:
            self._write(state)

    def __enter__(self) -> FolderCheckpointer:
        self._handler: Any = None
        if threading.current_thread() is threading.main_thread() and hasattr(signal, "SIGUSR1"):
            self._handler = signal.getsignal(signal.SIGUSR1)
        if self._handler is not None:  # a handler that is not of Python could not be restored
            signal.signal(signal.SIGUSR1, self._request)
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        try:
            if kind is not None and self._unwritten is not None and self._unwritten.is_intact:
                with suppress(Exception):  # the exception that ends the fit says more, such as a lost device
                    self._write(self._unwritten)
        finally:
            if self._handler is not None:
                signal.signal(signal.SIGUSR1, self._handler)

    def _request(self, *_: object) -> None:
        self._is_due = True

    def _write(self, state: KrylovState) -> None:
        """Write over the older file. Where that fails, warn once; the next pass tries again.

        Where the file is of another fit, which started at the same time, warn and write no more.
        """
        # Writing waits for the disk. At n = 100 000 the widest basis of 10 components takes 0.3 GiB and 1.5 s, little
        # of a minute; a thread would need a copy of it, as a restart overwrites the columns.
        started, path = self._clock(), self._folder / NAMES[(self._number + 1) % 2]
        if self._has_stopped or self._is_of_another(path):
            return
        numbers, arrays = _packed(state)
        try:
            self._folder.mkdir(exist_ok=True)
            header = {"number": self._number + 1, "fingerprint": self._fingerprint, "state": numbers}
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
        self._headers[path] = header
        process.checkpoint_folders.add(self._folder)
        self._number, self._unwritten, self._is_due, self._written = self._number + 1, None, False, self._clock()
        size = format_bytes(sum(array.nbytes for array in arrays.values()))
        text = f"checkpoint of pass {state.n_passes} written: {size} in {self._written - started:.2g} s"
        self._report("checkpoint", text, state.n_passes)

    def _is_of_another(self, path: Path) -> bool:
        """Return whether a file is not as this fit left it; then warn. A damaged file is of no fit."""
        try:
            self._has_stopped = read_header(path, KIND) != self._headers.get(path)
        except (OSError, ModelFormatError):
            return False
        if self._has_stopped:
            warn_user(
                f"checkpoint {path} was written by another fit. This fit goes on without further checkpoints. "
                f"Choose another folder for one of the two. {ONE_FIT}.",
                CheckpointWarning,
            )
        return self._has_stopped

    def _newest(self) -> tuple[int, KrylovState | None]:
        """Return the number and the state of the newest file that is whole; 0 and None for no files."""
        damage: list[str] = []
        numbers: dict[Path, int] = {}
        for path in (self._folder / name for name in NAMES):
            with _noted(path, damage):
                self._headers[path] = read_header(path, KIND)
                numbers[path] = int(self._headers[path]["number"])
        for path in sorted(numbers, key=numbers.__getitem__, reverse=True):
            with _noted(path, damage):
                header, arrays = read_container(path, KIND)
                if apart := difference(header["fingerprint"], self._fingerprint):
                    another = f"{self._folder} is the checkpoint of another fit: {apart}"
                    raise CheckpointError(f"{another}. {AGAIN}. {ONE_FIT}.")
                state = _unpacked(header["state"], arrays)
                if damage:
                    warn_user(
                        f"checkpoint {self._folder}: {damage[0]}. Resuming at pass {state.n_passes}.", CheckpointWarning
                    )
                return header["number"], state
        if damage:
            raise CheckpointError(f"{self._folder} has no checkpoint that is whole: {damage[0]}. {AGAIN}.")
        return 0, None


@contextmanager
def _noted(path: Path, damage: list[str]) -> Iterator[None]:
    """Add an error of reading a file to `damage`; a file that does not exist has none."""
    try:
        yield
    except CheckpointError:
        raise
    except FileNotFoundError:
        pass
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        damage.append(f"{path.name} cannot be used: {error}")


# -- states ------------------------------------------------------------------------------------------------------------

# The conversions of numbers and names; floats keep their last bit, and JSON has no infinity.
WRITE: dict[Any, Callable[[Any], Any]] = {
    float: lambda value: float(value).hex(),
    int: int,
    bool: bool,
    str: str,
    Phase: lambda phase: phase.name,
}
READ = WRITE | {float: float.fromhex, Phase: lambda name: Phase[name]}
# The types of the fields of a state, apart from None; those that are not here are arrays.
KINDS = {name: (get_args(hint) or (hint,))[0] for name, hint in get_type_hints(KrylovState).items()}
KINDS = {name: kind for name, kind in KINDS.items() if kind in WRITE}
ARRAYS = ("T", "block", "means")


def _packed(state: KrylovState) -> tuple[Header, Arrays]:
    """Return the numbers of a state, and its arrays on the host."""
    numbers = {name: (WRITE[kind], getattr(state, name)) for name, kind in KINDS.items()}
    arrays = {"Q": state.Q.array, "W": state.W.array} | {name: getattr(state, name) for name in ARRAYS}
    return (
        {name: None if value is None else write(value) for name, (write, value) in numbers.items()},
        {name: to_host(array) for name, array in arrays.items() if array is not None},
    )


def _unpacked(header: Header, arrays: Arrays) -> KrylovState:
    """Return the state of a file; ValueError, TypeError or LookupError where its parts do not fit together."""
    Q, W = arrays["Q"], arrays["W"]
    fields: dict[str, Any] = {name: arrays.get(name) for name in ARRAYS}
    fields |= {name: None if header[name] is None else READ[kind](header[name]) for name, kind in KINDS.items()}
    state = KrylovState(**fields, Q=ColumnBasis((Q,)), W=ColumnBasis((W,)))
    blocks = [Q] if state.block is None else [Q, state.block]
    (n, k), b = Q.shape, sum(block.shape[1] for block in blocks) - Q.shape[1]
    due = {"W": (n, k), "T": (k, k), "block": (n, b), "means": (n,)}
    if wrong := [name for name, array in arrays.items() if array.shape != due.get(name, array.shape)]:
        raise ValueError(f"{wrong[0]} has the shape {arrays[wrong[0]].shape} where {due[wrong[0]]} is due")
    if (state.phase is Phase.EXTEND) != (b > 0) or not k + b <= n or not all(a.dtype == Q.dtype for a in (W, *blocks)):
        raise ValueError(f"{k} + {b} columns are no basis before the phase {state.phase.name}")
    if not all(np.all(np.isfinite(array)) for array in arrays.values()):
        raise ValueError("it holds NaN or infinity")
    with overflow_allowed():
        gram = np.block([[left.T @ right for right in blocks] for left in blocks])
        skew, gap = np.max(np.abs(gram - np.eye(k + b))), np.max(np.abs(Q.T @ W - state.T))
    if not (skew <= SKEW and gap <= SKEW * np.max(np.abs(state.T))):
        raise ValueError("its basis is not orthonormal, or its products are those of another basis")
    return state


def _has_products_of(state: KrylovState, task: KrylovTask) -> bool:
    """Return whether a random combination of the columns has the stored product; 1.5e-8 of it may differ in float64."""
    Q, W = state.Q.array, state.W.array
    weights = standard_normal(generator(0), (Q.shape[1], 1), Q)
    weights /= np.linalg.norm(weights)
    product = to_host(task.op @ from_host(Q @ weights, task.op.like)).astype(np.float64)
    gap = np.linalg.norm(np.ldexp(product, -(state.exponent or 0)) - W @ weights)
    # Centering cancels numbers of the size 1ᵀK1/n, the sum of the column means, and leaves their rounding.
    canceled = 0.0 if state.means is None else np.ldexp(abs(float(np.sum(state.means))), -(state.exponent or 0))
    return bool(gap <= task.eps**0.5 * np.linalg.norm(state.T) + 100.0 * task.eps * canceled)
