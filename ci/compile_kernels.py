"""Compile every CUDA kernel of gpukpca as CuPy does at its first launch, without a card: `… compile_kernels.py 80 90`.

The arguments are compute capabilities. CuPy assembles source, headers and options; NVRTC compiles and reports registers
and local memory. The exit status is 1 where a kernel does not compile or uses local memory.
"""

from __future__ import annotations

import io
import os
import re
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any

# What an elementwise kernel loops over: dimensions, C order, offsets of 32 bits. CuPy joins the axes of arrays in C
# order; arrays beyond 2**31 bytes have offsets of 64 bits.
LAYOUTS = ((1, True, True), (1, True, False), (2, False, True), (2, False, False))
REPORT = re.compile(
    r"Compiling entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
    r".*?Used (\d+) registers",
    re.DOTALL,
)


@dataclass(frozen=True)
class Unit:
    """One text that CuPy would compile, and the function in it."""

    name: str
    code: str
    options: tuple[str, ...] = ()
    name_expressions: tuple[str, ...] | None = None
    has_cupy_headers: bool = False


@dataclass(frozen=True)
class Usage:
    """Resources of one compiled function."""

    registers: int
    local_bytes: int


# -- what is compiled --------------------------------------------------------------------------------------------------


class RawModule:
    """Stand-in for `cupy.RawModule`, which compiles on the current device when a function is first used."""

    def __init__(
        self, *, code: str, options: tuple[str, ...] = (), name_expressions: Any = None, backend: str = "nvrtc"
    ) -> None:
        self.code, self.options = code, options
        self.name_expressions = None if name_expressions is None else tuple(name_expressions)

    def get_function(self, name: str) -> Unit:
        return Unit(name, self.code, self.options, self.name_expressions)


def units() -> Iterator[tuple[str, Unit]]:
    """Yield a label and a unit for every kernel of the package, in all types and layouts."""
    import cupy

    from tests.kernel_listing import list_kernels

    cupy.RawModule = RawModule
    for name, (module, types) in list_kernels().items():
        kernel = module._kernel(name)
        if kernel.name != name:
            sys.exit(f"{module.__name__}: the kernel listed as {name!r} is called {kernel.name!r}")
        if isinstance(kernel, cupy.ElementwiseKernel):
            yield from elementwise_units(kernel, types)
        elif isinstance(kernel, Unit):
            yield name, kernel
        else:
            yield name, Unit(kernel.name, kernel.code, kernel.options)


def elementwise_units(kernel: Any, combinations: Any) -> Iterator[tuple[str, Unit]]:
    """Yield the units of an elementwise kernel for types of its arrays, by parameter."""
    for types in combinations:
        label = " ".join([kernel.name, *types.values()])
        codes = {elementwise_code(kernel, types, *layout) for layout in LAYOUTS}
        yield from ((label, Unit(kernel.name, code, kernel.kwargs.get("options", ()), None, True)) for code in codes)


def elementwise_code(kernel: Any, types: dict[str, str], ndim: int, in_order: bool, narrow: bool) -> str:
    """Return the text that CuPy generates. Parameters not in `types` are numbers; raw arrays are in C order."""
    import cupy
    import numpy as np
    from cupy._core import _carray, _kernel, _scalar

    array, indexer, number = 1, 2, 3  # CuPy's enumeration of arguments
    parameters = (*kernel.in_params, *kernel.out_params)
    dtypes = [np.dtype(types[p.name]) if p.name in types else None for p in parameters]
    inputs, outputs, letters = kernel._decide_params_type(tuple(dtypes[: kernel.nin]), tuple(dtypes[kernel.nin :]))
    arguments = []
    for p, dtype in zip(parameters, (*inputs, *outputs), strict=True):
        if p.name not in types:
            arguments.append(_kernel._ArgInfo(number, _scalar.CScalar, dtype, 0, True, True))
        else:
            shape = (2, True) if p.raw else (ndim, in_order)
            arguments.append(_kernel._ArgInfo(array, cupy.ndarray, dtype, *shape, narrow))
    loop = 1 if all(p.raw for p in parameters if p.name in types) else ndim
    arguments.append(_kernel._ArgInfo(indexer, _carray.Indexer, None, loop, True, narrow))
    return _kernel._get_elementwise_kernel_code(
        tuple(arguments), letters, kernel.params, kernel.operation, kernel.name, kernel.preamble, **kernel.kwargs
    )


