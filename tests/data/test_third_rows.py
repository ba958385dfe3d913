"""`Rows` is open: a class outside of the package, with the abstract methods alone, gives what one array gives.

The class is that of the page on containers, which says the same in prose.
"""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from gpukpca import (
    PCA,
    BayesianPCA,
    IncrementalPCA,
    KernelPCA,
    LocalPCA,
    Nystrom,
    ProbabilisticPCA,
    gram_matrix,
    kernel_matmat,
    residuals,
)
from gpukpca.algorithms import KernelPCASettings, Resources, fit_kernel_pca, fit_pca
from gpukpca.backend.namespace import concat
from gpukpca.data.slicing import gather_rows
from gpukpca.exceptions import InvalidParameterError
from gpukpca.kernels import RBF
from tests import tolerances
from tests.test_docs import ROOT, blocks

N, D = 60, 5
# Where panels end: one of all rows, one row first and last, empty ones at both ends and between; and one row each.
CUTS, SINGLE = ((), (1, 59), (0, 25, 25, N)), tuple(range(1, N))
# So smooth that the landmarks span all rows, whichever are chosen.
NYSTROM = {"kernel": "rbf", "gamma": 2e-4, "eigen_solver": Nystrom(rank=45), "random_state": 0}
ESTIMATORS = {
    "PCA": PCA(3),
    "scaled": PCA(3, scale=True, whiten=True),
    "share": PCA(0.9, svd_solver="covariance_eigh"),
    "full": PCA(3, svd_solver="full"),
    "dual": PCA(3, svd_solver="dual"),
    "randomized": PCA(2, svd_solver="randomized", random_state=0),
    "Nystrom": KernelPCA(2, **NYSTROM),
    "Nystrom with a rule": KernelPCA(2, **NYSTROM | {"gamma": "scale"}),
    "incremental": IncrementalPCA(3, batch_size=25),
    "probabilistic": ProbabilisticPCA(2),
    "Bayesian": BayesianPCA(3),
}
WEIGHTED = ("PCA", "scaled", "full", "dual", "Nystrom", "incremental")
REFUSED = r"takes one array here, and X is of class AnyParts, rows in panels; pass X.take\(numpy.arange\(60\)\), or fit"


def class_of_the_page() -> Any:
    namespace: dict[str, Any] = {}
    page = ROOT / "docs" / "development" / "container.md"
    exec(next(block for block in blocks(page, "python") if "class Parts" in block), namespace)
    return namespace["Parts"]


Parts = class_of_the_page()


class AnyParts(Parts):
    """The class of the page for every library: NumPy's `take` there writes into an array."""

    def take(self, chosen: Any, *others: Any) -> Any:
        return concat([gather_rows(concat(rows.parts), chosen) for rows in (self, *others)], axis=1)


def parts_of(xp: Any, X: np.ndarray, cuts: tuple[int, ...] = (1, 59), kind: Any = AnyParts) -> Any:
    return kind([xp.array(part) for part in np.split(X, cuts)])


def results(model: Any, new: Any, host: Any) -> dict[str, np.ndarray]:
    names = ("explained_variance_", "eigenvalues_", "mean_", "components_", "noise_variance_")
    found = {name: getattr(model, name) for name in names if hasattr(model, name)} | {"scores": model.transform(new)}
    return {name: value if isinstance(value, float) else host(value) for name, value in found.items()}


def check(found: dict[str, np.ndarray], expected: dict[str, np.ndarray], room: float, what: str) -> None:
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        size = float(np.max(np.abs(values)))
        # Landmarks of rows that are read once leave the signs of the axes open.
        turned = np.sign(np.sum(found[key] * values, axis=0)) if key == "scores" and "Nystrom" in what else 1.0
        np.testing.assert_allclose(found[key] * turned, values, rtol=0, atol=room * size, err_msg=f"{what}: {key}")


