"""Replace files whole: a reader sees the old content or the new one, never a part."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from glob import escape
from pathlib import Path
from secrets import token_hex
from typing import IO

# Longer than a process that lives goes without writing to a temporary file.
STALE_AFTER = 3600.0
# Random hexadecimal digits in the name of a temporary file.
DIGITS = 16


@contextmanager
def replaced_whole(*paths: Path) -> Iterator[list[IO[bytes]]]:
    """Yield temporary files that replace `paths` when the block ends; after an exception they vanish and `paths` stay.

    A link at a path is replaced too, and not followed. A new file has the permissions of the one that it replaces.
    A process that is killed leaves the old files, and may leave a temporary one beside them that ends in ".partial",
    which a later call for the same path removes.
    """
    for path in paths:
        _remove_stale(path)
    drafts = {path: path.with_name(f".{path.name[:100]}.{token_hex(DIGITS // 2)}.partial") for path in paths}
    with _named(*paths):
        try:  # before the first draft is there, so that no interrupt leaves one
            with ExitStack() as stack:
                files = []  # a comprehension is left without its `finally` by Python 3.12, where a tracer interrupts it
                for path, draft in drafts.items():
                    files.append(stack.enter_context(_created(draft, path)))
                yield files
                # All that fails on a full disk comes before the first old file is replaced.
                for file in files:
                    file.flush()
                    os.fsync(file.fileno())
            for draft in drafts.values():
                draft.stat()  # raises where another process has removed one
            for path, draft in drafts.items():
                if (mode := _mode_of(path)) is not None:
                    os.chmod(draft, mode)
                os.replace(draft, path)
        finally:
            for draft in drafts.values():
                draft.unlink(missing_ok=True)


def _remove_stale(path: Path) -> None:
    """Remove the temporary files of a path that no process has written to for `STALE_AFTER` seconds."""
    for draft in path.parent.glob(f".{escape(path.name[:100])}.{'[0-9a-f]' * DIGITS}.partial"):
        with suppress(OSError):  # another process may remove it too
            if time.time() - draft.stat().st_mtime > STALE_AFTER:
                draft.unlink()


@contextmanager
def _named(*paths: Path) -> Iterator[None]:
    """Put the paths into errors that name no file, or a temporary one."""
    try:
        yield
    except OSError as error:
        is_named = error.filename is not None and not str(error.filename).endswith(".partial")
        if error.errno is None or is_named:
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


def _created(draft: Path, path: Path) -> IO[bytes]:
    """Create the draft of a file, which nobody may read who may not read the file."""
    mode = _mode_of(path)
    mode = 0o666 if mode is None else mode  # less the mask, which only the system can apply: it is that of all threads
    return open(draft, "xb", opener=lambda name, flags: os.open(name, flags, mode))


def _mode_of(path: Path) -> int | None:
    """Return the permissions of the file that is replaced; None in place of none or of a link."""
    return path.stat().st_mode & 0o777 if path.exists() and not path.is_symlink() else None
