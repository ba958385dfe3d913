"""Operators of other libraries: sparse matrices, SciPy's LinearOperator, and objects with shape, dtype and products."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
import scipy.sparse
from scipy.sparse.linalg import LinearOperator, aslinearoperator
from sklearn.base import clone

import gpukpca
from gpukpca import KernelPCA, Nystrom
from gpukpca.eigen import pivoted_cholesky, top_eigh
from gpukpca.eigen.request import PairRequest
from gpukpca.exceptions import ConvergenceError, GpuKPCAWarning, InvalidParameterError
from gpukpca.gram import CenteredGram, DenseGram
from gpukpca.gram.base_point import BasePointGram
from tests import oracle, tolerances

N, P = 500, 3


class Products:
    """An object with shape, dtype and products alone; `like` says where they are."""

    def __init__(self, A, like=None):
        self.A, self.shape, self.dtype = A, tuple(A.shape), A.dtype
        if like is not None:
            self.like = like

    def __matmul__(self, V):
        return self.A @ V


class WithDiagonal(Products):
    def diagonal(self):
        return np.diagonal(self.A)


@pytest.fixture
def A(rng):
    """A sparse positive definite matrix whose largest eigenvalues are apart."""
    graph = scipy.sparse.random_array((N, N), density=0.01, rng=rng)
    A = (graph @ graph.T).toarray() + np.diag(np.linspace(0.0, 1.0, N))
    A[:P, :P] += np.diag([40.0, 30.0, 20.0])
    return A


def forms(A):
    """Return an array in the forms of other libraries."""
    made = {name: getattr(scipy.sparse, f"{name}_array")(A) for name in ("csr", "csc", "coo", "bsr", "lil")}
    made["csr matrix"] = scipy.sparse.csr_matrix(A)
    made["LinearOperator"] = aslinearoperator(A)
    made["one vector at a time"] = LinearOperator(A.shape, matvec=lambda v: A @ v, dtype=A.dtype)
    made["object"], made["object with a diagonal"] = Products(A), WithDiagonal(A)
    return made


def test_every_form_has_the_eigenpairs_of_its_matrix(A):
    for dtype in ("float64", "float32"):
        K = A.astype(dtype)
        values = np.linalg.eigvalsh(K.astype(np.float64))[::-1]
        centered = np.linalg.eigvalsh(oracle.centered(K.astype(np.float64)))[::-1]
        allowed = 100 * tolerances.eps(dtype) * values[0]
        for name, op in forms(K).items():
            for solver in ("dense", "randomized"):
                found = top_eigh(op, P, solver, rng=0)
                assert str(found.eigenvectors.dtype) == dtype, name
                errors = np.abs(found.eigenvalues - values[:P])
                assert np.all(errors <= found.residual_norms + allowed), (name, solver)
                residuals = np.linalg.norm(K @ found.eigenvectors - found.eigenvectors * found.eigenvalues, axis=0)
                assert np.all(residuals <= 1e-4 * values[0] if dtype == "float32" else residuals <= 1e-7 * values[0])
            found = top_eigh(CenteredGram(op), P, "randomized", rng=0)
            assert np.all(np.abs(found.eigenvalues - centered[:P]) <= found.residual_norms + allowed), name
    entries = scipy.sparse.diags_array(np.arange(20.0))
    flags = scipy.sparse.csr_array(np.eye(20, dtype=bool))
    for small, expected in ((entries, [19.0, 18.0]), (entries.astype(np.int16), [19.0, 18.0]), (flags, [1.0, 1.0])):
        assert top_eigh(small, 2).eigenvalues.tolist() == pytest.approx(expected, rel=1e-12)
    nothing = top_eigh(scipy.sparse.csr_array((30, 30)), 2)
    assert nothing.eigenvalues.tolist() == [0.0, 0.0]


def test_an_object_says_where_its_products_are(xp, A):
    """Products of the library of `like`; where they are not, the error names both."""
    K = xp.array(A[:60, :60])
    op = Products(K, K[:0, 0])
    found = top_eigh(op, 2, "randomized", rng=0)
    assert xp.owns(found.eigenvectors)
    expected = np.linalg.eigvalsh(A[:60, :60])[::-1][:2]
    np.testing.assert_allclose(xp.host(found.eigenvalues), expected, rtol=1e-7)
    dense = xp.host(CenteredGram(op).to_dense())
    np.testing.assert_allclose(dense, oracle.centered(A[:60, :60]), atol=1e-11)


def test_without_a_diagonal_there_are_no_shares(A):
    request = PairRequest.of_share(0.1, N)
    expected = top_eigh(DenseGram(A), request, rng=0).eigenvalues
    for name, op in forms(A).items():
        has_diagonal = name not in ("LinearOperator", "one vector at a time", "object")
        for view in (lambda op: op, CenteredGram):
            if has_diagonal:
                top_eigh(view(op), request, rng=0)
                continue
            with pytest.raises(InvalidParameterError, match=r"has products and no diagonal.*no ratios"):
                top_eigh(view(op), request, "randomized", rng=0)
        if has_diagonal:
            np.testing.assert_allclose(top_eigh(op, request, rng=0).eigenvalues, expected, rtol=1e-7)
            assert CenteredGram(op).trace == pytest.approx(np.trace(oracle.centered(A)), rel=1e-12)
            chosen = [pivoted_cholesky(one, 20, rng=0).pivots.tolist() for one in (op, DenseGram(A))]
            assert chosen[0] == chosen[1]
        else:
            with pytest.raises(InvalidParameterError, match=f"the {type(op).__name__} has products and no diagonal"):
                CenteredGram(op).trace  # noqa: B018
            with pytest.raises(InvalidParameterError, match="no landmarks by the diagonal"):
                pivoted_cholesky(op, 20, rng=0)


def test_an_operator_that_is_not_symmetric_is_named(A):
    bent = A.copy()
    bent[3, 8] += 1e-3
    for op in forms(bent).values():
        words = r"entries \(3, 8\) and \(8, 3\) differ by 0.001" if scipy.sparse.issparse(op) else "xᵀAy is"
        for use in (
            lambda op: top_eigh(op, 1),
            CenteredGram,
            BasePointGram,
            lambda op: pivoted_cholesky(op, landmarks=[1]),
        ):
            with pytest.raises(InvalidParameterError, match=f"the {type(op).__name__} is not symmetric: .*{words}"):
                use(op)
    rounded = A.copy()
    rounded[3, 8] *= 1 + 1e-15
    for op in forms(rounded).values():
        CenteredGram(op)


def test_kernel_pca_takes_an_operator_as_the_kernel_matrix(A, tmp_path):
    dense = {p: KernelPCA(p, kernel="precomputed").fit(A) for p in (2, None)}
    sampled = KernelPCA(2, kernel="precomputed", eigen_solver=Nystrom(rank=40), random_state=0)
    for name, op in forms(A).items():
        for p, expected in dense.items():
            model = KernelPCA(p, kernel="precomputed", random_state=0)
            known = p is None or hasattr(op, "diagonal")
            with nullcontext() if known else pytest.warns(GpuKPCAWarning, match="no diagonal"):
                scores = model.fit_transform(op)
            top = expected.eigenvalues_[0]
            np.testing.assert_allclose(model.eigenvalues_, expected.eigenvalues_, rtol=0, atol=1e-12 * top)
            np.testing.assert_allclose(scores, model.transform(A), rtol=0, atol=1e-6 * np.sqrt(top))
            assert "given" in str(model.plan_.storage), name
            assert not hasattr(model, "X_fit_")
            ratios = expected.explained_variance_ratio_ if known else np.full(2, np.nan)
            np.testing.assert_allclose(model.explained_variance_ratio_, ratios, rtol=1e-9)
            model.save(tmp_path / "model")
            again = gpukpca.load(tmp_path / "model")
            np.testing.assert_array_equal(again.transform(A[:3]), model.transform(A[:3]))
            with pytest.raises(InvalidParameterError, match="holds no kernel matrix"):
                again.as_sklearn()
        if hasattr(op, "diagonal"):
            ours, theirs = clone(sampled).fit(op), clone(sampled).fit(A)
            np.testing.assert_allclose(ours.eigenvalues_, theirs.eigenvalues_, rtol=1e-12)
            assert ours.landmarks_.tolist() == theirs.landmarks_.tolist()
            share = KernelPCA(0.5, kernel="precomputed").fit(op)
            expected = KernelPCA(0.5, kernel="precomputed").fit(A)
            np.testing.assert_allclose(share.eigenvalues_, expected.eigenvalues_, rtol=1e-9)
        else:
            for parameters in ({"n_components": 0.5}, {"n_components": 2, "eigen_solver": "nystrom"}):
                with pytest.raises(InvalidParameterError, match="has products and no diagonal"):
                    KernelPCA(kernel="precomputed", **parameters).fit(op)


def test_operators_whose_parts_do_not_fit_are_named(A):
    def short(self):
        return np.ones(3)

    wrong = type("Short", (Products,), {"diagonal": short})(A)
    for solver in ("auto", "nystrom"):
        with pytest.raises(InvalidParameterError, match=r"diagonal\(\) of the Short must return .* shape \(500,\)"):
            KernelPCA(2, kernel="precomputed", eigen_solver=solver).fit(wrong)
    by_class = Products(A)
    by_class.dtype = np.float64
    with pytest.warns(GpuKPCAWarning, match="no diagonal"):
        assert KernelPCA(2, kernel="precomputed").fit(by_class).eigenvalues_[0] > 0.0


def test_plans_of_operators_count_what_is_held(A):
    n = 20_000
    K = scipy.sparse.diags_array(np.linspace(1.0, 2.0, n)).tocsr()
    sampled = KernelPCA(2, kernel="precomputed", eigen_solver=Nystrom(rank=20))
    assert sampled.plan(K).predicted_bytes < 60e6  # F takes 3.2 MB, and K as a square 3.2 GB
    dense = KernelPCA(2, kernel="precomputed", eigen_solver="dense")
    assert dense.plan(aslinearoperator(A)).predicted_bytes >= dense.plan(A).predicted_bytes - A.nbytes


def test_kernel_pca_of_an_operator_computes_where_it_is(A, xp):
    op = Products(xp.array(A), like=xp.array(A[:1]))
    model = KernelPCA(2, kernel="precomputed", eigen_solver="randomized", random_state=0)  # a card would solve it whole
    with pytest.warns(GpuKPCAWarning, match="no diagonal"):
        scores = model.fit_transform(op)
    assert xp.owns(scores)
    assert xp.owns(model.eigenvectors_)
    expected = KernelPCA(2, kernel="precomputed").fit(A)
    np.testing.assert_allclose(xp.host(model.eigenvalues_), expected.eigenvalues_, rtol=1e-12)
    np.testing.assert_allclose(xp.host(model.transform(xp.array(A[:5]))), xp.host(scores)[:5], rtol=0, atol=1e-6)


def test_an_operator_is_audited_as_the_matrix(A, tmp_path):
    for solver in ("auto", Nystrom(rank=60)):
        model = KernelPCA(2, kernel="precomputed", eigen_solver=solver, random_state=0).fit(scipy.sparse.csr_array(A))
        model.save(tmp_path / "model")
        expected = gpukpca.residuals(model, A, random_state=0)
        for name, op in forms(A).items():
            found = gpukpca.residuals(gpukpca.load(tmp_path / "model"), op, random_state=0)
            for field in ("residual_norms", "landmark_eigenvalues", "norm_bound"):
                ours, theirs = getattr(found, field), getattr(expected, field)
                if theirs is not None:  # products of sparse matrices differ by rounding
                    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12 * A[0, 0], err_msg=name)
            assert np.isfinite(found.trace) == hasattr(op, "diagonal")
    with pytest.raises(InvalidParameterError, match="are not the rows of the fit"):
        gpukpca.residuals(model, scipy.sparse.csr_array(1.1 * A))


def test_objects_that_are_no_operators_are_refused(A):
    made = scipy.sparse.csr_array
    lazy = type("Lazy", (Products,), {"__matmul__": lambda self, V: made(self.A @ V)})
    for op, words in (
        (made(A[:, :5]), r"the csr_array has shape \(500, 5\)"),
        (made((0, 0)), r"has shape \(0, 0\)"),
        (made(A.astype(complex)), "has dtype complex128; a real"),
        (aslinearoperator(1j * A), "has dtype complex128; a real"),
        (lazy(A), "must be a dense array of this shape from numpy.*got csr_array"),
        (type("Short", (Products,), {"__matmul__": lambda self, V: V[:2]})(A), r"shape \(2, 2\)"),
        (type("Nothing", (Products,), {"__matmul__": lambda self, V: None})(A), "got NoneType of shape"),
        (made(np.where(A > 30.0, np.nan, A)), "contains NaN or infinity"),
        (A, "wrap a matrix"),
        (Products, "wrap a matrix"),
        (None, "wrap a matrix"),
    ):
        for use in (lambda op: top_eigh(op, 1), CenteredGram):
            with pytest.raises(InvalidParameterError, match=words):
                use(op)
    with pytest.raises((ConvergenceError, InvalidParameterError), match=r"NaN|finite"):
        top_eigh(Products(np.full((500, 500), np.nan)), 1, "randomized", rng=0)
