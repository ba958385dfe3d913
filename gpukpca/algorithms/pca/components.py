"""Principal components of centered rows: eigenvectors of ZᵀZ or Z Zᵀ, or an SVD.

A squared matrix holds an eigenvalue λ to an error of eps λ₁, so singular values below √eps σ₁ are lost in it. Their
axes still span their space: an SVD of Z V for these axes V restores the digits, as an SVD of Z would.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpukpca._typing import Array, PassReport, SymmetricOperator
from gpukpca.algorithms.fields import documented, field_of
from gpukpca.algorithms.pca.plan import PCASolver
from gpukpca.algorithms.pca.settings import RankRequest
from gpukpca.backend import blocking
from gpukpca.backend.linalg import column_norms, inner_products, thin_svd, triangular_inverse
from gpukpca.backend.namespace import cast, dtype_name, epsilon, from_host, namespace_of, to_host
from gpukpca.backend.orthogonalization import orthonormal_factors
from gpukpca.backend.parallel import single_threaded_blas
from gpukpca.backend.random import Randomness, random_directions
from gpukpca.covariance.centered_matrix import CONSTANT, CenteredMatrix
from gpukpca.covariance.scatter import ScatterOperator
from gpukpca.eigen import Checkpointer, EigenResult, top_eigh
from gpukpca.eigen.residuals import residuals, signs
from gpukpca.exceptions import InvalidParameterError
from gpukpca.gram import DenseGram

# Eigenvalues below this share of the largest have lost half of their digits and are recomputed from Z.
BLURRED = {"float64": 1e-6, "float32": 1e-4}
# Eigenvalues up to this many eps of the largest do not determine their vectors.
UNRESOLVED = 4.0
# Singular values up to this many eps of the largest are rounding noise.
NULL_FACTOR = 20.0


@documented
@dataclass(frozen=True)
class Components:
    """The leading principal components, in the units of the centered rows Z."""

    vectors: Array = field_of("d p", "orthonormal columns")
    squares: np.ndarray = field_of("p", "squared singular values, descending, on the host; rounding noise is 0")
    residual_norms: np.ndarray = field_of("p", "‖ZᵀZ v - σ² v‖, on the host")
    spectrum: np.ndarray | None = field_of("min(n, d)", "all squares, where they were computed", default=None)
    scores: Array | None = field_of("n p", "Z v, where the method computes it", default=None)
    eigen: EigenResult | None = field_of("", "the result of the eigensolver; None for an SVD", default=None)


@documented
@dataclass(frozen=True)
class SolverTools:
    """Random numbers, callback and checkpoints of an eigensolver."""

    random: Randomness
    report: PassReport | None = field_of("", "called after every pass", default=None)
    checkpointer: Checkpointer | None = field_of("", "of block Krylov", default=None)


def of_scatter(Z: CenteredMatrix, solver: PCASolver, rank: RankRequest, tools: SolverTools) -> Components:
    """Return the components from the eigenvectors of the stored matrix ZᵀZ."""
    return _of_features(Z, _top_pairs(Z, DenseGram(_checked(Z.scatter())), solver, rank, tools))


def of_operator(
    Z: CenteredMatrix, solver: PCASolver, rank: RankRequest, tools: SolverTools, by_samples: bool
) -> Components:
    """Return the components from products with ZᵀZ, or with Z Zᵀ where `by_samples`."""
    Z.measure()
    eigen = _top_pairs(Z, ScatterOperator(Z, of_samples=by_samples), solver, rank, tools)
    if by_samples:
        return _of_samples(Z, eigen, column_norms(Z.adjoint(_remainders(eigen))), tools.random)
    return _of_features(Z, eigen)


def of_gram(Z: CenteredMatrix, solver: PCASolver, rank: RankRequest, tools: SolverTools) -> Components:
    """Return the components from the eigenvectors of the stored matrix Z Zᵀ."""
    G = DenseGram(_checked(Z.gram()))
    eigen = _top_pairs(Z, G, solver, rank, tools, min(Z.shape))
    # ‖Zᵀr‖² = rᵀ Z Zᵀ r, of r over the largest eigenvalue: the cube of that may overflow.
    largest = float(np.max(_host(eigen.eigenvalues), initial=0.0)) or 1.0
    R = _remainders(eigen) * (1.0 / largest)
    squares = np.maximum(_host(namespace_of(R).sum(R * (G @ R), axis=0)), 0.0)
    del G
    return _of_samples(Z, eigen, np.sqrt(squares) * largest, tools.random)


def of_svd(Z: CenteredMatrix, rank: RankRequest) -> Components:
    """Return the components by an SVD of Z, or of its triangular factor where no process holds Z."""
    with single_threaded_blas(min(Z.shape) <= blocking.PCA_ONE_THREAD_FOR_ALL):
        return _of_svd(Z, rank)


def _of_svd(Z: CenteredMatrix, rank: RankRequest) -> Components:
    matrix = Z.materialized()
    if matrix is None:
        _, s, Vt = thin_svd(_checked(Z.own_triangle()))
        squares = s**2
        V = cast(Vt[: _count(rank, squares), :].T.copy(), Z.dtype)
        norms = residuals(V, Z.scatter_times(V), squares[: V.shape[1]])
        return Components(V, squares[: V.shape[1]], norms, spectrum=squares)
    U, s, Vt = thin_svd(_checked(matrix))
    xp, squares = namespace_of(Vt), s**2
    requested = _count(rank, squares)
    V = xp.asarray(xp.matrix_transpose(Vt[:requested, :]), copy=True)
    scores = U[:, :requested] * from_host(s[:requested], U)[None, :]
    norms = residuals(V, from_host(inner_products(matrix, matrix @ V), V, Z.wide), squares[:requested])
    return Components(V, squares[:requested], norms, spectrum=squares, scores=scores)


def _count(rank: RankRequest, squares: np.ndarray) -> int:
    """Return the number of components of a complete spectrum that are requested."""
    return rank.pairs.count(squares, float(np.sum(squares))) or rank.pairs.most


def _of_features(Z: CenteredMatrix, eigen: EigenResult) -> Components:
    """Return the components from the eigenvectors of ZᵀZ."""
    vectors = cast(eigen.eigenvectors, Z.dtype)
    return _sharpened(Z, Components(vectors, _host(eigen.eigenvalues), _host(eigen.residual_norms), eigen=eigen))


def _top_pairs(
    Z: CenteredMatrix,
    op: SymmetricOperator,
    solver: PCASolver,
    rank: RankRequest,
    tools: SolverTools,
    most: int | None = None,
) -> EigenResult:
    """Return the leading eigenpairs; `most` of them, or all, where the last are within the rounding of the matrix."""
    n, request, is_dense = op.shape[0], rank.pairs, solver.forms_matrix
    up_to = blocking.PCA_ONE_THREAD_FOR_ALL if request.first == n else blocking.PCA_ONE_THREAD_UP_TO
    with single_threaded_blas(is_dense and n <= up_to):
        eigen = top_eigh(op, request, solver, rng=tools.random, report=tools.report, checkpointer=tools.checkpointer)
    most = n if most is None else most
    values = _host(eigen.eigenvalues)
    unresolved = bool(values[-1] <= UNRESOLVED * epsilon(Z.like) * max(float(values[0]), 0.0))
    # Only the data show which of the unresolved vectors belong to the small singular values.
    return (
        top_eigh(op, most, solver=solver, rng=tools.random) if len(values) < most and is_dense and unresolved else eigen
    )


def _remainders(eigen: EigenResult) -> Array:
    """Return A u - λ u of the eigenpairs, shape (n, p)."""
    return eigen.products - eigen.eigenvectors * eigen.eigenvalues[None, :]


# -- from eigenvectors of the samples to components --------------------------------------------------------------------


def _of_samples(Z: CenteredMatrix, eigen: EigenResult, products: np.ndarray, random: Randomness) -> Components:
    """Return v = Zᵀu / σ of the eigenvectors u of Z Zᵀ; `products` are the norms ‖Zᵀ(Z Zᵀu - σ²u)‖, shape (p,)."""
    squares = np.maximum(_host(eigen.eigenvalues), 0.0)
    roots = np.sqrt(squares)
    inverse = np.divide(1.0, roots, out=np.zeros_like(roots), where=roots > 0)
    vectors = Z.adjoint(cast(eigen.eigenvectors, Z.dtype))
    norms = column_norms(vectors)
    clear = _clear_count(Z, squares)
    divisors = np.where(np.arange(len(roots)) < clear, roots, norms)
    divisors = np.where(divisors > 0, divisors, 1.0)
    vectors = vectors / from_host(divisors, vectors)[None, :]
    lost = norms[clear:] <= epsilon(Z.like) * float(np.max(roots, initial=0.0))
    found = Components(
        vectors=_orthonormal(vectors, clear, lost, random),
        squares=squares,
        residual_norms=products * inverse,
        scores=cast(eigen.products * from_host(inverse, eigen.products)[None, :], Z.dtype),
        eigen=eigen,
    )
    return _sharpened(Z, found)


def _orthonormal(V: Array, clear: int, lost: np.ndarray, random: Randomness) -> Array:
    """Return orthonormal columns near the unit columns V (d, p), of which the first `clear` have digits.

    `lost`, shape (p - clear,), marks the others that are rounding; random ones replace them. A division by σ multiplies
    the rounding of Zᵀu, which lies along the first axes, by σ₁/σ. The triangular factor removes it.
    """
    xp, count = namespace_of(V), int(V.shape[1])
    first, others = V[:, :clear], V[:, clear:]
    L = np.linalg.cholesky(inner_products(first, first))
    first = first @ from_host(triangular_inverse(L).T, V)
    if clear == count:
        return first
    if np.any(lost):
        directions = random_directions(random.generator, tuple(others.shape), V) * V.shape[0] ** -0.5
        keep = from_host(np.where(lost, 0.0, 1.0), V)[None, :]
        others = others * keep + directions * (1.0 - keep)
    # Householder's vectors are orthogonal to the first ones even where the others are rounding.
    Q, _ = xp.linalg.qr(xp.concat([first, others], axis=1), mode="reduced")
    return xp.concat([first, Q[:, clear:]], axis=1)


# -- small singular values ---------------------------------------------------------------------------------------------


def _clear_count(Z: CenteredMatrix, squares: np.ndarray) -> int:
    """Return how many eigenvalues of a squared matrix keep at least half of their digits."""
    return int(np.sum(squares > BLURRED[dtype_name(Z.dtype)] * float(np.max(squares, initial=0.0))))


def _sharpened(Z: CenteredMatrix, found: Components) -> Components:
    """Recompute the components of small singular values by an SVD of Z V, with V from the squared matrix."""
    clear, p = _clear_count(Z, found.squares), len(found.squares)
    if clear == p:
        return found
    xp = namespace_of(found.vectors)
    V = xp.asarray(found.vectors[:, clear:], copy=True)
    if found.scores is None:
        R, T = Z.triangle(V)
    else:
        T = Z.times(V)
        R = orthonormal_factors(T)[1]
    _, s, Bt = np.linalg.svd(R)
    turn = from_host(Bt.T, V)
    s = np.append(s, np.zeros(V.shape[1] - len(s)))
    V = V @ turn
    T = None if T is None else T @ turn
    norms = residuals(V, Z.scatter_times(V) if T is None else Z.adjoint(T), s**2)
    return replace(
        found,
        vectors=xp.concat([found.vectors[:, :clear], V], axis=1),
        squares=np.append(found.squares[:clear], s**2),
        residual_norms=np.append(found.residual_norms[:clear], norms),
        scores=None if found.scores is None else xp.concat([found.scores[:, :clear], T], axis=1),
    )


# -- the last steps ----------------------------------------------------------------------------------------------------


def without_noise(Z: CenteredMatrix, found: Components) -> Components:
    """Set rounding noise to 0 and fix the signs; the spectrum is complete where all components are known."""
    if not (np.isfinite(found.squares).all() and np.isfinite(found.residual_norms).all()):
        raise _overflow(Z.dtype)
    floor = _noise_floor(Z, found.squares)
    squares = np.where(found.squares <= floor, 0.0, found.squares)
    spectrum = found.spectrum
    if spectrum is None and len(squares) >= min(Z.shape):
        spectrum = squares[: min(Z.shape)]
    spectrum = None if spectrum is None else np.where(spectrum <= floor, 0.0, spectrum)
    vectors, scores = found.vectors, found.scores
    if found.eigen is None or vectors is not found.eigen.eigenvectors:  # whose signs the solver has fixed
        sign = signs(vectors)[None, :]
        vectors, scores = vectors * sign, None if scores is None else scores * sign
    if (constant := Z.squares == 0.0).any():  # whose entries of components with variance are rounding
        xp, of_constant = namespace_of(vectors), from_host(constant, vectors)[:, None] > 0.5
        rounding = xp.abs(vectors) < math.sqrt(epsilon(vectors))
        vectors = xp.where(xp.logical_and(of_constant, rounding), xp.zeros_like(vectors), vectors)
    return replace(found, vectors=vectors, squares=squares, spectrum=spectrum, scores=scores)


def _noise_floor(Z: CenteredMatrix, squares: np.ndarray) -> float:
    """Return the squared singular value up to which all are rounding noise."""
    if Z.constant_columns(CONSTANT).all():
        return max(float(np.max(squares, initial=0.0)), 0.0)
    return (NULL_FACTOR * epsilon(Z.like)) ** 2 * Z.total


def _checked(A: Array) -> Array:
    """Return a matrix; raise `InvalidParameterError` where an entry is not finite."""
    xp = namespace_of(A)
    if not bool(xp.all(xp.isfinite(A))):
        raise _overflow(A.dtype)
    return A


def _overflow(dtype: Any) -> InvalidParameterError:
    return InvalidParameterError(
        f"overflow: sums of squares of these data do not fit into {dtype_name(dtype)}. Scale the features."
    )


def _host(values: Array) -> np.ndarray:
    return to_host(values).astype(np.float64)
