"""The options that commands share: the input, the method, what a model is made of, the output."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import click

from gpukpca.algorithms.kernel_pca.settings import EIGEN_SOLVERS, GramStorageName
from gpukpca.algorithms.pca.settings import SVDSolver
from gpukpca.cli.method import DEFAULT_COMPONENTS
from gpukpca.cli.methods import METHODS
from gpukpca.decomposition._kernels import NAMED_KERNELS
from gpukpca.decomposition.preimage.methods import METHODS as PREIMAGES
from gpukpca.eigen.landmarks import LANDMARKS


class NumberOr(click.ParamType):
    """A number, or one of some words."""

    def __init__(self, name: str, words: tuple[str, ...] = (), whole: bool = False) -> None:
        self.name, self.words, self.whole = name, words, whole

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """An int where the text is one and `whole` asks for it, else a float, else the word."""
        if not isinstance(value, str) or value in self.words:
            return value
        try:
            return int(value) if self.whole and value.lstrip("+-").isdigit() else float(value)
        except ValueError:
            words = "".join(f', or "{word}"' for word in self.words)
            self.fail(f"{value!r} is not a number{words}.", param, ctx)


class WholeNumber(click.IntRange):
    """An integer from `min` on; Click's own name for it makes no sentence."""

    name = "integer"


class FolderName(click.Path):
    """A path that is not empty: Click would take that of an unset variable for the current folder."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """A path."""
        if value == "":
            self.fail("the name is empty; give that of a folder.", param, ctx)
        return super().convert(value, param, ctx)


class RowsByColumns(click.ParamType):
    """The shape of an image, such as 16x16."""

    name = "rows x columns"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Two positive integers."""
        if not isinstance(value, str):
            return value
        match = re.fullmatch(r"\s*([1-9][0-9]{0,8})\s*[x×,]\s*([1-9][0-9]{0,8})\s*", value)
        if match is None:
            self.fail(f"{value!r} is no shape of an image; give rows and columns, such as 16x16.", param, ctx)
        return int(match.group(1)), int(match.group(2))


def of_method(name: str, text: str) -> str:
    """The help of an option that only some methods read, with their names."""
    owners = [method.name for method in METHODS.values() if name in method.options]
    return f"[{', '.join(owners)}] {text}"


# What is read, where it is computed.
INPUT_OPTIONS = (
    click.argument("source", metavar="INPUT"),
    click.option(
        "--device",
        metavar="auto|cpu|cuda|cuda:N",
        default="auto",
        show_default=True,
        help="auto: a GPU where one works, else the CPU.",
    ),
    click.option(
        "--dtype",
        type=click.Choice(["float32", "float64"]),
        help="Compute in this. [default: as the file has it, float64 for integers and text]",
    ),
    click.option("--key", help="Array of an .npz file. [default: its only matrix, or X, x_train or data]"),
    click.option(
        "--label-column",
        metavar="NAME|NUMBER",
        help="Labels that color the plot: a column of a text file, counted from 0, or an array of an .npz file.",
    ),
    click.option("--index-column", metavar="NAME|NUMBER", help="Names of the rows, given in the same way."),
    click.option("--columns", metavar="NAME|NUMBER,...", help="Use only these columns, counted from 0, as features."),
    click.option("--drop", metavar="NAME|NUMBER,...", help="Leave these columns out."),
    click.option(
        "--header/--no-header",
        default=None,
        help="Whether the first line of a text file names the columns. [default: where it has text and no number]",
    ),
    click.option("--transpose", is_flag=True, help="Swap rows and columns after reading, names included."),
    click.option("--debug", is_flag=True, help="Print the traceback of an error."),
)

