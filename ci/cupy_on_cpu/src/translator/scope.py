"""What a name means at one place of a module, and operands as C text."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

C_TYPES = {
    "u8": "uint8_t", "s8": "int8_t", "b8": "uint8_t", "u16": "uint16_t", "s16": "int16_t", "b16": "uint16_t",
    "u32": "uint32_t", "s32": "int32_t", "b32": "uint32_t", "u64": "uint64_t", "s64": "int64_t", "b64": "uint64_t",
    "f16": "_Float16", "bf16": "float", "f32": "float", "f64": "double", "pred": "uint8_t",
}  # fmt: skip
BYTES = {"8": 1, "16": 2, "32": 4, "64": 8}
FLOATS = ("f32", "f64", "f16", "bf16")
SPECIAL_REGISTERS = {
    **{f"%tid.{a}": f"me->t.{a}" for a in "xyz"}, **{f"%ctaid.{a}": f"me->c.{a}" for a in "xyz"},
    **{f"%ntid.{a}": f"nt.{a}" for a in "xyz"}, **{f"%nctaid.{a}": f"nc.{a}" for a in "xyz"},
    "%laneid": "(me->lin%32)", "%warpid": "(me->lin/32)", "WARP_SZ": "32", "%clock64": "0", "%clock": "0",
    "%envreg0": "0", "%lanemask_eq": "(1u<<(me->lin%32))", "%lanemask_lt": "((1u<<(me->lin%32))-1)",
    "%lanemask_le": "((2u<<(me->lin%32))-1)", "%lanemask_ge": "(~((1u<<(me->lin%32))-1))",
    "%lanemask_gt": "(~((2u<<(me->lin%32))-1))",
}  # fmt: skip


class Unsupported(Exception):
    """Something that the translator has not written; the text names it."""


def search(pattern: str, text: str) -> re.Match[str]:
    """Return the first match of a pattern, of which one must be there."""
    found = re.search(pattern, text, re.S)
    if not found:
        raise ValueError(f"the translator cannot read this text: {text.strip()[:200]}")
    return found


def c_name(name: str) -> str:
    """Return the C identifier of a PTX name."""
    return re.sub(r"[%$.]", "_", name)


def bits_type(t: str) -> str:
    """Return the unsigned C type of the width of the PTX type `t`."""
    return C_TYPES["b" + t[1:]]


def split_operands(text: str) -> list[str]:
    """Split at commas outside of brackets."""
    parts, depth, part = [], 0, ""
    for letter in text:
        depth += (letter in "{[(") - (letter in "}])")
        if letter == "," and depth == 0:
            parts.append(part.strip())
            part = ""
        else:
            part += letter
    return parts + [part.strip()] if part.strip() else parts


def vector(operand: str) -> list[str]:
    """Return the elements of an operand in braces."""
    return [element.strip() for element in operand.strip()[1:-1].split(",")]


def assign(target: str, t: str, text: str, modifiers: Collection[str] = ()) -> str:
    """Return a statement that stores a C value of type `t` as bits."""
    target = target.strip()
    if target == "_":
        return f"(void)({text});"
    if t == "f32":
        return f"{c_name(target)}=UF({f'ftz({text})' if 'ftz' in modifiers else text});"
    if t in ("f64", "f16"):
        return f"{c_name(target)}={'UD' if t == 'f64' else 'UH'}({text});"
    return f"{c_name(target)}=({C_TYPES[t]})({text});"


@dataclass
class Module:
    """The names of a module, and what its kernels need."""

    shared: dict[str, str] = field(default_factory=dict)  # array -> its offset, as C text
    shared_bytes: int = 0
    globals: set[str] = field(default_factory=set)
    functions: set[str] = field(default_factory=set)
    synchronizes: bool = False  # some thread may wait for another one: the threads need stacks
    used: set[str] = field(default_factory=set)  # entries of the table
    exchanges: int = 0  # matrix instructions so far

    def place_shared(self, name: str, t: str, count: int) -> None:
        """Give a static shared array its offset."""
        self.shared_bytes = -(-self.shared_bytes // 16) * 16
        self.shared[name] = str(self.shared_bytes)
        self.shared_bytes += count * BYTES[t[1:]]

    def number_exchange(self) -> int:
        """Return a number for a matrix instruction, by which lanes check that they are at the same one."""
        self.synchronizes = True
        self.exchanges += 1
        return self.exchanges


@dataclass
class Scope:
    """One function of a module: the names that its instructions may use."""

    module: Module
    is_kernel: bool
    parameters: Sequence[str]
    local: set[str] = field(default_factory=set)
    predicates: set[str] = field(default_factory=set)
    tables: dict[str, list[str]] = field(default_factory=dict)  # of brx.idx: label -> targets

    def bits(self, operand: str) -> str:
        """Return C text whose value is the bits of the operand."""
        operand = operand.strip()
        if operand in SPECIAL_REGISTERS:
            return SPECIAL_REGISTERS[operand]
        if operand.startswith("%"):
            if "." in operand:
                raise Unsupported("register " + operand)
            return c_name(operand)
        return _constant(operand) or self._name(operand)

    def _name(self, operand: str) -> str:
        if operand in self.module.shared:
            return self.module.shared[operand]
        if operand in self.local:
            return f"(uint64_t){c_name(operand)}"
        if operand in self.parameters:
            return f"(uint64_t)P[{self.parameters.index(operand)}]"
        if operand in self.module.globals:
            return f"(uint64_t)global_{c_name(operand)}"
        if operand in self.module.functions:
            raise Unsupported("address of a function")
        return c_name(operand)

    def value(self, operand: str, t: str, modifiers: Collection[str] = ()) -> str:
        """Return the operand as C text of type `t`."""
        text = self.bits(operand)
        if t == "f32":
            text = f"F((uint32_t)({text}))"
            return f"ftz({text})" if "ftz" in modifiers else text
        if t == "f64":
            return f"D((uint64_t)({text}))"
        if t == "f16":
            return f"H((uint16_t)({text}))"
        if t == "bf16":
            return f"F((uint32_t)({text})<<16)"
        if t == "pred":
            return f"(!{c_name(operand.strip()[1:])})" if operand.strip().startswith("!") else f"({text})"
        return f"({C_TYPES[t]})({text})"

    def address(self, operand: str, space: str) -> str:
        """Return the host address of an operand in brackets as C text."""
        inner = operand.strip()[1:-1].strip()
        found = re.match(r"^(.*?)\s*([+-])\s*(-?\w+)$", inner)
        base, offset = inner, "0"
        if found and not re.match(r"^[+-]?\d+$", inner):
            base, offset = found.group(1).strip(), ("-" if found.group(2) == "-" else "") + found.group(3)
        offset = offset.replace("--", "")
        if space == "param":
            if base in self.parameters:
                return f"((uint64_t)P[{self.parameters.index(base)}]+({offset}))"
            return f"((uint64_t){c_name(base)}+({offset}))"
        if space == "shared":
            return f"((uint64_t)SH+(uint32_t)({self.bits(base)})+({offset}))"
        return f"((uint64_t)({self.bits(base)})+(int64_t)({offset}))"


def _constant(operand: str) -> str:
    """Return the C text of a literal, empty for a name."""
    if re.fullmatch(r"0[fF][0-9a-fA-F]{8}", operand):
        return f"0x{operand[2:]}u"
    if re.fullmatch(r"0[dD][0-9a-fA-F]{16}", operand):
        return f"0x{operand[2:]}ull"
    if re.fullmatch(r"-?(0x[0-9a-fA-F]+|\d+)U?", operand):
        value = int(operand.rstrip("U"), 0)
        if value > 2**31 - 1:
            return f"{value}ull"
        return f"({value}ll)" if value > -(2**63) else "((-9223372036854775807ll)-1)"
    return "1" if operand in ("_true", "true") else ""
