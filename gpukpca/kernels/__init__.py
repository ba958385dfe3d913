"""Kernel functions that evaluate block by block on any Array API library, and their algebra."""

from gpukpca._former import keep_former_names
from gpukpca.kernels.algebra import exp, modulate
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
    "Kernel",
    "Laplacian",
    "Linear",
    "Matern",
    "PairwiseCallable",
    "Polynomial",
    "Precomputed",
    "RationalQuadratic",
    "Sigmoid",
    "exp",
    "is_psd",
    "modulate",
]

keep_former_names(__name__)
