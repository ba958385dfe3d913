"""The commands and their options; what they do is in the files beside."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click

from gpukpca.cli.apply import run_denoise, run_transform
from gpukpca.cli.failures import failures_in_one_line, warnings_in_one_line
from gpukpca.cli.fit import run_fit, run_plan
from gpukpca.cli.inputs import BUNDLED, TEXT_SUFFIXES
from gpukpca.cli.machine import show_machine
from gpukpca.cli.options import (
    FolderName,
    RowsByColumns,
    WholeNumber,
    of_method,
    with_input_options,
    with_model_options,
    with_output_options,
)


@click.command(
    help=f"""Principal components of INPUT: a .npy, .npz or text file ({", ".join(TEXT_SUFFIXES)}) whose rows are
    samples, or a bundled set ({", ".join(BUNDLED)}).

    Options that only some methods read say so in brackets.

    Examples: gpukpca fit digits --kernel rbf --gamma scale -n 10 --output scores.npz --plot plot.png

    gpukpca fit digits --method pca -n 50 --image-shape 8x8 --output scores.npz --plot plot.png

    gpukpca fit digits --gamma scale -n 100 --preimage fixed_point --save model.npz""",
)
@with_model_options
@with_output_options("Scores and spectrum as .npz, or scores as .csv or .npy.")
@click.option(
    "--save",
    type=click.Path(path_type=Path),
    help="The model as .npz, for `gpukpca transform`, `gpukpca denoise` and gpukpca.load.",
)
@click.option("--plot", type=click.Path(path_type=Path), help="Spectrum and scores as .png, .pdf or .svg.")
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="A line a pass on the standard error in place of the bar: for logs of batch jobs.",
)
@click.option(
    "--checkpoint",
    type=FolderName(path_type=Path),
    metavar="FOLDER",
    help=of_method("checkpoint", "Write the state after every pass there, and go on from it when run again."),
)
@click.option(
    "--image-shape",
    type=RowsByColumns(),
    metavar="ROWSxCOLUMNS",
    help=of_method("image_shape", "Samples are images: plot components and reconstructions as images, such as 16x16."),
)
def fit(**options: Any) -> None:
    """Principal components of a file or a bundled set."""
    run(run_fit, options)


@click.command(
    help="""What `gpukpca fit INPUT` with the same options would do: solver, how the kernel matrix is held, memory,
    bytes read. Nothing is fitted.

    Example: gpukpca plan X.npy --kernel rbf -n 20 --memory-limit 8GiB""",
)
@with_model_options
def plan(**options: Any) -> None:
    """What a fit would do, and the memory it would take."""
    run(run_plan, options)


@click.command(
    help="""Scores of the samples in INPUT by the model that `gpukpca fit --save MODEL` wrote, with the same columns,
    standardized as they were for the fit.

    Example: gpukpca transform model.npz new.csv --output scores.csv""",
)
@click.argument("model", type=click.Path(path_type=Path))
@with_input_options
@with_output_options("Scores as .npz, .csv or .npy.")
def transform(**options: Any) -> None:
    """Scores of new samples by a saved model."""
    run(run_transform, options)


@click.command(
    help="""What the components of a saved model keep of the samples in INPUT, in the units of the data. A kernel model
    needs a way back to data space: fit it with --preimage.

    Example: gpukpca denoise model.npz noisy.npy --output clean.npy --plot clean.png --image-shape 16x16""",
)
@click.argument("model", type=click.Path(path_type=Path))
@with_input_options
@with_output_options("Denoised samples as .npz, .csv or .npy.")
@click.option("-n", "--n-components", type=WholeNumber(min=1), help="Use only so many. [default: all of the model]")
@click.option("--plot", type=click.Path(path_type=Path), help="Some samples before and after, as .png, .pdf or .svg.")
@click.option(
    "--image-shape", type=RowsByColumns(), metavar="ROWSxCOLUMNS", help="For --plot: samples are images, such as 16x16."
)
def denoise(**options: Any) -> None:
    """Samples with their noise removed by a saved model."""
    run(run_denoise, options)


def run(work: Callable[[SimpleNamespace], None], options: dict[str, Any]) -> None:
    """Do the work of a command, with failures and warnings in one line each."""
    wanted = SimpleNamespace(**options)
    with failures_in_one_line(wanted.debug, getattr(wanted, "checkpoint", None)), warnings_in_one_line():
        work(wanted)


@click.command()
def info() -> None:
    """Devices, versions and BLAS libraries."""
    show_machine()
