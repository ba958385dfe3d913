"""The E step of x | z ~ N(W z + μ, σ² I) with missing entries: posteriors of panels of rows, and the sums over them.

Complete rows share one M. For the others one product of the mask with the pairwise products of the columns of W gives
every M of a panel, and one product of their second moments with the mask gives the sums of the M step.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator
from functools import partial, reduce
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from gpukpca._typing import Array
from gpukpca.algorithms.fields import field_of, record
from gpukpca.backend import blocking
from gpukpca.backend.batched_linalg import (
    batched_products,
    definite_inverses,
    packed_entries,
    packed_symmetric,
    products_of_pairs,
    unpacked_symmetric,
)
from gpukpca.backend.device import is_on_gpu
from gpukpca.backend.linalg import column_sums, inner_products
from gpukpca.backend.namespace import cast, concat, from_host, full, namespace_of, to_host, true_positions
from gpukpca.backend.parallel import map_tiles, row_slices, worker_count
from gpukpca.data.slicing import gather_rows

Result = TypeVar("Result")


@record()
class Parameters:
    """Parameters of the model, in the widest floating type."""

    loadings: Array = field_of("d p", "W")
    mean: Array = field_of("d", "μ")
    noise: float = field_of("", "σ²")


@record()
class Posterior:
    """Posterior of z for rows with missing entries, the rows last."""

    means: Array = field_of("p b", "⟨z⟩")
    covariances: Array = field_of("p p b", "C")
    log_determinants: Array = field_of("b", "log |M|")


@record()
class SufficientStatistics:
    """Sums over rows that the M step and the likelihood need; q = p (p + 1)/2."""

    observed: float = field_of("", "observed entries, each as often as the weight of its row says, as in all sums")
    misfit: float = field_of("", "Σ ‖x_o - W_o ⟨z⟩ - μ_o‖² / σ² + ‖⟨z⟩‖²")
    spread: float = field_of("", "Σ tr C")
    log_determinants: float = field_of("", "Σ log |M|")
    residuals: float = field_of("", "Σ ‖x_o - W_o ⟨z⟩ - μ_o‖²")
    cross: Array = field_of("p+1 d", "Σ (⟨z⟩, 1) (x - μ)ᵀ over observed entries")
    latent: np.ndarray = field_of("q+p+1", "Σ ⟨z zᵀ⟩ packed, Σ ⟨z⟩, and the number of rows; on the host")
    shared: np.ndarray = field_of("q+p+1", "the share of `latent` of complete rows; on the host")
    partial: Array | None = field_of(
        "q+p+1 d", "for every feature the share of `latent` of the incomplete rows that observe it"
    )

    @property
    def rows(self) -> float:
        """Return the number of rows."""
        return float(self.latent[-1])

    def __add__(self, other: SufficientStatistics) -> SufficientStatistics:
        both = {name: mine + getattr(other, name) for name, mine in vars(self).items() if name != "partial"}
        parts = [part for part in (self.partial, other.partial) if part is not None]
        return SufficientStatistics(**both, partial=sum(parts[1:], parts[0]) if parts else None)

    def log_likelihood(self, noise: float) -> float:
        """Return the log-likelihood of all observed entries, at the parameters of the E step."""
        p = int(self.cross.shape[0]) - 1
        constant = self.observed * math.log(2.0 * math.pi) + (self.observed - self.rows * p) * math.log(noise)
        return -0.5 * (constant + self.log_determinants + self.misfit)


class EStep:
    """The E step at some parameters."""

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        W = parameters.loadings
        self.p: int = int(W.shape[1])
        self._turned = W.T
        self._pairs: Array | None = None
        shared = inner_products(W, W) + parameters.noise * np.eye(self.p)
        self._inverse = np.linalg.inv(shared)
        self._log_determinant = float(np.linalg.slogdet(shared)[1])

    def prepare_missing(self) -> None:
        """Compute the (q, d) products that incomplete rows need."""
        if self._pairs is None:
            self._pairs = products_of_pairs(self._turned)

    def sums(self, rows: Array, *roots: Array) -> SufficientStatistics:
        """Return the sums over a panel of rows, NaN where an entry is missing, with the `roots` (b, 1) of weights.

        Rows, and the ones beside them, are multiplied by the roots: all sums but those of C and log |M| are products.
        """
        parts, _ = self.by_completeness(rows, self._of_complete, self._of_incomplete, *roots)
        return parts[0] if len(parts) == 1 else parts[0] + parts[1]

    def by_completeness(
        self, rows: Array, complete: Callable[..., Result], incomplete: Callable[..., Result], *more: Array
    ) -> tuple[list[Result], Array]:
        """Return results for complete rows (b, d) and for the others, and their places.

        `complete` takes centered rows, `incomplete` those with 0 for missing entries, and the mask; then both take the
        rows of `more` arrays (b, k).
        """
        seen = ~namespace_of(rows).isnan(rows)
        is_complete = namespace_of(rows).all(seen, axis=1)
        whole, others = true_positions(is_complete), true_positions(~is_complete)
        places = concat([whole, others])
        if not others.shape[0]:
            return [complete(self.centered(rows), *more)], places
        if not whole.shape[0]:
            return [incomplete(*self._without_missing(rows, seen), *more)], places
        first = complete(self.centered(gather_rows(rows, whole)), *(gather_rows(one, whole) for one in more))
        rows, seen, *more = (gather_rows(one, others) for one in (rows, seen, *more))  # type: ignore[assignment]
        return [first, incomplete(*self._without_missing(rows, seen), *more)], places

    def centered(self, rows: Array) -> Array:
        """Return rows less the mean, in the widest type."""
        mean = self.parameters.mean
        return cast(rows, mean.dtype) - mean[None, :]

    def _of_complete(self, R: Array, roots: Array | None = None) -> SufficientStatistics:
        xp, W, noise = namespace_of(R), self.parameters.loadings, self.parameters.noise
        ones, n = full((int(R.shape[0]), 1), 1.0, R), float(R.shape[0])
        if roots is not None:
            R, ones, n = R * roots, roots, _sum_of_squares(roots)
        Z = (R @ W) @ from_host(self._inverse, R)
        E = R - Z @ self._turned
        residuals, squares = _sum_of_squares(E), _sum_of_squares(Z)
        C, means = noise * self._inverse, column_sums(Z if roots is None else Z * roots)
        moments = np.concatenate([packed_symmetric(inner_products(Z, Z) + n * C), to_host(means), [float(n)]])
        return SufficientStatistics(
            observed=n * int(R.shape[1]),
            misfit=residuals / noise + squares,
            spread=n * float(np.trace(C)),
            log_determinants=n * self._log_determinant,
            residuals=residuals,
            cross=xp.concat([Z, ones], axis=1).T @ R,
            latent=moments,
            shared=moments,
            partial=None,
        )

    def _of_incomplete(self, R: Array, mask: Array, roots: Array | None = None) -> SufficientStatistics:
        xp, noise = namespace_of(R), self.parameters.noise
        R = R if roots is None else R * roots
        found = self.posterior(R, mask)
        Z = found.means
        E = R - mask * (Z.T @ self._turned)
        residuals, squares = _sum_of_squares(E), _sum_of_squares(Z)
        ones = full((1, int(Z.shape[1])), 1.0, Z) if roots is None else roots.T
        often = ones * ones
        second = packed_entries(found.covariances) * often + products_of_pairs(Z)
        moments = xp.concat([second, Z * ones, often], axis=0)
        latent = to_host(xp.sum(moments, axis=1))
        diagonal = np.flatnonzero(packed_symmetric(np.eye(self.p)))
        return SufficientStatistics(
            observed=float(xp.sum(mask * often.T)),
            misfit=residuals / noise + squares,
            spread=float(np.sum(latent[diagonal])) - squares,
            log_determinants=float(xp.sum(found.log_determinants * often[0, :])),
            residuals=residuals,
            cross=xp.concat([Z, ones], axis=0) @ R,
            latent=latent,
            shared=np.zeros_like(latent),
            partial=moments @ mask,
        )

    def _without_missing(self, rows: Array, seen: Array) -> tuple[Array, Array]:
        """Return rows less the mean with 0 where an entry is missing, and the mask as numbers."""
        xp = namespace_of(rows)
        centered = self.centered(rows)
        return xp.where(seen, centered, xp.zeros_like(centered)), cast(seen, centered.dtype)

    def posterior(self, R: Array, mask: Array) -> Posterior:
        """Return the posterior of z, from the observed entries of centered rows (b, d)."""
        self.prepare_missing()
        noise, p = self.parameters.noise, self.p
        M = unpacked_symmetric(self._pairs @ mask.T, p)
        M = M + noise * from_host(np.eye(p), R)[:, :, None]
        inverses, log_determinants = definite_inverses(M, noise)
        means = batched_products(inverses, self._turned @ R.T)
        # Refined once: with a noise of 1e-12 of the rest the inverses have four digits, and σ² divides the misfit.
        left = R - mask * (means.T @ self._turned)
        downhill = self._turned @ left.T - noise * means
        return Posterior(means + batched_products(inverses, downhill), noise * inverses, log_determinants)


def _sum_of_squares(A: Array) -> float:
    return float(namespace_of(A).sum(A * A))


def accumulate(
    batches: Iterable[Array], step: EStep, n_jobs: int | None, roots: Array | None = None
) -> SufficientStatistics:
    """Return the sums over all rows; `roots` (n, 1) are those of their weights."""

    def parts() -> Iterator[SufficientStatistics]:
        before = 0
        for batch in batches:
            own = () if roots is None else (roots[before : before + batch.shape[0], :],)
            before += batch.shape[0]
            workers = worker_count(batch, n_jobs, batch.shape[0] * batch.shape[1] * (step.p**2 + blocking.ENTRY_PASS))
            panels = row_slices(int(batch.shape[0]), e_step_panel_rows(int(batch.shape[1]), step.p, is_on_gpu(batch)))
            for first in range(0, len(panels), blocking.E_STEP_WAVE * workers):
                wave = panels[first : first + blocking.E_STEP_WAVE * workers]
                yield from chain(*map_tiles(partial(_sums_of_panel, step, batch, *own), wave, workers))

    step.prepare_missing()
    return reduce(operator.add, parts())


def _sums_of_panel(step: EStep, *arguments: Any) -> SufficientStatistics:
    """Return the sums over one panel, for (batch, roots if weighted, cut)."""
    *of_batch, (start, stop) = arguments
    return step.sums(*(one[start:stop, :] for one in of_batch))


def e_step_panel_rows(d: int, p: int, on_gpu: bool) -> int:
    """Return the rows of a panel."""
    return max(blocking.SMALLEST_E_STEP_PANEL, blocking.E_STEP_ENTRIES.on(on_gpu) // (2 * d + 4 * p * p))
