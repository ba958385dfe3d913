"""The commands of the program and their options."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import click

from gpukpca.algorithms.kernel_pca.settings import EIGEN_SOLVERS, GramStorageName
from gpukpca.algorithms.pca.settings import SVDSolver
from gpukpca.cli.apply import run_denoise, run_transform
from gpukpca.cli.fit import run_fit, run_plan
from gpukpca.cli.inputs import BUNDLED, TEXT_SUFFIXES
from gpukpca.cli.machine import show_machine
from gpukpca.cli.methods import DEFAULT_COMPONENTS, METHODS
from gpukpca.cli.options import (
    PATH,
    FolderName,
    GroupedCommand,
    Groups,
    NumberOr,
    RowsByColumns,
    WholeNumber,
    choice,
    flag,
    option,
)
from gpukpca.decomposition._kernels import NAMED_KERNELS
from gpukpca.decomposition.preimage.methods import METHODS as PREIMAGES
from gpukpca.eigen.landmarks import LANDMARKS

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
        "--preimage", of=PREIMAGES, help="Method that maps back to data space, for `gpukpca denoise`. [default: none]"
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
                help="The model as .safetensors, for `gpukpca transform`, `gpukpca denoise` and gpukpca.load.",
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

    gpukpca fit digits --gamma scale -n 100 --preimage fixed_point --save model.safetensors""",
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
    {"Input": INPUT, "Computation": [DEVICE], "Output": [output("Scores as .npz, .csv or .npy."), FORCE, QUIET, DEBUG]},
    name="transform",
    help="""Compute the scores of the samples in INPUT by the model that `gpukpca fit --save MODEL` wrote. The columns
    must be those of the fit; they are standardized as they were for the fit.

    Example: gpukpca transform model.safetensors new.csv --output scores.csv""",
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

    Example: gpukpca denoise model.safetensors noisy.npy --output clean.npy --plot clean.png --image-shape 16x16""",
)


@click.command()
def info() -> None:
    """Print devices, versions and BLAS libraries."""
    show_machine()
