"""The end of the program: every failure is one line on the standard error and an exit code."""

from __future__ import annotations

import os
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import click

from gpukpca._formatting import printable
from gpukpca.exceptions import (
    ClusterError,
    ConvergenceError,
    DeviceLostError,
    DeviceUnavailableError,
    GpuKPCAWarning,
)

NOTHING = "nothing was written"
OUTPUT = "standard output"
BAD_INPUT = 2
# Parameters of estimators that the option --solver sets.
SOLVERS = ("eigen_solver", "svd_solver")
OF_LIBRARY = (ClusterError, ConvergenceError, DeviceUnavailableError, DeviceLostError)
FAILURES = (ValueError, TypeError, MemoryError, OSError, *OF_LIBRARY)
# Characters of a message, and of a word of it, which may be the value of an option.
MOST_OF_MESSAGE, MOST_OF_WORD = 3000, 300


def shortened(text: str, limit: int) -> str:
    """Return a text without its middle if it is longer than `limit`, with its length."""
    if len(text) <= limit:
        return text
    return f"{text[: limit * 2 // 3]}...{text[-(limit // 6) :]} ({len(text)} characters)"


def short_message(text: str) -> str:
    """Return a message on one line, without the middle of long words: it may quote the value of an option."""
    words = (shortened(word, MOST_OF_WORD) for word in text.split())
    return shortened(" ".join(words), MOST_OF_MESSAGE)


def say(text: str, err: bool = False) -> None:
    """Print lines with their control characters as escapes: strings of files must not act as commands to a terminal."""
    try:
        click.echo(printable(text, keep="\n"), err=err)
    except OSError as error:  # such as that of a full disk, which names no file
        raise OSError(error.errno, error.strerror, "standard error" if err else OUTPUT) from error


def fail(message: str, code: int = BAD_INPUT, word: str = "error: ") -> NoReturn:
    """Print one line on the standard error and exit, also where that line cannot be printed."""
    with suppress(OSError):
        say(word + short_message(message), err=True)
    _drop(sys.stderr)
    sys.exit(code)


def _drop(stream: Any) -> None:
    """Drop what a stream holds and cannot write: Python would fail on it again at its end, and print that."""
    try:
        if stream is not None:  # as where the process was started without it
            stream.flush()
    except OSError:
        with suppress(OSError, ValueError), open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), stream.fileno())


def message_of(error: BaseException) -> str:
    """Return the message of an error, the wrong argument named by its option."""
    # By now it is in memory; the help of the program should not wait for it.
    from gpukpca.data.finite import IMPUTE

    message, argument = str(error), getattr(error, "argument", None)
    message = message.replace(IMPUTE, "give --rows complete or --rows imputed")
    context = click.get_current_context(silent=True)
    if context is None or argument is None:
        return message
    if argument == "sample_weight":
        return message.replace(argument, "--weight-column")
    options = {
        one.name: f"{max(one.opts, key=len)} " for one in context.command.params if isinstance(one, click.Option)
    }
    options |= dict.fromkeys(SOLVERS, options.get("solver", ""))
    options |= {name: f"--set {name}=" for name, _ in context.params.get("settings", ())}
    if argument not in options:
        return message
    named = message.replace(f"{argument}=", options[argument], 1)
    return named if named != message else f"{options[argument][:-1]}: {message}"


class OneLineErrors(click.Group):
    """A group that reports a wrong argument in one line."""

    def main(self, *args: Any, **settings: Any) -> NoReturn:
        """Run, and exit with 0, 2 or 130."""
        settings["standalone_mode"] = False
        try:
            code = super().main(*args, **settings)
        except click.Abort:
            fail("interrupted", 128 + signal.SIGINT, "")
        except click.ClickException as error:
            message, context = error.format_message(), vars(error).get("ctx")
            if context is not None and type(error) is not click.BadParameter:  # the message for a wrong value suffices
                message = f"{message.rstrip('.')} (see {context.command_path} --help)."
            fail(message)
        except OSError as error:  # of click's own output, such as the help
            _drop(sys.stdout)
            fail(f"{error.filename or OUTPUT}: {error.strerror}")
        sys.exit(code if isinstance(code, int) else 0)


@contextmanager
def failures_in_one_line(debug: bool, checkpoint: Path | None = None) -> Iterator[None]:
    """End the program with 2 after expected failures, with 130 after Ctrl-C and 143 after SIGTERM.

    With `debug` print tracebacks. `checkpoint` is the folder that interrupted work may leave to resume from.
    """
    try:
        yield
    except KeyboardInterrupt as error:
        number, word = (signal.SIGTERM, "terminated") if error.args else (signal.SIGINT, "interrupted")
        fail(f"{word}; {_left_in(checkpoint)}", 128 + number, "")
    except FAILURES as error:
        if isinstance(error, BrokenPipeError):
            raise
        if not debug:
            message = message_of(error)
            if isinstance(error, OSError) and error.filename and error.strerror:
                _drop(sys.stdout)
                message = f"{error.filename}: {error.strerror}"
            # A lost cluster is the one failure that leaves a checkpoint to resume from.
            left = _left_in(checkpoint) if isinstance(error, ClusterError) else NOTHING
            fail((message or type(error).__name__) + ("" if left == NOTHING else f" {left[0].upper()}{left[1:]}."))
        say(traceback.format_exc(), err=True)
        sys.exit(BAD_INPUT)


def _left_in(checkpoint: Path | None) -> str:
    """Return what interrupted work leaves behind."""
    # By now it is in memory; the help of the program should not wait for it.
    from gpukpca.checkpoint import has_checkpoint

    if checkpoint is None or not has_checkpoint(checkpoint):
        return NOTHING
    return f"the checkpoint is in {checkpoint}: the same command resumes from it"


@contextmanager
def warnings_in_one_line() -> Iterator[None]:
    """Print each warning for users once, as a line on the standard error; omit those for programmers."""
    seen = set()

    def show(message: Warning | str, *_: Any, **_more: Any) -> None:
        details = f" ({message.details})" if isinstance(message, GpuKPCAWarning) and message.values else ""
        line = f"warning: {short_message(f'{message}{details}')}"
        if line not in seen:
            say(line, err=True)
        seen.add(line)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        for category in (DeprecationWarning, PendingDeprecationWarning, FutureWarning, ResourceWarning):
            warnings.simplefilter("ignore", category)
        warnings.showwarning = show
        yield
