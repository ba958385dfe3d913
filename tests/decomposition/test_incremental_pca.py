"""PCA in batches: the same as scikit-learn's, batch by batch."""

from __future__ import annotations

import re
import tracemalloc

import numpy as np
import pytest
import scipy.sparse
from sklearn.decomposition import PCA
from sklearn.decomposition import IncrementalPCA as Peer
from sklearn.exceptions import NotFittedError

from gpukpca import Batches, IncrementalPCA
from gpukpca.algorithms.pca import incremental
from gpukpca.exceptions import DeviceMismatchError, InvalidParameterError, MemoryBudgetError, RankWarning
from tests import tolerances

N, D = 60, 7
ARRAYS = ("components_", "explained_variance_", "explained_variance_ratio_", "singular_values_", "mean_", "var_")


@pytest.fixture
def X(rng):
    return rng.standard_normal((N, D)) * np.arange(D, 0, -1) + 3.0


class Again:
    """Batches for every pass."""

    def __init__(self, *batches):
        self.batches = batches

    def __iter__(self):
        yield from self.batches


def cut(X, *at):
    return [X[a:b] for a, b in zip((0, *at), (*at, len(X)), strict=True)]


def assert_same(model, other, dtype="float64", factor=300.0):
    """All fitted numbers, to rounding of the dtype."""
    allowed = factor * tolerances.eps(dtype)
    for name in ARRAYS:
        mine, theirs = np.asarray(getattr(model, name), np.float64), np.asarray(getattr(other, name), np.float64)
        np.testing.assert_allclose(mine, theirs, atol=allowed * max(np.max(np.abs(theirs)), 1e-300), err_msg=name)
    assert float(model.noise_variance_) == pytest.approx(float(other.noise_variance_), rel=1e3 * allowed, abs=allowed)
    for name in ("n_components_", "n_samples_seen_", "batch_size_"):
        if hasattr(other, name):
            assert getattr(model, name) == getattr(other, name)


# -- batch by batch, as scikit-learn -----------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [None, 1, 3, D])
@pytest.mark.parametrize("size", [None, 8, 25, N])
def test_fit_is_that_of_scikit_learn(X, p, size):
    size = size if size is None or p is None or size >= p else p
    assert_same(IncrementalPCA(p, batch_size=size).fit(X), Peer(p, batch_size=size).fit(X))


@pytest.mark.parametrize("at", [(20, 40), (10, 11, 14, 50), (30,), (7, 8, 9)])
def test_partial_fit_is_that_of_scikit_learn_after_every_batch(X, at):
    mine, theirs = IncrementalPCA(4), Peer(4)
    for batch in cut(X, *at):
        assert_same(mine.partial_fit(batch), theirs.partial_fit(batch))


def test_more_features_than_rows_in_a_batch(rng):
    X = rng.standard_normal((24, 40))
    mine, theirs = IncrementalPCA(3, batch_size=6).fit(X), Peer(3, batch_size=6).fit(X)
    assert_same(mine, theirs, factor=3000)
    np.testing.assert_allclose(mine.components_ @ mine.components_.T, np.eye(3), atol=1e-14)


@pytest.mark.parametrize("whiten", [False, True])
def test_every_library_and_precision(xp, dtype, X, whiten):
    rows = X.astype(dtype)
    mine = IncrementalPCA(3, batch_size=20, whiten=whiten)
    scores = mine.fit_transform(xp.array(rows))
    theirs = Peer(3, batch_size=20, whiten=whiten).fit(rows.astype(np.float64))
    for name in ARRAYS:
        value = getattr(mine, name)
        assert xp.owns(value), name
        assert str(value.dtype).endswith("float64" if name in ("mean_", "var_") else dtype), name
        wanted = getattr(theirs, name)
        allowed = 100 * tolerances.eps(dtype) * np.max(np.abs(wanted))
        np.testing.assert_allclose(xp.host(value), wanted, atol=allowed, err_msg=name)
    assert xp.owns(scores)
    assert str(scores.dtype).endswith(dtype)
    wanted = theirs.transform(rows.astype(np.float64))
    np.testing.assert_allclose(xp.host(scores), wanted, atol=300 * tolerances.eps(dtype) * np.max(np.abs(wanted)))
    points = mine.inverse_transform(scores)
    assert xp.owns(points)
    np.testing.assert_allclose(xp.host(points), theirs.inverse_transform(wanted), atol=2e3 * tolerances.eps(dtype))


