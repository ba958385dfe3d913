"""The methods that the command line offers, one object each: what they read, and what they show and leave behind.

A further method is a subclass of `Method` with its own options, and one entry of `METHODS`.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from gpukpca import PCA, KernelPCA, Nystrom
from gpukpca.cli.inputs import standardized
from gpukpca.cli.table import Table
from gpukpca.decomposition.choices import check_parameters
from gpukpca.decomposition.pca_choices import check_pca_parameters
from gpukpca.decomposition.plan import spelled_bytes
from gpukpca.exceptions import InvalidParameterError

DEFAULT_COMPONENTS = 10
# Option -> the kernels that read it.
KERNELS_OF = {
    "gamma": ("poly", "rbf", "sigmoid", "laplacian", "matern", "rational_quadratic"),
    "degree": ("poly",),
    "coef0": ("poly", "sigmoid"),
}
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
    """

    name: str
    summary: str
    options: tuple[str, ...]

    @abstractmethod
    def model(self, wanted: SimpleNamespace, listener: Any, given: Callable[[str], bool]) -> Any:
        """The estimator, its parameters checked; `given` says whether an option was written."""

    @abstractmethod
    def prepared(self, wanted: SimpleNamespace, model: Any, table: Table) -> tuple[Table, str]:
        """The data as the model takes them, and what was done to them in words; sets how many components by default."""

    @abstractmethod
    def title(self, wanted: SimpleNamespace) -> str:
        """In the heading of the picture."""

    @abstractmethod
    def columns(self, model: Any) -> list[Column]:
        """Of the table of components, between their number and the end."""

    @abstractmethod
    def arrays(self, model: Any) -> dict[str, Any]:
        """What an .npz file holds beside scores, names and metadata."""

    @abstractmethod
    def facts(self, model: Any) -> dict[str, Any]:
        """Of the metadata, what only this method has."""

    @abstractmethod
    def lines(self, model: Any) -> list[tuple[str, str]]:
        """What ran and why, as labels and values; empty values are left out."""

    def figure(self, wanted: SimpleNamespace, model: Any, scores: Any, table: Table) -> Any:
        """The picture of a fit."""
        from gpukpca.plotting import plot_fit

        return plot_fit(model, scores, table.labels, table.sample_names, self.heading(wanted, len(scores)))

    def heading(self, wanted: SimpleNamespace, n: int) -> str:
        """Of the picture."""
        return f"{Path(wanted.source).stem}, {self.title(wanted)}, n = {n}"


