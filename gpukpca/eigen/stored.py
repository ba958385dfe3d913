"""The solvers that model files hold."""

from __future__ import annotations

from gpukpca.eigen.block_krylov import BlockKrylov
from gpukpca.eigen.dense import Dense
from gpukpca.eigen.landmarks import Nystrom
from gpukpca.eigen.low_rank import LowRank

STORED = (Dense, LowRank, BlockKrylov, Nystrom)
