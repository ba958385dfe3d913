"""Types of parameters name the values that the tables have. Mypy reads right and wrong calls in `typed_calls.py`."""

from __future__ import annotations

import inspect
import re
from inspect import get_annotations
from typing import get_args

import numpy as np

import gpukpca
from gpukpca.algorithms.kernel_pca.settings import EIGEN_SOLVERS
from gpukpca.decomposition._kernels import NAMED_KERNELS, KernelName
from gpukpca.decomposition.preimage.methods import METHODS, PreimageName
from gpukpca.eigen.solve import SOLVER_NAMES
from gpukpca.model_selection.n_components import RULES, RuleName


def test_names_of_types_are_those_of_the_tables() -> None:
    assert set(get_args(KernelName)) == set(NAMED_KERNELS)
    assert set(get_args(PreimageName)) == set(METHODS)
    assert set(get_args(RuleName)) == set(RULES)
    assert (*SOLVER_NAMES, "nystrom") == EIGEN_SOLVERS


def test_fitted_attributes_have_the_types_that_are_documented() -> None:
    rows = np.random.default_rng(0).standard_normal((40, 3))
    nystrom = gpukpca.KernelPCA(2, kernel="rbf", eigen_solver=gpukpca.Nystrom(rank=10), preimage="ridge")
    for estimator in (
        *(nystrom, gpukpca.KernelPCA(2), gpukpca.PCA(2), gpukpca.IncrementalPCA(2), gpukpca.ProbabilisticPCA(2)),
        *(gpukpca.BayesianPCA(), gpukpca.LocalPCA("bic", [1, 2]), gpukpca.KernelPCACV(cv=2)),
    ):
        classes = type(estimator).__mro__
        stated = {*(name for cls in classes for name in get_annotations(cls)), *dir(type(estimator))}  # and properties
        typed = {name for name in stated if re.fullmatch(r"[a-zA-Z].*_", name)}
        section = str(inspect.getdoc(type(estimator))).partition("\nAttributes\n----------\n")[2]
        section = re.split(r"\n\n\w+\n-+\n", section)[0]
        names = re.sub(r" :.*", "", re.sub(r"\n    .*", "", section))
        assert set(re.findall(r"\w+_\b", names)) == typed, type(estimator).__name__
        assert {name for name in vars(estimator.fit(rows)) if re.fullmatch(r"[a-zA-Z].*_", name)} <= typed
