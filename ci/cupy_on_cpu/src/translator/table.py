"""Which function translates which instruction.

A key is a mnemonic with modifiers that must be there: the entry with the most of them is the one that translates.
"""

from collections.abc import Callable, Iterable

from translator import control, conversions, floats, integers, memory, predicates, warps
from translator.instruction import Instruction
from translator.scope import Scope, Unsupported

Handler = Callable[[Scope, Instruction], str]

FLOATS = ("f16", "f32", "f64")
INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")
SIGNED = ("s16", "s32", "s64")
NO_EFFECT = (
    "membar", "fence", "prefetch", "prefetchu", "discard", "nosleep", "nanosleep", "griddepcontrol", "pragma",
    "applypriority",
)  # fmt: skip


def _each(names: str, types: Iterable[str], handler: Handler) -> dict[str, Handler]:
    """Return an entry for each mnemonic and type."""
    return {f"{name}.{t}": handler for name in names.split() for t in types}


TABLE: dict[str, Handler] = {
    "bra": control.branch, "brx": control.branch_by_table, "ret": control.leave, "exit": control.leave_kernel,
    "trap": control.trap, "call": control.call, "bar": control.barrier, "barrier": control.barrier,
    **dict.fromkeys(NO_EFFECT, control.no_effect),
    "shfl": warps.shuffle, "vote": warps.vote, "redux": warps.reduce, "activemask": warps.active_lanes,
    "cvta": memory.convert_address, "mov": memory.move, "ld": memory.load_or_store, "ldu": memory.load_or_store,
    "st": memory.load_or_store, "atom": memory.atomic, "red": memory.atomic,
    "setp": predicates.set_predicate, "set": predicates.set_value, "selp": predicates.select, "and": predicates.logic,
    "or": predicates.logic, "xor": predicates.logic, "not": predicates.logic, "lop3": predicates.any_logic,
    "testp": predicates.test_class,
    "addc": integers.with_carry, "subc": integers.with_carry, "madc": integers.with_carry,
    **{f"{name}.cc.{t}": integers.with_carry for name in ("add", "sub", "mad") for t in INTEGERS},
    **_each("add sub", INTEGERS, integers.add), **_each("mul mad", INTEGERS, integers.multiply),
    **_each("div rem", INTEGERS, integers.divide), **_each("min max", INTEGERS, integers.extreme),
    **_each("abs", SIGNED, integers.absolute), **_each("neg", SIGNED, integers.negate),
    "sad": integers.sum_of_difference, "popc": integers.count_ones, "clz": integers.count_leading_zeros,
    "brev": integers.reverse_bits, "bfind": integers.find_highest, "shl": integers.shift, "shr": integers.shift,
    "shf": integers.funnel_shift, "bfe": integers.extract_field, "bfi": integers.insert_field,
    "prmt": integers.permute_bytes,
    **_each("add sub mul div fma mad rcp sqrt rsqrt abs neg ex2 lg2 sin cos tanh", FLOATS, floats.arithmetic),
    **_each("min max", FLOATS, floats.extreme), "copysign": floats.copy_sign,
    "cvt": conversions.convert,
}  # fmt: skip


def find(op: Instruction) -> str:
    """Return the key of the entry that translates the instruction."""
    parts = {op.name, *op.modifiers}
    keys = [key for key in TABLE if key.split(".")[0] == op.name and parts.issuperset(key.split("."))]
    if not keys or (op.has("sat") and keys[0].endswith(INTEGERS)):
        raise Unsupported(op.opcode)
    return max(keys, key=lambda key: key.count("."))


def translate(scope: Scope, op: Instruction) -> str:
    """Return the C statement of the instruction."""
    return TABLE[find(op)](scope, op)
