"""
What goes wrong when gamma is too small or too large
====================================================

The RBF kernel is k(x, y) = exp(-γ ‖x - y‖²). Two half moons are fitted with four values of gamma, over eight orders of
magnitude. Each column of the figure shows the kernel matrix K, the shares of the variance and the first plane.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

from gpukpca import PCA, KernelPCA
from gpukpca.gram import gram_matrix
from gpukpca.kernels import RBF

X, labels = make_moons(300, shuffle=False, noise=0.05, random_state=0)
gammas = {1e-4: "as PCA", 1.0: "bends the moons", 15.0: "separates the moons", 1e4: "isolates points"}
models, kernel_matrices, caught = {}, {}, {}
for gamma in gammas:
    with warnings.catch_warnings(record=True) as caught[gamma]:
        warnings.simplefilter("always")
        models[gamma] = KernelPCA(6, kernel="rbf", gamma=gamma, eigen_solver="dense").fit(X)
    kernel_matrices[gamma] = gram_matrix(RBF(gamma), X)

# %%
# The samples are ordered along the moons, one moon after the other: blue, then orange.

colors = np.where(labels == 0, "#0072b2", "#e69f00")
_, axes = plt.subplots(3, 4, figsize=(11, 7.6), height_ratios=(5, 3, 5), layout="constrained")
for gamma, (matrix, spectrum, plane) in zip(gammas, axes.T, strict=True):
    image = matrix.imshow(kernel_matrices[gamma], vmin=0, vmax=1, cmap="cividis")
    matrix.set(title=f"γ = {gamma:g}:\n{gammas[gamma]}", xlabel="sample")
    bars = spectrum.bar(range(1, 7), 100 * models[gamma].explained_variance_ratio_, color="#5b7fa8")
    spectrum.bar_label(bars, fmt="%.1f", fontsize=7)
    spectrum.set(ylim=(0, 100), xlabel="component", xticks=range(1, 7))
    plane.scatter(*models[gamma].transform(X)[:, :2].T, c=colors, s=8)
    plane.set_xlabel("score 1")
axes[0, 0].set_ylabel("sample")
axes[1, 0].set_ylabel("variance explained (%)")
axes[2, 0].set_ylabel("score 2")
plt.colorbar(image, ax=axes[0], label="k(x, y)")

# %%
# **Too small, γ = 1e-4.** Every entry of K is close to 1, and K ≈ 1 - γ ‖x - y‖² to first order. Centering removes the
# constant and the norms, and leaves 2γ times the matrix of inner products. So kernel PCA with a small gamma is PCA, up
# to the factor √(2γ) of the scores. The result is accurate, so there is no warning, but the kernel adds nothing.

linear = PCA(2).fit_transform(X)
scores = models[1e-4].transform(X)[:, :2] / np.sqrt(2e-4)
difference = np.abs(np.abs(scores) - np.abs(linear)).max()
print(f"largest difference to the scores of PCA: {difference:.4f}")

# %%
# **Between.** At γ = 1 the plane bends the moons. At γ = 15 a point is similar to its neighbors only, so K is a band
# along each moon, and the first component separates the moons.
#
# **Too large, γ = 1e4.** Every point is similar to itself only, so K is close to the identity. All eigenvalues are then
# nearly equal, and no direction is better than another. The plane shows a few points apart, and all others near the
# origin. The fit warns.

for gamma in gammas:
    print(f"gamma = {gamma:g}:", *[str(warning.message) for warning in caught[gamma]] or ["no warning"])

# %%
# The squared distances set the scale: gamma times a typical squared distance should be near 1. ``gamma="median"`` takes
# 1 / (2 m²), where m is the median distance, and ``gamma="scale"`` takes 1 / (d v), where v is the variance of all
# entries of X. Both are a start: here the value that separates the moons is larger. A search over a grid compares
# candidates, as :class:`~gpukpca.model_selection.KernelPCACV` does: see :doc:`/tutorials/choosing_a_kernel`.

for rule in ("median", "scale"):
    print(f"{rule}: {KernelPCA(2, kernel='rbf', gamma=rule).fit(X).gamma_:.3f}")
