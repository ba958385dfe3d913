"""Kernel matrices and covariances on the workers of a Dask cluster; Dask is imported when it is used.

GPUs: one worker a GPU, as dask-cuda's ``LocalCUDACluster()`` starts them. Chunks that are CuPy arrays are computed
where they are; ``cuda=True`` moves panels to the GPU of their worker. Results are NumPy arrays.
"""

from gpukpca.distributed.client import Cluster, client_for, cluster_for
from gpukpca.distributed.covariance import ClusterCenteredMatrix
from gpukpca.distributed.gram import DaskGram
from gpukpca.distributed.rows import ClusterRows, dask_kind, is_dask_array

__all__ = [
    "Cluster",
    "ClusterCenteredMatrix",
    "ClusterRows",
    "DaskGram",
    "client_for",
    "cluster_for",
    "dask_kind",
    "is_dask_array",
]
