"""Floating-point numbers of 32 and 64 bits. Exact but for the instructions that PTX itself calls approximate."""

import math
from collections.abc import Callable, Iterator
from fractions import Fraction

from instruction_cases.harness import Case
from instruction_cases.numbers import decode, encode

LETTERS = {"f32": "r", "f64": "l"}
MODES = ("rn", "rz", "rm", "rp")


def exactly(function: Callable[..., Fraction | float], numbers: list[float]) -> Fraction | float:
    """Return the exact result of finite numbers; of others, or where it is zero, that of floats, which has the sign."""
    try:
        floats = function(*numbers)
    except OverflowError:
        floats = math.inf
    if not all(map(math.isfinite, numbers)) or (function is not fma and not math.isfinite(floats) and 0 in numbers):
        return floats  # also at a pole
    result = function(*map(Fraction, numbers))
    return result if result else math.copysign(0.0, floats)


def divide(a, b):
    if b:
        return a / b
    if isinstance(a, Fraction) or isinstance(b, Fraction):
        raise ValueError("the quotient by zero is one of floats")
    return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1, b)


def fma(a, b, c):
    product = a * b
    if isinstance(a, float) and math.isinf(product) and all(map(math.isfinite, (a, b))):
        product = math.copysign(1.0, product)  # floats are only asked about infinity, NaN and the sign of zero
    return product + c


def add(a, b):
    return a + b


def subtract(a, b):
    return a - b


# the operands whose result is the negative one
SUMS = {
    add: lambda a, b: (-a, -b),
    subtract: lambda a, b: (-a, -b),
    fma: lambda a, b, c: (-a, b, -c),
}


def rounded(t: str, mode: str, flush: bool, saturate: bool, function: Callable[..., Fraction | float]):
    """Return the reference of an operation that rounds once; any NaN will do where the result is one."""

    def reference(*operands: int):
        numbers = [decode(v, t, flush) for v in operands]
        x = exactly(function, numbers)
        if isinstance(x, float) and math.isnan(x):
            return 0 if saturate else lambda got: math.isnan(decode(got, t))
        if saturate:
            x = min(max(x, 0), 1) or 0.0
        if x == 0 and mode == "rm" and function in SUMS:  # the sum of x and -x is -0 in this mode alone
            x = -exactly(function, SUMS[function](*numbers))
        return encode(x, t, mode, flush)

    return reference


def of_arithmetic(t: str) -> Iterator[Case]:
    """Cases of operations that round once."""
    letter = LETTERS[t]
    operations = {
        "add": ("%0, %1, %2;", add), "sub": ("%0, %1, %2;", subtract),
        "mul": ("%0, %1, %2;", lambda a, b: a * b), "div": ("%0, %1, %2;", divide),
        "fma": ("%0, %1, %2, %3;", fma), "mad": ("%0, %1, %2, %3;", fma),
        "rcp": ("%0, %1;", lambda a: divide(type(a)(1), a)),
    }  # fmt: skip
    for name, (text, function) in operations.items():
        operands = f"{letter}:{letter * (text.count('%') - 1)}"
        for mode in MODES:
            yield Case(f"{name}.{mode}.{t} {text}", operands, rounded(t, mode, False, False, function), t)
        if t == "f32":
            yield Case(f"{name}.rn.ftz.{t} {text}", operands, rounded(t, "rn", True, False, function), t)
            if name not in ("div", "rcp"):
                yield Case(f"{name}.rn.sat.{t} {text}", operands, rounded(t, "rn", False, True, function), t)
    yield Case(f"sqrt.rn.{t} %0, %1;", f"{letter}:{letter}", root(t), t)


def root(t: str):
    """Return the reference of sqrt, from an integer square root with bits to spare."""

    def reference(v: int):
        x = decode(v, t)
        if math.isnan(x) or x < 0:
            return lambda got: math.isnan(decode(got, t))
        if x == 0 or math.isinf(x):
            return v
        scaled = Fraction(x) * Fraction(4) ** 1200
        exact = math.isqrt(int(scaled))
        sticky = Fraction(1, 4) if exact * exact != scaled else 0
        return encode((exact + sticky) / Fraction(2) ** 1200, t)

    return reference


def least(a: float, b: float) -> float:
    if math.isnan(a) or math.isnan(b):
        return b if math.isnan(a) else a
    return min((a, b), key=lambda x: (x, math.copysign(1, x)))


def greatest(a: float, b: float) -> float:
    return -least(-a, -b)


