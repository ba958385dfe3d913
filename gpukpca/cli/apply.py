"""The commands `transform` and `denoise`: apply a saved model to new rows."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils import get_tags

from gpukpca import PCA, IncrementalPCA, KernelPCA, LocalPCA, residuals
from gpukpca._files import replaced_whole
from gpukpca.cli.failures import say
from gpukpca.cli.inputs import OF_MISSING, of_distances, read_input, title_of, warn_of_empty_rows
from gpukpca.cli.machine import facts_of_run
from gpukpca.cli.outputs import checked_targets, component_names, draw, write_rows
from gpukpca.cli.report import show_run, taken
from gpukpca.cli.table import ROLES, SLICE_ROWS, Table, input_options
from gpukpca.data.finite import FINITE, NotFiniteError, check_finite
from gpukpca.decomposition import reconstruction
from gpukpca.decomposition._model_files import load
from gpukpca.exceptions import InvalidParameterError, ModelFormatError

# Samples in a picture.
PICTURED = 12
Map = Callable[[np.ndarray], np.ndarray]


def run_transform(options: SimpleNamespace) -> None:
    """Compute the scores of the samples in INPUT by the model that `gpukpca fit --save MODEL` wrote.

    The columns must be those of the fit; they are standardized as they were for the fit.

    Example: gpukpca transform model.safetensors new.csv --output scores.csv
    """
    targets = checked_targets(options)
    pipeline, model, notes = _load(options)
    table = _table(options, model, notes)
    started = time.perf_counter()
    scores = _by_slices(options, model, pipeline.transform, table)
    is_local = isinstance(model, LocalPCA)
    clusters = {"clusters": _by_slices(options, model, pipeline.predict, table)} if is_local else {}
    facts = _facts(options, model, table, started, targets)
    with replaced_whole(targets["output"]) as (file,):
        columns = component_names(scores.shape[1])
        write_rows(file, targets["output"], "scores", scores, columns, table, clusters, facts)
    _show(options, facts)


def run_audit(options: SimpleNamespace) -> None:
    """Print the residual of every eigenpair of a saved model on INPUT, the data of its fit.

    They come from one product with the matrix, whoever computed the model. A model of weighted rows needs
    --weight-column, which is found by its name.

    Example: gpukpca audit model.safetensors X.npy
    """
    pipeline, model, notes = _load(options)
    if not isinstance(model, (KernelPCA, PCA, IncrementalPCA)):
        raise InvalidParameterError(f"a {type(model).__name__} has no residuals; models of kernel and pca have them.")
    table = _table(options, model, notes)
    audited = model if pipeline[0] == "passthrough" else pipeline
    settings = {"sample_weight": table.weights, "random_state": 0, "device": options.device}
    say(f"{taken(table)}\n{residuals(audited, table.X, **settings)}")


def run_denoise(options: SimpleNamespace) -> None:
    """Project the samples in INPUT on the components of a saved model and map them back, in the units of the data.

    A kernel model needs a way back to data space: fit it with --preimage.

    Example: gpukpca denoise model.safetensors noisy.npy --output clean.npy --plot clean.png --image-shape 16x16
    """
    targets = checked_targets(options)
    pipeline, model, notes = _load(options)
    denoise, before = _denoiser(model, options.n_components), pipeline[:-1]
    table = _table(options, model, notes)
    if options.image_shape is not None:
        from gpukpca.plotting.images import check_image_shape

        check_image_shape(options.image_shape, table.X.shape[1])
    elif options.plot is not None and min(table.X.shape) < 2:
        raise InvalidParameterError("--plot: one sample, or one column, has no plane to draw.")
    started = time.perf_counter()
    points = _by_slices(options, model, lambda X: before.inverse_transform(denoise(before.transform(X))), table)
    X, facts = table.dense(), _facts(options, model, table, started, targets)
    facts["mean_squared_change"] = float(np.nanmean((points - X) ** 2, dtype=np.float64))
    with replaced_whole(*targets.values()) as files:
        columns = table.feature_names or [f"feature_{i + 1}" for i in range(points.shape[1])]
        write_rows(files[0], targets["output"], "denoised", points, columns, table, {}, facts)
        if "plot" in targets:
            draw(files[1], targets["plot"], _figure(options, table, X, points))
    _show(options, facts, ("change", f"{facts['mean_squared_change']:.6g} in the mean of squares"))


def _denoiser(model: Any, count: int | None) -> Map:
    """Return the map to `count` components and back: of a kernel model by its pre-image, else by its axes."""
    limit = len(model.get_feature_names_out())
    if count is not None and count > limit:
        raise InvalidParameterError(f"-n {count}: the model has {limit} components.")
    if isinstance(model, KernelPCA):
        if model.preimage is None and not model.fit_inverse_transform:
            raise InvalidParameterError(
                "the model has no way back to data space: fit it with --preimage ridge, fixed_point or "
                "distance_constraint."
            )
        return lambda X: model.denoise(X, n_components=count)
    if not isinstance(model, (PCA, IncrementalPCA)):
        if count is not None:
            raise InvalidParameterError(f"-n: {type(model).__name__} has to use all of its components.")
        return model.denoise
    return lambda X: reconstruction(model, X, count)


def _load(options: SimpleNamespace) -> tuple[Any, Any, dict[str, Any]]:
    """Return the pipeline, the model at its end, and the notes of a model file."""
    loaded = load(options.model, options.device)
    pipeline = loaded if isinstance(loaded, Pipeline) else make_pipeline("passthrough", loaded)
    return pipeline, pipeline[-1], loaded.notes_


def _table(options: SimpleNamespace, model: Any, notes: dict[str, Any]) -> Table:
    """Return the input with the columns of the fit."""
    source, width, names = options.source, int(model.n_features_in_), notes.get("feature_names")
    if options.rows == "imputed":
        raise InvalidParameterError("--rows imputed takes means of INPUT, not those of the fit; give --rows complete.")
    if names is not None and not (isinstance(names, tuple) and len(names) == width):
        raise ModelFormatError("the file names other columns than those of its model.")
    missing = bool(get_tags(model).input_tags.allow_nan)
    of_model = names if names and len(set(names)) == width else ()
    known = {role: str(notes.get(f"{role}_name") or "") for role in ROLES}
    how = input_options(options) | {"missing": missing, "of_model": of_model, "columns_of_model": known}
    table = read_input(source, **how)
    table = of_distances(table) if notes.get("distances") else table
    if missing:
        warn_of_empty_rows(table, source)
    if table.X.shape[1] != width:
        raise InvalidParameterError(
            f"{source} has {table.X.shape[1]} columns of numbers; the model needs {width}. --columns and --drop "
            "choose columns."
        )
    for i, (own, other) in enumerate(zip(table.feature_names or (), names or (), strict=False)):
        if own != other:
            raise InvalidParameterError(
                f"column {i + 1} of {source} is {own!r}, and the model was fitted with {other!r} there: give the same "
                "columns in the same order."
            )
    return table


def _by_slices(options: SimpleNamespace, model: Any, function: Map, table: Table) -> np.ndarray:
    """Return ``function(X)``, computed by slices with a bar on a terminal."""
    missing = bool(get_tags(model).input_tags.allow_nan)
    console, starts, parts = Console(stderr=True), range(0, table.X.shape[0], SLICE_ROWS), []
    hidden = options.quiet or not console.is_terminal
    for start in starts if hidden else track(starts, "samples", console=console, transient=True):
        rows = table.read(start, start + SLICE_ROWS)
        try:
            check_finite(rows, FINITE, options.source, missing=missing, of_missing=OF_MISSING)
        except NotFiniteError as error:  # which counts the rows from the start of the slice
            raise error.moved(start) from None
        parts.append(np.asarray(function(rows)))
    return np.concatenate(parts)


def _facts(
    options: SimpleNamespace, model: Any, table: Table, started: float, targets: dict[str, Path]
) -> dict[str, Any]:
    """Return the metadata, in JSON's types."""
    facts = facts_of_run(table, time.perf_counter() - started, targets)
    return {"model": str(options.model), "estimator": type(model).__name__} | facts


