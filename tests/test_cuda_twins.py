"""Fused epilogues and distance loops beside their generic twins; their text is what a GPU compiles."""

from __future__ import annotations

import re
import shutil
import subprocess
from itertools import product
from pathlib import Path

import fake_cupy
import numpy as np
import pytest
from tolerances import eps, orthogonality

from gpukpca.backend import elementwise, linalg
from gpukpca.backend.orthonormal import orthonormal_factors, shifted_cholesky_qr
from gpukpca.cuda import distances, eigh
from gpukpca.cuda import elementwise as fused
from gpukpca.gram import TiledGram
from gpukpca.kernels import RBF, Laplacian

EDGE = 64
SIZES = [1, EDGE - 1, EDGE, EDGE + 1]
DTYPES = ["float64", "float32"]
# Twin -> (function of (T, dtype of the answer), parameters are fixed). T is -gamma ‖x - y‖², or inner products.
OF_DISTANCES = {
    "gaussian": lambda T, dtype: elementwise.gaussian(T, False, 1.0, dtype),
    "gaussian, scaled": lambda T, dtype: elementwise.gaussian(T, False, 0.25, dtype),
    "gaussian, flat": lambda T, dtype: elementwise.gaussian(T, True, 1.0, dtype),
    "rational quadratic": lambda T, dtype: elementwise.rational_quadratic(T, 1.5, False, dtype),
    "rational quadratic, flat": lambda T, dtype: elementwise.rational_quadratic(T, 1.5, True, dtype),
    **{f"matern {nu}": lambda T, dtype, nu=nu: elementwise.matern(T, nu, dtype) for nu in (0.5, 1.5, 2.5)},
}
OF_PRODUCTS = {
    **{f"polynomial {k}": lambda T, k=k: elementwise.polynomial(T, 0.5, k) for k in (0, 1, 2, 3, 7)},
    "sigmoid": lambda T: elementwise.sigmoid(T, 0.5),
}


def squared_distances(n: int, m: int) -> np.ndarray:
    """-‖x - y‖² with duplicates (0, and rounding above it), tiny, ordinary and huge values."""
    T = -np.random.default_rng(n * m).exponential(size=(n, m)) * np.logspace(-12, 4, m)[None, :]
    T[0, 0] = 1e-17
    T[-1, -1] = -1e30
    return T


@pytest.mark.parametrize(("n", "wide", "dtype"), [*product(SIZES, DTYPES, DTYPES)])
@pytest.mark.parametrize("name", OF_DISTANCES)
def test_epilogues_of_distances_equal_their_twins(cuda, name: str, n: int, wide: str, dtype: str) -> None:
    if np.dtype(wide).itemsize < np.dtype(dtype).itemsize:
        pytest.skip("tiles are narrowed, never widened")
    T = squared_distances(n, EDGE).astype(wide)
    wanted = OF_DISTANCES[name](T.copy(), np.dtype(dtype))
    answer = OF_DISTANCES[name](cuda.asarray(T), np.dtype(dtype))
    assert answer.dtype == wanted.dtype == dtype
    # exp of T, and of what is added up in T: T itself is rounded once more where it is scaled.
    np.testing.assert_allclose(answer.get(), wanted, rtol=0, atol=8 * eps(dtype))
    assert np.all(answer.get() <= 1.0 + 4 * eps(dtype))


@pytest.mark.parametrize(("n", "dtype"), [*product(SIZES, DTYPES)])
@pytest.mark.parametrize("name", OF_PRODUCTS)
def test_epilogues_of_products_equal_their_twins(cuda, name: str, n: int, dtype: str) -> None:
    T = np.random.default_rng(n).standard_normal((n, EDGE)).astype(dtype)
    wanted = OF_PRODUCTS[name](T.copy())
    answer = OF_PRODUCTS[name](cuda.asarray(T))
    assert answer.dtype == dtype
    np.testing.assert_allclose(answer.get(), wanted, rtol=40 * eps(dtype), atol=8 * eps(dtype))


@pytest.mark.parametrize("name", OF_DISTANCES)
def test_epilogues_keep_nan(cuda, name: str) -> None:
    answer = OF_DISTANCES[name](cuda.asarray([[np.nan, -1.0]]), np.dtype("float64")).get()
    assert np.isnan(answer[0, 0])
    assert np.isfinite(answer[0, 1])


