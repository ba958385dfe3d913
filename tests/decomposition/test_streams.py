"""Kernel PCA of rows that are read once: any batches in any order are the fit of all rows, with a certificate."""

from __future__ import annotations

import itertools
import pickle
import tracemalloc

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.decomposition import PCA as PeerPCA
from sklearn.kernel_approximation import Nystroem

from gpukpca import PCA, Batches, IncrementalPCA, KernelPCA, Nystrom, ProbabilisticPCA, load
from gpukpca.data.batches import BatchedRows
from gpukpca.exceptions import (
    IndefiniteKernelError,
    InvalidParameterError,
    MemoryBudgetError,
    PrecisionWarning,
    RankWarning,
)
from gpukpca.gram.storage import LandmarkStorage
from gpukpca.kernels import RBF, Cosine, Laplacian, Linear, Matern, Polynomial, RationalQuadratic
from tests import oracle
from tests.decomposition.test_pca_of_batches import Stored

N, D, RANK, P = 240, 4, 25, 3
# Name -> the kernel, and a float64 function with the same centered matrix.
KERNELS = {
    "rbf": (RBF(0.05), lambda X, Y: np.exp(-0.05 * cdist(X, Y, "sqeuclidean"))),
    "flat": (RBF(1e-7), lambda X, Y: np.expm1(-1e-7 * cdist(X, Y, "sqeuclidean"))),
    "laplacian": (Laplacian(0.2), lambda X, Y: np.exp(-0.2 * cdist(X, Y, "cityblock"))),
    "poly": (Polynomial(6, 0.1, 1.0), lambda X, Y: (0.1 * X @ Y.T + 1.0) ** 6),
    "cosine": (Cosine(), lambda X, Y: 1.0 - cdist(X, Y, "cosine")),
    # The linear part is that of centered rows.
    "sum": (RBF(0.05) + 0.5 * Linear(), None),
}


@pytest.fixture
def X(rng):
    return rng.standard_normal((N, D)) * np.linspace(2.0, 0.5, D) + 0.5


def by_dtype(dtype, wide, narrow):
    """Return a tolerance of float64, or of float32."""
    return wide if np.dtype(dtype) == np.float64 else narrow


def model_of(kernel, landmarks, **settings):
    p = min(P, len(landmarks))
    return KernelPCA(p, kernel=kernel, eigen_solver=Nystrom(landmarks=landmarks), random_state=0, **settings)


def in_batches(model, batches):
    for batch in batches:
        model.partial_fit(batch)
    return model


def same(model, other, X, dtype):
    """Assert that two models have the same numbers, up to the signs of the components."""
    close = {"rtol": by_dtype(dtype, 1e-10, 2e-3), "atol": 0.0}
    largest = float(other.eigenvalues_[0])
    atol = by_dtype(dtype, 1e-11, 2e-4)
    np.testing.assert_allclose(model.eigenvalues_, other.eigenvalues_, rtol=0.0, atol=atol * largest)
    np.testing.assert_allclose(model.total_variance_, other.total_variance_, **close)
    scores, expected = model.transform(X), other.transform(X)
    np.testing.assert_allclose(np.abs(scores), np.abs(expected), atol=50 * atol * np.abs(expected).max())


@pytest.mark.parametrize("name", KERNELS)
def test_every_way_of_reading_the_rows_gives_one_fit(name, X):
    kernel, _ = KERNELS[name]
    for dtype in (np.float64, np.float32):
        rows = X.astype(dtype)
        first = KernelPCA(P, kernel=kernel, eigen_solver=Nystrom(rank=RANK), random_state=0).partial_fit(rows[:100])
        chosen = np.asarray(first.landmarks_)
        points = rows[chosen]
        # Of rows in memory the linear part of a sum is centered at their mean, else at that of the landmarks.
        whole = model_of(kernel, points if name == "sum" else chosen).fit(rows)
        parts = np.array_split(rows, [30, 31, 150])
        ways = {
            "stream": in_batches(first, [rows[100:130], rows[130:]]) if name != "sum" else whole,
            "points": model_of(kernel, points).fit(rows),
            "backwards": in_batches(model_of(kernel, points), parts[::-1]),
            "list": model_of(kernel, chosen).fit(Batches(parts)),
            "generator": model_of(kernel, points).fit(part for part in parts),
            "set": model_of(kernel, chosen, memory_limit="2MiB").fit(Stored(rows)),
        }
        for way, model in ways.items():
            same(model, whole, rows, dtype)
            assert model._result.n_samples == N, way
            if name != "flat":  # there all of it is rounding
                bound = by_dtype(dtype, 1e-9, 2e-2) * float(whole.eigenvalues_[0])
                assert model.certificate_ == pytest.approx(whole.certificate_, abs=bound), way
        # Rows in memory are read a second time for the eigenvectors, and none that were read once have any.
        vectors = ways["points"].eigenvectors_
        np.testing.assert_allclose(np.abs(vectors), np.abs(whole.eigenvectors_), atol=by_dtype(dtype, 1e-9, 5e-3))
        assert not any(hasattr(ways[way], "eigenvectors_") for way in ("backwards", "list", "generator", "set"))
        assert isinstance(ways["set"].plan_.storage, LandmarkStorage)


