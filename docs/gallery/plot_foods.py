"""
Seventeen foods in four countries: a biplot
===========================================

What a person eats and drinks in a week in the four countries of the United Kingdom: 4 samples and 17 features, a common
first example of PCA. All features are in grams, so they are not standardized.
"""

import matplotlib.pyplot as plt
import numpy as np

from gpukpca import PCA
from gpukpca.datasets import uk_foods
from gpukpca.plotting import BiplotDisplay

table = uk_foods()
model = PCA(3)
scores = model.fit_transform(table.X)
print(model.explained_variance_ratio_.round(5))

# %%
# Four points span three dimensions, so three components hold the full variance. The first plane holds 96 % of it. On
# the first component, Northern Ireland lies apart from the others. The arrows of the biplot say why: each is the weight
# of a food in the two components, drawn for the four foods with the longest arrows. The bars show the weights of all
# foods in the first component.

component = model.components_[0]
order = np.argsort(component)

_, (left, right) = plt.subplots(1, 2, figsize=(10.5, 5), width_ratios=(3, 2), layout="constrained")
right.barh([table.foods[i] for i in order], component[order], color="#c8553d")
right.set(title="all foods", xlabel="weight in component 1")
right.tick_params(labelsize=8)
right.spines[["top", "right"]].set_visible(False)
# Last, because names find their places in axes that do not change any more.
left.set_title("countries, and the foods that set them apart")
_ = BiplotDisplay.from_estimator(model, table.X, features=table.foods, names=table.countries, n_arrows=4, ax=left)

# %%
# A score is the product of the centered row with the component, so the sign of both is a convention. The country and
# the foods that lie on the same side of zero belong together: Northern Ireland eats more fresh potatoes, and less fresh
# fruit and fewer alcoholic drinks. The second component separates Wales from Scotland, most of all by soft drinks and
# fresh potatoes.
