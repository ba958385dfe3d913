"""The commands `fit` and `plan`: check, read, fit, write, print."""

from __future__ import annotations

import json
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import fields, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from rich.console import Console
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from gpukpca._files import replaced_whole
from gpukpca.algorithms.plan import NO_CHECKPOINT
from gpukpca.algorithms.resources import memory_text
from gpukpca.backend.namespace import overflow_allowed
from gpukpca.checkpoint import has_checkpoint
from gpukpca.cli.failures import say
from gpukpca.cli.inputs import OF_MISSING, is_distances, of_distances, read_input, warn_of_empty_rows
from gpukpca.cli.machine import facts_of_run
from gpukpca.cli.methods import METHODS, Method, check_options, drawn_components, given
from gpukpca.cli.outputs import checked_targets, component_names, draw, write_rows
from gpukpca.cli.report import ProgressBar, counting, show_run, show_table, taken
from gpukpca.cli.table import ROLES, InputOptions, Table, check_memory, input_options
from gpukpca.data.finite import FINITE, check_finite
from gpukpca.decomposition._dask import shared_rows
from gpukpca.decomposition._model_files import write_model
from gpukpca.distributed.client import connected
from gpukpca.exceptions import InvalidParameterError

# The warning of the library on rows without any value, in place of which the shell names the lines of the file.
EMPTY_ROWS = "rows without any observed entry"
# Name in the metadata -> a number of a fit, where the model has it.
NUMBERS = {"passes": "n_passes_", "iterations": "n_iter_"}
NUMBERS |= {name: f"{name}_" for name in ("n_components", "n_clusters", "noise_variance", "certificate")}


def run_plan(options: SimpleNamespace) -> None:
    """Print what `gpukpca fit INPUT` would do: solver, storage of the kernel matrix, memory, bytes read.

    The options are those of `gpukpca fit`, without outputs and checkpoints. Nothing is fitted. --samples and --features
    stand for dense data in place of INPUT.

    Examples: gpukpca plan X.npy --kernel rbf -n 20 --memory-limit 8GiB

    gpukpca plan --samples 1e6 --features 100 --dtype float32 -n 20 --memory-limit 64GiB --n-jobs 16 --json
    """
    method, model = _method_and_model(options, 0)
    if method.no_plan:
        raise ValueError(f"--method {method.name} has no plan; {method.no_plan}.")
    heading = ""
    if options.source is None:
        shape = _planned_shape(options)
        _set_default_count(options, method, model, shape)
        plan = model.plan(shape, dtype=options.dtype)
    elif (options.samples, options.features) != (None, None):
        raise ValueError("INPUT and --samples or --features contradict each other; give INPUT or the other two.")
    else:
        with _cluster(model, options.scheduler) as shared:
            table, _, _ = _prepared(options, method, model)
            plan, heading = model.plan(shared(table.X)), f"input     {taken(table)}\n"
    say(json.dumps(plan.to_dict()) if options.as_json else f"{heading}{plan}")


def _planned_shape(options: SimpleNamespace) -> tuple[int, int]:
    """Return the rows and columns of a plan without an input."""
    if None in (options.samples, options.features):
        raise ValueError("there is nothing to plan; give INPUT, or both --samples and --features.")
    for name in (*(one.name for one in fields(InputOptions) if one.name != "dtype"), "scheduler"):
        if name in vars(options) and given(name):
            raise InvalidParameterError("a plan by --samples and --features takes no option of INPUT.", argument=name)
    return options.samples, options.features


