"""Fused epilogues and distance loops beside their generic twins; their text is what a GPU compiles."""

from __future__ import annotations

from functools import partial
from itertools import product

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from gpukpca.backend import blocking, elementwise, linalg
from gpukpca.backend.orthogonalization import orthonormal_factors, shifted_cholesky_qr
from gpukpca.cuda import distances, eigh
from gpukpca.cuda import elementwise as fused
from tests import cupy_device
from tests.each import each
from tests.kernel_listing import PREFIX
from tests.tolerances import eps, orthogonality

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


# Tiles as they lie in memory.
VIEWS = {
    "whole": lambda T: T,
    "unaligned": lambda T: T.reshape(-1)[1:].reshape(1, -1),
    "strided": lambda T: T[:, ::2],
    "transposed": lambda T: T.T,
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 3), (1, 4), (1, 5), (1, 127), (3, 43)])
def test_epilogues_are_one_function_for_all_strides(cuda, n: int, m: int, view: str) -> None:
    T = squared_distances(n, m)
    for wide, dtype in (("float32", "float32"), ("float64", "float64"), ("float64", "float32")):
        for name, function in OF_DISTANCES.items():
            given = VIEWS[view](cuda.asarray(T.astype(wide)))
            wanted = function(VIEWS[view](T.astype(wide)), np.dtype(dtype))
            answer = function(given, np.dtype(dtype))
            assert answer.dtype == dtype, name
            np.testing.assert_allclose(answer.get(), wanted, rtol=0, atol=8 * eps(dtype), err_msg=name)
    for function in OF_PRODUCTS.values():
        products = np.tanh(T)
        answer = function(VIEWS[view](cuda.asarray(products))).get()
        wanted = function(VIEWS[view](products.copy()))
        np.testing.assert_allclose(answer, wanted, rtol=40 * eps("float64"), atol=8 * eps("float64"))


@pytest.mark.parametrize("m", [2, 4, 7])
@pytest.mark.parametrize("name", OF_DISTANCES)
def test_epilogues_keep_nan(cuda, name: str, m: int) -> None:
    T = np.full((1, m), -1.0)
    T[0, [0, m - 1]] = np.nan, -2.0
    answer = OF_DISTANCES[name](cuda.asarray(T), np.dtype("float64")).get()
    np.testing.assert_array_equal(np.isnan(answer), np.isnan(T))


def test_an_epilogue_is_one_launch_in_place(stand_in) -> None:
    T = stand_in.asarray(squared_distances(EDGE, EDGE))
    elementwise.gaussian(T.copy(), False)  # whatever is done once
    with cupy_device.launches() as made, cupy_device.count_allocations() as allocated:
        answer = elementwise.gaussian(T, False)
    assert (made.count, allocated.count) == (1, 0)
    assert answer is T


# metric -> (function, its value in float64)
BY_DIFFERENCES = {
    metric: (partial(linalg.distances, metric=metric), partial(cdist, metric=metric))
    for metric in ("cityblock", "sqeuclidean")
}
# float32: the bound of `distances`, which no order of additions exceeds. float64: rounding of either side.
OF_DIFFERENCES = {"float32": 6 * eps("float32"), "float64": 64 * eps("float64")}
# What is read of rows that lie otherwise than the kernel takes them.
LAYOUTS = {
    "C": lambda x: x,
    "F": lambda x: x.T.copy().T,
    "slice": lambda x: x.repeat(2, axis=1)[:, ::2],
    "reversed": lambda x: x[::-1].copy()[::-1],
}


@pytest.mark.parametrize(
    ("n", "m"), [*product([0, 1, distances.EDGE - 1, distances.EDGE, distances.EDGE + 1], repeat=2), (68, 68)]
)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("metric", BY_DIFFERENCES)
def test_distances_by_differences_equal_their_twins(cuda, metric: str, dtype: str, n: int, m: int) -> None:
    function, twin = BY_DIFFERENCES[metric]
    rng = np.random.default_rng(n + m)
    a, b = rng.standard_normal((n, 7)).astype(dtype), rng.standard_normal((m, 7)).astype(dtype)
    equal = min(n, m)
    b[:equal] = a[:equal]
    answer = function(cuda.asarray(a), cuda.asarray(b))
    assert answer.dtype == dtype
    assert answer.shape == (n, m)
    np.testing.assert_allclose(answer.get(), twin(a, b), rtol=OF_DIFFERENCES[dtype])
    assert np.all(np.diagonal(answer.get()) == 0.0)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("d", [1, distances.CHUNK - 1, distances.CHUNK, distances.DEPTH, distances.DEPTH + 1, 40])
