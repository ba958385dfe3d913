"""PCA of rows that come in batches, or are read by slices, is PCA of the whole."""

from __future__ import annotations

import collections
import tracemalloc
from functools import partial

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.decomposition import PCA as Peer

from gpukpca import PCA, Batches, IncrementalPCA, KernelPCA, Nystrom, ProbabilisticPCA, load
from gpukpca.algorithms import Resources, fit_pca
from gpukpca.backend.namespace import to_host
from gpukpca.covariance.panels import PanelCenteredMatrix
from gpukpca.covariance.scatter import ScatterOperator
from gpukpca.data.batches import BatchedRows
from gpukpca.exceptions import (
    DeviceMismatchError,
    InvalidParameterError,
    MemoryBudgetError,
    PrecisionWarning,
    RankWarning,
)
from tests import oracle, tolerances

N, D = 60, 7
ARRAYS = ("components_", "explained_variance_", "explained_variance_ratio_", "singular_values_", "mean_")
NUMBERS = ("total_variance_", "noise_variance_")
SOLVERS = ("auto", "full", "covariance_eigh", "dual", "randomized", "arpack", "tsqr")


@pytest.fixture
def X(rng):
    return rng.standard_normal((N, D)) * np.arange(D, 0, -1) + 3.0


class Again:
    """Batches for every pass, with the number of passes so far."""

    def __init__(self, *batches):
        self.batches, self.passes = batches, 0

    def __iter__(self):
        self.passes += 1
        yield from self.batches


class Stored:
    """A set on a disk, as zarr and h5py have them: read by slices, and too large to be read at once."""

    def __init__(self, rows):
        self.rows, self.shape, self.dtype, self.longest = rows, rows.shape, rows.dtype, 0

    def __getitem__(self, part):
        found = np.array(self.rows[part])
        self.longest = max(self.longest, len(found))
        return found

    def __array__(self, dtype=None, copy=None):
        raise AssertionError("the set was read at once")


def cut(X, *at):
    return Batches([X[a:b] for a, b in zip((0, *at), (*at, X.shape[0]), strict=True)])


def assert_same(model, other, xp=None, dtype="float64", factor=300.0):
    """All fitted numbers of two models agree to rounding of the dtype."""
    allowed = factor * tolerances.eps(dtype)
    host = np.asarray if xp is None else xp.host
    for name in ARRAYS:
        mine, theirs = (np.asarray(host(getattr(one, name)), np.float64) for one in (model, other))
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=allowed * np.max(np.abs(theirs)), err_msg=name)
    for name in NUMBERS:
        assert float(getattr(model, name)) == pytest.approx(float(getattr(other, name)), rel=allowed, abs=1e-12)
    assert model.n_components_ == other.n_components_


# -- the same as the whole ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", SOLVERS)
def test_batches_are_the_whole(X, solver):
    """With every solver, number of components and cut: the plain formula, the peer, and PCA of the array."""
    values, vectors = oracle.eigenpairs(np.cov(X, rowvar=False), D)
    for p in (1, 3, D, 0.9, "mle", None):
        if p == "mle" and solver not in ("auto", "full", "covariance_eigh"):
            continue
        if solver in ("randomized", "arpack") and p in (D, None, 0.9):
            continue
        make = {"svd_solver": solver, "random_state": 0, "tol": 1e-13 if solver == "randomized" else 0.0}
        whole = PCA(p, **make).fit(X)
        for batches in (cut(X), cut(X, 1), cut(X, 20, 40), cut(X, 9, 10, 11, 50), cut(X, *range(7, N, 7))):
            model = PCA(p, **make).fit(batches)
            assert_same(model, whole, factor=1e4 if solver in ("randomized", "dual") else 300)
            k = model.n_components_
            np.testing.assert_allclose(model.explained_variance_, values[:k], atol=1e-11 * values[0])
            np.testing.assert_allclose(
                oracle.up_to_sign(model.components_.T, vectors[:, :k]), vectors[:, :k], atol=1e-8
            )
            np.testing.assert_allclose(model.transform(X), whole.transform(X), atol=1e-8)
    peer = Peer(3, svd_solver="full").fit(X)
    model = PCA(3, **make).fit(cut(X, 31))
    np.testing.assert_allclose(model.explained_variance_ratio_, peer.explained_variance_ratio_, atol=1e-12)
    np.testing.assert_allclose(model.noise_variance_, peer.noise_variance_, rtol=1e-10)


