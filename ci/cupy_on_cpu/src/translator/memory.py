"""Moves, loads, stores and atomic operations."""

from translator.instruction import Instruction
from translator.scope import BYTES, C_TYPES, Scope, Unsupported, assign, bits_type, c_name, vector

SPACES = ("global", "shared", "local", "param", "const")
ATOMIC_OPERATIONS = ("add", "min", "max", "exch", "cas", "and", "or", "xor", "inc", "dec")


def convert_address(scope: Scope, op: Instruction) -> str:
    """Translate cvta: only shared addresses differ from generic ones."""
    text = scope.bits(op.operands[1])
    if op.has("shared"):
        text = f"(uint64_t)({text})-(uint64_t)SH" if op.has("to") else f"(uint64_t)SH+({text})"
    return assign(op.operands[0], "u64", text)


def move(scope: Scope, op: Instruction) -> str:
    """Translate mov, also between a register and a vector of narrower ones."""
    target, source = op.operands
    if op.type == "pred":
        return f"{c_name(target)}={scope.value(source, 'pred')};"
    if target.startswith("{"):
        targets = vector(target)
        width = int(op.type[1:]) // len(targets)
        parts = (f"{c_name(x)}=(uint{width}_t)(v_>>{width * i});" for i, x in enumerate(targets) if x != "_")
        return f"{{uint64_t v_={scope.bits(source)};{''.join(parts)}}}"
    if source.startswith("{"):
        sources = vector(source)
        width = int(op.type[1:]) // len(sources)
        parts = (f"((uint64_t)(uint{width}_t)({scope.bits(x)})<<{width * i})" for i, x in enumerate(sources))
        return f"{c_name(target)}={'|'.join(parts)};"
    return f"{c_name(target)}=({bits_type(op.type)})({scope.bits(source)});"


def _element_type(t: str) -> str:
    """Return the C type that memory is read as: bits for floats, signed integers widen with their sign."""
    return bits_type(t) if t[0] == "f" else C_TYPES[t]


def load_or_store(scope: Scope, op: Instruction) -> str:
    """Translate ld, ldu, st."""
    store = op.name == "st"
    place, data = op.operands if store else reversed(op.operands)
    spaces = [x.split("::")[0] for x in op.modifiers]
    space = next((x for x in SPACES if x in spaces), "generic")
    count = next((int(x[1]) for x in op.modifiers if x in ("v2", "v4", "v8")), 1)
    size = BYTES[op.type[1:]]
    c_type = _element_type(op.type)
    text = f"{{uint64_t A={scope.address(place, space)};"
    if space != "param":
        text += f"aligned(me,A,{size * count});"
    for i, x in enumerate(vector(data) if count > 1 else [data]):
        if store:
            text += f"*({c_type}*)(A+{i * size})=({c_type})({scope.bits(x)});"
        elif x != "_":
            text += f"{c_name(x)}=*({c_type}*)(A+{i * size});"
    return text + "}"


def atomic(scope: Scope, op: Instruction) -> str:
    """Translate atom, red: nothing runs between the read and the write."""
    t = op.type
    operation = op.pick(ATOMIC_OPERATIONS)
    target, place, operand, *more = ("_", *op.operands) if op.name == "red" else op.operands
    space = "shared" if any(x.startswith("shared") for x in op.modifiers) else "global"
    c_type = _element_type(t)
    b = scope.value(operand, t)
    if t[0] == "f":
        as_float, as_bits = {"f16": ("H", "UH"), "f32": ("F", "UF"), "f64": ("D", "UD")}[t]
        if operation not in ("add", "exch"):
            raise Unsupported(f"{op.name}.{operation}.{t}")
        new = f"{as_bits}({as_float}(O)+{b})" if operation == "add" else scope.bits(operand)
    else:
        new = {
            "add": f"O+{b}", "exch": b, "and": f"O&{b}", "or": f"O|{b}", "xor": f"O^{b}",
            "min": f"({b}<O?{b}:O)", "max": f"({b}>O?{b}:O)", "inc": f"O>={b}?0:O+1", "dec": f"O==0||O>{b}?{b}:O-1",
            "cas": f"O=={b}?{scope.value(more[0], t) if more else '0'}:O",
        }[operation]  # fmt: skip
    text = f"{{uint64_t A={scope.address(place, space)};aligned(me,A,{BYTES[t[1:]]});"
    text += f" {c_type} O=*({c_type}*)A;*({c_type}*)A={new};"
    return text + (f"{c_name(target)}=O;" if target != "_" else "") + "}"
