"""Parameters checked, with errors that teach."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

import numpy as np

from gpukpca.exceptions import InvalidParameterError

LARGEST = float(np.finfo(np.float64).max)


def checked_number(
    owner: str, name: str, value: Any, *, low: float = -np.inf, strict: bool = False, what: str = "a finite number"
) -> float:
    """`value` as a float, or an error that names owner, parameter, value and what is allowed."""
    is_number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, (bool, np.bool_))
    # The largest float bounds integers too, which can be larger.
    if is_number and abs(value) <= LARGEST and (value > low if strict else value >= low):
        return float(value)
    raise InvalidParameterError(f"{owner}: {name}={value!r} is not allowed; {name} must be {what}.")


def closest(word: Any, words: Any) -> str:
    """«Did you mean ...?» where a word is near, else nothing."""
    near = get_close_matches(str(word), [str(w) for w in words], n=1)
    return f" Did you mean {near[0]!r}?" if near else ""
