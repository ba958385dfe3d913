"""Pre-images of scores: exact for the linear kernel; ridge, fixed point and distance constraint for others.

Internal: it may change in any version.
"""
