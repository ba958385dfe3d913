"""cvt: conversions between numbers."""

from translator.floats import ROUNDING_BITS, in_mode, saturate
from translator.instruction import Instruction
from translator.scope import C_TYPES, FLOATS, Scope, Unsupported, assign, c_name

HALVES = ("f16", "bf16")
MODES = {"rn": "NEAREST", "rz": "TO_ZERO", "rm": "DOWN", "rp": "UP"}
TO_INTEGER = {"rni": "rint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


def convert(scope: Scope, op: Instruction) -> str:
    """Translate cvt between single numbers."""
    to, source = op.modifiers[-2:]
    if to in HALVES:
        return assign(op.operands[0], "b16", _half(scope, op, to, source, op.operands[1]))
    if source in FLOATS and to in FLOATS:
        return _float_to_float(scope, op)
    if source in FLOATS:
        return _float_to_integer(scope, op)
    x = scope.value(op.operands[1], source)
    if to in FLOATS:
        mode = op.find(ROUNDING_BITS)
        text = in_mode(mode, [source], [x], to, f"({C_TYPES[to]})x_") if mode else f"({C_TYPES[to]}){x}"
        return assign(op.operands[0], to, text, op.modifiers)
    if op.has("sat"):
        raise Unsupported("cvt.sat of integers")
    return assign(op.operands[0], to, f"({C_TYPES[to]}){x}")


def to_pair(scope: Scope, op: Instruction) -> str:
    """Translate cvt of two floats to packed halves: the first source goes to the upper half."""
    to, source = op.modifiers[-2:]
    if source != "f32" or len(op.operands) != 3:
        raise Unsupported(op.opcode)
    upper, lower = (_half(scope, op, to.removesuffix("x2"), source, x) for x in op.operands[1:])
    return f"{c_name(op.operands[0])}=pair({lower},{upper});"


def to_tf32(scope: Scope, op: Instruction) -> str:
    """Translate cvt.rna, .rn and .rz to tf32, of which the low 13 bits are zero here."""
    if op.modifiers[-2:] != ("tf32", "f32"):
        raise Unsupported(op.opcode)
    x = scope.value(op.operands[1], "f32")
    mode = op.pick(("rna", "rn", "rz"))
    text = f"to_tf32({f'relu({x})' if op.has('relu') else x},{int(mode == 'rna')},{MODES.get(mode, 'NEAREST')})"
    return assign(op.operands[0], "b32", text)


def _half(scope: Scope, op: Instruction, to: str, source: str, operand: str) -> str:
    """Return the bits of a half as C text: from float64, rounded once."""
    x = scope.value(operand, source, op.modifiers)
    text = x if source in FLOATS else f"odd_integer({x})"
    whole, mode = op.find(TO_INTEGER), op.find(MODES)
    if whole:
        text = f"{TO_INTEGER[whole]}({text})"
    for modifier, function in (("relu", "relu"), ("sat", "clamp")):
        if op.has(modifier):
            text = f"{function}({text})"
    return f"to_{to}({text},{MODES[mode] if mode else 'NEAREST'})"


def _float_to_float(scope: Scope, op: Instruction) -> str:
    to, source = op.modifiers[-2:]
    x = scope.value(op.operands[1], source, op.modifiers)
    mode, whole = op.find(ROUNDING_BITS), op.find(TO_INTEGER)
    text = f"{TO_INTEGER[whole]}{'f' if source != 'f64' else ''}({x})" if whole else f"({C_TYPES[to]}){x}"
    if mode:
        text = in_mode(mode, [source], [x], to, f"({C_TYPES[to]})x_")
    return assign(op.operands[0], to, saturate(text) if op.has("sat") else text, op.modifiers)


def _float_to_integer(scope: Scope, op: Instruction) -> str:
    """Clip to the range of the integer; NaN gives 0."""
    to, source = op.modifiers[-2:]
    x = scope.value(op.operands[1], source, op.modifiers)
    width = int(to[1:])
    low, high, least, most = "0", f"0x1p{width}", "0", f"UINT{width}_MAX"
    if to[0] == "s":
        low, high, least, most = f"-0x1p{width - 1}", f"0x1p{width - 1}", f"INT{width}_MIN", f"INT{width}_MAX"
    text = f"isnan(x_)?0:x_<=(double){low}?{least}:x_>=(double){high}?{most}:({C_TYPES[to]})x_"
    return f"{{double x_={TO_INTEGER[op.pick(TO_INTEGER)]}((double){x}); {assign(op.operands[0], to, text)}}}"
