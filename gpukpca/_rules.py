"""Rules for the values of parameters: a predicate, and the sentence of the error."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any

import numpy as np

from gpukpca.exceptions import InvalidParameterError


def is_integer(value: Any) -> bool:
    """Return whether a value is an integer of any library, and not True or False."""
    return isinstance(value, (int, Integral)) and not isinstance(value, (bool, np.bool_))


def is_real(value: Any) -> bool:
    """Return whether a value is a finite real number, and not True or False."""
    if not isinstance(value, (float, int, Real)) or isinstance(value, (bool, np.bool_)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond the largest float
        return False


# Names of other libraries, in lower case -> those of this one.
SYNONYMS = {"gaussian": "rbf", "gpu": "cuda", "polynomial": "poly"}


def closest(word: Any, words: Iterable[Any], synonyms: Iterable[tuple[str, str]] = ()) -> str:
    """Return «Did you mean ...?» where a name is near in letters or has the meaning of the word, else nothing."""
    names = {str(name).lower(): name for name in words}
    text = str(word).lower() if isinstance(word, str) else ""
    near = get_close_matches(text if text in names else dict(synonyms, **SYNONYMS).get(text, text), names, n=1)
    return f" Did you mean {names[near[0]]!r}?" if near else ""


# The format of the errors of functions, which have no owner.
OF_ARGUMENT = "{name}={value!r} is not allowed; it must be {text}.{near}"


@dataclass(frozen=True)
class Rule:
    """The values that a parameter may have.

    Attributes
    ----------
    text : str
        Completes «the parameter must be».
    allows : callable
        From a value to whether it is allowed.
    words : tuple of str and None
        Names among the values; the error proposes the nearest.
    message : str
        Format of the error, with owner, name, value, text, near and known (the words).
    unknown : str
        The same for a string that is not among the words; empty where `message` serves.
    synonyms : tuple of (str, str)
        Names of other libraries for one of the words, in addition to `SYNONYMS`; both in lower case.
    """

    text: str
    allows: Callable[[Any], bool]
    words: tuple[str | None, ...] = ()
    message: str = "{owner}: {name}={value!r} is not allowed; {name} must be {text}.{near}"
    unknown: str = ""
    synonyms: tuple[tuple[str, str], ...] = ()

    def check(self, owner: str, name: str, value: Any) -> None:
        """Raise `InvalidParameterError` for a value that is not allowed."""
        if self.allows(value):
            return
        message = self.unknown if isinstance(value, str) and self.unknown else self.message
        near, known = closest(value, self.words, self.synonyms), ", ".join(map(repr, self.words))
        raise InvalidParameterError(
            message.format(owner=owner, name=name, value=value, text=self.text, near=near, known=known), argument=name
        )

    def check_argument(self, name: str, value: Any) -> None:
        """Raise `InvalidParameterError` for an argument of a function that is not allowed."""
        if not self.allows(value):
            replace(self, message=OF_ARGUMENT, unknown="").check("", name, value)


# Names of parameters with their rules.
Rules = tuple[tuple[str, Rule], ...]


def check_attributes(owner: Any, rules: Iterable[tuple[str, Rule]]) -> None:
    """Raise `InvalidParameterError` for an attribute that breaks its rule; the defaults of a dataclass are right."""
    kind = type(owner)
    for name, rule in rules:
        value = getattr(owner, name)
        if value is not getattr(kind, name, owner):
            rule.check(kind.__name__, name, value)


@dataclass(frozen=True)
class CheckedBy:
    """The values that a function takes without raising `InvalidParameterError`."""

    function: Callable[[Any], object]

    def check(self, owner: str, name: str, value: Any) -> None:
        """Raise the error of the function for a value that is not allowed."""
        self.function(value)


def one_of(*rules: Rule, text: str = "", **parts: Any) -> Rule:
    """Return the rule of the values that any of the rules allows."""
    *first, last = (rule.text for rule in rules)
    text = text or f"{', '.join(first)}{',' * (len(first) > 1)} or {last}"
    words = tuple(word for rule in rules for word in rule.words)
    return Rule(text, lambda value: any(rule.allows(value) for rule in rules), words, **parts)


def word(*words: str, text: str = "") -> Rule:
    """Return the rule of some names."""
    *first, last = (f'"{name}"' for name in words)
    written = text or (f"{', '.join(first)} or {last}" if first else last)
    return Rule(written, lambda value: isinstance(value, str) and value in words, words)


def any_word(*words: str) -> Rule:
    """Return the rule of many names, written as a list."""
    return word(*words, text=f"one of {', '.join(map(repr, words))}")


def integer(at_least: int) -> Rule:
    """Return the rule of the integers from a number on."""
    return Rule(f"an integer >= {at_least}", lambda value: is_integer(value) and value >= at_least)


def number(at_least: float) -> Rule:
    """Return the rule of the finite numbers from a number on."""
    return Rule(f"a number >= {at_least:g}", lambda value: is_real(value) and value >= at_least)


def sequence_of(rule: Rule, text: str) -> Rule:
    """Return the rule of the sequences, not empty, whose items a rule allows."""

    def allows(value: Any) -> bool:
        is_sequence = isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, (str, bytes))
        return is_sequence and getattr(value, "ndim", 1) > 0 and len(value) > 0 and all(map(rule.allows, value))

    return Rule(text, allows)


def instance_of(*classes: type, text: str) -> Rule:
    """Return the rule of the instances of some classes."""
    return Rule(text, lambda value: isinstance(value, classes))


COUNT = integer(at_least=1)
NONE = Rule("None", lambda value: value is None, (None,))
FLAG = Rule("True or False", lambda value: isinstance(value, (bool, np.bool_)))
FINITE = Rule("a finite number", is_real)
SHARE = Rule(
    "a number strictly between 0 and 1", lambda value: is_real(value) and not is_integer(value) and 0.0 < value < 1.0
)
NOT_ZERO = Rule("an integer other than 0", lambda value: is_integer(value) and value != 0)
LEVEL = Rule("an integer >= 0", lambda value: isinstance(value, (int, np.integer, np.bool_)) and int(value) >= 0)
CALLABLE = Rule("a callable", callable)
FOLDER = Rule("the path of a folder", lambda value: isinstance(value, (str, os.PathLike)) and bool(os.fspath(value)))
