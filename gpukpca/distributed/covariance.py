"""The centered matrix of rows on a cluster, whose products of rows are shared out by pairs of groups."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend.device import device_context
from gpukpca.backend.namespace import cast, overflow_allowed, to_host
from gpukpca.covariance.centered_matrix import mean_of_sample, sampling_step
from gpukpca.covariance.panels import CenteringSpec, PanelCenteredMatrix
from gpukpca.data.frequencies import Frequencies
from gpukpca.distributed.client import Cluster
from gpukpca.distributed.rows import ClusterRows, group_count


class ClusterCenteredMatrix(PanelCenteredMatrix):
    """The rows on a cluster less their mean, in units of a scale; see `CenteredMatrix`.

    Parameters
    ----------
    rows : ClusterRows
    by_rows : bool
        Whether panels are read in blocks of rows, else of columns.
    center : bool
        False: the mean is 0.
    frequencies : Frequencies, optional
        Of the rows.

    Raises
    ------
    ClusterError
        Workers or scheduler are lost; not from `rescale`.

    Notes
    -----
    A product is one round trip of a block of b columns: d b items to a worker for `times` and `scatter_times`, its rows
    of n b for `adjoint`. Results are NumPy arrays on this machine.
    """

    source: ClusterRows

    def __init__(
        self, rows: ClusterRows, by_rows: bool, center: bool = True, frequencies: Frequencies | None = None
    ) -> None:
        sample = rows.sample(sampling_step(*rows.shape))
        # One thread: there are more panels than threads, and Dask has one for each.
        shift = cast(mean_of_sample(sample, np.float64), rows.dtype)
        super().__init__(rows, by_rows, shift, n_jobs=1, center=center, frequencies=frequencies)
        self.cluster: Cluster = rows.cluster

    def shifted_gram(self) -> np.ndarray:
        """Return the products of the shifted rows in units of the scale, shape (n, n), by pairs of groups of rows."""
        count = group_count(self.cluster.threads)
        rows, G = self.source.grouped(count, limit=count + count // 2), np.empty((self.shape[0],) * 2)
        pairs = [(i, j) for j in range(len(rows.sizes)) for i in range(j + 1)]
        names = ["products of rows {} to {} with {} to {}".format(*rows.bounds[i], *rows.bounds[j]) for i, j in pairs]

        def blocks() -> list[Any]:
            spec, roots = self.cluster.share(self._spec), []
            if self.frequencies is not None:
                roots.append(rows.split(self.frequencies.roots).panels)
            parts = list(zip(rows.panels, *roots, strict=True))
            futures = [self.cluster.submit(products_of_rows, spec, *parts[i], *parts[j], name="gram") for i, j in pairs]
            return self.cluster.results(futures, names)

        for (i, j), block in zip(pairs, rows.retried(blocks), strict=True):
            (a, b), (p, q) = rows.bounds[i], rows.bounds[j]
            G[a:b, p:q] = block
            G[p:q, a:b] = block.T
        return G


def products_of_rows(shared: tuple[CenteringSpec], *parts: Array) -> np.ndarray:
    """Return the products of the rows of two panels; each may be followed by the roots of their frequencies."""
    one, other = parts[: len(parts) // 2], parts[len(parts) // 2 :]
    with device_context(one[0]), overflow_allowed():
        rows = shared[0].rows(*one)
        return to_host(rows.products_with(rows if other[0] is one[0] else shared[0].rows(*other)))
