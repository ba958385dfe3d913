"""The fixed table of the classes whose objects model files hold; no other object is ever made from a file."""

from __future__ import annotations

from typing import Any

from gpukpca.algorithms.kernel_pca.model import STORED as KERNEL_PCA
from gpukpca.algorithms.latent.model import STORED as LATENT
from gpukpca.algorithms.mixture.model import STORED as MIXTURE
from gpukpca.algorithms.pca.incremental import STORED as INCREMENTAL_PCA
from gpukpca.algorithms.pca.model import STORED as PCA
from gpukpca.algorithms.plan import STORED as PLAN
from gpukpca.algorithms.preimage.stored import STORED as PREIMAGES
from gpukpca.distributed.gram import STORED as CLUSTER_STORAGES
from gpukpca.eigen.stored import STORED as SOLVERS
from gpukpca.gram.storage import STORED as STORAGES
from gpukpca.kernels.stored import STORED as KERNELS

PLANS = (*PLAN, *SOLVERS, *STORAGES, *CLUSTER_STORAGES)
CLASSES: dict[str, Any] = {
    cls.__name__: cls for cls in (*KERNELS, *PLANS, *KERNEL_PCA, *PREIMAGES, *PCA, *INCREMENTAL_PCA, *LATENT, *MIXTURE)
}


def register(cls: Any) -> None:
    """Add a class from above this room to the table."""
    CLASSES[cls.__name__] = cls
