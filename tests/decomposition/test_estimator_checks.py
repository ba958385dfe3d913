"""scikit-learn's own estimator checks, with no expected failure; some once more with SciPy's array-API switch on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from gpukpca import PCA, BayesianPCA, IncrementalPCA, KernelPCA, LocalPCA, ProbabilisticPCA
from gpukpca.model_selection import KernelPCACV

SWITCH = "SCIPY_ARRAY_API"
ARRAY_API_CHECK = "check_array_api_input"
# What the switch changes: checks of array libraries run, and SciPy refuses sparse arrays where it took them.
SWITCHED = "array_api or sparse"
ESTIMATORS = [
    KernelPCA(),
    # With n_components: one check rounds the matrix to integers, which makes it truly indefinite, and all components
    # of an indefinite matrix are an error here as in scikit-learn (whose own estimator fails that check).
    KernelPCA(kernel="precomputed", n_components=2),
    KernelPCA(kernel="rbf", gram="tiled", n_components=2),
    KernelPCA(eigen_solver="randomized", n_components=2),
    KernelPCA(fit_inverse_transform=True),
    KernelPCA(kernel="rbf", preimage="ridge", n_components=2),
    KernelPCA(kernel="rbf", preimage="fixed_point", n_components=2),
    KernelPCA(kernel="rbf", preimage="distance_constraint", n_components=2),
    PCA(),
    PCA(svd_solver="dual"),
    PCA(svd_solver="randomized", n_components=1),
    PCA(svd_solver="covariance_eigh", scale=True),
    IncrementalPCA(),
    IncrementalPCA(1, whiten=True),
    ProbabilisticPCA(),
    ProbabilisticPCA(1, solver="em", tol=1e-7),
    BayesianPCA(),
    BayesianPCA(solver="em", tol=1e-7),
    LocalPCA(n_init=1, random_state=0),
    LocalPCA(method="hard", n_init=1),
    KernelPCACV(cv=2, gammas=[0.1, 1.0]),
    KernelPCACV(cv=2, gammas=0.1, n_components=1, preimage="fixed_point"),
]


if SWITCH in os.environ:  # which changes what SciPy takes, and no setting: one of each class
    ESTIMATORS = list({type(estimator): estimator for estimator in reversed(ESTIMATORS)}.values())


# The checks fit one sample, constant columns and matrices rounded to integers: the warnings are right there.
@pytest.mark.filterwarnings("ignore::gpukpca.exceptions.RankWarning")
@pytest.mark.filterwarnings("ignore::gpukpca.exceptions.PrecisionWarning")
@pytest.mark.filterwarnings("ignore::gpukpca.exceptions.IndefiniteKernelWarning")
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_estimator_check(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.skipif(SWITCH in os.environ, reason="this is the second run already")
def test_checks_of_arrays_and_containers_pass_with_the_array_api_switch_of_scipy() -> None:
    pytest.importorskip("array_api_strict")
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-m", "pytest", str(Path(__file__)), "-v", "-p", "no:cacheprovider", "--no-header"]
    command += ["-k", SWITCHED]
    ran = subprocess.run(
        command,
        env=os.environ | {SWITCH: "1", "OMP_NUM_THREADS": "1"},
        cwd=root,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]
    assert f"{SWITCH} is not set" not in ran.stdout
    passed = [line for line in ran.stdout.splitlines() if ARRAY_API_CHECK in line and "PASSED" in line]
    strict = [line for line in passed if "array_api_strict" in line]
    assert len(strict) >= len({type(estimator) for estimator in ESTIMATORS}), f"array-API checks that ran: {passed}"
