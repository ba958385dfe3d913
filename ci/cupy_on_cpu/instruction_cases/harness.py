"""Compiles kernels, runs them, compares, and notes which entries of the translator's table they used."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import cupy
import cupy_on_cpu
import numpy as np
from cupy.cuda import nvrtc

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))
from translator.modules import translate_module
from translator.scope import Module
from translator.table import TABLE

WIDTHS = {"h": 16, "r": 32, "l": 64}  # of the letters of inline assembly
C_NAMES = {"h": "unsigned short", "r": "unsigned", "l": "unsigned long long"}


class Case(NamedTuple):
    """One instruction in inline PTX: operands `d:abc` as letters of WIDTHS, and the bits that it must return.

    A reference that returns None accepts anything; one that returns a function accepts what the function accepts.
    """

    text: str
    operands: str
    reference: Callable[..., int | Callable[[int], bool] | None]
    inputs: str = "bits"


@dataclass
class Report:
    """What was wrong, and which entries were used."""

    wrong: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    count: int = 0

    def check(self, what: str, bad: Any, detail: str = "") -> None:
        """Note one case; print it where it is wrong."""
        self.count += 1
        if bad:
            self.wrong.append(what)
            print(f"WRONG {what} {detail}", flush=True)

    def check_error(self, what: str, text: str, call: Callable[[], object]) -> None:
        """Note whether a call raises an error of the driver with a text; the device is whole again afterwards."""
        try:
            call()
            message = "no error"
        except cupy.cuda.driver.CUDADriverError as error:
            message = str(error)
        cupy_on_cpu.mend_device()  # an error of a kernel ends every later call
        self.check(what, text not in message, message)

    def compile(self, code: str, name: str = "k", options: Sequence[str] = ()) -> Callable[..., None]:
        """Return a kernel, and note the entries of the table that its PTX uses."""
        capability = cupy.cuda.Device().compute_capability
        program = nvrtc.createProgram(code, "case.cu", (), ())
        nvrtc.compileProgram(program, [f"--gpu-architecture=compute_{capability}", *options])
        ptx = nvrtc.getPTX(program)
        seen = Module()
        translate_module(ptx.decode().rstrip("\0"), seen)
        self.used |= seen.used
        module = cupy.cuda.function.Module()
        module.load(ptx)
        return module.get_function(name)

    def check_table(self) -> None:
        """Name the entries of the translator's table that no case used."""
        for key in TABLE:
            self.check(f"entry {key} of the table", key not in self.used, "is used by no case")


def random_inputs(kind: str, rng: np.random.Generator, n: int) -> np.ndarray:
    """Return n triples of 64 bits: random ones, or floats of one format, with special values among them."""
    bits = rng.integers(0, 2**64, (3, n), dtype=np.uint64)
    if kind == "bits":
        edges = np.array([0, 1, 2**64 - 1, 2**63, 2**31, 2**32 - 1, 2**15, 31, 32, 64], np.uint64)
        bits[:, :100] = np.stack([edges.repeat(10), np.tile(edges, 10), rng.permutation(np.tile(edges, 10))])
        bits[1, 100:150] &= np.uint64(63)  # amounts of shifts
    elif kind in ("f32", "f64"):
        dtype, word = {"f32": ("f", "I"), "f64": ("d", "Q")}[kind]
        numbers = (rng.standard_normal((3, n)) * 2.0 ** rng.integers(-20, 20, (3, n))).astype(dtype)
        special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, np.finfo(dtype).max, 1e-40], dtype)
        numbers[0, :64], numbers[1, :64] = special.repeat(8), np.tile(special, 8)
        bits = numbers.view(word).astype(np.uint64)
    elif kind in ("f16", "bf16"):  # two numbers in 32 bits; the second half of them near to each other
        near = rng.integers(0x3800, 0x4400, (3, n // 2, 2), dtype=np.uint64) | np.uint64(0x8000) * rng.integers(
            0, 2, (3, n // 2, 2), dtype=np.uint64
        )
        bits[:, n // 2 :] = near[..., 0] | near[..., 1] << np.uint64(16)
        bits[2, n * 3 // 4 :] &= np.uint64(0x01FF81FF)  # small third operands: the second rounding of fma shows
        zeros = np.array([0, 0x80000000, 0x8000, 0x80008000], np.uint64)
        bits[0, :16], bits[1, :16] = zeros.repeat(4), np.tile(zeros, 4)
    elif kind in ("ties of f32", "ties of f64"):  # halfway between numbers of 8, 11 or 24 bits, or just beside
        dtype, word = {"ties of f32": ("f", "I"), "ties of f64": ("d", "Q")}[kind]
        precision = rng.choice((8, 11, 24), (3, n))
        significand = rng.integers(2 ** (precision - 1), 2**precision) * 2.0 + 1
        beside = rng.choice((0.0, 2.0**-20, -(2.0**-20)), (3, n)) * significand * 2.0 ** -rng.integers(0, 16, (3, n))
        numbers = rng.choice((-1.0, 1.0), (3, n)) * (significand + beside) * 2.0 ** rng.integers(-40, 8, (3, n))
        bits = numbers.astype(dtype).view(word).astype(np.uint64)
    else:
        raise ValueError(f"no inputs called {kind}")
    return bits


def source_of(cases: Sequence[Case]) -> str:
    """Return a kernel that runs each case on element i of the inputs."""
    lines = []
    for j, case in enumerate(cases):
        target, sources = case.operands.split(":")
        values = ",".join(f'"{letter}"(({C_NAMES[letter]})in[{k} * n + i])' for k, letter in enumerate(sources))
        lines.append(
            f'{{ {C_NAMES[target]} d; asm volatile("{case.text}" : "={target}"(d) : {values}); out[{j} * n + i] = d; }}'
        )
    body = "\n".join(lines)
    return (
        'extern "C" __global__ void k(const unsigned long long* in, unsigned long long* out, int n) {\n'
        f"int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;\n{body}\n}}"
    )


def differences(case: Case, inputs: np.ndarray, got: np.ndarray) -> list[str]:
    """Describe the elements where a case does not return what its reference says."""
    target, sources = case.operands.split(":")
    masks = [(1 << WIDTHS[letter]) - 1 for letter in sources]
    bad = []
    for row, result in zip(inputs.T.tolist(), got.tolist(), strict=True):
        arguments = [x & mask for x, mask in zip(row, masks, strict=False)]
        expected = case.reference(*arguments)
        if callable(expected):
            right = expected(result)
        else:
            right = expected is None or result == expected & (1 << WIDTHS[target]) - 1
        if not right:
            what = "out of bounds" if callable(expected) else f"not {expected & (1 << WIDTHS[target]) - 1:#x}"
            bad.append(f"{', '.join(map(hex, arguments))} gives {result:#x}, {what}")
    return bad


def run_cases(report: Report, cases: Sequence[Case], n: int = 256) -> None:
    """Run cases of inline PTX, one kernel for each kind of inputs."""
    for kind in dict.fromkeys(case.inputs for case in cases):
        group = [case for case in cases if case.inputs == kind]
        inputs = random_inputs(kind, np.random.default_rng(3), n)
        out = cupy.zeros((len(group), n), np.uint64)
        report.compile(source_of(group))((n // 64,), (64,), (cupy.asarray(inputs), out, np.int32(n)))
        for case, got in zip(group, out.get(), strict=True):
            bad = differences(case, inputs, got)
            report.check(case.text, bad, f": {len(bad)} of {n}, {bad[0]}" if bad else "")
