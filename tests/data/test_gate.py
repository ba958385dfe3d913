"""The gate: what comes out of it, and the boundary of each of its warnings."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import partial

import numpy as np
import pytest
import scipy.sparse

from gpukpca import PCA, IncrementalPCA, KernelPCA, ProbabilisticPCA, residuals
from gpukpca.data.gate import LARGEST_EXACT, as_rows
from gpukpca.exceptions import InvalidParameterError, PrecisionWarning


def test_rows_that_are_right_come_out_as_they_are(xp, dtype):
    X = xp.array(np.ones((3, 2), dtype))
    found = as_rows(X)
    if xp.name == "torch":  # detached from a graph of gradients, in the same memory
        assert found.data_ptr() == X.data_ptr()
    else:
        assert found is X
    sparse = scipy.sparse.csr_array(np.eye(3, dtype=dtype))
    assert as_rows(sparse).dtype == dtype
    assert np.shares_memory(as_rows(sparse).data, sparse.data)


def test_other_numbers_become_floats():
    expected = np.arange(6.0).reshape(3, 2)
    for kind in ("int8", "uint16", "int64", "float16", ">f8", ">f4", "bool"):
        found = as_rows(expected.astype(kind))
        assert found.dtype == (np.float32 if kind == ">f4" else np.float64)
        np.testing.assert_array_equal(found, expected.astype(kind).astype(np.float64))
    np.testing.assert_array_equal(as_rows(expected.tolist()), expected)


def test_integers_lose_digits_from_the_first_one_that_float64_lacks():
    for kind, sign in (("int64", 1), ("int64", -1), ("uint64", 1)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            as_rows(np.full((2, 2), sign * LARGEST_EXACT, dtype=kind))
        with pytest.warns(PrecisionWarning, match=r"exceed 2\*\*53"):
            as_rows(np.full((2, 2), sign * (LARGEST_EXACT + 1), dtype=kind))


def test_what_is_missing_is_refused_or_comes_out_as_nan():
    X = np.array([[1.0, np.nan], [2.0, 3.0]])
    assert np.isnan(as_rows(X)[0, 1])
    with pytest.raises(ValueError, match=r"Input X contains NaN: 1 value\(s\), the first in row 0, column 1"):
        as_rows(X, "PCA", finite=True)
    assert np.isnan(as_rows(X, "PCA", missing=True, finite=True)[0, 1])
    masked = np.ma.masked_greater(np.arange(6.0).reshape(3, 2), 4.0)
    with pytest.raises(InvalidParameterError, match="masked"):
        as_rows(masked)
    assert np.isnan(as_rows(masked, missing=True)[2, 1])
    with pytest.raises(ValueError, match="infinity"):
        as_rows(np.full((2, 2), np.inf), missing=True, finite=True)


class Unread:
    """A set of zarr or HDF5, of which no row may be read."""

    dtype = np.dtype("float64")

    def __init__(self, shape):
        self.shape = shape

    def __getitem__(self, part):
        raise AssertionError("it was read")


def test_each_refusal_names_what_was_received():
    class ArrowTable:
        shape, column_names, columns = (1, 2), ["size", "kind"], [[1.0], ["red"]]

        def __array__(self, dtype=None, copy=None):
            return np.array([[1.0, "red"]], dtype=object).astype(dtype or object)

    for given, error, words in (
        (np.ones(3), ValueError, r"Expected 2D array, got 1D array instead: Y has shape \(3,\)"),
        (np.float64(3.0), ValueError, "got scalar array instead"),
        (np.ones((2, 2, 2)), ValueError, "dim 3"),
        (Unread((5,)), ValueError, r"Expected 2D array, got 1D array instead: Y has shape \(5,\)"),
        (Unread((5, 2, 2)), ValueError, "dim 3"),
        (np.ones((2, 2)) * 1j, ValueError, "Complex data not supported: Y holds complex128"),
        (np.array([["a", "b"]]), ValueError, r"could not convert string to float: .*'a'.* \(column 0, row 0 of Y\)"),
        (ArrowTable(), ValueError, r"'red' \(column 'kind', row 0 of Y\)"),
        (np.array([["2020-01-01"]], dtype="datetime64[D]"), TypeError, "Y holds dates"),
        (None, ValueError, "Y is None"),
        ("rows.csv", ValueError, "Y is 'rows.csv'"),
        ({"a": [1.0]}, ValueError, r"Y is of type dict, which holds arrays by name, .*; pass Y\['a'\]\.$"),
        ({}, ValueError, "Y is of type dict, and not an array"),
        (3, ValueError, "got scalar array"),
    ):
        with pytest.raises(error, match=words):
            as_rows(given, name="Y")
    for shape, what in (((0, 3), "sample"), ((3, 0), "feature")):
        assert as_rows(np.ones(shape)).shape == shape
        with pytest.raises(InvalidParameterError, match=rf"0 {what}\(s\) .* is required by PCA"):
            as_rows(np.ones(shape), "PCA")


def test_a_holder_of_several_matrices_is_refused_before_it_is_read():
    def read(*_):
        raise AssertionError("it was read")

    class Group(Mapping):
        """A group of HDF5 or zarr, whose names have any order."""

        names, __getitem__ = ("rows", "labels"), read

        def __len__(self):
            return len(self.names)

        def __iter__(self):
            return iter(self.names)

        def __contains__(self, key):
            return key in self.names

    class SparseGroup(Group):
        """A CSR matrix as anndata writes it."""

        names = ("data", "indices", "indptr")

    class Dataset(Group):
        """A Dataset of xarray, of which NumPy makes no array."""

        __array__ = read

    class Raw:
        """Rows and what is known of them: slices are objects of the same class, of which NumPy would make arrays."""

        shape, varm, X, __getitem__ = (4, 3), {}, property(read), read

    class AnnData(Raw):
        layers, obsm = Group(), {}

    class MuData:
        shape, varm, obsm, mod = (4, 3), {}, {"all": 0}, {"rna": 0}

    class SpatialData:
        tables = Group()

    fitted = PCA(2).fit(np.eye(4, 3))
    passed = {
        AnnData: r"one of them: X\.X, X\.layers\['rows'\], X\.layers\['labels'\]",
        Raw: r"X\.X",
        MuData: r"one of them: X\.mod\['rna'\]\.X, X\.obsm\['all'\]",
        SpatialData: r"one of them: X\.tables\['rows'\]\.X, X\.tables\['labels'\]\.X",
        Group: r"one of them: X\['labels'\], X\['rows'\]",
        Dataset: r"one of them: X\['labels'\], X\['rows'\]",
        SparseGroup: r"anndata\.io\.sparse_dataset\(X\)",
    }
    for call in (
        PCA().fit,
        PCA().plan,
        fitted.transform,
        KernelPCA().fit,
        KernelPCA(eigen_solver="nystrom").fit,
        IncrementalPCA().partial_fit,
        ProbabilisticPCA().fit,
        partial(residuals, fitted),
    ):
        for kind, names in passed.items():
            with pytest.raises(ValueError, match=rf"X is of type {kind.__name__}, .* by name, .*; pass {names}\.$"):
                call(kind())
