"""The files that a command writes: check all targets first, then write all of them whole, or none."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import numpy as np

from gpukpca._files import plain_target
from gpukpca.cli.table import Table
from gpukpca.cli.text import quoted

TABLES, PICTURES, MODELS = (".npz", ".csv", ".npy"), (".png", ".pdf", ".svg"), (".safetensors",)
# Option -> the suffixes that its file may have.
SUFFIXES: dict[str, tuple[str, ...]] = {"output": TABLES, "plot": PICTURES, "save": MODELS}


def checked_targets(options: SimpleNamespace) -> dict[str, Path]:
    """Return the files that a command will write, by option; raise before any work for one that cannot be written."""
    targets = {name: path for name in SUFFIXES if (path := vars(options).get(name)) is not None}
    is_fit = "save" in vars(options)  # which prints its table
    if options.output is None and not (is_fit and (targets or not options.quiet)):
        others = " for the scores, --save for the model, --plot for a picture" if is_fit else ""
        raise ValueError(f"nothing would be written: give --output{others}.")
    for name, path in targets.items():
        _check_target(f"--{name}", path, SUFFIXES[name], options)
    for name in ("image_shape", "components"):
        if vars(options).get(name) is not None and options.plot is None:
            raise ValueError(f"--{name.replace('_', '-')} is for pictures: give --plot as well.")
    if "plot" in targets:
        from gpukpca.plotting.display import figure_class

        try:
            figure_class()
        except ImportError as error:
            raise ValueError(f"--plot: {error}") from error
    return targets


def _check_target(option: str, path: Path, suffixes: tuple[str, ...], options: SimpleNamespace) -> None:
    """Raise for a wrong suffix, the input, a link, no permission, or a file without --force."""
    label = f"{option} {path}"
    if path.suffix.lower() not in suffixes:
        raise ValueError(f"{label}: the name must end in {', '.join(suffixes)}.")
    if path.is_symlink():
        raise OSError(f"{label} is a link and would be replaced; name a plain file.")
    plain_target(path, label)
    for name, what in (("source", "the input"), ("model", "the model")):
        other = vars(options).get(name)
        if other is not None and path.exists() and Path(other).exists() and path.samefile(other):
            raise ValueError(f"{label} is {what} itself.")
    if path.exists() and not options.force:
        raise FileExistsError(f"{label} exists; --force replaces it.")


def write_rows(
    file: IO[bytes],
    path: Path,
    name: str,
    rows: np.ndarray,
    columns: Sequence[str],
    table: Table,
    arrays: dict[str, Any],
    facts: dict[str, Any],
) -> None:
    """Write rows (n, p) with names, labels, arrays and facts as .npz, or rows alone as .csv or .npy.

    A .csv file has the «clusters» among `arrays`, without which the scores of a local PCA mean nothing.
    """
    if path.suffix.lower() == ".csv":
        before = {"sample": table.sample_names, "label": table.labels, "cluster": arrays.get("clusters")}
        _write_csv(file, rows, columns, before)
        return
    if path.suffix.lower() == ".npy":
        np.save(file, rows)
        return
    arrays = {name: rows, **arrays, "metadata": np.array(json.dumps(facts, default=str))}
    optional = {"labels": table.labels, "sample_names": table.sample_names, "feature_names": table.feature_names}
    arrays = {name: np.asarray(values) for name, values in (arrays | optional).items() if values is not None}
    np.savez(file, **arrays)  # no array of objects among them: labels are numbers or text


def component_names(count: int) -> list[str]:
    """Return the headings of scores."""
    return [f"component_{i + 1}" for i in range(count)]


def draw(file: IO[bytes], path: Path, figure: Any) -> None:
    """Write a figure in the format of the suffix."""
    figure.savefig(file, format=path.suffix.lower()[1:])


def _write_csv(file: IO[bytes], rows: np.ndarray, columns: Sequence[str], before: dict[str, Any]) -> None:
    """Write rows with a header, after those of the columns `before` that exist."""
    before = {name: values for name, values in before.items() if values is not None}
    if not before and not columns:  # readers skip lines without a cell
        before = {"sample": range(1, len(rows) + 1)}
    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*before, *map(quoted, columns)])
    for i, row in enumerate(rows):
        # str of a NumPy number: the fewest digits that give it back in its own precision. Adding 0 makes 0 of -0.
        cells = [str(value) for value in row + 0]
        writer.writerow([*(quoted(str(values[i])) for values in before.values()), *cells])
    text.detach()
