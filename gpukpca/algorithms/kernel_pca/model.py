"""The fit result of kernel PCA: eigenpairs, scores and the affine map that projects new points."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.algorithms.drift import Drift
from gpukpca.algorithms.fields import field_of, first_components, record
from gpukpca.algorithms.inputs import check_keep, new_rows
from gpukpca.algorithms.kernel_pca.feature_space import AffineProjection, FeatureSpace, LinearAxes
from gpukpca.algorithms.kernel_pca.landmark_sums import FactorSums
from gpukpca.algorithms.kernel_pca.sampled_error import norm_bound_of
from gpukpca.algorithms.kernel_pca.spectrum import Spectrum
from gpukpca.algorithms.plan import Plan
from gpukpca.algorithms.slots import NormBound, Slots
from gpukpca.backend.device import device_context
from gpukpca.backend.namespace import from_host, is_sparse, overflow_allowed
from gpukpca.data.batches import by_slices
from gpukpca.data.frequencies import degrees_of_freedom
from gpukpca.data.place import to_caller
from gpukpca.data.statistics import feature_means
from gpukpca.eigen import EigenResult
from gpukpca.kernels import Kernel, Linear

# Fields of a fit that are those of its `EigenResult`.
EIGEN_FIELDS = "eigenvectors residual_norms converged gap n_passes n_products seconds solver fallbacks"


@record(kw_only=True, eq=False)
class KernelPCAFit:
    """A fit of kernel PCA. The scores of a point x are k(x, basis) A - b, with basis, A and b in `map`.

    Arrays live where the fit computed.

    See Also
    --------
    fit_kernel_pca : Returns it.
    gpukpca.KernelPCA : The same fit as an estimator of scikit-learn.

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca.algorithms import fit_kernel_pca
    >>> from gpukpca.kernels import RBF
    >>> X = np.random.default_rng(0).standard_normal((100, 3))
    >>> fit = fit_kernel_pca(X, RBF(gamma=0.1), n_components=2)
    >>> bool(np.allclose(fit.transform(X), fit.scores))
    True
    """

    kernel: Kernel = field_of("", 'With numbers in place of rules such as gamma="scale".')
    plan: Plan = field_of("", "What was decided and why, and predicted memory; None of another library.", "or None")
    spectrum: Spectrum = field_of("", "Eigenvalues in float64 on the host, and the total variance.")
    eigenvectors: Array = field_of(
        "n p",
        "Orthonormal columns; the entry of largest modulus is positive. None where rows were streamed.",
        "or None",
    )
    scores: Array = field_of("n p", "Of the training rows; None in estimators without a pre-image.", "or None")
    residual_norms: Array = field_of(
        "p",
        "‖Kc u - λ u‖₂ with the rounding of the entries of K: each eigenvalue is that near to a true one.",
        "nonnegative",
    )
    converged: np.ndarray = field_of("p", "Whether the residual is at most tol λ_1, on the host.", "flags")
    gap: float | None = field_of(
        "", "λ_p - λ_{p+1}, of Nyström a lower bound; None where it is not known, or not known to be positive."
    )
    n_passes: int = field_of("", "Passes over K.")
    n_products: int = field_of("", "Columns multiplied by K in all passes; of Nyström, columns of K evaluated.")
    seconds: float = field_of("", "Wall time of the eigenpairs, including products with K.")
    solver: str = field_of("", "The solver that ran.")
    fallbacks: tuple[str, ...] = field_of("", "Solvers of a device that failed before.")
    map: AffineProjection = field_of("", "The affine map of new points.")
    n_jobs: int | None = field_of("", "Threads for new points.", default=None)
    axes: LinearAxes | None = field_of("", "Axes of the linear kernel with dense rows.", default=None)
    landmarks: np.ndarray | None = field_of(
        "landmarks",
        "The training rows among the basis of Nyström, on the host: not a base point that is none of them.",
        "index",
        default=None,
    )
    certificate: float | None = field_of(
        "",
        "What all true eigenvalues together may exceed these by: tr(K - F Fᵀ), what counts as rounding, and ρ. Each is "
        "at least λ - ρ, where ρ is the rounding; of Nyström alone.",
        "nonnegative",
        default=None,
    )
    total_interval: tuple[float, float] | None = field_of(
        "", "Bounds on the trace of the centered kernel matrix; of Nyström alone.", default=None
    )
    stream: FactorSums | None = field_of(
        "", "Of Nyström: the sums over the rows, which more rows are added to.", default=None
    )
    weight_sum: float | None = field_of("", "Σ of the weights of the rows; None where each counts once.", default=None)
    measured: NormBound | None = field_of("", "Of Nyström: `norm_bound`, where the fit computed it.", default=None)
    preimage: Any = field_of("", "The learned map from scores to data space, where there is one.", default=None)

    @classmethod
    def of_eigenpairs(
        cls,
        kernel: Kernel,
        plan: Plan,
        eigen: EigenResult,
        spectrum: Spectrum,
        scores: Array,
        map: AffineProjection,
        **more: Any,
    ) -> KernelPCAFit:
        """Return the result of eigenpairs, with scores (n, p) and the map of new points; `more` are optional fields."""
        found = {name: getattr(eigen, name) for name in EIGEN_FIELDS.split()}
        return cls(kernel=kernel, plan=plan, spectrum=spectrum, scores=scores, map=map, **found, **more)

    def with_axes(self) -> KernelPCAFit:
        """Return the fit with the axes, where the kernel is linear and the basis is all training rows, dense."""
        m = self.map
        if not isinstance(self.kernel, Linear) or self.has_sampled_basis or is_sparse(m.basis):
            return self
        if self.weight_sum is not None and m.center:
            axes = LinearAxes.of_landmarks(m.basis, feature_means(m.basis), m.projection, m.mean_weights)
        else:
            axes = LinearAxes.of_rows(m.basis, m.projection, m.center)
        return replace(self, axes=axes)

    @property
    def n_samples(self) -> float:
        """Return the number of training rows; where none has an eigenvector, each as often as its weight says."""
        if self.eigenvectors is None and self.stream is not None:
            return self.stream.count
        return int(self.eigenvectors.shape[0])

    @property
    def has_sampled_basis(self) -> bool:
        """Return whether the basis is made of landmarks, not of all training rows."""
        return self.stream is not None or self.landmarks is not None  # of files that have no sums

    @property
    def has_other_rows(self) -> bool:
        """Return whether the basis has points that are no training rows, or rows that were read once."""
        if self.landmarks is None:
            return self.stream is not None
        return len(self.landmarks) < int(self.map.projection.shape[0])

    @property
    def degrees_of_freedom(self) -> float:
        """Return n - 1, by which eigenvalues become variances; 1 for a single row."""
        return degrees_of_freedom(self.n_samples if self.weight_sum is None else self.weight_sum)

    @property
    def eigenvalues(self) -> Array:
        """Return the eigenvalues of the centered kernel matrix, or of K without centering, descending, shape (p,)."""
        return from_host(self.spectrum.eigenvalues, self.map.projection)

    @property
    def explained_variance(self) -> Array:
        """Return the variances of the scores, eigenvalues / (n - 1), shape (p,)."""
        return from_host(self.spectrum.eigenvalues / self.degrees_of_freedom, self.map.projection)

    @property
    def explained_variance_ratio(self) -> Array:
        """Return the shares of the total variance, shape (p,)."""
        return from_host(self.spectrum.ratios, self.map.projection)

    @property
    def total_variance(self) -> float:
        """Return the trace of the centered kernel matrix, or of K without centering, over n - 1."""
        return self.spectrum.total_variance / self.degrees_of_freedom

    @property
    def total_variance_interval(self) -> tuple[float, float]:
        """Return bounds on the total variance."""
        low, high = self.total_interval or 2 * (self.spectrum.total_variance,)
        return low / self.degrees_of_freedom, high / self.degrees_of_freedom

    @cached_property
    def norm_bound(self) -> NormBound | None:
        """Return the bound on every λ - θ of Nyström, from the rows in the slots; None for other solvers."""
        return norm_bound_of(self) if self.has_sampled_basis and self.certificate is not None else None

    @cached_property
    def space(self) -> FeatureSpace:
        """Return the affine space of the components in feature space."""
        return FeatureSpace.of(self, self.n_jobs)

    def transform(self, X_new: Any) -> Array:
        """Return the scores of new points.

        Parameters
        ----------
        X_new : array or CSR matrix, shape (m, d)
            In any library, on any device; for a precomputed kernel K(X_new, X) of shape (m, n). A set of zarr, HDF5 or
            the like is read by slices.

        Returns
        -------
        array, shape (m, p), in the library of X_new and the dtype of the fit

        Raises
        ------
        InvalidParameterError
            X_new is not two-dimensional, or has another number of features than the training rows.
        ValueError
            NaN or infinity in X_new or in the scores.

        Warns
        -----
        PrecisionWarning
            Rows so far from all training rows that every kernel value is below rounding.

        Notes
        -----
        Cost: m n kernel values, computed tile by tile and never stored together; m r with r landmarks of Nyström.
        """
        with device_context(self.map.like), overflow_allowed():
            d = self.plan.n_features
            return by_slices(X_new, lambda rows: to_caller(self.space.new_scores(new_rows(rows, d)), rows))

    def truncated(self, keep: int) -> KernelPCAFit:
        """Return the fit with the first `keep` components only, 1 <= keep <= p."""
        check_keep("keep", keep, len(self.spectrum.eigenvalues))
        return self.leading(int(keep))

    def leading(self, keep: int) -> KernelPCAFit:
        """Return the fit with the first `keep` components only; 0 where none has variance."""
        values = self.spectrum.eigenvalues
        if keep == len(values):
            return self
        return first_components(
            self,
            keep,
            spectrum=first_components(self.spectrum, keep),
            gap=self._gap_after(keep),
            map=first_components(self.map, keep),
            axes=None if self.axes is None else first_components(self.axes, keep),
        )

    def _gap_after(self, keep: int) -> float | None:
        """Return the gap between two computed eigenvalues, or the lower bound that a certificate leaves."""
        if not keep:
            return None
        values = self.spectrum.eigenvalues
        # The rounding is part of the certificate.
        gap = float(values[keep - 1] - values[keep]) - 2.0 * (self.certificate or 0.0)
        return gap if gap >= 0.0 else None


# The classes of this folder that model files hold.
STORED = (KernelPCAFit, Spectrum, AffineProjection, LinearAxes, FactorSums, Drift, Slots, NormBound)
