"""The commands `gpukpca fit`, `plan` and `info`. Every failure is one line on the standard error and an exit code."""

from __future__ import annotations

import platform
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, NoReturn

import click
from rich.console import Console

from gpukpca import KernelPCA, Nystrom, __version__
from gpukpca.backend.device import cuda_place, free_bytes, host_free_bytes
from gpukpca.backend.tiles import usable_cpus
from gpukpca.cli.inputs import BUNDLED, Table, read_input, standardized
from gpukpca.cli.report import (
    ProgressBar,
    check_target,
    peak_memory_mib,
    replaced_whole,
    show_components,
    show_pairs,
    show_run,
    write_scores,
)
from gpukpca.cuda.device import probe
from gpukpca.decomposition.choices import EIGEN_SOLVERS, NAMED_KERNELS, check_parameters
from gpukpca.decomposition.plan import parsed_bytes, spelled_bytes
from gpukpca.eigen.nystrom import LANDMARKS
from gpukpca.exceptions import ConvergenceError, DeviceLostError, DeviceUnavailableError, InvalidParameterError

BAD_INPUT, INTERRUPTED = 2, 130
DEFAULT_COMPONENTS = 10
SCORE_SUFFIXES, PLOT_SUFFIXES = (".npz", ".csv", ".npy"), (".png", ".pdf", ".svg")
FAILURES = (ValueError, TypeError, MemoryError, OSError, ConvergenceError, DeviceUnavailableError, DeviceLostError)
# Option -> the kernels that read it.
KERNELS_OF = {
    "gamma": ("poly", "rbf", "sigmoid", "laplacian", "matern", "rational_quadratic"),
    "degree": ("poly",),
    "coef0": ("poly", "sigmoid"),
}
PACKAGES = ("numpy", "scipy", "scikit-learn", "array-api-compat", "matplotlib")
CUPY_PACKAGES = ("cupy", "cupy-cuda12x", "cupy-cuda13x")


# -- failures ----------------------------------------------------------------------------------------------------------


def fail(message: str, code: int = BAD_INPUT, word: str = "error: ") -> NoReturn:
    """One line on the standard error, and the end."""
    click.echo(word + " ".join(message.split()), err=True)
    sys.exit(code)


def in_words(error: BaseException) -> str:
    """The message of an exception, with the path where the system names one."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error) or type(error).__name__


class OneLineErrors(click.Group):
    """A group that says what is wrong with its arguments in one line."""

    def main(self, *args: Any, **settings: Any) -> NoReturn:
        """Run, and exit with 0, 2 or 130."""
        settings["standalone_mode"] = False
        try:
            code = super().main(*args, **settings)
        except click.Abort:
            fail("interrupted", INTERRUPTED, "")
        except click.ClickException as error:
            fail(error.format_message())
        sys.exit(code if isinstance(code, int) else 0)


@contextmanager
def failures_in_one_line(debug: bool) -> Iterator[None]:
    """Expected failures end the program with 2, an interrupt with 130; `debug` prints the traceback instead."""
    try:
        yield
    except KeyboardInterrupt:
        fail("interrupted; nothing was written", INTERRUPTED, "")
    except FAILURES as error:
        if isinstance(error, BrokenPipeError):
            raise
        if not debug:
            fail(in_words(error))
        traceback.print_exc()
        sys.exit(BAD_INPUT)


@contextmanager
def warnings_in_one_line() -> Iterator[None]:
    """Warnings for users as lines on the standard error, each once, after the work; those for programmers nowhere."""
    seen: dict[str, None] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        for category in (DeprecationWarning, PendingDeprecationWarning, FutureWarning, ResourceWarning):
            warnings.simplefilter("ignore", category)
        warnings.showwarning = lambda message, *_args, **_more: seen.setdefault(" ".join(str(message).split()))
        yield
        # After a failure its own line stands alone.
        for message in seen:
            click.echo(f"warning: {message}", err=True)


# -- arguments ---------------------------------------------------------------------------------------------------------


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


COUNT_OR_SHARE = NumberOr("count or share", whole=True)
GAMMA = NumberOr("gamma", ("scale", "median"))


@click.group(cls=OneLineErrors, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gpukpca")
@click.pass_context
def gpukpca(context: click.Context) -> None:
    """Kernel PCA at large n."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


