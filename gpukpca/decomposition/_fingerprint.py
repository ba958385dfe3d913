"""Fingerprints of the fits of estimators, which their checkpoints bear."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpukpca._rules import is_integer
from gpukpca._typing import Array
from gpukpca._version import __version__
from gpukpca.algorithms.pca.plan import PCAPlan
from gpukpca.backend.device import is_on_gpu
from gpukpca.backend.namespace import dtype_name
from gpukpca.backend.random import kind_of_generator
from gpukpca.backend.rows import gather_rows
from gpukpca.checkpoint.fingerprint import FORMAT, Fingerprint, described, digest_of, fields_of
from gpukpca.kernels import Kernel

# Rows whose kernel values tell one function of the user's from another of the same name.
SAMPLE = 16
KERNEL_PARAMETERS = ("n_components", "eigen_solver", "tol", "max_iter", "iterated_power")
PCA_PARAMETERS = ("n_components", "tol", "iterated_power", "n_oversamples", "scale")


def kernel_job(estimator: Any, X: Any, kernel: Kernel, like: Array, rng: np.random.Generator) -> Fingerprint:
    """Return the fields of a `KernelPCA`, its kernel with numbers in place of rules."""
    job = job_of(estimator, X, like, rng, KERNEL_PARAMETERS, kernel=kernel)
    return job | {"kernel_values": _values_of(kernel, X)} if _is_of_user(kernel) else job


def pca_job(estimator: Any, X: Any, plan: PCAPlan, like: Array, rng: np.random.Generator) -> Fingerprint:
    """Return the fields of a `PCA` with its planned method."""
    return job_of(estimator, X, like, rng, PCA_PARAMETERS, method=plan.method, by_samples=plan.by_samples)


def job_of(
    estimator: Any, X: Any, like: Array, rng: np.random.Generator, names: tuple[str, ...], **more: Any
) -> Fingerprint:
    """Return the fields of a fit of X, computed where `like` is.

    `names` are parameters of the estimator, `more` what was resolved from others. What bounds memory and time alone
    (limits, threads, a storage that holds the entries of K as they are) is none of them. Cost: one reading of X.
    """
    seed = estimator.random_state
    return {
        "format": str(FORMAT),
        "version": __version__,
        "estimator": type(estimator).__name__,
        "dtype": dtype_name(X.dtype),
        "shape": " x ".join(str(int(size)) for size in X.shape),
        "data": digest_of(X, estimator.n_jobs),
        "device": "cuda" if is_on_gpu(like) else "cpu",
        **{name: described(getattr(estimator, name)) for name in names},
        "random_state": str(int(seed)) if is_integer(seed) else f"no integer, {kind_of_generator(rng)}",
        **{name: described(value) for name, value in more.items()},
    }


def _is_of_user(value: Any) -> bool:
    """Return whether a kernel holds code of the user, whose name and parameters do not determine its values."""
    if callable(value) and not type(value).__module__.startswith("gpukpca."):
        return True
    return any(map(_is_of_user, (fields_of(value) or {}).values()))


def _values_of(kernel: Kernel, X: Any) -> str:
    """Return a hash of the kernel matrix of a few rows, spread over all."""
    n = int(X.shape[0])
    rows = gather_rows(X, np.unique(np.linspace(0, n - 1, SAMPLE).astype(np.int64)))
    return digest_of(kernel(rows))
