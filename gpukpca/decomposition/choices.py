"""From scikit-learn's parameters to one kernel object and one solver object, checked."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.gaussian_process.kernels import Kernel as ProcessKernel

from gpukpca._typing import Array
from gpukpca.backend.device import parsed_device
from gpukpca.distributed import client_for
from gpukpca.eigen import Nystrom
from gpukpca.eigen.solve import SOLVER_NAMES
from gpukpca.exceptions import InvalidParameterError
from gpukpca.kernels import (
    RBF,
    BlockCallable,
    Cosine,
    Kernel,
    Laplacian,
    Linear,
    Matern,
    PairwiseCallable,
    Polynomial,
    Precomputed,
    RationalQuadratic,
    Sigmoid,
)
from gpukpca.kernels.bandwidth import GAMMA_RULES
from gpukpca.kernels.validation import closest

# Name -> the kernel made of the estimator's gamma, degree, coef0 and, beyond scikit-learn, kernel_params.
NAMED_KERNELS: dict[str, Callable[[Any, dict[str, Any]], Kernel]] = {
    "linear": lambda e, extra: Linear(**extra),
    "poly": lambda e, extra: Polynomial(degree=e.degree, gamma=e.gamma, coef0=e.coef0, **extra),
    "rbf": lambda e, extra: RBF(gamma=e.gamma, **extra),
    "sigmoid": lambda e, extra: Sigmoid(gamma=e.gamma, coef0=e.coef0, **extra),
    "cosine": lambda e, extra: Cosine(**extra),
    "laplacian": lambda e, extra: Laplacian(gamma=e.gamma, **extra),
    "matern": lambda e, extra: Matern(gamma=e.gamma, **extra),
    "rational_quadratic": lambda e, extra: RationalQuadratic(gamma=e.gamma, **extra),
    "precomputed": lambda e, extra: Precomputed(**extra),
}

# What an estimator's eigen_solver may be called; Nyström is a model, not a solver of a given operator.
EIGEN_SOLVERS = (*SOLVER_NAMES, "nystrom")


def check_kernel_name(kernel: str) -> None:
    """Raise `InvalidParameterError`, with the nearest name, for a kernel that is not known."""
    if kernel not in NAMED_KERNELS:
        raise InvalidParameterError(
            f"kernel={kernel!r} is not known. Give one of {', '.join(map(repr, NAMED_KERNELS))}, a kernel object "
            f"from gpukpca.kernels, or a callable.{closest(kernel, NAMED_KERNELS)}"
        )


def kernel_from(estimator: Any) -> Kernel:
    """The kernel object that an estimator's parameters mean; the user's own objects are cloned, never written to."""
    kernel, extra = estimator.kernel, dict(estimator.kernel_params or {})
    if isinstance(kernel, str):
        check_kernel_name(kernel)
        try:
            return NAMED_KERNELS[kernel](estimator, extra)
        except TypeError as error:
            raise InvalidParameterError(f"kernel_params={extra!r} does not fit kernel={kernel!r}: {error}.") from error
    if not callable(kernel) or isinstance(kernel, type):
        raise InvalidParameterError(
            f"kernel={kernel!r} is not allowed. Give a name, a kernel object (an instance, not the class), or a "
            "callable of two rows."
        )
    if isinstance(kernel, (Kernel, ProcessKernel)):
        given = [name for name in ("gamma", "kernel_params") if getattr(estimator, name) is not None]
        if given:
            raise InvalidParameterError(
                f"{given[0]} was given together with a kernel object; set it on the object: "
                f"{type(kernel).__name__}(...)."
            )
        return clone(kernel) if isinstance(kernel, Kernel) else BlockCallable(clone(kernel))
    return PairwiseCallable(kernel, extra)


def check_parameters(estimator: Any) -> None:
    """Raise `InvalidParameterError` for every constructor argument that is out of range, whatever the kernel."""
    e = estimator
    _check_n_components(e.n_components)
    parsed_device(e.device)
    check_parameter(e, "degree", is_real(e.degree) and e.degree >= 0, "a number >= 0")
    check_parameter(e, "coef0", is_real(e.coef0), "a finite number")
    check_parameter(e, "alpha", is_real(e.alpha) and e.alpha >= 0, "a number >= 0")
    check_parameter(e, "tol", is_real(e.tol) and 0 <= e.tol < 1, "a number in [0, 1) (0: the default of the dtype)")
    gamma_rules = ", ".join(f'"{rule}"' for rule in GAMMA_RULES)
    gamma_ok = e.gamma is None or (is_real(e.gamma) and e.gamma >= 0) or is_word(e.gamma, *GAMMA_RULES)
    check_parameter(e, "gamma", gamma_ok, f"None, a number >= 0, or one of {gamma_rules}")
    check_parameter(e, "kernel_params", e.kernel_params is None or isinstance(e.kernel_params, dict), "None or a dict")
    check_parameter(
        e, "max_iter", e.max_iter is None or (is_integer(e.max_iter) and e.max_iter >= 1), "None or an integer >= 1"
    )
    power_ok = is_word(e.iterated_power, "auto") or (is_integer(e.iterated_power) and e.iterated_power >= 0)
    check_parameter(e, "iterated_power", power_ok, '"auto" or an integer >= 0')
    check_parameter(
        e, "n_jobs", e.n_jobs is None or (is_integer(e.n_jobs) and e.n_jobs != 0), "None or an integer other than 0"
    )
    for name in ("fit_inverse_transform", "remove_zero_eig", "copy_X"):
        check_parameter(e, name, isinstance(getattr(e, name), (bool, np.bool_)), "True or False")
    check_parameter(e, "gram", is_word(e.gram, "auto", "dense", "tiled"), '"auto", "dense" or "tiled"')
    check_checkpoint(e)
    check_parameter(e, "verbose", callable(e.verbose) or is_switch(e.verbose), "an integer >= 0 or a callable")
    client_for(e.client)
    _check_solver(e)


def _check_n_components(value: Any) -> None:
    if value is None or (is_integer(value) and value >= 1):
        return
    if is_real(value) and not is_integer(value) and 0.0 < value < 1.0:
        return
    raise InvalidParameterError(
        f"n_components={value!r} is not allowed; give None (all), an integer >= 1, or a fraction of the variance "
        "strictly between 0 and 1."
    )


def _check_solver(e: Any) -> None:
    if isinstance(e.eigen_solver, str):
        if e.eigen_solver not in EIGEN_SOLVERS:
            raise InvalidParameterError(
                f"eigen_solver={e.eigen_solver!r} is not known; give one of {', '.join(map(repr, EIGEN_SOLVERS))}, or "
                f"a solver object.{closest(e.eigen_solver, EIGEN_SOLVERS)}"
            )
        return
    is_solver = hasattr(e.eigen_solver, "solve") or isinstance(e.eigen_solver, Nystrom)
    if isinstance(e.eigen_solver, type) or not is_solver:
        raise InvalidParameterError(
            f"eigen_solver={e.eigen_solver!r} is not a solver; give a name or an object such as "
            "gpukpca.eigen.BlockKrylov(tol=1e-6)."
        )
    given = [name for name, default in (("tol", 0), ("max_iter", None)) if getattr(e, name) != default]
    given += [] if e.iterated_power == "auto" else ["iterated_power"]
    if given:
        raise InvalidParameterError(
            f"{given[0]} was given together with a solver object; set it on the object: "
            f"{type(e.eigen_solver).__name__}(...)."
        )


def check_checkpoint(estimator: Any) -> None:
    """Raise where the parameter names no folder, or one that could not be used."""
    folder = estimator.checkpoint
    named = folder is None or (isinstance(folder, (str, os.PathLike)) and bool(os.fspath(folder)))
    check_parameter(estimator, "checkpoint", named, "None or the path of a folder")


def check_parameter(estimator: Any, name: str, allowed: bool, what: str) -> None:
    if not allowed:
        raise InvalidParameterError(
            f"{type(estimator).__name__}: {name}={getattr(estimator, name)!r} is not allowed; {name} must be {what}."
        )


def is_integer(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, (bool, np.bool_))


def is_switch(value: Any) -> bool:
    return isinstance(value, (int, np.integer, np.bool_)) and int(value) >= 0


def is_word(value: Any, *words: str) -> bool:
    return isinstance(value, str) and value in words


def is_real(value: Any) -> bool:
    if not isinstance(value, Real) or isinstance(value, (bool, np.bool_)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond the largest float
        return False


def kernel_gamma(kernel: Kernel, X: Array) -> float:
    """gamma of a resolved kernel; 1/d for kernels without one, as scikit-learn reports it."""
    gamma = getattr(kernel, "gamma", None)
    return float(gamma) if isinstance(gamma, Real) else 1.0 / int(X.shape[1])
