"""The fast parts of a pass beside their readable twins, at odd sizes: strips, constant features, panels, threads."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import numpy as np
import pytest

from gpukpca.backend import elementwise, linalg
from gpukpca.data.column_basis import ColumnBasis
from gpukpca.data.slicing import by_panels
from gpukpca.data.statistics import square_norm_sizes, variance_of_entries
from gpukpca.gram import TiledGram, gram_matrix, kernel_matmat
from gpukpca.gram.product import upper_triangle
from gpukpca.kernels import RBF, Laplacian, Matern, Polynomial, RationalQuadratic, Sigmoid
from tests import cupy_device, oracle
from tests.each import each
from tests.tolerances import eps

# name -> (kernel, the same of two rows)
ORACLES = {
    "rbf": (RBF(0.07), oracle.rbf(0.07)),
    "narrow rbf": (RBF(60.0), oracle.rbf(60.0)),  # its distances need float64 and come by strips
    "laplacian": (Laplacian(0.2), oracle.laplacian(0.2)),
    "matern1/2": (Matern(0.1, nu=0.5), oracle.matern(0.1, 0.5)),
    "matern5/2": (Matern(0.1, nu=2.5), oracle.matern(0.1, 2.5)),
    "rational_quadratic": (RationalQuadratic(0.3, alpha=1.5), oracle.rational_quadratic(0.3, 1.5)),
    "poly": (Polynomial(3, gamma=0.2), oracle.poly(3, 0.2, 1.0)),
    "sigmoid": (Sigmoid(gamma=0.1), oracle.sigmoid(0.1, 1.0)),
}
KERNELS = {name: kernel for name, (kernel, _) in ORACLES.items()}
DTYPES = ["float64", "float32"]


@contextmanager
def package_calls() -> Iterator[list[str]]:
    """Yield the names of functions of the package that this thread calls in the context."""
    names: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and "gpukpca" in frame.f_globals.get("__name__", ""):
            names.append(frame.f_code.co_name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield names
    finally:
        sys.setprofile(before)


@pytest.fixture
def small_strips(sizes) -> None:
    """Strips of eight rows, so that small tiles have many and a last short one."""
    sizes(STRIP_BYTES=1)


@pytest.mark.parametrize("rows", [1, 7, 8, 9, 16, 41])
def test_strips_equal_the_whole(small_strips, xp, rows: int) -> None:
    T = np.random.default_rng(0).standard_normal((rows, 5))
    answer = elementwise.in_strips(xp.array(T.copy()), lambda strip, _: strip * strip + 1.0)
    np.testing.assert_array_equal(xp.host(answer), T * T + 1.0)
    like = xp.array(np.zeros(0, dtype=np.float32))
    wide = xp.array(T)
    narrow = elementwise.from_strips((rows, 5), like, lambda start, stop, strip: 2.0 * wide[start:stop, :])
    assert narrow.dtype == like.dtype
    np.testing.assert_array_equal(xp.host(narrow), (2.0 * T).astype(np.float32))


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 31, 32, 33, 64, 97])
def test_a_pass_equals_the_plain_matrix_at_odd_sizes(small_strips, name: str, dtype: str, n: int) -> None:
    kernel, function = ORACLES[name]
    rng = np.random.default_rng(n)
    X = rng.standard_normal((n, 4)).astype(dtype)
    X[n // 2 :] = X[: n - n // 2]  # duplicates
    V = rng.standard_normal((n, 3)).astype(dtype)
    K = oracle.gram(function, X)
    wanted = K @ V.astype(np.float64)
    bound = 60 * eps(dtype) * np.abs(K).max() * np.abs(V).sum(axis=0).max()
    for jobs in (1, 2):
        op = TiledGram(kernel, X, tile_edge=32, cached_tiles=1, n_jobs=jobs)
        for _ in range(2):  # the second product takes its first tile from the cache
            np.testing.assert_allclose(op @ V, wanted, atol=bound)
        np.testing.assert_allclose(kernel_matmat(kernel, X, X, V, tile_edge=32, n_jobs=jobs), wanted, atol=bound)


# The kink of matern1/2 at zero needs differences for near pairs: the host looks at each strip for one.
@pytest.mark.parametrize("name", [name for name in KERNELS if name != "matern1/2"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cached", [0, 3, 100])
def test_a_pass_on_a_device_neither_waits_nor_uploads(stand_in, name: str, dtype: str, cached: int) -> None:
    X = stand_in.asarray(np.random.default_rng(0).standard_normal((40, 4)).astype(dtype))
    op = TiledGram(KERNELS[name], X, tile_edge=10, cached_tiles=cached)
    op @ X  # what is done once, and the cache
    with cupy_device.counted("waits") as waits, cupy_device.counted("copies_to_device") as uploads:
        op @ X
    assert (waits.count, uploads.count) == (1, 0)  # at the end of the call, so that a fault shows in it


def test_a_tile_on_a_device_takes_few_launches_and_few_calls(stand_in) -> None:
    X = stand_in.asarray(np.random.default_rng(0).standard_normal((128, 4)).astype(np.float32))
    for name in ("rbf", "matern5/2", "poly", "sigmoid", "laplacian"):
        # A tile is a product, a function, and two products that add to what is there. The rows and the diagonal of a
        # diagonal tile take eight more. Calls are those of this package's functions.
        for cached, launched, called in ((0, 4, 62 if name == "laplacian" else 48), (100, 2, 11)):
            op = TiledGram(KERNELS[name], X, tile_edge=16, cached_tiles=cached)
            op @ X
            with cupy_device.launches() as made, package_calls() as calls:
                op @ X
            assert made.count <= launched * op.tiles + 8 * (1 if cached else 8), (name, made.names)
            assert len(calls) <= called * op.tiles, (name, Counter(calls).most_common(12))


def test_products_of_tiles_add_to_their_sums(stand_in) -> None:
    rng = np.random.default_rng(0)
    T, V, total = (rng.standard_normal(shape) for shape in ((5, 7), (7, 3), (5, 3)))
    for dtype in DTYPES:
        for order in "CF":  # cuBLAS takes no strided memory: sums of such operands are made by CuPy
            t, v = (stand_in.asarray(a.astype(dtype), order=order) for a in (T, V))
            for operand, transposed in ((t, False), (t.T, True), (t.T.copy(), True)):
                start = stand_in.asarray(total.astype(dtype))
                answer = linalg.add_tile_product(start, operand, v, transposed)
                assert answer is start
                np.testing.assert_allclose(answer.get(), total + T @ V, atol=30 * eps(dtype))
            np.testing.assert_allclose(linalg.add_tile_product(None, t, v).get(), T @ V, atol=30 * eps(dtype))


# -- finished where they belong --------------------------------------------------------------------------------------


def small_edges(sizes) -> None:
    """Strips of eight rows on a device too, and tiles of 16 rows and columns."""
    sizes(GPU_STRIP_BYTES=1, GPU_TILE_EDGES=(16, 16))


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_tile_is_finished_in_its_place(stand_in, sizes, name: str, dtype: str) -> None:
    small_edges(sizes)
    kernel, X = KERNELS[name], np.random.default_rng(0).standard_normal((41, 4)).astype(dtype)
    rows = kernel.prepare(stand_in.asarray(X))
    wanted = kernel.tile(rows.slice(0, 19), rows).get()
    whole = stand_in.empty((30, 60), dtype)
    for out in (stand_in.empty((19, 41), dtype), whole[3:22, 7:48]):
        with cupy_device.launches() as made:
            answer = kernel.tile(rows.slice(0, 19), rows, out)
        assert answer is out
        # The kink at zero takes rows of near pairs, which are copied.
        assert not made.copies or not kernel.smooth_at_zero
        np.testing.assert_array_equal(out.get(), wanted)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_matrix_is_made_of_tiles_and_strips(cuda, sizes, name: str, dtype: str) -> None:
    small_edges(sizes)
    kernel, X = KERNELS[name], np.random.default_rng(0).standard_normal((41, 4)).astype(dtype)
    there = cuda.asarray(X)
    across, square = gram_matrix(kernel, there, there[:37, :]).get(), np.triu(upper_triangle(kernel, there).get())
    exact = oracle.gram(ORACLES[name][1], X)
    for K, wanted in ((across, exact[:, :37]), (square, np.triu(exact))):
        np.testing.assert_allclose(K, wanted, atol=60 * eps(dtype) * np.abs(exact).max())


# -- constant features -----------------------------------------------------------------------------------------------


def with_constants(n: int, dtype: str) -> np.ndarray:
    X = np.random.default_rng(5).standard_normal((n, 12)).astype(dtype)
    X[:, [0, 4, 5, 11]] = np.asarray([0.0, 0.1, 1e4, -3.0], dtype=dtype)
    return X


@each("dtype", DTYPES)
@each("name", ["rbf", "matern5/2", "matern1/2", "narrow rbf"])
def test_constant_features_are_left_out_and_change_nothing(xp, dtype: str, name: str) -> None:
    X, (kernel, function) = with_constants(40, dtype), ORACLES[name]
    rows = kernel.prepare(xp.array(X))
    if kernel.smooth_at_zero:
        padding = 2 if xp.name == "cupy" else 0  # to a multiple of four columns
        assert 8 + 2 <= rows.data.shape[1] <= 8 + 2 + padding
    np.testing.assert_allclose(xp.host(kernel(xp.array(X))), oracle.gram(function, X), atol=2000 * eps(dtype))


@each("factor", [1.0, 100.0, 1e6])
@each("dtype", DTYPES)
def test_new_rows_may_differ_in_features_that_were_constant(xp, dtype: str, factor: float) -> None:
    X, new = with_constants(40, dtype), with_constants(40, dtype)[:6]
    new[:, 0] += np.asarray(factor * 1e-2, dtype=dtype)
    new[3:, 4] -= np.asarray(factor * 2e-2, dtype=dtype)
    kernel = RBF(0.1)
    rows = kernel.prepare(xp.array(X))
    K = kernel.tile(kernel.prepare(xp.array(new), like=rows), rows)
    D = ((new.astype(np.float64)[:, None, :] - X.astype(np.float64)[None, :, :]) ** 2).sum(axis=2)
    np.testing.assert_allclose(xp.host(K), np.exp(-0.1 * D), atol=3e3 * eps(dtype))


def test_a_template_makes_the_rows_that_the_whole_makes(xp) -> None:
    for dtype in DTYPES:
        X = with_constants(50, dtype)
        for kernel in KERNELS.values():
            whole = kernel.prepare(xp.array(X), centered=True)
            template = kernel.template(xp.array(X), centered=True)
            assert template.n_rows == 0
            part = kernel.prepare(xp.array(X[10:30]), like=template)
            other = whole.slice(0, 50)
            np.testing.assert_array_equal(
                xp.host(kernel.tile(part, other)), xp.host(kernel.tile(whole.slice(10, 30), other))
            )


# -- panels ------------------------------------------------------------------------------------------------------------


def test_sums_over_panels_count_every_row_once(xp, sizes) -> None:
    sizes(PANEL_ROWS=16)
    X = np.random.default_rng(0).standard_normal((50, 3)) + 5.0
    assert variance_of_entries(xp.array(X)) == pytest.approx(X.var(), rel=1e-13)
    mean = xp.array(X.mean(axis=0))
    wanted = 4.0 * ((X - X.mean(axis=0)) ** 2).sum(axis=1).max()
    assert square_norm_sizes(xp.array(X), mean, 2.0)[0] == pytest.approx(wanted, rel=1e-13)
    doubled = by_panels(xp.array(X), lambda panel, *_: panel + panel)
    np.testing.assert_array_equal(xp.host(doubled), 2 * X)


# -- the growing basis -------------------------------------------------------------------------------------------------


def test_columns_grow_and_are_replaced(xp) -> None:
    blocks = [np.random.default_rng(k).standard_normal((20, 3)) for k in range(3)]
    columns = ColumnBasis.with_capacity(20, 9, xp.array(np.zeros(0)))
    for block in blocks:
        columns = columns.append(xp.array(block))
    whole, S = np.concatenate(blocks, axis=1), np.random.default_rng(9).standard_normal((9, 2))
    np.testing.assert_array_equal(xp.host(columns.array), whole)
    np.testing.assert_allclose(xp.host(columns.combine(S)), whole @ S, rtol=1e-13)
    np.testing.assert_allclose(columns.products_with(xp.array(whole)), whole.T @ whole, rtol=1e-12, atol=1e-13)
    columns = columns.replace_all(columns.combine(S))
    assert columns.count == 2
    np.testing.assert_allclose(xp.host(columns.array), whole @ S, rtol=1e-13)
