"""Functions of the device in CUDA C: integers, rounding and divisions agree in every bit, the math library nearly."""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import cupy
import numpy as np

from instruction_cases.harness import Report
from instruction_cases.integers import quotient
from instruction_cases.numbers import decode, encode, signed, unsigned

N = 500
Reference = Callable[..., float]


def run(
    report: Report, names: str, arguments: Sequence[np.ndarray], expressions: Sequence[str], out_type: str
) -> np.ndarray:
    """Run one kernel that stores each expression: an array of one row an element."""
    store = "".join(f"o[i * {len(expressions)} + {j}] = {e};\n" for j, e in enumerate(expressions))
    code = f'extern "C" __global__ void k({names}, {out_type}* o, int n) {{\n'
    code += f"int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) {{ {store} }} }}"
    out = cupy.zeros((N, len(expressions)), {"long long": "q", "float": "f", "double": "d"}[out_type])
    kernel = report.compile(code, options=("--device-int128",))
    kernel((8,), (64,), (*map(cupy.asarray, arguments), out, np.int32(N)))
    return out.get()


def exact(
    report: Report, names: str, arguments: Sequence[np.ndarray], cases: dict[str, Reference], out_type: str
) -> None:
    """Check expressions that must agree in every bit."""
    result = run(report, names, arguments, list(cases), out_type)
    for j, (expression, reference) in enumerate(cases.items()):
        rows = zip(*(v.tolist() for v in arguments), strict=True)
        bad = sum(got != reference(*row) for got, row in zip(result[:, j].tolist(), rows, strict=True))
        report.check(expression, bad, f": {bad} of {N}")


def close(
    report: Report,
    names: str,
    arguments: Sequence[np.ndarray],
    cases: dict[str, Reference],
    out_type: str,
    tolerance: float,
) -> None:
    """Check expressions that must agree within a relative tolerance."""
    result = run(report, names, arguments, list(cases), out_type)
    for j, (expression, reference) in enumerate(cases.items()):
        expected = np.array([reference(*row) for row in zip(*(v.tolist() for v in arguments), strict=True)])
        error = (abs(result[:, j] - expected) / np.maximum(abs(expected), 1e-3)).max()
        report.check(expression, not error <= tolerance, f": {error:.0e}")


def to_float(x: Fraction, mode: str, kind: str = "f32") -> float:
    return decode(encode(x, kind, mode), kind)


