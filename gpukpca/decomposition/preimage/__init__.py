"""From scores back to data: exact for the linear kernel; ridge, fixed point and distance constraint for others."""

from gpukpca.decomposition.preimage.methods import DistanceConstraintPreimage, FixedPointPreimage, RidgePreimage
from gpukpca.decomposition.preimage.result import PreimageInfo

__all__ = ["DistanceConstraintPreimage", "FixedPointPreimage", "PreimageInfo", "RidgePreimage"]
