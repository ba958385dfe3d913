"""The commands `fit` and `plan`: check, read, fit, write, print."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from rich.console import Console
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from gpukpca._files import replaced_whole
from gpukpca.algorithms.progress import NO_CHECKPOINT
from gpukpca.backend.namespace import overflow_allowed
from gpukpca.checkpoint import has_checkpoint
from gpukpca.cli.failures import say
from gpukpca.cli.inputs import read_input
from gpukpca.cli.machine import cost
from gpukpca.cli.methods import METHODS, Method, check_options, given
from gpukpca.cli.outputs import checked_targets, component_names, draw, write_rows
from gpukpca.cli.report import ProgressBar, logged, show_run, show_table
from gpukpca.cli.table import InputOptions, Table, abbreviated, check_memory, input_options
from gpukpca.data.finite import check_finite
from gpukpca.data.gate import counting_column
from gpukpca.decomposition._dask import shared_rows
from gpukpca.decomposition._model_files import write_model
from gpukpca.distributed.client import connected
from gpukpca.exceptions import InvalidParameterError


def run_plan(options: SimpleNamespace) -> None:
    """Check, read where there is an input, and print the plan."""
    method, model = _method_and_model(options, 0)
    if method.no_plan:
        raise ValueError(f"--method {method.name} has no plan; {method.no_plan}.")
    if (shape := _planned_shape(options)) is not None:
        _set_default_count(options, method, model, shape)
        plan = model.plan(shape, dtype=options.dtype)
    else:
        with _cluster(model, options.scheduler) as shared:
            table, _ = _prepared(options, method, model)
            plan = model.plan(shared(table.X))
    say(json.dumps(plan.to_dict()) if options.as_json else str(plan))


def _planned_shape(options: SimpleNamespace) -> tuple[int, int] | None:
    """Return the rows and columns of a plan without an input; None with one. Raise where the options contradict."""
    n, d = options.samples, options.features
    if n is None and d is None:
        if options.source is None:
            raise ValueError("there is nothing to plan; give INPUT, or --samples and --features.")
        return None
    if options.source is not None:
        raise ValueError("INPUT and --samples or --features contradict each other; give INPUT or the other two.")
    if n is None or d is None:
        raise ValueError("--samples and --features are the shape of the data together; give both.")
    for name in (*(one.name for one in fields(InputOptions) if one.name != "dtype"), "scheduler"):
        if name in vars(options) and given(name):
            raise InvalidParameterError("a plan by --samples and --features takes no option of INPUT.", argument=name)
    return n, d


def run_fit(options: SimpleNamespace) -> None:
    """Check, read, fit, write, print."""
    if options.quiet and options.verbose:
        raise ValueError("--quiet and --verbose contradict each other; give one of them.")
    log = logged() if options.verbose else nullcontext()
    with log, ProgressBar(Console(stderr=True), hidden=options.verbose) as bar:
        method, model = _method_and_model(options, 0 if options.quiet else bar)
        targets = checked_targets(options)
        with _cluster(model, options.scheduler) as shared:
            table, scaler = _prepared(options, method, model)
            started = time.perf_counter()
            scores = model.fit_transform(shared(table.X))
            seconds = time.perf_counter() - started
    plan = method.plan_of(model)
    facts = _facts(options, method, model, scores, table, scaler) | cost(seconds, targets)
    facts["checkpoint"] = _checkpoint_line(options, bar.resumed, plan)
    _write(options, method, model, scores, table, scaler, facts, targets)
    if not options.quiet:
        out = Console()
        show_table(out, method.row, method.first, method.columns(model), method.summary_of_rows(model))
        show_run(out, method.lines(model), table.X.shape, plan, facts)


def _method_and_model(options: SimpleNamespace, listener: Any) -> tuple[Method, Any]:
    """Return the method and its estimator, with all that can be checked before the input is read."""
    method = METHODS[options.method]
    check_options(method, options)
    return method, method.estimator_from(options, listener)


def _prepared(options: SimpleNamespace, method: Method, model: Any) -> tuple[Table, StandardScaler | None]:
    """Read the input, set the default number of components, and standardize the columns where --scale is given."""
    table = read_input(options.source, missing=method.takes_missing, **input_options(options))
    _set_default_count(options, method, model, table.X.shape)
    if options.kernel != "precomputed" and table.feature_names and (j := counting_column(table.X)) is not None:
        name = table.feature_names[j]
        warnings.warn(
            f"column {name} counts the rows, as an identifier does, and is used as a feature: --index-column {name} "
            f"makes names of it, --drop {name} leaves it out.",
            UserWarning,
            stacklevel=2,
        )
    if vars(options).get("image_shape") is not None:
        from gpukpca.plotting.images import check_image_shape

        check_image_shape(options.image_shape, table.X.shape[1])
    if not options.scale or "scale" in model.get_params():
        return table, None
    X = table.X[:]
    if not isinstance(X, np.ndarray):
        raise ValueError("--scale centers columns, which fills a sparse matrix; leave it out, or give a dense one.")
    check_finite(X, "Impute or drop missing values first.", missing=method.takes_missing)
    check_memory(X.size * (4 if X.dtype == np.float32 else 8), "the standardized matrix")
    scaler = StandardScaler()
    low, high = np.fmin.reduce(X), np.fmax.reduce(X)
    with overflow_allowed():
        scaler.fit(X)
        # Over n - 1, as `PCA(scale=True)` and R; the scale of a constant column is 1, whatever its rounded variance.
        seen = scaler.n_samples_seen_
        scaler.scale_ = np.where(scaler.scale_ == 1.0, 1.0, scaler.scale_ * np.sqrt(seen / np.maximum(seen - 1, 1)))
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
    if address is None:
        yield lambda X: X
        return
    with connected(address) as client:
        yield partial(shared_rows, model, client=client)


def _checkpoint_line(options: SimpleNamespace, resumed: str, plan: Any) -> str:
    """Return where the state of the fit is, and whether it resumed; files of another fit do not count."""
    unused = plan is not None and NO_CHECKPOINT in plan.notes
    if resumed or unused or options.checkpoint is None or not has_checkpoint(options.checkpoint):
        return resumed
    return f"in {options.checkpoint}"


def _scaled_line(scale: np.ndarray) -> str:
    """Return what was done to the columns."""
    constant = int(np.sum(scale == 1.0))
    line = f"{len(scale) - constant} columns to mean 0 and standard deviation 1 (over n - 1)"
    return line + (f"; {constant} constant, only centered" if constant else "")


def _facts(
    options: SimpleNamespace, method: Method, model: Any, scores: Any, table: Table, scaler: StandardScaler | None
) -> dict[str, Any]:
    """Return the metadata of a fit, in JSON's types."""
    parameters = model.get_params(deep=False)
    parameters.pop("verbose")
    if parameters.get("checkpoint") is not None:
        parameters["checkpoint"] = parameters["checkpoint"].folder
    if "eigen_solver" in parameters:
        parameters["eigen_solver"] = str(parameters["eigen_solver"])
    plan = method.plan_of(model)
    return {
        "method": method.name,
        "input": table.source,
        "columns": abbreviated(table.feature_names or ()) or f"{table.X.shape[1]} without names",
        "missing": table.count_missing() if method.takes_missing else 0,
        "scaled": _scaled_line(np.asarray((scaler or model).scale_)) if options.scale else "",
        "transposed": options.transpose,
        "parameters": parameters,
        "plan": "" if plan is None else str(plan),
        "device": model.device_,
        "dtype": str(np.asarray(scores).dtype),
        "solver": "" if method.name == "local" else model.solver_,
        "fallbacks": list(model.fallbacks_),
        "converged": bool(model.converged_),
        **method.facts(model),
    }


