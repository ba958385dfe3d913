"""Kernel PCA: settings, plan, fit, spectrum and the map of new points.

Internal: it may change in any version.
"""
