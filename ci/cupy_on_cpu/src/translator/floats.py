"""Arithmetic of floating-point numbers and rounding modes."""

from collections.abc import Sequence

from translator.instruction import Instruction
from translator.scope import C_TYPES, Scope, assign, c_name

ROUNDING_BITS = {"rm": "0x2000u", "rp": "0x4000u", "rz": "0x6000u"}  # in SSE's control register; rn is its normal state


def in_mode(mode: str, types: Sequence[str], operands: Sequence[str], result_type: str, text: str) -> str:
    """Return C text that is evaluated in another rounding mode, with the operands named x_, y_, z_.

    `volatile` keeps the arithmetic between the two switches.
    """
    named = zip("xyz", types, operands, strict=False)
    inputs = " ".join(f"volatile {C_TYPES[t]} {name}_={x};" for name, t, x in named)
    switch = f"__builtin_ia32_ldmxcsr((csr_&~0x6000u)|{ROUNDING_BITS[mode]});"
    result = f"volatile {C_TYPES[result_type]} r_={text};"
    return f"({{unsigned csr_=__builtin_ia32_stmxcsr(); {switch} {inputs} {result} __builtin_ia32_ldmxcsr(csr_); r_;}})"


def saturate(text: str) -> str:
    """Return C text of a float between 0 and 1; NaN becomes 0."""
    return f"fminf(1.f,fmaxf(0.f,{text}))"


def arithmetic(scope: Scope, op: Instruction) -> str:
    """Translate add, sub, mul, div, fma and functions of one number."""
    name, t, target = op.name, op.type, op.operands[0]
    args = [scope.value(x, t, op.modifiers) for x in op.operands[1:]]
    f = "f" if t == "f32" else ""
    template = {
        "add": "%s+%s", "sub": "%s-%s", "mul": "%s*%s", "div": "%s/%s", "fma": f"fma{f}(%s,%s,%s)",
        "mad": f"fma{f}(%s,%s,%s)", "rcp": f"1.0{f}/%s", "sqrt": f"sqrt{f}(%s)", "rsqrt": f"1.0{f}/sqrt{f}(%s)",
        "abs": f"fabs{f}(%s)", "neg": "-%s", "ex2": f"exp2{f}(%s)", "lg2": f"log2{f}(%s)", "sin": "sinf(%s)",
        "cos": "cosf(%s)", "tanh": "tanhf(%s)",
    }[name]  # fmt: skip
    if (
        name == "rcp" and op.has("ftz") and t == "f64"
    ):  # the coarse start of a division: the low half of the bits is zero
        return f"{c_name(target)}=UD(1.0/{args[0]})&0xffffffff00000000ull;"
    mode = op.find(ROUNDING_BITS)
    if mode:
        text = in_mode(mode, [t] * len(args), args, t, template % tuple(f"{n}_" for n in "xyz"[: len(args)]))
    else:
        text = f"({C_TYPES[t]})({template % tuple(args)})"
    return assign(target, t, saturate(text) if op.has("sat") else text, op.modifiers)


def extreme(scope: Scope, op: Instruction) -> str:
    """Translate min, max: of a number and NaN the number, with .NaN NaN."""
    target, *operands = op.operands
    a, b = (scope.value(x, op.type, op.modifiers) for x in operands)
    text = f"{'smaller' if op.name == 'min' else 'larger'}({a},{b})"
    if op.has("NaN"):
        text = f"((isnan({a})||isnan({b}))?NAN:{text})"
    return assign(target, op.type, text, op.modifiers)


def copy_sign(scope: Scope, op: Instruction) -> str:
    """Translate copysign: the sign is that of the first source."""
    t = op.type
    target, sign, magnitude = op.operands
    text = f"copysign{'f' if t == 'f32' else ''}({scope.value(magnitude, t)},{scope.value(sign, t)})"
    return assign(target, t, text)
