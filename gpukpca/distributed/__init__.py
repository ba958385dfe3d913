"""Kernel matrices and covariances on the workers of a Dask cluster; Dask is imported when it is used.

GPUs: one worker a GPU, as dask-cuda's ``LocalCUDACluster()`` starts them. Chunks that are CuPy arrays are computed
where they are; ``cuda=True`` moves panels to the GPU of their worker. Results are NumPy arrays.

Internal: it may change in any version.
"""
