"""Fits of KernelPCA to checked rows: an array, a CSR matrix, batches, or rows on the workers of a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gpukpca._typing import Array
from gpukpca.algorithms.inputs import counted_for, weights_of_batches
from gpukpca.algorithms.kernel_pca.batches import fit_batches, plan_batches
from gpukpca.algorithms.kernel_pca.fit import fit_rows
from gpukpca.algorithms.kernel_pca.model import KernelPCAFit
from gpukpca.algorithms.plan import Plan
from gpukpca.algorithms.preimage.linear import fit_preimage
from gpukpca.algorithms.resources import Resources
from gpukpca.data.batches import is_set
from gpukpca.data.panels import CheckedRows
from gpukpca.data.place import own_copy, placement_for
from gpukpca.data.slicing import in_memory
from gpukpca.decomposition._batches import PlacedBatches
from gpukpca.decomposition._cluster_basis import basis_of
from gpukpca.decomposition._kernels import kernel_from
from gpukpca.decomposition._session import fit_tools, kernel_and_settings, settings_of
from gpukpca.distributed.lazy import in_chunks_of
from gpukpca.distributed.rows import ClusterRows, is_dask_array
from gpukpca.exceptions import held_warnings
from gpukpca.kernels import Precomputed


def fit_any(model: Any, rows: Any, X: Any, resources: Resources, sample_weight: Any) -> tuple[KernelPCAFit, Any]:
    """Return the fit to the checked rows of X, and those that it keeps as given."""
    if isinstance(rows, PlacedBatches | CheckedRows):
        weights = weights_of_batches(X, sample_weight, rows)
        return fit_of_batches(model, rows, resources, weights, once=isinstance(X, Iterator)), None
    on_cluster, place, kernel = isinstance(rows, ClusterRows), resources.place, kernel_from(model)
    data, weights, numbers = counted_for(kernel, rows, sample_weight)
    work = place.to_work(data)
    kernel, settings = kernel_and_settings(model, work, resources, weights)
    if on_cluster:
        basis = basis_of(data, kernel, settings, resources)
    else:
        data = own_copy(data, X) if model.copy_X and not isinstance(kernel, Precomputed) else data
        basis = work = work if place.moved else data
    tools = fit_tools(model, basis, kernel, weights) | {"weights": weights, "numbers": numbers, "every": rows}
    fit = fit_rows(work, kernel, settings, resources, basis=basis, **tools)
    fit = replace(fit, preimage=fit_preimage(basis, fit, settings.preimage))
    return fit, in_memory(data if fit.landmarks is None else rows)


def check_plan(model: Any, X: Any, in_batches: bool, sample_weight: Any) -> None:
    """Raise where no plan fits into memory, before a set is read whole."""
    if is_set(X) and not in_batches and sample_weight is None and not kernel_from(model).stored_only:
        with held_warnings():
            model.plan(X)


def fit_of_batches(model: Any, batches: Any, resources: Resources, weights: Any, **how: Any) -> KernelPCAFit:
    """Return the fit of a KernelPCA to batches of rows; see `fit_batches`."""
    kernel = kernel_from(model)
    how |= fit_tools(model, batches, kernel, weights)
    return fit_batches(batches, kernel, settings_of(model, kernel), resources, weights=weights, **how)


def plan_stream(model: Any, rows: Any) -> Plan:
    """Return the plan of a fit of a KernelPCA to rows in batches."""
    kernel, resources = kernel_from(model), model._resources(placement_for(model.device, rows))
    return plan_batches(rows, kernel, settings_of(model, kernel), resources, model.checkpoint is not None)


def scores_as_given(model: Any, scores: Array | None, rows: Any, container: Any, like: Array) -> Any:
    """Return the scores of a fit as the container is; `transform` gives those that it lacks."""
    if scores is None or int(rows.shape[0]) > int(scores.shape[0]):  # not of all rows
        local = getattr(rows, "local", None)  # of rows that this process shared out
        return model.transform(container if local is None else local)
    found = model._output(scores, like)
    return in_chunks_of(found, container, getattr(rows, "chunks", None)) if is_dask_array(container) else found
