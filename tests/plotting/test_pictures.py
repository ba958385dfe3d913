"""The pictures of the README: each drawn from its data, with what it must show read off the drawing.

``GPUKPCA_PICTURES=folder`` keeps them there, small enough for a repository.
"""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_circles, make_moons

from gpukpca import PCA, KernelPCA, LocalPCA
from gpukpca.datasets import isolation_by_distance, misleading_clusters, noisy_spiral
from gpukpca.plotting import (
    plot_comparison,
    plot_components,
    plot_denoised,
    plot_fit,
    plot_images,
    plot_local,
    plot_map,
    plot_scores,
)
from gpukpca.plotting.geography import procrustes_correlation
from gpukpca.plotting.style import new_figure

pytest.importorskip("matplotlib")
BIGGEST_PICTURE = 120_000


def kept(figure: Any, name: str, dpi: int = 120) -> None:
    """Lay the picture out; where a folder is named, draw it and keep it there in few colors."""
    from PIL import Image

    figure.draw_without_rendering()
    folder = os.environ.get("GPUKPCA_PICTURES")
    if not folder:
        return
    raw, small = io.BytesIO(), io.BytesIO()
    figure.savefig(raw, format="png", dpi=dpi)
    # The palette that keeps rare colors, such as those of a legend; median cut loses them.
    how = {"method": Image.Quantize.MAXCOVERAGE, "kmeans": 8, "dither": Image.Dither.NONE}
    Image.open(raw).convert("RGB").quantize(256, **how).save(small, format="png", optimize=True)
    assert small.tell() < BIGGEST_PICTURE
    Path(folder).mkdir(exist_ok=True)
    Path(folder, f"{name}.png").write_bytes(small.getvalue())


