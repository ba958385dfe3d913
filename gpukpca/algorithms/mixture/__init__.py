"""Mixtures of PCA models and the hard assignment to them."""
