"""Fields of result objects: shape in letters and meaning, stated once and read by help texts and model files.

Letters: n samples, d features, p components, m rows of the basis, r rows of a ridge pre-image.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T", bound=type)
Made = TypeVar("Made")


def field_of(shape: str, meaning: str, *rules: str, **options: Any) -> Any:
    """Return a dataclass field of an array with the shape in letters, such as "n p"; "" for anything else.

    `meaning` is a phrase for the help text. A field with a p is cut to fewer components by `first_components`; another
    whose value depends on p belongs to the `truncated` of its class. Values in model files must follow the `rules`,
    such as "nonnegative" (`gpukpca.persistence.schema.RULES`); they are finite unless a rule is "infinite", and a field
    that is "derived" from others is not in files.
    `options` are those of `dataclasses.field`, such as `default`.
    """
    return dataclasses.field(metadata={"shape": tuple(shape.split()), "meaning": meaning, "rules": rules}, **options)


def unchecked(kind: type[Made], **fields: Any) -> Made:
    """Return a frozen object of fields that are checked already; those that are not named have their defaults."""
    made = object.__new__(kind)
    vars(made).update(fields)
    return made


@dataclass_transform(frozen_default=True, field_specifiers=(field_of,))
def record(**options: Any) -> Callable[[T], T]:
    """Return the decorator of a frozen dataclass whose docstring gets the section «Attributes», from its fields.

    `options` are others of `dataclasses.dataclass`.
    """

    def made(cls: Any) -> Any:
        kind: Any = dataclasses.dataclass(frozen=True, **options)(cls)
        if kind.__doc__ is not None:  # None under python -OO
            lines = [line for field in dataclasses.fields(kind) for line in _lines_of(field)]
            text, mark, rest = inspect.cleandoc(kind.__doc__).partition("\n\nSee Also\n")
            kind.__doc__ = "\n".join([text, "", "Attributes", "----------", *lines]) + mark + rest + "\n"
        return kind

    return made


def _lines_of(field: dataclasses.Field[Any]) -> list[str]:
    """Return the lines of the docstring about a field: its type, and its meaning as a sentence."""
    shape = ", ".join(field.metadata.get("shape", ()))
    array = f"array, shape ({shape}{',' * (shape.count(',') == 0)})"
    kind = array if shape else str(field.type).replace(" | ", " or ")
    meaning = field.metadata.get("meaning", "").removesuffix(".")
    if re.match("[a-z]{2}", meaning):  # no symbol
        meaning = meaning[0].upper() + meaning[1:]
    return [f"{field.name} : {kind}", *([f"    {meaning}."] if meaning else [])]


def first_components(result: Made, keep: int, **more: Any) -> Made:
    """Return a result with the first `keep` of its p components, and `more` fields."""
    kind: Any = type(result)
    for field in dataclasses.fields(kind):
        shape, value = field.metadata.get("shape", ()), getattr(result, field.name)
        if "p" in shape and value is not None:
            more[field.name] = value[(slice(None),) * shape.index("p") + (slice(keep), ...)]
    return dataclasses.replace(result, **more)  # type: ignore[type-var]


def attributes_of(result: Any, *without: str) -> dict[str, Any]:
    """Return the fields under the names of fitted attributes, with an underscore, but those named `without`."""
    return {f"{name}_": getattr(result, name) for name in result.__dataclass_fields__ if name not in without}