def overlapping(texts: list[Any]) -> int:
    """Pairs of texts that lie on each other, all slanted alike: their boxes in axes along and across the slant."""
    from matplotlib.text import Text
    from matplotlib.transforms import Affine2D, Bbox

    slant = texts[0].get_rotation()
    boxes = []
    for text in texts:
        anchor = text.get_transform().transform(text.get_position())
        text.set_rotation(0.0)
        flat = Text.get_window_extent(text)
        text.set_rotation(slant)
        start = Affine2D().rotate_deg(-slant).transform(anchor) + (np.array([flat.x0, flat.y0]) - anchor)
        boxes.append(Bbox.from_bounds(*start, flat.width, flat.height))
    return sum(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


@pytest.fixture
def foods(real_data: Path) -> tuple[np.ndarray, list[str], list[str]]:
    """Countries x foods, and the names of both."""
    with (real_data / "foods" / "UK_foods.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    return np.array([row[1:] for row in rows], dtype=np.float64).T, header[1:], [row[0].strip() for row in rows]


@pytest.mark.real_data
@pytest.mark.parametrize("p", [1, 2])
def test_northern_ireland_lies_apart(foods: tuple[np.ndarray, list[str], list[str]], p: int):
    X, countries, names = foods
    assert X[countries.index("N.Ireland"), names.index("Soft_drinks")] == 1506
    model = PCA(p)
    scores = model.fit_transform(X)
    np.testing.assert_allclose(model.explained_variance_ratio_, [0.67444, 0.29052][:p], atol=5e-6)
    figure = plot_fit(model, scores, names=countries, title="17 foods in 4 countries, PCA")
    figure.draw_without_rendering()
    written = [text for text in figure.axes[1].texts if text.get_text()]
    assert {text.get_text() for text in written} == set(countries)
    assert overlapping(written) == 0
    first = dict(zip(countries, scores[:, 0], strict=True))
    others = [first[name] for name in countries if name != "N.Ireland"]
    assert min(abs(first["N.Ireland"] - other) for other in others) > 2 * (max(others) - min(others))
    kept(figure, f"foods_{p}")


@pytest.mark.real_data
def test_names_of_crowded_points_on_a_line_are_pushed_apart(foods: tuple[np.ndarray, list[str], list[str]]):
    X, _, names = foods
    ax = plot_scores(PCA(1).fit_transform(X.T), names=names).axes[0]
    ax.figure.draw_without_rendering()
    written = [text for text in ax.texts if text.get_text()]
    assert len(written) == 17
    assert overlapping(written) == 0


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
    kept(figure, "usps")


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
def test_kernel_pca_takes_more_noise_from_digits_than_linear_methods(real_data: Path):
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
        plot_denoised({name: images[shown] for name, images in rows.items()}, (16, 16), errors, noise, part)
        gaussian = noise.startswith("Gaussian")
        best = min(errors["PCA"], errors["probabilistic PCA"])
        assert errors["kernel PCA, fixed point"] < min(best, 0.085 if gaussian else 0.195)
        assert errors[f"kernel PCA, {'ridge' if gaussian else 'distance constraint'}"] < 0.9 * best
    kept(figure, "usps_denoised")


def test_genotypes_give_the_map():
    made = isolation_by_distance()
    model = PCA(2)
    plane = model.fit_transform(made.X)
    title = "simulated genotypes of 300 individuals at 2000 loci, PCA"
    figure = plot_map(made.positions, plane, model.explained_variance_ratio_, title)
    fit = procrustes_correlation(made.positions, plane)
    assert fit > 0.95
    assert f"{fit:.3f}" in figure.axes[1].get_title()
    kept(figure, "genotypes")


def test_kernel_pca_tells_apart_what_pca_mixes():
    X, labels = misleading_clusters()
    models = {"PCA": PCA(2), "kernel PCA, RBF with gamma = 0.2": KernelPCA(2, kernel="rbf", gamma=0.2)}
    scores = {name: model.fit_transform(X) for name, model in models.items()}
    ratios = {name: model.explained_variance_ratio_ for name, model in models.items()}
    figure = plot_comparison(scores, ratios, labels, "two long clusters: first components above, first planes below")
    assert [ax.get_title() for ax in figure.axes[:2]] == list(models)
    kept(figure, "clusters")


def test_local_axes_follow_clusters_and_curves():
    """The dashed line is PCA's: along no cluster and along no piece of the curve."""
    parallel, _ = misleading_clusters(600, 3, separation=5.0)
    spiral, _ = noisy_spiral(900)
    figure = new_figure(9.6, 4.8, "one axis for all, and one for every cluster")
    for ax, X, k in zip(figure.subplots(1, 2), (parallel, spiral), (3, 10), strict=True):
        model = LocalPCA(k, 1, random_state=0).fit(X)
        plot_local(model, X, ax)
        whole, local = PCA(1).fit(X), np.mean(np.sum((model.denoise(X) - X) ** 2, axis=1))
        error = np.mean(np.sum((whole.inverse_transform(whole.transform(X)) - X) ** 2, axis=1))
        assert local < error / 5
        assert ax.get_title() == f"error with 1 component: PCA (dashed) {error:.3g}, {k} clusters {local:.3g}"
        segments = [line.get_xydata() for line in ax.lines if len(line.get_xydata()) == 2]
        assert len(segments) == k + 1
        for ends, mean, axis in zip(segments[1:], model.means_, model.components_[:, 0], strict=True):
            np.testing.assert_allclose(ends.mean(axis=0), mean, atol=1e-12)
            step = np.diff(ends, axis=0)[0]
            assert abs(step @ axis) == pytest.approx(np.linalg.norm(step))
    kept(figure, "local")


def separation(values: np.ndarray, labels: np.ndarray) -> float:
    """The largest share of samples that a threshold on one number puts on the right side."""
    order = np.argsort(values)
    below = np.cumsum(labels[order])
    right = np.append(0, below) + np.append(np.sum(labels == 0), np.sum(labels == 0) - np.cumsum(labels[order] == 0))
    return float(max(np.max(right), len(labels) - np.min(right))) / len(labels)


POLYNOMIAL = "kernel (xᵀy + 1)²"
# More points inside than outside, on radii 0.6 and 3: then the squared radius has the largest variance of all squares
# and products, and more than the coordinates.
CIRCLES, CIRCLE = make_circles((105, 195), factor=0.2, noise=0.05, random_state=0)
MOONS, MOON = make_moons(300, noise=0.05, random_state=0)
SHAPES = {"circles": (3.0 * CIRCLES, CIRCLE, 0.2), "moons": (MOONS, MOON, 15.0)}


@pytest.mark.parametrize("shape", SHAPES)
def test_contours_follow_what_pca_cannot_separate(shape: str):
    X, labels, gamma = SHAPES[shape]
    gaussian = f"Gaussian, γ = {gamma:g}"
    models = {
        "PCA": PCA(2),
        POLYNOMIAL: KernelPCA(3, kernel="poly", degree=2, gamma=1.0, coef0=1.0),
        gaussian: KernelPCA(3, kernel="rbf", gamma=gamma),
    }
    scores = {name: model.fit_transform(X) for name, model in models.items()}
    by = {name: [separation(column, labels) for column in values.T] for name, values in scores.items()}
    assert by[gaussian][0] >= 0.99
    assert max(by["PCA"]) < 0.85
    if shape == "circles":
        assert by[POLYNOMIAL][0] == 1.0
    figure = plot_components(models, X, labels, title=f"{shape}: contours of the components of PCA and kernel PCA")
    assert [ax.get_visible() for ax in figure.axes] == [True, True, False] + [True] * 6
    assert figure.axes[3].get_title().startswith("component 1 (")
    kept(figure, f"contours_{shape}")
