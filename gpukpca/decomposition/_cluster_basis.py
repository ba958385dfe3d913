"""The rows that a KernelPCA of a cluster keeps."""

from __future__ import annotations

from typing import Any

from gpukpca._formatting import format_allowance, format_need
from gpukpca.algorithms.kernel_pca.settings import KernelPCASettings
from gpukpca.algorithms.kernel_pca.task import is_spanned
from gpukpca.algorithms.resources import Resources
from gpukpca.backend.namespace import item_size
from gpukpca.data.rows import gathered
from gpukpca.distributed.rows import ClusterRows
from gpukpca.exceptions import MemoryBudgetError
from gpukpca.kernels import Kernel


def basis_of(rows: ClusterRows, kernel: Kernel, settings: KernelPCASettings, resources: Resources) -> Any:
    """Return the rows that a model keeps of those on a cluster: some of them, or all, in the memory of this process.

    Rows that came from this process are not sent back, and are copied where the settings say so. Raises
    `MemoryBudgetError` where they do not fit.
    """
    if (settings.is_nystrom and settings.preimage is None) or is_spanned(kernel, settings, *rows.shape):
        return rows
    if rows.local is not None and not settings.copies_data:
        return rows.local
    needed, limit = rows.shape[0] * rows.shape[1] * item_size(rows.dtype), resources.allowed()
    if needed > limit:
        raise MemoryBudgetError(
            f"a model of all {rows.shape[0]} rows keeps them in this process, {format_need(needed)}, and "
            f'{format_allowance(limit)} are allowed or free. eigen_solver="nystrom" keeps its landmarks only; float32 '
            "data take half."
        )
    return gathered(rows) if rows.local is None else rows.local.copy()
