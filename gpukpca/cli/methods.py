"""The methods of the command line: one table whose entries hold what differs."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from types import SimpleNamespace
from typing import Any

import click
import numpy as np

from gpukpca import PCA, BayesianPCA, KernelPCA, LocalPCA, Nystrom, ProbabilisticPCA
from gpukpca._formatting import format_bytes, pluralize
from gpukpca._rules import closest
from gpukpca.algorithms.kernel_pca.settings import is_nystrom
from gpukpca.checkpoint import Checkpoint
from gpukpca.cli.inputs import title_of
from gpukpca.cli.report import Column
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
# How plans begin the note that names the cluster.
CLUSTER_NOTE = "cluster: "
Lines = list[tuple[str, str]]


@dataclass(frozen=True)
class Method:
    """Hold what differs between methods; functions take the fitted model where no argument is named."""

    name: str
    summary: str
    estimator: type
    title: str  # of the picture
    options: tuple[str, ...]  # those that not every method reads; parameters of the estimator are passed on
    default_count: Callable[[int, int], int | None]  # of components, from the numbers of samples and columns
    columns: Callable[[Any], list[Column]]  # of the printed table, after the number of the row
    lines: Callable[[Any], Lines]  # what ran and why; empty values are left out
    arrays: tuple[str, ...]  # fitted attributes in an .npz file
    facts: Callable[[Any], dict[str, Any]]  # metadata that only this method has
    parameters: Callable[[SimpleNamespace], dict[str, Any]] = lambda options: {}  # those that need several options
    figure: Callable[[SimpleNamespace, Any, Any, Table, str], Any] | None = None  # None: spectrum and scores
    row: str = "component"  # of the printed table
    first: int = 1
    summary_of_rows: Callable[[Any], str] = lambda model: _share_of_all(model)  # below a table of the first rows
    takes_missing: bool = False
    no_plan: str = ""  # the reason

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
            if "gamma" in kernel.parameter_names():
                kernel.set_params(gamma=1.0)  # checked above; the data may decide it
            kernel.check()
        return model

    def _set(self, parameters: dict[str, Any], name: str, value: Any) -> None:
        """Set a parameter that has no option: of the kernel, of the solver or checkpoint, or of the estimator."""
        kernel = NAMED_KERNELS[parameters["kernel"]].parameter_names() if "kernel" in parameters else []
        held = {field.name: key for key, one in parameters.items() if is_dataclass(one) for field in fields(one)}
        held.pop("folder", None)  # of a checkpoint
        own = {*inspect.signature(self.estimator).parameters} - {*KERNEL_DEFAULTS, "verbose", "copy_X", "kernel_params"}
        options = {one.name: one.opts[-1] for one in click.get_current_context().command.params}
        by_option = {*SHARED, *self.options} & {*options}
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

    def heading(self, options: SimpleNamespace, n: int) -> str:
        """Return the heading of the picture."""
        title = self.title.format(kernel=options.kernel) + (" of standardized columns" if options.scale else "")
        title += (", not centered" if _keeps_mean(options) else "") + (", whitened" if options.whiten else "")
        return f"{title_of(options.source)}, {title}, n = {n}"

    def plan_of(self, model: Any) -> Any:
        """Return the plan of a fitted model, None where the method has none."""
        return None if self.no_plan else model.plan_

    def draw(self, options: SimpleNamespace, model: Any, scores: Any, table: Table) -> Any:
        """Return the picture of a fit."""
        from gpukpca.plotting import plot_fit

        heading = self.heading(options, len(scores))
        figure = self.figure and self.figure(options, model, scores, table, heading)
        figure = figure or plot_fit(model, table.X, scores, table.labels, table.sample_names, heading)
        for ax in figure.axes if table.label_name else ():
            if ax.get_legend() is not None and ax.get_xlabel() != "component":  # of the spectrum
                ax.get_legend().set_title(table.label_name)
                ax.get_legend().get_title().set_parse_math(False)
            elif ax.get_ylabel() == "label":  # of a color bar
                ax.set_ylabel(table.label_name, parse_math=False)
        return figure


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
    if method.name == "pca" and options.scale and _keeps_mean(options):
        raise InvalidParameterError(
            "--scale subtracts the means, which --set center=false keeps; give --set scale=true in place of --scale."
        )


def _keeps_mean(options: SimpleNamespace) -> bool:
    return dict(options.settings).get("center") is False


def _share_of_all(model: Any) -> str:
    ratios = np.asarray(model.explained_variance_ratio_, dtype=np.float64)
    return f"all {len(ratios)} together carry {np.sum(ratios):.5f} of the variance"


def _spectrum(heading: str, values: Any, model: Any) -> list[Column]:
    """Return the columns of a spectrum: values, shares of the variance, and their running sum."""
    ratios = np.asarray(model.explained_variance_ratio_, dtype=np.float64)
    return [(heading, values, ".6g"), ("variance ratio", ratios, ".5f"), ("cumulative", np.cumsum(ratios), ".5f")]


def _residuals(heading: str, values: Any, model: Any) -> Column:
    """Return the column of residual norms in units of the largest value."""
    largest = float(values[0]) if len(values) else 0.0
    norms = np.asarray(model.residual_norms_, dtype=np.float64)
    return heading, norms / (largest if largest > 0 else 1.0), ".1e"


def _residual_line(values: Any, noun: str) -> tuple[str, str]:
    return "residuals", f"relative to the first {noun}, as --tol is" if len(values) else ""


def _notes(notes: tuple[str, ...]) -> Lines:
    """Return the notes of a plan with their labels: «cluster» for the one that names it."""
    return [("cluster" if note.startswith(CLUSTER_NOTE) else "note", note.removeprefix(CLUSTER_NOTE)) for note in notes]


def _spectral_parameters(options: SimpleNamespace) -> dict[str, Any]:
    """Return the parameters of the methods that accept «all» and write checkpoints; a plan has no checkpoint."""
    folder = vars(options).get("checkpoint")
    return {
        "n_components": None if options.n_components == "all" else options.n_components,
        "checkpoint": None if folder is None else Checkpoint(str(folder)),
    }


# -- kernel PCA --------------------------------------------------------------------------------------------------------


def _kernel_parameters(options: SimpleNamespace) -> dict[str, Any]:
    unused = unused_parameters(options.kernel)
    for name in filter(given, unused):
        warnings.warn(f"--{name} is not used by the kernel {options.kernel}.", UserWarning, stacklevel=2)
    if options.scale and options.kernel == "precomputed":
        raise InvalidParameterError("--scale standardizes columns of data; a precomputed kernel matrix has none.")
    # X does not change after the fit, so no copy of it is needed.
    parameters = _spectral_parameters(options) | {"copy_X": False} | {name: KERNEL_DEFAULTS[name] for name in unused}
    if options.eigen_solver == "nystrom":
        return parameters | {
            "eigen_solver": Nystrom(rank=options.rank, tol=options.tol or 0.0),
            "tol": 0,
        }
    if options.rank is not None:
        raise InvalidParameterError("--rank is for --eigen-solver nystrom.")
    return parameters


def _kernel_columns(model: KernelPCA) -> list[Column]:
    heading = "relative residual" if model.n_passes_ else "relative residual at most"
    values = model.eigenvalues_
    return [*_spectrum("eigenvalue", values, model), _residuals(heading, values, model)]


def _certificate(model: KernelPCA) -> float | None:
    """Return the certificate of Nyström's method, None of other solvers."""
    return model.certificate_ if is_nystrom(model.eigen_solver) else None


