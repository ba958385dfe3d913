"""Checks of loaded models beyond kinds and shapes: parts must not contradict each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from gpukpca._archive import SKEW
from gpukpca._typing import Array
from gpukpca.algorithms.preimage.distance_constraint import DistanceConstraint
from gpukpca.algorithms.preimage.fixed_point import FixedPoint
from gpukpca.algorithms.preimage.ridge import RidgeRegression
from gpukpca.backend.device import device_context
from gpukpca.backend.linalg import inner_products
from gpukpca.backend.namespace import cast, dtype_name, overflow_allowed, to_host
from gpukpca.backend.rows import place_of, take_rows
from gpukpca.exceptions import ModelFormatError
from gpukpca.kernels import Kernel, Precomputed

# How far below the noise a variance may be, relative to it.
ROUNDING = 1e-12
NOT_FINITE = "its numbers are so large that scores would not be finite"


# -- kernel PCA --------------------------------------------------------------------------------------------------------


def check_kernel_pca(model: Any) -> None:
    """Check a KernelPCA; raise `ModelFormatError`, or the errors of parts that do not belong together."""
    _check_kernel(model.kernel_)
    _check_spectrum(model.eigenvalues_)
    _check_orthonormal("eigenvectors_", model.eigenvectors_)
    if isinstance(model.kernel_, Precomputed) and model.eigenvectors_.shape[0] != model.n_features_in_:
        raise ModelFormatError("a precomputed kernel matrix has as many columns as samples")
    with device_context(model._map.like), overflow_allowed():
        # Raises where kernel and template do not belong together.
        scores = model._space.scores(take_rows(model._map.basis, 0, 1))
        _check_finite(scores)
        _check_range(model)
        _check_preimage(model, scores)


def _check_range(model: Any) -> None:
    """Raise where scores of training rows could overflow: |k(x, y)| is at most the largest k(x, x)."""
    mapping, kernel, axes = model._map, model.kernel_, model._axes
    values = mapping.basis if isinstance(kernel, Precomputed) else kernel.tile_diagonal(mapping.prepared(kernel))
    bound = _largest(values) * _column_sums(mapping.projection) + _largest(mapping.offset)
    if axes is not None:
        rows = _largest(place_of(mapping.basis)) + _largest(axes.wide_mean)
        bound = bound + rows * _column_sums(axes.components.T)
    if not np.all(bound <= np.finfo(dtype_name(mapping.projection.dtype)).max):
        raise ModelFormatError(NOT_FINITE)


def _largest(values: Array) -> float:
    """Return the largest modulus of some numbers."""
    return float(np.max(np.abs(to_host(values)), initial=0.0))


def _column_sums(weights: Array) -> np.ndarray:
    """Return the sums of the moduli in every column, in float64."""
    return np.sum(np.abs(to_host(weights).astype(np.float64)), axis=0)


def _check_preimage(model: Any, scores: Array) -> None:
    """Check the pre-image, with one row of scores for a trial."""
    preimage, names = model._preimage, vars(model)
    is_ridge = isinstance(preimage, RidgeRegression)
    if ("X_transformed_fit_" in names) != (preimage is not None) or ("dual_coef_" in names) != is_ridge:
        raise ModelFormatError("it has half of a pre-image")
    if is_ridge:
        _check_ridge(preimage)
    if isinstance(preimage, (FixedPoint, DistanceConstraint)):
        _check_space(model, preimage)
    if isinstance(preimage, FixedPoint):
        preimage = replace(preimage, max_iter=1)
    if isinstance(preimage, DistanceConstraint):
        _check_distance_constraint(preimage)
        preimage = replace(preimage, n_neighbors=1)
    if preimage is not None and scores.shape[1]:
        with suppress(np.linalg.LinAlgError):  # of numbers that overflow, not of parts that do not fit
            preimage(scores)


def _check_ridge(ridge: RidgeRegression) -> None:
    rule = ridge.rule
    _check_kernel(ridge.kernel)
    if type(rule.kernel.resolve(ridge.scores)) is not type(ridge.kernel):
        raise ModelFormatError(f"the kernel between scores is {ridge.kernel!r}, and was to be {rule.kernel!r}")
    n, knots = int(ridge.scores.shape[0]), int(ridge.knots.shape[0])
    if (knots > rule.landmarks) if rule.landmarks else (knots != n):
        raise ModelFormatError(f"its ridge has {knots} rows for {n} samples and {rule.landmarks} landmarks")
    if (ridge.mean is None) == rule.centered:
        raise ModelFormatError("its ridge must have a mean if it is centered, and none if it is not")


def _check_space(model: Any, preimage: Any) -> None:
    if preimage.space.map is not model._map or preimage.space.kernel != model.kernel_:
        raise ModelFormatError("its pre-image is that of another model")


def _check_distance_constraint(preimage: DistanceConstraint) -> None:
    told = preimage.space.kernel.inverts_to
    if told is None or (preimage.mean is None) != (told == "products"):
        raise ModelFormatError(f"{preimage.space.kernel!r} does not tell what its pre-image is made from")
    if preimage.n_neighbors > preimage.points.shape[0]:
        raise ModelFormatError(f"{preimage.n_neighbors} neighbors among {preimage.points.shape[0]} points")


# -- linear models -----------------------------------------------------------------------------------------------------


def _check_components(model: Any) -> None:
    _check_spectrum(model.explained_variance_)
    _check_orthonormal("components_", model.components_.T)


def check_pca(model: Any) -> None:
    """Check a PCA."""
    _check_components(model)
    weights = model._map.weights
    if not all(values is None or np.all(to_host(values) > 0) for values in (model.scale_, weights)):
        raise ModelFormatError("scale_ must be positive: the data are divided by it")
    axes = model._map.axes if weights is None else model._map.axes / weights[:, None]
    _check_orthonormal("its axes", axes)
    with device_context(axes), overflow_allowed():
        scores = model._map.transform(_trial(model), 1)
        _check_finite(model._map.whitened(scores) if model.whiten else scores)


def check_incremental_pca(model: Any) -> None:
    """Check an IncrementalPCA."""
    _check_components(model)
    state = model._state
    _check_scale(state.scale, state.total / max(model.n_samples_seen_ - 1, 1), model.total_variance_)
    with overflow_allowed():
        _check_finite(model._projection.transform(_trial(model), whiten=model.whiten))


def check_latent(model: Any) -> None:
    """Check a ProbabilisticPCA or BayesianPCA."""
    _check_components(model)
    latent = model._latent
    _check_orthonormal("its axes", latent.axes)
    _check_variances(latent.variances, latent.noise)
    _check_scale(latent.scale, latent.total, model.total_variance_)
    precisions = getattr(model, "precisions_", np.ones(len(latent.variances)))
    if not np.all(precisions > 0) or len(precisions) < len(latent.variances):
        raise ModelFormatError("precisions_ must be positive numbers or infinite, one for every candidate")
    with device_context(latent.axes), overflow_allowed():
        rows = _trial(model)
        holes = np.where(np.arange(rows.shape[1]) % 2, rows, np.nan)
        _check_finite(latent.posterior_means(np.concatenate([rows, holes])))


def check_local_pca(model: Any) -> None:
    """Check a LocalPCA."""
    for axes in model.components_:
        _check_orthonormal("components_", axes.T)
    local = model._model
    _check_scale(local.frame.factor, 0.0, 0.0)
    if len(local.clusters) != model.n_clusters_:
        raise ModelFormatError(f"it has {len(local.clusters)} clusters, and n_clusters_ is {model.n_clusters_}")
    if hasattr(model, "log_likelihoods_") != (local.method == "mixture"):
        raise ModelFormatError(f"the history of its fit is not that of the method {local.method!r}")
    _check_weights([cluster.weight for cluster in local.clusters])
    for cluster in local.clusters:
        if not cluster.noise > 0:
            raise ModelFormatError("the noise of a cluster must be positive")
        _check_orthonormal("its axes", cluster.axes.T)
        _check_variances(cluster.variances, cluster.noise)
    with device_context(local.frame.shift), overflow_allowed():
        _check_finite(cast(local.coordinates(model.means_, 1), model.components_.dtype))


# -- parts -------------------------------------------------------------------------------------------------------------


def _check_kernel(kernel: Kernel) -> None:
    """Check that every part has numbers in place of rules, and in range."""
    kernel.check()
    for part in kernel.get_params(deep=False).values():
        if isinstance(part, Kernel):
            _check_kernel(part)


def _check_scale(scale: float, total: float, published: float) -> None:
    """Check a power of two by the sums of the variances of rows that were multiplied by it, and of the data."""
    is_known = published > float(np.finfo(np.float64).tiny)
    if not math.frexp(scale)[0] == 0.5 or (is_known and not 1e-3 <= total / scale / scale / published <= 1e3):
        raise ModelFormatError(f"data cannot be multiplied by {scale}, or these were not")


def _trial(model: Any) -> np.ndarray:
    """Return three rows among those that a linear model was fitted to: the mean, and a deviation to both sides."""
    deviation = np.sqrt(model.total_variance_ / len(model.mean_))
    return (model.mean_ + deviation * np.asarray([[0.0], [1.0], [-1.0]])).astype(model.components_.dtype)


def _check_finite(scores: Array) -> None:
    if not np.all(np.isfinite(to_host(scores))):
        raise ModelFormatError(NOT_FINITE)


def _check_spectrum(values: np.ndarray) -> None:
    if np.any(values < 0) or np.any(np.diff(values) > SKEW * np.max(values, initial=0.0)):
        raise ModelFormatError(f"its eigenvalues must be >= 0 and descend: {values[:5]}")


def _check_variances(values: np.ndarray, noise: float) -> None:
    _check_spectrum(values)
    if np.any(values < noise * (1.0 - ROUNDING)):
        raise ModelFormatError(f"variances of the model must be at least the noise, {noise:.3g}: {values[:5]}")


def _check_weights(weights: Sequence[float]) -> None:
    if not min(weights) > 0 or not abs(sum(weights) - 1.0) <= SKEW:
        raise ModelFormatError(f"weights must be positive and sum to 1: {weights[:5]}")


def _check_orthonormal(name: str, vectors: Array) -> None:
    """Check that columns (n, p) are orthonormal."""
    with device_context(vectors), overflow_allowed():
        skew = np.max(np.abs(inner_products(vectors, vectors) - np.eye(vectors.shape[1])), initial=0.0)
    if not skew <= SKEW:
        raise ModelFormatError(f"{name} must be orthonormal; inner products are off by {skew:.2g}")
