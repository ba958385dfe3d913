"""The methods of `KernelPCA` that need a pre-image or the distance of points from the components."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, Protocol, Self, cast, overload

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from gpukpca._rules import is_integer
from gpukpca._typing import Array, ArrayLike, Held, NumpyArray, NumpyRows, Real, Stream, UnknownRows, Vector, of_rows
from gpukpca.algorithms.kernel_pca.feature_space import FeatureSpace
from gpukpca.algorithms.kernel_pca.model import KernelPCAFit
from gpukpca.algorithms.preimage.result import (
    Preimage,
    PreimageInfo,
    denoised_points,
    feature_space_errors,
    points_of_scores,
    reconstruction_errors,
)
from gpukpca.backend.device import device_context
from gpukpca.backend.namespace import host_values
from gpukpca.backend.parameters import check_has_options
from gpukpca.decomposition._base import KernelPCAAttributes, OnlyWhere
from gpukpca.decomposition._kernels import is_precomputed
from gpukpca.decomposition._model_files import Saved
from gpukpca.decomposition._row_wise import mean_score, row_wise
from gpukpca.exceptions import InvalidParameterError


def _without_inverse(estimator: Any) -> str:
    if estimator.fit_inverse_transform or estimator.preimage is not None:
        return ""
    return (
        "The fit_inverse_transform parameter was not set to True when instantiating, nor preimage given, so there is "
        'no pre-image. Create the estimator with preimage="ridge", another method, or fit_inverse_transform=True, and '
        "fit it again."
    )


def _without_score(estimator: Any) -> str:
    # The error in feature space cannot take its place: a kernel that maps all points to nearly one has the smallest.
    return _without_inverse(estimator) and (
        "KernelPCA.score is minus the squared reconstruction error in data space, which needs a pre-image: set "
        'preimage="ridge" or another method, and fit again. score_samples is minus the error in feature space.'
    )


def _without_diagonal(estimator: Any) -> str:
    if not is_precomputed(estimator.kernel):
        return ""
    return (
        "score_samples needs k(x, x) of the new points, which the rows of a precomputed kernel do not hold. Use "
        "-feature_space_error(K, diagonal=...) with these numbers."
    )


_EXAMPLES = {
    "kernel": "gpukpca.kernels.RBF()",
    "preimage": "gpukpca.decomposition.RidgePreimage()",
    "eigen_solver": "gpukpca.Nystrom()",
}


class OfPoints(Protocol):
    """A method that returns points, for type checkers: those of NumPy rows are NumPy arrays."""

    @overload
    def __call__(self, X: UnknownRows, n_components: int | None = None, return_info: bool = False) -> Any: ...
    @overload
    def __call__(
        self, X: NumpyRows[Real], n_components: int | None = None, return_info: Literal[False] = False
    ) -> NumpyArray[Real]: ...
    @overload
    def __call__(
        self, X: ArrayLike, n_components: int | None = None, *, return_info: Literal[True]
    ) -> tuple[Array, PreimageInfo]: ...
    @overload
    def __call__(self, X: ArrayLike, n_components: int | None = None, return_info: bool = False) -> Any: ...


def of_points(method: Callable[..., Any]) -> OfPoints:
    """Return the method itself."""
    return cast(OfPoints, method)


class PreimageEstimator(KernelPCAAttributes[Held], Saved):
    """Base of KernelPCA: the methods that need a pre-image."""

    _result: KernelPCAFit
    # The parameters of the last `set_params` that set the kernel, as searches over kernels do.
    _set_with_kernel: frozenset[str] = frozenset()

    @property
    def _like(self) -> Array:
        return self._result.map.like

    @property
    def _space(self) -> FeatureSpace:
        """Return the affine space of the components in feature space."""
        return FeatureSpace.of(self._result, self.n_jobs)

    # -- parameters ------------------------------------------------------------------------------------------------

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name, those of an object inside as in ``eigen_solver__rank=50``.

        Parameters
        ----------
        **params : values by name
            Those of a kernel, pre-image or solver object inside as in ``preimage__alpha=0.1``.

        Returns
        -------
        KernelPCA
            The estimator itself.

        Raises
        ------
        InvalidParameterError
            An option of a kernel, pre-image or solver that is given by name instead of as an object.
        ValueError
            No such parameter.
        """
        for option in params:
            owner, _, inner = option.partition("__")
            if inner and owner in _EXAMPLES:
                value = params.get(owner, getattr(self, owner))
                check_has_options(type(self).__name__, owner, value, option, _EXAMPLES[owner])
        if "kernel" in params:
            self._set_with_kernel = frozenset(params)
        return super().set_params(**params)

    def __sklearn_clone__(self) -> Any:
        """Clone as scikit-learn does, with the memory of what was set together with the kernel."""
        twin = super().__sklearn_clone__()
        if self._set_with_kernel:
            twin._set_with_kernel = self._set_with_kernel
        return twin

    # -- data space ------------------------------------------------------------------------------------------------

    @of_points
    @OnlyWhere(_without_inverse)
    @row_wise("points", of="scores")
    def inverse_transform(self, X: ArrayLike, n_components: int | None = None, return_info: bool = False) -> Any:
        """Return points of data space for given scores, by the fitted pre-image; exact for the linear kernel.

        Parameters
        ----------
        X : array, shape (m, p)
            Scores, such as `transform` returns.
        n_components : int, optional
            Number of leading columns that are used, 1 to p, without fitting again.
        return_info : bool
            Also return how each point was computed.

        Returns
        -------
        array, shape (m, d)
            With `return_info` also an object with three arrays (m,) on the host: `converged`, the iterations `n_iter`,
            and `restarted`, whether the nearest training point replaced a start without weights.

        Raises
        ------
        NotFittedError
            Not fitted, or fitted without a pre-image.
        ValueError
            Wrong width, NaN or infinity.

        Warns
        -----
        ConvergenceWarning
            Some points did not converge; they are the last iterates.
        """
        preimage, q = self._checked_preimage(n_components)
        found = self._of_scores(X, lambda Z: points_of_scores(preimage, Z[:, :q], X))
        return found if return_info else found[0]

    @of_points
    @OnlyWhere(_without_inverse)
    @row_wise("points")
    def denoise(self, X: ArrayLike, n_components: int | None = None, return_info: bool = False) -> Any:
        """Project points onto the components in feature space and return the pre-images.

        The fixed-point iteration starts from the points themselves. Other methods give the result of
        `inverse_transform` for the scores.

        Parameters
        ----------
        X : array or data frame, shape (m, d)
        n_components : int, optional
            Number of leading components that are used, 1 to p, without fitting again.
        return_info : bool
            Also say how each point was found.

        Returns
        -------
        array, shape (m, d), in the library of X
            With `return_info` also an object as of `inverse_transform`.

        Raises
        ------
        NotFittedError, ValueError

        Warns
        -----
        ConvergenceWarning
            Some points have not converged; they are where the last step led.

        Notes
        -----
        By panels of rows: apart from the result, memory does not grow with m.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.datasets import load_digits
        >>> from gpukpca import KernelPCA
        >>> X = load_digits().data[:400] / 16.0
        >>> noisy = X + 0.3 * np.random.default_rng(0).standard_normal(X.shape)
        >>> model = KernelPCA(20, kernel="rbf", gamma=0.02, preimage="ridge").fit(noisy)
        >>> bool(np.mean((model.denoise(noisy) - X) ** 2) < 0.5 * np.mean((noisy - X) ** 2))
        True
        """
        preimage, q = self._checked_preimage(n_components)
        found = self._answer(X, "denoise", lambda Y: denoised_points(self._space, preimage, Y, q, X))
        return found if return_info else found[0]

    @OnlyWhere(_without_inverse)
    @of_rows
    def reconstruction_error(self, X: ArrayLike, n_components: int | None = None) -> Array:
        """Return ‖x - x̂‖² of every point and its pre-image x̂, as `denoise` gives it.

        Parameters
        ----------
        X, n_components : see `denoise`

        Returns
        -------
        array, shape (m,), in the library of X
            Squared distances in data space, summed over the features.

        Raises
        ------
        NotFittedError
        ValueError
            Also where squares are beyond the dtype of fit.

        Warns
        -----
        ConvergenceWarning
        """
        return self._square_errors(X, n_components)

    @OnlyWhere(_without_score)
    def score(self, X: ArrayLike | Stream, y: Any = None, sample_weight: Vector | None = None) -> float:
        """Return minus the mean of `reconstruction_error` over the points: higher is better.

        It has the units of the data whatever the kernel. So kernels, their parameters and methods can be compared on
        held-out data: `GridSearchCV` needs no labels.

        Parameters
        ----------
        X : array or data frame, shape (m, d)
        y : ignored
        sample_weight : array, shape (m,), optional
            How often each point counts in the mean Σ w e / Σ w.

        Returns
        -------
        float

        Raises
        ------
        NotFittedError
            Not fitted, or fitted without a pre-image.
        ValueError
        """
        # In the widest type: squares of data near 1e-25 are 0 in float32, and no kernel would be the best.
        return -mean_score(partial(self._square_errors, wide=True), X, sample_weight)

    # -- feature space ---------------------------------------------------------------------------------------------

    @row_wise("numbers")
    def feature_space_error(self, X: ArrayLike, n_components: int | None = None, diagonal: Any = None) -> Array:
        """Return squared distances in feature space from the components: k̃(x, x) - ‖z‖². Needs no pre-image.

        k̃(x, x) = k(x, x) - 2 mean_j k(x, x_j) + mean_ij k(x_i, x_j) is the squared distance from the mean. With
        landmarks the mean is that of the features' projections onto those of the landmarks.

        Parameters
        ----------
        X : array, CSR matrix or data frame, shape (m, d); K(X, X_fit) of shape (m, n) with kernel="precomputed"
        n_components : int, optional
            Number of leading components that are used, 0 to p.
        diagonal : array, shape (m,), optional
            The values k(x, x); required with kernel="precomputed", and refused with other kernels.

        Returns
        -------
        array, shape (m,), in the library of X and the units of k(x, x)
            Nonnegative, unless the kernel is not positive semidefinite. Exact to a few eps of k(x, x), because two
            numbers of that size cancel.

        Raises
        ------
        NotFittedError, ValueError

        Notes
        -----
        Cost as `transform`.

        Examples
        --------
        A point far from the training rows has a larger distance than they have.
        >>> import numpy as np
        >>> from gpukpca import KernelPCA
        >>> X = np.random.default_rng(0).standard_normal((200, 2))
        >>> model = KernelPCA(5, kernel="rbf", gamma=0.5).fit(X)
        >>> bool(model.feature_space_error(np.array([[4.0, 4.0]])) > model.feature_space_error(X).mean())
        True
        """
        check_is_fitted(self)
        q = self._first(n_components, lowest=0)
        if is_precomputed(self.kernel_) != (diagonal is not None):
            raise InvalidParameterError(
                "feature_space_error needs diagonal = k(x, x) of the new points with a precomputed kernel, whose rows "
                f"do not hold it, and takes none with others; the kernel is {self.kernel_!r}."
            )

        def errors(Y: Array) -> Array:
            values = None if diagonal is None else _checked_diagonal(diagonal, int(Y.shape[0]))
            return feature_space_errors(self._space, Y, q, X, values)

        return self._answer(X, "feature_space_error", errors)

    @OnlyWhere(_without_diagonal)
    @row_wise("numbers")
    def score_samples(self, X: ArrayLike) -> Array:
        """Return minus `feature_space_error`: higher is closer to the training data.

        Parameters
        ----------
        X : array, CSR matrix or data frame, shape (m, d)

        Returns
        -------
        array, shape (m,), in the library of X

        Raises
        ------
        NotFittedError, ValueError

        Notes
        -----
        Hoffmann, Pattern Recognition 40 (2007) 863.
        """
        errors = self.feature_space_error(X)
        with device_context(errors):
            return -errors

    # -- parts -----------------------------------------------------------------------------------------------------

    def _checked_preimage(self, n_components: Any) -> tuple[Preimage, int]:
        """Return the pre-image and the number of components, or raise `NotFittedError` where the fit has none."""
        check_is_fitted(self)
        preimage: Preimage | None = self._result.preimage
        if preimage is None:
            raise NotFittedError(
                "this KernelPCA was fitted without preimage or fit_inverse_transform=True, so it has no inverse; fit "
                "it again."
            )
        return preimage, self._first(n_components, lowest=1)

    def _first(self, n_components: Any, lowest: int) -> int:
        """Return the number of components that are used: all, or `n_components`."""
        p = int(self.eigenvalues_.shape[0])
        if n_components is None:
            return p
        if not is_integer(n_components) or not lowest <= n_components <= p:
            counts = f", or an integer from {lowest} to {p}" if p >= lowest else ""
            raise InvalidParameterError(
                f"n_components={n_components!r} is not allowed here; give None for all {p} fitted components{counts}."
            )
        return int(n_components)

    @row_wise("numbers")
    def _square_errors(self, X: Any, n_components: Any = None, wide: bool = False) -> Array:
        """Return `reconstruction_error`, in the dtype of fit or in the widest, shape (m,)."""
        preimage, q = self._checked_preimage(n_components)

        def errors(Y: Array) -> Array:
            return reconstruction_errors(self._space, preimage, Y, q, X, wide=wide)

        return self._answer(X, "reconstruction_error", errors)


def _checked_diagonal(diagonal: Any, count: int) -> np.ndarray:
    """Return k(x, x) of the new points on the host, checked, shape (count,)."""
    values = host_values(diagonal).astype(np.float64)
    if values.shape != (count,) or not np.all(np.isfinite(values)):
        raise InvalidParameterError(
            f"diagonal must hold k(x, x) of the {count} new points, finite; got an array of shape {values.shape}."
        )
    return values
