"""From scores back to data space: linear, ridge, fixed point, distance constraint.

Internal: it may change in any version.
"""
