"""Mixtures of PCA models and the hard assignment to them.

Internal: it may change in any version.
"""
