"""Rows of data: the gate that checks what users pass.

Internal: it may change in any version.
"""