# What a model is made of.
MODEL_OPTIONS = (
    click.option(
        "-m",
        "--method",
        type=click.Choice(list(METHODS)),
        default="kernel",
        show_default=True,
        help="; ".join(f"{method.name}: {method.summary}" for method in METHODS.values()) + ".",
    ),
    click.option(
        "-n",
        "--n-components",
        type=NumberOr("count or share", ("mle", "bic", "all"), whole=True),
        metavar="COUNT|SHARE|all|mle|bic",
        help="How many components; with kernel and pca also the share of the variance to reach, such as 0.9, or all "
        "that there can be; with pca mle, as many as Minka's estimate finds; with local bic. "
        f"[default: {DEFAULT_COMPONENTS}, or as many as there can be; local: 2; bayesian: as many as it finds]",
    ),
    click.option("--scale", is_flag=True, help="Standardize every column: mean 0, standard deviation 1."),
    click.option(
        "-k",
        "--kernel",
        type=click.Choice(list(NAMED_KERNELS)),
        default="rbf",
        show_default=True,
        help=of_method("kernel", "With precomputed, INPUT is the kernel matrix."),
    ),
    click.option(
        "--gamma",
        type=NumberOr("gamma", ("scale", "median")),
        metavar="NUMBER|scale|median",
        help=of_method(
            "gamma",
            "scale: 1/(d var(X)); median: from the median distance. [default: 1/d, d the number of columns]",
        ),
    ),
    click.option("--degree", type=float, default=3, show_default=True, help=of_method("degree", "Of poly.")),
    click.option("--coef0", type=float, default=1, show_default=True, help=of_method("coef0", "Of poly and sigmoid.")),
    click.option(
        "--eigen-solver",
        type=click.Choice(EIGEN_SOLVERS),
        default="auto",
        show_default=True,
        help=of_method("eigen_solver", "How the eigenproblem is solved."),
    ),
    click.option(
        "--rank",
        type=WholeNumber(min=1),
        help=of_method("rank", "Landmarks of nystrom. [default: 500, or 10 a component]"),
    ),
    click.option(
        "--landmarks",
        type=click.Choice(list(LANDMARKS)),
        default="rpcholesky",
        show_default=True,
        help=of_method("landmarks", "How nystrom draws them."),
    ),
    click.option(
        "--gram",
        type=click.Choice(get_args(GramStorageName)),
        default="auto",
        show_default=True,
        help=of_method("gram", "How the kernel matrix is held."),
    ),
    click.option(
        "--preimage",
        type=click.Choice(list(PREIMAGES)),
        help=of_method("preimage", "The way back to data space, for `gpukpca denoise`. [default: none]"),
    ),
    click.option(
        "--max-iter", type=int, help=of_method("max_iter", "Most passes over the kernel matrix, or the data.")
    ),
    click.option(
        "--clusters",
        type=NumberOr("count", ("bic",), whole=True),
        metavar="COUNT|bic",
        default="2",
        show_default=True,
        help=of_method("clusters", "How many; bic: as the Bayesian information criterion says."),
    ),
    click.option("--hard", is_flag=True, help=of_method("hard", "Every sample in one cluster, the nearest plane's.")),
    click.option(
        "--svd-solver",
        type=click.Choice(get_args(SVDSolver)),
        default="auto",
        show_default=True,
        help=of_method("svd_solver", "Which of the equal ways to the components is taken."),
    ),
    click.option("--whiten", is_flag=True, help=of_method("whiten", "Scores of variance 1.")),
    click.option(
        "--scheduler",
        metavar="ADDRESS",
        help=of_method(
            "scheduler", "Share the fit out to the workers of the Dask scheduler there: tcp://10.0.0.1:8786."
        ),
    ),
    click.option("--memory-limit", metavar="BYTES", help="Such as 4GiB. [default: 85 % of what is free]"),
    click.option(
        "--tol",
        type=float,
        default=0.0,
        help="With kernel and pca the largest relative residual; 0: 1e-8 in float64, 1e-5 in float32. With the other "
        "methods iterations end where one gains no more. [default: 0; ppca, bayesian: 1e-10; local: 1e-4]",
    ),
    click.option("--seed", type=WholeNumber(min=0), default=0, show_default=True, help="Of the random start."),
    click.option("--n-jobs", type=int, help="Threads; -1: all CPUs."),
)


def with_input_options(command: Any) -> Any:
    """A command that reads an input."""
    return _with(INPUT_OPTIONS, command)


def with_model_options(command: Any) -> Any:
    """A command that takes an input and everything that a model is made of."""
    return _with((INPUT_OPTIONS[0], *MODEL_OPTIONS, *INPUT_OPTIONS[1:]), command)


def with_output_options(what: str) -> Callable[[Any], Any]:
    """A command that writes rows; `what` describes them."""
    options = (
        click.option("-o", "--output", type=click.Path(path_type=Path), help=what),
        click.option("--force", is_flag=True, help="Replace files that exist."),
        click.option("-q", "--quiet", is_flag=True, help="Print only warnings and errors."),
    )
    return lambda command: _with(options, command)


def _with(options: Sequence[Callable[[Any], Any]], command: Any) -> Any:
    for option in reversed(options):
        command = option(command)
    return command


def given(name: str) -> bool:
    """Whether an option of the running command was written on the command line."""
    return click.get_current_context().get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
