"""Layouts: the fitted attributes in the file of each estimator, and the checks of their contents.

An estimator joins by a `Layout`: the kinds of its fitted attributes, public ones and those private ones that its
methods need, which come last. Letters: n samples, d features, p components, m rows of the map of new points, r rows of
a ridge pre-image, k clusters.

A new fitted attribute is one more line here. It is `.maybe`, as older files lack it, and the format keeps its number.
Its estimator sets it in `_publish`, `gpukpca.interop` where a peer is converted, and the docstring of the estimator
names it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpukpca.algorithms.kernel_pca.linear_axes import LinearAxes
from gpukpca.algorithms.kernel_pca.plan import Plan
from gpukpca.algorithms.kernel_pca.projection import AffineProjection
from gpukpca.algorithms.latent.model import LatentModel
from gpukpca.algorithms.mixture.model import LocalModel
from gpukpca.algorithms.pca.incremental import IncrementalState
from gpukpca.algorithms.pca.model import LinearProjection
from gpukpca.algorithms.pca.plan import PCAPlan
from gpukpca.algorithms.preimage.distance_constraint import DistanceConstraint
from gpukpca.algorithms.preimage.fixed_point import FixedPoint
from gpukpca.algorithms.preimage.linear import LinearPreimage
from gpukpca.algorithms.preimage.ridge import RidgeRegression
from gpukpca.kernels import Kernel
from gpukpca.persistence.checks import (
    check_incremental_pca,
    check_kernel_pca,
    check_latent,
    check_local_pca,
    check_pca,
)
from gpukpca.persistence.kinds import (
    BIC,
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
    magnitudes,
    names,
    of,
    rows,
    size_of,
)


@dataclass(frozen=True)
class Layout:
    """The contents of the file of one estimator.

    Attributes
    ----------
    estimator : str
        The name of the class.
    fitted : dict
        Kinds of the fitted attributes by name; private names are what methods need, and go where the model computes.
    check : callable
        ``check(model)`` raises ValueError or TypeError where parts of the right kinds make no model.
    home : str
        The attribute that says where the data of the fit were.
    """

    estimator: str
    fitted: dict[str, Kind]
    check: Callable[[Any], None]
    home: str = "components_"


FEATURES = {"n_features_in_": size_of("d"), "feature_names_in_": names("d").maybe}
# Of every estimator but LocalPCA.
SPECTRUM = {
    "explained_variance_": magnitudes("p"),
    "explained_variance_ratio_": magnitudes("p"),
    "total_variance_": POSITIVE,
}
LINEAR = {"components_": floats("p", "d"), **SPECTRUM, "noise_variance_": POSITIVE, "mean_": floats("d")}
RUN = {"solver_": TEXT, "device_": TEXT, "fallbacks_": TEXTS}

KERNEL_PCA_LAYOUT = Layout(
    "KernelPCA",
    {
        **FEATURES,
        "eigenvalues_": floats("p"),
        "eigenvectors_": floats("n", "p"),
        **SPECTRUM,
        "residual_norms_": magnitudes("p"),
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
        **RUN,
        "_map": of(AffineProjection),
        "_axes": of(LinearAxes).or_none.maybe,
        "_preimage": of(LinearPreimage, RidgeRegression, FixedPoint, DistanceConstraint).or_none.maybe,
    },
    check_kernel_pca,
    home="X_fit_",
)

PCA_LAYOUT = Layout(
    "PCA",
    {
        **FEATURES,
        "n_components_": size_of("p"),
        "n_samples_": size_of("n"),
        **LINEAR,
        "singular_values_": magnitudes("p"),
        "scale_": floats("d").or_none,
        "residual_norms_": magnitudes("p").or_none,
        "converged_": FLAG.or_none,
        "plan_": of(PCAPlan).or_none,
        **RUN,
        "_map": of(LinearProjection),
    },
    check_pca,
)

INCREMENTAL_PCA_LAYOUT = Layout(
    "IncrementalPCA",
    {
        **FEATURES,
        "n_components_": size_of("p"),
        "n_samples_seen_": size_of("n"),
        "batch_size_": COUNT,
        **LINEAR,
        "singular_values_": magnitudes("p"),
        "var_": magnitudes("d"),
        "residual_norms_": magnitudes("p").maybe,
        "converged_": FLAG.maybe,
        "n_passes_": COUNT.maybe,
        "solver_": TEXT.maybe,
        "device_": TEXT,
        "_state": of(IncrementalState),
    },
    check_incremental_pca,
)

LATENT = {
    **FEATURES,
    "n_components_": size_of("p"),
    "n_samples_": size_of("n"),
    **LINEAR,
    "loadings_": floats("d", "p"),
    "n_iter_": COUNT,
    "log_likelihoods_": floats("*").maybe,
    "converged_": FLAG,
    **RUN,
    "_latent": of(LatentModel),
}
PROBABILISTIC_PCA_LAYOUT = Layout("ProbabilisticPCA", LATENT, check_latent)
BAYESIAN_PCA_LAYOUT = Layout("BayesianPCA", {"precisions_": floats("*", finite=False), **LATENT}, check_latent)

LOCAL_PCA_LAYOUT = Layout(
    "LocalPCA",
    {
        **FEATURES,
        "n_clusters_": size_of("k"),
        "n_components_": size_of("p"),
        "weights_": floats("k"),
        "means_": floats("k", "d"),
        "components_": floats("k", "p", "d"),
        "explained_variance_": magnitudes("k", "p"),
        "noise_variance_": magnitudes("k"),
        "labels_": indices("n", below="k"),
        "n_iter_": COUNT,
        "converged_": FLAG,
        "log_likelihoods_": floats("*").maybe,
        "errors_": floats("*").maybe,
        "bic_": BIC,
        "device_": TEXT,
        "fallbacks_": TEXTS,
        "_model": of(LocalModel),
    },
    check_local_pca,
)
