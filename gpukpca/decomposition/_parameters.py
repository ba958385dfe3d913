"""The parameters of estimators and of pre-images: one table of types and rules, checked by one function."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, reduce
from inspect import Parameter, signature
from typing import Any, Literal, get_args

from sklearn.base import BaseEstimator

from gpukpca._rules import (
    CALLABLE,
    COUNT,
    FINITE,
    FLAG,
    FOLDER,
    LEVEL,
    NONE,
    NOT_ZERO,
    CheckedBy,
    Rule,
    any_word,
    instance_of,
    integer,
    number,
    one_of,
    word,
)
from gpukpca.algorithms.kernel_pca.settings import RULES as SETTINGS_RULES
from gpukpca.algorithms.latent.settings import N_COMPONENTS
from gpukpca.algorithms.latent.settings import RULES as LATENT_RULES
from gpukpca.algorithms.mixture.settings import COUNTS
from gpukpca.algorithms.mixture.settings import RULES as MIXTURE_RULES
from gpukpca.algorithms.pca.settings import COUNT_OR_SHARE
from gpukpca.algorithms.pca.settings import RULES as PCA_RULES
from gpukpca.algorithms.progress import Listener
from gpukpca.algorithms.resources import parsed_bytes
from gpukpca.backend.device import parsed_device, parsed_devices
from gpukpca.backend.parameters import ParameterObject
from gpukpca.backend.random import check_random_state
from gpukpca.checkpoint import Checkpoint
from gpukpca.decomposition._kernels import KERNELS, NAMED_KERNELS, KernelName
from gpukpca.decomposition.preimage.methods import (
    METHODS,
    DistanceConstraintPreimage,
    FixedPointPreimage,
    PreimageName,
    RidgePreimage,
)
from gpukpca.exceptions import InvalidParameterError
from gpukpca.kernels import Kernel
from gpukpca.kernels.bandwidth import GAMMA

# -- types ---------------------------------------------------------------------------------------------------------

KernelLike = KernelName | Kernel | Callable[..., Any]
PreimageLike = PreimageName | RidgePreimage | FixedPointPreimage | DistanceConstraintPreimage | None
Power = Literal["auto"] | int
Normalizer = Literal["auto", "QR", "LU", "none"]
MemoryLimit = int | str | None
Devices = str | Sequence[str] | None
CheckpointFolder = str | os.PathLike[str] | Checkpoint | None
Verbose = int | Listener


# -- rules ---------------------------------------------------------------------------------------------------------

TOLERANCE = PCA_RULES["tol"]
# Checked where the data are known.
LATER = Rule("", lambda value: True)
FLAGS = ("centered", "copy", "copy_X", "fit_inverse_transform", "refit", "remove_zero_eig", "whiten")


def _is_kernel(value: Any) -> bool:
    if len(getattr(value, "shape", ())) == 2:
        raise InvalidParameterError(
            f"kernel is an array of shape {tuple(value.shape)}. A kernel matrix K takes the place of the data: "
            'KernelPCA(kernel="precomputed").fit(K).',
            argument="kernel",
        )
    return value in NAMED_KERNELS if isinstance(value, str) else callable(value) and not isinstance(value, type)


RULES: dict[str, Rule | CheckedBy] = {
    **LATENT_RULES,
    **MIXTURE_RULES,
    **{name: PCA_RULES[name] for name in ("center", "scale")},
    "eigen_solver": SETTINGS_RULES["solver"],
    "gram": SETTINGS_RULES["gram"],
    "svd_solver": PCA_RULES["solver"],
    **dict.fromkeys(FLAGS, FLAG),
    **dict.fromkeys(("max_iter", "n_init", "n_neighbors", "n_oversamples"), COUNT),
    "alpha": number(at_least=0),
    "batch_size": one_of(NONE, COUNT),
    "checkpoint": one_of(NONE, FOLDER, instance_of(Checkpoint, text="a gpukpca.Checkpoint")),
    "coef0": FINITE,
    "degree": number(at_least=0),
    "device": CheckedBy(parsed_device),
    "gamma": GAMMA,
    "iterated_power": one_of(word("auto"), integer(at_least=0)),
    "kernel": Rule(
        "a name, a kernel object or a callable",
        _is_kernel,
        tuple(NAMED_KERNELS),
        "{name}={value!r} is not allowed. Give a name, a kernel object (an instance, not the class), or a callable of "
        "two rows.",
        "{name}={value!r} is not known. Give one of {known}, a kernel object from gpukpca.kernels, or a "
        "callable.{near}",
    ),
    "kernel_params": one_of(NONE, instance_of(dict, text="a dict")),
    "memory_limit": CheckedBy(lambda value: value is None or parsed_bytes(value)),
    "n_clusters": COUNTS,
    "n_components": N_COMPONENTS,
    "n_jobs": one_of(NONE, NOT_ZERO),
    "n_landmarks": one_of(word("auto"), NONE, COUNT),
    "power_iteration_normalizer": any_word(*get_args(Normalizer)),
    "preimage": one_of(
        NONE,
        any_word(*METHODS),
        instance_of(
            *METHODS.values(), text="an object with options such as gpukpca.decomposition.RidgePreimage(alpha=0.1)"
        ),
    ),
    "random_state": CheckedBy(check_random_state),
    "tol": number(at_least=0),
    "verbose": one_of(LEVEL, CALLABLE),
}

# Class -> its rules for names that have another range there; subclasses inherit them.
RULES_OF: dict[str, dict[str, Rule | CheckedBy]] = {
    "KernelPCA": {
        "device": CheckedBy(parsed_devices),
        "max_iter": one_of(NONE, COUNT),
        "n_components": SETTINGS_RULES["n_components"],
        "tol": TOLERANCE,
    },
    "PCA": {"device": CheckedBy(parsed_devices), "n_components": COUNT_OR_SHARE, "tol": TOLERANCE},
    "ProbabilisticPCA": {"solver": any_word("auto", "closed_form", "em"), "tol": LATENT_RULES["tol"]},
    "BayesianPCA": {"solver": any_word("auto", "spectrum", "em"), "tol": LATENT_RULES["tol"]},
    "LocalPCA": {"n_components": COUNTS},
    "KernelPCACV": {
        "n_components": LATER,
        "solver": SETTINGS_RULES["solver"],
        "preimage": Rule("a method or its name: candidates are scored by it", lambda value: value is not None),
    },
    "RidgePreimage": {
        "alpha": one_of(NONE, number(at_least=0)),
        "kernel": one_of(
            NONE,
            instance_of(Kernel, text="a kernel object"),
            any_word(*(name for name in NAMED_KERNELS if name != "precomputed")),
        ),
    },
}

# Parameter that may be an object -> parameters that are options of the object, with their defaults.
OPTIONS: dict[str, dict[str, Any]] = {
    "eigen_solver": {"tol": 0, "max_iter": None, "iterated_power": "auto"},
    "kernel": {"gamma": None, "kernel_params": None},
}


@cache
def rules_of(kind: Any) -> dict[str, Rule | CheckedBy]:
    """Return the rules of the parameters of a class; those without one, as of a user's subclass, have `LATER`."""
    own = [RULES_OF.get(base.__name__, {}) for base in reversed(kind.__mro__)]
    known = reduce(operator.or_, own, RULES)
    return {name: known.get(name, LATER) for name in sorted(signature(kind).parameters)}


