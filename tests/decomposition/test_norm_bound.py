"""The bound on every error of Nyström, from rows that the fit draws: containers, weights, streams, and tolerances."""

import pickle
import tracemalloc
import warnings

import numpy as np
import pytest
import scipy.sparse

import gpukpca
from gpukpca import Batches, KernelPCA, Nystrom
from gpukpca.algorithms import slots
from gpukpca.algorithms.slots import Slots
from gpukpca.eigen import pivoted_factor
from gpukpca.eigen.partial_cholesky import PartialCholeskyBuilder
from gpukpca.exceptions import ConvergenceWarning, InvalidParameterError, MemoryBudgetError
from gpukpca.kernels import RBF, Cosine, Laplacian, Linear, Matern, Polynomial

KERNELS = (RBF(0.3), Laplacian(0.2), Matern(0.1, nu=1.5), Polynomial(2, gamma=0.2, coef0=1.0), Cosine())
SHAPES = ("normal", "clusters", "cauchy", "duplicates", "one-hot", "giant", "flat")
N, P = 260, 4


def rows_of(shape, rng, n=N, d=5):
    X = rng.standard_normal((n, d))
    if shape == "clusters":
        X = rng.standard_normal((6, d))[rng.integers(0, 6, n)] + 0.01 * X
    elif shape == "cauchy":
        X = rng.standard_cauchy((n, d))
    elif shape == "duplicates":
        X = X[rng.integers(0, n // 3, n)]
    elif shape == "one-hot":
        X = np.c_[2 * np.eye(d)[rng.integers(0, d, n)], X[:, :2]]
    elif shape == "giant":
        X[0] *= 1000.0
    elif shape == "flat":
        X = 1e-3 * X + 10.0
    return X


def exact_values(kernel, X, w, center):
    K, roots = np.asarray(kernel(X), dtype=np.float64), np.sqrt(w)
    A = (K + K.T) / 2.0 * roots[:, None] * roots[None, :]
    if center:
        u = roots / np.linalg.norm(roots)
        A -= np.outer(u, u @ A)
        A -= np.outer(A @ u, u)
    return np.linalg.eigvalsh(A)[::-1]


def fitted(how, X, w, kernel, center, solver, seed):
    model = KernelPCA(P, kernel=kernel, center=center, eigen_solver=solver, random_state=seed)
    if how == "stream":
        for start in range(0, len(X), 41):
            model.partial_fit(X[start : start + 41], sample_weight=w[start : start + 41])
        return model
    if how == "batches":
        return model.fit(Batches(lambda: (X[i : i + 37] for i in range(0, len(X), 37))))
    if how == "matrix":
        K = np.asarray(kernel(X))
        return model.set_params(kernel="precomputed").fit((K + K.T) / 2.0, sample_weight=w)
    return model.fit(scipy.sparse.csr_array(X) if how == "csr" else X, sample_weight=w)


def test_no_error_exceeds_the_bound_in_any_container():
    hows, checked = ("array", "csr", "stream", "batches", "matrix", "given", "points", "evenly"), 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(160):
            rng = np.random.default_rng(seed)
            how, shape, kernel = hows[seed % 8], SHAPES[seed % 7], KERNELS[seed % 5]
            X, w, center = rows_of(shape, rng), np.ones(N), bool(seed // 8 % 2)
            if seed % 3 == 0 and how != "batches":
                w = rng.integers(1 if how == "matrix" else 0, 4, N).astype(np.float64)
                w[:60] += 1.0
            how_many = {"bound_rows": (100, 150, 1000)[seed % 3]}
            landmarks = {"given": list(range(0, N, 10)), "points": X[:25] + 0.1, "evenly": "uniform"}
            how_many |= {"landmarks": landmarks[how]} if how in landmarks else {}
            solver = Nystrom(None if how in ("given", "points") else 25, **how_many)
            model, true = fitted(how, X, w, kernel, center, solver, seed), exact_values(kernel, X, w, center)
            info, found = model.norm_bound_info_, np.asarray(model.eigenvalues_)
            what = (seed, how, shape, kernel, center, info)
            assert info.value is not None, what
            error = float(np.max(true[: len(found)] - found))
            assert error <= model.norm_bound_ + 1e-12 * true[0], (error, what)
            assert model.norm_bound_ <= model.certificate_ * (1.0 + 1e-12), what
            assert not info.is_estimate, what
            is_whole = how_many["bound_rows"] >= np.sum(w > 0)
            assert info.failure_probability in ((0.0,) if is_whole else (0.0, 2.0**-30)), what
            checked += model.norm_bound_ < 0.5 * model.certificate_
    assert checked > 60  # far below the trace


def test_the_bound_of_streams_fails_as_often_as_it_says(monkeypatch):
    """At δ = 1/4 the bound is below ‖E‖ in at most a quarter of the streams, and at 2⁻³⁰ in none."""
    kernel, failures, tight, rounds = RBF(0.3), 0, [], 120
    for seed in range(rounds):
        rng = np.random.default_rng(seed)
        X = rows_of(SHAPES[seed % 6], rng)
        model = KernelPCA(P, kernel=kernel, eigen_solver=Nystrom(20, bound_rows=100), center=False, random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            start = 0
            while start < N:
                stop = start + int(rng.integers(1, 50))
                model.partial_fit(X[start:stop])
                start = stop
        F = np.linalg.solve(np.linalg.cholesky(kernel(model.X_fit_)), kernel(model.X_fit_, X)).T
        norm = float(np.linalg.eigvalsh(kernel(X) - F @ F.T)[-1])
        assert model.norm_bound_ >= norm - 1e-9
        monkeypatch.setattr(slots, "FAILURE", 0.25)
        loose = pickle.loads(pickle.dumps(model))
        vars(loose._result).pop("norm_bound", None)
        failures += loose.norm_bound_ < norm
        tight.append(loose.norm_bound_ / max(norm, 1e-12))
        monkeypatch.undo()
    assert failures <= rounds / 4 - 2 * np.sqrt(rounds * 3 / 16)  # it fails in about 2 %
    assert np.median(tight) < 6.0


def test_a_tolerance_of_the_norm_takes_far_fewer_landmarks_than_one_of_the_trace():
    X = np.random.default_rng(0).standard_normal((2500, 6)) * 0.8 ** np.arange(6)
    exact = KernelPCA(10, kernel="rbf", gamma=0.3).fit(X)
    ranks = {}
    for bound in ("trace", "norm"):
        for bound_rows in (None, 1500):
            solver = Nystrom(1500, tol=1e-2, bound=bound, bound_rows=bound_rows)
            model = KernelPCA(10, kernel="rbf", gamma=0.3, eigen_solver=solver, random_state=0).fit(X)
            largest, ranks[bound] = float(model.eigenvalues_[0]), len(model.landmarks_)
            assert model.converged_
            assert "tolerance" in model.solver_
            assert (model.norm_bound_ if bound == "norm" else model.certificate_) <= 1e-2 * largest
            assert np.max(exact.eigenvalues_ - model.eigenvalues_) <= model.norm_bound_
            assert model.residual_norms_[0] <= 1e-2 * largest
    assert 1.5 * ranks["norm"] < ranks["trace"]


def test_a_look_that_cannot_meet_the_tolerance_ends_with_its_first_rows(monkeypatch):
    looked, errors_of = [], PartialCholeskyBuilder.errors_of
    monkeypatch.setattr(PartialCholeskyBuilder, "errors_of", lambda *a: looked.append(len(a[1])) or errors_of(*a))
    X = np.random.default_rng(0).standard_normal((4000, 6)) * 0.8 ** np.arange(6)
    solver = Nystrom(300, tol=1e-2, bound="norm")
    model = KernelPCA(5, kernel="rbf", gamma=0.2, eigen_solver=solver, random_state=0).fit(X)
    assert model.converged_
    looks = [rows for rows in looked if rows >= 500]  # else landmarks, for what they lack
    assert looks[:2] == [500, 500]  # two looks, of which the first has no more
    assert looks[2] > 1000
    assert looks[-1] == model.norm_bound_info_.rows > 1000


def test_the_plan_has_the_memory_of_a_bound_that_the_fit_computes():
    X = np.random.default_rng(0).standard_normal((3500, 4))
    pieces = [X[i : i + 500] for i in range(0, 3500, 500)]
    K = np.asarray(RBF(0.3)(X[:900]))
    fits = (
        ("rbf", X, {"bound": "norm", "tol": 0.1, "bound_rows": 2500}),
        ("rbf", iter(pieces), {"bound": "norm", "tol": 1e-4, "bound_rows": 3000}),
        ("precomputed", K, {"bound_rows": 900}),
    )
    for kernel, data, options in fits:
        model = KernelPCA(3, kernel=kernel, eigen_solver=Nystrom(30, **options), random_state=0, n_jobs=1)
        tracemalloc.start()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(data)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak <= model.plan_.predicted_bytes, (kernel, options)
    many = KernelPCA(3, kernel="rbf", eigen_solver=Nystrom(30, bound_rows=10**9), random_state=0).fit(X[:300])
    assert "for certain" in str(many.norm_bound_info_)  # slots of no more rows than there are
    with pytest.raises(MemoryBudgetError, match=r"Nystrom\(bound_rows=500\)"):
        KernelPCA(3, kernel="rbf", eigen_solver=Nystrom(30, bound="norm", tol=0.1), memory_limit="20MB").fit(X)


def test_a_tolerance_leaves_no_component_without_a_landmark():
    X = np.random.default_rng(0).standard_normal((400, 4))
    for bound in ("trace", "norm"):
        for data in (X, iter([X[:200], X[200:]])):
            solver = Nystrom(100, tol=0.9, bound=bound)
            model = KernelPCA(10, kernel="rbf", gamma=0.01, eigen_solver=solver, random_state=0).fit(data)
            assert model.converged_
            assert np.all(model.eigenvalues_ > 0.0), (bound, model.eigenvalues_)


def test_a_tolerance_that_the_rank_does_not_reach_is_said_with_the_number():
    X = np.random.default_rng(1).standard_normal((1200, 8))
    model = KernelPCA(3, kernel="rbf", gamma=0.5, eigen_solver=Nystrom(30, tol=1e-3, bound="norm"), random_state=0)
    with pytest.warns(ConvergenceWarning, match="norm_bound_.*a larger rank") as caught:
        model.fit(X)
    assert not model.converged_
    assert "the bound" in model.solver_
    assert caught[0].message.values["norm_bound"] == pytest.approx(model.norm_bound_)
    stream = KernelPCA(3, kernel="rbf", gamma=0.5, eigen_solver=model.eigen_solver, random_state=0)
    with pytest.warns(ConvergenceWarning, match="norm_bound_"):
        stream.fit(iter([X[:600], X[600:]]))
    assert stream.norm_bound_ == pytest.approx(float(stream.residual_norms_[0]))
    X = np.random.default_rng(0).standard_normal((8000, 6)) * 0.8 ** np.arange(6)
    stream = KernelPCA(5, kernel="rbf", gamma=0.2, random_state=0)
    stream.set_params(eigen_solver=Nystrom(300, tol=1e-2, bound="norm", bound_rows=3000))
    with pytest.warns(ConvergenceWarning, match="among the rows that they were chosen from, and not among all"):
        stream.fit(iter(np.split(X, 8)))  # a bound from all rows of the sample, and one from as many of all
    assert "stopped: tolerance; not converged" in stream.solver_


def test_few_rows_make_it_certain_and_none_have_a_reason():
    X = np.random.default_rng(2).standard_normal((300, 4))
    whole = KernelPCA(3, kernel="rbf", eigen_solver=Nystrom(30), random_state=0).fit(X)  # 500 rows by default
    assert whole.norm_bound_info_.failure_probability == 0.0
    assert whole.norm_bound_info_.rows == 300
    assert "for certain" in str(whole.norm_bound_info_)
    none = KernelPCA(3, kernel="rbf", eigen_solver=Nystrom(30, bound_rows=0), random_state=0).fit(X)
    assert none.norm_bound_ is None
    assert "bound_rows=0" in none.norm_bound_info_.reason
    np.testing.assert_array_equal(none.eigenvalues_, whole.eigenvalues_)
    function = KernelPCA(3, kernel=lambda x, y: float(x @ y) + 1.0, eigen_solver=Nystrom(4), random_state=0).fit(X[:40])
    assert function.norm_bound_ is None
    assert "function of two rows" in function.norm_bound_info_.reason
    for model in (KernelPCA(3, kernel="rbf").fit(X), KernelPCA(3)):
        assert not hasattr(model, "norm_bound_")
    linear = KernelPCA(2, kernel=Linear(), eigen_solver=Nystrom(10), random_state=0).fit(X)
    assert linear.norm_bound_ == linear.certificate_ < 1e-9
    single = KernelPCA(3, kernel="rbf", eigen_solver=Nystrom(30), random_state=0).fit(X.astype(np.float32))
    assert single.norm_bound_info_.is_estimate
    assert "estimate" in str(single.norm_bound_info_)
    assert single.norm_bound_ == pytest.approx(whole.norm_bound_, rel=0.5)


def test_what_is_refused():
    for options, text in (
        ({"bound_rows": 50}, "0 or an integer >= 100"),
        ({"bound_rows": 1e3}, "0 or an integer >= 100"),
        ({"bound": "frobenius"}, "'trace', 'norm'"),
        ({"bound": "norm", "bound_rows": 0}, "Leave out bound_rows"),
    ):
        with pytest.raises(InvalidParameterError, match=text):
            KernelPCA(2, kernel="rbf", eigen_solver=Nystrom(5, **options)).fit(np.eye(9))


def test_a_stream_that_is_saved_and_continued_is_the_same_stream(tmp_path):
    X, solver = np.random.default_rng(3).standard_normal((900, 4)), Nystrom(20, bound_rows=100)
    for kernel in ("rbf", "laplacian"):
        whole, kept = (KernelPCA(3, kernel=kernel, eigen_solver=solver, random_state=0) for _ in range(2))
        for start in range(0, 900, 90):
            whole.partial_fit(X[start : start + 90])
            kept.partial_fit(X[start : start + 90])
            kept.save(tmp_path / "model.safetensors")
            kept = gpukpca.load(tmp_path / "model.safetensors")
        ours, theirs = whole._result.stream.slots, kept._result.stream.slots
        for name in ("rows", "limits", "weights"):
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
        assert whole.norm_bound_ == kept.norm_bound_
        assert len(ours.rows) == 100


def test_a_batch_of_a_stream_does_not_invert_the_factor_again(monkeypatch):
    inverted, inverse, rank = [], pivoted_factor.triangular_inverse, 90
    monkeypatch.setattr(pivoted_factor, "triangular_inverse", lambda L: inverted.append(len(L)) or inverse(L))
    model = KernelPCA(3, kernel="rbf", gamma=0.1, eigen_solver=Nystrom(rank), random_state=0)
    for rows in np.random.default_rng(4).standard_normal((5, 200, 6)):
        model.partial_fit(rows)
    assert inverted.count(rank) == 1


def test_slots_hold_rows_with_their_chances():
    """However rows come in batches, and with equal numbers for the draws within all of them."""
    d = np.r_[0.0, 0.0, 1e-14, 1.0, 5.0, 0.5, 0.0, 2.0, 1.5, 3.0, 0.0, 1.0]
    rows, rng, size = np.arange(len(d), dtype=np.float64)[:, None], np.random.default_rng(0), 8
    for cuts in ([3, 5], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], [6], []):
        counts, rounds = np.zeros(len(d)), 1000
        for _ in range(rounds):
            empty = Slots(size=size, seed=int(rng.integers(2**63)))
            pieces = zip(np.split(rows, cuts), np.split(d, cuts), strict=True)
            parts = [empty.of_panel(*piece, None) for piece in pieces]
            while len(parts) > 1:  # a tree of any shape
                i = int(rng.integers(len(parts) - 1))
                parts[i : i + 2] = [parts[i].merged(parts[i + 1])]
            held = parts[0]
            assert held.count == len(d)
            assert held.total == pytest.approx(float(np.sum(d)))
            np.testing.assert_array_equal(d[held.rows[:, 0].astype(int)], held.limits)
            np.add.at(counts, held.rows[:, 0].astype(int), 1)
        expected = rounds * size * d / np.sum(d)
        assert np.all(counts[d == 0] == 0)
        seen = d > 1e-3
        assert np.sum((counts - expected)[seen] ** 2 / expected[seen]) < 25.0, cuts  # chi-square of 7
    long = Slots(size=size, seed=0).of_panel(rows, 1e12 * d, None)
    both = long.merged(Slots(size=size, seed=0).of_panel(rows, d, None))
    assert (both.rows is long.rows, both.count, both.total > long.total) == (True, 2 * len(d), True)  # no slot is hit
