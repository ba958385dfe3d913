"""Bits as numbers and numbers as bits, exactly: what the references are written with."""

import math
from fractions import Fraction
from typing import NamedTuple


class Format(NamedTuple):
    """A binary floating-point format."""

    exponent_bits: int
    fraction_bits: int

    @property
    def width(self) -> int:
        return 1 + self.exponent_bits + self.fraction_bits

    @property
    def nan(self) -> int:
        """The canonical NaN of PTX: all bits but the sign."""
        return (1 << self.width - 1) - 1

    @property
    def infinity(self) -> int:
        return ((1 << self.exponent_bits) - 1) << self.fraction_bits


FORMATS = {
    "f16": Format(5, 10),
    "bf16": Format(8, 7),
    "tf32": Format(8, 10),
    "f32": Format(8, 23),
    "f64": Format(11, 52),
}


def unsigned(v: int, width: int) -> int:
    return v & (1 << width) - 1


def signed(v: int, width: int) -> int:
    return (v & (1 << width) - 1 ^ 1 << width - 1) - (1 << width - 1)


def decode(bits: int, kind: str, flush: bool = False) -> float:
    """Return the number that the bits of a format mean; with `flush` subnormal ones are zero."""
    form = FORMATS[kind]
    sign = -1.0 if bits >> form.width - 1 & 1 else 1.0
    fraction = bits & (1 << form.fraction_bits) - 1
    exponent = bits >> form.fraction_bits & (1 << form.exponent_bits) - 1
    bias = (1 << form.exponent_bits - 1) - 1
    if exponent == (1 << form.exponent_bits) - 1:
        return math.nan if fraction else sign * math.inf
    if exponent == 0:
        return sign * math.ldexp(0 if flush else fraction, 1 - bias - form.fraction_bits)
    return sign * math.ldexp((1 << form.fraction_bits) + fraction, exponent - bias - form.fraction_bits)


def rounded_quotient(x: Fraction, mode: str) -> int:
    """Return the integer next to x >= 0: nearest with ties to even (n) or away (a), down (z) or up (u)."""
    low, rest = divmod(x.numerator, x.denominator)
    twice = 2 * rest - x.denominator
    up = {"n": twice > 0 or (twice == 0 and low & 1), "a": twice >= 0, "z": False, "u": rest > 0}[mode]
    return low + bool(up)


def encode(x: Fraction | float, kind: str, mode: str = "rn", flush: bool = False) -> int:
    """Return the bits of a number, rounded once; a float carries the sign of zero, infinity or NaN."""
    form = FORMATS[kind]
    if isinstance(x, float) and math.isnan(x):
        return form.nan
    negative = math.copysign(1, x) < 0 if isinstance(x, float) else x < 0
    sign = negative << form.width - 1
    if isinstance(x, float) and math.isinf(x):
        return sign | form.infinity
    magnitude = abs(Fraction(x))
    if not magnitude:
        return sign
    bias = (1 << form.exponent_bits - 1) - 1
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    exponent -= magnitude < Fraction(2) ** exponent
    unit = max(exponent, 1 - bias) - form.fraction_bits
    direction = {"rn": "n", "rna": "a", "rz": "z", "rm": "u" if negative else "z", "rp": "z" if negative else "u"}[mode]
    steps = rounded_quotient(magnitude / Fraction(2) ** unit, direction)
    bits = steps + ((unit + bias + form.fraction_bits - 1) << form.fraction_bits)  # a carry moves to the exponent
    if bits >= form.infinity:
        bits = form.infinity - (direction == "z")
    return sign | (0 if flush and bits < 1 << form.fraction_bits else bits)
