"""Types of options, and commands whose help lists options in groups."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click

from gpukpca._rules import closest
from gpukpca.cli.failures import failures_in_one_line, say, warnings_in_one_line
from gpukpca.cli.methods import METHODS

Groups = dict[str, list[click.Option]]
PATH = click.Path(path_type=Path)
# Options by names that go with the next minor version.
FORMER = dict.fromkeys(("--eigen-solver", "--svd-solver"), "--solver")


def number_or(*names: str, count: bool = False) -> Callable[[Any], Any]:
    """Return the type of a number or one of some names; with `count`, a whole number from 1 on is a count.

    It makes an int where the text is one and a count is allowed, else a float, else the word.
    """

    def number(value: Any) -> Any:
        if not isinstance(value, str) or value in names:
            return value
        others = "".join(f', or "{one}"' for one in names)
        try:
            read = int(value) if count and value.lstrip("+-").isdigit() else float(value)
        except ValueError:
            raise click.BadParameter(f"{value!r} is not a number{others}.{closest(value, names)}") from None
        if count and not (0 < read < 1 or (isinstance(read, int) and read > 0)):
            raise click.BadParameter(f"{value} is no count from 1 on, and no share between 0 and 1{others}.")
        return read

    return number


class Name(click.Choice[str]):
    """One of some names; the error proposes the nearest."""

    def get_invalid_choice_message(self, value: Any, ctx: Any) -> str:
        """Return the error for another value."""
        return f"{super().get_invalid_choice_message(value, ctx).rstrip('.')}.{closest(value, self.choices)}"


def whole_number(least: int) -> Callable[[Any], int]:
    """Return the type of a whole number from `least` on, also with an exponent: 1e6."""

    def integer(value: Any) -> int:
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not (number >= least and number.is_integer()):
            raise click.BadParameter(f"{value!r} is not a whole number from {least} on, such as 200 or 1e6.")
        return int(value) if str(value).isdecimal() else int(number)

    return integer


def setting(value: str) -> tuple[str, Any]:
    """Return the name of a parameter and its value: a number, true, false, none, or text."""
    name, mark, text = value.partition("=")
    if not (mark and name.strip().isidentifier()):
        raise click.BadParameter(f"{value!r} is no setting; give NAME=VALUE, such as nu=2.5.")
    words = {"true": True, "false": False, "none": None}
    for read in (lambda: words[text.strip().lower()], lambda: int(text), lambda: float(text)):
        with suppress(KeyError, ValueError):
            return name.strip(), read()
    return name.strip(), text.strip()


def pair(what: str) -> Callable[[str], tuple[int, int]]:
    """Return the type of two numbers from 1 on, such as 16x16 or 1,3."""

    def numbers(value: str) -> tuple[int, int]:
        match = re.fullmatch(r"\s*([1-9][0-9]{0,8})\s*[x×,]\s*([1-9][0-9]{0,8})\s*", value)
        if match is None:
            raise click.BadParameter(f"{value!r} is no {what}.")
        return int(match[1]), int(match[2])

    return numbers


class GroupedCommand(click.Command):
    """A command that passes its values to `work`, a function run_NAME whose docstring is the help.

    The help lists the options in groups.
    """

    def __init__(
        self,
        work: Callable[[SimpleNamespace], None],
        arguments: tuple[click.Argument, ...],
        groups: Groups,
    ) -> None:
        def callback(**values: Any) -> None:
            options = SimpleNamespace(**values)
            with failures_in_one_line(options.debug, values.get("checkpoint")), warnings_in_one_line():
                work(options)

        self.groups = groups
        params = [*arguments, *(option for options in groups.values() for option in options)]
        super().__init__(work.__name__.removeprefix("run_"), params=params, callback=callback, help=work.__doc__)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Return the arguments that are left; options by former names count, with a warning."""
        for i, (name, mark, value) in enumerate(one.partition("=") for one in args):
            if name in FORMER:
                if any(other.partition("=")[0] == FORMER[name] for other in args):
                    raise click.UsageError(f"{name} and {FORMER[name]} are one option: leave out {name}.", ctx)
                say(f"warning: {name} is called {FORMER[name]} now.", err=True)
                args[i] = FORMER[name] + mark + value
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for every group."""
        helper = self.get_help_option(ctx)
        for heading, options in {**self.groups, "Help": [helper] if helper else []}.items():
            records = [record for option in options if (record := option.get_help_record(ctx)) is not None]
            with formatter.section(heading):
                formatter.write_dl(records)


def option(names: str, text: str, default: Any = None, **settings: Any) -> click.Option:
    """Return an option of names, and of a word with capitals that stands for its value in the help.

    The help states the default, and in brackets the methods if only some read the option.
    """
    words = names.split()
    metavar = words.pop() if words[-1] != words[-1].lower() and words[-1][0] != "-" else None
    made = click.Option(words, default=default, show_default=bool(default), help=text, metavar=metavar, **settings)
    if owners := [method.name for method in METHODS.values() if made.name in method.options]:
        made.help = f"[{', '.join(owners)}] {text}"
    return made


def flag(names: str, text: str) -> click.Option:
    """Return an option without a value."""
    return option(names, text, False, is_flag=True)


def choice(names: str, values: Iterable[str], text: str, default: str | None = None) -> click.Option:
    """Return an option with one of some values."""
    return option(names, text, default, type=Name(list(values)))


COUNT = whole_number(1)
