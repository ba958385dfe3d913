"""Kernel PCA of a share of the variance: as many components as the spectrum says, by every solver and storage."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpukpca import KernelPCA
from gpukpca.algorithms import fit_kernel_pca
from gpukpca.algorithms.kernel_pca.settings import KernelPCASettings
from gpukpca.algorithms.resources import Resources
from gpukpca.eigen import BlockKrylov, Nystrom
from gpukpca.exceptions import ConvergenceWarning, IndefiniteKernelError, IndefiniteKernelWarning, MemoryBudgetError
from gpukpca.kernels import RBF, Precomputed
from tests import oracle
from tests.conftest import Namespace
from tests.each import each

N = 150
ROWS = np.random.default_rng(0).standard_normal((N, 6))
DATA = {
    "fast": ROWS * np.exp(-np.arange(6.0)),
    "slow": ROWS,
    "offset": ROWS + 1e4,
    "twins": np.repeat(ROWS[: N // 2], 2, axis=0),
    "two points": np.repeat(ROWS[:2], N // 2, axis=0),
    "constant columns": np.where(np.arange(6) < 2, ROWS, 3.0),
}
KERNEL = RBF(0.3)
SETTINGS: dict[str, dict[str, Any]] = {
    "auto": {},
    "passes over tiles": {"solver": "randomized", "gram": "tiled"},
    "passes over K": {"solver": "randomized", "gram": "dense"},
    "a narrow block": {"solver": BlockKrylov(block_size=5)},
}


class Host:
    """NumPy."""

    array = host = staticmethod(np.asarray)


def counted(X: np.ndarray, share: float) -> tuple[int, np.ndarray]:
    """Return the fewest eigenvalues that hold more than the share of their sum, and all of them."""
    values = np.maximum(oracle.eigenpairs(oracle.centered(KERNEL(X - X.mean(axis=0))))[0], 0.0)
    return int(np.argmax(np.cumsum(values) > (share + 1e-13) * np.sum(values))) + 1, values


def check_share(xp: Any, X: np.ndarray, share: float, settings: dict[str, Any]) -> None:
    p, values = counted(X, share)
    fit = fit_kernel_pca(xp.array(X), KERNEL, share, settings=KernelPCASettings(**settings), rng=0)
    found = xp.host(fit.eigenvalues)
    assert found.shape == (p,)
    np.testing.assert_allclose(found, values[:p], atol=1e-8 * values[0])
    assert bool(np.all(fit.converged))
    assert fit.plan.n_components == p


@each("of", DATA)
@each("settings", SETTINGS)
def test_as_many_components_as_the_spectrum_says(settings: str, of: str) -> None:
    for share in (0.05, 0.6, 0.93):
        check_share(Host, DATA[of], share, SETTINGS[settings])


@pytest.mark.parametrize("settings", SETTINGS)
def test_every_library_counts_as_many(xp: Namespace, settings: str) -> None:
    check_share(xp, ROWS, 0.6, SETTINGS[settings])


def test_few_rows_are_not_cut_to_the_first_guess() -> None:
    for n in (20, 40, 76, 79):
        check_share(Host, DATA["slow"][:n], 0.9, SETTINGS["passes over K"])


def test_a_share_takes_no_more_passes_than_its_number() -> None:
    X = np.random.default_rng(0).standard_normal((450, 4)) * [4.0, 2.0, 1.0, 0.5]
    share = KernelPCA(0.6, kernel="rbf", gamma=0.02, random_state=0).fit(X)
    p = share.eigenvalues_.shape[0]
    assert p < 16
    number = KernelPCA(p, kernel="rbf", gamma=0.02, random_state=0, eigen_solver=BlockKrylov(block_size=20)).fit(X)
    assert share.n_passes_ == number.n_passes_
    assert share.n_products_ == number.n_products_


def test_many_components_are_left_to_the_dense_solver() -> None:
    X = np.random.default_rng(0).standard_normal((450, 6))
    model = KernelPCA(0.9, kernel="rbf", gamma=0.3, random_state=0)
    first = str(model.plan(X))
    assert "block Krylov for 16 components" in first
    assert "a share of more than 37 components is left to all eigenvalues" in first
    model.fit(X)
    p, values = counted(X, 0.9)
    assert model.eigenvalues_.shape == (p,)
    np.testing.assert_allclose(model.eigenvalues_, values[:p], rtol=1e-10)
    assert f"dense for {p} components (more than 37 pairs are needed)" in str(model.plan_)
    assert "block Krylov came first" in str(model.plan_)


def test_components_that_memory_cannot_hold_are_an_error() -> None:
    X = np.random.default_rng(0).standard_normal((450, 6))
    few = KernelPCASettings(gram="tiled", copies_data=False)
    number = fit_kernel_pca(X, KERNEL, 16, settings=few, rng=0).plan.predicted_bytes
    resources = Resources.for_data(X, memory_limit=number - 450**2 * 2)
    assert "a share takes at most" in str(fit_kernel_pca(X, RBF(0.01), 0.8, settings=few, resources=resources).plan)
    with pytest.raises(MemoryBudgetError, match=r"n_components=0.9 needs many components: more than \d+ pairs"):
        fit_kernel_pca(X, KERNEL, 0.9, settings=few, resources=resources, rng=0)


def test_fixed_passes_that_miss_a_share_warn() -> None:
    X = np.random.default_rng(0).standard_normal((450, 6))
    with pytest.warns(ConvergenceWarning) as caught:
        KernelPCA(0.8, kernel="rbf", gamma=0.3, iterated_power=1, eigen_solver="randomized", random_state=0).fit(X)
    assert any(warning.message.values.get("share") == 0.8 for warning in caught)


@pytest.mark.parametrize("solver", ["auto", "dense"])
def test_the_share_of_an_indefinite_matrix_is_that_of_its_positive_part(solver: Any) -> None:
    values = np.concatenate([[6.0, 3.0, 1.0], np.zeros(N - 5), [-4.0, 0.0]])
    Q = np.linalg.qr(np.column_stack([np.ones(N), np.random.default_rng(0).standard_normal((N, N - 1))]))[0]
    A = (Q[:, 1:] * values[:-1]) @ Q[:, 1:].T
    settings = KernelPCASettings(solver=solver)
    for share, p in ((0.55, 1), (0.85, 2), (0.95, 3)):
        with pytest.warns(IndefiniteKernelWarning, match="the sum of the positive ones"):
            fit = fit_kernel_pca(A + 9.0, Precomputed(), share, settings=settings)
        np.testing.assert_allclose(fit.eigenvalues, values[:p], atol=1e-12)
        assert fit.total_variance == pytest.approx(10.0 / (N - 1))
    with pytest.raises(IndefiniteKernelError, match="All eigenvalues are negative"):
        fit_kernel_pca(9.0 - A @ A, Precomputed(), 0.5, settings=settings)


def test_landmarks_keep_what_certainly_holds_a_share() -> None:
    X = ROWS * np.exp(-np.arange(6.0))
    fit = fit_kernel_pca(X, RBF(0.05), 0.8, settings=KernelPCASettings(solver=Nystrom(rank=60)), rng=0)
    ratios = fit.spectrum.ratios
    assert np.sum(ratios) >= 0.8 > np.sum(ratios[:-1])


@pytest.mark.parametrize("solver", ["dense", "randomized"])
def test_shares_of_an_indefinite_matrix_never_exceed_one(solver: str) -> None:
    D = np.abs(ROWS[:, None] - ROWS[None]).sum(axis=2)
    with pytest.warns(IndefiniteKernelWarning, match=r"explained_variance_ratio_ .*pass -D\*\*2 / 2"):
        fit = fit_kernel_pca(D**2, Precomputed(), 2, settings=KernelPCASettings(solver=solver), rng=0)
    values = oracle.eigenpairs(oracle.centered(D**2))[0]
    true = values[:2] / np.sum(np.maximum(values, 0.0))
    assert np.all(fit.spectrum.ratios >= true * (1 - 1e-9))
    assert np.sum(fit.spectrum.ratios) <= 1.0 + 1e-12
