"""Gram matrices: dense, in tiles or as a factor, centered, and multiplied without storage."""

from gpukpca._typing import SymmetricOperator
from gpukpca.gram.base_point import BasePointGram
from gpukpca.gram.centered import CenteredGram, double_center
from gpukpca.gram.dense import DenseGram
from gpukpca.gram.low_rank import LowRankGram
from gpukpca.gram.product import gram_matrix, kernel_matmat
from gpukpca.gram.storage import Storage, StorageInput
from gpukpca.gram.tiled import TiledGram

__all__ = [
    "BasePointGram",
    "CenteredGram",
    "DenseGram",
    "LowRankGram",
    "Storage",
    "StorageInput",
    "SymmetricOperator",
    "TiledGram",
    "double_center",
    "gram_matrix",
    "kernel_matmat",
]
