"""Kernel functions of the user: symmetric, real, finite, and unable to write to the data."""

from __future__ import annotations

import warnings
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn.gaussian_process.kernels import RBF as ProcessRBF
from sklearn.gaussian_process.kernels import WhiteKernel

from gpukpca import KernelPCA
from gpukpca.exceptions import InvalidParameterError
from gpukpca.kernels import RBF, BlockCallable, Kernel, PairwiseCallable
from gpukpca.model_selection import KernelPCACV
from tests.datasets import data
from tests.each import each


def lopsided(x: Any, y: Any) -> float:
    """Larger where the first row is."""
    return float(x @ y + 0.3 * x[0])


def lopsided_block(A: Any, B: Any) -> Any:
    """The same by blocks."""
    return A @ B.T + 0.3 * A[:, :1]


class Lopsided(Kernel):
    """The same as a class."""

    def tile(self, a: Any, b: Any, out: Any = None) -> Any:
        return lopsided_block(a.data, b.data)

    def tile_diagonal(self, a: Any) -> Any:
        return (a.data**2).sum(axis=1)


LOPSIDED = {
    "function": lopsided,
    "blocks": BlockCallable(lopsided_block),
    "class": Lopsided(),
    "sum": RBF(0.1) + Lopsided(),
    "sum with a function": RBF(0.1) + PairwiseCallable(lopsided),
}


@each(
    "name, solver",
    [(name, solver) for name in LOPSIDED for solver in ("dense", "randomized")]
    + [(name, "nystrom") for name in ("function", "blocks", "class")],
)
def test_an_asymmetric_kernel_is_refused_with_two_rows_and_both_values(name, solver):
    X = data(40, 3)
    with pytest.raises(InvalidParameterError, match=r"is not symmetric: k\(x, y\) is ") as caught:
        KernelPCA(2, kernel=LOPSIDED[name], eigen_solver=solver).fit(X)
    i, j, _, _ = (int(number) for number in _numbers_after("row ", str(caught.value)))
    assert 0 <= i < j < len(X)
    if "sum" not in name:
        assert f"{lopsided(X[i], X[j]):.6g} for" in str(caught.value)
        assert f"{lopsided(X[j], X[i]):.6g} for" in str(caught.value)


def _numbers_after(word: str, text: str) -> list[str]:
    return [part.split()[0].strip(",.") for part in text.split(word)[1:]]


def test_a_search_refuses_an_asymmetric_kernel_too():
    with pytest.raises(Exception, match="is not symmetric"):
        KernelPCACV(BlockCallable(lopsided_block), n_components=2).fit(data(40, 3))


@each("kernel", [lambda x, y: float(np.tanh(x @ y)), BlockCallable(lambda A, B: np.tanh(A @ B.T))])
@each("size", [1e-12, 1.0, 1e12])
def test_rounding_is_no_asymmetry(xp, dtype, kernel, size):
    X = xp.array((data(40, 3) * np.sqrt(size)).astype(dtype))

    def rounded(x: Any, y: Any) -> float:
        return float(x[0] * y[0] + (x[1] * y[1] + x[2] * y[2]))

    for one in (kernel, rounded, lambda x, y: size):
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # tanh has negative eigenvalues, and a constant no variance
            model = KernelPCA(1, kernel=one).fit(X)
        assert xp.owns(model.eigenvalues_)


ANSWERS = {
    "complex": (1.0 + 2.0j, "complex"),
    "complex of NumPy": (np.complex128(1.0), "complex128"),
    "complex array": (np.array(1.0j), "ndarray of shape ()"),
    "None": (None, "NoneType"),
    "text": ("3.0", "str"),
    "object": (Decimal(3), "Decimal"),
    "array": (np.ones(1), r"ndarray of shape \(1,\)"),
    "ragged": ([[1.0], [2.0, 3.0]], "list"),
    "huge": (10**400, r"int at \(0, 0\)"),
    "infinite": (np.inf, r"inf at \(0, 0\)"),
}


@each("name", ANSWERS)
def test_an_answer_that_is_no_number_is_one_clear_error(name):
    value, match = ANSWERS[name]
    with pytest.raises(InvalidParameterError, match=match):
        KernelPCA(2, kernel=lambda x, y: value).fit(data(40, 3))


@pytest.mark.parametrize("value", [1, True, np.float32(2.0), np.int8(3), np.array(2.0), 2**70])
def test_every_real_number_is_an_answer(value):
    K = PairwiseCallable(lambda x, y: value)(data(4, 3))
    np.testing.assert_array_equal(K, np.full((4, 4), float(value)))


BLOCKS = {
    "complex": (lambda A, B: (A @ B.T) * 1j, "dtype complex128"),
    "objects": (lambda A, B: (A @ B.T).astype(object), "dtype object"),
    "None": (lambda A, B: None, "NoneType"),
    "list": (lambda A, B: (A @ B.T).tolist(), "list"),
    "text": (lambda A, B: (A @ B.T).astype(str), "dtype <U"),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_that_is_no_numbers_is_one_clear_error(name):
    function, match = BLOCKS[name]
    with pytest.raises(InvalidParameterError, match=match):
        KernelPCA(2, kernel=BlockCallable(function)).fit(data(40, 3))


def _writing(x: Any, y: Any) -> float:
    x *= 2.0
    return float(x @ y)


def _writing_block(A: Any, B: Any) -> Any:
    B += 1.0
    return A @ B.T


@pytest.mark.parametrize("kernel", [_writing, BlockCallable(_writing_block)], ids=["function", "blocks"])
@pytest.mark.parametrize("copy_X", [True, False])
def test_a_kernel_function_cannot_write_to_the_data(kernel, copy_X):
    X = data(40, 3)
    before = X.copy()
    with pytest.raises(ValueError, match="read-only"):
        KernelPCA(2, kernel=kernel, copy_X=copy_X).fit(X)
    np.testing.assert_array_equal(X, before)
    assert X.flags.writeable


def test_a_block_that_the_function_keeps_is_not_written_to():
    kept = np.full((40, 40), 0.5)
    np.fill_diagonal(kept, 1.0)
    kept.flags.writeable = False
    K = BlockCallable(lambda A, B: kept if len(A) == len(B) == 40 else np.ones((len(A), len(B))))
    np.testing.assert_array_equal(K(data(40, 3)), kept)


def test_sparse_rows_reach_a_function_as_dense_ones():
    X = scipy.sparse.random(20, 5, 0.5, format="csr", random_state=0)
    model = KernelPCA(2, kernel=lambda x, y: float(x @ y), copy_X=False).fit(X)
    np.testing.assert_allclose(model.eigenvalues_, KernelPCA(2).fit(X.toarray()).eigenvalues_, rtol=1e-10)


@pytest.mark.parametrize(
    "kernel",
    [
        WhiteKernel(),
        ProcessRBF(20.0) + 2.0 * WhiteKernel(0.5),
        BlockCallable(ProcessRBF(20.0) + WhiteKernel(0.5)),
        RBF(0.1) + BlockCallable(WhiteKernel()),
    ],
)
def test_noise_of_a_gaussian_process_is_refused(kernel):
    with pytest.raises(InvalidParameterError, match=r"WhiteKernel.*[Ll]eave it out"):
        KernelPCA(2, kernel=kernel).fit(data(20, 3))
