"""The rows that a KernelPCA of a cluster keeps."""

from __future__ import annotations

import math
from typing import Any

from gpukpca.algorithms.kernel_pca.settings import KernelPCASettings
from gpukpca.algorithms.kernel_pca.task import is_spanned
from gpukpca.algorithms.resources import Resources
from gpukpca.backend.namespace import item_size
from gpukpca.data.rows import gathered
from gpukpca.distributed.rows import ClusterRows
from gpukpca.kernels import Kernel


def basis_of(rows: ClusterRows, kernel: Kernel, settings: KernelPCASettings, resources: Resources) -> Any:
    """Return the rows that a model keeps of those on a cluster: some of them, or all, in the memory of this process.

    Rows that came from this process are not sent back, and are copied where the settings say so. Raises
    `MemoryBudgetError` where they do not fit.
    """
    if (settings.nystrom and settings.preimage is None) or is_spanned(kernel, settings, *rows.shape):
        return rows
    if rows.local is not None and not settings.copies_data:
        return rows.local
    entries, what = math.prod(rows.shape), f"a model of all {rows.shape[0]} rows, which it keeps in this process, needs"
    changes = [[("float32 data", 4 * entries)], [('the approximation eigen_solver="nystrom"', 0)]]
    resources.check(entries * item_size(rows.dtype), what, changes)
    return gathered(rows) if rows.local is None else rows.local.copy()
