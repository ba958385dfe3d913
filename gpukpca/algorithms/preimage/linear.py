"""The exact pre-image of the linear kernel."""

from __future__ import annotations

from gpukpca._typing import Array
from gpukpca.algorithms.kernel_pca.linear_axes import LinearAxes
from gpukpca.algorithms.preimage.result import Preimage, PreimageInfo, Preimages


class LinearPreimage(LinearAxes, Preimage):
    """x = mean + z V, the reconstruction of PCA."""

    def __call__(self, Z: Array, start: Array | None = None) -> Preimages:
        """Return the points of scores (m, q), q at most the number of components."""
        return self.points(Z), PreimageInfo.direct(int(Z.shape[0]))
