"""Kernel functions that evaluate block by block on any Array API library, and their algebra."""

from gpukpca.kernels.algebra import Exp, Modulated, Power, Product, Scale, Sum, exp, modulate
from gpukpca.kernels.base import Kernel
from gpukpca.kernels.definiteness import is_psd
from gpukpca.kernels.dot_product import Cosine, Linear, Polynomial, Sigmoid
from gpukpca.kernels.euclidean import RBF, Matern, RationalQuadratic
from gpukpca.kernels.manhattan import Laplacian
from gpukpca.kernels.user_defined import BlockCallable, PairwiseCallable, Precomputed

__all__ = [
    "RBF",
    "BlockCallable",
    "Cosine",
    "Exp",
    "Kernel",
    "Laplacian",
    "Linear",
    "Matern",
    "Modulated",
    "PairwiseCallable",
    "Polynomial",
    "Power",
    "Precomputed",
    "Product",
    "RationalQuadratic",
    "Scale",
    "Sigmoid",
    "Sum",
    "exp",
    "is_psd",
    "modulate",
]
