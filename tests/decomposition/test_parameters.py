"""The table of parameters: every parameter has a rule, and every rule refuses what is out of range."""

from __future__ import annotations

import inspect
import re
from typing import Any

import numpy as np
import pytest

from gpukpca import PCA, BayesianPCA, IncrementalPCA, KernelPCA, KernelPCACV, LocalPCA, ProbabilisticPCA
from gpukpca.decomposition import DistanceConstraintPreimage, FixedPointPreimage, RidgePreimage
from gpukpca.decomposition._parameters import RULES, RULES_OF, check_parameters, rules_of
from gpukpca.exceptions import InvalidParameterError
from tests.each import each

ESTIMATORS = [KernelPCA, PCA, IncrementalPCA, ProbabilisticPCA, BayesianPCA, LocalPCA, KernelPCACV]
METHODS = [RidgePreimage, FixedPointPreimage, DistanceConstraintPreimage]
# Values that no parameter of this name allows.
WRONG: dict[str, tuple[Any, ...]] = {
    "alpha": (-1, "much"),
    "batch_size": (0, 2.5),
    "center": ("yes", None),
    "centered": ("yes",),
    "checkpoint": (3, ""),
    "coef0": (np.inf, "1"),
    "copy": ("no",),
    "copy_X": (None,),
    "cv": (),  # whatever scikit-learn's check_cv takes; its error does not name the parameter
    "ddof": (2, True),
    "degree": (-1, None),
    "device": ("gpu", 0),
    "eigen_solver": ("lapack", None),
    "fit_inverse_transform": ("ridge",),
    "gamma": (-1, "wide"),
    "gammas": ([],),
    "gram": ("tile",),
    "iterated_power": (-1, "many"),
    "kernel": ("rbff", 3),
    "kernel_params": ([],),
    "max_iter": (0, 2.5),
    "memory_limit": ("much", 0),
    "method": ("soft",),
    "n_clusters": (0, [], b"2"),
    "n_components": (-1, "many"),
    "n_init": (0,),
    "n_jobs": (0, "all"),
    "n_landmarks": (0, "few"),
    "n_neighbors": (0, 2.5),
    "n_oversamples": (0,),
    "param_grid": (3, []),
    "power_iteration_normalizer": ("qr",),
    "preimage": ("foo", 3),
    "random_state": (-1, "seed"),
    "refit": ("yes",),
    "reg": (0, 1),
    "remove_zero_eig": (2,),
    "scale": ("wide",),
    "solver": ("eigh", None),
    "svd_solver": ("svd", None),
    "tol": (-1, "small"),
    "verbose": (-1, "loud"),
    "whiten": (3,),
}


def parameters_of(kind: type) -> list[str]:
    return list(inspect.signature(kind).parameters)


PAIRS = [(kind, name) for kind in (*ESTIMATORS, *METHODS) for name in parameters_of(kind)]
CASES = [(kind, name, value) for kind, name in PAIRS for value in WRONG[name]]


def fitted_with(kind: type, name: str, value: Any, **others: Any) -> None:
    """Fit an estimator with one parameter set, and some others; a pre-image by the estimator that uses it."""
    if kind in METHODS:
        kind, name, value = KernelPCA, "preimage", kind(**{name: value})
    X = np.random.default_rng(0).standard_normal((12, 4))
    kind(**({"kernel": "rbf"} if kind is KernelPCA else {}) | {name: value} | others).fit(X)


@each("kind, name", PAIRS, ids=lambda part: getattr(part, "__name__", part))
def test_every_parameter_has_a_rule_that_allows_its_default(kind: type, name: str) -> None:
    rule = rules_of(kind)[name]
    assert rule is not None
    rule.check(kind.__name__, name, inspect.signature(kind).parameters[name].default)


@each("kind, name, value", CASES, ids=lambda part: getattr(part, "__name__", repr(part)))
def test_fit_refuses_a_value_out_of_range_and_names_the_parameter(kind: type, name: str, value: Any) -> None:
    with pytest.raises(InvalidParameterError, match=name):
        fitted_with(kind, name, value)


@pytest.mark.parametrize(
    ("kernel", "parameters", "words"),
    [
        (
            "linear",
            {"gamma": 1},
            "kernel='linear' takes none there, and gamma, degree, coef0 are parameters of the estimator.",
        ),
        (
            "rbf",
            {"gama": 1},
            "kernel='rbf' takes none there, and gamma, degree, coef0 are parameters of the estimator.",
        ),
        (
            "matern",
            {"nuu": 1},
            "kernel='matern' takes nu there, and gamma, degree, coef0 are parameters of the estimator. Did you ",
        ),
        (
            "poly",
            {"degree": 2},
            "kernel='poly' takes none there, and gamma, degree, coef0 are parameters of the estimator.",
        ),
    ],
)
def test_wrong_kernel_params_name_the_kernel_and_its_parameters(kernel: str, parameters: Any, words: str) -> None:
    with pytest.raises(
        InvalidParameterError, match=re.escape(f"kernel_params={parameters} is not allowed: ")
    ) as caught:
        fitted_with(KernelPCA, "kernel", kernel, kernel_params=parameters)
    assert words in str(caught.value)


def test_every_rule_belongs_to_a_parameter() -> None:
    assert RULES.keys() <= {name for _, name in PAIRS}
    kinds = {kind.__name__: kind for kind in (*ESTIMATORS, *METHODS)}
    assert all(name in parameters_of(kinds[kind]) for kind, rules in RULES_OF.items() for name in rules)


def test_a_subclass_inherits_rules_and_may_add_parameters() -> None:
    class Sharpened(PCA):
        def __init__(self, n_components: Any = None, *, sharpness: Any = 1, tol: Any = 0.0) -> None:
            super().__init__(n_components, tol=tol)
            self.sharpness = sharpness

    check_parameters(Sharpened(2, sharpness="very"))
    with pytest.raises(InvalidParameterError, match="Sharpened: tol=2 is not allowed"):
        check_parameters(Sharpened(tol=2))


def test_auto_means_none_for_gamma_alone() -> None:
    with pytest.raises(InvalidParameterError, match="n_components='auto' is not allowed") as caught:
        fitted_with(PCA, "n_components", "auto")
    assert "Did you mean" not in str(caught.value)


def test_the_nearest_name_is_proposed() -> None:
    for kind, name, value, near in [
        (KernelPCA, "gram", "tile", "tiled"),
        (PCA, "svd_solver", "randomised", "randomized"),
        (ProbabilisticPCA, "solver", "closedform", "closed_form"),
        (LocalPCA, "method", "mixtures", "mixture"),
        (KernelPCA, "kernel", "RBF", "rbf"),
        (KernelPCA, "kernel", "gaussian", "rbf"),
        (KernelPCA, "kernel", "polynomial", "poly"),
        (KernelPCA, "gamma", "auto", None),
        (PCA, "device", "CPU", "cpu"),
        (PCA, "device", "GPU", "cuda"),
    ]:
        with pytest.raises(InvalidParameterError, match=f"Did you mean {near!r}"):
            fitted_with(kind, name, value)