def of_signs(t: str) -> Iterator[Case]:
    """Cases that choose a number or change its sign."""
    letter = LETTERS[t]
    sign = 1 << (31 if t == "f32" else 63)

    def chosen(function, propagate):
        def reference(v: int, w: int):
            x, y = decode(v, t), decode(w, t)
            result = math.nan if propagate and (math.isnan(x) or math.isnan(y)) else function(x, y)
            return (lambda got: math.isnan(decode(got, t))) if math.isnan(result) else encode(result, t)

        return reference

    for name, function in (("min", least), ("max", greatest)):
        yield Case(f"{name}.{t} %0, %1, %2;", f"{letter}:{letter * 2}", chosen(function, False), t)
        if t == "f32":
            yield Case(f"{name}.NaN.{t} %0, %1, %2;", f"{letter}:{letter * 2}", chosen(function, True), t)
    yield Case(f"abs.{t} %0, %1;", f"{letter}:{letter}", lambda v: v & ~sign, t)
    yield Case(f"neg.{t} %0, %1;", f"{letter}:{letter}", lambda v: v ^ sign, t)
    yield Case(f"copysign.{t} %0, %1, %2;", f"{letter}:{letter * 2}", lambda v, w: v & sign | w & ~sign, t)


CLASSES = {
    "finite": math.isfinite, "infinite": math.isinf, "notanumber": math.isnan, "number": lambda x: not math.isnan(x),
}  # fmt: skip
RELATIONS = {
    "eq": float.__eq__, "lt": float.__lt__, "le": float.__le__, "gt": float.__gt__, "ge": float.__ge__,
    "ne": lambda a, b: a < b or a > b,
}  # fmt: skip


def of_comparisons(t: str) -> Iterator[Case]:
    """Cases of testp, setp and set."""
    letter = LETTERS[t]
    smallest = 2.0**-126 if t == "f32" else 2.0**-1022
    classes = {
        **CLASSES,
        "normal": lambda x: math.isfinite(x) and abs(x) >= smallest,
        "subnormal": lambda x: 0 < abs(x) < smallest,
    }
    for name, test in classes.items():
        text = f"{{.reg .pred p; testp.{name}.{t} p, %1; selp.u32 %0, 1, 0, p;}}"
        yield Case(text, f"r:{letter}", lambda v, test=test: int(test(decode(v, t))), t)
    relations = {
        **RELATIONS,
        **{f"{name}u": lambda a, b, r=r: r(a, b) or a != a or b != b for name, r in RELATIONS.items()},
        "num": lambda a, b: a == a and b == b,
        "nan": lambda a, b: a != a or b != b,
    }
    for name, relation in relations.items():
        text = f"{{.reg .pred p; setp.{name}.{t} p, %1, %2; selp.{t} %0, %1, %2, p;}}"

        def reference(v, w, relation=relation):
            return v if relation(decode(v, t), decode(w, t)) else w

        yield Case(text, f"{letter}:{letter * 2}", reference, t)
    yield Case(
        f"set.gt.f32.{t} %0, %1, %2;",
        f"r:{letter * 2}",
        lambda v, w: 0x3F800000 if decode(v, t) > decode(w, t) else 0,
        t,
    )


def near(t: str, function: Callable[[float], float], tolerance: float, floor: float = 0.0):
    """Return the reference of an approximate function: within a relative error.

    The error of a number below `floor` is relative to `floor`. Results near overflow and underflow are left out.
    """

    def reference(*operands: int):
        try:
            expected = function(*(decode(v, t) for v in operands))
        except (OverflowError, ValueError, ZeroDivisionError):
            return None
        if not math.isfinite(expected) or abs(expected) < 1e-30 or math.isinf(decode(encode(expected, t), t)):
            return None
        return lambda got: abs(decode(got, t) - expected) <= tolerance * max(floor, abs(expected))

    return reference


def of_approximations() -> Iterator[Case]:
    """Cases of functions that PTX computes approximately; the stand-in is nearer than it must be."""
    functions = {"ex2": lambda x: 2.0**x, "lg2": math.log2, "sin": math.sin, "cos": math.cos, "tanh": math.tanh}
    for name, function in functions.items():
        yield Case(f"{name}.approx.f32 %0, %1;", "r:r", near("f32", function, 2e-5, 1.0), "f32")
    roots = {"sqrt": math.sqrt, "rsqrt": lambda x: 1 / math.sqrt(x), "rcp": lambda x: 1 / x}
    for name, function in roots.items():
        yield Case(f"{name}.approx.f32 %0, %1;", "r:r", near("f32", function, 1e-6), "f32")
    yield Case("rsqrt.approx.f64 %0, %1;", "l:l", near("f64", roots["rsqrt"], 2e-9), "f64")
    yield Case("rcp.approx.ftz.f64 %0, %1;", "l:l", near("f64", roots["rcp"], 1e-6), "f64")
    for kind in ("approx", "full"):
        yield Case(f"div.{kind}.f32 %0, %1, %2;", "r:rr", near("f32", lambda a, b: a / b, 1e-6), "f32")


CASES = [
    *(case for t in ("f32", "f64") for make in (of_arithmetic, of_signs, of_comparisons) for case in make(t)),
    *of_approximations(),
]