def test_an_epilogue_is_one_launch_in_place(fake_cuda) -> None:
    T = fake_cuda.asarray(squared_distances(EDGE, EDGE))
    elementwise.gaussian(T.copy(), False)  # whatever is done once
    with fake_cupy.launches() as made, fake_cupy.count_allocations() as allocated:
        answer = elementwise.gaussian(T, False)
    assert (made.count, allocated.count) == (1, 0)
    assert answer is T


@pytest.mark.parametrize(("n", "dtype"), [*product([0, *SIZES], DTYPES)])
@pytest.mark.parametrize("metric", ["cityblock", "sqeuclidean"])
def test_distances_by_differences_equal_their_twins(cuda, metric: str, n: int, dtype: str) -> None:
    function = {"cityblock": linalg.cityblock_distances, "sqeuclidean": linalg.squared_distances}[metric]
    rng = np.random.default_rng(n)
    a, b = rng.standard_normal((n, 7)).astype(dtype), rng.standard_normal((EDGE + 1, 7)).astype(dtype)
    b[: min(n, EDGE)] = a[:EDGE]
    answer = function(cuda.asarray(a), cuda.asarray(b)[:, :]).get()
    wanted = function(a.astype(np.float64), b.astype(np.float64))
    np.testing.assert_allclose(answer, wanted, rtol=4 * eps(dtype))
    assert np.all(np.diagonal(answer)[:EDGE] == 0.0)


