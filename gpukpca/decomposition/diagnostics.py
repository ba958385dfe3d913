"""Diagnostics of a fitted PCA: quality of points, reconstruction, inertia, intrinsic dimension.

Every function takes a fitted PCA of this library or of scikit-learn: any model with `components_` (unit rows), `mean_`
and `explained_variance_`. For a model with `scale_` lengths are those of standardized data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, overload

import numpy as np

from gpukpca._rules import SHARE, Rule, is_integer
from gpukpca._typing import Array, ArrayLike, NumpyArray, NumpyRows, Real, Stream, UnknownRows, Vector
from gpukpca.algorithms.pca.operator import centered_matrix
from gpukpca.algorithms.pca.subspace import Subspace, cosines, nearest_points, of_rows_at, squared_distances
from gpukpca.backend import blocking
from gpukpca.backend.device import device_context, on_its_device
from gpukpca.backend.namespace import accumulation_dtype, cast, from_host, host_values, overflow_allowed, to_host
from gpukpca.data.batches import is_set
from gpukpca.data.finite import check_finite
from gpukpca.data.frequencies import sum_over_rows
from gpukpca.data.gate import as_rows
from gpukpca.data.place import to_caller
from gpukpca.data.rows import joined
from gpukpca.data.scale import power_of_two_scale
from gpukpca.data.slicing import in_memory
from gpukpca.data.statistics import feature_bounds, half_range
from gpukpca.decomposition._fitted import axes_of
from gpukpca.decomposition._reader import read_rows
from gpukpca.exceptions import InvalidParameterError

# Neighbors whose squared distance is below so many eps of the largest one from the mean are searched by differences.
BLURRED = 1e6
# Largest departure of axes from orthonormality, in units of sqrt(eps).
SKEW = 1.0


# -- points ------------------------------------------------------------------------------------------------------------


@overload
def squared_cosines(model: Any, X: UnknownRows, *, residual: bool = False) -> Array: ...
@overload
def squared_cosines(model: Any, X: NumpyRows[Real], *, residual: bool = False) -> NumpyArray[Real]: ...
@overload
def squared_cosines(model: Any, X: ArrayLike | Stream, *, residual: bool = False) -> Array: ...
def squared_cosines(model: Any, X: ArrayLike | Stream, *, residual: bool = False) -> Array:
    """Return how well components represent points: cos² of the angle between x - mean and each axis.

    Parameters
    ----------
    model : fitted PCA
    X : array, CSR matrix, data frame, set of zarr or HDF5, Dask array, or iterable of batches, shape (m, d)
        Memory maps and sets are read by slices.
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
    return _of_each_row(model, X, "squared_cosines", None, cosines, residual)


# -- reconstruction ----------------------------------------------------------------------------------------------------


@overload
def reconstruction(model: Any, X: UnknownRows, n_components: int | None = None) -> Array: ...
@overload
def reconstruction(model: Any, X: NumpyRows[Real], n_components: int | None = None) -> NumpyArray[Real]: ...
@overload
def reconstruction(model: Any, X: ArrayLike | Stream, n_components: int | None = None) -> Array: ...
def reconstruction(model: Any, X: ArrayLike | Stream, n_components: int | None = None) -> Array:
    """Return the projections of points onto the subspace of the first components.

    Parameters
    ----------
    model : fitted PCA
    X : array, CSR matrix, data frame, set of zarr or HDF5, Dask array, or iterable of batches, shape (m, d)
        Memory maps and sets are read by slices.
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
    return _of_each_row(model, X, "reconstruction", n_components, nearest_points)


@overload
def reconstruction_error(
    model: Any,
    X: ArrayLike | Stream,
    n_components: int | None = None,
    per_sample: Literal[False] = False,
    *,
    sample_weight: Vector | None = None,
) -> float: ...
@overload
def reconstruction_error(
    model: Any, X: ArrayLike | Stream, n_components: int | None = None, *, per_sample: bool
) -> Any: ...
def reconstruction_error(
    model: Any,
    X: ArrayLike | Stream,
    n_components: int | None = None,
    per_sample: bool = False,
    *,
    sample_weight: Vector | None = None,
) -> Any:
    """Return the squared distance of points from the subspace of the first components: the mean, or of each point.

    Parameters
    ----------
    model : fitted PCA
    X : array, CSR matrix, data frame, set of zarr or HDF5, Dask array, or iterable of batches, shape (m, d)
        Memory maps and sets are read by slices.
    n_components : int, optional
        Number of leading components, 0 to p; default: all.
    per_sample : bool
        Return one number a point.
    sample_weight : array, shape (m,), optional
        How often each point counts in the mean Σ w e / Σ w; see `gpukpca.PCA.fit`. Not with `per_sample`.

    Returns
    -------
    float; or an array of shape (m,) in the library of X and the dtype of the model
        On the data of fit, with its weights, the mean is Σ_{d>K} λ_d (s - 1)/s, s = Σ w, or the number of rows; where
        s < 2 it is Σ_{d>K} λ_d. For a model with `scale_` it is the distance between standardized points.

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
    if per_sample:
        if sample_weight is not None:
            raise InvalidParameterError(
                "per_sample=True gives one number a row, and takes no sample_weight; leave one of them out.",
                argument="sample_weight",
            )
        return _of_each_row(model, X, "reconstruction_error", n_components, squared_distances)
    name = "reconstruction_error"
    space, rows, _, weights = _space_and_rows(model, X, name, n_components, sample_weight)
    with device_context(space.axes), overflow_allowed():
        total = sum_over_rows(rows, weights, of_rows_at, squared_distances, space)
    return _finite(total / float(rows.shape[0] if weights is None else np.sum(weights)), name)


