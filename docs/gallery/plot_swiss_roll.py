"""
Kernel PCA does not unfold: a Swiss roll
========================================

A Swiss roll is a rectangle that is rolled up in three dimensions. Kernel PCA with an RBF kernel does not unroll it for
any gamma. Isomap does: it is kernel PCA with another kernel, made from the distances along the roll.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from scipy.sparse.csgraph import shortest_path
from scipy.spatial import procrustes
from sklearn.datasets import make_swiss_roll
from sklearn.neighbors import kneighbors_graph

from gpukpca import PCA, KernelPCA
from gpukpca.exceptions import IndefiniteKernelWarning
from gpukpca.plotting import ScoresDisplay

X, angle = make_swiss_roll(1000, random_state=0)
# The rectangle: arc length of the spiral with radius t at the angle t, and the height.
rectangle = np.column_stack([(angle * np.hypot(1.0, angle) + np.arcsinh(angle)) / 2.0, X[:, 1]])


def agreement(plane):
    """Return the correlation of a plane (n, 2) with the rectangle after the best shift, rotation and scale."""
    return np.sqrt(1.0 - procrustes(rectangle, plane)[2])


# %%
# **RBF kernels.** Gamma runs over five orders of magnitude, from a kernel matrix near a constant to one near the
# identity. No plane agrees with the rectangle.

gammas = 10.0 ** np.arange(-5, 1)
planes = {gamma: KernelPCA(2, kernel="rbf", gamma=gamma).fit_transform(X) for gamma in gammas}
for gamma, plane in planes.items():
    print(f"gamma = {gamma:g}: correlation {agreement(plane):.2f}")

# %%
# Why? The kernel sees only distances in space, and exp(-γ ‖x - y‖²) is near 0 for all pairs that are farther apart than
# a few times 1/√γ. A small gamma gives the plane of PCA, which keeps the roll. A large one keeps distances only between
# neighbors, and makes all other pairs orthogonal, however far apart they are on the roll. The roll is then bent into
# many dimensions with equal shares of the variance, and no plane holds it (Weinberger, Sha & Saul 2004).
#
# **Isomap** (Tenenbaum, de Silva & Langford 2000). Distances along the roll are shortest paths in the graph of the ten
# nearest neighbors. The matrix -D²/2 of these distances is a precomputed kernel: centering turns it into the inner
# products that classical scaling needs. It has small negative eigenvalues, because shortest paths on a graph are not
# distances in a Euclidean space, and the fit warns of that. :doc:`/how_to/distances` projects new points as well.

graph = kneighbors_graph(X, 10, mode="distance")
D = shortest_path(graph, directed=False)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always", IndefiniteKernelWarning)
    unrolled = KernelPCA(2, kernel="precomputed").fit_transform(-(D**2) / 2.0)
print(f"Isomap: correlation {agreement(unrolled):.2f}")
print(caught[0].message)

# %%
# The three components of PCA are the roll itself, turned. The color is the angle of the spiral in all pictures.

model = PCA(3).fit(X)
roll = ScoresDisplay.from_estimator(model, X, labels=angle, components=(0, 1, 2))
roll.ax_.view_init(elev=33, azim=65)
roll.figure_.axes[1].set_ylabel("angle of the spiral")
roll

# %%
# The rectangle, and planes that should be like it.

names = {"rectangle": ("along the roll", "across")}
shown = {"rectangle": rectangle}
shown |= {
    f"RBF, γ = {gamma:g}\ncorrelation {agreement(planes[gamma]):.2f}": planes[gamma] for gamma in gammas[[0, 3, 5]]
}
shown |= {f"Isomap\ncorrelation {agreement(unrolled):.2f}": unrolled}
figure, axes = plt.subplots(2, 3, figsize=(10, 6.4), layout="constrained")
for (title, plane), ax in zip(shown.items(), axes.flat, strict=False):
    points = ax.scatter(*plane.T, c=angle, s=6)
    xlabel, ylabel = names.get(title, ("score 1", "score 2"))
    ax.set(title=title, xlabel=xlabel, ylabel=ylabel)
axes[1, 2].set_axis_off()
_ = figure.colorbar(points, ax=axes, label="angle of the spiral")
