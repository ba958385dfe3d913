"""Replace files whole: a reader sees the old content or the new one, never a part."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

# The folder in which Linux names the open files of a process by their handles.
HANDLES = "/proc/self/fd"


@contextmanager
def replaced_whole(*paths: Path) -> Iterator[list[IO[bytes]]]:
    """Yield files that replace `paths` when the block ends; after an exception they vanish and `paths` stay.

    Links are replaced too, and not followed.
    A process that is killed leaves the old files. Where the system has no files without a name, it may also leave a
    hidden one that ends in ".partial".
    """
    with _named(*paths), ExitStack() as stack:
        drafts = [stack.enter_context(_draft(path)) for path in paths]
        yield drafts
        # All that fails on a full disk comes before the first old file is replaced.
        for draft in drafts:
            draft.flush()
            os.fsync(draft.fileno())
        names = [stack.enter_context(_name(draft, path)) for draft, path in zip(drafts, paths, strict=True)]
        for draft, name, path in zip(drafts, names, paths, strict=True):
            draft.close()
            os.chmod(name, _mode_for(path))
            os.replace(name, path)
        for folder in {path.parent for path in paths}:
            _keep_names(folder)


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
    """Return the file that `path` names, links followed; raise OSError where it cannot be created or replaced.

    `label` begins every message; default: the path.
    """
    path = os.fsdecode(path)
    label = label or repr(path)
    target = Path(os.path.realpath(path))
    if target.is_dir() or path.endswith(("/", os.sep)):
        raise IsADirectoryError(f"{label} is a directory; name a file.")
    if target.is_symlink():  # realpath follows every link but one that leads back to itself
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    if target.exists() and not target.is_file():
        raise OSError(f"{label} is a device or a pipe and would be replaced; name a plain file.")
    folder = target.parent if os.path.islink(path) else Path(path).parent
    if not folder.is_dir():
        raise FileNotFoundError(f"{label}: there is no folder {folder}.")
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError(f"{label} is not writable.")
    check_writable(folder, label)
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
    """Yield a temporary file in the folder of `path`; without a name where the system has such files."""
    handle = _nameless(path.parent)
    if handle is not None:
        with open(handle, "wb") as file:
            yield file
        return
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.", suffix=".partial")
    os.close(handle)
    try:
        with open(name, "wb") as file:
            yield file
    finally:
        Path(name).unlink(missing_ok=True)


def _nameless(folder: Path) -> int | None:
    """Return the handle of a file without a name, which vanishes with its process; None where that is impossible."""
    if not hasattr(os, "O_TMPFILE") or not os.path.isdir(HANDLES):
        return None
    try:
        return os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o600)
    except OSError:
        return None


@contextmanager
def _name(draft: IO[bytes], path: Path) -> Iterator[str]:
    """Yield the name of a temporary file in the folder of `path`, which gets one now if it has none. Remove it."""
    if isinstance(draft.name, str):
        yield draft.name
        return
    name = path.parent / f".{path.name[:100]}.{os.urandom(4).hex()}.partial"
    try:
        # Python follows the link only if it gets the handle of a folder, which an absolute path ignores.
        os.link(f"{HANDLES}/{draft.fileno()}", name, src_dir_fd=draft.fileno(), follow_symlinks=True)
        yield str(name)
    finally:
        name.unlink(missing_ok=True)


def _mode_for(path: Path) -> int:
    """Return the permissions of the file that is replaced, or those of a new file in place of none or of a link."""
    if path.exists() and not path.is_symlink():
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _keep_names(folder: Path) -> None:
    """Write the names in a folder to the disk, where the system can do that."""
    with suppress(OSError):  # the file is whole and in its place already
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
