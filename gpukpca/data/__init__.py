"""Rows of data: the gate that checks them, the containers that hold them, and the two verbs, fold and map."""
