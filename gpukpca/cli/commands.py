"""The commands of the program and their options."""

from __future__ import annotations

from types import SimpleNamespace
from typing import get_args

import click

from gpukpca.algorithms.kernel_pca.settings import EIGEN_SOLVERS
from gpukpca.algorithms.pca.settings import SVDSolver
from gpukpca.cli.apply import run_audit, run_denoise, run_transform
from gpukpca.cli.contents import show_contents
from gpukpca.cli.fit import run_fit, run_plan
from gpukpca.cli.machine import show_machine
from gpukpca.cli.methods import DEFAULT_COMPONENTS, METHODS
from gpukpca.cli.options import (
    COUNT,
    PATH,
    GroupedCommand,
    choice,
    flag,
    number_or,
    option,
    pair,
    setting,
    whole_number,
)
from gpukpca.decomposition._kernels import NAMED_KERNELS
from gpukpca.decomposition.preimage.methods import METHODS as PREIMAGES

SOURCE, SAVED = click.Argument(["source"], metavar="INPUT", type=click.Path()), click.Argument(["model"], type=PATH)
INPUT = [
    option("--key", "Array of .npz, HDF5 or zarr. [default: the only matrix, or X, x_train or data]"),
    option(
        "--label-column NAME|NUMBER",
        "Labels of the rows, which color plots: a column of a table, counted from 0, or an array that --key could "
        "name. A negative number counts from the last column. Where a number is also the name of another column, '#3' "
        "is the number and '=3' the name.",
    ),
    option("--index-column NAME|NUMBER", "Names of the rows, given in the same way."),
    option("--weight-column NAME|NUMBER", "How often each row counts, given in the same way."),
    option("--columns NAME|NUMBER,...", "Use only these columns as features; ranges are allowed: 2000-2005."),
    option("--drop NAME|NUMBER,...", "Use all columns but these as features."),
    option("--header/--no-header", "Whether line 1 of a text names columns. [default: if it is text above numbers]"),
    option("--delimiter CHARACTER", "Character between columns of text, or tab; a blank is any white space."),
    option("--decimal", "Decimal sign of a text file. [default: .]", type=click.Choice([".", ","])),
    option("--skip LINES", "Lines above the first row of a text file, such as a title.", type=COUNT),
    option("--missing codes CODE,...", "Codes of missing values beside empty cells, NA and the like."),
    choice("--rows", ["complete", "imputed"], "Leave out rows with missing cells, or impute the means of columns."),
    flag("--transpose", "Swap rows and columns after reading, names included."),
    choice("--dtype", ["float32", "float64"], "Precision. [default: as the file has it, float64 for text]"),
]
DEVICE = option("--device auto|cpu|cuda|cuda:N", "Where to compute: auto is a GPU that works, or the CPU.", "auto")
JSON = flag("--json as_json", "Print one JSON object, for scripts.")
DEBUG = flag("--debug", "Print the traceback of an error.")
ENDS = [flag("--force", "Replace files that exist."), flag("-q --quiet", "Print only warnings and errors."), DEBUG]
SHAPE = pair("shape of an image; give rows and columns, such as 16x16")
IMAGES = "Samples are images of this shape, such as 16x16: --plot shows images."
MODEL = {
    "Input": INPUT,
    "Model": [
        choice(
            "-m --method",
            METHODS,
            "; ".join(f"{method.name}: {method.summary}" for method in METHODS.values()) + ".",
            default="kernel",
        ),
        option(
            "-n --n-components COUNT|SHARE|all|mle|bic",
            "Number of components. With kernel and pca also the share of the variance to exceed, such as 0.9, or all "
            "that there can be; with pca mle, Minka's estimate; with local bic, the Bayesian information criterion. "
            f"[default: {DEFAULT_COMPONENTS}, or as many as there can be; local: 2; bayesian: as many as are relevant]",
            type=number_or("mle", "bic", "all", count=True),
        ),
        flag("--scale", "Standardize every column to mean 0 and standard deviation 1, over n - 1."),
        option(
            "--set settings NAME=VALUE",
            "Another parameter, may be repeated: of the kernel (-k matern --set nu=2.5; poly, sigmoid: coef0), of "
            "nystrom (landmarks), of the checkpoint (interval, in seconds), or of the estimator (gram; "
            "center=false; local: method=hard).",
            type=setting,
            multiple=True,
        ),
    ],
    "Kernel PCA": [
        choice("-k --kernel", NAMED_KERNELS, "Kernel function. With precomputed, INPUT is the kernel matrix.", "rbf"),
        option(
            "--gamma NUMBER|scale|median",
            "Coefficient of the kernel. scale: 1/(d var(X)); median: from the median distance of different rows. "
            "[default: 1/d, d the number of columns]",
            type=number_or("scale", "median"),
        ),
        option("--degree", "Degree of the polynomial kernel.", type=float, default=3),
        choice("--preimage", PREIMAGES, "Method that maps back to data space, for `gpukpca denoise`. [default: none]"),
    ],
    "Other methods": [
        flag("--whiten", "Scale the scores to variance 1."),
        option(
            "--clusters n_clusters COUNT|bic",
            "Number of clusters; bic: as that criterion says.",
            "2",
            type=number_or("bic", count=True),
        ),
    ],
    "Solver": [
        choice(
            "--solver",
            dict.fromkeys((*EIGEN_SOLVERS, *get_args(SVDSolver), "closed_form", "spectrum", "em")),
            f"Algorithm: of kernel {', '.join(EIGEN_SOLVERS)}; of pca {', '.join(get_args(SVDSolver))}; of ppca auto, "
            "closed_form, em; of bayesian auto, spectrum, em.",
            default="auto",
        ),
        option("--rank", "Number of landmarks of nystrom. [default: 500, or 10 for each component]", type=COUNT),
        option("--max-iter", "Largest number of passes over the kernel matrix or the data.", type=int),
        option(
            "--tol",
            "With kernel and pca the largest relative residual; 0: 1e-8 in float64, 1e-5 in float32. With the other "
            "methods the smallest gain of an iteration. [default: 0; ppca: 1e-5; bayesian: 1e-10; local: 1e-4]",
            type=float,
        ),
        option("--seed random_state", "Seed of the random start. [default: 0]", type=whole_number(0), default=0),
    ],
    "Computation": [
        DEVICE,
        option("--n-jobs", "Number of threads; -1: all CPUs.", type=int),
        option("--memory-limit BYTES", "Limit, such as 4GiB. [default: 85 % of the free memory]"),
        option("--scheduler ADDRESS", "Distribute the fit by this scheduler of Dask, such as tcp://10.0.0.1:8786."),
    ],
}
CHECKPOINT = option(
    "--checkpoint FOLDER",
    "Write the state of the fit to this folder every 60 seconds (--set interval=SECONDS), and resume from it.",
)

