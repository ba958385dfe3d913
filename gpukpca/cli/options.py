"""The options of the commands in groups, and the values that they take."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import click

from gpukpca.algorithms.kernel_pca.settings import EIGEN_SOLVERS, GramStorageName
from gpukpca.algorithms.pca.settings import SVDSolver
from gpukpca.cli.failures import failures_in_one_line, warnings_in_one_line
from gpukpca.cli.methods import DEFAULT_COMPONENTS, METHODS
from gpukpca.decomposition._kernels import NAMED_KERNELS
from gpukpca.decomposition.preimage.methods import METHODS as PREIMAGES
from gpukpca.eigen.landmarks import LANDMARKS

Groups = dict[str, list[click.Option]]
PATH = click.Path(path_type=Path)


class NumberOr(click.ParamType):
    """A number, or one of some words; a whole number is a count, from 1 on."""

    def __init__(self, name: str, *words: str, count: bool = False) -> None:
        self.name, self.words, self.count = name, words, count

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return an int where the text is one and a count is allowed, else a float, else the word."""
        if not isinstance(value, str) or value in self.words:
            return value
        try:
            number = int(value) if self.count and value.lstrip("+-").isdigit() else float(value)
        except ValueError:
            words = "".join(f', or "{word}"' for word in self.words)
            self.fail(f"{value!r} is not a number{words}.", param, ctx)
        if self.count and number <= 0:
            self.fail(f"{value} leaves nothing; give at least 1.", param, ctx)
        return number


class WholeNumber(click.IntRange):
    """An integer from `min` on; Click's own name for it makes no sentence."""

    name = "integer"


class FolderName(click.Path):
    """A path that is not empty: Click would take that of an unset variable for the current folder."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the path."""
        if value == "":
            self.fail("the name is empty; give that of a folder.", param, ctx)
        return super().convert(value, param, ctx)


class RowsByColumns(click.ParamType):
    """The shape of an image, such as 16x16."""

    name = "rows x columns"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return two positive integers."""
        match = re.fullmatch(r"\s*([1-9][0-9]{0,8})\s*[x×,]\s*([1-9][0-9]{0,8})\s*", value)
        if match is None:
            self.fail(f"{value!r} is no shape of an image; give rows and columns, such as 16x16.", param, ctx)
        return int(match[1]), int(match[2])


class GroupedCommand(click.Command):
    """A command whose help lists its options in groups.

    Parameters
    ----------
    work : callable
        Does the work, from a namespace of the options.
    arguments : sequence of str
        Names of the positional arguments; «source» is the input, others are paths.
    groups : dict
        Heading -> options.
    **settings
        Of `click.Command`.
    """

    def __init__(
        self, work: Callable[[SimpleNamespace], None], arguments: tuple[str, ...], groups: Groups, **settings: Any
    ) -> None:
        def callback(**values: Any) -> None:
            options = SimpleNamespace(**values)
            with failures_in_one_line(options.debug, values.get("checkpoint")), warnings_in_one_line():
                work(options)

        positional = [
            click.Argument([name], metavar="INPUT") if name == "source" else click.Argument([name], type=PATH)
            for name in arguments
        ]
        self.groups = groups
        params = [*positional, *(option for options in groups.values() for option in options)]
        super().__init__(params=params, callback=callback, **settings)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for every group."""
        asked = self.get_help_option(ctx)
        for heading, options in {**self.groups, "Help": [asked] if asked else []}.items():
            records = [record for option in options if (record := option.get_help_record(ctx)) is not None]
            with formatter.section(heading):
                formatter.write_dl(records)


def option(*names: str, default: Any = None, **settings: Any) -> click.Option:
    """Return an option whose default is in its help; one that only some methods read names them in brackets."""
    made = click.Option(names, default=default, show_default=default is not None, **settings)
    owners = [method.name for method in METHODS.values() if made.name in method.options]
    if owners:
        made.help = f"[{', '.join(owners)}] {made.help}"
    return made


def flag(*names: str, **settings: Any) -> click.Option:
    """Return an option without a value."""
    made = option(*names, is_flag=True, default=False, **settings)
    made.show_default = False
    return made


def choice(*names: str, of: Any, **settings: Any) -> click.Option:
    """Return an option with one of some values."""
    return option(*names, type=click.Choice(list(of)), **settings)