@pytest.fixture
def X(rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal((N, D)) * [5.0, 4.0, 3.0, 1.0, 0.5] + 2.0


def test_every_fit_is_that_of_the_array(xp: Any, dtype: str, X: np.ndarray) -> None:
    X = X.astype(dtype)
    for name, estimator in ESTIMATORS.items():
        iterates = "Nystrom" in name or name == "randomized"
        room = (1e10 if iterates else 1e4) * tolerances.eps("float64") if dtype == "float64" else 2e-3
        expected = results(clone(estimator).fit(xp.array(X)), xp.array(X), xp.host)
        for cuts in (*CUTS, SINGLE) if xp.name == "numpy" else CUTS:
            rows = parts_of(xp, X, cuts)
            model = clone(estimator).fit(rows)
            assert xp.owns(model.transform(rows))
            check(results(model, rows, xp.host), expected, room, f"{name}, {cuts}")
            scores = clone(estimator).fit_transform(rows)
            assert xp.owns(scores)
            check({"scores": xp.host(scores)}, {"scores": expected["scores"]}, room, f"{name}, {cuts}, at once")


def test_weights_are_those_of_the_rows_and_rows_of_weight_0_may_hold_anything(
    xp: Any, X: np.ndarray, rng: np.random.Generator
) -> None:
    weights = rng.integers(1, 4, N).astype(float)
    some = np.where(rng.random(N) < 0.2, 0.0, weights)
    holed = np.where((some > 0)[:, None], X, np.nan)
    for name, (given, counts) in itertools.product(WEIGHTED, ((X, weights), (holed, some))):
        model = clone(ESTIMATORS[name]).fit(xp.array(given), sample_weight=counts)
        expected = results(model, xp.array(X), xp.host)
        for cuts in CUTS:
            found = clone(ESTIMATORS[name]).fit(parts_of(xp, given, cuts), sample_weight=counts)
            check(results(found, xp.array(X), xp.host), expected, 1e-6, f"{name}, {cuts}")


def test_functions_and_methods_of_rows_are_those_of_the_array(xp: Any, X: np.ndarray) -> None:
    A, settings = xp.array(X), KernelPCASettings(solver=NYSTROM["eigen_solver"])
    weights = np.arange(N) % 3.0
    model, latent, nystrom = PCA(3).fit(A), ProbabilisticPCA(2).fit(A), KernelPCA(2, **NYSTROM).fit(A)
    for cuts in CUTS:
        rows = parts_of(xp, X, cuts)
        for w in (None, weights):
            one, other = (fit_pca(given, 3, sample_weight=w).explained_variance for given in (rows, A))
            np.testing.assert_allclose(xp.host(one), xp.host(other), rtol=1e-12)
            one, other = (
                fit_kernel_pca(given, RBF(2e-4), 2, settings=settings, rng=0, sample_weight=w).eigenvalues
                for given in (rows, A)
            )
            np.testing.assert_allclose(xp.host(one), xp.host(other), rtol=1e-6)
        assert Resources.for_data(rows, n_jobs=1).place.work.dtype == A.dtype
        for fitted in (model, latent):
            np.testing.assert_allclose(xp.host(fitted.score_samples(rows)), xp.host(fitted.score_samples(A)), rtol=1e-9)
            assert fitted.score(rows) == pytest.approx(fitted.score(A), rel=1e-9)
        out = np.empty((N, 3))
        assert model.transform(rows, out=out) is out
        np.testing.assert_allclose(out, xp.host(model.transform(A)), atol=1e-11)
        for fitted in (model, nystrom):
            found, expected = residuals(fitted, rows), residuals(fitted, A)
            np.testing.assert_allclose(found.eigenvalues, expected.eigenvalues, rtol=1e-9)
        assert f"batches of up to {max(np.diff([0, *cuts, N]))}" in str(PCA(3).plan(rows))


def test_a_product_with_the_kernel_takes_panels_on_both_sides(xp: Any, X: np.ndarray) -> None:
    """Also sets and memory maps; a rule for gamma learns from all of Y."""
    new, V = X[:31] + 0.5, np.linspace(-1.0, 1.0, 2 * N).reshape(N, 2)
    expected = kernel_matmat(RBF("scale"), new, X, V)
    for cuts in CUTS:
        parts, others = parts_of(xp, X, cuts), parts_of(xp, new, (7, 30))
        for left, right in ((xp.array(new), parts), (others, xp.array(X)), (others, parts)):
            found = xp.host(kernel_matmat(RBF("scale"), left, right, xp.array(V)))
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12 * np.max(np.abs(expected)))
    damaged = X.copy()
    damaged[59, 1] = np.nan
    with pytest.raises(ValueError, match=r"Input Y contains NaN: 1 value\(s\), the first in row 59, column 1"):
        kernel_matmat(RBF(0.1), X, parts_of(xp, damaged), V)


def test_an_entry_that_is_not_finite_is_named_by_its_row(xp: Any, X: np.ndarray) -> None:
    holes = X.copy()
    holes[[31, 40], 3] = np.nan
    huge = X.copy()
    huge[31, 3] = np.inf
    calls: list[Any] = [lambda rows, name=name: clone(ESTIMATORS[name]).fit(rows) for name in ESTIMATORS]
    calls += [lambda rows: fit_pca(rows, 2), PCA(2).fit(xp.array(X)).transform]
    for cuts in CUTS:
        for call in calls[:9] + calls[-2:]:
            with pytest.raises(
                InvalidParameterError, match=r"contains NaN: \d value\(s\), the first in row 31, column 3"
            ):
                call(parts_of(xp, holes, cuts))
        for call in calls:
            with pytest.raises(InvalidParameterError, match=r"infinity .*the first in row 31, column 3"):
                call(parts_of(xp, huge, cuts))
    model, whole = ProbabilisticPCA(2).fit(parts_of(xp, holes)), ProbabilisticPCA(2).fit(xp.array(holes))  # by EM
    np.testing.assert_allclose(xp.host(model.explained_variance_), xp.host(whole.explained_variance_), rtol=1e-3)


