"""Fit results of PCA: components, variances and the affine map that projects new points."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from gpukpca._rules import FLAG
from gpukpca._typing import Array
from gpukpca.algorithms.fields import field_of, first_components, record
from gpukpca.algorithms.inputs import check_keep, new_rows, new_scores
from gpukpca.algorithms.pca.gaussian import UNCENTERED, GaussianModel
from gpukpca.algorithms.plan import Plan
from gpukpca.backend import blocking
from gpukpca.backend.device import device_context, on_its_device
from gpukpca.backend.linalg import reciprocals
from gpukpca.backend.namespace import (
    accumulation_dtype,
    cast,
    concat,
    from_host,
    is_foreign,
    is_sparse,
    library_of,
    move,
    namespace_of,
    overflow_allowed,
    same_place,
    to_host,
)
from gpukpca.covariance.centered_matrix import CenteredMatrix
from gpukpca.covariance.dense import projected_rows
from gpukpca.data.batches import by_slices
from gpukpca.data.csr import less_full_columns
from gpukpca.data.finite import check_finite
from gpukpca.data.frequencies import degrees_of_freedom
from gpukpca.data.place import panels_of
from gpukpca.data.slicing import dense_rows, take_rows
from gpukpca.exceptions import InvalidParameterError


@record(eq=False)
class LinearProjection:
    """The affine map of new points onto principal axes: scores(x) = (x - shift) A - b, where it is computed."""

    shift: Array = field_of("d", "the mean in the dtype of the data")
    axes: Array = field_of("d p", "A: components in units of the scale")
    offset: np.ndarray = field_of("p", "b: the mean less the shift, projected; on the host")
    multipliers: Array | None = field_of("d", "of centered features: 1 / scale", "positive")
    inverse_roots: np.ndarray = field_of(
        "p", "1 / standard deviation of the scores, 0 where that is 0; on the host", "nonnegative"
    )
    center: bool = field_of("", "whether the mean was subtracted; else the shift is 0", default=True)

    @classmethod
    def of(cls, Z: CenteredMatrix, V: Array, deviations: np.ndarray) -> LinearProjection:
        """Return the map of a fit of centered rows with the axes V (d, p) and the standard deviations of the scores."""
        xp = Z.xp
        multipliers = None if Z.scale is None else from_host(1.0 / Z.scale, V)
        axes = V if multipliers is None else V * multipliers[:, None]
        shift = cast(Z.mean, V.dtype)
        # Not the mean less the shift: the mean of data with a large offset is rounded.
        rest = (cast(Z.shift, Z.wide) - cast(shift, Z.wide)) + Z.rest
        offset = xp.sum(rest[:, None] * cast(axes, Z.wide), axis=0)
        return cls(shift, xp.asarray(axes, copy=True), to_host(offset), multipliers, reciprocals(deviations), Z.center)

    def moved(self, like: Array) -> LinearProjection:
        """Return the map where `like` lives, for scores."""
        return replace(self, shift=move(self.shift, like), axes=move(self.axes, like))

    def transform(self, Y: Array, n_jobs: int | None = None) -> Array:
        """Return the scores (m, p) of new rows Y (m, d), where the map is computed; host rows are moved by panels."""
        if is_sparse(Y):
            axes, shift = cast(self.axes, np.float64), cast(self.shift, np.float64)
            deviations, subtracted = less_full_columns(Y, shift)
            constant = (shift - subtracted) @ axes + self.offset
            return cast(deviations @ axes - constant[None, :], self.axes.dtype)
        offset = from_host(self.offset, self.axes)
        every = [(0, int(Y.shape[0]))] if same_place(Y, self.axes) else panels_of(Y, blocking.PROJECTED_ROWS)
        panels = (move(take_rows(Y, *bounds), self.axes) for bounds in every)
        return concat([projected_rows(rows, self.shift, self.axes, offset, n_jobs) for rows in panels])

    def whitened(self, scores: Array) -> Array:
        """Return scores in units of their standard deviation; exactly 0 where that is 0."""
        return scores * from_host(self.inverse_roots, scores)[None, :]

    def log_density(self, Y: Array, model: GaussianModel, n_jobs: int | None = None) -> Array:
        """Return the log-likelihood (m,), wide, of new rows Y (m, d) under a model with these axes."""
        xp, wide, distances = namespace_of(self.axes), accumulation_dtype(self.axes), []
        scores = self.transform(Y, n_jobs)
        for start, stop in panels_of(Y, blocking.WIDE_PROJECTED_ROWS):
            rows = move(dense_rows(take_rows(Y, start, stop)), self.axes)
            centered = cast(rows, self.axes.dtype) - self.shift[None, :]
            centered = centered if self.multipliers is None else centered * self.multipliers[None, :]
            off = centered - scores[start:stop, :] @ model.components
            off = cast(off, wide)
            distances.append(xp.sum(off * off, axis=1))
        return model.log_likelihood(xp.concat(distances, axis=0), scores)


def scores_of_panel(panel: Array, projection: LinearProjection) -> np.ndarray:
    """Return the scores of rows on a worker of a cluster, on the host."""
    return to_host(projection.transform(panel, 1))


@record(kw_only=True, eq=False)
class PCAFit:
    """Result of a principal component analysis, in the library and the dtype of the data.

    See Also
    --------
    fit_pca : Returns it.
    gpukpca.PCA : The same fit as an estimator of scikit-learn.

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca.algorithms import fit_pca
    >>> X = np.random.default_rng(0).standard_normal((100, 5))
    >>> fit = fit_pca(X, n_components=5)
    >>> bool(np.allclose(fit.inverse_transform(fit.transform(X)), X))
    True
    """

    components: Array = field_of("p d", "orthonormal rows; the entry of largest modulus is positive")
    explained_variance: Array = field_of(
        "p", "variances of the scores, n - 1 degrees of freedom, descending", "nonnegative"
    )
    explained_variance_ratio: Array = field_of("p", "exact shares of the total variance", "nonnegative")
    singular_values: Array = field_of("p", "norms of the columns of scores", "nonnegative")
    total_variance: float = field_of("", "the sum of the variances of the features", "nonnegative")
    noise_variance: float = field_of("", "the mean of the variances left out", "nonnegative")
    mean: Array = field_of("d", "of the features")
    scale: Array | None = field_of("d", "divisors of the centered features; None stands for ones", "positive")
    residual_norms: Array | None = field_of(
        "p", "||C v - λ v|| with the covariance matrix C, from products; None where unknown", "nonnegative"
    )
    converged: bool | None = field_of("", "whether all residuals are within the tolerance; None where unknown")
    n_samples: float = field_of("", "rows of the fit, each as often as its weight says", "positive")
    device: str = field_of("", "the name of the device of the computation")
    plan: Plan | None = field_of("", "the method, the solver and the predicted memory; None of another library")
    solver: str = field_of("", "the method and the solver that ran")
    fallbacks: tuple[str, ...] = field_of("", "what a device could not do at first")
    projection: LinearProjection = field_of("", "the map of new points")
    scores: Array | None = field_of("n p", "of the rows of the fit, where they were requested", default=None)
    weighted: bool = field_of("", "whether rows had weights", default=False)

    @property
    def n_components(self) -> int:
        """Return the number p of components."""
        return int(self.components.shape[0])

    @property
    def gaussian(self) -> GaussianModel:
        """Return the Gaussian model of probabilistic PCA behind these components; raise without centering."""
        if not self.projection.center:
            raise InvalidParameterError(UNCENTERED)
        deviations = deviations_of(self.singular_values, self.n_samples)
        return GaussianModel(self.components, deviations**2, self.noise_variance, self.scale)

    @on_its_device
    def transform(self, X_new: Array, *, whiten: bool = False) -> Array:
        """Return the scores of new rows.

        Parameters
        ----------
        X_new : array or CSR matrix, shape (m, d)
            A set of zarr, HDF5 or the like is read by slices.
        whiten : bool
            Divide them by their standard deviations.

        Returns
        -------
        array, shape (m, p), in the dtype of the fit

        Raises
        ------
        InvalidParameterError
            X_new is not two-dimensional, or has another number of features.
        ValueError
            X_new holds NaN or infinity.
        """
        FLAG.check_argument("whiten", whiten)
        with device_context(self.components), overflow_allowed():
            return by_slices(X_new, lambda rows: scores_of(self, new_points(rows, self.components), whiten))

    @on_its_device
    def inverse_transform(self, scores: Array, *, whiten: bool = False) -> Array:
        """Return the points of data space with given scores.

        Parameters
        ----------
        scores : array, shape (m, p)
        whiten : bool
            The scores are divided by their standard deviations.

        Returns
        -------
        array, shape (m, d)

        Raises
        ------
        InvalidParameterError
            The scores are not two-dimensional, or have another number of columns.
        TypeError
            The scores are sparse.
        ValueError
            The scores hold NaN or infinity.
        """
        FLAG.check_argument("whiten", whiten)
        with device_context(self.components), overflow_allowed():
            p, like = self.n_components, self.components
            return by_slices(scores, lambda Z: points_of(self, new_scores(Z, p, like), whiten))

    @on_its_device
    def log_density(self, X_new: Array) -> Array:
        """Return the log-likelihoods (m,) of new rows under the Gaussian model; see `transform`."""
        with device_context(self.components), overflow_allowed():
            return by_slices(X_new, lambda rows: log_densities_of(self, new_points(rows, self.components)))

    def truncated(self, p: int) -> PCAFit:
        """Return the fit with its first p components only; the variances of the others join the noise."""
        check_keep("p", p, self.n_components)
        n, d = self.n_samples, int(self.components.shape[1])
        lost = float(np.sum(to_host(self.explained_variance[p:]).astype(np.float64)))
        left_out = self.noise_variance * (min(n, d) - self.n_components) + lost
        return first_components(
            self,
            p,
            noise_variance=left_out / (min(n, d) - p) if p < min(n, d) else 0.0,
            plan=None if self.plan is None else replace(self.plan, n_components=p),
            projection=first_components(self.projection, p),
        )


def new_points(X_new: Array, components: Array) -> Array:
    """Return new rows (m, d), checked, for a map of the components (p, d)."""
    rows = new_rows(X_new, int(components.shape[1]))
    if is_sparse(rows) and is_foreign(components):
        raise TypeError(
            f"the fit is of {library_of(components)} arrays and takes no sparse rows; pass X.toarray() or an array of "
            "that library."
        )
    return rows


def deviations_of(singular_values: Array, n: float) -> np.ndarray:
    """Return the standard deviations (p,) of the scores of n rows on the host, exact where variances underflow."""
    return to_host(singular_values).astype(np.float64) / math.sqrt(degrees_of_freedom(n))


def scores_of(fit: PCAFit, rows: Array, whiten: bool, n_jobs: int | None = None) -> Array:
    """Return the scores (m, p) of checked rows (m, d), finite, where the fit is."""
    scores = fit.projection.transform(rows, n_jobs)
    check_finite(scores, "Products with the components overflow.", "The array of scores")
    return fit.projection.whitened(scores) if whiten else scores


def points_of(fit: PCAFit, scores: Array, whiten: bool) -> Array:
    """Return the points (m, d), finite, with checked scores (m, p) where the fit is."""
    if whiten:
        scores = scores * from_host(deviations_of(fit.singular_values, fit.n_samples), scores)[None, :]
    points = scores @ fit.components
    points = points if fit.scale is None else points * fit.scale[None, :]
    points = cast(cast(points, fit.mean.dtype) + fit.mean[None, :], points.dtype)
    check_finite(points, "The scores are too large.", "The array of points")
    return points


def log_densities_of(fit: PCAFit, rows: Array, n_jobs: int | None = None) -> Array:
    """Return the log-likelihoods (m,) of checked rows (m, d) where the fit is, in its dtype."""
    return cast(fit.projection.log_density(rows, fit.gaussian, n_jobs), fit.components.dtype)


# The classes of fits that model files hold.
STORED = (PCAFit, LinearProjection)
