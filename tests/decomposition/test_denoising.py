"""Denoising real digits: pre-images of kernel PCA and linear methods."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gpukpca import PCA, KernelPCA


def linear_errors(X: np.ndarray, clean: np.ndarray, noisy: np.ndarray) -> list[float]:
    """Return the mean squared errors of PCA and of probabilistic PCA for several numbers of components."""
    linear = PCA(X.shape[1]).fit(X)
    scores, variances, errors = linear.transform(noisy), linear.explained_variance_, []
    for p in (16, 24, 32, 48, 64, 96):
        # The posterior mean shrinks a score by the share of its variance that is not noise.
        shares = 1.0 - np.mean(variances[p:]) / variances[:p]
        for weights in (1.0, shares):
            images = linear.mean_ + (scores[:, :p] * weights) @ linear.components_[:p]
            errors.append(np.mean((images - clean) ** 2))
    return errors


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("noise", "gamma", "p", "best", "bound"),
    [("Gaussian", 1 / 512, 256, "ridge", 0.085), ("salt and pepper", 1 / 256, 128, "distance_constraint", 0.195)],
)
@pytest.mark.filterwarnings("ignore::gpukpca.exceptions.PrecisionWarning")
def test_kernel_pca_removes_more_noise_from_digits_than_linear_methods(
    real_data: Path, noise: str, gamma: float, p: int, best: str, bound: float
) -> None:
    with np.load(real_data / "usps" / "usps.npz") as archive:
        train, test = archive["x_train"], archive["x_test"]
    rng = np.random.default_rng(0)
    X, clean = rng.choice(train, 1300, replace=False), rng.choice(test, 200, replace=False)
    drawn, normal = rng.random(clean.shape), rng.standard_normal(clean.shape, dtype=np.float32)
    if noise == "Gaussian":
        noisy = clean + 0.5 * normal
    else:
        noisy = np.where(drawn < 0.15, -1.0, np.where(drawn < 0.3, 1.0, clean)).astype(np.float32)
    least = min(linear_errors(X, clean, noisy))
    errors = {}
    for name in ("fixed_point", best):
        model = KernelPCA(p, kernel="rbf", gamma=gamma, preimage=name, eigen_solver="dense").fit(X)
        errors[name] = np.mean((model.denoise(noisy) - clean) ** 2)
    assert errors["fixed_point"] < min(least, bound)
    assert errors[best] < 0.9 * least
