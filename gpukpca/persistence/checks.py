"""Checks of fit results beyond types, shapes and rules of fields: ranges of indices, and memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from gpukpca.algorithms.kernel_pca.model import KernelPCAFit
from gpukpca.algorithms.mixture.model import MixtureFit
from gpukpca.algorithms.preimage.distance_constraint import DistanceConstraint
from gpukpca.algorithms.preimage.result import Preimage
from gpukpca.algorithms.preimage.ridge import RidgeRegression
from gpukpca.backend.namespace import is_sparse
from gpukpca.backend.parameters import check_values
from gpukpca.exceptions import ModelFormatError
from gpukpca.kernels import Kernel, Precomputed
from gpukpca.kernels.algebra import CombinedRows
from gpukpca.kernels.manhattan import CityBlockRows

# How many entries the subtracted mean of CSR rows may add to each stored one. In the rows of a fit that is at most one,
# among landmarks there may be a few more.
MOST_ADDED = 16


def check_fit(fit: Any) -> None:
    """Raise for a fit result whose methods could read out of bounds, or take memory that the file does not."""
    if isinstance(fit, KernelPCAFit):
        _check_kernel_pca(fit)
    if isinstance(fit, MixtureFit) and len(fit.model.clusters) != len(fit.weights):
        raise ModelFormatError(f"it has {len(fit.model.clusters)} clusters, and {len(fit.weights)} weights")


def _check_kernel_pca(fit: KernelPCAFit) -> None:
    plan, preimage, m = fit.plan, fit.preimage, int(fit.map.projection.shape[0])
    is_matrix = isinstance(fit.kernel, Precomputed)
    _check_kernel(fit.kernel)
    if fit.map.basis is None and not is_matrix:
        raise ModelFormatError("it lacks the rows that its kernel is evaluated with")
    if plan is not None and is_matrix and plan.n_features != fit.n_samples:
        raise ModelFormatError("a precomputed kernel matrix has as many columns as samples")
    if is_matrix and fit.landmarks is not None and np.max(fit.landmarks) >= fit.n_samples:
        raise ModelFormatError(f"its landmarks are no columns of a kernel matrix of {fit.n_samples} samples")
    if math.isnan(fit.spectrum.total_variance) and not is_matrix:
        raise ModelFormatError("its total variance is NaN, which only a kernel matrix without a diagonal has")
    if is_sparse(fit.map.basis):
        _check_sparse(fit)
    if preimage is not None and not isinstance(preimage, Preimage):
        raise ModelFormatError(f"its pre-image is a {type(preimage).__name__}")
    if isinstance(preimage, RidgeRegression):
        _check_kernel(preimage.kernel)
    if isinstance(preimage, DistanceConstraint) and preimage.n_neighbors > m:
        raise ModelFormatError(f"{preimage.n_neighbors} neighbors among {m} points")


def _check_kernel(kernel: Kernel) -> None:
    """Check that every part has numbers in place of rules, and in range."""
    for part in (kernel, *kernel.get_params().values()):
        if isinstance(part, Kernel):
            check_values(part)


def _check_sparse(fit: KernelPCAFit) -> None:
    """Check that products with CSR rows make no dense ones of columns that few rows store."""
    basis, entries = fit.map.basis, 0
    if fit.preimage is not None:
        raise ModelFormatError("a model of CSR rows has no pre-image")
    for rows in _leaves(fit.map.template):
        if not is_sparse(rows.data) and not isinstance(rows, CityBlockRows):
            raise ModelFormatError("the template of CSR rows has dense ones")
        mean = vars(rows)["geometry"].mean if "geometry" in vars(rows) else vars(rows).get("mean")
        entries += 0 if mean is None else int(np.count_nonzero(mean))
    if entries * int(basis.shape[0]) > MOST_ADDED * (int(basis.nnz) + int(basis.shape[0])):
        raise ModelFormatError(f"the means of CSR rows have {entries} entries, of columns that few rows store")


def _leaves(rows: Any) -> Iterator[Any]:
    """Yield the rows prepared for the kernels that are no combinations."""
    if isinstance(rows, CombinedRows):
        for part in rows.parts:
            yield from _leaves(part)
    elif rows is not None:
        yield rows
