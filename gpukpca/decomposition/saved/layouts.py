"""What a file holds of each estimator beside its parameters, and what must be true of it.

An estimator joins by a `Layout`: the kinds of its fitted attributes, public ones and those private ones that its
methods need. Letters: n samples, d features, p components, m rows of the map of new points.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpukpca.backend.device import working_on
from gpukpca.backend.linalg import inner_products
from gpukpca.backend.namespace import overflow_allowed
from gpukpca.backend.rows import take_rows
from gpukpca.decomposition.choices import check_parameters
from gpukpca.decomposition.fitting import MapArrays
from gpukpca.decomposition.linear_map import LinearMap
from gpukpca.decomposition.pca_choices import check_pca_parameters
from gpukpca.decomposition.pca_plan import PCAPlan
from gpukpca.decomposition.plan import Plan
from gpukpca.decomposition.preimage.distance_constraint import DistanceConstraint
from gpukpca.decomposition.preimage.fixed_point import FixedPoint
from gpukpca.decomposition.preimage.linear import LinearPreimage
from gpukpca.decomposition.preimage.ridge import RidgeRegression
from gpukpca.decomposition.running import Running
from gpukpca.decomposition.saved.kinds import (
    COUNT,
    FLAG,
    INTERVAL,
    NUMBER,
    POSITIVE,
    TEXT,
    TEXTS,
    Kind,
    floats,
    indices,
    names,
    of,
    rows,
    size_of,
)
from gpukpca.exceptions import ModelFormatError
from gpukpca.kernels import Kernel, Precomputed

# How far from orthonormal vectors may be: rounding leaves them within 1e-5, damage does not.
SKEW = 1e-3


@dataclass(frozen=True)
class Layout:
    """What a file holds of one estimator.

    Attributes
    ----------
    estimator : str
        The name of the class.
    fitted : dict
        Kinds of the fitted attributes by name; private names are what methods need, and go where the model computes.
    home : str
        The attribute that says where the data of the fit were.
    check : callable
        ``check(model)`` raises ValueError or TypeError where parts of the right kinds make no model.
    """

    estimator: str
    fitted: dict[str, Kind]
    home: str
    check: Callable[[Any], None]


FEATURES = {"n_features_in_": size_of("d"), "feature_names_in_": names("d").maybe}
SPECTRUM = {
    "explained_variance_": floats("p"),
    "explained_variance_ratio_": floats("p"),
    "total_variance_": POSITIVE,
}


def _check_kernel_pca(model: Any) -> None:
    check_parameters(model)
    _check_kernel(model.kernel_)
    _check_spectrum(model.eigenvalues_)
    _check_orthonormal("eigenvectors_", model.eigenvectors_)
    if isinstance(model.kernel_, Precomputed) and model.eigenvectors_.shape[0] != model.n_features_in_:
        raise ModelFormatError("a precomputed kernel matrix has as many columns as samples")
    if hasattr(model, "_preimage") != hasattr(model, "X_transformed_fit_"):
        raise ModelFormatError("it has half of a pre-image")
    if isinstance(latent := getattr(getattr(model, "_preimage", None), "kernel", None), Kernel):
        _check_kernel(latent)
    with working_on(model._map.like), overflow_allowed():
        model._scores(take_rows(model._map.basis, 0, 1))  # raises where kernel and template do not belong together


def _check_pca(model: Any) -> None:
    check_pca_parameters(model)
    _check_spectrum(model.explained_variance_)
    _check_orthonormal("components_", model.components_.T)


def _check_incremental_pca(model: Any) -> None:
    model._check_parameters()
    _check_spectrum(model.explained_variance_)
    _check_orthonormal("components_", model.components_.T)


def _check_kernel(kernel: Kernel) -> None:
    """Numbers in place of rules, and in range, in every part."""
    kernel.check()
    for part in kernel.get_params(deep=False).values():
        if isinstance(part, Kernel):
            _check_kernel(part)


def _check_spectrum(values: np.ndarray) -> None:
    if np.any(values < 0) or np.any(np.diff(values) > SKEW * np.max(values, initial=0.0)):
        raise ModelFormatError(f"its eigenvalues must be >= 0 and descend: {values[:5]}")


def _check_orthonormal(name: str, vectors: np.ndarray) -> None:
    """Columns (n, p): unit, and at right angles."""
    with overflow_allowed():
        skew = np.max(np.abs(inner_products(vectors, vectors) - np.eye(vectors.shape[1])), initial=0.0)
    if not skew <= SKEW:
        raise ModelFormatError(f"{name} must be orthonormal; inner products are off by {skew:.2g}")


KERNEL_PCA_LAYOUT = Layout(
    "KernelPCA",
    {
        **FEATURES,
        "eigenvalues_": floats("p"),
        "eigenvectors_": floats("n", "p"),
        **SPECTRUM,
        "residual_norms_": floats("p"),
        "converged_": FLAG,
        "gap_": NUMBER.or_none,
        "n_passes_": COUNT,
        "n_products_": COUNT,
        "solver_seconds_": POSITIVE,
        "X_fit_": rows("m", "d"),
        "projection_": floats("m", "p"),
        "offset_": floats("p"),
        "kernel_": of(Kernel),
        "gamma_": NUMBER,
        "certificate_": POSITIVE.maybe,
        "total_variance_interval_": INTERVAL.maybe,
        "landmarks_": indices("m", below="n").maybe,
        "X_transformed_fit_": floats("n", "p").maybe,
        "dual_coef_": floats("r", "d").maybe,
        "plan_": of(Plan).or_none,
        "solver_": TEXT,
        "device_": TEXT,
        "fallbacks_": TEXTS,
        "_map": of(MapArrays),
        "_axes": of(LinearPreimage).maybe,
        "_preimage": of(LinearPreimage, RidgeRegression, FixedPoint, DistanceConstraint).maybe,
    },
    home="X_fit_",
    check=_check_kernel_pca,
)

PCA_LAYOUT = Layout(
    "PCA",
    {
        **FEATURES,
        "n_components_": size_of("p"),
        "n_samples_": size_of("n"),
        "components_": floats("p", "d"),
        **SPECTRUM,
        "singular_values_": floats("p"),
        "noise_variance_": POSITIVE,
        "mean_": floats("d"),
        "scale_": floats("d").or_none,
        "residual_norms_": floats("p").or_none,
        "converged_": FLAG.or_none,
        "plan_": of(PCAPlan).or_none,
        "solver_": TEXT,
        "device_": TEXT,
        "fallbacks_": TEXTS,
        "_map": of(LinearMap),
    },
    home="components_",
    check=_check_pca,
)

INCREMENTAL_PCA_LAYOUT = Layout(
    "IncrementalPCA",
    {
        **FEATURES,
        "n_components_": size_of("p"),
        "n_samples_seen_": size_of("n"),
        "batch_size_": COUNT,
        "components_": floats("p", "d"),
        **SPECTRUM,
        "singular_values_": floats("p"),
        "noise_variance_": POSITIVE,
        "mean_": floats("d"),
        "var_": floats("d"),
        "residual_norms_": floats("p").maybe,
        "converged_": FLAG.maybe,
        "n_passes_": COUNT.maybe,
        "solver_": TEXT.maybe,
        "device_": TEXT,
        "_state": of(Running),
    },
    home="components_",
    check=_check_incremental_pca,
)
