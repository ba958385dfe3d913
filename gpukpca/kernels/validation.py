"""Parameters checked, with errors that teach."""

from __future__ import annotations

from numbers import Number
from typing import Any

import numpy as np

from gpukpca.backend.namespace import is_foreign, is_numpy, to_host
from gpukpca.exceptions import InvalidParameterError

LARGEST = float(np.finfo(np.float64).max)
# What is equal has one hash among these, whichever of the types it has.
SCALARS = (Number, np.bool_, str, type(None))


def checked_number(
    owner: str, name: str, value: Any, *, low: float = -np.inf, strict: bool = False, what: str = "a finite number"
) -> float:
    """`value` as a float, or an error that names owner, parameter, value and what is allowed."""
    is_number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, (bool, np.bool_))
    # The largest float bounds integers too, which can be larger.
    if is_number and abs(value) <= LARGEST and (value > low if strict else value >= low):
        return float(value)
    raise InvalidParameterError(f"{owner}: {name}={value!r} is not allowed; {name} must be {what}.")


def same_value(a: Any, b: Any) -> bool:
    """Return whether two parameters are equal: scalars by value, arrays entry by entry, containers part by part.

    A scalar is equal to scalars alone. What cannot be compared is equal to itself alone.
    """
    if a is b:
        return True
    if isinstance(a, SCALARS) or isinstance(b, SCALARS):
        return isinstance(a, SCALARS) and isinstance(b, SCALARS) and bool(a == b)
    if _is_array(a) or _is_array(b):
        return _is_array(a) and _is_array(b) and np.array_equal(to_host(a), to_host(b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same_value(value, b[key]) for key, value in a.items())
    if isinstance(a, (list, tuple)) and type(a) is type(b):
        return len(a) == len(b) and all(map(same_value, a, b))
    try:
        return bool(a == b)
    except (TypeError, ValueError):
        return False


def _is_array(value: Any) -> bool:
    return is_numpy(value) or is_foreign(value)
