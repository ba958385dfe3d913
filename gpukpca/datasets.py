"""A published table, and simulated data: genotypes on a map, clusters that mislead PCA, a spiral."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# Random Fourier features of the field that allele frequencies follow.
WAVES = 256
# Least mean frequency of the rarer allele of a locus over the map.
RAREST = 0.1
# Grams a person eats or drinks in a week.
COUNTRIES = ("England", "Wales", "Scotland", "Northern Ireland")
FOODS = {
    "cheese": (105, 103, 103, 66),
    "carcass meat": (245, 227, 242, 267),
    "other meat": (685, 803, 750, 586),
    "fish": (147, 160, 122, 93),
    "fats and oils": (193, 235, 184, 209),
    "sugars": (156, 175, 147, 139),
    "fresh potatoes": (720, 874, 566, 1033),
    "fresh vegetables": (253, 265, 171, 143),
    "other vegetables": (488, 570, 418, 355),
    "processed potatoes": (198, 203, 220, 187),
    "processed vegetables": (360, 365, 337, 334),
    "fresh fruit": (1102, 1137, 957, 674),
    "cereals": (1472, 1582, 1462, 1494),
    "beverages": (57, 73, 53, 47),
    "soft drinks": (1374, 1256, 1572, 1506),
    "alcoholic drinks": (375, 475, 458, 135),
    "confectionery": (54, 64, 62, 41),
}


@dataclass(frozen=True)
class Foods:
    """Food consumption of countries.

    Attributes
    ----------
    X : array, shape (n_countries, n_foods)
        Grams a person eats or drinks in a week.
    countries : tuple of str
        Names of the rows.
    foods : tuple of str
        Names of the columns.

    See Also
    --------
    uk_foods : Returns it.

    Examples
    --------
    >>> from gpukpca.datasets import uk_foods
    >>> table = uk_foods()
    >>> table.X.shape
    (4, 17)
    """

    X: np.ndarray
    countries: tuple[str, ...]
    foods: tuple[str, ...]


def uk_foods() -> Foods:
    """Return the weekly consumption of 17 foods in the four countries of the United Kingdom in 1997.

    The table is a common first example of PCA: 4 samples, 17 features. Northern Ireland lies apart from the others on
    the first component.

    Returns
    -------
    Foods

    See Also
    --------
    isolation_by_distance : Simulated genotypes on a map.

    Notes
    -----
    Courses on PCA use the table, and name the Department for Environment, Food and Rural Affairs (DEFRA) as its source.
    There foods are rows; here they are columns.

    Examples
    --------
    >>> from gpukpca import PCA
    >>> from gpukpca.datasets import uk_foods
    >>> table = uk_foods()
    >>> table.X.shape
    (4, 17)
    >>> PCA(3).fit(table.X).explained_variance_ratio_.round(3)
    array([0.674, 0.291, 0.035])
    """
    return Foods(np.array(list(FOODS.values()), dtype=np.float64).T.copy(), COUNTRIES, tuple(FOODS))


@dataclass(frozen=True)
class Genotypes:
    """Individuals on a map and their genotypes.

    Attributes
    ----------
    X : array, shape (n_individuals, n_loci)
        Copies of one allele: 0, 1, 2, or the mean of the locus where the genotype was missing.
    positions : array, shape (n_individuals, 2)
        East and north.
    missing : array of bool, shape (n_individuals, n_loci)
        True where a genotype was imputed.

    See Also
    --------
    isolation_by_distance : Simulate them.

    Examples
    --------
    >>> from gpukpca.datasets import isolation_by_distance
    >>> data = isolation_by_distance(20, 50, rng=0)
    >>> data.X.shape, data.positions.shape, data.missing.dtype
    ((20, 50), (20, 2), dtype('bool'))
    """

    X: np.ndarray
    positions: np.ndarray
    missing: np.ndarray

    @property
    def regions(self) -> np.ndarray:
        """Names of the regions of the individuals: nine parts of the map, "north-west" to "south-east"."""
        low, high = self.positions.min(axis=0), self.positions.max(axis=0)
        thirds = np.minimum(3 * (self.positions - low) / np.where(high > low, high - low, 1.0), 2).astype(int)
        across, up = np.array(["west", "", "east"])[thirds[:, 0]], np.array(["south", "", "north"])[thirds[:, 1]]
        return np.array(["-".join(filter(None, pair)) or "center" for pair in zip(up, across, strict=True)])


def isolation_by_distance(
    n_individuals: int = 300,
    n_loci: int = 2000,
    *,
    width: float = 1.5,
    length_scale: float = 1.0,
    differentiation: float = 1.0,
    missing: float = 0.02,
    rng: np.random.Generator | int = 0,
) -> Genotypes:
    """Simulate genotypes whose allele frequencies vary smoothly over a map.

    Individuals are uniform on a map of height 1. On the logit scale, the frequency of a locus is its mean plus a
    stationary Gaussian random field of covariance ``differentiation**2 exp(-distance**2 / (2 length_scale**2))``, drawn
    with random Fourier features. A genotype is two draws with that frequency. Loci are independent given the map. With
    a length scale near the size of the map, the first plane of a PCA is the map up to rotation and stretching.

    Parameters
    ----------
    n_individuals, n_loci : int
    width : float
        Width of the map in units of its height. Away from 1 the two components of the plane have different variances.
    length_scale : float
        Distance over which frequencies change, in the same unit. If it is much shorter than the map, the plane folds.
    differentiation : float
        Standard deviation of the field over many loci, on the logit scale; 0: no structure.
    missing : float
        Share of genotypes that are missing at random and replaced by the mean of the locus.
    rng : numpy.random.Generator or int

    Returns
    -------
    Genotypes

    Raises
    ------
    ValueError
        Counts below 1, lengths that are not positive, a share outside [0, 1).

    See Also
    --------
    Genotypes : The result.

    Notes
    -----
    Random features of a Gaussian kernel: Rahimi & Recht (2007). Principal components as maps: Novembre et al. (2008).

    Examples
    --------
    >>> from gpukpca import PCA
    >>> from gpukpca.datasets import isolation_by_distance
    >>> data = isolation_by_distance(n_individuals=100, n_loci=500, rng=0)
    >>> PCA(n_components=2).fit_transform(data.X).shape
    (100, 2)
    """
    _check_positive(n_individuals=n_individuals, n_loci=n_loci, width=width, length_scale=length_scale)
    if not 0.0 <= missing < 1.0:
        raise ValueError(f"missing={missing!r} must be a share in [0, 1).")
    if not 0.0 <= differentiation < np.inf:
        raise ValueError(f"differentiation={differentiation!r} must be finite and not negative.")
    rng = np.random.default_rng(rng)
    positions = rng.uniform(size=(n_individuals, 2)) * (width, 1.0)
    field = differentiation * _gaussian_fields(positions, n_loci, length_scale, rng)
    average = rng.uniform(RAREST, 1.0 - RAREST, n_loci)
    frequencies = 1.0 / (1.0 + np.exp(-(np.log(average / (1.0 - average)) + field)))
    X = rng.binomial(2, frequencies).astype(np.float64)
    lost = rng.random(X.shape) < missing
    # A locus without any genotype has no mean.
    lost[0, np.all(lost, axis=0)] = False
    return Genotypes(_imputed(X, lost), positions, lost)


def misleading_clusters(
    n_samples: int = 400,
    n_clusters: int = 2,
    *,
    elongation: float = 2.6,
    separation: float = 3.0,
    spread: float = 0.35,
    rng: np.random.Generator | int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Simulate long parallel clusters: the direction of largest variance runs along them and separates none.

    The first component of kernel PCA with a narrow RBF kernel separates two clusters: gamma about
    ``2 / separation**2``.

    Parameters
    ----------
    n_samples, n_clusters : int
        Clusters have equal sizes, or sizes that differ by one.
    elongation : float
        Standard deviation along a cluster.
    separation : float
        Distance between the centers of neighboring clusters.
    spread : float
        Standard deviation across a cluster.
    rng : numpy.random.Generator or int

    Returns
    -------
    X : array, shape (n_samples, 2)
    labels : array, shape (n_samples,)
        "A", "B", ... in the order of the clusters.

    See Also
    --------
    noisy_spiral : Data that no plane describes.

    Examples
    --------
    The first component of PCA runs along the clusters: their means differ by less than its standard deviation.

    >>> from gpukpca import PCA
    >>> from gpukpca.datasets import misleading_clusters
    >>> X, labels = misleading_clusters(n_samples=100, rng=0)
    >>> scores = PCA(n_components=1).fit_transform(X)
    >>> bool(abs(scores[labels == "A"].mean() - scores[labels == "B"].mean()) < scores.std())
    True
    """
    _check_positive(n_samples=n_samples, n_clusters=n_clusters, elongation=elongation, separation=separation)
    rng = np.random.default_rng(rng)
    codes = np.arange(n_samples) % n_clusters
    along = elongation * rng.standard_normal(n_samples)
    across = separation * (codes - 0.5 * (n_clusters - 1)) + spread * rng.standard_normal(n_samples)
    # Slanted, so that neither column alone separates them.
    cosine, sine = np.cos(np.pi / 6), np.sin(np.pi / 6)
    X = np.column_stack([cosine * along - sine * across, sine * along + cosine * across])
    return X, np.array([chr(ord("A") + code) for code in codes])


