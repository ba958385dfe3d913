"""Types of parameters name the values that the tables have. Mypy reads right and wrong calls in `typed_calls.py`."""

from __future__ import annotations

from typing import get_args

from gpukpca.algorithms.kernel_pca.settings import EIGEN_SOLVERS
from gpukpca.decomposition._kernels import NAMED_KERNELS, KernelName
from gpukpca.decomposition.preimage.methods import METHODS, PreimageName
from gpukpca.eigen.landmarks import LANDMARKS, LandmarkRule
from gpukpca.eigen.solve import SOLVER_NAMES
from gpukpca.model_selection.n_components import RULES, RuleName


def test_names_of_types_are_those_of_the_tables() -> None:
    assert set(get_args(KernelName)) == set(NAMED_KERNELS)
    assert set(get_args(PreimageName)) == set(METHODS)
    assert set(get_args(LandmarkRule)) == set(LANDMARKS)
    assert set(get_args(RuleName)) == set(RULES)
    assert (*SOLVER_NAMES, "nystrom") == EIGEN_SOLVERS
