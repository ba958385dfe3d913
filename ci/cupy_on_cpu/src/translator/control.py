"""Branches, calls and barriers of a block."""

import re

from translator.instruction import Instruction
from translator.scope import Scope, Unsupported, c_name


def branch(scope: Scope, op: Instruction) -> str:
    """Translate bra."""
    return f"goto {c_name(op.operands[0])};"


def branch_by_table(scope: Scope, op: Instruction) -> str:
    """Translate brx.idx."""
    targets = scope.tables[op.operands[1]]
    cases = "".join(f"case {i}: goto {c_name(target)};" for i, target in enumerate(targets))
    return f"switch((uint32_t)({scope.bits(op.operands[0])})){{{cases}}}"


def leave(scope: Scope, op: Instruction) -> str:
    """Translate ret."""
    return "return;"


def leave_kernel(scope: Scope, op: Instruction) -> str:
    """Translate exit."""
    if scope.is_kernel:
        return "return;"
    raise Unsupported("exit in a function")


def trap(scope: Scope, op: Instruction) -> str:
    """Translate trap."""
    return 'fault(me,719,"trap");'


def no_effect(scope: Scope, op: Instruction) -> str:
    """Translate fences, prefetches and hints to nothing: threads run one after the other on one memory."""
    return ";"


def call(scope: Scope, op: Instruction) -> str:
    """Translate call of a function by its name."""
    form = r"^(?:\((.*?)\)\s*,\s*)?([\w$]+)\s*(?:,\s*\((.*?)\))?$"
    found = re.match(form, ", ".join(op.operands), flags=re.S)
    if not found:
        raise Unsupported("call through a pointer")
    result, callee, arguments = found.groups()
    if callee == "__assertfail":
        return 'fault(me,710,"an assertion of the kernel failed");'
    if callee not in scope.module.functions:
        raise Unsupported("call of " + callee)
    places = ",".join("(void*)" + c_name(x.strip()) for x in (arguments or "").split(",") if x.strip()) or "0"
    target = "(void*)" + c_name(result.strip()) if result else "0"
    return f"{{void*A_[]={{{places}}};fn_{c_name(callee)}(me,A_,{target});}}"


def barrier(scope: Scope, op: Instruction) -> str:
    """Translate bar and barrier: of the block (number 0), or of the lanes of a warp."""
    if op.has("warp"):
        scope.module.synchronizes = True
        return f"meet(me,0,(uint32_t)({scope.bits(op.operands[0])}));"
    if op.has("arrive") or (op.operands and op.operands[0] != "0" and not op.operands[0].startswith("%")):
        raise Unsupported("barrier other than 0")
    scope.module.synchronizes = True
    if op.has("red"):
        text = {"popc": "n_", "and": "n_==s_", "or": "n_!=0"}[op.pick(("popc", "and", "or"))]
        vote = scope.value(op.operands[-1], "pred")
        return f"{{unsigned s_,n_=bar_count(me,{vote},&s_);{c_name(op.operands[0])}={text};}}"
    return "bar(me);"
