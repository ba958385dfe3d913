"""Checks of fit results beyond types, shapes and rules of fields: parts must not contradict each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.algorithms.kernel_pca.model import KernelPCAFit
from gpukpca.algorithms.latent.model import LatentFit
from gpukpca.algorithms.mixture.assignment import ASSIGNMENTS
from gpukpca.algorithms.mixture.model import MixtureFit
from gpukpca.algorithms.pca.incremental import IncrementalFit
from gpukpca.algorithms.pca.model import PCAFit
from gpukpca.algorithms.preimage.distance_constraint import DistanceConstraint
from gpukpca.algorithms.preimage.fixed_point import FixedPoint
from gpukpca.algorithms.preimage.linear import LinearPreimage
from gpukpca.algorithms.preimage.ridge import RidgeRegression
from gpukpca.backend.csr import relabeled
from gpukpca.backend.namespace import cast, dtype_name, is_sparse
from gpukpca.backend.rows import place_of, take_rows
from gpukpca.eigen import Nystrom, Solver
from gpukpca.exceptions import ModelFormatError
from gpukpca.kernels import Kernel, Precomputed
from gpukpca.kernels.algebra import CombinedRows
from gpukpca.kernels.manhattan import CityBlockRows
from gpukpca.persistence.schema import RULES, SKEW

# How many entries the subtracted mean of CSR rows may add to each stored one. In the rows of a fit that is at most one,
# among landmarks there may be a few more.
MOST_ADDED = 16
# How far below the noise a variance may be, relative to it.
ROUNDING = 1e-12


def check_fit(fit: Any) -> None:
    """Check a fit result on the host; raise `ModelFormatError`, or the errors of parts that do not fit together."""
    CHECKS[type(fit)](fit)


# -- kernel PCA --------------------------------------------------------------------------------------------------------


def _check_kernel_pca(fit: KernelPCAFit) -> None:
    _check_kernel(fit.kernel)
    if isinstance(fit.kernel, Precomputed) and fit.plan is not None and fit.plan.n_features != fit.n_samples:
        raise ModelFormatError("a precomputed kernel matrix has as many columns as samples")
    if fit.plan is not None and fit.plan.is_approximate and fit.landmarks is None:
        raise ModelFormatError("a Nyström model has landmarks")
    low, high = fit.total_variance_interval
    if not low <= high:
        raise ModelFormatError(f"the ends of an interval must be in order: {low}, {high}")
    if fit.plan is not None and not isinstance(fit.plan.solver, (Solver, Nystrom)):
        raise ModelFormatError(f"the solver of its plan is {fit.plan.solver!r}")
    str(fit.plan)  # raises where its parts do not fit together
    basis, first = fit.map.basis, 0
    if is_sparse(basis):
        _check_sparse(fit)
        fit, first = _narrowed(fit), int(np.argmin(np.diff(basis.indptr)))  # a short row costs least
    scores = fit.space.scores(take_rows(fit.map.basis, first, first + 1))  # raises where kernel and template do not fit
    _check_finite(scores)
    _check_range(fit)
    _check_preimage(fit, scores)


def _check_sparse(fit: KernelPCAFit) -> None:
    """Check that kernel and template of CSR rows need no memory for entries that the file does not hold."""
    basis, entries = fit.map.basis, 0
    if fit.preimage is not None:
        raise ModelFormatError("a model of CSR rows has no pre-image")
    for rows in _leaves(fit.map.template):
        if not is_sparse(rows.data) and not isinstance(rows, CityBlockRows):
            raise ModelFormatError("the template of CSR rows has dense ones")
        entries += 0 if (mean := _mean_of(rows)) is None else int(np.count_nonzero(mean))
    if entries * int(basis.shape[0]) > MOST_ADDED * (int(basis.nnz) + int(basis.shape[0])):
        raise ModelFormatError(f"the means of CSR rows have {entries} entries, of columns that few rows store")


def _leaves(rows: Any) -> Iterator[Any]:
    """Yield the rows prepared for the kernels that are no combinations."""
    if isinstance(rows, CombinedRows):
        for part in rows.parts:
            yield from _leaves(part)
    elif rows is not None:
        yield rows


def _mean_of(rows: Any) -> Any:
    """Return the mean (d,) that prepared rows of a kernel hold, if any."""
    return vars(rows)["geometry"].mean if "geometry" in vars(rows) else vars(rows).get("mean")


def _narrowed(fit: KernelPCAFit) -> KernelPCAFit:
    """Return a fit of CSR rows without the columns that they do not store, which take memory in products.

    A file may claim 2³¹ of them. Where the template has a mean, the file holds a number for each.
    """
    mapping, basis = fit.map, fit.map.basis
    if any(_mean_of(rows) is not None for rows in _leaves(mapping.template)):
        return fit
    kept = np.union1d(basis.indices, [0])  # kernels need a column

    def narrowed(rows: Any) -> Any:
        if isinstance(rows, CombinedRows):
            return CombinedRows([narrowed(part) for part in rows.parts], rows.factors)
        return rows.with_data(relabeled(rows.data, kept) if is_sparse(rows.data) else rows.data[:, : len(kept)])

    template = None if mapping.template is None else narrowed(mapping.template)
    return replace(fit, map=replace(mapping, basis=relabeled(basis, kept), template=template, rows=None))


def _check_kernel(kernel: Kernel) -> None:
    """Check that every part has numbers in place of rules, and in range."""
    kernel.check()
    for part in kernel.get_params(deep=False).values():
        if isinstance(part, Kernel):
            _check_kernel(part)


def _check_range(fit: KernelPCAFit) -> None:
    """Raise where scores of training rows could overflow: |k(x, y)| is at most the largest k(x, x)."""
    mapping, axes = fit.map, fit.axes
    is_matrix = isinstance(fit.kernel, Precomputed)
    values = mapping.basis if is_matrix else fit.kernel.tile_diagonal(mapping.prepared(fit.kernel))
    bound = _largest(values) * _column_sums(mapping.projection) + _largest(mapping.offset)
    if axes is not None:
        rows = _largest(place_of(mapping.basis)) + _largest(axes.wide_mean)
        bound = bound + rows * _column_sums(axes.components.T)
    if not np.all(bound <= np.finfo(dtype_name(mapping.projection.dtype)).max):
        _check_finite(np.asarray(np.inf))


def _largest(values: Array) -> float:
    """Return the largest modulus of some numbers."""
    return float(np.max(np.abs(values), initial=0.0))


def _column_sums(weights: Array) -> np.ndarray:
    """Return the sums of the moduli in every column, in float64."""
    sums: np.ndarray = np.sum(np.abs(weights.astype(np.float64)), axis=0)
    return sums


def _check_preimage(fit: KernelPCAFit, scores: Array) -> None:
    """Check the pre-image, with one row of scores for a trial."""
    preimage = fit.preimage
    if preimage is None:
        return
    if not isinstance(preimage, (LinearPreimage, RidgeRegression, FixedPoint, DistanceConstraint)):
        raise ModelFormatError(f"its pre-image is a {type(preimage).__name__}")
    if fit.scores is None:
        raise ModelFormatError("it has a pre-image and no scores")
    if isinstance(preimage, RidgeRegression):
        _check_ridge(preimage)
    if isinstance(preimage, FixedPoint):
        preimage = replace(preimage, max_iter=1)
    if isinstance(preimage, DistanceConstraint):
        _check_distance_constraint(preimage)
        preimage = replace(preimage, n_neighbors=1)
    if scores.shape[1]:
        with suppress(np.linalg.LinAlgError):  # of numbers that overflow, not of parts that do not fit
            preimage(scores)


def _check_ridge(ridge: RidgeRegression) -> None:
    rule = ridge.rule
    _check_kernel(ridge.kernel)
    if type(rule.kernel.resolve(ridge.scores)) is not type(ridge.kernel):
        raise ModelFormatError(f"the kernel between scores is {ridge.kernel!r}, and its rule is {rule.kernel!r}")
    n, knots = int(ridge.scores.shape[0]), int(ridge.knots.shape[0])
    if (knots > rule.landmarks) if rule.landmarks else (knots != n):
        raise ModelFormatError(f"its ridge has {knots} rows for {n} samples and {rule.landmarks} landmarks")
    if (ridge.mean is None) == rule.centered:
        raise ModelFormatError("its ridge must have a mean if it is centered, and no mean if it is not")


def _check_distance_constraint(preimage: DistanceConstraint) -> None:
    inverse = preimage.space.kernel.inverts_to
    if inverse is None or (preimage.mean is None) != (inverse == "products"):
        raise ModelFormatError(f"values of {preimage.space.kernel!r} do not give the pre-images of the file")
    if preimage.n_neighbors > preimage.points.shape[0]:
        raise ModelFormatError(f"{preimage.n_neighbors} neighbors among {preimage.points.shape[0]} points")


# -- linear models -----------------------------------------------------------------------------------------------------


def _check_pca(fit: PCAFit) -> None:
    weights, axes = fit.projection.weights, fit.projection.axes
    if not RULES["orthonormal columns"](axes if weights is None else axes / weights[:, None]):
        raise ModelFormatError("the axes of its projection must be orthonormal")
    str(fit.plan)  # raises where its parts do not fit together
    scores = fit.projection.transform(_trial(fit), 1)
    _check_finite(scores)
    _check_finite(fit.projection.whitened(scores))


def _check_incremental_pca(fit: IncrementalFit) -> None:
    state = fit.state
    _check_scale(state.scale, state.total / state.degrees, fit.total_variance)
    projection = state.projection(fit.components, fit.mean)
    for whiten in (False, True):
        _check_finite(projection.transform(_trial(fit), whiten=whiten))


def _check_latent(fit: LatentFit) -> None:
    model = fit.model
    _check_variances(model.variances, model.noise)
    _check_scale(model.scale, model.total, fit.total_variance)
    if fit.precisions is not None and len(fit.precisions) < model.n_components:
        raise ModelFormatError("precisions must be given for every candidate")
    rows = _trial(fit)
    holes = np.where(np.arange(rows.shape[1]) % 2, rows, np.nan)
    _check_finite(model.posterior_means(np.concatenate([rows, holes])))


def _check_mixture(fit: MixtureFit) -> None:
    model, weights = fit.model, [cluster.weight for cluster in fit.model.clusters]
    if model.method not in ASSIGNMENTS:
        raise ModelFormatError(f"its method is {model.method!r}; known are {', '.join(ASSIGNMENTS)}")
    if len(weights) != len(fit.weights):
        raise ModelFormatError(f"it has {len(weights)} clusters, and {len(fit.weights)} weights")
    if (fit.log_likelihoods is None) == (model.method == "mixture"):
        raise ModelFormatError(f"the log-likelihoods or errors of its fit are not those of method {model.method!r}")
    if not abs(sum(weights) - 1.0) <= SKEW:
        raise ModelFormatError(f"weights must sum to 1: {weights[:5]}")
    for cluster in model.clusters:
        _check_variances(cluster.variances, cluster.noise)
    _check_finite(cast(model.coordinates(fit.means, 1), fit.components.dtype))


def _check_scale(scale: float, total: float, published: float) -> None:
    """Check a power of two by the sums of the variances of rows that were multiplied by it, and of the data."""
    is_known = published > float(np.finfo(np.float64).tiny)
    if is_known and not 1e-3 <= total / scale / scale / published <= 1e3:
        raise ModelFormatError(f"variances show that the data were not multiplied by {scale}")


def _trial(fit: Any) -> np.ndarray:
    """Return three rows among those that a linear model was fitted to: the mean, and a deviation to both sides."""
    deviation = np.sqrt(fit.total_variance / len(fit.mean))
    return np.asarray(fit.mean + deviation * np.asarray([[0.0], [1.0], [-1.0]])).astype(fit.components.dtype)


def _check_finite(scores: Array) -> None:
    if not np.all(np.isfinite(scores)):
        raise ModelFormatError("its numbers are so large that scores would not be finite")


def _check_variances(values: np.ndarray, noise: float) -> None:
    if np.any(values < noise * (1.0 - ROUNDING)):
        raise ModelFormatError(f"variances of the model must be at least the noise, {noise:.3g}: {values[:5]}")


CHECKS: dict[type, Callable[[Any], None]] = {
    KernelPCAFit: _check_kernel_pca,
    PCAFit: _check_pca,
    IncrementalFit: _check_incremental_pca,
    LatentFit: _check_latent,
    MixtureFit: _check_mixture,
}
