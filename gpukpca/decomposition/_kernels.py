"""Kernel objects from the parameters of an estimator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from numbers import Real
from typing import Any, Literal

from sklearn.base import clone
from sklearn.gaussian_process.kernels import Kernel as ProcessKernel
from sklearn.gaussian_process.kernels import WhiteKernel

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

KernelName = Literal[
    "linear", "poly", "rbf", "sigmoid", "cosine", "laplacian", "matern", "rational_quadratic", "precomputed"
]
# Classes of kernels that hold their own options.
KERNELS = (Kernel, ProcessKernel)

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


def kernel_from(estimator: Any) -> Kernel:
    """Return the kernel object of checked parameters; objects of the user are cloned, never written to."""
    kernel, extra = estimator.kernel, dict(estimator.kernel_params or {})
    if isinstance(kernel, str):
        try:
            return NAMED_KERNELS[kernel](estimator, extra)
        except TypeError as error:
            raise InvalidParameterError(f"kernel_params={extra!r} does not fit kernel={kernel!r}: {error}.") from error
    if isinstance(kernel, KERNELS):
        _check_noiseless(kernel)
        return clone(kernel) if isinstance(kernel, Kernel) else BlockCallable(clone(kernel))
    return PairwiseCallable(kernel, extra)


def _check_noiseless(kernel: Kernel | ProcessKernel) -> None:
    """Raise where a kernel is, or contains, scikit-learn's noise, which is 0 in k(X, Y) and not in k(X)."""
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


def kernel_gamma(kernel: Kernel, d: int) -> float:
    """Return gamma of a resolved kernel; 1/d for kernels without one, as scikit-learn reports it."""
    gamma = getattr(kernel, "gamma", None)
    return float(gamma) if isinstance(gamma, Real) else 1.0 / d
