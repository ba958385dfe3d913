"""
Circles and moons: contours of kernel principal components
==========================================================

The components of PCA are linear functions: their contours are straight lines. Those of a kernel follow the data. Here
they separate two circles and two half moons, which no linear component can. The background is the score that a point
there has: the larger, the darker. The black line is its zero, and colors are the two groups.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import make_circles, make_moons

from gpukpca import PCA, KernelPCA
from gpukpca.plotting import ContoursDisplay

# %%
# More points inside than outside, on radii 0.6 and 3: then the squared radius has the largest variance of all squares
# and products of the features, so the quadratic kernel finds it first.

circles, circle = make_circles((105, 195), factor=0.2, noise=0.05, random_state=0)
circles = 3.0 * circles
moons, moon = make_moons(300, noise=0.05, random_state=0)


def draw(X, labels, gamma):
    """Fit PCA and two kernels to X (n, 2); draw their contours and return the models."""
    models = {
        "PCA": PCA(2),
        "kernel (xᵀy + 1)²": KernelPCA(3, kernel="poly", degree=2, gamma=1.0, coef0=1.0),
        f"Gaussian, γ = {gamma:g}": KernelPCA(3, kernel="rbf", gamma=gamma),
    }
    height = (X[:, 1].max() - X[:, 1].min()) / (X[:, 0].max() - X[:, 0].min())
    figure, axes = plt.subplots(3, 3, figsize=(8, 5.4 * height + 2.6), layout="constrained")
    figure.suptitle("colors: the two groups; gray: the score of a point there; black: score 0", fontsize=9)
    for (name, model), row in zip(models.items(), axes, strict=True):
        ContoursDisplay.from_estimator(model.fit(X), X, labels=labels, axes=row)
        row[0].set_ylabel(f"{name}\n{row[0].get_ylabel()}")
    return models


# %%
# Two circles. The contours of the first component are rings with both kernels, so one threshold separates the circles.

on_circles = draw(circles, circle, 0.2)

# %%
# Two half moons. The zero line of the first Gaussian component runs between them.

on_moons = draw(moons, moon, 15.0)
