"""Integers: arithmetic, shifts, fields, logic, comparisons. All exact."""

from collections.abc import Iterator

from instruction_cases.harness import Case
from instruction_cases.numbers import signed, unsigned

LETTERS = {16: "h", 32: "r", 64: "l"}
TYPES = [(sign, width) for width in (16, 32, 64) for sign in "us"]


def number(v: int, sign: str, width: int) -> int:
    return signed(v, width) if sign == "s" else v


def quotient(n: int, d: int) -> int:  # towards zero
    return abs(n) // abs(d) * (1 if (n < 0) == (d < 0) else -1)


def of_two(sign: str, width: int) -> Iterator[Case]:
    """Cases of two or three operands of one type, and the carry."""

    def case(text: str, operands: str, reference) -> Case:
        letter = LETTERS[width]
        operands = operands.replace("w", LETTERS.get(2 * width, "?")).replace("t", letter)
        return Case(text.replace("TYPE", t), operands, lambda *v: reference(*(number(x, sign, width) for x in v)))

    t = f"{sign}{width}"
    three = "%0, %1, %2;"
    four = "%0, %1, %2, %3;"
    yield case(f"add.TYPE {three}", "t:tt", lambda a, b: a + b)
    yield case(f"sub.TYPE {three}", "t:tt", lambda a, b: a - b)
    yield case(f"mul.lo.TYPE {three}", "t:tt", lambda a, b: a * b)
    yield case(f"mul.hi.TYPE {three}", "t:tt", lambda a, b: a * b >> width)
    yield case(f"mad.lo.TYPE {four}", "t:ttt", lambda a, b, c: a * b + c)
    yield case(f"mad.hi.TYPE {four}", "t:ttt", lambda a, b, c: (a * b >> width) + c)
    if width < 64:
        yield case(f"mul.wide.TYPE {three}", "w:tt", lambda a, b: a * b)
    yield case(f"div.TYPE {three}", "t:tt", lambda a, b: quotient(a, b) if b else None)
    yield case(f"rem.TYPE {three}", "t:tt", lambda a, b: a - quotient(a, b) * b if b else None)
    yield case(f"min.TYPE {three}", "t:tt", min)
    yield case(f"max.TYPE {three}", "t:tt", max)
    yield case(f"sad.TYPE {four}", "t:ttt", lambda a, b, c: abs(a - b) + c)
    if sign == "s":
        yield case("abs.TYPE %0, %1;", "t:t", abs)
        yield case("neg.TYPE %0, %1;", "t:t", lambda a: -a)
    if width > 16:
        yield from with_carry(sign, width)
        yield case("bfind.TYPE %0, %1;", "r:t", lambda a: (a if a >= 0 else ~a).bit_length() - 1)
        yield case(
            "bfind.shiftamt.TYPE %0, %1;",
            "r:t",
            lambda a: width - (a if a >= 0 else ~a).bit_length() if a not in (0, -1) else 2**32 - 1,
        )
        yield Case(f"bfe.{t} {four}", f"{LETTERS[width]}:{LETTERS[width]}rr", extracted(sign, width))


def with_carry(sign: str, width: int) -> Iterator[Case]:
    """Cases that write the carry and read it: the high word of a number of two words."""
    t, letter = f"{sign}{width}", LETTERS[width]
    temporary = f"{{.reg .b{width} x; "
    yield Case(
        f"{temporary}add.cc.{t} x, %1, %2; addc.{t} %0, %2, %3;}}",
        f"{letter}:{letter * 3}",
        lambda a, b, c: b + c + (a + b >> width),
    )
    yield Case(
        f"{temporary}add.cc.{t} x, %1, %2; addc.cc.{t} x, x, %2; addc.{t} %0, %3, 0;}}",
        f"{letter}:{letter * 3}",
        lambda a, b, c: c + (unsigned(a + b, width) + b + (a + b >> width) >> width),
    )
    yield Case(
        f"{temporary}sub.cc.{t} x, %1, %2; subc.{t} %0, %2, %3;}}",
        f"{letter}:{letter * 3}",
        lambda a, b, c: b - c - (a < b),
    )
    yield Case(
        f"{temporary}mad.lo.cc.{t} x, %1, %2, %3; madc.hi.{t} %0, %1, %2, %3;}}",
        f"{letter}:{letter * 3}",
        lambda a, b, c: (
            (number(a, sign, width) * number(b, sign, width) >> width) + c + (unsigned(a * b, width) + c >> width)
        ),
    )


def extracted(sign: str, width: int):
    """Return the reference of bfe: bits from `start` on; beyond the highest bit, the sign."""

    def reference(v: int, start: int, length: int) -> int:
        start, length = start & 255, length & 255
        if not length:
            return 0
        top = min(start + length - 1, width - 1)
        filler = v >> top & 1 if sign == "s" else 0
        return sum((v >> start + i & 1 if start + i < width else filler) << i for i in range(min(length, width))) | (
            -1 << length if filler and length < width else 0
        )

    return reference


def inserted(width: int):
    """Return the reference of bfi."""

    def reference(field: int, v: int, amounts: int) -> int:
        start, length = amounts & 255, amounts >> 8 & 255
        mask = unsigned((1 << min(length, width)) - 1 << start, width)
        return v & ~mask | field << start & mask

    return reference


