"""The files that a command writes: targets checked first, then all of them whole, or none."""

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

TABLES, PICTURES, MODELS = (".npz", ".csv", ".npy"), (".png", ".pdf", ".svg"), (".npz",)
# Option -> the suffixes its file may have.
SUFFIXES = {"output": TABLES, "plot": PICTURES, "save": MODELS}


def checked_targets(wanted: SimpleNamespace, source: str) -> dict[str, Path]:
    """The files that a command is to write, by option; raise for what could not be written, before any work."""
    targets = {name: getattr(wanted, name) for name in SUFFIXES if getattr(wanted, name, None) is not None}
    for name, path in targets.items():
        check_target(f"--{name}", path, SUFFIXES[name], wanted.force, source)
    if len({path.absolute() for path in targets.values()}) < len(targets):
        raise ValueError(f"{' and '.join(f'--{name}' for name in targets)} name the same file.")
    if "plot" in targets:
        from gpukpca.plotting.display import figure_class

        try:
            figure_class()
        except ImportError as error:
            raise ValueError(f"--plot: {error}") from error
    return targets


def check_target(option: str, path: Path, suffixes: tuple[str, ...], force: bool, source: str) -> None:
    """Raise before any work where `path` could not be written afterwards.

    Raises
    ------
    ValueError
        A suffix that says no known format; the input itself.
    OSError
        No such folder, not writable, a directory, a link, a device, or there already without `force`.
    """
    if path.suffix.lower() not in suffixes:
        raise ValueError(f"{option} {path}: the name must end in {', '.join(suffixes)}.")
    label = f"{option} {path}"
    if path.is_symlink():
        raise OSError(f"{label} is a link and would be replaced; name a plain file.")
    plain_target(path, label)
    if path.exists() and Path(source).exists() and path.samefile(source):
        raise ValueError(f"{option} {path} is the input itself.")
    if path.exists() and not force:
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
    """Rows and all that belongs to them as .npz, or rows alone as .csv or .npy.

    Parameters
    ----------
    file : binary file
    path : Path
        Its suffix says the format.
    name : str
        Of the rows in an .npz file.
    rows : array, shape (n, p)
    columns : sequence of p str
        The header of a .csv file.
    table : Table
        Where names and labels come from.
    arrays, facts : dict
        What else an .npz file holds; `facts` as JSON. Of `arrays` a .csv file has «clusters», without which the scores
        of a local PCA say nothing.
    """
    if path.suffix.lower() == ".csv":
        _write_csv(file, rows, columns, {"sample": table.sample_names, "cluster": arrays.get("clusters")})
        return
    if path.suffix.lower() == ".npy":
        np.save(file, rows)
        return
    arrays = {name: rows, **arrays, "metadata": np.array(json.dumps(facts))}
    optional = {"labels": table.labels, "sample_names": table.sample_names, "feature_names": table.feature_names}
    arrays |= {name: np.asarray(values) for name, values in optional.items() if values is not None}
    np.savez(file, **arrays)  # no array of objects among them: labels are numbers or text


def component_names(count: int) -> list[str]:
    """Headings of scores."""
    return [f"component_{i + 1}" for i in range(count)]


def draw(file: IO[bytes], path: Path, figure: Any) -> None:
    """The figure, in the format that the name of the plot says."""
    figure.savefig(file, format=path.suffix.lower()[1:])


def _write_csv(file: IO[bytes], rows: np.ndarray, columns: Sequence[str], before: dict[str, Any]) -> None:
    """Rows with a header, after the columns `before` that there are."""
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
