"""
Rings: a component that centering hides
=======================================

Three rings have radii 1, 2 and 3. The quadratic kernel (xᵀy)² has the features x₁², √2 x₁x₂ and x₂², and their axis
(1, 0, 1)/√2 has the coordinate ‖x‖²/√2, which alone separates the rings. Its mean square is (1 + 16 + 81)/6 = 16.3, but
its variance 5.4. Each of the other two axes has mean 0 and variance 98/12 = 8.2. So with centering the others come
first, and without it the radius does.
"""

import matplotlib.pyplot as plt
import numpy as np

from gpukpca import KernelPCA
from gpukpca.plotting import ContoursDisplay, ScoresDisplay

# %%
# 100 points on each ring, with a little noise of the radius.

rng = np.random.default_rng(0)
ring = np.repeat([1, 2, 3], 100)
radii = ring + rng.normal(0.0, 0.05, 300)
angles = rng.uniform(0.0, 2.0 * np.pi, 300)
X = radii[:, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)

# %%
# The same kernel twice. The contours of the first component are hyperbolas with centering, and circles without.
# With ``center=False`` the eigenvalues are those of K itself, and the scores are k(x, X) A without an offset.

quadratic = {"kernel": "poly", "degree": 2, "gamma": 1.0, "coef0": 0.0}
models = {f"center={center}": KernelPCA(3, **quadratic, center=center) for center in (True, False)}
figure, axes = plt.subplots(2, 3, figsize=(8, 5.5), layout="constrained")
figure.suptitle("colors: the three rings; gray: the score of a point there; black: score 0", fontsize=9)
for (name, model), row in zip(models.items(), axes, strict=True):
    ContoursDisplay.from_estimator(model.fit(X), X, labels=ring, axes=row)
    row[0].set_ylabel(f"{name}\n{row[0].get_ylabel()}")

# %%
# The kernel has three features, so three components show all of them: the rings lie on a cone, one above the other, and
# a plane between two of them separates them.

space = ScoresDisplay.from_estimator(models["center=True"], X, labels=ring, components=(0, 1, 2))
space

# %%
# The first scores of every ring: one threshold lies between two rings where their ranges do not overlap.

for name, model in models.items():
    z = np.abs(model.transform(X)[:, 0])
    ranges = [f"{z[ring == r].min():.2f} to {z[ring == r].max():.2f}" for r in (1, 2, 3)]
    print(f"{name:13} {'; '.join(ranges)}")
