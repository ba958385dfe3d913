"""Replace files whole: a reader sees the old content or the new one, never a part."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def replaced_whole(*paths: Path) -> Iterator[list[IO[bytes]]]:
    """Yield temporary files that replace `paths` when the block ends; after an exception they vanish and `paths` stay.

    A link at a path is replaced too, and not followed. A new file has the permissions of the one that it replaces.
    A process that is killed leaves the old files, and may leave a temporary one beside them that ends in ".partial".
    """
    with _named(*paths), ExitStack() as stack:
        drafts = [stack.enter_context(_draft(path)) for path in paths]
        yield drafts
        # All that fails on a full disk comes before the first old file is replaced.
        for draft in drafts:
            draft.flush()
            os.fsync(draft.fileno())
        for draft, path in zip(drafts, paths, strict=True):
            draft.close()
            os.chmod(draft.name, _mode_for(path))
            os.replace(draft.name, path)


@contextmanager
def _named(*paths: Path) -> Iterator[None]:
    """Put the paths into errors that name no file, or a temporary one."""
    try:
        yield
    except OSError as error:
        if error.errno is None or (error.filename is not None and error.filename2 is None):
            raise
        raise OSError(error.errno, error.strerror, " and ".join(map(str, paths))) from error


def plain_target(path: str | os.PathLike[str], label: str = "") -> Path:
    """Return a path as a Path; raise OSError where no file can be created or replaced there.

    `label` begins every message; default: the path.
    """
    path = os.fsdecode(path)
    label, target = label or repr(path), Path(path)
    if target.is_dir() or path.endswith(("/", os.sep)):
        raise IsADirectoryError(f"{label} is a directory; name a file.")
    if target.exists() and not target.is_file():
        raise OSError(f"{label} is a device or a pipe and would be replaced; name a plain file.")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{label}: there is no folder {target.parent}.")
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError(f"{label} is not writable.")
    check_writable(target.parent, label)
    return target


def check_writable(folder: Path, label: str) -> None:
    """Raise OSError where no file can be created in `folder`; `label` begins the message."""
    try:
        with tempfile.TemporaryFile(dir=folder):  # permission bits do not show read-only and full file systems
            pass
    except OSError as error:
        raise type(error)(f"{label}: nothing can be written to {folder}: {error.strerror}.") from error


@contextmanager
def _draft(path: Path) -> Iterator[IO[bytes]]:
    """Yield a temporary file in the folder of `path`, which is removed where it has not replaced `path`."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.", suffix=".partial")
    os.close(handle)
    try:
        with open(name, "wb") as file:
            yield file
    finally:
        Path(name).unlink(missing_ok=True)


def _mode_for(path: Path) -> int:
    """Return the permissions of the file that is replaced, or those of a new file in place of none or of a link."""
    if path.exists() and not path.is_symlink():
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
