"""PCA at any size of the data, and of sparse data as of dense ones: one place centers rows and chooses their unit."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone

from gpukpca import PCA
from gpukpca.covariance.dense import DenseCenteredMatrix
from gpukpca.exceptions import InvalidParameterError, PrecisionWarning
from tests import tolerances
from tests.each import covering, each

TALL, WIDE = (60, 12), (12, 60)
SOLVERS = ("covariance_eigh", "full", "dual", "randomized")
SPARSE_SOLVERS = ("covariance_eigh", "dual", "randomized")
# Exponents of powers of two at both ends of the range, and those from which variances are ordinary numbers.
EXPONENTS = {"float64": (-565, -535, -500, -198, 460, 508), "float32": (-100, -76, -50, -19, 50, 60)}
FIRST_ORDINARY = {"float64": -505, "float32": -55}


def rows(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) * np.geomspace(1, 0.05, shape[1]) + rng.standard_normal(shape[1])).astype(dtype)


def sparse_rows(shape, dtype, offset, seed=0):
    """Three in ten entries, but for two full columns and one with a gap, which have a mean of `offset`."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal(shape) * np.geomspace(1, 0.1, shape[1])
    stored = rng.random(shape) < 0.3
    stored[:, :3] = True
    X[:, :3] += offset
    X[0, 2] = 0.0
    return np.where(stored, X, 0.0).astype(dtype)


