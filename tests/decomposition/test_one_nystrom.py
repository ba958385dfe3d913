"""One Nyström for every container: the same landmarks, one fold over the rows, and sums that more rows are added to."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse

from gpukpca import Batches, KernelPCA, Nystrom, residuals
from gpukpca.decomposition import RidgePreimage
from gpukpca.exceptions import InvalidParameterError, RankWarning
from gpukpca.kernels import RBF, Cosine, Laplacian, Linear, Polynomial
from tests import oracle
from tests.decomposition.test_pca_of_batches import Stored

N, D, P = 96, 4, 3


@pytest.fixture
def X(rng):
    return rng.standard_normal((N, D)) * [2.0, 1.5, 1.0, 0.5] + 0.3


@pytest.fixture
def more(rng):
    return rng.standard_normal((50, D)) - 0.5


def model_of(p=P, kernel="rbf", solver=None, **settings):
    return KernelPCA(p, kernel=kernel, eigen_solver=solver or Nystrom(rank=20), random_state=0, **settings)


def agree(model, other, rows, tol):
    """Eigenvalues, total variance, certificate and scores agree, in units of the largest ones."""
    largest = float(other.eigenvalues_[0])
    np.testing.assert_allclose(model.eigenvalues_, other.eigenvalues_, rtol=0, atol=tol * largest)
    assert model.total_variance_ == pytest.approx(other.total_variance_, rel=10 * tol)
    assert model.certificate_ == pytest.approx(other.certificate_, abs=tol * largest * N)
    scores, expected = np.abs(model.transform(rows)), np.abs(other.transform(rows))  # of either sign
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e3 * tol * expected.max())


WAYS = {
    "array": lambda rows, weights: model_of(gamma=0.1).fit(rows, sample_weight=weights),
    "numbers": lambda rows, weights: model_of(gamma=0.1, solver=Nystrom(landmarks=range(0, 90, 5))).fit(
        rows, sample_weight=weights
    ),
    "points": lambda rows, weights: model_of(gamma=0.1, solver=Nystrom(landmarks=np.eye(D))).fit(
        rows, sample_weight=weights
    ),
    "uniform": lambda rows, weights: model_of(gamma=0.1, solver=Nystrom(rank=20, landmarks="uniform")).fit(
        rows, sample_weight=weights
    ),
    "flat": lambda rows, weights: model_of(gamma=1e-6).fit(rows, sample_weight=weights),
    "poly": lambda rows, weights: model_of(kernel="poly", gamma=0.1).fit(rows, sample_weight=weights),
    "linear": lambda rows, weights: model_of(kernel="linear").fit(rows, sample_weight=weights),
    "not centered": lambda rows, weights: model_of(gamma=0.1, center=False).fit(rows, sample_weight=weights),
    "rank is n": lambda rows, weights: model_of(gamma=0.1, solver=Nystrom(rank=N)).fit(rows, sample_weight=weights),
    "set": lambda rows, weights: model_of(gamma=0.1).fit(Stored(rows), sample_weight=weights),
    "batches": lambda rows, weights: model_of(gamma=0.1).fit(Batches([rows]), sample_weight=weights),
}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_partial_fit_after_fit_continues(X, more, dtype):
    """More rows, then the numbers of their landmarks for all rows at once; also of counted rows."""
    tol = 1e-11 if dtype == "float64" else 2e-4
    X, more = X.astype(dtype), more.astype(dtype)
    counts = np.arange(N) % 3 + 1.0
    for name, fit in WAYS.items():
        for weights in (None, counts):
            if weights is not None and name in ("set", "batches"):
                continue
            model = fit(X, weights)
            basis = np.asarray(model.X_fit_)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                model.partial_fit(more)
            assert model.n_samples_seen_ == (N if weights is None else counts.sum()) + len(more), name
            assert not hasattr(model, "eigenvectors_")
            every = None if weights is None else np.concatenate([counts, np.ones(len(more))])
            K = np.asarray(model.kernel_(np.concatenate([X, more]).astype(np.float64)))
            S = np.asarray(model.kernel_(np.concatenate([X, more]).astype(np.float64), basis.astype(np.float64)))
            C = np.asarray(model.kernel_(basis.astype(np.float64)))
            if name == "linear":
                assert len(basis) in (D, D + 1)
            approximation = K if name == "linear" else S @ np.linalg.pinv(C, rcond=1e-14, hermitian=True) @ S.T
            if name == "flat":  # whose base point is a landmark too: of K less a constant
                continue
            values = _eigenvalues(approximation, every, model.center)
            largest = values[0]
            np.testing.assert_allclose(model.eigenvalues_, values[:P], rtol=0, atol=1e2 * tol * largest, err_msg=name)


def _eigenvalues(K, weights, center):
    """Return the eigenvalues of the weighted, centered matrix, descending, by a plain formula."""
    w = np.ones(len(K)) if weights is None else weights
    H = np.eye(len(K)) - np.outer(np.ones(len(K)), w) / w.sum() if center else np.eye(len(K))
    root = np.sqrt(w)
    return np.linalg.eigvalsh(root[:, None] * (H @ K @ H.T) * root[None, :])[::-1]


def test_fit_begins_anew_and_a_stream_of_any_cut_is_the_fit(X, more):
    model = model_of(gamma=0.1).fit(X).partial_fit(more).fit(X)
    agree(model, model_of(gamma=0.1).fit(X), X, 1e-12)
    # The same landmarks in every order of the other rows.
    points = Nystrom(landmarks=X[::5])
    whole = model_of(gamma=0.1, solver=points).fit(np.concatenate([X, more]))
    parts = model_of(gamma=0.1, solver=points).fit(X)
    for row in np.array_split(more, 7):
        parts.partial_fit(row)
    agree(parts, whole, X, 1e-11)


def test_no_more_components_than_rows(X):
    """300 landmarks and 96 rows, in every container; components of rows that are none would have length 1."""
    points = np.random.default_rng(1).standard_normal((300, D))
    for rows in (X, Stored(X), Batches([X[:50], X[50:]])):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RankWarning)
            model = model_of(200, gamma=0.5, solver=Nystrom(landmarks=points)).fit(rows)
            alone = model_of(3, gamma=0.5, solver=Nystrom(landmarks=points)).fit(X[:1])
        assert model.eigenvalues_.shape == (N,)
        assert model.transform(X).shape == (N, N)
        assert alone.eigenvalues_.shape == (1,)


@pytest.mark.parametrize("kernel", ["linear", "poly"])
def test_one_rule_says_which_features_a_fit_has(X, kernel):
    """Exact where the rank holds the features, else as many landmarks as were asked for, in every container."""
    features = D if kernel == "linear" else 35  # monomials of degree 3 at most
    kernel = Linear() if kernel == "linear" else Polynomial(3, 0.2, 1.0)
    exact = KernelPCA(P, kernel=kernel).fit(X)
    containers = {"array": X, "set": Stored(X), "batches": Batches([X[:40], X[40:]])}
    scale = float(exact.eigenvalues_[0])
    for rank in (3, features, 60):
        models = {
            name: model_of(kernel=kernel, solver=Nystrom(rank=rank)).fit(rows) for name, rows in containers.items()
        }
        for name, model in models.items():
            apart = np.max(np.abs(np.asarray(model.eigenvalues_) - exact.eigenvalues_)) / scale
            assert (apart < 1e-9) == (rank >= features), (name, rank, apart)
            # The factor of landmarks may be exact; points that span the features are known to make it so.
            assert model.plan_.is_approximate == (isinstance(kernel, Polynomial) or rank < features)
            if rank < features:
                assert len(model.X_fit_) <= rank + 1, name
    assert KernelPCA(P, kernel=kernel).plan(X).storage.rank == features  # by themselves, as "auto" has them


def test_eigenvectors_and_scores_are_there_unless_memory_forbids_them(rng):
    rows = rng.standard_normal((20_000, 5)).astype(np.float32)
    settings = {"gamma": 0.1, "solver": Nystrom(rank=25), "copy_X": False}
    whole = model_of(**settings).fit(rows)
    assert whole.plan_.storage.keeps_factor
    again = model_of(**settings, memory_limit="4MiB").fit(rows)
    assert not again.plan_.storage.keeps_factor
    assert again.eigenvectors_.shape == (20_000, P)
    np.testing.assert_allclose(again.eigenvectors_.T @ again.eigenvectors_, np.eye(P), atol=2e-5)
    model = model_of(**settings, memory_limit="2700KiB")
    scores = model.fit_transform(rows)
    assert not hasattr(model, "eigenvectors_")
    assert "eigenvectors and scores do not fit" in str(model.plan_)
    np.testing.assert_allclose(model.eigenvalues_, whole.eigenvalues_, rtol=0.05)
    np.testing.assert_allclose(scores, model.transform(rows), atol=1e-4)


def test_any_number_of_rows_has_a_plan():
    model = KernelPCA(2, kernel="rbf", gamma=0.1, eigen_solver=Nystrom(rank=100), copy_X=False)
    plan = model.set_params(memory_limit="64MiB").plan((10**8, 20), dtype="float32")
    assert plan.fits
    assert plan.predicted_bytes < 2**26


def test_counted_rows_are_repeated_rows_and_eigenvectors_are_orthonormal(X):
    counts = np.arange(N) % 4
    landmarks = np.flatnonzero(counts)[::4]
    repeated = np.repeat(X, counts, axis=0)
    places = np.searchsorted(np.repeat(np.arange(N), counts), landmarks)
    for kernel in (RBF(0.1), Laplacian(0.1), Cosine()):
        for center in (True, False):
            options = {"kernel": kernel, "center": center}
            counted = model_of(**options, solver=Nystrom(landmarks=landmarks)).fit(X, sample_weight=counts)
            whole = model_of(**options, solver=Nystrom(landmarks=places)).fit(repeated)
            agree(counted, whole, X, 1e-10)
            V = counted.eigenvectors_
            np.testing.assert_allclose(V.T @ V, np.eye(P), atol=1e-12)
    K = np.exp(-0.1 * np.sum((X[:, None] - X) ** 2, axis=2))
    for given in (K, scipy.sparse.csr_array(K)):
        model = model_of(kernel="precomputed").fit(given, sample_weight=counts + 1)
        np.testing.assert_allclose(model.eigenvectors_.T @ model.eigenvectors_, np.eye(P), atol=1e-12)


def test_more_landmarks_than_rows(X):
    """All components, and a share of the variance, of fewer rows than landmarks; rows of weight 0 are none."""
    points = np.random.default_rng(2).standard_normal((12, D))
    counts = np.r_[np.ones(5), np.zeros(N - 5)]
    for rows, weights in ((X[:5], None), (X, counts)):
        for solver in (Nystrom(landmarks=points), Nystrom(landmarks=list(range(12 if weights is not None else 5)))):
            model = model_of(None, gamma=0.5, solver=solver).fit(rows, sample_weight=weights)
            basis = np.asarray(model.X_fit_)
            S, C = np.asarray(model.kernel_(X[:5], basis)), np.asarray(model.kernel_(basis))
            values = _eigenvalues(S @ np.linalg.pinv(C, rcond=1e-13, hermitian=True) @ S.T, None, True)[:4]
            np.testing.assert_allclose(model.eigenvalues_, values, rtol=0, atol=1e-10)
    with pytest.raises(InvalidParameterError, match="known to hold"):
        model_of(0.999999, gamma=5.0, solver=Nystrom(landmarks=points)).fit(X[:5])


def test_rows_far_from_the_mean_of_the_landmarks_keep_their_digits():
    """Squares of float32 rows are formed in float64 where the mean would cancel their digits."""
    rng = np.random.default_rng(0)
    rows = (rng.standard_normal((2000, 3)) * 0.01 + [1.5, 0.0, 0.0]).astype("float32")
    solver = Nystrom(landmarks=rng.standard_normal((40, 3)) * 2.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        narrow, wide = (model_of(gamma=0.3, solver=solver).fit(one) for one in (rows, rows.astype("float64")))
        nothing = model_of(gamma=0.1, solver=solver).fit(rows[:50] * 0 + 100)
    np.testing.assert_allclose(narrow.eigenvalues_, wide.eigenvalues_, rtol=0, atol=2e-5 * wide.eigenvalues_[0])
    assert not np.any(nothing.eigenvalues_)


def test_rows_after_a_fit_of_fewer_rows_than_landmarks_warn(X):
    model = model_of(gamma=0.1).fit(X[:7])
    with pytest.warns(RankWarning, match="fewer rows than landmarks"):
        model.partial_fit(X[7:])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model_of(gamma=0.1).fit(X[:20]).partial_fit(X[20:])
        model_of(kernel="linear").fit(X[:7]).partial_fit(X[7:])


def test_fewer_different_rows_than_landmarks_warn_once_with_both_numbers(X, tmp_path):
    """In every container; not where the rank exceeds the rows, a tolerance is met, or the kernel is flat."""
    rows = np.tile(X[:5], (12, 1))
    np.save(tmp_path / "rows.npy", rows)
    mapped, parts = np.load(tmp_path / "rows.npy", mmap_mode="r"), [rows[:7], rows[7:]]
    counts = {"sample_weight": np.arange(60) % 3 + 1.0}
    K = np.exp(-0.1 * np.sum((rows[:, None] - rows) ** 2, axis=2))
    cases = [
        (one, {}, {"gamma": 0.1}) for one in (rows, mapped, Stored(rows), scipy.sparse.csr_array(rows), iter(parts))
    ]
    cases += [
        (Batches(parts), {}, {"gamma": 0.1}),
        (rows, counts, {"gamma": 0.1}),
        (Stored(rows), counts, {"gamma": 0.1}),
    ]
    cases += [(rows, {}, {"gamma": 0.1, "memory_limit": 2**22}), (rows, {}, {"kernel": lambda x, y: float(x @ y) ** 2})]
    for one, how, settings in cases:
        with pytest.warns(RankWarning) as caught:
            model = model_of(2, **settings).fit(one, **how)
        assert [warning.message.values for warning in caught] == [{"different": 5, "rank": 20}], type(one)
        assert model.X_fit_.shape == (5, D)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for one in (rows[:19], Batches([rows[:19]]), X):
            model_of(2, gamma=0.1).fit(one)
        model_of(2, gamma=0.1, solver=Nystrom(rank=5)).fit(rows)
        model_of(1, gamma=0.01, solver=Nystrom(rank=40, tol=0.5)).fit(np.tile(X[:30], (3, 1)))
        model_of(2, gamma=0.1, solver=Nystrom(landmarks=rows[:20])).fit(rows)
        model_of(2, kernel="poly", degree=1).fit(X)  # of rank 5, though 96 rows differ
        model_of(2, kernel="precomputed").fit(K)  # which has no rows to compare


def test_given_landmarks_of_the_linear_kernel_span_the_origin_too(X):
    """F of k points is C W⁺ Cᵀ of the kernel as it is, whatever the offset of the rows."""
    rows = X + 3.0
    for points in (np.eye(D), rows[:2], rows[:1]):
        for given in (rows, Batches([rows[:40], rows[40:]])):
            model = model_of(min(2, len(points)), kernel=Linear(), solver=Nystrom(landmarks=points)).fit(given)
            C = rows @ points.T
            values = _eigenvalues(C @ np.linalg.pinv(points @ points.T) @ C.T, None, True)[: min(2, len(points))]
            np.testing.assert_allclose(model.eigenvalues_, values, rtol=1e-9)
            assert model.transform(rows).shape == (N, min(2, len(points)))


def test_equal_rows_leave_nothing_to_continue_with(X):
    for n in (1, 3, 30):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RankWarning)
            model = model_of(1, gamma=0.1).fit(np.ones((n, D)))
            with pytest.raises(InvalidParameterError, match="no landmark to continue"):
                model.partial_fit(X)


def test_a_plan_speaks_of_missing_scores_where_memory_is_the_reason(X):
    for rows in (X, Stored(X), Batches([X])):
        assert "do not fit into memory" not in str(model_of(gamma=0.1).plan(rows))


def test_matrices_and_functions_of_two_rows_are_fitted_by_the_same_fold(X):
    K = np.exp(-0.1 * np.sum((X[:, None] - X) ** 2, axis=2))
    tiles = model_of(gamma=0.1).fit(X)
    matrix = model_of(kernel="precomputed").fit(K)
    function = model_of(kernel=lambda x, y: float(np.exp(-0.1 * np.sum((x - y) ** 2)))).fit(X)
    np.testing.assert_array_equal(matrix.landmarks_, function.landmarks_)
    for model, rows in ((matrix, K), (function, X)):
        values = oracle.eigenpairs(oracle.centered(_nystrom(K, model.landmarks_)), P)[0]
        np.testing.assert_allclose(model.eigenvalues_, values, rtol=0, atol=1e-11 * values[0])
        np.testing.assert_allclose(model.transform(rows), model.fit_transform(rows), atol=1e-9)
    values = oracle.eigenpairs(oracle.centered(_nystrom(K, tiles.landmarks_)), P)[0]
    np.testing.assert_allclose(tiles.eigenvalues_, values, rtol=0, atol=1e-11 * values[0])


def _nystrom(K, landmarks):
    columns = K[:, landmarks]
    return columns @ np.linalg.solve(columns[landmarks], columns.T)


def test_a_pre_image_and_an_audit_follow_the_fit(X, more):
    model = model_of(gamma=0.1, preimage=RidgePreimage()).fit(X)
    assert model.inverse_transform(model.transform(X)).shape == X.shape
    model = model_of(gamma=0.1).fit(X)
    found = residuals(model, X)
    np.testing.assert_allclose(found.eigenvalues, model.eigenvalues_, rtol=1e-10)
    model.partial_fit(more)
    found = residuals(model, np.concatenate([X, more]))
    np.testing.assert_allclose(found.eigenvalues, model.eigenvalues_, rtol=1e-10)