# -- how it is compiled ------------------------------------------------------------------------------------------------


def stand_in_for_device() -> None:
    """Let CuPy's compiler run for the architecture that it is given, and load nothing."""
    from cupy.cuda import compiler, function

    class Module(function.Module):
        def load(self, cubin: bytes) -> None:
            pass

    os.environ["CUPY_CACHE_IN_MEMORY"] = "1"  # neither read nor write the kernels of the user
    compiler._get_arch_for_options_for_nvrtc = lambda arch=None: (f"-arch=sm_{arch}", "cubin")
    compiler.function = SimpleNamespace(Module=Module)


@cache
def compile_unit(unit: Unit, architecture: str) -> dict[str, Usage]:
    """Compile a unit and return the resources of every function in it, by name."""
    from cupy._core import core

    log = io.StringIO()
    module = core.compile_with_cache(
        unit.code,
        (*unit.options, "--ptxas-options=-v"),
        arch=architecture,
        prepend_cupy_headers=unit.has_cupy_headers,
        name_expressions=unit.name_expressions,
        log_stream=log,
    )
    found = usage(log.getvalue())
    return found | {name: found[mangled] for name, mangled in (module.mapping or {}).items()}


def usage(log: str) -> dict[str, Usage]:
    """Return what NVRTC's assembler reports of each function."""
    return {
        name: Usage(int(registers), max(int(stack), int(stores), int(loads)))
        for name, stack, stores, loads, registers in REPORT.findall(log)
    }


def resources(label: str, unit: Unit, architecture: str) -> Usage | str:
    """Return what a kernel needs, or the sentence that says why it may not stay as it is."""
    from cupy.cuda.compiler import CompileException

    try:
        found = compile_unit(unit, architecture)[unit.name]
    except CompileException as error:
        return f"{label}, sm_{architecture}: does not compile\n{error}"
    if found.local_bytes:
        return f"{label}, sm_{architecture}: {found.local_bytes} bytes of local memory"
    return found


def main(architectures: list[str]) -> int:
    import cupy
    from cupy_backends.cuda.libs import nvrtc

    start = time.perf_counter()
    stand_in_for_device()
    jobs = [(label, unit, architecture) for label, unit in units() for architecture in architectures]
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # NVRTC compiles outside the interpreter's lock
        results = list(pool.map(resources, *zip(*jobs, strict=True)))
    show_registers(jobs, results)
    version = ".".join(map(str, nvrtc.getVersion()))
    print(f"CuPy {cupy.__version__}, NVRTC {version}: {len(jobs)} compilations, {time.perf_counter() - start:.0f} s")
    faults = [result for result in results if isinstance(result, str)]
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


def show_registers(jobs: list[tuple[str, Unit, str]], results: list[Usage | str]) -> None:
    """Print the registers of each kernel, the most of its types and layouts; 0 where none was compiled."""
    most: dict[tuple[str, str], int] = {}
    for (_, unit, architecture), result in zip(jobs, results, strict=True):
        registers = result.registers if isinstance(result, Usage) else 0
        most[unit.name, architecture] = max(most.get((unit.name, architecture), 0), registers)
    names, architectures = (dict.fromkeys(column) for column in zip(*most, strict=True))
    width = max(map(len, names))
    print(f"{'registers a thread':{width}}" + "".join(f"{'sm_' + name:>8}" for name in architectures))
    for name in names:
        print(f"{name:{width}}" + "".join(f"{most[name, architecture]:8}" for architecture in architectures))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
