"""Principal axes of centered rows by the way that was planned; small ones made anew from the data themselves.

A squared matrix holds an eigenvalue λ to an error of eps λ₁, so singular values below √eps σ₁ are lost in it. The axes
that belong to small ones still span their space: Z V of these axes, and an SVD of that, gives them the digits that the
square has lost, as an SVD of Z would.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.algorithms.pca.plan import PCAPlan
from gpukpca.backend import blocking
from gpukpca.backend.linalg import column_norms, inner_products, thin_svd, triangular_inverse
from gpukpca.backend.namespace import cast, dtype_name, from_host, is_sparse, namespace_of, to_host
from gpukpca.backend.orthogonalization import orthonormal_factors
from gpukpca.backend.parallel import single_threaded_blas
from gpukpca.backend.random import random_directions
from gpukpca.covariance.dense import FeatureRows
from gpukpca.covariance.scatter import ScatterOperator
from gpukpca.covariance.sparse import SparseRows
from gpukpca.distributed import ClusterFeatureRows, ClusterRows
from gpukpca.eigen import Checkpointer, Dense, EigenResult, top_eigh
from gpukpca.eigen.residuals import residuals, signs
from gpukpca.exceptions import InvalidParameterError
from gpukpca.gram import DenseGram

EPS = {"float64": float(np.finfo(np.float64).eps), "float32": float(np.finfo(np.float32).eps)}
# Eigenvalues below this share of the largest have lost half of their digits, and are made anew.
BLURRED = {"float64": 1e-6, "float32": 1e-4}
# Eigenvalues up to this many eps of the largest: their vectors are any of the space that is left.
DROWNED = 4.0
# Singular values up to this many eps of the largest are rounding noise.
NULL_FACTOR = 20.0
# Deviations from the mean below this share of its last digit: a constant.
CONSTANT = 1e-2


@dataclass(frozen=True)
class Axes:
    """The leading principal axes, in the units of the centered rows Z.

    Attributes
    ----------
    vectors : array, shape (d, p)
        Orthonormal columns.
    squares : host array, shape (p,)
        Squared singular values, descending; rounding noise is 0.
    spectrum : host array, shape (min(n, d),), or None
        All of them, where they were computed.
    residual_norms : host array, shape (p,)
        ‖ZᵀZ v - σ² v‖.
    scores : array, shape (n, p), or None
        Z v, where it is at hand.
    eigen : EigenResult or None
        What the solver said.
    """

    vectors: Array
    squares: np.ndarray
    residual_norms: np.ndarray
    spectrum: np.ndarray | None = None
    scores: Array | None = None
    eigen: EigenResult | None = None


def rows_for(X: Any, plan: PCAPlan, n_jobs: int | None) -> Any:
    """The rows of X as the method reads them."""
    by_rows = plan.method == "covariance_eigh" or (plan.method != "dual" and not plan.by_samples)
    if plan.method == "full":
        by_rows = plan.n_samples >= plan.n_features
    if isinstance(X, ClusterRows):
        return ClusterFeatureRows(X, by_rows)
    return (SparseRows if is_sparse(X) else FeatureRows)(X, by_rows, n_jobs)


class PrincipalAxes:
    """One fit under way.

    Parameters
    ----------
    Z : FeatureRows, ClusterFeatureRows or SparseRows
        Scaled already.
    plan : PCAPlan
    whole : bool
        Whether all singular values are wanted.
    rng : numpy.random.Generator
    report : callable, optional
        Called after every pass.
    checkpointer : Checkpointer, optional
        Of block Krylov.
    """

    def __init__(
        self,
        Z: Any,
        plan: PCAPlan,
        whole: bool,
        rng: np.random.Generator,
        report: Any = None,
        checkpointer: Checkpointer | None = None,
    ) -> None:
        self.Z, self.plan, self.whole, self.rng, self.report, self.checkpointer = (
            Z,
            plan,
            whole,
            rng,
            report,
            checkpointer,
        )
        self.dtype = dtype_name(Z.dtype)
        self.eps = EPS[self.dtype]
        self.most = min(plan.n_samples, plan.n_features)

    def found(self) -> Axes:
        """The axes, as many as the plan says, or all."""
        way = {"covariance_eigh": self._by_features, "dual": self._by_samples, "full": self._by_svd}
        axes = way.get(self.plan.method, self._by_iteration)()
        if not np.all(np.isfinite(axes.squares)) or not np.all(np.isfinite(axes.residual_norms)):
            raise InvalidParameterError(
                f"overflow: sums of squares of these data do not fit into {self.dtype}. Scale the features."
            )
        return self._without_noise(axes)

    @property
    def _wanted(self) -> int:
        """Pairs that the solver is asked for."""
        return self.most if self.whole else max(1, self.plan.n_components)

    # -- the ways ------------------------------------------------------------------------------------------------------

    def _by_features(self) -> Axes:
        eigen = self._solved(DenseGram(_checked(self.Z.scatter())))
        axes = Axes(
            vectors=cast(eigen.eigenvectors, self.Z.dtype),
            squares=_host(eigen.eigenvalues),
            residual_norms=_host(eigen.residual_norms),
            eigen=eigen,
        )
        return self._sharpened(axes)

    def _by_samples(self) -> Axes:
        G = DenseGram(_checked(self.Z.gram()))
        eigen = self._solved(G)
        R = eigen.products - eigen.eigenvectors * eigen.eigenvalues[None, :]
        # ‖Zᵀr‖² = rᵀ Z Zᵀ r, of r over the largest eigenvalue: the cube of that may overflow.
        largest = float(np.max(_host(eigen.eigenvalues), initial=0.0)) or 1.0
        R = R * (1.0 / largest)
        squares = np.maximum(_host(namespace_of(R).sum(R * (G @ R), axis=0)), 0.0)
        del G
        return self._from_samples(eigen, np.sqrt(squares) * largest)

    def _by_iteration(self) -> Axes:
        self.Z.measure()
        eigen = self._solved(ScatterOperator(self.Z, of_samples=self.plan.by_samples))
        if not self.plan.by_samples:
            squares, norms = _host(eigen.eigenvalues), _host(eigen.residual_norms)
            return self._sharpened(Axes(eigen.eigenvectors, squares, norms, eigen=eigen))
        R = eigen.products - eigen.eigenvectors * eigen.eigenvalues[None, :]
        return self._from_samples(eigen, column_norms(self.Z.adjoint(R)))

    def _by_svd(self) -> Axes:
        if isinstance(self.Z, SparseRows):
            raise InvalidParameterError(
                'svd_solver="full" would fill the zeros of a sparse matrix; use "covariance_eigh", "dual" or '
                '"randomized", or pass X.toarray().'
            )
        if isinstance(self.Z, ClusterFeatureRows):
            return self._by_triangle()
        Z = _checked(self.Z.materialized())
        with single_threaded_blas() if self.most <= blocking.PCA_ONE_THREAD_FOR_ALL else nullcontext():
            U, s, Vt = thin_svd(Z)
        p = self._wanted
        xp = namespace_of(Vt)
        V = xp.asarray(xp.matrix_transpose(Vt[:p, :]), copy=True)
        scores = U[:, :p] * from_host(s[:p], U)[None, :]
        squares = s**2
        norms = residuals(V, self.Z.adjoint(self.Z.times(V)), squares[:p])
        return Axes(V, squares[:p], norms, spectrum=squares, scores=scores)

    def _by_triangle(self) -> Axes:
        """The SVD of R, Z = Q R: rows on a cluster are never brought together."""
        n, d = self.Z.shape
        if n < d:
            raise InvalidParameterError(
                f'svd_solver="full" on a cluster needs as many samples as features, and there are {n} and {d}; use '
                '"dual".'
            )
        _, s, Vt = thin_svd(_checked(self.Z.triangle(np.eye(d))))
        squares = s**2
        V = cast(Vt[: self._wanted, :].T.copy(), self.Z.dtype)
        norms = residuals(V, self.Z.scatter_times(V), squares[: V.shape[1]])
        return Axes(V, squares[: V.shape[1]], norms, spectrum=squares)

    def _solved(self, op: Any) -> EigenResult:
        n, p = op.shape[0], min(self._wanted, op.shape[0])
        few = blocking.PCA_ONE_THREAD_FOR_ALL if p == n else blocking.PCA_ONE_THREAD_UP_TO
        alone = isinstance(self.plan.solver, Dense) and n <= few
        with single_threaded_blas() if alone else nullcontext():
            eigen = top_eigh(
                op, p, solver=self.plan.solver, rng=self.rng, report=self.report, checkpointer=self.checkpointer
            )
        most = self.most if self.plan.method == "dual" else n
        if p < most and isinstance(self.plan.solver, Dense) and self._drowned(eigen):
            # Which of the vectors without digits belong to the small singular values, the data themselves must say.
            self.whole = True
            return top_eigh(op, most, solver=self.plan.solver, rng=self.rng)
        return eigen

    def _drowned(self, eigen: EigenResult) -> bool:
        """Whether the last of the eigenvalues wanted is within the rounding of the matrix."""
        values = _host(eigen.eigenvalues)
        return bool(values[-1] <= DROWNED * self.eps * max(float(values[0]), 0.0))

    # -- from eigenvectors of the samples to axes ----------------------------------------------------------------------

    def _from_samples(self, eigen: EigenResult, products: np.ndarray) -> Axes:
        """v = Zᵀu / σ; `products` are the norms ‖Zᵀ(Z Zᵀu - σ²u)‖."""
        squares = np.maximum(_host(eigen.eigenvalues), 0.0)
        roots = np.sqrt(squares)
        inverse = np.divide(1.0, roots, out=np.zeros_like(roots), where=roots > 0)
        vectors = self.Z.adjoint(cast(eigen.eigenvectors, self.Z.dtype))
        norms = column_norms(vectors)
        clear = self._clear(squares)
        divisors = np.where(np.arange(len(roots)) < clear, roots, norms)
        divisors = np.where(divisors > 0, divisors, 1.0)
        vectors = vectors / from_host(divisors, vectors)[None, :]
        axes = Axes(
            vectors=self._orthonormal(vectors, norms, clear, float(np.max(roots, initial=0.0))),
            squares=squares,
            residual_norms=products * inverse,
            scores=cast(eigen.products * from_host(inverse, eigen.products)[None, :], self.Z.dtype),
            eigen=eigen,
        )
        return self._sharpened(axes)

    def _orthonormal(self, V: Array, norms: np.ndarray, clear: int, largest: float) -> Array:
        """Return orthonormal columns near the unit columns V; random ones take the place of those that are rounding.

        A division by σ multiplies the rounding of Zᵀu, which lies along the first axes, by σ₁/σ. The triangular factor
        removes from every axis what it has of those before it.
        """
        xp, count = namespace_of(V), int(V.shape[1])
        first, others = V[:, :clear], V[:, clear:]
        L = np.linalg.cholesky(inner_products(first, first))
        first = first @ from_host(triangular_inverse(L).T, V)
        if clear == count:
            return first
        lost = norms[clear:] <= self.eps * largest
        if np.any(lost):
            random = random_directions(self.rng, tuple(others.shape), V) * V.shape[0] ** -0.5
            keep = from_host(np.where(lost, 0.0, 1.0), V)[None, :]
            others = others * keep + random * (1.0 - keep)
        # Householder's vectors are orthogonal to the first ones even where nothing but rounding is left of the others.
        Q, _ = xp.linalg.qr(xp.concat([first, others], axis=1), mode="reduced")
        return xp.concat([first, Q[:, clear:]], axis=1)

    # -- small singular values -----------------------------------------------------------------------------------------

    def _clear(self, squares: np.ndarray) -> int:
        """How many eigenvalues of a squared matrix have their digits."""
        return int(np.sum(squares > BLURRED[self.dtype] * float(np.max(squares, initial=0.0))))

    def _sharpened(self, axes: Axes) -> Axes:
        """The axes of small singular values from Z itself: an SVD of Z V, V those of the squared matrix."""
        clear, p = self._clear(axes.squares), len(axes.squares)
        if clear == p:
            return axes
        xp = namespace_of(axes.vectors)
        V = xp.asarray(axes.vectors[:, clear:], copy=True)
        held = axes.scores is not None or not hasattr(self.Z, "triangle")
        T = self.Z.times(V) if held else None
        R = orthonormal_factors(T)[1] if held else self.Z.triangle(V)
        _, s, Bt = np.linalg.svd(R)
        turn = from_host(Bt.T, V)
        s = np.append(s, np.zeros(V.shape[1] - len(s)))
        V = V @ turn
        T = None if T is None else T @ turn
        norms = residuals(V, self.Z.adjoint(T) if held else self.Z.scatter_times(V), s**2)
        return replace(
            axes,
            vectors=xp.concat([axes.vectors[:, :clear], V], axis=1),
            squares=np.append(axes.squares[:clear], s**2),
            residual_norms=np.append(axes.residual_norms[:clear], norms),
            scores=None if axes.scores is None else xp.concat([axes.scores[:, :clear], T], axis=1),
        )

    # -- the last steps ------------------------------------------------------------------------------------------------

    def _without_noise(self, axes: Axes) -> Axes:
        """Rounding noise set to 0, signs fixed, the spectrum completed where all of it was computed."""
        floor = self._floor(axes.squares)
        squares = np.where(axes.squares <= floor, 0.0, axes.squares)
        spectrum = axes.spectrum
        if spectrum is None and self.whole:
            spectrum = np.append(squares, np.zeros(self.most))[: self.most]
        sign = signs(axes.vectors)[None, :]
        return replace(
            axes,
            vectors=axes.vectors * sign,
            squares=squares,
            spectrum=None if spectrum is None else np.where(spectrum <= floor, 0.0, spectrum),
            scores=None if axes.scores is None else axes.scores * sign,
        )

    def _floor(self, squares: np.ndarray) -> float:
        """Squared singular values up to here are rounding noise."""
        largest = float(np.max(squares, initial=0.0))
        if self.Z.total <= CONSTANT * self.eps**2 * self.Z.size:
            return max(largest, 0.0)
        return (NULL_FACTOR * self.eps) ** 2 * self.Z.total


def _checked(A: Array) -> Array:
    """A matrix without infinity."""
    xp = namespace_of(A)
    if not bool(xp.all(xp.isfinite(A))):
        raise InvalidParameterError(
            f"overflow: sums of squares of these data do not fit into {dtype_name(A.dtype)}. Scale the features."
        )
    return A


def _host(values: Array) -> np.ndarray:
    return to_host(values).astype(np.float64)
