"""The largest eigenpairs of symmetric operators, each with a residual."""

from gpukpca.eigen.block_krylov import BlockKrylov
from gpukpca.eigen.dense import Dense
from gpukpca.eigen.result import EigenResult
from gpukpca.eigen.solve import choose_solver, top_eigh

__all__ = ["BlockKrylov", "Dense", "EigenResult", "choose_solver", "top_eigh"]
