"""Bundled data: what they promise, and that PCA finds or misses it."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial import procrustes

from gpukpca import PCA, KernelPCA
from gpukpca.datasets import isolation_by_distance, misleading_clusters, noisy_spiral, uk_foods


def separation(scores: np.ndarray, labels: np.ndarray) -> float:
    """Return the probability that the larger score is that of the same class: 0.5 is chance, 1 separates all."""
    ranks = np.argsort(np.argsort(scores))
    first = labels == labels[0]
    n, m = int(np.sum(first)), int(np.sum(~first))
    share = (np.sum(ranks[first]) - n * (n - 1) / 2) / (n * m)
    return float(max(share, 1 - share))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_first_plane_of_the_genotypes_is_the_map(seed: int):
    made = isolation_by_distance(rng=seed)
    n, d = made.X.shape
    assert n < d
    model = PCA(5)
    plane = model.fit_transform(made.X)[:, :2]
    disparity = procrustes(made.positions, plane)[2]
    assert np.sqrt(1 - disparity) > 0.95
    # The two directions of the map stand out from the next.
    assert model.explained_variance_[1] > 1.5 * model.explained_variance_[2]


def test_without_differentiation_there_is_no_map():
    made = isolation_by_distance(differentiation=0.0)
    plane = PCA(2).fit_transform(made.X)
    assert np.sqrt(1 - procrustes(made.positions, plane)[2]) < 0.4


def test_neighbors_are_alike():
    made = isolation_by_distance(n_individuals=60)
    i, j = np.triu_indices(60, 1)
    apart = np.linalg.norm(made.positions[i] - made.positions[j], axis=1)
    unlike = np.mean((made.X[i] - made.X[j]) ** 2, axis=1)
    assert np.corrcoef(apart, unlike)[0, 1] > 0.6


def test_genotypes_are_counts_and_the_missing_ones_means():
    made = isolation_by_distance(50, 400, missing=0.1, rng=3)
    assert set(np.unique(made.X[~made.missing])) == {0, 1, 2}
    assert np.mean(made.missing) == pytest.approx(0.1, abs=0.01)
    for locus in range(400):
        lost = made.missing[:, locus]
        np.testing.assert_allclose(made.X[lost, locus], np.mean(made.X[~lost, locus]))
    assert isolation_by_distance(1, 5, missing=0.99).X.shape == (1, 5)
    assert not np.any(isolation_by_distance(20, 30, missing=0.0).missing)


def test_the_same_seed_is_the_same_data():
    first, again = isolation_by_distance(30, 40, rng=5), isolation_by_distance(30, 40, rng=np.random.default_rng(5))
    np.testing.assert_array_equal(first.X, again.X)
    assert not np.array_equal(first.X, isolation_by_distance(30, 40, rng=6).X)
    np.testing.assert_array_equal(misleading_clusters(rng=1)[0], misleading_clusters(rng=1)[0])


def test_regions_are_where_the_individuals_live():
    made = isolation_by_distance(200, 5)
    assert len(set(made.regions)) == 9
    middle = {name: made.positions[made.regions == name].mean(axis=0) for name in set(made.regions)}
    assert middle["north-west"][0] < middle["north"][0] < middle["north-east"][0]
    assert middle["south-east"][1] < middle["east"][1] < middle["north-east"][1]
    assert set(isolation_by_distance(1, 5).regions) == {"south-west"}


def test_the_first_direction_of_pca_misleads_and_that_of_the_rbf_kernel_does_not():
    X, labels = misleading_clusters()
    assert X.shape == (400, 2)
    assert set(labels) == {"A", "B"}
    assert separation(PCA(1).fit_transform(X)[:, 0], labels) < 0.6
    assert separation(KernelPCA(1, kernel="rbf", gamma=2 / 9).fit_transform(X)[:, 0], labels) > 0.99
    # Nor does a column by itself tell the clusters apart.
    assert max(separation(X[:, 0], labels), separation(X[:, 1], labels)) < 0.95


def test_clusters_are_as_many_and_as_long_as_requested():
    X, labels = misleading_clusters(301, 3, elongation=5.0, spread=0.1, rng=0)
    assert sorted(np.unique(labels, return_counts=True)[1]) == [100, 100, 101]
    along = np.linalg.svd(X[labels == "A"] - X[labels == "A"].mean(axis=0), compute_uv=False) / 10
    np.testing.assert_allclose(along, [5.0, 0.1], rtol=0.2)


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        ({"n_individuals": 0}, "n_individuals=0"),
        ({"n_loci": -1}, "n_loci=-1"),
        ({"length_scale": 0.0}, "length_scale=0.0"),
        ({"width": np.inf}, "width=inf"),
        ({"missing": 1.0}, r"missing=1.0 must be a share"),
        ({"differentiation": -1.0}, "differentiation=-1.0"),
    ],
)
def test_genotypes_that_cannot_be_made(arguments: dict, fragment: str):
    with pytest.raises(ValueError, match=fragment):
        isolation_by_distance(**arguments)


def test_clusters_that_cannot_be_made():
    with pytest.raises(ValueError, match="n_clusters=0"):
        misleading_clusters(10, 0)
    with pytest.raises(ValueError, match="separation=nan"):
        misleading_clusters(10, 2, separation=float("nan"))


def test_a_spiral_is_one_piece_that_no_line_fits():
    X, along = noisy_spiral(500, noise=0.0, rng=2)
    assert X.shape == (500, 2)
    order = np.argsort(along)
    steps = np.linalg.norm(np.diff(X[order], axis=0), axis=1)
    np.testing.assert_allclose(np.corrcoef(np.cumsum(steps), along[order][1:])[0, 1], 1.0, atol=1e-4)
    assert PCA(1).fit(X).explained_variance_ratio_[0] < 0.7
    assert np.linalg.norm(noisy_spiral(500, noise=0.05, rng=2)[0] - X) > 0
    for arguments, fragment in (({"turns": 0.0}, "turns=0.0"), ({"noise": -1.0}, "noise=-1.0")):
        with pytest.raises(ValueError, match=fragment):
            noisy_spiral(10, **arguments)


def test_the_foods_are_those_of_the_published_table(real_data: Path):
    with (real_data / "foods" / "UK_foods.csv").open(encoding="utf-8", newline="") as file:
        _, *rows = csv.reader(file)
    table = uk_foods()
    np.testing.assert_array_equal(table.X.T, np.array([row[1:] for row in rows], dtype=np.float64))
    published = [row[0].strip().lower().replace("_", " ").replace("veg", "vegetables") for row in rows]
    assert published == list(table.foods)
