"""Diagnostics of a fitted PCA: quality of points, reconstruction, inertia, intrinsic dimension.

Every function takes a fitted PCA of this library or of scikit-learn: any model with `components_` (unit rows), `mean_`
and `explained_variance_`. For a model with `scale_` lengths are those of standardized data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, overload

import numpy as np
from sklearn.utils.validation import check_is_fitted

from gpukpca._rules import is_integer
from gpukpca._typing import Array, ArrayLike, NumpyArray, NumpyRows, UnknownRows
from gpukpca.backend import blocking
from gpukpca.backend.device import device_context, on_its_device
from gpukpca.backend.linalg import column_sums, inner_products
from gpukpca.backend.namespace import (
    accumulation_dtype,
    cast,
    epsilon,
    from_host,
    host_values,
    namespace_of,
    overflow_allowed,
    to_host,
)
from gpukpca.data.finite import check_finite
from gpukpca.data.frequencies import number_of
from gpukpca.data.gate import as_rows
from gpukpca.data.place import rows_at, to_caller
from gpukpca.data.scale import power_of_two_scale
from gpukpca.data.slicing import by_panels, dense_rows, row_panels
from gpukpca.data.statistics import feature_bounds, feature_means, half_range
from gpukpca.decomposition._validation import new_data
from gpukpca.exceptions import InvalidParameterError

# Up to this many eps of the largest entry of a row a centered value is rounding of the mean, and counts as 0.
ROUNDING = 4.0
# Neighbors whose squared distance is below so many eps of the largest one from the mean are searched by differences.
BLURRED = 1e6
# Largest departure of axes from orthonormality, in units of sqrt(eps).
SKEW = 1.0


# -- the spectrum ------------------------------------------------------------------------------------------------------


def spectrum_of(model: Any) -> np.ndarray:
    """Return the variances of the components that a PCA keeps, on the host in float64, shape (p,)."""
    check_model(model)
    if (variances := fitted_value(model, "explained_variance_")) is None:
        raise InvalidParameterError(f"{type(model).__name__} has no explained_variance_; pass a fitted PCA.")
    return np.array(to_host(variances), dtype=np.float64)


def check_model(model: Any) -> None:
    """Raise where a model is no estimator, or not fitted."""
    if not hasattr(model, "fit") or isinstance(model, type):
        what = f"the class {model.__name__}" if isinstance(model, type) else f"an object of type {type(model).__name__}"
        raise InvalidParameterError(f"expected a fitted estimator, got {what}.")
    check_is_fitted(model)


def axes_of(model: Any) -> Array:
    """Return the unit axes (p, d) of a fitted PCA of any library; raise for a model of another kind."""
    check_model(model)
    V = fitted_value(model, "components_")
    if V is None or V.ndim != 2 or any(fitted_value(model, name) is None for name in ("mean_", "explained_variance_")):
        raise InvalidParameterError(
            f"{type(model).__name__} has no axes of a PCA (mean_, components_ and explained_variance_); pass a fitted "
            "PCA, of a pipeline the last step, model[-1], or take variable_correlations(model, X)."
        )
    return V


def fitted_value(model: Any, *names: str) -> Any:
    """Return the first of these attributes that a model of any library has; None where it has none of them."""
    return next((value for name in names if (value := getattr(model, name, None)) is not None), None)


def total_variance_of(model: Any) -> float:
    """Return the sum of all variances, over n - 1, also of the components that a PCA does not keep."""
    if (total := fitted_value(model, "total_variance_")) is not None:
        return float(total)
    shares = float(np.sum(to_host(model.explained_variance_ratio_).astype(np.float64)))
    return float(np.sum(spectrum_of(model))) / shares if shares > 0 else 0.0


def whole_rank(model: Any) -> int:
    """Return the number of variances of a PCA that can differ from zero, min(n - 1, d)."""
    return min(rows_of(model) - 1, int(model.components_.shape[1]))


def rows_of(model: Any) -> int:
    """Return the number of rows that a PCA was fitted to, or that their weights stand for where these are more."""
    return round(max(samples_of(model), getattr(fitted_value(model, "plan_"), "n_samples", 0)))


def samples_of(model: Any) -> float:
    """Return the number of rows that a PCA was fitted to, each as often as its weight says."""
    if (n := fitted_value(model, "n_samples_", "n_samples_seen_")) is not None:
        return number_of(float(n))
    raise InvalidParameterError(
        f"{type(model).__name__} does not say how many samples it was fitted to (n_samples_ or n_samples_seen_)."
    )


def is_centered(model: Any) -> bool:
    """Return whether the fit of a model subtracted the mean, as those of other libraries do."""
    result = getattr(model, "_result", None)
    return bool(getattr(fitted_value(result, "projection", "map", "state"), "center", True))


# -- points ------------------------------------------------------------------------------------------------------------


@overload
def squared_cosines(model: Any, X: UnknownRows, *, residual: bool = False) -> Array: ...
@overload
def squared_cosines(model: Any, X: NumpyRows, *, residual: bool = False) -> NumpyArray: ...
@overload
def squared_cosines(model: Any, X: ArrayLike, *, residual: bool = False) -> Array: ...
def squared_cosines(model: Any, X: ArrayLike, *, residual: bool = False) -> Array:
    """Return how well components represent points: cos² of the angle between x - mean and each axis.

    Parameters
    ----------
    model : fitted PCA
    X : array, sparse matrix or data frame, shape (m, d)
    residual : bool
        Append a column: the share of ‖x - mean‖² outside of all components. Then rows sum to 1.

    Returns
    -------
    array, shape (m, p) or (m, p + 1), in the library of X and the dtype of the model
        0 in all columns for a point at the mean.

    Raises
    ------
    NotFittedError, ValueError

    See Also
    --------
    reconstruction_error : The squared distance of points from the components.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gpukpca import PCA
    >>> from gpukpca.decomposition import squared_cosines
    >>> X = load_iris().data
    >>> squared_cosines(PCA(2).fit(X), X[:2], residual=True).round(3)
    array([[0.986, 0.014, 0.   ],
           [0.989, 0.004, 0.007]])
    """
    return _by_rows(model, X, lambda rows: _cosines(model, rows, residual), "squared_cosines")


def _cosines(model: Any, rows: Array, residual: bool) -> Array:
    """Return the squared cosines of dense rows in the place of the model."""
    xp = namespace_of(rows)
    centered = _centered(model, rows)
    largest = xp.max(xp.abs(centered), axis=1)
    at_mean = largest <= ROUNDING * epsilon(model.components_) * _sizes(model, rows)
    # Unit largest entries: no square overflows or vanishes.
    unit = centered / xp.where(at_mean, xp.ones_like(largest), largest)[:, None]
    V = cast(model.components_, unit.dtype)
    scores = unit @ V.T
    columns = [scores * scores]
    if residual:
        outside = unit - scores @ V
        columns.append(xp.sum(outside * outside, axis=1)[:, None])
    norms = xp.sum(unit * unit, axis=1)
    norms = xp.where(at_mean, xp.ones_like(norms), norms)
    kept = xp.astype(xp.logical_not(at_mean), unit.dtype)
    return xp.concat(columns, axis=1) * (kept / norms)[:, None]


def _sizes(model: Any, rows: Array) -> Array:
    """Return the largest entry of every row and of the mean, in the units of centered rows."""
    xp = namespace_of(rows)
    mean = cast(model.mean_, accumulation_dtype(rows))
    sizes = xp.abs(cast(rows, mean.dtype)) + xp.abs(mean)[None, :]
    scale = _scale(model)
    return xp.max(sizes if scale is None else sizes / scale[None, :], axis=1)


# -- reconstruction ----------------------------------------------------------------------------------------------------


@overload
def reconstruction(model: Any, X: UnknownRows, n_components: int | None = None) -> Array: ...
@overload
def reconstruction(model: Any, X: NumpyRows, n_components: int | None = None) -> NumpyArray: ...
@overload
def reconstruction(model: Any, X: ArrayLike, n_components: int | None = None) -> Array: ...
def reconstruction(model: Any, X: ArrayLike, n_components: int | None = None) -> Array:
    """Return the projections of points onto the subspace of the first components.

    Parameters
    ----------
    model : fitted PCA
    X : array, sparse matrix or data frame, shape (m, d)
    n_components : int, optional
        Number of leading components, 0 (the mean) to p; default: all.

    Returns
    -------
    array, shape (m, d), in the units of X, in its library, and in the dtype of the model

    Raises
    ------
    NotFittedError, ValueError

    See Also
    --------
    reconstruction_error : The squared distances from these points.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gpukpca import PCA
    >>> from gpukpca.decomposition import reconstruction
    >>> X = load_iris().data
    >>> model = PCA(2).fit(X)
    >>> X[0], reconstruction(model, X[:1]).round(2)
    (array([5.1, 3.5, 1.4, 0.2]), array([[5.08, 3.52, 1.4 , 0.21]]))
    """
    K = _count(n_components, int(axes_of(model).shape[0]), "n_components")

    def nearest(rows: Array) -> Array:
        _, points = _nearest(model, rows, K)
        scale = _scale(model)
        points = points if scale is None else points * scale[None, :]
        return points + cast(model.mean_, points.dtype)[None, :]

    return _by_rows(model, X, nearest, "reconstruction")


@overload
def reconstruction_error(
    model: Any, X: ArrayLike, n_components: int | None = None, per_sample: Literal[False] = False
) -> float: ...
@overload
def reconstruction_error(model: Any, X: ArrayLike, n_components: int | None = None, *, per_sample: bool) -> Any: ...
def reconstruction_error(model: Any, X: ArrayLike, n_components: int | None = None, per_sample: bool = False) -> Any:
    """Return the squared distance of points from the subspace of the first components: the mean, or of each point.

    Parameters
    ----------
    model : fitted PCA
    X : array, sparse matrix or data frame, shape (m, d)
    n_components : int, optional
        Number of leading components, 0 to p; default: all.
    per_sample : bool
        Return one number a point.

    Returns
    -------
    float; or an array of shape (m,) in the library of X and the dtype of the model
        On the data of fit the mean is Σ_{d>K} λ_d (n - 1)/n. For a model with `scale_` it is the distance between
        standardized points.

    Raises
    ------
    NotFittedError, ValueError

    See Also
    --------
    reconstruction : The projections.
    squared_cosines : The same as shares of squared distances from the mean.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gpukpca import PCA
    >>> from gpukpca.decomposition import reconstruction_error
    >>> X = load_iris().data
    >>> model = PCA(3).fit(X)
    >>> [round(float(reconstruction_error(model, X, k)), 3) for k in range(4)]
    [4.542, 0.342, 0.101, 0.024]
    """
    K = _count(n_components, int(axes_of(model).shape[0]), "n_components")

    def squares(rows: Array) -> Array:
        centered, points = _nearest(model, rows, K)
        left = centered - points
        return namespace_of(left).sum(left * left, axis=1)

    errors = _by_rows(model, X, squares, "reconstruction_error", narrow=per_sample)
    return errors if per_sample else float(column_sums(errors[:, None])[0]) / int(errors.shape[0])


def _nearest(model: Any, rows: Array, K: int) -> tuple[Array, Array]:
    """Return centered rows, and the nearest points in the span of the first K components."""
    centered = _centered(model, rows)
    V = cast(model.components_[:K, :], centered.dtype)
    return centered, (centered @ V.T) @ V


# -- inertia -----------------------------------------------------------------------------------------------------------


@on_its_device
def inertia(X: ArrayLike, about: Any = None) -> float:
    """Return the sum of squared distances of points from a point or a subspace.

    Parameters
    ----------
    X : array, sparse matrix or data frame, shape (n, d)
    about : array of shape (d,), or (point, axes), optional
        A point; or a point (d,) and orthonormal axes (q, d) as rows, for the subspace through the point along the axes.
        Default: the mean of X.

    Returns
    -------
    float
        About a point a: I_a = n ‖a - x̄‖² + I_x̄ (Huygens). About a subspace through x̄: I_x̄ minus the inertia along
        its axes.

    Raises
    ------
    InvalidParameterError, ValueError
        Shapes that do not fit, axes that are not orthonormal, NaN.

    See Also
    --------
    reconstruction_error : The inertia about the subspace of a fit, over n.

    Notes
    -----
    Cost O(n d q), in float64 where the device has it.

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca.decomposition import inertia
    >>> X = np.array([[0.0, 0.0], [2.0, 0.0], [4.0, 3.0]])
    >>> inertia(X)
    14.0
    >>> inertia(X, about=np.array([2.0, 0.0]))  # 3 ‖a - mean‖² more
    17.0
    """
    rows = dense_rows(as_rows(X, "the inertia", finite=True))
    with overflow_allowed():
        point, axes = _about(about, rows)
        total = 0.0
        for start, stop in row_panels(rows):
            left = cast(rows[start:stop, :], point.dtype) - point[None, :]
            if axes is not None:
                left = left - (left @ axes.T) @ axes
            total += float(namespace_of(left).sum(left * left))
    if not math.isfinite(total):
        raise ValueError("the inertia overflows; divide the data by a constant.")
    return total


def _about(about: Any, rows: Array) -> tuple[Array, Array | None]:
    """Return point and axes in the place of the rows, in the widest type."""
    wide, d = accumulation_dtype(rows), int(rows.shape[1])
    if about is None:
        return feature_means(rows), None
    is_subspace = isinstance(about, tuple) and len(about) == 2 and len(np.shape(about[1])) == 2
    point, axes = about if is_subspace else (about, None)
    point = _in_place_of_rows(point, rows, wide)
    if point.shape != (d,):
        raise InvalidParameterError(f"about: expected a point of shape ({d},), got shape {tuple(point.shape)}.")
    if axes is None:
        return point, None
    axes = _in_place_of_rows(axes, rows, wide)
    if axes.ndim != 2 or axes.shape[1] != d:
        raise InvalidParameterError(f"about: expected axes of shape (q, {d}), got shape {tuple(axes.shape)}.")
    turned = axes.T
    skew = float(np.max(np.abs(inner_products(turned, turned) - np.eye(axes.shape[0])), initial=0.0))
    if not skew <= SKEW * math.sqrt(float(np.finfo(np.float32).eps)):
        raise InvalidParameterError(
            f"about: the axes are not orthonormal (A Aᵀ - I reaches {skew:.1e}); orthonormalize them first."
        )
    return point, axes


def _in_place_of_rows(a: Any, rows: Array, dtype: Any) -> Array:
    """Return a finite point or axes in the place of the rows."""
    host = host_values(a).astype(np.float64)
    if not np.all(np.isfinite(host)):
        raise InvalidParameterError("about: the point and the axes must be finite.")
    return from_host(host, rows, dtype)


# -- dimension ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class IntrinsicDimension:
    """Local dimensions of a data set.

    Attributes
    ----------
    per_sample : host array of int, shape (n,)
        Significant eigenvalues of the neighborhood of every sample; 0 where all its neighbors are equal.
    median : float

    See Also
    --------
    intrinsic_dimension : Returns it.

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca.decomposition import intrinsic_dimension
    >>> t = np.linspace(0.0, 1.0, 100)
    >>> dimension = intrinsic_dimension(np.stack([t, t**2], axis=1))
    >>> dimension.median, dimension.per_sample.shape
    (1.0, (100,))
    """

    per_sample: np.ndarray
    median: float


def intrinsic_dimension(X: ArrayLike, n_neighbors: int = 20, threshold: float = 0.05) -> IntrinsicDimension:
    """Return the local intrinsic dimension by PCA of the neighborhood of every sample.

    Parameters
    ----------
    X : array, sparse matrix or data frame, shape (n, d)
        Any library; computed on the host.
    n_neighbors : int >= 2
        Samples in a neighborhood apart from its center; at most n - 1. It bounds the dimension.
    threshold : float in (0, 1)
        An eigenvalue counts if it exceeds this share of the largest one of the neighborhood.

    Returns
    -------
    IntrinsicDimension

    Raises
    ------
    InvalidParameterError, ValueError

    See Also
    --------
    gpukpca.model_selection.n_components_for : The number of components of one PCA of all samples.

    Notes
    -----
    Cost: the neighbors, and O(n k² d) for k neighbors. Fukunaga & Olsen, IEEE Trans. Computers C-20 (1971) 176.

    Examples
    --------
    A sheet that is rolled up in three dimensions has two.

    >>> from sklearn.datasets import make_swiss_roll
    >>> from gpukpca.decomposition import intrinsic_dimension
    >>> X, _ = make_swiss_roll(1000, random_state=0)
    >>> intrinsic_dimension(X, n_neighbors=10, threshold=0.1).median
    2.0
    """
    rows = as_rows(X, "the dimension", finite=True)
    rows = np.asarray(to_host(rows), dtype=np.float64)
    rows = rows * power_of_two_scale(half_range(*feature_bounds(rows)), np.float64)  # distances in range
    limit = len(rows) - 1
    if not is_integer(n_neighbors) or not 2 <= n_neighbors <= limit:
        raise InvalidParameterError(
            f"n_neighbors={n_neighbors!r} is not allowed; it must be an integer from 2 to n - 1 = {limit}."
        )
    if not isinstance(threshold, Real) or not 0 < threshold < 1:
        raise InvalidParameterError(f"threshold={threshold!r} is not allowed; it must be strictly between 0 and 1.")
    rows -= rows.mean(axis=0)  # an offset costs digits of distances
    found = _neighbors(rows, int(n_neighbors) + 1)
    step = max(1, blocking.NEIGHBOR_ENTRIES // (found.shape[1] * rows.shape[1]))
    starts = range(0, len(rows), step)
    local = [_local_dimensions(rows[found[start : start + step]], float(threshold)) for start in starts]
    per_sample = np.concatenate(local)
    return IntrinsicDimension(per_sample, float(np.median(per_sample)))


def _neighbors(rows: np.ndarray, count: int) -> np.ndarray:
    """Return the numbers of the `count` rows nearest to each of the centered rows, shape (n, count)."""
    from sklearn.neighbors import NearestNeighbors  # a slow import that only this function needs

    distances, found = NearestNeighbors(n_neighbors=count).fit(rows).kneighbors(rows)
    # Of many features scikit-learn searches by matrix products, which err by eps times the largest squared norm.
    reach = BLURRED * np.finfo(np.float64).eps * float(np.max(np.einsum("ij,ij->i", rows, rows)))
    blurred = np.flatnonzero(distances[:, -1] ** 2 < reach)
    if blurred.size:
        tree = NearestNeighbors(n_neighbors=count, algorithm="ball_tree").fit(rows)
        found[blurred] = tree.kneighbors(rows[blurred], return_distance=False)
    return found


def _local_dimensions(hoods: np.ndarray, threshold: float) -> np.ndarray:
    """Return the number of significant eigenvalues of every neighborhood, hoods of shape (m, k, d)."""
    hoods = hoods - hoods.mean(axis=1, keepdims=True)
    largest = np.max(np.abs(hoods), axis=(1, 2))
    hoods = hoods / np.where(largest > 0, largest, 1.0)[:, None, None]
    values = np.linalg.svd(hoods, compute_uv=False) ** 2
    return np.sum((values > threshold * values[:, :1]) & (largest > 0)[:, None], axis=1)


# -- shared ------------------------------------------------------------------------------------------------------------


def _by_rows(model: Any, X: Any, function: Callable[[Array], Array], name: str, narrow: bool = True) -> Array:
    """Return a function of the dense rows of X, computed where the model is, in the library of X."""
    like = axes_of(model)
    Y = new_data(model, X, like, name)
    with device_context(like), overflow_allowed():
        result = by_panels(rows_at(Y, like), lambda rows, *_: function(dense_rows(rows)))
        result = cast(result, like.dtype) if narrow else result
        check_finite(result[:, None] if result.ndim == 1 else result, "The points are too large.", f"The {name}")
        return to_caller(result, X)


def _centered(model: Any, rows: Array) -> Array:
    """Return x - mean, divided by the scale where the model has one, in the widest type."""
    wide = accumulation_dtype(rows)
    centered = cast(rows, wide) - cast(model.mean_, wide)[None, :]
    scale = _scale(model)
    return centered if scale is None else centered / scale[None, :]


def _scale(model: Any) -> Array | None:
    scale = getattr(model, "scale_", None)
    return None if scale is None else cast(scale, accumulation_dtype(scale))


def _count(value: Any, limit: int, name: str) -> int:
    """Return a checked integer from 0 to `limit`; `limit` for None."""
    if value is None:
        return limit
    if not is_integer(value) or not 0 <= value <= limit:
        raise InvalidParameterError(f"{name}={value!r} is not allowed; it must be an integer from 0 to {limit}.")
    return int(value)