@pytest.mark.parametrize("whiten", [False, True])
def test_every_library_and_precision(xp, dtype, X, whiten):
    rows = X.astype(dtype)
    given = Batches([xp.array(batch) for batch in cut(rows, 9, 40)])
    model, whole = PCA(3, whiten=whiten).fit(given), PCA(3, whiten=whiten).fit(xp.array(rows))
    assert all(xp.owns(getattr(model, name)) for name in ARRAYS)
    assert str(model.components_.dtype).endswith(dtype)
    assert_same(model, whole, xp, dtype)
    scores = PCA(3, whiten=whiten).fit_transform(given)
    assert xp.owns(scores)
    wanted = xp.host(whole.transform(xp.array(rows)))
    np.testing.assert_allclose(xp.host(scores), wanted, atol=1e3 * tolerances.eps(dtype) * np.max(np.abs(wanted)))


def test_wide_rows_scaled_rows_and_shares(rng):
    wide = rng.standard_normal((8, 30))
    # Seven directions vary; the last component of eight is any other one.
    assert_same(PCA(7).fit(cut(wide, 3)), PCA(7).fit(wide), factor=3000)
    V = PCA().fit(cut(wide, 3)).components_
    np.testing.assert_allclose(V @ V.T, np.eye(8), atol=1e-12)
    assert_same(PCA(3, svd_solver="randomized", random_state=0).fit(cut(wide, 3)), PCA(3).fit(wide), factor=1e5)
    tall = rng.standard_normal((90, 6)) * [9, 5, 3, 1, 0.1, 0.01] + 1e3
    assert_same(PCA(0.99, scale=True).fit(cut(tall, 3, 80)), PCA(0.99, scale=True).fit(tall), factor=1e5)
    np.testing.assert_allclose(PCA(2, scale=True).fit(cut(tall, 50)).scale_, tall.std(axis=0, ddof=1), rtol=1e-10)


def test_the_order_of_batches_is_no_matter(X):
    batches = cut(X, 20, 40)
    assert_same(PCA(2).fit(batches), PCA(2).fit(Batches(batches.source[::-1])))


def test_float64_decides_the_dtype_wherever_it_comes(X):
    whole = PCA(2).fit(np.concatenate([X[:30].astype(np.float32).astype(np.float64), X[30:]]))
    for order in (1, -1):
        model = PCA(2).fit(Batches([X[:30].astype(np.float32), X[30:]][::order]))
        assert model.components_.dtype == np.float64
        assert_same(model, whole)
    assert PCA(2).fit(Batches([X.astype(np.float32), X.astype(np.int64)])).components_.dtype == np.float64


def test_sparse_batches_are_made_dense_one_by_one(X):
    rows = np.where(X > 5, X, 0.0)
    assert_same(
        PCA(3).fit(Batches([scipy.sparse.csr_array(rows[:20]), scipy.sparse.coo_matrix(rows[20:])])), PCA(3).fit(rows)
    )


def test_names_of_frames(X):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcdefg"))
    model = PCA(3).fit(Batches([frame[:30], frame[30:]]))
    assert list(model.feature_names_in_) == list("abcdefg")
    with pytest.raises(ValueError, match=r"batch 1: The feature names"):
        PCA(3).fit(Batches([frame[:30], frame[30:].rename(columns={"a": "z"})]))


def test_usps(real_data):
    X = np.load(real_data / "usps" / "usps.npz")["x_train"]
    model = PCA(10).fit(Batches(np.array_split(X, 8)))
    shares = np.cumsum(model.explained_variance_ratio_)
    np.testing.assert_allclose(shares[[5, 6, 7, 9]], [0.4774, 0.5101, 0.5409, 0.5909], atol=5e-5)


