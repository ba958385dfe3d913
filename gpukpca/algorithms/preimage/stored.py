"""The pre-images that model files hold."""

from __future__ import annotations

from gpukpca.algorithms.preimage.distance_constraint import DistanceConstraint
from gpukpca.algorithms.preimage.fixed_point import FixedPoint
from gpukpca.algorithms.preimage.linear import LinearPreimage
from gpukpca.algorithms.preimage.ridge import RidgeRegression, RidgeRule

STORED = (LinearPreimage, RidgeRegression, RidgeRule, FixedPoint, DistanceConstraint)
# Their feature space is that of the fit that holds them.
OF_A_SPACE = (FixedPoint, DistanceConstraint)
