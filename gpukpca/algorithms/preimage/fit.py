"""From a fitted kernel PCA to its pre-image."""

from __future__ import annotations

from typing import Any

from gpukpca.algorithms.kernel_pca.model import KernelPCAFit
from gpukpca.algorithms.kernel_pca.settings import PreimageOptions
from gpukpca.algorithms.preimage.linear import LinearPreimage
from gpukpca.algorithms.preimage.result import Preimage
from gpukpca.kernels import Linear


def fit_preimage(X: Any, fit: KernelPCAFit, method: PreimageOptions | None) -> Preimage | None:
    """Return the pre-image of a fit by a method; None for no method. That of the linear kernel is exact.

    Parameters
    ----------
    X : array, shape (n, d)
        The training rows, where the fit computed.
    method : RidgePreimage, FixedPointPreimage, DistanceConstraintPreimage, or None
        From `gpukpca.decomposition`, suited to the kernel.
    """
    if method is None:
        return None
    m = fit.map
    if not isinstance(fit.kernel, Linear):
        preimage: Preimage = method.learn(X, fit.space, fit.scores, fit.plan.preimage_landmarks)
        return preimage
    if fit.axes is not None:
        return LinearPreimage(fit.axes.components, fit.axes.mean, fit.axes.wide_mean)
    rows: Any = m.prepared(fit.kernel)
    return LinearPreimage.of_landmarks(m.basis, rows.mean, m.projection, m.mean_weights)
