"""Control flow, memory, atomics, exchanges in a warp, barriers and asynchronous copies."""

from typing import NamedTuple

import cupy
import numpy as np

from instruction_cases.harness import Report


class Kernel(NamedTuple):
    """A kernel `k(const int* in, int* out)` of one block of 64 threads, and what it returns for in = 0, 1, …, 255."""

    what: str
    code: str
    expected: np.ndarray


THREAD = np.arange(64)
LANE = THREAD % 32
IN = np.arange(256)


def kernel(what: str, body: str, expected: np.ndarray, before: str = "") -> Kernel:
    head = 'extern "C" __global__ void k(const int* in, int* out) { const int i = threadIdx.x, lane = i & 31; '
    return Kernel(what, f"{before}\n{head}\n{body} }}", np.asarray(expected, np.int32))


def bits_of(lanes: np.ndarray) -> int:
    return int(sum(1 << int(lane) for lane in lanes))


def unsigned_to_int(values: np.ndarray | int) -> np.ndarray:
    return np.asarray(values, np.uint32).astype(np.uint32).view(np.int32)


PATTERN = (THREAD * 37 - 900).astype(np.int32)
SHUFFLES = [
    ("up", "lane", 3, np.where(LANE >= 3, THREAD - 3, THREAD)),
    ("down", "lane", 3, np.where(LANE < 29, THREAD + 3, THREAD)),
    ("bfly", "lane", 5, THREAD ^ 5),
    ("idx", "lane", 7, THREAD - LANE + 7),
]
EXCHANGES = [
    *(
        kernel(
            f"shfl.sync.{mode}",
            f'int d, ok; asm volatile("{{.reg .pred p; shfl.sync.{mode}.b32 %0|p, %2, {by}, '
            f'{0 if mode == "up" else 31}, 0xffffffff; selp.u32 %1, 1, 0, p;}}" : "=r"(d), "=r"(ok) : "r"(in[i])); '
            "out[i] = d; out[64 + i] = ok;",
            np.concatenate([expected, expected != THREAD if mode in ("up", "down") else np.ones(64)]),
        )
        for mode, _, by, expected in SHUFFLES
    ),
    kernel(
        "shfl.sync in segments of 8",
        "out[i] = __shfl_down_sync(0xffffffffu, in[i], 3, 8);",
        np.where(THREAD % 8 < 5, THREAD + 3, THREAD),
    ),
    kernel(
        "vote.sync",
        "unsigned m = 0xffffffffu; out[i] = __ballot_sync(m, in[i] % 3 == 0);\n"
        "out[64 + i] = __any_sync(m, in[i] == 5);"
        "out[128 + i] = __all_sync(m, in[i] < 32); out[192 + i] = __uni_sync(m, in[i] < 32);",
        np.concatenate([
            unsigned_to_int([bits_of(LANE[:32][(w * 32 + LANE[:32]) % 3 == 0]) for w in (0, 1)]).repeat(32),
            THREAD < 32, THREAD < 32, np.ones(64),
        ]),
    ),
    *(
        kernel(
            f"redux.sync.{name}.{t}",
            f'int d; asm volatile("redux.sync.{name}.{t} %0, %1, 0xffffffff;" : "=r"(d) : "r"(in[i] * 37 - 900));'
            'out[i] = d;',
            function.reduce(PATTERN.view(dtype).reshape(2, 32), 1).astype(dtype).view(np.int32).repeat(32),
        )
        for name, t, dtype, function in (
            ("add", "s32", np.int32, np.add), ("min", "s32", np.int32, np.minimum),
            ("max", "s32", np.int32, np.maximum),
            ("add", "u32", np.uint32, np.add), ("min", "u32", np.uint32, np.minimum),
            ("max", "u32", np.uint32, np.maximum), ("and", "b32", np.uint32, np.bitwise_and),
            ("or", "b32", np.uint32, np.bitwise_or), ("xor", "b32", np.uint32, np.bitwise_xor),
        )
    ),
    kernel("activemask", "out[i] = __activemask();", np.full(64, -1)),
]  # fmt: skip
BARRIERS = [
    kernel(
        "bar.sync",
        "__shared__ int s[64]; s[i] = in[i]; __syncthreads(); out[i] = s[63 - i];",
        63 - THREAD,
    ),
    kernel(
        "barrier.sync",
        '__shared__ int s[64]; s[i] = in[i]; asm volatile("barrier.sync 0;" ::: "memory"); out[i] = s[63 - i];',
        63 - THREAD,
    ),
    kernel(
        "bar.red",
        "out[i] = __syncthreads_count(in[i] % 3 == 0); out[64 + i] = __syncthreads_and(in[i] < 63);\n"
        "out[128 + i] = __syncthreads_or(in[i] == 63);",
        np.concatenate([np.full(64, 22), np.zeros(64), np.ones(64)]),
    ),
    kernel(
        "bar.warp.sync",
        "__shared__ int s[64]; s[i] = in[i]; __syncwarp(); out[i] = s[i ^ 31];",
        THREAD ^ 31,
    ),
]
CONTROL = [
    kernel("bra", "int s = 0; for (int j = 0; j < in[i]; j++) s += j % 7 ? 1 : 5; out[i] = s;",
           [sum(1 if j % 7 else 5 for j in range(i)) for i in range(64)]),
    kernel(
        "brx.idx",
        'int d; asm volatile("{ts: .branchtargets L0, L1, L2; brx.idx %1, ts;\\n'
        'L0: mov.u32 %0, 10; bra.uni E;\\n L1: mov.u32 %0, 11; bra.uni E;\\n L2: mov.u32 %0, 12;\\n E: }"'
        ' : "=r"(d) : "r"(in[i] % 3)); out[i] = d;',
        10 + THREAD % 3,
    ),
    kernel("call", "out[i] = f(in[i]);", [sum(range(i + 1)) for i in range(64)],
           "__device__ __noinline__ int f(int x) { return x ? x + f(x - 1) : 0; }"),
    kernel("exit", 'out[i] = 1; if (in[i] > 9) asm volatile("exit;"); out[i] = 2;', np.where(THREAD > 9, 1, 2)),
    kernel(
        "instructions without an effect here",
        '__threadfence(); __threadfence_block(); __threadfence_system(); asm volatile("fence.acq_rel.gpu;");\n'
        'asm volatile("prefetch.global.L2 [%0];" :: "l"(in)); asm volatile("prefetchu.L1 [%0];" :: "l"(in));\n'
        'asm volatile("discard.global.L2 [%0], 128;" :: "l"(in + 128));\n'
        'asm volatile("applypriority.global.L2::evict_normal [%0], 128;" :: "l"(in));\n'
        'asm volatile("griddepcontrol.wait;"); asm volatile("membar.gl;"); __nanosleep(5); out[i] = in[i];',
        THREAD,
    ),
]  # fmt: skip
MEMORY = [
    kernel(
        "ld, st of vectors, bytes and words of 16 bits",
        "int4 v = ((const int4*)in)[i & 15]; ((int4*)out)[i] = make_int4(v.w, v.z, v.y, v.x);\n",
        (IN[:64].reshape(16, 4)[THREAD % 16][:, ::-1]).ravel(),
    ),
    kernel(
        "ld of signed bytes, st of 16 bits",
        "((short*)out)[i] = ((const signed char*)in)[4 * i] - 1; ",
        np.frombuffer((THREAD - 1).astype(np.int16).tobytes(), np.int32),
    ),
    kernel(
        "ldu, local arrays, cvta",
        'int d; asm volatile("ldu.global.u32 %0, [%1];" : "=r"(d) : "l"(in + i)); int a[8];\n'
        "for (int j = 0; j < 8; j++) a[j] = d * j; volatile int* p = a; out[i] = p[d & 7];",
        THREAD * (THREAD & 7),
    ),
    kernel(
        "mov of vectors",
        'int d; asm volatile("{.reg .b16 a, b; .reg .b32 x; .reg .b64 y; mov.b32 {a, b}, %1; mov.b32 x, {b, a}; '
        'mov.b64 y, {x, %1}; mov.b64 {x, _}, y; mov.b32 %0, x;}" : "=r"(d) : "r"(in[i] + 65536)); out[i] = d;',
        (THREAD << 16) + 1,
    ),
    kernel(
        "atom, red on integers",
        "__shared__ int s[9]; if (i < 9) s[i] = i == 2 ? 1000 : i == 5 ? -1 : 0; __syncthreads();\n"
        "atomicAdd(s, in[i]); atomicMax(s + 1, in[i]); atomicMin(s + 2, in[i]); atomicOr(s + 3, in[i]);\n"
        "atomicXor(s + 4, in[i]);"
        "atomicAnd(s + 5, ~in[i] | 64); atomicInc((unsigned*)s + 6, 9); atomicDec((unsigned*)s + 7, 6);\n"
        "int old; do { old = s[8]; } while (atomicCAS(s + 8, old, old + 2) != old);\n"
        "__syncthreads(); if (i < 9) out[i] = s[i];",
        [2016, 63, 0, 63, int(np.bitwise_xor.reduce(THREAD)), -64, 64 % 10, 6, 128],
    ),
    kernel(
        "atom, red on floats",
        "__shared__ float f; __shared__ double d; if (i == 0) f = 0, d = 0; __syncthreads();\n"
        "float old = atomicAdd(&f, 1.5f);"
        "atomicAdd(&d, 0.25 * i); __syncthreads(); out[i] = f; out[64 + i] = d;\n"
        "atomicAdd(out + 128, (int)(old / 1.5f));"
        "if (i == 0) out[129] = atomicExch((int*)in, 7);\n"
        'asm volatile("red.global.add.f32 [%0], %1;" :: "l"(out + 130), "f"(0.5f));',
        np.concatenate([np.full(64, 96), np.full(64, 504), [2016, 0], np.array([32], "f").view("i")]),
    ),
]
COPIES = [
    kernel(
        "cp.async: nothing arrives before the wait; groups arrive in order; the rest of a copy is zero",
        r"""
    __shared__ __align__(16) int s[5 * 256];
    for (int j = 0; j < 5; j++) for (int k = 0; k < 4; k++) s[j * 256 + 4 * i + k] = -1;
    unsigned to = __cvta_generic_to_shared(s + 4 * i);
    const int* from = in + 4 * i;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(to), "l"(from) : "memory");
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" :: "r"(to + 1024), "l"(from) : "memory");
    asm volatile("cp.async.commit_group;" ::: "memory");
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to + 2048), "l"(from) : "memory");
    asm volatile("cp.async.commit_group;" ::: "memory");
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" :: "r"(to + 3072), "l"(from), "r"(8) : "memory");
    int before = s[4 * i] + s[512 + 4 * i] + s[768 + 4 * i];
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    int first = s[4 * i] + s[256 + 4 * i + 1], pending = s[512 + 4 * i];
    asm volatile("cp.async.wait_all;" ::: "memory");
    out[8 * i] = before; out[8 * i + 1] = first; out[8 * i + 2] = pending; out[8 * i + 3] = s[512 + 4 * i + 3];
    out[8 * i + 4] = s[4 * i + 1]; out[8 * i + 5] = s[256 + 4 * i + 2]; out[8 * i + 6] = s[768 + 4 * i + 1];
    out[8 * i + 7] = s[768 + 4 * i + 2];
""",
        np.stack(
            [np.full(64, -3), 8 * THREAD + 1, -np.ones(64), 4 * THREAD + 3, -np.ones(64), -np.ones(64), 4 * THREAD + 1,
             np.zeros(64)], 1
        ).ravel(),
    ),
]  # fmt: skip
ERRORS = {
    "trap": ('asm volatile("trap;");', "trap"),
    "ldmatrix.x1.b8": (
        'asm volatile("ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%0}, [%0];" :: "r"(0));', "not written",
    ),
    "add.sat.s32": (
        'int d; asm volatile("add.sat.s32 %0, %1, %1;" : "=r"(d) : "r"(in[i])); out[i] = d;', "add.sat.s32 (.sat)",
    ),
    "cp.async, misaligned": (
        '__shared__ int s[8]; asm volatile("cp.async.ca.shared.global [%0], [%1], 8;"'
        ' :: "r"((int)__cvta_generic_to_shared(s + 1)), "l"(in));',
        "misaligned access of 8",
    ),
}  # fmt: skip


def check(report: Report) -> None:
    """Check all kernels, and the errors."""
    for case in (*EXCHANGES, *BARRIERS, *CONTROL, *MEMORY, *COPIES):
        out = cupy.zeros(max(256, case.expected.size), np.int32)
        report.compile(case.code)((1,), (64,), (cupy.arange(256, dtype=np.int32), out))
        bad = (out.get()[: case.expected.size] != case.expected).sum()
        got = out.get()[: case.expected.size]
        report.check(case.what, bad, f"{got[:12]}, not {case.expected[:12]}")
    for what, (body, text) in ERRORS.items():
        arrays = cupy.arange(256, dtype=np.int32), cupy.zeros(64, np.int32)
        code = kernel(what, body, THREAD).code
        report.check_error(
            f"error of {what}", text, lambda code=code, arrays=arrays: report.compile(code)((1,), (64,), arrays)
        )