MODEL_OPTIONS = (
    click.argument("source", metavar="INPUT"),
    click.option(
        "-n",
        "--n-components",
        type=COUNT_OR_SHARE,
        metavar="COUNT|SHARE",
        help=f"How many components, or the share of the variance to reach, such as 0.9. "
        f"[default: {DEFAULT_COMPONENTS}, or as many as there are samples]",
    ),
    click.option(
        "-k",
        "--kernel",
        type=click.Choice(list(NAMED_KERNELS)),
        default="rbf",
        show_default=True,
        help="With precomputed, INPUT is the kernel matrix.",
    ),
    click.option(
        "--gamma",
        type=GAMMA,
        metavar="NUMBER|scale|median",
        help="scale: 1/(d var(X)); median: from the median distance. [default: 1/d, d the number of columns]",
    ),
    click.option("--degree", type=float, default=3, show_default=True, help="Of poly."),
    click.option("--coef0", type=float, default=1, show_default=True, help="Of poly and sigmoid."),
    click.option("--scale", is_flag=True, help="Standardise every column: mean 0, standard deviation 1."),
    click.option("--eigen-solver", type=click.Choice(EIGEN_SOLVERS), default="auto", show_default=True),
    click.option("--rank", type=click.IntRange(min=1), help="Landmarks of nystrom. [default: 500, or 10 a component]"),
    click.option(
        "--landmarks",
        type=click.Choice(list(LANDMARKS)),
        default="rpcholesky",
        show_default=True,
        help="How nystrom draws them.",
    ),
    click.option(
        "--gram",
        type=click.Choice(["auto", "dense", "tiled"]),
        default="auto",
        show_default=True,
        help="How the kernel matrix is held.",
    ),
    click.option(
        "--device",
        metavar="auto|cpu|cuda|cuda:N",
        default="auto",
        show_default=True,
        help="auto: a GPU where one works, else the CPU.",
    ),
    click.option("--memory-limit", metavar="BYTES", help="Such as 4GiB. [default: 85 % of what is free]"),
    click.option(
        "--dtype",
        type=click.Choice(["float32", "float64"]),
        help="Compute in this. [default: as the file has it, float64 for integers and text]",
    ),
    click.option(
        "--tol",
        type=float,
        default=0.0,
        show_default=True,
        help="Largest relative residual; 0: 1e-8 in float64, 1e-5 in float32.",
    ),
    click.option("--max-iter", type=int, help="Most passes over the kernel matrix."),
    click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the random start."),
    click.option("--n-jobs", type=int, help="Threads; -1: all CPUs."),
    click.option("--key", help="Array of an .npz file. [default: its only matrix, or X, x_train or data]"),
    click.option(
        "--label-column",
        metavar="NAME|NUMBER",
        help="Labels that colour the plot: a column of a .csv file, counted from 0, or an array of an .npz file.",
    ),
    click.option("--index-column", metavar="NAME|NUMBER", help="Names of the rows, given in the same way."),
    click.option("--transpose", is_flag=True, help="Swap rows and columns after reading, names included."),
    click.option("--debug", is_flag=True, help="Print the traceback of an error."),
)


def with_model_options(command: Any) -> Any:
    """A command that takes an input and everything that a model is made of."""
    for option in reversed(MODEL_OPTIONS):
        command = option(command)
    return command


@gpukpca.command(
    short_help="Principal components of a file or a bundled set.",
    help=f"""Principal components of INPUT: a .npy, .npz or .csv file whose rows are samples, or a bundled set
    ({", ".join(BUNDLED)}).

    Example: gpukpca fit digits --kernel rbf --gamma scale -n 10 --output scores.npz --plot plot.png""",
)
@with_model_options
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    help="Scores and spectrum as .npz, or scores as .csv or .npy.",
)
@click.option("--plot", type=click.Path(path_type=Path), help="Spectrum and scores as .png, .pdf or .svg.")
@click.option("--force", is_flag=True, help="Replace files that exist.")
@click.option("-q", "--quiet", is_flag=True, help="Print only warnings and errors.")
def fit(**options: Any) -> None:
    """Principal components of a file or a bundled set."""
    run(run_fit, options)


