"""Kernel PCA on the command line."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from gpukpca import KernelPCA, Nystrom
from gpukpca._formatting import format_bytes, pluralize
from gpukpca.algorithms.kernel_pca.settings import is_nystrom
from gpukpca.cli.method import (
    DEFAULT_COMPONENTS,
    RESIDUALS,
    Column,
    Method,
    check_count,
    checkpoint_parameter,
    components_parameter,
    relative_residuals,
    variance_ratios,
)
from gpukpca.cli.scaling import Prepared
from gpukpca.cli.scheduler import labeled
from gpukpca.cli.table import Table
from gpukpca.decomposition._parameters import check_parameters
from gpukpca.exceptions import InvalidParameterError

# Option -> the kernels that read it.
KERNELS_OF = {
    "gamma": ("poly", "rbf", "sigmoid", "laplacian", "matern", "rational_quadratic"),
    "degree": ("poly",),
    "coef0": ("poly", "sigmoid"),
}


class KernelMethod(Method):
    """Kernel PCA."""

    name = "kernel"
    summary = "kernel PCA"
    options = (
        *("kernel", "gamma", "degree", "coef0", "preimage"),
        *("eigen_solver", "rank", "landmarks", "gram", "max_iter", "checkpoint", "scheduler"),
    )

    def model(self, wanted: SimpleNamespace, listener: Any, given: Callable[[str], bool]) -> KernelPCA:
        """The estimator; options that its kernel does not read are named in a warning."""
        for name, kernels in KERNELS_OF.items():
            if given(name) and wanted.kernel not in kernels:
                warnings.warn(f"--{name} is not used by the kernel {wanted.kernel}.", UserWarning, stacklevel=2)
        check_count(wanted.n_components, self.name, "share", "all")
        names = ("kernel", "gamma", "degree", "coef0", "eigen_solver", "tol", "max_iter", "n_jobs")
        parameters = {name: getattr(wanted, name) for name in (*names, "preimage", "gram", "device", "memory_limit")}
        parameters |= components_parameter(wanted) | _landmark_parameters(wanted) | checkpoint_parameter(wanted)
        # Nobody changes X after the fit, so no copy of it is needed.
        model = KernelPCA(**parameters, random_state=wanted.seed, copy_X=False, verbose=listener)
        check_parameters(model)
        if wanted.scale and wanted.kernel == "precomputed":
            raise InvalidParameterError("--scale standardizes columns of data; a precomputed kernel matrix has none.")
        return model

    def prepared(self, wanted: SimpleNamespace, model: KernelPCA, table: Table) -> Prepared:
        """Columns standardized where asked; as many components as samples where ten are too many."""
        if wanted.n_components is None:
            model.set_params(n_components=min(DEFAULT_COMPONENTS, table.X.shape[0]))
        return Prepared.of(table, wanted.scale)

    def title(self, wanted: SimpleNamespace) -> str:
        """«rbf kernel»."""
        return f"{wanted.kernel} kernel"

    def columns(self, model: KernelPCA) -> list[Column]:
        """Eigenvalues of the centered kernel matrix."""
        values = model.eigenvalues_
        residual = "relative residual" if model.n_passes_ else "relative residual at most"
        return [
            ("eigenvalue", values, ".6g"),
            *variance_ratios(model),
            (residual, relative_residuals(values, model.residual_norms_), ".1e"),
        ]

    def arrays(self, model: KernelPCA) -> dict[str, Any]:
        """The spectrum."""
        names = ("eigenvalues", "explained_variance", "explained_variance_ratio", "residual_norms", "total_variance")
        arrays = {name: getattr(model, f"{name}_") for name in names}
        return arrays | ({"certificate": model.certificate_} if is_nystrom(model.eigen_solver) else {})

    def facts(self, model: KernelPCA) -> dict[str, Any]:
        """How often K was passed over, and the certificate of Nyström."""
        certificate = model.certificate_ if is_nystrom(model.eigen_solver) else None
        return {"passes": model.n_passes_, "certificate": certificate}

    def lines(self, model: KernelPCA) -> list[tuple[str, str]]:
        """Kernel, storage, solver."""
        plan = model.plan_
        return [
            ("device", f"{model.device_}, {plan.dtype}, {pluralize(plan.storage.workers, 'worker')}"),
            ("kernel", plan.kernel),
            ("K", str(plan.storage)),
            ("solver", f"{model.solver_}: {plan.solver_reason}"),
            *labeled((*plan.notes, *model.fallbacks_)),
            ("passes", f"{model.n_passes_} over K" if model.n_passes_ else ""),
            ("residuals", RESIDUALS.format("eigenvalue") if len(model.eigenvalues_) else ""),
            ("certificate", _certificate_in_words(model)),
            ("read", f"{format_bytes(plan.bytes_read)} in every pass" if plan.bytes_read else ""),
        ]


def _landmark_parameters(wanted: SimpleNamespace) -> dict[str, Any]:
    """The solver object that --rank and --landmarks mean, which then has the tolerance; nothing without nystrom."""
    if wanted.eigen_solver != "nystrom":
        if wanted.rank is not None or wanted.landmarks != "rpcholesky":
            raise InvalidParameterError("--rank and --landmarks are for --eigen-solver nystrom.")
        return {}
    return {"eigen_solver": Nystrom(wanted.rank, wanted.landmarks, wanted.tol), "tol": 0}


def _certificate_in_words(model: KernelPCA) -> str:
    if not is_nystrom(model.eigen_solver):
        return ""
    largest = float(model.eigenvalues_[0]) if len(model.eigenvalues_) else 0.0
    share = f", {model.certificate_ / largest:.1e} of the largest" if largest > 0 else ""
    return f"every eigenvalue is too small by at most {model.certificate_:.3g}{share}"
