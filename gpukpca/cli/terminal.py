"""Text on the terminal, where strings of files must not act as commands to it."""

from __future__ import annotations

import click

from gpukpca._formatting import printable


def say(text: str, err: bool = False) -> None:
    """Print lines with their control characters as escapes."""
    click.echo(printable(text, keep="\n"), err=err)
