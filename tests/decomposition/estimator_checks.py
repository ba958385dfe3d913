"""scikit-learn's own estimator checks of every estimator."""

from __future__ import annotations

import unittest
import warnings
from collections import defaultdict
from functools import partial
from typing import Any

from sklearn.utils.estimator_checks import estimator_checks_generator

from gpukpca import PCA, BayesianPCA, IncrementalPCA, KernelPCA, LocalPCA, Nystrom, ProbabilisticPCA
from gpukpca.decomposition import DistanceConstraintPreimage, RidgePreimage
from gpukpca.exceptions import IndefiniteKernelWarning, PrecisionWarning, RankWarning
from gpukpca.model_selection import KernelPCACV
from tests.conftest import reset

# The checks fit one sample, constant columns and matrices rounded to integers: the warnings are right there.
RIGHT_THERE = (RankWarning, PrecisionWarning, IndefiniteKernelWarning)
# And that of precisions: 16 rows of four kinds have no noise.
OF_PRECISIONS = "the precisions did not converge"
# Every estimator passes more: without a bound a loop over no check would pass.
FEWEST = 40
# Names that stand for pre-images learned from rows.
LEARNED = ("ridge", "distance_constraint")
# With n_components=None they have as many components as rows, or one less.
COUNTING = (PCA, IncrementalPCA, ProbabilisticPCA, BayesianPCA)
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
    """Whether a check asks for what docs/reference/deviations.md says is different."""
    settings = defaultdict(lambda: None, estimator.get_params(deep=False))
    solver, preimage = settings["eigen_solver"], settings["preimage"]
    if "check_array_api_input(" in name:
        return solver == "nystrom" or isinstance(solver, Nystrom)
    if "check_estimators_pickle" in name:
        return settings["solver"] in ("closed_form", "spectrum")
    if settings["fit_inverse_transform"]:
        preimage = preimage or "ridge"
    learns = preimage in LEARNED or isinstance(preimage, (RidgePreimage, DistanceConstraintPreimage))
    if "check_sample_weight" in name and learns and settings["kernel"] != "linear":
        return True
    counts_rows = (
        isinstance(estimator, LocalPCA)  # whose draws know the order of rows
        or (isinstance(estimator, COUNTING) and settings["n_components"] is None)
        or (isinstance(estimator, IncrementalPCA) and settings["batch_size"] is not None)
        or getattr(solver, "rank", None) is not None
    )
    return "check_sample_weight_equivalence" in name and (counts_rows or (preimage is not None and "sparse" in name))


def name_of(check: partial[None]) -> str:
    """The function of a check with the settings that it was given."""
    settings = ", ".join(f"{name}={value}" for name, value in check.keywords.items())
    return f"{check.func.__name__}({settings})"


def run_checks(estimator: Any) -> list[str]:
    """Run the checks; return the names of those that passed and were not skipped."""
    passed = []
    for instance, check in estimator_checks_generator(estimator):
        name = name_of(check)
        if is_apart(estimator, name):
            continue
        reset()
        try:
            with warnings.catch_warnings():
                for category in RIGHT_THERE:
                    warnings.simplefilter("ignore", category)
                warnings.filterwarnings("ignore", OF_PRECISIONS)
                check(instance)
        except unittest.SkipTest:
            continue
        except BaseException as error:
            error.add_note(f"{name} of {estimator}")
            raise
        passed.append(name)
    return passed
