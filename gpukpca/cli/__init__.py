"""The command line."""

import io
import sys
from importlib.util import find_spec

from gpukpca._extras import pip_install


def main() -> None:
    """Run the console script; without the libraries of the command line print how to install them."""
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