class KernelMethod(Method):
    """Kernel PCA."""

    name = "kernel"
    summary = "kernel PCA"
    options = ("kernel", "gamma", "degree", "coef0", "eigen_solver", "rank", "landmarks", "gram", "max_iter")

    def model(self, wanted: SimpleNamespace, listener: Any, given: Callable[[str], bool]) -> KernelPCA:
        """The estimator; options that its kernel does not read are named in a warning."""
        for name, kernels in KERNELS_OF.items():
            if given(name) and wanted.kernel not in kernels:
                warnings.warn(f"--{name} is not used by the kernel {wanted.kernel}.", UserWarning, stacklevel=2)
        if wanted.n_components == "mle":
            raise InvalidParameterError("-n mle is for --method pca; give a count or a share of the variance.")
        names = ("n_components", "kernel", "gamma", "degree", "coef0", "eigen_solver", "tol", "max_iter", "n_jobs")
        parameters = {name: getattr(wanted, name) for name in (*names, "gram", "device", "memory_limit")}
        parameters |= _landmark_parameters(wanted)
        # Nobody changes X after the fit, so no copy of it is needed.
        model = KernelPCA(**parameters, random_state=wanted.seed, copy_X=False, verbose=listener)
        check_parameters(model)
        if wanted.scale and wanted.kernel == "precomputed":
            raise InvalidParameterError("--scale standardises columns of data; a precomputed kernel matrix has none.")
        return model

    def prepared(self, wanted: SimpleNamespace, model: KernelPCA, table: Table) -> tuple[Table, str]:
        """Columns standardised where asked; as many components as samples where ten are too many."""
        if wanted.n_components is None:
            model.set_params(n_components=min(DEFAULT_COMPONENTS, table.X.shape[0]))
        return _standardized(table) if wanted.scale else (table, "")

    def title(self, wanted: SimpleNamespace) -> str:
        """«rbf kernel»."""
        return f"{wanted.kernel} kernel"

    def columns(self, model: KernelPCA) -> list[Column]:
        """Eigenvalues of the centred kernel matrix."""
        residual = "residual" if model.n_passes_ else "residual at most"
        return [("eigenvalue", model.eigenvalues_, ".6g"), *_ratios(model), (residual, model.residual_norms_, ".1e")]

    def arrays(self, model: KernelPCA) -> dict[str, Any]:
        """The spectrum."""
        names = ("eigenvalues", "explained_variance", "explained_variance_ratio", "residual_norms", "total_variance")
        arrays = {name: getattr(model, f"{name}_") for name in names}
        return arrays | ({"certificate": model.certificate_} if hasattr(model, "certificate_") else {})

    def facts(self, model: KernelPCA) -> dict[str, Any]:
        """How often K was passed over, and the certificate of Nyström."""
        return {"passes": model.n_passes_, "certificate": getattr(model, "certificate_", None)}

    def lines(self, model: KernelPCA) -> list[tuple[str, str]]:
        """Kernel, residence, solver."""
        plan = model.plan_
        return [
            ("device", f"{model.device_}, {plan.dtype}, {plan.residence.workers} worker(s)"),
            ("kernel", plan.kernel),
            ("K", plan.residence.describe()),
            ("solver", f"{model.solver_}: {plan.solver_reason}"),
            *(("note", note) for note in (*plan.notes, *model.fallbacks_)),
            ("passes", f"{model.n_passes_} over K" if model.n_passes_ else ""),
            ("certificate", _certificate_in_words(model)),
            ("read", f"{spelled_bytes(plan.bytes_read)} in every pass" if plan.bytes_read else ""),
        ]


class PCAMethod(Method):
    """PCA of the columns as they are."""

    name = "pca"
    summary = "principal components of the columns themselves"
    options = ("svd_solver", "whiten", "image_shape")

    def model(self, wanted: SimpleNamespace, listener: Any, given: Callable[[str], bool]) -> PCA:
        """The estimator."""
        if _image_shape(wanted) is not None and wanted.plot is None:
            raise InvalidParameterError("--image-shape is for pictures: give --plot as well.")
        names = ("n_components", "svd_solver", "whiten", "tol", "scale", "device", "memory_limit", "n_jobs")
        parameters = {name: getattr(wanted, name) for name in names}
        model = PCA(**parameters, random_state=wanted.seed, verbose=listener)
        check_pca_parameters(model)
        # The estimator takes 0, as scikit-learn's does; there would be nothing to write or to draw.
        if wanted.n_components == 0:
            raise InvalidParameterError("-n 0 leaves nothing; give at least 1 component.")
        return model

    def prepared(self, wanted: SimpleNamespace, model: PCA, table: Table) -> tuple[Table, str]:
        """The data as they are: the estimator scales. Counts and image shapes that do not fit them are errors."""
        n, d = table.X.shape
        if wanted.n_components is None:
            model.set_params(n_components=min(DEFAULT_COMPONENTS, n, d))
        _check_count(wanted.n_components, n, d)
        shape = _image_shape(wanted)
        if shape is not None:
            from gpukpca.plotting.images import check_image_shape

            check_image_shape(shape, d)
        return table, f"{d} columns to mean 0 and standard deviation 1 (over n - 1)" if wanted.scale else ""

    def title(self, wanted: SimpleNamespace) -> str:
        """«PCA of standardised columns»."""
        return "PCA" + (" of standardised columns" if wanted.scale else "") + (", whitened" if wanted.whiten else "")

    def columns(self, model: PCA) -> list[Column]:
        """Variances of the scores; singular values are in the file."""
        residual = ("residual", model.residual_norms_, ".1e")
        return [("variance", model.explained_variance_, ".6g"), *_ratios(model), residual]

    def arrays(self, model: PCA) -> dict[str, Any]:
        """The axes and the spectrum."""
        axes = ("components", "mean", "singular_values")
        variances = ("explained_variance", "explained_variance_ratio", "total_variance", "noise_variance")
        arrays = {name: getattr(model, f"{name}_") for name in (*axes, *variances, "residual_norms")}
        return arrays | ({} if model.scale_ is None else {"scale": model.scale_})

    def facts(self, model: PCA) -> dict[str, Any]:
        """How many components there are, which a share and mle leave open."""
        return {"n_components": int(model.n_components_)}

    def lines(self, model: PCA) -> list[tuple[str, str]]:
        """Device, way, solver."""
        plan = model.plan_
        return [
            ("device", f"{model.device_}, {plan.dtype}, {plan.workers} worker(s)"),
            ("solver", f"{model.solver_}: {plan.reason}"),
            *(("note", note) for note in (*plan.notes, *model.fallbacks_)),
        ]

    def figure(self, wanted: SimpleNamespace, model: PCA, scores: Any, table: Table) -> Any:
        """Components and reconstructions as images where the samples are images."""
        if wanted.image_shape is None:
            return super().figure(wanted, model, scores, table)
        from gpukpca.plotting import plot_images

        heading = self.heading(wanted, len(scores))
        return plot_images(model, table.X, wanted.image_shape, scores, table.labels, title=heading)


