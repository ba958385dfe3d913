"""Arithmetic of numbers of 16 bits, single and packed in pairs: f16, bf16, f16x2, bf16x2."""

from collections.abc import Callable, Sequence

from translator.instruction import Instruction
from translator.predicates import LOGIC, RELATIONS
from translator.scope import Scope, Unsupported, c_name

TYPES = ("f16", "bf16", "f16x2", "bf16x2")
# C text in float64 for the operands x, y, z; rounded once after it
ARITHMETIC = {
    "add": "{0}+{1}", "sub": "{0}-{1}", "mul": "{0}*{1}", "fma": "odd_fma({0},{1},{2})", "min": "smaller({0},{1})",
    "max": "larger({0},{1})", "ex2": "exp2({0})", "tanh": "tanh({0})",
}  # fmt: skip


def _places(t: str) -> Sequence[int]:
    """Return the first bit of each number of a register."""
    return (0, 16) if t.endswith("x2") else (0,)


def _sources(scope: Scope, operands: Sequence[str]) -> str:
    """Return declarations of the sources as s0_, s1_, s2_."""
    return "uint32_t " + ",".join(f"s{i}_={scope.bits(x)}" for i, x in enumerate(operands)) + ";"


def _bits(kind: str, index: int, place: int, flush: bool) -> str:
    text = f"(uint16_t)(s{index}_>>{place})"
    return f"ftz_{kind}({text})" if flush else text


def _assemble(scope: Scope, op: Instruction, operands: Sequence[str], element: Callable[[int], str]) -> str:
    """Return the statement that computes each 16 bits of the target; `element` gives their text for the first bit."""
    parts = "|".join(f"(uint32_t)(uint16_t)({element(place)})<<{place}" for place in _places(op.type))
    return f"{{{_sources(scope, operands)} {c_name(op.operands[0])}={parts};}}"


def arithmetic(scope: Scope, op: Instruction) -> str:
    """Translate add, sub, mul, fma, min, max, ex2 and tanh of halves: float64, rounded once to nearest."""
    kind, flush = op.type.removesuffix("x2"), op.has("ftz")
    operands = op.operands[1:]

    def element(place: int) -> str:
        numbers = [f"from_{kind}({_bits(kind, i, place, flush)})" for i in range(len(operands))]
        text = ARITHMETIC[op.name].format(*numbers)
        if op.has("NaN"):
            text = f"isnan({numbers[0]})||isnan({numbers[1]})?NAN:{text}"
        for modifier, function in (("relu", "relu"), ("sat", "clamp")):
            if op.has(modifier):
                text = f"{function}({text})"
        text = f"to_{kind}({text},NEAREST)"
        return f"ftz_{kind}({text})" if flush else text

    return _assemble(scope, op, operands, element)


def sign(scope: Scope, op: Instruction) -> str:
    """Translate neg and abs of halves: only the sign bit changes."""
    change = {"neg": "^0x8000", "abs": "&0x7fff"}[op.name]
    kind = op.type.removesuffix("x2")
    return _assemble(scope, op, op.operands[1:2], lambda place: _bits(kind, 0, place, op.has("ftz")) + change)


def _relation(op: Instruction, place: int) -> str:
    """Return the comparison of one pair of numbers as C text; of NaN only `nan`, `ne` with u and the like hold."""
    kind, relation = op.type.removesuffix("x2"), op.modifiers[0]
    x, y = (f"from_{kind}({_bits(kind, i, place, op.has('ftz'))})" for i in range(2))
    unordered = f"isunordered({x},{y})"
    if relation in ("nan", "num"):
        return unordered if relation == "nan" else f"!{unordered}"
    if relation.endswith("u"):
        return f"({unordered}||{x}{RELATIONS[relation[:-1]]}{y})"
    return f"(!{unordered}&&{x}{RELATIONS[relation]}{y})"


def set_predicate(scope: Scope, op: Instruction) -> str:
    """Translate setp.

    Of one number, p|q are the result and its negation; of a pair, the results of the low and of the high one.
    """
    targets = [x.strip() for x in op.operands[0].split("|")]
    places = _places(op.type)
    texts = [_relation(op, place) for place in places]
    combine = next((x for x in op.modifiers[1:] if x in LOGIC), None)
    if combine:
        texts = [f"({text}{LOGIC[combine]}{scope.value(op.operands[3], 'pred')})" for text in texts]
    if len(places) == 1:
        texts.append(f"!{texts[0]}")
    results = "".join(f"int r{i}_={text};" for i, text in enumerate(texts))
    stores = "".join(f"{c_name(x)}=r{i}_;" for i, x in enumerate(targets) if x != "_")
    return f"{{{_sources(scope, op.operands[1:3])}{results}{stores}}}"


def set_value(scope: Scope, op: Instruction) -> str:
    """Translate set of halves: 1.0 or all bits where the relation holds, for each number of a pair."""
    to, source = op.modifiers[-2:]
    if len(op.operands) != 3 or source not in TYPES:
        raise Unsupported(op.opcode)
    packed = source.endswith("x2")
    ones = {"f16": 0x3C00, "bf16": 0x3F80}
    if packed:
        true = {source: ones[source.removesuffix("x2")], "u32": 0xFFFF, "s32": 0xFFFF}[to]
    else:
        true = {**ones, "f32": 0x3F800000, "u16": 0xFFFF, "s16": 0xFFFF, "u32": 0xFFFFFFFF, "s32": 0xFFFFFFFF}[to]
    parts = "|".join(f"({_relation(op, place)}?{true:#x}u<<{place}:0u)" for place in _places(source))
    return f"{{{_sources(scope, op.operands[1:3])} {c_name(op.operands[0])}={parts};}}"