def _kernel_lines(model: KernelPCA) -> Lines:
    plan, certificate = model.plan_, _certificate(model)
    largest = float(model.eigenvalues_[0]) if len(model.eigenvalues_) else 0.0
    share = f", {certificate / largest:.1e} of the largest" if certificate is not None and largest > 0 else ""
    return [
        ("device", f"{model.device_}, {plan.dtype}, {pluralize(plan.workers, 'worker')}"),
        ("kernel", plan.kernel),
        ("K", str(plan.storage)),
        ("solver", f"{model.solver_}: {plan.solver_reason}"),
        *_notes((*plan.notes, *model.fallbacks_)),
        ("passes", f"{model.n_passes_} over K" if model.n_passes_ else ""),
        _residual_line(model.eigenvalues_, "eigenvalue"),
        (
            "certificate",
            "" if certificate is None else f"the eigenvalues in sum are too small by at most {certificate:.3g}{share}",
        ),
        ("read", f"{format_bytes(plan.bytes_read)} in every pass" if plan.bytes_read else ""),
    ]


# -- PCA ---------------------------------------------------------------------------------------------------------------


def _pca_lines(model: PCA) -> Lines:
    plan = model.plan_
    return [
        ("device", f"{model.device_}, {plan.dtype}, {pluralize(plan.workers, 'worker')}"),
        ("solver", f"{model.solver_}: {plan.solver_reason}"),
        *_notes((*plan.notes, *model.fallbacks_)),
        _residual_line(model.explained_variance_, "variance"),
    ]


