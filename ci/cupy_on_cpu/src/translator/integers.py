"""Arithmetic of integers, shifts and bit fields."""

from translator.instruction import Instruction
from translator.scope import C_TYPES, Scope, Unsupported, assign, c_name

WIDER = {16: ("int32_t", "uint32_t"), 32: ("int64_t", "uint64_t"), 64: ("s128", "u128")}  # width: signed, unsigned


def _width(op: Instruction) -> int:
    return int(op.type[1:])


def _unsigned(op: Instruction) -> str:
    """Return the unsigned PTX type of the instruction's width."""
    return f"u{_width(op)}"


def _unsigned_c(op: Instruction) -> str:
    return C_TYPES[_unsigned(op)]


def add(scope: Scope, op: Instruction) -> str:
    """Translate add, sub: the sum of unsigned numbers, which wraps."""
    u = _unsigned(op)
    target, a, b = op.operands
    sign = "+" if op.name == "add" else "-"
    return assign(target, op.type, f"({C_TYPES[u]})({scope.value(a, u)}{sign}{scope.value(b, u)})")


def multiply(scope: Scope, op: Instruction) -> str:
    """Translate mul and mad: the low half, the high half (.hi) or all of the product (.wide)."""
    t, width, u = op.type, _width(op), _unsigned(op)
    target, a, b, *addend = op.operands
    signed, unsigned = WIDER[width]
    wide = signed if t[0] == "s" else unsigned
    product = f"(({wide}){scope.value(a, t)}*({wide}){scope.value(b, t)})"
    if op.has("wide"):
        if addend:
            product = f"({wide})(({unsigned}){product}+({unsigned}){scope.bits(addend[0])})"
        return assign(target, f"{t[0]}{2 * width}", product)
    text = f"({product}>>{width})" if op.has("hi") else f"(({C_TYPES[u]}){product})"
    if addend:
        text = f"(({C_TYPES[u]}){text}+({C_TYPES[u]}){scope.value(addend[0], u)})"
    return assign(target, t, text)


def with_carry(scope: Scope, op: Instruction) -> str:
    """Translate add, sub, mad that read (addc, subc, madc) or write (.cc) the carry.

    a - b is a + ~b + 1: no carry means a borrow.
    """
    t, width, u = op.type, _width(op), _unsigned(op)
    target, a, b, *addend = op.operands
    carry = "cc_" if op.name.endswith("c") else "0"
    if op.name.startswith("mad"):
        wide = WIDER[width][t[0] != "s"]
        product = f"(({wide}){scope.value(a, t)}*({wide}){scope.value(b, t)})"
        first = f"(u128)({C_TYPES[u]})({product}>>{width if op.has('hi') else 0})"
        text = f"{first}+{scope.value(addend[0], u)}+{carry}"
    elif op.name.startswith("add"):
        text = f"(u128){scope.value(a, u)}+{scope.value(b, u)}+{carry}"
    else:
        borrow = "cc_" if op.name == "subc" else "1"
        text = f"(u128){scope.value(a, u)}+({C_TYPES[u]})~{scope.value(b, u)}+{borrow}"
    flag = f"cc_=(s_>>{width})&1;" if op.has("cc") else ""
    return f"{{u128 s_={text}; {c_name(target)}=({C_TYPES[u]})s_;{flag}}}"


def divide(scope: Scope, op: Instruction) -> str:
    """Translate div, rem. The quotient of the least number by -1 wraps, where a processor would stop the program."""
    c_type = C_TYPES[op.type]
    target, a, b = op.operands
    negative = f"({c_type})(0-{scope.value(a, _unsigned(op))})"
    by_minus_one = f"b_==({c_type})-1?{negative if op.name == 'div' else '0'}:" if op.type[0] == "s" else ""
    text = f"b_==0?({c_type})-1:{by_minus_one}{scope.value(a, op.type)}{'/' if op.name == 'div' else '%'}({c_type})b_"
    return f"{{{c_type} b_={scope.value(b, op.type)}; {assign(target, op.type, text)}}}"


def absolute(scope: Scope, op: Instruction) -> str:
    """Translate abs."""
    a = scope.value(op.operands[1], op.type)
    return assign(op.operands[0], op.type, f"({a}<0?-{a}:{a})")


def negate(scope: Scope, op: Instruction) -> str:
    """Translate neg."""
    return assign(op.operands[0], op.type, f"-{scope.value(op.operands[1], op.type)}")


def extreme(scope: Scope, op: Instruction) -> str:
    """Translate min, max."""
    a, b = (scope.value(x, op.type) for x in op.operands[1:])
    return assign(op.operands[0], op.type, f"({a}{'<' if op.name == 'min' else '>'}{b}?{a}:{b})")


