"""Bundled data."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from gpukpca.datasets import uk_foods


def test_the_foods_are_those_of_the_published_table(real_data: Path):
    with (real_data / "foods" / "UK_foods.csv").open(encoding="utf-8", newline="") as file:
        _, *rows = csv.reader(file)
    table = uk_foods()
    np.testing.assert_array_equal(table.X.T, np.array([row[1:] for row in rows], dtype=np.float64))
    published = [row[0].strip().lower().replace("_", " ").replace("veg", "vegetables") for row in rows]
    assert published == list(table.foods)
