"""Random fits against oracles that import nothing of the library; GPUKPCA_FUZZ=10000 tries so many of each kind."""

from __future__ import annotations

import os
import warnings
from typing import Any

import numpy as np
import scipy.sparse

from gpukpca import PCA, KernelPCA
from gpukpca.exceptions import ConvergenceWarning, IndefiniteKernelError, PrecisionWarning
from tests import oracle, tolerances

COUNT = int(os.environ.get("GPUKPCA_FUZZ", "60"))
SOLVERS = ["auto", "covariance_eigh", "dual", "full", "randomized", "arpack"]


def random_rows(rng: np.random.Generator, n: int, d: int, dtype: str) -> np.ndarray:
    """Return rows whose columns differ in size, offset, and rank, some of them counts or constants."""
    X = rng.standard_normal((n, d)) if rng.random() < 0.7 else rng.binomial(4, 0.3, (n, d)).astype(float)
    digits = 8 if dtype == "float64" else 4
    kind = rng.integers(6)
    if kind == 0:
        X[:, rng.integers(d)] *= 10.0 ** rng.uniform(0, digits)
    elif kind == 1:
        X *= 10.0 ** rng.uniform(-digits / 2, digits / 2, d)
    elif kind == 2:
        X = X @ np.linalg.qr(rng.standard_normal((d, d)))[0] * 0.6 ** np.arange(d)
        X = X @ np.linalg.qr(rng.standard_normal((d, d)))[0]
    elif kind == 3 and d > 2:
        X[:, 0], X[:, 1] = X[:, -1], 3.0
    if rng.random() < 0.3:
        X += rng.standard_normal(d) * 10.0 ** rng.uniform(0, 2)
    return X.astype(dtype)


def fitted(model: Any, X: Any) -> tuple[Any, bool]:
    """Return the fitted model, and whether a warning names components that lack digits."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X)
    return model, any(issubclass(seen.category, (PrecisionWarning, ConvergenceWarning)) for seen in caught)


def test_variances_are_right_to_rounding_or_named() -> None:
    for seed in range(COUNT):
        rng = np.random.default_rng(seed)
        n, d, dtype = int(rng.integers(4, 50)), int(rng.integers(2, 24)), str(rng.choice(["float64", "float32"]))
        solver = str(rng.choice(SOLVERS))
        p = int(rng.integers(1, min(n, d) + (solver != "arpack")))
        X = random_rows(rng, n, d, dtype)
        is_sparse = solver not in ("full", "auto") and rng.random() < 0.3
        rows = scipy.sparse.csr_array(X) if is_sparse else X
        model, is_named = fitted(PCA(p, svd_solver=solver, random_state=0), rows)
        found = model.explained_variance_.astype(np.longdouble)
        truth = oracle.variances(X)[:p]
        what = f"seed {seed}: PCA({p}, {solver!r}) of {dtype} {n} x {d}, sparse: {is_sparse}"
        # Data with an offset have the rounding of their means.
        size = np.sqrt(truth[0]) + np.max(np.abs(X.mean(axis=0)))
        rounding = tolerances.ROOM * 10.0 * tolerances.eps(dtype) * size
        assert np.all(np.abs(found - truth) <= model.residual_norms_ + rounding * (np.sqrt(truth) + rounding)), what
        if not is_named:
            assert np.all(model.residual_norms_ <= 1e-3 * model.explained_variance_ + (found == 0)), what
        V = model.components_.astype(float)[found > 0]
        assert np.max(np.abs(V @ V.T - np.eye(len(V)))) <= tolerances.orthogonality(dtype), what


def test_eigenvalues_are_within_their_residuals() -> None:
    for seed in range(COUNT):
        rng = np.random.default_rng(seed)
        n, d, dtype = int(rng.integers(12, 40)), int(rng.integers(1, 8)), str(rng.choice(["float64", "float32"]))
        X = random_rows(rng, n, d, dtype)
        X = X / np.asarray(max(float(np.std(X)), 1e-30), dtype)
        gamma, degree = 10.0 ** rng.uniform(-3, 0.5), int(rng.integers(1, 4))
        name, function = [
            ("linear", oracle.linear),
            ("rbf", oracle.rbf(gamma)),
            ("laplacian", oracle.laplacian(gamma)),
            ("poly", oracle.poly(degree, gamma, 1.0)),
            ("sigmoid", oracle.sigmoid(gamma, 0.5)),
            ("cosine", oracle.cosine),
        ][int(rng.integers(6))]
        own = {} if name in ("linear", "cosine") else {"gamma": gamma}
        own |= {"degree": degree, "coef0": 1.0} if name == "poly" else {"coef0": 0.5} if name == "sigmoid" else {}
        solver, p = str(rng.choice(["auto", "dense", "randomized", "arpack"])), int(rng.integers(1, 5))
        what = f"seed {seed}: KernelPCA({p}, {name!r}, {own}, {solver!r}) of {dtype} {n} x {d}"
        try:
            model, is_named = fitted(KernelPCA(p, kernel=name, eigen_solver=solver, random_state=0, **own), X)
        except IndefiniteKernelError:
            assert name == "sigmoid", what
            continue
        K = oracle.gram(function, X)
        truth = np.linalg.eigvalsh(oracle.centered(K))[::-1][:p]
        found, stated = model.eigenvalues_.astype(float), model.residual_norms_.astype(float)
        # The rounding of kernel values is an estimate: 12 of 15 000 fits exceeded it, by up to 3.5 times.
        rounding = tolerances.eigenvalue("float64") * n * max(1.0, float(np.max(np.abs(K))))
        assert np.all(np.abs(found - np.maximum(truth, 0.0)) <= 4.0 * stated + rounding), what
        if not is_named and found[0] > 0:
            assert np.all((stated <= 1e-3 * found) | (found == 0)), what