def _write(
    options: SimpleNamespace,
    method: Method,
    model: Any,
    scores: Any,
    table: Table,
    scaler: StandardScaler | None,
    facts: dict[str, Any],
    targets: dict[str, Path],
) -> None:
    """Write scores, plot and model: all files whole, or none is touched."""
    # Labels of the samples have the name already.
    arrays = {"clusters" if name == "labels" else name: getattr(model, f"{name}_") for name in method.arrays}
    arrays = {name: values for name, values in arrays.items() if values is not None}
    if facts.get("certificate") is not None:
        arrays["certificate"] = facts["certificate"]
    if scaler is not None:
        arrays |= {"scaler_mean": scaler.mean_, "scaler_scale": scaler.scale_}
    with replaced_whole(*targets.values()) as files:
        for (name, path), file in zip(targets.items(), files, strict=True):
            if name == "output":
                write_rows(file, path, "scores", scores, component_names(scores.shape[1]), table, arrays, facts)
            elif name == "plot":
                draw(file, path, method.draw(options, model, scores, table))
            else:
                columns = {"index_name": table.index_name, "label_name": table.label_name}
                pipeline = model if scaler is None else Pipeline([("scale", scaler), ("model", model)])
                write_model(file, pipeline, {"method": method.name, "feature_names": table.feature_names} | columns)