METHODS: dict[str, Method] = {method.name: method for method in (KernelMethod(), PCAMethod())}


def check_options(method: Method, given: Callable[[str], bool]) -> None:
    """Raise for an option that only other methods read."""
    for other in METHODS.values():
        for name in set(other.options) - set(method.options):
            if given(name):
                option = f"--{name.replace('_', '-')}"
                raise InvalidParameterError(
                    f"{option} does not apply to --method {method.name}; it is for --method {other.name}."
                )


def _standardized(table: Table) -> tuple[Table, str]:
    """Every column at mean 0 and standard deviation 1, and that in words."""
    X, constant = standardized(table.X)
    words = f"{X.shape[1] - constant} columns to mean 0 and standard deviation 1"
    return replace(table, X=X), words + (f"; {constant} constant, only centred" if constant else "")


def _ratios(model: Any) -> list[Column]:
    """Shares of the variance, and their running sum."""
    ratios = np.asarray(model.explained_variance_ratio_, dtype=np.float64)
    return [("variance ratio", ratios, ".5f"), ("cumulative", np.cumsum(ratios), ".5f")]


def _check_count(count: Any, n: int, d: int) -> None:
    """Raise where n samples with d columns have no such number of components."""
    if isinstance(count, int) and count > min(n, d):
        raise InvalidParameterError(
            f"-n {count} is too many: PCA of {n} samples with {d} columns has at most min({n}, {d}) = {min(n, d)} "
            "components."
        )
    if count == "mle" and n < d:
        raise InvalidParameterError(f"-n mle needs at least as many samples as columns; there are {n} and {d}.")


def _image_shape(wanted: SimpleNamespace) -> tuple[int, int] | None:
    """Of the picture; a plan has none."""
    return getattr(wanted, "image_shape", None)


def _landmark_parameters(wanted: SimpleNamespace) -> dict[str, Any]:
    """The solver object that --rank and --landmarks mean, which then has the tolerance; nothing without nystrom."""
    if wanted.eigen_solver != "nystrom":
        if wanted.rank is not None or wanted.landmarks != "rpcholesky":
            raise InvalidParameterError("--rank and --landmarks are for --eigen-solver nystrom.")
        return {}
    return {"eigen_solver": Nystrom(wanted.rank, wanted.landmarks, wanted.tol), "tol": 0}


def _certificate_in_words(model: KernelPCA) -> str:
    if not hasattr(model, "certificate_"):
        return ""
    largest = float(model.eigenvalues_[0]) if len(model.eigenvalues_) else 0.0
    share = f", {model.certificate_ / largest:.1e} of the largest" if largest > 0 else ""
    return f"every eigenvalue is too small by at most {model.certificate_:.3g}{share}"
