"""Rules for the parameters of kernels, and their equality."""

from __future__ import annotations

from numbers import Number
from typing import Any

import numpy as np

from gpukpca._rules import Rule, is_real, number
from gpukpca.backend.namespace import is_foreign, is_numpy, to_host

NOT_NEGATIVE = number(at_least=0)
POSITIVE = Rule("a number > 0", lambda value: is_real(value) and value > 0)
EXPONENT = Rule("an integer >= 0", lambda value: is_real(value) and value >= 0 and float(value).is_integer())
# Equal values of these types have equal hashes.
SCALARS = (Number, np.bool_, str, type(None))


def same_value(a: Any, b: Any) -> bool:
    """Return whether two parameters are equal: scalars by value, arrays entry by entry, containers part by part.

    Only scalars are equal to scalars. An object that cannot be compared is equal to itself only.
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
