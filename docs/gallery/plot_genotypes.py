"""
Genotypes and the map
=====================

Simulated genotypes of 300 individuals at 2000 loci. PCA has no information on where the individuals live. Allele
frequencies vary smoothly over the map, so the first plane is the map (Novembre et al. 2008).
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.spatial import procrustes

from gpukpca import PCA

rng = np.random.default_rng(0)
positions = rng.uniform(size=(300, 2)) * (1.5, 1.0)

# %%
# On the logit scale the frequency of an allele is its mean plus a smooth random field of length scale 1, a sum of 256
# random waves (Rahimi & Recht 2007). A genotype counts the copies of the allele in two draws with that frequency.

waves = np.cos(positions @ rng.standard_normal((2, 256)) + rng.uniform(0.0, 2.0 * np.pi, 256)) / np.sqrt(128.0)
average = rng.uniform(0.1, 0.9, 2000)
field = np.log(average / (1.0 - average)) + waves @ rng.standard_normal((256, 2000))
genotypes = rng.binomial(2, 1.0 / (1.0 + np.exp(-field))).astype(float)

model = PCA(2)
plane = model.fit_transform(genotypes)

# %%
# The correlation of two configurations after the best shift, rotation, reflection and scale.

correlation = np.sqrt(1.0 - procrustes(positions, plane)[2])

# %%
# The same color is the same individual. The sign of a component is a convention: each gets the one with which it rises
# along the direction of the map that it follows most.

centered = positions - positions.mean(axis=0)
products = centered.T @ plane
signs = np.sign(products[np.abs(products).argmax(axis=0), [0, 1]])
low, high = positions.min(axis=0), positions.max(axis=0)
east, north = ((positions - low) / (high - low)).T
corners = np.array([[27, 42, 107], [138, 75, 0], [127, 196, 245], [245, 207, 69]]) / 255  # SW, SE, NW, NE
weights = np.column_stack([(1 - north) * (1 - east), (1 - north) * east, north * (1 - east), north * east])

_, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
for ax, points in ((left, positions), (right, plane * signs)):
    ax.scatter(*points.T, c=weights @ corners, s=20)
    ax.set_aspect("equal", adjustable="datalim")
left.set(title="map", xlabel="east", ylabel="north")
shares = [f"component {i + 1} ({100 * share:.1f} %)" for i, share in enumerate(model.explained_variance_ratio_)]
right.set(title=f"first plane: correlation {correlation:.3f} with the map", xlabel=shares[0], ylabel=shares[1])
