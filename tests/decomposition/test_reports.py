"""What a fit says of digits that were lost: the same for every way of choosing the number of components."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pytest

from gpukpca import PCA, KernelPCA
from gpukpca.eigen import BlockKrylov
from gpukpca.exceptions import ConvergenceError, InvalidParameterError, PrecisionWarning, RankWarning
from tests.each import each


def data(n: int = 60, d: int = 5, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, d))


def caught(call: Any) -> list[tuple[type[Warning], str]]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
    return [(warning.category, str(warning.message)) for warning in found]


LOST = {"cosine": ({"kernel": "cosine"}, 1e3), "poly": ({"kernel": "poly", "degree": 2}, 1e4)}
CHOICES = {
    "count": {"n_components": 3},
    "all": {"n_components": None},
    "without zeros": {"n_components": 3, "remove_zero_eig": True},
}


@each("solver", ["dense", "randomized"])
@each("choice", CHOICES)
@each("name", LOST)
def test_lost_digits_are_reported_however_components_are_chosen(xp, name, choice, solver):
    settings, offset = LOST[name]
    X = xp.array(data() + offset, "float32")
    model = KernelPCA(**CHOICES[choice], **settings, eigen_solver=solver, random_state=0)
    found = caught(lambda: model.fit(X))
    assert any(kind is PrecisionWarning and "float32 cannot resolve" in text for kind, text in found)
    kept = model.eigenvalues_.shape[0]
    assert any(kind is RankWarning and "none is kept" in text for kind, text in found) == (kept == 0)


@each("solver", ["dense", "randomized", "nystrom"])
@each("choice", ["all", "without zeros"])
@pytest.mark.filterwarnings("ignore:fewer components carry:gpukpca.exceptions.RankWarning")
def test_where_nothing_is_kept_a_fit_says_so(xp, dtype, choice, solver):
    model = KernelPCA(**CHOICES[choice], kernel="rbf", eigen_solver=solver, random_state=0)
    with pytest.warns(RankWarning, match="none is kept"):
        scores = model.fit_transform(xp.array(np.ones((6, 2)), dtype))
    assert scores.shape == (6, 0)


def test_digits_that_are_there_are_not_reported_as_lost():
    for choice in CHOICES.values():
        assert caught(lambda choice=choice: KernelPCA(**choice, kernel="cosine").fit(data())) == []


# -- PCA ---------------------------------------------------------------------------------------------------------------

SOLVERS = ["covariance_eigh", "dual", "full", "randomized"]


@each("n_components, lost", [(5, "offset"), (None, "offset"), (5, "smallest")])
@each("solver", SOLVERS)
def test_pca_reports_variances_that_rounding_made(xp, dtype, solver, n_components, lost):
    eps = float(np.finfo(dtype).eps)
    scales, offset = (np.ones(5), 4.0 / eps) if lost == "offset" else (np.append(np.ones(4), 50.0 * eps), 0.0)
    # The last column alone would be exact: beside others it is turned.
    turn = np.linalg.qr(data(5, 5, seed=1))[0]
    X = xp.array((data(100) * scales) @ turn + offset, dtype)
    text = f"{dtype} cannot resolve the smallest variances" if lost == "offset" else "some components are uncertain"
    with pytest.warns(PrecisionWarning, match=text) as found:
        PCA(n_components, svd_solver=solver, random_state=0).fit(X)
    (warning,) = (seen.message for seen in found if isinstance(seen.message, PrecisionWarning))
    assert warning.values["components"] == ([1, 2, 3, 4, 5] if lost == "offset" else [5])


@each("solver", SOLVERS)
@each(
    "make",
    [
        data,
        lambda: data() * [1e4, 1e3, 1e2, 10.0, 1.0],
        lambda: data() + [1e9, 0.0, 0.0, 0.0, 0.0],  # of an exact feature nothing is lost beside a large one
        lambda: data() @ np.diag([1.0, 1.0, 0.0, 0.0, 0.0]),
    ],
)
def test_pca_of_variances_with_digits_reports_nothing(dtype, solver, make):
    X = make().astype("float64" if make().max() > 1e8 else dtype)
    assert caught(lambda: PCA(2, svd_solver=solver, random_state=0).fit(X)) == []


# -- convergence -------------------------------------------------------------------------------------------------------


def test_an_error_of_convergence_carries_what_was_found(xp):
    X = xp.array(data(300, 60))
    settings = {"eigen_solver": BlockKrylov(block_size=2, max_passes=1), "random_state": 0}
    with pytest.raises(ConvergenceError) as error:
        KernelPCA(1, kernel="laplacian", gamma=0.02, **settings).fit(X)
    result = error.value.partial_result
    assert result.eigenvectors.shape == (300, 1)
    assert float(result.residual_norms[0]) > 0.1 * float(result.eigenvalues[0])
    np.testing.assert_allclose(np.linalg.norm(xp.host(result.eigenvectors)), 1.0, rtol=1e-10)


def test_an_error_without_a_result_says_so():
    assert ConvergenceError("text").partial_result is None
    assert str(pickle.loads(pickle.dumps(ConvergenceError("text")))) == "text"


@pytest.mark.parametrize("solver", ["dense", "randomized"])
def test_a_tolerance_below_rounding_is_reported_once_with_the_one_used(xp, dtype, solver):
    X = xp.array(data(500, 8), dtype)
    model = KernelPCA(3, kernel="rbf", eigen_solver=solver, random_state=0, tol=1e-20)
    with pytest.warns(PrecisionWarning, match="tol is below what rounding allows") as found:
        model.fit(X)
    assert len(found) == 1
    used = found[0].message.values["reached"]
    assert 1.0 < used / np.finfo(dtype).eps < 1e4
    assert caught(lambda: model.set_params(tol=1.2 * used).fit(X)) == []


def test_pca_reports_a_tolerance_below_rounding_too(dtype):
    X = data(500, 8).astype(dtype)
    for solver, expected in (("randomized", 1), ("covariance_eigh", 0), ("full", 0), ("dual", 0)):
        found = caught(lambda solver=solver: PCA(3, svd_solver=solver, tol=1e-20, random_state=0).fit(X))
        assert len(found) == expected
        assert all("is below what rounding allows" in text for _, text in found)


# -- underflow ---------------------------------------------------------------------------------------------------------

TINY = {"float32": np.arange(-24.0, -9.0, 1.5), "float64": np.arange(-164.0, -100.0, 7.5)}


@each("gram, solver", [("auto", "dense"), ("tiled", "randomized"), ("auto", "nystrom")])
@each("degree", [1, 2, 3])
@pytest.mark.filterwarnings("ignore")
def test_values_too_small_are_no_overflow_and_no_indefinite_kernel(dtype, degree, gram, solver):
    for exponent in TINY[dtype]:
        X = (10.0**exponent * data()).astype(dtype)
        settings = {"kernel": "poly", "degree": degree, "coef0": 0, "gram": gram, "eigen_solver": solver}
        for n_components in (2, None):
            try:
                KernelPCA(n_components, **settings, random_state=0).fit(X)
            except InvalidParameterError as error:
                if "underflows" not in str(error):
                    raise


def test_an_underflow_is_named_with_its_size(xp):
    X = xp.array(1e-22 * data(), "float32")
    refused = r"underflows: .* float32 does not hold values of Polynomial.*2\*\*71"
    with pytest.raises(InvalidParameterError, match=refused):
        KernelPCA(kernel="poly", degree=1, coef0=0, gram="dense").fit(X)