@pytest.mark.parametrize("name", [name for name, (_, function) in KERNELS.items() if function])
def test_the_numbers_are_those_of_the_definition(name, X, rng):
    kernel, function = KERNELS[name]
    off = X[rng.choice(N, 12, replace=False)] + 0.1 * rng.standard_normal((12, D))  # landmarks that are no rows
    for landmarks in (X[:12], off):
        model = in_batches(model_of(kernel, landmarks), np.array_split(X, 5))
        H = np.eye(N) - 1.0 / N
        K, C, W = function(X, X), function(X, landmarks), function(landmarks, landmarks)
        if name == "flat":  # relative to the base point, the mean of the landmarks
            s = np.asarray(model.X_fit_)[-1:]
            np.testing.assert_allclose(s[0], landmarks.mean(axis=0))
            C = C - function(X, s) - function(s, landmarks) + function(s, s)
            K = K - function(X, s) - function(s, X) + function(s, s)
            W = W - function(landmarks, s) - function(s, landmarks) + function(s, s)
        approximation = C @ scipy.linalg.pinvh(W, rtol=1e-11) @ C.T
        expected = np.linalg.eigvalsh(H @ approximation @ H)[::-1]
        exact = np.linalg.eigvalsh(H @ K @ H)[::-1]
        np.testing.assert_allclose(model.eigenvalues_, expected[:P], atol=1e-7 * expected[0])
        assert np.all(exact[:P] >= np.asarray(model.eigenvalues_) - 1e-9 * exact[0])
        missed = np.trace(K - approximation)
        assert model.certificate_ == pytest.approx(missed, rel=1e-5, abs=1e-7 * np.trace(K))
        low, high = model.total_variance_interval_
        assert low - 1e-9 * exact[0] <= exact.sum() / (N - 1) <= high + 1e-9 * exact[0]


def test_the_certificate_holds_for_random_streams():
    # The spectrum of each is known, and no bound is missed.
    for seed in range(30):
        rng = np.random.default_rng(seed)
        n, d = int(rng.integers(20, 90)), int(rng.integers(1, 6))
        X = rng.standard_normal((n, d)) * 10.0 ** rng.uniform(-1, 1)
        gamma = 10.0 ** rng.uniform(-5, 1) / np.var(X)
        first = int(rng.integers(6, n - 4))
        dtype = rng.choice([np.float32, np.float64])
        model = KernelPCA(2, kernel="rbf", gamma=gamma, eigen_solver=Nystrom(rank=int(rng.integers(2, 7))))
        with np.errstate(all="ignore"):
            model = in_batches(model.set_params(random_state=seed), np.split(X.astype(dtype), [first, n - 2]))
        K = np.exp(-gamma * cdist(X, X, "sqeuclidean"))
        H = np.eye(n) - 1.0 / n
        exact = np.linalg.eigvalsh(H @ K @ H)[::-1][:2]
        differences = exact - np.asarray(model.eigenvalues_, dtype=np.float64)
        rounding = by_dtype(dtype, 1e-9, 1e-3) * exact[0]
        assert differences.sum() <= model.certificate_ + rounding, (seed, differences, model.certificate_)
        assert np.all(differences >= -max(rounding, 0.0)), (seed, differences)


def test_the_certificate_grows_where_the_stream_leaves_the_landmarks(X):
    model = KernelPCA(P, kernel="rbf", gamma=0.05, eigen_solver=Nystrom(rank=RANK), random_state=0)
    near = float(model.partial_fit(X).certificate_)
    same_place = float(clone(model).partial_fit(X).partial_fit(X).certificate_)
    with pytest.warns(PrecisionWarning, match="the stream leaves its landmarks"):
        far = float(model.partial_fit(X + 30.0).certificate_)
    assert same_place == pytest.approx(2 * near, rel=1e-9)
    assert far > N / 2  # of the second half nothing is held


def test_a_stream_goes_on_after_it_was_kept(X, tmp_path):
    kernel = RBF(0.05)
    whole = in_batches(model_of(kernel, X[:20]), np.array_split(X, 4))
    begun = in_batches(model_of(kernel, X[:20]), np.array_split(X, 4)[:2])
    begun.save(tmp_path / "model")
    for kept in (load(tmp_path / "model"), pickle.loads(pickle.dumps(begun))):
        on = in_batches(kept, np.array_split(X, 4)[2:])
        assert (on.n_samples_seen_, on.plan_.n_samples) == (N, N)
        assert (on.plan_.storage.n, on.plan_.storage.keeps_factor) == (N, False)
        assert "rows of F are added up" in str(on.plan_)
        np.testing.assert_array_equal(on.transform(X), whole.transform(X))
    again = begun.fit(X[:200])  # a fit starts again from nothing
    assert again._result.n_samples == 200


def test_of_other_libraries(xp, X):
    rows = xp.array(X)
    model = in_batches(model_of("rbf", X[:15]), [rows[:100, :], rows[100:, :]])
    expected = in_batches(model_of("rbf", X[:15]), np.split(X, [100]))
    assert type(model.eigenvalues_) is type(rows)
    np.testing.assert_allclose(xp.host(model.eigenvalues_), expected.eigenvalues_, rtol=1e-9)
    np.testing.assert_allclose(xp.host(model.transform(rows)), expected.transform(X), atol=1e-9)


