"""The features of landmarks, by panels: F with K ≈ F Fᵀ, which is multiplied and never stored."""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Self

import numpy as np

from gpukpca._typing import Array, SymmetricOperator
from gpukpca.backend import blocking
from gpukpca.backend.device import is_on_gpu
from gpukpca.backend.linalg import column_sums, inner_products, triangular_inverse
from gpukpca.backend.namespace import cast, concat, empty_like, from_host, full, to_host
from gpukpca.backend.parallel import row_slices
from gpukpca.data.rows import along, fold, joined
from gpukpca.data.slicing import gather_rows, place_of, take_columns, take_rows
from gpukpca.eigen import landmark_cholesky
from gpukpca.gram import BasePointGram, DenseGram
from gpukpca.gram.product import compute_tile, prepared_matmat
from gpukpca.kernels import Kernel, Precomputed
from gpukpca.kernels.prepared import PreparedRows


@dataclass(frozen=True, eq=False)
class WeightedFeatures:
    """The features f(x) = k(x, basis) M - b of Nyström, up to a constant row, which centering removes.

    Attributes
    ----------
    kernel : Kernel
    basis : array (m, d)
        The landmarks; of a precomputed kernel their rows of K.
    rows : PreparedRows or None
        The same prepared for the kernel; None of a precomputed one.
    weights : array (m, r)
        M. Its columns sum to zero where the rows are prepared for centering.
    offset : array (r,)
        b, the mean of the landmarks: centered features have no digits of a large constant to lose.
    landmarks : host array of int, or None
        The columns of a precomputed K.
    noise : float
        By how much f(s)ᵀf(s) differs from k(s, s) at most, which is rounding.
    """

    kernel: Kernel
    basis: Any
    rows: PreparedRows | None
    weights: Array
    offset: Array
    landmarks: np.ndarray | None
    noise: float

    @classmethod
    def of_rows(cls, kernel: Kernel, X: Any, landmarks: np.ndarray, template: PreparedRows | None) -> Self:
        """Return the features of landmarks that are rows of X; see `of_basis`."""
        return cls.of_basis(kernel, gather_rows(X, landmarks), template, landmarks)

    @classmethod
    def of_basis(
        cls, kernel: Kernel, basis: Any, template: PreparedRows | None, landmarks: np.ndarray | None = None
    ) -> Self:
        """Return the features of landmarks, with M = L⁻ᵀ for K(S, S) = L Lᵀ, without dependent ones.

        With rows prepared for centering K is relative to the last landmark, the base point; see `BasePointGram`. Of a
        precomputed kernel the landmarks are rows of K, and their numbers are needed.
        """
        rows, rounding = None, 1.0
        if isinstance(kernel, Precomputed):
            K = take_columns(basis, landmarks)
        else:
            rows = kernel.prepare(basis, like=template, centered=True)
            K = compute_tile(kernel, rows, rows, empty_like(place_of(basis)), diagonal=True)
            rounding = kernel.rounding(rows if template is None else template)
        op: SymmetricOperator = DenseGram(K, rounding=rounding)
        op.positive_definite = kernel.positive_definite
        if rows is not None and rows.shifted:
            op = BasePointGram(op, op.shape[0] - 1)
        return cls._measured(kernel, basis, rows, landmarks, op, _inverse_root(op))

    @classmethod
    def of_weights(cls, kernel: Kernel, basis: Any, template: PreparedRows | None, weights: np.ndarray) -> Self:
        """Return the features of points and given weights M (m, r), such as those of another library."""
        rows = kernel.prepare(basis) if template is None else kernel.prepare(basis, like=template)
        op = DenseGram(compute_tile(kernel, rows, rows, empty_like(place_of(basis)), diagonal=True))
        return cls._measured(kernel, basis, rows, None, op, weights)

    @classmethod
    def _measured(
        cls,
        kernel: Kernel,
        basis: Any,
        rows: PreparedRows | None,
        landmarks: np.ndarray | None,
        op: SymmetricOperator,
        weights: np.ndarray,
    ) -> Self:
        """Return the features with offset and noise; `op` is K of the landmarks, relative to a base point if any."""
        M = from_host(weights, place_of(basis))
        found = cls(kernel, basis, rows, M, full((int(M.shape[1]),), 0.0, M), landmarks, 0.0)
        F = to_host(_features(basis, *found._parts(1))).astype(np.float64)
        offset = from_host(np.mean(F, axis=0), M)
        if isinstance(op, BasePointGram):
            F = F - F[op.anchor]
        left = to_host(op.diagonal()).astype(np.float64) - np.sum(F * F, axis=1)
        return replace(found, offset=offset, noise=float(np.max(np.abs(left), initial=0.0)))

    @property
    def rank(self) -> int:
        """Return the number r of features."""
        return int(self.weights.shape[1])

    def _parts(self, n_jobs: int | None) -> tuple[Any, ...]:
        """Return what `_features` takes in addition to rows; workers of a cluster move each part to their device."""
        columns = self.landmarks if isinstance(self.kernel, Precomputed) else None
        return self.kernel, self.basis, self.rows, self.weights, self.offset, columns, n_jobs

    def gram_and_products(self, X: Any, V: Array, n_jobs: int | None) -> tuple[np.ndarray, np.ndarray]:
        """Return FᵀF (r, r) and FᵀV (r, b) of all rows of X with F centered, on the host in float64; one sweep."""
        P, r = self._swept(X, V, True, n_jobs), self.rank
        return (P[:, :r] + P[:, :r].T) / 2.0, P[:, r:]

    def products(self, X: Any, V: Array, n_jobs: int | None) -> np.ndarray:
        """Return FᵀV (r, b) of all rows of X with F centered, on the host in float64."""
        return self._swept(X, V, False, n_jobs)

    def _swept(self, X: Any, V: Array, has_gram: bool, n_jobs: int | None) -> np.ndarray:
        """Return Fᵀ [F, V], or FᵀV, with F centered; a constant row of F changes nothing."""
        n = int(X.shape[0])
        P = fold(X, _with_block, along(X, V), has_gram, *self._parts(n_jobs))
        sums, others = P[:, 0], to_host(column_sums(V)).astype(np.float64)
        means = np.concatenate([sums, others] if has_gram else [others]) / n
        return np.asarray(P[:, 1:] - np.outer(sums, means))

    def times(self, X: Any, S: np.ndarray, n_jobs: int | None) -> Array:
        """Return F S for all rows of X and a small host matrix (r, b), with F centered."""
        like = place_of(X)
        product = joined(X, _times, from_host(S, like), *self._parts(n_jobs))
        return product - cast(column_sums(product) / int(X.shape[0]), product.dtype)[None, :]


