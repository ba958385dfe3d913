"""Host rows that a device reads batch by batch, and checks of rows on it: waits, copies, memory, results."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from gpukpca import PCA, Batches, IncrementalPCA, KernelPCA, KernelPCACV, LocalPCA, Nystrom, ProbabilisticPCA
from gpukpca.backend import to_host
from gpukpca.backend.blocking import PerDevice
from gpukpca.data.finite import FINITE, check_finite, has_missing
from gpukpca.data.place import placement_for
from gpukpca.exceptions import DeviceFallbackWarning, InvalidParameterError, MemoryBudgetError
from tests import cupy_device


def data(n: int, d: int = 4, dtype: Any = np.float32) -> np.ndarray:
    return (np.random.default_rng(n).standard_normal((n, d)) * np.linspace(4.0, 1.0, d)).astype(dtype)


# -- checks on a device ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 64, 1000])
def test_a_check_of_entries_waits_once(stand_in: Any, sizes, n: int) -> None:
    host = data(n)
    X, counts = stand_in.asarray(host), np.arange(n) % 3 > 0
    sizes(PANEL_ENTRIES=PerDevice(2**20, 4 * 10))  # ten rows
    checks = {
        "finite": lambda X: check_finite(X, FINITE),
        "infinite": lambda X: check_finite(X, FINITE, missing=True),
        "missing": has_missing,
    }
    for check in checks.values():
        check(X)  # compiles
        with cupy_device.counted("waits") as waits, cupy_device.counted("copies_to_host") as copies:
            assert not check(X)
        assert (waits.count, copies.count) == ((1, 1) if n else (0, 0))
    for row in {0, n // 2, n - 1} if n else ():
        for value, kind in ((np.nan, "NaN"), (np.inf, "infinity")):
            bad = host.copy()
            bad[row, 2] = value
            X = stand_in.asarray(bad)
            with pytest.raises(
                InvalidParameterError, match=rf"{kind}.* 1 value\(s\), the first in row {row}, column 2"
            ):
                check_finite(X, FINITE)
            if kind == "NaN":
                check_finite(X, FINITE, missing=True)
                assert has_missing(X)
            else:
                with pytest.raises(InvalidParameterError, match=rf"row {row}, column 2"):
                    check_finite(X, FINITE, missing=True)
            if counts[row]:
                with pytest.raises(InvalidParameterError, match=rf"row {row}, column 2"):
                    check_finite(X, FINITE, counts=counts)
            else:
                check_finite(X, FINITE, counts=counts)


def test_waits_for_scores_do_not_grow_with_the_rows(stand_in: Any) -> None:
    X = stand_in.asarray(data(60_000))
    for model in (PCA(2), ProbabilisticPCA(2)):
        model.fit(X[:1000])
        counts = []
        for rows in (X[:1000], X):
            model.transform(rows)
            with cupy_device.counted("waits") as waits:
                model.transform(rows)
            counts.append(waits.count)
        assert counts[0] == counts[1] <= 10


# -- batches that are copied ahead -------------------------------------------------------------------------------------


def test_the_next_batch_is_copied_while_one_is_used(stand_in: Any, sizes) -> None:
    sizes(TRANSFER_BYTES=200)
    place = placement_for("cuda", data(1))
    for lengths in ([], [0], [5], [3, 0, 40, 1, 7], [1] * 9):
        parts = [data(n, 3 if dtype == np.float32 else 5, dtype) for n in lengths for dtype in (np.float32, np.float64)]
        with cupy_device.controls().change(late_copies=1):
            under_way, found = [], []
            for batch in place.batches_to_work(iter(parts)):
                under_way.append(cupy_device.controls().copies_under_way())
                found.append(batch * 1.0)  # work of the device, which waits for this batch alone
            assert cupy_device.controls().copies_under_way() == 0
        for one, part in zip(found, parts, strict=True):
            np.testing.assert_array_equal(one.get(), part)
        for ahead, part in zip(under_way, [*parts[1:], np.zeros(0)][: len(parts)], strict=True):
            assert (ahead > 0) == (part.size > 0)
        with cupy_device.controls().change(pins_memory=0):
            for one, part in zip(place.batches_to_work(parts), parts, strict=True):
                np.testing.assert_array_equal(one.get(), part)


def test_batches_that_are_held_keep_their_entries(stand_in: Any) -> None:
    """Memory of a batch that is gone may be that of the next one, which waits for the work on the first."""
    parts, place = [data(n) for n in (50, 60, 50, 60, 50)], placement_for("cuda", data(1))
    with cupy_device.controls().change(late_copies=1):
        held = list(place.batches_to_work(parts))
        sums = [batch.sum(axis=0) for batch in place.batches_to_work(parts)]
        unfinished = place.batches_to_work(parts)
        next(unfinished)
        with cupy_device.counted("waits") as waits:
            unfinished.close()  # pinned memory, which others may take at once, is read no more
        assert waits.count == 1
    for batch, total, part in zip(held, sums, parts, strict=True):
        np.testing.assert_array_equal(batch.get(), part)
        np.testing.assert_allclose(total.get(), part.sum(axis=0), rtol=0, atol=1e-3)


STREAMED = {
    "PCA": PCA(2),
    "randomized": PCA(2, svd_solver="randomized", random_state=0),
    "full": PCA(2, svd_solver="full"),
    "IncrementalPCA": IncrementalPCA(2, batch_size=2000),
    "ProbabilisticPCA": ProbabilisticPCA(2),
    "Nystrom": KernelPCA(2, kernel="rbf", gamma=0.01, eigen_solver=Nystrom(landmarks=data(10, 8, np.float64))),
}


@pytest.mark.parametrize("error", [OSError("the file is gone"), KeyboardInterrupt(), ZeroDivisionError()], ids=repr)
@pytest.mark.parametrize("at", [0, 1, 4])
def test_an_error_of_the_reader_arrives_as_it_is(stand_in: Any, error: BaseException, at: int) -> None:
    def parts() -> Iterator[np.ndarray]:
        for k in range(5):
            if k == at:
                raise error
            yield data(40 + k)

    threads, pool = threading.active_count(), stand_in.get_default_memory_pool()
    for model in (PCA(2, device="cuda"), IncrementalPCA(2, device="cuda")):
        held, before = pool.used_bytes(), dict(vars(model))
        with cupy_device.controls().change(late_copies=1), pytest.raises(type(error)) as caught:
            model.fit(Batches(parts))
        assert caught.value is error
        del caught
        error.__traceback__ = None
        assert cupy_device.controls().copies_under_way() == 0
        assert threading.active_count() <= threads
        assert pool.used_bytes() <= held  # less where memory of an earlier test is freed meanwhile
        assert vars(model) == before


# -- rows that exceed the memory of a device ---------------------------------------------------------------------------

# Rows of 8 features in float32, 1.8 MiB, and the bytes of a device that holds some of them at a time.
N, CARD = 60_011, 1800 * 2**10


def containers(X: np.ndarray, folder: Path) -> dict[str, Any]:
    np.save(folder / "X.npy", X)
    np.save(folder / "whole.npy", np.round(X).astype(np.int16))
    return {
        "array": X,
        "reversed": X[::-1, ::-1],
        "Fortran": np.asfortranarray(X.astype(np.float64)),
        "float16": X.astype(np.float16),
        "int": np.round(X).astype(np.int32),
        "map": np.load(folder / "X.npy", mmap_mode="r"),
        "map of int": np.load(folder / "whole.npy", mmap_mode="r"),
    }


def numbers_of(model: Any) -> list[np.ndarray]:
    names = ("components_", "explained_variance_", "mean_", "noise_variance_", "eigenvalues_", "n_samples_")
    return [np.asarray(vars(model)[name], dtype=np.float64) for name in names if name in vars(model)]


@pytest.mark.parametrize("name", STREAMED)
def test_rows_that_exceed_a_device_are_read_in_batches(stand_in: Any, tmp_path: Path, name: str) -> None:
    X = data(N, 8) + 0.5
    weights = np.arange(len(X)) % 4.0
    for kind, rows in containers(X, tmp_path).items():
        for sample_weight in (None, weights) if kind in ("array", "map") else (None,):
            model = clone(STREAMED[name]).set_params(device="cpu")
            wanted = model.fit(rows, sample_weight=sample_weight)
            scores = wanted.transform(rows)
            for device in ("cuda", "auto") if kind == "array" else ("cuda",):
                with cupy_device.device_bytes(CARD):
                    found = clone(model).set_params(device=device).fit(rows, sample_weight=sample_weight)
                assert found.device_.startswith("cuda")
                assert not getattr(found, "fallbacks_", ())
                for one, other in zip(numbers_of(found), numbers_of(wanted), strict=True):
                    np.testing.assert_allclose(one, other, rtol=0, atol=2e-4 * max(1.0, np.abs(other).max()))
                answer = found.transform(rows)
                answer *= np.sign(np.sum(answer * scores, axis=0))  # batches have no eigenvectors to choose it by
                np.testing.assert_allclose(answer, scores, rtol=0, atol=2e-3 * np.abs(scores).max())


@pytest.mark.parametrize("name", STREAMED)
def test_the_last_batch_is_checked(stand_in: Any, tmp_path: Path, name: str) -> None:
    X = data(N, 8)
    X[N - 2, 3] = np.nan
    np.save(tmp_path / "X.npy", X)
    for rows in (X, np.load(tmp_path / "X.npy", mmap_mode="r")):
        model = clone(STREAMED[name]).set_params(device="cuda")
        if name == "ProbabilisticPCA":
            model.set_params(solver="closed_form")
        with cupy_device.device_bytes(CARD), pytest.raises(ValueError, match=r"row 60009"):
            model.fit(rows)
    weights = (np.arange(len(X)) != N - 2).astype(float)
    with cupy_device.device_bytes(CARD):
        found = clone(STREAMED[name]).set_params(device="cuda").fit(X, sample_weight=weights)
    wanted = clone(STREAMED[name]).fit(np.delete(X, N - 2, axis=0))
    np.testing.assert_allclose(numbers_of(found)[0], numbers_of(wanted)[0], rtol=0, atol=2e-3)


def test_what_needs_all_rows_is_computed_on_the_cpu_or_refused(stand_in: Any) -> None:
    X = data(1500, 8)
    models = [
        KernelPCA(2, kernel="rbf", gamma=0.05, random_state=0),
        KernelPCA(2, kernel="rbf", gamma=0.05, eigen_solver="dense", fit_inverse_transform=True),
        LocalPCA(2, n_init=1, random_state=0),
        PCA(2, svd_solver="dual"),
    ]
    for model in models:
        wanted = clone(model).fit(X)
        for rows in (X, stand_in.asarray(X)):
            with cupy_device.device_bytes(500 * 2**10):
                if rows is X:
                    with pytest.raises(MemoryBudgetError, match=r"[KM]iB.* device=.auto. computes on the CPU"):
                        clone(model).set_params(device="cuda").fit(rows)
                with pytest.warns(DeviceFallbackWarning, match="does not fit into the memory of the device") as caught:
                    found = clone(model).set_params(device="auto").fit(rows)
            assert len(caught) == 1
            assert found.device_ == "cpu"
            assert found.fallbacks_[0].startswith("on the CPU: ")
            assert "KiB" in caught[0].message.values["reason"]
            np.testing.assert_allclose(to_host(found.transform(rows)), wanted.transform(X), rtol=0, atol=1e-3)
    with cupy_device.device_bytes(500 * 2**10), pytest.warns(DeviceFallbackWarning, match="does not fit"):
        plan = models[0].set_params(device="auto").plan(X)
    assert plan.device == "cpu"
    assert any(note.startswith("on the CPU: ") for note in plan.notes)


def test_a_plan_reads_rows_as_the_fit_does(stand_in: Any) -> None:
    X = data(N, 8)
    with cupy_device.device_bytes(CARD):
        for name in ("PCA", "Nystrom"):
            model = clone(STREAMED[name]).set_params(device="auto")
            plan = model.plan(X)
            assert plan.device.startswith("cuda")
            assert plan.predicted_bytes == model.fit(X).plan_.predicted_bytes <= plan.available_bytes
        with cupy_device.peak_bytes() as most:
            PCA(2, device="cuda").fit(X)
    assert most.peak <= 1.05 * PCA(2, device="cuda").fit(X).plan_.predicted_bytes


def test_scores_of_a_fit_in_batches_are_not_held_on_the_device(stand_in: Any, sizes) -> None:
    X = data(N, 8)
    sizes(READ_ENTRIES=8 * 2000, SCORES_PANEL=2000)
    for name in ("PCA", "Nystrom"):
        wanted = clone(STREAMED[name]).set_params(n_components=8).fit(X).transform(X)
        model = clone(STREAMED[name]).set_params(n_components=8, device="cuda")
        with cupy_device.device_bytes(CARD):
            scores = model.fit_transform(X)
        scores *= np.sign(np.sum(scores * wanted, axis=0))
        np.testing.assert_allclose(scores, wanted, rtol=0, atol=2e-3 * np.abs(wanted).max())


def test_plans_of_shapes_that_exceed_a_device(stand_in: Any) -> None:
    with cupy_device.device_bytes(48 * 2**20):
        for name in ("PCA", "Nystrom", "randomized"):
            plan = clone(STREAMED[name]).set_params(device="cuda").plan((1_000_000, 8), dtype="float32")
            assert plan.device.startswith("cuda")
            assert (plan.n_samples, plan.fits) == (1_000_000, True)


def test_long_rows_are_scored_by_slices_on_a_device(stand_in: Any, sizes) -> None:
    X = data(999, 8)
    models = [PCA(2), ProbabilisticPCA(2), LocalPCA(2, n_init=1, random_state=0)]
    for model in models:
        model.set_params(device="cuda").fit(X)
    names = ("transform", "score_samples")
    methods = {name: [getattr(model, name)(X) for model in models] for name in names}
    Z = models[0].transform(X)
    points = models[0].inverse_transform(Z)
    sizes(READ_ENTRIES=8 * 100)
    for name, answers in methods.items():
        for model, wanted in zip(models, answers, strict=True):
            np.testing.assert_allclose(getattr(model, name)(X), wanted, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(models[0].inverse_transform(Z), points, rtol=0, atol=1e-5)


def test_a_search_that_exceeds_a_device_is_made_on_the_cpu(stand_in: Any) -> None:
    X = data(900, 8)
    search = KernelPCACV(gammas=[0.001, 0.1], n_components=2, cv=3, random_state=0)
    wanted = clone(search).fit(X)
    for size in (20, 500):  # for the rows, and for the fits of candidates
        with cupy_device.device_bytes(size * 2**10):
            with pytest.raises(MemoryBudgetError, match=r"device=.auto. computes on the CPU"):
                clone(search).set_params(device="cuda").fit(X)
            with pytest.warns(DeviceFallbackWarning, match="does not fit into the memory of the device"):
                found = clone(search).set_params(device="auto").fit(X)
        assert found.best_params_ == wanted.best_params_
        assert found.best_estimator_.device_ == "cpu"
        assert found.best_score_ == pytest.approx(wanted.best_score_)
