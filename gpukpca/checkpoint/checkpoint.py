"""A fit's checkpoint while it runs: writes every state beside the next pass, and keeps two rows of files."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gpukpca._archive import Arrays, Header, read_header, write_archive
from gpukpca.backend.random import format_generator, restore_generator
from gpukpca.checkpoint.fingerprint import Fingerprint
from gpukpca.checkpoint.folder import latest_valid_checkpoint, remove
from gpukpca.checkpoint.generations import (
    BEGINNING,
    Generation,
    Key,
    Row,
    fields_of,
    header_of,
    key_of,
)
from gpukpca.eigen.krylov_state import KrylovState, Phase
from gpukpca.exceptions import CheckpointWarning, warn_user


@dataclass(frozen=True)
class _Draft:
    """A file that is being written."""

    key: Key
    name: str
    row: Row
    q: int
    w: int
    checksum: Future[int]


class Checkpoint:
    """The checkpointer of a fit in a folder; used in a ``with`` statement, at whose end the last file is on the disk.

    A state is written by a thread while the next pass runs, as a file of what the pass added. Files that follow one
    another without a restart make a row; the row before the present one is kept, so that no single damaged file leaves
    nothing.

    Parameters
    ----------
    folder : Path
    job : Job
    rng : numpy.random.Generator
        Of the fit; put where it was.
    on_resume : callable, optional
        Called with the passes done where the fit resumes.

    Attributes
    ----------
    components : int or None
        How many the solution is for that is gone on with.

    Raises
    ------
    CheckpointError
        The folder holds another job, or nothing that is whole.
    """

    def __init__(
        self, folder: Path, job: Fingerprint, rng: np.random.Generator, on_resume: Callable[[int], None] | None = None
    ) -> None:
        self.folder, self.job, self.rng = folder, job, rng
        self._run = os.urandom(4).hex()
        self._key: Key | None = None
        self._row = Row()
        self._before: tuple[str, ...] = ()
        self._warned = False
        self._pending: _Draft | None = None
        found = latest_valid_checkpoint(folder, job, rng)
        self._superseded, self._state = found.leftovers, found.state
        self.components = None if found.state is None else found.state.p
        if found.generation is not None:
            self._go_on(found.generation)
            done = found.generation.key.n_passes
            if on_resume is not None and found.state is not None:
                on_resume(done)

    def _go_on(self, generation: Generation) -> None:
        """Take a generation for the last file that was written."""
        restore_generator(self.rng, generation.generator)
        self._key, self._before = generation.key, generation.before
        q, w = _columns_of(self._state) if self._state is not None else (0, 0)
        self._row = replace(generation.row, q=q, w=w)

    # -- what the solver calls -----------------------------------------------------------------------------------------

    def resumed(self, p: int) -> KrylovState | None:
        """The state to go on from with p components, once."""
        state, self._state = self._state, None
        return state if state is not None and state.p == p else None

    def record(self, state: KrylovState) -> None:
        """Begin to write the state; the one before it is on the disk when this returns."""
        self._settle()
        key = key_of(state)
        if self._key is not None and key <= self._key:
            return  # what was gone on from
        row = self._row if self._key is not None and key.of_row == self._key.of_row else Row()
        self._begin(key, row, *fields_of(state, row), *_columns_of(state))

    # -- writing -------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Checkpoint:
        self._pool = ThreadPoolExecutor(1)
        if self._key is None:
            start = {"p": 0, "n_passes": 0, "restarts": 0, "phase": Phase.EXTEND.name}
            self._begin(BEGINNING, Row(), {**start, "generator": format_generator(self.rng)}, {}, 0, 0)
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        try:
            if kind is None:
                self._settle()
        finally:
            self._pool.shutdown()

    def _begin(self, key: Key, row: Row, state: Header, arrays: Arrays, q: int, w: int) -> None:
        """Start to write the file that follows those of `row`."""
        before = self._before if row.names else self._row.names
        header = header_of(state, self.job, row, before)
        name = key.name(self._run)
        self._pending = _Draft(key, name, row, q, w, self._pool.submit(_written, self.folder / name, header, arrays))

    def _settle(self) -> None:
        """Wait for the file that is being written; where that fails, the next one holds what it would have."""
        draft, self._pending = self._pending, None
        if draft is None:
            return
        try:
            checksum = draft.checksum.result()
        except OSError as error:
            self._warn(draft, error)
            if not self.folder.is_dir():
                self._key, self._row, self._before = None, Row(), ()
            return
        self._superseded = self._superseded.union(self._before)
        self._before = self._before if draft.row.names else self._row.names
        self._key, self._row = draft.key, draft.row.followed_by(draft.name, checksum, draft.q, draft.w)
        remove(self.folder, self._superseded.difference(self._before, self._row.names))
        self._superseded = frozenset()

    def _warn(self, draft: _Draft, error: OSError) -> None:
        """Once: whether later files can be written, every pass tries."""
        if not self._warned:
            self._warned = True
            warn_user(
                f"checkpoint {self.folder / draft.name} could not be written ({error.strerror or error}). The fit goes "
                "on, and files that were written before are intact.",
                CheckpointWarning,
            )


def _written(path: Path, header: Header, arrays: Arrays) -> int:
    """Write a file and return its checksum; only one that needs no others makes the folder, should that have gone."""
    if not header["files"]:
        path.parent.mkdir(exist_ok=True)
    write_archive(path, header, arrays)
    return read_header(path)[1]


def _columns_of(state: KrylovState) -> tuple[int, int]:
    """Columns of the basis, the next block included, and of the products."""
    k = int(state.T.shape[0])
    return k + (0 if state.block is None else int(state.block.shape[1])), k
