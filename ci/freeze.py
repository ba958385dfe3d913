"""Record the exact results of more than a hundred small fits, and compare another checkout with them.

    python ci/freeze.py record FILE      before a change that must not change results
    python ci/freeze.py compare FILE     after it: prints the fits that differ, exit status 1 where one does

Every estimator meets every container, dtype and array library. Of a fit the fitted numbers, the scores of training and
new rows, warnings and errors are kept: a digest of their bytes, and the numbers themselves where these are few. Bits
depend on the machine, its BLAS and the number of threads, so both sides run on one machine.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from threadpoolctl import threadpool_limits

import gpukpca
from gpukpca import BayesianPCA, IncrementalPCA, KernelPCA, LocalPCA, Nystrom, ProbabilisticPCA

N, M, D = 450, 60, 9  # beyond the size up to which KernelPCA is dense
FEW = 40  # numbers that are written out, for the eye

ESTIMATORS: dict[str, Callable[[], Any]] = {
    "KernelPCA rbf": lambda: KernelPCA(5, kernel="rbf", random_state=0),
    "KernelPCA laplacian dense": lambda: KernelPCA(5, kernel="laplacian", eigen_solver="dense"),
    "KernelPCA linear": lambda: KernelPCA(5, kernel="linear", random_state=0),
    "KernelPCA share": lambda: KernelPCA(0.6, kernel="poly", gamma=0.05, random_state=0),
    "KernelPCA nystrom": lambda: KernelPCA(5, kernel="rbf", eigen_solver=Nystrom(rank=60), random_state=0),
    "KernelPCA preimage": lambda: KernelPCA(5, kernel="rbf", fit_inverse_transform=True, random_state=0),
    "PCA": lambda: gpukpca.PCA(5, random_state=0),
    "PCA full": lambda: gpukpca.PCA(0.9, svd_solver="full", whiten=True),
    "PCA randomized": lambda: gpukpca.PCA(5, svd_solver="randomized", scale=True, random_state=0),
    "IncrementalPCA": lambda: IncrementalPCA(5, batch_size=100),
    "ProbabilisticPCA": lambda: ProbabilisticPCA(4, random_state=0),
    "BayesianPCA": lambda: BayesianPCA(6, random_state=0),
    "ProbabilisticPCA em": lambda: ProbabilisticPCA(4, solver="em", random_state=0),
    "LocalPCA": lambda: LocalPCA(3, 2, random_state=0, n_init=1),
}


def rows(n: int, dtype: str, seed: int) -> np.ndarray:
    """Return rows (n, D) with graded deviations and means."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((n, D)) @ rng.standard_normal((D, D)) * np.linspace(3, 0.2, D) + 5.0).astype(dtype)


def containers(folder: Path) -> Iterator[tuple[str, str, Callable[[np.ndarray], Any]]]:
    """Yield name, dtype and maker of every container."""
    for dtype in ("float64", "float32"):
        yield f"numpy {dtype}", dtype, lambda A: A
        yield f"csr {dtype}", dtype, lambda A: scipy.sparse.csr_array(np.where(A > 6.0, A, 0.0).astype(A.dtype))
    yield "integers", "float64", lambda A: np.rint(4.0 * A).astype(np.int64)
    yield "fortran float64", "float64", np.asfortranarray
    yield "memory map float64", "float64", lambda A: mapped(folder, A)
    if find_spec("array_api_strict"):
        import array_api_strict

        yield "strict float64", "float64", array_api_strict.asarray
    if find_spec("torch"):
        import torch

        yield "torch float32", "float32", torch.asarray
    if find_spec("distributed"):
        import dask.array

        yield "dask float64", "float64", lambda A: dask.array.from_array(A, chunks=(130, D))


def mapped(folder: Path, A: np.ndarray) -> np.ndarray:
    """Return a memory map of an array."""
    path = folder / f"{len(A)}.npy"
    np.save(path, A)
    return np.load(path, mmap_mode="r")


def results() -> dict[str, dict[str, Any]]:
    """Return what is kept of every fit, by its name."""
    kept = {}
    with ExitStack() as stack:
        stack.enter_context(threadpool_limits(1))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if find_spec("distributed"):
            from distributed import Client, LocalCluster

            cluster = LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None)
            stack.enter_context(cluster)
            stack.enter_context(Client(cluster))
        for container, dtype, make in containers(folder):
            for name, estimator in ESTIMATORS.items():
                kept[f"{name}: {container}"] = facts(estimator(), make(rows(N, dtype, 0)), make(rows(M, dtype, 1)))
    return kept


def facts(estimator: Any, X: Any, X_new: Any) -> dict[str, Any]:
    """Return digests of the attributes and scores of a fit, its warnings, and the error that ended it."""
    kept: dict[str, Any] = {}
    if "client" in estimator.get_params():
        estimator.set_params(client="active" if hasattr(X, "compute") else None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            kept["scores"] = digest(estimator.fit_transform(X))
            for name, value in sorted(vars(estimator).items()):
                if name.endswith("_") and not name.startswith("_") and "seconds" not in name and "plan" not in name:
                    kept[name] = digest(value)
            kept["new scores"] = digest(estimator.transform(X_new))
            if hasattr(estimator, "inverse_transform"):
                kept["inverse"] = digest(estimator.inverse_transform(estimator.transform(X_new)))
        except (ValueError, TypeError) as error:
            kept["error"] = f"{type(error).__name__}: {error}"
    kept["warnings"] = sorted(f"{found.category.__name__}: {found.message}" for found in caught)
    return kept


def digest(value: Any) -> Any:
    """Return numbers as they are where they are few, else a digest of their bytes; the text of other objects."""
    value = value.compute() if hasattr(value, "compute") else value
    if scipy.sparse.issparse(value):
        return [digest(part) for part in (value.data, value.indices, value.indptr)]
    if isinstance(value, (list, tuple)):
        return [digest(part) for part in value]
    if not hasattr(value, "shape"):
        return repr(value)
    array = np.asarray(value) if not hasattr(value, "__dlpack__") else np.from_dlpack(value)
    code = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]
    few = f" {array.tolist()}" if array.size <= FEW else ""
    return f"{array.dtype} {array.shape} {code}{few}"


def differences(before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Yield a line for every difference."""
    for name in sorted(before.keys() | after.keys()):
        one, other = before.get(name, {}), after.get(name, {})
        for key in sorted(one.keys() | other.keys()):
            if one.get(key) != other.get(key):
                yield f"{name}: {key}\n    {one.get(key, 'not there')}\n    {other.get(key, 'not there')}"


def main() -> None:
    if len(sys.argv) != 3 or sys.argv[1] not in ("record", "compare"):
        sys.exit(__doc__)
    path, found = Path(sys.argv[2]), results()
    if sys.argv[1] == "record":
        path.write_text(json.dumps(found, indent=1), encoding="utf-8")
        print(f"{len(found)} fits recorded")
        return
    lines = list(differences(json.loads(path.read_text(encoding="utf-8")), found))
    sys.exit("\n".join([*lines, f"{len(lines)} differences"]) if lines else print(f"{len(found)} fits are as recorded"))


if __name__ == "__main__":
    main()
