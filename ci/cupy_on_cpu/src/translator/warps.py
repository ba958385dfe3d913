"""Exchanges between the lanes of a warp."""

from translator.instruction import Instruction
from translator.scope import C_TYPES, Scope, c_name


def shuffle(scope: Scope, op: Instruction) -> str:
    """Translate shfl.sync."""
    scope.module.synchronizes = True
    mode = op.modifiers[1]
    targets = op.operands[0].split("|")
    source, lane, clamp, mask = (scope.bits(x) for x in op.operands[1:5])
    other = {
        "down": "lane+(int)L", "up": "lane-(int)L", "bfly": "lane^(int)L", "idx": "(int)((L&~seg)|(lane&seg))",
    }[mode]  # fmt: skip
    inside = "j>=last" if mode == "up" else "j<=last"
    text = (
        f"{{int lane=me->lin%32; uint32_t C={clamp},L=({lane})&31; int seg=(C>>8)&31,end=C&31; "
        f"uint64_t*w=meet(me,{source},(uint32_t)({mask})); "
        f"int last=(lane&seg)|(end&~seg), j={other}, ok={inside}; if(!ok)j=lane; "
        f"{c_name(targets[0].strip())}=(uint32_t)w[j];"
    )
    return text + (f"{c_name(targets[1].strip())}=ok;" if len(targets) > 1 else "") + "}"


def vote(scope: Scope, op: Instruction) -> str:
    """Translate vote.sync."""
    scope.module.synchronizes = True
    text = {"ballot": "B", "any": "B!=0", "all": "B==(M&all)", "uni": "B==0||B==(M&all)"}[op.modifiers[1]]
    target, predicate, mask = op.operands
    return (
        f"{{uint32_t M={scope.bits(mask)},B=0,all=all_lanes(me->lin/32); "
        f"uint64_t*w=meet(me,{scope.value(predicate, 'pred')},M); "
        f"for(int i=0;i<32;i++) if((M&all)>>i&1 && w[i])B|=1u<<i; {c_name(target)}={text};}}"
    )


def reduce(scope: Scope, op: Instruction) -> str:
    """Translate redux.sync."""
    scope.module.synchronizes = True
    c_type = C_TYPES[op.type]
    step = {
        "add": "r_+v_", "and": "r_&v_", "or": "r_|v_", "xor": "r_^v_", "min": "v_<r_?v_:r_", "max": "v_>r_?v_:r_",
    }[op.modifiers[1]]  # fmt: skip
    target, source, mask = op.operands
    return (
        f"{{uint32_t M=({scope.bits(mask)})&all_lanes(me->lin/32); uint64_t*w=meet(me,{scope.bits(source)},M); "
        f"int first_=1; {c_type} r_=0; "
        f"for(int i=0;i<32;i++) if(M>>i&1){{{c_type} v_=w[i]; r_=first_?v_:{step}; first_=0;}} {c_name(target)}=r_;}}"
    )


def active_lanes(scope: Scope, op: Instruction) -> str:
    """Translate activemask: all lanes that the warp has, since a lane runs until it has to wait."""
    return f"{c_name(op.operands[0])}=all_lanes(me->lin/32);"
