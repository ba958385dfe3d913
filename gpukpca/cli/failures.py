"""How the program ends: every failure is one line on the standard error and an exit code."""

from __future__ import annotations

import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import click

from gpukpca.exceptions import ConvergenceError, DeviceLostError, DeviceUnavailableError

BAD_INPUT, INTERRUPTED = 2, 130
FAILURES = (ValueError, TypeError, MemoryError, OSError, ConvergenceError, DeviceUnavailableError, DeviceLostError)


def fail(message: str, code: int = BAD_INPUT, word: str = "error: ") -> NoReturn:
    """One line on the standard error, and the end."""
    click.echo(word + " ".join(message.split()), err=True)
    sys.exit(code)


def in_words(error: BaseException) -> str:
    """The message of an exception, with the path where the system names one."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error) or type(error).__name__


class OneLineErrors(click.Group):
    """A group that says what is wrong with its arguments in one line."""

    def main(self, *args: Any, **settings: Any) -> NoReturn:
        """Run, and exit with 0, 2 or 130."""
        settings["standalone_mode"] = False
        try:
            code = super().main(*args, **settings)
        except click.Abort:
            fail("interrupted", INTERRUPTED, "")
        except click.ClickException as error:
            fail(_with_help(error))
        sys.exit(code if isinstance(code, int) else 0)


def _with_help(error: click.ClickException) -> str:
    """What is wrong with the arguments, and where to look; a value that is wrong comes with those that are right."""
    message = error.format_message()
    if type(error) is click.BadParameter or not isinstance(error, click.UsageError) or error.ctx is None:
        return message
    return f"{message.rstrip('.')} (see {error.ctx.command_path} --help)."


@contextmanager
def failures_in_one_line(debug: bool) -> Iterator[None]:
    """Expected failures end the program with 2, an interrupt with 130; `debug` prints the traceback instead."""
    try:
        yield
    except KeyboardInterrupt:
        fail("interrupted; nothing was written", INTERRUPTED, "")
    except FAILURES as error:
        if isinstance(error, BrokenPipeError):
            raise
        if not debug:
            fail(in_words(error))
        traceback.print_exc()
        sys.exit(BAD_INPUT)


@contextmanager
def warnings_in_one_line() -> Iterator[None]:
    """Warnings for users as lines on the standard error, each once, after the work; those for programmers nowhere."""
    seen: dict[str, None] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        for category in (DeprecationWarning, PendingDeprecationWarning, FutureWarning, ResourceWarning):
            warnings.simplefilter("ignore", category)
        warnings.showwarning = lambda message, *_args, **_more: seen.setdefault(" ".join(str(message).split()))
        yield
        # After a failure its own line stands alone.
        for message in seen:
            click.echo(f"warning: {message}", err=True)
