"""The command IN.ptx OUT.so: translate a module, compile the C text with gcc."""

import os
import subprocess
import sys
from pathlib import Path

from translator.modules import translate_module

COMPILER = ("gcc", "-O1", "-w", "-shared", "-fPIC", "-ffp-contract=off", "-fno-strict-aliasing")
HEADERS = Path(__file__).resolve().parent.parent / "kernel"


def compile_to_object(text: str, target: str) -> subprocess.CompletedProcess[str]:
    """Compile C text to the shared object `target`."""
    command = [*COMPILER, "-I", str(HEADERS), "-x", "c", "-", "-o", target, "-lm"]
    return subprocess.run(command, input=text, text=True, capture_output=True)


def main() -> None:
    """Translate the file of the first argument to the shared object of the second."""
    source, target = sys.argv[1:3]
    text = translate_module(Path(source).read_text())
    if os.environ.get("CUPY_ON_CPU_KEEP_C"):
        Path(target).with_suffix(".c").write_text(text)
    temporary = source + ".tmp"
    done = compile_to_object(text, temporary)
    if done.returncode:
        sys.exit(f"[cupy_on_cpu] gcc refused the translation of {source}:\n{done.stderr[:3000]}")
    os.replace(temporary, target)  # in one step: several processes may share the cache