def test_a_first_batch_with_as_many_components_as_rows(xp, rng):
    """A centered batch has one direction less than rows: one component is made up, and orthogonal to the others."""
    X = rng.standard_normal((5, 9))
    model = IncrementalPCA().partial_fit(xp.array(X))
    V = xp.host(model.components_)
    np.testing.assert_allclose(V @ V.T, np.eye(5), atol=1e-13)
    np.testing.assert_allclose(xp.host(model.singular_values_), np.linalg.svd(X - X.mean(axis=0))[1], atol=1e-13)


def test_a_float32_stream_does_not_lose_digits(rng):
    """Between batches nothing is rounded to the precision of the data."""
    X = (rng.standard_normal((400, 5)) * [5, 4, 3, 2, 1]).astype(np.float32)
    mine, wide = (IncrementalPCA(2, batch_size=10).fit(data) for data in (X, X.astype(np.float64)))
    np.testing.assert_allclose(mine.components_, wide.components_, atol=2 * tolerances.eps("float32"))


def test_statistics_of_data_far_from_zero(rng):
    X = (1e4 + rng.standard_normal((200, 3))).astype(np.float32)
    model = IncrementalPCA(batch_size=50).fit(X)
    wide = X.astype(np.float64)
    np.testing.assert_allclose(model.mean_, wide.mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(model.var_, wide.var(axis=0), rtol=1e-10)
    np.testing.assert_allclose(model.explained_variance_, PCA().fit(wide).explained_variance_, rtol=5e-6)


def test_covariance_and_precision(xp, X):
    model = IncrementalPCA(3, batch_size=20).fit(xp.array(X))
    peer = Peer(3, batch_size=20).fit(X)
    covariance, precision = model.get_covariance(), model.get_precision()
    assert xp.owns(covariance)
    np.testing.assert_allclose(xp.host(covariance), peer.get_covariance(), atol=1e-12)
    np.testing.assert_allclose(xp.host(precision), peer.get_precision(), atol=1e-12)
    np.testing.assert_allclose(xp.host(covariance) @ xp.host(precision), np.eye(D), atol=1e-12)


def test_covariance_of_all_components_is_that_of_the_data(X):
    for whiten in (False, True):  # scores are whitened, not the model
        model = IncrementalPCA(whiten=whiten, batch_size=N).fit(X)
        np.testing.assert_allclose(model.get_covariance(), np.cov(X, rowvar=False), atol=1e-12)
        np.testing.assert_allclose(model.get_precision(), np.linalg.inv(np.cov(X, rowvar=False)), atol=1e-12)
    assert np.all(np.isfinite(IncrementalPCA().fit(X[:4]).get_precision()))
    with pytest.warns(RankWarning), pytest.raises(np.linalg.LinAlgError, match="no variance"):
        IncrementalPCA().fit(np.ones((4, 2))).get_precision()


def test_whitened_scores_have_variance_one_or_are_zero(xp, dtype, rng):
    X = (rng.standard_normal((50, 3)) @ rng.standard_normal((3, 6)) + 5.0).astype(dtype)
    scores = xp.host(IncrementalPCA(whiten=True).fit_transform(xp.array(X)))
    allowed = 1e4 * tolerances.eps(dtype)
    np.testing.assert_allclose(np.cov(scores[:, :3], rowvar=False), np.eye(3), atol=allowed)
    if dtype == "float64":
        assert np.all(scores[:, 3:] == 0.0)


def test_sparse_rows_are_made_dense_batch_by_batch(X):
    rows = np.where(X > 5, X, 0.0)
    sparse = scipy.sparse.csr_array(rows)
    model, dense = (IncrementalPCA(3, batch_size=20).fit(data) for data in (sparse, rows))
    assert_same(model, dense)
    np.testing.assert_allclose(model.transform(sparse), dense.transform(rows), atol=1e-12)
    with pytest.raises(TypeError, match="does not support sparse"):
        IncrementalPCA().partial_fit(sparse)


# -- iterables and memory maps -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["generator", "list", "tuple", "object", "map"])
def test_an_iterable_is_its_batches(X, kind):
    batches = cut(X, 15, 30, 33)
    source = {
        "generator": (batch for batch in batches),
        "list": Batches(batches),
        "tuple": Batches(tuple(batches)),
        "function": Batches(lambda: iter(batches)),
        "object": Again(*batches),
        "map": map(np.asarray, batches),
    }[kind]
    peer = Peer(4)
    for batch in batches:
        peer.partial_fit(batch)
    model = IncrementalPCA(4).fit(source)
    for name in ARRAYS:
        np.testing.assert_allclose(getattr(model, name), getattr(peer, name), atol=1e-12)
    assert model.n_samples_seen_ == N


@pytest.mark.parametrize("stored", ["float64", "float32", "uint8", "int16"])
def test_a_memory_map_is_read_batch_by_batch(rng, tmp_path, stored):
    rows = np.round(rng.uniform(0, 200, (20_000, 10))).astype(stored)
    np.save(tmp_path / "rows.npy", rows)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    model = IncrementalPCA(3, batch_size=1000).fit(mapped[:2000])  # lazy imports
    tracemalloc.start()
    model.fit(mapped)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000 * 10 * 8 / 2  # the whole in float64 is 1.6 MB, a batch of it 80 kB
    assert_same(model, IncrementalPCA(3, batch_size=1000).fit(rows), model.components_.dtype.name)
    assert model.components_.dtype == (np.float32 if stored == "float32" else np.float64)
    np.testing.assert_array_equal(mapped, rows)


def test_batches_with_names_are_checked_like_frames(X):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcdefg"))
    model = IncrementalPCA(3).fit(Batches([frame[:30], frame[30:]]))
    assert list(model.feature_names_in_) == list("abcdefg")
    with pytest.raises(ValueError, match=r"batch 1: The feature names"):
        IncrementalPCA(3).fit(Batches([frame[:30], frame[30:].rename(columns={"a": "z"})]))
    scores = model.set_output(transform="pandas").transform(frame)
    assert list(scores.columns) == ["incrementalpca0", "incrementalpca1", "incrementalpca2"]


class Sliced:
    """A set that knows its shape, its dtype and slices of rows."""

    def __init__(self, rows):
        self.rows, self.shape, self.dtype, self.longest = rows, rows.shape, rows.dtype, 0

    def __getitem__(self, part):
        self.longest = max(self.longest, len(self.rows[part]))
        return self.rows[part]


def test_short_first_batches_are_joined(X):
    """Until they have a row for every component, whatever holds them; later ones stay as they are."""
    expected = IncrementalPCA(3).partial_fit(X[:4]).partial_fit(X[4:5]).partial_fit(X[5:])
    batches = cut(X, 1, 2, 4, 5)
    for source in (Batches(batches), iter(batches), Again(*batches)):
        assert_same(IncrementalPCA(3).fit(source), expected)
    assert_same(IncrementalPCA(3).partial_fit(Batches(batches)), expected)
    assert_same(IncrementalPCA(3).fit(Batches([X[:1], X[1:]])), IncrementalPCA(3).partial_fit(X))
    mixed = IncrementalPCA(3).fit(Batches([X[:1].astype(np.float32), X[1:]]))
    assert mixed.components_.dtype == np.float64
    by_four = IncrementalPCA(3, batch_size=2).partial_fit(X[:4])
    for start in range(4, N - 4, 2):
        by_four.partial_fit(X[start : start + 2])
    by_four.partial_fit(X[-4:])  # a last batch has as many rows too
    for rows in (X, Sliced(X)):
        assert_same(IncrementalPCA(3, batch_size=2).fit(rows), by_four)
    weights = np.ones(N)
    weights[:9] = 0.0  # the rows of the first batches that count are joined
    model = IncrementalPCA(3, batch_size=5).fit(X, sample_weight=weights)
    assert_same(model, IncrementalPCA(3, batch_size=5).partial_fit(Batches(cut(X[9:], *range(6, N - 9, 5)))))
    with pytest.raises(InvalidParameterError, match="has at most 2 components"):  # a batch of its own
        IncrementalPCA(3).partial_fit(X[:2])


def test_partial_fit_goes_on_after_any_fit_and_fit_begins_again(X, rng):
    new = rng.standard_normal((20, D))
    expected = IncrementalPCA(3, batch_size=N).partial_fit(X).partial_fit(new)
    twice = IncrementalPCA(3, batch_size=N).partial_fit(Batches([X, new, new]))
    begun = IncrementalPCA(3, batch_size=N)
    for given in (X, Sliced(X), Batches([X]), iter([X]), scipy.sparse.csr_array(X)):
        model = begun.fit(given)
        assert model.n_samples_seen_ == N
        assert_same(model.partial_fit(new), expected, factor=1000)
        assert_same(model.partial_fit(Sliced(new)), twice, factor=1000)
        assert model.n_samples_seen_ == N + 40
    stored = Sliced(X)
    model = IncrementalPCA(3, batch_size=20).partial_fit(stored)
    assert stored.longest == 20
    assert_same(model, IncrementalPCA(3, batch_size=20).fit(X))


def test_no_more_components_than_rows(rng):
    X = rng.standard_normal((5, 9))
    weights = np.array([1, 0, 2, 0, 1])
    for make, count in ((lambda: IncrementalPCA(), 5), (lambda: IncrementalPCA(batch_size=2), 2)):
        for rows in (X, Sliced(X)):
            assert len(make().fit(rows).components_) == count
    assert len(IncrementalPCA().fit(X, sample_weight=weights).components_) == 3
    for rows in (X, Sliced(X), Batches([X]), Batches([X[:2], X[2:]])):
        with pytest.raises(InvalidParameterError, match="has at most 5 components"):
            IncrementalPCA(6).fit(rows)


# -- memory ------------------------------------------------------------------------------------------------------------


def peak_of(model, X):
    """The most bytes that a second fit holds at a time, LAPACK's own apart."""
    model.fit(X)
    tracemalloc.start()
    model.fit(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


# Rows of a batch, features, components.
SHAPES = [(2000, 40, 3), (300, 300, 20), (60, 3000, 10)]


@pytest.mark.parametrize(("rows", "d", "p"), SHAPES)
def test_predictions_are_near_what_an_update_takes(rng, rows, d, p):
    peak = peak_of(IncrementalPCA(p, batch_size=rows), rng.standard_normal((2 * rows, d)))
    assert peak <= incremental.update_bytes(rows, d, p, 8) <= 4 * peak


REFUSED = {
    "a batch": ({"n_components": 3, "batch_size": 2000}, r"batch_size=\d+ where"),
    "components": ({"n_components": 90, "batch_size": 100, "memory_limit": 4_000_000}, r"Try n_components=\d+, or"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_with_advice_and_nothing_changes(rng, case):
    parameters, words = REFUSED[case]
    X = rng.standard_normal((2000, 300))
    model = IncrementalPCA(**{"memory_limit": 700_000} | parameters)
    with pytest.raises(MemoryBudgetError, match=words):
        model.fit(X)
    assert not hasattr(model, "components_")


def test_the_advised_size_of_a_batch_fits(rng):
    X = rng.standard_normal((2000, 300))
    with pytest.raises(MemoryBudgetError) as raised:
        IncrementalPCA(3, batch_size=2000, memory_limit="2 MB").fit(X)
    advised = int(re.search(r"batch_size=(\d+)", str(raised.value)).group(1))
    IncrementalPCA(3, batch_size=advised, memory_limit="2 MB").fit(X)
    with pytest.raises(MemoryBudgetError, match="at most"):
        IncrementalPCA(3, memory_limit="2 MB").partial_fit(X)


def test_what_is_free_bounds_a_fit_without_a_limit(rng, monkeypatch):
    monkeypatch.setattr("gpukpca.algorithms.resources.free_bytes", lambda _: 1000)
    IncrementalPCA().fit(rng.standard_normal((20, 9)))  # too small to ask for that
    with pytest.raises(MemoryBudgetError, match="850 B"):
        IncrementalPCA(2).fit(rng.standard_normal((1000, 800)))


# -- promises of every estimator ---------------------------------------------------------------------------------------


def test_progress_is_reported(X):
    events = []
    IncrementalPCA(2, batch_size=20, verbose=events.append).fit(X)
    assert [(event.stage, event.done, event.total) for event in events] == [("batch", k * 20, N) for k in (1, 2, 3)]


# -- bad input ---------------------------------------------------------------------------------------------------------


def test_more_components_than_features_are_refused(X):
    with pytest.raises(InvalidParameterError, match=f"n_components={D + 1}"):
        IncrementalPCA(D + 1).fit(X)


BAD_BATCHES = [
    ("few rows", lambda X: Batches([X[:1], X[1:2]]), r"the first batch of shape \(2, 7\) has at most 2 components"),
    ("width", lambda X: Batches([X, X[:, :4]]), "batch 1: X has 4 features, but IncrementalPCA is expecting 7"),
    (
        "nan",
        lambda X: Batches([X, np.where(np.equal(X, X[1, 2]), np.nan, X)]),
        "batch 1: Input X contains NaN.* row 1, column 2",
    ),
    ("nan first", lambda X: Batches([np.full((5, 3), np.nan)]), "batch 0: Input X contains NaN"),
    ("one row", lambda X: Batches([X, X[0]]), "batch 1: Expected 2D array, got 1D"),
    ("no row", lambda X: Batches([X, X[:0]]), r"batch 1: Found array with 0 sample"),
    ("text", lambda X: Batches([X, np.full((2, D), "a")]), "batch 1: .*string"),
    ("complex", lambda X: Batches([X, X * 1j]), "batch 1: .*Complex data not supported"),
    ("empty", lambda X: iter(()), "empty"),
    ("empty object", lambda X: Again(), "empty"),
    ("huge", lambda X: Batches([X, X * 1e200]), "overflow"),
]


@pytest.mark.parametrize(("make", "message"), [case[1:] for case in BAD_BATCHES], ids=[case[0] for case in BAD_BATCHES])
def test_bad_batches_are_named(X, make, message):
    with pytest.raises(ValueError, match=message):
        IncrementalPCA(3).fit(make(X))


class Once:
    """Batches whose iterator is the same one each time, which shows after the fit alone."""

    def __init__(self, batches):
        self.batches = iter(batches)

    def __iter__(self):
        return self.batches


def test_scores_of_batches_that_are_gone_leave_the_model_as_it_was(X):
    for model in (IncrementalPCA(2), IncrementalPCA(2).fit(X[::2])):
        before = dict(vars(model))
        with pytest.raises(InvalidParameterError, match="the iterable of batches is empty"):
            model.fit_transform(Once([X[:20], X[20:]]))
        assert vars(model) == before
    assert IncrementalPCA(2).fit(Once([X[:20], X[20:]])).n_samples_seen_ == len(X)


def test_bad_rows_of_a_memory_map_are_named(X, tmp_path):
    X[37, 2] = np.nan
    np.save(tmp_path / "rows.npy", X)
    with pytest.raises(ValueError, match=r"rows 20 to 39 \(batch 1\): Input X contains NaN.*row 37, column 2"):
        IncrementalPCA(2, batch_size=20).fit(np.load(tmp_path / "rows.npy", mmap_mode="r"))


def test_batches_of_two_libraries_are_refused(X):
    torch = pytest.importorskip("torch")
    with pytest.raises(DeviceMismatchError, match=r"batch 1 is of torch on .*, and the first one is of numpy"):
        IncrementalPCA().fit(Batches([X, torch.asarray(X)]))
    with pytest.raises(DeviceMismatchError, match="the first one is of torch"):
        IncrementalPCA().partial_fit(torch.asarray(X)).partial_fit(X)


def test_partial_fit_refuses_what_does_not_follow(X):
    model = IncrementalPCA(3).partial_fit(X)
    with pytest.raises(ValueError, match="expecting 7 features"):
        model.partial_fit(X[:, :5])
    with pytest.raises(InvalidParameterError, match="changed from 3 to 2"):
        model.set_params(n_components=2).partial_fit(X)
    with pytest.raises(NotFittedError):
        IncrementalPCA().transform(X)
    with pytest.raises(ValueError, match="n_components = 3"):
        model.inverse_transform(X)


@pytest.mark.parametrize("value", [0.1, 1e4 / 3, 1e17 / 3])
def test_batches_of_a_constant_have_the_same_mean(value):
    """Rounded means of different numbers of rows differ in the last digit, which is no variance."""
    rows = np.full((27, 2), value)
    with pytest.warns(RankWarning, match="all rows are equal"):
        model = IncrementalPCA(2, whiten=True, batch_size=10).fit(rows)
    assert model.total_variance_ == 0
    assert np.all(model.explained_variance_ == 0)
    assert np.all(model.transform(2 * rows) == 0)
    others = np.random.default_rng(0).standard_normal((27, 2))
    mixed = IncrementalPCA(2, batch_size=10).fit(np.c_[others, rows])
    np.testing.assert_allclose(mixed.explained_variance_, np.linalg.eigvalsh(np.cov(others.T))[::-1], rtol=1e-12)


def test_no_variance_is_zeros_and_a_warning():
    for rows in (np.full((6, 3), 0.1), np.ones((1, 3))):
        with pytest.warns(RankWarning, match="all rows are equal"):
            model = IncrementalPCA().fit(rows)
        for name in ARRAYS:
            assert np.all(np.isfinite(getattr(model, name))), name
        assert np.all(model.explained_variance_ratio_ == 0)
