"""The command line."""

import sys


def main() -> None:
    """Entry point of the console script."""
    try:
        from gpukpca.cli.app import gpukpca
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)
    gpukpca()
