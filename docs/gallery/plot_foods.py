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
from gpukpca.plotting import ScoresDisplay

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
left.set(title="countries, and the foods that set them apart", xlim=(-650, 550), ylim=(-430, 430), aspect="equal")
ScoresDisplay(scores, ratios=model.explained_variance_ratio_, names=table.countries).plot(left)
arrows = 500 * model.components_[:2].T
for i in np.argsort(np.linalg.norm(arrows, axis=1))[-4:]:
    left.annotate("", arrows[i], (0, 0), arrowprops={"arrowstyle": "->", "color": "#d55e00", "linewidth": 1.5})
    side = "left" if arrows[i, 0] > 0 else "right"
    left.annotate(table.foods[i], arrows[i], 1.06 * arrows[i], color="#d55e00", ha=side, va="center")
right.barh([table.foods[i] for i in order], component[order], color="#d55e00")
right.set_xlabel("weight in component 1")
right.tick_params(labelsize=8)
right.spines[["top", "right"]].set_visible(False)

# %%
# A score is the product of the centered row with the component, so the sign of both is a convention. The country and
# the foods that lie on the same side of zero belong together: Northern Ireland eats more fresh potatoes, and less fresh
# fruit and fewer alcoholic drinks. The second component separates Wales from Scotland, most of all by soft drinks and
# fresh potatoes.
