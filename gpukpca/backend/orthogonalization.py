"""Orthonormal columns: by Householder on a CPU, by matrix products on a device, where Householder's panels are slow."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from gpukpca._typing import Array
from gpukpca.backend.device import is_on_gpu
from gpukpca.backend.linalg import column_norms, inner_products, times_small, triangular_inverse
from gpukpca.backend.namespace import dtype_name, epsilon, from_host, is_numpy, namespace_of, to_host
from gpukpca.exceptions import DeviceFallbackWarning, warn_user

# The SVD of LAPACK and its workspace, by the letter of a type of NumPy.
GESDD = {
    "f": (scipy.linalg.lapack.sgesdd, scipy.linalg.lapack.sgesdd_lwork),
    "d": (scipy.linalg.lapack.dgesdd, scipy.linalg.lapack.dgesdd_lwork),
}
# The Gram matrices are float64 on every device that has it.
UNIT_ROUNDOFF = 1.1e-16
# The factor of the shift with which Cholesky succeeds for any condition.
SHIFT = 11.0
# The shifted step removes directions that were rounding noise; those with a smaller share than this are dropped.
NOTHING_LEFT = 1e-13
# Squares of singular values with a smaller share of the largest one lack digits in the Gram matrix.
SHOWN_BY_GRAM = 1e-12
# Columns are orthonormal where their inner products differ from those of I by at most so many eps.
ORTHONORMAL = 20.0
# Below this bound on the distance of a Gram matrix from I, Cholesky orthonormalizes to rounding.
NEARLY = 0.5
# Between these, columns and their reciprocals are ordinary numbers of the type, and so are their squares in float64.
SAFE_SQUARES = {"float32": (1e-60, 1e60), "float64": (1e-200, 1e200)}


def orthonormal_factors(V: Array, least: int = 0) -> tuple[Array, np.ndarray]:
    """Return Q (n, r) with orthonormal columns, and R (r, b) in float64 on the host, with V = Q R for a tall V (n, b).

    r is b, or less where columns of V depend on each other and the block is on a device; never less than `least`.
    """
    if is_on_gpu(V):
        Q, R = shifted_cholesky_qr(V)
        if len(R) >= least:
            return Q, R
    return _householder(V)


def _householder(V: Array) -> tuple[Array, np.ndarray]:
    """Return Q and R by the library of V, or by LAPACK where a device refuses V or gives NaN."""
    if is_numpy(V):
        Q, R = np.linalg.qr(V)
        return Q, R.astype(np.float64)
    try:
        Q, R = namespace_of(V).linalg.qr(V, mode="reduced")
        if np.isfinite(R := to_host(R)).all():
            return Q, R.astype(np.float64)
        why = "NaN or infinity"
    except RuntimeError as error:  # of cuSOLVER, whose sizes are 32-bit integers
        why = str(error)
    Q, R = np.linalg.qr(to_host(V))
    warn_user(f"the QR factorization of the device failed ({why}); LAPACK took its place.", DeviceFallbackWarning)
    return from_host(Q, V), R.astype(np.float64)


def thin_svd(A: Array) -> tuple[Array, np.ndarray, Array]:
    """Return U (n, k), the singular values on the host in float64, and Vᵀ (k, d), k = min(n, d).

    NumPy arrays go to LAPACK's gesdd in their own precision, without the checks of SciPy's `svd`, which take as long as
    a small problem. Of other arrays it gets the triangular factor: `cupy.linalg.svd` is a 32-bit gesvd whose report is
    ignored. Raise LinAlgError where LAPACK fails.
    """
    if is_numpy(A):
        if A.size >= 2**31:
            raise np.linalg.LinAlgError(f"the SVD of LAPACK takes fewer than 2**31 entries, not {A.size}")
        gesdd, gesdd_lwork = GESDD[A.dtype.char]
        size, _ = gesdd_lwork(*A.shape, full_matrices=False)
        # In float32 the size may be rounded down.
        U, s, Vt, failure = gesdd(A, full_matrices=False, lwork=int(size * (1.0 + 2.0**-20)))
        if failure:
            raise np.linalg.LinAlgError("the SVD did not converge")
        return U, s.astype(np.float64), Vt
    tall = A if A.shape[0] >= A.shape[1] else A.T
    Q, R = orthonormal_factors(tall, least=int(tall.shape[1]))
    U, s, Vt = thin_svd(R)
    U, Vt = Q @ from_host(U, Q), from_host(Vt, Q)
    return (U, s, Vt) if tall is A else (Vt.T, s, U.T)


def triangular_factor(V: Array) -> np.ndarray:
    """Return R of `orthonormal_factors` alone, which takes NumPy a quarter of the time; of few rows on the host."""
    V = to_host(V) if V.shape[0] < V.shape[1] else V
    if is_numpy(V):
        return np.asarray(np.linalg.qr(V, mode="r"), dtype=np.float64)
    return orthonormal_factors(V)[1]


def joined_triangle(R: np.ndarray, S: np.ndarray) -> np.ndarray:
    """Return R of two triangular factors on the host, one above the other."""
    return np.asarray(np.linalg.qr(np.concatenate([R, S]), mode="r"))


def orthonormal_columns(V: Array) -> Array:
    """Return V (n, p), p <= n, if its columns are orthonormal; else p orthonormal columns whose span holds that of V.

    That VᵀV differs from I by some 20 eps at most is a postcondition for any V, also of dependent columns or zeros. The
    first k columns span those of V for every k, with their signs.
    """
    gram = inner_products(V, V)
    if np.max(np.abs(gram - np.eye(len(gram))), initial=0.0) <= ORTHONORMAL * epsilon(V):
        return V
    if (factor := orthonormalizing_factor(gram)) is not None:
        return V @ from_host(factor, V)
    # Householder's vectors keep the order of the columns, also on a device, and are orthonormal for any rank.
    Q, R = _householder(V)
    return Q * from_host(np.where(np.diagonal(R) < 0.0, -1.0, 1.0), Q)[None, :]


def orthonormalizing_factor(gram: np.ndarray) -> np.ndarray | None:
    """Return R with V R orthonormal, given VᵀV (p, p); None where rounding may dominate columns of V R."""
    if not len(gram) * np.max(np.abs(gram - np.eye(len(gram))), initial=0.0) < NEARLY:  # nor of NaN
        return None
    return triangular_inverse(np.linalg.cholesky(gram)).T


def orthonormal_directions(V: Array, floor: float) -> Array | None:
    """Return an orthonormal basis of the directions of V with singular values above `floor`; None where none is left.

    A singular value within rounding of the largest one counts as 0.
    """
    if V.shape[1] > V.shape[0]:
        V = V[:, : V.shape[0]]
    Q, R = orthonormal_factors(V)
    try:
        left, sizes, _ = np.linalg.svd(R, full_matrices=False)
    except np.linalg.LinAlgError:  # gesdd fails on rare matrices, once in 10 000 fits, whose transposes it takes
        _, sizes, right = np.linalg.svd(R.T, full_matrices=False)
        left = right.T
    rank = int(np.sum(sizes > max(floor, 10.0 * epsilon(V) * float(sizes.max(initial=0.0)))))
    if rank == 0:
        return None
    if rank == V.shape[1] and floor == 0.0:
        return Q
    return Q @ from_host(left[:, :rank], Q)


def directions_by_gram(V: Array, gram: np.ndarray, floor: float) -> Array | None:
    """Return a basis of the span of V (n, b), orthonormal to some digits, from the Gram matrix (b, b) of its columns.

    None where singular values of V may be at most `floor`, or are too small for the Gram matrix to show them.
    """
    w, Z = np.linalg.eigh(gram)
    if not w[0] > max(floor * floor, SHOWN_BY_GRAM * w[-1]):
        return None
    return times_small(V, Z / np.sqrt(w))


def shifted_cholesky_qr(V: Array) -> tuple[Array, np.ndarray]:
    """Return the same as `orthonormal_factors`, by three Gram matrices and three products, for any condition of V.

    The shift in the first factor brings the condition below 1e8. The eigenvectors of the second Gram matrix show the
    rank and orthonormalize the block to some digits; a last factor restores the others.

    Fukaya, Kannan, Nakatsukasa, Yamamoto & Yanagisawa, SIAM J. Sci. Comput. 42 (2020) A477 (shifted CholeskyQR3);
    Stathopoulos & Wu, SIAM J. Sci. Comput. 23 (2002) 2165 (the step by eigenvectors).
    """
    n, b = V.shape
    V, G, norms, divisors = _normalized_gram(V)
    shift = SHIFT * UNIT_ROUNDOFF * (n * b + b * (b + 1)) * float(np.diag(G).max(initial=0.0))
    L = scipy.linalg.cholesky(G + max(shift, UNIT_ROUNDOFF) * np.eye(b), lower=True)
    Q = V @ from_host(triangular_inverse(L).T / norms[:, None], V)
    w, Z = np.linalg.eigh(inner_products(Q, Q))
    keep = w > NOTHING_LEFT * max(float(w[-1]), UNIT_ROUNDOFF)
    roots, Z = np.sqrt(w[keep]), Z[:, keep]
    Q = Q @ from_host(Z / roots[None, :], V)
    R = roots[:, None] * (Z.T @ L.T) * (norms * divisors)[None, :]
    L = scipy.linalg.cholesky(inner_products(Q, Q), lower=True)
    return Q @ from_host(triangular_inverse(L).T, V), L.T @ R


def _normalized_gram(V: Array) -> tuple[Array, np.ndarray, np.ndarray, np.ndarray]:
    """Return V, the Gram matrix of its columns at length one, their norms (1 for zero columns), and the divisors of V.

    Columns whose squares leave the range of numbers are divided first, which costs passes over V.
    """
    G = inner_products(V, V)
    squares = np.diag(G)
    low, high = SAFE_SQUARES[dtype_name(V.dtype)]
    if not np.all((squares == 0.0) | ((squares > low) & (squares < high))):  # NaN is not safe either
        norms = column_norms(V)
        norms = np.where(norms > 0, norms, 1.0)
        V = V / from_host(norms, V)[None, :]
        return V, inner_products(V, V), np.ones(len(norms)), norms
    norms = np.sqrt(np.where(squares > 0.0, squares, 1.0))
    return V, G / np.outer(norms, norms), norms, np.ones(len(norms))
