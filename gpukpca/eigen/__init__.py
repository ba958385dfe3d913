"""The largest eigenpairs of symmetric operators, each with a residual; low-rank factors with a certificate."""

from gpukpca._former import keep_former_names
from gpukpca.eigen.block_krylov import BlockKrylov
from gpukpca.eigen.dense import Dense
from gpukpca.eigen.landmarks import Nystrom, pivoted_cholesky
from gpukpca.eigen.result import EigenResult
from gpukpca.eigen.solve import top_eigh
from gpukpca.eigen.solver import Solver

__all__ = [
    "BlockKrylov",
    "Dense",
    "EigenResult",
    "Nystrom",
    "Solver",
    "pivoted_cholesky",
    "top_eigh",
]

keep_former_names(__name__)