def test_a_saved_model(X, tmp_path):
    model = PCA(3, whiten=True).fit(cut(X, 20))
    model.save(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(load(tmp_path / "model.safetensors").transform(X), model.transform(X))


# -- passes and memory -------------------------------------------------------------------------------------------------


def test_a_matrix_of_features_is_one_pass_beside_the_counts(X):
    source = Again(*cut(X, 20, 40))
    PCA(3).fit(source)
    # The first batch for its library, the count and check of all, the sample for the shift, moments and products.
    assert source.passes <= 5


def test_block_krylov_keeps_no_matrix(xp, rng, monkeypatch):
    monkeypatch.setattr(ScatterOperator, "to_dense", lambda *_: pytest.fail("the d x d matrix was formed"))
    X = rng.standard_normal((400, 1200)) * 0.99 ** np.arange(1200)
    source = Again(*(xp.array(batch) for batch in cut(X, 100, 101, 300)))
    model = PCA(2, svd_solver="randomized", tol=1e-12, random_state=0).fit(source)
    peer = Peer(2, svd_solver="full").fit(X)
    np.testing.assert_allclose(xp.host(model.explained_variance_), peer.explained_variance_, rtol=1e-10)
    np.testing.assert_allclose(xp.host(model.components_), peer.components_, atol=1e-6)
    np.testing.assert_allclose(model.noise_variance_, peer.noise_variance_, rtol=1e-10)


def test_the_operator_is_its_matrix(X):
    rows = BatchedRows(lambda: iter(cut(X, 20)), X[:0], [20, 40])
    Z = PanelCenteredMatrix(rows, True, X[0])
    Z.measure()
    op = ScatterOperator(Z, of_samples=False)
    S = np.cov(X, rowvar=False) * (N - 1)
    np.testing.assert_allclose(op.to_dense(), S, atol=1e-11)
    np.testing.assert_allclose(op @ np.eye(D)[:, :3], S[:, :3], atol=1e-11)
    np.testing.assert_allclose(op.diagonal(), np.diag(S), atol=1e-11)


def test_sets_are_read_by_slices_within_the_prediction(rng, monkeypatch):
    """The largest peak is that of the plan at most, and at most two thirds of it are not needed."""
    monkeypatch.setattr("gpukpca.backend.blocking.READ_ENTRIES", 2**17)
    for n, d, solver in ((20_000, 40, "auto"), (5000, 150, "auto"), (5000, 150, "full"), (120, 4000, "randomized")):
        X = rng.standard_normal((n, d))
        stored = Stored(X)
        model = PCA(3, svd_solver=solver, tol=1e-2, random_state=0).fit(stored)
        tracemalloc.start()
        model.fit(stored)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert stored.longest == 2**17 // d
        assert peak <= model.plan_.predicted_bytes <= 3 * peak, (n, d, solver)
        assert solver == "randomized" or peak < X.nbytes
        if solver != "randomized":
            assert_same(model, PCA(3).fit(X), factor=3000)


def test_predictions_hold_for_many_batches(rng):
    """The sum over the batches is a matrix beside that of a batch."""
    for n, d, solver, scores in (
        (500, 400, "covariance_eigh", False),
        (300, 400, "full", False),
        (6000, 50, "auto", True),
    ):
        for dtype in (np.float64, np.float32):
            batches = cut(rng.standard_normal((n, d)).astype(dtype), *range(50, n, 50))
            model = PCA(5, svd_solver=solver, n_jobs=1)
            fit = model.fit_transform if scores else model.fit
            fit(batches)
            tracemalloc.start()
            fit(batches)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak <= model.plan_.predicted_bytes <= 3 * peak, (n, d, solver, dtype)


def test_wide_sets_fit_without_their_gram_matrix_where_that_needs_too_much(rng):
    X = rng.standard_normal((150, 6000)) * 0.7 ** np.arange(150)[:, None]
    plain, limited = PCA(3), PCA(3, memory_limit="16 MB", random_state=0, tol=1e-10)
    assert plain.fit(cut(X, 50, 100)).plan_.method == "dual"
    assert limited.fit(cut(X, 50, 100)).plan_.method == "randomized"
    assert_same(limited, plain, factor=1e6)


def test_what_does_not_fit_is_refused_before_the_products(rng):
    batches = Again(rng.standard_normal((50, 300)), rng.standard_normal((50, 300)))
    with pytest.raises(MemoryBudgetError, match=r"100 x 300 needs .* Try .*n_components=\d+"):
        PCA(50, memory_limit=2_000_000).fit(batches)
    assert batches.passes <= 3


def test_slices_are_shorter_under_a_limit(rng):
    X = rng.standard_normal((20_000, 20))
    stored = Stored(X)
    model = PCA(3, memory_limit="500 kB").fit(stored)
    assert stored.longest < 1000
    assert_same(model, PCA(3).fit(X), factor=3000)
    tracemalloc.start()
    model.fit(stored)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 500_000


def test_a_memory_map_of_integers_is_converted_by_slices(rng, tmp_path, sizes):
    """As a set is: never the whole of it in floating-point numbers."""
    X = rng.integers(0, 200, (40_000, 20)) * np.arange(20, 0, -1)
    np.save(tmp_path / "rows.npy", X.astype(np.int16))
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    sizes(READ_ENTRIES=20_000)
    nystrom = KernelPCA(2, kernel="rbf", gamma=1e-8, eigen_solver=Nystrom(rank=20), n_jobs=1, random_state=0)
    for fit in (
        PCA(3, n_jobs=1).fit,
        PCA(3, n_jobs=1).fit_transform,
        ProbabilisticPCA(3, batch_size=1000, n_jobs=1).fit,
        partial(fit_pca, n_components=3),
        nystrom.fit,
    ):
        fit(mapped[:2000])  # lazy imports
        tracemalloc.start()
        found = fit(mapped)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < X.size * 8 / 2, fit
        expected = fit(X.astype(np.float64))
        for name in ("explained_variance", "explained_variance_", "eigenvalues_"):
            if hasattr(found, name):
                np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-9)
    with_preimage = clone(nystrom).set_params(preimage="ridge").fit(mapped[:500])  # which needs all rows at once
    assert with_preimage.denoise(mapped[:9]).shape == (9, 20)


