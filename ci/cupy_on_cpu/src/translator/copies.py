"""Copies to shared memory that a thread waits for later: cp.async."""

from translator.instruction import Instruction
from translator.scope import Scope, Unsupported

SIZES = {"ca": (4, 8, 16), "cg": (16,)}


def start(scope: Scope, op: Instruction) -> str:
    """Translate cp.async.ca and .cg; bytes beyond the optional size of the source become zero."""
    to, source, size, *source_size = op.operands
    if int(size, 0) not in SIZES[op.modifiers[1]]:
        raise Unsupported(f"{op.opcode} of {size} bytes")
    if len(source_size) > 1 or (source_size and source_size[0] in scope.predicates):
        raise Unsupported(f"{op.opcode} with a predicate or a cache policy")
    text = f"{{uint64_t A={scope.address(to, 'shared')},B={scope.address(source, 'global')};"
    text += f"uint32_t s_={scope.bits(source_size[0]) if source_size else size};"
    text += f"aligned(me,A,{size});aligned(me,B,{size});"
    text += f'if(s_>{size}) fault(me,719,"cp.async: the size of the source is %u of {size}",s_);'
    return text + f"start_copy(&me->copies,A,B,{size},s_);}}"


def commit(scope: Scope, op: Instruction) -> str:
    """Translate cp.async.commit_group."""
    return "commit_copies(&me->copies);"


def wait(scope: Scope, op: Instruction) -> str:
    """Translate cp.async.wait_group N."""
    return f"wait_copies(&me->copies,{int(op.operands[0], 0)});"


def wait_for_all(scope: Scope, op: Instruction) -> str:
    """Translate cp.async.wait_all, which includes copies that are in no group yet."""
    return "{commit_copies(&me->copies);wait_copies(&me->copies,0);}"
