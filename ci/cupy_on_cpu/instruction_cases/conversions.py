"""cvt between all types, with all rounding modes. All exact."""

import math
from collections.abc import Callable, Iterator
from fractions import Fraction

from instruction_cases.harness import Case
from instruction_cases.numbers import FORMATS, decode, encode, signed

LETTERS = {"f16": "h", "bf16": "h", "f32": "r", "f64": "l", 16: "h", 32: "r", 64: "l"}
FLOATS = ("f16", "bf16", "f32", "f64")
INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")
MODES = ("rn", "rz", "rm", "rp")
WHOLE = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}


def to_float(to: str, source: str, mode: str = "rn", change: str = ""):
    """Return the reference of a conversion of a float, rounded once."""

    def reference(v: int):
        x = decode(v, source)
        if math.isnan(x):
            if change == "sat":
                return 0
            return FORMATS[to].nan if to in ("f16", "bf16") else lambda got: math.isnan(decode(got, to))
        if change == "sat":
            x = min(max(x, 0.0), 1.0) or 0.0
        if change == "relu" and x < 0:
            x = 0.0
        return encode(x, to, mode)

    return reference


def to_whole(to: str, source: str, function: Callable[[Fraction], int]):
    """Return the reference of a conversion to an integer number of a float type, or with clipping to an integer."""

    def reference(v: int):
        x = decode(v, source)
        if to in FORMATS:
            if not math.isfinite(x):
                return to_float(to, source)(v)
            return encode(math.copysign(float(function(Fraction(x))), x), to)
        width = int(to[1:])
        low, high = (0, 2**width - 1) if to[0] == "u" else (-(2 ** (width - 1)), 2 ** (width - 1) - 1)
        if math.isnan(x):
            return 0
        if math.isinf(x):
            return high if x > 0 else low
        return min(max(function(Fraction(x)), low), high)

    return reference


def of_floats() -> Iterator[Case]:
    """Cases from floats to floats and integers."""
    for source in FLOATS:
        for to in FLOATS:
            letters = f"{LETTERS[to]}:{LETTERS[source]}"
            kind = source
            if to == source or {to, source} == {"f16", "bf16"}:
                continue
            if FORMATS[to].width > FORMATS[source].width:
                yield Case(f"cvt.{to}.{source} %0, %1;", letters, to_float(to, source), kind)
                continue
            for mode in MODES:
                yield Case(f"cvt.{mode}.{to}.{source} %0, %1;", letters, to_float(to, source, mode), kind)
                ties = f"ties of {source}"
                yield Case(f"cvt.{mode}.{to}.{source} %0, %1;", letters, to_float(to, source, mode), ties)
        for whole, function in WHOLE.items():
            letter = LETTERS[source]
            yield Case(
                f"cvt.{whole}.{source}.{source} %0, %1;", f"{letter}:{letter}", to_whole(source, source, function), kind
            )
            for to in INTEGERS:
                yield Case(
                    f"cvt.{whole}.{to}.{source} %0, %1;",
                    f"{LETTERS[int(to[1:])]}:{letter}",
                    to_whole(to, source, function),
                    kind,
                )
    yield Case("cvt.sat.f32.f32 %0, %1;", "r:r", to_float("f32", "f32", change="sat"), "f32")
    for to in ("f16", "bf16"):
        yield Case(f"cvt.rn.relu.{to}.f32 %0, %1;", "h:r", to_float(to, "f32", change="relu"), "f32")
    yield Case("cvt.rn.sat.f16.f32 %0, %1;", "h:r", to_float("f16", "f32", change="sat"), "f32")


def of_integers() -> Iterator[Case]:
    """Cases from integers."""

    def number(v: int, t: str) -> int:
        return signed(v, int(t[1:])) if t[0] == "s" else v

    for source in INTEGERS:
        letter = LETTERS[int(source[1:])]
        for to in INTEGERS:
            if to[1:] != source[1:]:
                yield Case(
                    f"cvt.{to}.{source} %0, %1;", f"{LETTERS[int(to[1:])]}:{letter}", lambda v, s=source: number(v, s)
                )
        for to in FLOATS:
            for mode in MODES:
                yield Case(
                    f"cvt.{mode}.{to}.{source} %0, %1;",
                    f"{LETTERS[to]}:{letter}",
                    lambda v, s=source, to=to, m=mode: encode(Fraction(number(v, s)), to, m),
                )
    yield Case("cvt.s32.s8 %0, %1;", "r:r", lambda v: signed(v & 255, 8))


def of_pairs() -> Iterator[Case]:
    """Cases to packed halves: the first source is the upper one."""
    for to in ("f16", "bf16"):
        for mode in ("rn", "rz"):
            one = to_float(to, "f32", mode)
            yield Case(f"cvt.{mode}.{to}x2.f32 %0, %1, %2;", "r:rr", lambda v, w, one=one: one(v) << 16 | one(w), "f32")
        one = to_float(to, "f32", change="relu")
        yield Case(f"cvt.rn.relu.{to}x2.f32 %0, %1, %2;", "r:rr", lambda v, w, one=one: one(v) << 16 | one(w), "f32")


def of_tf32() -> Iterator[Case]:
    """Cases to tf32, of which the low 13 bits are zero."""

    def reference(v: int, mode: str, relu: bool = False):
        x = decode(v, "f32")
        if math.isnan(x):
            return lambda got: math.isnan(decode(got, "f32"))
        return encode(0.0 if relu and x < 0 else x, "tf32", mode) << 13

    for kind in ("f32", "bits"):
        for mode in ("rna", "rn", "rz"):
            yield Case(f"cvt.{mode}.tf32.f32 %0, %1;", "r:r", lambda v, m=mode: reference(v, m), kind)
    yield Case("cvt.rn.relu.tf32.f32 %0, %1;", "r:r", lambda v: reference(v, "rn", True), "f32")
    tie = "{.reg .b32 x; and.b32 x, %1, 0xffffe000; or.b32 x, x, 0x1000; "
    for mode in ("rna", "rn", "rz"):
        yield Case(
            f"{tie}cvt.{mode}.tf32.f32 %0, x;}}", "r:r", lambda v, m=mode: reference(v & ~0x1FFF | 0x1000, m), "f32"
        )


CASES = [*of_floats(), *of_integers(), *of_pairs(), *of_tf32()]