def _pca_figure(options: SimpleNamespace, model: PCA, scores: Any, table: Table, heading: str) -> Any:
    """Return components and reconstructions as images where the samples are images."""
    if options.image_shape is None:
        return None
    from gpukpca.plotting import plot_images

    return plot_images(model, table.dense(), options.image_shape, scores, table.labels, title=heading)


# -- probabilistic and Bayesian PCA ------------------------------------------------------------------------------------


def _latent_lines(model: Any) -> Lines:
    iterations = "" if model.solver_.startswith("closed_form") else ", " + pluralize(model.n_iter_, "iteration")
    return [
        ("device", model.device_),
        ("solver", model.solver_ + iterations),
        *_notes(model.fallbacks_),
        ("noise", f"variance {float(model.noise_variance_):.6g} in every other direction"),
    ]


def _bayesian_lines(model: BayesianPCA) -> Lines:
    relevant = f"{model.n_components_} of {len(model.precisions_)} components are relevant"
    return [("relevant", relevant), *_latent_lines(model)]


def _bayesian_figure(options: SimpleNamespace, model: BayesianPCA, scores: Any, table: Table, heading: str) -> Any:
    """Return a sentence where no component is relevant."""
    if model.n_components_:
        return None
    from gpukpca.plotting.display import new_figure

    figure = new_figure(6.0, 2.0, heading)
    figure.text(0.5, 0.4, "no direction stands out of the noise", ha="center")
    return figure


# -- local PCA ---------------------------------------------------------------------------------------------------------


def _local_columns(model: LocalPCA) -> list[Column]:
    return [
        ("samples", np.bincount(np.asarray(model.labels_), minlength=model.n_clusters_), ".0f"),
        ("weight", model.weights_, ".4f"),
        ("variance in its axes", np.sum(np.asarray(model.explained_variance_), axis=1), ".6g"),
        ("outside", np.asarray(model.noise_variance_) * (model.n_features_in_ - model.n_components_), ".6g"),
    ]


def _local_lines(model: LocalPCA) -> Lines:
    by = f": the smallest BIC of {len(model.bic_)}" if len(model.bic_) > 1 else ""
    return [
        ("device", model.device_),
        ("clusters", f"{model.n_clusters_}, each with {pluralize(model.n_components_, 'component')}{by}"),
        *_notes(model.fallbacks_),
        ("iterations", str(model.n_iter_)),
    ]


def _local_facts(model: LocalPCA) -> dict[str, Any]:
    counts = {"n_clusters": int(model.n_clusters_), "n_components": int(model.n_components_)}
    table = {f"{k} clusters, {p} components": float(value) for (k, p), value in model.bic_.items()}
    return counts | {"iterations": int(model.n_iter_), "bic": table}


