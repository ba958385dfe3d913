"""The elimination of known pivots from rows of a matrix, by substitution with blocks of columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend import blocking
from gpukpca.backend.elementwise import add, convert, put
from gpukpca.backend.linalg import row_products, triangular_inverse
from gpukpca.backend.namespace import EPSILON, cast, from_host, namespace_of, writable
from gpukpca.backend.parallel import row_slices

# Largest condition of a block whose inverse is used without refinement: the maximum norm of |L| |L⁻¹|. The rounding of
# a row multiplies by at most this number. It is 5 to 8 for blocks of 64 even landmarks (RBF, 20 features).
WELL_CONDITIONED = 16.0
# Eps that the inverses of blocks multiply rounding by, where these are not refined: 16 times the 64 columns of a block.
INVERSES = 1024


@dataclass(frozen=True)
class Elimination:
    """The map from rows of K[:, pivots], and of F so far, to rows of the new columns (K - F rowsᵀ) L⁻ᵀ of F.

    It works in the type of its arrays, and returns rows in the type of K. L⁻ᵀ is applied by substitution with blocks of
    columns; a step of refinement removes the error of the inverses of ill-conditioned blocks. A row f of the result
    solves f Lᵀ = k up to a few eps of the sizes of f and L, whatever the condition of L: as an error of the row k of K,
    which is rounded already (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., theorem 8.5 and section
    14.1).

    Attributes
    ----------
    scale : float
        The power of two that K, rows and L are multiplied by, so that no product leaves the range of the type.
    known : list of arrays (k, b)
        -rowsᵀ for each part of F.
    steps : list of (slice, array, array or None, array)
        For each block of columns: where it is, -Lᵀ from the columns before it, minus its part of L where it needs
        refinement, and the inverse.
    """

    scale: float
    known: list[Array]
    steps: list[tuple[slice, Array, Array | None, Array]]

    @classmethod
    def of(
        cls, rows: np.ndarray, L: np.ndarray, widths: list[int], like: Array, scale: float = 1.0, dtype: Any = None
    ) -> Elimination:
        """Return the map for rows (b, k) of F, which is in parts of these widths, and the factor L (b, b)."""
        rows, L = scale * rows, scale * L
        cuts, b = np.cumsum(widths[:-1], dtype=np.int64), len(L)
        known = [from_host(-few.T, like, dtype) for few in np.split(rows, cuts, axis=1)] if widths else []
        steps = []
        for block in (slice(*bounds) for bounds in row_slices(b, blocking.ELIMINATION_BLOCK)):
            own, inverse = L[block, block], triangular_inverse(L[block, block])
            condition = float(np.max(np.sum(np.abs(own) @ np.abs(inverse), axis=1)))
            lower = None if condition <= WELL_CONDITIONED else from_host(-own, like, dtype)
            before = from_host(-L[block, : block.start].T, like, dtype)
            steps.append((block, before, lower, from_host(inverse, like, dtype)))
        return cls(scale, known, steps)

    def rows(self, K: Array, parts: Sequence[Array], out: Array | None = None) -> Array:
        """Return the new columns for rows of K (m, b) and of the parts of F, in `out` (m, b) where it is given."""
        xp, stored, dtype = namespace_of(K), K.dtype, self.steps[0][-1].dtype
        K = cast(K if self.scale == 1.0 else K * self.scale, dtype)
        for part, right in zip(parts, self.known, strict=True):
            K = add(cast(part, dtype) @ right, K)
        out = writable(K.shape, K, stored) if out is None else out
        done, target = K[:, :0], out if stored == dtype else None
        for block, before, lower, inverse in self.steps:
            left = K[:, block] if block.start == 0 else add(done @ before, K[:, block])
            place = None if target is None else target[:, block]
            if lower is None:
                new = row_products(left, inverse, place)
            else:
                first = row_products(left, inverse)
                new = add(row_products(add(row_products(first, lower), left), inverse), first)
            if target is None:
                done = xp.concat([done, new], axis=1)
            else:
                put(place, new)
                done = target[:, : block.stop]
        return convert(done, stored, out) if target is None else target


def growth_of(L: np.ndarray, inverse: np.ndarray) -> float:
    """Return the length of |L⁻¹| √diag(L Lᵀ), by which substitution magnifies rounding at most."""
    return float(np.linalg.norm(np.abs(inverse) @ np.sqrt(np.sum(L * L, axis=1))))


def error_share(r: int, growth: float, entries: float, unit: float) -> float:
    """Return c such that entry (i, j) of K - F Fᵀ, as computed, errs by at most c sqrt(s_i s_j).

    L (r, r) is the factor of the landmarks S, K(S, S) = L Lᵀ, `growth` its `growth_of`, and s_i the size of
    k(x_i, x_i). Entries of K err by the share `entries` of these sizes, and operations by eps / 2 with eps = `unit`.

    Substitution solves L f = k + δ with |δ_j| <= (r + m) u sqrt(s_i s_j), where m allows for the inverses of blocks, so
    that f errs by at most η sqrt(s_i) with η = ((r + m) u + entries) growth. A row of F is no longer than sqrt(s_i).
    In float32 η is far above the error, which is then estimated.
    """
    if unit > EPSILON["float64"]:
        return 2.0 * (8.0 + math.sqrt(r)) * max(unit, entries)
    u = 0.5 * unit
    eta = ((r + INVERSES) * u + entries) * growth
    return 2.0 * eta + eta * eta + entries + 2.0 * (r + 3) * u
