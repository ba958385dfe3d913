"""Kernel objects from the parameters of an estimator."""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Real
from typing import Any, Literal

from sklearn.base import clone
from sklearn.gaussian_process.kernels import Kernel as ProcessKernel
from sklearn.gaussian_process.kernels import WhiteKernel

from gpukpca._rules import closest
from gpukpca.backend.parameters import parameter_names
from gpukpca.exceptions import GpuKPCAWarning, InvalidParameterError, warn_user
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
from gpukpca.kernels.user_defined import kernel_matrix

KernelName = Literal[
    "linear", "poly", "rbf", "sigmoid", "cosine", "laplacian", "matern", "rational_quadratic", "precomputed"
]
# Classes of kernels that hold their own options.
KERNELS = (Kernel, ProcessKernel)

NAMED_KERNELS: dict[str, type[Kernel]] = {
    "linear": Linear,
    "poly": Polynomial,
    "rbf": RBF,
    "sigmoid": Sigmoid,
    "cosine": Cosine,
    "laplacian": Laplacian,
    "matern": Matern,
    "rational_quadratic": RationalQuadratic,
    "precomputed": Precomputed,
}
# Parameters of kernels that are also those of the estimators, with their defaults there.
SHARED: dict[str, Any] = {"gamma": None, "degree": 3, "coef0": 1}


def kernel_from(estimator: Any) -> Kernel:
    """Return the kernel object of checked parameters; objects of the user are cloned, never written to."""
    kernel, extra = estimator.kernel, dict(estimator.kernel_params or {})
    if isinstance(kernel, str):
        return named_kernel(kernel, {key: getattr(estimator, key) for key in SHARED}, extra)
    if isinstance(kernel, KERNELS):
        _check_noiseless(kernel)
        return clone(kernel) if isinstance(kernel, Kernel) else BlockCallable(clone(kernel))
    return PairwiseCallable(kernel, extra)


def named_kernel(name: str, shared: dict[str, Any], extra: dict[str, Any]) -> Kernel:
    """Return the kernel of a name, with the `shared` parameters that it has, and `extra`.

    Raise `InvalidParameterError` where `extra`, the `kernel_params` of an estimator, has other keys.
    """
    names = parameter_names(NAMED_KERNELS[name])
    allowed = [key for key in names if key not in shared]
    if wrong := sorted(set(extra) - set(allowed)):
        raise InvalidParameterError(
            f"kernel_params={extra!r} is not allowed: kernel={name!r} takes {', '.join(allowed) or 'none'} there, and "
            f"{', '.join(shared)} are parameters of the estimator.{closest(wrong[0], allowed)}"
        )
    return NAMED_KERNELS[name](**{key: value for key, value in shared.items() if key in names}, **extra)


def unused_parameters(kernel: Any) -> list[str]:
    """Return the `SHARED` parameters that a kernel does not read; it may be a name."""
    names = parameter_names(NAMED_KERNELS[kernel]) if isinstance(kernel, str) else ()
    return [name for name in SHARED if name not in names]


def warn_of_unused(estimator: Any) -> None:
    """Warn of parameters that were given and that the kernel does not read.

    Parameters that `set_params` set together with the kernel do not count: a search combines all kernels with every
    gamma.
    """
    kernel, combined = estimator.kernel, estimator._set_with_kernel
    for name in unused_parameters(kernel):
        value = getattr(estimator, name)
        if isinstance(value, str | Real) and value != SHARED[name] and name not in combined:
            has = ", ".join(repr(other) for other in NAMED_KERNELS if name not in unused_parameters(other))
            described = f"kernel={kernel!r}" if isinstance(kernel, str) else "a kernel object or function"
            warn_user(
                f"{type(estimator).__name__}: {name} is not used by {described}; leave it out, or choose a kernel that "
                f"uses it: {has}.",
                GpuKPCAWarning,
            )


def _check_noiseless(kernel: Kernel | ProcessKernel) -> None:
    """Raise where a kernel contains WhiteKernel, which is 0 in k(X, Y) and not in k(X)."""
    if any(isinstance(part, WhiteKernel) for part in _parts(kernel)):
        raise InvalidParameterError(
            "the kernel contains WhiteKernel, which is no function of two points. Leave it out: it adds a constant to "
            "the diagonal of K alone, which shifts all eigenvalues of H K H by the noise level and changes no "
            "eigenvector."
        )


def _parts(kernel: Kernel | ProcessKernel) -> Iterator[Kernel | ProcessKernel]:
    """Yield a kernel and all kernels that it is made of."""
    yield kernel
    for value in kernel.get_params(deep=False).values():
        if isinstance(value, KERNELS):
            yield from _parts(value)


def is_precomputed(kernel: Any) -> bool:
    """Return whether the parameter `kernel` of an estimator stands for a precomputed matrix."""
    return isinstance(kernel, Precomputed) or (isinstance(kernel, str) and kernel == "precomputed")


def is_stored_only(kernel: Any) -> bool:
    """Return whether a parameter `kernel` means a matrix, or a function of two rows."""
    if isinstance(kernel, KERNELS):
        return bool(getattr(kernel, "stored_only", False))
    return kernel == "precomputed" if isinstance(kernel, str) else callable(kernel) and not isinstance(kernel, type)


def matrix_of(estimator: Any, X: Any) -> Any:
    """Return the data of `fit`: the rows of an operator where X is a kernel matrix that is known by its products."""
    return kernel_matrix(X) if is_precomputed(getattr(estimator, "kernel", None)) else X


def check_same_kernel(kernel: Kernel, fitted: Kernel) -> None:
    """Raise where a kernel is not that of a fit, but for rules of gamma."""
    if type(kernel) is type(fitted):
        known = fitted.get_params(deep=True)
        given = {name: value for name, value in kernel.get_params(deep=True).items() if isinstance(value, Real)}
        if all(name in known and known[name] == value for name, value in given.items()):
            return
    raise InvalidParameterError(
        f"the kernel was {fitted!r} in the first batch, and is {kernel!r} now; begin a new stream with "
        "sklearn.base.clone(model) to change it.",
        argument="kernel",
    )


def kernel_gamma(kernel: Kernel, d: int) -> float:
    """Return gamma of a resolved kernel; 1/d for kernels without one, as scikit-learn reports it."""
    gamma = getattr(kernel, "gamma", None)
    return float(gamma) if isinstance(gamma, Real) else 1.0 / d
