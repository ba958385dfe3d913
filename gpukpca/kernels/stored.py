"""The kernels and their prepared rows that model files hold."""

from __future__ import annotations

from gpukpca.kernels.algebra import CombinedRows, Exp, Power, Product, Scale, Sum
from gpukpca.kernels.dot_product import Cosine, DotRows, Linear, Polynomial, ShiftedDotRows, Sigmoid
from gpukpca.kernels.euclidean import RBF, Matern, RationalQuadratic
from gpukpca.kernels.euclidean_rows import DifferenceRows, Geometry, ProductRows, SparseProductRows
from gpukpca.kernels.manhattan import CityBlockRows, Laplacian
from gpukpca.kernels.user_defined import Precomputed

KERNELS = (Linear, Polynomial, RBF, Sigmoid, Cosine, Laplacian, Matern, RationalQuadratic, Precomputed)
ALGEBRA = (Sum, Product, Scale, Power, Exp)
ROWS = (ProductRows, SparseProductRows, DifferenceRows, Geometry, CityBlockRows, DotRows, ShiftedDotRows, CombinedRows)
STORED = (*KERNELS, *ALGEBRA, *ROWS)
