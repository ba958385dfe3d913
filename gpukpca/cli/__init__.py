"""The command line.

Internal: it may change in any version.
"""

import io
import signal
import sys
from contextlib import suppress
from importlib.util import find_spec

from gpukpca._extras import pip_install


def main() -> None:
    """Run the console script; without the libraries of the command line print how to install them."""
    # A job may be signaled while libraries are imported, which takes seconds. A fit with a checkpoint answers.
    with suppress(AttributeError, ValueError):  # Windows has no such signal, and only the main thread sets handlers
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        if missing := [name for name in ("click", "rich", "polars") if find_spec(name) is None]:
            sys.stderr.write(f"error: {', '.join(missing)} not installed: {pip_install('cli')}\n")
            sys.exit(2)
        from gpukpca.cli.app import gpukpca
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)
    # Windows writes to files and pipes in a code page, which lacks mathematics such as λ.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    gpukpca()
