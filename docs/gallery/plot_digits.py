"""
Digits: mean, components and reconstructions
============================================

The mean image and the first components of 1797 digits, the first plane, and reconstructions from K components.
"""

from sklearn.datasets import load_digits

from gpukpca import PCA
from gpukpca.plotting import plot_images

X, labels = load_digits(return_X_y=True)
model = PCA(50).fit(X)
figure = plot_images(model, X, (8, 8), labels=labels, counts=(1, 2, 5, 10, 20, 50), title="1797 digits of 8 x 8 pixels")

# %%
# A component is red where a pixel rises with it and blue where it falls.

figure
