"""Posterior of z given x in the model x | z ~ N(W z + μ, σ² I), z ~ N(0, I), also where entries are missing.

In the principal form W = V (Λ - σ²)^½ with orthonormal V, and for complete rows M = WᵀW + σ² I is Λ itself.

Tipping & Bishop, J. R. Stat. Soc. B 61 (1999) 611, section 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.algorithms.fields import field_of, record
from gpukpca.algorithms.inputs import ComponentsResult
from gpukpca.algorithms.latent.e_step import EStep, Parameters, e_step_panel_rows
from gpukpca.algorithms.latent.initialization import NOISE_FLOOR
from gpukpca.algorithms.pca.gaussian import GaussianModel
from gpukpca.backend import blocking
from gpukpca.backend.device import is_on_gpu
from gpukpca.backend.namespace import accumulation_dtype, cast, concat, epsilon, from_host, move, namespace_of
from gpukpca.backend.orthogonalization import thin_svd
from gpukpca.backend.parallel import map_in_order, worker_count
from gpukpca.data.finite import check_finite
from gpukpca.data.place import panels_of
from gpukpca.data.scale import check_variance, scaled_rows, variances_of_data
from gpukpca.data.slicing import dense_rows, gather_rows, take_rows
from gpukpca.eigen.residuals import signs

# The noise floor of EM is a share of the largest variance at its start, which may grow by 1 / GROWN.
GROWN = 0.01

TOO_LARGE = "The new rows are too large."
# From centered complete rows (b, d), or those with 0 for missing entries and the mask, to results for all rows.
OfComplete = Callable[[Array], Array]
OfIncomplete = Callable[[Array, Array], Array]


@record(eq=False)
class LatentModel:
    """The model in its principal form, of rows times `scale`, in the widest floating type where it is computed."""

    axes: Array = field_of("d p", "V, orthonormal columns")
    variances: np.ndarray = field_of(
        "p", "Λ of the covariance along V, descending, at least the noise; on the host", "nonnegative"
    )
    noise: float = field_of("", "σ²; 0 where the data are in the space of V", "nonnegative")
    mean: Array = field_of("d", "μ")
    scale: float = field_of("", "a power of two", "positive", default=1.0)

    @classmethod
    def of(cls, parameters: Parameters, factor: float, scale: float) -> LatentModel:
        """Return the principal form of W, μ, σ² of rows times `scale`; the covariance times `factor`."""
        W, noise = parameters.loadings, factor * parameters.noise
        if W.shape[1] == 0:
            return cls(W, np.zeros(0), noise, parameters.mean, scale)
        U, values, _ = thin_svd(W)
        return cls(U * signs(U)[None, :], factor * values**2 + noise, noise, parameters.mean, scale)

    @property
    def n_components(self) -> int:
        """Return the number p of components."""
        return len(self.variances)

    @property
    def roots(self) -> np.ndarray:
        """Return (Λ - σ²)^½, the lengths of the loadings, on the host."""
        return np.sqrt(np.maximum(self.variances - self.noise, 0.0))

    @property
    def loadings(self) -> Array:
        """Return W, shape (d, p), of scaled rows."""
        return self.axes * from_host(self.roots, self.axes)[None, :]

    @property
    def posterior_variances(self) -> np.ndarray:
        """Return the diagonal of σ² M⁻¹ of a complete row, on the host; the prior's 1 where nothing varies."""
        nothing = self.variances <= 0
        return np.where(nothing, 1.0, self.noise / np.where(nothing, 1.0, self.variances))

    def posterior_means(self, Y: Array) -> Array:
        """Return ⟨z⟩ of new rows, shape (m, p)."""
        weights = from_host(self.roots / np.where(self.variances > 0, self.variances, 1.0), self.axes)
        step = self._expectation()

        def incomplete(R: Array, mask: Array) -> Array:
            return step.posterior(R, mask).means.T

        return self._by_rows(Y, step, lambda R: (R @ self.axes) * weights[None, :], incomplete)

    def posterior_covariances(self, Y: Array) -> Array:
        """Return cov z of new rows, shape (m, p, p)."""
        shared = from_host(np.diag(self.posterior_variances), self.axes)[None, :, :]
        step = self._expectation()

        def complete(R: Array) -> Array:
            ones = namespace_of(R).ones_like(R[:, :1])
            return ones[:, :, None] * shared

        def incomplete(R: Array, mask: Array) -> Array:
            return namespace_of(R).permute_dims(step.posterior(R, mask).covariances, (2, 0, 1))

        return self._by_rows(Y, step, complete, incomplete)

    def points(self, Z: Array) -> Array:
        """Return W z + μ for the rows of Z, in the units of the data."""
        return (Z @ self.loadings.T + self.mean[None, :]) / self.scale

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Draw rows (n, d) in the units of the data; the numbers are drawn on the host."""
        Z = from_host(rng.standard_normal((n, self.n_components)), self.axes)
        noise = np.sqrt(self.noise) * rng.standard_normal((n, int(self.mean.shape[0])))
        return self.points(Z) + from_host(noise, self.axes) / self.scale

    def log_likelihood(self, Y: Array) -> Array:
        """Return the log-likelihood of the observed entries of every new row, shape (m,).

        Raises `numpy.linalg.LinAlgError` where the model has no variance at all.
        """
        xp = namespace_of(self.axes)
        model = GaussianModel(self.axes.T, self.variances, self.noise, None)
        step = self._expectation(model.regular()[1])

        log_scale = math.log(self.scale)

        def complete(R: Array) -> Array:
            scores = R @ self.axes
            off = R - scores @ model.components
            return model.log_likelihood(xp.sum(off * off, axis=1), scores) + model.d * log_scale

        def incomplete(R: Array, mask: Array) -> Array:
            found, noise = step.posterior(R, mask), step.parameters.noise
            Z = found.means.T
            off = R - mask * (Z @ step.parameters.loadings.T)
            misfit = xp.sum(off * off, axis=1) / noise + xp.sum(Z * Z, axis=1)
            counts = xp.sum(mask, axis=1)
            constant = counts * math.log(2.0 * math.pi) + (counts - self.n_components) * math.log(noise)
            return counts * log_scale - 0.5 * (constant + found.log_determinants + misfit)

        return self._by_rows(Y, step, complete, incomplete)

    def _expectation(self, noise: float | None = None) -> EStep:
        """Return the E step for incomplete rows, with a positive noise variance where there is none."""
        noise = self.noise if noise is None else noise
        least = max(NOISE_FLOOR, 8.0 * epsilon(self.axes)) * float(np.max(self.variances, initial=0.0))
        regular = noise if noise > GROWN * least else least
        return EStep(Parameters(self.loadings, self.mean, regular if regular > 0 else 1.0))

    def _by_rows(self, Y: Array, step: EStep, complete: OfComplete, incomplete: OfIncomplete) -> Array:
        """Compute by panels with threads; no result depends on whether other rows have missing entries."""

        def panel(cut: tuple[int, int]) -> Array:
            rows = scaled_rows(move(dense_rows(take_rows(Y, *cut)), self.axes), self.scale)
            parts, places = step.by_completeness(rows, complete, incomplete)
            return parts[0] if len(parts) == 1 else gather_rows(concat(parts), namespace_of(places).argsort(places))

        cuts = panels_of(Y, e_step_panel_rows(int(Y.shape[1]), self.n_components, is_on_gpu(Y)))
        workers = worker_count(self.axes, None, Y.shape[0] * Y.shape[1] * (self.n_components**2 + blocking.ENTRY_PASS))
        return concat(map_in_order(panel, cuts, workers))


@record(eq=False)
class LatentFit(ComponentsResult):
    """Result of probabilistic or Bayesian PCA, in the library and the dtype of the data."""

    components: Array = field_of("p d", "orthonormal rows; the entry of largest modulus is positive")
    loadings: Array = field_of("d p", "W = V (Λ - σ²)^½")
    mean: Array = field_of("d", "μ")
    explained_variance: Array = field_of(
        "p", "variances of the model along the components, σ² included, descending", "nonnegative"
    )
    explained_variance_ratio: Array = field_of("p", "shares of the total variance", "nonnegative")
    total_variance: float = field_of("", "of the data where no entry is missing, else of the model", "nonnegative")
    noise_variance: float = field_of("", "σ²", "nonnegative")
    n_samples: float = field_of("", "rows of the fit, each as often as its weight says", "positive")
    n_iter: int = field_of("", "steps of EM; 1 for the closed form")
    converged: bool = field_of("", "whether the iteration reached its tolerance")
    solver: str = field_of("", "the method that ran")
    fallbacks: tuple[str, ...] = field_of("", "failures of a device and what replaced them")
    model: LatentModel = field_of("", "the model in the units of the fit, in the widest type")
    log_likelihoods: Array | None = field_of("n_iter+1", "of EM, before every step and at the end", default=None)
    precisions: Array | None = field_of(
        "q", "of all candidates of Bayesian PCA; infinite where pruned", "positive", "infinite", default=None
    )

    @classmethod
    def of(
        cls,
        model: LatentModel,
        n: float,
        dtype: Any,
        total: float | None,
        log_likelihoods: np.ndarray | None = None,
        *,
        precisions: np.ndarray | None = None,
        **run: Any,
    ) -> LatentFit:
        """Return the result for n rows in their dtype; `total` is that of scaled rows, None that of the model.

        `run` are the fields `n_iter`, `converged`, `solver` and `fallbacks`. The `precisions` (q,) are on the host.
        """
        xp, scale = namespace_of(model.axes), model.scale
        if total is None:
            total = float(np.sum(model.variances)) + (int(model.mean.shape[0]) - model.n_components) * model.noise
        variances = variances_of_data(model.variances, scale, dtype)
        check_variance(total, scale, np.float64)
        if not model.n_components:  # the noise is all there is
            variances_of_data([model.noise], scale, np.float64)
        components = cast(xp.asarray(model.axes.T, copy=True), dtype)
        shares = model.variances / total if total > 0 else np.zeros(model.n_components)
        wide = {"log_likelihoods": log_likelihoods, "precisions": precisions}
        found = {name: values for name, values in wide.items() if values is not None}
        return cls(
            components=components,
            loadings=cast(model.loadings / scale, dtype),
            mean=cast(model.mean / scale, dtype),
            explained_variance=from_host(variances, components),
            explained_variance_ratio=from_host(shares, components),
            total_variance=total / scale / scale,
            noise_variance=model.noise / scale / scale,
            n_samples=n,
            model=model,
            **run,
            **{name: from_host(values, components, accumulation_dtype(components)) for name, values in found.items()},
        )

    def in_dtype(self, result: Array) -> Array:
        """Return a result of the model in the dtype of the data."""
        return cast(result, self.components.dtype)


# -- of checked rows ---------------------------------------------------------------------------------------------------


def scores_of(fit: LatentFit, rows: Array) -> Array:
    """Return the posterior means (m, p) of checked rows."""
    means = fit.in_dtype(fit.model.posterior_means(rows))
    check_finite(means, TOO_LARGE, "The array of posterior means")
    return means


def points_of(fit: LatentFit, scores: Array, advice: str = "The scores are too large.") -> Array:
    """Return the points (m, d) of checked scores (m, p)."""
    points = fit.in_dtype(fit.model.points(cast(move(scores, fit.model.axes), fit.model.axes.dtype)))
    check_finite(points, advice, "The array of points")
    return points


def denoise(fit: LatentFit, rows: Array) -> Array:
    """Return W ⟨z⟩ + μ (m, d) of checked rows."""
    return points_of(fit, fit.model.posterior_means(rows), TOO_LARGE)


def impute(fit: LatentFit, rows: Array) -> Array:
    """Return checked rows with W ⟨z⟩ + μ in place of missing entries, where they are and in their dtype."""
    points = fit.model.points(fit.model.posterior_means(rows))
    rows = dense_rows(rows)
    xp = namespace_of(rows)
    whole = xp.where(xp.isnan(rows), cast(move(points, rows), rows.dtype), rows)
    check_finite(whole, "The model is too large for the data.", "The array of points")
    return whole


# The classes of this folder that model files hold.
STORED = (LatentFit, LatentModel)
