"""The program `gpukpca`: its commands by name, each of which is imported when it runs."""

from __future__ import annotations

from importlib import import_module

import click

from gpukpca import __version__
from gpukpca.cli.failures import OneLineErrors, say

# The help of the program names them without importing scikit-learn, which takes seconds.
COMMANDS = {
    "audit": "Print the residuals of a saved model on the data of its fit.",
    "denoise": "Remove noise from samples with a saved model.",
    "fit": "Compute the principal components of a file or a bundled data set.",
    "info": "Print what a model file holds, or what the machine has.",
    "plan": "Print what a fit would do, and the memory it would take.",
    "transform": "Compute the scores of new samples with a saved model.",
}


class LateCommands(OneLineErrors):
    """A group whose commands are in `gpukpca.cli.commands`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all names."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a name."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = vars(import_module("gpukpca.cli.commands"))[cmd_name]
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names with one sentence each."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LateCommands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gpukpca")
@click.pass_context
def gpukpca(context: click.Context) -> None:
    """Kernel PCA at large n, and PCA."""
    if context.invoked_subcommand is None:
        say(context.get_help())
