"""scikit-learn's own estimator checks of every estimator; run as a script, those that SciPy's array-API switch changes.

The switch counts when SciPy is imported, so that the script is a process started with it. It prints a line for each
check that passed.
"""

from __future__ import annotations

import unittest
import warnings
from functools import partial
from typing import Any

from sklearn.utils.estimator_checks import estimator_checks_generator

from gpukpca import PCA, BayesianPCA, IncrementalPCA, KernelPCA, LocalPCA, ProbabilisticPCA
from gpukpca.exceptions import IndefiniteKernelWarning, PrecisionWarning, RankWarning
from gpukpca.model_selection import KernelPCACV
from tests.conftest import reset

# The checks fit one sample, constant columns and matrices rounded to integers: the warnings are right there.
RIGHT_THERE = (RankWarning, PrecisionWarning, IndefiniteKernelWarning)
# What the switch changes: checks of array libraries run, and SciPy refuses sparse arrays where it took them.
SWITCHED = ("array_api", "sparse")
ESTIMATORS = [
    KernelPCA(),
    # With n_components: one check rounds the matrix to integers, which makes it truly indefinite, and all components
    # of an indefinite matrix are an error here as in scikit-learn (whose own estimator fails that check).
    KernelPCA(kernel="precomputed", n_components=2),
    KernelPCA(kernel="rbf", gram="tiled", n_components=2),
    KernelPCA(eigen_solver="randomized", n_components=2),
    KernelPCA(kernel="rbf", eigen_solver="nystrom", n_components=1),
    KernelPCA(fit_inverse_transform=True),
    KernelPCA(kernel="rbf", preimage="ridge", n_components=2),
    KernelPCA(kernel="rbf", preimage="fixed_point", n_components=2),
    PCA(),
    PCA(svd_solver="dual"),
    PCA(svd_solver="randomized", n_components=1),
    PCA(svd_solver="covariance_eigh", scale=True),
    IncrementalPCA(),
    IncrementalPCA(1, whiten=True),
    ProbabilisticPCA(),
    ProbabilisticPCA(1, solver="em", tol=1e-7),
    BayesianPCA(),
    BayesianPCA(solver="em", tol=1e-4),
    LocalPCA(n_init=1, random_state=0),
    LocalPCA(method="hard", n_init=1),
    KernelPCACV(cv=2, gammas=0.1, n_components=1, preimage="fixed_point"),
]


def is_apart(estimator: Any, name: str) -> bool:
    """Whether a check of weights asks for what the documentation of deviations says is different.

    With n_components=None repeated rows have more axes without variance than weighted ones, and these are arbitrary.
    Pre-images that repeated rows would change take no weights.
    """
    settings = estimator.get_params()
    if "check_sample_weight" not in name:
        return False
    if settings.get("preimage") == "ridge":
        return True
    has_all = isinstance(estimator, (PCA, IncrementalPCA)) and settings["n_components"] is None
    return "equivalence" in name and (has_all or ("preimage" in settings and settings["preimage"] and "sparse" in name))


def name_of(check: partial[None]) -> str:
    """The function of a check with the settings that it was given."""
    settings = ", ".join(f"{name}={value}" for name, value in check.keywords.items())
    return f"{check.func.__name__}({settings})"


def run_checks(estimator: Any, parts: tuple[str, ...] = ("",)) -> list[str]:
    """Run the checks whose names have one of the parts; return the names of those that passed and were not skipped."""
    passed = []
    for instance, check in estimator_checks_generator(estimator):
        name = name_of(check)
        if not any(part in name for part in parts) or is_apart(estimator, name):
            continue
        reset()
        try:
            with warnings.catch_warnings():
                for category in RIGHT_THERE:
                    warnings.simplefilter("ignore", category)
                check(instance)
        except unittest.SkipTest:
            continue
        except BaseException as error:
            error.add_note(f"{name} of {estimator}")
            raise
        passed.append(name)
    return passed


if __name__ == "__main__":
    warnings.simplefilter("error")
    for estimator in {type(estimator): estimator for estimator in reversed(ESTIMATORS)}.values():
        for name in run_checks(estimator, SWITCHED):
            print(type(estimator).__name__, name)
