"""The commands `transform` and `denoise`: a saved model and new rows."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from sklearn.utils import get_tags

from gpukpca import PCA, IncrementalPCA, KernelPCA, LocalPCA
from gpukpca._files import replaced_whole
from gpukpca.backend.finite import FINITE, check_finite
from gpukpca.cli.inputs import how_to_read, is_model_file, read_input
from gpukpca.cli.machine import versions
from gpukpca.cli.outputs import checked_targets, component_names, draw, write_rows
from gpukpca.cli.report import peak_memory_mib, show_pairs
from gpukpca.cli.scaling import Standardization
from gpukpca.cli.table import Table
from gpukpca.exceptions import InvalidParameterError, ModelFormatError
from gpukpca.persistence import load_with_notes

# Rows between two looks at the progress bar.
CHUNK = 4096
# Samples that a picture shows.
PICTURED = 12


def run_transform(wanted: SimpleNamespace) -> None:
    """Check, load, read, project, write, show."""
    targets = _targets(wanted)
    model, notes = _model(wanted)
    given = _table(wanted, model, notes)
    scaling = standardization_from(notes, model)
    table = given if scaling is None else replace(given, X=scaling.applied(given.X))
    started = time.perf_counter()
    scores = _in_chunks(model.transform, table.X, wanted.quiet)
    clusters = {"clusters": _in_chunks(model.predict, table.X, True)} if isinstance(model, LocalPCA) else {}
    facts = _facts(wanted, model, table, time.perf_counter() - started, targets)
    with replaced_whole(targets["output"]) as (file,):
        columns = component_names(scores.shape[1])
        write_rows(file, targets["output"], "scores", scores, columns, table, clusters, facts)
    _show(wanted, model, table, facts)


def run_denoise(wanted: SimpleNamespace) -> None:
    """Check, load, read, go to the components and back, write, draw, show."""
    targets = _targets(wanted)
    if wanted.image_shape is not None and wanted.plot is None:
        raise InvalidParameterError("--image-shape is for pictures: give --plot as well.")
    model, notes = _model(wanted)
    way_back = denoiser(model, wanted.n_components)
    table = _table(wanted, model, notes)
    _check_picture(wanted, *table.X.shape)
    scaling = standardization_from(notes, model)
    started = time.perf_counter()
    points = _in_chunks(way_back, table.X if scaling is None else scaling.applied(table.X), wanted.quiet)
    points = points if scaling is None else scaling.undone(points)
    facts = _facts(wanted, model, table, time.perf_counter() - started, targets)
    facts["mean_squared_change"] = float(np.nanmean((points - table.X) ** 2, dtype=np.float64))
    with replaced_whole(*targets.values()) as files:
        columns = table.feature_names or [f"feature_{i + 1}" for i in range(points.shape[1])]
        write_rows(files[0], targets["output"], "denoised", points, columns, table, {}, facts)
        if "plot" in targets:
            draw(files[1], targets["plot"], _figure(wanted, table, points))
    _show(wanted, model, table, facts)


def denoiser(model: Any, count: int | None) -> Callable[[np.ndarray], np.ndarray]:
    """The way to the components and back: of a kernel model by its pre-image, else by its axes.

    Raises
    ------
    InvalidParameterError
        The model has no way back, has fewer components, or cannot do with fewer than it has.
    """
    if isinstance(model, KernelPCA) and not hasattr(model, "denoise"):
        raise InvalidParameterError(
            "the model has no way back to data space: fit it with --preimage ridge, fixed_point or distance_constraint."
        )
    if count is None and hasattr(model, "denoise"):
        return model.denoise
    most = len(model.get_feature_names_out())
    if count is not None and count > most:
        raise InvalidParameterError(f"-n {count}: the model has {most} components.")
    if isinstance(model, KernelPCA):
        return lambda X: model.denoise(X, n_components=count)
    if not isinstance(model, (PCA, IncrementalPCA)):
        raise InvalidParameterError(f"-n: {type(model).__name__} has to use all of its components.")

    def through_axes(X: np.ndarray) -> np.ndarray:
        scores = np.array(model.transform(X))
        scores[:, count:] = 0.0
        return model.inverse_transform(scores)

    return through_axes if count is not None else lambda X: model.inverse_transform(model.transform(X))


def standardization_from(notes: dict[str, Any], model: Any) -> Standardization | None:
    """How columns were standardized for the fit; None where they were not.

    Raises
    ------
    ModelFormatError
        The notes of the file do not fit the model.
    """
    found = notes.get("scaling")
    if found is None:
        return None
    shape = (int(model.n_features_in_),)
    arrays = [np.asarray(found.get(name)) for name in ("mean", "deviation")] if isinstance(found, dict) else []
    fit = [a.shape == shape and a.dtype == np.float64 and bool(np.all(np.isfinite(a))) for a in arrays]
    if len(fit) != 2 or not all(fit) or not np.all(arrays[1] > 0):
        raise ModelFormatError("the file says how columns were standardized, but not for those of its model.")
    return Standardization(arrays[0], arrays[1], int(found.get("constant", 0)))


def _targets(wanted: SimpleNamespace) -> dict[str, Path]:
    if wanted.output is None:
        raise ValueError("nothing would be written: give --output.")
    if wanted.output.exists() and wanted.model.exists() and wanted.output.samefile(wanted.model):
        raise ValueError(f"--output {wanted.output} is the model itself.")
    return checked_targets(wanted, wanted.source)


def _model(wanted: SimpleNamespace) -> tuple[Any, dict[str, Any]]:
    """The model and its notes; MODEL and INPUT in the wrong order are told."""
    if wanted.model.is_dir():
        raise IsADirectoryError(f"MODEL {wanted.model} is a directory; give the file that gpukpca fit --save wrote.")
    if not wanted.model.exists():
        raise FileNotFoundError(f"MODEL {wanted.model}: no such file; give the one that gpukpca fit --save wrote.")
    try:
        return load_with_notes(wanted.model, wanted.device)
    except ModelFormatError as error:
        if is_model_file(Path(wanted.source)):
            raise InvalidParameterError(f"{wanted.source} is the model: MODEL comes first, then INPUT.") from error
        raise


def _table(wanted: SimpleNamespace, model: Any, notes: dict[str, Any]) -> Table:
    """The input, with the columns of the fit."""
    missing = bool(get_tags(model).input_tags.allow_nan)
    wanted_width, names = int(model.n_features_in_), notes.get("feature_names")
    if names is not None and not (isinstance(names, tuple) and len(names) == wanted_width):
        raise ModelFormatError("the file names other columns than those of its model.")
    of_model = names if names and len(set(names)) == len(names) else ()
    table = read_input(wanted.source, missing=missing, of_model=of_model, **how_to_read(wanted))
    wide = table.X.shape[1]
    if wide != wanted_width:
        raise InvalidParameterError(
            f"{wanted.source} has {wide} columns of numbers; the model needs {wanted_width}. --columns and --drop "
            "choose columns."
        )
    if names is not None and table.feature_names is not None and tuple(names) != table.feature_names:
        i = next(i for i, pair in enumerate(zip(names, table.feature_names, strict=False)) if pair[0] != pair[1])
        raise InvalidParameterError(
            f"column {i + 1} of {wanted.source} is {table.feature_names[i]!r}, and the model was fitted with "
            f"{names[i]!r} there: give the same columns in the same order."
        )
    # Here, as the estimator would count the rows from the start of a chunk.
    refused = f"{type(model).__name__} does not accept missing values; impute or drop them first."
    check_finite(table.X, FINITE, wanted.source, missing=missing, of_missing=refused)
    return table


def _in_chunks(work: Callable[[np.ndarray], np.ndarray], X: np.ndarray, quiet: bool) -> np.ndarray:
    """``work(X)`` some rows at a time, with a bar on a terminal."""
    console = Console(stderr=True)
    starts = range(0, X.shape[0], CHUNK)
    hidden = quiet or not console.is_terminal or len(starts) < 2
    parts = [
        np.asarray(work(X[start : start + CHUNK]))
        for start in track(starts, "samples", console=console, transient=True, disable=hidden)
    ]
    return np.concatenate(parts)


def _facts(
    wanted: SimpleNamespace, model: Any, table: Table, seconds: float, targets: dict[str, Path]
) -> dict[str, Any]:
    """What is kept as metadata, in JSON's types."""
    return {
        "versions": versions(),
        "model": str(wanted.model),
        "estimator": type(model).__name__,
        "input": table.source,
        "seconds": seconds,
        "peak_memory_mib": peak_memory_mib(),
        "written": [str(path) for path in targets.values()],
    }


