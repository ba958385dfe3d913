"""Local PCA on the command line."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from gpukpca import LocalPCA
from gpukpca._formatting import pluralize
from gpukpca.cli.method import Column, Method, check_count
from gpukpca.cli.scaling import Prepared
from gpukpca.cli.table import Table
from gpukpca.exceptions import InvalidParameterError

DEFAULT_CLUSTERS, DEFAULT_DIMENSION = 2, 2


class LocalMethod(Method):
    """Clusters, each with axes of its own."""

    name = "local"
    summary = "a PCA for every cluster of the samples"
    options = ("clusters", "hard", "max_iter")
    # Numbered as in the files.
    row, first = "cluster", 0

    def model(self, wanted: SimpleNamespace, listener: Any, given: Callable[[str], bool]) -> LocalPCA:
        """The estimator."""
        names = ("device", "memory_limit", "n_jobs", *(name for name in ("tol", "max_iter") if given(name)))
        parameters = {name: getattr(wanted, name) for name in names}
        check_count(wanted.n_components, self.name, "bic")
        parameters["n_components"] = wanted.n_components
        parameters["method"] = "hard" if wanted.hard else "mixture"
        return LocalPCA(wanted.clusters, random_state=wanted.seed, verbose=listener, **parameters)

    def prepared(self, wanted: SimpleNamespace, model: LocalPCA, table: Table) -> Prepared:
        """Columns standardized where asked; two axes in a cluster where there is room for noise beside them."""
        if wanted.n_components is None:
            model.set_params(n_components=max(1, min(DEFAULT_DIMENSION, table.X.shape[1] - 1)))
        return Prepared.of(table, wanted.scale)

    def title(self, wanted: SimpleNamespace) -> str:
        """«local PCA of standardized columns»."""
        return "local PCA" + (" of standardized columns" if wanted.scale else "")

    def columns(self, model: LocalPCA) -> list[Column]:
        """One row a cluster."""
        kept = np.sum(np.asarray(model.explained_variance_), axis=1)
        left = np.asarray(model.noise_variance_) * (model.n_features_in_ - model.n_components_)
        return [
            ("samples", np.bincount(np.asarray(model.labels_), minlength=model.n_clusters_), ".0f"),
            ("weight", model.weights_, ".4f"),
            ("variance in its axes", kept, ".6g"),
            ("outside", left, ".6g"),
        ]

    def together(self, model: LocalPCA) -> str:
        """All clusters."""
        return f"{model.n_clusters_} clusters in all"

    def arrays(self, model: LocalPCA) -> dict[str, Any]:
        """Which cluster every sample is in, and the planes."""
        names = ("labels", "weights", "means", "components", "explained_variance", "noise_variance")
        return {"clusters" if name == "labels" else name: getattr(model, f"{name}_") for name in names}

    def facts(self, model: LocalPCA) -> dict[str, Any]:
        """Counts, and what the criterion said of others."""
        table = {f"{k} clusters, {p} components": float(value) for (k, p), value in model.bic_.items()}
        counts = {"n_clusters": int(model.n_clusters_), "n_components": int(model.n_components_)}
        return counts | {"iterations": int(model.n_iter_), "bic": table}

    def lines(self, model: LocalPCA) -> list[tuple[str, str]]:
        """What was chosen, how, and where."""
        found = f"{model.n_clusters_}, each with {pluralize(model.n_components_, 'component')}"
        by = f": the smallest BIC of {len(model.bic_)}" if len(model.bic_) > 1 else ""
        return [
            ("device", model.device_),
            ("clusters", found + by),
            *(("note", note) for note in model.fallbacks_),
            ("iterations", str(model.n_iter_)),
        ]

    def plan(self, model: LocalPCA, X: Any) -> Any:
        """There is none."""
        raise InvalidParameterError(
            f"--method {self.name} has no plan; its memory is that of the data, a d x d matrix and a panel."
        )

    def figure(self, wanted: SimpleNamespace, model: LocalPCA, scores: Any, table: Table) -> Any:
        """The clusters with their axes, beside the one PCA of all."""
        from gpukpca.plotting import LocalDisplay
        from gpukpca.plotting.display import new_figure

        figure = new_figure(6.8, 5.6, self.heading(wanted, len(scores)))
        ax = figure.subplots()
        LocalDisplay.from_estimator(model, table.X, ax=ax)
        names = table.feature_names
        if names is not None and len(names) == 2:
            ax.set_xlabel(names[0], parse_math=False)
            ax.set_ylabel(names[1], parse_math=False)
        return figure
