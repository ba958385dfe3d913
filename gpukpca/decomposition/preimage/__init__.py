"""Pre-images of scores: exact for the linear kernel; ridge, fixed point and distance constraint for others."""

from gpukpca.algorithms.preimage.result import PreimageInfo
from gpukpca.decomposition.preimage.methods import DistanceConstraintPreimage, FixedPointPreimage, RidgePreimage

__all__ = ["DistanceConstraintPreimage", "FixedPointPreimage", "PreimageInfo", "RidgePreimage"]
