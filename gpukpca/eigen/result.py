"""The result of every solver."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gpukpca._typing import Array, SymmetricOperator
from gpukpca.backend.namespace import dtype_name, epsilon, from_host, to_host
from gpukpca.data.scale import LARGEST
from gpukpca.eigen.residuals import (
    NULL_FACTOR,
    default_tolerance,
    entry_rounding,
    operator_size,
    residual_lengths,
    signs,
)
from gpukpca.exceptions import InvalidParameterError


def without_rounding(eigenvalues: np.ndarray, threshold: float) -> tuple[np.ndarray, float]:
    """Return the eigenvalues with 0 for those up to a threshold of noise, and the sum of the positive ones of these."""
    is_noise = np.abs(eigenvalues) <= threshold
    if not is_noise.any():
        return eigenvalues, 0.0
    return np.where(is_noise, 0.0, eigenvalues), float(np.sum(np.maximum(eigenvalues[is_noise], 0.0)))


@dataclass(frozen=True, kw_only=True)
class EigenResult:
    """The largest eigenpairs of a symmetric operator, each with its residual.

    Attributes
    ----------
    eigenvalues : array, shape (p,)
        Descending by value (not by modulus), in the units of the operator. Values within rounding of zero are
        exactly 0.
    eigenvectors : array, shape (n, p)
        Orthonormal columns; the entry of largest modulus is positive.
    products : array, shape (n, p)
        ``op @ eigenvectors``, as the operator gave it.
    residual_norms : array, shape (p,)
        ``||op u - lambda u||_2`` of the computed products, plus `rounding`: each eigenvalue lies within its residual
        of a true one.
    converged : array of bool, shape (p,), on the host
        Residual at most `tolerance` times the largest eigenvalue.
    tolerance : float
        Judges `converged`, relative to the largest eigenvalue: the tolerance of the solver, or, where a residual
        exceeds that and rounding allows no less, the residual that rounding allows.
    next_eigenvalue : float or None
        Eigenvalue p + 1: exact from `Dense`, a lower bound from `BlockKrylov`, an upper bound from Nyström, None where
        it is not known.
    null_threshold : float
        Eigenvalues of at most this modulus count as rounding noise.
    n_passes : int
        Products of the operator with a block.
    n_products : int
        Columns multiplied in all passes.
    solver : str
        The solver that ran, and why if another one was requested.
    smallest_seen : float
        The smallest eigenvalue (`Dense` with the full spectrum) or an upper bound on it.
    spectrum : array of shape (n,) on the host, or None
        All eigenvalues, ascending, where the solver computed them.
    dropped : float
        The sum of the eigenvalues that were computed above 0 and count as noise.
    rounding : float
        The share of the residuals that stands for the rounding of the operator's entries.
    seconds : float
        Wall time of the solution, products included.
    fallbacks : tuple of str
        What failed on a device before this way was taken, in order.
    requested_tolerance : float
        The tolerance of the solver.
    has_fixed_passes : bool
        The solver made a fixed number of passes, for any residuals.
    twin_residual : float or None
        The largest residual that the twin of the operator left, over the largest eigenvalue, as the operator itself
        measured it; infinite where the twin failed, None without one.

    See Also
    --------
    top_eigh : Returns it.

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca.eigen import top_eigh
    >>> from gpukpca.gram import DenseGram
    >>> result = top_eigh(DenseGram(np.diag([3.0, 1.0, 2.0])), 2)
    >>> result.eigenvalues.round(6), result.eigenvectors.shape, result.solver
    (array([3., 2.]), (3, 2), 'dense')
    >>> bool(result.residual_norms.max() < 1e-12)
    True
    """

    eigenvalues: Array
    eigenvectors: Array
    products: Array
    residual_norms: Array
    converged: np.ndarray
    tolerance: float
    next_eigenvalue: float | None
    null_threshold: float
    n_passes: int
    n_products: int
    solver: str
    smallest_seen: float
    spectrum: np.ndarray | None = field(default=None, repr=False)
    dropped: float = 0.0
    rounding: float = 0.0
    seconds: float = 0.0
    fallbacks: tuple[str, ...] = ()
    requested_tolerance: float = 0.0
    has_fixed_passes: bool = False
    twin_residual: float | None = None

    @classmethod
    def of(
        cls,
        op: SymmetricOperator,
        eigenvalues: Array,
        U: Array,
        W: Array,
        *,
        tolerance: float = 0.0,
        next_eigenvalue: float | None = None,
        smallest_seen: float | None = None,
        **run: Any,
    ) -> EigenResult:
        """Return the result of a solver: residuals, rank decision and signs follow from the products.

        Parameters
        ----------
        op : SymmetricOperator
        eigenvalues : array, shape (p,)
            Descending.
        U : array, shape (n, p)
            The eigenvectors, orthonormal columns of either sign.
        W : array, shape (n, p)
            ``op @ U``.
        tolerance : float
            The residual that the solver stops at, relative to the largest eigenvalue; 0 is the default of the dtype
            (1e-8 in float64, 1e-5 in float32).
        next_eigenvalue, smallest_seen : float, optional
            The attributes. By default eigenvalue p + 1 is not known, and the last eigenvalue is the smallest seen.
        **run
            Other attributes: `n_passes`, `n_products`, `solver`, and optional ones.

        Raises
        ------
        InvalidParameterError
            An eigenvalue or a product overflows.
        """
        eigenvalues = to_host(eigenvalues).astype(np.float64)
        tolerance = tolerance or default_tolerance(U.dtype)
        smallest = float(eigenvalues[-1]) if smallest_seen is None else smallest_seen
        threshold = NULL_FACTOR * epsilon(U) * max(operator_size(op, eigenvalues), abs(smallest))
        eigenvalues, dropped = without_rounding(eigenvalues, threshold)
        largest = float(np.abs(eigenvalues).max(initial=0.0))
        rounding = entry_rounding(op, max(largest, -smallest))
        norms = residual_lengths(U, W, eigenvalues) + rounding
        if not (largest <= LARGEST[dtype_name(U.dtype)] and np.isfinite(norms).all()):
            raise InvalidParameterError(
                f"overflow: the eigenvalues, up to {np.max(np.abs(eigenvalues)):.3g}, or products with the matrix do "
                f"not fit into {dtype_name(U.dtype)}. Divide the matrix by a constant, or pass float64."
            )
        sign = signs(U)[None, :]
        norms = to_host(from_host(norms, U)).astype(np.float64)  # as published
        used, allowed = tolerance, threshold + 2.0 * rounding  # the residual that rounding lets every pair reach
        if largest > 0 and (norms > tolerance * largest).any():
            used = max(tolerance, allowed / largest)
        if next_eigenvalue is not None and abs(next_eigenvalue) <= threshold:
            next_eigenvalue = 0.0
        return cls(
            eigenvalues=from_host(eigenvalues, U),
            eigenvectors=U * sign,
            products=W * sign,
            residual_norms=from_host(norms, U),
            converged=norms <= (used * largest if largest > 0 else allowed),
            tolerance=used,
            dropped=dropped,
            rounding=rounding,
            next_eigenvalue=next_eigenvalue,
            null_threshold=threshold,
            smallest_seen=smallest,
            requested_tolerance=tolerance,
            **run,
        )

    @property
    def gap(self) -> float | None:
        """Return eigenvalue p minus eigenvalue p + 1; where it is small, the two are not separately determined.

        None where eigenvalue p + 1 is not known, or is known by an upper bound above eigenvalue p.
        """
        if self.next_eigenvalue is None or self.eigenvalues.shape[0] == 0:
            return None
        gap = float(self.eigenvalues[-1]) - self.next_eigenvalue
        return gap if gap >= 0.0 else None

    def signed_by(self, U: Array) -> EigenResult:
        """Return the result with signs that make the entries of largest modulus of U (n, p) positive."""
        sign = signs(U)[None, :]
        return replace(self, eigenvectors=self.eigenvectors * sign, products=self.products * sign)

    def truncated(self, keep: int) -> EigenResult:
        """Return the result with the first `keep` pairs only."""
        if keep == self.eigenvalues.shape[0]:
            return self
        return replace(
            self,
            eigenvalues=self.eigenvalues[:keep],
            eigenvectors=self.eigenvectors[:, :keep],
            products=self.products[:, :keep],
            residual_norms=self.residual_norms[:keep],
            converged=self.converged[:keep],
            next_eigenvalue=float(self.eigenvalues[keep]),
        )
