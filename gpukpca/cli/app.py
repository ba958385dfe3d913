"""The commands `gpukpca fit`, `plan` and `info`: check, read, fit, write, show."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import click
import numpy as np
from rich.console import Console

from gpukpca import __version__
from gpukpca.backend.device import cuda_place, free_bytes, host_free_bytes
from gpukpca.backend.tiles import usable_cpus
from gpukpca.cli.failures import OneLineErrors, failures_in_one_line, warnings_in_one_line
from gpukpca.cli.inputs import BUNDLED, read_input
from gpukpca.cli.method import Method
from gpukpca.cli.methods import METHODS, check_options
from gpukpca.cli.options import RowsByColumns, given, of_method, with_model_options
from gpukpca.cli.report import (
    ProgressBar,
    check_target,
    peak_memory_mib,
    show_pairs,
    show_run,
    show_table,
    write_scores,
)
from gpukpca.cli.table import Table
from gpukpca.cuda.device import probe
from gpukpca.decomposition.plan import parsed_bytes, spelled_bytes
from gpukpca.files import replaced_whole

SCORE_SUFFIXES, PLOT_SUFFIXES = (".npz", ".csv", ".npy"), (".png", ".pdf", ".svg")
PACKAGES = ("numpy", "scipy", "scikit-learn", "array-api-compat", "matplotlib")
CUPY_PACKAGES = ("cupy", "cupy-cuda12x", "cupy-cuda13x")


@click.group(cls=OneLineErrors, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gpukpca")
@click.pass_context
def gpukpca(context: click.Context) -> None:
    """Kernel PCA at large n, and PCA."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@gpukpca.command(
    short_help="Principal components of a file or a bundled set.",
    help=f"""Principal components of INPUT: a .npy, .npz or .csv file whose rows are samples, or a bundled set
    ({", ".join(BUNDLED)}).

    Options that only some methods read say so in brackets.

    Examples: gpukpca fit digits --kernel rbf --gamma scale -n 10 --output scores.npz --plot plot.png

    gpukpca fit digits --method pca -n 50 --image-shape 8x8 --output scores.npz --plot plot.png""",
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
@click.option(
    "--image-shape",
    type=RowsByColumns(),
    metavar="ROWSxCOLUMNS",
    help=of_method("image_shape", "Samples are images: plot components and reconstructions as images, such as 16x16."),
)
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
    method, model = method_and_model(wanted, 0)
    table, _ = method.prepared(wanted, model, read_table(wanted, method))
    click.echo(method.plan(model, table.X))


def method_and_model(wanted: SimpleNamespace, listener: Any) -> tuple[Method, Any]:
    """The method asked for and its estimator, with all that can be checked before the input is read."""
    method = METHODS[wanted.method]
    check_options(method, given)
    if wanted.memory_limit is not None:
        parsed_bytes(wanted.memory_limit)
    return method, method.model(wanted, listener, given)


def read_table(wanted: SimpleNamespace, method: Method) -> Table:
    """The input."""
    how = ("key", "label_column", "index_column", "transpose", "dtype")
    return read_input(wanted.source, missing=method.takes_missing, **{name: getattr(wanted, name) for name in how})


# -- fit ---------------------------------------------------------------------------------------------------------------


def run_fit(wanted: SimpleNamespace) -> None:
    """Check, read, fit, write, show."""
    check_targets(wanted)
    console = Console(stderr=True)
    with ProgressBar(console) as bar:
        method, model = method_and_model(wanted, bar if console.is_terminal and not wanted.quiet else 0)
        table, scaled = method.prepared(wanted, model, read_table(wanted, method))
        started = time.perf_counter()
        scores = model.fit_transform(table.X)
        seconds = time.perf_counter() - started
    facts = facts_of(wanted, method, model, scores, table, scaled, seconds)
    write_all(wanted, method, model, scores, table, facts)
    if not wanted.quiet:
        out = Console()
        show_table(out, method.row, method.columns(model), method.together(model))
        show_run(out, method.lines(model), table.X.shape, getattr(model, "plan_", None), facts)


def check_targets(wanted: SimpleNamespace) -> None:
    """Raise for files that could not be written, before any work."""
    check_target("--output", wanted.output, SCORE_SUFFIXES, wanted.force, wanted.source)
    if wanted.plot is None:
        return
    check_target("--plot", wanted.plot, PLOT_SUFFIXES, wanted.force, wanted.source)
    if find_spec("matplotlib") is None:
        raise ValueError("--plot needs Matplotlib, which is not installed: pip install matplotlib")


def facts_of(
    wanted: SimpleNamespace, method: Method, model: Any, scores: Any, table: Table, scaled: str, seconds: float
) -> dict[str, Any]:
    """What is kept as metadata, in JSON's types."""
    parameters = model.get_params(deep=False)
    parameters.pop("verbose")
    if "eigen_solver" in parameters:
        parameters["eigen_solver"] = str(parameters["eigen_solver"])
    return {
        "versions": versions(),
        "method": method.name,
        "input": table.source,
        "missing": int(np.sum(np.isnan(table.X))) if method.takes_missing else 0,
        "scaled": scaled,
        "transposed": wanted.transpose,
        "parameters": parameters,
        "plan": str(getattr(model, "plan_", "")),
        "device": model.device_,
        "dtype": str(np.asarray(scores).dtype),
        "solver": getattr(model, "solver_", ""),
        "fallbacks": list(model.fallbacks_),
        "converged": bool(model.converged_),
        **method.facts(model),
        "seconds": seconds,
        "peak_memory_mib": peak_memory_mib(),
        "written": [str(path) for path in (wanted.output, wanted.plot) if path is not None],
    }


def write_all(
    wanted: SimpleNamespace, method: Method, model: Any, scores: Any, table: Table, facts: dict[str, Any]
) -> None:
    """Scores and plot: both files whole, or neither is touched."""
    with replaced_whole(*(path for path in (wanted.output, wanted.plot) if path is not None)) as files:
        write_scores(files[0], wanted.output.suffix.lower(), scores, method.arrays(model), table, facts)
        if wanted.plot is not None:
            draw(files[1], wanted, method.figure(wanted, model, scores, table))


def draw(file: IO[bytes], wanted: SimpleNamespace, figure: Any) -> None:
    """The figure, in the format that the name of the plot says."""
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
