"""Comparisons, selection and logic."""

from collections.abc import Collection

from translator.instruction import Instruction
from translator.scope import FLOATS, Scope, assign, bits_type, c_name

RELATIONS = {
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "ls": "<=", "hi": ">", "hs": ">=",
}  # fmt: skip
LOGIC = {"and": "&&", "or": "||", "xor": "^"}
BITWISE = {"and": "&", "or": "|", "xor": "^"}


def compare(scope: Scope, relation: str, t: str, a: str, b: str, modifiers: Collection[str]) -> str:
    """Return the comparison of two operands as C text. Of floats, `ltu` and the like also hold for NaN."""
    x, y = scope.value(a, t, modifiers), scope.value(b, t, modifiers)
    if t in FLOATS:
        unordered = f"(isnan({x})||isnan({y}))"
        if relation == "nan":
            return unordered
        if relation == "num":
            return "!" + unordered
        if relation.endswith("u") and relation[:-1] in RELATIONS:
            return f"({unordered}||({x}{RELATIONS[relation[:-1]]}{y}))"
        if relation == "ne":
            return f"(!{unordered}&&({x}!={y}))"
    return f"({x}{RELATIONS[relation]}{y})"


def set_predicate(scope: Scope, op: Instruction) -> str:
    """Translate setp."""
    combine = next((x for x in op.modifiers[1:] if x in LOGIC), None)
    targets = op.operands[0].split("|")
    text = compare(scope, op.modifiers[0], op.type, op.operands[1], op.operands[2], op.modifiers)
    if combine:
        text = f"({text}{LOGIC[combine]}{scope.value(op.operands[3], 'pred')})"
    second = f"{c_name(targets[1].strip())}=!e_;" if len(targets) > 1 else ""
    return f"{{int e_={text};{c_name(targets[0].strip())}=e_;{second}}}"


def set_value(scope: Scope, op: Instruction) -> str:
    """Translate set: 1.0 or all bits where the relation holds."""
    text = compare(scope, op.modifiers[0], op.type, op.operands[1], op.operands[2], op.modifiers)
    to = op.modifiers[-2]
    return assign(op.operands[0], to, f"({text})?{'1.0f' if to == 'f32' else '0xffffffffu'}:0")


def select(scope: Scope, op: Instruction) -> str:
    """Translate selp."""
    c_type = bits_type(op.type)
    target, first, second, predicate = op.operands
    text = f"{scope.value(predicate, 'pred')}?({c_type})({scope.bits(first)}):({c_type})({scope.bits(second)})"
    return assign(target, "b" + op.type[1:], text)


def logic(scope: Scope, op: Instruction) -> str:
    """Translate and, or, xor, not."""
    t, target = op.type, op.operands[0]
    if op.name == "not":
        if t == "pred":
            return f"{c_name(target)}=!{scope.value(op.operands[1], 'pred')};"
        return assign(target, t, "~" + scope.value(op.operands[1], t))
    a, b = (scope.value(x, t) for x in op.operands[1:])
    if t == "pred":
        return f"{c_name(target)}={a}{LOGIC[op.name]}{b};"
    return assign(target, t, f"{a}{BITWISE[op.name]}{b}")


def any_logic(scope: Scope, op: Instruction) -> str:
    """Translate lop3: bit i of the table is the result for the bits of i = (a, b, c)."""
    table = int(op.operands[4], 0)
    a, b, c = (scope.value(x, "b32") for x in op.operands[1:4])
    terms = [
        f"({'' if i & 4 else '~'}({a})&{'' if i & 2 else '~'}({b})&{'' if i & 1 else '~'}({c}))"
        for i in range(8)
        if table >> i & 1
    ]
    return assign(op.operands[0], "b32", "|".join(terms) or "0")


def test_class(scope: Scope, op: Instruction) -> str:
    """Translate testp."""
    text = {
        "infinite": "isinf(%s)!=0", "finite": "isfinite(%s)!=0", "notanumber": "isnan(%s)!=0", "number": "!isnan(%s)",
        "normal": "isnormal(%s)", "subnormal": "fpclassify(%s)==FP_SUBNORMAL",
    }[op.modifiers[0]]  # fmt: skip
    return f"{c_name(op.operands[0])}={text % scope.value(op.operands[1], op.type)};"
