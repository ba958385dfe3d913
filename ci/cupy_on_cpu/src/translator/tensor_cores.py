"""Matrices in the registers of a warp: mma, ldmatrix, movmatrix."""

from translator.instruction import Instruction
from translator.scope import Scope, Unsupported, c_name, vector


def _results(target: str) -> str:
    """Return statements that store out_[i] to the i-th register of a vector."""
    return "".join(f"{c_name(x)}=out_[{i}];" for i, x in enumerate(vector(target)) if x != "_")


def multiply(scope: Scope, op: Instruction) -> str:
    """Translate mma.sync.aligned with A by rows and B by columns."""
    shape, *layouts, d, a, b, c = op.modifiers[2:]
    if layouts != ["row", "col"] or a != b or c != d or c not in ("f32", "f16") or (c == "f16" and a != "f16"):
        raise Unsupported(op.opcode)
    depth = int(shape.removeprefix("m16n8k"))
    registers_of_a = depth // 2 if a == "tf32" else depth // 4
    counts = (4 if c == "f32" else 2, registers_of_a, registers_of_a // 2, 4 if c == "f32" else 2)
    if [len(vector(x)) for x in op.operands] != list(counts):
        raise Unsupported(f"{op.opcode} with other than {counts} registers")
    words = ",".join(f"(uint32_t)({scope.bits(x)})" for operand in op.operands[1:] for x in vector(operand))
    number = scope.module.number_exchange()
    run = f"mma(me,in_,out_,{depth},{a.upper()},{int(c == 'f16')},{number});"
    return f"{{uint32_t in_[]={{{words}}},out_[4];{run}{_results(op.operands[0])}}}"


def load(scope: Scope, op: Instruction) -> str:
    """Translate ldmatrix of 8x8 matrices of 16-bit elements."""
    if op.modifiers[:3] != ("sync", "aligned", "m8n8") or op.type != "b16":
        raise Unsupported(op.opcode)
    count = int(op.pick(("x1", "x2", "x4"))[1])
    if len(vector(op.operands[0])) != count:
        raise Unsupported(f"{op.opcode} with other than {count} registers")
    space = "shared" if op.find(("shared", "shared::cta")) else "generic"
    number = scope.module.number_exchange()
    run = f"ldmatrix(me,{scope.address(op.operands[1], space)},out_,{count},{int(op.has('trans'))},{number});"
    return f"{{uint32_t out_[4];{run}{_results(op.operands[0])}}}"


def transpose(scope: Scope, op: Instruction) -> str:
    """Translate movmatrix."""
    if op.modifiers != ("sync", "aligned", "m8n8", "trans", "b16"):
        raise Unsupported(op.opcode)
    target, source = op.operands
    return f"{c_name(target)}=movmatrix(me,{scope.bits(source)},{scope.module.number_exchange()});"