def of_bits(width: int) -> Iterator[Case]:
    """Cases of untyped bits."""
    letter = LETTERS[width]
    yield Case(f"and.b{width} %0, %1, %2;", f"{letter}:{letter * 2}", lambda a, b: a & b)
    yield Case(f"or.b{width} %0, %1, %2;", f"{letter}:{letter * 2}", lambda a, b: a | b)
    yield Case(f"xor.b{width} %0, %1, %2;", f"{letter}:{letter * 2}", lambda a, b: a ^ b)
    yield Case(f"not.b{width} %0, %1;", f"{letter}:{letter}", lambda a: ~a)
    yield Case(f"shl.b{width} %0, %1, %2;", f"{letter}:{letter}r", lambda a, s: a << min(s, width))
    for t in "bus":
        yield Case(
            f"shr.{t}{width} %0, %1, %2;",
            f"{letter}:{letter}r",
            lambda a, s, t=t: number(a, t, width) >> min(s, width),
        )
    if width > 16:
        yield Case(f"popc.b{width} %0, %1;", f"r:{letter}", int.bit_count)
        yield Case(f"clz.b{width} %0, %1;", f"r:{letter}", lambda a: width - a.bit_length())
        yield Case(f"brev.b{width} %0, %1;", f"{letter}:{letter}", lambda a: int(format(a, f"0{width}b")[::-1], 2))
        yield Case(
            "{.reg .b32 p, l; and.b32 p, %3, 255; shr.u32 l, %3, 8; and.b32 l, l, 255; "
            f"bfi.b{width} %0, %1, %2, p, l;}}",
            f"{letter}:{letter * 2}r",
            inserted(width),
        )


def permuted(low: int, high: int, selector: int) -> int:
    parts = [(high << 32 | low) >> 8 * i & 255 for i in range(8)]
    result = 0
    for j in range(4):
        k = selector >> 4 * j & 15
        part = parts[k & 7]
        result |= (255 * (part >> 7) if k & 8 else part) << 8 * j
    return result


def of_any_table(table: int):
    """Return the reference of lop3 with this table."""
    return lambda a, b, c: sum(
        (table >> (4 * (a >> i & 1) + 2 * (b >> i & 1) + (c >> i & 1)) & 1) << i for i in range(32)
    )


def of_words() -> Iterator[Case]:
    """Cases that only words of 32 bits have."""
    for clip, limit in (("clamp", lambda s: min(s, 32)), ("wrap", lambda s: s & 31)):
        yield Case(
            f"shf.l.{clip}.b32 %0, %1, %2, %3;", "r:rrr", lambda a, b, s, limit=limit: (b << 32 | a) << limit(s) >> 32
        )
        yield Case(f"shf.r.{clip}.b32 %0, %1, %2, %3;", "r:rrr", lambda a, b, s, limit=limit: (b << 32 | a) >> limit(s))
    yield Case("prmt.b32 %0, %1, %2, %3;", "r:rrr", permuted)
    for table in (0x96, 0xE8, 0x1B, 0x00, 0xFF):
        yield Case(f"lop3.b32 %0, %1, %2, %3, {table:#x};", "r:rrr", of_any_table(table))


RELATIONS = {
    "eq": int.__eq__, "ne": int.__ne__, "lt": int.__lt__, "le": int.__le__, "gt": int.__gt__, "ge": int.__ge__,
}  # fmt: skip
NAMES_OF_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


def of_predicates() -> Iterator[Case]:
    """Cases of comparisons, predicates and selection."""
    declare = "{.reg .pred p, q; "
    for sign, width in TYPES:
        for name, relation in RELATIONS.items():
            yield Case(
                f"{declare}setp.{name}.{sign}{width} p, %1, %2; selp.u32 %0, 7, 9, p;}}",
                f"r:{LETTERS[width] * 2}",
                lambda a, b, r=relation, s=sign, w=width: 7 if r(number(a, s, w), number(b, s, w)) else 9,
            )
    for name, meaning in NAMES_OF_UNSIGNED.items():
        yield Case(
            f"{declare}setp.{name}.u32 p, %1, %2; selp.b32 %0, %1, %2, p;}}",
            "r:rr",
            lambda a, b, r=RELATIONS[meaning]: a if r(a, b) else b,
        )
    yield Case("set.lt.u32.s32 %0, %1, %2;", "r:rr", lambda a, b: -(signed(a, 32) < signed(b, 32)))
    both = f"{declare}setp.lt.u32 p, %1, %2; setp.lt.u32 q, %2, %3; "
    for name, combine in (("and", int.__and__), ("or", int.__or__), ("xor", int.__xor__)):
        yield Case(
            f"{both}{name}.pred p, p, q; selp.b64 %0, 7, 9, p;}}",
            "l:rrr",
            lambda a, b, c, f=combine: 7 if f(int(a < b), int(b < c)) else 9,
        )
        yield Case(
            f"{both}setp.eq.{name}.u32 p|q, %1, %3, !q; @q mov.u32 %0, 5; @p mov.u32 %0, 6; }}",
            "r:rrr",
            lambda a, b, c, f=combine: 6 if f(int(a == c), int(not b < c)) else 5,
        )
    yield Case(f"{both}not.pred p, p; selp.s32 %0, 7, 9, p;}}", "r:rrr", lambda a, b, c: 9 if a < b else 7)


CASES = [
    *(case for sign, width in TYPES for case in of_two(sign, width)),
    *(case for width in (16, 32, 64) for case in of_bits(width)),
    *of_words(),
    *of_predicates(),
]
