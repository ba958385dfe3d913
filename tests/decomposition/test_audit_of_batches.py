"""`residuals` of rows that are read by slices or in batches: the answer of the array, and never all rows at once."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from gpukpca import PCA, Batches, KernelPCA, Nystrom, residuals
from gpukpca.decomposition._batches import batches_of
from gpukpca.exceptions import InvalidParameterError
from gpukpca.kernels import RBF, Laplacian, Linear, Polynomial, Precomputed

NAMES = ("rayleigh_quotients", "residual_norms", "ritz_values", "landmark_eigenvalues", "trace", "trace_bound")
NAMES += ("norm_bound",)


class Sliced:
    """A set of rows that has shape, dtype and row slices alone, and notes what was read."""

    def __init__(self, A):
        self.A, self.shape, self.dtype = A, A.shape, A.dtype
        self.largest = self.read = self.calls = 0

    def __getitem__(self, rows):
        assert isinstance(rows, slice)
        part = self.A[rows]
        self.largest, self.read, self.calls = max(self.largest, len(part)), self.read + len(part), self.calls + 1
        return part


class Passes:
    """Passes that can be read any number of times, and the count of these."""

    def __init__(self, A, size):
        self.A, self.size, self.passes = A, size, 0

    def __iter__(self):
        self.passes += 1
        return (self.A[start : start + self.size] for start in range(0, len(self.A), self.size))


def points(n=400, d=6, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)) * np.linspace(2.0, 0.5, d)


def check_equal(found, expected, rtol=1e-9):
    for name in NAMES:
        one, other = getattr(found, name), getattr(expected, name)
        assert (one is None) == (other is None), name
        if one is not None:
            assert np.allclose(one, other, rtol=rtol, atol=1e-12 * expected.rayleigh_quotients[0]), name


@pytest.fixture
def small(sizes):
    """Slices of 50 rows of 6 features, tiles of 32, and panels of features."""
    sizes(READ_ENTRIES=300, CPU_TILE_EDGE=32, FEWEST_PIVOT_ROWS=7)


def test_sets_and_batches_have_the_audit_of_their_array(small, tmp_path):
    X = points()
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    landmarks = Nystrom(rank=15)
    for kernel, solver in (
        (RBF(0.05), "auto"),
        (RBF(0.05), landmarks),
        (RBF(1e-8), landmarks),  # relative to a base point
        (Laplacian(0.1), landmarks),
        (Polynomial(2, 0.1, 1.0), "auto"),
        (Linear(), "auto"),
    ):
        model = KernelPCA(3, kernel=kernel, eigen_solver=solver, random_state=0).fit(X)
        expected = residuals(model, X, passes=2, random_state=0)
        for container in (Sliced(X), mapped, Passes(X, 70), Batches([X[:10], X[10:350], X[350:]])):
            check_equal(residuals(model, container, passes=2, random_state=0, n_jobs=1), expected)
        rows, batches = Sliced(X), Passes(X, 70)
        for container in (rows, batches):
            residuals(model, container, random_state=0, n_jobs=1)
        assert rows.largest <= 50
        assert max(rows.read / len(X), batches.passes) < 10  # where memory holds the rows, K takes one of these
    model = PCA(3).fit(X)
    rows = Sliced(X)
    check_equal(residuals(model, rows), residuals(model, X))
    assert rows.largest <= 50


def test_every_dtype_and_many_threads_have_the_same_audit(small, threads_for_little):
    counts = np.random.default_rng(0).integers(0, 9, (300, 6))
    model = KernelPCA(3, kernel="rbf", gamma=0.02, eigen_solver=Nystrom(rank=15), random_state=0).fit(counts)
    expected = residuals(model, counts, random_state=0)
    for container in (Sliced(counts), Passes(counts, 40), Sliced(counts.astype("float64"))):
        check_equal(residuals(model, container, random_state=0, n_jobs=3), expected)
    narrow = residuals(model, counts.astype("float32"), random_state=0)
    for container in (Sliced(counts.astype("float32")), Passes(counts.astype("float32"), 40)):
        check_equal(residuals(model, container, random_state=0), narrow, rtol=1e-4)


def test_rows_of_a_set_are_read_with_those_after_them(small):
    X = points()
    batches, calls = batches_of(KernelPCA(), rows := Sliced(X)), rows.calls
    assert all(np.array_equal(batches.slice(start, start + 10), X[start : start + 10]) for start in range(0, 50, 10))
    assert rows.calls == calls + 1


def test_a_stream_is_audited_by_its_batches(small):
    X = points()
    for solver in (Nystrom(rank=15), Nystrom(landmarks=X[:12] + 0.1)):
        model = KernelPCA(3, kernel="rbf", gamma=0.05, eigen_solver=solver, random_state=0).fit(Passes(X, 90))
        check_equal(residuals(model, Passes(X, 60), random_state=0), residuals(model, X, random_state=0))


def test_rows_are_read_within_the_memory_limit_whatever_their_number(sizes):
    X, limit = points(2000, 1000), 14_000_000  # of 16 MB
    sizes(CPU_TILE_EDGE=100)
    model = RBF(5e-4), X[:, :2]
    settings = {"random_state": 0, "n_jobs": 1}
    expected = residuals(model, X, **settings)
    for container in (Sliced(X), Passes(X, 100)):
        events = []
        tracemalloc.start()
        found = residuals(model, container, memory_limit=limit, verbose=events.append, **settings)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < limit
        check_equal(found, expected)
        assert [event.done for event in events if event.stage == "pass"] == [1]
        tiles = [event for event in events if event.stage == "tiles"]
        assert tiles[-1].done == tiles[-1].total > 10


def test_features_of_the_linear_kernel_are_multiplied_batch_by_batch(sizes):
    X = points(4000, 100)
    sizes(READ_ENTRIES=10_000)
    model, rows = (Linear(), X[:, :1]), Sliced(X)
    expected = residuals(model, X)
    tracemalloc.start()
    found = residuals(model, rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    check_equal(found, expected)
    assert peak < X.nbytes / 2
    assert rows.largest <= 100
    assert rows.read <= 10 * len(X)


def test_what_cannot_be_read_again_is_refused_with_advice():
    X = points(40)
    model = KernelPCA(2, kernel="rbf", gamma=0.1).fit(X)
    for batches in (iter([X]), (part for part in [X[:20], X[20:]])):
        with pytest.raises(InvalidParameterError, match="residuals reads the batches more than once, and an"):
            residuals(model, batches)
    with pytest.raises(InvalidParameterError, match="X has 20 rows, and the model or the scores come from 40"):
        residuals(model, Batches([X[:20]]))
    with pytest.raises(InvalidParameterError, match="row 0 of X is not that of the fit"):
        residuals(model, Batches([X[20:], X[:20]]))
    K = X @ X.T
    for kernel, rows in (
        (Precomputed(), Batches([K[:20], K[20:]])),
        (lambda x, y: float(x @ y), Batches([X[:20], X[20:]])),
    ):
        with pytest.raises(InvalidParameterError, match="takes one array here, and X is an iterable of batches"):
            residuals((kernel, X), rows)
    check_equal(residuals((Precomputed(), X), Sliced(K)), residuals((Precomputed(), X), K))
