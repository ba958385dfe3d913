"""Fields of fit results: each states its shape in letters and its meaning, where it is declared.

Letters: n samples, d features, p components, k clusters, m rows of a basis.
"""

from __future__ import annotations

from dataclasses import MISSING, field, fields
from typing import Any


def field_of(shape: str, meaning: str, *, default: Any = MISSING) -> Any:
    """Return a dataclass field with its shape ("n p"; empty for a single value) and its meaning as metadata."""
    return field(default=default, metadata={"shape": shape, "meaning": meaning})


def attributes_of(result: Any, *without: str) -> dict[str, Any]:
    """Return the fitted attributes that a result makes: every field but those named `without`, with an underscore."""
    names = (entry.name for entry in fields(result) if entry.name not in without)
    return {f"{name}_": getattr(result, name) for name in names}
