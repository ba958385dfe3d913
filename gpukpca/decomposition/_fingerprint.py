"""Fingerprints of fits: named texts that must agree where a fit resumes from the checkpoint of another one."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import numpy as np

from gpukpca._rules import is_integer
from gpukpca._version import __version__
from gpukpca.algorithms.plan import Plan
from gpukpca.backend import blocking
from gpukpca.backend.namespace import dtype_name, is_foreign, is_sparse, to_host
from gpukpca.backend.parallel import map_in_order, row_slices, worker_count
from gpukpca.backend.random import kind_of_generator
from gpukpca.checkpoint import Fingerprint
from gpukpca.data.frequencies import real_weights
from gpukpca.data.rows import Rows
from gpukpca.data.slicing import gather_rows, take_rows
from gpukpca.decomposition._kernels import kernel_from
from gpukpca.eigen.solver import PlannedSolver
from gpukpca.kernels import Kernel

# Rows whose kernel values distinguish functions of the user that have the same name.
SAMPLE = 16


def kernel_fingerprint(
    estimator: Any, X: Any, kernel: Kernel, rng: np.random.Generator, sample_weight: Any, solver: PlannedSolver
) -> Fingerprint:
    """Return the fingerprint of a fit of a `KernelPCA`; `kernel` has numbers in place of rules.

    The rules stand in the fingerprint: another device or thread count may change their numbers in the last digit.
    """
    # Storages that have a name give the same K.
    storage = {} if isinstance(estimator.gram, str) else {"gram": estimator.gram}
    fingerprint = _fingerprint(
        estimator, X, rng, sample_weight, solver, center=estimator.center, kernel=kernel_from(estimator), **storage
    )
    if not _is_of_user(kernel):
        return fingerprint
    rows = gather_rows(X, np.unique(np.linspace(0, int(X.shape[0]) - 1, SAMPLE).astype(np.int64)))
    return fingerprint | {"kernel_values": digest_of(kernel(rows))}


def pca_fingerprint(
    estimator: Any, X: Any, plan: Plan, rng: np.random.Generator, sample_weight: Any, solver: PlannedSolver
) -> Fingerprint:
    """Return the fingerprint of a fit of a `PCA` with its planned method."""
    preparation = {"center": estimator.center, "scale": estimator.scale}
    return _fingerprint(
        estimator, X, rng, sample_weight, solver, **preparation, method=plan.method, by_samples=plan.by_samples
    )


def _fingerprint(
    estimator: Any, X: Any, rng: np.random.Generator, sample_weight: Any, solver: PlannedSolver, **more: Any
) -> Fingerprint:
    """Return the fields of a fit of X; the settings of the iteration may differ. Cost: one reading of X."""
    seed = estimator.random_state
    if sample_weight is not None:
        more["sample_weight"] = real_weights(sample_weight)
    return {
        "version": ".".join(__version__.split(".")[:2]),
        "estimator": type(estimator).__name__,
        "dtype": dtype_name(X.dtype),
        "shape": " x ".join(str(int(size)) for size in X.shape),
        "data": digest_of(X, estimator.n_jobs),
        "solver": solver.name,
        "iterated_power": exact_text(estimator.iterated_power),
        "passes": exact_text(getattr(solver, "passes", None)),
        "random_state": str(int(seed)) if is_integer(seed) else f"no integer, {kind_of_generator(rng)}",
        **{name: exact_text(value) for name, value in more.items()},
    }


def exact_text(value: Any) -> str:
    """Return a parameter as text with all digits, the same in every process."""
    if is_foreign(value) or isinstance(value, np.ndarray):
        return f"array {tuple(value.shape)} {digest_of(np.atleast_2d(to_host(value)))}"
    if isinstance(value, (np.bool_, np.number)):
        return repr(value.item())
    if isinstance(value, (list, tuple)):
        return f"({', '.join(map(exact_text, value))})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {exact_text(part)}' for key, part in sorted(value.items()))}}}"
    if (fields := _fields_of(value)) is not None:
        return f"{type(value).__name__}({', '.join(f'{key}={exact_text(part)}' for key, part in fields.items())})"
    if callable(value):
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__name__)}"
    return repr(value)


def _fields_of(value: Any) -> dict[str, Any] | None:
    """Return the fields of a dataclass, or the parameters of an object that has `get_params`; None for others."""
    if isinstance(value, type):
        return None
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return value.get_params(deep=False) if hasattr(value, "get_params") else None


def _is_of_user(value: Any) -> bool:
    """Return whether a kernel holds code of the user: its name does not determine values."""
    if callable(value) and not type(value).__module__.startswith("gpukpca."):
        return True
    return any(map(_is_of_user, (_fields_of(value) or {}).values()))


# -- data --------------------------------------------------------------------------------------------------------------

# The rows of a panel before the first whole block, the hashes of its whole blocks, and the rows after them.
Pieces = tuple[bytes, bytes, bytes]


def digest_of(X: Any, n_jobs: int | None = None) -> str:
    """Return a hash of X, made of the hashes of fixed blocks of rows.

    It is the same on every device, and for every number of threads and of panels on a cluster.
    """
    parts = [X.data[:, None], X.indices[:, None], X.indptr[:, None]] if is_sparse(X) else [X]
    return hashlib.sha256(b"".join(_digest_of_part(part, n_jobs) for part in parts)).hexdigest()[:32]


def _digest_of_part(part: Any, n_jobs: int | None) -> bytes:
    """Return the hash of the hashes of the blocks of an array of two dimensions."""
    block = max(1, blocking.HASHED_BYTES // (8 * max(1, int(part.shape[1]))))
    numbers = np.arange(int(part.shape[0]))[:, None]
    if isinstance(part, Rows):
        panels = part.each(_pieces, part.split(numbers), block)
    else:
        slices = row_slices(len(numbers), block * max(1, blocking.HASHED_TOGETHER // blocking.HASHED_BYTES))

        def work(rows: tuple[int, int]) -> Pieces:
            return _pieces(take_rows(part, *rows), numbers[slice(*rows)], block)

        panels = map_in_order(work, slices, worker_count(part, n_jobs))
    whole, rest = hashlib.sha256(), b""
    for head, hashes, tail in panels:
        rest += head
        if hashes or tail:
            whole.update(hashlib.sha256(rest).digest() + hashes if rest else hashes)
            rest = tail
    if rest:
        whole.update(hashlib.sha256(rest).digest())
    return whole.digest()


def _pieces(panel: Any, numbers: Any, block: int) -> Pieces:
    """Return the pieces of a panel, whose rows have these numbers, for blocks of rows."""
    rows = to_host(panel)
    first = min(-int(numbers[0, 0]) % block, len(rows))
    stop = len(rows) - (len(rows) - first) % block
    hashes = (hashlib.sha256(rows[k : k + block].tobytes()).digest() for k in range(first, stop, block))
    return rows[:first].tobytes(), b"".join(hashes), rows[stop:].tobytes()
