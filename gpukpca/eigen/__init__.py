"""The largest eigenpairs of symmetric operators, each with a residual; low-rank factors with a certificate."""

from gpukpca.eigen.block_krylov import BlockKrylov
from gpukpca.eigen.dense import Dense
from gpukpca.eigen.landmarks import Nystrom, landmark_cholesky, pivoted_cholesky
from gpukpca.eigen.low_rank import LowRank
from gpukpca.eigen.pivoted_factor import PivotedCholesky
from gpukpca.eigen.request import PairRequest
from gpukpca.eigen.result import EigenResult
from gpukpca.eigen.solve import top_eigh
from gpukpca.eigen.solver import Solver

__all__ = [
    "BlockKrylov",
    "Dense",
    "EigenResult",
    "LowRank",
    "Nystrom",
    "PairRequest",
    "PivotedCholesky",
    "Solver",
    "landmark_cholesky",
    "pivoted_cholesky",
    "top_eigh",
]
