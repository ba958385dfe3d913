"""PCA on the command line."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from gpukpca import PCA
from gpukpca._formatting import pluralize
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


class PCAMethod(Method):
    """PCA of the columns as they are."""

    name = "pca"
    summary = "principal components of the columns themselves"
    options = ("svd_solver", "whiten", "image_shape", "checkpoint", "scheduler")

    def model(self, wanted: SimpleNamespace, listener: Any, given: Callable[[str], bool]) -> PCA:
        """The estimator."""
        if _image_shape(wanted) is not None and wanted.plot is None:
            raise InvalidParameterError("--image-shape is for pictures: give --plot as well.")
        check_count(wanted.n_components, self.name, "share", "all", "mle")
        names = ("svd_solver", "whiten", "tol", "scale", "device", "memory_limit", "n_jobs")
        parameters = {name: getattr(wanted, name) for name in names}
        parameters |= components_parameter(wanted) | checkpoint_parameter(wanted)
        model = PCA(**parameters, random_state=wanted.seed, verbose=listener)
        check_parameters(model)
        return model

    def prepared(self, wanted: SimpleNamespace, model: PCA, table: Table) -> Prepared:
        """The data as they are: the estimator scales. Counts and image shapes that do not fit them are errors."""
        n, d = table.X.shape
        if wanted.n_components is None:
            model.set_params(n_components=min(DEFAULT_COMPONENTS, n, d))
        _check_room_for(wanted.n_components, n, d)
        shape = _image_shape(wanted)
        if shape is not None:
            from gpukpca.plotting.images import check_image_shape

            check_image_shape(shape, d)
        return Prepared(table, f"{d} columns to mean 0 and standard deviation 1 (over n - 1)" if wanted.scale else "")

    def title(self, wanted: SimpleNamespace) -> str:
        """«PCA of standardized columns»."""
        return "PCA" + (" of standardized columns" if wanted.scale else "") + (", whitened" if wanted.whiten else "")

    def columns(self, model: PCA) -> list[Column]:
        """Variances of the scores; singular values are in the file."""
        values = model.explained_variance_
        residual = ("relative residual", relative_residuals(values, model.residual_norms_), ".1e")
        return [("variance", values, ".6g"), *variance_ratios(model), residual]

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
            ("device", f"{model.device_}, {plan.dtype}, {pluralize(plan.workers, 'worker')}"),
            ("solver", f"{model.solver_}: {plan.reason}"),
            *labeled((*plan.notes, *model.fallbacks_)),
            ("residuals", RESIDUALS.format("variance") if len(model.explained_variance_) else ""),
        ]

    def figure(self, wanted: SimpleNamespace, model: PCA, scores: Any, table: Table) -> Any:
        """Components and reconstructions as images where the samples are images."""
        if wanted.image_shape is None:
            return super().figure(wanted, model, scores, table)
        from gpukpca.plotting import plot_images

        heading = self.heading(wanted, len(scores))
        return plot_images(model, table.X, wanted.image_shape, scores, table.labels, title=heading)


def _check_room_for(count: Any, n: int, d: int) -> None:
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