@cache
def _right_defaults(kind: Any) -> dict[str, Any]:
    """Return the defaults of a class that its rules allow, by name."""
    right, parameters = {}, signature(kind).parameters
    for name, rule in rules_of(kind).items():
        with suppress(InvalidParameterError):
            rule.check(kind.__name__, name, parameters[name].default)
            right[name] = parameters[name].default
    return right


def check_parameters(estimator: BaseEstimator) -> dict[str, Any]:
    """Return the parameters; raise `InvalidParameterError` for those that no data could make right.

    Those of a pre-image are included.
    """
    kind: Any = type(estimator)
    parameters, right = {}, _right_defaults(kind)
    for name, rule in rules_of(kind).items():
        value = parameters[name] = getattr(estimator, name)
        if value is not right.get(name, Parameter.empty):
            rule.check(kind.__name__, name, value)
    if isinstance(preimage := parameters.get("preimage"), ParameterObject):
        check_parameters(preimage)
    _check_options(parameters)
    is_ridge = preimage in (None, "ridge") or isinstance(preimage, RidgePreimage)
    if parameters.get("fit_inverse_transform") and not is_ridge:
        raise InvalidParameterError(
            f"KernelPCA: fit_inverse_transform=True means the ridge pre-image, and preimage={preimage!r} is another "
            "one. Set one of the two."
        )
    return parameters


def _check_options(parameters: dict[str, Any]) -> None:
    """Raise where options were given beside their kernel or solver object; a function has them."""
    for name, options in OPTIONS.items():
        thing = parameters.get(name)
        if thing is None or isinstance(thing, str) or (name == "kernel" and not isinstance(thing, KERNELS)):
            continue
        for option, default in options.items():
            if parameters.get(option, default) != default:
                raise InvalidParameterError(
                    f"{option} was given together with a {name.removeprefix('eigen_')} object; set it on the object: "
                    f"{type(thing).__name__}(...)."
                )
