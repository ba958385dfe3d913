"""
The direction of largest variance can mislead
=============================================

Two long parallel clusters: the first component of PCA runs along both and mixes them. The first component of a Gaussian
kernel, which is only large for near points, separates them.
"""

import matplotlib.pyplot as plt
import numpy as np

from gpukpca import PCA, KernelPCA
from gpukpca.plotting import ScoresDisplay

rng = np.random.default_rng(0)
labels = np.array(["A", "B"] * 200)
along, across = 2.6 * rng.standard_normal(400), 3.0 * (labels == "B") + 0.35 * rng.standard_normal(400)
# Slanted, so that neither column alone separates the clusters.
cosine, sine = np.cos(np.pi / 6), np.sin(np.pi / 6)
X = np.column_stack([cosine * along - sine * across, sine * along + cosine * across])
models = {"PCA": PCA(2), "kernel PCA, RBF with gamma = 0.2": KernelPCA(2, kernel="rbf", gamma=0.2)}
scores = {name: model.fit_transform(X) for name, model in models.items()}

# %%
# The planes of the first two components, below the distribution of the first component alone.

_, axes = plt.subplots(2, 2, figsize=(9, 4.8), height_ratios=(1, 4.5), sharex="col", layout="constrained")
for (name, model), (above, below) in zip(models.items(), axes.T, strict=True):
    display = ScoresDisplay(scores[name], ratios=model.explained_variance_ratio_, labels=labels).plot(below)
    edges = np.histogram_bin_edges(scores[name][:, 0], 40)
    for label, color in zip("AB", ("#0072b2", "#e69f00"), strict=True):
        above.hist(scores[name][labels == label, 0], edges, color=color, alpha=0.5)
    above.set_title(name, fontsize=10)
    above.set_axis_off()
