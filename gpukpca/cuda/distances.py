"""Distances by differences: no matrix product gives them, and a loop of array expressions moves each tile d times.

Twin of the generic loop in `gpukpca.backend.linalg`. A block of threads computes a square of entries from slices of
features in shared memory, a thread 4 x 4 of them. Differences have the type of the operands, and so have the sums of
`CHUNK` terms, which are added up in float64. With u = eps / 2 an absolute difference of float32 rows has a relative
error of u, its square of 3 u, a sum of 8 terms of 7 u, the answer of u: 4.5 or 5.5 eps in all, for any width.
"""

from __future__ import annotations

from functools import cache
from string import Template
from typing import Any

# Rows and columns of entries in a block, features in a slice, and terms in a sum of the operands' type. Two steps at a
# time of the loop over features keep all four kernels below 128 registers; the speed is not yet measured on a card.
EDGE, DEPTH, CHUNK = 64, 16, 8
# Threads of a block: 4 x 4 entries each.
THREADS = EDGE * EDGE // 16
# name -> the term of one feature, for the difference r
TERMS = {"cityblock": "fabs(r)", "sqeuclidean": "r * r"}
NUMBERS = {"float32": "float", "float64": "double"}
TEXT = Template(r"""
typedef $number T;
const int EDGE = $edge, DEPTH = $depth, CHUNK = $chunk;
struct __align__(16) Four { T entries[4]; };

// Rows of a (n, d) against rows of b (m, d), both in C order, into out (n, m).
extern "C" __global__ void __launch_bounds__($threads, 2) $name(
    const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ out, long long n, long long m, long long d
) {
    __shared__ __align__(16) T left[DEPTH][EDGE + 4];
    __shared__ __align__(16) T right[DEPTH][EDGE + 4];
    const long long blocks = (m + EDGE - 1) / EDGE;
    const long long top = blockIdx.x / blocks * EDGE, side = blockIdx.x % blocks * EDGE;
    const int x = threadIdx.x % 16, y = threadIdx.x / 16;
    double totals[4][4] = {};
    for (long long start = 0; start < d; start += DEPTH) {
        const long long feature = start + x;
        for (int i = y; i < EDGE; i += 16) {
            left[x][i] = feature < d && top + i < n ? a[(top + i) * d + feature] : T(0);
            right[x][i] = feature < d && side + i < m ? b[(side + i) * d + feature] : T(0);
        }
        __syncthreads();
        for (int first = 0; first < DEPTH; first += CHUNK) {
            T sums[4][4] = {};
            #pragma unroll 2
            for (int k = first; k < first + CHUNK; ++k) {
                const Four p = *(const Four*)&left[k][4 * y];
                const Four q = *(const Four*)&right[k][4 * x];
                #pragma unroll
                for (int i = 0; i < 4; ++i) {
                    #pragma unroll
                    for (int j = 0; j < 4; ++j) {
                        const T r = p.entries[i] - q.entries[j];
                        sums[i][j] += $term;
                    }
                }
            }
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                #pragma unroll
                for (int j = 0; j < 4; ++j) { totals[i][j] += sums[i][j]; }
            }
        }
        __syncthreads();
    }
    const long long column = side + 4 * x;
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        const long long row = top + 4 * y + i;
        if (row >= n || column >= m) { return; }
        Four answer;
        #pragma unroll
        for (int j = 0; j < 4; ++j) { answer.entries[j] = T(totals[i][j]); }
        T* place = out + row * m + column;
        if (m % 4 == 0) {
            *(Four*)place = answer;
        } else {
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                if (column + j < m) { place[j] = answer.entries[j]; }
            }
        }
    }
}
""")


def _source(name: str, term: str, number: str) -> str:
    sizes = {"edge": EDGE, "depth": DEPTH, "chunk": CHUNK, "threads": THREADS}
    return TEXT.substitute(sizes, name=name, term=term, number=number)


# Name of every kernel of this module -> its program.
KERNELS = {
    name: _source(name, term, number)
    for metric, term in TERMS.items()
    for dtype, number in NUMBERS.items()
    for name in [f"gpukpca_{metric}_{dtype}"]
}


def distances(a: Any, b: Any, metric: str) -> Any:
    """Return Σ term(a_ik - b_jk) over features k, for a (n, d) and b (m, d), shape (n, m)."""
    import cupy

    dtype = cupy.promote_types(a.dtype, b.dtype)
    (n, d), m = a.shape, b.shape[0]
    with a.device:  # a launch by addresses does not compare devices
        out = cupy.empty((n, m), dtype)
        if out.size:
            operands = (cupy.ascontiguousarray(a, dtype), cupy.ascontiguousarray(b, dtype))
            blocks = -(-n // EDGE) * -(-m // EDGE)
            _kernel(f"gpukpca_{metric}_{dtype.name}")((blocks,), (THREADS,), (*operands, out, n, m, d))
    return out


@cache
def _kernel(name: str) -> Any:
    import cupy

    return cupy.RawKernel(KERNELS[name], name)
