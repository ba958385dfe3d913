"""
Spectral clustering without storing K
=====================================

Spectral clustering needs the leading eigenvectors of the normalized affinity matrix D^(-1/2) K D^(-1/2), where K is the
matrix of an RBF kernel and the diagonal matrix D holds its row sums (Ng, Jordan & Weiss 2001). It is itself a kernel
matrix, so it needs no new operator: three names of the library are enough.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import make_circles

from gpukpca.eigen import top_eigh
from gpukpca.gram import TiledGram, kernel_matmat
from gpukpca.kernels import RBF, modulate

X, labels = make_circles(2000, factor=0.4, noise=0.05, random_state=0)
affinity = RBF(30.0)


# %%
# The row sum of a point is its kernel values with all samples, summed: a product of K with a vector of ones.
# :func:`~gpukpca.gram.kernel_matmat` computes it by tiles. :func:`~gpukpca.kernels.modulate` returns the kernel g(x)
# g(y) k(x, y), here with g = 1/√(row sum).


def factor(rows):
    """Return 1/√(row sum) of each row."""
    return 1.0 / np.sqrt(kernel_matmat(affinity, rows, X, np.ones((len(X), 1)))[:, 0])


normalized = modulate(affinity, factor)

# %%
# :class:`~gpukpca.gram.TiledGram` is the matrix of that kernel as an operator. With ``cached_tiles=0`` it stores no
# entry of it, and recomputes the tiles in every pass. The matrix is not centered: its largest eigenvalue is 1. As many
# eigenvalues are near 1 as there are clusters, and a gap follows.

op = TiledGram(normalized, X, cached_tiles=0)
eigen = top_eigh(op, 4, rng=0)
print("eigenvalues:", eigen.eigenvalues.round(4))
print(f"largest residual: {eigen.residual_norms.max():.0e}")

# %%
# Two eigenvalues before the gap are two clusters. The rows of their eigenvectors, with length 1, are points of a plane
# in which each circle is close to one point. There k-means finds both circles; in the plane of the data it cuts them.

plane = eigen.eigenvectors[:, :2]
plane = plane / np.linalg.norm(plane, axis=1, keepdims=True)
clusters = KMeans(2, n_init=10, random_state=0).fit_predict(plane)
cut = KMeans(2, n_init=10, random_state=0).fit_predict(X)

_, axes = plt.subplots(1, 3, figsize=(11, 3.8), layout="constrained")
colors = np.array(["#0072b2", "#e69f00"])
for ax, title, found in zip(axes, ("k-means", "spectral clustering"), (cut, clusters), strict=False):
    ax.scatter(*X.T, s=5, c=colors[found])
    ax.set(title=f"two clusters by {title}", aspect="equal", xlabel="feature 1")
axes[0].set_ylabel("feature 2")
axes[2].plot(range(1, 5), eigen.eigenvalues, "o", color="0.6")
axes[2].plot(range(1, 3), eigen.eigenvalues[:2], "o", color="#d55e00", label="before the gap")
axes[2].set(title="the largest eigenvalues", xlabel="number", ylabel="eigenvalue", xticks=range(1, 5))
axes[2].legend()
