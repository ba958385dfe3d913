"""The rules for the number of components: against plain formulas, against scikit-learn, on known answers."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.decomposition import PCA, IncrementalPCA

import gpukpca
from gpukpca.exceptions import InvalidParameterError
from gpukpca.model_selection import RULES, SOURCES, RankSelection, RuleResult, compare_rules, n_components_for

DATA = {
    "iris": load_iris().data,
    "wine": load_wine().data,
    "breast cancer": load_breast_cancer().data,
    "digits": load_digits().data,
}


def planted(rng, n=200, d=12, strong=3):
    """Three strong directions in noise."""
    axes = np.linalg.qr(rng.standard_normal((d, strong)))[0].T
    return rng.standard_normal((n, strong)) * np.array([6.0, 5.5, 5.0]) @ axes + rng.standard_normal((n, d))


def variances(X):
    values = np.linalg.eigvalsh(np.cov(X, rowvar=False))[::-1]
    return np.maximum(values, 0.0)


# -- each rule against its formula -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("share", [0.5, 0.9, 0.99, 0.9999])
def test_variance_is_the_fraction_of_scikit_learn(name, share):
    X = DATA[name]
    assert n_components_for(X, "variance", share) == PCA(n_components=share, svd_solver="full").fit(X).n_components_


def test_all_of_the_variance_needs_no_more_than_the_rank(rng):
    X = rng.standard_normal((30, 3)) @ rng.standard_normal((3, 8))
    assert n_components_for(X, "variance", 1.0) == 3
    assert n_components_for(np.ones((4, 3)), "variance", 0.9) == 0


@pytest.mark.parametrize("name", DATA)
def test_mle_is_that_of_scikit_learn(name):
    X = DATA[name]
    assert n_components_for(X, "mle") == PCA(n_components="mle", svd_solver="full").fit(X).n_components_


def test_the_evidence_is_that_of_minka_number_by_number(rng):
    from sklearn.decomposition._pca import _assess_dimension

    X = planted(rng)
    report = n_components_for(X, "mle", return_report=True)
    assert report.n_components == 3
    wanted = np.array([_assess_dimension(variances(X) / variances(X)[0], K, len(X)) for K in range(1, X.shape[1])])
    np.testing.assert_allclose(report.values, wanted, rtol=1e-9)


def test_mle_is_that_of_the_pca_of_this_library():
    X = load_digits().data
    assert gpukpca.PCA(n_components="mle").fit(X).n_components_ == n_components_for(X, "mle")


def test_mle_of_equal_variances_and_of_a_constant():
    eye = np.vstack([np.eye(4), -np.eye(4)])
    assert 1 <= n_components_for(eye, "mle") <= 3
    assert n_components_for(np.ones((5, 3)), "mle") == 0


@pytest.mark.parametrize("K", [0, 1, 3, 12])
@pytest.mark.parametrize("per", ["sample", "total"])
def test_error_counts_what_is_left_out(rng, K, per):
    X = planted(rng)
    left = np.sum(variances(X)[K:]) * (len(X) - 1) / (len(X) if per == "sample" else 1)
    assert n_components_for(X, "error", left * (1 + 1e-9) + 1e-300, per=per) == K
    centered = X - X.mean(axis=0)
    V = np.linalg.svd(centered)[2][:K]
    distances = np.sum((centered - centered @ V.T @ V) ** 2, axis=1)
    assert left == pytest.approx(distances.mean() if per == "sample" else distances.sum(), abs=1e-9)


def test_broken_stick_by_hand(rng):
    X = planted(rng)
    q, shares = 12, variances(X) / np.sum(variances(X))
    pieces = [sum(1 / i for i in range(k, q + 1)) / q for k in range(1, q + 1)]
    report = n_components_for(X, "broken_stick", return_report=True)
    np.testing.assert_allclose(report.thresholds, pieces, rtol=1e-14)
    assert math.isclose(sum(pieces), 1.0)
    wanted = next(k for k in range(q) if shares[k] <= pieces[k])
    assert report.n_components == wanted
    np.testing.assert_allclose(report.values, shares, rtol=1e-12)


@pytest.mark.parametrize("null", ["permutation", "normal"])
def test_parallel_finds_what_was_planted_and_nothing_in_noise(rng, null):
    assert n_components_for(planted(rng), "parallel", null=null) == 3
    noise = rng.standard_normal((300, 6)) * np.array([1, 2, 3, 4, 5, 60.0])
    assert n_components_for(noise, "parallel", null=null, quantile=0.999) <= 1


def test_parallel_against_permutations_written_out(rng):
    X = planted(rng, n=40, d=5)
    report = n_components_for(X, "parallel", n_draws=7, random_state=3, quantile=0.5, return_report=True)
    draws = np.random.default_rng(3)
    plain = [variances(draws.permuted(X, axis=0)) for _ in range(7)]
    np.testing.assert_allclose(report.thresholds, np.quantile(plain, 0.5, axis=0), rtol=1e-11)
    again = n_components_for(X, "parallel", n_draws=7, random_state=3, quantile=0.5, return_report=True)
    np.testing.assert_array_equal(report.thresholds, again.thresholds)


def test_more_features_than_samples(rng):
    X = rng.standard_normal((12, 40))
    assert n_components_for(X, "variance", 1.0) == 11
    assert n_components_for(X, "fixed", 11) == 11
    assert n_components_for(X, "parallel", n_draws=5) >= 0
    with pytest.raises(InvalidParameterError, match="d <= n"):
        n_components_for(X, "mle")


# -- a model in the place of data --------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["variance", "error", "mle", "broken_stick"])
def test_a_model_is_as_good_as_its_data(rng, rule):
    X = planted(rng)
    value = {"variance": 0.9, "error": 3.0}.get(rule)
    models = (
        PCA(),
        PCA(whiten=True),
        IncrementalPCA(batch_size=len(X)),
        gpukpca.PCA(),
        gpukpca.IncrementalPCA(exact=True),
    )
    for model in (model.fit(X) for model in models):
        assert n_components_for(model, rule, value) == n_components_for(X, rule, value)


def test_a_truncated_model_knows_its_total(rng):
    X = planted(rng)
    model = PCA(5, svd_solver="full").fit(X)
    assert n_components_for(model, "variance", 0.8) == n_components_for(X, "variance", 0.8)
    assert n_components_for(model, "broken_stick") == n_components_for(X, "broken_stick")
    with pytest.raises(InvalidParameterError, match="keeps have a share"):
        n_components_for(model, "variance", 0.999)
    with pytest.raises(InvalidParameterError, match="keeps the error is"):
        n_components_for(model, "error", 0.01)
    with pytest.raises(InvalidParameterError, match="needs all 12 eigenvalues"):
        n_components_for(model, "mle")
    with pytest.raises(InvalidParameterError, match="pass the data"):
        n_components_for(model, "parallel")
    with pytest.raises(InvalidParameterError, match="exceed the broken stick"):
        n_components_for(PCA(1).fit(X), "broken_stick")


# -- libraries, precision, scale ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["variance", "mle", "parallel", "broken_stick"])
def test_every_library_gives_the_same_number(xp, dtype, rng, rule):
    X = planted(rng).astype(dtype)
    assert n_components_for(xp.array(X), rule, n_draws=10) == n_components_for(X.astype(np.float64), rule, n_draws=10)


@pytest.mark.parametrize("rule", ["variance", "mle", "parallel", "broken_stick"])
@pytest.mark.parametrize("scale", [2.0**-300, 2.0**300])
def test_the_scale_of_the_data_does_not_matter(rng, rule, scale):
    X = planted(rng)
    assert n_components_for(X * scale, rule, n_draws=10) == n_components_for(X, rule, n_draws=10)


# -- the table ---------------------------------------------------------------------------------------------------------


def test_the_table_has_every_rule_with_its_source(rng):
    X = planted(rng)
    table = compare_rules(X, share=0.9, n_draws=10)
    assert [row.rule for row in table] == ["variance", "error", "mle", "bayesian", "parallel", "broken_stick"]
    assert all(isinstance(row, RuleResult) and row.source == SOURCES[row.rule] for row in table)
    numbers = {row.rule: row.n_components for row in table}
    assert numbers["variance"] == numbers["error"] == n_components_for(X, "variance", 0.9)
    assert numbers["mle"] == numbers["parallel"] == 3


def test_a_rule_that_cannot_be_applied_says_why(rng):
    table = {row.rule: row for row in compare_rules(PCA().fit(planted(rng)))}
    assert table["parallel"].n_components is None
    assert "pass the data" in table["parallel"].note


def test_the_report_says_what_was_compared(rng):
    for rule in RULES:
        value = {"fixed": 2, "variance": 0.9, "error": 3.0}.get(rule)
        report = n_components_for(planted(rng), rule, value, n_draws=3, return_report=True)
        assert isinstance(report, RankSelection)
        assert report.rule == rule
        assert report.compared
        assert report.thresholds is None or len(report.thresholds) == len(report.values)


# -- bad input ---------------------------------------------------------------------------------------------------------

WRONG = [
    ({"rule": "elbow"}, "'parallel'"),
    ({"rule": None}, "rule=None"),
    ({"rule": "fixed"}, "value=None"),
    ({"rule": "fixed", "value": 13}, "from 0 to 12"),
    ({"rule": "fixed", "value": True}, "value=True"),
    ({"rule": "variance", "value": 0.0}, "share in"),
    ({"rule": "variance", "value": 1.5}, "share in"),
    ({"rule": "variance", "value": "x"}, "share in"),
    ({"rule": "error"}, "error >= 0"),
    ({"rule": "error", "value": -1.0}, "error >= 0"),
    ({"rule": "error", "value": 1.0, "per": "pixel"}, "per='pixel'"),
    ({"rule": "mle", "value": 3}, "must be None with rule"),
    ({"rule": "parallel", "quantile": 1.0}, "quantile"),
    ({"rule": "parallel", "n_draws": 0}, "n_draws"),
    ({"rule": "parallel", "null": "uniform"}, "null"),
    ({"rule": "parallel", "random_state": -1}, "random_state"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_wrong_arguments_are_named(rng, arguments, message):
    with pytest.raises(InvalidParameterError, match=message):
        n_components_for(planted(rng), **arguments)


def test_bad_data_are_refused(rng):
    X = planted(rng)
    X[3, 4] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        n_components_for(X, "mle")
    with pytest.raises(InvalidParameterError, match="at least 2 samples"):
        n_components_for(np.ones((1, 3)), "variance")
    with pytest.raises(ValueError, match="overflow"):
        n_components_for(planted(rng) * 1e200, "variance")


# -- known answers -----------------------------------------------------------------------------------------------------


def foods(folder: Path) -> np.ndarray:
    """Four countries by seventeen foods."""
    with (folder / "foods" / "UK_foods.csv").open(encoding="utf-8") as file:
        return np.array([row[1:] for row in list(csv.reader(file))[1:]], dtype=np.float64).T


def test_foods_have_the_shares_that_everybody_prints(real_data):
    X = foods(real_data)
    report = n_components_for(X, "variance", 0.9, return_report=True)
    assert X.shape == (4, 17)
    np.testing.assert_allclose(np.diff(report.values, prepend=0), [0.67444, 0.29052, 0.03503], atol=5e-6)
    assert report.n_components == 2


def test_usps_has_the_cumulative_shares_of_the_books(real_data):
    X = np.load(real_data / "usps" / "usps.npz")["x_train"]
    report = n_components_for(X, "variance", 0.5, return_report=True)
    np.testing.assert_allclose(report.values[[5, 6, 7, 9]], [0.4774, 0.5101, 0.5409, 0.5909], atol=5e-5)
    assert report.n_components == 7
