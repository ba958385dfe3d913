"""What must agree for one fit to go on from the checkpoint of another: named fields, each a line of text."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from gpukpca._formatting import printable
from gpukpca._rules import is_integer
from gpukpca._typing import Array
from gpukpca._version import __version__
from gpukpca.algorithms.pca.plan import PCAPlan
from gpukpca.backend import blocking
from gpukpca.backend.device import is_on_gpu
from gpukpca.backend.namespace import dtype_name, is_foreign, is_sparse, to_host
from gpukpca.backend.parallel import map_tiles, restore_order, row_slices, worker_count
from gpukpca.backend.partitioned_rows import PartitionedRows
from gpukpca.backend.random import kind_of_generator
from gpukpca.backend.rows import gather_rows, take_rows
from gpukpca.kernels import Kernel

# Of the files; another number is another layout of them.
FORMAT = 2
# Rows whose kernel values tell one function of the user's from another of the same name.
SAMPLE = 16

Fingerprint = dict[str, str]


KERNEL_PARAMETERS = ("n_components", "eigen_solver", "tol", "max_iter", "iterated_power")
PCA_PARAMETERS = ("n_components", "tol", "iterated_power", "n_oversamples", "scale")


def kernel_job(estimator: Any, X: Any, kernel: Kernel, like: Array, rng: np.random.Generator) -> Fingerprint:
    """The fields of a `KernelPCA`, its kernel with numbers in place of rules."""
    job = job_of(estimator, X, like, rng, KERNEL_PARAMETERS, kernel=kernel)
    return job | {"kernel_values": _values_of(kernel, X)} if _is_of_user(kernel) else job


def pca_job(estimator: Any, X: Any, plan: PCAPlan, like: Array, rng: np.random.Generator) -> Fingerprint:
    """The fields of a `PCA`, with the way that was planned."""
    return job_of(estimator, X, like, rng, PCA_PARAMETERS, method=plan.method, by_samples=plan.by_samples)


def job_of(
    estimator: Any, X: Any, like: Array, rng: np.random.Generator, names: tuple[str, ...], **more: Any
) -> Fingerprint:
    """The fields of a fit of X, computed where `like` is.

    `names` are parameters of the estimator, `more` what was resolved from others. What bounds memory and time alone
    (limits, threads, how K is held) is none of them. Cost: one reading of X.
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


def difference(found: Mapping[str, Any], wanted: Fingerprint) -> str:
    """The first field in which two jobs differ, in words; empty where they are one."""
    for name, value in wanted.items():
        if name == "data" and name in found and found[name] != value:
            return "the data differ (their hashes do)"
        if found.get(name) != value:
            return printable(f"{name} was {str(found.get(name))[:200]} and is {value[:200]} now")
    return ""


def described(value: Any) -> str:
    """A parameter in text that tells all digits of its numbers and is the same in every process."""
    if is_foreign(value) or isinstance(value, np.ndarray):
        return f"array {tuple(value.shape)} {digest_of(np.atleast_2d(to_host(value)))}"
    if isinstance(value, (np.bool_, np.number)):
        return repr(value.item())
    if isinstance(value, (list, tuple)):
        return f"({', '.join(map(described, value))})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {described(part)}' for key, part in sorted(value.items()))}}}"
    fields = _fields(value)
    if fields is not None:
        return f"{type(value).__name__}({', '.join(f'{key}={described(part)}' for key, part in fields.items())})"
    if callable(value):
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__name__)}"
    return repr(value)


def _is_of_user(value: Any) -> bool:
    """Whether a kernel is made of anybody's code, whose name and parameters need not tell what it does."""
    if callable(value) and not type(value).__module__.startswith("gpukpca."):
        return True
    return any(map(_is_of_user, (_fields(value) or {}).values()))


def _values_of(kernel: Kernel, X: Any) -> str:
    """A hash of the kernel matrix of a few rows, spread over all."""
    n = int(X.shape[0])
    rows = gather_rows(X, np.unique(np.linspace(0, n - 1, SAMPLE).astype(np.int64)))
    return digest_of(kernel(rows))


def _fields(value: Any) -> dict[str, Any] | None:
    """What an object is made of, where it says so."""
    if isinstance(value, type):
        return None
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return value.get_params(deep=False) if hasattr(value, "get_params") else None


def digest_of(X: Any, n_jobs: int | None = None) -> str:
    """A hash of the entries of X, by panels of rows and with threads; the same wherever X is.

    Rows on a cluster are hashed where they are, panel by panel, so that there the panels must agree as well.
    """
    if isinstance(X, PartitionedRows):
        return hashlib.sha256("".join(X.over_panels(digest_of)).encode()).hexdigest()[:32]
    parts = [X.data[:, None], X.indices[:, None], X.indptr[:, None]] if is_sparse(X) else [X]
    whole = hashlib.sha256()
    for part in parts:
        for piece in _digests(part, n_jobs):
            whole.update(piece)
    return whole.hexdigest()[:32]


def _digests(part: Any, n_jobs: int | None) -> list[bytes]:
    """Of the panels of an array of two dimensions, in order."""
    width = max(1, int(part.shape[1])) * 8
    panels = row_slices(int(part.shape[0]), max(1, blocking.HASHED_BYTES // width))

    def work(panel: tuple[int, int]) -> bytes:
        return hashlib.sha256(to_host(take_rows(part, *panel)).tobytes()).digest()

    workers = worker_count(part, n_jobs)
    return restore_order(map_tiles(work, panels, workers), len(panels))
