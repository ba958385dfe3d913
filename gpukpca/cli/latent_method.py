"""Probabilistic and Bayesian PCA on the command line."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from gpukpca import BayesianPCA, ProbabilisticPCA
from gpukpca._formatting import pluralize
from gpukpca.cli.method import DEFAULT_COMPONENTS, Column, Method, check_count, variance_ratios
from gpukpca.cli.scaling import Prepared
from gpukpca.cli.table import Table
from gpukpca.exceptions import InvalidParameterError


class LatentMethod(Method):
    """What both have: a noise variance, and data with missing cells."""

    options = ("max_iter",)
    takes_missing = True
    estimator: type

    def model(self, wanted: SimpleNamespace, listener: Any, given: Callable[[str], bool]) -> Any:
        """The estimator; components are counted here, as a noise variance leaves no share to reach."""
        names = ("device", "memory_limit", "n_jobs", *(name for name in ("tol", "max_iter") if given(name)))
        parameters = {name: getattr(wanted, name) for name in names}
        check_count(wanted.n_components, self.name)
        return self.estimator(
            n_components=wanted.n_components, random_state=wanted.seed, verbose=listener, **parameters
        )

    def prepared(self, wanted: SimpleNamespace, model: Any, table: Table) -> Prepared:
        """Columns standardized where asked, by the cells that are there."""
        return Prepared.of(table, wanted.scale, missing=True)

    def title(self, wanted: SimpleNamespace) -> str:
        """«probabilistic PCA of standardized columns»."""
        return self.summary.partition(",")[0] + (" of standardized columns" if wanted.scale else "")

    def columns(self, model: Any) -> list[Column]:
        """Variances of the model along its axes."""
        return [("variance", model.explained_variance_, ".6g"), *variance_ratios(model)]

    def arrays(self, model: Any) -> dict[str, Any]:
        """The model."""
        names = ("components", "mean", "loadings", "explained_variance", "explained_variance_ratio", "noise_variance")
        return {name: getattr(model, f"{name}_") for name in names}

    def facts(self, model: Any) -> dict[str, Any]:
        """Dimension, noise, iterations."""
        return {
            "n_components": int(model.n_components_),
            "noise_variance": float(model.noise_variance_),
            "iterations": int(model.n_iter_),
        }

    def lines(self, model: Any) -> list[tuple[str, str]]:
        """Device, way, noise."""
        steps = "" if model.solver_.startswith("closed_form") else ", " + pluralize(model.n_iter_, "iteration")
        return [
            ("device", model.device_),
            ("solver", model.solver_ + steps),
            *(("note", note) for note in model.fallbacks_),
            ("noise", f"variance {float(model.noise_variance_):.6g} in every other direction"),
        ]

    def plan(self, model: Any, X: Any) -> Any:
        """There is none."""
        raise InvalidParameterError(f"--method {self.name} has no plan; its memory is that of the data and a batch.")


class ProbabilisticMethod(LatentMethod):
    """Probabilistic PCA."""

    name = "ppca"
    summary = "probabilistic PCA, also of data with missing cells"
    estimator = ProbabilisticPCA

    def prepared(self, wanted: SimpleNamespace, model: Any, table: Table) -> Prepared:
        """Ten components, or as many as leave room for noise."""
        if wanted.n_components is None:
            model.set_params(n_components=max(1, min(DEFAULT_COMPONENTS, min(table.X.shape) - 1)))
        return super().prepared(wanted, model, table)


class BayesianMethod(LatentMethod):
    """Bayesian PCA."""

    name = "bayesian"
    summary = "Bayesian PCA, which finds the number of components (-n: at most so many)"
    estimator = BayesianPCA

    def arrays(self, model: Any) -> dict[str, Any]:
        """The model, and how strongly every dimension was held back."""
        return super().arrays(model) | {"precisions": model.precisions_}

    def lines(self, model: Any) -> list[tuple[str, str]]:
        """What was found, first."""
        found = f"{model.n_components_} of {len(model.precisions_)} components are relevant"
        return [("found", found), *super().lines(model)]

    def figure(self, wanted: SimpleNamespace, model: Any, scores: Any, table: Table) -> Any:
        """The usual one, or words where nothing was found."""
        if model.n_components_:
            return super().figure(wanted, model, scores, table)
        from gpukpca.plotting.display import new_figure

        figure = new_figure(6.0, 2.0, self.heading(wanted, len(scores)))
        figure.text(0.5, 0.4, "no direction stands out of the noise", ha="center")
        return figure