def noisy_spiral(
    n_samples: int = 600, *, turns: float = 1.25, noise: float = 0.03, rng: np.random.Generator | int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Simulate points along a spiral in the plane, which is straight only piece by piece.

    The spiral is ``t (cos 2πt, sin 2πt)`` with t from 0.4 on, so that a turn moves out by 1. Points are uniform along
    its length.

    Parameters
    ----------
    n_samples : int
    turns : float
    noise : float
        Standard deviation about the spiral, in each direction.
    rng : numpy.random.Generator or int

    Returns
    -------
    X : array, shape (n_samples, 2)
    along : array, shape (n_samples,)
        Share of the length, from 0 at the inner end to 1 at the outer end.

    See Also
    --------
    misleading_clusters : Clusters that PCA does not separate.

    Examples
    --------
    >>> from gpukpca.datasets import noisy_spiral
    >>> X, along = noisy_spiral(n_samples=100, rng=0)
    >>> X.shape, along.shape
    ((100, 2), (100,))
    >>> bool(0.0 <= along.min() and along.max() <= 1.0)
    True
    """
    _check_positive(n_samples=n_samples, turns=turns)
    if not 0.0 <= noise < np.inf:
        raise ValueError(f"noise={noise!r} must be finite and not negative.")
    rng = np.random.default_rng(rng)
    t = np.linspace(0.4, 0.4 + turns, 4096)
    curve = t[:, None] * np.column_stack([np.cos(2.0 * np.pi * t), np.sin(2.0 * np.pi * t)])
    length = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(curve, axis=0), axis=1))])
    along = rng.random(n_samples)
    X = np.column_stack([np.interp(along * length[-1], length, column) for column in curve.T])
    return X + noise * rng.standard_normal(X.shape), along


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        if not 0 < value < np.inf:
            raise ValueError(f"{name}={value!r} must be positive and finite.")


def _gaussian_fields(positions: np.ndarray, count: int, length_scale: float, rng: np.random.Generator) -> np.ndarray:
    """Return fields of variance 1 at positions (n, 2) as columns (n, count); all have the same waves."""
    frequencies = rng.standard_normal((2, WAVES)) / length_scale
    phases = rng.uniform(0.0, 2.0 * np.pi, WAVES)
    waves: np.ndarray = np.sqrt(2.0 / WAVES) * np.cos(positions @ frequencies + phases)
    return waves @ rng.standard_normal((WAVES, count))


def _imputed(X: np.ndarray, lost: np.ndarray) -> np.ndarray:
    """Return X with missing entries replaced by the mean of the others of their column."""
    kept = ~lost
    means = np.sum(X, axis=0, where=kept) / np.sum(kept, axis=0)
    return np.where(lost, means, X)
