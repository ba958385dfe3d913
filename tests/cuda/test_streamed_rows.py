"""Host rows that a device reads batch by batch, and checks of rows on it: waits, copies, memory, results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpukpca import PCA, ProbabilisticPCA
from gpukpca.backend.blocking import PerDevice
from gpukpca.data.finite import FINITE, check_finite, has_missing
from gpukpca.exceptions import InvalidParameterError
from tests import cupy_device


def data(n: int, d: int = 4, dtype: Any = np.float32) -> np.ndarray:
    return (np.random.default_rng(n).standard_normal((n, d)) * np.linspace(4.0, 1.0, d)).astype(dtype)


# -- checks on a device ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 64, 1000])
def test_a_check_of_entries_waits_once(stand_in: Any, sizes, n: int) -> None:
    host = data(n)
    X, counts = stand_in.asarray(host), np.arange(n) % 3 > 0
    sizes(PANEL_ENTRIES=PerDevice(2**20, 4 * 10))  # ten rows
    checks = {
        "finite": lambda X: check_finite(X, FINITE),
        "infinite": lambda X: check_finite(X, FINITE, missing=True),
        "missing": has_missing,
    }
    for check in checks.values():
        check(X)  # compiles
        with cupy_device.counted("waits") as waits, cupy_device.counted("copies_to_host") as copies:
            assert not check(X)
        assert (waits.count, copies.count) == ((1, 1) if n else (0, 0))
    for row in {0, n // 2, n - 1} if n else ():
        for value, kind in ((np.nan, "NaN"), (np.inf, "infinity")):
            bad = host.copy()
            bad[row, 2] = value
            X = stand_in.asarray(bad)
            with pytest.raises(
                InvalidParameterError, match=rf"{kind}.* 1 value\(s\), the first in row {row}, column 2"
            ):
                check_finite(X, FINITE)
            if kind == "NaN":
                check_finite(X, FINITE, missing=True)
                assert has_missing(X)
            else:
                with pytest.raises(InvalidParameterError, match=rf"row {row}, column 2"):
                    check_finite(X, FINITE, missing=True)
            if counts[row]:
                with pytest.raises(InvalidParameterError, match=rf"row {row}, column 2"):
                    check_finite(X, FINITE, counts=counts)
            else:
                check_finite(X, FINITE, counts=counts)


def test_waits_for_scores_do_not_grow_with_the_rows(stand_in: Any) -> None:
    X = stand_in.asarray(data(60_000))
    for model in (PCA(2), ProbabilisticPCA(2)):
        model.fit(X[:1000])
        counts = []
        for rows in (X[:1000], X):
            model.transform(rows)
            with cupy_device.counted("waits") as waits:
                model.transform(rows)
            counts.append(waits.count)
        assert counts[0] == counts[1] <= 8
