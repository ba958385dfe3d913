"""The commands `fit` and `plan`: check, read, fit, write, show."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from rich.console import Console

from gpukpca._files import replaced_whole
from gpukpca.algorithms.progress import NO_CHECKPOINT
from gpukpca.algorithms.resources import parsed_bytes
from gpukpca.checkpoint import has_checkpoint
from gpukpca.cli.inputs import how_to_read, read_input
from gpukpca.cli.machine import versions
from gpukpca.cli.method import Method
from gpukpca.cli.methods import METHODS, check_options
from gpukpca.cli.options import given
from gpukpca.cli.outputs import checked_targets, component_names, draw, write_rows
from gpukpca.cli.report import ProgressBar, peak_memory_mib, show_run, show_table
from gpukpca.cli.scaling import Prepared
from gpukpca.cli.scheduler import shared_out
from gpukpca.cli.table import Table, abbreviated
from gpukpca.cli.terminal import say
from gpukpca.persistence import save_with_notes


def run_plan(wanted: SimpleNamespace) -> None:
    """Check, read, and print the plan."""
    method, model = method_and_model(wanted, 0)
    with shared_out(model, wanted.scheduler):
        say(str(method.plan(model, method.prepared(wanted, model, read_table(wanted, method)).table.X)))


def method_and_model(wanted: SimpleNamespace, listener: Any) -> tuple[Method, Any]:
    """The method asked for and its estimator, with all that can be checked before the input is read."""
    method = METHODS[wanted.method]
    check_options(method, given)
    if wanted.memory_limit is not None:
        parsed_bytes(wanted.memory_limit)
    return method, method.model(wanted, listener, given)


def read_table(wanted: SimpleNamespace, method: Method) -> Table:
    """The input."""
    return read_input(wanted.source, missing=method.takes_missing, **how_to_read(wanted))


def run_fit(wanted: SimpleNamespace) -> None:
    """Check, read, fit, write, show."""
    if wanted.output is None and wanted.save is None and wanted.plot is None:
        raise ValueError(
            "nothing would be written: give --output for the scores, --save for the model, --plot for a picture."
        )
    if wanted.quiet and wanted.verbose:
        raise ValueError("--quiet and --verbose contradict each other; give one of them.")
    targets = checked_targets(wanted, wanted.source)
    console = Console(stderr=True)
    with ProgressBar(console, lines=wanted.verbose) as bar:
        method, model = method_and_model(wanted, 0 if wanted.quiet else bar)
        with shared_out(model, wanted.scheduler):
            prepared = method.prepared(wanted, model, read_table(wanted, method))
            started = time.perf_counter()
            scores = model.fit_transform(prepared.table.X)
            seconds = time.perf_counter() - started
    facts = facts_of(wanted, method, model, scores, prepared, seconds)
    facts["checkpoint"] = _checkpoint_in_words(wanted, bar.resumed, getattr(model, "plan_", None))
    facts["written"] = [str(path) for path in targets.values()]
    write_all(wanted, method, model, scores, prepared, facts, targets)
    if not wanted.quiet:
        out = Console()
        show_table(out, method.row, method.first, method.columns(model), method.together(model))
        show_run(out, method.lines(model), prepared.table.X.shape, getattr(model, "plan_", None), facts)


def _checkpoint_in_words(wanted: SimpleNamespace, resumed: str, plan: Any) -> str:
    """Where the state of the fit is, and whether it was gone on from; files of another fit are none of this one's."""
    none_of_it = plan is not None and NO_CHECKPOINT in plan.notes
    if resumed or none_of_it or wanted.checkpoint is None or not has_checkpoint(wanted.checkpoint):
        return resumed
    return f"in {wanted.checkpoint}"


def facts_of(
    wanted: SimpleNamespace, method: Method, model: Any, scores: Any, prepared: Prepared, seconds: float
) -> dict[str, Any]:
    """What is kept as metadata, in JSON's types."""
    parameters = model.get_params(deep=False)
    parameters.pop("verbose")
    if "eigen_solver" in parameters:
        parameters["eigen_solver"] = str(parameters["eigen_solver"])
    return {
        "versions": versions(),
        "method": method.name,
        "input": prepared.table.source,
        "columns": abbreviated(prepared.table.feature_names or ()) or f"{prepared.table.X.shape[1]} without names",
        "missing": int(np.sum(np.isnan(prepared.table.X))) if method.takes_missing else 0,
        "scaled": prepared.words,
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
    }


def write_all(
    wanted: SimpleNamespace,
    method: Method,
    model: Any,
    scores: Any,
    prepared: Prepared,
    facts: dict[str, Any],
    targets: dict[str, Path],
) -> None:
    """Scores, plot and model: all files whole, or none is touched."""
    table, drawn = prepared.table, {name: path for name, path in targets.items() if name != "save"}
    with replaced_whole(*drawn.values()) as files:
        for (name, path), file in zip(drawn.items(), files, strict=True):
            if name == "output":
                columns = component_names(scores.shape[1])
                write_rows(file, path, "scores", scores, columns, table, method.arrays(model), facts)
            else:
                draw(file, path, method.figure(wanted, model, scores, table))
        if "save" in targets:
            save_with_notes(model, targets["save"], notes_of(method, prepared))


def notes_of(method: Method, prepared: Prepared) -> dict[str, Any]:
    """What new rows need beside the model: how columns were standardized, and what they are called."""
    scaling = None if prepared.scaling is None else prepared.scaling.notes()
    return {"method": method.name, "scaling": scaling, "feature_names": prepared.table.feature_names}
