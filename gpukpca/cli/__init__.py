"""The command line.

Internal: it may change in any version.
"""

import io
import signal
import sys
from contextlib import suppress
from importlib.util import find_spec
from typing import Any, NoReturn

from gpukpca._extras import pip_install


def terminate(number: int, _: Any) -> NoReturn:
    """End the work at SIGTERM as Ctrl-C does; the error holds the number of the signal."""
    raise KeyboardInterrupt(number)


def main() -> None:
    """Run the console script; without the libraries of the command line print how to install them."""
    # Before libraries are imported, which takes seconds. A fit with a checkpoint answers SIGUSR1; anywhere else it
    # would end the process.
    for name, handler in (("SIGTERM", terminate), ("SIGUSR1", signal.SIG_IGN)):
        with suppress(AttributeError, ValueError):  # Windows lacks SIGUSR1, and only the main thread sets handlers
            signal.signal(getattr(signal, name), handler)
    try:
        if missing := [name for name in ("click", "rich", "polars") if find_spec(name) is None]:
            sys.stderr.write(f"error: {', '.join(missing)} not installed: {pip_install('cli')}\n")
            sys.exit(2)
        from gpukpca.cli.app import gpukpca
    except KeyboardInterrupt as error:
        sys.stderr.write("interrupted\n")
        sys.exit(128 + (error.args or (signal.SIGINT,))[0])
    # Windows writes to files and pipes in a code page, which lacks mathematics such as λ.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    gpukpca()