def run_fit(options: SimpleNamespace) -> None:
    """Compute the principal components of INPUT, whose rows are samples.

    INPUT is text (.csv, .tsv, .txt, .dat, also with .gz or .zst), .parquet, .npy, .npz (also a sparse matrix of SciPy),
    a folder of zarr, .h5, - for the standard input, or a bundled data set (digits, iris, wine, breast_cancer, foods).
    Options that only some methods read name them in brackets.

    Examples: gpukpca fit digits --kernel rbf --gamma scale -n 10 --output scores.npz --plot plot.png

    gpukpca fit digits --method pca -n 50 --image-shape 8x8 --output scores.npz --plot plot.png

    gpukpca fit digits --gamma scale -n 100 --preimage fixed_point --save model.safetensors
    """
    if options.quiet and options.verbose:
        raise ValueError("--quiet and --verbose contradict each other; give one of them.")
    with ProgressBar(Console(stderr=True), options.quiet, options.verbose) as bar:
        method, model = _method_and_model(options, 0 if options.quiet else bar)
        targets = checked_targets(options)
        with _cluster(model, options.scheduler) as shared:
            table, scaler, notes = _prepared(options, method, model)
            weights = {} if table.weights is None else {"sample_weight": table.weights}
            started = time.perf_counter()
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", EMPTY_ROWS)
                scores = model.fit_transform(shared(table.X), **weights)
            seconds = time.perf_counter() - started
    plan = getattr(model, "plan_", None)
    facts = facts_of_run(table, seconds, targets) | _facts(options, method, model, scores, table)
    # Labels of the samples have the name already.
    arrays = {"clusters" if name == "labels" else name: getattr(model, f"{name}_") for name in method.arrays}
    arrays |= {"certificate": facts.get("certificate"), "sample_weight": table.weights}
    if scaler is not None:
        arrays |= {"scaler_mean": scaler.mean_, "scaler_scale": scaler.scale_}
    with replaced_whole(*targets.values()) as files:  # all files whole, or none is touched
        for (name, path), file in zip(targets.items(), files, strict=True):
            if name == "output":
                write_rows(file, path, "scores", scores, component_names(scores.shape[1]), table, arrays, facts)
            elif name == "plot":
                draw(file, path, method.draw(options, model, scores, table))
            else:
                write_model(file, model if scaler is None else Pipeline([("scale", scaler), ("model", model)]), notes)
    if options.quiet:
        return
    show_table(*method.table(model))
    missing = f"{facts['missing']} of {table.X.size} cells" if facts["missing"] else ""
    # The files of another fit in the folder do not count.
    writes = options.checkpoint is not None and plan is not None and NO_CHECKPOINT not in plan.notes
    folder = f"in {options.checkpoint}" if writes and has_checkpoint(options.checkpoint) else ""
    place = ("checkpoint", bar.resumed or folder)
    memory = "" if plan is None else f"of the fit {memory_text(plan.predicted_bytes, plan.available_bytes)}"
    show_run([("missing", missing), ("scaled", facts["scaled"]), *method.lines(model), place], facts, memory)


def _method_and_model(options: SimpleNamespace, listener: Any) -> tuple[Method, Any]:
    """Return method and estimator, with all checks that need no input."""
    method = METHODS[options.method]
    check_options(method, options)
    return method, method.estimator_from(options, listener)


def _prepared(
    options: SimpleNamespace, method: Method, model: Any
) -> tuple[Table, StandardScaler | None, dict[str, Any]]:
    """Read the input, set the default count, standardize columns where --scale is given.

    Return the table, the scaler, and the notes of a model file.
    """
    table = read_input(options.source, missing=method.takes_missing, **input_options(options))
    distances = options.kernel == "precomputed" and is_distances(table.X)
    table = of_distances(table) if distances else table
    _set_default_count(options, method, model, table.X.shape)
    names = table.feature_names or ()
    if vars(options).get("components") and isinstance(count := model.n_components, int):
        drawn_components(options, count)
    if vars(options).get("save") and len(set(names)) < len(names):
        ((name, times),) = Counter(names).most_common(1)
        raise InvalidParameterError(
            f"--save: {times} columns of {options.source} have the name {name!r}, by which a model finds them; rename "
            "one, or leave it out by its number, such as --drop '#3'."
        )
    if (name := counting(table)) and not distances:
        what = f"column {name} counts the rows, as an identifier does, and is used as a feature"
        leave = f"--index-column {name} makes names of it, --drop {name} leaves it out."
        warnings.warn(f"{what}: {leave}", UserWarning, stacklevel=2)
    if method.takes_missing:
        warn_of_empty_rows(table, options.source)
    if vars(options).get("image_shape"):
        from gpukpca.plotting.images import check_image_shape

        check_image_shape(options.image_shape, table.X.shape[1])
    notes = {"method": method.name, "feature_names": table.feature_names, "distances": distances}
    notes |= {f"{role}_name": table.columns.get(role, "") for role in ROLES}
    if not options.scale or "scale" in model.get_params():
        return table, None, notes
    return *_standardized(table, method.takes_missing), notes


