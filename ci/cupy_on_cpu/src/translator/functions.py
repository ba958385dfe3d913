"""A function of a module: its declarations and its statements."""

import re

from translator.instruction import Instruction
from translator.scope import BYTES, Module, Scope, Unsupported, bits_type, c_name, search, split_operands
from translator.table import translate


def statement(scope: Scope, line: str) -> str:
    """Translate one instruction with its guard. What is not written becomes an error at the time that it is reached."""
    guarded = re.match(r"^@(!?)([%\w$]+)\s+(.*)$", line, flags=re.S)
    if guarded:
        negation, predicate, rest = guarded.groups()
        return f"if({negation}{c_name(predicate)}){{{statement(scope, rest)}}}"
    op = Instruction.parse(line)
    try:
        return translate(scope, op)
    except (Unsupported, KeyError, IndexError, ValueError) as error:
        reason = str(error) if isinstance(error, Unsupported) else ""
        what = op.opcode + (f" ({reason})" if reason and reason != op.opcode else "")
        what = re.sub(r'["\\%]', "", what)
        return f'fault(me,999,"the PTX instruction {what} is not written in the CPU stand-in");'


def last_name(text: str) -> str:
    """Return the name that a declaration ends with."""
    return search(r"([\w$]+)\s*(?:\[\d*\])?\s*$", text).group(1)


class Declarations:
    """The variables that a body declares, taken out of its text; markers stay where a block may shadow a name."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.arrays: list[str] = []
        self.registers: list[str] = []

    def take(self, body: str) -> str:
        """Return the body without declarations of arrays, with a marker for each one of registers and parameters."""
        place = r"\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+([\w$]+)\s*(?:\[(\d+)\])?\s*;"
        body = re.sub(r"([\w$]+)\s*:\s*\.branchtargets\s+([^;]+);", self._table, body)
        body = re.sub(r"\.(shared|local)" + place, self._array, body)
        body = re.sub(r"\.reg\s*\.(\w+)\s+([^;]+);", self._registers, body)
        return re.sub(r"\.param" + place, self._parameter, body)

    def _table(self, found: re.Match[str]) -> str:
        self.scope.tables[found.group(1)] = [x.strip() for x in found.group(2).split(",")]
        return ""

    def _array(self, found: re.Match[str]) -> str:
        space, t, name, count = found.groups()
        if space == "shared":
            self.scope.module.place_shared(name, t, int(count or 1))
        else:
            self.scope.local.add(name)
            self.arrays.append(f"{bits_type(t)} {c_name(name)}[{count or 1}] __attribute__((aligned(16)));")
        return ""

    def _registers(self, found: re.Match[str]) -> str:
        t, names = found.groups()
        first = len(self.registers)
        c_type = "uint8_t" if t == "pred" else bits_type(t)
        for name in names.split(","):
            if t == "pred":
                self.scope.predicates.add(name.strip())
            many = re.match(r"^(%\w+)<(\d+)>$", name.strip())
            each = [f"{many.group(1)}{i}" for i in range(int(many.group(2)))] if many else [name.strip()]
            self.registers.append(f"{c_type} {','.join(c_name(x) + '=0' for x in each)};")
        return "".join(f"REGISTER {i};" for i in range(first, len(self.registers)))

    def _parameter(self, found: re.Match[str]) -> str:
        t, name, count = found.groups()
        return f"PARAMETER {name} {max(8, int(count or 1) * BYTES[t[1:]])};"


def split_statements(body: str) -> list[str]:
    """Cut at semicolons, labels and the braces of blocks. Braces of operands are hidden meanwhile."""
    operands = r"\{([^{};]*)\}(?=\s*[,;])|(?<=[\s,(])\{([^{};]*)\}"
    body = re.sub(operands, lambda found: f"\x01{found.group(1) or found.group(2) or ''}\x02", body)
    pieces = (x.strip() for x in re.split(r";|(?<=:)\s|(?<=[{}])|(?=[{}])", body))
    return [x.replace("\x01", "{").replace("\x02", "}") for x in pieces if x]


def line_of(scope: Scope, declarations: Declarations, text: str) -> str:
    """Return the C text of a label, a brace, a declaration or an instruction; empty for a directive."""
    label = re.match(r"^([\w$]+):$", text)
    if text in "{}":
        return text
    if label:
        return c_name(label.group(1)) + ":;"
    if text.startswith("REGISTER"):
        return declarations.registers[int(text.split()[1])]
    if text.startswith("PARAMETER"):
        _, name, size = text.split()
        return f"char {c_name(name)}[{size}] __attribute__((aligned(16)));"
    return "" if text.startswith(".") else statement(scope, text)


def translate_function(module: Module, kind: str, head: str, body: str) -> tuple[str, str]:
    """Return the name and the C text of a function; `kind` is entry or func."""
    head, result = head.strip(), ""
    if kind == "func" and head.startswith("("):
        result, head = head[1:].split(")", 1)
    name = search(r"^\s*([\w$]+)", head).group(1)
    parameters = re.search(r"\((.*?)\)", head, re.S)
    names = [last_name(p) for p in split_operands(parameters.group(1))] if parameters else []
    scope = Scope(module, kind == "entry", names)
    declarations = Declarations(scope)
    body = declarations.take(body)
    lines = [line_of(scope, declarations, text) for text in split_statements(body)]
    code = "\n".join(line for line in lines if line)
    result_name = f"char*{c_name(last_name(result))}=(char*)R;" if result.strip() else ""
    start = f"unsigned cc_=0;{result_name}{' '.join(declarations.arrays)}"
    return name, f"static void fn_{c_name(name)}(Th*me,void**P,void*R){{{start}\n{code}\n}}"
