"""KernelPCA of rows on the workers of a cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpukpca.algorithms.kernel_pca.fit import fit_rows
from gpukpca.algorithms.kernel_pca.task import is_spanned
from gpukpca.algorithms.preimage.linear import fit_preimage
from gpukpca.decomposition._dask import local_placement, rows_in_memory
from gpukpca.decomposition._session import FitSession, fit_tools, kernel_and_settings
from gpukpca.distributed.rows import ClusterRows, is_dask_array
from gpukpca.exceptions import InvalidParameterError


def fit_on_cluster(
    model: Any, rows: ClusterRows, container: Any, session: FitSession, wants_scores: bool, sample_weight: Any
) -> Any:
    """Make one attempt to fit a KernelPCA to rows on the workers of a cluster; return scores or None."""
    if sample_weight is not None:
        raise InvalidParameterError(
            "sample_weight is not taken by kernel PCA of rows on a cluster. Use PCA, or fit in one process.",
            argument="sample_weight",
        )
    place = local_placement(rows)
    resources = session.resources(place)
    kernel, settings = kernel_and_settings(model, rows, resources)
    is_few = settings.is_nystrom and settings.preimage is None
    needs_all = not is_few and not is_spanned(kernel, settings, *rows.shape)
    basis = rows_in_memory(rows, resources.allowed(), settings.copies_data) if needs_all else rows
    tools = fit_tools(model, basis, kernel)
    fit = fit_rows(rows, kernel, settings, resources, basis=basis, **tools)
    fit = replace(fit, preimage=fit_preimage(basis, fit, settings.preimage))
    model._publish(fit, place, session.budget.failures)
    if not wants_scores:
        return None
    is_dask = is_dask_array(container)
    if fit.scores is None:
        given: Any = container if is_dask else rows.local
        return model.transform(given)
    return rows.as_dask(fit.scores) if is_dask else model._output(fit.scores, container)
