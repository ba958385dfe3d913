"""A published table that is a common first example of PCA."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gpukpca._former import keep_former_names

__all__ = ["uk_foods"]

keep_former_names(__name__)

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


class _Foods(NamedTuple):
    """A table with its names; `uk_foods` describes it."""

    X: np.ndarray
    countries: tuple[str, ...]
    foods: tuple[str, ...]


def uk_foods() -> _Foods:
    """Return the weekly consumption of 17 foods in the four countries of the United Kingdom in 1997.

    The table is a common first example of PCA: 4 samples, 17 features. Northern Ireland lies apart from the others on
    the first component.

    Returns
    -------
    object
        Its `X`, shape (4, 17), holds the grams a person eats or drinks in a week. `countries` and `foods` are tuples of
        the names of rows and columns.

    See Also
    --------
    gpukpca.loadings : Show which foods set a component.

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
    return _Foods(np.array(list(FOODS.values()), dtype=np.float64).T.copy(), COUNTRIES, tuple(FOODS))
