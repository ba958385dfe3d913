"""
One axis for all points, and one for every cluster
==================================================

Local PCA fits a plane to every cluster. The dashed line is the axis of PCA: it follows neither the clusters on the left
nor any piece of the curve on the right.
"""

import matplotlib.pyplot as plt

from gpukpca import LocalPCA
from gpukpca.datasets import misleading_clusters, noisy_spiral
from gpukpca.plotting import LocalDisplay

parallel, _ = misleading_clusters(600, 3, separation=5.0)
spiral, _ = noisy_spiral(900)

_, axes = plt.subplots(1, 2, figsize=(9.6, 4.8), layout="constrained")
models = [LocalPCA(k, 1, random_state=0).fit(X) for k, X in ((3, parallel), (10, spiral))]
displays = [
    LocalDisplay.from_estimator(model, X, ax=ax) for model, X, ax in zip(models, (parallel, spiral), axes, strict=True)
]
