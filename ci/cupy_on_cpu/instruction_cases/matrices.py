"""mma, ldmatrix and movmatrix against NumPy, with fragments distributed as the PTX manual says."""

from collections.abc import Callable

import cupy
import numpy as np

from instruction_cases.harness import Report
from instruction_cases.numbers import decode, encode

LANES = np.arange(32)
G, T = LANES // 4, LANES % 4  # the manual's groupID and threadID_in_group


def place_in_a(kind: str, depth: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return row and column of element i of the fragment of A, in all lanes."""
    if kind == "tf32":
        return [(G + 8 * (i & 1), T + 4 * (i // 2)) for i in range(depth // 2)]
    return [(G + 8 * (i // 2 & 1), 2 * T + (i & 1) + 8 * (i // 4)) for i in range(depth // 2)]


def place_in_b(kind: str, depth: int) -> list[tuple[np.ndarray, np.ndarray]]:
    if kind == "tf32":
        return [(T + 4 * i, G) for i in range(depth // 4)]
    return [(2 * T + (i & 1) + 8 * (i // 2), G) for i in range(depth // 4)]


PLACE_IN_C = [(G + 8 * (i // 2), 2 * T + (i & 1)) for i in range(4)]


def registers(matrix: np.ndarray, places: list[tuple[np.ndarray, np.ndarray]], packed: bool) -> np.ndarray:
    """Return the registers of all lanes (lanes, registers) of a matrix of bits."""
    elements = np.stack([matrix[place] for place in places], 1).astype(np.uint32)
    return elements[:, ::2] | elements[:, 1::2] << 16 if packed else elements


def to_bits(x: np.ndarray, kind: str) -> np.ndarray:
    """Return the bits of numbers rounded to a format; tf32 in the upper bits of a register."""
    shift = 13 if kind == "tf32" else 0
    return np.array([encode(float(v), kind) << shift for v in x.ravel()], np.uint32).reshape(x.shape)


def from_bits(bits: np.ndarray, kind: str) -> np.ndarray:
    shift = 13 if kind == "tf32" else 0
    return np.array([decode(int(v) >> shift, kind) for v in bits.ravel()]).reshape(bits.shape)


def listed(first: int, count: int) -> str:
    return "{" + ", ".join(f"%{first + i}" for i in range(count)) + "}"


def multiplier(report: Report, kind: str, depth: int, sums: str) -> Callable[..., np.ndarray]:
    """Return a function that multiplies matrices of bits by one mma."""
    n_a, n_c = depth // 2 if kind == "tf32" else depth // 4, 4 if sums == "f32" else 2
    n_b = n_a // 2
    operands = ", ".join((listed(0, n_c), listed(n_c, n_a), listed(n_c + n_a, n_b), listed(n_c + n_a + n_b, n_c)))
    text = f"mma.sync.aligned.m16n8k{depth}.row.col.{sums}.{kind}.{kind}.{sums} {operands};"
    targets = ", ".join(f'"=r"(d[{i}])' for i in range(n_c))
    sources = ", ".join(f'"r"(in[threadIdx.x * {n_a + n_b + n_c} + {i}])' for i in range(n_a + n_b + n_c))
    kernel = report.compile(
        'extern "C" __global__ void k(const unsigned* in, unsigned* out) {\n'
        f'unsigned d[{n_c}]; asm volatile("{text}" : {targets} : {sources});\n'
        f"for (int i = 0; i < {n_c}; i++) out[threadIdx.x * {n_c} + i] = d[i]; }}"
    )
    packed = kind != "tf32"

    def multiply(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        words = [registers(a, place_in_a(kind, depth), packed), registers(b, place_in_b(kind, depth), packed)]
        words.append(registers(c, PLACE_IN_C, sums == "f16"))
        out = cupy.zeros((32, n_c), np.uint32)
        kernel((1,), (32,), (cupy.asarray(np.ascontiguousarray(np.concatenate(words, 1))), out))
        got = out.get()
        if sums == "f16":
            got = np.stack([got & 0xFFFF, got >> 16], 2).reshape(32, 4)
        d = np.zeros((16, 8), np.uint32)
        for i, place in enumerate(PLACE_IN_C):
            d[place] = got[:, i]
        return d

    return multiply


def check_products(report: Report) -> None:
    """Whole numbers, whose sums are exact in any order; then random ones, within the bound of float32 sums."""
    rng = np.random.default_rng(5)
    shapes = [(kind, depth, "f32") for kind in ("f16", "bf16") for depth in (8, 16)]
    shapes += [("tf32", 4, "f32"), ("tf32", 8, "f32"), ("f16", 8, "f16"), ("f16", 16, "f16")]
    for kind, depth, sums in shapes:
        multiply = multiplier(report, kind, depth, sums)
        what = f"mma m16n8k{depth} of {kind} with sums in {sums}"
        a, b = rng.integers(-7, 8, (16, depth)), rng.integers(-7, 8, (depth, 8))
        c = rng.integers(-99, 99, (16, 8))
        got = from_bits(multiply(to_bits(a, kind), to_bits(b, kind), to_bits(c, sums)), sums)
        report.check(f"{what}: whole numbers", (got != a @ b + c).any(), f"{abs(got - a @ b - c).max()}")
        bits = [to_bits(rng.standard_normal(shape), kind) for shape in ((16, depth), (depth, 8))]
        x, y = (from_bits(v, kind) for v in bits)
        z = from_bits(to_bits(rng.standard_normal((16, 8)), sums), sums)
        if kind == "tf32":  # the low 13 bits mean nothing
            bits = [v | rng.integers(0, 2**13, v.shape, dtype=np.uint32) for v in bits]
        got = from_bits(multiply(*bits, to_bits(z, sums)), sums)
        bound = (abs(x) @ abs(y) + abs(z)) * ((depth + 1) * 2.0**-23 + (2.0**-11 if sums == "f16" else 0))
        report.check(f"{what}: random numbers", not (abs(got - x @ y - z) <= bound).all())


def check_order_of_sums(report: Report) -> None:
    """Check the choice of the stand-in: exact products, added one by one in float32. A card may differ here."""
    rng = np.random.default_rng(6)
    multiply = multiplier(report, "f16", 16, "f32")
    bits = [to_bits(rng.standard_normal(shape), "f16") for shape in ((16, 16), (16, 8))]
    x, y = (from_bits(v, "f16") for v in bits)
    z = rng.standard_normal((16, 8)).astype(np.float32)
    got = multiply(*bits, z.view(np.uint32)).view(np.float32)
    expected = z.copy()
    for k in range(16):  # a product of halves has 22 bits: the sum in float64 is far from a tie of float32, or exact
        expected = (expected.astype(np.float64) + np.outer(x[:, k], y[k])).astype(np.float32)
    report.check("mma: order of sums", (got != expected).any())


def check_ldmatrix(report: Report) -> None:
    """Load 1, 2 or 4 matrices of 8x8, whose rows lie apart, as they are and transposed."""
    stored = np.random.default_rng(7).integers(0, 2**16, (32, 16)).astype(np.uint16)
    order = np.random.default_rng(8).permutation(32)  # lane i has the address of row order[i]
    for count in (1, 2, 4):
        for transpose in (False, True):
            targets = ", ".join(f'"=r"(d[{i}])' for i in range(count))
            text = (
                f"ldmatrix.sync.aligned.m8n8.x{count}{'.trans' * transpose}.shared.b16 {listed(0, count)}, [%{count}];"
            )
            kernel = report.compile(
                'extern "C" __global__ void k(const unsigned short* in, const int* order, unsigned* out) {\n'
                "__shared__ __align__(16) unsigned short rows[32 * 16];\n"
                "for (int i = threadIdx.x; i < 512; i += 32) rows[i] = in[i];\n"
                "__syncwarp(); unsigned d[4];\n"
                f"unsigned address = __cvta_generic_to_shared(rows + 16 * order[threadIdx.x]);\n"
                f'asm volatile("{text}" : {targets} : "r"(address) : "memory");\n'
                f"for (int i = 0; i < {count}; i++) out[threadIdx.x * {count} + i] = d[i]; }}"
            )
            out = cupy.zeros((32, count), np.uint32)
            kernel((1,), (32,), (cupy.asarray(stored), cupy.asarray(order.astype("i")), out))
            expected = np.zeros((32, count), np.uint32)
            for i in range(count):
                matrix = stored[order[8 * i : 8 * i + 8], :8].astype(np.uint32)
                matrix = matrix.T if transpose else matrix
                expected[:, i] = matrix[G, 2 * T] | matrix[G, 2 * T + 1] << 16
            report.check(text, (out.get() != expected).any())


ATTENTION = r"""
// One warp: P = A B (16 x 8), then R = P^T C with C of 16 x 8. P^T is 8 x 16: rows 8 to 15 of its fragment are zero.
extern "C" __global__ void k(const unsigned* in, float* out) {
    const unsigned* w = in + threadIdx.x * 8;
    float p[4] = {0, 0, 0, 0}, r[4] = {0, 0, 0, 0};
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
        " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(p[0]), "+f"(p[1]), "+f"(p[2]), "+f"(p[3])
        : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "r"(w[4]), "r"(w[5]));
    unsigned top, bottom, a0, a2, zero = 0;
    asm volatile("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(top) : "f"(p[1]), "f"(p[0]));
    asm volatile("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bottom) : "f"(p[3]), "f"(p[2]));
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(a0) : "r"(top));
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(a2) : "r"(bottom));
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
        " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(r[0]), "+f"(r[1]), "+f"(r[2]), "+f"(r[3])
        : "r"(a0), "r"(zero), "r"(a2), "r"(zero), "r"(w[6]), "r"(w[7]));
    // and P itself as the operand A of a product with 8 x 8 (the upper half of C): the accumulator's layout is A's
    float q[4] = {0, 0, 0, 0};
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(q[0]), "+f"(q[1]), "+f"(q[2]), "+f"(q[3]) : "r"(top), "r"(bottom), "r"(w[6]));
    for (int i = 0; i < 4; i++) { out[threadIdx.x * 8 + i] = r[i]; out[threadIdx.x * 8 + 4 + i] = q[i]; }
}
"""


def check_chained_products(report: Report) -> None:
    """Feed the accumulator of one product to the next, as it is and transposed, as FlashAttention does."""
    rng = np.random.default_rng(9)
    a, b, c = rng.integers(-3, 4, (16, 16)), rng.integers(-3, 4, (16, 8)), rng.integers(-3, 4, (16, 8))
    words = [registers(to_bits(a, "f16"), place_in_a("f16", 16), True)]
    words += [registers(to_bits(v, "f16"), place_in_b("f16", 16), True) for v in (b, c)]
    out = cupy.zeros((32, 8), np.float32)
    report.compile(ATTENTION)((1,), (32,), (cupy.asarray(np.ascontiguousarray(np.concatenate(words, 1))), out))
    transposed, plain = np.zeros((16, 8)), np.zeros((16, 8))
    for i, place in enumerate(PLACE_IN_C):
        transposed[place], plain[place] = out.get()[:, i], out.get()[:, 4 + i]
    p = a @ b
    report.check("(A B)^T C by mma, movmatrix, mma", (transposed[:8] != p.T @ c).any() or transposed[8:].any())
    report.check("(A B) C by mma, mma", (plain != p @ c[:8]).any())


STRAYED = r"""
extern "C" __global__ void k(unsigned* out) {
    unsigned d = 0;
    if (threadIdx.x < 16) asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(d) : "r"(1));
    else asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(d) : "r"(2));
    out[threadIdx.x] = d;
}
"""


def check_refusals(report: Report) -> None:
    """Half a warp, and lanes at different instructions, are errors."""
    kernel = report.compile(STRAYED)
    for threads, text in ((16, "needs 32 lanes"), (32, "different matrix instructions")):
        out = cupy.zeros(32, np.uint32)
        what = f"movmatrix by {threads} lanes: {text}"
        report.check_error(what, text, lambda threads=threads, out=out: kernel((1,), (threads,), (out,)))


def check(report: Report) -> None:
    """Check all instructions on matrices."""
    check_products(report)
    check_order_of_sums(report)
    check_ldmatrix(report)
    check_chained_products(report)
    check_refusals(report)
