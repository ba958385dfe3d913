"""Choices that the data make: how many components, which kernel."""

from gpukpca.model_selection.dimension import RULES, SOURCES, Choice, Row, compare_rules, n_components_for

__all__ = ["RULES", "SOURCES", "Choice", "Row", "compare_rules", "n_components_for"]