@pytest.mark.parametrize("metric", BY_DIFFERENCES)
def test_distances_of_any_width_and_layout(cuda, metric: str, d: int, layout: str) -> None:
    function, twin = BY_DIFFERENCES[metric]
    rng = np.random.default_rng(d)
    a, b = rng.standard_normal((70, d)), rng.standard_normal((6, d)).astype("float32")
    on_device = [LAYOUTS[layout](cuda.asarray(x)) for x in (a, b)]
    np.testing.assert_allclose(function(*on_device).get(), twin(a, b), rtol=OF_DIFFERENCES["float64"])
    np.testing.assert_array_equal(function(*on_device[::-1]).get(), function(*on_device).get().T)
    assert function(*on_device).flags.c_contiguous
    b64, ones = b.astype("float64"), LAYOUTS[layout](cuda.asarray(a.astype("float32")))
    wanted = twin(a.astype("float32").astype("float64"), b64)
    np.testing.assert_allclose(function(ones, on_device[1]).get(), wanted, rtol=OF_DIFFERENCES["float32"])


@pytest.mark.parametrize("metric", BY_DIFFERENCES)
def test_sums_over_many_features_keep_the_digits_of_float32(cuda, metric: str) -> None:
    """One sum in float32 would lose digits as the number of features grows."""
    function, twin = BY_DIFFERENCES[metric]
    a = np.random.default_rng(0).uniform(1.0, 2.0, (3, 20_000)).astype("float32")
    b = np.zeros((2, 20_000), "float32")
    answer = function(cuda.asarray(a), cuda.asarray(b)).get()
    np.testing.assert_allclose(answer, twin(a.astype("float64"), b.astype("float64")), rtol=OF_DIFFERENCES["float32"])


def test_float32_rows_are_subtracted_in_float32_on_a_device(cuda) -> None:
    """A strip of float64 distances of float32 rows would take twice the memory and the time."""
    a = cuda.zeros((5, 3), "float32")
    assert linalg.differences_dtype(a, a) == cuda.float32
    assert linalg.differences_dtype(a, cuda.zeros((5, 3))) == cuda.float64
    host = np.zeros((5, 3), "float32")
    assert linalg.differences_dtype(host, host) == np.float64


def test_distances_of_nan_and_beyond_the_range(cuda) -> None:
    a = np.array([[np.nan, 0.0], [3e38, 0.0], [1.0, np.inf]], "float32")
    b = np.array([[0.0, 0.0], [-3e38, 0.0]], "float32")
    answer = linalg.distances(cuda.asarray(a), cuda.asarray(b), "cityblock").get()
    assert np.isnan(answer[0]).all()
    np.testing.assert_array_equal(answer[1:], np.array([[3e38, np.inf], [np.inf, np.inf]], "float32"))


# -- tall products -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("orders", ["CC", "CF", "FC", "FF"])
@pytest.mark.parametrize("n", [15, 16, 17, 64, 1000])
def test_tall_products_by_parts_equal_their_twin(cuda, sizes, n: int, orders: str) -> None:
    sizes(ROW_BLOCK_STAGES=8)
    sizes(ANSWER_TILE=4)
    rng = np.random.default_rng(n)
    for a, b in ((1, 1), (3, 1), (4, 8), (5, 3), (3, 0)):
        A, B = rng.standard_normal((n, a)), rng.standard_normal((n, b))
        on_device = [cuda.asarray(x, order=order) for x, order in zip((A, B), orders, strict=True)]
        answer = linalg.inner_products(*on_device)
        bound = 8 * n * eps("float64")
        np.testing.assert_allclose(answer, A.T @ B, rtol=0, atol=bound)
        np.testing.assert_array_equal(linalg.inner_products(*on_device), answer)
        own = linalg.inner_products(on_device[0], on_device[0])
        np.testing.assert_allclose(own, A.T @ A, rtol=0, atol=bound)
        columns = linalg.inner_products(on_device[0][:, ::2], on_device[1])
        np.testing.assert_allclose(columns, A[:, ::2].T @ B, rtol=0, atol=bound)


def test_tall_products_are_cut_for_the_whole_card_without_a_copy(stand_in, sizes) -> None:
    n, b = 2 * blocking.ROW_BLOCK_STAGES + 1, 3
    for dtype in DTYPES:
        V = stand_in.asarray(np.random.default_rng(0).standard_normal((n, b)).astype(dtype))
        linalg.inner_products(V, V)  # whatever is done once
        with cupy_device.launches() as made, cupy_device.peak_bytes() as most:
            linalg.inner_products(V, V)
        assert made.products.count("cublasDgemmStridedBatched") == 1
        if dtype == "float64":
            assert most.peak < V.nbytes // 2
    sizes(ANSWER_TILE=1)
    wide = stand_in.zeros((n, 23))
    with cupy_device.launches() as made:  # an answer of 529 tiles occupies a card by itself
        linalg.inner_products(wide, wide)
    assert made.products == ["cublasGemmEx"]


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


@each("n, b", [(8, 8), (50, 8), (300, 24)])
@each("name", BLOCKS)
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


def test_every_operation_is_used(stand_in) -> None:
    T = stand_in.asarray(-np.ones((1, 1)))
    with cupy_device.launches() as made:
        for of_distances in OF_DISTANCES.values():
            of_distances(T.copy(), T.dtype)
        for of_products in OF_PRODUCTS.values():
            of_products(T.copy())
    launched = {name.removeprefix(PREFIX) for name in made.names if name.startswith(PREFIX)}
    assert launched == set(fused.OPERATIONS)


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