INPUT = [
    option("--key", help="Array of an .npz file. [default: its only matrix, or X, x_train or data]"),
    option(
        "--label-column",
        metavar="NAME|NUMBER",
        help="Labels that color the plot: a column of a text file, counted from 0, or an array of an .npz file. "
        "A negative number counts from the last column.",
    ),
    option("--index-column", metavar="NAME|NUMBER", help="Names of the rows, given in the same way."),
    option("--columns", metavar="NAME|NUMBER,...", help="Use only these columns as features, given in the same way."),
    option("--drop", metavar="NAME|NUMBER,...", help="Use all columns but these as features."),
    click.Option(
        ["--header/--no-header"],
        default=None,
        help="Whether the first line of a text file names the columns. [default: where it has text and no number]",
    ),
    flag("--transpose", help="Swap rows and columns after reading, names included."),
    choice(
        "--dtype",
        of=["float32", "float64"],
        help="Compute in this precision. [default: as the file has it, float64 for integers and text]",
    ),
]
DEVICE = option(
    "--device",
    metavar="auto|cpu|cuda|cuda:N",
    default="auto",
    help="Where to compute: auto is a GPU where one works, else the CPU.",
)
DEBUG = flag("--debug", help="Print the traceback of an error.")
IMAGE_SHAPE = option(
    "--image-shape",
    type=RowsByColumns(),
    metavar="ROWSxCOLUMNS",
    help="Samples are images of this shape, such as 16x16: --plot shows images.",
)
CHECKPOINT = option(
    "--checkpoint",
    type=FolderName(path_type=Path),
    metavar="FOLDER",
    help="Write the state after every pass to this folder, and resume from it when the command runs again.",
)
MODEL = [
    choice(
        "-m",
        "--method",
        of=METHODS,
        default="kernel",
        help="; ".join(f"{method.name}: {method.summary}" for method in METHODS.values()) + ".",
    ),
    option(
        "-n",
        "--n-components",
        type=NumberOr("count or share", "mle", "bic", "all", count=True),
        metavar="COUNT|SHARE|all|mle|bic",
        help="Number of components. With kernel and pca also the share of the variance to reach, such as 0.9, or all "
        "that there can be; with pca mle, Minka's estimate; with local bic, the Bayesian information criterion. "
        f"[default: {DEFAULT_COMPONENTS}, or as many as there can be; local: 2; bayesian: as many as are relevant]",
    ),
    flag(
        "--scale",
        help="Standardize every column to mean 0 and standard deviation 1 (over n, as scikit-learn's StandardScaler).",
    ),
]
KERNEL = [
    choice(
        "-k",
        "--kernel",
        of=NAMED_KERNELS,
        default="rbf",
        help="Kernel function. With precomputed, INPUT is the kernel matrix.",
    ),
    option(
        "--gamma",
        type=NumberOr("gamma", "scale", "median"),
        metavar="NUMBER|scale|median",
        help="Coefficient of the kernel. scale: 1/(d var(X)); median: from the median distance. "
        "[default: 1/d, d the number of columns]",
    ),
    option("--degree", type=float, default=3, help="Degree of the polynomial kernel."),
    option("--coef0", type=float, default=1, help="Constant term of the polynomial and the sigmoid kernel."),
    choice(
        "--preimage",
        of=PREIMAGES,
        help="Method that maps back to data space, for `gpukpca denoise`. [default: none]",
    ),
]
OTHER_METHODS = [
    flag("--whiten", help="Scale the scores to variance 1."),
    option(
        "--clusters",
        "n_clusters",
        type=NumberOr("count", "bic", count=True),
        metavar="COUNT|bic",
        default="2",
        help="Number of clusters. bic: as the Bayesian information criterion says.",
    ),
    flag("--hard", help="Put every sample in one cluster, that of the nearest plane."),
]
SOLVER = [
    choice("--eigen-solver", of=EIGEN_SOLVERS, default="auto", help="Solver of the eigenproblem."),
    option(
        "--rank",
        type=WholeNumber(min=1),
        help="Number of landmarks of nystrom. [default: 500, or 10 for each component]",
    ),
    choice("--landmarks", of=LANDMARKS, default="rpcholesky", help="How nystrom draws its landmarks."),
    choice("--gram", of=get_args(GramStorageName), default="auto", help="How the kernel matrix is stored."),
    choice("--svd-solver", of=get_args(SVDSolver), default="auto", help="Algorithm that computes the components."),
    option("--max-iter", type=int, help="Largest number of passes over the kernel matrix or the data."),
    option(
        "--tol",
        type=float,
        help="With kernel and pca the largest relative residual; 0: 1e-8 in float64, 1e-5 in float32. With the other "
        "methods the smallest gain of an iteration. [default: 0; ppca, bayesian: 1e-10; local: 1e-4]",
    ),
    option("--seed", "random_state", type=WholeNumber(min=0), default=0, help="Seed of the random start."),
]
COMPUTATION = [
    DEVICE,
    option("--n-jobs", type=int, help="Number of threads; -1: all CPUs."),
    option(
        "--memory-limit",
        metavar="BYTES",
        help="Largest memory of the fit, such as 4GiB. [default: 85 % of what is free]",
    ),
    option(
        "--scheduler",
        metavar="ADDRESS",
        help="Distribute the fit to the workers of the Dask scheduler at this address: tcp://10.0.0.1:8786.",
    ),
]
VERBOSE = flag(
    "-v",
    "--verbose",
    help="Print a line for every pass to the standard error in place of the bar: for logs of batch jobs.",
)
FORCE = flag("--force", help="Replace files that exist.")
QUIET = flag("-q", "--quiet", help="Print only warnings and errors.")


def output(what: str) -> click.Option:
    """Return the option that names the file of the rows; `what` describes them."""
    return option("-o", "--output", type=PATH, help=what)


def plot(what: str) -> click.Option:
    """Return the option that names the file of the picture."""
    return option("--plot", type=PATH, help=what)


def model_groups(*computation: click.Option) -> Groups:
    """Return the groups of options that describe a fit."""
    return {
        "Input": INPUT,
        "Model": MODEL,
        "Kernel PCA": KERNEL,
        "Other methods": OTHER_METHODS,
        "Solver": SOLVER,
        "Computation": [*COMPUTATION, *computation],
    }
