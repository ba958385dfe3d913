"""The rules for the number of components: against plain formulas, against scikit-learn, on known answers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.decomposition import PCA, IncrementalPCA
from sklearn.decomposition._pca import _assess_dimension

import gpukpca
from gpukpca import KernelPCA
from gpukpca.datasets import uk_foods
from gpukpca.exceptions import InvalidParameterError
from gpukpca.model_selection import n_components_for
from gpukpca.model_selection.n_components import RULES, RankSelection
from tests.conftest import Namespace

DATA = {
    "iris": load_iris().data,
    "wine": load_wine().data,
    "breast cancer": load_breast_cancer().data,
    "digits": load_digits().data,
}
# A value for the rules that need one.
VALUES = {"variance": 0.9, "error": 3.0}


def planted(rng, n=200, d=12, strong=3):
    """Three strong directions in noise."""
    axes = np.linalg.qr(rng.standard_normal((d, strong)))[0].T
    return rng.standard_normal((n, strong)) * np.array([6.0, 5.5, 5.0]) @ axes + rng.standard_normal((n, d))


def variances(X):
    return np.maximum(np.linalg.eigvalsh(np.cov(X, rowvar=False))[::-1], 0.0)


# -- each rule against its formula -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DATA)
def test_variance_and_mle_are_those_of_scikit_learn(name):
    X = DATA[name]
    for share in (0.5, 0.9, 0.99, 0.9999):
        assert n_components_for(X, "variance", share) == PCA(share, svd_solver="full").fit(X).n_components_
    mle = n_components_for(X, "mle")
    assert mle == PCA("mle", svd_solver="full").fit(X).n_components_ == gpukpca.PCA("mle").fit(X).n_components_


def test_the_evidence_is_that_of_minka_number_by_number(rng):
    X = planted(rng)
    report = n_components_for(X, "mle", return_report=True)
    assert report.n_components == 3
    reference = np.array([_assess_dimension(variances(X) / variances(X)[0], K, len(X)) for K in range(1, X.shape[1])])
    np.testing.assert_allclose(report.values, reference, rtol=1e-9)


def test_degenerate_spectra(rng):
    eye = np.vstack([np.eye(4), -np.eye(4)])
    assert 1 <= n_components_for(eye, "mle") <= 3
    for rule in ("variance", "mle", "bayesian", "broken_stick"):
        assert n_components_for(np.ones((5, 3)), rule) == 0
    low = rng.standard_normal((30, 3)) @ rng.standard_normal((3, 8))
    assert n_components_for(low, "variance", 1.0) == 3
    wide = rng.standard_normal((12, 40))
    assert n_components_for(wide, "variance", 1.0) == 11
    with pytest.raises(InvalidParameterError, match="d <= n"):
        n_components_for(wide, "mle")


@pytest.mark.parametrize("K", [0, 1, 3, 12])
@pytest.mark.parametrize("per", ["sample", "total"])
def test_error_is_the_distance_from_the_subspace(rng, K, per):
    X = planted(rng)
    centered = X - X.mean(axis=0)
    V = np.linalg.svd(centered)[2][:K]
    distances = np.sum((centered - centered @ V.T @ V) ** 2, axis=1)
    error = distances.mean() if per == "sample" else distances.sum()
    assert n_components_for(X, "error", error * (1 + 1e-9) + 1e-12, per=per) == K
    if 0 < K < 12:
        assert n_components_for(X, "error", error * (1 - 1e-9), per=per) == K + 1


def test_broken_stick_by_hand(rng):
    X = planted(rng)
    q, shares = 12, variances(X) / np.sum(variances(X))
    pieces = [sum(1 / i for i in range(k, q + 1)) / q for k in range(1, q + 1)]
    report = n_components_for(X, "broken_stick", return_report=True)
    np.testing.assert_allclose(report.thresholds, pieces, rtol=1e-14)
    np.testing.assert_allclose(report.values, shares, rtol=1e-12)
    assert math.isclose(sum(pieces), 1.0)
    assert report.n_components == next(k for k in range(q) if shares[k] <= pieces[k])


@pytest.mark.parametrize("null", ["permutation", "normal"])
def test_parallel_finds_the_planted_directions_and_none_in_noise(rng, null):
    assert n_components_for(planted(rng), "parallel", null=null) == 3
    noise = rng.standard_normal((300, 6)) * np.array([1, 2, 3, 4, 5, 60.0])
    assert n_components_for(noise, "parallel", null=null, quantile=0.999) <= 1


def test_parallel_against_permutations_written_out(rng):
    X = planted(rng, n=40, d=5)
    report, again = (
        n_components_for(X, "parallel", n_draws=7, random_state=3, quantile=0.5, return_report=True) for _ in range(2)
    )
    draws = np.random.default_rng(3)
    plain = [variances(draws.permuted(X, axis=0)) for _ in range(7)]
    np.testing.assert_allclose(report.thresholds, np.quantile(plain, 0.5, axis=0), rtol=1e-11)
    np.testing.assert_array_equal(report.thresholds, again.thresholds)


# -- a model in place of data ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["variance", "error", "mle", "broken_stick"])
@pytest.mark.parametrize(
    "make",
    [
        PCA,
        lambda: PCA(whiten=True),
        lambda: IncrementalPCA(batch_size=200),
        gpukpca.PCA,
    ],
    ids=["peer", "whitened", "incremental peer", "ours"],
)
def test_a_model_is_as_good_as_its_data(rng, rule, make):
    X, value = planted(rng), VALUES.get(rule)
    assert n_components_for(make().fit(X), rule, value) == n_components_for(X, rule, value)


def test_a_truncated_model_knows_its_total(rng):
    X = planted(rng)
    model = PCA(5, svd_solver="full").fit(X)
    assert n_components_for(model, "variance", 0.8) == n_components_for(X, "variance", 0.8)
    assert n_components_for(model, "broken_stick") == n_components_for(X, "broken_stick")
    for short, rule, value, text in [
        (model, "variance", 0.999, "keeps have a share"),
        (model, "error", 0.01, "keeps the error is"),
        (model, "mle", None, "needs all 12 eigenvalues"),
        (model, "parallel", None, "pass the data"),
        (PCA(1).fit(X), "broken_stick", None, "exceed the broken stick"),
    ]:
        with pytest.raises(InvalidParameterError, match=text):
            n_components_for(short, rule, value)


def test_shares_and_errors_of_a_kernel_pca_are_exact(rng):
    X = rng.standard_normal((40, 3))
    model = KernelPCA(20, kernel="rbf", gamma=0.2).fit(X)
    for share in (0.3, 0.8):
        reference = KernelPCA(share, kernel="rbf", gamma=0.2).fit(X)
        assert n_components_for(model, "variance", share) == reference.eigenvalues_.shape[0]
    error = float(np.mean(model.feature_space_error(X, n_components=4)))
    assert n_components_for(model, "error", error * (1 + 1e-9)) == 4
    assert n_components_for(model, "error", error * (1 - 1e-9)) == 5


def test_rules_about_the_data_refuse_a_kernel_pca(rng):
    model = KernelPCA(5, kernel="rbf").fit(rng.standard_normal((30, 3)))
    for rule in ("mle", "bayesian", "parallel", "broken_stick"):
        with pytest.raises(InvalidParameterError, match=r"is a kernel PCA\. Rules for it: 'variance', 'error'"):
            n_components_for(model, rule)


# -- libraries, precision, scale ---------------------------------------------------------------------------------------

OF_DATA = [rule for rule in RULES if rule != "error"]


@pytest.mark.parametrize("rule", OF_DATA)
def test_every_library_gives_the_same_number(xp: Namespace, dtype, rng, rule):
    X = planted(rng).astype(dtype)
    assert n_components_for(xp.array(X), rule, n_draws=10) == n_components_for(X.astype(np.float64), rule, n_draws=10)


@pytest.mark.parametrize("rule", OF_DATA)
@pytest.mark.parametrize("scale", [2.0**-300, 2.0**300])
def test_the_scale_of_the_data_does_not_matter(rng, rule, scale):
    X = planted(rng)
    assert n_components_for(X * scale, rule, n_draws=10) == n_components_for(X, rule, n_draws=10)


# -- the report --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["variance", "mle", "bayesian"])
def test_a_model_of_scikit_learn_has_the_same_number(rng, rule):
    peer = PCA().fit(planted(rng))
    assert n_components_for(gpukpca.PCA.from_sklearn(peer), rule) == n_components_for(peer, rule)


def test_the_report_says_what_was_compared(rng):
    for rule in RULES:
        report = n_components_for(planted(rng), rule, VALUES.get(rule), n_draws=3, return_report=True)
        assert isinstance(report, RankSelection)
        assert (report.rule, report.source) == (rule, RULES[rule].source)
        assert report.compared
        assert report.thresholds is None or len(report.thresholds) == len(report.values)


# -- bad input ---------------------------------------------------------------------------------------------------------

WRONG = [
    ({"rule": "elbow"}, "'parallel'"),
    ({"rule": None}, "rule=None"),
    ({"rule": "variance", "value": 0.0}, r"a share in \(0, 1\] with rule \"variance\""),
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
        n_components_for(planted(rng) * 1e200, "error", 1.0)


# -- known answers -----------------------------------------------------------------------------------------------------


def test_foods_have_the_shares_that_everybody_prints():
    report = n_components_for(uk_foods().X, "variance", 0.9, return_report=True)
    np.testing.assert_allclose(np.diff(report.values, prepend=0), [0.67444, 0.29052, 0.03503], atol=5e-6)
    assert report.n_components == 2


def test_usps_has_the_cumulative_shares_of_the_books(real_data):
    X = np.load(real_data / "usps" / "usps.npz")["x_train"]
    report = n_components_for(X, "variance", 0.5, return_report=True)
    np.testing.assert_allclose(report.values[[5, 6, 7, 9]], [0.4774, 0.5101, 0.5409, 0.5909], atol=5e-5)
    assert report.n_components == 7