def _show(options: SimpleNamespace, facts: dict[str, Any], *lines: tuple[str, str]) -> None:
    """Print what was done."""
    if not options.quiet:
        show_run([("model", f"{facts['estimator']} from {options.model}"), *lines], facts)


def _figure(options: SimpleNamespace, table: Table, X: np.ndarray, points: np.ndarray) -> Any:
    """Draw some samples before and after as images, or all in the first plane."""
    from gpukpca.plotting import ImageRowsDisplay, ScoresDisplay
    from gpukpca.plotting.display import new_figure

    title = f"{title_of(options.source)}, denoised by {options.model.name}"
    if options.image_shape is not None:
        chosen = np.linspace(0, len(points) - 1, min(PICTURED, len(points))).astype(int)
        rows = {"given": X[chosen], "denoised": points[chosen]}
        figure = ImageRowsDisplay(rows, options.image_shape, grays="denoised").plot().figure_
        figure.suptitle(title, fontsize=8, parse_math=False)
        return figure
    # Missing cells are drawn where the model puts them.
    imputed = np.where(np.isnan(X), points, X).astype(np.float64)
    plane = PCA(2).fit(imputed)
    figure = new_figure(9.6, 4.4, title)
    axes = figure.subplots(1, 2, sharex=True, sharey=True)
    for ax, shown, name in zip(axes, (imputed, points.astype(np.float64)), ("given", "denoised"), strict=True):
        ScoresDisplay.from_estimator(plane, shown, labels=table.labels, ax=ax)
        ax.set_title(name)
    return figure
