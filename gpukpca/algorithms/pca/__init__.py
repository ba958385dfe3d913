"""PCA: settings, plan, fit in memory, in batches and in two passes, spectrum, evidence and projection.

Internal: it may change in any version.
"""
