"""Workers: tiles in a fixed order, and errors of any of them."""

from __future__ import annotations

import math
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from gpukpca import KernelPCA
from gpukpca.backend import parallel
from gpukpca.backend.parallel import (
    even_slices,
    map_tiles,
    occupied,
    single_threaded_blas,
    usable_cpus,
    worker_count,
)
from tests.hostile import forks, in_a_process


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("threads", [True, False])
def test_tiles_go_to_the_same_workers_with_and_without_threads(workers: int, threads: bool) -> None:
    seen: list[tuple[int, int]] = []
    results = map_tiles(lambda tile: tile * tile, list(range(10)), workers, threads=threads)
    assert results == [[tile * tile for tile in range(worker, 10, workers)] for worker in range(workers)]
    map_tiles(lambda tile: tile, list(range(10)), workers, lambda *counts: seen.append(counts), threads=threads)
    assert seen
    assert all(0 < done <= total == 10 for done, total in seen)


def test_workers_are_as_many_as_blas_has_threads_and_the_process_cpus(two_blas_threads: None) -> None:
    X = np.ones((2, 2))
    assert worker_count(X) == min(2, usable_cpus())
    with threadpool_limits(1, "blas"):
        assert worker_count(X) == 1
        assert worker_count(X, -1) == worker_count(X, usable_cpus() + 1) == usable_cpus()


def test_blas_is_held_and_released_by_whatever_thread_enters_and_leaves(two_blas_threads: None) -> None:
    def threads() -> list[int]:
        return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]

    before = threads()
    assert 2 in before
    with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:
        for enters, leaves in ((first, first), (first, second), (second, first)):
            context = single_threaded_blas()
            enters.submit(context.__enter__).result()
            assert set(threads()) == {1}
            leaves.submit(context.__exit__, None, None, None).result()
            assert threads() == before
        with single_threaded_blas():
            assert set(threads()) == {1}
        assert threads() == before


def blas_threads_of() -> list[int]:
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


@forks
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning", "ignore:.*fork:RuntimeWarning")
def test_a_process_forked_while_others_compute_has_all_threads_and_goes_on(
    two_blas_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread computes, or is about to: it counts the threads of BLAS when this one forks."""
    before, forking = blas_threads_of(), threading.Event()
    held, asked = threading.Event(), parallel._blas

    def slow() -> Any:
        held.set()
        forking.wait(10)
        return asked()

    def work() -> str:
        signal.alarm(10)  # ends a process that stands still
        inherited = blas_threads_of()
        with single_threaded_blas():
            inside = blas_threads_of()
        KernelPCA(1).fit(np.arange(12.0).reshape(6, 2) ** 2)
        return str((inherited, set(inside), blas_threads_of()))

    os.register_at_fork(before=forking.set)
    with ThreadPoolExecutor(1) as other:
        context = single_threaded_blas()
        other.submit(context.__enter__).result()
        assert in_a_process(work) == str((before, {1}, before))
        assert set(blas_threads_of()) == {1}
        other.submit(context.__exit__, None, None, None).result()
        assert blas_threads_of() == before
        forking.clear()
        with monkeypatch.context() as patch:
            patch.setattr(parallel, "_blas", slow)
            entered = other.submit(context.__enter__)
            held.wait(10)
            assert in_a_process(work) == str((before, {1}, before))
            entered.result()
        other.submit(context.__exit__, None, None, None).result()
    assert blas_threads_of() == before


@forks
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning", "ignore:.*fork:RuntimeWarning")
def test_a_thread_that_forks_in_its_own_work_leaves_it_in_the_child(two_blas_threads: None) -> None:
    before = blas_threads_of()

    def work() -> str:
        context.__exit__(None, None, None)
        with single_threaded_blas():
            inside = blas_threads_of()
        return str((set(inside), blas_threads_of()))

    context = single_threaded_blas()
    with context:
        assert in_a_process(work) == str(({1}, before))
        assert set(blas_threads_of()) == {1}
    assert blas_threads_of() == before


def test_little_work_stays_in_the_calling_thread(two_blas_threads: None, sizes: Callable[..., None]) -> None:
    sizes(MULTIPLICATIONS_A_THREAD=100)
    assert [occupied(4, work) for work in (0, 199, 200, 399, 1e9, math.inf)] == [1, 1, 2, 3, 4, 4]
    assert [worker_count(np.ones(2), 2, work) for work in (199, 200)] == [1, min(2, usable_cpus())]


@pytest.mark.parametrize("culprit", [0, 1, 2, 9])
def test_an_error_in_any_worker_comes_out(culprit: int) -> None:
    def work(tile: int) -> None:
        if tile == culprit:
            raise OverflowError(f"tile {tile}")

    with pytest.raises(OverflowError, match=f"tile {culprit}"):
        map_tiles(work, list(range(10)), 3)


@pytest.mark.parametrize(("n", "longest", "workers"), [(0, 4, 2), (1, 4, 3), (7, 4, 1), (13, 4, 2), (100, 7, 3)])
def test_even_slices_load_all_workers_alike(n: int, longest: int, workers: int) -> None:
    slices = even_slices(n, longest, workers)
    lengths = [stop - start for start, stop in slices]
    assert [row for start, stop in slices for row in range(start, stop)] == list(range(n))
    assert all(0 < length <= longest for length in lengths)
    assert len(set(lengths[:-1])) <= 1
    assert len(slices) <= -(-n // (longest * workers)) * workers