def test_a_set_on_the_host_is_fitted_on_a_device(cuda, X):
    for weights in (None, np.arange(N) % 3 + 1.0):
        expected = fit_pca(X, 3, sample_weight=weights, with_scores=True)
        how = {"resources": Resources.for_data(Stored(X), device="cuda"), "with_scores": True}
        found = fit_pca(Stored(X), 3, sample_weight=weights, **how)
        np.testing.assert_allclose(to_host(found.explained_variance), expected.explained_variance, rtol=1e-10)
        np.testing.assert_allclose(to_host(found.scores), expected.scores, atol=1e-9)


def test_a_larger_limit_changes_no_digit(rng):
    X = rng.standard_normal((500, 10))
    plain, limited = (PCA(3, memory_limit=limit).fit(cut(X, 100)) for limit in (None, "1 GiB"))
    np.testing.assert_array_equal(plain.components_, limited.components_)


def test_the_plan_of_batches(X):
    plan = PCA(3).plan(cut(X, 20))
    assert (plan.n_samples, plan.n_features, plan.method) == (N, D, "covariance_eigh")


# -- bad input ---------------------------------------------------------------------------------------------------------


BAD_BATCHES = {
    "width": (lambda X: Batches([X, X[:, :4]]), "batch 1: X has 4 features, but PCA is expecting 7"),
    "nan": (
        lambda X: Batches([X, np.where(np.equal(X, X[1, 2]), np.nan, X)]),
        "batch 1: Input X contains NaN.* row 1, column 2",
    ),
    "nan first": (lambda X: Batches([np.full((5, 3), np.nan)]), "batch 0: Input X contains NaN"),
    "one row": (lambda X: Batches([X, X[0]]), "batch 1: Expected 2D array, got 1D"),
    "no row": (lambda X: Batches([X, X[:0]]), r"batch 1: Found array with 0 sample"),
    "text": (lambda X: Batches([X, np.full((2, D), "a")]), "batch 1: .*string"),
    "complex": (lambda X: Batches([X, X * 1j]), "batch 1: .*Complex data not supported"),
    "empty": (lambda X: Again(), "the iterable of batches is empty"),
    "once": (lambda X: iter([X]), "more than once"),
    "generator": (lambda X: (batch for batch in [X]), "more than once"),
    "huge": (lambda X: Batches([X, X * 1e200]), "overflow"),
    "too few": (lambda X: Batches([X[:1], X[1:2]]), "n_components=3 must be between"),
}


def test_bad_batches_are_named(X):
    for name, (make, message) in BAD_BATCHES.items():
        model = PCA(3)
        with pytest.raises(ValueError, match=message):
            model.fit(make(X))
        assert not hasattr(model, "components_"), name


def test_bad_rows_of_a_set_are_named(X, monkeypatch):
    monkeypatch.setattr("gpukpca.backend.blocking.READ_ENTRIES", 20 * D)
    X[37, 2] = np.nan
    with pytest.raises(ValueError, match=r"rows 20 to 39 \(batch 1\): Input X contains NaN.*row 37, column 2"):
        PCA(2).fit(Stored(X))


