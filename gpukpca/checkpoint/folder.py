"""The folder of a checkpoint: checks before a fit, and the furthest file in it that is whole."""

from __future__ import annotations

import copy
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gpukpca._files import check_writable
from gpukpca.backend.random import restore_generator
from gpukpca.checkpoint.file import (
    DRAFT,
    FILE,
    CheckpointFile,
    DamagedFileError,
    file_at,
    progress_of,
    state_at,
)
from gpukpca.checkpoint.fingerprint import Fingerprint, difference
from gpukpca.eigen.krylov_state import KrylovState
from gpukpca.exceptions import CheckpointError, CheckpointWarning, ModelFormatError, warn_user

AGAIN = "Choose another folder, or delete the files p*_pass*.npz in this one to begin anew"
ONE_FIT = "A folder is for one fit: cross-validation and searches make many, which cannot share one"


@dataclass(frozen=True)
class CheckpointScan:
    """The files of a job in a folder.

    Attributes
    ----------
    file : CheckpointFile or None
        The furthest one that is whole.
    state : KrylovState or None
        Of it; None before any solution.
    leftovers : frozenset of str
        Files of this job, or of no readable one.
    """

    file: CheckpointFile | None
    state: KrylovState | None
    leftovers: frozenset[str]


def check_folder(path: str | os.PathLike[str] | None) -> None:
    """Raise where no checkpoint could be written, before any work; create nothing.

    Raises
    ------
    OSError
        A file, a loop of links, a folder whose parent is not there, no permission, a file system that is read-only.
    """
    if path is None:
        return
    folder = Path(os.path.realpath(path))
    if folder.is_symlink():  # links are followed already
        raise OSError(f"checkpoint={os.fspath(path)!r} is a link that leads back to itself; name a folder.")
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"checkpoint={os.fspath(path)!r} is a file; name a folder.")
    parent = folder if folder.exists() else folder.parent
    if not parent.is_dir():
        raise FileNotFoundError(f"checkpoint={os.fspath(path)!r}: there is no folder {parent}.")
    check_writable(parent, f"checkpoint={os.fspath(path)!r}")


def has_checkpoint(folder: Path) -> bool:
    """Return whether a folder holds a file to resume from."""
    return folder.is_dir() and any(FILE.fullmatch(path.name) for path in folder.iterdir())


def latest_valid_checkpoint(folder: Path, job: Fingerprint, rng: np.random.Generator) -> CheckpointScan:
    """Return the furthest whole file of a job, and its state.

    Raises
    ------
    CheckpointError
        The folder holds another job, or nothing that is whole.

    Warns
    -----
    CheckpointWarning
        A damaged file was passed over.
    """
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    own: list[CheckpointFile] = []
    damage: list[str] = []
    others: dict[str, str] = {}
    for name in filter(FILE.fullmatch, names):
        try:
            file = file_at(folder / name)
        except FileNotFoundError:  # another process has cleaned up
            continue
        except (ModelFormatError, OSError) as error:
            damage.append(f"{name} cannot be used: {error}")
        else:
            if apart := difference(file.job, job):
                others[name] = apart
            else:
                own.append(file)
    found = _first_whole(folder, sorted(own, key=lambda file: progress_of(file.header), reverse=True), damage, rng)
    if found is None and others:
        raise CheckpointError(
            f"{folder} is the checkpoint of another fit: {next(iter(others.values()))}. {AGAIN}. {ONE_FIT}."
        )
    if found is None and damage:
        raise CheckpointError(f"{folder} has no checkpoint that is whole: {_format_damage(damage)}. {AGAIN}.")
    ours = {name for name in names if FILE.fullmatch(name) or DRAFT.fullmatch(name)}
    leftovers = frozenset(ours.difference(others))
    if found is None:
        return CheckpointScan(None, None, leftovers)
    file, state = found
    if damage:
        warn_user(
            f"checkpoint {folder}: {_format_damage(damage)}. Going on from pass {file.header['n_passes']}.",
            CheckpointWarning,
        )
    return CheckpointScan(file, state, leftovers)


def _first_whole(
    folder: Path, own: list[CheckpointFile], damage: list[str], rng: np.random.Generator
) -> tuple[CheckpointFile, KrylovState | None] | None:
    """Return the first file that is whole, and its state; add to `damage` what is wrong with those before it."""
    for file in own:
        try:
            state = state_at(folder, file)
            restore_generator(copy.deepcopy(rng), file.header["generator"])
        except DamagedFileError as error:
            if str(error) not in damage:
                damage.append(str(error))
        except (ValueError, TypeError, LookupError, OverflowError, RecursionError) as error:
            damage.append(f"{file.name} cannot be used: {error}")
        else:
            return file, state
    return None


def _format_damage(damage: list[str]) -> str:
    """Return the fault of the first file, and the number of other damaged files: the reason is mostly the same."""
    more = len({text.split()[0] for text in damage}) - 1
    return f"{damage[0]} (and {more} more)" if more else damage[0]


def remove(folder: Path, names: frozenset[str] | set[str]) -> None:
    """Delete files that are not needed any more; those that cannot be deleted stay."""
    for name in names:
        with suppress(OSError):
            (folder / name).unlink(missing_ok=True)
