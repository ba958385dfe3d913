"""The commands of the program."""

from __future__ import annotations

import click

from gpukpca.cli.apply import run_denoise, run_transform
from gpukpca.cli.fit import run_fit, run_plan
from gpukpca.cli.inputs import BUNDLED, TEXT_SUFFIXES
from gpukpca.cli.machine import show_machine
from gpukpca.cli.options import (
    CHECKPOINT,
    DEBUG,
    DEVICE,
    FORCE,
    IMAGE_SHAPE,
    INPUT,
    PATH,
    QUIET,
    VERBOSE,
    GroupedCommand,
    RowsByColumns,
    WholeNumber,
    model_groups,
    option,
    output,
    plot,
)

fit = GroupedCommand(
    run_fit,
    ("source",),
    {
        **model_groups(CHECKPOINT),
        "Output": [
            output("Scores and spectrum as .npz, or scores as .csv or .npy."),
            option(
                "--save",
                type=PATH,
                help="The model as .npz, for `gpukpca transform`, `gpukpca denoise` and gpukpca.load.",
            ),
            plot("Spectrum and scores as .png, .pdf or .svg."),
            IMAGE_SHAPE,
            FORCE,
            QUIET,
            VERBOSE,
            DEBUG,
        ],
    },
    name="fit",
    help=f"""Compute the principal components of INPUT: a .npy, .npz or text file ({", ".join(TEXT_SUFFIXES)}) whose
    rows are samples, or a bundled data set ({", ".join(BUNDLED)}).

    Options that only some methods read name them in brackets.

    Examples: gpukpca fit digits --kernel rbf --gamma scale -n 10 --output scores.npz --plot plot.png

    gpukpca fit digits --method pca -n 50 --image-shape 8x8 --output scores.npz --plot plot.png

    gpukpca fit digits --gamma scale -n 100 --preimage fixed_point --save model.npz""",
)
plan = GroupedCommand(
    run_plan,
    ("source",),
    {**model_groups(), "Output": [DEBUG]},
    name="plan",
    help="""Print what `gpukpca fit INPUT` with the same options would do: solver, storage of the kernel matrix, memory,
    bytes read. Nothing is fitted.

    Example: gpukpca plan X.npy --kernel rbf -n 20 --memory-limit 8GiB""",
)
transform = GroupedCommand(
    run_transform,
    ("model", "source"),
    {
        "Input": INPUT,
        "Computation": [DEVICE],
        "Output": [output("Scores as .npz, .csv or .npy."), FORCE, QUIET, DEBUG],
    },
    name="transform",
    help="""Compute the scores of the samples in INPUT by the model that `gpukpca fit --save MODEL` wrote. The columns
    must be those of the fit; they are standardized as they were for the fit.

    Example: gpukpca transform model.npz new.csv --output scores.csv""",
)
denoise = GroupedCommand(
    run_denoise,
    ("model", "source"),
    {
        "Input": INPUT,
        "Computation": [
            option("-n", "--n-components", type=WholeNumber(min=1), help="Number of components to use. [default: all]"),
            DEVICE,
        ],
        "Output": [
            output("Denoised samples as .npz, .csv or .npy."),
            plot("Some samples before and after, as .png, .pdf or .svg."),
            click.Option(
                ["--image-shape"],
                type=RowsByColumns(),
                metavar="ROWSxCOLUMNS",
                help="Samples are images of this shape, such as 16x16: --plot shows images.",
            ),
            FORCE,
            QUIET,
            DEBUG,
        ],
    },
    name="denoise",
    help="""Project the samples in INPUT on the components of a saved model and map them back, in the units of the data.
    A kernel model needs a way back to data space: fit it with --preimage.

    Example: gpukpca denoise model.npz noisy.npy --output clean.npy --plot clean.png --image-shape 16x16""",
)


@click.command()
def info() -> None:
    """Print devices, versions and BLAS libraries."""
    show_machine()
