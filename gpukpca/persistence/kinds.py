"""Kinds of values in model files: type, range, and shape in letters that each stand for one number."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpukpca._archive import seen
from gpukpca._formatting import printable
from gpukpca.backend.namespace import is_numpy, is_sparse
from gpukpca.exceptions import ModelFormatError

# Letter -> number; `layouts` says what they stand for. What is met first binds.
Sizes = dict[str, int]
# Columns of sparse rows: a file need not hold them, and products take memory for each.
WIDEST = 2**31 - 1


@dataclass(frozen=True)
class Kind:
    """The type, shape and range of a value.

    Attributes
    ----------
    what : str
        In words.
    holds : callable
        ``holds(value, sizes)`` says whether it is so, and binds letters that were free.
    optional : bool
        Whether there may be no value at all.
    """

    what: str
    holds: Callable[[Any, Sizes], bool]
    optional: bool = False

    @property
    def or_none(self) -> Kind:
        """This, or None."""
        return Kind(f"{self.what} or None", lambda value, sizes: value is None or self.holds(value, sizes))

    @property
    def maybe(self) -> Kind:
        """This, or nothing."""
        return replace(self, optional=True)


def check_fields(owner: str, fields: dict[str, Any], kinds: dict[str, Kind], sizes: Sizes) -> None:
    """Raise `ModelFormatError` unless `fields` are all that is wanted, nothing else, and of their kinds."""
    unknown = sorted(set(fields) - set(kinds))
    if unknown:
        raise ModelFormatError(f"{owner} has no {', '.join(unknown)[:200]}; a newer gpukpca may have written the file")
    for name, kind in kinds.items():
        if name not in fields:
            if not kind.optional:
                raise ModelFormatError(f"{owner} lacks {name}")
        elif not kind.holds(fields[name], sizes):
            known = ", ".join(f"{letter} = {size}" for letter, size in sizes.items())
            raise ModelFormatError(f"{owner}: {name} must be {kind.what} ({known}); it is {seen(fields[name])}")


# -- arrays ------------------------------------------------------------------------------------------------------------


def floats(*dims: str, finite: bool = True) -> Kind:
    """A floating-point array, shape in letters or digits; "*" is any length."""

    def holds(value: Any, sizes: Sizes) -> bool:
        return (
            is_numpy(value) and value.dtype.kind == "f" and _fits(value, dims, sizes) and not (finite and _bad(value))
        )

    return Kind(f"{'finite ' if finite else ''}floating-point numbers of shape {_spelled(dims)}", holds)


def magnitudes(*dims: str) -> Kind:
    """Finite floating-point numbers >= 0, such as variances."""
    finite = floats(*dims)
    return Kind(f"{finite.what}, >= 0", lambda value, sizes: finite.holds(value, sizes) and not bool(np.any(value < 0)))


def rows(*dims: str) -> Kind:
    """Rows of data: a finite floating-point array, or a CSR matrix."""

    def holds(value: Any, sizes: Sizes) -> bool:
        if not is_sparse(value):
            return floats(*dims).holds(value, sizes)
        fits = value.shape[1] <= WIDEST and _fits(value, dims, sizes)
        return fits and value.dtype.kind == "f" and not _bad(value.data)

    return Kind(f"finite rows of shape {_spelled(dims)}", holds)


def indices(*dims: str, below: str) -> Kind:
    """Integers from 0 to less than what the letter `below` means."""

    def holds(value: Any, sizes: Sizes) -> bool:
        if not is_numpy(value) or value.dtype.kind != "i" or not _fits(value, dims, sizes):
            return False
        return not value.size or (value.min() >= 0 and value.max() < sizes.get(below, 0))

    return Kind(f"integers from 0 to {below} - 1 of shape {_spelled(dims)}", holds)


def _fits(value: Any, dims: tuple[str, ...], sizes: Sizes) -> bool:
    """Return whether a shape fits the letters; bind the free ones."""
    if len(value.shape) != len(dims):
        return False
    for length, dim in zip(value.shape, dims, strict=True):
        wanted = int(dim) if dim.isdigit() else length if dim == "*" else sizes.setdefault(dim, int(length))
        if length != wanted:
            return False
    return True


def _bad(values: np.ndarray) -> bool:
    return not bool(np.all(np.isfinite(values)))


def _spelled(dims: tuple[str, ...]) -> str:
    return f"({', '.join(dims)}{',' * (len(dims) == 1)})"


# -- single values -----------------------------------------------------------------------------------------------------


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and printable(value) == value


NUMBER = Kind("a finite number", lambda value, _: _is_number(value))
ANY_NUMBER = Kind("a number", lambda value, _: isinstance(value, (int, float)) and not isinstance(value, bool))
POSITIVE = Kind("a number >= 0", lambda value, _: _is_number(value) and value >= 0)
INTEGER = Kind("an integer", lambda value, _: isinstance(value, int) and not isinstance(value, bool))
COUNT = Kind("an integer >= 0", lambda value, sizes: INTEGER.holds(value, sizes) and value >= 0)
AT_LEAST_ONE = Kind("an integer >= 1", lambda value, sizes: INTEGER.holds(value, sizes) and value >= 1)
FLAG = Kind("True or False", lambda value, _: isinstance(value, bool))
TEXT = Kind("text without control characters", lambda value, _: _is_text(value))
TEXTS = Kind(
    "texts without control characters", lambda value, _: isinstance(value, tuple) and all(map(_is_text, value))
)
INTERVAL = Kind(
    "two numbers in order",
    lambda value, _: (
        isinstance(value, tuple) and len(value) == 2 and all(map(_is_number, value)) and value[0] <= value[1]
    ),
)
# What the object that it is for checks by itself.
ANYTHING = Kind("anything", lambda value, _: True)
FREE = Kind("a number, text or None", lambda value, _: value is None or isinstance(value, (int, float, str)))


def _is_pair(key: Any) -> bool:
    return isinstance(key, tuple) and len(key) == 2 and all(INTEGER.holds(part, {}) for part in key)


BIC = Kind(
    "numbers by (clusters, components)",
    lambda value, _: isinstance(value, dict) and all(map(_is_pair, value)) and all(map(_is_number, value.values())),
)


def size_of(letter: str) -> Kind:
    """An integer that says how many; binds the letter."""

    def holds(value: Any, sizes: Sizes) -> bool:
        return COUNT.holds(value, sizes) and sizes.setdefault(letter, value) == value

    return Kind(f"{letter}, an integer >= 0", holds)


def names(letter: str) -> Kind:
    """An array of different texts."""

    def holds(value: Any, sizes: Sizes) -> bool:
        if not is_numpy(value) or value.dtype != object or not _fits(value, (letter,), sizes):
            return False
        return all(isinstance(name, str) for name in value) and len(set(value)) == len(value)

    return Kind(f"{letter} different texts", holds)


def one_of(*words: str) -> Kind:
    """One of the words."""
    return Kind(" or ".join(map(repr, words)), lambda value, _: isinstance(value, str) and value in words)


def of(*classes: type) -> Kind:
    """An object of one of the classes."""
    name = " or ".join(cls.__name__ for cls in classes)
    return Kind(f"a {name}", lambda value, _: isinstance(value, classes))


def many(kind: Kind) -> Kind:
    """A tuple of values of a kind."""

    def holds(value: Any, sizes: Sizes) -> bool:
        return isinstance(value, tuple) and all(kind.holds(part, sizes) for part in value)

    return Kind(f"several of {kind.what}", holds)
