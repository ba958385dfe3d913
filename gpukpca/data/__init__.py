"""Rows of data: the gate that checks what users pass."""