def _inverse_root(op: SymmetricOperator) -> np.ndarray:
    """Return M on the host with Mᵀ K M = I; rows are 0 for what depends on others to rounding.

    Relative to a base point, the last one, the rows of M sum to zero.
    """
    m = op.shape[0]
    has_base = isinstance(op, BasePointGram)
    factor = landmark_cholesky(op, np.arange(m - has_base))
    M = np.zeros((m, factor.rank))
    M[factor.pivots] = triangular_inverse(factor.pivot_factor).T
    if has_base:
        M[-1] = -M.sum(axis=0)
    return M


def _features(
    rows: Any,
    kernel: Kernel,
    basis: Any,
    prepared: PreparedRows | None,
    weights: Array,
    offset: Array,
    columns: np.ndarray | None,
    n_jobs: int | None,
) -> Array:
    """Return the features of some rows, (rows, r)."""
    if columns is not None:
        return take_columns(rows, columns) @ weights - offset[None, :]
    return prepared_matmat(kernel, rows, basis, prepared, weights, n_jobs=n_jobs) - offset[None, :]


def _panels(X: Any, weights: Array) -> list[tuple[int, int]]:
    """Return panels of rows whose features, and kernel values with the landmarks, stay small."""
    entries = blocking.PANEL_ENTRIES.on(is_on_gpu(weights))
    return row_slices(int(X.shape[0]), max(1, entries // max(1, int(weights.shape[0])))) or [(0, 0)]


def _with_block(X: Any, V: Array, has_gram: bool, *parts: Any) -> np.ndarray:
    """Return Fᵀ [1, F, V], or Fᵀ [1, V], of rows X, not centered, on the host in float64."""

    def product(start: int, stop: int) -> np.ndarray:
        F, block = _features(take_rows(X, start, stop), *parts), V[start:stop, :]
        block = cast(block, F.dtype)
        blocks = [full((int(F.shape[0]), 1), 1.0, F), *([F] if has_gram else []), block]
        return inner_products(F, concat(blocks, axis=1))

    return reduce(operator.add, (product(*bounds) for bounds in _panels(X, parts[3])))


def _times(X: Any, S: Array, *parts: Any) -> Array:
    """Return F S of rows X."""
    return concat([_features(take_rows(X, *bounds), *parts) @ S for bounds in _panels(X, parts[3])], axis=0)
