"""How many components of a kernel PCA: by share of the variance, by error, by the gap that residuals make certain."""

from __future__ import annotations

import numpy as np
import pytest

from gpukpca import PCA, KernelPCA
from gpukpca.exceptions import InvalidParameterError
from gpukpca.model_selection import compare_rules, n_components_for
from tests.conftest import Namespace


def groups(n: int, count: int, seed: int = 0) -> np.ndarray:
    """Tight groups far apart: with a narrow Gaussian kernel one eigenvalue for each, less one for the mean."""
    rng = np.random.default_rng(seed)
    return np.repeat(10.0 * np.eye(count), n // count, axis=0) + 0.05 * rng.standard_normal((n // count * count, count))


def model_with(values: list[float], residuals: list[float]) -> KernelPCA:
    """A kernel PCA of 11 rows with this spectrum: n - 1 = 10 turns eigenvalues into variances."""
    model = KernelPCA(len(values), kernel="rbf").fit(np.random.default_rng(0).standard_normal((11, 5)))
    model.explained_variance_ = np.array(values) / 10.0
    model.total_variance_ = sum(values) / 10.0
    model.residual_norms_ = np.array(residuals)
    return model


@pytest.mark.parametrize("count", [2, 4, 6])
def test_the_gap_counts_groups_less_one(count: int, xp: Namespace, dtype: str):
    X = xp.array(groups(60, count), dtype)
    model = KernelPCA(count + 1, kernel="rbf", gamma=0.5).fit(X)
    assert n_components_for(model, "gap") == count - 1


def test_the_gap_is_that_of_the_certificate():
    choice = n_components_for(model_with([8.0, 4.0, 1.0, 0.9], [0.1, 0.2, 0.3, 0.0]), "gap", 1.0, return_report=True)
    np.testing.assert_allclose(choice.values, [1 - 4.2 / 7.9, 1 - 1.3 / 3.8, 1 - 0.9 / 0.7])
    assert choice.n_components == 2


def test_true_eigenvalues_lie_where_the_certificate_says():
    X = groups(60, 4)
    rough = KernelPCA(8, kernel="rbf", gamma=0.5, eigen_solver="randomized", iterated_power=2, random_state=0)
    with pytest.warns(UserWarning, match="residual above tol"):
        rough.fit(X)
    exact = KernelPCA(8, kernel="rbf", gamma=0.5, eigen_solver="dense").fit(X)
    choice = n_components_for(rough, "gap", return_report=True)
    true = np.asarray(exact.eigenvalues_)
    assert np.all(choice.values <= 1.0 - true[1:] / true[:-1] + 1e-12)
    assert choice.n_components == n_components_for(exact, "gap") == 3


def test_a_gap_that_the_residuals_hide_is_refused():
    with pytest.raises(InvalidParameterError, match="no gap between the components is certain"):
        n_components_for(model_with([3.0, 2.0, 1.0], [1.0, 1.0, 1.0]), "gap")


def test_the_gap_is_sought_before_the_tail():
    model = model_with([6.0, 5.0, 1.0, 1e-9], [0.0] * 4)
    assert n_components_for(model, "gap") == 3
    assert n_components_for(model, "gap", 0.9) == 2


def test_the_gap_of_pca_and_of_data(rng: np.random.Generator):
    X = rng.standard_normal((200, 6)) * np.array([9.0, 8.0, 7.0, 1.0, 0.9, 0.8])
    assert n_components_for(X, "gap") == n_components_for(PCA().fit(X), "gap") == 3


def test_shares_and_errors_of_a_kernel_pca_are_exact(rng: np.random.Generator):
    X = rng.standard_normal((40, 3))
    model = KernelPCA(20, kernel="rbf", gamma=0.2).fit(X)
    shares = np.cumsum(np.asarray(KernelPCA(kernel="rbf", gamma=0.2).fit(X).explained_variance_ratio_))
    for share in (0.3, 0.8):
        assert n_components_for(model, "variance", share) == 1 + int(np.sum(shares < share))
        assert (
            n_components_for(model, "variance", share)
            == KernelPCA(share, kernel="rbf", gamma=0.2).fit(X).eigenvalues_.shape[0]
        )
    error = float(np.mean(model.feature_space_error(X, n_components=4)))
    assert n_components_for(model, "error", error * (1 + 1e-9)) == 4
    assert n_components_for(model, "error", error * (1 - 1e-9)) == 5


def test_rules_about_the_data_refuse_a_kernel_pca(rng: np.random.Generator):
    model = KernelPCA(5, kernel="rbf").fit(rng.standard_normal((30, 3)))
    for rule in ("mle", "broken_stick"):
        with pytest.raises(InvalidParameterError, match="the model is a kernel PCA"):
            n_components_for(model, rule)
    rows = {row.rule: row.n_components for row in compare_rules(model, share=0.2)}
    assert rows["variance"] is not None
    assert rows["mle"] is rows["parallel"] is None


@pytest.mark.parametrize("value", [0.0, 1.5, "all"])
def test_a_share_out_of_range_is_refused(value: object, rng: np.random.Generator):
    with pytest.raises(InvalidParameterError, match='a share in \\(0, 1\\] with rule "gap"'):
        n_components_for(rng.standard_normal((9, 3)), "gap", value)