def fitted(estimator, X):
    """The fitted estimator and the warnings about digits; any other warning is an error."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("error")
        warnings.simplefilter("always", PrecisionWarning)
        return estimator.fit(X), [str(warning.message) for warning in caught]


@each("dtype, sparse, scale, shape", covering(["float64", "float32"], [False, True], [False, True], [TALL, WIDE]))
def test_the_unit_of_the_data_does_not_matter(dtype, sparse, scale, shape):
    X = rows(shape, dtype)
    container = scipy.sparse.csr_array if sparse else np.asarray
    for solver in SPARSE_SOLVERS if sparse else SOLVERS:
        model = PCA(4, svd_solver=solver, scale=scale, random_state=0)
        expected, _ = fitted(model, container(X))
        values = {name: getattr(expected, name) for name in ("components_", "explained_variance_ratio_")}
        deviations, scores = expected.singular_values_, expected.transform(container(X))
        for exponent in EXPONENTS[dtype]:
            factor = 2.0**exponent
            found, caught = fitted(model, container(X * np.dtype(dtype).type(factor)))
            unit = 1.0 if scale else factor
            rounding = 1e3 * tolerances.eps(dtype)
            for name, value in values.items():
                np.testing.assert_allclose(getattr(found, name), value, atol=rounding, err_msg=f"{solver} {exponent}")
            np.testing.assert_allclose(found.singular_values_ / unit, deviations, rtol=rounding)
            again = found.transform(container(X * np.dtype(dtype).type(factor)))
            np.testing.assert_allclose(again / unit, scores, atol=rounding * np.max(np.abs(scores)))
            is_ordinary = scale or exponent > FIRST_ORDINARY[dtype]
            assert [text for text in caught if "has no variances so small" in text] == ([] if is_ordinary else caught)
            assert bool(caught) != is_ordinary
            if is_ordinary:
                variances = found.explained_variance_.astype(np.float64) / unit / unit
                np.testing.assert_allclose(variances, deviations.astype(np.float64) ** 2 / (len(X) - 1), rtol=rounding)
                assert np.isfinite(found.total_variance_)


def test_whitened_scores_and_likelihoods_of_tiny_single_precision_data():
    X = rows(TALL, "float32")
    expected = PCA(3, whiten=True).fit(X)
    tiny, caught = fitted(PCA(3, whiten=True), X * np.float32(2.0**-76))
    assert len(caught) == 1
    white = tiny.transform(X * np.float32(2.0**-76))
    np.testing.assert_allclose(white, expected.transform(X), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(tiny.inverse_transform(white) * 2.0**76, expected.inverse_transform(white), atol=1e-4)
    shift = X.shape[1] * 76 * np.log(2.0)
    likelihoods = tiny.score_samples(X * np.float32(2.0**-76)) - shift
    np.testing.assert_allclose(likelihoods, expected.score_samples(X), rtol=1e-3, atol=1e-2)


def test_a_variance_beyond_the_range_is_an_error_that_names_the_size():
    with pytest.raises(InvalidParameterError, match=r"deviate from their mean by about .*e\+(199|200).*by 2\*\*-6\d\d"):
        PCA(2).fit(rows(TALL, "float64") * 1e200)


# In float32 a column with a mean of 1e6 has one digit, and that of 1e8 none.
OFFSETS = [("float64", 0.0), ("float64", 10.0), ("float64", 5e3), ("float64", 1e6), ("float64", 1e8)]
OFFSETS += [("float32", 0.0), ("float32", 10.0), ("float32", 5e3), ("float32", 1e6)]


@pytest.mark.filterwarnings("ignore:float32 cannot resolve", "ignore:one column holds")
@each("dtype, offset", OFFSETS)
@each("shape", [(200, 20), (20, 200)])
def test_sparse_rows_are_as_exact_as_dense_ones(dtype, offset, shape):
    X = sparse_rows(shape, dtype, offset)
    wide = X.astype(np.longdouble)
    Z = (wide - wide.mean(axis=0)).astype(np.float64)
    variances = np.linalg.svd(Z, compute_uv=False)[:5] ** 2 / (len(X) - 1)
    eps = tolerances.eps(dtype)
    # The mean of column 2 is rounded as a number of the size of its one large deviation; so is the mean itself here.
    size = np.max(np.abs(Z)) * np.sqrt(shape[0])
    for solver in SPARSE_SOLVERS:
        for container in (np.asarray, scipy.sparse.csr_array):
            model = PCA(5, svd_solver=solver, random_state=0).fit(container(X))
            V = model.components_.astype(np.float64)
            np.testing.assert_allclose(model.explained_variance_, variances, atol=300 * eps * variances[0])
            np.testing.assert_allclose(V @ V.T, np.eye(5), atol=50 * eps)
            true = np.linalg.norm(Z.T @ (Z @ V.T) / (len(X) - 1) - V.T * model.explained_variance_, axis=0)
            assert np.all(true <= 10 * model.residual_norms_ + 300 * eps * variances[0])
            assert model.converged_
            exact = Z @ V.T
            for scores in (model.transform(container(X)), model.fit_transform(container(X))):
                # A component with a small variance turns by λ1/λ times the rounding.
                np.testing.assert_allclose(scores, exact, atol=1e3 * eps * size)
            single = np.concatenate([model.transform(container(X[i : i + 1])) for i in range(3)])
            np.testing.assert_allclose(single, exact[:3], atol=1e3 * eps * size)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
@pytest.mark.filterwarnings("ignore:some components are uncertain")  # the last ones, in float32
def test_components_of_the_dual_route_are_orthonormal(xp, dtype, sparse):
    if sparse and xp.name != "numpy":
        pytest.skip("sparse rows live on the host")
    rng = np.random.default_rng(3)
    U = np.linalg.qr(rng.standard_normal((30, 30)))[0]
    V = np.linalg.qr(rng.standard_normal((100, 30)))[0]
    X = (U * np.geomspace(1, 1e-7, 30)) @ V.T
    data = scipy.sparse.csr_array(X.astype(dtype)) if sparse else xp.array(X.astype(dtype))
    components = xp.host(PCA(20, svd_solver="dual").fit(data).components_).astype(np.float64)
    np.testing.assert_allclose(components @ components.T, np.eye(20), atol=tolerances.orthogonality(dtype, xp.name))


@each("dtype", ["float64", "float32"])
@each("sparse", [False, True])
@each("value", [0.1, 1e4 / 3, -7e-9])
def test_standardizing_leaves_columns_that_are_constant_but_for_rounding(dtype, sparse, value):
    X = rows(TALL, dtype)
    X[:, 3] = value
    X[::2, 3] = np.nextafter(X[::2, 3], np.dtype(dtype).type(np.inf))
    model = PCA(8, scale=True).fit(scipy.sparse.csr_array(X) if sparse else X)
    assert model.scale_[3] == 1.0
    np.testing.assert_allclose(np.delete(model.scale_, 3), np.std(np.delete(X, 3, axis=1), axis=0, ddof=1), rtol=1e-5)
    np.testing.assert_allclose(model.components_[:, 3], 0.0, atol=1e-3)


@each("sparse", [False, True])
@each("solver", SPARSE_SOLVERS)
@each("scale, is_exact", [(False, True), (True, True), (True, False)])
def test_the_rounding_of_a_huge_constant_column_is_no_variance(sparse, solver, scale, is_exact):
    """Beside standardized columns a constant is one also where its entries are rounded."""
    X = np.random.default_rng(0).standard_normal((23, 4))
    X[:, 2] = 1e100 / 3
    if not is_exact:
        X[::2, 2] = np.nextafter(X[::2, 2], np.inf)
    data, others = scipy.sparse.csr_array(X) if sparse else X, np.delete(X, 2, axis=1)
    model, caught = fitted(PCA(3, scale=scale, svd_solver=solver, random_state=0), data)
    assert not caught
    matrix = np.corrcoef(others.T) if scale else np.cov(others.T)
    np.testing.assert_allclose(model.explained_variance_, np.linalg.eigvalsh(matrix)[::-1], rtol=1e-12)
    np.testing.assert_allclose(np.cov(model.transform(data).T), np.diag(model.explained_variance_), atol=1e-12)
    assert not np.any(model.components_[:, 2])


ENTRIES = {"NaN": np.nan, "infinity": np.inf, "minus infinity": -np.inf}


@each("dtype", ["float64", "float32"])
@each("entry", ENTRIES)
@each("shape", [TALL, WIDE])
def test_the_first_pass_finds_the_entry_that_is_not_finite(dtype, entry, shape):
    for row, column in ((0, 0), (7, 5), (shape[0] - 1, shape[1] - 1)):
        X = rows(shape, dtype)
        X[row, column] = ENTRIES[entry]
        kind = "NaN" if entry == "NaN" else "infinity"
        found = rf"X contains {kind}.*: 1 value\(s\), the first in row {row}, column {column}\."
        for solver in SOLVERS:
            with pytest.raises(ValueError, match=found):
                PCA(4, svd_solver=solver, scale=row > 0, random_state=0).fit(X)
        for solver in SPARSE_SOLVERS:
            with pytest.raises(ValueError, match=found):
                PCA(4, svd_solver=solver, random_state=0).fit(scipy.sparse.csr_array(X))


def test_finite_rows_whose_sums_overflow_are_not_called_infinite():
    huge = rows(TALL, "float32") * np.float32(2.0**123)
    for solver in SOLVERS:
        with pytest.raises(InvalidParameterError, match="deviate from their mean"):
            PCA(4, svd_solver=solver, random_state=0).fit(huge)


@pytest.mark.parametrize("form", ["dense", "sparse", "wide"])
def test_scaled_features_may_have_units_far_apart(form, xp):
    """The correlations are those of the features in common units, to the last bits for powers of two."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((12, 30) if form == "wide" else (60, 4)) + 3.0
    X[:, 3] = 7.0  # constant
    for units in ([-515, 0, 0, 0], [600, -160, 3, 0], [-990, 0, 30, -990], [1000, 0, 0, -20]):
        powers = np.resize(units, X.shape[1])
        moved = X * 2.0**powers
        for solver in ("full", "covariance_eigh", "randomized"):
            place = scipy.sparse.csr_array if form == "sparse" else xp.array
            model = PCA(2, scale=True, svd_solver=solver, random_state=0)
            if form == "sparse" and solver == "full":
                continue
            same, other = (clone(model).fit(place(rows)) for rows in (X, moved))
            for name in ("explained_variance_", "explained_variance_ratio_", "components_"):
                wanted, found = (np.asarray(xp.host(getattr(one, name))) for one in (same, other))
                np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-10)
            scales = (np.asarray(xp.host(one.scale_)) for one in (same, other))
            np.testing.assert_allclose(np.divide(*reversed([*scales]))[:3], 2.0 ** powers[:3], rtol=1e-13)


def test_what_follows_from_the_squares_is_that_of_the_last_scale(rng):
    X, divisors = rng.standard_normal((40, 3)) + 5.0, np.array([0.5, 2.0, 8.0])
    Z = DenseCenteredMatrix(X, by_rows=True)
    before, constant = Z.total, Z.constant
    Z.rescale(divisors)
    squares = np.sum(((X - X.mean(axis=0)) * Z.unit / divisors) ** 2, axis=0)
    assert not np.isclose(before, squares.sum())
    assert np.isclose(Z.total, squares.sum())
    assert Z.constant is not constant
    assert np.allclose(Z.mean, X.mean(axis=0))
