"""Every storage of K builds an operator of the same centered matrix, and states what it holds."""

from __future__ import annotations

import numpy as np
import pytest

from gpukpca.gram import CenteredGram, DenseGram, TiledGram
from gpukpca.gram.low_rank import LowRankGram
from gpukpca.gram.storage import DenseStorage, LandmarkStorage, LowRankStorage, Storage, StorageInput, TiledStorage
from gpukpca.kernels import Kernel, Linear, Precomputed
from gpukpca.kernels.user_defined import PairwiseCallable
from tests import oracle

N = 60
TILES = TiledStorage(N, 1, tile_edge=16, cached_tiles=3)
STORAGES = {
    "dense": (DenseStorage(N, 1), DenseGram),
    "tiled": (TILES, TiledGram),
    "low rank": (LowRankStorage(N, 1, rank=4), LowRankGram),
    "landmarks": (LandmarkStorage(N, 1, rank=4, sample=N, source=TILES), TiledGram),
}


def rows() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((N, 4)) + 1e6


@pytest.mark.parametrize("name", STORAGES)
def test_every_storage_builds_the_centered_matrix(xp, name):
    storage, operator = STORAGES[name]
    X = rows()
    centered = X - X.mean(axis=0)
    gram = storage.build(StorageInput(Linear(), xp.array(X)))
    assert isinstance(gram, operator)
    np.testing.assert_allclose(xp.host(CenteredGram(gram).to_dense()), centered @ centered.T, atol=1e-9)


@pytest.mark.parametrize(
    "kernel", [Precomputed(), PairwiseCallable(lambda x, y: float(x @ y))], ids=["matrix", "function"]
)
def test_kernels_that_must_be_stored_are_built_dense(kernel: Kernel):
    X = np.random.default_rng(1).standard_normal((N, 3))
    K = X @ X.T
    gram = DenseStorage(N, 1).build(StorageInput(kernel, K if isinstance(kernel, Precomputed) else X))
    assert gram.rows is None
    np.testing.assert_allclose(CenteredGram(gram).to_dense(), oracle.centered(K), atol=1e-12)


@pytest.mark.parametrize(
    ("storage", "held", "recomputed", "rank"),
    [
        (DenseStorage(N, 1), N * N, 0, N),
        (TILES, 3 * 16**2, 7, N),
        (TiledStorage(N, 1, tile_edge=16, cached_tiles=10), 6 * 16**2 + 3 * 16 * 12 + 12**2, 0, N),
        (LowRankStorage(N, 1, rank=4), 4 * N, 0, 4),
    ],
    ids=str,
)
def test_a_storage_states_what_it_holds(storage: Storage, held: int, recomputed: int, rank: int):
    assert storage.bytes_held(8) == 8 * held
    assert storage.recomputed_tiles == recomputed
    assert storage.is_fully_cached == (recomputed == 0)
    assert storage.rank_bound == rank
