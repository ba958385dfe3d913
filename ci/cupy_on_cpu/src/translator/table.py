"""Which function translates which instruction.

A key is a mnemonic with modifiers that must be there: the entry with the most of them is the one that translates. A
modifier that an entry does not list is not written: it raises an error instead of being passed over.
"""

from collections.abc import Callable
from dataclasses import dataclass

from translator import control, conversions, copies, floats, halves, integers, memory, predicates, tensor_cores, warps
from translator.instruction import Instruction
from translator.scope import Scope, Unsupported

Handler = Callable[[Scope, Instruction], str]


@dataclass(frozen=True)
class Entry:
    """A function, and the modifiers that it knows beside those of its key."""

    translate: Handler
    modifiers: frozenset[str]


FLOATS = "f32 f64"
INTEGERS = "u16 s16 u32 s32 u64 s64"
WORDS = "u32 s32 u64 s64"
SIGNED = "s16 s32 s64"
BITS = "b8 b16 b32 b64"
TYPES = f"u8 s8 {BITS} {INTEGERS} {FLOATS}"
HALVES = "f16 bf16 f16x2 bf16x2"
RELATIONS = "eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan"
ROUNDING = "rn rz rm rp"
SPACES = "global shared shared::cta local param param::entry param::func const"
ORDERS = "weak relaxed acquire release acq_rel volatile cta gpu sys cluster"
CACHES = "ca cg cs lu cv wb wt nc"
WARP = "sync aligned"


def _rows(names: str, translate: Handler, known: str = "", types: str = "") -> dict[str, Entry]:
    """Return an entry for each mnemonic, and for each of its types where some are given."""
    keys = [f"{name}.{t}" for name in names.split() for t in types.split()] if types else names.split()
    return dict.fromkeys(keys, Entry(translate, frozenset(known.split())))