def _standardized(table: Table, missing: bool) -> tuple[Table, StandardScaler]:
    """Return the table in columns of mean 0 and deviation 1 (over n - 1), and the scaler."""
    X = table.read()
    if not isinstance(X, np.ndarray):
        raise ValueError("--scale centers columns, which fills a sparse matrix; leave it out, or give a dense one.")
    check_finite(X, FINITE, missing=missing, of_missing=OF_MISSING)
    check_memory(X.size * (4 if X.dtype == np.float32 else 8), "the standardized matrix")
    scaler = StandardScaler()
    counted = X if table.weights is None else X[table.weights > 0]
    low, high = np.fmin.reduce(counted), np.fmax.reduce(counted)
    with overflow_allowed():
        scaler.fit(X, sample_weight=table.weights)
        # As `PCA(scale=True)` and R; the scale of a constant column is 1, whatever its rounded variance.
        seen = scaler.n_samples_seen_
        degrees = np.where(seen >= 2, seen - 1, seen)
        constant = (scaler.scale_ == 1.0) & (scaler.var_ != 1.0)
        scaler.scale_ = np.where(constant, 1.0, scaler.scale_ * np.sqrt(seen / degrees))
        X = scaler.transform(X)
    lost = np.where(scaler.var_ == 0.0, low < high, ~np.isfinite(scaler.var_) & np.isfinite(low))
    if len(columns := np.flatnonzero(lost)):
        raise ValueError(
            f"--scale: the variance of column {columns[0]} is beyond the range of float64; change its unit."
        )
    return replace(table, X=X), scaler


def _set_default_count(options: SimpleNamespace, method: Method, model: Any, shape: tuple[int, int]) -> None:
    """Set the default number of components for data of a shape, where the options give none."""
    if options.n_components is None and (count := method.default_count(*shape)) is not None:
        model.set_params(n_components=count)


@contextmanager
def _cluster(model: Any, address: str | None) -> Iterator[Callable[[Any], Any]]:
    """Yield the function that shares rows out to the workers of the scheduler at an address; without one, it does not.

    The fits and plans of the estimator then run on the workers.
    """
    with nullcontext() if address is None else connected(address) as client:
        yield (lambda X: X) if client is None else partial(shared_rows, model, client=client)


def _facts(options: SimpleNamespace, method: Method, model: Any, scores: Any, table: Table) -> dict[str, Any]:
    """Return the metadata of a fit, in JSON's types."""
    parameters = {name: value for name, value in model.get_params(deep=False).items() if name != "verbose"}
    plan = getattr(model, "plan_", None)
    numbers = {name: np.asarray(getattr(model, held)) for name, held in NUMBERS.items() if hasattr(model, held)}
    return {
        "method": method.name,
        "missing": table.count_missing() if method.takes_missing else 0,
        "scaled": "columns to mean 0 and standard deviation 1 (over n - 1)" if options.scale else "",
        "parameters": parameters,
        "plan": "" if plan is None else str(plan),
        "device": model.device_,
        "dtype": str(np.asarray(scores).dtype),
        "solver": getattr(model, "solver_", ""),
        "fallbacks": list(model.fallbacks_),
        "converged": bool(model.converged_),
        **{name: value.item() for name, value in numbers.items() if value.ndim == 0},
        "bic": {f"{k} clusters, {p} components": float(bic) for (k, p), bic in getattr(model, "bic_", {}).items()},
    }
