"""The centered data matrix and its scatter matrix as operators: dense, sparse, and on a cluster.

Internal: it may change in any version.
"""