@gpukpca.command(
    short_help="What a fit would do, and the memory it would take.",
    help="""What `gpukpca fit INPUT` with the same options would do: solver, how the kernel matrix is held, memory,
    bytes read. Nothing is fitted.

    Example: gpukpca plan X.npy --kernel rbf -n 20 --memory-limit 8GiB""",
)
@with_model_options
def plan(**options: Any) -> None:
    """What a fit would do, and the memory it would take."""
    run(run_plan, options)


def run(work: Callable[[SimpleNamespace], None], options: dict[str, Any]) -> None:
    """Do the work of a command, with failures and warnings in one line each."""
    wanted = SimpleNamespace(**options)
    with failures_in_one_line(wanted.debug), warnings_in_one_line():
        work(wanted)


def run_plan(wanted: SimpleNamespace) -> None:
    """Check, read, and print the plan."""
    model = model_from(wanted, 0)
    table, _ = read_table(wanted)
    default_components(wanted, model, table)
    click.echo(model.plan(table.X))


def default_components(wanted: SimpleNamespace, model: KernelPCA, table: Table) -> None:
    """As many components as there are samples, where nobody said how many and ten are too many."""
    if wanted.n_components is None:
        model.set_params(n_components=min(DEFAULT_COMPONENTS, table.X.shape[0]))


# -- fit ---------------------------------------------------------------------------------------------------------------


def run_fit(wanted: SimpleNamespace) -> None:
    """Check, read, fit, write, show."""
    check_targets(wanted)
    console = Console(stderr=True)
    with ProgressBar(console) as bar:
        model = model_from(wanted, bar if console.is_terminal and not wanted.quiet else 0)
        table, scaled = read_table(wanted)
        default_components(wanted, model, table)
        started = time.perf_counter()
        scores = model.fit_transform(table.X)
        seconds = time.perf_counter() - started
    facts = facts_of(wanted, model, table, scaled, seconds)
    write_all(wanted, model, scores, table, facts)
    if not wanted.quiet:
        out = Console()
        show_components(out, model)
        show_run(out, model, facts)


def check_targets(wanted: SimpleNamespace) -> None:
    """Raise for files that could not be written, before any work."""
    check_target("--output", wanted.output, SCORE_SUFFIXES, wanted.force, wanted.source)
    if wanted.plot is None:
        return
    check_target("--plot", wanted.plot, PLOT_SUFFIXES, wanted.force, wanted.source)
    if find_spec("matplotlib") is None:
        raise ValueError("--plot needs Matplotlib, which is not installed: pip install matplotlib")


def model_from(wanted: SimpleNamespace, listener: Any) -> KernelPCA:
    """The estimator, its parameters checked."""
    for name, kernels in KERNELS_OF.items():
        given = click.get_current_context().get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if given and wanted.kernel not in kernels:
            warnings.warn(f"--{name} is not used by the kernel {wanted.kernel}.", UserWarning, stacklevel=2)
    if wanted.memory_limit is not None:
        parsed_bytes(wanted.memory_limit)
    names = ("n_components", "kernel", "gamma", "degree", "coef0", "eigen_solver", "tol", "max_iter", "n_jobs", "gram")
    parameters = {name: getattr(wanted, name) for name in (*names, "device", "memory_limit")}
    parameters |= landmark_parameters(wanted)
    # Nobody changes X after the fit, so no copy of it is needed.
    model = KernelPCA(**parameters, random_state=wanted.seed, copy_X=False, verbose=listener)
    check_parameters(model)
    if wanted.scale and wanted.kernel == "precomputed":
        raise InvalidParameterError("--scale standardises columns of data; a precomputed kernel matrix has none.")
    return model


def landmark_parameters(wanted: SimpleNamespace) -> dict[str, Any]:
    """The solver object that --rank and --landmarks mean, which then has the tolerance; nothing without nystrom."""
    given = wanted.rank is not None or wanted.landmarks != "rpcholesky"
    if wanted.eigen_solver != "nystrom":
        if given:
            raise ValueError("--rank and --landmarks are for --eigen-solver nystrom.")
        return {}
    solver = Nystrom(wanted.rank, wanted.landmarks, wanted.tol)
    return {"eigen_solver": solver, "tol": 0}