def test_batches_of_two_libraries_are_refused(X, xp):
    if xp.owns(np.empty(0)):
        return
    with pytest.raises(DeviceMismatchError, match=r"^batch 1 is of .* on .*, and the first one is of numpy"):
        PCA().fit(Batches([X, xp.array(X)]))


def test_batches_that_change_between_passes_are_noticed(X):
    class Fickle(Again):
        def __iter__(self):
            self.passes += 1
            yield from self.batches[: 1 if self.passes > 2 else None]

    with pytest.raises(ValueError, match="changed between passes: the first pass gave 60 rows, a later one 30"):
        PCA().fit(Fickle(X[:30], X[30:]))


def test_a_batch_that_changes_is_named(X):
    class Growing(Again):
        def __iter__(self):
            self.passes += 1
            yield from self.batches if self.passes < 3 else (*self.batches, X[:5])

    with pytest.raises(
        InvalidParameterError, match=r"changed between passes: (the first pass gave 60 rows|batch 2 has 5)"
    ):
        PCA(1, svd_solver="dual").fit_transform(Growing(X[:30], X[30:]))
    with pytest.raises(InvalidParameterError, match="the iterable of batches is empty"):
        PCA().fit(type("Spent", (Again,), {"__iter__": lambda self: iter(())})(X))


def test_one_stored_iterator_loses_no_batch(X):
    class Stored(Again):
        def __init__(self):
            self.iterator = iter(cut(X, 20, 40))

        def __iter__(self):
            return self.iterator

    assert IncrementalPCA(2).fit(Stored()).n_samples_seen_ == N
    with pytest.raises(InvalidParameterError, match="the first pass gave 60 rows, a later one 0"):
        PCA(2).fit(Stored())


def test_other_containers_are_no_batches(X):
    expected = PCA(2).fit(X)
    assert_same(PCA(2).fit(collections.deque(X.tolist())), expected)
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["dtype", "shape", *"cdefg"])
    model = PCA(2).fit(frame)
    assert list(model.feature_names_in_) == list(frame.columns)
    assert_same(model, expected)


def test_a_warning_of_a_batch_comes_once(X):
    batches = Batches([np.full((3, 2), 2**53 + 1, dtype=np.int64), np.array([[1, 2], [2, 1], [3, 5]])])
    with pytest.warns(PrecisionWarning, match="lose digits") as caught:
        PCA(1).fit(batches)
    assert len([warning for warning in caught if "lose digits" in str(warning.message)]) == 1


def test_methods_of_a_fitted_model_take_batches(X):
    model = PCA(2).fit(cut(X, 20))
    for method in ("transform", "score_samples", "score"):
        np.testing.assert_allclose(getattr(model, method)(cut(X, 20)), getattr(model, method)(X), rtol=1e-9, atol=1e-12)


def test_constants(X):
    """Rounded means of different numbers of rows differ in the last digit, which is no variance."""
    for value in (0.1, 1e4 / 3, 1e17 / 3):
        rows = np.full((27, 2), value)
        with pytest.warns(RankWarning):
            model = PCA(2, whiten=True).fit(cut(rows, 10, 20))
        assert model.total_variance_ == 0
        assert np.all(model.explained_variance_ == 0)
        others = np.random.default_rng(0).standard_normal((27, 2))
        mixed = PCA(2).fit(cut(np.c_[others, rows], 10, 20))
        np.testing.assert_allclose(mixed.explained_variance_, np.linalg.eigvalsh(np.cov(others.T))[::-1], rtol=1e-10)


def test_a_loader_of_tuples_gives_its_first_entries(X):
    # A loader of PyTorch gives lists of tensors: rows, then labels.
    labels = np.zeros(len(X))
    expected = PCA(2).fit(X).explained_variance_
    for batches in (Batches([(X[:20], labels[:20]), (X[20:], labels[20:])]), Again([X[:20]], [X[20:]])):
        np.testing.assert_allclose(PCA(2).fit(batches).explained_variance_, expected, rtol=1e-12)
    torch = pytest.importorskip("torch")
    data = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(labels))
    loader = torch.utils.data.DataLoader(data, batch_size=16)
    np.testing.assert_allclose(PCA(2).fit(loader).explained_variance_.numpy(), expected, rtol=1e-12)