@pytest.mark.parametrize("kernel", [RBF(0.1), Laplacian(0.1)], ids=["product", "differences"])
@pytest.mark.parametrize("n", [1, EDGE - 1, EDGE, EDGE + 1, 2 * EDGE, 3 * EDGE + 1])
def test_tiles_on_a_device_equal_tiles_on_the_host(cuda, kernel, n: int) -> None:
    rng = np.random.default_rng(n)
    X, V = rng.standard_normal((n, 5)), rng.standard_normal((n, 3))
    X[n // 2 :] = X[: n - n // 2]
    wanted = TiledGram(kernel, X, tile_edge=EDGE) @ V
    for cached in (0, 2, 100):
        op = TiledGram(kernel, cuda.asarray(X), tile_edge=EDGE, cached_tiles=cached)
        for _ in range(2):
            np.testing.assert_allclose((op @ cuda.asarray(V)).get(), wanted, rtol=0, atol=1e-12 * n)


# -- orthonormal blocks ------------------------------------------------------------------------------------------------

BLOCKS = {
    "ordinary": lambda rng, n, b: rng.standard_normal((n, b)),
    "condition 1e12": lambda rng, n, b: (
        np.linalg.qr(rng.standard_normal((n, b)))[0] * np.logspace(0, -12, b) @ rng.standard_normal((b, b))
    ),
    "half the rank": lambda rng, n, b: rng.standard_normal((n, b // 2)) @ rng.standard_normal((b // 2, b)),
    "duplicates": lambda rng, n, b: np.repeat(rng.standard_normal((n, b // 2)), 2, axis=1),
    "a zero column": lambda rng, n, b: rng.standard_normal((n, b)) * (np.arange(b) != 3),
    "graded": lambda rng, n, b: rng.standard_normal((n, b)) * np.logspace(0, -30, b),
    "nearly dependent": lambda rng, n, b: rng.standard_normal((n, 1)) + 1e-9 * rng.standard_normal((n, b)),
    "zero": lambda rng, n, b: np.zeros((n, b)),
    "tiny": lambda rng, n, b: 1e-30 * rng.standard_normal((n, b)),
}


@pytest.mark.parametrize(("n", "b"), [(8, 8), (50, 8), (300, 24)])
@pytest.mark.parametrize("name", BLOCKS)
def test_shifted_cholesky_qr_whatever_the_condition(xp, dtype: str, name: str, n: int, b: int) -> None:
    V = BLOCKS[name](np.random.default_rng(n), n, b).astype(dtype)
    Q, R = shifted_cholesky_qr(xp.array(V))
    Q, V = xp.host(Q).astype(np.float64), V.astype(np.float64)
    assert Q.shape[1] == R.shape[0] <= b
    np.testing.assert_allclose(Q.T @ Q, np.eye(Q.shape[1]), rtol=0, atol=orthogonality(dtype, xp.name))
    # What is left out lies below 1e-11 of the largest direction.
    size = np.linalg.norm(V)
    assert np.linalg.norm(V - Q @ R) <= (40 * eps(dtype) + 1e-11) * size
    sizes = np.linalg.svd(V, compute_uv=False)[: len(R)]
    np.testing.assert_allclose(np.linalg.svd(R, compute_uv=False), sizes, rtol=0, atol=100 * eps(dtype) * size)


@pytest.mark.parametrize(("name", "rank"), [("half the rank", 12), ("duplicates", 12), ("a zero column", 23)])
def test_the_rank_is_seen(name: str, rank: int) -> None:
    Q, R = shifted_cholesky_qr(BLOCKS[name](np.random.default_rng(0), 3000, 24))
    assert Q.shape == (3000, rank)
    assert R.shape == (rank, 24)


def test_blocks_on_a_device_need_no_householder(cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda.linalg, "qr", None)
    V = np.random.default_rng(0).standard_normal((500, 6))
    Q, R = orthonormal_factors(cuda.asarray(V))
    np.testing.assert_allclose(Q.get() @ R, V, rtol=0, atol=1e-13)


# -- the text itself ---------------------------------------------------------------------------------------------------


def cuda_source() -> str:
    """Every operation as a CUDA kernel, for all types that the library uses them with."""
    kernels = ["typedef long long int64;\ntypedef double float64;\n"]
    for wide, narrow in (("double", "double"), ("float", "float"), ("double", "float")):
        types = f"typedef {wide} W; typedef {narrow} T;"
        for name, (parameters, operation) in fused.OPERATIONS.items():
            named = re.sub(r"\bT ", f"{narrow} ", parameters)
            arguments = f"const {wide}* tile, {narrow}* answer, {named}"
            body = f"{types} W t = tile[i]; T& y = answer[i]; {operation};"
            kernels.append(kernel(f"{name}_{wide}_{narrow}", arguments, body))
    for name, term in distances.TERMS.items():
        for number in ("float", "double"):
            arguments = f"const {number}* a, const {number}* bt, int64 d, int64 m, double* answer"
            body = f"double* out = answer; {distances.SUM.format(term=term)};"
            kernels.append(kernel(f"{name}_{number}", arguments, body))
    return "\n".join(kernels)


def kernel(name: str, arguments: str, body: str) -> str:
    loop = "for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < size; i += gridDim.x * blockDim.x)"
    return f'extern "C" __global__ void {name}(long long size, {arguments}) {{ {loop} {{ {body} }} }}'


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on the PATH")
def test_cuda_sources_compile(tmp_path: Path) -> None:
    source = tmp_path / "kernels.cu"
    source.write_text(cuda_source())
    done = subprocess.run(
        ["nvcc", "--ptx", "-Werror", "all-warnings", "-o", str(tmp_path / "kernels.ptx"), str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_every_operation_is_used() -> None:
    text = Path(fused.__file__).read_text()
    for name in fused.OPERATIONS:
        assert text.count(f'"{name}"') >= 2 or name.startswith("matern_")


# -- cuSOLVER ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", ["C", "F", "slice"])
def test_syevd_in_place(cuda, dtype: str, order: str) -> None:
    rng = np.random.default_rng(0)
    host = rng.standard_normal((30, 30))
    host = (host + host.T).astype(dtype)
    A = cuda.asarray(host)
    A = {"C": A, "F": A.T, "slice": cuda.concatenate([A, A], axis=1)[:, :30]}[order]
    values, vectors = eigh.syevd(A)
    vectors = vectors.get().astype(np.float64)
    assert values.dtype == np.float64
    assert np.all(np.diff(values) >= 0)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(30), rtol=0, atol=orthogonality(dtype, "cupy"))
    np.testing.assert_allclose(host @ vectors, vectors * values, rtol=0, atol=100 * eps(dtype) * np.abs(values).max())


def test_syevd_takes_no_second_matrix(cuda) -> None:
    A = cuda.eye(200)
    pool = cuda.get_default_memory_pool()
    before = pool.used_bytes()
    _, vectors = eigh.syevd(A)
    assert pool.used_bytes() - before < A.nbytes // 2
    assert vectors.data.ptr == A.data.ptr
