"""What the commands ask of a method, and what several methods need."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from gpukpca.checkpoint import check_folder
from gpukpca.cli.scaling import Prepared
from gpukpca.cli.table import Table
from gpukpca.exceptions import InvalidParameterError

DEFAULT_COMPONENTS = 10
RESIDUALS = "relative to the first {}, as --tol is"
# A heading, values, and how one is written.
Column = tuple[str, Any, str]


class Method(ABC):
    """What the commands ask of a method.

    Attributes
    ----------
    name, summary : str
        On the command line, and in its help.
    options : tuple of str
        Those that not every method reads.
    row, first : str, int
        What a row of the table is, and the number of the first.
    takes_missing : bool
        Whether a cell may be empty.
    """

    name: str
    summary: str
    options: tuple[str, ...]
    row, first = "component", 1
    takes_missing = False

    @abstractmethod
    def model(self, wanted: SimpleNamespace, listener: Any, given: Callable[[str], bool]) -> Any:
        """The estimator, its parameters checked; `given` says whether an option was written."""

    @abstractmethod
    def prepared(self, wanted: SimpleNamespace, model: Any, table: Table) -> Prepared:
        """The data as the model takes them; sets how many components by default."""

    @abstractmethod
    def title(self, wanted: SimpleNamespace) -> str:
        """In the heading of the picture."""

    @abstractmethod
    def columns(self, model: Any) -> list[Column]:
        """Of the table, after the number of the row."""

    def together(self, model: Any) -> str:
        """What is said of all rows where the table shows the first ones only."""
        ratios = np.asarray(model.explained_variance_ratio_, dtype=np.float64)
        return f"all {len(ratios)} together carry {np.sum(ratios):.5f} of the variance"

    @abstractmethod
    def arrays(self, model: Any) -> dict[str, Any]:
        """What an .npz file holds beside scores, names and metadata."""

    @abstractmethod
    def facts(self, model: Any) -> dict[str, Any]:
        """Of the metadata, what only this method has."""

    @abstractmethod
    def lines(self, model: Any) -> list[tuple[str, str]]:
        """What ran and why, as labels and values; empty values are left out."""

    def plan(self, model: Any, X: Any) -> Any:
        """What `gpukpca plan` prints."""
        return model.plan(X)

    def figure(self, wanted: SimpleNamespace, model: Any, scores: Any, table: Table) -> Any:
        """The picture of a fit."""
        from gpukpca.plotting import plot_fit

        return plot_fit(model, scores, table.labels, table.sample_names, self.heading(wanted, len(scores)))

    def heading(self, wanted: SimpleNamespace, n: int) -> str:
        """Of the picture."""
        return f"{Path(wanted.source).stem}, {self.title(wanted)}, n = {n}"


def check_count(value: Any, method: str, *others: str) -> None:
    """Raise for what -n may not be with a method: a count always, and `others`, «share» and words."""
    if isinstance(value, int) and value < 1:
        raise InvalidParameterError(f"-n {value} leaves nothing; give at least 1 component.")
    kind = "share" if isinstance(value, float) else value
    if kind == "share" and "share" in others and not 0 < value < 1:
        raise InvalidParameterError(f"-n {value}: a share of the variance lies between 0 and 1, and a count is whole.")
    if value is None or isinstance(value, int) or kind in others:
        return
    allowed = " or ".join(["a count", *("a share of the variance" if other == "share" else other for other in others)])
    raise InvalidParameterError(f"-n {value}: --method {method} takes {allowed}.")


def components_parameter(wanted: SimpleNamespace) -> dict[str, Any]:
    """Of the estimator, to which «all» is None; what None means on the command line depends on the data."""
    return {"n_components": None if wanted.n_components == "all" else wanted.n_components}


def checkpoint_parameter(wanted: SimpleNamespace) -> dict[str, Any]:
    """Of the estimator; a plan has none. The folder is checked before the input is read."""
    folder = getattr(wanted, "checkpoint", None)
    check_folder(folder)
    return {"checkpoint": None if folder is None else str(folder)}


def variance_ratios(model: Any) -> list[Column]:
    """Shares of the variance, and their running sum."""
    ratios = np.asarray(model.explained_variance_ratio_, dtype=np.float64)
    return [("variance ratio", ratios, ".5f"), ("cumulative", np.cumsum(ratios), ".5f")]


def relative_residuals(values: Any, norms: Any) -> Any:
    """Return residual norms in units of the largest of the values that they belong to."""
    largest = float(values[0]) if len(values) else 0.0
    return np.asarray(norms, dtype=np.float64) / (largest if largest > 0 else 1.0)
