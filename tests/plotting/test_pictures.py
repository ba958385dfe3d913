"""Pictures of real data in the documentation, and what each must show.

``GPUKPCA_PICTURES=folder`` keeps them there, small enough for a repository.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from gpukpca import PCA, KernelPCA
from gpukpca.plotting import ImageRowsDisplay, plot_images
from gpukpca.plotting.display import new_figure
from tests.plotting.keep import keep

pytest.importorskip("matplotlib")


@pytest.mark.real_data
def test_digits_as_images(real_data: Path):
    with np.load(real_data / "usps" / "usps.npz") as archive:
        X, labels = archive["x_train"], archive["y_train"]
    model = PCA(100)
    scores = model.fit_transform(X)
    shares = np.cumsum(model.explained_variance_ratio_)
    np.testing.assert_allclose(shares[[5, 6, 7, 9]], [0.4774, 0.5101, 0.5409, 0.5909], atol=5e-5)
    figure = plot_images(model, X, (16, 16), scores, labels, title="USPS: 7291 digits of 16 x 16 pixels, PCA")
    headings = [ax.get_title() for ax in figure.axes]
    assert "mean" in headings
    assert "1 (17.9 %)" in headings
    assert [f"K = {count}" in " ".join(headings) for count in (1, 2, 5, 10, 20, 50, 100)] == [True] * 7
    assert "K = 10\n59 %" in headings
    keep(figure, "usps")


def posterior_means(model: PCA, Y: np.ndarray, p: int) -> np.ndarray:
    """Of probabilistic PCA with p components: scores shrunk by the share of their variance that is not noise."""
    variances = model.explained_variance_
    shares = 1.0 - np.mean(variances[p:]) / variances[:p]
    return model.mean_ + (model.transform(Y)[:, :p] * shares) @ model.components_[:p]


def denoised(X: np.ndarray, clean: np.ndarray, noisy: np.ndarray, gamma: float, p: int) -> dict[str, np.ndarray]:
    """Name of the method -> its images; the linear ones with the number of components that is best for them."""
    linear = PCA(X.shape[1]).fit(X)
    scores = linear.transform(noisy)
    counts = (16, 24, 32, 48, 64, 96)
    projected = [linear.mean_ + scores[:, :count] @ linear.components_[:count] for count in counts]
    shrunk = [posterior_means(linear, noisy, count) for count in counts]
    rows = {"original": clean, "with noise": noisy}
    for name, tries in (("PCA", projected), ("probabilistic PCA", shrunk)):
        rows[name] = min(tries, key=lambda images: np.mean((images - clean) ** 2))
    for name in ("ridge", "fixed_point", "distance_constraint"):
        model = KernelPCA(p, kernel="rbf", gamma=gamma, preimage=name, eigen_solver="dense").fit(X)
        rows[f"kernel PCA, {name.replace('_', ' ')}"] = model.denoise(noisy)
    return rows


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.filterwarnings("ignore::gpukpca.exceptions.PrecisionWarning")
def test_kernel_pca_removes_more_noise_from_digits_than_linear_methods(real_data: Path):
    with np.load(real_data / "usps" / "usps.npz") as archive:
        train, test, labels = archive["x_train"], archive["x_test"], archive["y_test"]
    rng = np.random.default_rng(0)
    # Fewer where no picture is kept: a third of the time, and the same order of the methods.
    n = 2000 if os.environ.get("GPUKPCA_PICTURES") else 1300
    X, chosen = train[rng.choice(len(train), 2000, replace=False)[:n]], rng.choice(len(test), 200, replace=False)
    clean, labels = test[chosen], labels[chosen]
    shown = [int(np.flatnonzero(labels == digit)[0]) for digit in range(10)]
    drawn = rng.random(clean.shape)
    noises = {
        "Gaussian noise, σ = 0.5": clean + 0.5 * rng.standard_normal(clean.shape).astype(np.float32),
        "salt and pepper, p = 0.3": np.where(drawn < 0.15, -1.0, np.where(drawn < 0.3, 1.0, clean)).astype(np.float32),
    }
    figure = new_figure(15.4, 4.6, "USPS digits, mean squared error a pixel over 200 of them")
    for part, (noise, noisy), gamma, p in zip(
        figure.subfigures(1, 2), noises.items(), (1 / 512, 1 / 256), (256, 128), strict=True
    ):
        rows = denoised(X, clean, noisy, gamma, p)
        errors = {name: float(np.mean((images - clean) ** 2)) for name, images in rows.items() if name != "original"}
        display = ImageRowsDisplay({name: images[shown] for name, images in rows.items()}, (16, 16), errors=errors)
        display.plot(part)
        part.suptitle(noise, fontsize=9)
        gaussian = noise.startswith("Gaussian")
        best = min(errors["PCA"], errors["probabilistic PCA"])
        assert errors["kernel PCA, fixed point"] < min(best, 0.085 if gaussian else 0.195)
        assert errors[f"kernel PCA, {'ridge' if gaussian else 'distance constraint'}"] < 0.9 * best
    keep(figure, "usps_denoised")
