"""The command line."""

import sys


def main() -> None:
    """Entry point of the console script."""
    try:
        from gpukpca.cli.app import gpukpca
    except KeyboardInterrupt:
        # Imports take a second or two, in which people change their minds.
        sys.exit(130)
    gpukpca()