CONTROL = {
    **_rows("bra", control.branch, "uni"),
    **_rows("brx", control.branch_by_table, "idx"),
    **_rows("ret", control.leave, "uni"),
    **_rows("exit", control.leave_kernel),
    **_rows("trap", control.trap),
    **_rows("call", control.call, "uni"),
    **_rows("bar barrier", control.barrier, f"{WARP} cta warp arrive red popc and or pred u32"),
    **_rows("membar", control.no_effect, "cta gl sys"),
    **_rows("fence", control.no_effect, "sc acq_rel acquire release cta cluster gpu sys"),
    **_rows("prefetch prefetchu discard applypriority", control.no_effect, "global local L1 L2"),
    **_rows("griddepcontrol", control.no_effect, "wait launch_dependents"),
    **_rows("nanosleep", control.no_effect, "u32"),
}
WARPS = {
    **_rows("shfl", warps.shuffle, "sync up down bfly idx b32"),
    **_rows("vote", warps.vote, "sync ballot any all uni pred b32"),
    **_rows("redux", warps.reduce, "sync add and or xor min max", "u32 s32 b32"),
    **_rows("activemask", warps.active_lanes, "b32"),
}
MEMORY = {
    **_rows("cvta", memory.convert_address, f"to {SPACES} u64"),
    **_rows("mov", memory.move, f"pred {TYPES}"),
    **_rows("ld ldu st", memory.load_or_store, f"{SPACES} {ORDERS} {CACHES} v2 v4 v8 {TYPES}"),
    **_rows("atom red", memory.atomic, f"{' '.join(memory.ATOMIC_OPERATIONS)} {SPACES} {ORDERS} noftz f16 {TYPES}"),
    **_rows("cp.async.ca cp.async.cg", copies.start, "shared shared::cta global"),
    **_rows("cp.async.commit_group", copies.commit),
    **_rows("cp.async.wait_group", copies.wait),
    **_rows("cp.async.wait_all", copies.wait_for_all),
}
PREDICATES = {
    **_rows("setp", predicates.set_predicate, f"{RELATIONS} and or xor ftz {BITS} {INTEGERS} {FLOATS}"),
    **_rows("set", predicates.set_value, f"{RELATIONS} ftz {BITS} {INTEGERS} {FLOATS}"),
    **_rows("setp", halves.set_predicate, f"{RELATIONS} and or xor ftz", HALVES),
    **_rows("set", halves.set_value, f"{RELATIONS} ftz u16 s16 u32 s32 f32", HALVES),
    **_rows("selp", predicates.select, f"{BITS} {INTEGERS} {FLOATS}"),
    **_rows("and or xor not", predicates.logic, f"pred {BITS}"),
    **_rows("lop3", predicates.any_logic, "b32"),
    **_rows("testp", predicates.test_class, f"finite infinite number notanumber normal subnormal {FLOATS}"),
}
ARITHMETIC_OF_INTEGERS = {
    **_rows("add sub", integers.add, types=INTEGERS),
    **_rows("mul mad", integers.multiply, "lo hi wide", INTEGERS),
    **_rows("addc subc", integers.with_carry, "cc", WORDS),
    **_rows("add.cc sub.cc", integers.with_carry, types=WORDS),
    **_rows("madc mad.cc", integers.with_carry, "cc lo hi", WORDS),
    **_rows("div rem", integers.divide, types=INTEGERS),
    **_rows("min max", integers.extreme, types=INTEGERS),
    **_rows("abs", integers.absolute, types=SIGNED),
    **_rows("neg", integers.negate, types=SIGNED),
    **_rows("sad", integers.sum_of_difference, types=INTEGERS),
    **_rows("popc", integers.count_ones, types="b32 b64"),
    **_rows("clz", integers.count_leading_zeros, types="b32 b64"),
    **_rows("brev", integers.reverse_bits, types="b32 b64"),
    **_rows("bfind", integers.find_highest, "shiftamt", WORDS),
    **_rows("shl", integers.shift, types="b16 b32 b64"),
    **_rows("shr", integers.shift, types=f"b16 b32 b64 {INTEGERS}"),
    **_rows("shf", integers.funnel_shift, "l r wrap clamp b32"),
    **_rows("bfe", integers.extract_field, types=WORDS),
    **_rows("bfi", integers.insert_field, types="b32 b64"),
    **_rows("prmt", integers.permute_bytes, "b32"),
}
ARITHMETIC_OF_FLOATS = {
    **_rows("add sub mul", floats.arithmetic, f"{ROUNDING} ftz sat", FLOATS),
    **_rows("fma mad", floats.arithmetic, f"{ROUNDING} ftz sat", FLOATS),
    **_rows("div rcp sqrt", floats.arithmetic, f"{ROUNDING} approx full ftz", FLOATS),
    **_rows("rsqrt", floats.arithmetic, "approx ftz", FLOATS),
    **_rows("ex2 lg2 sin cos tanh", floats.arithmetic, "approx ftz", "f32"),
    **_rows("abs neg", floats.arithmetic, "ftz", FLOATS),
    **_rows("min max", floats.extreme, "ftz NaN", FLOATS),
    **_rows("copysign", floats.copy_sign, types=FLOATS),
}
ARITHMETIC_OF_HALVES = {
    **_rows("add sub mul", halves.arithmetic, "rn ftz sat", "f16 f16x2"),
    **_rows("add sub mul", halves.arithmetic, "rn", "bf16 bf16x2"),
    **_rows("fma", halves.arithmetic, "rn ftz sat relu", "f16 f16x2"),
    **_rows("fma", halves.arithmetic, "rn relu", "bf16 bf16x2"),
    **_rows("min max", halves.arithmetic, "ftz NaN", "f16 f16x2"),
    **_rows("min max", halves.arithmetic, "NaN", "bf16 bf16x2"),
    **_rows("neg abs", halves.sign, "ftz", "f16 f16x2"),
    **_rows("neg abs", halves.sign, "", "bf16 bf16x2"),
    **_rows("ex2", halves.arithmetic, "approx", "f16 f16x2"),
    **_rows("ex2", halves.arithmetic, "approx ftz", "bf16 bf16x2"),
    **_rows("tanh", halves.arithmetic, "approx", HALVES),
}
CONVERSIONS = {
    **_rows("cvt", conversions.convert, f"{ROUNDING} rni rzi rmi rpi ftz sat {TYPES}"),
    **_rows("cvt", conversions.convert, f"{ROUNDING} rni rzi rmi rpi relu ftz sat {TYPES} f16 bf16", "f16 bf16"),
    **_rows("cvt", conversions.to_pair, "rn rz relu f32", "f16x2 bf16x2"),
    **_rows("cvt", conversions.to_tf32, "rna rn rz relu f32", "tf32"),
}
TENSOR_CORES = {
    **_rows("mma.m16n8k8 mma.m16n8k16", tensor_cores.multiply, f"{WARP} row col", "f16 f16.f32 bf16.f32"),
    **_rows("mma.m16n8k4 mma.m16n8k8", tensor_cores.multiply, f"{WARP} row col", "tf32.f32"),
    **_rows(
        "ldmatrix", tensor_cores.load, f"{WARP} m8n8 shared shared::cta b16", "x1 x2 x4 x1.trans x2.trans x4.trans"
    ),
    **_rows("movmatrix", tensor_cores.transpose, f"{WARP} m8n8 trans b16"),
}
TABLE = {
    **CONTROL, **WARPS, **MEMORY, **PREDICATES, **ARITHMETIC_OF_INTEGERS, **ARITHMETIC_OF_FLOATS,
    **ARITHMETIC_OF_HALVES, **CONVERSIONS, **TENSOR_CORES,
}  # fmt: skip


def find(op: Instruction) -> str:
    """Return the key of the entry that translates the instruction."""
    parts = {op.name, *op.modifiers}
    keys = [key for key in TABLE if key.split(".")[0] == op.name and parts.issuperset(key.split("."))]
    if not keys:
        raise Unsupported(op.opcode)
    return max(keys, key=lambda key: key.count("."))


def translate(scope: Scope, op: Instruction) -> str:
    """Return the C statement of the instruction."""
    key = find(op)
    scope.module.used.add(key)
    hints = ("L1::", "L2::")  # where a cache keeps the line
    unknown = [x for x in op.modifiers if x not in {*key.split("."), *TABLE[key].modifiers} and not x.startswith(hints)]
    if unknown:
        raise Unsupported("." + ".".join(unknown))
    return TABLE[key].translate(scope, op)
