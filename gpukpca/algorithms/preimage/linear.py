"""The exact pre-image of the linear kernel, and the pre-image of a fit by any method."""

from __future__ import annotations

from typing import Any

from gpukpca._typing import Array
from gpukpca.algorithms.kernel_pca.feature_space import LinearAxes
from gpukpca.algorithms.kernel_pca.model import KernelPCAFit
from gpukpca.algorithms.kernel_pca.settings import PreimageMethod
from gpukpca.algorithms.preimage.result import Preimage, PreimageInfo, Preimages
from gpukpca.kernels import Linear


class LinearPreimage(LinearAxes, Preimage):
    """x = mean + z V, the reconstruction of PCA."""

    def __call__(self, Z: Array, start: Array | None = None) -> Preimages:
        """Return the points of scores (m, q), q at most the number of components."""
        return self.points(Z), PreimageInfo.direct(int(Z.shape[0]))


def fit_preimage(X: Any, fit: KernelPCAFit, method: PreimageMethod | None) -> Preimage | None:
    """Return the pre-image of a fit to training rows X (n, d) by a method, or None; the linear kernel has its own."""
    if method is None:
        return None
    m = fit.map
    if not isinstance(fit.kernel, Linear):
        preimage: Preimage = method.learn(X, fit.space, fit.scores, fit.plan.preimage_landmarks)
        return preimage
    if fit.axes is not None:
        return LinearPreimage(fit.axes.components, fit.axes.mean, fit.axes.wide_mean)
    if not m.center:
        return LinearPreimage.of_rows(m.basis, m.projection, center=False)
    rows: Any = m.prepared(fit.kernel)
    return LinearPreimage.of_landmarks(m.basis, rows.mean, m.projection, m.mean_weights)
