"""Data of any size: what comes in batches, latent variable models and local PCA give the answer of X, scaled."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pytest
import scipy.sparse

from gpukpca import PCA, Batches, BayesianPCA, IncrementalPCA, KernelPCA, LocalPCA, ProbabilisticPCA, load
from gpukpca.data.scale import needs_own_scale, power_of_two_scale, scale_for_squares
from gpukpca.exceptions import InvalidParameterError, PrecisionWarning, RankWarning
from tests.each import each

# Powers of two, about 1e-170 … 1e153 and 1e-30 … 1e18.
EXPONENTS = {"float64": (-565, -535, -500, 465, 508), "float32": (-100, -76, -66, 60)}
# How the fitted attributes and results change when the data are multiplied by s: as this power of it.
POWERS = {
    "explained_variance_": 2,
    "noise_variance_": 2,
    "total_variance_": 2,
    "var_": 2,
    "singular_values_": 1,
    "loadings_": 1,
    "mean_": 1,
    "means_": 1,
    "components_": 0,
    "explained_variance_ratio_": 0,
    "weights_": 0,
    "labels_": 0,
    "n_components_": 0,
    "converged_": 0,
}
WHITENED, IN_UNITS = {"transform": 0, "inverse_transform": 1}, {"transform": 1, "inverse_transform": 1}
LATENT = {**WHITENED, "denoise": 1, "impute": 1}


@dataclass(frozen=True)
class Case:
    """An estimator, and how its results change with the data."""

    make: object
    results: dict = field(default_factory=lambda: IN_UNITS)
    holes: bool = False
    batches: bool = False
    convert: object = None


class InTurn(IncrementalPCA):
    """Fitted by `partial_fit`."""

    def fit(self, X, y=None):
        for start in range(0, len(X), 20):
            self.partial_fit(X[start : start + 20])
        return self


CASES = {
    "incremental": Case(partial(IncrementalPCA, 4, batch_size=20)),
    "partial_fit": Case(partial(InTurn, 4)),
    "incremental, whitened": Case(partial(IncrementalPCA, 4, batch_size=20, whiten=True), WHITENED),
    "incremental, batches": Case(partial(IncrementalPCA, 4), batches=True),
    "incremental, sparse": Case(partial(IncrementalPCA, 4, batch_size=20), convert=scipy.sparse.csr_matrix),
    "exact": Case(partial(PCA, 4), batches=True),
    "exact, whitened": Case(partial(PCA, 4, whiten=True), WHITENED, batches=True),
    "probabilistic": Case(partial(ProbabilisticPCA, 4), LATENT),
    "probabilistic, sparse": Case(partial(ProbabilisticPCA, 4), WHITENED, convert=scipy.sparse.csr_matrix),
    "probabilistic, EM": Case(partial(ProbabilisticPCA, 3, solver="em", random_state=0, tol=1e-6), LATENT),
    "probabilistic, holes": Case(partial(ProbabilisticPCA, 3, random_state=0, tol=1e-5), LATENT, holes=True),
    "probabilistic, batches": Case(partial(ProbabilisticPCA, 3, random_state=0, tol=1e-5), LATENT, batches=True),
    "Bayesian": Case(partial(BayesianPCA, 6), LATENT),
    "Bayesian, holes": Case(partial(BayesianPCA, 5, random_state=0, tol=1e-5), LATENT, holes=True),
    "local": Case(partial(LocalPCA, 2, 2, random_state=0), {"transform": 1, "denoise": 1, "predict": 0}),
    "local, hard": Case(
        partial(LocalPCA, 2, 2, method="hard", random_state=0), {"transform": 1, "denoise": 1, "predict": 0}
    ),
    "local, wide": Case(partial(LocalPCA, 2, 2, random_state=0), {"transform": 1, "denoise": 1, "predict": 0}),
}


def rows(name: str, dtype: str) -> np.ndarray:
    """Rows of three strong directions and noise, with an offset."""
    rng = np.random.default_rng(5)
    d = 70 if name.endswith("wide") else 12
    X = rng.standard_normal((60, 3)) @ rng.standard_normal((3, d)) + 0.1 * rng.standard_normal((60, d))
    X += rng.standard_normal(d) + 3.0 * (np.arange(60) % 2)[:, None] * (name.startswith("local"))
    if CASES[name].holes:
        X[rng.random(X.shape) < 0.1] = np.nan
    if CASES[name].convert is not None:
        X[rng.random(X.shape) < 0.5] = 0.0
    return X.astype(dtype)


def fitted(case: Case, X: np.ndarray, expected: object) -> object:
    """The model of X, with the warning that is expected."""
    given = Batches([X[:25], X[25:]]) if case.batches else case.convert(X) if case.convert else X
    if expected is None:
        return case.make().fit(given)
    with pytest.warns(PrecisionWarning, match=expected):
        return case.make().fit(given)


def results(case: Case, model: object, X: np.ndarray) -> dict[str, np.ndarray]:
    """Everything that a model says of rows."""
    scores = model.transform(X)
    return {
        name: np.asarray(model.inverse_transform(scores) if name == "inverse_transform" else getattr(model, name)(X))
        for name in case.results
    }


@each("name", CASES)
@each("dtype", EXPONENTS)
def test_multiplying_the_data_multiplies_the_answer(name, dtype):
    case, X = CASES[name], rows(name, dtype)
    plain = fitted(case, X, None)
    powers = {key: power for key, power in POWERS.items() if hasattr(plain, key)}
    wanted = {key: np.asarray(getattr(plain, key)) for key in powers} | results(case, plain, X)
    powers |= case.results
    bound = 2000.0 * float(np.finfo(dtype).eps)
    for exponent in EXPONENTS[dtype]:
        Y = np.ldexp(X, exponent)
        smallest = float(np.min(wanted["explained_variance_"])) * 2.0**exponent * 2.0**exponent
        is_lost = smallest < np.finfo(dtype).tiny
        model = fitted(case, Y, f"{dtype} has no variances so small" if is_lost else None)
        got = {key: np.asarray(getattr(model, key)) for key in powers if hasattr(model, key) and key in POWERS}
        for key, value in (got | results(case, model, Y)).items():
            expected, unit = wanted[key], np.max(np.abs(wanted[key]), initial=0.0)
            if powers[key] == 2 and is_lost:
                assert np.all((value >= 0) & (value < np.inf)), (exponent, key)
                continue
            back = np.ldexp(np.asarray(value, dtype=np.float64), -powers[key] * exponent)
            np.testing.assert_allclose(back, expected, rtol=0, atol=bound * unit, err_msg=f"{key} at 2**{exponent}")


@each("name", CASES)
@each("dtype, exponent", [("float64", 530), ("float32", 70)])
def test_variances_that_overflow_are_named(name, dtype, exponent):
    case, X = CASES[name], np.ldexp(rows(name, dtype), exponent)
    with pytest.raises(
        InvalidParameterError, match=rf"overflow: .* by about \de\+\d+, and {dtype} has no variances so large"
    ):
        fitted(case, X, None)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_scale_is_a_power_of_two_that_normal_numbers_hold(dtype):
    info = np.finfo(dtype)
    for largest in (float(info.smallest_subnormal), float(info.tiny), 1e-30, 0.3, 1.0, 7.0, 1e30, float(info.max)):
        scale = power_of_two_scale(largest, dtype)
        assert np.frexp(scale)[0] == 0.5
        assert info.tiny <= min(dtype(scale), dtype(1.0 / scale))
        assert max(dtype(scale), dtype(1.0 / scale)) <= info.max
        assert 2.0**-60 < largest * scale < 2.0**5
        assert abs(np.log2(largest)) > 120 or 0.5 <= largest * scale < 1.0
        assert scale_for_squares(largest, dtype) in (1.0, scale)
        assert needs_own_scale(np.asarray([largest, 0.0]), dtype).tolist() == [
            scale_for_squares(largest, dtype) != 1.0,
            False,
        ]
    assert power_of_two_scale(0.0, dtype) == scale_for_squares(0.0, dtype) == 1.0
    assert [power_of_two_scale(largest, dtype) for largest in (0.75, 1.0, 1e-6)] == [1.0, 0.5, 2.0**19]
    assert scale_for_squares(1e-5, dtype) == 1.0 != scale_for_squares(float(info.max), dtype)


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name].results is LATENT or name == "local"])
def test_densities_and_samples_are_those_of_the_units(name):
    case, X = CASES[name], rows(name, "float64")
    plain, model = fitted(case, X, None), fitted(case, np.ldexp(X, -600), "has no variances so small")
    log_volumes = np.sum(~np.isnan(X), axis=1) * 600 * np.log(2.0)
    expected = plain.score_samples(X) + log_volumes
    np.testing.assert_allclose(model.score_samples(np.ldexp(X, -600)), expected, rtol=1e-10)
    if hasattr(plain, "log_likelihoods_"):
        shift = log_volumes[0] if name == "local" else np.sum(log_volumes)
        # With a prior they are known up to a constant.
        shift = model.log_likelihoods_[0] - plain.log_likelihoods_[0] if name.startswith("Bayes") else shift
        np.testing.assert_allclose(model.log_likelihoods_, plain.log_likelihoods_ + shift, rtol=1e-10)
    drawn, wanted = (m.sample(9, random_state=0) for m in (model, plain))
    drawn, wanted = (drawn[0], wanted[0]) if name == "local" else (drawn, wanted)
    np.testing.assert_allclose(np.ldexp(drawn, 600), wanted, atol=1e-10)


@each("name", ["incremental", "exact", "probabilistic", "probabilistic, holes", "Bayesian", "local"])
def test_every_library(name, xp):
    case, X = CASES[name], rows(name, "float64")
    plain, Y = fitted(case, X, None), np.ldexp(X, -600)
    with pytest.warns(PrecisionWarning, match="float64 has no variances so small"):
        model = case.make().fit(xp.array(Y))
    assert xp.owns(model.components_)
    # EM stops before the last digits are the same in every library.
    np.testing.assert_allclose(xp.host(model.components_), plain.components_, atol=1e-5)
    scores = np.ldexp(xp.host(model.transform(xp.array(Y))), 600 * case.results["transform"])
    np.testing.assert_allclose(scores, plain.transform(X), atol=1e-5)


@pytest.mark.parametrize("name", ["incremental", "exact", "probabilistic", "probabilistic, holes", "Bayesian", "local"])
def test_a_saved_model_keeps_its_units(name, tmp_path):
    case, X = CASES[name], np.ldexp(rows(name, "float64"), -600)
    model = fitted(case, X, "has no variances so small")
    model.save(tmp_path / "model.npz")
    np.testing.assert_array_equal(load(tmp_path / "model.npz").transform(X), model.transform(X))


@pytest.mark.parametrize("name", ["incremental", "exact", "probabilistic", "Bayesian"])
def test_a_precision_matrix_that_overflows_is_refused(name):
    model = fitted(CASES[name], np.ldexp(rows(name, "float64"), -600), "has no variances so small")
    with pytest.raises(InvalidParameterError, match=r"precision matrix overflows.* Multiply the data"):
        model.get_precision()


def test_later_batches_of_another_size_change_the_units():
    X = rows("incremental", "float64")
    sizes = (-600, -100, -600)
    plain, model = IncrementalPCA(4), IncrementalPCA(4)
    with pytest.warns(PrecisionWarning):
        model.partial_fit(np.ldexp(X, sizes[0]))
    for exponent in sizes[1:]:
        model.partial_fit(np.ldexp(X, exponent))
    for batch in (np.zeros_like(X), X, np.zeros_like(X)):  # what the small ones are beside the large one
        plain.partial_fit(batch)
    np.testing.assert_allclose(np.ldexp(model.singular_values_, 100), plain.singular_values_, rtol=1e-11)
    np.testing.assert_allclose(model.components_, plain.components_, atol=1e-11)
    np.testing.assert_allclose(np.ldexp(model.mean_, 100), plain.mean_, rtol=1e-11)


@each("make", [partial(IncrementalPCA, 2), partial(LocalPCA, 1)])
@each("size", [1e-170, 1e-300, 0.1, 1e200, 1e300])
def test_equal_rows_have_no_variance_at_any_size(make, size):
    with pytest.warns(RankWarning, match="all rows are equal"):
        model = make().fit(np.full((12, 4), size / 3.0))
    assert np.all(np.isfinite(model.explained_variance_))


@pytest.mark.parametrize("make", [ProbabilisticPCA, BayesianPCA])
@pytest.mark.parametrize("size", [1e-170, 1e200])
def test_em_of_equal_rows_has_no_variance_at_any_size(make, size):
    X = np.full((12, 4), size / 3.0)
    X[0, 1] = X[3, 2] = np.nan
    with pytest.warns(RankWarning, match="no feature varies"):
        model = make(2).fit(X)
    assert model.total_variance_ == 0.0
    assert np.all(np.isfinite(model.mean_))


@pytest.mark.parametrize("name", ["incremental", "probabilistic", "probabilistic, EM", "local"])
def test_small_deviations_beside_huge_entries_are_refused(name):
    make, X = CASES[name].make, np.ldexp(rows(name, "float64"), -900)
    X[:, 3] = 1e300
    with pytest.raises(InvalidParameterError, match=r"entries of 1e\+300.* Subtract a constant"):
        make().fit(X)


def test_noise_alone_that_vanishes_is_named():
    X = np.ldexp(np.random.default_rng(0).standard_normal((40, 5)), -600)
    with pytest.warns(PrecisionWarning, match="float64 has no variances so small"), pytest.warns(RankWarning):
        model = BayesianPCA(2).fit(X)
    assert model.n_components_ == 0


@each("solver", ["dense", "randomized", "nystrom", "arpack"])
@each("convert", [np.asarray, scipy.sparse.csr_matrix])
@each("parameters", [{"kernel": "linear"}, {"kernel": "poly", "coef0": 0.0, "degree": 3}], ids=str)
def test_a_kernel_matrix_that_underflows_is_refused(solver, convert, parameters):
    for dtype, exponent in (("float64", -565), ("float32", -76)):
        X = convert(np.ldexp(rows("exact", dtype), exponent))
        with pytest.raises(InvalidParameterError, match=rf"{dtype} does not hold .* Multiply the data by 2\*\*\d+"):
            KernelPCA(2, eigen_solver=solver, random_state=0, **parameters).fit(X)


@each("gamma", ["scale", "median"])
@each("exponent", [-900, -565, -535, 520, 900])
def test_gamma_of_data_whose_squares_are_no_numbers_is_refused(gamma, exponent):
    X = np.ldexp(rows("exact", "float64"), exponent)
    with pytest.raises(InvalidParameterError, match=r"range over \de[+-]\d+ together; scale the features"):
        KernelPCA(2, kernel="rbf", gamma=gamma).fit(X)


def test_flat_kernels_and_equal_rows_are_no_underflow():
    X = np.ldexp(rows("exact", "float64"), -565)
    for parameters, data in (({"kernel": "rbf", "gamma": 0.1}, X), ({"kernel": "linear"}, np.full((9, 3), X[0, 0]))):
        with pytest.warns(RankWarning, match="no variance|rows are equal|zero"):
            KernelPCA(2, **parameters).fit(data)