def _local_figure(options: SimpleNamespace, model: LocalPCA, scores: Any, table: Table, heading: str) -> Any:
    """Return the clusters with their axes, and the one PCA of all."""
    from gpukpca.plotting import AxesDisplay
    from gpukpca.plotting.display import new_figure

    figure = new_figure(6.8, 5.6, heading)
    ax = figure.subplots()
    AxesDisplay.from_estimator(model, table.dense(), ax=ax)
    if table.feature_names is not None and len(table.feature_names) == 2:
        ax.set_xlabel(table.feature_names[0], parse_math=False)
        ax.set_ylabel(table.feature_names[1], parse_math=False)
    return figure


VARIANCES = ("explained_variance", "explained_variance_ratio")
LATENT: dict[str, Any] = {
    "options": ("max_iter",),
    "columns": lambda model: _spectrum("variance", model.explained_variance_, model),
    "facts": lambda model: {
        "n_components": int(model.n_components_),
        "noise_variance": float(model.noise_variance_),
        "iterations": int(model.n_iter_),
    },
    "takes_missing": True,
    "no_plan": "its memory is that of the data and a batch",
}
LATENT_ARRAYS = ("components", "mean", "loadings", *VARIANCES, "noise_variance")
METHODS = {
    method.name: method
    for method in (
        Method(
            name="kernel",
            summary="kernel PCA",
            estimator=KernelPCA,
            title="{kernel} kernel",
            options=(
                *("kernel", "gamma", "degree", "preimage"),
                *("eigen_solver", "rank", "max_iter", "checkpoint", "scheduler"),
            ),
            parameters=_kernel_parameters,
            default_count=lambda n, d: min(DEFAULT_COMPONENTS, n),
            columns=_kernel_columns,
            lines=_kernel_lines,
            arrays=("eigenvalues", *VARIANCES, "residual_norms", "total_variance"),
            facts=lambda model: {"passes": model.n_passes_, "certificate": _certificate(model)},
        ),
        Method(
            name="pca",
            summary="principal components of the columns themselves",
            estimator=PCA,
            title="PCA",
            options=("svd_solver", "whiten", "image_shape", "checkpoint", "scheduler"),
            parameters=lambda options: {**_spectral_parameters(options), **({"scale": True} if options.scale else {})},
            default_count=lambda n, d: min(DEFAULT_COMPONENTS, n, d),
            columns=lambda model: [
                *_spectrum("variance", model.explained_variance_, model),
                _residuals("relative residual", model.explained_variance_, model),
            ],
            lines=_pca_lines,
            arrays=(
                *("components", "mean", "scale", "singular_values", *VARIANCES),
                *("total_variance", "noise_variance", "residual_norms"),
            ),
            facts=lambda model: {"n_components": int(model.n_components_)},
            figure=_pca_figure,
        ),
        Method(
            name="ppca",
            summary="probabilistic PCA, also of data with missing cells",
            estimator=ProbabilisticPCA,
            title="probabilistic PCA",
            # One direction is left for the noise.
            default_count=lambda n, d: max(1, min(DEFAULT_COMPONENTS, n - 1, d - 1)),
            lines=_latent_lines,
            arrays=LATENT_ARRAYS,
            **LATENT,
        ),
        Method(
            name="bayesian",
            summary="Bayesian PCA, which finds the number of components (-n: at most so many)",
            estimator=BayesianPCA,
            title="Bayesian PCA",
            default_count=lambda n, d: None,
            lines=_bayesian_lines,
            arrays=(*LATENT_ARRAYS, "precisions"),
            figure=_bayesian_figure,
            **LATENT,
        ),
        Method(
            name="local",
            summary="a PCA for every cluster of the samples",
            estimator=LocalPCA,
            title="local PCA",
            options=("n_clusters", "max_iter"),
            default_count=lambda n, d: max(1, min(2, d - 1)),
            columns=_local_columns,
            lines=_local_lines,
            arrays=("labels", "weights", "means", "components", "explained_variance", "noise_variance"),
            facts=_local_facts,
            figure=_local_figure,
            # Numbered as in the files.
            row="cluster",
            first=0,
            summary_of_rows=lambda model: f"{model.n_clusters_} clusters in all",
            no_plan="its memory is that of the data, a d x d matrix and a panel",
        ),
    )
}