def _show(wanted: SimpleNamespace, model: Any, table: Table, facts: dict[str, Any]) -> None:
    if wanted.quiet:
        return
    change = facts.get("mean_squared_change")
    show_pairs(
        Console(),
        [
            ("model", f"{facts['estimator']} from {wanted.model}"),
            ("data", f"{table.X.shape[0]} x {table.X.shape[1]} from {table.source}"),
            ("change", "" if change is None else f"{change:.6g} in the mean of squares"),
            ("time", f"{facts['seconds']:.2f} s"),
            *(("written", name) for name in facts["written"]),
        ],
    )


def _check_picture(wanted: SimpleNamespace, n: int, d: int) -> None:
    """Raise where a picture is wanted that cannot be drawn."""
    if wanted.image_shape is not None:
        from gpukpca.plotting.images import check_image_shape

        check_image_shape(wanted.image_shape, d)
    elif wanted.plot is not None and min(n, d) < 2:
        raise InvalidParameterError(f"--plot: there is no plane of {n} samples with {d} columns to draw.")


def _figure(wanted: SimpleNamespace, table: Table, points: np.ndarray) -> Any:
    """Some samples before and after, as images where they are; else all of them in the first plane of the given."""
    from gpukpca.plotting import ImageRowsDisplay, ScoresDisplay
    from gpukpca.plotting.display import new_figure

    title = f"{Path(wanted.source).stem}, denoised by {wanted.model.name}"
    if wanted.image_shape is not None:
        chosen = np.linspace(0, len(points) - 1, min(PICTURED, len(points))).astype(int)
        rows = {"given": table.X[chosen], "denoised": points[chosen]}
        figure = ImageRowsDisplay(rows, wanted.image_shape, grays="denoised").plot().figure_
        figure.suptitle(title, fontsize=8, parse_math=False)
        return figure
    # Missing cells are drawn where the model puts them.
    given = np.where(np.isnan(table.X), points, table.X).astype(np.float64)
    plane = PCA(2).fit(given)
    figure = new_figure(9.6, 4.4, title)
    axes = figure.subplots(1, 2, sharex=True, sharey=True)
    for ax, shown, name in zip(axes, (given, points.astype(np.float64)), ("given", "denoised"), strict=True):
        ScoresDisplay.from_estimator(plane, shown, labels=table.labels, ax=ax)
        ax.set_title(name)
    return figure