fit: GroupedCommand = GroupedCommand(
    run_fit,
    (SOURCE,),
    {
        **MODEL,
        "Computation": [*MODEL["Computation"], CHECKPOINT],
        "Output": [
            option("-o --output", "Scores and spectrum as .npz, or scores as .csv or .npy.", type=PATH),
            option("--save", "The model as .safetensors, for `gpukpca transform` and `gpukpca denoise`.", type=PATH),
            option("--plot", "Spectrum and scores as .png, .pdf or .svg.", type=PATH),
            option("--image-shape ROWSxCOLUMNS", IMAGES, type=SHAPE),
            option(
                "--components NUMBER,NUMBER",
                "Components across and up in --plot, counted from 1. [default: 1,2]",
                type=pair("pair of components, such as 1,3"),
            ),
            flag("-v --verbose", "Print a line for every pass in place of the bar: for logs of batch jobs."),
            *ENDS,
        ],
    },
)
plan: GroupedCommand = GroupedCommand(
    run_plan,
    (click.Argument(["source"], metavar="[INPUT]", required=False, type=click.Path()),),
    {
        "Without INPUT": [
            option("--samples", "Rows of data that need not exist, such as 1e6.", type=COUNT),
            option("--features", "Their columns. --dtype is their precision. [default: float64]", type=COUNT),
        ],
        **MODEL,
        "Output": [JSON, DEBUG],
    },
)
APPLIED = {"Input": INPUT, "Computation": [DEVICE]}
audit: GroupedCommand = GroupedCommand(run_audit, (SAVED, SOURCE), {**APPLIED, "Output": [DEBUG]})
transform: GroupedCommand = GroupedCommand(
    run_transform,
    (SAVED, SOURCE),
    {**APPLIED, "Output": [option("-o --output", "Scores as .npz, .csv or .npy.", type=PATH), *ENDS]},
)
denoise: GroupedCommand = GroupedCommand(
    run_denoise,
    (SAVED, SOURCE),
    {
        "Input": INPUT,
        "Computation": [option("-n --n-components", "Number of components to use. [default: all]", type=COUNT), DEVICE],
        "Output": [
            option("-o --output", "Denoised samples as .npz, .csv or .npy.", type=PATH),
            option("--plot", "Some samples before and after, as .png, .pdf or .svg.", type=PATH),
            click.Option(["--image-shape"], type=SHAPE, metavar="ROWSxCOLUMNS", help=IMAGES),
            *ENDS,
        ],
    },
)


def run_info(options: SimpleNamespace) -> None:
    """Print what the model file FILE holds: class, version, parameters, arrays and notes.

    Its arrays are not read, and nothing is checked but the form of the header. Without FILE print devices, versions and
    BLAS libraries.

    Example: gpukpca info model.safetensors
    """
    if options.file is None:
        show_machine(options.as_json)
    else:
        show_contents(options.file, options.as_json)


FILE = click.Argument(["file"], type=PATH, required=False)
info: GroupedCommand = GroupedCommand(run_info, (FILE,), {"Output": [JSON, DEBUG]})
