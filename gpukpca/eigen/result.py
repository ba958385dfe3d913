"""The result of every solver."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from gpukpca._typing import Array


@dataclass(frozen=True)
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
        Eigenvalue p + 1: exact from `Dense`, a lower bound from `BlockKrylov`, None where it is not known.
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
    rounding: float = 0.0
    seconds: float = 0.0
    fallbacks: tuple[str, ...] = ()
    requested_tolerance: float = 0.0
    has_fixed_passes: bool = False

    @property
    def gap(self) -> float | None:
        """Return eigenvalue p minus eigenvalue p + 1; where it is small, the two are not separately determined."""
        if self.next_eigenvalue is None or self.eigenvalues.shape[0] == 0:
            return None
        return float(self.eigenvalues[-1]) - self.next_eigenvalue

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
