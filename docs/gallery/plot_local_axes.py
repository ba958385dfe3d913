"""
One axis for all points, and one for every cluster
==================================================

Local PCA fits a plane to every cluster. The dashed line is the axis of PCA: it follows neither the clusters on the left
nor any piece of the curve on the right.
"""

import matplotlib.pyplot as plt
import numpy as np

from gpukpca import LocalPCA
from gpukpca.plotting import AxesDisplay

rng = np.random.default_rng(0)
parallel = rng.standard_normal((600, 2)) * [2.6, 0.35] + [0.0, 5.0] * rng.integers(3, size=(600, 1))
t = rng.uniform(0.4, 1.65, 900)
spiral = t[:, None] * np.column_stack([np.cos(2 * np.pi * t), np.sin(2 * np.pi * t)])
spiral += 0.03 * rng.standard_normal(spiral.shape)

_, axes = plt.subplots(1, 2, figsize=(9.6, 4.8), layout="constrained")
models = [LocalPCA(k, 1, random_state=0).fit(X) for k, X in ((3, parallel), (10, spiral))]
displays = [
    AxesDisplay.from_estimator(model, X, ax=ax) for model, X, ax in zip(models, (parallel, spiral), axes, strict=True)
]
