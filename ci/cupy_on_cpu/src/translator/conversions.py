"""cvt: conversions between numbers."""

from translator.floats import ROUNDING_BITS, in_mode, saturate
from translator.instruction import Instruction
from translator.scope import C_TYPES, FLOATS, Scope, Unsupported, assign

TO_INTEGER = {"rni": "rint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


def convert(scope: Scope, op: Instruction) -> str:
    """Cvt between the types of C."""
    to, source = op.modifiers[-2:]
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


def _float_to_float(scope: Scope, op: Instruction) -> str:
    to, source = op.modifiers[-2:]
    x = scope.value(op.operands[1], source, op.modifiers)
    mode, whole = op.find(ROUNDING_BITS), op.find(TO_INTEGER)
    text = f"{TO_INTEGER[whole]}{'f' if source != 'f64' else ''}({x})" if whole else f"({C_TYPES[to]}){x}"
    if mode:
        if "f16" in (to, source):
            raise Unsupported(f"cvt.{mode} of f16")
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
