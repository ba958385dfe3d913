"""A module: its variables, its functions, and the launchers of its kernels."""

import re
from collections.abc import Iterator

from translator.functions import translate_function
from translator.scope import BYTES, Module, bits_type, c_name, search

LINKAGE = r"(?:\.(?:visible|weak|extern|common)\s+)?"
TOKEN = re.compile(
    LINKAGE + r"\.(entry|func)\b|" + LINKAGE + r"\.(global|const|shared)\b[^;{]*(?:\{[^}]*\}\s*)?;", re.S
)
VARIABLE = r"\.?(b8|b16|b32|b64|u8|u16|u32|u64|f32|f64|s8|s16|s32|s64)\s+([\w$]+)\s*(?:\[(\d*)\])?\s*(?:=\s*(.*?))?;"


def variable(module: Module, text: str, space: str) -> str:
    """Return the C text of a variable of the module. The dynamic shared array starts after all static ones."""
    t, name, count, start = search(VARIABLE, re.sub(r"\.align\s+\d+", "", text)).groups()
    n = int(count) if count else 1
    if space == "shared":
        if text.startswith(".extern") or count == "":
            module.shared[name] = "DYNAMIC_SHARED"
        else:
            module.place_shared(name, t, n)
        return ""
    module.globals.add(name)
    values = [x.strip() for x in start.strip().strip("{}").split(",")] if start else ["0"]
    values = [f"0x{x[2:]}{'ull' if t == 'f64' else ''}" if t[0] == "f" and start else x for x in values]
    name = c_name(name)
    array = f"{bits_type(t)} global_{name}[{max(1, n)}] __attribute__((aligned(16)))={{{','.join(values)}}};"
    return f"{array}\nconst unsigned long bytes_{name}={n * BYTES[t[1:]]};"


def closing(text: str, start: int) -> int:
    """Return the place of the brace that closes the one at `start`."""
    depth = 0
    for i in range(start, len(text)):
        depth += (text[i] == "{") - (text[i] == "}")
        if depth == 0:
            return i
    raise ValueError("unbalanced braces")


def definitions(ptx: str) -> Iterator[tuple[str, str, str]]:
    """Give the kind, head and body of each variable (without a body) and function; declarations are passed over."""
    position = 0
    while found := TOKEN.search(ptx, position):
        position = found.end()
        if found.group(2):
            yield found.group(2), found.group(0), ""
            continue
        start, semicolon = ptx.find("{", position), ptx.find(";", position)
        if semicolon != -1 and (semicolon < start or start == -1):
            position = semicolon + 1
            continue
        end = closing(ptx, start)
        yield found.group(1), ptx[position:start], ptx[start + 1 : end]
        position = end + 1


def translate_module(ptx: str, module: Module | None = None) -> str:
    """Return the C text of a module. A caller that passes an empty `module` can look at it afterwards."""
    module = Module() if module is None else module
    ptx = re.sub(r"//[^\n]*", "", ptx)
    ptx = re.sub(r"/\*.*?\*/", "", ptx, flags=re.S)
    variables, bodies = [], []
    for kind, head, body in definitions(ptx):
        if kind in ("entry", "func"):
            bodies.append((kind, head, body))
            module.functions.add(search(r"^\s*(?:\([^)]*\))?\s*([\w$]+)", head).group(1))
        else:
            variables.append(variable(module, head, kind))
    functions = [(kind, *translate_function(module, kind, head, body)) for kind, head, body in bodies]
    lines = ['#include "kernel.h"', f"#define DYNAMIC_SHARED {-(-module.shared_bytes // 16) * 16}"]
    lines += [text for text in variables if text]
    lines += [f"static void fn_{c_name(name)}(Th*me,void**P,void*R);" for _, name, _ in functions]
    lines += [text for _, _, text in functions]
    for name in (c_name(name) for kind, name, _ in functions if kind == "entry"):
        lines.append(f"void launch_{name}(Launch*l){{run(fn_{name},l,{int(module.synchronizes)},DYNAMIC_SHARED);}}")
    return "\n".join(lines)
