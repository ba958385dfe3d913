"""Model files: data only, from a fixed table of classes, with types, shapes and ranges checked before use.

Internal: it may change in any version.
"""
