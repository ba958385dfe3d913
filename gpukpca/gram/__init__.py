"""Gram matrices: dense, in tiles or as a factor, centered, and multiplied without storage."""

from gpukpca._former import keep_former_names
from gpukpca._typing import SymmetricOperator
from gpukpca.gram.centered import CenteredGram, double_center
from gpukpca.gram.dense import DenseGram
from gpukpca.gram.product import gram_matrix, kernel_matmat
from gpukpca.gram.storage import Storage
from gpukpca.gram.tiled import TiledGram

__all__ = [
    "CenteredGram",
    "DenseGram",
    "Storage",
    "SymmetricOperator",
    "TiledGram",
    "double_center",
    "gram_matrix",
    "kernel_matmat",
]

keep_former_names(__name__)
