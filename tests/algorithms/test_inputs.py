"""Arguments of functions without an estimator: what they take, and what they refuse with a reason."""

from __future__ import annotations

from datetime import date
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from gpukpca import PCA, ProbabilisticPCA
from gpukpca.algorithms.inputs import check_type, checked_listener, new_rows, new_scores
from gpukpca.algorithms.pca.settings import PCASettings
from gpukpca.data.gate import as_rows
from gpukpca.exceptions import DeviceUnavailableError, InvalidParameterError
from gpukpca.kernels import RBF
from tests.each import each

X = np.arange(12.0).reshape(4, 3)
MASKED = np.ma.masked_greater(X, 7.0)
NO_ROWS = {
    "one dimension": (X[0], InvalidParameterError, "Expected 2D array"),
    "complex": (X + 1j, InvalidParameterError, "complex"),
    "complex CSR": (scipy.sparse.csr_matrix(X + 1j), InvalidParameterError, "complex"),
    "dates": (X.astype("datetime64[D]"), TypeError, "dates"),
    "time differences": (X.astype("timedelta64[s]"), TypeError, "dates"),
    "masked": (MASKED, InvalidParameterError, "masked"),
    "nothing": (None, InvalidParameterError, "not an array of shape"),
    "too narrow": (X[:, :1], InvalidParameterError, "1 feature.*has 3"),
    "NaN": (np.where(X > 7, np.nan, X), ValueError, "NaN"),
    "infinity": (np.where(X > 7, np.inf, X), ValueError, "infinity"),
    "a word": ("rows", ValueError, "not an array of shape"),
}


@each("case", NO_ROWS)
def test_what_is_no_row_is_refused(case: str) -> None:
    rows, error, text = NO_ROWS[case]
    with pytest.raises(error, match=text):
        new_rows(rows, 3)


@pytest.mark.parametrize("make", [np.asarray, np.ndarray.tolist, scipy.sparse.csc_matrix, scipy.sparse.coo_matrix])
def test_rows_of_every_kind_are_taken(make: Any) -> None:
    rows = new_rows(make(X), 3)
    np.testing.assert_array_equal(rows.toarray() if scipy.sparse.issparse(rows) else rows, X)


def test_missing_entries_become_nan() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1, None, 3], "b": [1.0, 2.0, None]}, dtype="Float64")
    np.testing.assert_array_equal(as_rows(frame, missing=True), [[1, 1], [np.nan, 2], [3, np.nan]])
    np.testing.assert_array_equal(as_rows(MASKED, missing=True), np.where(X > 7.0, np.nan, X))
    with pytest.raises(ValueError, match="infinity"):
        as_rows(np.where(X > 7, np.inf, X), missing=True, finite=True)
    with pytest.raises(TypeError, match="dates"):
        as_rows(pandas.DataFrame({"a": pandas.to_datetime([date(2020, 1, 1)])}), missing=True)


def test_missing_entries_are_refused_where_they_have_no_meaning() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1.0, None], "b": [1.0, 2.0]}, dtype="Float64")
    with pytest.raises(InvalidParameterError, match=r"NaN.*row 1, column 'a'"):
        as_rows(frame, finite=True)
    assert np.isnan(as_rows(frame)).sum() == 1


def test_a_masked_array_without_masked_entries_is_no_copy() -> None:
    for missing in (False, True):
        assert np.shares_memory(as_rows(np.ma.MaskedArray(X), missing=missing), X)


def test_rows_of_different_widths_are_no_table() -> None:
    with pytest.raises(ValueError, match="give numbers in rows of equal length"):
        as_rows([np.ones(3), np.ones(4)])


@pytest.mark.parametrize("dates", [[[np.datetime64("2020-01-01")]] * 3, [[np.timedelta64(1, "D")]] * 3])
def test_lists_of_dates_are_refused_everywhere(dates: Any) -> None:
    for take in (as_rows, PCA(1).fit(X[:3, :1]).transform, PCA(1).fit, ProbabilisticPCA(1).fit):
        with pytest.raises(TypeError, match="holds dates"):
            take(dates)


def test_short_and_complex_tensors() -> None:
    torch = pytest.importorskip("torch")
    for dtype in (torch.float16, torch.bfloat16):
        assert new_rows(torch.tensor(X, dtype=dtype), 3).dtype == torch.float64
    with pytest.raises(InvalidParameterError, match="complex"):
        as_rows(torch.tensor(X) + 1j)
    assert not new_rows(torch.tensor(X, requires_grad=True), 3).requires_grad
    with pytest.raises(InvalidParameterError, match="to_dense"):
        as_rows(torch.tensor(X).to_sparse())


class OnCuda:
    """An array on a CUDA device, of which no more is read without CuPy."""

    shape = (12, 3)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 1


def test_arrays_on_a_cuda_device_need_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpukpca.cuda.device.is_installed", lambda: False)
    given: list[Any] = [OnCuda(), type("Interface", (), {"shape": (12, 3), "__cuda_array_interface__": {}})()]
    if find_spec("torch") is not None:
        import torch

        # No device is needed to name one.
        on_cuda = type("Tensor", (torch.Tensor,), {"device": property(lambda self: torch.device("cuda:1"))})
        given.append(torch.tensor(X).as_subclass(on_cuda))
    fitted = PCA(1).fit(X)
    out = partial(fitted.transform, X)
    for rows in given:
        for call in (as_rows, PCA(1).fit, fitted.transform, PCA(1, device="cuda").fit, RBF(1.0), out):
            with pytest.raises(DeviceUnavailableError, match=r"not installed; pip install .* x\.cpu\(\)"):
                call(rows)


def test_scores_go_where_the_fit_is(xp: Any) -> None:
    like = xp.array(np.zeros(0, dtype=np.float32))
    for scores in (X, X.tolist(), xp.array(X)):
        moved = new_scores(scores, 3, like)
        assert xp.owns(moved)
        assert moved.dtype == like.dtype
    for wrong, text in (
        (X[:, :2], r"got shape \(4, 2\)"),
        (np.where(X > 7, np.inf, X), "finite"),
        (scipy.sparse.csr_matrix(X), "toarray"),
    ):
        with pytest.raises((ValueError, TypeError), match=text):
            new_scores(wrong, 3, like)


def test_settings_are_objects_of_their_class() -> None:
    check_type("settings", PCASettings(), PCASettings)
    for wrong in (None, {}, PCASettings):
        with pytest.raises(InvalidParameterError, match=r"settings=.* is not allowed; give an object of PCASettings"):
            check_type("settings", wrong, PCASettings)
    checked_listener(None)
    checked_listener(print)
    with pytest.raises(InvalidParameterError, match="progress=3"):
        checked_listener(3)