def sum_of_difference(scope: Scope, op: Instruction) -> str:
    """Translate sad: |a - b| + c."""
    u = _unsigned_c(op)
    a, b, c = (scope.value(x, op.type) for x in op.operands[1:])
    return assign(op.operands[0], op.type, f"({u}){c}+({a}>{b}?({u}){a}-({u}){b}:({u}){b}-({u}){a})")


def count_ones(scope: Scope, op: Instruction) -> str:
    """Translate popc."""
    return f"{c_name(op.operands[0])}=__builtin_popcountll({scope.value(op.operands[1], op.type)});"


def count_leading_zeros(scope: Scope, op: Instruction) -> str:
    """Translate clz."""
    counter = "__builtin_clz" if _width(op) == 32 else "__builtin_clzll"
    source = scope.value(op.operands[1], op.type)
    return f"{{{C_TYPES[op.type]} v_={source};{c_name(op.operands[0])}=v_?{counter}(v_):{_width(op)};}}"


def reverse_bits(scope: Scope, op: Instruction) -> str:
    """Translate brev."""
    width = _width(op)
    loop = f"for(int i=0;i<{width};i++)r_|=((v_>>i)&1u)<<({width - 1}-i);"
    source = scope.value(op.operands[1], op.type)
    return f"{{{C_TYPES[op.type]} v_={source},r_=0;{loop}{c_name(op.operands[0])}=r_;}}"


def find_highest(scope: Scope, op: Instruction) -> str:
    """Translate bfind: the highest bit that differs from the sign."""
    t = op.type
    a = scope.value(op.operands[1], t)
    magnitude = f"(uint64_t)({_unsigned_c(op)})({a}<0?~{a}:{a})" if t[0] == "s" else f"(uint64_t){a}"
    place = f"{_width(op) - 1}-p_" if op.has("shiftamt") else "p_"
    target = c_name(op.operands[0])
    return f"{{uint64_t v_={magnitude}; int p_=63-__builtin_clzll(v_|1); {target}=v_?{place}:0xffffffffu;}}"


def shift(scope: Scope, op: Instruction) -> str:
    """Translate shl, shr: by more than the width gives zero, or the sign."""
    width = _width(op)
    target, source, amount = op.operands
    a, u = scope.value(source, op.type), scope.value(source, _unsigned(op))
    if op.name == "shl":
        text = f"s_>={width}?0:{u}<<s_"
    else:
        text = f"{a}>>(s_>={width}?{width - 1}:s_)" if op.type[0] == "s" else f"s_>={width}?0:{u}>>s_"
    return f"{{uint32_t s_={scope.bits(amount)}; {assign(target, op.type, text)}}}"


def funnel_shift(scope: Scope, op: Instruction) -> str:
    """Translate shf: of two registers as one number of 64 bits."""
    amount = "s_&31" if op.has("wrap") else "(s_>32?32:s_)"
    text = "(x_<<s_)>>32" if op.modifiers[0] == "l" else "x_>>s_"
    low, high, by = (scope.bits(x) for x in op.operands[1:])
    both = f"((uint64_t)(uint32_t)({high})<<32)|(uint32_t)({low})"
    return f"{{uint64_t x_={both}; uint32_t s_={by}; s_={amount}; {c_name(op.operands[0])}=(uint32_t)({text});}}"


def extract_field(scope: Scope, op: Instruction) -> str:
    """Translate bfe."""
    t, width = op.type, _width(op)
    target, source, start, length = op.operands
    u = scope.value(source, _unsigned(op))
    whole = scope.value(source, t if t[0] == "s" else _unsigned(op))
    inside = f"({C_TYPES[t]})(({C_TYPES[t]})({u}<<({width}-l_-p_))>>({width}-l_))"
    beyond = f"{whole}>>{width - 1}" if t[0] == "s" else "0"
    text = f"l_==0?0:p_>={width}?{beyond}:p_+l_>={width}?{whole}>>p_:{inside}"
    return f"{{uint32_t p_=({scope.bits(start)})&255,l_=({scope.bits(length)})&255; {assign(target, t, text)}}}"


def insert_field(scope: Scope, op: Instruction) -> str:
    """Translate bfi."""
    t, width = op.type, _width(op)
    target, field, source, start, length = op.operands
    text = f"({scope.value(source, t)}&~m_)|(((uint64_t){scope.value(field, t)}<<(p_&63))&m_)"
    mask = f"p_>={width}?0:(l_>={width}?~0ull:((1ull<<l_)-1))<<p_"
    start, length = scope.bits(start), scope.bits(length)
    return f"{{uint32_t p_=({start})&255,l_=({length})&255; uint64_t m_={mask}; {assign(target, t, text)}}}"


def permute_bytes(scope: Scope, op: Instruction) -> str:
    """Translate prmt."""
    if len(op.modifiers) > 1:
        raise Unsupported(op.opcode)
    return f"{c_name(op.operands[0])}=prmt({','.join(scope.bits(x) for x in op.operands[1:])});"
