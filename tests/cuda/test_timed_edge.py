"""The edge of tiles on a card by three timed tiles: when they are timed, what follows, and how that is forbidden."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpukpca import Checkpoint, KernelPCA
from gpukpca._container import read_container, write_container
from gpukpca._process import state
from gpukpca.checkpoint import KIND
from gpukpca.cuda import device as cuda_device
from tests.datasets import data

N, USUAL = 600, 64  # 55 tiles


@pytest.fixture
def rows(stand_in: Any, timings: None, sizes: Any) -> Any:
    sizes(GPU_TILE_EDGES=(USUAL, USUAL))
    state.product_rates[0] = 48e12, 48e12
    return stand_in.asarray(data(N, 5))


def takes(monkeypatch: pytest.MonkeyPatch, *seconds: float) -> list[int]:
    """Let tiles of the usual edge, half and a quarter of it take these times; return how often each was used."""
    calls: list[int] = []

    def time(work: Callable[[], Any], count: int) -> float:
        work()
        calls.append(count)
        return dict(zip((1, 4, 16), seconds, strict=True))[count]

    monkeypatch.setattr("gpukpca.gram.timed_edge.milliseconds", time)
    return calls


def model(**more: Any) -> KernelPCA:
    parameters = {"kernel": "rbf", "eigen_solver": "randomized", "gram": "tiled", "random_state": 0} | more
    return KernelPCA(4, **parameters)


def edge_of(fitted: KernelPCA) -> int:
    return int(fitted.plan_.storage.tile_edge)


def test_an_edge_that_is_a_tenth_faster_is_taken(rows: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = model().set_params(device="cuda").plan((N, 5))
    for seconds, edge in (((1.0, 0.92, 2.0), 64), ((1.0, 0.9, 1.0), 32), ((1.0, 0.8, 0.7), 16), ((0.1, 1.0, 1.0), 64)):
        state.tile_edges.clear()
        calls = takes(monkeypatch, *seconds)
        fitted = model().fit(rows)
        assert edge_of(fitted) == edge, seconds
        assert calls == [1, 4, 16]
        note = f"tiles of edge {edge} took less time than those of {USUAL}"
        assert (note in str(fitted.plan_)) == (edge < USUAL)
        again = model().fit(rows)  # nothing is timed twice
        assert (edge_of(again), len(calls)) == (edge, 3)
        assert "less time" not in str(model(gram="dense").fit(rows).plan_)  # whose tiles are of the usual edge
        assert model(device="cuda").plan((N, 5)).storage.tile_edge == edge
        monkeypatch.setenv("GPUKPCA_TIMED_CHOICES", "0")
        plain = model().fit(rows)
        assert (edge_of(plain), len(calls)) == (USUAL, 3)
        assert model(device="cuda").plan((N, 5)).storage == usual.storage
        monkeypatch.setenv("GPUKPCA_TIMED_CHOICES", "1")
        np.testing.assert_allclose(fitted.eigenvalues_.get(), plain.eigenvalues_.get(), rtol=1e-10)
        np.testing.assert_allclose(fitted.transform(rows).get(), plain.transform(rows).get(), atol=1e-6)


def test_every_kind_of_tile_is_timed(rows: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = takes(monkeypatch, 1.0, 0.5, 1.0)
    fits: list[tuple[Any, dict[str, Any]]] = [
        (rows, {}),
        (rows.astype(np.float32), {}),
        (rows[:, :3], {}),
        (rows, {"kernel": "laplacian"}),
        (rows, {"kernel": "poly"}),
    ]
    for number, (X, parameters) in enumerate(fits):
        assert edge_of(model(**parameters).fit(X)) == USUAL // 2
        assert (len(calls), len(state.tile_edges)) == (3 * number + 3, number + 1)
    assert edge_of(model().fit(rows[:, :4])) == USUAL // 2  # as many features to a power of two
    assert len(calls) == 3 * len(fits)
    # Few tiles, rows on the host, and square matrices are not timed.
    model(kernel="cosine").fit(rows[: 7 * USUAL])
    model(kernel="cosine").fit(rows.get())
    model(kernel="cosine", gram="dense").fit(rows)
    assert len(calls) == 3 * len(fits)


def test_a_resumed_fit_keeps_its_edge(rows: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    takes(monkeypatch, 1.0, 1.0, 0.5)
    fitted = model(checkpoint=Checkpoint(tmp_path / "job", interval=0)).fit(rows)
    state.reset()  # another process
    state.product_rates[0] = 48e12, 48e12
    calls = takes(monkeypatch, 1.0, 0.5, 1.0)
    resumed = model(checkpoint=tmp_path / "job").fit(rows)
    assert edge_of(fitted) == edge_of(resumed) == 16
    assert calls == []
    np.testing.assert_array_equal(resumed.eigenvalues_.get(), fitted.eigenvalues_.get())
    kinds = list(state.tile_edges)
    for forged in ([16], *(dict.fromkeys(kinds, edge) for edge in (0, -1, True, 16.0, "16", None))):
        for path in (tmp_path / "job").glob("state-*"):
            header, arrays = read_container(path, KIND)
            write_container(path, KIND, header | {"tile_edges": forged}, arrays)
        state.tile_edges.clear()
        assert edge_of(model(checkpoint=tmp_path / "job").fit(rows)) == USUAL // 2, forged


def test_events_time_tiles(rows: Any) -> None:
    done: list[int] = []
    assert 0.0 <= cuda_device.milliseconds(lambda: done.append(1), 3) < 1e5
    assert len(done) == 3
    assert edge_of(model().fit(rows)) in (16, 32, 64)
    assert next(iter(state.tile_edges.values())) in (16, 32, 64)
