"""Part of smoke.py: products by cuBLAS with all types, compute types and math modes, and those that it refuses."""

from collections.abc import Callable

import cupy
import numpy as np
from comparisons import Array, Data, Report
from cupy.cuda import device
from cupy_backends.cuda.libs import cublas
from numpy.typing import NDArray

# cudaDataType and cublasComputeType_t
R_32F, R_64F, R_16F, R_8I, C_32F, R_32I, R_16BF = 0, 1, 2, 3, 4, 10, 14
COMPUTE_16F, COMPUTE_32F, PEDANTIC_32F, FAST_16F, FAST_16BF, FAST_TF32 = 64, 68, 69, 74, 75, 77
COMPUTE_64F, PEDANTIC_64F, COMPUTE_32I = 70, 71, 72
TENSOR_OP_MATH, PEDANTIC_MATH, TF32_MATH = 1, 2, 3


def tf32(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Round to 10 stored bits of the significand, ties away from zero."""
    bits = values.astype("f").view(np.uint32).astype(np.uint64)
    return ((bits + 0x1000) & 0xFFFFE000).astype(np.uint32).view(np.float32)


def bfloat16(values: Array) -> NDArray[np.uint16]:
    """Return the upper halves of float32 values, rounded to nearest, ties to even."""
    bits = values.astype("f").view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_bfloat16(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def scalar(value: float, compute: int) -> Array:
    """Return alpha or beta in the type that the compute type asks for."""
    kinds = {COMPUTE_64F: "d", PEDANTIC_64F: "d", COMPUTE_16F: "e", COMPUTE_32I: "i"}
    return np.array(value, kinds.get(compute, "f"))


def gemm_ex(
    a: Array, b: Array, c: Array, types: tuple[int, int, int], compute: int, factors: tuple[float, float] = (1, 0)
) -> Array:
    """Return alpha·a·b + beta·c of row-major matrices by cublasGemmEx, which sees their transposes."""
    (rows, inner), columns = a.shape, b.shape[1]
    x, y, z = cupy.asarray(np.ascontiguousarray(a)), cupy.asarray(np.ascontiguousarray(b)), cupy.asarray(c)
    alpha, beta = scalar(factors[0], compute), scalar(factors[1], compute)
    cublas.gemmEx(
        device.get_cublas_handle(), 0, 0, columns, rows, inner, alpha.ctypes.data,
        y.data.ptr, types[1], columns, x.data.ptr, types[0], inner, beta.ctypes.data,
        z.data.ptr, types[2], columns, compute, -1,
    )  # fmt: skip
    return cupy.asnumpy(z)


def half_sums(a: NDArray[np.float16], b: NDArray[np.float16]) -> NDArray[np.float16]:
    """Return a·b with sums that are rounded to float16 after each term."""
    sums = np.zeros((len(a), b.shape[1]), "e")
    for k in range(a.shape[1]):
        sums = (sums.astype("f") + a[:, k : k + 1].astype("f") * b[k].astype("f")).astype("e")
    return sums


def compare_products(report: Report, data: Data) -> None:
    """Compare cublasGemmEx with products in float64 of rounded factors; without the rounding they differ by 1e-3."""
    a, b = data.a, np.ascontiguousarray(data.b.T)
    wide = a.astype("d"), b.astype("d")
    floats, zeros = (R_32F,) * 3, np.zeros((60, 60), "f")
    halves = a.astype("e"), b.astype("e")
    brains = bfloat16(a), bfloat16(b)
    brain_product = from_bfloat16(brains[0]).astype("d") @ from_bfloat16(brains[1]).astype("d")
    half_product = halves[0].astype("d") @ halves[1].astype("d")

    for name, compute in (("COMPUTE_64F", COMPUTE_64F), ("COMPUTE_64F_PEDANTIC", PEDANTIC_64F)):
        got = gemm_ex(*wide, np.ones((60, 60)), (R_64F,) * 3, compute, (2, -3))
        report.same(f"gemmEx, {name}: 2·a·b - 3·c in float64", got, 2 * wide[0] @ wide[1] - 3, 1e-12)
    for name, compute, factors in (
        ("COMPUTE_32F", COMPUTE_32F, wide),
        ("COMPUTE_32F_PEDANTIC", PEDANTIC_32F, wide),
        ("COMPUTE_32F_FAST_TF32", FAST_TF32, (tf32(a).astype("d"), tf32(b).astype("d"))),
        ("COMPUTE_32F_FAST_16F", FAST_16F, (halves[0].astype("d"), halves[1].astype("d"))),
        ("COMPUTE_32F_FAST_16BF", FAST_16BF, (from_bfloat16(brains[0]), from_bfloat16(brains[1]))),
    ):
        got = gemm_ex(a, b, zeros + 1, floats, compute, (2, -3))
        expected = 2 * factors[0].astype("d") @ factors[1].astype("d") - 3
        report.same(f"gemmEx, {name}: 2·a·b - 3·c of float32 factors, rounded", got, expected, 2e-5)
    got = gemm_ex(*halves, zeros, (R_16F, R_16F, R_32F), COMPUTE_32F)
    report.same("gemmEx, COMPUTE_32F: float16 factors, float32 result", got, half_product, 1e-5)
    got = gemm_ex(*halves, np.zeros((60, 60), "e"), (R_16F,) * 3, COMPUTE_32F)
    report.same("gemmEx, COMPUTE_32F: float16 factors and result", got, half_product.astype("f").astype("e"), 1e-2)
    got = gemm_ex(*brains, zeros, (R_16BF, R_16BF, R_32F), COMPUTE_32F)
    report.same("gemmEx, COMPUTE_32F: bfloat16 factors, float32 result", got, brain_product, 1e-5)
    got = gemm_ex(*brains, np.zeros((60, 60), np.uint16), (R_16BF,) * 3, COMPUTE_32F)
    report.same("gemmEx, COMPUTE_32F: bfloat16 factors and result", from_bfloat16(got), brain_product, 7e-2)
    got = gemm_ex(*halves, np.zeros((60, 60), "e"), (R_16F,) * 3, COMPUTE_16F)
    report.same("gemmEx, COMPUTE_16F: float16 factors, sums in float16", got, half_sums(*halves))
    large = np.clip(halves[0] * 8192, -6e4, 6e4).astype("e")
    got = gemm_ex(large, halves[1], np.zeros((60, 60), "e"), (R_16F,) * 3, COMPUTE_32F)
    with np.errstate(over="ignore"):
        expected = (large.astype("f") @ halves[1].astype("f")).astype("e")
    report.same("gemmEx, COMPUTE_32F: which float16 results are infinite", np.isinf(got), np.isinf(expected))
    bytes_ = (np.round(a * 40)).astype(np.int8)[:, :32], (np.round(b * 40)).astype(np.int8)[:32]
    exact = bytes_[0].astype("l") @ bytes_[1].astype("l")
    got = gemm_ex(*bytes_, np.ones((60, 60), "i"), (R_8I, R_8I, R_32I), COMPUTE_32I, (2, 3))
    report.same("gemmEx, COMPUTE_32I: 2·a·b + 3·c of int8 factors in int32", got, 2 * exact + 3)
    got = gemm_ex(*bytes_, zeros, (R_8I, R_8I, R_32F), COMPUTE_32F)
    report.same("gemmEx, COMPUTE_32F: int8 factors, float32 result", got, exact)
    small = (a * np.float32(1e-7)).astype("f")
    got = gemm_ex(small, np.eye(33, dtype="f"), np.zeros((60, 33), "f"), floats, FAST_16F)
    report.same("rounding to denormal float16", got, small.astype("e").astype("f"))


def strided_product(a: NDArray[np.float16], b: NDArray[np.float16]) -> cupy.ndarray:
    """Return a·b of four pairs of row-major matrices by cublasGemmStridedBatchedEx, as float32."""
    (count, rows, inner), columns = a.shape, b.shape[2]
    x, y, out = cupy.asarray(a), cupy.asarray(b), cupy.empty((count, rows, columns), "f")
    one, zero = np.array(1, "f"), np.array(0, "f")
    cublas.gemmStridedBatchedEx(
        device.get_cublas_handle(), 0, 0, columns, rows, inner, one.ctypes.data,
        y.data.ptr, R_16F, columns, inner * columns, x.data.ptr, R_16F, inner, rows * inner, zero.ctypes.data,
        out.data.ptr, R_32F, columns, rows * columns, count, COMPUTE_32F, -1,
    )  # fmt: skip
    return out


def float32_product(handle: int, x: cupy.ndarray, y: cupy.ndarray, call: Callable[..., None]) -> cupy.ndarray:
    """Return xᵀ·y (both row-major) by sgemm or sgemmEx with a handle."""
    columns = x.shape[1]
    out = cupy.empty((columns, columns), "f", order="F")
    one, zero = np.array(1, "f"), np.array(0, "f")
    kind = () if call is cublas.sgemm else (R_32F,)
    call(
        handle, 0, 1, columns, columns, len(x), one.ctypes.data, x.data.ptr, *kind, columns, y.data.ptr, *kind, columns,
        zero.ctypes.data, out.data.ptr, *kind, columns,
    )  # fmt: skip
    return out


def compare_math_modes(report: Report, data: Data) -> None:
    a, b, x, y = data.a, data.b, data.x, data.y
    exact = a.T.astype("d") @ b.astype("d")
    by_tf32 = tf32(a).T.astype("d") @ tf32(b).astype("d")
    by_half = a.astype("e").T.astype("d") @ b.astype("e").astype("d")
    halves = a.astype("e").reshape(4, 15, 33), b.astype("e").reshape(4, 33, 15)
    expected = halves[0].astype("d") @ halves[1].astype("d")
    report.same("gemmStridedBatchedEx: float16 factors, float32 results", strided_product(*halves), expected, 1e-5)
    handle, other = cublas.create(), cublas.create()
    for name, mode, product in (
        ("default", 0, exact),
        ("TF32", TF32_MATH, by_tf32),
        ("tensor", TENSOR_OP_MATH, by_half),
        ("pedantic", PEDANTIC_MATH, exact),
    ):
        cublas.setMathMode(handle, mode)
        modes = np.array([cublas.getMathMode(handle), cublas.getMathMode(other)])
        report.same(f"getMathMode of a handle in {name} mode and of one in default mode", modes, [mode, 0])
        for call in (cublas.sgemm, cublas.sgemmEx):
            got = float32_product(handle, x, y, call)
            report.same(f"{call.__name__} with a handle in {name} mode", got, product, 2e-5)
        got = float32_product(other, x, y, cublas.sgemm)
        report.same("sgemm with the handle in default mode", got, exact, 2e-5)
    cublas.destroy(handle)
    cublas.destroy(other)
    linalg = cupy._core._routines_linalg
    linalg.set_compute_type(np.float32, linalg.COMPUTE_TYPE_TF32)
    report.same("matmul after CuPy's set_compute_type(float32, TF32)", x.T @ y, by_tf32, 2e-5)
    linalg.set_compute_type(np.float32, linalg.COMPUTE_TYPE_DEFAULT)
    report.same("matmul after CuPy's set_compute_type(float32, DEFAULT)", x.T @ y, exact, 2e-5)


def compare_refused_products(report: Report, data: Data) -> None:
    a, b, zeros = data.a, np.ascontiguousarray(data.b.T), np.zeros((60, 60), "f")
    halves, bytes_ = (a.astype("e"), b.astype("e")), (a.astype(np.int8), b.astype(np.int8))
    error = cublas.CUBLASError
    for what, types, compute, factors in (
        ("float16 and float32 factors", (R_16F, R_32F, R_32F), COMPUTE_32F, (halves[0], b)),
        ("float32 factors with COMPUTE_64F", (R_32F,) * 3, COMPUTE_64F, (a, b)),
        ("float16 factors with COMPUTE_32F_FAST_TF32", (R_16F, R_16F, R_32F), FAST_TF32, halves),
        ("float16 factors, float32 result with COMPUTE_16F", (R_16F, R_16F, R_32F), COMPUTE_16F, halves),
        ("int8 rows of 33 bytes with COMPUTE_32I", (R_8I, R_8I, R_32I), COMPUTE_32I, bytes_),
    ):
        report.refused(
            f"gemmEx of {what}",
            error,
            "CUBLAS_STATUS_NOT_SUPPORTED",
            lambda types=types, compute=compute, factors=factors: gemm_ex(*factors, zeros, types, compute),
        )
    handle, one, x = device.get_cublas_handle(), np.array(1, "f").ctypes, data.x
    arguments = (handle, 0, 0, 60, 60, 33, one.data, x.data.ptr, 59, x.data.ptr, 33, one.data, x.data.ptr, 60)
    report.refused("sgemm with lda 59 < 60", error, "CUBLAS_STATUS_INVALID_VALUE", lambda: cublas.sgemm(*arguments))
    report.refused("math mode 7", error, "CUBLAS_STATUS_INVALID_VALUE", lambda: cublas.setMathMode(handle, 7))
    complex_x, complex_y = x.astype("F"), data.y.T.astype("F")
    report.refused("a complex product", error, "cublasGemmEx with types 4 4 4", lambda: complex_x @ complex_y)
    syrk = (handle, 0, 0, 33, 60, one.data, x.data.ptr, 33, one.data, x.data.ptr, 33)
    report.refused(
        "a function that is not written", error, "cublasSsyrk_v2 is not written", lambda: cublas.ssyrk(*syrk)
    )