def test_sparse_batches(X):
    X = np.where(np.abs(X) < 0.7, 0.0, X)
    sparse = [scipy.sparse.csr_array(part) for part in np.split(X, [100])]
    for kernel in ("rbf", "linear", "poly"):
        model = in_batches(model_of(kernel, X[:15], gamma=0.1), sparse)
        expected = in_batches(model_of(kernel, X[:15], gamma=0.1), np.split(X, [100]))
        np.testing.assert_allclose(model.eigenvalues_, expected.eigenvalues_, rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(np.abs(model.transform(X)), np.abs(expected.transform(X)), atol=1e-8)


def test_agrees_with_the_peer(X):
    # scikit-learn's Nystroem adds no jitter but clips at 1e-12, and its PCA centers as ours does.
    rule = Nystroem(kernel="rbf", gamma=0.05, n_components=20, random_state=0).fit(X)
    peer = PeerPCA(P, svd_solver="full").fit(rule.transform(X))
    model = in_batches(model_of(RBF(0.05), X[rule.component_indices_]), np.array_split(X, 3))
    np.testing.assert_allclose(model.explained_variance_, peer.explained_variance_, rtol=1e-8)
    scores = peer.transform(rule.transform(X))
    np.testing.assert_allclose(np.abs(model.transform(X)), np.abs(scores), atol=1e-6)


def test_a_rule_of_gamma_reads_what_it_can(X):
    solver = Nystrom(rank=10)
    whole = KernelPCA(P, kernel="rbf", gamma="scale", eigen_solver=solver, random_state=0).fit(X)
    for rows in (Batches(np.array_split(X, 3)), Stored(X)):
        model = KernelPCA(P, kernel="rbf", gamma="scale", eigen_solver=solver, random_state=0).fit(rows)
        assert model.gamma_ == pytest.approx(whole.gamma_, rel=1e-12)
    once = KernelPCA(P, kernel="rbf", gamma="scale", eigen_solver=solver, random_state=0)
    assert once.fit(part for part in np.array_split(X, 3)).gamma_ == pytest.approx(1 / (D * np.var(X)), rel=1e-12)


def test_a_share_of_the_variance_and_all_components(X):
    for count in (0.5, None):
        whole = KernelPCA(count, kernel="rbf", gamma=0.01, eigen_solver=Nystrom(landmarks=range(30))).fit(X)
        model = KernelPCA(count, kernel="rbf", gamma=0.01, eigen_solver=Nystrom(landmarks=X[:30]))
        in_batches(model, np.array_split(X, 3))
        assert model.eigenvalues_.shape == whole.eigenvalues_.shape
        np.testing.assert_allclose(model.explained_variance_ratio_, whole.explained_variance_ratio_, rtol=1e-6)


def test_sets_are_read_by_slices_and_scores_are_written(X, tmp_path):
    for model in (
        PCA(2, memory_limit="800KiB"),
        IncrementalPCA(2, batch_size=60),
        ProbabilisticPCA(2, batch_size=60),
        KernelPCA(2, kernel="rbf", eigen_solver=Nystrom(rank=20), random_state=0, memory_limit="2MiB"),
    ):
        stored = Stored(np.tile(X, (40, 1)))
        scores = model.fit(stored).transform(stored)
        np.testing.assert_array_equal(scores, model.transform(np.tile(X, (40, 1))))
        out = np.lib.format.open_memmap(tmp_path / "scores.npy", "w+", np.float64, scores.shape)
        assert model.transform(stored, out=out) is out
        np.testing.assert_array_equal(out, scores)
        np.testing.assert_array_equal(model.transform(stored.rows, out=np.empty(scores.shape)), scores)
        with pytest.raises(InvalidParameterError, match="out must be a writable NumPy array"):
            model.transform(stored, out=np.empty((3, 2)))
        back = model.inverse_transform(Stored(scores)) if hasattr(model, "noise_variance_") else None
        assert back is None or back.shape == stored.shape
        broken = stored.rows.copy()
        broken[5000, 1] = np.nan
        if not isinstance(model, ProbabilisticPCA):
            with pytest.raises(ValueError, match="row 5000, column 1"):
                model.transform(Stored(broken))


def test_little_memory_streams_rows_and_keeps_eigenvectors(X, tmp_path):
    rows = np.tile(X, (100, 1)) + 1e-3 * np.random.default_rng(0).standard_normal((24_000, D))
    settings = {"kernel": "rbf", "gamma": 0.05, "eigen_solver": Nystrom(rank=60), "random_state": 0, "copy_X": False}
    whole = KernelPCA(P, **settings).fit(rows)
    tight = KernelPCA(P, **settings, memory_limit="12MiB").fit(rows)
    assert [model.plan_.storage.keeps_factor for model in (tight, whole)] == [False, True]
    np.testing.assert_allclose(tight.eigenvalues_, whole.eigenvalues_, rtol=0.02)
    np.testing.assert_allclose(tight.eigenvectors_.T @ tight.eigenvectors_, np.eye(P), atol=1e-10)
    scores = tight.eigenvectors_ * np.sqrt(tight.eigenvalues_)
    np.testing.assert_allclose(tight.transform(rows), scores, atol=1e-9)
    np.save(tmp_path / "rows.npy", rows)
    mapped = KernelPCA(P, **settings, memory_limit="12MiB").fit(np.load(tmp_path / "rows.npy", mmap_mode="r"))
    np.testing.assert_allclose(mapped.eigenvalues_, tight.eigenvalues_, rtol=1e-9)
    assert not hasattr(mapped, "eigenvectors_")
    scores = mapped.fit_transform(np.load(tmp_path / "rows.npy", mmap_mode="r"))
    np.testing.assert_array_equal(scores, mapped.transform(rows))
    with pytest.raises(MemoryBudgetError, match=r"Try eigen_solver=Nystrom\(rank=30\)"):
        KernelPCA(P, **settings, memory_limit="3MiB").fit(Batches([rows[:9000], rows[9000:]]))


def test_components_keep_their_signs_between_batches(X):
    model, before = model_of(RBF(0.05), X[:20]), None
    for batch in np.array_split(X[np.random.default_rng(1).permutation(N)], 12):
        scores = model.partial_fit(batch).transform(X)
        if before is not None:
            assert np.all(np.sum(before * scores, axis=0) > 0.0)
        before = scores


def test_few_points_have_features_where_the_kernel_is_flat(X):
    for count, gamma in ((1, 0.05), (1, 1e-4), (2, 0.05), (2, 1e-8), (5, 0.05), (5, 1e-8)):
        model = model_of(RBF(gamma), X[:count]).set_params(n_components=1).fit(Batches([X[:100], X[100:]]))
        one_shot = KernelPCA(1, kernel=RBF(gamma), eigen_solver=Nystrom(landmarks=range(count))).fit(X)
        assert model.eigenvalues_[0] == pytest.approx(one_shot.eigenvalues_[0], rel=1e-9), (count, gamma)
        K = oracle.gram(oracle.rbf(gamma), X)
        largest = np.linalg.eigvalsh(oracle.centered(K))[-1]
        assert 0.0 < model.eigenvalues_[0] <= largest * (1.0 + 1e-9), (count, gamma)
        assert model.certificate_ <= one_shot.total_variance_ * N


def test_row_numbers_are_those_of_all_rows(X):
    rows = np.tile(X, (12, 1)) + 1e-2 * np.random.default_rng(0).standard_normal((12 * N, D))
    chosen = [5, 2500, 100, 2700, 1300]
    expected = model_of("rbf", chosen).fit(rows).eigenvalues_
    for container in (Batches(np.array_split(rows, 10)), Stored(rows)):
        model = model_of("rbf", chosen).fit(container)
        np.testing.assert_allclose(model.eigenvalues_, expected, rtol=1e-9)
        np.testing.assert_array_equal(np.sort(model.landmarks_), np.sort(chosen))


def test_a_set_may_give_sparse_slices_and_must_give_all_rows(X):
    sparse = scipy.sparse.csr_array(np.where(np.abs(X) < 0.7, 0.0, X))

    class Held:
        def __init__(self, rows, short):
            self.rows, self.short, self.shape, self.dtype = rows, short, rows.shape, rows.dtype

        def __getitem__(self, part):
            return self.rows[part.start : part.stop - self.short]

    expected = model_of("rbf", X[:20]).fit(sparse.toarray())
    model = model_of("rbf", X[:20]).fit(Held(sparse, 0))
    np.testing.assert_allclose(model.eigenvalues_, expected.eigenvalues_, rtol=1e-9)
    np.testing.assert_allclose(model.transform(Held(sparse, 0)), model.transform(sparse.toarray()), atol=1e-12)
    for act in (lambda: model_of("rbf", X[:20]).fit(Held(X, 1)), lambda: model.transform(Held(X, 1))):
        with pytest.raises(InvalidParameterError, match=r"X\[0:\d+\] gave \d+ row\(s\)"):
            act()


def test_numbers_of_rows_are_read_by_slices(X):
    model = model_of("rbf", X[:20], memory_limit="3MiB").fit(Batches([X]))
    stored = Stored(np.tile(X, (200, 1)))
    errors = model.feature_space_error(stored, n_components=2)
    np.testing.assert_allclose(errors[:N], model.feature_space_error(X, n_components=2), atol=1e-12)
    assert stored.longest < len(stored.rows)


def test_a_batch_of_another_precision_is_computed_in_that_of_the_first(xp, X):
    for kernel in ("rbf", "linear", "poly"):
        for first, second in ((np.float32, np.float64), (np.float64, np.float32)):
            parts = [xp.array(X[:100].astype(first)), xp.array(X[100:].astype(second))]
            model = in_batches(model_of(kernel, X[:15], gamma=0.05), parts)
            expected = in_batches(model_of(kernel, X[:15], gamma=0.05), [xp.array(p) for p in np.split(X, [100])])
            assert str(first.__name__) in str(model.eigenvalues_.dtype)
            np.testing.assert_allclose(xp.host(model.eigenvalues_), xp.host(expected.eigenvalues_), rtol=1e-3)


def test_many_points_are_kept_as_an_array(tmp_path):
    rng = np.random.default_rng(0)
    points = rng.standard_normal((400, 900))
    model = KernelPCA(2, kernel="rbf", gamma=1e-3, eigen_solver=Nystrom(landmarks=points)).fit(
        Batches([points, points])
    )
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.eigen_solver == model.eigen_solver
    np.testing.assert_array_equal(again.partial_fit(points).eigenvalues_, model.partial_fit(points).eigenvalues_)
    assert "stopped: rank" in model.solver_


def test_scores_of_any_container_are_written(X):
    pandas = pytest.importorskip("pandas")
    for model in (PCA(2).fit(X), KernelPCA(2, kernel="rbf").fit(X)):
        expected = model.transform(X)
        for rows in (X.tolist(), scipy.sparse.coo_array(X), pandas.DataFrame(X)):
            out = np.empty((N, 2))
            assert model.transform(rows, out=out) is out
            np.testing.assert_allclose(out, expected, atol=1e-12)


def test_progress_counts_rows(X):
    events = []
    model = model_of("rbf", X[:15], verbose=events.append)
    model.fit(Batches(np.array_split(X, 4)))
    assert [event.done for event in events if event.stage == "batch"] == [120, 180, 240]


def test_what_cannot_be_streamed_says_so(X):
    solver, batches = Nystrom(rank=10), Batches(np.array_split(X, 3))
    cases = [
        ("needs eigen_solver=gpukpca.Nystrom", KernelPCA(2, kernel="rbf"), lambda m: m.fit(batches)),
        ("fit_transform reads", KernelPCA(2, eigen_solver=solver), lambda m: m.fit_transform(iter(batches))),
        ("no pre-image", KernelPCA(2, eigen_solver=solver, preimage="ridge"), lambda m: m.fit(batches)),
        (
            "kernel was RBF",
            KernelPCA(2, kernel="rbf", eigen_solver=solver),
            lambda m: m.partial_fit(X).set_params(gamma=3.0).partial_fit(X),
        ),
        (
            "landmarks were those of",
            KernelPCA(2, kernel="rbf", eigen_solver=solver),
            lambda m: m.partial_fit(X).set_params(eigen_solver=Nystrom(rank=12)).partial_fit(X),
        ),
        (
            "at least as many landmarks",
            KernelPCA(2, kernel="rbf", eigen_solver=solver),
            lambda m: m.partial_fit(X).set_params(n_components=30).partial_fit(X),
        ),
        (
            "other points than rows",
            KernelPCA(2, kernel=lambda x, y: x @ y, eigen_solver=Nystrom(landmarks=X[:5])),
            lambda m: m.fit(X),
        ),
        ("at least as many landmarks", KernelPCA(20, kernel="rbf", eigen_solver=solver), lambda m: m.partial_fit(X)),
        (
            "points have as many",
            KernelPCA(2, kernel="rbf", eigen_solver=Nystrom(landmarks=X[:5, :2])),
            lambda m: m.fit(X),
        ),
        ("NaN", KernelPCA(2, kernel="rbf", eigen_solver=solver), lambda m: m.partial_fit(X).partial_fit(X * np.nan)),
        (
            "batch 1: Input X contains NaN",
            KernelPCA(2, kernel="rbf", eigen_solver=solver),
            lambda m: m.fit(Batches([X, X * np.nan])),
        ),
        ("row number", KernelPCA(2, kernel="rbf", eigen_solver=Nystrom(landmarks=[0, 999])), lambda m: m.fit(batches)),
        (
            "function of two rows",
            KernelPCA(2, kernel=lambda x, y: x @ y, eigen_solver=solver),
            lambda m: m.fit(batches),
        ),
    ]
    for text, model, act in cases:
        with pytest.raises(InvalidParameterError, match=text):
            act(model)
        if not hasattr(model, "eigenvalues_"):
            assert not [name for name in vars(model) if name.endswith("_") and not name.startswith("_")]
    with pytest.warns(UserWarning, match="begins a new stream"):
        begun = KernelPCA(2, kernel="rbf").fit(X).set_params(eigen_solver=solver).partial_fit(X[:50])
    assert begun.n_samples_seen_ == 50
    assert not hasattr(begun, "eigenvectors_")
    with pytest.raises(AttributeError, match=r"partial_fit needs eigen_solver=gpukpca\.Nystrom"):
        KernelPCA(2).partial_fit(X)
    assert not hasattr(KernelPCA(2), "partial_fit")
    with pytest.raises(ValueError, match="expecting 4 features"):
        KernelPCA(2, kernel="rbf", eigen_solver=solver).partial_fit(X).partial_fit(X[:, :2])
    with pytest.raises(InvalidParameterError, match="points are finite numbers"):
        Nystrom(landmarks=np.full((2, 2), np.nan))
    with pytest.raises(IndefiniteKernelError, match="positive semidefinite kernel"):
        KernelPCA(2, kernel="sigmoid", gamma=3.0, coef0=-1.0, eigen_solver=Nystrom(landmarks=X[:3])).fit(batches)


def test_a_failed_batch_changes_nothing(X):
    model = in_batches(model_of("rbf", X[:10]), [X])
    before = model.transform(X)
    with pytest.raises(ValueError, match="NaN"):
        model.partial_fit(np.full((3, D), np.nan))
    assert model.n_samples_seen_ == N
    np.testing.assert_array_equal(model.transform(X), before)


@pytest.mark.filterwarnings("ignore:the last component and the next one")
def test_a_plan_bounds_the_memory_of_one_pass(tmp_path):
    rng = np.random.default_rng(0)
    KernelPCA(2, kernel="rbf", eigen_solver=Nystrom(rank=20)).fit(Batches([rng.standard_normal((100, 3))]))  # imports
    # The limits are less than a factor and its work.
    shapes = [
        (np.float64, 8, 200, 24_000_000, ("list", "map")),
        (np.float32, 40, 120, 14_400_000, ("set", "array")),
        (np.float32, 100, 150, 22_000_000, ("map", "array")),
        (np.float32, 1500, 100, 44_000_000, ("list", "set", "map")),
    ]
    for dtype, d, rank, limit, containers in shapes:
        rows = rng.standard_normal(({8: 15_000, 1500: 6000}.get(d, 30_000), d), dtype=dtype)
        np.save(tmp_path / "rows.npy", rows)
        mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
        settings = {
            "kernel": "rbf",
            "gamma": 0.5 / d,
            "eigen_solver": Nystrom(rank=rank),
            "random_state": 0,
            "n_jobs": 2,
        }
        tight = {"memory_limit": limit}
        cases = {
            "list": (Batches(np.array_split(rows, 10)), {}),
            "set": (Stored(rows), {}),
            "map": (mapped, tight),
            "array": (rows, tight | {"copy_X": False}),
        }
        for name in containers:
            data, more = cases[name]
            model = KernelPCA(2, **settings, **more)
            tracemalloc.start()
            try:
                model.fit(data)
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
            predicted = model.plan_.predicted_bytes
            assert isinstance(model.plan_.storage, LandmarkStorage), name
            assert peak <= predicted, (name, dtype, d, rank, peak / predicted)
            assert predicted <= 4.0 * peak, (name, dtype, d, rank, peak / predicted)


def test_a_reservoir_draws_landmarks_from_the_whole_stream(rng):
    centers = np.repeat([[0.0], [4.0], [-4.0]], 1100, axis=0)
    X = 0.1 * rng.standard_normal((3300, 3)) + centers
    batches = Batches([X[start : start + 250] for start in range(0, 3300, 250)])
    model = KernelPCA(P, kernel="rbf", gamma=1.0, random_state=0)

    def fitted(data, sample):
        return clone(model).set_params(eigen_solver=Nystrom(rank=40, sample=sample)).fit(data)

    drawn, whole = fitted(batches, "reservoir"), fitted(X, "first")
    with pytest.warns(PrecisionWarning, match="the stream leaves its landmarks"):
        first = fitted(batches, "first")
    assert first.certificate_ > 500.0 > 5.0 > drawn.certificate_  # 1100 rows are far from the first 2000
    np.testing.assert_allclose(drawn.eigenvalues_[:2], whole.eigenvalues_[:2], rtol=1e-3)
    np.testing.assert_allclose(X[drawn.landmarks_], drawn.X_fit_[: len(drawn.landmarks_)], rtol=1e-15)
    again = fitted(Batches([X[:1], X[1:2000], X[2000:]]), "reservoir")
    assert again.landmarks_.tolist() == drawn.landmarks_.tolist()  # whatever the batches are
    assert Nystrom(rank=40, sample="reservoir") == eval(repr(drawn.eigen_solver), {"Nystrom": Nystrom})
    for give in (lambda one: one.fit(iter(batches)), lambda one: one.partial_fit(X[:250])):
        with pytest.raises(InvalidParameterError, match="reads the batches twice"):
            give(clone(model).set_params(eigen_solver=Nystrom(rank=40, sample="reservoir")))
    with pytest.raises(InvalidParameterError, match="one of 'first', 'reservoir'"):
        Nystrom(sample="last")


def test_a_reservoir_draws_every_row_equally_often(rng):
    rows = BatchedRows.of_array(np.arange(60.0)[:, None])
    parts = BatchedRows(lambda: (rows.take(range(a, b)) for a, b in ((0, 7), (7, 50), (50, 60))), rows.like)
    times = np.zeros(60)
    for _ in range(600):
        taken, numbers, _ = parts.drawn(15, rng)
        assert len(set(numbers.tolist())) == 15
        np.testing.assert_array_equal(taken[:, 0], numbers)
        times[numbers] += 1
    assert np.all(np.abs(times - 150.0) < 6.0 * np.sqrt(150.0 * 0.75))


def test_batches_that_start_again_are_read_once(X):
    class Counted:
        rows = 0

        def __iter__(self):
            for start in range(0, N, 40):
                self.rows += 40
                yield X[start : start + 40]

    for landmarks, kernel, times in ((X[:9], RBF(0.05), 1), ("uniform", RBF(0.05), 1), ("uniform", RBF("scale"), 3)):
        counted = Counted()
        KernelPCA(2, kernel=kernel, eigen_solver=Nystrom(landmarks=landmarks, rank=9), random_state=0).fit(counted)
        assert counted.rows <= times * N + 40


def nystrom_by_hand(function, X, landmarks, weights=None):
    """Return eigenvalues of the centered K(X, S) K(S, S)⁻¹ K(S, X) of counted rows, descending, with the sum over K."""
    w = np.ones(len(X)) if weights is None else weights
    C, W = function(X, landmarks), function(landmarks, landmarks)
    F = C @ scipy.linalg.sqrtm(scipy.linalg.pinvh(W, rtol=1e-12)).real
    F = np.sqrt(w)[:, None] * (F - w @ F / w.sum())
    return np.linalg.eigvalsh(F.T @ F)[::-1]


@pytest.mark.filterwarnings(
    "ignore:fewer components carry", "ignore:float64 cannot resolve", "ignore:the landmarks are far"
)
def test_given_landmarks_are_all_that_the_kernel_takes_from_the_data():
    """Columns that are constant among the first rows, as weekdays, flags and one-hot columns are in sorted rows."""
    rng = np.random.default_rng(0)
    days = np.c_[2.0 * np.eye(7)[np.repeat(np.arange(7), 40)], rng.standard_normal((280, 3))]
    flag = np.c_[np.repeat([0.0, 3.0], 140), rng.standard_normal((280, 2))]
    kernels = {
        RBF(0.2): lambda X, Y: np.exp(-0.2 * cdist(X, Y, "sqeuclidean")),
        RationalQuadratic(0.2, 2.0): lambda X, Y: (1.0 + 0.1 * cdist(X, Y, "sqeuclidean")) ** -2.0,
        Matern(0.2, np.inf): lambda X, Y: np.exp(-0.2 * cdist(X, Y, "sqeuclidean")),
    }
    for X, (kernel, function) in itertools.product((days, flag), kernels.items()):
        for count in (1, 3, 8, 12):
            numbers = np.linspace(0, 279, count).astype(int)
            S, what = X[numbers], f"{kernel} by {count}"
            expected = nystrom_by_hand(function, X, S)[:P]
            batches = np.array_split(X, 7)
            models = {
                "points": model_of(kernel, S).fit(X),
                "numbers": model_of(kernel, numbers).fit(X),
                "CSR": model_of(kernel, numbers).fit(scipy.sparse.csr_array(X)),
                "list": model_of(kernel, S).fit(Batches(batches)),
                "generator": model_of(kernel, S).fit(batch for batch in batches),
                "set": model_of(kernel, numbers).fit(Stored(X)),
                "batch by batch": in_batches(model_of(kernel, S), batches),
                "backwards": in_batches(model_of(kernel, S), batches[::-1]),
                "one row first": in_batches(model_of(kernel, S), [X[:1], X[1:]]),
            }
            for way, model in models.items():
                np.testing.assert_allclose(
                    model.eigenvalues_, expected[:count], rtol=1e-8, atol=1e-10, err_msg=(what, way)
                )
                basis = model.X_fit_.toarray() if way == "CSR" else model.X_fit_
                scores = function(X, basis) @ model.projection_ - model.offset_
                np.testing.assert_allclose(model.transform(X), scores, atol=1e-9, err_msg=f"{what}, {way}")
                if way in ("numbers", "CSR", "set"):
                    np.testing.assert_array_equal(np.sort(model.landmarks_), numbers)


@pytest.mark.filterwarnings(
    "ignore:fewer components carry", "ignore:float64 cannot resolve", "ignore:the landmarks are far"
)
def test_flat_kernels_have_a_base_point_of_given_landmarks(X):
    w = np.random.default_rng(1).integers(1, 4, N)
    repeated = np.repeat(X, w, axis=0)
    for count, gamma in itertools.product((2, 5, 30), (1e-7, 1e-8)):
        S = X[:count]
        expected = model_of(RBF(gamma), S).fit(repeated)
        models = {
            "weights": model_of(RBF(gamma), S).fit(X, sample_weight=w),
            "numbers": model_of(RBF(gamma), range(count)).fit(X, sample_weight=w),
            "CSR": model_of(RBF(gamma), S).fit(scipy.sparse.csr_array(X), sample_weight=w),
            "batches": in_batches(model_of(RBF(gamma), S), [repeated[300:], repeated[:300]]),
            "one row first": in_batches(model_of(RBF(gamma), S), [repeated[-1:], repeated[:-1]]),
        }
        for way, model in models.items():
            size = expected.eigenvalues_[0]
            np.testing.assert_allclose(model.eigenvalues_, expected.eigenvalues_, atol=1e-7 * size, err_msg=way)
            basis = model.X_fit_.toarray() if way == "CSR" else model.X_fit_
            np.testing.assert_allclose(basis[-1], S.mean(axis=0), atol=1e-12)


@pytest.mark.filterwarnings("ignore:the landmarks are far", "ignore:fewer components carry")
def test_landmarks_near_each_other_explain_no_less_than_some_of_them(X):
    order = np.argsort(cdist(X, X[:1])[:, 0])
    kernels = {
        RBF(0.2): lambda X, Y: np.exp(-0.2 * cdist(X, Y, "sqeuclidean")),
        Laplacian(0.05): lambda X, Y: np.exp(-0.05 * cdist(X, Y, "cityblock")),
        RBF(0.2) + 0.1 * Laplacian(0.1): lambda X, Y: (
            np.exp(-0.2 * cdist(X, Y, "sqeuclidean")) + 0.1 * np.exp(-0.1 * cdist(X, Y, "cityblock"))
        ),
    }
    for (kernel, function), dtype in itertools.product(kernels.items(), (np.float64, np.float32)):
        rows, before = X.astype(dtype), 0.0
        for count in (1, 2, 3, 5, 12):
            S = rows[order[:count]]
            if dtype == np.float32 and count > 1 and np.min(function(S, S)) > 0.98 * np.max(function(S, S)):
                continue  # relative to a base point, for the sake of digits
            expected = nystrom_by_hand(function, rows.astype(float), S.astype(float))[0]
            stream = KernelPCA(1, kernel=kernel, eigen_solver=Nystrom(rank=count), random_state=0)
            models = {
                "points": model_of(kernel, S).set_params(n_components=1).fit(rows),
                "numbers": model_of(kernel, order[:count]).set_params(n_components=1).fit(rows),
            }
            if dtype == np.float64:
                models["stream"] = in_batches(stream, [S, rows[order[count:]]])
            for way, model in models.items():
                found, what = float(model.eigenvalues_[0]), f"{kernel} by {count}, {way}, {dtype.__name__}"
                assert found == pytest.approx(expected, rel=by_dtype(dtype, 1e-8, 2e-3)), what
                assert found >= before * by_dtype(dtype, 1.0 - 1e-8, 0.99), what
                assert model.certificate_ <= len(rows) * (1.0 + 0.1 + 1e-3), what
            before = expected


def test_batches_are_held_until_landmarks_can_be_chosen(X):
    """First batches of one row, of equal rows, or of fewer different rows than the rank."""
    ones = np.ones((7, D))
    cases = {
        "one row": np.array_split(X, [1]),
        "rows one by one": [X[i : i + 1] for i in range(30)] + [X[30:]],
        "equal rows": [np.repeat(X[:1], 50, axis=0), X[1:]],
        "-0 and 0": [np.zeros((3, D)), -np.zeros((3, D)), X],
        "few": [X[:10], X[:10], X[10:20], X[20:]],
        "constant": [ones, ones, X],
    }
    for (case, batches), dtype, rule in itertools.product(
        cases.items(), ("float64", "float32"), ("rpcholesky", "uniform")
    ):
        rows = [batch.astype(dtype) for batch in batches]
        every = np.concatenate(rows)
        solver = Nystrom(rank=RANK, landmarks=rule)
        model = in_batches(KernelPCA(P, kernel=RBF(0.05), eigen_solver=solver, random_state=0), rows)
        assert model.n_samples_seen_ == model.plan_.n_samples == len(every), case
        assert model.X_fit_.shape == (RANK, D), case
        np.testing.assert_array_equal(model.X_fit_, every[model.landmarks_], err_msg=case)
        whole = model_of(RBF(0.05), model.X_fit_).fit(every)
        same(model, whole, every, dtype)
        if rule == "rpcholesky":
            streamed = KernelPCA(P, kernel=RBF(0.05), eigen_solver=solver, random_state=0).fit(iter(rows))
            again = model_of(RBF(0.05), streamed.X_fit_).fit(every)
            same(streamed, again, every, dtype)
            np.testing.assert_array_equal(streamed.X_fit_, every[streamed.landmarks_], err_msg=case)


def test_a_result_of_held_rows_is_that_of_these_rows(X, tmp_path):
    for batch in (X[:1], X[:6], np.ones((5, D)), scipy.sparse.csr_array(X[:6])):
        model = KernelPCA(2, kernel=RBF(0.05), eigen_solver=Nystrom(rank=RANK), random_state=0).partial_fit(batch)
        assert "eigenvalues_" not in vars(model)
        copies = model, pickle.loads(pickle.dumps(model))
        for one in copies:
            with pytest.warns(RankWarning):
                found = one.eigenvalues_
            rows = batch.toarray() if scipy.sparse.issparse(batch) else batch
            K = oracle.centered(oracle.gram(oracle.rbf(0.05), rows))
            expected = np.linalg.eigvalsh(K)[::-1][:2]
            np.testing.assert_allclose(found[: len(expected)], expected, atol=1e-12)
            assert one.n_samples_seen_ == len(rows)
        model.save(tmp_path / "model")
        assert load(tmp_path / "model").transform(batch).shape == (len(rows), min(2, len(rows)))
        if not scipy.sparse.issparse(batch):  # the rows are held on, whatever was read
            model.partial_fit(X[6:])
            copies[1].partial_fit(X[6:])
            assert model.X_fit_.shape == (RANK, D)
            np.testing.assert_array_equal(model.eigenvalues_, copies[1].eigenvalues_)
            assert model.n_samples_seen_ == len(rows) + N - 6
    model = KernelPCA(2, kernel=RBF(0.05), eigen_solver=Nystrom(rank=RANK)).partial_fit(
        X[:3], sample_weight=[1, 2, 0.5]
    )
    model.partial_fit(X[3:], sample_weight=np.full(N - 3, 2.0))
    assert model.n_samples_seen_ == 3.5 + 2.0 * (N - 3)
    expected = model_of(RBF(0.05), model.X_fit_).fit(X, sample_weight=[1, 2, 0.5, *[2.0] * (N - 3)])
    np.testing.assert_allclose(model.eigenvalues_, expected.eigenvalues_[:2], rtol=1e-10)
    assert not hasattr(KernelPCA(2, eigen_solver=Nystrom(rank=9)).partial_fit(X[:3]).fit(X), "_held")
    sparse, narrow = scipy.sparse.csr_array, X.astype("float32")
    for first, then, kind in ((narrow, X, np.ndarray), (sparse(X), X, sparse), (X, sparse(X), np.ndarray)):
        model = KernelPCA(2, kernel=RBF(0.05), eigen_solver=Nystrom(rank=RANK), random_state=0).partial_fit(first[:5])
        model.partial_fit(then[5:20]).partial_fit(then[20:])  # as the first one is
        assert isinstance(model.X_fit_, kind)
        assert model.eigenvalues_.dtype == model.X_fit_.dtype == first.dtype
        expected = model_of(RBF(0.05), np.asarray(model.landmarks_)).fit(X)
        np.testing.assert_allclose(model.eigenvalues_, expected.eigenvalues_[:2], rtol=1e-5)


def test_a_stream_of_few_different_rows_holds_each_once(X):
    """In the memory of these rows, however many equal them."""
    few = X[:5]

    def batches():
        for _ in range(30):
            yield np.tile(few, (1000, 1))

    tracemalloc.start()
    with pytest.warns(RankWarning, match="fewer rows differ than landmarks"):
        model = KernelPCA(2, kernel=RBF(0.05), eigen_solver=Nystrom(rank=RANK), random_state=0).fit(batches())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 15 * 1000 * 5 * D * 8, peak
    expected = np.linalg.eigvalsh(oracle.centered(oracle.gram(oracle.rbf(0.05), few)))[::-1][:2]
    np.testing.assert_allclose(model.eigenvalues_, 30 * 1000 * expected, rtol=1e-9)
    assert model.n_samples_seen_ == 30 * 1000 * 5


@pytest.mark.filterwarnings("error::gpukpca.exceptions.PrecisionWarning")
def test_one_row_has_no_variance_that_rounding_could_lose():
    X = np.random.default_rng(0).standard_normal((6, 3)) + 5.0
    for dtype in ("float32", "float64"):
        for kernel in ("linear", "rbf"):
            model = KernelPCA(2, kernel=kernel, gamma=0.1, eigen_solver=Nystrom(landmarks=X.astype(dtype)))
            with pytest.warns(RankWarning, match="fewer components carry variance"):
                assert not np.any(model.partial_fit(X[:1].astype(dtype)).eigenvalues_)
            with pytest.warns(RankWarning, match="fewer components carry variance"):  # two rows have one direction
                assert model.partial_fit(X[1:2].astype(dtype)).eigenvalues_[0] > 0.0
