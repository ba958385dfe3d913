"""Rules for the parameters of kernels."""

from __future__ import annotations

from gpukpca._rules import Rule, is_real, number

NOT_NEGATIVE = number(at_least=0)
POSITIVE = Rule("a number > 0", lambda value: is_real(value) and value > 0)
EXPONENT = Rule("an integer >= 0", lambda value: is_real(value) and value >= 0 and float(value).is_integer())
