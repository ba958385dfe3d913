"""Gram matrices: built, centred, and multiplied without being stored."""

from gpukpca.gram.centering import CenteredGram, double_center
from gpukpca.gram.dense import DenseGram
from gpukpca.gram.matrix import gram_matrix
from gpukpca.gram.product import kernel_matmat
from gpukpca.gram.tiled import TiledGram

__all__ = ["CenteredGram", "DenseGram", "TiledGram", "double_center", "gram_matrix", "kernel_matmat"]
