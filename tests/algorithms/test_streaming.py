"""Data in a memory map: read by panels, never copied, the same answer, and as many bytes read as the plan says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gpukpca import KernelPCA, Nystrom
from gpukpca.backend.namespace import is_memory_map
from gpukpca.gram import gram_matrix
from gpukpca.gram.storage import TiledStorage
from gpukpca.gram.tiled import shifted_gram
from gpukpca.gram.tiling import tile_order, upper_tiles
from gpukpca.kernels import RBF, Cosine, Laplacian, Linear, Matern, Polynomial
from gpukpca.kernels.streamed import StreamedRows
from tests.each import each

KERNELS = [RBF(0.005), Laplacian(0.01), Linear(), Polynomial(2, 0.01), Cosine(), Matern(0.005), RBF(0.005) + Linear()]


@pytest.fixture
def data() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((1500, 120)).astype(np.float32) + 3.0


@pytest.fixture
def mapped(data: np.ndarray, tmp_path: Path) -> np.ndarray:
    np.save(tmp_path / "X.npy", data)
    return np.load(tmp_path / "X.npy", mmap_mode="r")


def tight(**parameters: object) -> KernelPCA:
    """A fit whose limit leaves no room for prepared rows, to a tolerance that float32 reaches."""
    return KernelPCA(3, kernel="rbf", gamma=0.002, random_state=0, tol=1e-4, memory_limit="2800kB", **parameters)


def test_memory_maps_are_recognized_behind_views(mapped: np.ndarray) -> None:
    assert is_memory_map(mapped)
    assert is_memory_map(np.asarray(mapped)[10:, ::2])
    assert not is_memory_map(np.array(mapped))


@each("count", [1, 2, 5, 8])
@each("panel", [0, 1, 2, 3, 9])
def test_every_order_of_tiles_has_each_upper_tile_once(count: int, panel: int) -> None:
    order = tile_order(count, panel)
    assert len(order) == len(set(order)) == upper_tiles(count, 1)
    assert all(i <= j < count for i, j in order)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: type(kernel).__name__)
def test_streamed_rows_give_the_operator_of_rows_in_memory(data, mapped, kernel) -> None:
    V = np.random.default_rng(1).standard_normal((len(data), 4)).astype(np.float32)
    V -= V.mean(axis=0)
    settings = {"cached_tiles": 2, "tile_edge": 200, "n_jobs": 2}
    held = shifted_gram(kernel, data, **settings)
    product, diagonal, chosen = held @ V, held.diagonal(), [0, 777, 1499]
    for panel in (1, 2, 100):
        read = shifted_gram(kernel, mapped, panel=panel, **settings)
        assert isinstance(read.rows, StreamedRows)
        np.testing.assert_allclose(read @ V, product, atol=4e-5 * float(np.abs(product).max()))
        np.testing.assert_allclose(read.diagonal(), diagonal, rtol=1e-6)
        np.testing.assert_allclose(read.columns(chosen), held.columns(chosen), atol=1e-5 * float(diagonal.max()))


@pytest.mark.parametrize(("jobs", "slack"), [(1, 1.1), (2, 1.6)])
@pytest.mark.parametrize("panel", [1, 2, 3, 20])
def test_a_pass_reads_as_many_rows_as_the_storage_says(mapped, panel: int, jobs: int, slack: float) -> None:
    op = shifted_gram(RBF(0.005), mapped, cached_tiles=0, tile_edge=100, n_jobs=jobs, panel=panel)
    storage = TiledStorage(1500, jobs, 100, 0, panel)
    V = np.ones((1500, 2), dtype=np.float32)
    op @ V
    # Two workers on tiles as small as these may be far apart, even in different panels.
    assert 1500 <= op.rows.rows_read <= slack * storage.rows_read


def test_the_answer_is_that_of_rows_in_memory(data: np.ndarray, mapped: np.ndarray) -> None:
    held = KernelPCA(3, kernel="rbf", gamma=0.002, random_state=0, tol=1e-4).fit(data)
    read = tight().fit(mapped)
    assert held.plan_.bytes_read == 0
    assert read.plan_.bytes_read > 0
    assert "from its file" in str(read.plan_)
    assert read.X_fit_ is mapped or np.may_share_memory(read.X_fit_, mapped)
    np.testing.assert_allclose(read.eigenvalues_, held.eigenvalues_, rtol=1e-4)
    new = data[:300] + 0.1
    np.testing.assert_allclose(read.transform(new), held.transform(new), atol=2e-3 * np.abs(held.transform(new)).max())
    np.testing.assert_allclose(read.transform(mapped), held.transform(data), atol=5e-3)


def test_a_small_memory_map_is_read_once_and_its_rows_held(mapped: np.ndarray) -> None:
    model = KernelPCA(3, kernel="rbf", gamma=0.002, random_state=0, tol=1e-4).fit(mapped)
    assert model.plan_.bytes_read == 0
    assert model.plan_.storage.panel == 0


def test_nystrom_reads_by_panels(data: np.ndarray, tmp_path: Path) -> None:
    settings = {"n_components": 3, "kernel": "rbf", "gamma": 0.002, "random_state": 0, "eigen_solver": Nystrom(rank=20)}
    np.save(tmp_path / "more.npy", data := np.concatenate([data, data[:, ::-1], data[:, ::-1] + 1.0]))
    mapped = np.load(tmp_path / "more.npy", mmap_mode="r")
    held = KernelPCA(**settings).fit(data)
    read = KernelPCA(**settings, memory_limit="4800kB").fit(mapped)
    assert read.plan_.storage.source.panel > 0
    np.testing.assert_array_equal(read.landmarks_, held.landmarks_)
    np.testing.assert_allclose(read.eigenvalues_, held.eigenvalues_, rtol=1e-4)
    assert not is_memory_map(read.X_fit_)  # the landmarks alone


def test_scores_go_to_a_memory_map(data: np.ndarray, mapped: np.ndarray, tmp_path: Path, sizes) -> None:
    sizes(SCORES_PANEL=400)
    model = KernelPCA(3, kernel="rbf", gamma=0.002, random_state=0, tol=1e-4).fit(data)
    out = np.lib.format.open_memmap(tmp_path / "Z.npy", mode="w+", dtype=np.float32, shape=(1500, 3))
    assert model.transform(mapped, out=out) is out
    out.flush()
    np.testing.assert_allclose(np.load(tmp_path / "Z.npy"), model.transform(data), atol=1e-5)


@pytest.mark.parametrize(
    "out",
    [
        np.empty((1499, 3), np.float32),
        np.empty((1500, 4), np.float32),
        np.empty((1500, 3), np.int64),
        [[0.0] * 3] * 1500,
        np.broadcast_to(np.float32(0), (1500, 3)),
    ],
    ids=["rows", "columns", "integers", "list", "read-only"],
)
def test_an_array_that_cannot_take_the_scores_is_refused(data: np.ndarray, out: object) -> None:
    model = KernelPCA(3, kernel="rbf", gamma=0.002, random_state=0, tol=1e-4).fit(data)
    with pytest.raises(ValueError, match=r"writable NumPy array .* shape \(1500, 3\)"):
        model.transform(data, out=out)


def test_a_memory_map_is_never_written_nor_copied(mapped: np.ndarray, tmp_path: Path) -> None:
    before = (tmp_path / "X.npy").read_bytes()
    model = KernelPCA(3, kernel="rbf", gamma=0.002, random_state=0, tol=1e-4, copy_X=True).fit(mapped)
    assert np.may_share_memory(model.X_fit_, mapped)
    assert (tmp_path / "X.npy").read_bytes() == before


def test_the_kernel_matrix_of_a_memory_map(data: np.ndarray, mapped: np.ndarray) -> None:
    np.testing.assert_allclose(gram_matrix(RBF(0.005), mapped), gram_matrix(RBF(0.005), data), atol=1e-6)
