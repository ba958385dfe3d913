"""Kernel PCA: settings, plan, fit, spectrum and the map of new points."""
