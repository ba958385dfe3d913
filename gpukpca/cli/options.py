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


class NumberOr(click.ParamType):
    """A number or one of some names; with `count`, a whole number from 1 on is a count."""

    def __init__(self, name: str, *names: str, count: bool = False) -> None:
        self.name: str = name
        self.names: tuple[str, ...] = names
        self.count = count

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return an int where the text is one and a count is allowed, else a float, else the word."""
        if not isinstance(value, str) or value in self.names:
            return value
        names = "".join(f', or "{one}"' for one in self.names)
        try:
            number = int(value) if self.count and value.lstrip("+-").isdigit() else float(value)
        except ValueError:
            self.fail(f"{value!r} is not a number{names}.{closest(value, self.names)}", param, ctx)
        if self.count and not (0 < number < 1 or (isinstance(number, int) and number > 0)):
            self.fail(f"{value} is no count from 1 on, and no share between 0 and 1{names}.", param, ctx)
        return number


class Name(click.Choice[str]):
    """One of some names; the error proposes the nearest."""

    def get_invalid_choice_message(self, value: Any, ctx: Any) -> str:
        """Return the error for another value."""
        return f"{super().get_invalid_choice_message(value, ctx).rstrip('.')}.{closest(value, self.choices)}"


class WholeNumber(click.ParamType):
    """A whole number from `least` on, also with an exponent: 1e6."""

    name = "integer"

    def __init__(self, least: int) -> None:
        self.least = least

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the integer."""
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not (number >= self.least and number.is_integer()):
            self.fail(f"{value!r} is not a whole number from {self.least} on, such as 200 or 1e6.", param, ctx)
        return int(value) if str(value).isdecimal() else int(number)


class Setting(click.ParamType):
    """The name of a parameter and its value: a number, true, false, none, or text."""

    name = "name=value"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the name and the value."""
        name, mark, text = value.partition("=")
        if not (mark and name.strip().isidentifier()):
            self.fail(f"{value!r} is no setting; give NAME=VALUE, such as nu=2.5.", param, ctx)
        words = {"true": True, "false": False, "none": None}
        for read in (lambda: words[text.strip().lower()], lambda: int(text), lambda: float(text)):
            with suppress(KeyError, ValueError):
                return name.strip(), read()
        return name.strip(), text.strip()


class Pair(click.ParamType):
    """Two numbers from 1 on, such as 16x16 or 1,3."""

    def __init__(self, name: str) -> None:
        self.name: str = name

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return two positive integers."""
        match = re.fullmatch(r"\s*([1-9][0-9]{0,8})\s*[x×,]\s*([1-9][0-9]{0,8})\s*", value)
        if match is None:
            self.fail(f"{value!r} is no {self.name}.", param, ctx)
        return int(match[1]), int(match[2])


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


COUNT = WholeNumber(1)
