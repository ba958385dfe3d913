"""The command line."""


def main() -> None:
    """Entry point of the console script."""
    from gpukpca.cli.app import gpukpca

    gpukpca()
