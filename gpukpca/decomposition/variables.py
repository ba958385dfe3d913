"""Reading components by their variables: loadings, and correlations of variables with scores."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, overload

import numpy as np
from sklearn.utils import get_tags

from gpukpca._typing import Array, ArrayLike, Held, NumpyArray, NumpyRows, Real, Stream, UnknownRows, Vector
from gpukpca.algorithms.inputs import new_scores
from gpukpca.algorithms.pca.correlations import correlations
from gpukpca.backend.device import device_context, on_its_device
from gpukpca.backend.namespace import concat, from_host, namespace_of, overflow_allowed, to_host
from gpukpca.data.batches import each_batch, is_stream, named
from gpukpca.data.frequencies import rows_that_count
from gpukpca.data.gate import as_rows
from gpukpca.decomposition._base import AxesAttributes
from gpukpca.decomposition._batches import repeated, rows_to_score
from gpukpca.decomposition._dask import compute_dask
from gpukpca.decomposition._fitted import axes_of, check_model, fitted_value
from gpukpca.decomposition._reader import read_rows
from gpukpca.decomposition.pca import PCA
from gpukpca.exceptions import InvalidParameterError


@overload
def loadings(model: AxesAttributes[Held]) -> Held: ...
@overload
def loadings(model: Any) -> Array: ...
def loadings(model: Any) -> Array:
    """Return the loadings of a PCA, L = V Λ^½: covariances of the variables with standardized scores.

    Parameters
    ----------
    model : fitted PCA
        Of this library or of scikit-learn: with `components_` (unit rows) and `explained_variance_`. Of a model with
        `loadings_`, such as `ProbabilisticPCA`, those are returned: W = V (Λ - σ²)^½.

    Returns
    -------
    array, shape (d, p), in the library and the dtype of the model
        A row for each variable. Of all components L Lᵀ is the covariance matrix, and x - mean = L g with scores g of
        variance 1. With ``scale=True`` they are correlations.

    Raises
    ------
    NotFittedError
    InvalidParameterError
        A model without axes in data space, such as kernel PCA.

    See Also
    --------
    variable_correlations : The same over the standard deviations of the variables; for every model with scores.
    gpukpca.plotting.BiplotDisplay : Draws scores and variables.

    Notes
    -----
    Also named component loadings, or the component matrix (Jolliffe, Principal Component Analysis, 2nd ed. 2002,
    section 2.3). Some programs name V itself loadings: that is `components_`, transposed.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from gpukpca import PCA, loadings
    >>> X = load_iris().data
    >>> L = loadings(PCA().fit(X))
    >>> bool(np.allclose(L @ L.T, np.cov(X.T)))
    True
    """
    check_model(model)
    if (own := fitted_value(model, "loadings_")) is not None:
        return own
    V = axes_of(model)
    with device_context(V):
        xp = namespace_of(V)
        return V.T * xp.sqrt(model.explained_variance_)[None, :]


@overload
def variable_correlations(
    model: Any, X: UnknownRows, Y: Any = None, *, sample_weight: Vector | None = None
) -> Array: ...
@overload
def variable_correlations(
    model: Any, X: NumpyRows[Real], Y: NumpyRows[Any] | None = None, *, sample_weight: Vector | None = None
) -> NumpyArray[Real]: ...
@overload
def variable_correlations(
    model: Any, X: ArrayLike | Stream, Y: ArrayLike | Stream | None = None, *, sample_weight: Vector | None = None
) -> Array: ...
@on_its_device
def variable_correlations(
    model: Any, X: ArrayLike | Stream, Y: ArrayLike | Stream | None = None, *, sample_weight: Vector | None = None
) -> Array:
    """Return the correlations of variables with the scores of a model: the coordinates in the correlation circle.

    Parameters
    ----------
    model : fitted estimator
        With `transform`: PCA, kernel PCA, a pipeline; of any library that takes X.
    X : array, CSR matrix, data frame, set of zarr or HDF5, Dask array, or iterable of batches, shape (n, d)
        Rows whose scores are taken. They need not be those of the fit.
    Y : the same kinds, shape (n, q), optional
        Supplementary variables of these rows, which the model has not seen. Default: the columns of X.
    sample_weight : array, shape (n,), optional
        How often each row counts; see `gpukpca.PCA.fit`. Give the weights of the fit to read a model of weighted rows.
        Rows of weight 0 may hold anything.

    Returns
    -------
    array, shape (d, p), or (q, p) with Y; in the library of the variables
        Entry (j, k) is Σ w (x_j - x̄_j)(z_k - z̄_k) / (Σ w (x_j - x̄_j)² Σ w (z_k - z̄_k)²)^½ over the rows,
        x̄ = Σ w x / Σ w; 0 where a variable or a score is constant. Without weights w = 1. Of PCA on its own data
        this is v_jk λ_k^½ / s_j, and the squares of a row over all components sum to 1.

    Raises
    ------
    NotFittedError
    InvalidParameterError
        Y has not the rows of X; a kernel matrix without Y.
    ValueError, TypeError
        As `PCA.fit` for the variables, and as `transform` for X.

    See Also
    --------
    loadings : Covariances in place of correlations, from the model alone.
    gpukpca.decomposition.squared_cosines : How well components show points.
    gpukpca.plotting.BiplotDisplay : Draws scores and variables.

    Notes
    -----
    The squares are the cos² of variables (Lê, Josse & Husson, J. Stat. Softw. 25 (2008) 1). Kernel PCA has no axis that
    is a sum of variables, so only such correlations say what a component follows. Cost: `transform`, and 2 n d p
    operations; rows in batches and on a cluster are never joined, and sparse ones stay sparse.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gpukpca import PCA, KernelPCA, variable_correlations
    >>> X, kind = load_iris(return_X_y=True)
    >>> variable_correlations(PCA(2, scale=True).fit(X), X).round(3)
    array([[ 0.89 ,  0.361],
           [-0.46 ,  0.883],
           [ 0.992,  0.023],
           [ 0.965,  0.064]])
    >>> model = KernelPCA(2, kernel="rbf", gamma="median").fit(X)
    >>> variable_correlations(model, X, kind[:, None]).shape
    (1, 2)
    """
    check_model(model)
    if Y is None and get_tags(model).input_tags.pairwise:
        raise InvalidParameterError("X is a kernel matrix, whose columns are no variables; give the variables as Y.")
    name, variables = "variable_correlations", X if Y is None else Y
    scored, _ = rows_to_score(X, sample_weight)
    if is_stream(scored):
        scores = concat([as_rows(Z) for Z in each_batch(repeated(scored, name), name, model.transform)], axis=0)
    else:
        scores = compute_dask(PCA(), model.transform(scored))
    counts = rows_that_count(sample_weight)
    if counts is not None and int(scores.shape[0]) == np.count_nonzero(counts):
        known, scores = to_host(scores), np.zeros((len(counts), int(scores.shape[1])))
        scores[counts] = known
    with device_context(variables), overflow_allowed(), nullcontext() if Y is None else named("Y"):
        rows, place, weights = read_rows(name, variables, sample_weight)
        if rows.shape[0] != scores.shape[0]:
            raise InvalidParameterError(f"{rows.shape[0]} rows of variables for {scores.shape[0]} rows of X.")
        if rows.shape[0] < 2:
            raise InvalidParameterError("got 1 row, and correlations need at least 2; pass all rows of the data.")
        Z = new_scores(scores, int(scores.shape[1]), place.work)
        return from_host(correlations(rows, Z, weights), place.origin, place.origin.dtype)