OF_WORDS: dict[str, Reference] = {
    "__brev(a[i])": lambda a, b: int(format(unsigned(a, 32), "032b")[::-1], 2),
    "__ffs(a[i])": lambda a, b: (a & -a).bit_length(),
    "__funnelshift_l(a[i], b[i], a[i])": lambda a, b: unsigned(
        (unsigned(b, 32) << 32 | unsigned(a, 32)) << (a & 31) >> 32, 32
    ),
    "__mulhi(a[i], b[i])": lambda a, b: a * b >> 32,
    "__umulhi(a[i], b[i])": lambda a, b: unsigned(a, 32) * unsigned(b, 32) >> 32,
    "__sad(a[i], b[i], 3u)": lambda a, b: unsigned(abs(a - b) + 3, 32),
    "a[i] << 7 >> 25": lambda a, b: signed(a << 7, 32) >> 25,
    "((unsigned)a[i] >> 5) & 0x3ff": lambda a, b: unsigned(a, 32) >> 5 & 0x3FF,
    "(signed char)a[i]": lambda a, b: signed(a, 8),
    "a[i] / b[i]": lambda a, b: signed(quotient(a, b), 32),
    "(unsigned)a[i] % (unsigned)b[i]": lambda a, b: unsigned(a, 32) % unsigned(b, 32),
}
OF_LONG_WORDS: dict[str, Reference] = {
    "__clzll(m[i])": lambda m, b: 64 - unsigned(m, 64).bit_length(),
    "__mul64hi(m[i], (long long)b[i] << 20)": lambda m, b: m * (b << 20) >> 64,
    "m[i] / b[i]": quotient,
    "m[i] % b[i]": lambda m, b: m - quotient(m, b) * b,
    "m[i] >> (b[i] & 63)": lambda m, b: m >> (b & 63),
}
OF_128_BITS: dict[str, Reference] = {
    "(long long)((((unsigned __int128)m[i] << 64 | w[i]) + ((unsigned __int128)w[i] << 64 | w[i])) >> 65)": (
        lambda w, m: unsigned((unsigned(m, 64) << 64 | w) + (w << 64 | w), 128) >> 65
    ),
    "(long long)((((unsigned __int128)w[i] << 64 | m[i] & 0xffff) - ((unsigned __int128)w[i] * 5)) >> 65)": (
        lambda w, m: unsigned((w << 64 | m & 0xFFFF) - w * 5, 128) >> 65
    ),
    "(long long)((((unsigned __int128)w[i] << 64) | w[i]) / (m[i] & 0xffffffffffff | 1ull << 48) >> 50)": (
        lambda w, m: signed((w << 64 | w) // (m & 0xFFFFFFFFFFFF | 1 << 48) >> 50, 64)
    ),
}
OF_FLOATS: dict[str, Reference] = {
    "__fadd_rz(x[i], y[i])": lambda x, y: to_float(Fraction(x) + Fraction(y), "rz"),
    "__fmul_rd(x[i], y[i])": lambda x, y: to_float(Fraction(x) * Fraction(y), "rm"),
    "__fmaf_ru(x[i], y[i], 1.f)": lambda x, y: to_float(Fraction(x) * Fraction(y) + 1, "rp"),
    "__fdiv_rn(x[i], y[i])": lambda x, y: to_float(Fraction(x) / Fraction(y), "rn"),
    "__fsqrt_rn(fabsf(x[i]))": lambda x, y: float(np.sqrt(np.float32(abs(x)))),
    "__saturatef(x[i])": lambda x, y: min(max(x, 0.0), 1.0),
    "rintf(x[i] * 8)": lambda x, y: float(np.rint(x * 8)),
    "__float2int_rd(x[i] * 64)": lambda x, y: float(math.floor(x * 64)),
    "copysignf(x[i], y[i])": math.copysign,
    "fmodf(x[i] * 64, y[i])": lambda x, y: math.fmod(x * 64, y),
}
OF_DOUBLES: dict[str, Reference] = {
    "p[i] / q[i]": lambda p, q: p / q,
    "sqrt(fabs(p[i]))": lambda p, q: math.sqrt(abs(p)),
    "__dadd_rd(p[i], q[i])": lambda p, q: to_float(Fraction(p) + Fraction(q), "rm", "f64"),
    "fma(p[i], q[i], 1.)": lambda p, q: to_float(Fraction(p) * Fraction(q) + 1, "rn", "f64"),
    "(double)__double2float_rz(p[i])": lambda p, q: to_float(Fraction(p), "rz"),
    "fmod(p[i] * 64, q[i])": lambda p, q: math.fmod(p * 64, q),
}
OF_THE_MATH_LIBRARY: dict[str, Reference] = {
    "exp{f}(x[i])": lambda x, y: math.exp(x),
    "log{f}(fabs(x[i]))": lambda x, y: math.log(abs(x)),
    "sin{f}(x[i] * 1024)": lambda x, y: math.sin(x * 1024),
    "pow{f}(fabs(x[i]), y[i])": lambda x, y: abs(x) ** y,
    "tanh{f}(x[i])": lambda x, y: math.tanh(x),
    "erf{f}(x[i])": lambda x, y: math.erf(x),
    "tgamma{f}(fabs(x[i]) + 1)": lambda x, y: math.gamma(abs(x) + 1),
    "cbrt{f}(x[i])": lambda x, y: float(np.cbrt(x)),
    "atan2{f}(x[i], y[i])": math.atan2,
}


def check(report: Report) -> None:
    """Check all expressions."""
    rng = np.random.default_rng(1)
    a = rng.integers(-(2**31), 2**31, N).astype("i")
    b = rng.integers(-(2**31), 2**31, N).astype("i")
    b[:100] = rng.integers(1, 50, 100)
    m = rng.integers(-(2**63), 2**63 - 1, N)
    w = rng.integers(0, 2**64, N, dtype="Q")
    x, y = rng.standard_normal((2, N)).astype("f")
    p, q = rng.standard_normal((2, N))
    exact(report, "const int* a, const int* b", (a, b), OF_WORDS, "long long")
    exact(report, "const long long* m, const int* b", (m, b), OF_LONG_WORDS, "long long")
    exact(report, "const unsigned long long* w, const long long* m", (w, m), OF_128_BITS, "long long")
    exact(report, "const float* x, const float* y", (x, y), OF_FLOATS, "float")
    exact(report, "const double* p, const double* q", (p, q), OF_DOUBLES, "double")
    of_floats = {name.format(f="f"): reference for name, reference in OF_THE_MATH_LIBRARY.items()}
    of_doubles = {name.format(f=""): reference for name, reference in OF_THE_MATH_LIBRARY.items()}
    close(report, "const float* x, const float* y", (x, y), of_floats, "float", 1e-6)
    close(report, "const double* x, const double* y", (p, q), of_doubles, "double", 4e-15)
    big = p * 10.0 ** rng.integers(0, 15, N)  # beyond the fast range of sin and cos
    close(report, "const double* v", (big,), {"sin(v[i])": math.sin, "cos(v[i])": math.cos}, "double", 1e-12)
