"""Every script of the gallery runs and shows what its text says; the build of the documentation draws its figures."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import pdist

from gpukpca.plotting.display import Display
from tests.plotting.pixels import png

imread = pytest.importorskip("matplotlib.image").imread
GALLERY = Path(__file__).resolve().parents[2] / "docs" / "gallery"


@pytest.fixture
def script(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """The names that a script leaves, with the figures of pyplot under `figures`."""
    import matplotlib.pyplot as plt

    plt.switch_backend("agg")
    names = runpy.run_path(str(GALLERY / f"plot_{request.param}.py"))
    names["figures"] = [plt.figure(number) for number in plt.get_fignums()]
    shown = [display.figure_ for display in names.values() if isinstance(display, Display)]
    check_names_of_axes([*names["figures"], *shown])
    yield names
    plt.close("all")


def check_names_of_axes(figures: list[Any]) -> None:
    """Check that what has a scale says of what: bars, and axes across; of a row of panels the first one also up."""
    for figure in figures:
        for ax in figure.axes:
            if ax.get_label() == "<colorbar>":
                assert ax.get_ylabel()
            elif ax.axison and ax.get_visible() and len(ax.get_xticks()):
                assert ax.get_xlabel(), ax
                is_first = ax.get_subplotspec().is_first_col() or not ax.get_subplotspec().get_gridspec().ncols > 1
                assert ax.get_ylabel() or not (is_first and len(ax.get_yticks())), ax


def separation(values: np.ndarray, labels: np.ndarray) -> float:
    """Return the largest share of samples that a threshold on one number puts on the right side."""
    first = labels[np.argsort(values)] == labels[0]
    below = np.concatenate([[0], np.cumsum(first)])
    right = below + (len(values) - np.arange(len(below))) - (below[-1] - below)
    return float(max(right.max(), len(values) - right.min())) / len(values)


def blocks(image: np.ndarray) -> np.ndarray:
    """Return the mean colors of squares of 25 pixels."""
    height, width = (size // 25 for size in image.shape[:2])
    return image[: 25 * height, : 25 * width, :3].reshape(height, 25, width, 25, 3).mean(axis=(1, 3))


@pytest.mark.parametrize("script", ["contours"], indirect=True)
def test_contours_follow_what_pca_cannot_separate(script: dict[str, Any]) -> None:
    for models, X, labels in (
        (script["on_circles"], script["circles"], script["circle"]),
        (script["on_moons"], script["moons"], script["moon"]),
    ):
        linear, quadratic, gaussian = (model.transform(X).T for model in models.values())
        assert separation(gaussian[0], labels) >= 0.99
        assert max(separation(column, labels) for column in linear) < 0.9
        if X is script["circles"]:
            assert separation(quadratic[0], labels) == 1.0
    visible = [[ax.get_visible() for ax in figure.axes] for figure in script["figures"]]
    assert visible == [[True, True, False] + [True] * 6] * 2
    # The picture of the README is that of the half moons; fonts and lines differ by the version of Matplotlib.
    committed, drawn = imread(GALLERY.parents[1] / "benchmarks/pictures/contours_2.png"), png(script["figures"][1], 150)
    assert committed.shape[:2] == drawn.shape[:2]
    # Matplotlib 3.10 places axes elsewhere: 0.013. ``python docs/pictures.py`` draws it again.
    assert np.mean(np.abs(blocks(committed) - blocks(drawn))) < 0.02


@pytest.mark.parametrize("script", ["clusters"], indirect=True)
def test_the_kernel_separates_what_pca_mixes(script: dict[str, Any]) -> None:
    linear, kernel = script["scores"].values()
    assert separation(linear[:, 0], script["labels"]) < 0.7
    assert separation(kernel[:, 0], script["labels"]) > 0.97


@pytest.mark.parametrize("script", ["genotypes"], indirect=True)
def test_the_first_plane_is_the_map(script: dict[str, Any]) -> None:
    assert script["correlation"] > 0.95
    east, north = (script["plane"] * script["signs"]).T
    positions = script["positions"]
    assert np.corrcoef(east, positions[:, 0])[0, 1] > 0.9
    assert abs(np.corrcoef(north, positions[:, 1])[0, 1]) > 0.9


@pytest.mark.parametrize("script", ["local_axes"], indirect=True)
def test_local_axes_have_a_fifth_of_the_error(script: dict[str, Any]) -> None:
    for model, X, display in zip(
        script["models"], (script["parallel"], script["spiral"]), script["displays"], strict=True
    ):
        linear = display.pca
        error = np.mean(np.sum((linear.inverse_transform(linear.transform(X)) - X) ** 2, axis=1))
        assert np.mean(np.sum((model.denoise(X) - X) ** 2, axis=1)) < error / 5


@pytest.mark.parametrize("script", ["foods"], indirect=True)
def test_northern_ireland_lies_apart(script: dict[str, Any]) -> None:
    table, model = script["table"], script["model"]
    np.testing.assert_allclose(model.explained_variance_ratio_, [0.67444, 0.29052, 0.03503], atol=5e-6)
    first = dict(zip(table.countries, script["scores"][:, 0], strict=True))
    apart = first.pop("Northern Ireland")
    others = list(first.values())
    assert min(abs(apart - other) for other in others) > 2 * (max(others) - min(others))
    weight = dict(zip(table.foods, np.sign(apart) * script["component"], strict=True))
    assert max(weight, key=weight.get) == "fresh potatoes"
    assert sorted(weight, key=weight.get)[:2] == ["fresh fruit", "alcoholic drinks"]
    assert {text.get_text() for text in script["figures"][0].axes[0].texts} >= set(table.countries)


@pytest.mark.parametrize("script", ["digits"], indirect=True)
def test_images_of_digits(script: dict[str, Any]) -> None:
    titles = [ax.get_title() for ax in script["figure"].axes]
    assert "mean, 0 to 12.1" in titles
    assert "1 (14.9 %)" in titles
    assert "K = 10\n74 %" in titles


@pytest.mark.parametrize("script", ["denoising"], indirect=True)
def test_kernel_pca_removes_more_noise_than_linear_methods(script: dict[str, Any]) -> None:
    errors = script["errors"]
    rows, clean = script["rows"], script["clean"]
    names = ["with noise", "kernel PCA, ridge", "kernel PCA, fixed point", "original"]
    measured = [f"error {np.mean((rows[name] - clean) ** 2):.3f}" for name in names[:3]]
    titles = [ax.get_title() for ax in script["beside"].ax_[0]]
    assert titles == [*map("\n".join, zip(("with noise", "ridge", "fixed point"), measured, strict=True)), "original\n"]
    five = int(np.flatnonzero(script["labels"] == 5)[0])
    for name, ax in zip(names, script["beside"].ax_[1], strict=True):
        np.testing.assert_array_equal(np.ravel(ax.images[0].get_array()), rows[name][five])
    assert errors["kernel PCA, fixed point"] < errors["kernel PCA, ridge"]
    labels = [ax.get_ylabel() for ax in script["display"].ax_[:, 0]]
    assert labels[1] == f"with noise\n{measured[0]}"
    best = min(errors["PCA"], errors["probabilistic PCA"])
    assert max(errors[f"kernel PCA, {name}"] for name in ("distance constraint", "fixed point", "ridge")) < 0.9 * best


@pytest.mark.parametrize("script", ["gamma"], indirect=True)
def test_gamma_too_small_is_pca_and_too_large_a_warning(script: dict[str, Any]) -> None:
    assert script["difference"] < 1e-3
    small, _, _, large = script["kernel_matrices"].values()
    assert small.min() > 0.998
    assert large.mean() < 2 / len(large)
    models, caught = script["models"], list(script["caught"].values())
    assert separation(models[15.0].transform(script["X"])[:, 0], script["labels"]) > 0.99
    assert [len(warnings) for warnings in caught] == [0, 0, 0, 1]
    assert "K is nearly the identity" in str(caught[-1][0].message)


@pytest.mark.parametrize("script", ["nystrom"], indirect=True)
def test_errors_of_nystrom_lie_within_both_bounds(script: dict[str, Any]) -> None:
    errors, norms, certificates = script["errors"], script["norms"], script["certificates"]
    assert np.all(errors > 0)
    assert np.all(errors < certificates / 10)
    assert np.all(errors < norms)
    assert np.all(norms < certificates / 5)
    assert np.all(np.diff(certificates) < 0)
    memory, seconds = (
        {name: np.array([getattr(plan, what) for plan in plans]) for name, plans in script["plans"].items()}
        for what in ("predicted_bytes", "estimated_seconds")
    )
    fourfold = script["sizes"].index(50_000), script["sizes"].index(200_000)
    assert memory["block Krylov"].max() <= 4 * 2**30
    heights = [ax.get_ylabel() for ax in script["figures"][0].axes]
    assert heights == ["error, or its bound", "GiB", "seconds on one core"]
    # By the square of the rows; float32 tiles of the fewer ones fit nearly all.
    for (least, most), (name, times) in zip(((14, 30), (3, 9)), seconds.items(), strict=True):
        assert least < times[fourfold[1]] / times[fourfold[0]] < most, name


@pytest.mark.parametrize("script", ["swiss_roll"], indirect=True)
def test_only_distances_along_the_roll_unfold_it(script: dict[str, Any]) -> None:
    agreement = script["agreement"]
    assert max(agreement(plane) for plane in script["planes"].values()) < 0.5
    assert agreement(script["unrolled"]) > 0.99
    assert "negative eigenvalues" in str(script["caught"][0].message)
    # The roll in space is the roll: its distances are those of the data, and the color is the angle.
    roll = script["roll"]
    np.testing.assert_allclose(pdist(roll.scores[:50]), pdist(script["X"][:50]))
    np.testing.assert_array_equal(roll.labels.values, script["angle"])


@pytest.mark.parametrize("script", ["spectral_clustering"], indirect=True)
def test_two_circles_are_two_clusters(script: dict[str, Any]) -> None:
    X, eigen = script["X"], script["eigen"]
    K = np.exp(-script["affinity"].gamma * np.sum((X[:, None] - X) ** 2, axis=2))
    root = np.sqrt(K.sum(axis=1))
    products = K @ (eigen.eigenvectors / root[:, None]) / root[:, None]
    np.testing.assert_allclose(products, eigen.eigenvectors * eigen.eigenvalues, atol=1e-7)
    assert eigen.eigenvalues[1] - eigen.eigenvalues[2] > 10 * (1 - eigen.eigenvalues[1])
    assert separation(script["clusters"], script["labels"]) == 1.0
    assert script["op"].cached_tiles == 0


@pytest.mark.parametrize("script", ["rings"], indirect=True)
def test_rings_are_apart_only_without_centering(script: dict[str, Any]) -> None:
    ring = script["ring"]
    for name, model in script["models"].items():
        z = np.abs(model.transform(script["X"])[:, 0])
        apart = [separation(z, ring > radius) for radius in (1, 2)]
        assert (min(apart) == 1.0) if name == "center=False" else (max(apart) < 0.95)
    # In space a plane separates each ring from the next: the height is the squared radius, up to its mean.
    space = script["space"]
    assert space.ax_.get_zlabel().startswith("component 3")
    assert all(separation(space.scores[:, 2], ring > radius) == 1.0 for radius in (1, 2))


def test_every_script_has_a_test() -> None:
    parametrized = re.findall(r'"script", \["(\w+)"\]', Path(__file__).read_text(encoding="utf-8"))
    tested = set(parametrized)
    assert {path.stem.removeprefix("plot_") for path in GALLERY.glob("plot_*.py")} == tested
