"""Dask arrays and clusters: which fits go to workers, and methods of new rows that return lazy Dask arrays."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from gpukpca._typing import Array
from gpukpca.algorithms.progress import chunk_report, waiting_report
from gpukpca.backend.device import parsed_device
from gpukpca.data.finite import NotFiniteError
from gpukpca.data.gate import check_held
from gpukpca.data.place import Placement, rows_on_host
from gpukpca.decomposition._base import output_of_transform
from gpukpca.decomposition._callbacks import listener_of
from gpukpca.decomposition._kernels import matrix_of
from gpukpca.decomposition._validation import limit_of, no_rows, rows_to_be_finite, training_data
from gpukpca.distributed.chunks import ChunkRows
from gpukpca.distributed.client import Cluster, active_cluster
from gpukpca.distributed.lazy import filled_rows, known_width, mapped_rows
from gpukpca.distributed.rows import ClusterRows, is_dask_array
from gpukpca.exceptions import InvalidParameterError

# What computes a Dask array that does not fit into memory.
OF_CLIENTS = "Start a client, distributed.Client(...), and the fit is shared out to its workers."
# Kinds of results with several columns, and the attribute that counts these.
WIDTHS = {
    "scores": "_n_features_out",
    "points": "n_features_in_",
    "rows": "n_features_in_",
    "shares": "n_clusters_",
}
# Arguments that concern all rows at once.
OF_ALL_ROWS = ("out", "return_info", "labels", "diagonal")


# -- fits --------------------------------------------------------------------------------------------------------------


def cluster_rows(estimator: Any, X: Any, sample_weight: Any = None) -> ClusterRows | None:
    """Return X of `fit` as checked rows on the workers; None where it is computed in this process.

    A Dask array goes to the workers of the active client, without the entries of rows of weight 0. Sets
    `n_features_in_`. Raises and warns as `training_data` does, and for a client, a device or chunks that do not fit.
    """
    if isinstance(X, ClusterRows):
        rows = X
    elif not is_dask_array(X) or (cluster := cluster_of(estimator)) is None:
        return None
    else:
        X = filled_rows(X, rows_to_be_finite(estimator, sample_weight))
        rows = ChunkRows(X, cluster, cuda=_on_gpus(estimator), purpose=type(estimator).__name__)
    validate_data(estimator, no_rows(rows), reset=True, skip_check_array=True)
    rows.place = Placement(like := rows.like[:, 0], like)  # small computations are those of this process
    return rows


def cluster_of(estimator: Any) -> Cluster | None:
    """Return the active cluster, which reports to the listener of an estimator."""
    listener = listener_of(estimator)
    return active_cluster(waiting_report(listener), chunk_report(listener))


def shared_rows(estimator: Any, X: Any, client: Any) -> ClusterRows:
    """Return data in memory, checked, as rows on workers, which `fit` and `plan` take."""
    cluster = Cluster(client, waiting_report(listener_of(estimator)))
    data = training_data(estimator, X)
    return ClusterRows.of_array(rows_on_host(data), cluster, cuda=_on_gpus(estimator))


def _on_gpus(estimator: Any) -> bool:
    """Return whether the workers compute on their GPUs."""
    cuda, index = parsed_device(estimator.device)
    if index is not None:
        raise InvalidParameterError(
            f'device={estimator.device!r}: each worker of a cluster has one GPU; give device="cuda".'
        )
    return cuda == "cuda"


def compute_dask(estimator: Any, X: Any) -> Any:
    """Return a Dask array in memory, where no client is; anything else as it is.

    A kernel matrix of sparse chunks becomes the rows of its operator.
    """
    if not is_dask_array(X):
        return X
    check_held(X, "the Dask array", limit_of(estimator), OF_CLIENTS)
    return matrix_of(estimator, X.compute())


# -- new rows ----------------------------------------------------------------------------------------------------------


def lazy_answer(estimator: Any, X: Any, method: str, given: dict[str, Any], answer: str, of: str) -> Any:
    """Return the lazy result of a method for a Dask array of points or scores.

    `given` are its further arguments. `answer` is the result for every row, a key of `WIDTHS`; "rows" have the
    precision of X.
    """
    for name in OF_ALL_ROWS:
        if given.get(name, False) is not False:
            raise InvalidParameterError(
                f"{method} of a Dask array is computed later, block by block, and takes no {name}; leave it out, or "
                "call it for blocks in memory."
            )
    if method == "transform":
        check_no_data_frames(estimator, X)
    _check_rows(estimator, X, method, of)
    model, width = _copy_for_workers(estimator), int(getattr(estimator, WIDTHS[answer])) if answer in WIDTHS else None
    own = "float32" if X.dtype == np.float32 else "float64"
    dtype = {"labels": "int64", "rows": own}.get(answer, estimator._dtype_out)
    return mapped_rows(X, partial(_asked, method, given), model, width, dtype)


def check_no_data_frames(estimator: Any, X: Any) -> None:
    """Raise where `transform` is to answer with data frames, and X is a Dask array."""
    output = output_of_transform(estimator)
    if output != "default" and is_dask_array(X):
        raise InvalidParameterError(
            f'set_output(transform="{output}") makes data frames in memory, and a Dask array is answered by a Dask '
            'array; use set_output(transform="default").'
        )


def _check_rows(estimator: Any, X: Any, method: str, of: str) -> None:
    """Check shape and dtype of rows before they are computed; entries are checked block by block."""
    if X.ndim != 2:
        raise ValueError(f"Expected 2D array, got {X.ndim}D array instead: a Dask array of shape {X.shape}.")
    if X.dtype.kind == "c":
        raise ValueError("Complex data not supported")
    width = known_width(X)
    if width is None:
        return
    if of == "points":
        validate_data(estimator, np.empty((0, width)), reset=False, skip_check_array=True)
    elif width != estimator._n_features_out:
        raise ValueError(
            f"{method} expects scores of shape (m, n_components) with n_components = {estimator._n_features_out}; got "
            f"shape {X.shape}."
        )


def _copy_for_workers(estimator: Any) -> Any:
    """Return a copy with what workers can receive, which a later fit does not change."""
    model, parameters = copy.copy(estimator), estimator.get_params(deep=False)
    settings = {"verbose": 0}
    if parameters.get("n_jobs") is None:
        settings["n_jobs"] = 1  # Dask has a thread for every block already
    model.set_params(**{name: value for name, value in settings.items() if name in parameters})
    # Blocks have no names of columns; the warning about them comes once, from this process.
    vars(model).pop("feature_names_in_", None)
    return model


def _asked(method: str, settings: dict[str, Any], model: Any, block: Any, k: int, first: int | None) -> Array:
    """Return a method's result for a block in memory; errors name an entry that is not finite by its row in X."""
    try:
        return getattr(model, method)(block, **settings)
    except NotFiniteError as error:
        text, row, *rest = error.args
        raise (NotFiniteError(f"block {k}: {text}", row, *rest) if first is None else error.moved(first)) from None