# -- inertia -----------------------------------------------------------------------------------------------------------


def inertia(X: ArrayLike | Stream, about: Any = None, *, sample_weight: Vector | None = None) -> float:
    """Return the sum of squared distances of points from a point or a subspace.

    Parameters
    ----------
    X : array, CSR matrix, data frame, set of zarr or HDF5, Dask array, or iterable of batches, shape (n, d)
        Memory maps and sets are read by slices.
    about : array of shape (d,), or (point, axes), optional
        A point; or a point (d,) and orthonormal axes (q, d) as rows, for the subspace through the point along the axes.
        Default: the mean of X.
    sample_weight : array, shape (n,), optional
        How often each point counts: the sum is Σ w ‖x - a‖², the mean Σ w x / Σ w; see `gpukpca.PCA.fit`.

    Returns
    -------
    float
        About a point a: I_a = n ‖a - x̄‖² + I_x̄ (Huygens), with weights Σ w in place of n. About a subspace through x̄:
        I_x̄ minus the inertia along its axes.

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
    rows, place, weights = read_rows("inertia", X, sample_weight)
    with device_context(place.work), overflow_allowed():
        if about is None:  # less the mean in the widest type, which a `CenteredMatrix` of float32 is not
            about = centered_matrix(rows, True, None, weights=weights).mean
        space = _subspace_of(about, place.work, int(rows.shape[1]))
        return _finite(sum_over_rows(rows, weights, of_rows_at, squared_distances, space), "inertia")


def _subspace_of(about: Any, like: Array, d: int) -> Subspace:
    """Return a point, perhaps with axes, where the rows are, in the widest type."""
    is_subspace = isinstance(about, tuple) and len(about) == 2 and len(np.shape(about[1])) == 2
    pair = about if is_subspace else (about, np.empty((0, d)))
    point, axes = (host_values(a).astype(np.float64) for a in pair)
    fits = point.shape == (d,) and axes.shape[1] == d and np.all(np.isfinite(point)) and np.all(np.isfinite(axes))
    skew = float(np.max(np.abs(axes @ axes.T - np.eye(len(axes))), initial=0.0)) if fits else math.inf
    if not skew <= SKEW * math.sqrt(float(np.finfo(np.float32).eps)):
        raise InvalidParameterError(
            f"about must be a finite point of shape ({d},), or a pair of such a point and orthonormal axes of shape "
            f"(q, {d}); got shape {point.shape}{f' and {axes.shape}, A Aᵀ - I reaching {skew:.1e}' * is_subspace}."
        )
    return Subspace(*(from_host(a, like, accumulation_dtype(like)) for a in (point, axes)))


# -- dimension ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class IntrinsicDimension:
    """The dimension of the neighborhood of every sample, and their median."""

    per_sample: np.ndarray
    median: float


def intrinsic_dimension(X: ArrayLike, n_neighbors: int = 20, threshold: float = 0.05) -> IntrinsicDimension:
    """Return the local intrinsic dimension by PCA of the neighborhood of every sample.

    Parameters
    ----------
    X : array, sparse matrix or data frame, shape (n, d)
        Any library; computed on the host. A set of zarr or HDF5, or batches, are refused: neighbors are searched among
        all rows. There are no weights either: a row that is repeated has itself for neighbors.
    n_neighbors : int >= 2
        Samples in a neighborhood apart from its center; at most n - 1. It bounds the dimension.
    threshold : float in (0, 1)
        An eigenvalue counts if it exceeds this share of the largest one of the neighborhood.

    Returns
    -------
    object
        Its `per_sample`, a host array (n,), counts the significant eigenvalues of the neighborhood of every sample; 0
        where all its neighbors are equal. `median` is theirs, a float.

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
    if is_set(X):
        raise InvalidParameterError(
            "intrinsic_dimension searches neighbors among all rows, in memory, and X is a set that is read by slices; "
            "pass X[:], or some of its rows."
        )
    rows = as_rows(X, "the dimension", finite=True)
    rows = np.asarray(to_host(rows), dtype=np.float64)
    rows = rows * power_of_two_scale(half_range(*feature_bounds(rows)), np.float64)  # distances in range
    limit = len(rows) - 1
    neighbors = Rule(f"an integer from 2 to n - 1 = {limit}", lambda value: is_integer(value) and 2 <= value <= limit)
    neighbors.check_argument("n_neighbors", n_neighbors)
    SHARE.check_argument("threshold", threshold)
    rows -= rows.mean(axis=0)  # an offset costs digits of distances
    found = _neighbors(rows, int(n_neighbors) + 1)
    step = max(1, blocking.NEIGHBOR_ENTRIES // (found.shape[1] * rows.shape[1]))
    starts = range(0, len(rows), step)
    local = [_local_dimensions(rows[found[start : start + step]], float(threshold)) for start in starts]
    per_sample = np.concatenate(local)
    return IntrinsicDimension(per_sample, float(np.median(per_sample)))


def _neighbors(rows: np.ndarray, count: int) -> np.ndarray:
    """Return the numbers of the `count` nearest rows to each row, shape (n, count)."""
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
    """Return the significant eigenvalues of each neighborhood (m, k, d), counted."""
    hoods = hoods - hoods.mean(axis=1, keepdims=True)
    # Squares of distances below 1e-154 would underflow: only ratios of the eigenvalues count.
    largest = np.max(np.abs(hoods), axis=(1, 2))
    hoods = hoods / np.where(largest > 0, largest, 1.0)[:, None, None]
    values = np.linalg.svd(hoods, compute_uv=False) ** 2
    return np.sum((values > threshold * values[:, :1]) & (largest > 0)[:, None], axis=1)


# -- shared ------------------------------------------------------------------------------------------------------------


def _space_and_rows(
    model: Any, X: Any, name: str, n_components: Any, sample_weight: Any = None
) -> tuple[Subspace, Any, Any, np.ndarray | None]:
    """Return the first components as a subspace, and what `read_rows` returns."""
    V = axes_of(model)
    p, d = map(int, V.shape)
    count = Rule(f"an integer from 0 to {p}", lambda value: value is None or (is_integer(value) and 0 <= value <= p))
    count.check_argument("n_components", n_components)
    space = Subspace(model.mean_, V[:n_components, :], getattr(model, "scale_", None))
    rows, place, weights = read_rows(name, X, sample_weight, model)
    if int(rows.shape[1]) != d:
        raise InvalidParameterError(
            f"X has {int(rows.shape[1])} features, but {type(model).__name__} is expecting {d} features as input."
        )
    # A device computes rows of the host where the model is, but for those that come in parts.
    return space if in_memory(rows) is not None else space.moved(rows.like), rows, place, weights


@on_its_device
def _of_each_row(model: Any, X: Any, name: str, n_components: Any, function: Callable[..., Array], *more: Any) -> Array:
    """Return a function of dense rows and the first components, where X is."""
    space, rows, place, _ = _space_and_rows(model, X, name, n_components)
    with device_context(space.axes), overflow_allowed():
        result = cast(joined(rows, of_rows_at, function, space, *more), space.axes.dtype)
        check_finite(result[:, None] if result.ndim == 1 else result, "The points are too large.", f"The {name}")
        return to_caller(result, place.origin)


def _finite(value: float, name: str) -> float:
    """Return a sum of squares; raise ValueError where it overflows."""
    if not math.isfinite(value):
        raise InvalidParameterError(f"the {name} overflows; divide the data by a constant.")
    return value
