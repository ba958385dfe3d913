"""The end of the passes over a twin: the operator verifies its Ritz vectors, and its basis guides their corrections."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend.linalg import ritz_pairs
from gpukpca.backend.namespace import cast, from_host
from gpukpca.data.column_basis import ColumnBasis
from gpukpca.eigen.krylov_state import KrylovState, KrylovTask, Phase

# Passes over a twin after it has converged: one turns three passes over the operator itself into two.
PASSES_AFTER_TWIN = 1
# Where a spectrum decays so fast that so many passes leave this residual, the operator itself is as fast.
FAST_PASSES, FAST_RESIDUAL = 3, 1e-5
# Ritz values of the twin this near to one of the operator, relative to the largest, are not told apart from it.
NEAR = 1e-5


def judged_on_twin(state: KrylovState, has_converged: bool, is_share: bool) -> tuple[KrylovState, bool]:
    """Return the state after a pass on a twin that was checked, and whether its Ritz vectors are handed over."""
    if state.n_passes <= FAST_PASSES:
        return state, has_converged or (not is_share and state.residual is not None and state.residual < FAST_RESIDUAL)
    if has_converged and state.stagnant < PASSES_AFTER_TWIN:
        return state.updated(stagnant=state.stagnant + 1, next_check=state.n_passes + 1), False
    return state, has_converged


def handed_over(task: KrylovTask, state: KrylovState) -> KrylovState:
    """Return the state before the verification of the Ritz vectors of the twin by the operator itself.

    The exponent stays: without it products of another scale would count as converged.
    """
    last = state.Q.count - 1
    theta, S, _ = ritz_pairs(state.T, last + 1, task.op.like)
    # The last Ritz vector too: a negative value may be rounding of the twin, and its product with the operator is not.
    kept = [*range(min(state.p + state.b, last)), last]
    task.op.twin = None
    empty = partial(ColumnBasis.with_capacity, task.op.shape[0], task.max_columns, task.op.like)
    Q, W = (empty().append(cast(basis.combine(S[:, kept]), task.op.dtype)) for basis in (state.Q, state.W))
    return state.updated(
        phase=Phase.VERIFY,
        limit=task.limit,
        tol=task.tol,
        Q=Q,
        W=W,
        T=np.diag(theta[kept]),
        coupled=None,
        block=None,
        product=None,
        smallest=0.0,
        stagnant=0,
        probe_until=0,
        distance=-math.log(task.tol),
        last_check=0,
        next_check=0,
        first_check=0,
        on_twin=False,
        twin_passes=state.n_passes,
        guide=state.Q,
        guide_T=state.T,
    )


def corrected(state: KrylovState, R: Array, theta: np.ndarray) -> Array:
    """Return θ₁ (θ_i - K̃)⁻¹ r_i for the residuals R (n, m) of Ritz values θ: Davidson's corrections.

    K̃ is the twin on its basis, and 0 outside. Components of r_i along other eigenvectors, which a product with K damps
    by the ratio of the eigenvalues alone, vanish to the accuracy of the twin (Davidson, J. Comput. Phys. 17 (1975) 87).
    """
    guide, T = state.guide, state.guide_T
    if guide is None or T is None or theta[0] <= 0.0:
        return R
    values, S = np.linalg.eigh(T)
    values, theta = values[:, None], theta[None, : R.shape[1]]
    inverse = 1.0 / np.where(theta > NEAR * theta[0, 0], theta, np.inf)  # outside of the basis
    gaps, near = theta - values, max(NEAR, state.twin_residual or 0.0) * float(theta[0, 0])
    # Of values too near for the twin, the residual is what a product adds to the basis.
    divided = np.where(np.abs(gaps) > near, 1.0 / np.where(gaps == 0.0, 1.0, gaps), inverse)
    components = S.T @ guide.products_with(cast(R, guide.array.dtype))
    inside = cast(guide.combine(S @ (components * (divided - inverse))), R.dtype)
    return (R * from_host(inverse[0], R)[None, :] + inside) * float(theta[0, 0])
