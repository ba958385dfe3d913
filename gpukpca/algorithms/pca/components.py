"""Principal components of centered rows: eigenvectors of ZᵀZ or Z Zᵀ, or an SVD.

A squared matrix holds an eigenvalue λ to an error of eps λ₁, so singular values below √eps σ₁ are lost in it. Where
their axes V span their space, an SVD of Z V restores the digits, as an SVD of Z would. Residuals of products with Z
show where they do not. Those components are computed again, by the same method, from Z (I - V Vᵀ) for the axes V of
the larger ones.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from gpukpca._typing import Array, PassReport, SymmetricOperator
from gpukpca.algorithms.fields import field_of, record
from gpukpca.algorithms.pca.settings import RankRequest
from gpukpca.algorithms.plan import Plan
from gpukpca.backend import blocking
from gpukpca.backend.lapack import graded_svd
from gpukpca.backend.linalg import column_norms, inner_products
from gpukpca.backend.namespace import cast, dtype_name, epsilon, from_host, namespace_of, to_host
from gpukpca.backend.orthogonalization import orthonormal_columns, orthonormal_factors, thin_svd
from gpukpca.backend.parallel import single_threaded_blas
from gpukpca.backend.random import Randomness, random_directions
from gpukpca.covariance.centered_matrix import CenteredMatrix, RowProducts
from gpukpca.covariance.deflated import DeflatedMatrix
from gpukpca.covariance.scatter import ScatterOperator
from gpukpca.eigen import Dense, EigenResult, top_eigh
from gpukpca.eigen.krylov_state import Checkpointer
from gpukpca.eigen.request import PairRequest
from gpukpca.eigen.residuals import RESOLVED, default_tolerance, signs, value_bounds
from gpukpca.exceptions import InvalidParameterError
from gpukpca.gram import DenseGram

# Eigenvalues below this share of the largest have lost half of their digits and are recomputed from Z.
BLURRED = {"float64": 1e-6, "float32": 1e-4}
# Only eigenvalues below this share of the largest are hidden by it; others take more passes, not other products.
HIDDEN = 1e-2
# Deflations end where one resolves nothing new; each reaches some six digits of the singular values further down.
MOST_DEFLATIONS = 8
# Random directions that show whether a deflation leaves anything but rounding.
PROBES = 4
# Singular values up to this many eps of the largest are rounding noise.
NULL_FACTOR = 20.0
# ... unless their residuals are less than this share of their squares.
KNOWN = 0.1


@record()
class Components:
    """The leading principal components, in the units of the centered rows Z."""

    vectors: Array = field_of("d p", "orthonormal columns")
    squares: np.ndarray = field_of("p", "squared singular values, descending, on the host; rounding noise is 0")
    residual_norms: np.ndarray = field_of("p", "bounds on the errors of the squares, from ‖ZᵀZ v - σ² v‖, on the host")
    spectrum: np.ndarray | None = field_of("min(n, d)", "all squares, of an SVD of the whole matrix", default=None)
    scores: Array | None = field_of("n p", "Z v, where the method computes it", default=None)
    eigen: EigenResult | None = field_of("", "the result of the eigensolver; None for an SVD", default=None)

    def converged(self, tol: float) -> np.ndarray:
        """Return which (p,) have residuals within the tolerance of their solver; of an SVD `tol`, or rounding."""
        if self.eigen is not None:
            return self.eigen.converged
        tol = max(tol or default_tolerance(self.vectors.dtype), NULL_FACTOR * epsilon(self.vectors))
        largest = self.squares.max(initial=0.0)
        return np.asarray((self.residual_norms <= tol * largest) | (largest == 0.0))

    def as_eigen(self) -> Any:
        """Return the result of the eigensolver with these components."""
        values, norms = (from_host(part, self.vectors) for part in (self.squares, self.residual_norms))
        eigen: Any = self.eigen
        return replace(eigen, eigenvalues=values, eigenvectors=self.vectors, residual_norms=norms)


@record()
class SolverTools:
    """Random numbers, callback and checkpoints of an eigensolver."""

    random: Randomness
    report: PassReport | None = field_of("", "called after every pass", default=None)
    checkpointer: Checkpointer | None = field_of("", "of block Krylov", default=None)


def components_by(Z: CenteredMatrix, plan: Plan, rank: RankRequest, tools: SolverTools) -> Components:
    """Return the components by the method of a plan."""
    few = plan.method == "full" and min(Z.shape) <= blocking.PCA_ONE_THREAD_FOR_ALL
    with single_threaded_blas(few):
        return _deflated(Z, rank.pairs(Z.eps), plan, tools)


def _of_scatter(Z: RowProducts, request: PairRequest, plan: Plan, tools: SolverTools) -> Components:
    """Return the components from the eigenvectors of the stored matrix ZᵀZ."""
    return _of_features(Z, _top_pairs(DenseGram(_checked(Z.scatter())), request, plan, tools))


def _of_operator(Z: RowProducts, request: PairRequest, plan: Plan, tools: SolverTools) -> Components:
    """Return the components from products with ZᵀZ, or with Z Zᵀ for a plan by samples."""
    Z.measure()
    eigen = _top_pairs(ScatterOperator(Z, of_samples=plan.by_samples), request, plan, tools)
    if plan.by_samples:
        return _of_samples(Z, eigen, column_norms(Z.adjoint(_remainders(eigen))))
    return _of_features(Z, eigen)


def _of_gram(Z: RowProducts, request: PairRequest, plan: Plan, tools: SolverTools) -> Components:
    """Return the components from the eigenvectors of the stored matrix Z Zᵀ."""
    G = DenseGram(_checked(Z.gram()))
    eigen = _top_pairs(G, request, plan, tools)
    # ‖Zᵀr‖² = rᵀ Z Zᵀ r, of r over the largest eigenvalue: the cube of that may overflow.
    largest = float(_host(eigen.eigenvalues).max(initial=0.0)) or 1.0
    R = _remainders(eigen) * (1.0 / largest)
    squares = np.maximum(_host(namespace_of(R).sum(R * (G @ R), axis=0)), 0.0)
    del G
    return _of_samples(Z, eigen, np.sqrt(squares) * largest)


def _of_svd(Z: RowProducts, request: PairRequest, plan: Plan, tools: SolverTools) -> Components:
    """Return the components by an SVD of Z, or of its triangular factor where no process holds Z."""
    matrix = Z.materialized()
    R = _checked(Z.own_triangle() if matrix is None else matrix)
    U, s, Vt = thin_svd(R if matrix is not None else np.pad(R, ((0, min(Z.shape) - len(R)), (0, 0))))
    squares = s**2
    count = request.count(squares, float(squares.sum())) or request.max_count
    V, scores = namespace_of(Vt).asarray(Vt[:count, :].T, copy=True), None
    if matrix is None:
        V = from_host(np.ascontiguousarray(V), Z.like, Z.dtype)
        products = Z.scatter_times(V)
    else:
        scores = U[:, :count] * from_host(s[:count], U)[None, :]
        products = from_host(inner_products(matrix, matrix @ V), V, Z.wide)
    norms = value_bounds(V, products, squares[:count])
    return Components(V, squares[:count], norms, spectrum=squares, scores=scores)


def _of_features(Z: RowProducts, eigen: EigenResult) -> Components:
    """Return the components from the eigenvectors of ZᵀZ."""
    vectors = cast(eigen.eigenvectors, Z.dtype)
    return _sharpened(Z, Components(vectors, _host(eigen.eigenvalues), _host(eigen.residual_norms), eigen=eigen))


STAGES = {"covariance_eigh": _of_scatter, "dual": _of_gram, "full": _of_svd, "randomized": _of_operator}


def _top_pairs(op: SymmetricOperator, request: PairRequest, plan: Plan, tools: SolverTools) -> EigenResult:
    """Return the leading eigenpairs."""
    n: int = op.shape[0]
    solver: Any = plan.solver
    up_to = blocking.PCA_ONE_THREAD_FOR_ALL if request.first == n else blocking.PCA_ONE_THREAD_UP_TO
    with single_threaded_blas(isinstance(solver, Dense) and n <= up_to):
        return top_eigh(op, request, solver, rng=tools.random, report=tools.report, checkpointer=tools.checkpointer)


def _remainders(eigen: EigenResult) -> Array:
    """Return A u - λ u of the eigenpairs, shape (n, p)."""
    return eigen.products - eigen.eigenvectors * eigen.eigenvalues[None, :]


# -- from eigenvectors of the samples to components --------------------------------------------------------------------


def _of_samples(Z: RowProducts, eigen: EigenResult, products: np.ndarray) -> Components:
    """Return v = Zᵀu / σ of the eigenvectors u of Z Zᵀ; `products` are the norms ‖Zᵀ(Z Zᵀu - σ²u)‖, shape (p,).

    The division by σ multiplies the rounding of Zᵀu, which lies along the first axes, by σ₁/σ: the columns are
    orthonormalized in their order.
    """
    squares = np.maximum(_host(eigen.eigenvalues), 0.0)
    roots = np.sqrt(squares)
    inverse = np.divide(1.0, roots, out=np.zeros_like(roots), where=roots > 0)
    vectors = Z.adjoint(cast(eigen.eigenvectors, Z.dtype))
    norms = column_norms(vectors)
    clear = _clear_count(Z, squares)
    divisors = np.where(np.arange(len(roots)) < clear, roots, norms)
    divisors = np.where(divisors > 0, divisors, 1.0)
    vectors = vectors / from_host(divisors, vectors)[None, :]
    solution = Components(
        vectors=orthonormal_columns(vectors),
        squares=squares,
        residual_norms=products * inverse,
        scores=cast(eigen.products * from_host(inverse, eigen.products)[None, :], Z.dtype),
        eigen=eigen,
    )
    return _sharpened(Z, solution)


# -- small singular values ---------------------------------------------------------------------------------------------


def _clear_count(Z: RowProducts, squares: np.ndarray) -> int:
    """Return how many eigenvalues of a squared matrix keep at least half of their digits."""
    return int(np.sum(squares > BLURRED[dtype_name(Z.dtype)] * float(squares.max(initial=0.0))))


def _sharpened(Z: RowProducts, solution: Components) -> Components:
    """Recompute the components of small singular values by an SVD of Z V, with V from the squared matrix."""
    clear, p = _clear_count(Z, solution.squares), len(solution.squares)
    if clear == p:
        return solution
    xp = namespace_of(solution.vectors)
    V = xp.asarray(solution.vectors[:, clear:], copy=True)
    T = None if solution.scores is None else Z.times(V)
    _, s, Bt = np.linalg.svd(Z.triangle(V) if T is None else orthonormal_factors(T)[1])
    turn = from_host(Bt.T, V)
    s = np.append(s, np.zeros(V.shape[1] - len(s)))
    V = V @ turn
    T = None if T is None else T @ turn
    products = Z.scatter_times(V) if T is None else Z.adjoint(T)
    V, squares = xp.concat([solution.vectors[:, :clear], V], axis=1), np.append(solution.squares[:clear], s**2)
    return replace(
        solution,
        vectors=V,
        squares=squares,
        residual_norms=np.append(solution.residual_norms[:clear], value_bounds(V, products, squares)),
        scores=None if solution.scores is None else xp.concat([solution.scores[:, :clear], T], axis=1),
    )


# -- components that the largest ones hide ----------------------------------------------------------------------------


def _deflated(Z: CenteredMatrix, request: PairRequest, plan: Plan, tools: SolverTools) -> Components:
    """Return the components of a stage; those that the larger ones hide come from stages without these."""
    stage = STAGES[plan.method]
    solution = stage(Z, request, plan, tools)
    eigen, p = solution.eigen, len(solution.squares)
    count = _resolved_count(solution, 0.0 if solution.spectrum is None else _noise_floor(Z, solution.squares))
    for _ in range(MOST_DEFLATIONS):
        if count == p or (eigen is not None and eigen.has_fixed_passes):
            break
        rest = _deflated_matrix(Z, solution.vectors[:, :count], tools.random)
        if rest is None:
            solution = replace(solution, squares=np.append(solution.squares[:count], np.zeros(p - count)))
            break
        # The state of a checkpoint is that of the first stage.
        more = stage(rest, PairRequest.of_count(p - count), plan, replace(tools, checkpointer=None))
        solution = _joined(Z, solution, count, more)
        before, count = count, _resolved_count(solution)
        if count <= before:
            break
    return solution


def _resolved_count(solution: Components, floor: float = 0.0) -> int:
    """Return how many leading components have residuals that are small beside their own squares, at least one.

    The error of a value is the square of its residual over a gap. Of small ones it is kept at eps σ₁. Values up to
    `floor` of an SVD are its rounding, whatever their residuals.
    """
    squares = solution.squares
    largest = float(squares.max(initial=0.0))
    shares = squares / (largest or 1.0)
    hidden = shares < HIDDEN
    if hidden.any():
        eps = epsilon(solution.vectors)
        kept = np.minimum(RESOLVED, np.sqrt(eps / np.sqrt(np.maximum(shares, eps**2))))
        allowed = np.where(shares <= BLURRED[dtype_name(solution.vectors.dtype)], kept, RESOLVED)
        hidden &= ~(solution.residual_norms <= allowed * squares)
    if solution.spectrum is not None:
        hidden |= squares <= floor
    first = int(np.argmax(hidden))
    return max(1, first) if hidden[first] else len(squares)


def _deflated_matrix(Z: CenteredMatrix, V: Array, random: Randomness) -> DeflatedMatrix | None:
    """Return Z without some axes V (d, k), and its noise; None where products with random directions are rounding."""
    rest = DeflatedMatrix(Z, V)
    directions = rest.project(random_directions(random.generator, (Z.shape[1], PROBES), Z.like))
    rounding = float(np.max(_noise(Z, _sizes(Z, directions))))
    if float(np.max(np.sum(rest.triangle(directions) ** 2, axis=0))) <= rounding:
        return None
    rest.noise = rounding / (NULL_FACTOR * Z.eps)
    return rest


def _joined(Z: CenteredMatrix, solution: Components, count: int, more: Components) -> Components:
    """Return the first `count` components and those of a stage without them, with residuals of products with Z.

    An SVD of Z V for all axes V, which keeps the digits of columns of any size, turns the axes that were known to a few
    digits only.
    """
    xp = namespace_of(solution.vectors)
    first = solution.vectors[:, :count]
    complement = DeflatedMatrix(Z, first).project
    # A feature that only the first axes hold keeps entries of exactly 0 in the others, unless they lie in that space.
    others = complement(orthonormal_columns(complement(more.vectors)))
    V = orthonormal_columns(xp.concat([first, others], axis=1))
    scores = None if solution.scores is None else Z.times(V)
    s, turn = graded_svd(Z.triangle(V) if scores is None else orthonormal_factors(scores)[1])
    V, scores = V @ from_host(turn, V), None if scores is None else scores @ from_host(turn, scores)
    norms = value_bounds(V, Z.scatter_times(V) if scores is None else Z.adjoint(scores), s**2)
    eigen = solution.eigen
    if eigen is not None and more.eigen is not None:
        # Residuals of products in the type of the data, not of a matrix in the widest one.
        tolerance = max(eigen.tolerance, NULL_FACTOR * Z.eps)
        converged = norms <= tolerance * float(s.max(initial=0.0)) ** 2
        passes = eigen.n_passes + more.eigen.n_passes
        eigen = replace(eigen, converged=converged, n_passes=passes)
    return Components(V, s**2, norms, scores=scores, eigen=eigen)


# -- the last steps ----------------------------------------------------------------------------------------------------


def without_noise(Z: CenteredMatrix, solution: Components) -> Components:
    """Set rounding noise to 0 and fix the signs; the spectrum is complete where all components are known."""
    if not (np.isfinite(solution.squares).all() and np.isfinite(solution.residual_norms).all()):
        raise _overflow(Z.dtype)
    floor = _noise_floor(Z, solution.squares)
    # Products with an axis have the rounding of the features that it holds, an SVD that of the whole matrix.
    rounding = _sizes(Z, solution.vectors)
    squares, spectrum = solution.squares, solution.spectrum
    if (below := squares <= floor).any():
        small = squares <= np.minimum(floor, _noise(Z, Z.shape[1] * rounding)) if spectrum is None else below
        # The square of an axis without variance is that of its error, and so is its residual.
        unknown = below & ~(solution.residual_norms <= KNOWN * squares)
        squares = np.where(small | unknown, 0.0, squares)
    norms = solution.residual_norms + 2.0 * Z.eps * np.sqrt(squares * rounding)
    if spectrum is None and len(squares) >= min(Z.shape):
        spectrum = squares[: min(Z.shape)]
    spectrum = None if spectrum is None else np.where(spectrum <= floor, 0.0, spectrum)
    vectors, scores = solution.vectors, solution.scores
    if solution.eigen is None or vectors is not solution.eigen.eigenvectors:  # whose signs the solver has fixed
        sign = signs(vectors)[None, :]
        vectors, scores = vectors * sign, None if scores is None else scores * sign
    if (constant := Z.squares == 0.0).any():  # whose entries of components with variance are rounding
        xp, with_variance = namespace_of(vectors), np.outer(constant, squares > 0.0)
        is_rounding = xp.logical_and(
            from_host(with_variance, vectors) > 0.5, xp.abs(vectors) < math.sqrt(epsilon(vectors))
        )
        vectors = xp.where(is_rounding, xp.zeros_like(vectors), vectors)
    return Components(vectors, squares, norms, spectrum, scores, solution.eigen)


def _noise_floor(Z: CenteredMatrix, squares: np.ndarray) -> float:
    """Return the squared singular value up to which all are rounding noise."""
    if Z.constant.all():
        return max(float(squares.max(initial=0.0)), 0.0)
    return float(_noise(Z, Z.total))


def _sizes(Z: CenteredMatrix, V: Array) -> np.ndarray:
    """Return the sums of squares (b,) of the columns of Z weighted by V (d, b): products err by eps of their roots."""
    sizes = from_host(Z.squares, V, Z.wide)
    return _host(Z.xp.sum(cast(V, Z.wide) ** 2 * sizes[:, None], axis=0))


def _noise(Z: CenteredMatrix, squares: Any) -> Any:
    """Return the squared singular values up to which all are the rounding of products of such size."""
    return (NULL_FACTOR * Z.eps) ** 2 * squares


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
