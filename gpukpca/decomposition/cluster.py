"""Data on a Dask cluster: when a fit is shared out to workers, and what of it comes to this process."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from gpukpca._formatting import format_bytes
from gpukpca._typing import Array
from gpukpca.algorithms.placement import Placement
from gpukpca.algorithms.progress import listener_from, waiting_report
from gpukpca.algorithms.resources import memory_limit
from gpukpca.backend.device import parsed_device
from gpukpca.backend.namespace import is_sparse, item_size, to_host
from gpukpca.decomposition._validation import Shape, training_data
from gpukpca.distributed import ClusterRows, cluster_for, is_dask_array
from gpukpca.exceptions import InvalidParameterError, MemoryBudgetError, PrecisionWarning, warn_user


def cluster_rows(estimator: Any, X: Any) -> ClusterRows | None:
    """Return X of `fit` as checked rows on the workers; None where it is computed in this process.

    A Dask array goes to the workers of `estimator.client`, or of the active client where that is None; data in memory
    do where a client is given. Sets `n_features_in_` and the feature names.

    Raises
    ------
    InvalidParameterError
        The client is none, or `device` names one GPU by its number.
    DeviceUnavailableError
        device="cuda", or a chunk on a GPU, and a worker has no GPU that works.
    ValueError
        NaN, infinity, no rows, chunks that do not fit together.
    ClusterError
        The workers are gone.

    Warns
    -----
    PrecisionWarning
        Integers beyond 2**53, extended precision.
    """
    remote = is_dask_array(X)
    if estimator.client is None and not remote:
        return None
    cluster = cluster_for(estimator.client, waiting_report(listener_from(estimator.verbose)))
    if cluster is None:
        return None
    cuda, index = parsed_device(estimator.device)
    if index is not None:
        raise InvalidParameterError(
            f'device={estimator.device!r}: each worker of a cluster has a GPU of its own; give device="cuda".'
        )
    if not remote:
        data = training_data(estimator, X)
        return ClusterRows.of_array(data if is_sparse(data) else to_host(data), cluster, cuda=cuda == "cuda")
    rows = ClusterRows.of_dask(X, cluster, cuda=cuda == "cuda")
    validate_data(estimator, Shape(rows.shape), reset=True, skip_check_array=True)
    _check_finite(estimator, rows)
    if rows.lost_digits:
        warn_user(rows.lost_digits, PrecisionWarning)
    return rows


def compute_dask(estimator: Any, X: Any) -> Any:
    """Return a Dask array in the memory of this process, where no client is; anything else as it is.

    Raises
    ------
    MemoryBudgetError
        It does not fit; a client would share it out.
    """
    if not is_dask_array(X):
        return X
    limit, needed = memory_limit(estimator.memory_limit, np.empty(0)), math.prod(X.shape) * X.dtype.itemsize
    if needed > limit:  # never where chunks are of unknown length
        raise MemoryBudgetError(
            f"the Dask array takes {format_bytes(int(needed))} in memory, and {format_bytes(limit)} are allowed or "
            "free. Start a client, distributed.Client(...), and the fit is shared out to its workers."
        )
    return X.compute()


def accumulate(rows: ClusterRows, limit: int, copied: bool) -> Array:
    """Return all rows in the memory of this process, for a model whose basis is its training set.

    Rows that came from this process are not sent back; with `copied` they are copied.

    Raises
    ------
    MemoryBudgetError
        They do not fit into `limit` bytes.
    """
    if rows.local is not None and not copied:
        return rows.local
    needed = rows.shape[0] * rows.shape[1] * item_size(rows.dtype)
    if needed > limit:
        raise MemoryBudgetError(
            f"a model of all {rows.shape[0]} rows keeps them in this process, {format_bytes(needed)}, and "
            f'{format_bytes(limit)} are allowed or free. eigen_solver="nystrom" keeps its landmarks only; float32 '
            "data take half."
        )
    if rows.local is not None:
        return rows.local.copy()
    out = np.empty(rows.shape, dtype=rows.dtype)
    for (start, stop), panel in zip(rows.bounds, rows.over_panels(to_host), strict=True):
        out[start:stop] = panel
    return out


def local_placement(rows: ClusterRows) -> Placement:
    """Return the placement of small computations: the host of this process."""
    like = rows.like[:, 0]
    return Placement(like, like)


def _check_finite(estimator: Any, rows: ClusterRows) -> None:
    """Raise ValueError where a panel holds NaN or infinity, with the count and the first row."""
    for found, what in zip(rows.not_finite(), ("NaN", f"infinity or a value too large for {rows.dtype}"), strict=True):
        if found.count:
            first = f"the first in row {found.row}, column {found.column}"
            raise ValueError(
                f"Input X contains {what}: {found.count} value(s), {first}. "
                f"{type(estimator).__name__} does not accept missing values; impute or drop them first."
            )
