"""The checkpoint of a running fit: every state is written during the next pass, and two rows of files are kept."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gpukpca._archive import Arrays, Header, read_header, write_archive
from gpukpca.backend.random import format_generator, restore_generator
from gpukpca.checkpoint.file import (
    CheckpointFile,
    arrays_of,
    columns_of,
    first_header,
    header_of,
    prefix_of,
    progress_of,
    row_of,
)
from gpukpca.checkpoint.fingerprint import Fingerprint
from gpukpca.checkpoint.folder import latest_valid_checkpoint, remove
from gpukpca.eigen.krylov_state import KrylovState
from gpukpca.exceptions import CheckpointWarning, warn_user


class Checkpoint:
    """The checkpointer of a fit in a folder; used in a ``with`` statement, at whose end the last file is on the disk.

    A state is written by a thread while the next pass runs, as a file of what the pass added. Files that follow one
    another without a restart make a row; the row before the present one is kept, so that no single damaged file leaves
    nothing.

    Parameters
    ----------
    folder : Path
    job : dict of str
        The fingerprint of the fit.
    rng : numpy.random.Generator
        That of the fit; it continues from its stored state.
    on_resume : callable, optional
        Called with the passes done where the fit resumes.

    Attributes
    ----------
    components : int or None
        The components of the solution that is resumed.

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
        self._warned = False
        # The last file on the disk, and the columns of the bases that its row holds; the same of the one being written.
        self._last: CheckpointFile | None = None
        self._columns: dict[str, int] = {}
        self._pending: tuple[CheckpointFile, dict[str, int], Future[int]] | None = None
        scan = latest_valid_checkpoint(folder, job, rng)
        self._superseded, self._state, self._last = scan.leftovers, scan.state, scan.file
        self.components = None if scan.state is None else scan.state.p
        if scan.file is not None:
            restore_generator(rng, scan.file.header["generator"])
        if scan.state is not None:
            self._columns = columns_of(scan.state)
            if on_resume is not None:
                on_resume(scan.state.n_passes)

    # -- what the solver calls -----------------------------------------------------------------------------------------

    def resumed(self, p: int) -> KrylovState | None:
        """Return the state to resume from with p components, once."""
        state, self._state = self._state, None
        return state if state is not None and state.p == p else None

    def record(self, state: KrylovState) -> None:
        """Begin to write the state; the one before it is on the disk when this returns."""
        self._settle()
        header = header_of(state)
        if self._last is not None and progress_of(header) <= progress_of(self._last.header):
            return  # the state that this run resumed from
        continues = self._last is not None and row_of(header) == row_of(self._last.header)
        arrays = arrays_of(state, self._columns if continues else {})
        self._begin(header, arrays, columns_of(state), continues)

    # -- writing -------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Checkpoint:
        self._pool = ThreadPoolExecutor(1)
        if self._last is None:
            self._begin(first_header(format_generator(self.rng)), {}, {}, continues=False)
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        try:
            if kind is None:
                self._settle()
        finally:
            self._pool.shutdown()

    def _begin(self, state: Header, arrays: Arrays, columns: dict[str, int], continues: bool) -> None:
        """Start to write a file, which continues the row of the last one or begins another."""
        last = self._last
        files: Header = {"files": [], "checksums": [], "before": [] if last is None else last.names}
        if last is not None and continues:
            files = {"files": last.names, "checksums": last.checksums, "before": last.before}
        header = {f"job.{name}": value for name, value in self.job.items()} | files | state
        file = CheckpointFile(f"{prefix_of(state)}{self._run}.npz", header)
        written = self._pool.submit(_write, self.folder / file.name, header, arrays)
        self._pending = (file, columns, written)

    def _settle(self) -> None:
        """Wait for the file that is being written; where that failed, the next file holds its arrays too."""
        if self._pending is None:
            return
        (file, columns, written), self._pending = self._pending, None
        try:
            checksum = written.result()
        except OSError as error:
            self._warn(file, error)
            if not self.folder.is_dir():
                self._last, self._columns = None, {}
            return
        if self._last is not None:
            self._superseded = self._superseded.union(self._last.before)
        self._last, self._columns = replace(file, checksum=checksum), columns
        remove(self.folder, self._superseded.difference(file.before, file.names))
        self._superseded = frozenset()

    def _warn(self, file: CheckpointFile, error: OSError) -> None:
        """Warn once; every pass tries again to write its file."""
        if not self._warned:
            self._warned = True
            warn_user(
                f"checkpoint {self.folder / file.name} could not be written ({error.strerror or error}). The fit goes "
                "on, and files that were written before are intact.",
                CheckpointWarning,
            )


def _write(path: Path, header: Header, arrays: Arrays) -> int:
    """Write a file and return its checksum; one that needs no other file creates the folder if that is missing."""
    if not header["files"]:
        path.parent.mkdir(exist_ok=True)
    write_archive(path, header, arrays)
    return read_header(path)[1]
