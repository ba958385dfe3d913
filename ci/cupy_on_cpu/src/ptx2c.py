"""Translates the PTX of one module to C and compiles it to a shared object.

ptx2c.py IN.ptx OUT.so

A register becomes a variable of the unsigned type of its width that holds the bits; each instruction becomes a C statement
that reads the bits as the type of the instruction and writes bits back. A label stays a label, a branch a goto. A function
becomes `static void fn_NAME(Th *me, void **P, void *R)`: the thread, the addresses of the parameters and of the result. For
each kernel there is `launch_NAME`. kernel.h has the threads, barriers and exchanges. An instruction that is not written ends
the launch with an error that names it, when it is reached.
"""

import os
import re
import subprocess
import sys

C_TYPES = {
    "u8": "uint8_t", "s8": "int8_t", "b8": "uint8_t", "u16": "uint16_t", "s16": "int16_t", "b16": "uint16_t",
    "u32": "uint32_t", "s32": "int32_t", "b32": "uint32_t", "u64": "uint64_t", "s64": "int64_t", "b64": "uint64_t",
    "f16": "_Float16", "f32": "float", "f64": "double", "pred": "uint8_t",
}  # fmt: skip
BYTES = {"8": 1, "16": 2, "32": 4, "64": 8}
FLOATS = ("f32", "f64", "f16")
SPECIAL = {
    **{f"%tid.{a}": f"me->t.{a}" for a in "xyz"}, **{f"%ctaid.{a}": f"me->c.{a}" for a in "xyz"},
    **{f"%ntid.{a}": f"nt.{a}" for a in "xyz"}, **{f"%nctaid.{a}": f"nc.{a}" for a in "xyz"},
    "%laneid": "(me->lin%32)", "%warpid": "(me->lin/32)", "WARP_SZ": "32", "%clock64": "0", "%clock": "0", "%envreg0": "0",
    "%lanemask_eq": "(1u<<(me->lin%32))", "%lanemask_lt": "((1u<<(me->lin%32))-1)", "%lanemask_le": "((2u<<(me->lin%32))-1)",
    "%lanemask_ge": "(~((1u<<(me->lin%32))-1))", "%lanemask_gt": "(~((2u<<(me->lin%32))-1))",
}  # fmt: skip
COMPARE = {
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "lo": "<",
    "ls": "<=",
    "hi": ">",
    "hs": ">=",
}
LOGIC = {"and": "&&", "or": "||", "xor": "^"}
BITWISE = {"and": "&", "or": "|", "xor": "^"}
ROUND_TO_INTEGER = {"rni": "rint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
ROUND_BITS = {
    "rm": "0x2000u",
    "rp": "0x4000u",
    "rz": "0x6000u",
}  # of the control register of SSE; rn is the normal state
NO_EFFECT = (
    "membar",
    "fence",
    "prefetch",
    "prefetchu",
    "discard",
    "nosleep",
    "nanosleep",
    "griddepcontrol",
    "pragma",
    "applypriority",
)


class Unsupported(Exception):
    pass


class Module:
    shared = {}  # array -> its offset, as C text
    shared_bytes = 0
    globals_ = set()
    functions = set()
    unsupported = set()
    synchronizes = False


class Function:
    def __init__(self, parameters):
        self.parameters = parameters
        self.local = set()
        self.tables = {}  # of brx.idx: label -> targets


module, function = Module(), None


def c_name(name):
    return re.sub(r"[%$.]", "_", name)


def bits_type(t):
    """The unsigned type of the same width."""
    return C_TYPES["b" + t[1:]]


# ---- operands ----------------------------------------------------------------------------------------------------------------


def bits(operand):
    """The operand as C text whose value is the bits."""
    operand = operand.strip()
    if operand in SPECIAL:
        return SPECIAL[operand]
    if operand.startswith("%"):
        if "." in operand:
            raise Unsupported("register " + operand)
        return c_name(operand)
    if re.fullmatch(r"0[fF][0-9a-fA-F]{8}", operand):
        return f"0x{operand[2:]}u"
    if re.fullmatch(r"0[dD][0-9a-fA-F]{16}", operand):
        return f"0x{operand[2:]}ull"
    if re.fullmatch(r"-?(0x[0-9a-fA-F]+|\d+)U?", operand):
        value = int(operand.rstrip("U"), 0)
        if value > 2**31 - 1:
            return f"{value}ull"
        return f"({value}ll)" if value > -(2**63) else "((-9223372036854775807ll)-1)"
    if operand in module.shared:
        return module.shared[operand]
    if operand in ("_true", "true"):
        return "1"
    if operand in function.local:
        return f"(uint64_t){c_name(operand)}"
    if operand in function.parameters:
        return f"(uint64_t)P[{function.parameters.index(operand)}]"
    if operand in module.globals_:
        return f"(uint64_t)global_{c_name(operand)}"
    if operand in module.functions:
        raise Unsupported("address of a function")
    return c_name(operand)


def value(operand, t, mods=()):
    """The operand as C text of type t."""
    text = bits(operand)
    if t == "f32":
        text = f"F((uint32_t)({text}))"
        return f"ftz({text})" if "ftz" in mods else text
    if t == "f64":
        return f"D((uint64_t)({text}))"
    if t == "f16":
        return f"H((uint16_t)({text}))"
    if t == "pred":
        return f"(!{c_name(operand.strip()[1:])})" if operand.strip().startswith("!") else f"({text})"
    return f"({C_TYPES[t]})({text})"


def assign(target, t, text, mods=()):
    """A statement that stores a C value of type t as bits."""
    target = target.strip()
    if target == "_":
        return f"(void)({text});"
    if t == "f32":
        return "%s=UF(%s);" % (c_name(target), f"ftz({text})" if "ftz" in mods else text)
    if t in ("f64", "f16"):
        return f"{c_name(target)}={'UD' if t == 'f64' else 'UH'}({text});"
    return f"{c_name(target)}=({C_TYPES[t]})({text});"


def split(text):
    """Operands: at commas outside of brackets."""
    parts, depth, part = [], 0, ""
    for letter in text:
        depth += (letter in "{[(") - (letter in "}])")
        if letter == "," and depth == 0:
            parts.append(part.strip())
            part = ""
        else:
            part += letter
    return parts + [part.strip()] if part.strip() else parts


def vector(operand):
    return [x.strip() for x in operand.strip()[1:-1].split(",")]


def address(operand, space):
    inner = operand.strip()[1:-1].strip()
    found = re.match(r"^(.*?)\s*([+-])\s*(-?\w+)$", inner)
    base, offset = inner, "0"
    if found and not re.match(r"^[+-]?\d+$", inner):
        base, offset = found.group(1).strip(), ("-" if found.group(2) == "-" else "") + found.group(3)
    offset = offset.replace("--", "")
    if space == "param":
        if base in function.parameters:
            return f"((uint64_t)P[{function.parameters.index(base)}]+({offset}))"
        return f"((uint64_t){c_name(base)}+({offset}))"
    if space == "shared":
        return f"((uint64_t)SH+(uint32_t)({bits(base)})+({offset}))"
    return f"((uint64_t)({bits(base)})+(int64_t)({offset}))"


def in_mode(mode, types, operands, result_type, text):
    """C text in another rounding mode; x_, y_, z_ are the operands. `volatile` keeps the arithmetic between the switches."""
    inputs = " ".join(f"volatile {C_TYPES[t]} {n}_={x};" for n, t, x in zip("xyz", types, operands))
    return (
        "({unsigned csr_=__builtin_ia32_stmxcsr(); __builtin_ia32_ldmxcsr((csr_&~0x6000u)|%s); %s volatile %s r_=%s; "
        "__builtin_ia32_ldmxcsr(csr_); r_;})" % (ROUND_BITS[mode], inputs, C_TYPES[result_type], text)
    )


def saturate(text):
    return f"fminf(1.f,fmaxf(0.f,{text}))"


# ---- instructions: each function gets the mnemonic, its modifiers (the last is the type), and the operands ----------------------


def compare(relation, t, a, b, mods):
    x, y = value(a, t, mods), value(b, t, mods)
    if t in FLOATS:
        unordered = f"(isnan({x})||isnan({y}))"
        if relation == "nan":
            return unordered
        if relation == "num":
            return "!" + unordered
        if relation.endswith("u") and relation[:-1] in COMPARE:
            return f"({unordered}||({x}{COMPARE[relation[:-1]]}{y}))"
        if relation == "ne":
            return f"(!{unordered}&&({x}!={y}))"
    return f"({x}{COMPARE[relation]}{y})"


def barrier(name, mods, ops):
    if "warp" in mods:
        module.synchronizes = True
        return f"meet(me,0,(uint32_t)({bits(ops[0])}));"
    if "arrive" in mods or (ops and ops[0] != "0" and not ops[0].startswith("%")):
        raise Unsupported("barrier other than 0")
    module.synchronizes = True
    if "red" in mods:
        kind = next(x for x in mods if x in ("popc", "and", "or"))
        text = {"popc": "n_", "and": "n_==s_", "or": "n_!=0"}[kind]
        return "{unsigned s_,n_=bar_count(me,%s,&s_);%s=%s;}" % (value(ops[-1], "pred"), c_name(ops[0]), text)
    return "bar(me);"


def cvta(name, mods, ops):
    if "shared" in mods:
        text = f"(uint64_t)({bits(ops[1])})-(uint64_t)SH" if "to" in mods else f"(uint64_t)SH+({bits(ops[1])})"
        return assign(ops[0], "u64", text)
    return assign(ops[0], "u64", bits(ops[1]))


def mov(name, mods, ops):
    t = mods[-1]
    width = int(t[1:]) if t != "pred" else 0
    if ops[0].startswith("{"):
        targets = vector(ops[0])
        w = width // len(targets)
        pairs = [(i, x) for i, x in enumerate(targets) if x != "_"]
        return (
            "{uint64_t v_=%s;" % bits(ops[1])
            + "".join(f"{c_name(x)}=(uint{w}_t)(v_>>{w * i});" for i, x in pairs)
            + "}"
        )
    if ops[1].startswith("{"):
        sources = vector(ops[1])
        w = width // len(sources)
        parts = [f"((uint64_t)(uint{w}_t)({bits(x)})<<{w * i})" for i, x in enumerate(sources)]
        return f"{c_name(ops[0])}={'|'.join(parts)};"
    if t == "pred":
        return f"{c_name(ops[0])}={value(ops[1], 'pred')};"
    return f"{c_name(ops[0])}=({bits_type(t)})({bits(ops[1])});"


def memory(name, mods, ops):
    t = mods[-1]
    store = name == "st"
    place, data = (ops[0], ops[1]) if store else (ops[1], ops[0])
    spaces = [x.split("::")[0] for x in mods]
    space = next((x for x in ("global", "shared", "local", "param", "const") if x in spaces), "generic")
    count = next((int(x[1]) for x in mods if x in ("v2", "v4", "v8")), 1)
    size = BYTES[t[1:]]
    c_type = bits_type(t) if t[0] == "f" else C_TYPES[t]
    text = "{uint64_t A=%s;" % address(place, space)
    if space != "param":
        text += f"aligned(me,A,{size * count});"
    for i, x in enumerate(vector(data) if count > 1 else [data]):
        if store:
            text += f"*({c_type}*)(A+{i * size})=({c_type})({bits(x)});"
        elif x != "_":
            text += f"{c_name(x)}=*({c_type}*)(A+{i * size});"
    return text + "}"


def atomic(name, mods, ops):
    t = mods[-1]
    operation = next(x for x in mods if x in ("add", "min", "max", "exch", "cas", "and", "or", "xor", "inc", "dec"))
    target, place, operand = (None, *ops[:2]) if name == "red" else ops[:3]
    space = "shared" if any(x.startswith("shared") for x in mods) else "global"
    c_type = bits_type(t) if t[0] == "f" else C_TYPES[t]
    b = value(operand, t)
    if t[0] == "f":
        as_float, as_bits = {"f16": ("H", "UH"), "f32": ("F", "UF"), "f64": ("D", "UD")}[t]
        if operation not in ("add", "exch"):
            raise Unsupported(f"{name}.{operation}.{t}")
        new = f"{as_bits}({as_float}(O)+{b})" if operation == "add" else bits(operand)
    else:
        new = {
            "add": f"O+{b}", "exch": b, "and": f"O&{b}", "or": f"O|{b}", "xor": f"O^{b}",
            "min": f"({b}<O?{b}:O)", "max": f"({b}>O?{b}:O)", "inc": f"O>={b}?0:O+1", "dec": f"O==0||O>{b}?{b}:O-1",
            "cas": f"O=={b}?{value(ops[3], t) if len(ops) > 3 else '0'}:O",
        }[operation]  # fmt: skip
    text = "{uint64_t A=%s;aligned(me,A,%d);%s O=*(%s*)A;*(%s*)A=%s;" % (
        address(place, space), BYTES[t[1:]], c_type, c_type, c_type, new)  # fmt: skip
    return text + (f"{c_name(target)}=O;" if target and target != "_" else "") + "}"


def shuffle(name, mods, ops):
    module.synchronizes = True
    mode = mods[1]
    targets = ops[0].split("|")
    source, lane, clamp, mask = (bits(x) for x in ops[1:5])
    other = {"down": "lane+(int)L", "up": "lane-(int)L", "bfly": "lane^(int)L", "idx": "(int)((L&~seg)|(lane&seg))"}[
        mode
    ]
    inside = "j>=last" if mode == "up" else "j<=last"
    text = (
        "{int lane=me->lin%%32; uint32_t C=%s,L=(%s)&31; int seg=(C>>8)&31,end=C&31; uint64_t*w=meet(me,%s,(uint32_t)(%s)); "
        "int last=(lane&seg)|(end&~seg), j=%s, ok=%s; if(!ok)j=lane; %s=(uint32_t)w[j];"
        % (clamp, lane, source, mask, other, inside, c_name(targets[0].strip()))
    )
    return text + (f"{c_name(targets[1].strip())}=ok;" if len(targets) > 1 else "") + "}"


def vote(name, mods, ops):
    module.synchronizes = True
    text = {"ballot": "B", "any": "B!=0", "all": "B==(M&all)", "uni": "B==0||B==(M&all)"}[mods[1]]
    return (
        "{uint32_t M=%s,B=0,all=all_lanes(me->lin/32); uint64_t*w=meet(me,%s,M); "
        "for(int i=0;i<32;i++) if((M&all)>>i&1 && w[i])B|=1u<<i; %s=%s;}"
        % (bits(ops[2]), value(ops[1], "pred"), c_name(ops[0]), text)
    )


def set_predicate(name, mods, ops):
    combine = next((x for x in mods[1:] if x in LOGIC), None)
    targets = ops[0].split("|")
    text = compare(mods[0], mods[-1], ops[1], ops[2], mods)
    if combine:
        text = f"({text}{LOGIC[combine]}{value(ops[3], 'pred')})"
    second = f"{c_name(targets[1].strip())}=!e_;" if len(targets) > 1 else ""
    return "{int e_=%s;%s=e_;%s}" % (text, c_name(targets[0].strip()), second)


def set_value(name, mods, ops):
    text = compare(mods[0], mods[-1], ops[1], ops[2], mods)
    return assign(ops[0], mods[-2], f"({text})?{'1.0f' if mods[-2] == 'f32' else '0xffffffffu'}:0")


def select(name, mods, ops):
    c_type = bits_type(mods[-1])
    return assign(
        ops[0], "b" + mods[-1][1:], f"{value(ops[3], 'pred')}?({c_type})({bits(ops[1])}):({c_type})({bits(ops[2])})"
    )


def logic(name, mods, ops):
    t = mods[-1]
    if name == "not":
        return (
            f"{c_name(ops[0])}=!{value(ops[1], 'pred')};" if t == "pred" else assign(ops[0], t, "~" + value(ops[1], t))
        )
    if t == "pred":
        return f"{c_name(ops[0])}={value(ops[1], 'pred')}{LOGIC[name]}{value(ops[2], 'pred')};"
    return assign(ops[0], t, f"{value(ops[1], t)}{BITWISE[name]}{value(ops[2], t)}")


def lop3(name, mods, ops):
    table = int(ops[4], 0)
    a, b, c = (value(x, "b32") for x in ops[1:4])
    terms = [
        f"({'' if i & 4 else '~'}({a})&{'' if i & 2 else '~'}({b})&{'' if i & 1 else '~'}({c}))"
        for i in range(8)
        if table >> i & 1
    ]
    return assign(ops[0], "b32", "|".join(terms) or "0")


def rounding_mode(mods):
    return next((x for x in mods if x in ROUND_BITS), None)


def float_arithmetic(name, mods, ops):
    t = mods[-1]
    args = [value(x, t, mods) for x in ops[1:]]
    mode = rounding_mode(mods)
    f = "f" if t == "f32" else ""
    if name in ("min", "max"):
        text = f"f{name}{f}({args[0]},{args[1]})"
        return assign(ops[0], t, f"((isnan({args[0]})||isnan({args[1]}))?NAN:{text})" if "NaN" in mods else text, mods)
    template = {
        "add": "%s+%s", "sub": "%s-%s", "mul": "%s*%s", "div": "%s/%s", "fma": f"fma{f}(%s,%s,%s)", "mad": f"fma{f}(%s,%s,%s)",
        "rcp": f"1.0{f}/%s", "sqrt": f"sqrt{f}(%s)", "rsqrt": f"1.0{f}/sqrt{f}(%s)", "abs": f"fabs{f}(%s)", "neg": "-%s",
        "ex2": f"exp2{f}(%s)", "lg2": f"log2{f}(%s)", "sin": "sinf(%s)", "cos": "cosf(%s)", "tanh": "tanhf(%s)",
    }[name]  # fmt: skip
    if (
        name == "rcp" and "ftz" in mods and t == "f64"
    ):  # the coarse start of a division: the low half of the bits is zero
        return f"{c_name(ops[0])}=UD(1.0/{args[0]})&0xffffffff00000000ull;"
    if mode:
        text = in_mode(mode, [t] * len(args), args, t, template % tuple(f"{n}_" for n in "xyz"[: len(args)]))
    else:
        text = f"({C_TYPES[t]})({template % tuple(args)})"
    return assign(ops[0], t, saturate(text) if "sat" in mods else text, mods)


def copysign(name, mods, ops):
    t = mods[-1]
    return assign(ops[0], t, f"copysign{'f' if t == 'f32' else ''}({value(ops[2], t)},{value(ops[1], t)})")


def test_float(name, mods, ops):
    text = {
        "infinite": "isinf(%s)!=0", "finite": "isfinite(%s)!=0", "notanumber": "isnan(%s)!=0", "number": "!isnan(%s)",
        "normal": "isnormal(%s)", "subnormal": "fpclassify(%s)==FP_SUBNORMAL",
    }[mods[0]]  # fmt: skip
    return f"{c_name(ops[0])}={text % value(ops[1], mods[-1])};"


def add_integers(name, mods, ops):
    t = mods[-1]
    u = f"u{t[1:]}"
    return assign(ops[0], t, f"({C_TYPES[u]})({value(ops[1], u)}{'+' if name == 'add' else '-'}{value(ops[2], u)})")


def multiply_integers(name, mods, ops):
    t = mods[-1]
    width = int(t[1:])
    signed, unsigned = {16: ("int32_t", "uint32_t"), 32: ("int64_t", "uint64_t"), 64: ("s128", "u128")}[width]
    wide = signed if t[0] == "s" else unsigned
    u = f"u{width}"
    product = f"(({wide}){value(ops[1], t)}*({wide}){value(ops[2], t)})"
    if "wide" in mods:
        if name == "mad":
            product = f"({wide})(({unsigned}){product}+({unsigned}){bits(ops[3])})"
        return assign(ops[0], f"{t[0]}{2 * width}", product)
    text = f"({product}>>{width})" if "hi" in mods else f"(({C_TYPES[u]}){product})"
    if name == "mad":
        text = f"(({C_TYPES[u]}){text}+({C_TYPES[u]}){value(ops[3], u)})"
    return assign(ops[0], t, text)


def with_carry(name, mods, ops):
    """add, sub, mad that read (addc, subc, madc) or write (.cc) the carry; a - b is a + ~b + 1: no carry means a borrow."""
    t = mods[-1]
    width = int(t[1:])
    u = f"u{width}"
    carry = "cc_" if name.endswith("c") else "0"
    if name.startswith("mad"):
        wide = {32: ("int64_t", "uint64_t"), 64: ("s128", "u128")}[width][t[0] != "s"]
        product = f"(({wide}){value(ops[1], t)}*({wide}){value(ops[2], t)})"
        first = f"(u128)({C_TYPES[u]})({product}>>{width if 'hi' in mods else 0})"
        text = f"{first}+{value(ops[3], u)}+{carry}"
    elif name.startswith("add"):
        text = f"(u128){value(ops[1], u)}+{value(ops[2], u)}+{carry}"
    else:
        text = f"(u128){value(ops[1], u)}+({C_TYPES[u]})~{value(ops[2], u)}+{'cc_' if name == 'subc' else '1'}"
    flag = f"cc_=(s_>>{width})&1;" if "cc" in mods else ""
    return "{u128 s_=%s; %s=(%s)s_;%s}" % (text, c_name(ops[0]), C_TYPES[u], flag)


def divide_integers(name, mods, ops):
    t = mods[-1]
    text = f"b_==0?({C_TYPES[t]})-1:{value(ops[1], t)}{'/' if name == 'div' else '%'}({C_TYPES[t]})b_"
    return "{%s b_=%s; %s}" % (C_TYPES[t], value(ops[2], t), assign(ops[0], t, text))


def integer(name, mods, ops):
    """abs, neg, min, max, sad, popc, clz, brev, bfind, shl, shr"""
    t = mods[-1]
    width = int(t[1:])
    a = value(ops[1], t)
    if name == "abs":
        return assign(ops[0], t, f"({a}<0?-{a}:{a})")
    if name == "neg":
        return assign(ops[0], t, f"-{a}")
    if name in ("min", "max"):
        b = value(ops[2], t)
        return assign(ops[0], t, f"({a}{'<' if name == 'min' else '>'}{b}?{a}:{b})")
    if name == "sad":
        b, u = value(ops[2], t), C_TYPES[f"u{width}"]
        return assign(ops[0], t, f"({u}){value(ops[3], t)}+({a}>{b}?({u}){a}-({u}){b}:({u}){b}-({u}){a})")
    if name == "popc":
        return f"{c_name(ops[0])}=__builtin_popcountll({a});"
    if name == "clz":
        counter = "__builtin_clz" if width == 32 else "__builtin_clzll"
        return "{%s v_=%s;%s=v_?%s(v_):%d;}" % (C_TYPES[t], a, c_name(ops[0]), counter, width)
    if name == "brev":
        loop = f"for(int i=0;i<{width};i++)r_|=((v_>>i)&1u)<<({width - 1}-i);"
        return "{%s v_=%s,r_=0;%s%s=r_;}" % (C_TYPES[t], a, loop, c_name(ops[0]))
    if name == "bfind":  # the highest bit that differs from the sign
        magnitude = f"(uint64_t)({C_TYPES['u' + t[1:]]})({a}<0?~{a}:{a})" if t[0] == "s" else f"(uint64_t){a}"
        place = f"{width - 1}-p_" if "shiftamt" in mods else "p_"
        return "{uint64_t v_=%s; int p_=63-__builtin_clzll(v_|1); %s=v_?%s:0xffffffffu;}" % (
            magnitude,
            c_name(ops[0]),
            place,
        )
    shift = bits(ops[2])
    u = value(ops[1], f"u{width}")
    if name == "shl":
        text = f"s_>={width}?0:{u}<<s_"
    else:
        text = f"{a}>>(s_>={width}?{width - 1}:s_)" if t[0] == "s" else f"s_>={width}?0:{u}>>s_"
    return "{uint32_t s_=%s; %s}" % (shift, assign(ops[0], t, text))


def funnel_shift(name, mods, ops):
    amount = "s_&31" if "wrap" in mods else "(s_>32?32:s_)"
    text = "(x_<<s_)>>32" if mods[0] == "l" else "x_>>s_"
    return "{uint64_t x_=((uint64_t)(uint32_t)(%s)<<32)|(uint32_t)(%s); uint32_t s_=%s; s_=%s; %s=(uint32_t)(%s);}" % (
        bits(ops[2]), bits(ops[1]), bits(ops[3]), amount, c_name(ops[0]), text)  # fmt: skip


def bit_field(name, mods, ops):
    t = mods[-1]
    width = int(t[1:])
    if name == "bfe":
        source = value(ops[1], t if t[0] == "s" else f"u{width}")
        u = value(ops[1], f"u{width}")
        inside = f"({C_TYPES[t]})(({C_TYPES[t]})({u}<<({width}-l_-p_))>>({width}-l_))"
        text = f"l_==0||p_>={width}?0:p_+l_>={width}?{source}>>p_:{inside}"
        return "{uint32_t p_=(%s)&255,l_=(%s)&255; %s}" % (bits(ops[2]), bits(ops[3]), assign(ops[0], t, text))
    text = assign(ops[0], t, f"({value(ops[2], t)}&~m_)|(((uint64_t){value(ops[1], t)}<<p_)&m_)")
    return "{uint32_t p_=%s,l_=%s; uint64_t m_=(l_>=%d?~0ull:((1ull<<l_)-1))<<p_; %s}" % (
        bits(ops[3]),
        bits(ops[4]),
        width,
        text,
    )


def permute(name, mods, ops):
    if len(mods) > 1:
        raise Unsupported("prmt." + ".".join(mods))
    return f"{c_name(ops[0])}=prmt({bits(ops[1])},{bits(ops[2])},{bits(ops[3])});"


def convert(name, mods, ops):
    to, source = mods[-2], mods[-1]
    x = value(ops[1], source, mods)
    to_integer = ROUND_TO_INTEGER.get(next((m for m in mods if m in ROUND_TO_INTEGER), None))
    mode = rounding_mode(mods)
    if source in FLOATS and to in FLOATS:
        f = "f" if source != "f64" else ""
        text = f"{to_integer}{f}({x})" if to_integer else f"({C_TYPES[to]}){x}"
        if mode:
            if "f16" in (to, source):
                raise Unsupported(f"cvt.{mode} of f16")
            text = in_mode(mode, [source], [x], to, f"({C_TYPES[to]})x_")
        return assign(ops[0], to, saturate(text) if "sat" in mods else text, mods)
    if source in FLOATS:  # to an integer: clipped, NaN to 0
        width = int(to[1:])
        low, high, least, most = "0", f"0x1p{width}", "0", f"UINT{width}_MAX"
        if to[0] == "s":
            low, high, least, most = f"-0x1p{width - 1}", f"0x1p{width - 1}", f"INT{width}_MIN", f"INT{width}_MAX"
        text = f"isnan(x_)?0:x_<=(double){low}?{least}:x_>=(double){high}?{most}:({C_TYPES[to]})x_"
        return "{double x_=%s((double)%s); %s}" % (to_integer, x, assign(ops[0], to, text))
    if to in FLOATS:
        text = in_mode(mode, [source], [x], to, f"({C_TYPES[to]})x_") if mode else f"({C_TYPES[to]}){x}"
        return assign(ops[0], to, text, mods)
    if "sat" in mods:
        raise Unsupported("cvt.sat of integers")
    return assign(ops[0], to, f"({C_TYPES[to]}){x}")


def call(name, mods, ops):
    found = re.match(r"^(?:\((.*?)\)\s*,\s*)?([\w$]+)\s*(?:,\s*\((.*?)\))?$", ", ".join(ops), flags=re.S)
    if not found:
        raise Unsupported("call through a pointer")
    result, callee, arguments = found.groups()
    if callee == "__assertfail":
        return 'fault(me,710,"an assertion of the kernel failed");'
    if callee not in module.functions:
        raise Unsupported("call of " + callee)
    places = ",".join("(void*)" + c_name(x.strip()) for x in (arguments or "").split(",") if x.strip()) or "0"
    target = "(void*)" + c_name(result.strip()) if result else "0"
    return "{void*A_[]={%s};fn_%s(me,A_,%s);}" % (places, c_name(callee), target)


def branch_by_table(name, mods, ops):
    cases = "".join(f"case {i}: goto {c_name(x)};" for i, x in enumerate(function.tables[ops[1]]))
    return "switch((uint32_t)(%s)){%s}" % (bits(ops[0]), cases)


def warp_reduce(name, mods, ops):  # redux.sync
    module.synchronizes = True
    t = mods[-1]
    step = {"add": "r_+v_", "and": "r_&v_", "or": "r_|v_", "xor": "r_^v_", "min": "v_<r_?v_:r_", "max": "v_>r_?v_:r_"}[
        mods[1]
    ]
    return (
        "{uint32_t M=(%s)&all_lanes(me->lin/32); uint64_t*w=meet(me,%s,M); int first_=1; %s r_=0; "
        "for(int i=0;i<32;i++) if(M>>i&1){%s v_=w[i]; r_=first_?v_:%s; first_=0;} %s=r_;}"
        % (bits(ops[2]), bits(ops[1]), C_TYPES[t], C_TYPES[t], step, c_name(ops[0]))
    )


def active_lanes(name, mods, ops):
    return f"{c_name(ops[0])}=all_lanes(me->lin/32);"


INSTRUCTIONS = {
    "bra": lambda name, mods, ops: f"goto {c_name(ops[0])};",
    "brx": branch_by_table, "ret": lambda *_: "return;", "trap": lambda *_: 'fault(me,719,"trap");', "call": call,
    "bar": barrier, "barrier": barrier, "shfl": shuffle, "vote": vote, "redux": warp_reduce, "activemask": active_lanes,
    "cvta": cvta, "mov": mov, "ld": memory, "ldu": memory, "st": memory, "atom": atomic, "red": atomic,
    "setp": set_predicate, "set": set_value, "selp": select, "and": logic, "or": logic, "xor": logic, "not": logic, "lop3": lop3,
    "copysign": copysign, "testp": test_float, "shf": funnel_shift, "bfe": bit_field, "bfi": bit_field, "prmt": permute,
    "cvt": convert, "popc": integer, "clz": integer, "bfind": integer, "sad": integer, "brev": integer, "shl": integer, "shr": integer,
}  # fmt: skip
FLOAT_ARITHMETIC = [
    "add",
    "sub",
    "mul",
    "div",
    "fma",
    "mad",
    "rcp",
    "sqrt",
    "rsqrt",
    "abs",
    "neg",
    "ex2",
    "lg2",
    "sin",
    "cos",
    "tanh",
    "min",
    "max",
]
INTEGER_ARITHMETIC = {
    "add": add_integers, "sub": add_integers, "mul": multiply_integers, "mad": multiply_integers, "div": divide_integers,
    "rem": divide_integers, "abs": integer, "neg": integer, "min": integer, "max": integer,
}  # fmt: skip


def translate(name, mods, ops):
    if name == "exit":
        if function.entry:
            return "return;"
        raise Unsupported("exit in a function")
    if name in NO_EFFECT:
        return ";"
    if name in INSTRUCTIONS:
        return INSTRUCTIONS[name](name, mods, ops)
    t = mods[-1] if mods else ""
    if name in ("addc", "subc", "madc") or ("cc" in mods and name in ("add", "sub", "mad")):
        return with_carry(name, mods, ops)
    if t in FLOATS and name in FLOAT_ARITHMETIC:
        return float_arithmetic(name, mods, ops)
    if re.fullmatch(r"[sub]\d+", t) and name in INTEGER_ARITHMETIC and "sat" not in mods:
        return INTEGER_ARITHMETIC[name](name, mods, ops)
    raise Unsupported(name)


def statement(line):
    guarded = re.match(r"^@(!?)(%\w+)\s+(.*)$", line, flags=re.S)
    if guarded:
        return "if(%s%s){%s}" % (guarded.group(1), c_name(guarded.group(2)), statement(guarded.group(3)))
    opcode, rest = re.match(r"^([\w.:]+)\s*(.*)$", line, flags=re.S).groups()
    name, *mods = opcode.split(".")
    try:
        return translate(name, mods, split(rest))
    except (Unsupported, KeyError, IndexError, StopIteration, ValueError, TypeError) as error:
        what = opcode + (f" ({error})" if isinstance(error, Unsupported) and str(error) != name else "")
        module.unsupported.add(what)
        return 'fault(me,999,"the PTX instruction %s is not written in the CPU stand-in");' % re.sub(
            r'["\\%]', "", what
        )


# ---- declarations, functions, the module -----------------------------------------------------------------------------------------


def place_shared(name, t, count):
    module.shared_bytes = -(-module.shared_bytes // 16) * 16
    module.shared[name] = str(module.shared_bytes)
    module.shared_bytes += count * BYTES[t[1:]]


def variable(text, space, external):
    """A variable of the module: C text. The dynamic shared array starts after all static ones."""
    text = re.sub(r"\.align\s+\d+", "", text)
    kind = r"\.?(b8|b16|b32|b64|u8|u16|u32|u64|f32|f64|s8|s16|s32|s64)"
    t, name, count, start = re.search(kind + r"\s+([\w$]+)\s*(?:\[(\d*)\])?\s*(?:=\s*(.*?))?;", text, re.S).groups()
    n = int(count) if count else 1
    if space == "shared":
        if external or count == "":
            module.shared[name] = "DYNAMIC_SHARED"
        else:
            place_shared(name, t, n)
        return ""
    module.globals_.add(name)
    values = [x.strip() for x in start.strip().strip("{}").split(",")] if start else ["0"]
    values = [f"0x{x[2:]}{'ull' if t == 'f64' else ''}" if t[0] == "f" and start else x for x in values]
    name = c_name(name)
    return (
        f"{bits_type(t)} global_{name}[{max(1, n)}] __attribute__((aligned(16)))={{{','.join(values)}}};\n"
        f"const unsigned long bytes_{name}={n * BYTES[t[1:]]};"
    )


def last_name(text):
    return re.search(r"([\w$]+)\s*(?:\[\d*\])?\s*$", text).group(1)


def translate_function(kind, head, body):
    """Its name and C text."""
    global function
    head, result = head.strip(), ""
    if kind == "func" and head.startswith("("):
        result, head = head[1:].split(")", 1)
    name = re.match(r"\s*([\w$]+)", head).group(1)
    parameters = re.search(r"\((.*?)\)", head, re.S)
    function = Function([last_name(p) for p in split(parameters.group(1))] if parameters else [])
    function.entry = kind == "entry"
    arrays, registers = [], []

    def array(found):
        space, t, array_name, count = found.groups()
        if space == "shared":
            place_shared(array_name, t, int(count or 1))
        else:
            function.local.add(array_name)
            arrays.append(f"{bits_type(t)} {c_name(array_name)}[{count or 1}] __attribute__((aligned(16)));")
        return ""

    def register(found):
        t, names = found.groups()
        first = len(registers)
        c_type = "uint8_t" if t == "pred" else bits_type(t)
        for register_name in names.split(","):
            many = re.match(r"^(%\w+)<(\d+)>$", register_name.strip())
            each = [f"{many.group(1)}{i}" for i in range(int(many.group(2)))] if many else [register_name.strip()]
            registers.append(f"{c_type} {','.join(c_name(x) + '=0' for x in each)};")
        return "".join(f"REGISTER {i};" for i in range(first, len(registers)))

    def parameter(found):
        return f"PARAMETER {found.group(2)} {max(8, int(found.group(3) or 1) * BYTES[found.group(1)[1:]])};"

    def table(found):
        function.tables[found.group(1)] = [x.strip() for x in found.group(2).split(",")]
        return ""

    body = re.sub(r"([\w$]+)\s*:\s*\.branchtargets\s+([^;]+);", table, body)
    body = re.sub(r"\.(shared|local)\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+([\w$]+)\s*(?:\[(\d+)\])?\s*;", array, body)
    body = re.sub(r"\.reg\s+\.(\w+)\s+([^;]+);", register, body)
    body = re.sub(r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+([\w$]+)\s*(?:\[(\d+)\])?\s*;", parameter, body)
    # braces of operands are hidden while the text is cut into statements at ; and labels and braces of blocks
    body = re.sub(
        r"\{([^{};]*)\}(?=\s*[,;])|(?<=[\s,(])\{([^{};]*)\}",
        lambda q: f"\x01{q.group(1) or q.group(2) or ''}\x02",
        body,
    )
    code = []
    for text in re.split(r";|(?<=:)\s|(?<=[{}])|(?=[{}])", body):
        text = text.strip().replace("\x01", "{").replace("\x02", "}")
        if not text:
            continue
        label = re.match(r"^([\w$]+):$", text)
        if text in "{}":
            code.append(text)
        elif label:
            code.append(c_name(label.group(1)) + ":;")
        elif text.startswith("REGISTER"):
            code.append(registers[int(text.split()[1])])
        elif text.startswith("PARAMETER"):
            _, parameter_name, size = text.split()
            code.append(f"char {c_name(parameter_name)}[{size}] __attribute__((aligned(16)));")
        elif not text.startswith("."):
            code.append(statement(text))
    result_name = f"char*{c_name(last_name(result))}=(char*)R;" if result.strip() else ""
    lines = "\n".join(code)
    return name, "static void fn_%s(Th*me,void**P,void*R){unsigned cc_=0;%s%s\n%s\n}" % (
        c_name(name),
        result_name,
        " ".join(arrays),
        lines,
    )


def closing(text, start):
    depth = 0
    for i in range(start, len(text)):
        depth += (text[i] == "{") - (text[i] == "}")
        if depth == 0:
            return i
    raise ValueError("unbalanced braces")


def translate_module(ptx):
    ptx = re.sub(r"//[^\n]*", "", ptx)
    ptx = re.sub(r"/\*.*?\*/", "", ptx, flags=re.S)
    linkage = r"(?:\.(?:visible|weak|extern|common)\s+)?"
    token = re.compile(
        linkage + r"\.(entry|func)\b|" + linkage + r"\.(global|const|shared)\b[^;{]*(?:\{[^}]*\}\s*)?;", re.S
    )
    variables, bodies, position = [], [], 0
    while found := token.search(ptx, position):
        position = found.end()
        if found.group(2):
            variables.append(variable(found.group(0), found.group(2), found.group(0).startswith(".extern")))
            continue
        start, semicolon = ptx.find("{", position), ptx.find(";", position)
        if semicolon != -1 and (semicolon < start or start == -1):  # a declaration
            position = semicolon + 1
            continue
        end = closing(ptx, start)
        head = ptx[position:start]
        bodies.append((found.group(1), head, ptx[start + 1 : end]))
        module.functions.add(re.match(r"\s*(?:\([^)]*\))?\s*([\w$]+)", head).group(1))
        position = end + 1
    names, texts, kernels = [], [], []
    for kind, head, body in bodies:
        name, text = translate_function(kind, head, body)
        names.append(name)
        texts.append(text)
        if kind == "entry":
            kernels.append(name)
    lines = ['#include "kernel.h"', f"#define DYNAMIC_SHARED {-(-module.shared_bytes // 16) * 16}"]
    lines += [v for v in variables if v]
    lines += [f"static void fn_{c_name(n)}(Th*me,void**P,void*R);" for n in names] + texts
    for name in map(c_name, kernels):
        lines.append(f"void launch_{name}(Launch*l){{run(fn_{name},l,{int(module.synchronizes)},DYNAMIC_SHARED);}}")
    return "\n".join(lines)


def main():
    source, target = sys.argv[1:3]
    with open(source) as file:
        text = translate_module(file.read())
    if os.environ.get("CUPY_ON_CPU_KEEP_C"):
        with open(target[:-3] + ".c", "w") as file:
            file.write(text)
    temporary = source + ".tmp"
    command = ["gcc", "-O1", "-w", "-shared", "-fPIC", "-ffp-contract=off", "-fno-strict-aliasing"]
    command += ["-I", os.path.dirname(os.path.abspath(__file__)), "-x", "c", "-", "-o", temporary, "-lm"]
    done = subprocess.run(command, input=text, text=True, capture_output=True)
    if done.returncode:
        sys.exit(f"[cupy_on_cpu] gcc refused the translation of {source}:\n{done.stderr[:3000]}")
    os.replace(temporary, target)


main()
