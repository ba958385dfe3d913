"""Option objects of the pre-image methods, and the choice of a method by the parameters of an estimator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from gpukpca.algorithms.kernel_pca.settings import PreimageMethod
from gpukpca.algorithms.preimage.distance_constraint import DistanceConstraintMethod
from gpukpca.algorithms.preimage.fixed_point import FixedPointMethod
from gpukpca.algorithms.preimage.ridge import RidgeMethod
from gpukpca.backend.parameters import ParameterObject
from gpukpca.decomposition._kernels import SHARED, KernelName, named_kernel
from gpukpca.exceptions import InvalidParameterError
from gpukpca.kernels import Kernel, Linear, Precomputed
from gpukpca.kernels.bandwidth import Gamma
from gpukpca.persistence.classes import register


@dataclass(eq=False, repr=False)
class RidgePreimage(ParameterObject):
    """Compute pre-images by kernel ridge regression of the data on the scores.

    The regression has a separate kernel between scores: a bandwidth that suits the data does not suit scores.

    Parameters
    ----------
    kernel : None, str or Kernel
        Kernel between scores; None is "rbf". A name means the kernel with `gamma`, and degree 3 and coef0 1 of "poly".
    gamma : None, float >= 0, "scale" or "median"
        Parameter of a kernel given by name or None. None is "median": 1 / (2 m²) for the median distance m of at most
        1000 scores.
    alpha : None or float >= 0
        Weight of the ridge; None is `alpha` of the estimator.
    centered : bool
        Regularize towards the mean of the data, so an offset of the data has no effect. False: towards 0, as in
        scikit-learn.
    n_landmarks : "auto", None or int >= 1
        None uses all n scores: one n x n matrix. An integer approximates the kernel by that number of its columns,
        chosen by randomly pivoted Cholesky. "auto" is None up to 10 000 rows where the matrix fits into memory, else
        2000, but at most n/5.

    See Also
    --------
    FixedPointPreimage : Iteration for radial kernels.
    DistanceConstraintPreimage : From the distances to neighbors.

    Notes
    -----
    Fit costs n³/3 + n² d operations, with r landmarks n r (r + d); a point costs n (r) values of the kernel and d
    operations for each. With fewer components than fitted the regression is solved again.

    ``fit_inverse_transform=True`` alone is this method with the kernel of the estimator between scores,
    ``centered=False`` and ``n_landmarks=None``. Together with ``preimage="ridge"`` or an object these options hold.

    A PrecisionWarning says where the regression leaves more of the training rows than their mean does, as one towards 0
    may, or one by a kernel that does not see lengths (cosine).

    Bakır, Weston & Schölkopf, NIPS 16 (2004).

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca import KernelPCA
    >>> from gpukpca.decomposition import RidgePreimage
    >>> X = np.random.default_rng(0).standard_normal((100, 3))
    >>> model = KernelPCA(10, kernel="rbf", preimage=RidgePreimage(alpha=0.1)).fit(X)
    >>> model.inverse_transform(model.transform(X[:5])).shape
    (5, 3)
    """

    kernel: KernelName | Kernel | None = None
    gamma: Gamma = None
    alpha: float | None = None
    centered: bool = True
    n_landmarks: int | Literal["auto"] | None = "auto"


@dataclass(eq=False, repr=False)
class FixedPointPreimage(ParameterObject):
    """Compute pre-images by the fixed-point iteration of Mika et al. (1999), for radial kernels.

    The result is the point nearest to the projection in feature space. The iteration starts at the point to be
    denoised, or for scores at the training point with the nearest scores. Steps that increase the distance are halved.

    Parameters
    ----------
    max_iter : int >= 1
        Largest number of iterations for a point.
    tol : float >= 0
        A point has converged when its next step is at most `tol` times the root mean square distance of the data from
        their mean. At least 20 eps.

    See Also
    --------
    RidgePreimage : Regression, for every kernel.
    DistanceConstraintPreimage : From the distances to neighbors.
    gpukpca.KernelPCA.inverse_transform : Return iterations and convergence of every point with ``return_info=True``.

    Notes
    -----
    For "rbf", "rational_quadratic", "matern" with nu > 1/2, and sums, products, multiples, powers and exponentials of
    them. An iteration costs m kernel values and about 4 m d operations a point, for m training points or landmarks.

    Mika, Schölkopf, Smola, Müller, Scholz & Rätsch, NIPS 11 (1999).

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca import KernelPCA
    >>> from gpukpca.decomposition import FixedPointPreimage
    >>> X = np.random.default_rng(0).standard_normal((100, 3))
    >>> model = KernelPCA(10, kernel="rbf", preimage=FixedPointPreimage(max_iter=500)).fit(X)
    >>> model.denoise(X[:5]).shape
    (5, 3)
    """

    max_iter: int = 200
    tol: float = 1e-5


@dataclass(eq=False, repr=False)
class DistanceConstraintPreimage(ParameterObject):
    """Compute pre-images from the distances to neighbors, by Kwok & Tsang (2004), for radial and polynomial kernels.

    Parameters
    ----------
    n_neighbors : int >= 1
        Number of training points nearest in feature space; the pre-image lies in their span. All points where there
        are fewer.

    See Also
    --------
    RidgePreimage : Regression, for every kernel.
    FixedPointPreimage : Iteration for radial kernels.

    Notes
    -----
    For "rbf", "rational_quadratic", "matern" and "poly", whose values have a closed form for the distance or the inner
    product, and for multiples of them; for even degrees the inner product that makes gamma x·y + coef0 positive. Fit
    evaluates the kernel once more between all training points or landmarks; a point costs 2 m p operations.

    With radial kernels the distance of a pre-image from the mean of its neighbors is bounded by twice the root mean
    square that their distances imply: the least squares of the paper under that bound. Without it, neighbors that lie
    nearly in fewer dimensions than they span (smooth curves without noise) would send noisy points far away.

    Kwok & Tsang, IEEE Trans. Neural Networks 15 (2004) 1517.

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca import KernelPCA
    >>> from gpukpca.decomposition import DistanceConstraintPreimage
    >>> X = np.random.default_rng(0).standard_normal((100, 3))
    >>> model = KernelPCA(10, kernel="rbf", preimage=DistanceConstraintPreimage(n_neighbors=8)).fit(X)
    >>> model.denoise(X[:5]).shape
    (5, 3)
    """

    n_neighbors: int = 10


PreimageName = Literal["ridge", "fixed_point", "distance_constraint"]
# name -> class of the options, and of the method that has them.
_KINDS: dict[str, tuple[type[ParameterObject], type[PreimageMethod]]] = {
    "ridge": (RidgePreimage, RidgeMethod),
    "fixed_point": (FixedPointPreimage, FixedPointMethod),
    "distance_constraint": (DistanceConstraintPreimage, DistanceConstraintMethod),
}
METHODS: dict[str, Any] = {name: options for name, (options, _) in _KINDS.items()}
for _options in METHODS.values():
    register(_options)


def preimage_method(estimator: Any, kernel: Kernel | None = None) -> PreimageMethod | None:
    """Return the pre-image method for the checked parameters of an estimator; None without a pre-image.

    `kernel` is the resolved kernel of the estimator.
    """
    options, alpha = estimator.preimage, estimator.alpha
    if options is None:
        return RidgeMethod(kernel, float(alpha), False, None) if estimator.fit_inverse_transform else None
    options = METHODS[options]() if isinstance(options, str) else options
    if isinstance(options, FixedPointPreimage):
        return FixedPointMethod(int(options.max_iter), float(options.tol))
    if isinstance(options, DistanceConstraintPreimage):
        return DistanceConstraintMethod(int(options.n_neighbors))
    between, gamma = options.kernel or "rbf", "median" if options.gamma is None else options.gamma
    if not isinstance(between, Kernel):
        between = named_kernel(between, SHARED | {"gamma": gamma}, {})
    return RidgeMethod(
        between, float(alpha if options.alpha is None else options.alpha), options.centered, options.n_landmarks
    )


def check_preimage_suits(method: Any, kernel: Kernel, by_flag: bool) -> None:
    """Raise where a method has no pre-images for a kernel, and name the methods that suit it."""
    if isinstance(kernel, Precomputed):
        what = "fit_inverse_transform" if by_flag else "find pre-images"
        raise InvalidParameterError(
            f"Cannot {what} with a precomputed kernel. Its matrix holds no data: fit on the data, with a "
            'kernel such as "rbf".'
        )
    if isinstance(kernel, Linear) or method.suits(kernel):
        return
    others = ", ".join(repr(name) for name, (_, kind) in _KINDS.items() if kind.suits(kernel))
    raise InvalidParameterError(
        f"KernelPCA: {method.options} does not suit {kernel!r}: {method.needs}. Methods that do: {others}."
    )
