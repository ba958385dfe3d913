"""The program `gpukpca`: its commands by name, each of which is imported when it is run."""

from __future__ import annotations

from importlib import import_module

import click

from gpukpca import __version__
from gpukpca.cli.failures import OneLineErrors
from gpukpca.cli.terminal import say

# The help of the program names them without importing scikit-learn, which takes seconds.
COMMANDS = {
    "denoise": "Samples with their noise removed by a saved model.",
    "fit": "Principal components of a file or a bundled set.",
    "info": "Devices, versions and BLAS libraries.",
    "plan": "What a fit would do, and the memory it would take.",
    "transform": "Scores of new samples by a saved model.",
}


class LateCommands(OneLineErrors):
    """A group whose commands are in `gpukpca.cli.commands`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module("gpukpca.cli.commands"), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """What the help says of them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LateCommands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gpukpca")
@click.pass_context
def gpukpca(context: click.Context) -> None:
    """Kernel PCA at large n, and PCA."""
    if context.invoked_subcommand is None:
        say(context.get_help())