def test_functions_that_need_one_array_refuse_with_two_ways_out(X: np.ndarray) -> None:
    rows = AnyParts(np.split(X, (20, 40)))
    exact = KernelPCA(2, kernel="rbf", gamma=0.1)
    for call in (
        exact.fit,
        exact.plan,
        KernelPCA(2, eigen_solver="randomized").fit_transform,
        LocalPCA(2, 1).fit,
        lambda rows: fit_kernel_pca(rows, RBF(0.1), 2),
        lambda rows: gram_matrix(RBF(0.1), rows),
    ):
        with pytest.raises(InvalidParameterError, match=REFUSED):
            call(rows)
    for model in (IncrementalPCA(2), KernelPCA(2, **NYSTROM)):  # by slices, as `fit`
        assert model.partial_fit(rows).n_samples_seen_ == len(X)
    with pytest.raises(InvalidParameterError, match="are computed where they are"):
        PCA(2, device="cuda").fit(rows)


def test_panels_that_are_not_what_the_rows_say_are_refused(X: np.ndarray) -> None:
    whole = AnyParts([X])
    longer = AnyParts([X])
    longer.shape = (N + 1, D)
    for words, rows in (
        ("the panels of X have 60 rows together, and its `shape` says 61", longer),
        (r"panel 1 of X is numpy float32 of shape \(30, 5\)", AnyParts([X[:30], X[30:].astype(np.float32)])),
        (r"panel 1 of X is numpy float64 of shape \(30, 4\)", AnyParts([X[:30], X[30:, :4]])),
        ("`like` of X, AnyParts, is numpy int64", AnyParts([X.astype(np.int64)])),
        ("0 sample", AnyParts([X[:0]])),
    ):
        for call in (PCA(2).fit, lambda rows: fit_pca(rows, 2), KernelPCA(2, **NYSTROM).fit):
            with pytest.raises(InvalidParameterError, match=words):
                call(rows)
    assert PCA(2).fit(whole).n_samples_ == N


def test_what_panels_are_called_with_can_be_sent_to_other_machines(rng: np.random.Generator) -> None:
    """Functions, arguments and results pass through pickle; of PCA a sample of the rows alone comes to this process."""
    X, taken = rng.standard_normal((600, 4)) * [4.0, 3.0, 2.0, 1.0], []
    weights = rng.integers(0, 3, 600).astype(float)

    class Sent(Parts):
        def each(self, function: Any, *arguments: Any) -> list[Any]:
            def there(*panels: Any) -> Any:
                work, *given = pickle.loads(pickle.dumps((function, *panels)))
                return pickle.loads(pickle.dumps(work(*given)))

            return super().each(there, *arguments)

        def take(self, chosen: Any, *others: Any) -> Any:
            taken.append(len(chosen))
            return super().take(chosen, *others)

    rows = Sent(np.split(X, (100, 100, 500)))
    for model in (PCA(2), PCA(2, svd_solver="full"), PCA(2, svd_solver="randomized", random_state=0)):
        for given in (None, weights):
            found, expected = (clone(model).fit(one, sample_weight=given).explained_variance_ for one in (rows, X))
            np.testing.assert_allclose(found, expected, rtol=1e-12)
            assert 0 < sum(taken) <= 128
            taken.clear()
    for given in (None, weights):
        nystrom = [KernelPCA(2, **NYSTROM).fit(one, sample_weight=given).eigenvalues_ for one in (rows, X)]
        np.testing.assert_allclose(*nystrom, rtol=1e-6)


def test_the_class_of_the_page_takes_rows_in_any_order(X: np.ndarray) -> None:
    for cuts in CUTS:
        rows = Parts(np.split(X, cuts))
        for chosen in ([], [0], [59, 0, 0, 13], np.arange(N), np.arange(N)[::-1]):
            np.testing.assert_array_equal(rows.take(np.asarray(chosen, dtype=int)), X[list(chosen)])
            both = rows.take(np.asarray(chosen, dtype=int), rows.split(X[:, :2]))
            np.testing.assert_array_equal(both, np.c_[X, X[:, :2]][list(chosen)])
