"""Numbers of 16 bits, single and packed: arithmetic and comparisons. All exact, NaN is the canonical one."""

import math
from collections.abc import Callable, Iterator
from fractions import Fraction

from instruction_cases.floats import RELATIONS, add, exactly, fma, greatest, least, near, subtract
from instruction_cases.harness import Case
from instruction_cases.numbers import FORMATS, decode, encode


def each_half(reference: Callable[..., int]) -> Callable[..., int]:
    """Return the reference of packed numbers: the low and the high halves apart."""
    return lambda *v: reference(*(x & 0xFFFF for x in v)) | reference(*(x >> 16 for x in v)) << 16


def rounded(kind: str, function: Callable[..., Fraction | float], flush: bool = False, change: str = ""):
    """Return the reference of an operation that rounds once, with .relu or .sat after it."""

    def reference(*operands: int) -> int:
        x = exactly(function, [decode(v, kind, flush) for v in operands])
        if isinstance(x, float) and math.isnan(x):
            return 0 if change == "sat" else FORMATS[kind].nan
        if change == "sat":
            x = min(max(x, 0), 1) or 0.0
        if change == "relu" and x < 0:
            x = 0
        return encode(x, kind, "rn", flush)

    return reference


def multiply(a, b):
    return a * b


def chosen(kind: str, function: Callable[[float, float], float], propagate: bool):
    """Return the reference of min or max; with `propagate`, NaN wins."""

    def reference(v: int, w: int) -> int:
        x, y = decode(v, kind), decode(w, kind)
        return encode(math.nan if propagate and (x != x or y != y) else function(x, y), kind)

    return reference


def of_arithmetic(kind: str, packed: bool) -> Iterator[Case]:
    """Cases of arithmetic of one type."""
    t, letter = (f"{kind}x2", "r") if packed else (kind, "h")

    def case(text: str, count: int, reference) -> Case:
        operands = ", ".join(f"%{i}" for i in range(count + 1))
        return Case(
            f"{text}.{t} {operands};",
            f"{letter}:{letter * count}",
            each_half(reference) if packed else reference,
            kind,
        )

    operations = {"add": (2, add), "sub": (2, subtract), "mul": (2, multiply), "fma": (3, fma)}
    for name, (count, function) in operations.items():
        yield case(f"{name}.rn", count, rounded(kind, function))
        if kind == "f16":
            yield case(f"{name}.rn.ftz", count, rounded(kind, function, flush=True))
            yield case(f"{name}.rn.sat", count, rounded(kind, function, change="sat"))
    yield case("add", 2, rounded(kind, add))
    yield case("fma.rn.relu", 3, rounded(kind, fma, change="relu"))
    for name, function in (("min", least), ("max", greatest)):
        yield case(name, 2, chosen(kind, function, propagate=False))
        yield case(f"{name}.NaN", 2, chosen(kind, function, propagate=True))
    yield case("neg", 1, lambda v: v ^ 0x8000)
    yield case("abs", 1, lambda v: v & 0x7FFF)


def of_approximations(kind: str, packed: bool) -> Iterator[Case]:
    """Cases of ex2 and tanh: within the bounds of the manual."""
    t, letter = (f"{kind}x2", "r") if packed else (kind, "h")
    ex2 = "ex2.approx" if kind == "f16" else "ex2.approx.ftz"
    bounds = {"f16": 2**-9.9, "bf16": 2**-7}
    for name, function in ((ex2, lambda x: 2.0**x), ("tanh.approx", math.tanh)):
        bound = near(kind, function, bounds[kind], 2.0**-14)

        def both(v: int, bound=bound):
            low, high = bound(v & 0xFFFF), bound(v >> 16)
            return lambda got: all(
                half is None or half(got >> place & 0xFFFF) for half, place in ((low, 0), (high, 16))
            )

        yield Case(f"{name}.{t} %0, %1;", f"{letter}:{letter}", both if packed else bound, kind)


def of_comparisons(kind: str) -> Iterator[Case]:
    """Cases of setp and set."""
    one = 0x3C00 if kind == "f16" else 0x3F80
    relations = {
        **RELATIONS,
        **{f"{name}u": lambda a, b, r=r: r(a, b) or a != a or b != b for name, r in RELATIONS.items()},
        "num": lambda a, b: a == a and b == b,
        "nan": lambda a, b: a != a or b != b,
    }
    for name, relation in relations.items():

        def holds(v: int, w: int, relation=relation) -> int:
            return int(relation(decode(v, kind), decode(w, kind)))

        declare = "{.reg .pred p, q; "
        text = f"{declare}setp.{name}.{kind} p|q, %1, %2; selp.b16 %0, 3, 0, p; @q mov.u16 %0, 5;}}"
        yield Case(text, "h:hh", lambda v, w, holds=holds: 3 if holds(v, w) else 5, kind)
        text = f"{{.reg .b32 a, b; .reg .pred p, q; setp.{name}.{kind}x2 p|q, %1, %2; "
        text += "selp.b32 a, 1, 0, p; selp.b32 b, 0x10000, 0, q; or.b32 %0, a, b;}"
        yield Case(text, "r:rr", each_half(holds), kind)
        yield Case(f"set.{name}.{kind}.{kind} %0, %1, %2;", "h:hh", lambda *v, h=holds: one * h(*v), kind)
        yield Case(f"set.{name}.u32.{kind} %0, %1, %2;", "r:hh", lambda *v, h=holds: -h(*v), kind)
        yield Case(
            f"set.{name}.{kind}x2.{kind}x2 %0, %1, %2;", "r:rr", each_half(lambda *v, h=holds: one * h(*v)), kind
        )
        yield Case(f"set.{name}.u32.{kind}x2 %0, %1, %2;", "r:rr", each_half(lambda *v, h=holds: 0xFFFF * h(*v)), kind)


CASES = [
    *(
        case
        for kind in ("f16", "bf16")
        for packed in (False, True)
        for make in (of_arithmetic, of_approximations)
        for case in make(kind, packed)
    ),
    *(case for kind in ("f16", "bf16") for case in of_comparisons(kind)),
]