def read_table(wanted: SimpleNamespace) -> tuple[Table, str]:
    """The input, scaled where asked, and what scaling did in words."""
    how = ("key", "label_column", "index_column", "transpose", "dtype")
    table = read_input(wanted.source, **{name: getattr(wanted, name) for name in how})
    if not wanted.scale:
        return table, ""
    X, constant = standardized(table.X)
    words = f"{X.shape[1] - constant} columns to mean 0 and standard deviation 1"
    words += f"; {constant} constant, only centred" if constant else ""
    return replace(table, X=X), words


def facts_of(wanted: SimpleNamespace, model: KernelPCA, table: Table, scaled: str, seconds: float) -> dict[str, Any]:
    """What is kept as metadata, in JSON's types."""
    parameters = model.get_params(deep=False)
    parameters.pop("verbose")
    parameters["eigen_solver"] = str(parameters["eigen_solver"])
    return {
        "versions": versions(),
        "input": table.source,
        "scaled": scaled,
        "transposed": wanted.transpose,
        "parameters": parameters,
        "plan": str(model.plan_),
        "device": model.device_,
        "dtype": model.plan_.dtype,
        "solver": model.solver_,
        "fallbacks": list(model.fallbacks_),
        "passes": model.n_passes_,
        "converged": model.converged_,
        "certificate": getattr(model, "certificate_", None),
        "seconds": seconds,
        "peak_memory_mib": peak_memory_mib(),
        "written": [str(path) for path in (wanted.output, wanted.plot) if path is not None],
    }


def write_all(wanted: SimpleNamespace, model: KernelPCA, scores: Any, table: Table, facts: dict[str, Any]) -> None:
    """Scores and plot: both files whole, or neither is touched."""
    with replaced_whole(*(path for path in (wanted.output, wanted.plot) if path is not None)) as files:
        write_scores(files[0], wanted.output.suffix.lower(), model, scores, table, facts)
        if wanted.plot is not None:
            draw(files[1], wanted, model, scores, table)


def draw(file: IO[bytes], wanted: SimpleNamespace, model: KernelPCA, scores: Any, table: Table) -> None:
    """The figure, in the format that the name of the plot says."""
    from gpukpca.plotting import plot_fit

    title = f"{Path(wanted.source).stem}, {wanted.kernel} kernel, n = {len(scores)}"
    figure = plot_fit(model, scores, table.labels, table.sample_names, title)
    figure.savefig(file, format=wanted.plot.suffix.lower()[1:])


# -- info --------------------------------------------------------------------------------------------------------------


@gpukpca.command()
def info() -> None:
    """Devices, versions and BLAS libraries."""
    from threadpoolctl import threadpool_info

    works, found = probe()
    console = Console()
    lines = [
        ("cpu", f"{usable_cpus()} usable core(s), {spelled_bytes(host_free_bytes())} of memory free"),
        ("cuda", f"{found}{_device_memory()}" if works else f"none: {found}"),
        *versions().items(),
    ]
    for library in threadpool_info():
        if library["user_api"] == "blas":
            name, threads = library["internal_api"], library["num_threads"]
            lines.append(("blas", f"{name} {library['version'] or ''}, {threads} thread(s)"))
    show_pairs(console, lines)


def _device_memory() -> str:
    """What is free on the current CUDA device."""
    like, _ = cuda_place(None, "float32")
    return "" if like is None else f", {spelled_bytes(free_bytes(like))} of memory free"


def versions() -> dict[str, str]:
    """Versions of what the numbers depend on."""
    found = {"gpukpca": __version__, "python": platform.python_version()}
    found |= {package: version_of(package) for package in PACKAGES}
    cupy = [version for version in map(version_of, CUPY_PACKAGES) if version != "not installed"]
    return found | {"cupy": cupy[0] if cupy else "not installed"}


def version_of(package: str) -> str:
    """Version of an installed package, or «not installed»."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
