"""The methods of the command line: a class for each, which holds what differs."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from types import SimpleNamespace
from typing import Any, ClassVar

import click
import numpy as np

from gpukpca import PCA, BayesianPCA, KernelPCA, LocalPCA, Nystrom, ProbabilisticPCA
from gpukpca._formatting import format_bytes, pluralize
from gpukpca._rules import closest
from gpukpca.backend.parameters import check_values, parameter_names
from gpukpca.checkpoint import Checkpoint
from gpukpca.cli.failures import SOLVERS
from gpukpca.cli.inputs import title_of
from gpukpca.cli.report import Column, Lines
from gpukpca.cli.table import Table
from gpukpca.decomposition._kernels import NAMED_KERNELS, kernel_from, unused_parameters
from gpukpca.decomposition._kernels import SHARED as KERNEL_DEFAULTS
from gpukpca.decomposition._parameters import check_parameters
from gpukpca.exceptions import InvalidParameterError

DEFAULT_COMPONENTS = 10
# Options that every method reads.
SHARED = ("n_components", "device", "memory_limit", "n_jobs", "tol", "random_state")
# Words for the number of components, and the methods that know them.
COUNT_WORDS = {"mle": ["pca"], "bic": ["local"], "all": ["kernel", "pca"]}
VARIANCES = ("explained_variance", "explained_variance_ratio")


class Method:
    """Hold what methods have in common; a subclass states what differs. Functions take the fitted model."""

    name: str
    summary: str
    estimator: type
    title: str  # of the picture
    options: tuple[str, ...] = ()  # those that not every method reads; parameters of the estimator are passed on
    arrays: tuple[str, ...] = ()  # fitted attributes in an .npz file
    takes_missing = False
    no_plan = ""  # the reason
    spectrum: ClassVar[tuple[str, str]] = ("variance", "explained_variance_")  # heading and attribute

    def default_count(self, n: int, d: int) -> int | None:
        """Return the number of components of n samples with d columns where the options give none."""
        return min(DEFAULT_COMPONENTS, n, d)

    def parameters(self, options: SimpleNamespace) -> dict[str, Any]:
        """Return the parameters that need several options."""
        return {}

    def table(self, model: Any) -> tuple[str, int, list[Column], str]:
        """Return what `show_table` prints: the name of a row, the first number, columns, and a line below a few."""
        heading, attribute = self.spectrum
        values = np.asarray(getattr(model, attribute), dtype=np.float64)
        ratios = np.asarray(model.explained_variance_ratio_, dtype=np.float64)
        columns: list[Column] = [
            (heading, values, ".6g"),
            ("variance ratio", ratios, ".5f"),
            ("cumulative", np.cumsum(ratios), ".5f"),
        ]
        if "residual_norms" in self.arrays:
            largest = float(values[0]) if len(values) and values[0] > 0 else 1.0
            bound = "" if getattr(model, "n_passes_", 1) else " at most"
            columns.append((f"relative residual{bound}", np.asarray(model.residual_norms_) / largest, ".1e"))
        return "component", 1, columns, f"all {len(ratios)} together carry {np.sum(ratios):.5f} of the variance"

    def lines(self, model: Any) -> Lines:
        """Return what ran and why; empty values are left out."""
        plan, solver, notes = getattr(model, "plan_", None), getattr(model, "solver_", ""), model.fallbacks_
        device = model.device_
        if plan is not None:
            device = f"{device}, {plan.dtype}, {pluralize(plan.workers, 'worker')}"
            solver, notes = f"{solver}: {plan.solver_reason}", (*plan.notes, *notes)
        return [("device", device), ("solver", solver), *(("note", note) for note in notes), *self.own_lines(model)]

    def own_lines(self, model: Any) -> Lines:
        """Return the lines that only this method has."""
        return []

    def estimator_from(self, options: SimpleNamespace, listener: Any) -> Any:
        """Return the estimator with the parameters that the options set, checked before the input is read."""
        known = inspect.signature(self.estimator).parameters
        values = {name: vars(options).get(name) for name in (*SHARED, *self.options) if name in known}
        parameters = {name: value for name, value in values.items() if value is not None} | self.parameters(options)
        for name, value in options.settings:
            self._set(parameters, name, value)
        model = self.estimator(**parameters, verbose=listener)
        check_parameters(model)
        if self.name == "kernel":
            kernel = kernel_from(model)
            if "gamma" in kernel.get_params(deep=False):
                kernel.set_params(gamma=1.0)  # checked above; the data may decide it
            check_values(kernel)
        return model

    def _set(self, parameters: dict[str, Any], name: str, value: Any) -> None:
        """Set a parameter that has no option: of the kernel, of the solver or checkpoint, or of the estimator."""
        kernel = parameter_names(NAMED_KERNELS[parameters["kernel"]]) if "kernel" in parameters else []
        held = {field.name: key for key, one in parameters.items() if is_dataclass(one) for field in fields(one)}
        held.pop("folder", None)  # of a checkpoint
        own = {*inspect.signature(self.estimator).parameters} - {*KERNEL_DEFAULTS, "verbose", "copy_X", "kernel_params"}
        options = {one.name: one.opts[-1] for one in click.get_current_context().command.params}
        options |= dict.fromkeys(SOLVERS, "--solver")
        by_option = ({*SHARED, *self.options, *SOLVERS} & {*options}) - {"solver"}  # of ppca and bayesian
        if name in by_option and name in {*kernel, *held, *own}:
            raise InvalidParameterError(f"--set {name}: give the option {options[name]}.")
        if name in KERNEL_DEFAULTS and name in kernel:
            parameters[name] = value
        elif name in kernel:
            parameters["kernel_params"] = {**parameters.get("kernel_params", {}), name: value}
        elif name in held:
            parameters[held[name]] = replace(parameters[held[name]], **{name: value})
        elif name in own:
            parameters[name] = value
        else:
            names = sorted({*kernel, *held, *own} - by_option)
            raise InvalidParameterError(
                f"--set {name}: there is no such parameter with these options; there are {', '.join(names)}."
                f"{closest(name, names)}"
            )

    def draw(self, options: SimpleNamespace, model: Any, scores: Any, table: Table) -> Any:
        """Return the picture of a fit."""
        title = self.title.format(kernel=options.kernel) + (" of standardized columns" if options.scale else "")
        title += (", not centered" if _keeps_mean(options) else "") + (", whitened" if options.whiten else "")
        heading = f"{title_of(options.source)}, {title}, n = {len(scores)}"
        figure = self.figure(options, model, scores, table, heading)
        name = table.columns.get("label")
        for ax in figure.axes if name else ():
            if ax.get_legend() is not None and ax.get_xlabel() != "component":  # of the spectrum
                ax.get_legend().set_title(name)
                ax.get_legend().get_title().set_parse_math(False)
            elif ax.get_ylabel() == "label":  # of a color bar
                ax.set_ylabel(name, parse_math=False)
        return figure

    def figure(self, options: SimpleNamespace, model: Any, scores: Any, table: Table, heading: str) -> Any:
        """Return spectrum and scores."""
        from gpukpca.plotting import plot_fit

        drawn = drawn_components(options, scores.shape[1])
        return plot_fit(model, table.X, scores, table.labels, table.sample_names, heading, drawn)


def drawn_components(options: SimpleNamespace, count: int) -> Sequence[int]:
    """Return the indices of the components of the picture; raise where --components names more than `count`."""
    if options.components is not None and max(options.components) > count:
        raise InvalidParameterError(f"--components: the model has {pluralize(count, 'component')}, counted from 1.")
    return [one - 1 for one in options.components or (1, 2)]


def given(name: str) -> bool:
    """Return whether an option of the running command was written on the command line."""
    return click.get_current_context().get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def check_options(method: Method, options: SimpleNamespace) -> None:
    """Raise for an option, or a word for the number of components, that only other methods read."""
    owners = COUNT_WORDS.get(options.n_components, [method.name])
    if method.name not in owners:
        raise InvalidParameterError(
            f"--n-components {options.n_components} does not apply to --method {method.name}; it is for --method "
            f"{' or '.join(owners)}. Give a count."
        )
    for option in click.get_current_context().command.params:
        owners = [one.name for one in METHODS.values() if option.name in one.options]
        if owners and method.name not in owners and given(str(option.name)):
            raise InvalidParameterError(
                f"{option.opts[-1]} does not apply to --method {method.name}; it is for --method {' or '.join(owners)}."
            )
    if vars(options).get("components") and options.components[0] == options.components[1]:
        raise InvalidParameterError("--components: give two different components, such as 1,3.")
    if method.name == "pca" and options.scale and _keeps_mean(options):
        raise InvalidParameterError(
            "--scale subtracts the means, which --set center=false keeps; give --set scale=true in place of --scale."
        )


def _keeps_mean(options: SimpleNamespace) -> bool:
    return dict(options.settings).get("center") is False


def _spectral_parameters(options: SimpleNamespace) -> dict[str, Any]:
    """Return the parameters of the methods that accept «all» and write checkpoints; a plan has no checkpoint."""
    folder = vars(options).get("checkpoint")
    return {
        "n_components": None if options.n_components == "all" else options.n_components,
        "checkpoint": None if folder is None else Checkpoint(folder),
    }


class _Kernel(Method):
    name = "kernel"
    summary = "kernel PCA"
    estimator = KernelPCA
    title = "{kernel} kernel"
    options = (
        *("kernel", "gamma", "degree", "preimage", "solver", "rank", "max_iter"),
        *("checkpoint", "scheduler", "weight_column", "components"),
    )
    arrays = ("eigenvalues", *VARIANCES, "residual_norms", "total_variance")
    spectrum = ("eigenvalue", "eigenvalues_")

    def default_count(self, n: int, d: int) -> int:
        return min(DEFAULT_COMPONENTS, n)

    def parameters(self, options: SimpleNamespace) -> dict[str, Any]:
        unused = unused_parameters(options.kernel)
        for name in filter(given, unused):
            warnings.warn(f"--{name} is not used by the kernel {options.kernel}.", UserWarning, stacklevel=2)
        if options.scale and options.kernel == "precomputed":
            raise InvalidParameterError("--scale standardizes columns of data; a precomputed kernel matrix has none.")
        # X does not change after the fit, so no copy of it is needed.
        parameters = _spectral_parameters(options) | {"copy_X": False}
        parameters |= {name: KERNEL_DEFAULTS[name] for name in unused}
        parameters |= {"eigen_solver": options.solver}
        if options.solver == "nystrom":
            return parameters | {"eigen_solver": Nystrom(rank=options.rank, tol=options.tol or 0.0), "tol": 0}
        if options.rank is not None:
            raise InvalidParameterError("--rank is for --solver nystrom.")
        return parameters

    def own_lines(self, model: Any) -> Lines:
        plan, bound = model.plan_, getattr(model, "certificate_", None)
        certificate = "" if bound is None else f"the eigenvalues in sum are too small by at most {bound:.3g}"
        norm = "" if bound is None else f"each eigenvalue is too small by at most {model.norm_bound_info_}"
        return [
            ("kernel", plan.kernel),
            ("K", str(plan.storage)),
            ("passes", f"{model.n_passes_} over K" if model.n_passes_ else ""),
            ("certificate", certificate),
            ("norm bound", norm),
            ("read", f"{format_bytes(plan.bytes_read)} in every pass" if plan.bytes_read else ""),
        ]


class _PCA(Method):
    name = "pca"
    summary = "principal components of the columns themselves"
    estimator = PCA
    title = "PCA"
    options = ("solver", "whiten", "image_shape", "checkpoint", "scheduler", "weight_column", "components")
    arrays = (
        *("components", "mean", "scale", "singular_values", *VARIANCES),
        *("total_variance", "noise_variance", "residual_norms"),
    )

    def parameters(self, options: SimpleNamespace) -> dict[str, Any]:
        scale = {"scale": True} if options.scale else {}
        return _spectral_parameters(options) | {"svd_solver": options.solver} | scale

    def figure(self, options: SimpleNamespace, model: Any, scores: Any, table: Table, heading: str) -> Any:
        """Return components and reconstructions as images where the samples are images."""
        if options.image_shape is None:
            return super().figure(options, model, scores, table, heading)
        from gpukpca.plotting import plot_images

        drawn = drawn_components(options, scores.shape[1])
        shape, X = options.image_shape, table.dense()
        return plot_images(model, X, shape, scores, table.labels, title=heading, components=drawn)


class _ProbabilisticPCA(Method):
    name = "ppca"
    summary = "probabilistic PCA, also of data with missing cells"
    estimator: type = ProbabilisticPCA
    title = "probabilistic PCA"
    options = ("solver", "max_iter", "weight_column", "components")
    arrays: tuple[str, ...] = ("components", "mean", "loadings", *VARIANCES, "noise_variance")
    takes_missing = True
    no_plan = "its memory is that of the data and a batch"

    def default_count(self, n: int, d: int) -> int | None:
        return max(1, min(DEFAULT_COMPONENTS, n - 1, d - 1))  # one direction is left for the noise

    def own_lines(self, model: Any) -> Lines:
        closed = model.solver_.startswith("closed_form")
        return [
            ("iterations", "" if closed else str(model.n_iter_)),
            ("noise", f"variance {float(model.noise_variance_):.6g} in every other direction"),
            ("scores", "posterior means of variance near 1; --plot draws them in the units of the data"),
        ]

    def figure(self, options: SimpleNamespace, model: Any, scores: Any, table: Table, heading: str) -> Any:
        """Return spectrum and scores in the units of the data, as those of PCA: W z along the orthonormal axes."""
        if model.n_components_:
            units = np.linalg.norm(np.asarray(model.loadings_, dtype=np.float64), axis=0)
            return super().figure(options, model, np.asarray(scores) * units, table, heading)
        from gpukpca.plotting.display import new_figure

        figure = new_figure(6.0, 2.0, heading)
        figure.text(0.5, 0.4, "no direction stands out of the noise", ha="center")
        return figure


class _BayesianPCA(_ProbabilisticPCA):
    name = "bayesian"
    summary = "Bayesian PCA, which finds the number of components (-n: at most so many)"
    estimator = BayesianPCA
    title = "Bayesian PCA"
    arrays = (*_ProbabilisticPCA.arrays, "precisions")

    def default_count(self, n: int, d: int) -> None:
        return None

    def own_lines(self, model: Any) -> Lines:
        relevant = f"{model.n_components_} of {len(model.precisions_)} components are relevant"
        return [("relevant", relevant), *super().own_lines(model)]


class _LocalPCA(Method):
    name = "local"
    summary = "a PCA for every cluster of the samples"
    estimator = LocalPCA
    title = "local PCA"
    options = ("n_clusters", "max_iter")
    arrays = ("labels", "weights", "means", "components", "explained_variance", "noise_variance")
    no_plan = "its memory is that of the data, a d x d matrix and a panel"

    def default_count(self, n: int, d: int) -> int:
        return max(1, min(2, d - 1))

    def table(self, model: Any) -> tuple[str, int, list[Column], str]:
        outside = np.asarray(model.noise_variance_) * (model.n_features_in_ - model.n_components_)
        columns: list[Column] = [
            ("samples", np.bincount(np.asarray(model.labels_), minlength=model.n_clusters_), ".0f"),
            ("weight", model.weights_, ".4f"),
            ("variance in its axes", np.sum(np.asarray(model.explained_variance_), axis=1), ".6g"),
            ("outside", outside, ".6g"),
        ]
        return "cluster", 0, columns, f"{model.n_clusters_} clusters in all"  # numbered as in the files

    def own_lines(self, model: Any) -> Lines:
        by = f": the smallest BIC of {len(model.bic_)}" if len(model.bic_) > 1 else ""
        clusters = f"{model.n_clusters_}, each with {pluralize(model.n_components_, 'component')}{by}"
        return [("clusters", clusters), ("iterations", str(model.n_iter_))]

    def figure(self, options: SimpleNamespace, model: Any, scores: Any, table: Table, heading: str) -> Any:
        """Return the clusters with their axes, and the one PCA of all."""
        from gpukpca.plotting import AxesDisplay
        from gpukpca.plotting.display import new_figure

        figure = new_figure(6.8, 5.6, heading)
        ax = figure.subplots()
        AxesDisplay.from_estimator(model, table.dense(), labels=table.labels, ax=ax)
        if table.feature_names is not None and len(table.feature_names) == 2:
            ax.set_xlabel(table.feature_names[0], parse_math=False)
            ax.set_ylabel(table.feature_names[1], parse_math=False)
        return figure


METHODS: dict[str, Method] = {
    one.name: one for one in (_Kernel(), _PCA(), _ProbabilisticPCA(), _BayesianPCA(), _LocalPCA())
}
